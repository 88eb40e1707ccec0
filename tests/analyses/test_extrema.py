"""Peaks between few stored times, against closed forms; their derivatives by differences of motions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.extrema import Wanted, with_extrema

FEW = np.linspace(0.0, 2.0, 6)  # of a swing with a period of about 1.7 s: none meets a peak
ANGLE, RATE = 0.3, 0.2
G, HALF = 9.81, 0.5
TOLERANCE = 2e-6  # of the steps


@pytest.fixture(scope="module")
def pendulum() -> pl.Mechanism:
    return mbd.examples.get("pendulum").mechanism  # a rod of 1 kg and 1 m


def motion_of(mechanism: pl.Mechanism, angle: Any = ANGLE, rate: Any = RATE) -> Callable[[Any], mbd.Solution]:
    state = mbd.assemble(mechanism, {"O.angle": angle}, speeds={"O.angle_rate": rate}, check=False)
    return lambda ts: mbd.simulate(mechanism, state, ts, rtol=1e-9, atol=1e-10, throw=False)


def fastest(mechanism: pl.Mechanism, mass: Any, angle: Any, rate: Any) -> Any:
    """The largest speed of the rod by its energy, J ω²/2 + m g l sin φ."""
    inertia = mechanism["rod"].inertia + mass * HALF**2
    return jnp.sqrt(rate**2 + 2 * mass * G * HALF * (1 + jnp.sin(angle)) / inertia)


def test_peaks_between_few_stored_times_are_those_of_the_motion(pendulum: pl.Mechanism) -> None:
    motion = motion_of(pendulum)
    found = mbd.extrema(motion, FEW, ["rod.y", "O.angle_rate", "O.angle"])
    stored = motion(FEW)
    assert float(found["rod.y"].least.value) == pytest.approx(-HALF, abs=1e-8)
    assert np.min(stored["rod.y"]) > -HALF + 1e-3  # what stored times alone would say
    largest = max(abs(float(x.value)) for x in (found["O.angle_rate"].largest, found["O.angle_rate"].least))
    assert largest == pytest.approx(float(fastest(pendulum, 1.0, ANGLE, RATE)), abs=TOLERANCE)
    # At its time the quantity has that value, and the time is that of the motion.
    at = found["rod.y"].least
    there = motion(np.array([0.0, float(at.time), 2.0]))
    assert float(there["rod.y"][1]) == pytest.approx(float(at.value), abs=1e-12)
    assert float(there["rod.vy"][1]) == pytest.approx(0.0, abs=1e-5)
    assert "Extremum" in str(jax.tree.map(np.asarray, at)) or "Extremum" in repr(at)


def test_an_end_of_the_motion_may_be_the_extremum(pendulum: pl.Mechanism) -> None:
    ts = np.linspace(0.0, 0.2, 3)
    found = mbd.extrema(motion_of(pendulum), ts, "rod.y")["rod.y"]
    assert float(found.least.time) == 0.2
    assert 0.0 < float(found.largest.time) < 0.2  # the rod rises first
    assert float(found.largest.value) > float(motion_of(pendulum)(ts)["rod.y"].max())


def values(x: Any, mechanism: pl.Mechanism, *wanted: Wanted) -> Any:
    changed = mbd.with_numbers(mechanism, {"rod.mass": x[0]})
    return jnp.stack([one.value for one in with_extrema(motion_of(changed, x[1], x[2]), FEW, wanted)[1]])


def test_derivatives_of_both_modes_are_exact(pendulum: pl.Mechanism) -> None:
    x, of = jnp.array([1.3, ANGLE, RATE]), lambda x: values(x, pendulum, Wanted("rate", "O.angle_rate", 1))[0]
    value, forward, reverse = jax.jit(lambda x: (of(x), jax.jacfwd(of)(x), jax.grad(of)(x)))(x)
    exact = jax.grad(fastest, (1, 2, 3))(pendulum, *x)
    assert float(value) == pytest.approx(float(fastest(pendulum, *x)), abs=TOLERANCE)
    np.testing.assert_allclose(forward, exact, atol=1e-5)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_derivatives_of_peaks_of_forces_and_batches_of_motions(pendulum: pl.Mechanism) -> None:
    x, wanted = jnp.array([1.3, ANGLE, RATE]), (Wanted("force", "O.fy", 1), Wanted("low", "O.fy", -1))
    of = lambda x: values(x, pendulum, *wanted)  # noqa: E731
    value, forward, reverse = jax.jit(lambda x: (of(x), jax.jacfwd(of)(x), jax.jacrev(of)(x)))(x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)
    steps = 1e-4 * np.concatenate([np.eye(3), -np.eye(3), np.zeros((1, 3))])
    many = np.asarray(jax.jit(jax.vmap(of))(jnp.asarray(np.asarray(x)[None] + steps)))
    np.testing.assert_allclose(many[6], value, rtol=1e-12)
    np.testing.assert_allclose(forward, (many[:3] - many[3:6]).T / 2e-4, rtol=2e-4, atol=2e-4)


def test_a_motion_that_is_known_at_each_time_has_exact_peaks(pendulum: pl.Mechanism) -> None:
    """Of a driven crank, by `kinematics`: the height sin(φ) / 2 for φ = 1 + sin(3 t), a function of the motion."""
    driver = pl.Driver("motor", "O.angle", lambda t: 1.0 + jnp.sin(3.0 * t))
    driven = pl.Mechanism(pendulum.bodies, pendulum.joints, pendulum.forces, [driver])
    ts = np.linspace(0.0, 2.0, 5)
    heights = {"height": lambda motion: motion["rod.position"][:, 1]}
    found = mbd.extrema(lambda ts: mbd.kinematics(driven, ts), ts, heights)["height"]
    assert float(found.largest.value) == pytest.approx(HALF, abs=1e-10)
    assert np.sin(3.0 * float(found.largest.time)) == pytest.approx(np.pi / 2 - 1, abs=1e-5)
    assert float(found.least.value) == pytest.approx(0.0, abs=1e-10)  # φ = 0 at t = π/2, of which no stored time knows
    assert float(found.least.time) == pytest.approx(np.pi / 2, abs=1e-5)


def test_motions_that_fail_have_no_extrema(pendulum: pl.Mechanism) -> None:
    state = mbd.assemble(pendulum, {"O.angle": ANGLE})
    short = lambda ts: mbd.simulate(pendulum, state, ts, max_steps=3, throw=False)  # noqa: E731
    solution, (found,) = with_extrema(short, FEW, [Wanted("y", "rod.y", 1)])
    assert np.isnan(found.value)
    assert np.isnan(found.time)
    np.testing.assert_array_equal(solution.ts, FEW)
    assert solution.result != mbd.RESULTS.successful


def test_what_cannot_be_searched_is_said(pendulum: pl.Mechanism) -> None:
    motion = motion_of(pendulum)
    for arguments, message in (
        ((motion, FEW, "rod.yy"), r"Did you mean 'rod\.y'"),
        ((motion, FEW, "rod.position"), r"'rod\.position' has the shape \(\d+, 2\)"),
        ((motion, [0.0], "rod.y"), "at least two times"),
        ((motion, [0.0, 1.0, 0.5], "rod.y"), "that increase"),
        ((lambda ts: 3.0, FEW, "rod.y"), "must be a function of times that returns a Solution"),
        ((np.sin, FEW, "rod.y"), "must be a function of times that returns a Solution"),
        ((motion, FEW, {"y": 3.0}), "quantity 'y' must be a function of the motion"),
    ):
        with pytest.raises(mbd.MechanismError, match=message):
            mbd.extrema(*arguments)  # pyright: ignore[reportArgumentType]
