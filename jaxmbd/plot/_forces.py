"""Forces over a motion, the scale of their arrows, and the value of the legend."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.planar import Force

SHARE = 0.2  # the longest arrow, as a share of the longest side of the mechanism's picture

Forces = Float[np.ndarray, "times dim"]


def arrow_scale(forces: Sequence[Forces], side: float) -> float:
    """The scale [N/m] at which the largest force takes `SHARE` of the picture's longest side [m]."""
    largest = max((float(np.linalg.norm(f, axis=-1).max()) for f in forces), default=0.0)
    return (largest if largest > 0 else 1.0) / (SHARE * side)


def round_below(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten not above the value; 1 if the value is not positive."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1.0, 2.0, 5.0) if step * power <= value)


def checked_force(mechanism: Mechanism, name: str, value: Any) -> np.ndarray:
    """The user's value of a reaction [N] as components `(dim,)`, checked."""
    force = np.asarray(value, dtype=float)
    dim = mechanism.space.dim
    if force.shape != (dim,):
        names = ", ".join(("fx", "fy", "fz")[:dim])
        raise MechanismError(f"Reaction of {name!r}: expected a force ({names}) [N], got shape {force.shape}.")
    return force


def applied_forces(
    mechanism: Mechanism, ts: Float[Array, " times"], q: Float[Array, "times nq"], v: Float[Array, "times nv"]
) -> Mapping[str, Forces]:
    """The forces `(times, dim)` [N], world axes, of the `Force` parts of a mechanism over a motion."""
    space = mechanism.space

    def one(force: Force, t: Array, q: Array, v: Array) -> Array:
        at = Equations(mechanism).at(t, q)  # inside `jit`: evaluated eagerly, this takes seconds
        near = at.near(force.markers)
        rates = near.rates(at.on_markers(force.markers, at.twists(v)))
        return force.wrenches(t, near.frames, tuple(space.as_rate(rate) for rate in rates))[0, : space.dim]

    forces = {}
    for force in mechanism.forces:
        if isinstance(force, Force):
            values = np.asarray(jax.jit(jax.vmap(lambda *at, force=force: one(force, *at)))(ts, q, v))
            if np.any(values):
                forces[force.name] = values
    return forces
