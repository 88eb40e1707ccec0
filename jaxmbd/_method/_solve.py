"""The linear solve that the methods share: `M v̇ + Cᵀ λ = F`, `C v̇ = b`, by its Schur complement `S = C M⁻¹ Cᵀ`.

`S` is factored once and used for several right-hand sides. The solve has its own derivative rule (that of
`S x = b`, with the same factor), so that no derivative goes through the factorisation.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Solve = Callable[[Array], Array]


class SaddlePoint:
    """The factored system of one instant: projections onto the constraints and accelerations come from it."""

    def __init__(self, mass: Float[Array, " nv"], C: Float[Array, "m nv"]) -> None:
        self.mass = mass
        self.C = C
        self.solve = _spd_solver((C / mass[None, :]) @ C.T) if C.shape[0] else (lambda b: b)

    def multipliers(self, b: Float[Array, " m"]) -> Float[Array, " m"]:
        """`S⁻¹ b`."""
        return self.solve(b)

    def correction(self, b: Float[Array, " m"]) -> Float[Array, " nv"]:
        """`M⁻¹ Cᵀ S⁻¹ b`: the smallest change (in the metric of `M`) that changes `C x` by `b`."""
        return (self.C.T @ self.solve(b)) / self.mass

    def accelerations(self, F: Float[Array, " nv"], b: Float[Array, " m"]) -> tuple[Array, Array]:
        """`(v̇, λ)` of `M v̇ + Cᵀ λ = F`, `C v̇ = b`."""
        free = F / self.mass
        lam = self.solve(self.C @ free - b)
        return free - (self.C.T @ lam) / self.mass, lam


def _spd_solver(S: Float[Array, "m m"]) -> Solve:
    factor = jnp.linalg.cholesky(jax.lax.stop_gradient(S))

    def apply(_: object, b: Array) -> Array:
        return jax.scipy.linalg.cho_solve((factor, True), b)

    def solve(b: Array) -> Array:
        return jax.lax.custom_linear_solve(lambda x: S @ x, b, apply, symmetric=True)

    return solve
