"""Least squares with small matrices, with derivatives that reuse the factor; elimination with pivoting."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.equations.spd_solve import Solve

_ZERO, _ROUNDING = 1e-10, 1e2  # a share of the largest, in units of rounding


def tolerance_of_rank(dtype: Any) -> float:
    """The share of the largest below which a singular value or a pivot of constraints counts as zero: 1e-10, or 1e-5 in
    single precision."""
    return max(_ZERO, _ROUNDING * float(jnp.finfo(dtype).eps))


def nonzero_singular_values(values: Float[Array | np.ndarray, "*batch k"]) -> Bool[Array | np.ndarray, "*batch k"]:
    """Which singular values, largest first, do not count as zero."""
    return values > tolerance_of_rank(values.dtype) * values[..., :1]


def rank_of(rows: Float[Array, "m nv"]) -> Int[Array, ""]:
    """The rank of rows, where it is counted in a compiled program."""
    return jnp.sum(nonzero_singular_values(jnp.linalg.svd(jax.lax.stop_gradient(rows), compute_uv=False)))


class LeastSquaresQR:
    """A matrix `K (n, k)` of full column rank, factored: `K = Q R`.

    Solved by the triangular factor alone with one refinement (semi-normal equations), to the accuracy of `Q R` itself.

    Source: Björck, *Numerical Methods for Least Squares Problems* (1996), §6.6.5.
    """

    def __init__(self, K: Float[Array, "n k"]) -> None:
        self.K = K
        self._R = jnp.linalg.qr(jax.lax.stop_gradient(K), mode="r")

    def least_squares(self, b: Float[Array, "n *more"]) -> Float[Array, "k *more"]:
        """The `x` for which `K x` is nearest to `b`."""
        return self._normal(self.K.T @ b)

    def least_norm(self, f: Float[Array, "k *more"]) -> Float[Array, "n *more"]:
        """Of all `y` with `Kᵀ y = f` the shortest."""
        return self.K @ self._normal(f)

    def _normal(self, f: Array) -> Array:
        times = lambda x: self.K.T @ (self.K @ x)  # noqa: E731
        return jax.lax.custom_linear_solve(times, f, self._refined, symmetric=True)

    def _refined(self, times: Solve, f: Array) -> Array:
        x = self._rough(f)
        return x + self._rough(f - times(x))

    def _rough(self, f: Array) -> Array:
        half = jax.scipy.linalg.solve_triangular(self._R, f, trans=1)
        return jax.scipy.linalg.solve_triangular(self._R, half)


def pivot_columns(C: Float[Array, "m n"], fit: float = 1.0) -> Bool[Array, " n"]:
    """The columns that `C x = 0` determines by the others: as many as its rank, by elimination with pivoting.

    Pivots are the largest numbers left, or those in the last column that has one at least `fit` times as large. A pivot
    below `tolerance_of_rank` of the first one counts as zero.
    """
    m, n = C.shape
    none = jnp.zeros(n, bool)
    if not m:
        return none
    C = jax.lax.stop_gradient(C)
    least = tolerance_of_rank(C.dtype) * jnp.max(jnp.abs(C))

    def eliminate(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rows, chosen = carry
        largest = jnp.max(jnp.abs(rows), axis=0)
        j = n - 1 - jnp.argmax((largest >= fit * jnp.max(largest))[::-1])
        i = jnp.argmax(jnp.abs(rows[:, j]))
        counts = jnp.abs(rows[i, j]) > least
        pivot = jnp.where(counts, rows[i, j], 1.0)
        rest = (rows - jnp.outer(rows[:, j], rows[i] / pivot)).at[i].set(0.0).at[:, j].set(0.0)
        return jnp.where(counts, rest, 0.0), chosen.at[j].set(chosen[j] | counts)

    return jax.lax.fori_loop(0, min(m, n), eliminate, (C, none))[1]
