"""`Scene`: all that a picture or an animation of a mechanism shows, at each of its times."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.events.changes import ForceChanges, equations_at
from jaxmbd.arrays import Number, Numbers, as_float
from jaxmbd.checks import check_finite
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.planar import Force, Prismatic
from jaxmbd.scene.geometry import Geometry, acting_marker, traced_marker
from jaxmbd.scene.motion import Place, Poses, place_of
from jaxmbd.scene.parts import pieces_of
from jaxmbd.scene.pieces import APPLIED, INK, REACTION, body_colour

ELEV, AZIM = 20.0, -58.0  # the default direction of view [degrees]
SHARE = 0.2  # the longest arrow, as a share of the longest side of the mechanism's picture
_FRAMES = 60  # the number of positions of a motion from which limits are computed
_MARGIN = {2: 1.2, 3: 0.8}  # the margin of a picture in the plane and in space, in symbol sizes
_THIN = 0.3  # the least side of a picture in space, as a share of the longest
_TOGETHER = 1e-3  # the distance, in symbol sizes, up to which two joints are at one point
_LONG = 60  # the largest number of characters of a legend on one line

Forces = Float[np.ndarray, "times dim"]
View = tuple[Number | None, Number | None]  # elevation and azimuth [degrees], None for the default
Limits = tuple[tuple[float, float], ...]  # the least and greatest x, y and in space z [m]


class Arrow(NamedTuple):
    """A force `(times, dim)` [N] at a place, to a scale [N/m]."""

    part: str
    place: Place
    forces: Forces
    scale: float
    colour: str


class Legend(NamedTuple):
    """The scale of the reactions: an arrow for a round number of newtons, of a length [m], and its text."""

    value: float
    length: float
    text: str


class Trace(NamedTuple):
    """The path `(k, dim)` [m] of a point, which has travelled `per_frame` points of it in each frame."""

    points: np.ndarray
    per_frame: int
    colour: str

    def until(self, k: int) -> np.ndarray:
        """The path travelled until frame `k`."""
        return self.points[: k * self.per_frame + 1]


class Label(NamedTuple):
    """A name beside a place, moved to the right and upwards by symbol sizes."""

    text: str
    place: Place
    shift: tuple[float, float]
    colour: str
    is_body: bool


class Scene:
    """The pieces, arrows and traces of a mechanism over a motion, and limits [m] that contain them all.

    **Arguments:** `reactions`, forces of joints and drivers on their second bodies, with a common scale; `applied`,
    forces of `Force` parts, each to its own scale; both by name.
    """

    def __init__(
        self,
        geometry: Geometry,
        reactions: Mapping[str, Forces] | None = None,
        applied: Mapping[str, Forces] | None = None,
        traces: Sequence[Trace] = (),
    ) -> None:
        self.geometry, self.motion, self.size = geometry, geometry.motion, geometry.size
        self.pieces, self.traces = pieces_of(geometry), traces
        count = len(self.motion.position)
        moments = [self.motion.at(k) for k in (*range(0, count, max(count // _FRAMES, 1)), count - 1)]
        points = [piece.shape(poses).reshape(-1, geometry.dim) for poses in moments for piece in self.pieces]
        points += [trace.points for trace in traces]
        side = max(high - low for low, high in self._limits(points))
        mechanism = geometry.mechanism
        self.arrows = [
            Arrow(name, geometry.place(mechanism[name].at), values, arrow_scale([values], side), APPLIED)
            for name, values in (applied or {}).items()
        ]
        self.legend = None
        if reactions:
            scale = arrow_scale(list(reactions.values()), side)
            value = round_below(max(float(np.linalg.norm(f, axis=-1).max()) for f in reactions.values()))
            self.legend = Legend(value, value / scale, f"{value:g} N   {_described(mechanism, list(reactions))}")
            places = {name: geometry.place(acting_marker(mechanism, name)) for name in reactions}
            self.arrows += [Arrow(name, places[name], f, scale, REACTION) for name, f in reactions.items()]
        tips = [arrow.place.point(self.motion) + arrow.forces / arrow.scale for arrow in self.arrows]
        self.limits = self._limits([*points, *tips])

    def _limits(self, points: Sequence[np.ndarray]) -> Limits:
        """Limits with a margin; in space, every side has a least share of the longest, so that numbers are legible."""
        everything, margin = np.concatenate(points), _MARGIN[self.geometry.dim] * self.size
        low, high = np.nanmin(everything, axis=0) - margin, np.nanmax(everything, axis=0) + margin
        if self.geometry.dim == 3:
            widen = np.maximum(_THIN * np.max(high - low) - (high - low), 0.0) / 2
            low, high = low - widen, high + widen
        return tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))

    def labels(self) -> list[Label]:
        """The names of bodies beside their centres of mass, in their colours, and of joints beside their markers."""
        mechanism = self.geometry.mechanism
        blocks = {joint.b.body for joint in mechanism.joints if isinstance(joint, Prismatic)}
        right, apart = (0.9, 0.7) if self.geometry.dim == 2 else (1.0, 1.1)
        labels = []
        for i, body in enumerate(mechanism.bodies):
            shift = right, -2.2 if body.name in blocks else -1.0
            labels.append(Label(body.name, self.geometry.centre(i), shift, body_colour(i), True))
        joints = [joint.name for joint in mechanism.joints if isinstance(joint, AbstractJoint)]
        places = {name: self.geometry.place(acting_marker(mechanism, name)) for name in joints}
        shared = list[list[str]]()  # joints that stay at one point share a label
        for name in joints:
            group = next((group for group in shared if self._stay_together(places[group[0]], places[name])), None)
            if group is None:
                shared.append([name])
            else:
                group.append(name)
        return labels + [Label(", ".join(names), places[names[0]], (apart, apart), INK, False) for names in shared]

    def _stay_together(self, a: Place, b: Place) -> bool:
        return bool(self.geometry.lengths(a, b).max() <= _TOGETHER * self.size)


def check_view(mechanism: Mechanism, view: View) -> None:
    """Raise if a direction of view is set for a planar mechanism, or is not finite."""
    if mechanism.space.dim == 2 and any(angle is not None for angle in view):
        raise MechanismError("elev and azim turn the view of a mechanism in space; this one lies in the plane.")
    for name, angle in zip(("elev", "azim"), view, strict=True):
        if angle is not None:
            check_finite("The direction of view", name, as_float(angle))


def trace_of(mechanism: Mechanism, name: str, path: Poses, per_frame: int) -> Trace:
    """The trace of a point sensor, or of a body's centre of mass, along a path of poses."""
    place = place_of(mechanism, traced_marker(mechanism, name))
    return Trace(place.point(path), per_frame, body_colour(place.body))


# --- forces ---------------------------------------------------------------------------------------------


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


def _described(mechanism: Mechanism, names: Sequence[str]) -> str:
    """`"reaction of A on rod, of B on slider"`."""
    text = "reaction " + ", ".join(f"of {name} on {acting_marker(mechanism, name).body}" for name in names)
    return text if len(text) <= _LONG else "reactions of " + ", ".join(names)


def checked_reactions(mechanism: Mechanism, reactions: Mapping[str, Numbers]) -> dict[str, Forces]:
    """The user's reactions [N] at one time, by name, as components `(1, dim)`."""
    for name in reactions:
        acting_marker(mechanism, name)
    forces, dim = {}, mechanism.space.dim
    for name, value in reactions.items():
        force = np.asarray(value, dtype=float)
        if force.shape != (dim,):
            names = ", ".join(("fx", "fy", "fz")[:dim])
            raise MechanismError(f"Reaction of {name!r}: expected a force ({names}) [N], got shape {force.shape}.")
        forces[name] = force[None]
    return forces


def applied_forces(
    mechanism: Mechanism,
    ts: Float[Array, " times"],
    q: Float[Array, "times nq"],
    v: Float[Array, "times nv"],
    changes: ForceChanges | None = None,
) -> dict[str, Forces]:
    """The forces `(times, dim)` [N], world axes, of the `Force` parts of a mechanism over a motion.

    `changes`: those of the motion, by events.
    """
    space = mechanism.space

    def one(k: int, t: Array, q: Array, v: Array) -> Array:
        equations = equations_at(Equations(mechanism), changes, t)
        at = equations.at(t, q)  # inside `jit`: evaluated eagerly, this takes seconds
        force: Any = equations.mechanism.forces[k]
        near = at.near(force.markers)
        rates = near.rates(at.on_markers(force.markers, at.twists(v)))
        return force.wrenches(t, near.frames, tuple(space.as_rate(rate) for rate in rates))[0, : space.dim]

    forces = {}
    for k, force in enumerate(mechanism.forces):
        if isinstance(force, Force):
            values = np.asarray(jax.jit(jax.vmap(lambda *at, k=k: one(k, *at)))(ts, q, v))
            if np.any(values):
                forces[force.name] = values
    return forces
