"""The geometry of a mechanism over a motion: outlines of its bodies, and the size of the symbols."""

from collections.abc import Iterable, Sequence

import numpy as np

from jaxmbd.arrays import Numbers
from jaxmbd.errors import unknown
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.flexible import frames_of
from jaxmbd.model.force.force import AbstractForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism, Part
from jaxmbd.model.sensor import AbstractSensor, Point
from jaxmbd.planar import Torque
from jaxmbd.scene.looks import box_about, shapes_of
from jaxmbd.scene.motion import Place, Poses, place_of, poses_of
from jaxmbd.scene.surfaces import EquivalentSolid, equivalent_solid, spread
from jaxmbd.spatial import RollingDisc

_SHARE_OF_PICTURE = 0.021  # the size of symbols, as a share of the picture
_SHARE_OF_BODY = 0.11  # the same if bodies are small, as a share of the median body; chosen on ten four-bars
_SMALLEST = 0.5  # the least size of symbols, as a share of that from the picture
_SAME = 1e-6  # the distance of points that coincide, in symbol sizes
_FLAT = 0.3  # the distance from a line or plane, in symbol sizes, up to which markers are drawn on it
_FREE = 0.35  # the largest half-extent of a body's equivalent solid, as a share of the mechanism's extent
_ALONE = 0.45  # the same, as a share of the distance to the farthest marker
_BULKY = 1.0  # the half-extent across a bar, in symbol sizes, from which the equivalent solid is drawn, too
_DISC = 0.5  # a solid is a disc if its half-extent along a bar is below this share of that across


class Geometry:
    """A mechanism over a motion: its coordinates `(times, nq)` at times `(times,)` [s], with the size of its symbols
    [m], which follows from both unless given; or its poses over it, `motion`, where they are known.

    `corners`: the centre of mass and the markers that are fixed on each body, in its own frame; `ground`: the markers
    that are fixed on the ground; `moving`: the markers that move on a body or the ground;
    `curves`: the places along each flexible body;
    in space, `discs`: radii of rolling discs by body; `solids`: the equivalent solids of bodies that are drawn as such;
    `looks`: the corners of a box about the shapes of each body, and last of the ground, in its frame;
    `flat`: the dimension of the span of a body's corners, a point (0), a line (1), a plane (2) or space (3).
    """

    def __init__(
        self, mechanism: Mechanism, ts: Numbers, qs: Numbers, size: float | None = None, motion: Poses | None = None
    ) -> None:
        self.mechanism, self.dim = mechanism, mechanism.space.dim
        self.motion = poses_of(mechanism, ts, qs) if motion is None else motion
        places = [self.place(marker) for part in drawn_parts(mechanism) for marker in markers_of(part)]
        bodies = range(len(mechanism.bodies))
        self.corners = [_corners([p.offset for p in places if p.frame == i], self.dim) for i in bodies]
        self.ground = np.array([p.offset for p in places if p.frame < 0]).reshape(-1, self.dim)
        self.moving = list({p.frame: p for p in places if p.frame != p.body}.values())
        self.curves = {i: self._curve(i, frames) for i, frames in frames_of(mechanism.bodies).items()}
        rolling = [part for part in mechanism.joints if isinstance(part, RollingDisc)]
        self.discs = {self.place(part.b).body: float(part.radius) for part in rolling}
        self.looks = [
            box_about(shapes_of(mechanism, i), self.dim) for i in (*bodies, -1)
        ]  # the last one is the ground's
        bare = self._extent([0.0] * len(bodies))
        self.solids = [self._solid(i, bare) if self.dim == 3 else None for i in bodies]
        reach = [0.0 if solid is None else float(solid.halves.max()) for solid in self.solids]
        extent = self._extent([self.discs.get(i, room) for i, room in enumerate(reach)])
        lengths = [float(np.linalg.norm(np.ptp(c, axis=0))) for c in self.corners if len(c) > 1]
        self.size = symbol_size(extent, lengths) if size is None else size
        self.flat = [spread(corners, _FLAT * self.size) for corners in self.corners]

    def place(self, marker: AbstractMarker) -> Place:
        """The place of a marker."""
        return place_of(self.mechanism, marker)

    def centre(self, body: int) -> Place:
        """The frame of a body at its centre of mass."""
        return self.place(self.mechanism.bodies[body].at())

    def _curve(self, body: int, frames: range) -> list[Place]:
        """The places of a flexible body in the order of their distances from its floating frame."""
        zero, eye = np.zeros(self.dim), np.eye(self.dim)
        start = self.motion.position[0]
        away = np.linalg.norm(start[list(frames)] - start[body], axis=1)
        return [self.centre(body), *(Place(body, frames[int(k)], zero, eye) for k in np.argsort(away))]

    def same(self, a: np.ndarray, b: np.ndarray) -> bool:
        """True if two points coincide at the size of the symbols."""
        return bool(np.linalg.norm(a - b) <= _SAME * self.size)

    def coincide(self, a: Place, b: Place) -> bool:
        """True if two places are fixed to each other, at one point."""
        return a.frame == b.frame and self.same(a.offset, b.offset)

    def travel(self, a: Place, b: Place) -> tuple[np.ndarray, np.ndarray]:
        """The least and greatest coordinates of `b` along the axes of `a` over the motion [m]."""
        along = np.einsum("tij,ti->tj", a.axes(self.motion), b.point(self.motion) - a.point(self.motion))
        return along.min(axis=0), along.max(axis=0)

    def lengths(self, a: Place, b: Place) -> np.ndarray:
        """The distance of two places over the motion [m]."""
        return np.linalg.norm(b.point(self.motion) - a.point(self.motion), axis=-1)

    def encloses(self, body: int) -> bool:
        """True if a body's equivalent solid contains the centre of a smaller one at the first position."""
        solid, centres = self.solids[body], self.motion.position[0]
        others = [
            k for k, other in enumerate(self.solids) if solid and other and other.halves.max() < solid.halves.max()
        ]
        return any(np.linalg.norm(centres[k] - centres[body]) < solid.halves.min() for k in others if solid)

    def _extent(self, reach: list[float]) -> float:
        """The longest side of a box about all bodies and markers over the motion [m]."""
        bounds = []
        for i, marked in enumerate(self.corners):
            corners = np.concatenate([marked, self.looks[i]])
            turned = np.einsum("tij,kj->tki", self.motion.rotation[:, i], corners)
            points = (turned + self.motion.position[:, None, i]).reshape(-1, self.dim)
            bounds += [points - reach[i], points + reach[i]]
        bounds += [place.point(self.motion) for place in self.moving]
        return float(np.ptp(np.concatenate([*bounds, self.ground, self.looks[-1]]), axis=0).max())

    def _solid(self, body: int, bare: float) -> EquivalentSolid | None:
        """The equivalent solid of a body that is drawn as such, made smaller if it would hide others; else None.

        Such a body has no marker besides its centre of mass, or markers on one side of it only, or is a disc on its
        axle. `bare` [m] is the extent of all markers.
        """
        corners, part = self.corners[body], self.mechanism.bodies[body]
        if len(self.looks[body]):
            return None
        if not np.any(np.asarray(part.inertia)):  # a point mass or a massless link
            return None
        solid = equivalent_solid(float(part.mass), np.asarray(part.inertia))
        if body in self.discs:
            return None
        if len(corners) == 1:
            alone = bare == 0 or (len(self.corners) == 1 and len(self.ground) == len(self.moving) == 0)
            return solid if alone else solid.limited(_FREE * bare)
        size = symbol_size(bare, [])
        if spread(corners, _FLAT * size) != 1:
            return None
        arms = corners[np.linalg.norm(corners, axis=1) > _FLAT * size]
        along, least, most = solid.reach(arms[0])
        one_sided = bool(np.all(arms @ arms[0] > 0))
        seen = most > _BULKY * size and (one_sided or along < _DISC * least)
        return solid.limited(_ALONE * float(np.linalg.norm(arms, axis=1).max())) if seen else None


def _corners(offsets: Sequence[np.ndarray], dim: int) -> np.ndarray:
    """A body's centre of mass and its distinct markers, in its own frame."""
    return np.unique(np.round(np.array([np.zeros(dim), *offsets]), 12) + 0.0, axis=0)


def symbol_size(extent: float, lengths: Sequence[float]) -> float:
    """The size of symbols [m] for the extent of a picture [m] and the lengths of its bodies [m]."""
    size = _SHARE_OF_PICTURE * (extent if extent > 0 else 1.0)
    if not lengths:
        return size
    return max(min(size, _SHARE_OF_BODY * float(np.median(lengths))), _SMALLEST * size)


def drawn_parts(mechanism: Mechanism) -> Iterable[Part]:
    """The parts whose markers define the outlines of bodies."""
    yield from mechanism.joints
    yield from mechanism.forces
    yield from (sensor for sensor in mechanism.sensors if isinstance(sensor, Point))


def markers_of(part: object) -> tuple[AbstractMarker, ...]:
    """The markers at which a joint, force or sensor is drawn; none for parts without markers.

    The marker of a torque's reaction is left out: only its angle matters.
    """
    if isinstance(part, Torque):
        return (part.on,)
    return part.markers if isinstance(part, AbstractJoint | AbstractForce | AbstractSensor) else ()


def acting_marker(mechanism: Mechanism, name: str) -> AbstractMarker:
    """The marker at which a joint or driver acts on its second body, the body to which reactions refer."""
    parts = mechanism.with_reactions()
    if name not in parts:
        raise unknown("joint or driver", name, parts)
    markers = parts[name].markers
    return markers[min(1, len(markers) - 1)]


def traced_marker(mechanism: Mechanism, name: str) -> AbstractMarker:
    """The marker of a point sensor, or of a body's centre of mass."""
    markers = {body.name: body.at() for body in mechanism.bodies}
    markers |= {sensor.name: sensor.at for sensor in mechanism.sensors if isinstance(sensor, Point)}
    if name not in markers:
        raise unknown("point sensor or body", name, markers)
    return markers[name]
