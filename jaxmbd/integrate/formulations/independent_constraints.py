"""Selection of a linearly independent set of constraint rows, in which the equations of motion are solved.

If rows are linearly dependent, every maximal independent subset allows the same motions, and which subset is well
conditioned depends on the position. Let `C_o = W C_k` express the omitted rows by the selected ones: the larger the
entries of `W`, the worse the condition of the solve. So `W` is checked after each step. If an entry is large, its
omitted row and its selected row are exchanged, which multiplies the volume of `C_k` by that entry.

Source: Goreinov et al., *How to find a good submatrix* (2010).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar, constant, frozen, is_concrete
from jaxmbd.engine import as_program, cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.saddle_point import proximal_shift
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import RANK_BY_SVD_ROWS, pivot_columns, rank_of
from jaxmbd.upstream.equinox_internals import any_instance

_MAX_SELECTION_ROWS = 400  # with more rows than this no selection is made, also if they are dependent
_EXCHANGE_THRESHOLD = 10.0  # entry of W above which two rows are exchanged
_GOLDEN = 0.6180339887498949


class RowSelection(eqx.Module):
    """The arguments of `Equations.solved_in`: `redundant`, true if constraint rows are linearly dependent; `rows`, a
    mask of the selected rows, `None` for all of them."""

    redundant: bool | Bool[Array, ""]
    rows: Bool[Array, " m"] | None


def initial_row_selection(model: Mechanism | Equations, ts: Any, q: Float[Array, " nq"]) -> RowSelection | None:
    """The row selection at the first of some times, without derivatives; `None` if values are not known.

    They are known under `jax.grad` and `jax.jvp`, too. `redundant` is the constant `False` if rows are independent, so
    that the branches for dependent rows are not compiled.
    """
    model, ts, q = frozen((model, ts, q))
    if not is_concrete(model, ts, q):
        return None
    t = constant(np.asarray(ts)[0])
    redundant = _redundant(model, t, q)
    return RowSelection(redundant, _initial_rows(model, t, q)) if redundant else RowSelection(False, None)


def row_selection_for_motion(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> RowSelection:
    """The row selection at the initial configuration of a motion (traceable)."""
    redundant = rows_repeat(equations, t, q)
    if not 0 < equations.m <= _MAX_SELECTION_ROWS:
        return RowSelection(redundant, None)
    every = jnp.ones(equations.m, bool)
    return RowSelection(redundant, jax.lax.cond(redundant, lambda: _independent(equations, t, q), lambda: every))


@cached_on_disk
def _redundant(model: Mechanism | Equations, t: Scalar, q: Array) -> Bool[Array, ""]:
    return rows_repeat(equations_of(model), t, q)


@cached_on_disk
def _initial_rows(model: Mechanism | Equations, t: Scalar, q: Array) -> Bool[Array, " m"] | None:
    equations = equations_of(model)
    return _independent(equations, t, q) if equations.m <= _MAX_SELECTION_ROWS else None


def equations_of(model: Mechanism | Equations) -> Equations:
    """The equations of a mechanism; equations that have been assembled already are returned as they are."""
    return model if isinstance(model, Equations) else Equations(model)


def rows_repeat(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> Bool[Array, ""]:
    """True if the constraint rows are linearly dependent at `q` (traceable).

    The test is the rank of `C`. For large mechanisms, whose singular values would cost more than their motion, it is
    whether `C M⁻¹ Cᵀ`, scaled to a unit diagonal, has an eigenvalue below the proximal shift, the multiple of `ε` that
    the solve adds if rows are dependent (inverse iteration).
    """
    if equations.m <= RANK_BY_SVD_ROWS:
        return rank_of(_jacobian(equations, t, q)) < equations.m
    return as_program(_is_singular)(*frozen((equations, t, q)))


def update_row_selection(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> Bool[Array, " m"] | None:
    """The selected rows for the next step: the present ones, or these after one exchange if it improves them."""
    selected, redundant = equations.independent_rows, equations.redundant
    if selected is None:
        return None
    exchanged = lambda: as_program(exchanged_rows)(*frozen((equations, t, q)))  # noqa: E731
    return jax.lax.cond(any_instance(redundant), exchanged, lambda: selected)


def _jacobian(equations: Equations, t: Scalar, q: Array) -> Float[Array, "m nv"]:
    """The Jacobian `C` without units, without derivatives."""
    return as_program(Equations.scaled_jacobian)(*frozen((equations, t, q)))


def _independent(equations: Equations, t: Scalar, q: Array) -> Bool[Array, " m"]:
    """Mask of as many rows of `C` as its rank, chosen by elimination with pivoting."""
    return pivot_columns(_jacobian(equations, t, q).T)


def exchanged_rows(equations: Equations, t: Scalar, q: Array) -> Bool[Array, " m"]:
    """The selected rows, after an exchange if rows are redundant and an entry of `W = S_ok S_kk⁻¹` is large.

    The selected row to be removed is the largest entry of a weighted sum of the rows of `W`; the omitted row in which
    that one has the largest coefficient takes its place.
    """
    S, selected = equations.at(t, q).schur(), equations.independent_rows
    assert selected is not None
    solve = S.limited(selected).solver()
    weights = varied_weights(equations.m, q.dtype)
    column_sums = jnp.abs(solve(jnp.where(selected, S.times(jnp.where(selected, 0.0, weights)), 0.0)))
    removed = first_maximum(column_sums)
    added = first_maximum(jnp.where(selected, 0.0, jnp.abs(S.times(solve(removed.astype(q.dtype))))))
    exchange = equations.redundant & (jnp.max(column_sums) > _EXCHANGE_THRESHOLD)
    return jnp.where(exchange, (selected & ~removed) | added, selected)


def varied_weights(count: int, dtype: np.dtype) -> Float[Array, " count"]:
    """Numbers from 1 to 2, all different, so that no sum with them cancels."""
    return jnp.asarray(1 + np.arange(count) * _GOLDEN % 1, dtype)


def first_maximum(x: Float[Array, " m"]) -> Bool[Array, " m"]:
    """One-hot mask of the first maximum."""
    is_maximum = x == jnp.max(x)
    return is_maximum & (jnp.cumsum(is_maximum) == 1)


def _is_singular(equations: Equations, t: Scalar, q: Array) -> Bool[Array, ""]:
    S = equations.at(t, q).schur().scaled()
    shift = proximal_shift(S.largest())
    solve = S.shifted(shift).solver()
    x = jnp.cos(jnp.arange(1.0, equations.m + 1, dtype=q.dtype) ** 2)  # a start vector that is in no null space
    for _ in range(3):
        x = solve(x / jnp.sqrt(jnp.sum(x * x)))
    return shift * jnp.sqrt(jnp.sum(x * x)) > 0.5
