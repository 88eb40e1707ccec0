"""Radau's methods in the native time loop: their steps, their derivatives, and what runs beside them."""

from functools import cache
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.integrate.test_stiff import TIMES, on_rail, slid


@cache
def motion(**settings: Any) -> Any:
    """The position of the body on a rail as a function of the stiffness of its spring."""
    start = on_rail().state()

    def run(stiffness: Array) -> mbd.Solution:
        made = on_rail(stiffness).mechanism
        return mbd.simulate(made, start, TIMES, solver=mbd.Radau(3), **settings)

    return run


def position(stiffness: Array) -> Array:
    return motion(accuracy="high")(stiffness)["body.x"]


STIFF = jnp.asarray(1e5)


def by_stiffness(order: int) -> Array:
    """The exact derivatives of the position by the logarithm of the stiffness."""
    exact = lambda s: slid(STIFF * jnp.exp(s), TIMES)  # noqa: E731
    for _ in range(order):
        exact = jax.jacfwd(exact)
    return exact(jnp.zeros(()))


def of_logarithm(s: Array) -> Array:
    return position(STIFF * jnp.exp(s))


@pytest.mark.parametrize(
    ("derivative", "tolerance"),
    [
        (jax.jacfwd, 1e-9),
        (jax.jacrev, 1e-9),
        pytest.param(lambda f: jax.jacfwd(jax.jacrev(f)), 1e-8, marks=pytest.mark.slow),
        pytest.param(lambda f: jax.jacrev(jax.jacfwd(f)), 1e-8, marks=pytest.mark.slow),
        pytest.param(lambda f: jax.jacfwd(jax.jacfwd(f)), 1e-8, marks=pytest.mark.slow),
        pytest.param(lambda f: jax.jacrev(jax.jacrev(f)), 1e-8, marks=pytest.mark.slow),
    ],
    ids=["forward", "reverse", "forward over reverse", "reverse over forward", "forward twice", "reverse twice"],
)
def test_derivatives_by_a_stiffness_are_exact(derivative: Any, tolerance: float, request: Any) -> None:
    assert motion(accuracy="high")(STIFF).engine != "diffrax"
    order = 2 if " " in request.node.callspec.id else 1
    found = jax.jit(derivative(of_logarithm))(jnp.zeros(()))
    np.testing.assert_allclose(found, by_stiffness(order), atol=tolerance)


def test_a_batch_is_its_members_and_each_has_steps_of_its_own() -> None:
    stiffnesses = jnp.asarray([1e3, 1e5, 1e6, 2e6, 1e7])
    run = lambda k: (lambda r: (r["body.x"], r.stats["num_steps"]))(motion()(k))  # noqa: E731
    found, steps = jax.jit(jax.vmap(run))(stiffnesses)
    for k, stiffness in enumerate(stiffnesses):
        one, count = run(stiffness)
        np.testing.assert_allclose(found[k], one, rtol=1e-14)
        assert steps[k] == count
    assert len(set(steps.tolist())) > 1
    slopes = jax.jit(jax.vmap(jax.grad(lambda k: motion()(k)["body.x"][-1])))(stiffnesses)
    exact = jax.vmap(jax.grad(lambda k: slid(k, 1.0)))(stiffnesses)
    np.testing.assert_allclose(slopes * stiffnesses, exact * stiffnesses, atol=1e-6)


@pytest.mark.slow
def test_steps_are_those_of_diffraxs_loop() -> None:
    """Stage for stage; only after a failed iteration do steps grow more slowly here."""
    ours, diffraxs = (motion(engine=engine)(STIFF) for engine in ("interpreter", "diffrax"))
    assert (ours.engine, diffraxs.engine) == ("interpreter", "diffrax")
    assert int(ours.stats["num_steps"]) == int(diffraxs.stats["num_steps"])
    np.testing.assert_allclose(ours.q, diffraxs.q, atol=1e-13)
    np.testing.assert_allclose(ours.v, diffraxs.v, atol=1e-12)


@pytest.mark.slow
def test_an_event_of_a_stiff_motion_and_its_time() -> None:
    """The body is stopped where it has gone half of its way, at a time that moves with the stiffness as it should."""
    start, half = on_rail().state(), 1.0 + 0.15
    stop = mbd.Event("half", "body.x", below=half, then=mbd.Stop())

    def time(s: Array) -> Array:
        made = on_rail(STIFF * jnp.exp(s)).mechanism
        run = mbd.simulate(made, start, [0.0, 2.0], solver="stiff", accuracy="high", events=[stop])
        assert run.engine != "diffrax"
        assert run.events is not None
        return run.events.times[0]

    found, slope = jax.value_and_grad(time)(jnp.zeros(()))
    np.testing.assert_allclose(slid(STIFF, found), half, atol=1e-10)
    moves = jax.grad(lambda s: slid(STIFF * jnp.exp(s), found))(jnp.zeros(()))
    np.testing.assert_allclose(slope, -moves / jax.grad(lambda t: slid(STIFF, t))(found), rtol=1e-8)
    np.testing.assert_allclose(jax.jvp(time, (jnp.zeros(()),), (jnp.ones(()),))[1], slope, rtol=1e-10)


def test_single_precision_stays_single() -> None:
    with jax.enable_x64(False):
        made = on_rail()
        run = mbd.simulate(made.mechanism, made.state(), TIMES.astype(np.float32), solver="stiff")
        assert run.engine != "diffrax"
        assert run.q.dtype == np.float32
        found = np.asarray(run["body.x"])
    np.testing.assert_allclose(found, slid(STIFF, TIMES), atol=2e-5)


def test_an_iteration_that_fails_is_no_motion() -> None:
    """At constant steps: the force has no value beyond a place that the body passes."""
    beyond = lambda t, x, rate, _: jnp.where(x < 1.2, jnp.nan, -0.1 * rate)  # noqa: E731
    body = pl.Body("body", 2.0, 0.1, (1.3, 0.0, 0.0))
    made = pl.Mechanism(
        [body],
        [pl.Prismatic("rail", pl.ground.at(), body.at())],
        [pl.JointForce("brake", "rail.displacement", beyond)],
    )
    start = mbd.assemble(made, {"rail.displacement": 1.3}, speeds={"rail.displacement": -1.0})
    fixed = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}
    for settings in ({}, fixed):
        run = mbd.simulate(made, start, [0.0, 0.5, 1.0], solver="stiff", throw=False, **settings)
        assert run.engine != "diffrax"
        assert run.result != mbd.RESULTS.successful
        assert np.isnan(run.q[-1]).all()


def test_an_instance_that_fails_leaves_those_beside_it_alone() -> None:
    """The second one reaches a place beyond which its force has no value; values, steps, verdicts and gradients of the
    others are those of each alone, to the bit."""
    body = pl.Body("body", 2.0, 0.1, (1.0, 0.0, 0.0))

    def run(wall: Array, stiffness: Array) -> mbd.Solution:
        pull = lambda t, x, rate, p: jnp.where(x < p[0], jnp.nan, -p[1] * x)  # noqa: E731
        law = pl.JointForce("spring", "rail.displacement", pull, jnp.stack([wall, stiffness]))
        made = pl.Mechanism([body], [pl.Prismatic("rail", pl.ground.at(), body.at())], [law])
        start = mbd.assemble(made, {"rail.displacement": 1.0})
        return mbd.simulate(made, start, [0.0, 0.1, 0.4], solver="stiff", throw=False)

    def end(wall: Array, stiffness: Array) -> tuple[Array, tuple[Array, Array]]:
        found = run(wall, stiffness)
        return found.q[-1, 0], (found.stats["num_steps"], found.result == mbd.RESULTS.successful)

    walls, stiffnesses = jnp.asarray([-2.0, 0.5, -2.0]), jnp.asarray([2e2, 2e2, 2e3])
    assert run(walls[0], stiffnesses[0]).engine != "diffrax"
    each = jax.jit(jax.value_and_grad(end, 1, has_aux=True))
    (places, (steps, finished)), slopes = jax.jit(jax.vmap(each))(walls, stiffnesses)
    np.testing.assert_array_equal(finished, [True, False, True])
    np.testing.assert_array_equal(np.isnan(places), [False, True, False])
    np.testing.assert_array_equal(np.isnan(slopes), [False, True, False])
    for k in (0, 2):
        (place, (count, _)), slope = each(walls[k], stiffnesses[k])
        assert (places[k], steps[k], slopes[k]) == (place, count, slope)
        exact = jax.value_and_grad(lambda c: jnp.cos(0.4 * jnp.sqrt(c / 2.0)))(stiffnesses[k])
        np.testing.assert_allclose((place, slope), exact, rtol=1e-5)


@pytest.mark.slow
def test_rows_that_repeat_one_another_and_their_derivatives() -> None:
    """A pendulum on two equal pins moves as on one, by its length in both modes."""

    def end(length: Array, pins: str) -> Array:
        bar = pl.Body("bar", 2.0, 0.3, pose=(length, 0.0, 0.0))
        joints = [pl.Revolute(name, pl.ground.at(0.0, 0.0), bar.at(-length, 0.0)) for name in pins]
        made = pl.Mechanism([bar], joints, [pl.Gravity(9.81)])
        start = mbd.assemble(made, {"A.angle": 0.0}, speeds={"A.angle": 0.0})
        run = mbd.simulate(made, start, [0.0, 0.5], solver="stiff", accuracy="high")
        assert run.engine != "diffrax"
        return run["bar.theta"][-1]

    length = jnp.asarray(0.5)
    one, slope = jax.value_and_grad(lambda x: end(x, "A"))(length)
    two, slopes = jax.value_and_grad(lambda x: end(x, "AB"))(length)
    np.testing.assert_allclose(two, one, atol=1e-10)
    np.testing.assert_allclose(slopes, slope, rtol=1e-8)
    np.testing.assert_allclose(jax.jvp(lambda x: end(x, "AB"), (length,), (jnp.ones(()),))[1], slope, rtol=1e-8)
