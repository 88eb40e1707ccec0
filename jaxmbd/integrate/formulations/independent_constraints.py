"""The constraint rows in which a motion is solved: those that do not repeat one another.

Where rows repeat, any independent set of them allows the same motions, and which set is good depends on the position:
with `C_o = W C_k` for the rows left out by those kept, the solve is as much worse than it need be as `W` is large. So
`W` is looked at after each step. Where a number in it is large, the two rows that it belongs to change places, which
makes the volume of `C_k` larger by that number.

Source: Goreinov et al., *How to find a good submatrix* (2010).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar, frozen
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.compile.jax_binding import as_program
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.rank import pivot_columns, rank_of
from jaxmbd.equations.saddle_point import proximal_shift
from jaxmbd.integrate.diffrax_binding import any_instance
from jaxmbd.model.mechanism.mechanism import Mechanism

_FEW = 40  # rows: up to here singular values take a fraction of a millisecond
_MANY = 400  # rows: of more, those that repeat are all kept
_LARGE = 10.0  # in W: time for another choice
_GOLDEN = 0.6180339887498949


class RowSelection(eqx.Module):
    """What `Equations.solved_in` is told: whether rows are redundant, and which ones are kept; see `Equations`."""

    redundant: bool | Bool[Array, ""]
    rows: Bool[Array, " m"] | None


def initial_row_selection(described: Mechanism | Equations, t: Scalar, q: Float[Array, " nq"]) -> RowSelection:
    """`rows_for_motion` where numbers are known: where no rows repeat, nothing of it is left to be compiled."""
    redundant = _redundant(described, t, q)
    return RowSelection(redundant, _kept(described, t, q)) if redundant else RowSelection(False, None)


def row_selection_for_motion(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> RowSelection:
    """The rows that a motion from a position is to be solved in."""
    redundant = rows_repeat(equations, t, q)
    if not 0 < equations.m <= _MANY:
        return RowSelection(redundant, None)
    every = jnp.ones(equations.m, bool)
    return RowSelection(redundant, jax.lax.cond(redundant, lambda: _independent(equations, t, q), lambda: every))


@cached_on_disk
def _redundant(described: Mechanism | Equations, t: Scalar, q: Array) -> Bool[Array, ""]:
    return rows_repeat(equations_of(described), t, q)


@cached_on_disk
def _kept(described: Mechanism | Equations, t: Scalar, q: Array) -> Bool[Array, " m"] | None:
    equations = equations_of(described)
    return _independent(equations, t, q) if equations.m <= _MANY else None


def equations_of(described: Mechanism | Equations) -> Equations:
    """The equations of a mechanism, which may have been put together before."""
    return described if isinstance(described, Equations) else Equations(described)


def rows_repeat(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> Bool[Array, ""]:
    """Whether constraint rows repeat one another at a position, where it is asked in a compiled program.

    By the rank of `C`; for large mechanisms, whose singular values would cost more than their motion, by whether
    `C M⁻¹ Cᵀ` with rows scaled to a diagonal of ones has an eigenvalue below the share of `ε` that the solve adds where
    rows repeat (inverse iteration).
    """
    if equations.m <= _FEW:
        return rank_of(_rows(equations, t, q)) < equations.m
    return as_program(_is_singular)(*frozen((equations, t, q)))


def update_row_selection(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> Bool[Array, " m"] | None:
    """The rows to keep from this position on: those that are kept now, or with a better one in the place of one."""
    kept, redundant = equations.independent_rows, equations.redundant
    if kept is None:
        return None
    swapped = lambda: jnp.where(redundant, as_program(_swapped)(*frozen((equations, t, q))), kept)  # noqa: E731
    return jax.lax.cond(any_instance(redundant), swapped, lambda: kept)


def _rows(equations: Equations, t: Scalar, q: Array) -> Float[Array, "m nv"]:
    """`C`, a constant to derivatives."""
    return as_program(Equations.jacobian)(*frozen((equations, t, q)))


def _independent(equations: Equations, t: Scalar, q: Array) -> Bool[Array, " m"]:
    """As many rows of `C` as its rank, chosen by elimination with the largest pivots."""
    return pivot_columns(_rows(equations, t, q).T)


def _swapped(equations: Equations, t: Scalar, q: Array) -> Bool[Array, " m"]:
    """The rows that are kept, after an exchange where `W = S_ok S_kk⁻¹` is large.

    Of the rows kept the one that counts most in one sum of the rows of `W` gives way to that of those left out in which
    it counts most.
    """
    S, kept = equations.at(t, q).schur(), equations.independent_rows
    assert kept is not None
    solve = S.limited(kept).solver()
    some = jnp.asarray(1 + np.arange(equations.m) * _GOLDEN % 1, q.dtype)  # factors from 1 to 2: no two the same
    of_kept = jnp.abs(solve(jnp.where(kept, S.times(jnp.where(kept, 0.0, some)), 0.0)))
    out = _largest(of_kept)
    into = _largest(jnp.where(kept, 0.0, jnp.abs(S.times(solve(out.astype(q.dtype))))))
    return jnp.where(jnp.max(of_kept) > _LARGE, (kept & ~out) | into, kept)


def _largest(x: Float[Array, " m"]) -> Bool[Array, " m"]:
    """Where the largest number is, the first of several."""
    found = x == jnp.max(x)
    return found & (jnp.cumsum(found) == 1)


def _is_singular(equations: Equations, t: Scalar, q: Array) -> Bool[Array, ""]:
    S = equations.at(t, q).schur().scaled()
    shift = proximal_shift(S.largest())
    solve = S.shifted(shift).solver()
    x = jnp.cos(jnp.arange(1.0, equations.m + 1, dtype=q.dtype) ** 2)  # in no null space
    for _ in range(3):
        x = solve(x / jnp.sqrt(jnp.sum(x * x)))
    return shift * jnp.sqrt(jnp.sum(x * x)) > 0.5
