"""Common to pictures in the plane and in space: poses, markers of parts, colours and the size of symbols."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.body import GROUND, AbstractMarker
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.sensor import Point
from jaxmbd.planar import Torque
from jaxmbd.plot._style import BODIES, INK

_SHARE_OF_PICTURE = 0.021  # the size of symbols, as a share of the picture
_SHARE_OF_BODY = 0.11  # the same if bodies are small, as a share of the median body; chosen on ten four-bars
_SMALLEST = 0.5  # the least size of symbols, as a share of that from the picture
_SAME = 1e-6  # the distance of points that coincide, in symbol sizes
_LONG = 60  # the largest number of characters of a legend on one line


def as_coordinates(q: Any) -> np.ndarray:
    """Coordinates as a NumPy array of floats."""
    try:
        return np.asarray(q, dtype=float)
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"q must be coordinates, such as state.q or solution.q, got {type(q).__name__}."
        ) from error


def checked(mechanism: Mechanism, qs: Any) -> np.ndarray:
    """Coordinates `(times, nq)` as a NumPy array; raises if the shape is wrong or a value is not finite."""
    qs = as_coordinates(qs)
    if qs.ndim != 2 or qs.shape[1] != mechanism.nq:
        names = ", ".join(mechanism.coordinate_names)
        raise MechanismError(f"q must have {mechanism.nq} entries ({names}), got shape {qs.shape[1:]}.")
    if not np.isfinite(qs).all():
        raise MechanismError("q holds values that are not finite; there is nothing to draw.")
    return qs


def poses_at(mechanism: Mechanism, qs: Any) -> Float[np.ndarray, "times bodies pose"]:
    """The poses of all bodies and, last, of the ground, at coordinates `(times, nq)`."""
    qs, space = checked(mechanism, qs), mechanism.space
    if mechanism.coordinates == "absolute":
        poses = qs[:, : len(mechanism.tree.coordinates)].reshape(len(qs), len(mechanism.bodies), -1)
    else:
        poses = np.asarray(_compiled_poses(mechanism, jnp.asarray(qs)))
    ground = np.broadcast_to(np.array(space.rest), (len(qs), 1, len(space.rest)))
    return np.concatenate([poses, ground], axis=1)


@cached_on_disk
def _compiled_poses(mechanism: Mechanism, qs: Array) -> Array:
    equations = Equations(mechanism)
    return jax.vmap(lambda q: equations.at(jnp.zeros((), q.dtype), q).poses())(qs)


def body_index(mechanism: Mechanism, marker: AbstractMarker) -> int:
    """The index of a marker's body; -1 for the ground."""
    if marker.body == GROUND:
        return -1
    return [body.name for body in mechanism.bodies].index(marker.body)


def body_colour(body: int) -> str:
    """The colour of a body; the ground is drawn in ink."""
    return INK if body < 0 else BODIES[body % len(BODIES)]


def look_same(a: np.ndarray, b: np.ndarray, size: float) -> bool:
    """True if two points coincide, relative to the size of symbols [m]."""
    return bool(np.linalg.norm(a - b) <= _SAME * size)


def markers_of(part: Any) -> tuple[AbstractMarker, ...]:
    """The markers at which a joint, force or sensor is drawn; none for parts without markers.

    The marker of a torque's reaction is left out: only its angle matters.
    """
    if isinstance(part, Torque):
        return (part.on,)
    if isinstance(getattr(part, "at", None), AbstractMarker):
        return (part.at,)
    return tuple(getattr(part, "markers", ()))


def drawn_parts(mechanism: Mechanism) -> Iterable[Any]:
    """The parts whose markers define the outlines of bodies."""
    yield from mechanism.joints
    yield from mechanism.forces
    yield from (sensor for sensor in mechanism.sensors if isinstance(sensor, Point))


def symbol_size(extent: float, lengths: Sequence[float]) -> float:
    """The size of symbols [m] for the extent of a picture [m] and the lengths of its bodies [m]."""
    size = _SHARE_OF_PICTURE * (extent if extent > 0 else 1.0)
    if not lengths:
        return size
    return max(min(size, _SHARE_OF_BODY * float(np.median(lengths))), _SMALLEST * size)


def acting_marker(mechanism: Mechanism, name: str) -> AbstractMarker:
    """The marker at which a joint or driver acts on its second body, the body to which reactions refer."""
    parts = mechanism.with_reactions()
    if name not in parts:
        raise unknown("joint or driver", name, parts)
    markers = parts[name].markers
    return markers[min(1, len(markers) - 1)]


def describe(mechanism: Mechanism, names: Sequence[str]) -> str:
    """The legend of reactions: `"reaction of A on rod, of B on slider"`."""
    text = "reaction " + ", ".join(f"of {name} on {acting_marker(mechanism, name).body}" for name in names)
    return text if len(text) <= _LONG else "reactions of " + ", ".join(names)
