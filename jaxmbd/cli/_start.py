"""Where a motion starts, as values that stay meaningful when numbers of the mechanism change, and its times."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmbd.analyses.assembly.assemble import speed_rows
from jaxmbd.analyses.assembly.position_solve import closure, rows_of, shape_of
from jaxmbd.analyses.redundancy import jacobian
from jaxmbd.arrays import Number
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.examples import Example
from jaxmbd.model.body.flexible import flexible, own_coordinates
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import ANGLES
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.state.state import State

T = TypeVar("T")


def coordinate_names(mechanism: Mechanism) -> tuple[str, ...]:
    """Return what `assemble` can prescribe: coordinates of joints and bodies, angles in space, and sensors."""
    angles = ANGLES if mechanism.space.dim == 3 else ()
    bodies = [f"{x.name}.{c}" for x in mechanism.bodies for c in (*mechanism.space.prescribable, *angles)]
    bodies += own_coordinates(mechanism.bodies)
    return (*_joint_coordinates(mechanism), *bodies, *(sensor.name for sensor in mechanism.sensors))


def speed_names(mechanism: Mechanism) -> tuple[str, ...]:
    """Return what `assemble` can prescribe of the speeds: those of bodies, joints and the mechanism's own."""
    bodies = [f"{body.name}.{speed}" for body in mechanism.bodies for speed in mechanism.space.speeds]
    rates = [f"{name}_rate" for name in _joint_coordinates(mechanism)]
    return tuple(dict.fromkeys((*bodies, *rates, *mechanism.speed_names)))


def _joint_coordinates(mechanism: Mechanism) -> list[str]:
    return [f"{x.name}.{c}" for x in mechanism.joints if isinstance(x, AbstractJoint) for c in x.coordinate_names]


def released(mechanism: Mechanism, state: State, first: Iterable[str] = ()) -> dict[str, dict[str, Number]]:
    """Return `fixed`, `speeds` and `guess` of `assemble`, by which it finds a state again, or the state nearest to it
    if numbers of the mechanism have changed.

    As many coordinates and speeds are prescribed as there are degrees of freedom, angles before displacements: where a
    length changes, a pendulum keeps its angle, not its height. `first`: coordinates and speeds that are prescribed in
    any case, and left out here because they get other values.
    """
    variables, units, single = mechanism.variables, mechanism.speed_units, np.eye(mechanism.nv)
    candidates = {k: single[k : k + 1] for k in sorted(range(mechanism.nv), key=lambda k: units[k] != "rad/s")}
    positions, rates = (_independent(rows, candidates) for rows in _rows(mechanism, state, first))
    q, v = (
        dict(zip(*pair, strict=True)) for pair in ((state.layout.q.names, state.q), (state.layout.v.names, state.v))
    )
    fixed = {variables[k]: q[variables[k]] for k in positions if _is_prescribable(mechanism, variables[k], q)}
    return {
        "fixed": fixed,
        "speeds": {mechanism.speed_names[k]: v[mechanism.speed_names[k]] for k in rates},
        "guess": q,
    }


def beside(
    mechanism: Mechanism, state: State, first: Iterable[str], fixed: Mapping[str, Number], speeds: Mapping[str, Number]
) -> tuple[dict[str, Number], dict[str, Number]]:
    """Return the prescribed coordinates and speeds that can be prescribed beside the `first` ones: a mechanism with one
    degree of freedom that is started at another `O.angle` has no `rod.theta` of its own."""
    position_rows, rate_rows = _rows(mechanism, state, first)
    positions = _independent(position_rows, {name: _position_rows(mechanism, state, name) for name in fixed})
    rates = _independent(rate_rows, {name: _rate_rows(mechanism, state, name) for name in speeds})
    return {name: fixed[name] for name in positions}, {name: speeds[name] for name in rates}


def _rows(mechanism: Mechanism, state: State, names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the constraints, followed by those of named coordinates, and of named speeds."""
    names, coordinates = tuple(names), coordinate_names(mechanism)
    constraints = jacobian(mechanism, state.t, state.q)
    positions = [_position_rows(mechanism, state, name) for name in names if name in coordinates]
    rates = [_rate_rows(mechanism, state, name) for name in names if name not in coordinates]
    return np.concatenate([constraints, *positions]), np.concatenate([constraints, *rates])


def _position_rows(mechanism: Mechanism, state: State, name: str) -> np.ndarray:
    """The derivative of a coordinate or sensor with respect to a step along the speeds."""
    equations, prescribed = Equations(mechanism), {name: jnp.zeros(shape_of(mechanism, name), state.q.dtype)}
    at = equations.at(state.t, state.q)
    residual = lambda step: closure(at.perturbed(step), (equations, prescribed, state.t))  # noqa: E731
    rows = np.asarray(jax.jacfwd(residual)(jnp.zeros_like(state.v)))
    return rows[len(rows) - rows_of(mechanism, name) :]


def _rate_rows(mechanism: Mechanism, state: State, name: str) -> np.ndarray:
    """The derivative of a named speed with respect to the speeds of the mechanism."""
    equations = Equations(mechanism)
    rows, _ = speed_rows(equations, {name: jnp.zeros((), state.v.dtype)}, state.t, state.q)
    return np.asarray(rows)[equations.m :]


def _independent(rows: np.ndarray, candidates: Mapping[T, np.ndarray]) -> list[T]:
    """The candidates whose rows are independent of the given rows, and of those of the candidates before them."""
    chosen, rank = [], int(rank_of(rows))
    for key, own in candidates.items():
        more = np.concatenate([rows, own])
        if rank_of(more) == rank + len(own):
            rows, rank, chosen = more, rank + len(own), [*chosen, key]
    return chosen


def _is_prescribable(mechanism: Mechanism, name: str, q: dict[str, Number]) -> bool:
    """True for a coordinate whose value can be prescribed; rotations in space have speeds that are no rates of such."""
    try:
        mechanism.coordinate(name)
    except MechanismError:
        return False
    return name in q


def placed(mechanism: Mechanism, state: State) -> Mechanism:
    """Return the mechanism with bodies whose poses and own coordinates, from which an assembly starts, are those of a
    state."""
    poses = Equations(mechanism).at(state.t, state.q).poses()
    values, bodies = dict(zip(state.coordinate_names, state.q, strict=True)), flexible(mechanism.bodies).values()
    own = [jnp.stack([values[name] for name in own_coordinates([body])]) for body in bodies]
    starts = lambda m: [*(body.pose for body in m.bodies), *(body.eta for body in flexible(m.bodies).values())]  # noqa: E731
    return eqx.tree_at(starts, mechanism, [*poses, *own])


def times(example: Example, until: float | None, rows: int) -> Float[np.ndarray, " rows"]:
    """Return the times of a motion [s]."""
    return np.linspace(0.0, example.duration if until is None else until, rows)
