"""Symmetric positive definite matrices by their entries, and solves whose derivatives reuse the factor."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.compile.ldlt_primitive import dense, factor_p, solve_p
from jaxmbd.compile.passes.symbolic_ldlt import Pattern
from jaxmbd.equations.gather_tables import gather_sum, gather_table

Solve = Callable[[Array], Array]


class Symmetric(eqx.Module):
    """A symmetric matrix `S (n, n)`: its entries on and below the diagonal where `pattern` has them."""

    values: Float[Array, " entries"]
    pattern: Pattern = eqx.field(static=True)

    def matrix(self) -> Float[Array, "n n"]:
        """`S`, dense."""
        return dense(self.values, self.pattern)

    def largest(self) -> Scalar:
        """The largest entry of the diagonal; zero for a matrix without rows."""
        diagonal = np.flatnonzero(self.pattern.rows == self.pattern.columns)
        return jnp.max(self.values[diagonal], initial=0.0)

    def shifted(self, shift: Scalar) -> "Symmetric":
        """`S + shift I`."""
        diagonal = (self.pattern.rows == self.pattern.columns).astype(self.values.dtype)
        return Symmetric(self.values + shift * diagonal, self.pattern)

    def limited(self, kept: Bool[Array, " n"]) -> "Symmetric":
        """`S` in the rows and columns that are kept; in the others a multiple of the unit matrix."""
        i, j = self.pattern.rows, self.pattern.columns
        rest = self.largest() * (i == j)
        return Symmetric(jnp.where(kept[i] & kept[j], self.values, rest), self.pattern)

    def scaled(self) -> "Symmetric":
        """`D S D`, with `D` diagonal, so that the diagonal is one; rows of zeros stay."""
        i, j = self.pattern.rows, self.pattern.columns
        diagonal = jnp.zeros(self.pattern.n, self.values.dtype).at[i[i == j]].set(self.values[i == j])
        factor = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
        return Symmetric(self.values * factor[i] * factor[j], self.pattern)

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """`S x`."""
        i, j = self.pattern.rows, self.pattern.columns
        beside = np.flatnonzero(i != j)
        targets, sources = np.concatenate([i, j[beside]]), np.concatenate([j, i[beside]])
        values = jnp.concatenate([self.values, self.values[beside]])
        return gather_sum(values * x[sources], gather_table(targets, self.pattern.n))

    def solver(self) -> Solve:
        """The solution of `S x = b` for vectors and matrices `b`. Its derivatives reuse the factor."""
        if not self.pattern.n:
            return lambda b: b
        fixed, pattern = jax.lax.stop_gradient(self.values), self.pattern
        factor = factor_p.bind(fixed, pattern=pattern)

        def apply(_: Solve, b: Array) -> Array:
            return solve_p.bind(fixed, factor, b[:, None], pattern=pattern)[:, 0]

        def solve(b: Array) -> Array:
            return jax.lax.custom_linear_solve(self.times, b, apply, symmetric=True)

        return lambda b: solve(b) if b.ndim == 1 else jax.vmap(solve, 1, 1)(b)


def symmetric(S: Float[Array, "n n"]) -> Symmetric:
    """A matrix given in full."""
    i, j = np.tril_indices(S.shape[0])
    return Symmetric(S[i, j], Pattern(S.shape[0], i, j))


def spd_solver(S: Float[Array, "n n"]) -> Solve:
    """The solution of `S x = b` for vectors and matrices `b`, with derivatives that reuse the factor."""
    return symmetric(S).solver()
