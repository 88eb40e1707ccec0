"""Play with elastic contacts: a gear and a mass between stops, against closed forms and published numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.linalg import expm
from scipy.optimize import brentq

import jaxmbd as mbd
from jaxmbd import planar as pl

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}

# --- a wheel that is pushed to and fro in the play of its gear --------------------------------------------------------

STIFFNESS, DAMPING, INERTIA, HALF, START = 2e4, 50.0, 5.0, np.pi / 8, np.pi / 2


def by_phases(c: float, d: float, half: float, limited: bool, t1: float) -> np.ndarray:
    """The angle and its rate by the closed solution of each phase: free, pushed by the spring and the damper, and by
    twice the spring, where the damper is limited."""
    spring, doubled = np.array([[0, 1], [-c / INERTIA, -d / INERTIA]]), np.array([[0, 1], [-2 * c / INERTIA, 0]])
    t, side, y, phase = 0.0, 1.0, np.array([START - half, 0.0]), "spring"
    while True:
        if phase == "free":
            dt = (2 * half + y[0]) / -y[1]
            if t + dt >= t1:
                return side * np.array([half + y[0] + y[1] * (t1 - t), y[1]])
            t, side, y, phase = t + dt, -side, np.array([0.0, -y[1]]), "doubled" if limited else "spring"
            continue
        A, row = (spring, np.array([c, d])) if phase == "spring" else (doubled, np.array([c, -d]))
        height = lambda s, A=A, row=row, y=y: row @ expm(A * s) @ y  # noqa: E731
        grid = np.arange(1e-6, 0.05, 2e-3)
        k = np.flatnonzero(np.diff(np.sign([height(s) for s in grid])))[0]
        dt = float(brentq(height, grid[k], grid[k + 1], xtol=1e-16, rtol=1e-15))  # pyright: ignore
        y = expm(A * min(dt, t1 - t)) @ y
        if t + dt >= t1:
            return side * np.array([half + y[0], y[1]])
        t, phase = t + dt, "free" if phase == "spring" else "spring"


def rattled(c: Any = STIFFNESS, d: Any = DAMPING, half: Any = HALF, limited: bool = True, **how: Any) -> mbd.Solution:
    wheel, coordinates = pl.Body("wheel", 1.0, INERTIA), how.pop("coordinates", "joint")
    gear = pl.Backlash("gear", "O.angle", c, d, play=2 * half, limited=limited)
    joint = pl.Revolute("O", pl.ground.at(), wheel.at())
    mechanism = pl.Mechanism([wheel], [joint], [gear], coordinates=coordinates)
    ts = how.pop("ts", np.array([0.0, 1.0]))
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": START}), ts, **(TIGHT | how))


def end_of(solution: mbd.Solution) -> Array:
    return jnp.stack([solution["O.angle"][-1], solution["O.angle_rate"][-1]])


@pytest.mark.parametrize("limited", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_wheel_rattles_in_the_play_of_its_gear(limited: bool) -> None:
    solution = rattled(limited=limited)
    assert solution.engine != "diffrax"
    np.testing.assert_allclose(end_of(solution), by_phases(STIFFNESS, DAMPING, HALF, limited, 1.0), rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"coordinates": "absolute"}, {"solver": mbd.Radau()}], ids=["absolute", "radau"])
def test_it_rattles_alike_by_other_ways(settings: dict[str, Any]) -> None:
    exact = by_phases(STIFFNESS, DAMPING, HALF, True, 1.0)
    np.testing.assert_allclose(end_of(rattled(**settings)), exact, rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_the_rattle(mode: Any) -> None:
    given, steps = (STIFFNESS, DAMPING, HALF), (1.0, 1e-3, 1e-6)
    found = mode(lambda *x: end_of(rattled(*x)), (0, 1, 2))(*map(jnp.asarray, given))
    for k, h in enumerate(steps):
        at = []
        for s in (2, 1, -1, -2):
            c, d, half = (x + s * h * (i == k) for i, x in enumerate(given))
            at.append(by_phases(c, d, half, True, 1.0))
        np.testing.assert_allclose(found[k], (8 * (at[1] - at[2]) - at[0] + at[3]) / (12 * h), rtol=1e-6)


@pytest.mark.slow
def test_plays_side_by_side_and_a_motion_that_goes_on() -> None:
    halves = jnp.linspace(0.3, 0.5, 17)
    batch = jax.vmap(lambda half: end_of(rattled(half=half)))(halves)
    for k in (0, 9, 16):
        exact = by_phases(STIFFNESS, DAMPING, float(halves[k]), True, 1.0)
        np.testing.assert_allclose(batch[k], exact, rtol=0, atol=1e-8)
    for middle in (0.0245, 0.1):  # it pushes no more; it flies
        first = rattled(ts=np.array([0.0, middle]))
        second = mbd.simulate(first.mechanism, first.state(), np.array([middle, 1.0]), **TIGHT)
        np.testing.assert_allclose(end_of(second), by_phases(STIFFNESS, DAMPING, HALF, True, 1.0), rtol=0, atol=1e-8)


def test_a_wheel_rests_on_one_side_of_the_play() -> None:
    """At an equilibrium no side is told, and small motions do not change it."""
    wheel = pl.Body("wheel", 1.0, INERTIA)
    gear = pl.Backlash("gear", "O.angle", 100.0, 4.0, play=0.2)
    forces = [gear, pl.JointForce("load", "O.angle", 5.0)]
    mechanism = pl.Mechanism([wheel], [pl.Revolute("O", pl.ground.at(), wheel.at())], forces, coordinates="joint")
    found = mbd.equilibrium(mechanism, mbd.assemble(mechanism, {"O.angle": 0.2}))
    np.testing.assert_allclose(found.state.q, [0.15], rtol=1e-9)
    assert bool(found.stable)
    system = mbd.linearize(mechanism, found)
    assert len(system.states) == 2
    np.testing.assert_allclose(system.A[1], [-100 / INERTIA, -4 / INERTIA], rtol=1e-9)
    with pytest.raises(mbd.MechanismError, match=r"Backlash 'gear': play must be zero or positive"):
        pl.Backlash("gear", "O.angle", 100.0, play=-0.1)


# --- a mass between elastic stops (Modelica Standard Library, ElastoGap; two methods agree to 6e-12) ------------------

AT_FIVE, EDGES = (-0.70788529408, 0.537529187722), (
    0.583372882547, 0.875160816924, 1.89620137049, 2.40406620014, 3.4251067537, 4.30905929185,
)  # fmt: skip
BY_C_AND_D = (0.164162056112, 0.481666798542), (-0.397063455785, -1.82200732475)


def thrown(c: Any = 10.0, d: Any = 1.5, **settings: Any) -> mbd.Solution:
    mass = pl.Body("mass", 1.0, 1.0)
    rail = pl.Prismatic("rail", pl.ground.at(), mass.at())
    stops = pl.Backlash("stops", "rail.displacement", c, d, play=1.0)
    mechanism = pl.Mechanism([mass], [rail], [stops], coordinates="joint")
    start = mbd.assemble(mechanism, {"rail.displacement": 2.0})
    return mbd.simulate(mechanism, start, np.array([0.0, 5.0]), **(TIGHT | settings))


def place_of(solution: mbd.Solution) -> Array:
    return jnp.stack([solution["rail.displacement"][-1], solution["rail.displacement_rate"][-1]])


@pytest.mark.slow
def test_a_mass_between_stops() -> None:
    edges = [mbd.Event(name, "rail.displacement", at=x, then=mbd.LogOnly()) for name, x in (("a", 0.5), ("b", -0.5))]
    solution = thrown(events=edges)
    np.testing.assert_allclose(place_of(solution), AT_FIVE, rtol=0, atol=1e-9)
    assert solution.events is not None
    np.testing.assert_allclose(solution.events.times[: len(EDGES)], EDGES, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(solution.events.count, len(EDGES))  # what the part changes takes no room
    assert thrown().events is None


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_mass_between_stops(mode: Any) -> None:
    found = mode(lambda *x: place_of(thrown(*x)), (0, 1))(jnp.asarray(10.0), jnp.asarray(1.5))
    np.testing.assert_allclose(found, BY_C_AND_D, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_without_the_native_loop_the_kinks_are_within_steps() -> None:
    """Then no side is held, also not one that a native motion has left in the state."""
    native, ts = thrown(), np.array([5.0, 6.0])
    last = native.state()
    assert np.abs(np.asarray(last.z)).sum() == 6  # each of them is told
    place, rate = (float(x) for x in place_of(native))
    fixed, speeds = {"rail.displacement": place}, {"rail.displacement": rate}
    plain = mbd.assemble(native.mechanism, fixed, speeds=speeds, t=5.0)
    one, other = (mbd.simulate(native.mechanism, x, ts, **TIGHT, engine="diffrax") for x in (last, plain))
    assert one.engine == "diffrax"
    np.testing.assert_array_equal(place_of(one), place_of(other))
    on = mbd.simulate(native.mechanism, last, ts, **TIGHT)
    np.testing.assert_allclose(place_of(one), place_of(on), rtol=0, atol=1e-4)  # a kink within a step


def test_the_law_is_that_of_the_signs() -> None:
    part = pl.Backlash("stops", "rail.displacement", 10.0, 1.5, play=1.0, free_position=0.2)
    for x, v in np.random.default_rng(3).normal(size=(200, 2)):
        depth, closing = abs(x - 0.2) - 0.5, np.sign(x - 0.2) * v
        push = max(0.0, 10 * depth + np.clip(1.5 * closing, -10 * depth, 10 * depth)) if depth > 0 else 0.0
        found = part.effort(jnp.zeros(()), jnp.asarray(x), jnp.asarray(v))
        np.testing.assert_allclose(found, -np.sign(x - 0.2) * push, atol=1e-12)
