"""A freewheel and a ratchet against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12, "max_events": 32}
INERTIA, END = 2.0, 8.0


def turned(part: Any, constant: float, coordinates: str = "joint", angle: float = 0.0, **how: Any) -> mbd.Solution:
    """A wheel on an axis, pushed by `3 sin 2t + constant`."""
    nouns: Any = how.pop("nouns", pl)
    wheel = nouns.Body("wheel", 1.0, INERTIA if nouns is pl else np.full(3, INERTIA))
    push = nouns.JointForce("push", "O.angle", lambda t, *_: 3 * jnp.sin(2 * t) + constant)
    joint = nouns.Revolute("O", nouns.ground.at(), wheel.at())
    mechanism = nouns.Mechanism([wheel], [joint], [part, push], coordinates=coordinates)
    ts = how.pop("ts", np.linspace(0.0, END, 33))
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": angle}), ts, **(TIGHT | how))


class Free:
    """The motion from `t0`, under `3 sin 2t + constant`."""

    def __init__(self, t0: float, x0: float, v0: float, constant: float) -> None:
        self.t0, self.x0, self.v0, self.constant = t0, x0, v0, constant

    def rate(self, t: float) -> float:
        work = -1.5 * (np.cos(2 * t) - np.cos(2 * self.t0)) + self.constant * (t - self.t0)
        return self.v0 + work / INERTIA

    def angle(self, t: float) -> float:
        s = t - self.t0
        work = -0.75 * (np.sin(2 * t) - np.sin(2 * self.t0)) + 1.5 * np.cos(2 * self.t0) * s + self.constant * s**2 / 2
        return self.x0 + self.v0 * s + work / INERTIA


def first_root(function: Any, t0: float, falls: bool = True) -> float | None:
    grid = np.arange(t0 + 1e-7, END, 1e-3)
    values = np.array([function(t) for t in grid]) * (1 if falls else -1)
    found = np.flatnonzero((values[:-1] > 0) & (values[1:] <= 0))
    return None if len(found) == 0 else float(brentq(function, grid[found[0]], grid[found[0] + 1], xtol=1e-15))  # pyright: ignore


# --- a freewheel ------------------------------------------------------------------------------------------------------


def overrun(drag: float) -> tuple[list[float], float]:
    """The times at which it lets go and locks, in turn, and the angle at the end."""
    times, x, t = [], 0.0, 0.0
    while True:
        lets_go = first_root(lambda t: 3 * np.sin(2 * t) - drag, t, falls=False)
        if lets_go is None:
            return times, x
        motion = Free(lets_go, x, 0.0, -drag)
        locks = first_root(motion.rate, lets_go)
        times += [lets_go] if locks is None else [lets_go, locks]
        if locks is None:
            return times, motion.angle(END)
        t, x = locks, motion.angle(locks)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_a_freewheel_locks_one_way(coordinates: str) -> None:
    solution = turned(pl.OneWayClutch("free", "O.angle", drag=0.3), 0.0, coordinates)
    times, end = overrun(0.3)
    log = solution.events
    assert log is not None
    assert solution.engine != "diffrax"
    happened = np.sort(np.concatenate([log.times_of("free.overruns"), log.times_of("free.locks")[1:]]))
    np.testing.assert_allclose(happened, times, rtol=0, atol=1e-10)
    np.testing.assert_allclose(solution["O.angle"][-1], end, atol=1e-9)
    # While it is locked it does not creep, and transmits what is pushed against it.
    locked = np.asarray(solution["free.direction"]) == 0
    assert 3 < locked.sum() < 20
    np.testing.assert_allclose(np.asarray(solution["O.angle_rate"])[locked], 0.0, atol=1e-12)
    np.testing.assert_allclose(solution["free.effort"][locked], -solution["push.effort"][locked], atol=1e-9)
    np.testing.assert_allclose(solution["free.effort"][~locked], -0.3)
    assert np.all(np.asarray(solution["free.effort"]) >= -0.3 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_freewheel(mode: Any) -> None:
    found = mode(lambda x: turned(pl.OneWayClutch("free", "O.angle", drag=x), 0.0)["O.angle"][-1])(jnp.asarray(0.3))
    at = [overrun(0.3 + s * 1e-4)[1] for s in (2, 1, -1, -2)]
    np.testing.assert_allclose(found, (8 * (at[1] - at[2]) - at[0] + at[3]) / 1.2e-3, rtol=1e-8)


@pytest.mark.slow
def test_freewheels_side_by_side() -> None:
    read = lambda x: turned(pl.OneWayClutch("free", "O.angle", drag=x), 0.0, throw=False)["O.angle"][-1]  # noqa: E731
    drags = jnp.linspace(0.1, 1.0, 9)
    np.testing.assert_allclose(jax.vmap(read)(drags), [overrun(float(x))[1] for x in drags], atol=1e-9)


def test_a_freewheel_does_not_begin_backwards() -> None:
    wheel = pl.Body("wheel", 1.0, INERTIA)
    joint, part = pl.Revolute("O", pl.ground.at(), wheel.at()), pl.OneWayClutch("free", "O.angle")
    mechanism = pl.Mechanism([wheel], [joint], [part], coordinates="joint")
    start = mbd.assemble(mechanism, {"O.angle": 0.0}, speeds={"O.angle": -1.0})
    with pytest.raises(mbd.MechanismError, match=r"event 'free\.locks'"):
        mbd.simulate(mechanism, start, np.array([0.0, 1.0]))


# --- a ratchet --------------------------------------------------------------------------------------------------------

PUSH = -0.5


def ratcheted(pitch: float) -> tuple[list[float], list[float], float]:
    """The times at which it catches, those at which it advances again, and the angle at the end."""
    caught: list[float] = []
    advanced: list[float] = []
    motion, t, tooth = Free(0.0, 0.1, 0.0, PUSH), 0.0, 0
    while True:
        back = first_root(lambda t: motion.angle(t) - tooth * pitch, t)  # noqa: B023
        on = first_root(lambda t: (tooth + 1) * pitch - motion.angle(t), t)  # noqa: B023
        if back is None and on is None:
            return caught, advanced, motion.angle(END)
        if back is None or (on is not None and on < back):
            t, tooth = on or t, tooth + 1
            continue
        caught.append(back)
        lets_go = first_root(lambda t: 3 * np.sin(2 * t) + PUSH, back, falls=False)
        if lets_go is None:
            return caught, advanced, tooth * pitch
        advanced.append(lets_go)
        t, motion = lets_go, Free(lets_go, tooth * pitch, 0.0, PUSH)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_a_ratchet_catches_at_its_last_tooth(coordinates: str) -> None:
    solution = turned(pl.Ratchet("pawl", "O.angle", 0.3), PUSH, coordinates, angle=0.1)
    caught, advanced, end = ratcheted(0.3)
    log = solution.events
    assert log is not None
    assert len(caught) > 1
    np.testing.assert_allclose(log.times_of("pawl.catches"), caught, rtol=0, atol=1e-9)
    np.testing.assert_allclose(log.times_of("pawl.advances"), advanced, rtol=0, atol=1e-9)
    np.testing.assert_allclose(solution["O.angle"][-1], end, atol=1e-9)
    held, tooth = np.asarray(solution["pawl.direction"]) == 0, np.asarray(solution["pawl.tooth"])
    assert held.any()
    np.testing.assert_allclose(solution["O.angle"][held], 0.3 * tooth[held], atol=1e-10)
    assert np.all(np.asarray(solution["O.angle"]) >= 0.3 * tooth - 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_ratchet(mode: Any) -> None:
    found = mode(lambda x: turned(pl.Ratchet("pawl", "O.angle", x), PUSH, angle=0.1)["O.angle"][-1])(jnp.asarray(0.3))
    at = [ratcheted(0.3 + s * 1e-4)[2] for s in (1, -1)]  # 9, the tooth from which it has gone on
    np.testing.assert_allclose(found, (at[0] - at[1]) / 2e-4, rtol=1e-6)


@pytest.mark.slow
def test_a_ratchet_in_space_goes_on_from_any_time() -> None:
    caught, _, end = ratcheted(0.3)
    whole = turned(sp.Ratchet("pawl", "O.angle", 0.3), PUSH, angle=0.1, nouns=sp)
    np.testing.assert_allclose(whole["O.angle"][-1], end, atol=1e-9)
    for middle in (caught[0] + 0.1, caught[0] + 1.0):  # while it holds, and while it turns
        first = turned(sp.Ratchet("pawl", "O.angle", 0.3), PUSH, angle=0.1, nouns=sp, ts=np.array([0.0, middle]))
        second = mbd.simulate(first.mechanism, first.state(), np.array([middle, END]), **TIGHT)
        np.testing.assert_allclose(second["O.angle"][-1], end, atol=1e-8)
