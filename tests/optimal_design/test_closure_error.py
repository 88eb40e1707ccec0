"""The closure error, and its derivatives where the mechanism can be assembled and where it cannot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from tests.optimal_design.linkages import four_bar

CLOSED, OPEN = [2.0, 0.5, 1.5, 1.2], [2.0, 0.3, 0.7, 0.5]
STEP = 1e-5  # of difference quotients
COORDINATES = ("absolute", "joint")


def error(lengths: Array, coordinates: str = "joint") -> Array:
    return mbd.closure_error(four_bar(lengths, coordinates), {"crank.theta": 0.3})


def quotients(f, x: Array) -> np.ndarray:
    """Central difference quotients by each number of `x`, on the last axis."""
    steps = STEP * np.eye(len(x))
    return np.stack([(np.asarray(f(x + s)) - np.asarray(f(x - s))) / (2 * STEP) for s in steps], axis=-1)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_a_mechanism_that_can_be_assembled_has_no_closure_error(coordinates: str) -> None:
    lengths = jnp.array(CLOSED)
    assert float(error(lengths, coordinates)) < 1e-25
    np.testing.assert_allclose(jax.grad(error)(lengths, coordinates), 0.0, atol=1e-14)
    assert mbd.closure_residual(four_bar(lengths), {"crank.theta": 0.3}).shape == (3,)


def test_closure_error_of_a_stretched_linkage_is_half_the_squared_gap() -> None:
    """With all pins on one line and the crank fixed, the joint coordinates leave the gap 2 − 0.3 − 0.7 − 0.5 = 0.5 m
    between the pins at C; the angle of the crank can close none of it."""
    value = mbd.closure_error(four_bar(jnp.array(OPEN)), {"crank.theta": 0.0})
    assert float(value) == pytest.approx(0.5 * 0.5**2, rel=1e-9)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_derivatives_where_the_mechanism_cannot_be_assembled(coordinates: str) -> None:
    lengths = jnp.array(OPEN)

    def own(p: Array) -> Array:
        return error(p, coordinates)

    slopes = quotients(own, lengths)
    assert np.abs(slopes).max() > 0.1
    np.testing.assert_allclose(jax.grad(own)(lengths), slopes, atol=1e-9)
    np.testing.assert_allclose(jax.jacfwd(own)(lengths), slopes, atol=1e-9)
    np.testing.assert_allclose(jax.hessian(own)(lengths), quotients(jax.grad(own), lengths), atol=1e-8)


def test_derivative_of_the_residual_includes_that_of_the_minimiser() -> None:
    lengths = jnp.array(OPEN)

    def residual(p: Array) -> Array:
        return mbd.closure_residual(four_bar(p), {"crank.theta": 0.3})

    np.testing.assert_allclose(jax.jacrev(residual)(lengths), quotients(residual, lengths), atol=1e-8)


def test_gradient_is_continuous_where_the_linkage_is_stretched_out() -> None:
    """At the boundary of the feasible set both the error and its gradient tend to zero."""
    reach = jnp.array([2.0, 0.5, 0.9, 0.6])

    def straight(lengths: Array) -> Array:
        return mbd.closure_error(four_bar(lengths), {"crank.theta": 0.0}, guess={"coupler.theta": 0.1})

    for gap in (1e-2, 1e-4):
        value, slope = jax.value_and_grad(straight)(reach.at[0].set(2.0 + gap))
        assert 0 < float(value) < gap**2
        assert 0 < float(jnp.linalg.norm(slope)) < 3 * gap
    assert float(straight(reach.at[0].set(1.9))) < 1e-25


def test_a_batch_holds_mechanisms_of_both_kinds() -> None:
    batch = jnp.array([CLOSED, OPEN])
    slopes = jax.jit(jax.vmap(jax.grad(error)))(batch)
    np.testing.assert_allclose(slopes[0], 0.0, atol=1e-14)
    np.testing.assert_allclose(slopes[1], jax.grad(error)(batch[1]), rtol=1e-9)


def test_wrong_names() -> None:
    with pytest.raises(mbd.MechanismError, match="crank"):
        mbd.closure_error(four_bar(CLOSED), {"crnk.theta": 0.3})
    with pytest.raises(mbd.MechanismError, match="fixed"):
        mbd.closure_error(four_bar(CLOSED), {"crank.theta": jnp.ones(2)})
