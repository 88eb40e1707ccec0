"""Forces as numbers for arrows: values over a motion, the scale of their arrows, the value of a legend."""

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
    """Newtons per metre of the picture, such that the largest force takes `SHARE` of its longest side [m]."""
    largest = max((float(np.linalg.norm(f, axis=-1).max()) for f in forces), default=0.0)
    return (largest if largest > 0 else 1.0) / (SHARE * side)


def round_below(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above the value; 1 for none."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1.0, 2.0, 5.0) if step * power <= value)


def checked_force(mechanism: Mechanism, name: str, value: Any) -> np.ndarray:
    """A reaction [N] that a caller gave, as components `(dim,)`."""
    found = np.asarray(value, dtype=float)
    dim = mechanism.space.dim
    if found.shape != (dim,):
        names = ", ".join(("fx", "fy", "fz")[:dim])
        raise MechanismError(f"Reaction of {name!r}: expected a force ({names}) [N], got shape {found.shape}.")
    return found


def applied_forces(
    mechanism: Mechanism, ts: Float[Array, " times"], q: Float[Array, "times nq"], v: Float[Array, "times nv"]
) -> Mapping[str, Forces]:
    """The forces `(times, dim)` [N], world axes, of the `Force` parts of a mechanism over a motion."""
    space = mechanism.space

    def one(force: Force, t: Array, q: Array, v: Array) -> Array:
        at = Equations(mechanism).at(t, q)  # only here, where it is compiled: built number by number it takes seconds
        near = at.near(force.markers)
        rates = near.rates(at.on_markers(force.markers, at.twists(v)))
        return force.wrenches(t, near.frames, tuple(space.as_rate(rate) for rate in rates))[0, : space.dim]

    found = {}
    for force in mechanism.forces:
        if isinstance(force, Force):
            values = np.asarray(jax.jit(jax.vmap(lambda *at, force=force: one(force, *at)))(ts, q, v))
            if np.any(values):
                found[force.name] = values
    return found
