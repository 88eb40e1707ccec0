"""Where a motion starts, as values that stay meaningful when numbers of the mechanism change, and its times."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from jaxmbd.analyses.output_channels import ANGLES
from jaxmbd.analyses.state import State
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.linear_solve import rank_of
from jaxmbd.errors import MechanismError
from jaxmbd.examples import Example
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism


def coordinate_names(mechanism: Mechanism) -> tuple[str, ...]:
    """Return what `assemble` can prescribe: coordinates of joints and bodies, angles in space, and sensors."""
    joints = [f"{x.name}.{c}" for x in mechanism.joints if isinstance(x, AbstractJoint) for c in x.coordinate_names]
    angles = ANGLES if mechanism.space.dim == 3 else ()
    bodies = [f"{x.name}.{c}" for x in mechanism.bodies for c in (*mechanism.space.prescribable, *angles)]
    return (*joints, *bodies, *(sensor.name for sensor in mechanism.sensors))


def released(mechanism: Mechanism, state: State) -> dict[str, dict[str, Any]]:
    """Return `fixed`, `speeds` and `guess` of `assemble`, by which it finds a state again, or the state nearest to it
    if numbers of the mechanism have changed.

    As many coordinates and speeds are prescribed as there are degrees of freedom, angles before displacements: where a
    length changes, a pendulum keeps its angle, not its height.
    """
    variables, units = mechanism.variables, mechanism.speed_units
    rows = np.asarray(Equations(mechanism).jacobian(state.t, state.q))
    chosen, rank = [], int(rank_of(rows))
    for k in sorted(range(mechanism.nv), key=lambda k: units[k] != "rad/s"):
        more = np.concatenate([rows, np.eye(mechanism.nv)[k : k + 1]])
        if rank_of(more) > rank:
            rows, rank, chosen = more, rank + 1, [*chosen, k]
    q, v = (dict(zip(*pair, strict=True)) for pair in ((state.coordinate_names, state.q), (state.speed_names, state.v)))
    fixed = {variables[k]: q[variables[k]] for k in chosen if _is_prescribable(mechanism, variables[k], q)}
    return {
        "fixed": fixed,
        "speeds": {mechanism.speed_names[k]: v[mechanism.speed_names[k]] for k in chosen},
        "guess": q,
    }


def _is_prescribable(mechanism: Mechanism, name: str, q: dict[str, Any]) -> bool:
    """True for a coordinate whose value can be prescribed; rotations in space have speeds that are no rates of such."""
    try:
        mechanism.coordinate(name)
    except MechanismError:
        return False
    return name in q


def placed(mechanism: Mechanism, state: State) -> Mechanism:
    """Return the mechanism with bodies whose poses, from which an assembly starts, are those of a state."""
    poses = Equations(mechanism).at(state.t, state.q).poses()
    return eqx.tree_at(lambda m: tuple(body.pose for body in m.bodies), mechanism, tuple(poses))


def times(example: Example, until: float | None, rows: int) -> Float[np.ndarray, " rows"]:
    """Return the times of a motion [s]."""
    return np.linspace(0.0, example.duration if until is None else until, rows)
