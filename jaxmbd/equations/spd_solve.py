"""Sparse symmetric positive definite matrices, and solves whose derivatives reuse the factor."""

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
    """A sparse symmetric matrix `S (n, n)`: the entries of its lower triangle in the order of `pattern`."""

    values: Float[Array, " entries"]
    pattern: Pattern = eqx.field(static=True)

    def matrix(self) -> Float[Array, "n n"]:
        """`S`, dense."""
        return dense(self.values, self.pattern)

    def largest(self) -> Scalar:
        """The largest diagonal entry; zero for an empty matrix."""
        diagonal = np.flatnonzero(self.pattern.rows == self.pattern.columns)
        return jnp.max(self.values[diagonal], initial=0.0)

    def shifted(self, shift: Scalar) -> "Symmetric":
        """`S + shift I`."""
        diagonal = (self.pattern.rows == self.pattern.columns).astype(self.values.dtype)
        return Symmetric(self.values + shift * diagonal, self.pattern)

    def limited(self, mask: Bool[Array, " n"]) -> "Symmetric":
        """`S` restricted to the rows and columns in `mask`; the others become a multiple of the identity."""
        i, j = self.pattern.rows, self.pattern.columns
        identity = self.largest() * (i == j)
        return Symmetric(jnp.where(mask[i] & mask[j], self.values, identity), self.pattern)

    def scaled(self) -> "Symmetric":
        """`D S D` with the diagonal `D` that gives a unit diagonal; zero rows are unchanged."""
        i, j = self.pattern.rows, self.pattern.columns
        diagonal = jnp.zeros(self.pattern.n, self.values.dtype).at[i[i == j]].set(self.values[i == j])
        factor = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
        return Symmetric(self.values * factor[i] * factor[j], self.pattern)

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """`S x`."""
        i, j = self.pattern.rows, self.pattern.columns
        off_diagonal = np.flatnonzero(i != j)
        targets, sources = np.concatenate([i, j[off_diagonal]]), np.concatenate([j, i[off_diagonal]])
        values = jnp.concatenate([self.values, self.values[off_diagonal]])
        return gather_sum(values * x[sources], gather_table(targets, self.pattern.n))

    def solver(self) -> Solve:
        """A function that solves `S x = b` for vectors and matrices `b`; its derivatives reuse the factor."""
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
    """A dense symmetric matrix in sparse format, its whole lower triangle stored."""
    i, j = np.tril_indices(S.shape[0])
    return Symmetric(S[i, j], Pattern(S.shape[0], i, j))


def spd_solver(S: Float[Array, "n n"]) -> Solve:
    """A function that solves `S x = b` for vectors and matrices `b`, with derivatives that reuse the factor."""
    return symmetric(S).solver()
