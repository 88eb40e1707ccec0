"""Latches: a coordinate is held, and let go again, by explicit and by implicit methods."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.analyses.test_events import MOTION, PIVOT, M, R, pendulum, swung

HELD = 1e-8  # of a latched coordinate: the drift that is taken back at 10/s


@pytest.mark.parametrize(
    ("coordinates", "settings"),
    [
        pytest.param("joint", {}, marks=pytest.mark.slow),
        ("absolute", {}),
        ("joint", {"solver": "stiff"}),
        pytest.param("absolute", {"solver": "stiff"}, marks=pytest.mark.slow),
        pytest.param("absolute", {"solver": mbd.Gauss()}, marks=pytest.mark.slow),
        pytest.param("absolute", {"engine": "diffrax"}, marks=pytest.mark.slow),
        pytest.param("joint", {"engine": "diffrax", "solver": "stiff"}, marks=pytest.mark.slow),
        pytest.param("absolute", {"formulation": mbd.Projection(), "solver": "stiff"}, marks=pytest.mark.slow),
    ],
)
def test_pendulum_latches_and_is_released(coordinates: str, settings: dict[str, Any]) -> None:
    """It latches, hangs there until the clock, a function of time, opens the latch, and falls on: what the
    latch has let drift crosses nothing."""
    events = [
        mbd.Event("catch", "O.angle", below=-1.0, then=mbd.Latch()),
        mbd.Event("clock", lambda at: at.t, above=0.75, then=mbd.Release("catch")),
    ]
    run = swung(pendulum(coordinates), events, **settings)
    assert run.events is not None
    assert [name for name, _ in run.events] == ["catch", "clock"]
    caught, (angle, rate) = float(run.events.times[0]), run.read(["O.angle", "O.angle_rate"]).values()
    held = (np.asarray(run.ts) >= caught) & (np.asarray(run.ts) < 0.75)
    assert held.sum() >= 3
    np.testing.assert_allclose(angle[held], -1.0, atol=HELD)
    np.testing.assert_allclose(rate[held], 0.0, atol=HELD)
    # Opened, it falls from rest as it did from the horizontal, from another angle.
    late = np.asarray(run.ts) > 0.75
    np.testing.assert_allclose(
        0.5 * PIVOT * rate[late] ** 2, M * 9.81 * R * (math.sin(-1.0) - np.sin(angle[late])), atol=MOTION
    )
    assert angle[-1] < -1.1


@pytest.mark.parametrize("level", [{"below": -1.0}, pytest.param({"at": -1.0}, marks=pytest.mark.slow)])
@pytest.mark.parametrize("back", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", ["auto", pytest.param("diffrax", marks=pytest.mark.slow)])
def test_released_it_leaves_either_way(level: dict[str, float], back: bool, engine: Any) -> None:
    """What was held on its value crosses nothing where it leaves, on which side ever; it does when it comes again."""
    opens = 2.0 if back else 0.75
    clock = mbd.Event("clock", "t", above=opens, then=mbd.Release("catch"))
    off = mbd.Event("off", "t", above=opens + 0.1, then=mbd.Switch("motor", on=False))
    lifted = pendulum().replacing(forces=[pl.Gravity(9.81), pl.JointForce("motor", "O.angle", lambda t, *_: 2.0 * t)])
    events = [mbd.Event("catch", "O.angle", **level, then=mbd.Latch()), clock, off]
    run = swung(lifted, events, opens + 1.0, engine=engine)
    assert run.events is not None
    names = [name for name, _ in run.events]
    rises = 2.0 * opens > M * 9.81 * R * math.cos(1.0)
    assert rises == back
    assert names == ["catch", "clock", "off", *["catch"] * back]
    assert not run.events.doubts()


def test_leaving_a_latch_at_rest_is_no_near_miss() -> None:
    """The rate of what is held is rounding, of either sign."""
    example = mbd.examples.get("double-pendulum").with_coordinates("joint")
    elbow = f"{example.mechanism.joints[1].name}.angle"
    start = example.state()
    level = float(mbd.read(example.mechanism, start, [elbow])[elbow]) - 0.3
    events = [
        mbd.Event("catch", elbow, below=level, then=mbd.Latch()),
        mbd.Event("clock", "t", above=0.6, then=mbd.Release("catch")),
    ]
    run = mbd.simulate(example.mechanism, start, [0.0, 0.8], events=events, accuracy="high")
    assert run.events is not None
    assert [name for name, _ in run.events] == ["catch", "clock"]
    assert not run.events.doubts()


@pytest.mark.slow
@pytest.mark.parametrize(("coordinates", "solver"), [("joint", "stiff"), ("absolute", mbd.Gauss())])
def test_derivatives_of_what_a_latch_holds(coordinates: str, solver: Any) -> None:
    """By an implicit method, which solves the latch as a row, and by an explicit one, to which it is a force."""
    events = [
        mbd.Event("catch", "O.angle", below=-1.0, then=mbd.Latch()),
        mbd.Event("clock", "t", above=0.75, then=mbd.Release("catch")),
    ]

    def ends(x: Array, **settings: Any) -> Array:
        motor = pl.JointForce("motor", "O.angle", lambda t, *_: -x * t)
        run = swung(pendulum(coordinates).with_parts([motor]), events, **settings)
        assert run.events is not None
        return jnp.stack([run["O.angle"][-1], run.events.times[0], run.events.impulse[0]])

    x = jnp.asarray(0.5)
    expected = jax.jacfwd(lambda x: ends(x, accuracy="high"))(x)
    for derivative in (jax.jacfwd, jax.jacrev):
        found = derivative(lambda x: ends(x, solver=solver, rtol=1e-10, atol=1e-12))(x)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_a_latch_breaks() -> None:
    """It cannot carry the rod's weight: what it must hold after closing is beyond its strength at once."""
    events = [
        mbd.Event("catch", "O.angle", below=-1.0, then=mbd.Latch()),
        mbd.Event("break", "catch.effort", above=2.0, then=mbd.Release("catch")),
    ]
    run = swung(pendulum("joint"), events)
    assert run.events is not None
    assert [name for name, _ in run.events] == ["catch", "break"]
    assert run.events.times[0] == run.events.times[1]
    np.testing.assert_array_equal(run.events.after[1], 0.0)
    assert run["O.angle"][-1] < -1.1


@pytest.mark.slow
def test_an_arm_latches_its_elbow_and_goes_on_as_one_body() -> None:
    """Without gravity, the angular momentum about the shoulder is kept through the latch."""
    a = pl.Body("a", 2.0, 0.1, pose=(0.5, 0.0, 0.0))
    b = pl.Body("b", 1.0, 0.05, pose=(1.4, 0.0, 0.0))
    pins = [pl.Revolute("O", pl.ground.at(), a.at(-0.5, 0.0)), pl.Revolute("A", a.at(0.5, 0.0), b.at(-0.4, 0.0))]
    mechanism = pl.Mechanism([a, b], pins)
    state = mbd.assemble(mechanism, {"O.angle": 0.0, "A.angle": 0.0}, speeds={"O.angle": 1.0, "A.angle": 2.0})
    latch = mbd.Event("elbow", "A.angle", above=0.4, then=mbd.Latch())
    ts = jnp.linspace(0.0, 2.0, 9)
    run = mbd.simulate(mechanism, state, ts, events=[latch], max_events=2, accuracy="high")
    log = run.events
    assert log is not None
    assert int(log.count) == 1

    def momentum(q: Array, v: Array) -> Array:
        (xa, ya, _), (xb, yb, _) = q.reshape(2, 3)
        (ua, va, wa), (ub, vb, wb) = v.reshape(2, 3)
        return 2.0 * (xa * va - ya * ua) + 0.1 * wa + 1.0 * (xb * vb - yb * ub) + 0.05 * wb

    start = momentum(state.q, state.v)
    np.testing.assert_allclose([momentum(log.q[0], v) for v in (log.before[0], log.after[0])], start, atol=MOTION)
    whole = 2.0 * 0.5**2 + 0.1 + 0.05 + 1.0 * (1.0 + 0.4**2 + 2 * 0.4 * math.cos(0.4))
    after = np.asarray(run.ts) > float(log.times[0])
    assert after.sum() >= 4
    np.testing.assert_allclose(run["A.angle"][after], 0.4, atol=HELD)
    np.testing.assert_allclose(run["a.omega"][after], start / whole, atol=MOTION)
    np.testing.assert_allclose(run["b.omega"][after], start / whole, atol=MOTION)


@pytest.mark.parametrize(
    ("mass", "settings"),
    [
        (2.0, {"solver": "stiff"}),
        *(
            pytest.param(m, {"engine": "diffrax", "dt0": dt0}, marks=pytest.mark.slow)
            for m, dt0 in ((1, 3e-9), (2, 1e-8))
        ),
    ],
)
def test_what_leaves_from_rest_in_short_steps_is_not_caught_again(mass: float, settings: dict[str, Any]) -> None:
    """Soon after the release its way is rounding, with these numbers of the wrong sign."""
    heavy = mbd.with_numbers(pendulum("joint"), {"rod.mass": mass})
    events = [
        mbd.Event("catch", "O.angle", below=-1.0, then=mbd.Latch()),
        mbd.Event("clock", "t", above=0.75, then=mbd.Release("catch")),
    ]
    run = swung(heavy, events, **settings)
    assert run.events is not None
    assert [name for name, _ in run.events] == ["catch", "clock"]
    assert run["O.angle"][-1] < -1.15


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_a_value_at_which_a_segment_began_is_reached_again_in_it(mode: Any) -> None:
    """A latch lets go at its value, and catches there again: what follows begins there, and moves with the value."""
    wheel = pl.Body("wheel", 1.0, 2.0)
    push = pl.JointForce("push", "O.angle", lambda t, *_: 3 * jnp.sin(2 * t) - 1.2)
    joint = pl.Revolute("O", pl.ground.at(), wheel.at())
    mechanism = pl.Mechanism([wheel], [joint], [push], coordinates="joint")
    start = mbd.assemble(mechanism, {"O.angle": 1.45})

    def end(level: Array) -> Any:
        catch = mbd.Event("catch", "O.angle", below=level, then=mbd.Latch())
        let_go = mbd.Event("go", "catch.effort", below=0.0, then=mbd.Release("catch"))
        run = mbd.simulate(mechanism, start, np.array([0.0, 7.0]), events=[catch, let_go], rtol=1e-11, atol=1e-12)
        assert run.events is not None
        return run["O.angle"][-1], run.events.count

    moved, count = mode(end, has_aux=True)(jnp.asarray(1.4))
    np.testing.assert_array_equal(count, 4)  # it catches twice
    np.testing.assert_allclose(moved, 1.0, rtol=1e-9)
