"""Steps onto switching times in the native time loop: a ball on a rail that is pulled down and, from some time on,
pushed up; it may bounce. Values and derivatives by all numbers are compared with the closed form."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests import planar_examples as examples
from tests.integrate.test_switching import at_rest, motor, of_jump, rotor

PULL, RESTITUTION, END = 9.81, 0.8, 1.2
SAVED = jnp.array([0.0, 0.3, 0.31, 0.9, END])
EARLY, LATE = jnp.array([2.0, 4.0, 0.3]), jnp.array([2.0, 4.0, 0.9])  # start, push, time of the switch; saved exactly
HIGH = 1e-10


def ball(push: Any, at: Any) -> pl.Mechanism:
    body = pl.Body("ball", 1.0, 0.1)
    rail = pl.Prismatic("rail", pl.ground.at(0, 0), body.at(0, 0))
    forces = [
        pl.JointForce("pull", "rail.displacement", -PULL),
        pl.JointForce("push", "rail.displacement", mbd.Piecewise(jnp.reshape(at, 1), [0.0, push])),
    ]
    return pl.Mechanism([body], [rail], forces)


def run(p: Array, bounces: bool, **settings: Any) -> mbd.Solution:
    height, push, at = p
    mechanism = ball(push, at)
    start = examples.at_rest(mechanism, jnp.stack([height, 0.0, 0.0]))
    floor = mbd.Event("floor", "rail.displacement", below=0.0, then=mbd.Bounce(RESTITUTION))
    events: Any = {"events": [floor], "max_events": 4} if bounces else {}
    return mbd.simulate(mechanism, start, SAVED, accuracy="high", **events, **settings)


def heights(p: Array, bounces: bool = False, **settings: Any) -> Array:
    return run(p, bounces, **settings)["rail.displacement"]


def exact(p: Array, bounces: bool = False) -> Array:
    """The heights; with a bounce at the floor, at most one before the end."""
    height, push, at = p

    def moved(x: Any, v: Any, a: Any, t: Any) -> Any:
        return x + v * t + a / 2 * t**2, v + a * t

    def fallen(x: Any, v: Any, a: Any) -> Any:  # the time to the floor
        return (v + jnp.sqrt(v**2 - 2 * a * x)) / -a

    def free(t: Any, x: Any, v: Any, since: Any) -> Any:
        """Height and speed at a time, from those at another one, across the switch if it is between."""
        x_s, v_s = moved(x, v, -PULL, at - since)
        return jax.tree.map(
            lambda after, before, on: jnp.where(t > at, jnp.where(since > at, on, after), before),
            moved(x_s, v_s, push - PULL, t - at), moved(x, v, -PULL, t - since), moved(x, v, push - PULL, t - since),
        )  # fmt: skip

    hit = fallen(height, 0.0, -PULL)
    x_s, v_s = moved(height, 0.0, -PULL, at)
    hit = jnp.where(hit < at, hit, at + fallen(x_s, v_s, push - PULL))
    up = -RESTITUTION * free(hit, height, 0.0, 0.0)[1]

    def at_time(t: Any) -> Any:
        before = free(t, height, 0.0, 0.0)[0]
        return jnp.where((t > hit) & bounces, free(t, 0.0, up, hit)[0], before)

    return jax.vmap(at_time)(SAVED)


@pytest.mark.parametrize("p", [EARLY, LATE], ids=["before the impact", "after the impact"])
@pytest.mark.parametrize("bounces", [False, True])
def test_heights_and_their_derivatives(p: Array, bounces: bool) -> None:
    solution = run(p, bounces)
    assert solution.engine != "diffrax"
    assert int(solution.stats["num_steps"]) < 25  # Dopri8 at 1e-12; across the switch it takes many more
    np.testing.assert_allclose(solution["rail.displacement"], exact(p, bounces), rtol=0, atol=HIGH)
    # What is saved at the time of the switch is before it, as is its derivative.
    np.testing.assert_allclose(jax.jacrev(heights)(p, bounces), jax.jacfwd(exact)(p, bounces), rtol=0, atol=1e-8)


@pytest.mark.parametrize("bounces", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_last_stage_is_no_first_one_across_a_switch(bounces: bool) -> None:
    """Of a method whose last slope is otherwise the first one of the next step, in the run and in its tangents."""
    of = lambda p: heights(p, bounces, solver=dfx.Tsit5())  # noqa: E731
    np.testing.assert_allclose(of(EARLY), exact(EARLY, bounces), rtol=0, atol=HIGH)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(of)(EARLY), jax.jacfwd(exact)(EARLY, bounces), rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("bounces", [False, True])
@pytest.mark.parametrize(
    "modes",
    [(jax.jacfwd, jax.jacrev), (jax.jacrev, jax.jacfwd), (jax.jacfwd, jax.jacfwd), (jax.jacrev, jax.jacrev)],
    ids=["forward over reverse", "reverse over forward", "forward twice", "reverse twice"],
)
def test_second_derivatives(modes: tuple[Callable[..., Any], ...], bounces: bool) -> None:
    outer, inner = modes
    final = lambda p: heights(p, bounces)[-1]  # noqa: E731
    truth = lambda p: exact(p, bounces)[-1]  # noqa: E731
    found = jax.jit(outer(inner(final)))(EARLY)
    np.testing.assert_allclose(found, jax.hessian(truth)(EARLY), rtol=0, atol=1e-6)


def test_each_lane_has_its_own_switch() -> None:
    p = jnp.stack([EARLY.at[2].set(at) for at in (-1.0, 0.0, 0.2, 0.3, 0.30000001, 0.9, 1.19, END, 2.0)])
    found = jax.vmap(heights)(p)
    np.testing.assert_allclose(found, jax.vmap(exact)(p), rtol=0, atol=HIGH)
    for one, lane in zip(p, found, strict=True):
        np.testing.assert_array_equal(heights(one), lane)
    slopes = jax.vmap(jax.jacrev(heights))(p)
    inside = jnp.asarray([k for k, at in enumerate(p[:, 2]) if 0 < at < END])
    np.testing.assert_allclose(slopes[inside], jax.vmap(jax.jacfwd(exact))(p[inside]), rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("bounces", [False, True])
def test_radau_steps_onto_them(bounces: bool) -> None:
    solution = run(EARLY, bounces, solver="stiff")
    assert solution.engine != "diffrax"
    np.testing.assert_allclose(solution["rail.displacement"], exact(EARLY, bounces), rtol=0, atol=1e-8)
    slopes = jax.jacfwd(lambda p: heights(p, bounces, solver="stiff"))(EARLY)
    np.testing.assert_allclose(slopes, jax.jacfwd(exact)(EARLY, bounces), rtol=0, atol=1e-7)


def test_single_precision_stays_single() -> None:
    with jax.enable_x64(False):
        mechanism = ball(4.0, 0.3)
        begin = mbd.assemble(mechanism, {"rail.displacement": 0.0})
        solution = mbd.simulate(mechanism, begin, SAVED.astype(np.float32), rtol=1e-6, atol=1e-6)
        assert solution.engine != "diffrax"
        assert solution.q.dtype == np.float32
        found = np.asarray(solution["rail.displacement"])
    np.testing.assert_allclose(found, exact(EARLY.at[0].set(0.0)), rtol=0, atol=2e-5)


ACTIONS = [mbd.LogOnly(), mbd.Stop(), mbd.Switch("push", on=False)]


@pytest.mark.parametrize("then", ACTIONS, ids=["log", "stop", "switch"])
def test_an_event_at_the_time_of_a_switch_happens_once(then: Any) -> None:
    at = 0.3
    clock = mbd.Event("clock", lambda now: now.t, above=at, then=then)
    mechanism = ball(4.0, at)
    solution = mbd.simulate(
        mechanism, examples.at_rest(mechanism, jnp.zeros(3)), SAVED, events=[clock], accuracy="high"
    )
    assert solution.events is not None
    assert solution.engine != "diffrax"
    assert int(solution.events.count) == 1
    np.testing.assert_allclose(solution.events.times[0], at, rtol=0, atol=1e-14)
    pushed = {mbd.LogOnly: 4.0, mbd.Switch: 0.0}.get(type(then))
    if pushed is not None:
        expected = exact(EARLY.at[:2].set(jnp.asarray([0.0, pushed])))
        np.testing.assert_allclose(solution["rail.displacement"], expected, rtol=0, atol=HIGH)


def test_after_a_step_cut_below_the_smallest_one_accuracy_is_controlled_as_before() -> None:
    """The switch is so near to the start that the step to it says nothing of the length of the next one."""
    at = 5e-5
    mechanism = rotor(motor(mbd.Piecewise([at], [0.0, 2.0])))
    tight: Any = {"rtol": 1e-10, "atol": 1e-12, "dtmin": 1e-3, "dt0": 1.5}
    solution = mbd.simulate(mechanism, at_rest(mechanism), jnp.array([0.0, 3.0]), **tight)
    assert solution.engine != "diffrax"
    np.testing.assert_allclose(solution["O.angle"][-1], 2 * of_jump(3.0 - at), rtol=0, atol=1e-9)


def test_a_long_table_is_stepped_through() -> None:
    """Each of its samples is a kink, at which a step ends; so the motion is that of a force which is linear between."""
    times, h = jnp.linspace(0.0, END, 2001), END / 2000
    force = np.sin(20 * np.asarray(times))
    body = pl.Body("ball", 1.0, 0.1)
    rail = pl.Prismatic("rail", pl.ground.at(0, 0), body.at(0, 0))
    mechanism = pl.Mechanism([body], [rail], [pl.JointForce("push", "rail.displacement", mbd.Table(times, force))])
    begin = mbd.assemble(mechanism, {"rail.displacement": 0.0})
    saved = [0, 1, 500, 777, 2000]
    solution = mbd.simulate(mechanism, begin, times[jnp.asarray(saved)])
    assert solution.engine != "diffrax"
    assert int(solution.stats["num_steps"]) < 2010
    speeds = np.append(0.0, np.cumsum(h * (force[:-1] + force[1:]) / 2))
    positions = np.append(0.0, np.cumsum(h * speeds[:-1] + h**2 * (2 * force[:-1] + force[1:]) / 6))
    np.testing.assert_allclose(solution["rail.displacement"], positions[saved], rtol=0, atol=1e-12)


def test_a_quantity_that_jumps_over_its_value_is_an_event_at_the_switching_time() -> None:
    """An acceleration, by a force that is switched on and weakened: the times move with the switching times."""
    mass = pl.Body("mass", 1.0, 1.0)
    rail = pl.Prismatic("rail", pl.ground.at(), mass.at())
    events = [
        mbd.Event("up", "mass.ax", above=2.0, then=mbd.LogOnly()),
        mbd.Event("down", "mass.ax", below=2.0, then=mbd.LogOnly()),
    ]

    def times(on: Any) -> Any:
        kick = pl.JointForce("kick", "rail.displacement", mbd.Piecewise(jnp.stack([on, on + 0.3]), [0.0, 5.0, 1.0]))
        mechanism = pl.Mechanism([mass], [rail], [kick], coordinates="joint")
        start = mbd.assemble(mechanism, {"rail.displacement": 0.0})
        solution = mbd.simulate(mechanism, start, np.linspace(0.0, 1.0, 5), events=events, max_events=4)
        assert solution.events is not None
        return jnp.append(solution.events.times[:2], solution["rail.displacement"][-1])

    found, slopes = jax.jvp(times, (jnp.asarray(0.4),), (jnp.ones(()),))
    np.testing.assert_allclose(found, [0.4, 0.7, 5 * (0.3**2 / 2 + 0.3 * 0.3) + 0.3**2 / 2], rtol=1e-10)
    np.testing.assert_allclose(slopes, [1.0, 1.0, -5 * 0.3 - 0.3], rtol=1e-9)
