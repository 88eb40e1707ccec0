"""Which constraints repeat one another: the rank of `C`, and the dependences between its rows by the joints' names."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.state import State, check_state
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.rank import nonzero_singular_values, tolerance_of_rank
from jaxmbd.model.mechanism.mechanism import Mechanism

_TAKES_PART = 1e-6  # of the largest number in a dependence
_PIVOT = 0.1  # of the largest: a later row is the one left out as long as its part in a dependence is not smaller


@dataclass(frozen=True)
class Repeat:
    """A row that others already enforce: the `row`-th (from 0) of `joint`, by rows of the joints `of`."""

    joint: str
    row: int
    dependent_on: tuple[str, ...]

    def __repr__(self) -> str:
        if not self.dependent_on:
            return f"row {self.row + 1} of {self.joint!r} constrains nothing"
        if self.dependent_on == (self.joint,):
            return f"row {self.row + 1} of {self.joint!r} repeats its other rows"
        others = ", ".join(repr(name) for name in self.dependent_on if name != self.joint)
        return f"row {self.row + 1} of {self.joint!r} repeats what {others} already enforce"


@dataclass(frozen=True)
class Redundancy:
    """The rank of the constraint rows at a position, `repr` as a sentence.

    `rows`, `rank` and `tolerance` (the share of the largest singular value below which one counts as zero);
    `degrees_of_freedom`, those of speeds; `repeats`, one for each redundant row, the last of each dependence whose part
    in it is not small; `kept`, the other rows, by number: an independent set that allows the same motions.
    """

    rows: int
    rank: int
    tolerance: float
    degrees_of_freedom: int
    repeats: tuple[Repeat, ...]
    independent_rows: tuple[int, ...]

    @property
    def joints(self) -> tuple[str, ...]:
        """The joints and drivers that take part in a dependence, in the mechanism's order of rows."""
        return tuple(dict.fromkeys(name for repeat in self.repeats for name in (*repeat.dependent_on, repeat.joint)))

    def __repr__(self) -> str:
        freedom = f"{self.degrees_of_freedom} degree{'s' * (self.degrees_of_freedom != 1)} of freedom"
        if not self.repeats:
            return f"{self.rows} constraint rows of rank {self.rank}, none redundant; {freedom}."
        each = "; ".join(str(repeat) for repeat in self.repeats[:4])
        more = f"; and {len(self.repeats) - 4} more" if len(self.repeats) > 4 else ""
        return (
            f"{self.rows} constraint rows of rank {self.rank}, {self.rows - self.rank} redundant "
            f"(tolerance {self.tolerance:g}); {freedom}. {each}{more}. The motion does not depend on it; of the "
            "multipliers and reactions, which are not unique, those of least norm are given."
        )


def redundancy(mechanism: Mechanism, state: State) -> Redundancy:
    """Find constraints that repeat one another at a state.

    `rank C` is the number of singular values above 1e-10 of the largest. Each left null vector is a dependence between
    rows; they are reduced, with pivots, so that each names one redundant row and the rows it repeats. Without those the
    rows are independent: `C[list(found.independent_rows)]` has the rank and the null space of `C`, and
    `mechanism.row_labels()[k]` is the joint and the number of row `k`.

        >>> print(redundancy(mechanism, state))
        30 constraint rows of rank 29, 1 redundant (tolerance 1e-10); 1 degree of freedom. ...
    """
    check_state(mechanism, state)
    C = jacobian(mechanism, state.t, state.q)
    left, values, _ = np.linalg.svd(C)
    rank, labels, repeats = int(np.sum(nonzero_singular_values(values))), mechanism.row_labels(), {}
    for out, vector in _reduced(left[:, rank:].T).items():
        part = np.flatnonzero(np.abs(vector) > _TAKES_PART * np.abs(vector).max())
        names = tuple(dict.fromkeys(labels[k][0] for k in part if k != out))
        repeats[out] = Repeat(*labels[out], names)
    kept = tuple(k for k in range(len(labels)) if k not in repeats)
    tolerance = tolerance_of_rank(values.dtype)
    return Redundancy(len(labels), rank, tolerance, mechanism.nv - rank, tuple(repeats.values()), kept)


def singular(dtype: Any) -> lx.SVD:
    """The solve of least norm where rows may repeat: what repeats is left out, not divided by its rounding."""
    return lx.SVD(rcond=tolerance_of_rank(dtype))


def jacobian(mechanism: Mechanism, t: Array, q: Array) -> Float[np.ndarray, "m nv"]:
    """`C` in NumPy."""
    return np.asarray(_jacobian(mechanism, jnp.asarray(t), jnp.asarray(q)))


@cached_on_disk
def _jacobian(mechanism: Mechanism, t: Array, q: Array) -> Array:
    return Equations(mechanism).jacobian(t, q)


def _reduced(vectors: Float[np.ndarray, "k m"]) -> dict[int, Float[np.ndarray, " m"]]:
    """A basis of the same space by columns, in their order: each vector is the only one with a number in its column,
    the last column in which what is left of the vectors is not small."""
    vectors, columns = vectors.copy(), []
    for done in range(len(vectors)):
        size = np.abs(vectors[done:]).max(axis=0)
        column = int(np.flatnonzero(size >= _PIVOT * size.max())[-1])
        pivot = done + int(np.argmax(np.abs(vectors[done:, column])))
        vectors[[done, pivot]] = vectors[[pivot, done]]
        vectors[done] /= vectors[done, column]
        for other in range(len(vectors)):
            if other != done:
                vectors[other] -= vectors[other, column] * vectors[done]
        columns.append(column)
    return {columns[k]: vectors[k] for k in np.argsort(columns)}
