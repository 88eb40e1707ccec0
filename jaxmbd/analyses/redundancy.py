"""Redundant constraints: the rank of `C`, and the linear dependences between its rows by the joints' names; and
singular positions, where rows are dependent that are independent beside them.

Let `wᵀ C = 0`. The directions `x` with `C x = 0` are possible motions unless the rows become independent along them.
`wᵀ Ċ(x) y` is zero for all `x` and `y` if the rows are dependent wherever the joints are closed, as in overconstrained
mechanisms that move. At a singular position it is zero for the directions of the paths that meet there. Paths that
touch, for which it is zero too, are not told from one path.

Source: Müller, *Local kinematic analysis of closed-loop linkages: mobility, singularities, and shakiness*, Journal of
Mechanisms and Robotics 8 (2016).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar, frozen
from jaxmbd.engine import as_program, cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.inertia import AbstractInertia
from jaxmbd.model.joint.joint import AbstractNonholonomic
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.validation import count_position_rows
from jaxmbd.numerics.linear_solve import (
    MARGIN_BY_SVD_ROWS,
    condition_of,
    else_by_singular_values,
    inverse_of,
    is_positive_definite,
    is_well_conditioned,
    nonzero_singular_values,
    spd_solver,
    suits_programs,
    tolerance_of_rank,
)
from jaxmbd.state.state import State, check_state
from jaxmbd.upstream.equinox_internals import any_instance

_TAKES_PART = 1e-6  # share of the largest coefficient of a dependence
_ROW_TAKES_PART = 1e-3  # component of a unit null vector above which a row takes part in a dependence
SINGULAR = (
    "The position is singular: beside it these rows are independent, and the mechanism can leave it on more than one "
    "path."
)
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
    - `independent_rows`: the numbers of the other rows, an independent set that allows the same motions;
    - `is_singular`: True at a singular position: some of these rows are independent beside it, where the mechanism has
      fewer degrees of freedom, and branches of motion meet there.
    """

    rows: int
    rank: int
    tolerance: float
    degrees_of_freedom: int
    repeats: tuple[RedundantRow, ...]
    independent_rows: tuple[int, ...]
    is_singular: bool = False

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
        head = (
            f"{self.rows} constraint rows of rank {self.rank}, {self.rows - self.rank} redundant "
            f"(tolerance {self.tolerance:g}); {freedom}. {each}{more}."
        )
        if self.is_singular:
            return f"{head} {SINGULAR}"
        return (
            f"{head} The motion does not depend on it; of the multipliers and reactions, which are not unique, those "
            "of least norm are given."
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
    tolerance, is_singular = (
        tolerance_of_rank(values.dtype),
        bool(repeats and singular_parts(mechanism, state.t, state.q)),
    )
    return Redundancy(
        len(labels), rank, tolerance, mechanism.nv - rank, tuple(repeats.values()), independent_rows, is_singular
    )


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


# --- singular positions ---------------------------------------------------------------------------------------------

_OPENING = 1e-6  # share of the largest singular value: for small ones, and for the rate at which rows lose dependence


def singular_parts(mechanism: Mechanism, t: Array, q: Array) -> tuple[str, ...]:
    """Return the joints and drivers whose rows are dependent at a position, or nearly so, and independent beside it."""
    left, values, right = np.linalg.svd(jacobian(mechanism, t, q))
    rank, opening = int(np.sum(nonzero_singular_values(values))), np.zeros(0, int)
    if rank < len(left):
        spread = np.asarray(_spread(mechanism, t, q, jnp.asarray(left[:, rank:]), jnp.asarray(right[rank:].T)))
        rates = np.abs(spread).max(axis=(1, 2), initial=0.0)
        opening = rank + np.flatnonzero(rates > _OPENING * values.max(initial=0.0))
    elif values.size and values[-1] < _OPENING * values[0]:
        opening = np.array([rank - 1])
    return parts_in(mechanism, np.abs(left[:, opening]).max(axis=1)) if len(opening) else ()


def singular_text(names: Sequence[str]) -> str:
    """The error text for a singular position, without what follows from it."""
    return (
        f"The position is singular: the constraint rows of {', '.join(map(repr, names))} become dependent here, and "
        "the mechanism can leave it on more than one path (links folded or stretched into a line, a dead centre)."
    )


@cached_on_disk
def _spread(mechanism: Mechanism, t: Scalar, q: Array, dependent: Array, free: Array) -> Float[Array, "rows n n"]:
    """Return `½ (B + Bᵀ)`, `B = yᵀ Ċ(x)ᵀ w`, for each dependence `w` along free directions, all without units."""
    equations = Equations(mechanism)
    at, scales = equations.at(t, q), equations.scales
    along, dependent = free * scales.speeds[:, None], dependent / scales.rows[:, None]
    each = jax.vmap(lambda w: along.T @ jax.vmap(lambda x: _turning(at, x, w), 1, 1)(along))(dependent.T)
    return 0.5 * (each + each.swapaxes(1, 2))


def _turning(at: Configuration, x: Float[Array, " nv"], w: Float[Array, " m"]) -> Float[Array, " nv"]:
    """`Ċ(x)ᵀ w`."""
    return at.constraint_force_rate(x, w) - at.constraint_force_rate(jnp.zeros_like(x), w)


_SHIFT = 5e4  # of the eigenvalues of `C Cᵀ` without units, in units of rounding: by it null vectors are told
_NULL = 1e-2  # share of a vector that its part in a null space has at least, if there is one
_OPENS = 1e4  # share of its terms, in units of the root of rounding, from which `wᵀ Ċ(x) x` is not zero
_FLAT = 1e-6  # a sum of terms that is smaller than this share of `xᵀ x` is rounding
_GOLDEN = 0.6180339887498949


def singular_where_redundant(
    equations: Equations, redundant: bool | Bool[Array, ""], t: Scalar, q: Float[Array, " nq"]
) -> Bool[Array, ""]:
    """True if a position at which rows are dependent is singular (traceable, for each instance of a batch).

    Asked of some combination of the dependences and some direction without a pattern: if it shows nothing along these,
    then along none, but by chance. `redundant`: where rows are dependent; False if nowhere.
    """
    if redundant is False or not 0 < equations.m <= MARGIN_BY_SVD_ROWS:
        return jnp.zeros((), bool)
    opens = lambda: redundant & as_program(_opens)(*frozen((equations, t, q)))  # noqa: E731
    return jax.lax.cond(any_instance(jnp.asarray(redundant)), opens, lambda: jnp.zeros((), bool))


def _opens(equations: Equations, t: Scalar, q: Array) -> Bool[Array, ""]:
    at, C, scales = equations.at(t, q), equations.scaled_jacobian(t, q), equations.scales
    (m, n), rounding = C.shape, float(jnp.finfo(C.dtype).eps)
    shift = _SHIFT * rounding * jnp.max(jnp.sum(C**2, axis=1))
    solve = spd_solver(C @ C.T + shift * jnp.eye(m, dtype=C.dtype))
    dependence = lambda w: shift * solve(w)  # noqa: E731  # what has an effect is left out, but for shift / σ²
    free = lambda x: x - C.T @ solve(C @ x)  # noqa: E731
    w, x = dependence(dependence(_some(m, 1, C.dtype))), free(free(_some(n, 2, C.dtype)))
    # `Ċ(x) x`, of which `γ` has the opposite, among terms of first and no degree where markers are moved or driven.
    quadratic = sum(k * at.gamma(j * scales.speeds * x) for j, k in ((-1, 0.5), (0, -1.0), (1, 0.5)))
    terms = w * quadratic / scales.rows
    size = jnp.sum(jnp.abs(terms))
    opens = (jnp.abs(jnp.sum(terms)) > _OPENS * rounding**0.5 * size) & (size > _FLAT * x @ x)
    return opens & (w @ w > _NULL**2)


def _some(size: int, k: int, dtype: DTypeLike) -> Float[Array, " size"]:
    """Numbers between −1 and 1 without a pattern, always the same for `k`."""
    return jnp.asarray(2 * (_GOLDEN * k * (np.arange(size) + k) ** 2 % 1) - 1, dtype)
