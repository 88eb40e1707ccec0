"""Linear solves whose derivatives reuse the factor, numerical rank, and elimination with pivoting."""

from collections.abc import Callable
from typing import overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.arrays import Scalar, at_rows
from jaxmbd.engine import as_program, choice, prefers_programs, trace_once
from jaxmbd.engine.binding.ldlt_primitive import dense, factor_p, solve_p
from jaxmbd.engine.binding.mesh import varying_alike
from jaxmbd.engine.program.symbolic_ldlt import Pattern
from jaxmbd.numerics.sparse_matrices import SparseMatrix, gather_sum, gather_table, matches, summed
from jaxmbd.upstream.equinox_internals import any_instance

Solve = Callable[[Array], Array]


class SymmetricMatrix(eqx.Module):
    """A sparse symmetric matrix `S (n, n)`: the entries of its lower triangle in the order of `pattern`."""

    values: Float[Array, " entries"]
    pattern: Pattern = eqx.field(static=True)

    def matrix(self) -> Float[Array, "n n"]:
        """`S`, dense."""
        return dense(self.values, self.pattern)

    def largest(self) -> Scalar:
        """The largest diagonal entry; zero for an empty matrix."""
        diagonal = np.flatnonzero(self.pattern.rows == self.pattern.columns)
        return jnp.max(at_rows(self.values, diagonal), initial=0.0)

    def shifted(self, shift: Scalar | Float[Array, " n"]) -> "SymmetricMatrix":
        """`S` with a shift of its diagonal, the same for all entries or one for each."""
        diagonal = (self.pattern.rows == self.pattern.columns).astype(self.values.dtype)
        shift = at_rows(shift, self.pattern.rows) if shift.ndim else shift
        return SymmetricMatrix(self.values + shift * diagonal, self.pattern)

    def scaled_by(self, factor: Float[Array | np.ndarray, " n"]) -> "SymmetricMatrix":
        """`D S D` with the diagonal matrix `D` of the factors."""
        i, j = self.pattern.rows, self.pattern.columns
        return SymmetricMatrix(self.values * at_rows(factor, i) * at_rows(factor, j), self.pattern)

    def limited(self, mask: Bool[Array, " n"]) -> "SymmetricMatrix":
        """`S` restricted to the rows and columns in `mask`; the others become a multiple of the identity."""
        i, j = self.pattern.rows, self.pattern.columns
        identity = self.largest() * (i == j)
        return SymmetricMatrix(jnp.where(at_rows(mask, i) & at_rows(mask, j), self.values, identity), self.pattern)

    def scaled(self) -> "SymmetricMatrix":
        """`D S D` with the diagonal `D` that gives a unit diagonal; zero rows are unchanged."""
        i, j = self.pattern.rows, self.pattern.columns
        diagonal = jnp.zeros(self.pattern.n, self.values.dtype).at[i[i == j]].set(self.values[i == j])
        return self.scaled_by(jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0))

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """`S x`."""
        i, j = self.pattern.rows, self.pattern.columns
        off_diagonal = np.flatnonzero(i != j)
        targets, sources = np.concatenate([i, j[off_diagonal]]), np.concatenate([j, i[off_diagonal]])
        values = jnp.concatenate([self.values, at_rows(self.values, off_diagonal)])
        return gather_sum(values * at_rows(x, sources), gather_table(targets, self.pattern.n))

    def factored(self) -> Solve:
        """A function that solves `S x = b` for vectors and matrices `b` by a factor, and has no derivatives."""
        if not self.pattern.n:
            return lambda b: b
        fixed, pattern = jax.lax.stop_gradient(self.values), self.pattern
        factor = factor_p.bind(fixed, pattern=pattern)

        def solve(b: Array) -> Array:
            return solve_p.bind(fixed, factor, b[:, None], pattern=pattern)[:, 0]

        return _by_columns(solve)

    def solver(self) -> Solve:
        """A function that solves `S x = b` for vectors and matrices `b`; its derivatives reuse the factor."""
        if not self.pattern.n:
            return lambda b: b
        apply = self.factored()

        def solve(b: Array) -> Array:
            return jax.lax.custom_linear_solve(self.times, b, lambda _, b: apply(b), symmetric=True)

        return _by_columns(solve)


def _by_columns(solve: Solve) -> Solve:
    """The solve of a vector, also of each column of a matrix."""
    return lambda b: solve(b) if b.ndim == 1 else jax.vmap(solve, 1, 1)(b)


def lower_triangle(products: Array, rows: np.ndarray, columns: np.ndarray, n: int) -> SymmetricMatrix:
    """Accumulate products into the lower triangle; every diagonal entry is stored, even if it is zero."""
    diagonal = np.arange(n)
    values, rows = jnp.concatenate([products, jnp.zeros(n, products.dtype)]), np.append(rows, diagonal)
    S = summed(values, rows, np.append(columns, diagonal), (n, n))
    return SymmetricMatrix(S.values, Pattern(n, S.rows, S.columns))


def symmetric(S: Float[Array, "n n"]) -> SymmetricMatrix:
    """A dense symmetric matrix in sparse format, its whole lower triangle stored."""
    i, j = np.tril_indices(S.shape[0])
    return SymmetricMatrix(S[i, j], Pattern(S.shape[0], i, j))


def spd_solver(S: Float[Array, "n n"]) -> Solve:
    """A function that solves `S x = b` for vectors and matrices `b`, with derivatives that reuse the factor.

    >>> print(mbd.extend.spd_solver(jnp.array([[2.0, 0.0], [0.0, 4.0]]))(jnp.ones(2)))
    [0.5  0.25]
    """
    return symmetric(S).solver()


_CONDITION = 1e-3, 3e-2  # well-conditioned below, and the largest that is distinguished, in units of 1 / √rounding
# Relative to the largest value; in units of rounding. A closed position is known to 1e-8, and files have eight digits:
# rows that are dependent at the position which is meant have singular values of that order.
_ZERO, _ROUNDING = 1e-7, 1e2
# Up to how many rows of `C` the singular values are computed, whose time grows with their third power (by LAPACK on a
# Xeon: .15 ms for 40 rows, 1.4 ms for 100, 2 s for 400).
RANK_BY_SVD_ROWS = 40  # whether rows are dependent, which each motion asks at its start: as long as some steps
MARGIN_BY_SVD_ROWS = 400  # how near a position is to a singular one, which is asked once, and only if a motion stopped


def tolerance_of_rank(dtype: DTypeLike) -> float:
    """The relative tolerance below which a singular value or pivot of the constraint Jacobian counts as zero: 1e-7, or
    1e-5 in single precision."""
    return max(_ZERO, _ROUNDING * float(jnp.finfo(dtype).eps))


def nonzero_singular_values(values: Float[Array | np.ndarray, "*batch k"]) -> Bool[Array | np.ndarray, "*batch k"]:
    """Mask of the singular values (in descending order) that do not count as zero."""
    return values > tolerance_of_rank(values.dtype) * values[..., :1]


def inverse_and_projection(
    C: Float[Array, "m n"], tolerance: float | None = None
) -> tuple[Float[Array, "n m"], Float[Array, "n n"]]:
    """The pseudo-inverse `C⁺` of constraints whose rows may be dependent, and the projection `1 − C⁺ C` onto what they
    allow. `tolerance`: the share of the largest singular value up to which one counts as zero; that of ranks if None.
    """
    rank = tolerance_of_rank(C.dtype) if tolerance is None else tolerance
    # Without rows JAX's second derivative of `pinv` fails.
    inverse = jnp.linalg.pinv(C, rtol=rank) if len(C) else jnp.zeros(C.shape[::-1], C.dtype)
    return inverse, jnp.eye(C.shape[1], dtype=C.dtype) - inverse @ C


def suits_programs(rows: int, columns: int) -> bool:
    """True if normal equations of such a matrix are to be operations of a program: few rows, not more than columns."""
    return choice.is_small(rows, columns) and prefers_programs()


@overload
def rank_of(rows: Float[np.ndarray, "m nv"]) -> Int[np.ndarray, ""]: ...
@overload
def rank_of(rows: Float[Array, "m nv"]) -> Int[Array, ""]: ...
def rank_of(rows: Float[Array | np.ndarray, "m nv"]) -> Int[Array | np.ndarray, ""]:
    """The numerical rank of a matrix, traceable under `jit`; that of a NumPy array at once, without a trace."""
    if not isinstance(rows, np.ndarray):
        return _rank_of(rows)
    # JAX finds no singular values where numbers are missing, NumPy raises.
    values = np.linalg.svd(rows, compute_uv=False) if np.isfinite(rows).all() else np.zeros(1, rows.dtype)
    return np.sum(nonzero_singular_values(values), keepdims=True)[0, ...]


@trace_once
def _rank_of(rows: Float[Array, "m nv"]) -> Int[Array, ""]:
    rows = jax.lax.stop_gradient(rows)
    count = lambda: jnp.sum(nonzero_singular_values(jnp.linalg.svd(rows, compute_uv=False)))  # noqa: E731
    rows = rows if rows.shape[0] <= rows.shape[1] else rows.T
    if not suits_programs(*rows.shape):
        return count()
    is_full = is_well_conditioned(as_program(condition_number)(rows))
    return else_by_singular_values(is_full, jnp.asarray(rows.shape[0], int), count)


def else_by_singular_values(is_exact: Bool[Array, ""], value: Array, others: Callable[[], Array]) -> Array:
    """A value that costs no singular values, where it `is_exact`; else another one, which is not computed unless some
    instance of a batch needs it."""
    needs = any_instance(~is_exact)
    value, is_exact = varying_alike([value, is_exact])
    return jax.lax.cond(needs, lambda: jnp.where(is_exact, value, others()), lambda: value)


def condition_number(A: Float[Array, "m n"]) -> Scalar:
    """The condition number of independent rows by norms that need no singular values; NaN if they are not finite.

    It is `(tr G⁴ · tr G⁻⁴)^(1/8)` with `G = A Aᵀ`: the ratio of the largest to the smallest singular value, times at
    most `m^(1/4)`. Larger numbers than rounding lets it distinguish are replaced by the largest one, 2e6 in double
    precision.
    """
    G = A @ A.T
    return condition_of(G, inverse_of(G))


def inverse_of(G: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """The inverse of a symmetric positive definite matrix, which is meaningless if `G` is singular to rounding."""
    return spd_solver(G)(jnp.eye(len(G), dtype=G.dtype))


def condition_of(G: Float[Array, "m m"], inverse: Float[Array, "m m"]) -> Scalar:
    """The `condition_number` of rows with the Gram matrix `G`."""
    scale = jnp.max(jnp.diagonal(G))  # without it eighth powers of the rows would overflow
    scaled = G / scale, inverse * scale
    size, reach = (jnp.sum((x @ x) ** 2) ** 0.125 for x in scaled)
    number, largest = size * reach, _CONDITION[1] / _root_of_rounding(G)
    is_less = (number < largest) & jnp.all(jnp.diagonal(inverse) > 0)  # false for NaN
    return jnp.where(jnp.isfinite(scale), jnp.where(is_less, number, largest), jnp.nan)


def is_well_conditioned(number: Float[Array, ""]) -> Bool[Array, ""]:
    """True for a condition number at which normal equations lose nothing with a step of refinement, and for NaN."""
    return ~(number > _CONDITION[0] / _root_of_rounding(number))


def _root_of_rounding(x: Array) -> float:
    return float(jnp.finfo(x.dtype).eps) ** 0.5


def is_positive_definite(S: Float[Array, "n n"]) -> Bool[Array, ""]:
    """True if all pivots of `S = L D Lᵀ` are positive; unrolled, for a program."""
    found = jnp.ones((), bool)
    while len(S):
        pivot, column = S[0, 0], S[1:, 0]
        found, S = found & (pivot > 0), S[1:, 1:] - jnp.outer(column, column) / pivot
    return found


class LeastSquaresQR:
    """The QR factorisation `K = Q R` of a matrix `K (n, k)` of full column rank.

    Solves use `R` alone with one step of refinement (semi-normal equations), to the accuracy of `Q R` itself.

    Source: Björck, *Numerical Methods for Least Squares Problems* (1996), §6.6.5.
    """

    def __init__(self, K: Float[Array, "n k"]) -> None:
        self.K = K
        self._R = jnp.linalg.qr(jax.lax.stop_gradient(K), mode="r")

    def least_squares(self, b: Float[Array, "n *more"]) -> Float[Array, "k *more"]:
        """The least-squares solution `x` of `K x ≈ b`."""
        return self._solve_normal_equations(self.K.T @ b)

    def least_norm(self, f: Float[Array, "k *more"]) -> Float[Array, "n *more"]:
        """The solution `y` of `Kᵀ y = f` with least norm."""
        return self.K @ self._solve_normal_equations(f)

    def _solve_normal_equations(self, f: Array) -> Array:
        times = lambda x: self.K.T @ (self.K @ x)  # noqa: E731
        return jax.lax.custom_linear_solve(times, f, self._refined, symmetric=True)

    def _refined(self, times: Solve, f: Array) -> Array:
        x = self._solve_with_factor(f)
        return x + self._solve_with_factor(f - times(x))

    def _solve_with_factor(self, f: Array) -> Array:
        half = jax.scipy.linalg.solve_triangular(self._R, f, trans=1)
        return jax.scipy.linalg.solve_triangular(self._R, half)


class NormalEquations:
    """Least squares with a sparse matrix `K (n, k)` of full column rank: the factor of `Kᵀ K`, and refinement.

    The factor is as sparse as `K` allows and costs a program few operations, where one of `K` itself is dense. Each
    step of refinement multiplies the error by the rounding times the square of the condition number, so that up to
    condition numbers of 1e6 the solution is as accurate as one by an orthogonal factor of `K`.

    Source: Björck, *Numerical Methods for Least Squares Problems* (1996), §2.9.
    """

    def __init__(self, K: SparseMatrix) -> None:
        self.K = K
        self._solve = gram(K).factored()

    def least_squares(self, b: Float[Array, "n *more"]) -> Float[Array, "k *more"]:
        """The least-squares solution `x` of `K x ≈ b`."""
        x = self._solved(self.K.T.times(b))
        # `Kᵀ b` is rounded, which the refinement of its solution does not see. But for that the correction is zero, and
        # so are its derivatives.
        values, b, found = jax.lax.stop_gradient((self.K.values, b, x))
        K = self.K._replace(values=values)
        return x + self._solve(K.T.times(b - K.times(found)))

    def least_norm(self, f: Float[Array, "k *more"]) -> Float[Array, "n *more"]:
        """The solution `y` of `Kᵀ y = f` with least norm."""
        return self.K.times(self._solved(f))

    def _solved(self, f: Array) -> Array:
        return jax.lax.custom_linear_solve(lambda x: self.K.T.times(self.K.times(x)), f, self._refined, symmetric=True)

    def _refined(self, times: Solve, f: Array) -> Array:
        x = self._solve(f)
        return x + self._solve(f - times(x))


def gram(K: SparseMatrix) -> SymmetricMatrix:
    """`Kᵀ K` of a sparse matrix `K (n, k)`."""
    first, second = pairs_of_a_row(K)
    products = at_rows(K.values, first) * at_rows(K.values, second)
    return lower_triangle(products, K.columns[first], K.columns[second], K.shape[1])


def pairs_of_a_row(K: SparseMatrix) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of entries of one row, as their indices: the terms of the lower triangle of `Kᵀ K`."""
    order = np.argsort(K.rows, kind="stable")
    first, second = (order[index] for index in matches(K.rows[order], K.rows[order]))
    lower = K.columns[first] >= K.columns[second]
    return first[lower], second[lower]


@overload
def pivot_columns(C: Float[np.ndarray, "m n"], fit: float = 1.0) -> Bool[np.ndarray, " n"]: ...
@overload
def pivot_columns(C: Float[Array, "m n"], fit: float = 1.0) -> Bool[Array, " n"]: ...
def pivot_columns(C: Float[Array | np.ndarray, "m n"], fit: float = 1.0) -> Bool[Array | np.ndarray, " n"]:
    """Mask of the pivot columns of `C`, the dependent variables of `C x = 0`: as many as the rank of `C`.

    Gaussian elimination with complete pivoting. With `fit < 1`, the pivot column is the last one whose largest entry is
    at least `fit` times the largest remaining entry. Elimination ends at pivots below `tolerance_of_rank` times the
    largest entry of `C`. Those of a NumPy array are found at once, without a trace.
    """
    return _pivots_of_numbers(C, fit) if isinstance(C, np.ndarray) else _pivot_columns(C, fit)


def _pivots_of_numbers(C: Float[np.ndarray, "m n"], fit: float) -> Bool[np.ndarray, " n"]:
    rows, found = C.copy(), np.zeros(C.shape[1], bool)
    tolerance = tolerance_of_rank(C.dtype) * np.abs(C).max(initial=0.0)
    for _ in range(min(C.shape)):
        largest = np.abs(rows).max(axis=0)
        j = len(found) - 1 - np.argmax((largest >= fit * largest.max())[::-1])
        i = np.argmax(np.abs(rows[:, j]))
        if not np.abs(rows[i, j]) > tolerance:
            break
        found[j] = True
        rows -= np.outer(rows[:, j], rows[i] / rows[i, j])
        rows[i], rows[:, j] = 0.0, 0.0
    return found


@trace_once
def _pivot_columns(C: Float[Array, "m n"], fit: float) -> Bool[Array, " n"]:
    m, n = C.shape
    none = jnp.zeros(n, bool)
    if not m:
        return none
    C = jax.lax.stop_gradient(C)
    tolerance = tolerance_of_rank(C.dtype) * jnp.max(jnp.abs(C))

    def eliminate(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rows, is_pivot = carry
        largest = jnp.max(jnp.abs(rows), axis=0)
        j = n - 1 - jnp.argmax((largest >= fit * jnp.max(largest))[::-1])
        i = jnp.argmax(jnp.abs(rows[:, j]))
        is_nonzero = jnp.abs(rows[i, j]) > tolerance
        pivot = jnp.where(is_nonzero, rows[i, j], 1.0)
        remaining = (rows - jnp.outer(rows[:, j], rows[i] / pivot)).at[i].set(0.0).at[:, j].set(0.0)
        return jnp.where(is_nonzero, remaining, 0.0), is_pivot.at[j].set(is_pivot[j] | is_nonzero)

    return jax.lax.fori_loop(0, min(m, n), eliminate, (C, none))[1]
