"""The choice of independent coordinates at a state, by name or by elimination with pivoting."""

import itertools
from collections.abc import Iterable, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.sides import is_opposed
from jaxmbd.analyses.checks import check_assembled, closed_enough
from jaxmbd.analyses.redundancy import nonholonomic_rows, singular_parts, singular_text
from jaxmbd.arrays import Scalar, frozen, is_concrete
from jaxmbd.checks import checked_names
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.formulations.coordinate_partitioning import check_independent
from jaxmbd.integrate.formulations.newton_closure import NamedCoordinateCorrection, in_world_axes, index_of
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import unit_of_length, unit_of_time
from jaxmbd.numerics.linear_solve import pivot_columns, rank_of
from jaxmbd.state.result_codes import Sentence, raise_where
from jaxmbd.state.state import State

_AVOIDED = 1e3  # factor on the pivots of speeds along the fastest rotating axes, which makes these speeds dependent
_TURNING = 1e-6  # [rad] in the unit of time that suits the mechanism: axes that rotate more slowly count as fixed


class IndependentCoordinates(eqx.Module):
    """The names of independent speeds and coordinates.

    `speeds`: the independent speeds; `places`: the speeds along which positions change. They are the same unless there
    is rolling, which constrains speeds alone. `rows`: the numbers of the constraint rows that constrain positions.
    """

    speeds: tuple[str, ...] = eqx.field(static=True)
    places: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)


class _ConstraintsAtState(eqx.Module):
    """The constraints at a state, with candidate speeds that are scaled by the inertia.

    `rows`: the constraint rows, without units; `named`: the rows of the named variables, of unit length; `position`,
    `velocity`: `Φ` and `Φ̇`; `limits`, `speed_limits`: the values up to which these count as zero; `sides`: those of
    the joints.
    """

    rows: Float[Array, "m nv"]
    named: Float[Array, "k nv"]
    position: Float[Array, " m"]
    velocity: Float[Array, " m"]
    limits: Float[Array, " m"]
    speed_limits: Float[Array, " m"]
    sides: Float[Array, " sides"]


@cached_on_disk
def _constraints_at(
    mechanism: Mechanism, t: Scalar, q: Array, v: Array, candidates: tuple[str, ...], names: tuple[str, ...]
) -> _ConstraintsAtState:
    equations = Equations(mechanism)
    at, span = equations.at(t, q), equations.scales.length * jnp.sqrt(jnp.sum(equations.parts.masses))
    basis = NamedCoordinateCorrection(candidates).rows(at).T.dense()  # orthogonal: the identity, or rotation matrices
    scale = jnp.sqrt(jnp.diag(basis.T @ at.inertia.matrix() @ basis)) / span
    C = at.jacobian / equations.scales.rows[:, None]
    rows, named = (x @ basis / scale[None] for x in (C, NamedCoordinateCorrection(names).rows(at).dense()))
    named = named / jnp.linalg.norm(named, axis=1)[:, None]
    return _ConstraintsAtState(rows, named, at.position(), at.velocity(v), *closed_enough(equations), at.sides())


def choose(
    mechanism: Mechanism, state: State, independent: Sequence[str] | None, other_axes: Sequence[str] = ()
) -> tuple[IndependentCoordinates, Array]:
    """Return the choice, and the coordinates of the state, which have been checked.

    `other_axes`: angular velocities that are replaced by those about world axes.

    **Raises:** see `linearize`; inside `jit` or `vmap` at run time.
    """
    fixed = frozen((mechanism, state.t, state.q, state.v))  # known values stay known inside `grad`, which wraps them
    names = None if independent is None else _ordered_names(mechanism, independent)
    candidates = tuple(in_world_axes(name) if name in other_axes else name for name in mechanism.variables)
    constraints, rolling = _constraints_at(*fixed, candidates, names or ()), nonholonomic_rows(mechanism)
    if not is_concrete(constraints):
        return _traced_choice(mechanism, constraints, names, state.q, rolling)
    limits = constraints.limits, constraints.speed_limits
    check_assembled(mechanism, "state", constraints.position, constraints.velocity, *limits, constraints.sides)
    if not other_axes:
        _check_regular(*fixed[:3])
    weights, named = _weights(mechanism, fixed[-1], candidates)[None], np.asarray(constraints.named)
    if names is None:
        is_independent = ~np.asarray(pivot_columns(np.asarray(constraints.rows) * weights))
        names, named = tuple(itertools.compress(candidates, is_independent)), np.eye(mechanism.nv)[is_independent]
    _check_names(mechanism, np.asarray(constraints.rows), named, names)
    rows, places = np.flatnonzero(~rolling), names
    if rolling.any():  # more coordinates than speeds are independent: elimination adds the others
        places = _with_others(names, named, np.asarray(constraints.rows)[rows] * weights, candidates)
    return IndependentCoordinates(names, places, tuple(rows.tolist())), state.q


def _with_others(
    names: tuple[str, ...], named: np.ndarray, rows: np.ndarray, candidates: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names, and the candidates that are independent beside them by elimination of the rows."""
    dependent = np.asarray(pivot_columns(named))
    rest = rows - rows[:, dependent] @ np.linalg.solve(named[:, dependent], named)
    others = ~np.asarray(pivot_columns(np.where(dependent, 0.0, rest))) & ~dependent
    order = [*candidates, *names]
    return tuple(sorted((*names, *itertools.compress(candidates, others)), key=order.index))


def turning_rates(mechanism: Mechanism, v: Array) -> dict[str, float]:
    """Return the angular speeds `[rad/s]` of those axes of `omega_x`, `_y`, `_z` that rotate.

    These are angular velocities along body-fixed axes: with `ω`, the axis `e` rotates at `|ω × e|`.
    """
    rates, values = {}, dict(zip(mechanism.variables, np.asarray(v), strict=True))
    for name in own_angular(mechanism):
        owner = name.rpartition(".")[0]
        others = [values[n] for n in own_angular(mechanism) if n != name and n.rpartition(".")[0] == owner]
        rates[name] = float(np.linalg.norm(others))
    least = _TURNING / float(unit_of_time(mechanism, unit_of_length(mechanism)))
    return {name: rate for name, rate in rates.items() if rate > least}


def own_angular(mechanism: Mechanism) -> list[str]:
    """Return the speeds that are angular velocities along axes that rotate with them."""
    turns = mechanism.space.speeds[mechanism.space.dim :] if mechanism.space.dim == 3 else ()
    pairs = zip(mechanism.variables, mechanism.speed_names, strict=True)
    return [name for name, speed in pairs if name == speed and name.rpartition(".")[2] in turns]


def _weights(mechanism: Mechanism, v: Array, candidates: tuple[str, ...]) -> np.ndarray:
    """Return column weights for elimination, which then leaves speeds along fixed axes independent where possible.

    About a steady motion the equations have constant coefficients in such speeds, but periodic ones in those along the
    axes of a spinning wheel, whose values at one instant have no meaning.
    """
    turning = turning_rates(mechanism, v)
    rates = np.asarray([turning.get(name, 0.0) for name in candidates])
    return 1 + _AVOIDED * rates / (rates.max(initial=0.0) or 1.0)


def _ordered_names(mechanism: Mechanism, independent: Sequence[str]) -> tuple[str, ...]:
    """Return the names without repeats: first those of variables, in the mechanism's order, then the others."""
    in_space = [f"{body.name}.omega_{axis}" for body in mechanism.bodies for axis in "xyz" if mechanism.space.dim == 3]
    about_world = [in_world_axes(name) for name in dict.fromkeys((*in_space, *own_angular(mechanism)))]
    variables, others = set(), []
    for name in checked_names("independent", independent, "O.angle"):
        k = index_of(mechanism, name)
        if k is None and name not in about_world:
            check_independent(mechanism, [name])
        if k is None:
            others.append(name)
        else:
            variables.add(mechanism.variables[k])
    return tuple(name for name in mechanism.variables if name in variables) + tuple(dict.fromkeys(others))


def _traced_choice(
    mechanism: Mechanism, constraints: _ConstraintsAtState, names: tuple[str, ...] | None, q: Array, rolling: np.ndarray
) -> tuple[IndependentCoordinates, Array]:
    """Return the choice for traced values; wrong values raise at run time."""
    if names is None or rolling.any():
        why = "which coordinates are independent depends on values that are not known inside jit or vmap"
        raise MechanismError(
            f"linearize: {why}. Name them: independent=[{mechanism.variables[0]!r}, ...]."
            if names is None
            else f"linearize: with rolling, {why}. Linearise outside of it (grad and jacfwd alone are no obstacle)."
        )
    fits = rank_of(constraints.rows) + len(names) == mechanism.nv
    fits = fits & (rank_of(jnp.concatenate([constraints.rows, constraints.named])) == mechanism.nv)
    missed = jnp.stack([constraints.position, constraints.velocity])
    limits = jnp.stack([constraints.limits, constraints.speed_limits])
    closed = jnp.all(jnp.abs(missed) <= limits) & ~is_opposed(constraints.sides)
    q = raise_where(q, ~closed, Sentence("linearize: the state does not satisfy the constraints."))
    q = raise_where(q, ~fits, Sentence(f"linearize: {_quoted(names)} cannot be the independent coordinates here."))
    return IndependentCoordinates(names, names, tuple(range(len(rolling)))), q


def _check_names(mechanism: Mechanism, rows: np.ndarray, named: np.ndarray, names: tuple[str, ...]) -> None:
    """Raise unless the named speeds, with the rows `named`, can be the independent ones."""
    freedom = mechanism.nv - int(rank_of(rows))
    if not freedom:
        raise MechanismError(
            "There is nothing to linearise: the constraints and drivers leave no degree of freedom. Replace a driver "
            "by a force, or free a joint."
        )
    if len(names) != freedom:
        raise MechanismError(
            f"independent must name as many variables as there are degrees of freedom here, {freedom}; got "
            f"{len(names)} ({_quoted(names)})."
        )
    if int(rank_of(np.concatenate([rows, named]))) < mechanism.nv:
        usual = itertools.compress(mechanism.variables, ~np.asarray(pivot_columns(rows)))
        raise MechanismError(
            f"{_quoted(names)} cannot be the independent variables here: the constraints tie them to one "
            f"another, or hold one of them, and others stay undetermined. {_quoted(usual)} would do."
        )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _check_regular(mechanism: Mechanism, t: Scalar, q: Array) -> None:
    """Raise at a singular position."""
    if names := singular_parts(mechanism, t, q):
        raise MechanismError(
            f"{singular_text(names)} There the motion has no linearisation: move the mechanism out of this position."
        )
