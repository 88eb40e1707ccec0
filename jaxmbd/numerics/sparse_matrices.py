"""Sparse matrices by their structurally nonzero entries, summed through index tables.

The tables replace scatter-adds by gathers, which compile to fast code on both CPU and GPU.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import at_rows

# Largest number of layers that is summed term by term: XLA fuses such a sum with the operations after it.
_UNROLLED_LAYERS = 16


def gather_table(targets: np.ndarray, size: int) -> np.ndarray:
    """For each of `size` targets, the sources that are added to it: shape `(largest number of sources, size)`.

    `targets[i]` is the target of source `i`, or −1 for none; columns with fewer sources are padded with the index
    `len(targets)`.
    """
    sources = np.flatnonzero(targets >= 0)
    columns = targets[sources]
    order = np.argsort(columns, kind="stable")
    sources, columns = sources[order], columns[order]
    first = np.searchsorted(columns, columns)
    layer = np.arange(len(columns)) - first
    table = np.full((layer.max(initial=0) + 1, size), len(targets))
    table[layer, columns] = sources
    return table


def gather_sum(values: Array, table: np.ndarray) -> Array:
    """Sum `values` into the targets of a `gather_table`."""
    padded = jnp.concatenate([values, jnp.zeros((1, *values.shape[1:]), values.dtype)])
    if len(table) > _UNROLLED_LAYERS:
        return jnp.sum(at_rows(padded, table), axis=0)
    total = at_rows(padded, table[0])
    for layer in table[1:]:
        total = total + at_rows(padded, layer)
    return total


def matches(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join: all index pairs `(i, j)` with `left[i] == right[j]`, as two arrays; `right` is sorted."""
    first, last = np.searchsorted(right, left), np.searchsorted(right, left, side="right")
    index = np.repeat(np.arange(len(left)), last - first)
    return index, first[index] + np.arange(len(index)) - np.searchsorted(index, index)


class SparseMatrix(NamedTuple):
    """A sparse matrix: `values (entries,)` at `rows` and `columns`, without duplicates, and its `shape`."""

    values: Float[Array, " entries"]
    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]

    def dense(self) -> Float[Array, "rows columns"]:
        """The dense matrix."""
        indices = np.full(self.shape, len(self.values))
        indices[self.rows, self.columns] = np.arange(len(self.values))
        return at_rows(jnp.append(self.values, 0.0), indices)

    @property
    def T(self) -> "SparseMatrix":
        """The transposed matrix."""
        return SparseMatrix(self.values, self.columns, self.rows, (self.shape[1], self.shape[0]))

    def times(self, x: Float[Array, "columns *more"]) -> Float[Array, "rows *more"]:
        """The product with a vector or a matrix."""
        values = self.values.reshape(-1, *(1,) * (x.ndim - 1))
        return gather_sum(values * at_rows(x, self.columns), gather_table(self.rows, self.shape[0]))

    def scaled_by(self, rows: Float[Array, " rows"], columns: Float[Array, " columns"]) -> "SparseMatrix":
        """The matrix with each row and each column times a factor."""
        return self._replace(values=at_rows(rows, self.rows) * self.values * at_rows(columns, self.columns))

    def reordered(self, order: Sequence[int]) -> "SparseMatrix":
        """The matrix whose row `i` is row `order[i]` of this one."""
        return self._replace(rows=np.argsort(np.asarray(order, dtype=int))[self.rows])


def summed(
    values: Float[Array, " terms"], rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]
) -> SparseMatrix:
    """Assemble a matrix from terms, each at a row and a column; duplicates are summed."""
    entries, entry_of_term = np.unique(rows * shape[1] + columns, return_inverse=True)
    total = gather_sum(values, gather_table(entry_of_term.reshape(-1), len(entries)))
    return SparseMatrix(total, *np.divmod(entries, max(shape[1], 1)), shape)


def full(matrix: Float[Array, "rows columns"]) -> SparseMatrix:
    """A dense matrix in sparse format, all entries stored."""
    rows, columns = np.indices(matrix.shape).reshape(2, -1)
    return SparseMatrix(matrix.reshape(-1), rows, columns, (matrix.shape[0], matrix.shape[1]))


def diagonal(values: Float[Array, " n"]) -> SparseMatrix:
    """The diagonal matrix of some values."""
    n = len(values)
    return SparseMatrix(values, np.arange(n), np.arange(n), (n, n))


def vstack(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """Stack matrices of equal column count vertically."""
    starts = np.cumsum([0, *(part.shape[0] for part in parts)])
    rows = [part.rows + start for part, start in zip(parts, starts[:-1], strict=True)]
    values, columns = jnp.concatenate([part.values for part in parts]), np.concatenate([p.columns for p in parts])
    return SparseMatrix(values, np.concatenate(rows), columns, (int(starts[-1]), parts[0].shape[1]))
