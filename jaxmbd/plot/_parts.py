"""What pictures in the plane and in space share: which parts are seen where, colours, the size of symbols."""

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
from jaxmbd.model.sensor.sensor import Point
from jaxmbd.planar import Gear, Torque
from jaxmbd.plot._style import BODIES, INK
from jaxmbd.spatial import Torque as SpatialTorque

_SHARE_OF_PICTURE = 0.021  # a symbol's size
_SHARE_OF_BODY = 0.11  # the same where bodies are small: by eye, on a chain of ten four-bars
_SMALLEST = 0.5  # of the share of the picture
_SAME = 1e-6  # of the symbol's size: points that coincide
_LONG = 60  # characters of a legend on one line


def as_coordinates(q: Any) -> np.ndarray:
    """Coordinates as numbers of NumPy."""
    try:
        return np.asarray(q, dtype=float)
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"q must be coordinates, such as state.q or solution.q, got {type(q).__name__}."
        ) from error


def checked(mechanism: Mechanism, qs: Any) -> np.ndarray:
    """Coordinates `(times, nq)` in NumPy; raises where there is nothing to draw."""
    qs = as_coordinates(qs)
    if qs.ndim != 2 or qs.shape[1] != mechanism.nq:
        names = ", ".join(mechanism.coordinate_names)
        raise MechanismError(f"q must have {mechanism.nq} entries ({names}), got shape {qs.shape[1:]}.")
    if not np.isfinite(qs).all():
        raise MechanismError("q holds values that are not finite; there is nothing to draw.")
    return qs


def poses_at(mechanism: Mechanism, qs: Any) -> Float[np.ndarray, "times bodies pose"]:
    """The poses of all bodies, and of the ground, at coordinates `(times, nq)`."""
    qs, space = checked(mechanism, qs), mechanism.space
    if mechanism.coordinates == "absolute":
        found = qs[:, : len(mechanism.tree.coordinates)].reshape(len(qs), len(mechanism.bodies), -1)
    else:
        found = np.asarray(_compiled_poses(mechanism, jnp.asarray(qs)))
    rest = np.broadcast_to(np.array(space.rest), (len(qs), 1, len(space.rest)))
    return np.concatenate([found, rest], axis=1)


@cached_on_disk
def _compiled_poses(mechanism: Mechanism, qs: Array) -> Array:
    equations = Equations(mechanism)
    return jax.vmap(lambda q: equations.at(jnp.zeros((), q.dtype), q).poses())(qs)


def body_index(mechanism: Mechanism, marker: AbstractMarker) -> int:
    """The number of a marker's body; -1 for the ground."""
    if marker.body == GROUND:
        return -1
    return [body.name for body in mechanism.bodies].index(marker.body)


def body_colour(body: int) -> str:
    """The colour of a body; the ground is drawn in ink."""
    return INK if body < 0 else BODIES[body % len(BODIES)]


def look_same(a: np.ndarray, b: np.ndarray, size: float) -> bool:
    """Whether two points look like one beside symbols of a size [m]."""
    return bool(np.linalg.norm(a - b) <= _SAME * size)


def markers_of(part: Any) -> tuple[AbstractMarker, ...]:
    """The markers where a joint, force or sensor is seen; none for parts that act on no marker.

    A gear's carrier and the reaction of a torque have only an angle: where their markers lie says nothing.
    """
    if isinstance(part, Gear):
        return (part.a, part.b)
    if isinstance(part, Torque | SpatialTorque):
        return (part.on,)
    if isinstance(getattr(part, "at", None), AbstractMarker):
        return (part.at,)
    return tuple(getattr(part, "markers", ()))


def drawn_parts(mechanism: Mechanism) -> Iterable[Any]:
    """The parts whose markers give a body its outline."""
    yield from mechanism.joints
    yield from mechanism.forces
    yield from (sensor for sensor in mechanism.sensors if isinstance(sensor, Point))


def symbol_size(extent: float, lengths: Sequence[float]) -> float:
    """The size of symbols [m], for a picture of an extent [m] with bodies of some lengths [m]."""
    size = _SHARE_OF_PICTURE * (extent if extent > 0 else 1.0)
    if not lengths:
        return size
    return max(min(size, _SHARE_OF_BODY * float(np.median(lengths))), _SMALLEST * size)


def acting_marker(mechanism: Mechanism, name: str) -> AbstractMarker:
    """The marker where a joint or driver acts on its second body, on which reactions are counted."""
    parts = mechanism.with_reactions()
    if name not in parts:
        raise unknown("joint or driver", name, parts)
    markers = parts[name].markers
    return markers[min(1, len(markers) - 1)]


def describe(mechanism: Mechanism, names: Sequence[str]) -> str:
    """`"reaction of A on rod, of B on slider"`."""
    text = "reaction " + ", ".join(f"of {name} on {acting_marker(mechanism, name).body}" for name in names)
    return text if len(text) <= _LONG else "reactions of " + ", ".join(names)
