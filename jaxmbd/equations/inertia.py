"""The mass matrix at one configuration: block diagonal by bodies in absolute coordinates, else sparse symmetric."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from jaxmbd.equations.spd_solve import Symmetric
from jaxmbd.space.space import AbstractSpace


class AbstractInertia(eqx.Module):
    """The mass matrix `M` with its products, solves and Cholesky factor."""

    @abc.abstractmethod
    def matrix(self) -> Float[Array, "nv nv"]:
        """`M`, dense."""

    @abc.abstractmethod
    def times(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`M v`."""

    @abc.abstractmethod
    def solve(self, f: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`M⁻¹ f`."""

    @abc.abstractmethod
    def solve_rows(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        """`M⁻¹` of each row."""

    @abc.abstractmethod
    def components(self) -> np.ndarray:
        """For each speed, the index of its connected component: `M` couples only speeds of the same component."""

    @abc.abstractmethod
    def whiten(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        """`L⁻¹` of each row, with `M = L Lᵀ`: the 2-norm of the result is the row's norm in the metric of `M⁻¹`."""

    @abc.abstractmethod
    def unwhiten(self, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`L⁻ᵀ x`."""


class BodyInertia(AbstractInertia):
    """A block-diagonal mass matrix; `parts` are the inertia data of the bodies (`AbstractSpace.inertia`), stacked."""

    space: AbstractSpace
    parts: Any

    def matrix(self) -> Float[Array, "nv nv"]:
        blocks = self._blocks()
        return jax.scipy.linalg.block_diag(*blocks)

    def times(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return jax.vmap(self.space.momentum)(self.parts, self._split(v)).reshape(-1)

    def solve(self, f: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return jax.vmap(self.space.acceleration)(self.parts, self._split(f)).reshape(-1)

    def solve_rows(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        return jax.vmap(self.solve)(rows)

    def components(self) -> np.ndarray:
        return np.repeat(np.arange(jax.tree.leaves(self.parts)[0].shape[0]), len(self.space.speeds))

    def whiten(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        L = jnp.linalg.cholesky(self._blocks())
        solve = jax.vmap(lambda factor, x: jax.scipy.linalg.solve_triangular(factor, x, lower=True))
        return jax.vmap(lambda row: solve(L, self._split(row)).reshape(-1))(rows)

    def unwhiten(self, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        L = jnp.linalg.cholesky(self._blocks())
        solve = jax.vmap(lambda factor, x: jax.scipy.linalg.solve_triangular(factor.T, x, lower=False))
        return solve(L, self._split(x)).reshape(-1)

    def _blocks(self) -> Float[Array, "bodies twist twist"]:
        eye = jnp.eye(len(self.space.speeds))
        return jax.vmap(lambda part: jax.vmap(lambda e: self.space.momentum(part, e))(eye))(self.parts)

    def _split(self, v: Array) -> Array:
        return v.reshape(-1, len(self.space.speeds))


class CoupledInertia(AbstractInertia):
    """A sparse symmetric mass matrix with coupling between bodies."""

    M: Symmetric

    def matrix(self) -> Float[Array, "nv nv"]:
        return self.M.matrix()

    def times(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return self.M.times(v)

    def solve(self, f: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return self.M.solver()(f)

    def solve_rows(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        return self.M.solver()(rows.T).T

    def components(self) -> np.ndarray:
        i, j, n = self.M.pattern.rows, self.M.pattern.columns, self.M.pattern.n
        return connected_components(coo_array((np.ones(len(i)), (i, j)), (n, n)), directed=False)[1]

    def whiten(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(self.matrix()), rows.T, lower=True).T

    def unwhiten(self, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(self.matrix()).T, x, lower=False)
