"""Events in the native time loop: found in long steps, in the right order, at one instant; the same in any batch; with
all kinds of methods, states and actions; and the derivatives of what they do.

What events do by value is in `analyses/test_events.py` and `references/test_impacts.py`.
"""

import math
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests import planar_examples as examples

TIME = 1e-9  # [s]
HELD = 1e-9  # of a latched coordinate: the drift of long steps that is taken back


def slow(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


def turntable(rate: Any, phase: Any = 0.0) -> tuple[pl.Mechanism, mbd.State]:
    """A disc that turns steadily, of which any method takes steps as long as the motion."""
    disc = pl.Body("disc", 1.0, 0.1)
    table = pl.Mechanism([disc], [pl.Revolute("O", pl.ground.at(), disc.at())], coordinates="joint")
    start = mbd.State(jnp.zeros(()), jnp.reshape(phase, 1) + 0.0, jnp.reshape(rate, 1) + 0.0, table.layout)
    return table, start


def edge(at: Any) -> Array:
    """The height of a point on the disc's edge."""
    return jnp.sin(at.q[0])


def logged(events: list[mbd.Event], rate: Any = 1.0, end: float = 2.0, **settings: Any) -> mbd.Solution:
    settings = {"max_events": 64, **settings}
    return mbd.simulate(*turntable(rate), jnp.linspace(0.0, end, 3), events=events, **settings)


@pytest.mark.parametrize("level", [slow(0.5), 0.999, slow(-0.2)])
def test_a_quantity_that_crosses_and_returns_within_a_step(level: float) -> None:
    """The point on the edge goes up and down five times in 31 s, in steps of up to 20 s; at 0.999 for .09 s each."""
    run = logged([mbd.Event("up", edge, above=level, then=mbd.LogOnly())], end=31.0)
    assert run.engine != "diffrax"
    assert float(run.stats["num_accepted_steps"]) < 60
    rises = math.asin(level) + 2 * math.pi * np.arange(-1, 6)
    expected = rises[(rises > 0) & (rises < 31.0)]
    assert run.events is not None
    np.testing.assert_allclose(run.events.times_of("up"), expected, rtol=0, atol=TIME)


def test_a_quantity_that_only_comes_near_does_not_cross() -> None:
    events = [mbd.Event("never", edge, above=1 + 1e-9, then=mbd.Stop()), mbd.Event("low", edge, below=-1 - 1e-9)]
    run = logged(events, end=31.0)
    assert run.events is not None
    assert int(run.events.count) == 0
    assert float(run.ts[-1]) == 31.0


# The quantity is sin(t): it goes `beyond` beyond the level and turns back, or that far from it where it is negative.
@pytest.mark.parametrize("beyond", [1e-5, slow(1e-9), -1e-9, slow(-1e-12)])
def test_an_event_that_grazes_its_value_is_told(beyond: float) -> None:
    level = 1 - beyond
    events = [mbd.Event("up", edge, above=level, then=mbd.LogOnly()), mbd.Event("t", "t", above=30.0)]
    run = logged(events, end=31.0)
    log = run.events
    assert log is not None
    np.testing.assert_allclose(log.resolution, [2e-7, 3.1e-6], rtol=0.02)
    grazes = 0 < beyond < 1e-7
    if beyond > 0:
        assert int(log.count) == 6
        np.testing.assert_allclose(log.depths, [*[beyond] * 5, *[np.inf] * 59], rtol=2 * beyond + 1e-6)
        np.testing.assert_array_equal(log.grazing, [grazes] * 5 + [False] * 59)
        assert np.isinf(log.nearest).all()
    else:
        assert int(log.count) == 1
        np.testing.assert_allclose(log.nearest, [-beyond, np.inf], rtol=0.2)
        np.testing.assert_array_equal(log.near_misses, [True, False])
    for text in (repr(log), repr(run)):
        assert text.count("'up' grazes its value at t = ") == 5 * grazes
        assert text.count("'up' nearly happened: its quantity turned back ") == (beyond < 0)


def test_how_near_a_quantity_came_that_was_on_its_value() -> None:
    """Its height is divided by the time since then, where the loop looks for its root."""
    back = mbd.Event("back", lambda at: 1 - jnp.cos(at.q[0]) + 1e-5 * at.q[0], below=0.0)
    run = logged([back], end=9.0)
    assert run.events is not None
    np.testing.assert_allclose(run.events.nearest, 2e-5 * math.pi, rtol=1e-2)
    assert not run.events.near_misses.any()


@pytest.mark.parametrize("of_rates", [False, slow(True)])
def test_depths_are_those_of_the_quantity_by_either_loop(of_rates: bool) -> None:
    """Of `sin(q)` at L, by its first two rates, also where forces are needed for it: `(1 − L²) / (2 L)`."""
    quantity = (lambda at: edge(at) * at.v[0] + at.vdot[0]) if of_rates else edge
    for engine in ("auto", "diffrax"):
        log = logged([mbd.Event("up", quantity, above=0.25, then=mbd.LogOnly())], engine=engine).events
        assert log is not None
        np.testing.assert_allclose(log.depths[:2], [(1 - 0.25**2) / 0.5, np.inf], rtol=1e-7)
        assert np.isnan(log.nearest).all() == (engine == "diffrax")
        assert "graze" not in repr(log)


def test_events_of_one_step_happen_in_their_order() -> None:
    """At angles 0.3 to 0.9, named against that order; what is crossed twice is listed twice."""
    names = {"e": 0.3, "d": 0.5, "c": 0.500001, "b": 0.7, "a": 0.9}
    events = [mbd.Event(name, "O.angle", above=angle, then=mbd.LogOnly()) for name, angle in sorted(names.items())]
    log = logged(events).events
    assert log is not None
    assert [name for name, _ in log] == list(names)
    np.testing.assert_allclose(log.times[:5], list(names.values()), rtol=0, atol=TIME)


def test_events_at_one_instant_happen_together() -> None:
    """Two events at the same angle, and one at the same time; the disc is stopped by the last one of them."""
    events = [
        mbd.Event("first", "O.angle", above=0.5, then=mbd.LogOnly()),
        mbd.Event("second", "O.angle", above=0.5, then=mbd.LogOnly()),
        mbd.Event("third", "t", above=0.5, then=mbd.Stop()),
    ]
    run = logged(events)
    assert run.events is not None
    assert sorted(name for name, _ in run.events) == ["first", "second", "third"]
    np.testing.assert_array_equal(run.events.times[:3], run.events.times[0])
    np.testing.assert_allclose([run.ts[-1], run.q[-1, 0]], 0.5, rtol=0, atol=TIME)


def test_at_the_time_of_an_event_the_state_after_it_is_saved() -> None:
    """The disc is held from 1 s to 1.5 s, both saved times, and an event is at the end; so are the derivatives."""
    events = [
        mbd.Event("catch", "t", above=1.0, then=mbd.Latch(coordinate="O.angle")),
        mbd.Event("end", "t", above=2.0, then=mbd.LogOnly()),
    ]

    def motion(rate: Array) -> Array:
        run = mbd.simulate(*turntable(rate), jnp.linspace(0.0, 2.0, 5), events=events)
        assert run.events is not None
        return jnp.stack([run.q[:, 0], run.v[:, 0]])

    rate = jnp.asarray(3.0)
    slopes = [[0.0, 0.5, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0, 0.0]]
    np.testing.assert_allclose(motion(rate), 3.0 * np.asarray(slopes), rtol=0, atol=HELD)
    for jacobian in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jacobian(motion)(rate), slopes, rtol=0, atol=HELD)


@pytest.mark.parametrize(
    "order", [np.arange(23), slow(np.random.default_rng(3).permutation(23))], ids=["sorted", "shuffled"]
)
def test_an_instance_does_not_depend_on_those_beside_it(order: np.ndarray) -> None:
    """To the last bit, in motion and derivatives: they bounce 0 to 12 times, and one has room for too few."""
    heights = np.linspace(0.01, 6.0, 23)[order]

    def dropped(h: Array) -> tuple[Array, Array]:
        ball = pl.Mechanism([pl.Body("ball", 1.0, 0.1)], forces=[pl.Gravity(9.81)], floating=True)
        start = mbd.State(jnp.zeros(()), jnp.stack([0.0, h, 0.0]), jnp.asarray([0.3, 0.0, 0.0]), ball.layout)
        floor = mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(0.9))
        run = mbd.simulate(ball, start, jnp.linspace(0.0, 1.0, 5), events=[floor], max_events=12, throw=False)
        assert run.events is not None
        return run.q[:, 1], run.events.times

    both = lambda h: (*dropped(h), *jax.jvp(dropped, (h,), (jnp.ones(()),))[1], *jax.jacrev(dropped)(h))  # noqa: E731
    together = jax.jit(jax.vmap(both))(jnp.asarray(heights))
    alone = jax.jit(both)
    for k, h in enumerate(heights):
        for a, b in zip(together, alone(jnp.asarray(h)), strict=True):
            np.testing.assert_array_equal(a[k], b)
    assert np.isnan(together[0]).any(axis=1).sum() == 1
    np.testing.assert_allclose(together[2], together[4], rtol=0, atol=1e-10)  # forward and reverse mode


QUICK = "whose last stage is not the next first one"
METHODS = {
    "whose last stage is not the next first one": {"solver": dfx.Heun(), "dt0": 1e-3},
    "low order": {"solver": dfx.Bosh3()},
    "dense output of its own": {"solver": dfx.Tsit5()},
    "constant steps": {"dt0": 0.05, "stepsize_controller": dfx.ConstantStepSize()},
}


@pytest.mark.parametrize(
    "settings", [each if name == QUICK else slow(each) for name, each in METHODS.items()], ids=METHODS
)
def test_methods_reach_the_event(settings: dict[str, Any]) -> None:
    """A pendulum that is stopped: the quantity is on its value at the end of the step, whatever the method."""
    rod = pl.Body("rod", 1.0, 0.25, pose=(0.5, 0.0, 0.0))
    pendulum = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))], [pl.Gravity(9.81)])
    start = mbd.assemble(pendulum, {"O.angle": 0.0}, speeds={"O.angle": 0.0})
    stop = mbd.Event("stop", "O.angle", below=-0.5, then=mbd.Stop())

    def at_stop(g: Array) -> Array:
        m = eqx.tree_at(lambda m: m.forces[0].acceleration, pendulum, g)
        run = mbd.simulate(m, start, jnp.linspace(0.0, 1.0, 3), events=[stop], **settings)
        assert run.engine != "diffrax"
        assert run.events is not None
        return jnp.stack([run["O.angle"][-1], run.events.times[0], run.v[-1, -1]])

    g = jnp.asarray(9.81)
    found = at_stop(g)
    np.testing.assert_allclose(found[0], -0.5, rtol=0, atol=1e-13)
    forward, reverse = jax.jacfwd(at_stop)(g), jax.jacrev(at_stop)(g)
    np.testing.assert_allclose(forward, reverse, rtol=1e-10, atol=1e-12)
    # The time to an angle goes with 1 / √g, the speed there with √g: for the exact motion.
    exact = np.array([0.0, -found[1] / (2 * 9.81), found[2] / (2 * 9.81)])
    np.testing.assert_allclose(forward, exact, rtol=0, atol=2e-3 if "dt0" in settings else 1e-6)


def test_more_steps_than_checkpoints() -> None:
    """A ball in 2,000 steps, of which 1,024 are stored: states between, events among them, are computed again."""
    settings = {"dt0": 1e-3, "solver": dfx.Bosh3(), "stepsize_controller": dfx.ConstantStepSize(), "max_steps": 4000}

    def height(e: Array) -> Array:
        ball = pl.Mechanism([pl.Body("ball", 1.0, 0.1)], forces=[pl.Gravity(9.81)], floating=True)
        start = mbd.State(jnp.zeros(()), jnp.asarray([0.0, 0.5, 0.0]), jnp.zeros(3), ball.layout)
        floor = mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(e))
        return mbd.simulate(ball, start, jnp.linspace(0.0, 2.0, 3), events=[floor], **settings).q[-1, 1]

    def closed(e: Array) -> Array:
        fall = math.sqrt(2 * 0.5 / 9.81)
        since = 2.0 - fall * (1 + 2 * (e + e**2 + e**3 + e**4))
        return e**5 * fall * 9.81 * since - 9.81 / 2 * since**2

    e = jnp.asarray(0.8)
    np.testing.assert_allclose(height(e), closed(e), rtol=0, atol=1e-11)
    np.testing.assert_allclose(jax.grad(height)(e), jax.grad(closed)(e), rtol=1e-9)


def test_redundant_rows_and_events() -> None:
    """A parallelogram with three cranks that is struck: its rows are selected anew at the end of each step."""

    def turned(e: Array) -> Array:
        return examples.struck_parallelogram(e, jnp.linspace(0.0, 0.6, 4))["g1.angle"]

    e = jnp.asarray(0.7)
    found = jax.jacfwd(turned)(e), jax.jacrev(turned)(e)
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-11)
    h = 1e-5
    np.testing.assert_allclose(found[0], (turned(e + h) - turned(e - h)) / (2 * h), rtol=0, atol=1e-6)
    assert np.abs(found[0][-1]) > 0.1


def test_steps_are_used_up() -> None:
    run = logged([mbd.Event("up", edge, above=0.5, then=mbd.LogOnly())], end=200.0, max_steps=20, throw=False)
    assert run.result == mbd.RESULTS.max_steps_reached


def root_of_what_is_left(wall: Any) -> mbd.Event:
    """Crosses its value shortly before it has none any more, if the disc turns so far."""
    return mbd.Event("wall", lambda at: jnp.sqrt(wall - at.q[0]), below=1e-3, then=mbd.Stop())


def test_a_quantity_without_a_value_beyond_its_root_is_found_there() -> None:
    run = logged([root_of_what_is_left(1.0)])
    assert run.events is not None
    np.testing.assert_allclose(run.events.times[0], 1.0 - 1e-6, rtol=0, atol=TIME)


@pytest.mark.parametrize(
    "settings",
    [{}, {"solver": mbd.RungeKutta4(), "dt0": 0.01}, slow({"engine": "diffrax"}), slow({"solver": "stiff"})],
    ids=["adaptive", "constant steps", "diffrax", "stiff"],
)
def test_a_quantity_that_loses_its_value_ends_the_motion(settings: dict[str, Any]) -> None:
    """It would be missed without a word. Another event, or a motion that is no number itself, is not blamed."""
    lost = mbd.Event("lost", lambda at: jnp.where(at.t < 0.7, 1.0, jnp.nan), below=0.0, then=mbd.LogOnly())
    others = [mbd.Event("up", "O.angle", above=0.5, then=mbd.LogOnly())]
    run = logged([*others, lost], throw=False, **settings)
    assert run.result == mbd.RESULTS.event_unknown
    assert np.isnan(run.q[-1]).all()
    with pytest.raises(mbd.SolveError, match="event 'lost': The quantity of the event is no number from there on"):
        logged([*others, lost], **settings)
    table, start = turntable(1.0)
    torque = pl.JointForce("torque", "O.angle", lambda t, angle, rate, _: jnp.where(angle < 0.6, 0.0, jnp.nan))
    run = mbd.simulate(
        table.with_parts([torque]), start, jnp.linspace(0.0, 2.0, 3), events=others, throw=False, **settings
    )
    assert run.result in (mbd.RESULTS.step_too_small, mbd.RESULTS.not_finite, mbd.RESULTS.max_steps_reached)


def test_of_a_batch_the_instance_whose_quantity_has_no_value_ends() -> None:
    def time(wall: Array) -> tuple[Array, Array]:
        lost = mbd.Event("lost", lambda at: jnp.where(at.t < wall, at.q[0], jnp.nan), above=0.9, then=mbd.LogOnly())
        run = logged([lost], throw=False)
        assert run.events is not None
        return run.events.times[0], run.result == mbd.RESULTS.event_unknown

    times, lost = jax.jit(jax.vmap(time))(jnp.asarray([3.0, 0.4, 1.5, 5.0]))
    np.testing.assert_array_equal(lost, [False, True, True, False])
    np.testing.assert_allclose(times[jnp.asarray([0, 2, 3])], 0.9, rtol=0, atol=TIME)


def test_single_precision() -> None:
    with jax.enable_x64(False):
        run = logged([mbd.Event("up", "O.angle", above=0.5, then=mbd.Stop())])
    assert run.q.dtype == jnp.float32
    np.testing.assert_allclose(run.ts[-1], 0.5, rtol=1e-6)


def test_what_a_function_reads_decides_whether_heights_need_forces() -> None:
    """A function of the position alone makes a smaller program than one of accelerations, and both are right."""
    pendulum = mbd.examples.get("pendulum")

    def found(quantity: Any) -> tuple[float, Array]:
        event = mbd.Event("look", quantity, above=0.1, then=mbd.LogOnly())
        run = mbd.simulate(pendulum.mechanism, pendulum.state(), jnp.linspace(0.0, 2.0, 3), events=[event])
        assert run.events is not None
        return run.stats["operations"], run.events.times_of("look")

    size, times = found(lambda at: at.q[0])
    larger, same = found(lambda at: at.q[0] + 1e-12 * at.vdot[0])
    named, by_name = found("rod.x")
    assert size == named < larger
    np.testing.assert_allclose(same, times, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(by_name, times)


def test_who_runs_it_is_said() -> None:
    """In segments only what the loop cannot run; the reason is that, not the event."""
    event = [mbd.Event("up", "O.angle", above=0.5, then=mbd.LogOnly())]
    assert logged(event).engine == "interpreter"
    with pytest.raises(mbd.MechanismError, match="engine='native' cannot run a motion whose solver is neither"):
        logged(event, solver=dfx.Kvaerno3(), engine="native")
