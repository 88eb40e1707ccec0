"""The choice of independent coordinates at a state: as many as there are degrees of freedom, by name or by pivoting."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.checks import check_assembled, closed_enough
from jaxmbd.analyses.state import State
from jaxmbd.arrays import Scalar, frozen, is_concrete
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.rank import nonzero_singular_values, pivot_columns, rank_of
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.formulations.coordinate_partitioning import CoordinatePartitioning, named_speeds
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.validation import count_position_rows

_SINGULAR = 1e-6  # a share of the largest: singular values, and how fast dependent rows become independent
_AVOIDED = 1e3  # times as large count the rows' entries at speeds along the axes that turn fastest, as pivots
_TURNING = 1e-6  # [rad/s]: axes that turn slower count as fixed
_TAKES_PART = 1e-3  # of a unit vector: rows that take part in a dependence


class Choice(eqx.Module):
    """Indices into the speeds: of the independent ones, `speeds`, and of those along which positions are changed,
    `places`. Without rolling, which constrains speeds alone, they are the same. `rows`: those that constrain positions.
    """

    speeds: tuple[int, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)


class _ConstraintsAtState(eqx.Module):
    """The constraints at a state: rows by speeds scaled with inertia, `Φ` and `Φ̇`."""

    rows: Float[Array, "m nv"]
    position: Float[Array, " m"]
    velocity: Float[Array, " m"]


@cached_on_disk
def _look(mechanism: Mechanism, t: Scalar, q: Array, v: Array) -> _ConstraintsAtState:
    at = Equations(mechanism).at(t, q)
    scale = jnp.sqrt(jnp.diag(at.inertia.matrix()))
    return _ConstraintsAtState(at.jacobian / scale[None], at.position(), at.velocity(v))


def choose(mechanism: Mechanism, state: State, independent: Sequence[str] | None) -> tuple[Choice, Array]:
    """The choice, and the coordinates of the state, checked.

    **Raises:** see `linearize`; inside `jit` or `vmap` when the compiled program runs.
    """
    fixed = frozen((mechanism, state.t, state.q, state.v))  # what is known stays known inside grad, where it is wrapped
    look, rolling = _look(*fixed), _rolling(mechanism)
    marks = None if independent is None else _marked(mechanism, independent)
    if not is_concrete(look):
        return _unseen(mechanism, look, marks, state.q, rolling)
    check_assembled(mechanism, "state", look.position, look.velocity)
    _check_regular(fixed, look)
    usual = look.rows * _weights(mechanism, fixed[-1])[None]
    marks = ~np.asarray(pivot_columns(usual)) if marks is None else marks
    _check_marks(mechanism, np.asarray(look.rows), marks)
    rows, places = np.flatnonzero(~rolling), marks
    if rolling.any():  # more positions than speeds are free: these, and others that elimination leaves over
        places = ~np.asarray(pivot_columns(jnp.where(marks, 0.0, usual[rows])))
    return Choice(_indices(marks), _indices(places), tuple(rows.tolist())), state.q


def _indices(marks: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(marks).tolist())


def _rolling(mechanism: Mechanism) -> np.ndarray:
    """Which rows constrain speeds alone: those of a part that rolls, below its rows of positions."""
    pairs = zip(mechanism.constraints(), mechanism.constraint_sizes(), strict=True)
    counts = ((count_position_rows(mechanism, part), size) for part, size in pairs)
    return np.asarray([row >= positions for positions, size in counts for row in range(size)], dtype=bool)


def turning_rates(mechanism: Mechanism, v: Array) -> np.ndarray:
    """How fast `[rad/s]` the axis turns along which each speed is counted: zero but for `omega_x`, `_y`, `_z`.

    Those are angular velocities along axes that turn with them: with `ω`, the axis `e` turns at `|ω × e|`.
    """
    names, variables, values = mechanism.speed_names, mechanism.variables, np.asarray(v)
    turns = mechanism.space.speeds[mechanism.space.dim :]
    split = [name.rpartition(".") for name in names]
    along = [
        part in turns and name == variable for (_, _, part), name, variable in zip(split, names, variables, strict=True)
    ]
    rates = np.zeros(len(names), values.dtype)
    for i in np.flatnonzero(along):
        others = [j for j in np.flatnonzero(along) if j != i and split[j][0] == split[i][0]]
        rates[i] = np.linalg.norm(values[others])
    return np.where(rates > _TURNING, rates, 0.0)


def _weights(mechanism: Mechanism, v: Array) -> np.ndarray:
    """Factors of the columns for elimination: it then leaves over, where it can, speeds along axes that do not turn.

    About a steady motion the equations in such speeds have constant coefficients where those along the axes of a
    spinning wheel have periodic ones, whose values at one instant tell nothing.
    """
    rates = turning_rates(mechanism, v)
    return 1 + _AVOIDED * rates / max(rates.max(initial=0.0), _TURNING)


def _marked(mechanism: Mechanism, names: Sequence[str]) -> np.ndarray:
    wanted = CoordinatePartitioning(names).independent or ()
    with jax.ensure_compile_time_eval():
        return np.asarray(named_speeds(mechanism, wanted))


def _unseen(
    mechanism: Mechanism, look: _ConstraintsAtState, marks: np.ndarray | None, q: Array, rolling: np.ndarray
) -> tuple[Choice, Array]:
    """The choice where values are not known; what is wrong with them raises when the compiled program runs."""
    if marks is None or rolling.any():
        why = "which coordinates are independent depends on values that are not known inside jit or vmap"
        raise MechanismError(
            f"linearize: {why}. Name them: independent=[{mechanism.variables[0]!r}, ...]."
            if marks is None
            else f"linearize: with rolling, {why}. Linearise outside of it (grad and jacfwd alone are no obstacle)."
        )
    chosen = jnp.diag(jnp.asarray(marks, look.rows.dtype))
    fits = rank_of(look.rows) + marks.sum() == mechanism.nv
    fits = fits & (rank_of(jnp.concatenate([look.rows, chosen])) == mechanism.nv)
    missed = jnp.concatenate([look.position, look.velocity])
    closed = jnp.max(jnp.abs(missed), initial=0.0) <= closed_enough(q)
    q = eqx.error_if(q, ~closed, "linearize: the state does not satisfy the constraints.")
    q = eqx.error_if(q, ~fits, f"linearize: {_names(mechanism, marks)} cannot be the independent coordinates here.")
    return Choice(_indices(marks), _indices(marks), tuple(range(len(rolling)))), q


def _check_marks(mechanism: Mechanism, rows: np.ndarray, marks: np.ndarray) -> None:
    """Raise unless the marked speeds can be the independent ones."""
    count, rank = int(marks.sum()), int(rank_of(jnp.asarray(rows)))
    freedom = mechanism.nv - rank
    if not freedom:
        raise MechanismError(
            "There is nothing to linearise: the constraints and drivers leave no degree of freedom. Replace a driver "
            "by a force, or free a joint."
        )
    if count != freedom:
        raise MechanismError(
            f"independent must name as many variables as there are degrees of freedom here, {freedom}; got {count} "
            f"({_names(mechanism, marks)})."
        )
    stacked = jnp.concatenate([jnp.asarray(rows), jnp.diag(jnp.asarray(marks, rows.dtype))])
    if int(rank_of(stacked)) < mechanism.nv:
        usual = ~np.asarray(pivot_columns(jnp.asarray(rows)))
        raise MechanismError(
            f"{_names(mechanism, marks)} cannot be the independent variables here: the constraints tie them to one "
            f"another, or hold one of them, and others stay undetermined. {_names(mechanism, usual)} would do."
        )


def _names(mechanism: Mechanism, marks: np.ndarray) -> str:
    return ", ".join(repr(mechanism.variables[i]) for i in _indices(marks))


def _check_regular(fixed: tuple[Mechanism, Scalar, Array, Array], look: _ConstraintsAtState) -> None:
    """Raise at a singular position.

    The directions `x` with `C x = 0` are motions unless dependent rows, `λᵀ C = 0`, become independent along them:
    `λᵀ Ċ(x) y` is zero for all `x` and `y` where rows repeat one another at each position, as in overconstrained
    mechanisms that move.
    """
    mechanism, t, q, _ = fixed
    left, values, right = np.linalg.svd(np.asarray(look.rows))
    rank, opening = int(np.sum(nonzero_singular_values(values))), np.zeros(0, int)
    if rank < len(left):
        dependent, free = left[:, rank:], right[rank:].T
        spread = np.asarray(_spread(mechanism, t, q, jnp.asarray(dependent), jnp.asarray(free)))
        opening = rank + np.flatnonzero(
            np.abs(spread).max(axis=(1, 2), initial=0.0) > _SINGULAR * values.max(initial=0.0)
        )
    elif values.size and values[-1] < _SINGULAR * values[0]:
        opening = np.array([rank - 1])
    if len(opening):
        share = np.abs(left[:, opening]).max(axis=1)
        names = dict.fromkeys(
            name for (name, _), s in zip(mechanism.row_labels(), share, strict=True) if s > _TAKES_PART
        )
        raise MechanismError(
            f"The position is singular: the constraint rows of {', '.join(map(repr, names))} become dependent here, "
            "and the mechanism can leave it on more than one path (links folded or stretched into a line, a dead "
            "centre). There the motion has no linearisation: move the mechanism out of this position."
        )


@cached_on_disk
def _spread(mechanism: Mechanism, t: Scalar, q: Array, dependent: Array, free: Array) -> Float[Array, "rows n n"]:
    """`½ (B + Bᵀ)` with `B = yᵀ Ċ(x)ᵀ λ` for each dependence `λ`, along free directions scaled with inertia."""
    at = Equations(mechanism).at(t, q)
    along = free / jnp.sqrt(jnp.diag(at.inertia.matrix()))[:, None]
    turn = lambda lam, x: at.constraint_force_rate(x, lam) - at.constraint_force_rate(jnp.zeros_like(x), lam)  # noqa: E731
    each = jax.vmap(lambda lam: along.T @ jax.vmap(lambda x: turn(lam, x), 1, 1)(along))(dependent.T)
    return 0.5 * (each + each.swapaxes(1, 2))
