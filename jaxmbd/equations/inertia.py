"""The mass matrix `M` at one configuration, and the Delassus matrix `S = C M⁻¹ Cᵀ`.

`M` is block diagonal by bodies in absolute coordinates, else sparse symmetric; armatures of joints couple the bodies
that these connect. `S_ij` is nonzero only if `M` couples a speed of row `i` with a speed of row `j`. In a long chain of
loops few pairs of rows do so, and the topology determines them: the cost of `S` is then linear in the number of joints,
instead of the product of three dense dimensions.
"""

import abc
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import at_rows
from jaxmbd.equations.constraint_kinematics import ConstraintBodyTerms
from jaxmbd.numerics.linear_solve import SymmetricMatrix, lower_triangle, pairs_of_a_row
from jaxmbd.numerics.sparse_matrices import SparseMatrix, matches
from jaxmbd.space.space import AbstractSpace


class AbstractInertia(eqx.Module):
    """The mass matrix `M` with its products, solves and Cholesky factor."""

    @abc.abstractmethod
    def matrix(self) -> Float[Array, "nv nv"]:
        """`M`, dense."""

    @abc.abstractmethod
    def lower(self) -> SparseMatrix:
        """The lower triangle of `M`."""

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
    parts: PyTree

    def matrix(self) -> Float[Array, "nv nv"]:
        blocks = self._blocks()
        return jax.scipy.linalg.block_diag(*blocks)

    def lower(self) -> SparseMatrix:
        blocks, (row, column) = self._blocks(), np.tril_indices(len(self.space.speeds))
        start = np.arange(len(blocks))[:, None] * len(self.space.speeds)
        n = len(blocks) * len(self.space.speeds)
        return SparseMatrix(
            blocks[:, row, column].reshape(-1), (start + row).reshape(-1), (start + column).reshape(-1), (n, n)
        )

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

    M: SymmetricMatrix

    def matrix(self) -> Float[Array, "nv nv"]:
        return self.M.matrix()

    def lower(self) -> SparseMatrix:
        pattern = self.M.pattern
        return SparseMatrix(self.M.values, pattern.rows, pattern.columns, (pattern.n, pattern.n))

    def times(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return self.M.times(v)

    def solve(self, f: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return self.M.solver()(f)

    def solve_rows(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        return self.M.solver()(rows.T).T

    def components(self) -> np.ndarray:
        i, j, n = self.M.pattern.rows, self.M.pattern.columns, self.M.pattern.n
        graph = scipy.sparse.coo_array((np.ones(len(i)), (i, j)), (n, n))
        return scipy.sparse.csgraph.connected_components(graph, directed=False)[1]

    def whiten(self, rows: Float[Array, "k nv"]) -> Float[Array, "k nv"]:
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(self.matrix()), rows.T, lower=True).T

    def unwhiten(self, x: Float[Array, " nv"]) -> Float[Array, " nv"]:
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(self.matrix()).T, x, lower=False)


def with_armatures(inertia: AbstractInertia, rows: SparseMatrix, values: Float[Array, " k"]) -> CoupledInertia:
    """`M + Gᵀ diag(a) G`, for the rows `G = ∂ċ/∂v` of coordinates with armatures `a`."""
    M, (first, second) = inertia.lower(), pairs_of_a_row(rows)
    products = at_rows(values, rows.rows[first]) * at_rows(rows.values, first) * at_rows(rows.values, second)
    i, j = np.append(M.rows, rows.columns[first]), np.append(M.columns, rows.columns[second])
    return CoupledInertia(lower_triangle(jnp.concatenate([M.values, products]), i, j, M.shape[0]))


def with_blocks(M: SparseMatrix, blocks: Sequence[tuple[SparseMatrix, Float[Array, "k k"]]], nv: int) -> CoupledInertia:
    """`M + Σ Zᵀ B Z` for blocks `B (k, k)` with rows `Z`; `M` is a lower triangle, of `nv` speeds or less."""
    values, rows, columns = [M.values], [M.rows], [M.columns]
    for Z, block in blocks:
        first, second = (x.reshape(-1) for x in np.indices((len(Z.rows),) * 2))
        lower = Z.columns[first] >= Z.columns[second]
        first, second = first[lower], second[lower]
        weights = at_rows(block.reshape(-1), Z.rows[first] * len(block) + Z.rows[second])
        values.append(at_rows(Z.values, first) * weights * at_rows(Z.values, second))
        rows.append(Z.columns[first])
        columns.append(Z.columns[second])
    return CoupledInertia(lower_triangle(jnp.concatenate(values), np.concatenate(rows), np.concatenate(columns), nv))


def schur_of_legs(
    legs: ConstraintBodyTerms, inertia: PyTree, accelerate: Callable[..., Array], order: np.ndarray
) -> SymmetricMatrix:
    """`C M⁻¹ Cᵀ` for a mass matrix that is block diagonal by bodies.

    The rows of the result are in the order of the mechanism; `order[i]` is the index of row `i` among the groups' rows.
    `accelerate(inertia, effort)` is `M⁻¹ f` of one body; the leaves of `inertia` have the bodies on their first axis.
    """
    bodies = jax.tree.leaves(inertia)[0].shape[0]
    position = np.argsort(order)[legs.row]
    first, second = _pairs_on_one_body(legs.body, bodies)
    lower = position[first] >= position[second]
    first, second = first[lower], second[lower]
    body = np.minimum(legs.body, bodies - 1)
    scaled = jax.vmap(accelerate)(jax.tree.map(lambda x: at_rows(x, body), inertia), legs.values)
    products = jnp.sum(at_rows(scaled, first) * at_rows(legs.values, second), axis=1)
    return lower_triangle(products, position[first], position[second], legs.m)


def schur_of_entries(C: SparseMatrix, inertia: AbstractInertia) -> SymmetricMatrix:
    """`C M⁻¹ Cᵀ` for any `M`: rows that involve different connected components of `M` share one right-hand side."""
    m, nv = C.shape
    component = inertia.components()[C.columns]
    # All pairs of a component and a row with an entry in it.
    touched_component, touching_row = np.unique(np.stack([component, C.rows]), axis=1)
    colour = _greedy_colouring(m, touched_component, touching_row)
    b = SparseMatrix(C.values, C.columns, colour[C.rows], (nv, colour.max(initial=-1) + 1))
    x = inertia.solve_rows(b.dense().T)
    entry, pair = matches(component, touched_component)
    row = touching_row[pair]
    lower = C.rows[entry] >= row
    entry, row = entry[lower], row[lower]
    return lower_triangle(at_rows(C.values, entry) * x[colour[row], C.columns[entry]], C.rows[entry], row, m)


def _pairs_on_one_body(body: np.ndarray, bodies: int) -> tuple[np.ndarray, np.ndarray]:
    """All ordered pairs of terms on the same body; terms on the ground are left out."""
    terms = np.argsort(body, kind="stable")
    terms = terms[body[terms] < bodies]
    first, second = matches(body[terms], body[terms])
    return terms[first], terms[second]


def _greedy_colouring(m: int, components: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Greedy colouring of `m` rows: rows that share a component get different colours.

    `components` and `rows` list the pairs of a component and a row with an entry in it.
    """
    components_of_row: list[list[int]] = [[] for _ in range(m)]
    for component, row in zip(components.tolist(), rows.tolist(), strict=True):
        components_of_row[row].append(component)
    taken: dict[int, set[int]] = {component: set() for component in components.tolist()}
    colours = np.zeros(m, int)
    for row, row_components in enumerate(components_of_row):
        used = set().union(*(taken[k] for k in row_components))
        colours[row] = colour = next(k for k in range(len(used) + 1) if k not in used)
        for k in row_components:
            taken[k].add(colour)
    return colours
