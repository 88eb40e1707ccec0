"""Matrices by the entries that are not zero by structure."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.equations.gather_tables import gather_sum, gather_table
from jaxmbd.equations.groups import Group


class SparseMatrix(NamedTuple):
    """A matrix of some `shape`: `values (entries,)` at `rows` and `columns`, each place at most once."""

    values: Float[Array, " entries"]
    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]

    def dense(self) -> Float[Array, "rows columns"]:
        """The matrix."""
        places = np.full(self.shape, len(self.values))
        places[self.rows, self.columns] = np.arange(len(self.values))
        return jnp.append(self.values, 0.0)[places]

    def reordered(self, order: Sequence[int]) -> "SparseMatrix":
        """The matrix whose row `i` is the row `order[i]` of this one."""
        return self._replace(rows=np.argsort(np.asarray(order, dtype=int))[self.rows])


def summed(
    values: Float[Array, " terms"], rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]
) -> SparseMatrix:
    """The sum of terms, each at a row and a column; several may be at one place."""
    places, at = np.unique(rows * shape[1] + columns, return_inverse=True)
    total = gather_sum(values, gather_table(at.reshape(-1), len(places)))
    return SparseMatrix(total, *np.divmod(places, max(shape[1], 1)), shape)


def full(matrix: Float[Array, "rows columns"]) -> SparseMatrix:
    """A matrix given in full."""
    rows, columns = np.indices(matrix.shape).reshape(2, -1)
    return SparseMatrix(matrix.reshape(-1), rows, columns, (matrix.shape[0], matrix.shape[1]))


def vstack(parts: Sequence[SparseMatrix]) -> SparseMatrix:
    """Matrices of as many columns, one below the other."""
    starts = np.cumsum([0, *(part.shape[0] for part in parts)])
    rows = [part.rows + start for part, start in zip(parts, starts[:-1], strict=True)]
    values, columns = jnp.concatenate([part.values for part in parts]), np.concatenate([p.columns for p in parts])
    return SparseMatrix(values, np.concatenate(rows), columns, (int(starts[-1]), parts[0].shape[1]))


class ConstraintBodyTerms(NamedTuple):
    """What joints ask of the bodies they touch: for each of `m` rows and each of its markers, how the row takes the
    twist of the body there (`values`), the `row`, and the `body`."""

    values: Float[Array, "legs twist"]
    row: np.ndarray
    body: np.ndarray
    m: int


def legs_of(groups: Sequence[Group], blocks: Sequence[Array], width: int) -> ConstraintBodyTerms:
    """From the non-zero blocks of `C_b`, for each group `(parts, rows, markers, width)`."""
    none = np.zeros(0, int)
    values, rows, bodies, start = [jnp.zeros((0, width))][: not blocks], [none], [none], 0
    for group, block in zip(groups, blocks, strict=True):
        parts, count = block.shape[:2]
        row = start + np.arange(parts * count).reshape(parts, count, 1)
        values.append(block.reshape(-1, width))
        rows.append(np.broadcast_to(row, block.shape[:3]).reshape(-1))
        bodies.append(np.broadcast_to(group.incidence[:, None, :], block.shape[:3]).reshape(-1))
        start += parts * count
    return ConstraintBodyTerms(jnp.concatenate(values), np.concatenate(rows), np.concatenate(bodies), start)
