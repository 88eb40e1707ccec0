"""The linear solve that the methods share: `M v̇ + Cᵀ λ = F`, `C v̇ = b`, by its Schur complement `S = C M⁻¹ Cᵀ`.

`S` is factored once and used for several right-hand sides. The solve has its own derivative rule (that of
`S x = b`, with the same factor), so that no derivative goes through the factorisation.

Constraints may repeat one another: then `S` is singular. What is factored there is `S + ε I`, with ε so small that one
refinement removes its effect on the rows that do not repeat (a proximal iteration, whose fixed point is the solution
itself); the multipliers then differ from those of least norm by what repeats, which `_least` removes. Where no rows
repeat, ε is zero: near a singular position the forces that even a small ε takes away are those that grow without bound.

Off the constraints rows that repeat contradict one another, by as much as a stage of an integrator has drifted, and ε
is too small to even that out: step-size control would chase the difference. So a motion is solved in rows that do not
repeat (`_rows`), which need no ε.

Source: Carpentier, Budhiraja, Mansard, *Proximal and sparse resolution of constrained dynamic equations* (2021).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Configuration
from jaxmbd.equations.spd_solve import Symmetric

_PROXIMAL = 2.0**10  # ε, in units of rounding of the largest diagonal entry of S: well above the errors of factoring


def proximal_shift(largest: Scalar) -> Scalar:
    """`ε`, by the largest diagonal entry of `S`: a constant to derivatives."""
    return jax.lax.stop_gradient(_PROXIMAL * jnp.finfo(largest.dtype).eps * largest)


class SaddlePoint:
    """The factored system of one instant: projections onto the constraints and accelerations come from it."""

    def __init__(self, at: Configuration) -> None:
        self.at, self.inertia, self.S, self.independent = at, at.inertia, at.schur(), at.equations.independent_rows
        redundant, largest = at.equations.redundant, self.S.largest()
        self.epsilon = None if redundant is False else jnp.where(redundant, proximal_shift(largest), 0.0)
        self._solve = self._system().solver()

    def _system(self) -> Symmetric:
        if self.independent is not None:
            return self.S.limited(self.independent)
        return self.S if self.epsilon is None else self.S.shifted(self.epsilon)

    def solve(self, b: Float[Array, "m *k"]) -> Float[Array, "m *k"]:
        """`S⁻¹ b` in the rows that are independent, zero in the others."""
        if self.independent is None:
            return self._solve(b)
        independent = self.independent if b.ndim == 1 else self.independent[:, None]
        return self._solve(jnp.where(independent, b, 0.0))

    def impulses(self, b: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """`η = S⁻¹ b`: the impulses whose `M⁻¹ Cᵀ η` is the smallest change (in the metric of `M`) of `C x` by `b`."""
        return self.solve(b)

    def apply_impulse(self, eta: Float[Array, " m"]) -> Float[Array, " nv"]:
        """`M⁻¹ Cᵀ η`."""
        return self.inertia.solve(self.at.constraint_force(eta))

    def accelerations(self, F: Float[Array, " nv"], b: Float[Array, " m"]) -> tuple[Array, Array]:
        """`(v̇, λ)` of `M v̇ + Cᵀ λ = F`, `C v̇ = b`; where constraints repeat one another, λ is the one of least norm.

        One step of iterative refinement follows the solve: near a singular position the noise of the solve alone
        grows with the inverse square of the smallest singular value, and step-size control would chase it.
        """
        free = self.inertia.solve(F)
        lam = self.solve(self.at.times(free) - b)
        miss = self.at.times(free - self.apply_impulse(lam)) - b
        lam = lam + self.solve(miss)
        return free - self.apply_impulse(lam), self._least(lam)

    def _least(self, lam: Float[Array, " m"]) -> Float[Array, " m"]:
        """`λ` without its part in the null space of `Cᵀ`, on which `ε (S + ε I)⁻¹` is the identity, in all rows.

        Thrice, since rounding leaves eigenvalues of `S` there that are not quite zero against ε.
        """
        if self.epsilon is None:
            return lam
        solve = self.S.shifted(self.epsilon).solver()
        for _ in range(3):
            lam = lam - self.epsilon * solve(self.epsilon * solve(lam))
        return lam
