"""Regressors and base parameters: against Pinocchio on trees, against inverse dynamics on loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.identification import regressor
from tests.numeric import worst
from tests.references import pinocchio_regressors as reference

STORED = reference.regressors()
OTHERS = [(name, c) for name in reference.TREES for c in ("joint", "absolute") if (name, c) != ("branches", "joint")]


def tree(name: str, coordinates: str) -> Any:
    links = reference.TREES[name]
    bodies, joints = [], []
    for k, link in enumerate(links):
        xx, yy, zz, xy, xz, yz = link.inertia
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        body = sp.Body(f"body{k}", link.mass, inertia)
        start = sp.ground if link.parent < 0 else bodies[link.parent]
        place = np.array(link.place) - (0.0 if link.parent < 0 else np.array(links[link.parent].centre))
        kind = sp.Prismatic if link.slides else sp.Revolute
        joints.append(kind(f"J{k}", start.at(*place, axis=link.axis), body.at(*-np.array(link.centre), axis=link.axis)))
        bodies.append(body)
    return sp.Mechanism(bodies, joints, [sp.Gravity(reference.GRAVITY)], coordinates=coordinates)


def measured(name: str, mechanism: Any) -> mbd.MeasuredMotion:
    """The motion of a tree through the instants at which Pinocchio was asked."""
    names = [f"{joint.name}.{joint.coordinate_names[0]}" for joint in mechanism.joints]
    given = ({n: x[:, k] for k, n in enumerate(names)} for x in reference.motion(name))
    return mbd.MeasuredMotion(np.arange(reference.INSTANTS) * 1.0, *given, smoothing="none")


@pytest.mark.parametrize(
    ("name", "coordinates"),
    [
        ("branches", "joint"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS),
    ],
)
def test_regressor_of_a_tree_equals_that_of_pinocchio(name: str, coordinates: str) -> None:
    mechanism = tree(name, coordinates)
    found = regressor(mechanism, measured(name, mechanism))
    assert worst(found.matrix - STORED[name]) < 1e-12 * worst(STORED[name])
    assert worst(found.known) < 1e-12 * worst(STORED[name])  # nothing but bodies acts


@pytest.mark.parametrize("name", reference.TREES)
def test_stored_regressors_are_those_of_pinocchio(name: str) -> None:
    pytest.importorskip("pinocchio")
    assert worst(reference.computed(name) - STORED[name]) < 1e-13 * worst(STORED[name])


# --- loops ---------------------------------------------------------------------------------------------------


def four_bar(coordinates: str) -> Any:
    crank, coupler = pl.Body("crank", 1.0, 0.02, (0.1, 0.15, 1.2)), pl.Body("coupler", 1.0, 0.08, (0.75, 0.6, 0.5))
    rocker = pl.Body("rocker", 1.2, 0.07, (1.15, 0.45, 1.3))
    joints = [
        pl.Revolute("A", pl.ground.at(), crank.at(-0.17), armature=0.01),
        pl.Revolute("B", crank.at(0.17), coupler.at(-0.55)),
        pl.Revolute("C", coupler.at(0.55), rocker.at(0.45)),
        pl.Revolute("D", pl.ground.at(1.0, 0.0), rocker.at(-0.45)),
    ]
    forces = [pl.Gravity(), pl.JointSpringDamper("damper", "D.angle", stiffness=2.0, damping=0.3)]
    return pl.Mechanism([crank, coupler, rocker], joints, forces, coordinates=coordinates)


def turned(mechanism: Any, name: str, rate: float) -> Any:
    """The mechanism with a motor that turns a joint unsteadily."""
    start = float(mbd.read(mechanism, mbd.assemble(mechanism), name))
    module = pl if mechanism.space.dim == 2 else sp
    motor = module.Driver("motor", name, lambda t: start + rate * t + 0.2 * jnp.sin(3 * t))
    return mechanism.with_parts([motor])


def loops(which: str) -> tuple[Any, dict[str, Any]]:
    if which.startswith("four-bar"):
        driven = turned(four_bar(which.partition(" ")[2]), "A.angle", 2.0)
        return driven, {"numbers": ["damper.stiffness", "*.damping", "A.armature"]}
    if which == "slider-crank":
        mechanism = mbd.examples.get("slider-crank").mechanism.replaced(forces=[pl.Gravity()])
        return turned(mechanism, f"{mechanism.joints[0].name}.angle", 2.0), {}
    return turned(mbd.examples.get("spatial-four-bar").mechanism, "j1.angle", 1.0), {"bodies": ["b1", "b3"]}


@pytest.mark.parametrize(
    "which",
    [
        "four-bar joint",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("four-bar absolute", "slider-crank", "spatial-four-bar")),
    ],
)
def test_regressor_of_a_loop_predicts_the_efforts_of_other_numbers(which: str) -> None:
    driven, chosen = loops(which)
    ts = np.linspace(0.0, 1.0, 11)
    found = regressor(driven, ts, **chosen)
    draws = np.random.default_rng(0)
    values = np.asarray(found.values)
    # Masses and inertias grow by a factor each, the tensors as a whole: so bodies stay possible.
    factor = {
        name: draws.uniform(0.8, 1.2) for name in dict.fromkeys(name.partition(".inertia")[0] for name in found.names)
    }
    theta = values * [factor[name.partition(".inertia")[0]] for name in found.names]
    theta += [1e-5 * draws.normal() if ".first_moment" in name else 0.0 for name in found.names]
    expected = mbd.inverse_dynamics(found.with_values(theta), ts).effort("motor")
    assert worst(found.efforts(theta)["motor"] - expected) < 1e-11 * worst(expected)
    # The other numbers do matter.
    assert worst(found.efforts(found.values)["motor"] - expected) > 1e-3 * worst(expected)


def test_numbers_in_which_efforts_are_not_linear_are_refused() -> None:
    crank = pl.Body("crank", 1.0, 0.02)
    friction = pl.JointForce("friction", "O.angle", lambda t, x, rate, p: -p[0] * jnp.tanh(rate / p[1]), jnp.ones(2))
    mechanism = pl.Mechanism([crank], [pl.Revolute("O", pl.ground.at(), crank.at(-0.2))], [pl.Gravity(), friction])
    driven = turned(mechanism, "O.angle", 0.5)
    ts = np.linspace(0.0, 1.0, 11)
    assert regressor(driven, ts, numbers=["friction.parameters[0]"]).names[-1] == "friction.parameters[0]"
    with pytest.raises(mbd.MechanismError, match=r"not linear in 'friction\.parameters\[1\]'"):
        regressor(driven, ts, numbers=["friction.parameters[1]"])


def test_wrong_arguments_are_named() -> None:
    driven = turned(four_bar("joint"), "A.angle", 2.0)
    ts = np.linspace(0.0, 1.0, 5)
    with pytest.raises(mbd.MechanismError, match=r"no rigid body named 'crnk'.*'crank'"):
        regressor(driven, ts, bodies=["crnk"])
    with pytest.raises(mbd.MechanismError, match=r"names 'B\.b\.position\[0\]', which belongs neither to a force"):
        regressor(driven, ts, numbers=["B.b.position[0]"])
    with pytest.raises(mbd.MechanismError, match=r"2 actuators.*move 1 degree of freedom"):
        regressor(driven, ts, {"left": "A.angle", "right": "D.angle"})


# --- base parameters -----------------------------------------------------------------------------------------


def test_base_parameters_of_a_pendulum() -> None:
    pendulum = mbd.examples.get("pendulum").mechanism  # hinged half a metre from its centre of mass
    base = regressor(turned(pendulum, "O.angle", 3.0), np.linspace(0.0, 2.0, 21)).base()
    assert base.names == (
        "rod.first_moment.x + 0.5 rod.mass", "rod.first_moment.y", "rod.inertia - 0.25 rod.mass",
    )  # fmt: skip
    # Those are m c, and J_O − 2 · 0.5 m c, about the hinge.
    assert worst(base.values - np.array([0.5, 0.0, 0.0])) < 1e-9
    assert not base.without_effect
    assert base.condition < 100


@pytest.mark.slow
def test_base_parameters_of_an_arm() -> None:
    """Of the first body, whose axis is vertical, only the inertia about that axis acts."""
    mechanism = tree("arm", "joint")
    draws, ts = np.random.default_rng(0), np.linspace(0.0, 4.0, 41)
    motion = {f"J{k}.angle": sum(draws.normal() * np.sin(w * ts + draws.normal()) for w in (1, 2, 3)) for k in range(4)}
    found = regressor(mechanism, mbd.MeasuredMotion(ts, motion, smoothing="spline"))
    base = found.base()
    assert len(base.names) == np.linalg.matrix_rank(np.asarray(found.matrix).reshape(-1, 40), tol=1e-7)
    assert [name for name in base.without_effect if name.startswith("body0")] == [
        "body0.first_moment.z", *(f"body0.inertia.{k}" for k in ("xx", "yy", "xy", "xz", "yz"))
    ]  # fmt: skip
    # Numbers with the same base parameters have the same efforts.
    K = base.combination
    null = np.eye(40) - np.linalg.pinv(K) @ K
    theta = np.asarray(found.values) + null @ draws.normal(size=40)
    assert worst(found.matrix @ (theta - found.values)) < 1e-9 * worst(found.matrix)


# --- derivatives ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["forward", pytest.param("reverse", marks=pytest.mark.slow)])
def test_derivatives_of_a_regressor(mode: str) -> None:
    mechanism, ts = four_bar("joint"), np.linspace(0.0, 1.0, 5)

    def size(length: Any) -> Any:
        changed = mbd.with_numbers(mechanism, {"B.b.position[0]": length})
        return jnp.sum(regressor(turned(changed, "A.angle", 2.0), ts).matrix ** 2)

    def turned(changed: Any, name: str, rate: float) -> Any:
        return changed.with_parts([pl.Driver("motor", name, lambda t: 1.2 + rate * t)])

    derivative = (jax.jacfwd if mode == "forward" else jax.grad)(size)(-0.55)
    h = 1e-5
    expected = (size(-0.55 + h) - size(-0.55 - h)) / (2 * h)
    assert abs(derivative - expected) < 1e-6 * abs(expected)
