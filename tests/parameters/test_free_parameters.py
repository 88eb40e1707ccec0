"""Free parameters that are declared by names and patterns: where they are, how they are called, and what is refused."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.identification import Bounded, Parameter, Positive
from jaxmbd.parameters.parameters import collect


def chain() -> pl.Mechanism:
    """Two rods with two springs and a driven torque."""
    rods = [pl.Body("a", 1.0, 0.1), pl.Body("b", 2.0, 0.2)]
    pins = [
        pl.Revolute("O", pl.ground.at(), rods[0].at(-0.5, 0.0)),
        pl.Revolute("A", rods[0].at(0.5, 0.0), rods[1].at(-0.5, 0.0)),
    ]
    springs = [pl.JointSpringDamper("s", "O.angle", 3.0), pl.JointSpringDamper("t", "A.angle", 4.0)]
    motor = pl.JointForce("motor", "O.angle", lambda t, angle, rate, parameters: 0.0 * t)
    return pl.Mechanism(rods, pins, [*springs, motor], coordinates="joint")


def test_each_match_is_a_parameter_called_by_its_name() -> None:
    """Of names alone, and of names with ranges or parameters; arrays stay whole."""
    found = collect(chain(), ["a.mass", "*.stiffness", "O.b.position"])
    assert found.order == ("a.mass", "s.stiffness", "t.stiffness", "O.b.position")
    assert [found.free[name].unit for name in found.order] == ["kg", "N m/rad", "N m/rad", "m"]
    assert found.labels("O.b.position") == ["O.b.position[0]", "O.b.position[1]"]
    given = {"*.mass": Positive(), "s.stiffness": Parameter(start=5.0, within=Bounded(1.0, 9.0), unit="Nm")}
    found = collect(chain(), given)
    assert found.start == {"a.mass": 1.0, "b.mass": 2.0, "s.stiffness": 5.0}
    assert [type(found.free[name].within) for name in found.order] == [Positive, Positive, Bounded]
    assert found.free["s.stiffness"].unit == "Nm"
    changed = found.mechanism_at({"a.mass": 3.0, "b.mass": 4.0, "s.stiffness": 6.0})
    assert [changed["a"].mass, changed["b"].mass, changed["s"].stiffness] == [3.0, 4.0, 6.0]


def test_a_pattern_under_one_name_frees_each_match_for_itself() -> None:
    """Several leaves by a function share one value."""
    found = collect(chain(), {"masses": Parameter("*.mass", within=Positive()), "x": "O.b.position[0]"})
    assert found.labels("masses") == ["masses[a.mass]", "masses[b.mass]"]
    assert (found.free["masses"].unit, found.free["x"].unit) == ("kg", "m")
    changed = found.mechanism_at({"masses": {"a.mass": 3.0, "b.mass": 4.0}, "x": -0.7})
    assert [changed["a"].mass, changed["b"].mass] == [3.0, 4.0]
    np.testing.assert_array_equal(changed["O"].b.position, [-0.7, 0.0])
    values = found.physical(found.unconstrained(found.start))
    np.testing.assert_allclose(jax.tree.leaves(values["masses"]), [1.0, 2.0], rtol=1e-15)
    found = collect(chain(), {"both": Parameter("*.mass", start=7.0), "stiffness": "*.stiffness"})
    assert jax.tree.leaves(found.start["both"]) == [7.0, 7.0]
    assert found.labels("stiffness") == ["stiffness[s.stiffness]", "stiffness[t.stiffness]"]
    shared = collect(chain(), {"mass": lambda m: (m["a"].mass, m["b"].mass)})
    changed = shared.mechanism_at({"mass": jnp.asarray(3.0)})
    assert [changed["a"].mass, changed["b"].mass] == [3.0, 3.0]


def test_an_inertia_in_space_is_six_numbers() -> None:
    """So that every value is symmetric; one entry is one of them."""
    box = sp.Body("box", 1.0, [[0.2, 0.01, 0.0], [0.01, 0.3, 0.02], [0.0, 0.02, 0.25]])
    mechanism = sp.Mechanism([box], [sp.Spherical("O", sp.ground.at(), box.at(-0.5))], coordinates="joint")
    labels = [f"box.inertia[{k}]" for k in ("xx", "yy", "zz", "xy", "xz", "yz")]
    numbers = jnp.array([0.2, 0.3, 0.25, 0.05, 0.0, 0.02])
    for free, name, value, named in (
        (["*.inertia"], "box.inertia", numbers, labels),
        ({"J": "*.inertia"}, "J", {"box.inertia": numbers}, [f"J[{label}]" for label in labels]),
    ):
        found = collect(mechanism, free)
        assert found.labels(name) == named
        changed = found.mechanism_at({name: value})
        np.testing.assert_array_equal(changed["box"].inertia, [[0.2, 0.05, 0.0], [0.05, 0.3, 0.02], [0.0, 0.02, 0.25]])
    found = collect(mechanism, {"xy": "box.inertia[0,1]"})
    np.testing.assert_array_equal(found.mechanism_at({"xy": 0.05})["box"].inertia[:2, :2], [[0.2, 0.05], [0.05, 0.3]])


def test_inputs_are_fields_that_take_what_an_experiment_has() -> None:
    """A function in place of a function, a number of an array, by their own names or others."""
    table = mbd.Table([0.0, 1.0], [1.0, 3.0])
    for inputs in ({"motor.force": "motor.force"}, ["motor.force"]):
        changed = collect(chain(), ["a.mass"], inputs).mechanism_at({"motor.force": table})
        assert eqx.tree_equal(changed["motor"].force, table)
    found = collect(chain(), ["a.mass"], {"k": "s.stiffness", "x": "O.b.position[0]"})
    changed = found.mechanism_at({"k": jnp.asarray(8.0), "x": jnp.asarray(-0.7)})
    assert (changed["s"].stiffness, changed["O"].b.position[0]) == (8.0, -0.7)
    found = collect(chain(), ["a.mass"], {"k": "s.stiffness"})
    assert eqx.tree_equal(found.mechanism_at({"k": table})["s"].stiffness, table)


WRONG: dict[str, tuple[Any, Any, str]] = {
    "a name": (["a.mas"], None, "no number of a part named 'a.mas'. Did you mean 'a.mass'?"),
    "a key": ({"a.mas": Positive()}, None, "Did you mean 'a.mass'?"),
    "where": ({"m": Parameter("a.mas")}, None, "Did you mean 'a.mass'?"),
    "a pattern": (["*.mas"], None, "no number of a part named '*.mas'"),
    "no place": ({"k": Positive()}, None, "Free parameter 'k' needs a place or a start value"),
    "a value": ({"a.mass": 1.0}, None, "'a.mass' must be a name such as 'spring.stiffness', a function such as"),
    "a class": ({"a.mass": Positive}, None, "Free parameter 'a.mass'"),
    "a range": ({"s.stiffness": Bounded(5.0, 9.0)}, None, "'s.stiffness' starts at 3.0, outside its range"),
    "twice": ({"*.mass": None, "a.mass": None}, None, "Two entries declare 'a.mass'"),
    "two names": ({"m": "*.mass", "n": "a.mass"}, None, "'m' and 'n' are the same number of the mechanism"),
    "inside": ({"x": "O.b.position", "y": "O.b.position[0]"}, None, "'x' and 'y' are the same number"),
    "and a function": ({"x": lambda m: m["a"].mass, "y": "a.mass"}, None, "'x' and 'y' are the same number"),
    "an input": (["a.mass"], {"m": "a.mass"}, "'a.mass' and 'm' are the same number"),
    "an input's name": (["a.mass"], ["motor.forces"], "no number of a part named 'motor.forces'"),
    "an input's pattern": (["a.mass"], {"k": "*.stiffness"}, "Input 'k' must be one number, array or function"),
    "a setting": (["motor.coordinate"], None, "'motor.coordinate' is 'O.angle', a setting of JointForce 'motor'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_declarations_are_named(case: str) -> None:
    free, inputs, text = WRONG[case]
    with pytest.raises(mbd.MechanismError, match=re.escape(text)):
        collect(chain(), free, inputs)


def test_a_function_that_builds_the_mechanism_has_no_names() -> None:
    for free in (["a.mass"], {"m": "a.mass"}, {"m": Parameter("a.mass", start=1.0)}):
        with pytest.raises(mbd.MechanismError, match=r"needs a start value|names a number of a mechanism, and here a"):
            collect(lambda values: chain(), free)  # pyright: ignore[reportArgumentType]
