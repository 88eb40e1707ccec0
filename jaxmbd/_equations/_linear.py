"""Linear solves with small positive definite matrices, with derivatives that reuse the factor."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Solve = Callable[[Array], Array]

_UNROLLED = 4  # rows up to which the factorisation is written out: a call to LAPACK costs more than its work there


def spd_solver(S: Float[Array, "m m"]) -> Solve:
    """The solution of `S x = b` for vectors and matrices `b`, with derivatives that reuse the factor."""
    if S.shape[0] == 0:
        return lambda b: b
    fixed = jax.lax.stop_gradient(S)
    apply = _unrolled(fixed) if S.shape[0] <= _UNROLLED else _factored(fixed)

    def solve(b: Array) -> Array:
        return jax.lax.custom_linear_solve(lambda x: S @ x, b, lambda _, b: apply(b), symmetric=True)

    return solve


def _factored(S: Array) -> Solve:
    """By LAPACK's Cholesky factorisation."""
    factor = jnp.linalg.cholesky(S)
    return lambda b: jax.scipy.linalg.cho_solve((factor, True), b)


def _unrolled(S: Array) -> Solve:
    """By `S = L D Lᵀ` written out number by number."""
    m = S.shape[0]
    L: dict[tuple[int, int], Array] = {}
    D: list[Array] = []
    for j in range(m):
        D.append(S[j, j] - sum(L[j, k] ** 2 * D[k] for k in range(j)))
        for i in range(j + 1, m):
            L[i, j] = (S[i, j] - sum(L[i, k] * L[j, k] * D[k] for k in range(j))) / D[j]

    def solve(b: Array) -> Array:
        x = [b[i] for i in range(m)]
        for i in range(m):
            x[i] = x[i] - sum(L[i, k] * x[k] for k in range(i))
        x = [value / d for value, d in zip(x, D, strict=True)]
        for i in reversed(range(m)):
            x[i] = x[i] - sum(L[k, i] * x[k] for k in range(i + 1, m))
        return jnp.stack(x) if m else b

    return solve
