"""Friction that sticks exactly: clutches, a brake and a mass under Stribeck friction, against published numbers.

Of the Modelica Standard Library (CoupledClutches, Rotational and Translational Friction); the numbers are those of two
independent programs that agree to 1e-10, derivatives to 5e-11.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12, "max_events": 64}


def times_of(solution: mbd.Solution, name: str) -> np.ndarray:
    assert solution.events is not None
    return np.asarray(solution.events.times_of(name))


# --- a mass on the ground ----------------------------------------------------------------------------------------

BREAKS_LOOSE = 2 / np.pi * np.arcsin(15.015 / 25)
TURNS = (2.44269042036, 4.44194243146)
MASS_AT_FIVE = (1.76848961277, 6.8648403416)
MASS_BY = ((-0.250491022057, -0.143087075476), (0.173451383129, 0.213743061194))  # the excess near rest, 1 / v_b


def pushed(coordinates: str = "joint", breakaway: Any = 10.0, exponent: Any = 2.0) -> pl.Mechanism:
    mass = pl.Body("mass", 1.0, 1.0)
    friction = pl.DryFriction(
        "friction", "rail.displacement", 5.0, breakaway=breakaway, stribeck=1 / exponent, viscous=1.0, peak=1.001
    )
    push = pl.JointForce("push", "rail.displacement", lambda t, *_: 25 * jnp.sin(jnp.pi * t / 2))
    rail = pl.Prismatic("rail", pl.ground.at(), mass.at())
    return pl.Mechanism([mass], [rail], [friction, push], coordinates=coordinates)


def moved(mechanism: pl.Mechanism, ts: Any, **settings: Any) -> mbd.Solution:
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"rail.displacement": 0.0}), ts, **(TIGHT | settings))


@pytest.mark.parametrize("coordinates", ["joint", pytest.param("absolute", marks=pytest.mark.slow)])
def test_a_mass_that_sticks_and_slips(coordinates: str) -> None:
    solution = moved(pushed(coordinates), np.linspace(0.0, 5.0, 51))
    place, rate = np.asarray(solution["rail.displacement"]), np.asarray(solution["rail.displacement_rate"])
    np.testing.assert_allclose([place[-1], rate[-1]], MASS_AT_FIVE, atol=1e-8)
    np.testing.assert_allclose(place[:5], 0.0, atol=1e-12)  # until it breaks loose
    np.testing.assert_allclose(times_of(solution, "friction.slips forward"), [BREAKS_LOOSE, TURNS[1]], atol=1e-9)
    np.testing.assert_allclose(times_of(solution, "friction.slips back"), [TURNS[0]], atol=1e-9)
    assert solution.engine != "diffrax"
    # What holds it is what pushes it; then the law.
    push, effort = np.asarray(solution["push.effort"]), np.asarray(solution["friction.effort"])
    np.testing.assert_allclose(effort[:5], -push[:5], atol=1e-10)
    sliding = -np.sign(rate) * (5 + 10 * np.exp(-2 * abs(rate))) - rate
    np.testing.assert_allclose(effort[6:], sliding[6:], rtol=1e-10)
    np.testing.assert_array_equal(solution["friction.direction"], np.sign(np.where(abs(rate) < 1e-9, 0.0, rate)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_stick_and_slip(mode: Any) -> None:
    def end(breakaway: Array, exponent: Array) -> Array:
        solution = moved(pushed("joint", breakaway, exponent), np.array([0.0, 5.0]))
        return jnp.stack([solution["rail.displacement"][-1], solution["rail.displacement_rate"][-1]])

    found = mode(end, (0, 1))(jnp.asarray(10.0), jnp.asarray(2.0))
    np.testing.assert_allclose(found, MASS_BY, rtol=2e-7)


@pytest.mark.slow
def test_frictions_side_by_side_stick_at_their_own_times() -> None:
    excess = jnp.linspace(6.0, 14.0, 33)
    ts = np.array([0.0, 2.0, 5.0])
    read = lambda x: moved(pushed("joint", x), ts, throw=False)["rail.displacement"]  # noqa: E731
    batch = jax.vmap(read)(excess)
    for k in (0, 16, 31):
        np.testing.assert_allclose(batch[k], read(excess[k]), rtol=0, atol=1e-10)


@pytest.mark.slow
def test_a_motion_goes_on_while_it_sticks_and_while_it_slips() -> None:
    mechanism = pushed()
    whole = moved(mechanism, np.array([0.0, 3.0]))
    for middle in (0.3, 1.0):
        first = moved(mechanism, np.array([0.0, middle])).state()
        second = mbd.simulate(mechanism, first, np.array([middle, 3.0]), **TIGHT)
        np.testing.assert_allclose(second.q[-1], whole.q[-1], atol=1e-9)


@pytest.mark.slow
def test_what_is_added_to_a_friction_breaks_it_loose() -> None:
    """An input of the friction itself, and what presses it, are signals like others."""
    mass = pl.Body("mass", 1.0, 1.0)
    friction = pl.DryFriction("friction", "rail.displacement", 2.0)
    bare = pl.Mechanism(
        [mass], [pl.Prismatic("rail", pl.ground.at(), mass.at())], [friction], coordinates="joint"
    )  # fmt: skip
    pushed = mbd.with_inputs(bare, {"friction.effort": lambda t: 4.0 * t, "friction.normal": 0.5})
    solution = moved(pushed, np.array([0.0, 0.7, 1.0]))
    np.testing.assert_allclose(times_of(solution, "friction.slips forward"), [0.75], atol=1e-10)
    np.testing.assert_allclose(solution["rail.displacement"], [0.0, 0.0, 2 / 3 * 0.25**3], atol=1e-9)


def test_it_says_what_it_cannot() -> None:
    mechanism = pushed()
    with pytest.raises(mbd.MechanismError, match="DryFriction 'friction' changes at instants"):
        moved(mechanism, np.array([0.0, 1.0]), engine="diffrax")
    with pytest.raises(mbd.MechanismError, match="peak must be at least 1"):
        pl.DryFriction("f", "O.angle", 1.0, peak=0.5)


# --- three clutches in a row -------------------------------------------------------------------------------------

CLUTCHES = {
    "c2.sticks": 0.709621474694, "c1.sticks": 0.791662359155, "c1.slips back": 0.831108506138,
    "c3.sticks": 1.14396749247, "c1.opens": 1.25,
}  # fmt: skip
ANGLES, SPEEDS = (7.48611909911, 4.10713741633, 2.71046443623, 1.1737438776), (3.24705827242, *[2.46318716665] * 3)
SPEEDS_BY = (  # the coefficient of friction, the last inertia
    (-1.44594319195, 0.481981064179, 0.48198106413, 0.481981064132),
    (-2.68180539504e-10, -0.821062388882, -0.821062388848, -0.821062388848),
)


def train(coordinates: str = "joint", coefficient: Any = 0.5, last: Any = 1.0) -> pl.Mechanism:
    bodies = [pl.Body(f"J{k + 1}", 1.0, inertia) for k, inertia in enumerate((1.0, 1.0, 1.0, last))]
    joints = [pl.Revolute("A", pl.ground.at(), bodies[0].at())]
    joints += [pl.Revolute(n, a.at(), b.at()) for n, a, b in zip("BCD", bodies, bodies[1:], strict=False)]
    normals = [
        lambda t: 20 * jnp.sin(0.4 * jnp.pi * t + jnp.pi / 2), mbd.Piecewise([0.4], [0.0, 20.0]),
        mbd.Piecewise([0.9], [0.0, 20.0]),
    ]  # fmt: skip
    clutches = [
        pl.DryFriction(f"c{k + 1}", f"{n}.angle", coefficient, normal=normals[k], peak=1.1) for k, n in enumerate("BCD")
    ]
    motor = pl.Torque("motor", bodies[0].at(), lambda t, *_: 10 * jnp.sin(10 * jnp.pi * t))
    return pl.Mechanism(bodies, joints, [motor, *clutches], coordinates=coordinates)


def turned(mechanism: pl.Mechanism, ts: np.ndarray) -> mbd.Solution:
    angles, rates = dict.fromkeys((f"{n}.angle" for n in "ABCD"), 0.0), {"C.angle": 0.0, "D.angle": 0.0}
    start = mbd.assemble(mechanism, angles, speeds={"A.angle": 10.0, "B.angle": -10.0, **rates})
    return mbd.simulate(mechanism, start, ts, **TIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_clutches_lock_slip_and_open(coordinates: str) -> None:
    solution = turned(train(coordinates), np.linspace(0.0, 1.5, 31))
    for name, time in CLUTCHES.items():
        assert abs(times_of(solution, name) - time).min() < 1e-9, name
    np.testing.assert_allclose(times_of(solution, "c1.slips back"), [0.831108506138, 1.00029585989], atol=1e-9)
    np.testing.assert_allclose(times_of(solution, "c3.slips back"), [0.4], atol=1e-9)
    np.testing.assert_allclose([solution[f"J{k}.theta"][-1] for k in (1, 2, 3, 4)], ANGLES, atol=1e-8)
    np.testing.assert_allclose([solution[f"J{k}.omega"][-1] for k in (1, 2, 3, 4)], SPEEDS, atol=1e-8)
    slip = np.asarray(solution["C.angle_rate"])[np.asarray(solution.ts) > 0.71]
    assert abs(slip).max() < 1e-10  # it is locked, without creep


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_clutches(mode: Any) -> None:
    def end(coefficient: Array, last: Array) -> Array:
        solution = turned(train("joint", coefficient, last), np.array([0.0, 1.5]))
        return jnp.stack([solution[f"J{k}.omega"][-1] for k in (1, 2, 3, 4)])

    found = mode(end, (0, 1))(jnp.asarray(0.5), jnp.asarray(1.0))
    np.testing.assert_allclose(found, SPEEDS_BY, rtol=0, atol=2e-7)


# --- a clutch, an elastic shaft and a brake ----------------------------------------------------------------------

BRAKE = {
    "clutch.sticks": (0.00677970887792, 0.109289826824, 1.66364144279),
    "clutch.slips forward": (0.0593392840273, 0.534248338546), "brake.sticks": (0.640613940788,),
}  # fmt: skip
BRAKE_AT_THREE = (101.565191064, 54.3544150338, 54.5504069996, 2.28987147111)
BRAKE_BY_STIFFNESS = (0.0223015808995, 0.0121662424928, 0.00203888132074, 0.1094761808)


def braked(stiffness: Any = 160.0, coordinates: str = "joint") -> pl.Mechanism:
    one, two, three = (pl.Body(f"J{k}", 1.0, inertia) for k, inertia in ((1, 1.0), (2, 0.05), (3, 1.0)))
    joints = [pl.Revolute("A", pl.ground.at(), three.at()), pl.Revolute("B", three.at(), two.at())]
    joints += [pl.Revolute("C", two.at(), one.at())]
    torque = mbd.Piecewise([0.5], [lambda t: 200 * jnp.sin(100 * t), 0.0])
    forces = [
        pl.Torque("motor", one.at(), lambda t, *_: torque(t)),
        pl.JointSpringDamper("shaft", "B.angle", stiffness, damping=1.0),
        pl.DryFriction("clutch", "C.angle", 0.5, normal=160.0),
        pl.DryFriction("brake", "A.angle", 0.5, normal=mbd.Piecewise([0.5], [0.0, 1600.0])),
    ]
    return pl.Mechanism([one, two, three], joints, forces, coordinates=coordinates)


def stopped(mechanism: pl.Mechanism, ts: np.ndarray) -> mbd.Solution:
    start = mbd.assemble(
        mechanism, dict.fromkeys(("A.angle", "B.angle", "C.angle"), 0.0),
        speeds={"A.angle": 90.0, "B.angle": 0.0, "C.angle": 10.0},
    )  # fmt: skip
    return mbd.simulate(mechanism, start, ts, **TIGHT)


def ends_of(solution: mbd.Solution) -> Array:
    return jnp.stack([solution[name][-1] for name in ("J1.theta", "J2.theta", "J3.theta", "J1.omega")])


@pytest.mark.slow
def test_a_brake_stops_a_train() -> None:
    solution = stopped(braked(), np.linspace(0.0, 3.0, 31))
    for name, times in BRAKE.items():
        found = times_of(solution, name)
        for time in times:
            assert abs(found - time).min() < 1e-9, (name, time, found)
    np.testing.assert_allclose(ends_of(solution), BRAKE_AT_THREE, rtol=0, atol=1e-7)
    assert abs(np.asarray(solution["J3.omega"])[np.asarray(solution.ts) > 0.65]).max() < 1e-10
    end = lambda c: ends_of(stopped(braked(c), np.array([0.0, 3.0])))  # noqa: E731
    np.testing.assert_allclose(jax.jacfwd(end)(jnp.asarray(160.0)), BRAKE_BY_STIFFNESS, rtol=1e-6)
