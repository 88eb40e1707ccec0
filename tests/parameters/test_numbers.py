"""The numbers of a mechanism by name: what names and patterns stand for, other values, and derivatives by them."""

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
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.parameters.numbers import find, numbers_of
from tests import arguments
from tests.test_wrong_arguments import faults

G = 9.81
TABLE = mbd.Table(np.linspace(0.0, 1.0, 20), np.linspace(0.0, 0.1, 20))


class Cubic(eqx.Module):
    """A law of a user's own, with two layers of numbers and a number that is none of them."""

    layers: list[dict[str, Any]]
    exponent: float = eqx.field(static=True)

    def __call__(self, t: Any, angle: Any, rate: Any, parameters: Any) -> Any:
        return -self.layers[0]["weight"] * rate - self.layers[1]["weight"] @ jnp.stack([rate, rate**3])


def plane(coordinates: str = "joint", mass: Any = 2.0, length: Any = 0.5, inertia: float = 0.1) -> pl.Mechanism:
    """A pendulum with a table and a law of a user's own."""
    rod = pl.Body("leg_1", mass, inertia)
    forces = [
        pl.Gravity(G),
        pl.JointForce("motor", "hip.angle", TABLE),
        pl.JointForce("drag", "hip.angle", Cubic([{"weight": jnp.asarray(0.2)}, {"weight": jnp.ones(2)}], 3.0)),
        pl.JointForce(
            "push",
            "hip.angle",
            lambda t, angle, rate, p: p[0] - p[1] * angle,
            parameters=(jnp.asarray(0.3), jnp.asarray(0.7), 2.0),
        ),
        pl.JointSpringDamper("spring", "hip.angle", 3.0),
    ]
    pin = pl.Revolute("hip", pl.ground.at(), rod.at(-length, 0.0))
    return pl.Mechanism([rod], [pin], forces, coordinates=coordinates)


def space(coordinates: str = "joint", mass: Any = 2.0, length: Any = 0.5, xy: float = 0.01) -> sp.Mechanism:
    """A box on a ball joint, with products of inertia."""
    inertia = [[0.2, xy, 0.0], [xy, 0.3, 0.02], [0.0, 0.02, 0.25]]
    box = sp.Body("box", mass, inertia)
    ball = sp.Spherical("O", sp.ground.at(), box.at(-length, 0.0, 0.1))
    return sp.Mechanism([box], [ball], [sp.Gravity(G)], coordinates=coordinates)


def test_names_lead_to_all_numbers() -> None:
    """In tables, in modules and containers of users, as a whole and element by element."""
    values = {
        "leg_1.mass": 2.0, "leg_1.inertia": 0.1, "hip.b.position": [-0.5, 0.0], "hip.b.position[0]": -0.5,
        "gravity.acceleration": G, "motor.force.values[19]": 0.1, "drag.force.layers[0][weight]": 0.2,
        "drag.force.layers[1][weight][1]": 1.0, "push.parameters[1]": 0.7, "spring.stiffness": 3.0,
        "leg_1.pose": [0.0, 0.0, 0.0], "hip.a.position[1]": 0.0,
    }  # fmt: skip
    found = mbd.numbers(plane(), list(values))
    assert list(found) == list(values)
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value)
    np.testing.assert_array_equal(mbd.numbers(space(), "box.inertia[1,2]")["box.inertia[1,2]"], 0.02)
    assert "motor.force.values" in mbd.numbers(plane())  # as a whole: too long for a list of its numbers
    assert not [name for name in numbers_of(plane()) if name.startswith("motor.force.values")]


def test_patterns_match_arrays_or_with_an_index_single_numbers() -> None:
    matches = {
        "*.mass": ["leg_1.mass"],
        "hi?.b.*": ["hip.b.position", "hip.b.angle"],
        "*.b.position[?]": ["hip.b.position[0]", "hip.b.position[1]"],
        "drag.*[weight]": ["drag.force.layers[0][weight]"],  # the other one is an array
        "push.parameters[*]": ["push.parameters[0]", "push.parameters[1]"],
        "leg*": ["leg_1.mass", "leg_1.inertia"],  # the pose is a guess
    }
    for pattern, names in matches.items():
        assert [one.name for one in find(plane(), pattern)] == names, pattern
    six = ["[0,0]", "[0,1]", "[0,2]", "[1,1]", "[1,2]", "[2,2]"]
    assert [one.name for one in find(space(), "*.inertia[*]")] == [f"box.inertia{index}" for index in six]
    assert not [name for name in mbd.numbers(space()) if "rotation" in name]
    assert find(space(), "O.a.rotation")


@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_a_mechanism_with_other_numbers_is_that_made_with_them(coordinates: str) -> None:
    """In the plane and in space, where two entries of the inertia are one number."""
    flat = {"leg_1.mass": 1.3, "hip.b.position[0]": -0.8, "leg_1.inertia": 0.07}
    solid = {"*.mass": 1.3, "O.b.position": [-0.8, 0.0, 0.1]}
    pairs = [
        (mbd.with_numbers(plane(coordinates), flat), plane(coordinates, 1.3, 0.8, 0.07)),
        (mbd.with_numbers(space(coordinates), {**solid, "box.inertia[0,1]": 0.05}), space(coordinates, 1.3, 0.8, 0.05)),
        (mbd.with_numbers(space(coordinates), {**solid, "box.inertia[1,0]": 0.05}), space(coordinates, 1.3, 0.8, 0.05)),
    ]
    for changed, made in pairs:
        assert changed.coordinate_names == made.coordinate_names
        for one, other in zip(jax.tree.leaves(changed), jax.tree.leaves(made), strict=True):
            if eqx.is_array(one):
                np.testing.assert_array_equal(one, other)


def test_derivatives_of_what_is_read_from_the_parts() -> None:
    """The moment of inertia about the pin, `I + m l²`, and a product with an entry of a symmetric matrix."""

    def about_pin(x: Any) -> Any:
        changed = mbd.with_numbers(plane(), {"leg_1.mass": x[0], "hip.b.position[0]": -x[1], "*.inertia": x[2]})
        return changed["leg_1"].inertia + changed["leg_1"].mass * jnp.sum(changed["hip"].b.position ** 2)

    def product(x: Any) -> Any:
        return jnp.sum(jnp.array([[0.0, 2.0, 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]) * inertia(x))

    def inertia(x: Any) -> Any:
        return mbd.with_numbers(space(), {"box.inertia[0,1]": x})["box"].inertia

    x = jnp.array([1.3, 0.8, 0.2])
    many, slopes = jnp.stack([x, 2 * x]), lambda x: np.stack([x[1] ** 2, 2 * x[0] * x[1], np.ones_like(x[0])])
    np.testing.assert_allclose(jax.grad(about_pin)(x), slopes(x), rtol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.jacfwd(about_pin)))(many), slopes(many.T).T, rtol=1e-14)
    assert jax.grad(product)(0.03) == jax.jvp(product, (0.03,), (1.0,))[1] == 7.0


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_derivatives_by_numbers(coordinates: str) -> None:
    """The angular acceleration of a pendulum `−m g l cos θ / (I + m l²)`, forward, reverse, compiled, in a batch."""
    rod, θ = pl.Body("rod", 2.0, 0.1), 0.4
    pin = pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))
    mechanism = pl.Mechanism([rod], [pin], [pl.Gravity(G)], coordinates=coordinates)

    def alpha(x: Any) -> Any:
        equations = mbd.Equations(mbd.with_numbers(mechanism, {"rod.mass": x[0], "O.b.position[0]": -x[1]}))
        q = jnp.stack([θ * jnp.ones(())] if coordinates == "joint" else [x[1] * jnp.cos(θ), x[1] * jnp.sin(θ), θ])
        at, v = equations.at(jnp.zeros(()), q), jnp.zeros(mechanism.nv)
        return SaddlePoint(at).accelerations(at.force(v), at.gamma(v))[0][-1]

    def formula(x: Any) -> Any:
        return -x[0] * G * x[1] * jnp.cos(θ) / (0.1 + x[0] * x[1] ** 2)

    x = jnp.array([1.3, 0.8])
    slopes = jax.grad(formula)(x)
    np.testing.assert_allclose(alpha(x), formula(x), rtol=1e-10)
    np.testing.assert_allclose(jax.jacrev(alpha)(x), slopes, rtol=1e-8)
    many = jnp.stack([x, 1.1 * x])
    compiled = jax.jit(jax.vmap(jax.jacfwd(alpha)))
    np.testing.assert_allclose(compiled(many), jax.vmap(jax.grad(formula))(many), rtol=1e-8)


def test_numbers_keep_their_type() -> None:
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, plane())
    for value in (1.5, 2, np.float64(1.5), jnp.asarray(1.5)):
        changed = mbd.with_numbers(single, {"leg_1.mass": value, "hip.b.position[1]": value})
        assert changed["leg_1"].mass.dtype == changed["hip"].b.position.dtype == jnp.float32
        assert changed["hip"].b.position[1] == value
    types = jax.eval_shape(lambda x: mbd.with_numbers(single, {"leg_1.mass": x})["leg_1"].mass, 1.0)
    assert types.dtype == jnp.float32


def test_numbers_of_generalized_speeds() -> None:
    """Speeds of a user's choice, `v = c p`, by the factor `c`."""
    speeds = pl.GeneralizedSpeeds(["u"], lambda t, q, p, c: c["factor"] * p, {"factor": jnp.asarray(2.0)})
    mechanism = plane().with_coordinates("joint", speeds=speeds)
    assert mbd.numbers(mechanism, "speeds.parameters[factor]") == {"speeds.parameters[factor]": 2.0}
    changed = mbd.with_numbers(mechanism, {"speeds.parameters[factor]": 4.0})
    np.testing.assert_allclose(mbd.Equations(changed).at(jnp.zeros(()), jnp.array([0.3])).rate(jnp.ones(1)), [4.0])


def test_numbers_are_a_tree_that_is_printed_with_units() -> None:
    found = mbd.numbers(plane(), ["*.mass", "hip.b.position", "spring.stiffness"])
    assert str(found).splitlines() == [
        "number            value      unit",
        "leg_1.mass        2          kg",
        "hip.b.position    [-0.5, 0]  m",
        "spring.stiffness  3          N m/rad",
    ]
    slopes = jax.grad(lambda values: sum(jnp.sum(x**2) for x in values.values()))(found)
    assert isinstance(slopes, mbd.NamedNumbers)
    assert "kg" not in str(slopes)
    np.testing.assert_array_equal(slopes["hip.b.position"], [-1.0, 0.0])
    less = jax.tree.map(lambda x, slope: x - 0.1 * slope, found, slopes)
    assert mbd.with_numbers(plane(), less)["leg_1"].mass == 1.6
    shown: list[str] = []
    jax.eval_shape(lambda x: shown.append(str(x)) or x, found)
    assert re.search(r"leg_1.mass +f64\[\]", shown[0])


def test_numbers_have_the_units_of_their_classes() -> None:
    """Along an angle and along a displacement; of markers too."""
    rod, slider = pl.Body("rod", 1.0, 0.1), pl.Body("slider", 1.0, 0.1)
    joints = [pl.Revolute("O", pl.ground.at(), rod.at(-0.5)), pl.Prismatic("rail", rod.at(), slider.at())]
    springs = [pl.JointSpringDamper("turn", "O.angle", 1.0), pl.JointSpringDamper("push", "rail.displacement", 1.0)]
    mechanism = pl.Mechanism([rod, slider], joints, [*springs, pl.Force("pull", rod.at(), (1.0, 0.0))])
    units = {
        "rod.inertia": "kg m²", "O.b.position[0]": "m", "O.b.angle": "rad", "turn.stiffness": "N m/rad",
        "push.stiffness": "N/m", "turn.free_position": "rad", "push.damping": "N s/m", "pull.force[0]": "N",
        "pull.torque": "N m",
    }  # fmt: skip
    assert mbd.numbers(mechanism, list(units)).units == units


WRONG = {
    "a name": ({"leg_1.mas": 1.0}, "no number of a part named 'leg_1.mas'. Did you mean 'leg_1.mass'?"),
    "a part": ({"leg_2.mass": 1.0}, "Did you mean 'leg_1.mass'?"),
    "a pattern": ({"*.mas": 1.0}, "no number of a part named '*.mas'"),
    "no text": ({3: 1.0}, "names in with_numbers: values must be strings"),
    "an index": ({"hip.b.position[2]": 1.0}, "'hip.b.position' has the shape (2,), and no number with the index [2]"),
    "two indices": ({"hip.b.position[0,0]": 1.0}, "and no number with the index [0, 0]"),
    "a setting": ({"drag.force.exponent": 2.0}, "'drag.force.exponent' is 3.0, a setting of JointForce 'drag'"),
    "a number of Python": ({"push.parameters[2]": 1.0}, "is 2.0, a number of Python, which is part of the program"),
    "a function": ({"push.force": 2.0}, "'push.force' is a function without numbers"),
    "a module": ({"motor.force": 2.0}, "no number of a part named 'motor.force'. Known names: "),
    "a shape": ({"hip.b.position": 1.0}, "'hip.b.position' must have shape (2,), got shape ()"),
    "shapes": ({"hip.*": 1.0}, "'hip.*' must have shape (2,), got shape ()"),
    "a part's rule": ({"leg_1.mass": -1.0}, "Body 'leg_1': mass must be positive [kg] and finite, got -1"),
    "nothing": ({"leg_1.mass": float("nan")}, "'leg_1.mass' must be finite, got nan"),
    "twice": ({"*.mass": 1.0, "leg_1.mass": 2.0}, "'*.mass' and 'leg_1.mass' are the same number"),
    "inside": ({"hip.b.position": [1, 2], "hip.b.position[0]": 1}, "are the same number of the mechanism"),
}  # fmt: skip


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_named(case: str) -> None:
    values, text = WRONG[case]
    with pytest.raises(mbd.MechanismError, match=re.escape(text)):
        mbd.with_numbers(plane(), values)  # pyright: ignore[reportArgumentType]


def test_one_name_of_two_parts_is_an_error() -> None:
    """`speeds` is the first word of numbers in generalized speeds, and may be the name of a force."""
    rod = pl.Body("rod", 1.0, 0.1)
    force = pl.JointForce("speeds", "O.angle", lambda t, angle, rate, p: p, parameters=jnp.asarray(0.2))
    speeds = pl.GeneralizedSpeeds(["u"], lambda t, q, p, c: c * p, jnp.asarray(2.0))
    mechanism = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5))], [force], coordinates="joint")
    assert mbd.numbers(mechanism, "speeds.parameters") == {"speeds.parameters": 0.2}
    with pytest.raises(mbd.MechanismError, match=r"'speeds.parameters' names numbers of 2 parts"):
        mbd.numbers(mechanism.with_coordinates("joint", speeds=speeds), "speeds.parameters")


@pytest.mark.usefixtures("as_a_user_runs_it")
def test_any_other_argument_is_an_error_of_the_library() -> None:
    mechanism = plane()
    for right in (
        arguments.call(mbd.numbers, mechanism, ["leg_1.mass"]),
        arguments.call(mbd.with_numbers, mechanism, {"leg_1.mass": 2.0}),
    ):
        assert faults(right) == []
