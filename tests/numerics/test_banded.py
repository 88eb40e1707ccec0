"""Banded systems: LAPACK's factors, the loops over them, and the derivative of a determinant."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.numerics.banded import BandedMatrix


def banded(rng: np.random.Generator, n: int, width: int, rated: bool = False) -> tuple[BandedMatrix, Any, Any]:
    """A matrix with a diagonal of zeros, which no elimination without pivots survives, and both as whole matrices."""
    rows, columns = np.nonzero(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= width)
    values, rates = rng.standard_normal((2, len(rows)))
    values[rows == columns] = 0.0
    whole, rate = np.zeros((2, n, n))
    whole[rows, columns], rate[rows, columns] = values, rates
    return BandedMatrix(rows, columns, values, n, rates if rated else 0.0), whole, rate


@pytest.mark.parametrize(("n", "width"), [(30, 3), (12, 1), (4, 3)])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_known_and_traced_solutions(rng: np.random.Generator, n: int, width: int, shape: tuple[int, ...]) -> None:
    matrix, whole, _ = banded(rng, n, width, rated=True)
    b = rng.standard_normal((n, *shape))
    x = np.linalg.solve(whole, b.reshape(n, -1)).reshape(b.shape)
    np.testing.assert_allclose(matrix.solve(b), x, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(jax.jit(matrix.solve)(b), x, rtol=1e-8, atol=1e-8)
    batch = jax.vmap(matrix.solve)(jnp.stack([b, 2 * b]))
    np.testing.assert_allclose(batch[1], 2 * x, rtol=1e-8, atol=1e-8)


def test_derivatives_of_both_modes_are_the_inverse(rng: np.random.Generator) -> None:
    matrix, whole, _ = banded(rng, 20, 4)
    b = jnp.asarray(rng.standard_normal(20))
    for jacobian in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jacobian(matrix.solve)(b), np.linalg.inv(whole), rtol=1e-8, atol=1e-9)


def test_the_rate_of_a_determinant(rng: np.random.Generator) -> None:
    matrix, whole, rate = banded(rng, 25, 3, rated=True)
    np.testing.assert_allclose(matrix.log_determinant_rate, np.trace(np.linalg.solve(whole, rate)), rtol=1e-10)


def test_a_singular_matrix_is_an_error() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        BandedMatrix(np.arange(3), np.arange(3), np.array([1.0, 0.0, 1.0]), 3).solve(np.ones(3))
