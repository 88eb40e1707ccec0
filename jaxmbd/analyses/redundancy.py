"""Redundant constraints: the rank of `C`, and the linear dependences between its rows by the joints' names."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import frozen
from jaxmbd.engine import as_program, cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.inertia import AbstractInertia
from jaxmbd.model.joint.joint import AbstractNonholonomic
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.validation import count_position_rows
from jaxmbd.numerics.linear_solve import (
    condition_of,
    else_by_singular_values,
    inverse_of,
    is_positive_definite,
    is_well_conditioned,
    nonzero_singular_values,
    suits_programs,
    tolerance_of_rank,
)
from jaxmbd.state.state import State, check_state

_TAKES_PART = 1e-6  # share of the largest coefficient of a dependence
_ROW_TAKES_PART = 1e-3  # component of a unit null vector above which a row takes part in a dependence
_PIVOT = 0.1  # share of the largest coefficient: the last row above it is called the redundant one


@dataclass(frozen=True)
class RedundantRow:
    """A redundant row: number `row` (from 0) of `joint`, which rows of the joints `dependent_on` already enforce."""

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
    """The rank of the constraint rows at a position. `print` states it, and names up to four redundant rows.

    - `rows`, `rank`: the number of constraint rows and their rank;
    - `tolerance`: the share of the largest singular value below which a singular value counts as zero;
    - `degrees_of_freedom`: the number of independent speeds;
    - `repeats`: the redundant rows, each the last row of a dependence with a coefficient that is not small;
    - `independent_rows`: the numbers of the other rows, an independent set that allows the same motions.
    """

    rows: int
    rank: int
    tolerance: float
    degrees_of_freedom: int
    repeats: tuple[RedundantRow, ...]
    independent_rows: tuple[int, ...]

    @property
    def joints(self) -> tuple[str, ...]:
        """The joints and drivers whose rows are linearly dependent, in the order of the mechanism's rows."""
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
    """Find the redundant constraints at a state.

    `rank C` is the number of singular values above 1e-7 of the largest. Each left null vector is a linear dependence
    between rows. Elimination with pivoting reduces the null vectors so that each names one redundant row and the rows
    that it depends on. The other rows are independent: `C[list(result.independent_rows)]` has the rank and the null
    space of `C`, and `mechanism.row_labels()[k]` is the joint and the number of row `k`.

        >>> ring = mbd.examples.get("bricard")
        >>> found = mbd.redundancy(ring.mechanism, ring.state())
        >>> found.rank, found.repeats
        (29, (row 5 of 'P6' repeats what 'P1', 'P2', 'P3', 'P4', 'P5' already enforce,))
    """
    check_state(mechanism, state)
    C = jacobian(mechanism, state.t, state.q)
    left, values, _ = np.linalg.svd(C)
    rank, labels, repeats = int(np.sum(nonzero_singular_values(values))), mechanism.row_labels(), {}
    vectors, columns = reduced_echelon(left[:, rank:].T, _PIVOT)
    for redundant_row, vector in sorted(zip(columns, vectors, strict=True), key=lambda pair: pair[0]):
        rows = np.flatnonzero(np.abs(vector) > _TAKES_PART * np.abs(vector).max())
        names = tuple(dict.fromkeys(labels[k][0] for k in rows if k != redundant_row))
        repeats[redundant_row] = RedundantRow(*labels[redundant_row], names)
    independent_rows = tuple(k for k in range(len(labels)) if k not in repeats)
    tolerance = tolerance_of_rank(values.dtype)
    return Redundancy(len(labels), rank, tolerance, mechanism.nv - rank, tuple(repeats.values()), independent_rows)


def parts_in(mechanism: Mechanism, share: Float[np.ndarray, " m"]) -> tuple[str, ...]:
    """Return the joints and drivers whose rows take part in a dependence, from the share of each row in it."""
    pairs = zip(mechanism.row_labels(), share, strict=True)
    return tuple(dict.fromkeys(name for (name, _), part in pairs if part > _ROW_TAKES_PART))


def least_norm(
    A: Float[Array, "m n"], b: Float[Array, " m"], inertia: AbstractInertia | None = None
) -> Float[Array, " n"]:
    """Return the `x` of least norm among those of least `|A x − b|`, for rows and columns that may be dependent.

    `inertia`: then the norm is `√(xᵀ M x)`. Singular values that are zero up to rounding are left out; a few rows that
    are far from dependent need none. `x` is not finite if `A` or `b` is not, or if `M` is not positive definite.
    """
    if 0 in A.shape:
        return jnp.zeros(A.shape[1], b.dtype)

    def by_singular_values() -> Array:
        if inertia is None:
            return jnp.linalg.pinv(A, rtol=tolerance_of_rank(b.dtype)) @ b
        return inertia.unwhiten(jnp.linalg.pinv(inertia.whiten(A), rtol=tolerance_of_rank(b.dtype)) @ b)

    if not suits_programs(*A.shape):
        return by_singular_values()
    is_exact = as_program(_is_exact)(*frozen((A, inertia)))
    # Other rows replace dependent ones: derivatives by those would not be finite, even where nothing uses them.
    independent = jnp.where(is_exact, A, jnp.eye(*A.shape, dtype=A.dtype))
    # Factors are found without `b`: where that is a tangent, the solution is to be transposed.
    x = as_program(_refined)(independent, *as_program(_factors)(independent, inertia), b)
    return else_by_singular_values(is_exact, x, by_singular_values)


def _is_exact(A: Array, inertia: AbstractInertia | None) -> Bool[Array, ""]:
    """Return True if the rows are far from dependent and `M` is positive definite."""
    columns, inverse = _factors(A, inertia)
    is_regular = is_well_conditioned(condition_of(A @ columns, inverse))
    return is_regular if inertia is None else is_regular & is_positive_definite(inertia.matrix())


def _factors(A: Array, inertia: AbstractInertia | None) -> tuple[Array, Array]:
    """Return `M⁻¹ Aᵀ` and `(A M⁻¹ Aᵀ)⁻¹`."""
    columns = (A if inertia is None else inertia.solve_rows(A)).T
    return columns, inverse_of(A @ columns)


def _refined(A: Array, columns: Array, inverse: Array, b: Array) -> Array:
    """Return `M⁻¹ Aᵀ (A M⁻¹ Aᵀ)⁻¹ b` to the accuracy of an orthogonal factorisation."""
    x = columns @ (inverse @ b)
    return x + columns @ (inverse @ (b - A @ x))


def jacobian(mechanism: Mechanism, t: Array, q: Array) -> Float[np.ndarray, "m nv"]:
    """Return `C` without units (`Scales.jacobian`) as a NumPy array, for ranks and singular values."""
    return np.asarray(_jacobian(mechanism, jnp.asarray(t), jnp.asarray(q)))


def nonholonomic_rows(mechanism: Mechanism) -> Bool[np.ndarray, " m"]:
    """Return True for each row that constrains speeds alone: those of rolling, and of drivers that prescribe a speed.
    In a rolling part these follow the position rows."""
    pairs = zip(mechanism.constraints(), mechanism.constraint_sizes(), strict=True)
    counts = (
        (count_position_rows(mechanism, part) if isinstance(part, AbstractNonholonomic) else size, size)
        for part, size in pairs  # to count rows takes a trace of the part
    )
    return np.asarray([row >= positions for positions, size in counts for row in range(size)], dtype=bool)


@cached_on_disk
def _jacobian(mechanism: Mechanism, t: Array, q: Array) -> Array:
    return Equations(mechanism).scaled_jacobian(t, q)


def reduced_echelon(vectors: Float[np.ndarray, "k m"], fit: float) -> tuple[Float[np.ndarray, "k m"], list[int]]:
    """Return a basis of the same space with a unit matrix in the pivot columns, and these columns.

    A pivot column is the last one in which an entry of the remaining vectors is at least `fit` times the largest.
    """
    vectors, columns = np.array(vectors), []
    for done in range(len(vectors)):
        size = np.abs(vectors[done:]).max(axis=0)
        size[columns] = 0.0
        column = int(np.flatnonzero(size >= fit * size.max())[-1])
        pivot = done + int(np.argmax(np.abs(vectors[done:, column])))
        vectors[[done, pivot]] = vectors[[pivot, done]]
        vectors[done] /= vectors[done, column]
        for other in range(len(vectors)):
            if other != done:
                vectors[other] -= vectors[other, column] * vectors[done]
        columns.append(column)
    return vectors, columns
