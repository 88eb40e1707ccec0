"""Impacts with closed forms: positions, times, and their derivatives in both modes, of first and second order.

A ball without gravity against a wall, a thrown ball, a ball that bounces often, and two balls that meet. The time of an
impact moves with the parameters: without that the derivatives have the wrong sign. The cases are those of reports on
other simulators (brax, issue 317; Zhong, Han, Brikis, arXiv 2207.05060).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

VALUE, FIRST, SECOND = 1e-10, 1e-8, 1e-6


def thrown(p: Array) -> Array:
    """The height, at the time `T`, of a ball with `p = (h₀, v₀, e, g, T)`, upward speed positive; and its first
    impact."""
    h, v, e, g, end = p
    ball = pl.Mechanism([pl.Body("ball", 1.0, 0.1)], forces=[pl.Gravity(g)], floating=True)
    start = mbd.State(jnp.zeros(()), jnp.stack([0.0, h, 0.0]), jnp.stack([0.0, v, 0.0]), ball.layout)
    floor = mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(e))
    ts = jnp.stack([jnp.zeros(()), 0.5 * end, end])
    run = mbd.simulate(ball, start, ts, events=[floor], max_events=6, accuracy="high")
    assert run.events is not None
    return jnp.stack([run.q[-1, 1], run.events.times[0]])


def closed(p: Array) -> Array:
    h, v, e, g, end = p
    fall = jnp.sqrt(v**2 + 2 * g * h)
    t = (v + fall) / g
    return jnp.stack([e * fall * (end - t) - g / 2 * (end - t) ** 2, t])


def closed_times(heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The times of the first and the second impact of balls that are thrown as `THROWN` is from other heights."""
    fall = np.sqrt(0.5**2 + 2 * 9.81 * heights)
    return (0.5 + fall) / 9.81, (0.5 + (1 + 2 * 0.8) * fall) / 9.81


THROWN = jnp.asarray([2.0, 0.5, 0.8, 9.81, 1.2])
# `[h(T), t₁]`; the derivatives of h(T) by h₀, v₀, e, g, T; and the second one by h₀.
HEIGHT_AND_TIME = [1.288075852800734, 0.6915501465184496]
SLOPES = [0.6287165387686807, 0.02802913171881326, 3.195153251555963, 0.001695026442809993, 0.03939248722278225]
CURVATURE = -0.8020691123150357


def test_a_thrown_ball() -> None:
    np.testing.assert_allclose(thrown(THROWN), HEIGHT_AND_TIME, rtol=0, atol=VALUE)


@pytest.mark.parametrize(
    ("mode", "jit"),
    [
        pytest.param(jax.jacfwd, False, marks=pytest.mark.slow, id="forward, eager"),
        pytest.param(jax.jacfwd, True, id="forward, jit"),
        pytest.param(jax.jacrev, False, id="reverse, eager"),
        pytest.param(jax.jacrev, True, marks=pytest.mark.slow, id="reverse, jit"),
    ],
)
def test_derivatives_of_a_thrown_ball(mode: Callable[..., Callable[..., Array]], jit: bool) -> None:
    jacobian = mode(thrown)
    found = (jax.jit(jacobian) if jit else jacobian)(THROWN)
    np.testing.assert_allclose(found[0], SLOPES, rtol=0, atol=FIRST)
    np.testing.assert_allclose(found, jax.jacfwd(closed)(THROWN), rtol=0, atol=FIRST)


def test_a_second_derivative_of_a_thrown_ball() -> None:
    along = lambda f: lambda x: jax.jvp(f, (x,), (jnp.asarray([1.0, 0.0, 0.0, 0.0, 0.0]),))[1]  # noqa: E731
    found = jax.jit(along(along(lambda p: thrown(p)[0])))(THROWN)
    np.testing.assert_allclose(found, CURVATURE, rtol=0, atol=SECOND)


@pytest.mark.slow
@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev], ids=["forward", "reverse"])
@pytest.mark.parametrize("inner", [jax.jacfwd, jax.jacrev], ids=["over forward", "over reverse"])
def test_second_derivatives_of_a_thrown_ball(
    inner: Callable[..., Callable[..., Array]], outer: Callable[..., Callable[..., Array]]
) -> None:
    found = jax.jit(outer(inner(thrown)))(THROWN)
    np.testing.assert_allclose(found[0, 0, 0], CURVATURE, rtol=0, atol=SECOND)
    np.testing.assert_allclose(found, jax.jacfwd(jax.jacfwd(closed))(THROWN), rtol=0, atol=SECOND)


@pytest.mark.slow
def test_third_derivatives_of_a_thrown_ball() -> None:
    along = lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones(5) * THROWN / 10,))[1]  # noqa: E731
    found, expected = (jax.jit(along(along(along(f))))(THROWN) for f in (thrown, closed))
    np.testing.assert_allclose(found, expected, rtol=0, atol=SECOND)


@pytest.mark.slow
def test_a_batch_of_thrown_balls() -> None:
    """Of heights for which the impact is in another step each, and for which there is none, or a second one."""
    heights = jnp.linspace(0.5, 8.0, 23)
    of_height = lambda f: lambda h: f(THROWN.at[0].set(h))[0]  # noqa: E731
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(of_height(thrown))))(heights)
    first = closed_times(np.asarray(heights))
    once = (first[0] < 1.2) & (first[1] > 1.2)
    assert 10 < once.sum() < 23
    np.testing.assert_allclose(value[once], jax.vmap(of_height(closed))(heights)[once], rtol=0, atol=VALUE)
    expected = jax.vmap(jax.grad(of_height(closed)))(heights)
    np.testing.assert_allclose(slope[once], expected[once], rtol=0, atol=FIRST)


def test_a_ball_without_gravity_against_a_wall() -> None:
    """`h(T) = e (v T − h₀)`; the derivative by the height is −e."""
    p = jnp.asarray([2.95, -5.0, 1.0, 0.0, 1.0])
    value, slopes = thrown(p)[0], jax.jacrev(lambda p: thrown(p)[0])(p)
    np.testing.assert_allclose(value, 2.05, rtol=0, atol=VALUE)
    np.testing.assert_allclose(slopes[jnp.asarray([0, 1, 2, 4])], [-1.0, -1.0, 2.05, 5.0], rtol=0, atol=FIRST)


def two_balls(x2: Array, x1: Array) -> Array:
    """Where two balls of 1 kg and 2 kg are after 1 s: they meet once, with the restitution 0.9."""
    bodies = [pl.Body("a", 1.0, 0.1), pl.Body("b", 2.0, 0.1)]
    rails = [pl.Prismatic(name, pl.ground.at(), body.at()) for name, body in zip(("A", "B"), bodies, strict=True)]
    mechanism = pl.Mechanism(bodies, rails, coordinates="joint")
    start = mbd.State(jnp.zeros(()), jnp.stack([x1, x2]), jnp.asarray([2.0, -0.5]), mechanism.layout)
    gap = lambda at: at.q[1] - at.q[0]  # noqa: E731
    meet = mbd.Event("meet", gap, below=0.1, then=mbd.Bounce(0.9))
    return mbd.simulate(mechanism, start, jnp.linspace(0.0, 1.0, 5), events=[meet], accuracy="high").q[-1]


def test_two_balls_that_meet() -> None:
    at = jnp.asarray(1.0), jnp.asarray(0.0)
    np.testing.assert_allclose(two_balls(*at), [-0.0266666666666666, 1.51333333333333], rtol=0, atol=VALUE)
    by_second, by_first = jax.jacfwd(two_balls, (0, 1))(*at)
    np.testing.assert_allclose([by_second[0], by_first[1]], [1.26666666666667, 0.633333333333333], rtol=0, atol=FIRST)
