"""The saddle-point system `M v̇ + Cᵀ λ = F`, `C v̇ = b`, solved by its Schur complement `S = C M⁻¹ Cᵀ`.

`S` is factored once and used for several right-hand sides. The solve has its own derivative rule, that of the whole
system, whose matrix is applied by products; the same factor solves it, and no derivative goes through a factorisation.

Redundant constraints make `S` singular. Then `S + E` is factored, with a diagonal `E` (ε for rows whose residuals have
no units, the same for all) so small that one step of iterative
refinement removes its effect on the independent rows (a proximal iteration, whose fixed point is the solution itself).
The multipliers then have a component in the null space of `Cᵀ`, which `_minimum_norm` removes. Without redundant rows ε
is zero: near a singular configuration the true forces grow without bound, and even a small ε would reduce them.

Off the constraint manifold redundant rows contradict one another, by the drift of an integrator's stage, and ε is too
small to balance the contradiction: step-size control would follow the difference. Simulation therefore solves in an
independent subset of the rows (`integrate.formulations.independent_constraints`), which needs no ε.

Source: Carpentier, Budhiraja, Mansard, *Proximal and sparse resolution of constrained dynamic equations* (2021).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Configuration
from jaxmbd.numerics.linear_solve import Solve, SymmetricMatrix

_PROXIMAL = 2.0**10  # ε in units of rounding of the largest diagonal entry of S: well above the factorisation error


def proximal_shift(largest: Scalar) -> Scalar:
    """The shift `ε` for the largest diagonal entry of `S`; a constant under differentiation."""
    return jax.lax.stop_gradient(_PROXIMAL * jnp.finfo(largest.dtype).eps * largest)


def proximal_shifts(S: SymmetricMatrix, scales: Float[Array | np.ndarray, " m"]) -> Float[Array, " m"]:
    """The shift of each row: `ε` for rows without units, so that it does not depend on the mechanism's size."""
    return proximal_shift(S.scaled_by(1 / scales).largest()) * scales**2


class SaddlePoint:
    """The factored saddle-point system at one instant, for accelerations and projections onto the constraints."""

    def __init__(self, at: Configuration) -> None:
        self.at, self.inertia, self.S, self.independent = at, at.inertia, at.schur(), at.equations.independent_rows
        redundant, scales = at.equations.redundant, at.equations.scales.rows
        self.epsilon = None if redundant is False else jnp.where(redundant, proximal_shifts(self.S, scales), 0.0)
        self._by_factor = self._system().factored()

    def _system(self) -> SymmetricMatrix:
        if self.independent is not None:
            return self.S.limited(self.independent)
        return self.S if self.epsilon is None else self.S.shifted(self.epsilon)

    def projection(self, b: Float[Array, " m"]) -> tuple[Array, Array]:
        """`x = M⁻¹ Cᵀ η`, the smallest solution of `C x = b` in the metric of `M`, and `η`, zero in dependent rows."""
        x, y = self._solved(jnp.zeros(self.at.mechanism.nv, b.dtype), b, self._eliminated)
        return x, -y

    def unconstrained(self, f: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`M⁻¹ f`."""
        return jax.lax.custom_linear_solve(self.at.momentum, f, lambda _, f: self.inertia.solve(f), symmetric=True)

    def accelerations(self, F: Float[Array, " nv"], b: Float[Array, " m"]) -> tuple[Array, Array]:
        """`(v̇, λ)` of `M v̇ + Cᵀ λ = F`, `C v̇ = b`; with redundant constraints, λ has least norm."""
        vdot, lam = self._solved(F, b, self._refined)
        return vdot, self._minimum_norm(lam)

    def _solved(self, f: Float[Array, " nv"], b: Float[Array, " m"], solve: Solve) -> tuple[Array, Array]:
        """`(x, y)` of `M x + Cᵀ y = f`, `C x = b` in the independent rows; `y` is zero in the others."""
        # As one vector: JAX's rule for derivatives refuses a right side of which one part alone has a derivative.
        right = jnp.concatenate([f, self._chosen(b)])
        return self._split(jax.lax.custom_linear_solve(self._times, right, lambda _, x: solve(x), symmetric=True))

    def _chosen(self, rows: Float[Array, " m"], others: Array | float = 0.0) -> Float[Array, " m"]:
        """The values of the independent rows, and `others` in their place in the dependent ones."""
        return rows if self.independent is None else jnp.where(self.independent, rows, others)

    def _split(self, x: Float[Array, " rows"]) -> tuple[Array, Array]:
        return x[: self.at.mechanism.nv], x[self.at.mechanism.nv :]

    def _times(self, x: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """`M x + Cᵀ y` and `C x`; the identity in dependent rows. By products alone: the derivatives of a solution pass
        through these, which takes half of the operations of those of the entries of `S`."""
        speeds, multipliers = self._split(x)
        loads = self.at.momentum(speeds) + self.at.constraint_force(self._chosen(multipliers))
        return jnp.concatenate([loads, self._chosen(self.at.times(speeds), multipliers)])

    def _eliminated(self, right: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """The solution by the factor of `S`."""
        f, b = self._split(right)
        free = self.inertia.solve(f)
        y = self._by_factor(jax.lax.stop_gradient(self._chosen(self.at.times(free)) - b))  # it has no derivatives
        return jnp.concatenate([free - self.inertia.solve(self.at.constraint_force(y)), y])

    def _refined(self, right: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """The same with a step of iterative refinement: near a singular configuration the rounding error of the solve
        alone grows with the inverse square of the smallest singular value, and step-size control would follow it. So
        would the errors of derivatives, which pass through the same solve."""
        f, b = self._split(right)
        x = self._eliminated(right)
        left = b - self._chosen(self.at.times(self._split(x)[0]))  # what is left of the first rows is rounding
        return x + self._eliminated(jnp.concatenate([jnp.zeros_like(f), left]))

    def _minimum_norm(self, lam: Float[Array, " m"]) -> Float[Array, " m"]:
        """`λ` without its component in the null space of `Cᵀ`, on which `(S + E)⁻¹ E` is the identity; all rows.

        Three passes, since rounding leaves eigenvalues of `S` there that are not quite zero compared with ε.
        """
        if self.epsilon is None:
            return lam
        solve = self.S.shifted(self.epsilon).solver()
        for _ in range(3):
            lam = lam - solve(self.epsilon * solve(self.epsilon * lam))
        return lam
