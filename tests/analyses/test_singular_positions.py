"""Motions that come to a singular position: what stops there, and how soon it is given up."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

R = mbd.RESULTS
TS = np.linspace(0.0, 0.5, 3)


def pulled(reach: float | Array) -> tuple[pl.Mechanism, mbd.State]:
    """A bob on a rod of 1 m, drawn aside by `reach` within half a second: no farther than 1 m, where the rod lies flat
    and its row and the driver's become dependent."""
    bob = pl.Body("bob", 1.0, 0.1, (0.0, -1.0, 0.0))
    drivers = [
        pl.Driver("pull", "bob.x", lambda t: reach * jnp.sin(jnp.pi * t)),
        pl.Driver("turn", "bob.theta", lambda t: 0.0 * t),
    ]
    joints = [pl.Rod("rod", pl.ground.at(), bob.at(), 1.0)]
    mechanism = pl.Mechanism([bob], joints, [pl.Gravity(9.81)], drivers=drivers)
    return mechanism, mbd.assemble(mechanism, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("analysis", ["simulate", "kinematics"])
def test_what_stops_at_a_singular_position(analysis: str) -> None:
    """The first instance passes; the second one comes to an end on the way, and says so."""
    ts = np.linspace(0.0, 0.5, 3)

    def run(reach: Array, throw: bool) -> mbd.Solution:
        mechanism, state = pulled(reach)
        if analysis == "kinematics":
            return mbd.kinematics(mechanism, ts, state, throw=throw)
        return mbd.simulate(mechanism, state, ts, max_steps=1000, throw=throw)

    def both(reach: Array) -> tuple[mbd.RESULTS, Array]:
        found = run(reach, throw=False)
        return found.result, found.q

    item, text = {
        "simulate": (R.singular, rf"{re.escape(R[R.singular])} The motion stopped at t = 0\.313\d* s\."),
        "kinematics": (R.position_not_reached, re.escape(R[R.position_not_reached])),
    }[analysis]
    reaches = jnp.asarray([0.6, 1.2])
    result, q = jax.jit(jax.vmap(both))(reaches)
    np.testing.assert_array_equal(result == R.successful, [True, False])
    np.testing.assert_array_equal(result == item, [False, True])
    x = np.asarray(reaches)[:, None] * np.sin(np.pi * ts)
    np.testing.assert_allclose(q[0, :, :2], np.stack([x[0], -np.sqrt(1 - x[0] ** 2)], axis=1), atol=1e-7)
    np.testing.assert_array_equal(np.isnan(q[1]).all(axis=1), [False, False, True])
    np.testing.assert_allclose(q[1, :2, 0], x[1, :2], atol=1e-7)
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=rf"1 of 2 instances of the batch failed\.\nInstance 1: {text}"
    ):
        jax.block_until_ready(jax.jit(jax.vmap(lambda reach: run(reach, throw=True).q))(reaches))


def test_a_smallest_step_gives_up_sooner() -> None:
    """With the same verdict, and without an effect on what passes. Zero leaves the default."""
    reach, dtmin = jnp.array([[0.6, 0.0], [1.2, 0.0], [1.9, 0.0], [0.6, 1e-7], [1.2, 1e-7], [1.9, 1e-7], [0.6, 0.1]]).T

    def run(reach: Array, dtmin: Array) -> tuple[mbd.RESULTS, Array, Array]:
        found = mbd.simulate(*pulled(reach), TS, dtmin=dtmin, throw=False)
        return found.result, found.q, found.stats["num_steps"]

    result, q, steps = jax.jit(jax.vmap(run))(reach, dtmin)
    np.testing.assert_array_equal(result == R.successful, [True, False, False, True, False, False, False])
    np.testing.assert_array_equal(result == R.singular, [False, True, True, False, True, True, False])
    np.testing.assert_array_equal(result == R.step_too_small, [False] * 6 + [True])
    np.testing.assert_array_equal(q[:3], q[3:6])
    assert steps[6] < steps[0] == steps[3]
    assert np.all(steps[4:6] < 0.7 * steps[1:3])


def test_what_stops_elsewhere_is_not_at_a_singular_position() -> None:
    """Steps that would have to be shorter halfway to the singular position, whose margin is smaller there already."""

    def run(reach: float | Array) -> mbd.Solution:
        return mbd.simulate(*pulled(reach), TS, dt0=0.03, dtmin=0.01, throw=False)

    verdicts = [run(1.2).result, jax.jit(jax.vmap(lambda reach: run(reach).result))(jnp.asarray([1.2]))]
    for verdict in verdicts:
        assert jnp.all(verdict == R.step_too_small)


def test_one_motion_says_where_it_is_given_up() -> None:
    mechanism, state = pulled(1.2)
    with pytest.raises(mbd.SolveError, match=r"stopped at t = 0\.313\d* s after \d\d steps, at a singular position"):
        mbd.simulate(mechanism, state, TS, dtmin=1e-7)
    with pytest.raises(mbd.SolveError, match=r"stopped at t = 0 s after 1 steps: The step size became too small"):
        mbd.simulate(*pulled(0.6), TS, dtmin=0.1)
