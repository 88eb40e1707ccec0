"""The geometry of a planar mechanism over a motion, in NumPy, without compilation."""

from typing import Any

import numpy as np
from jaxtyping import Float

from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.plot._parts import body_colour, body_index, drawn_parts, look_same, markers_of, poses_at, symbol_size
from jaxmbd.plot._shapes import Points, hull, turned

Poses = Float[np.ndarray, "bodies_and_ground 3"]
Motion = Float[np.ndarray, "times bodies_and_ground 3"]


class Place:
    """A marker as NumPy data; `body` is -1 for the ground, the last row of the poses."""

    def __init__(self, mechanism: Mechanism, marker: Any) -> None:
        self.body = body_index(mechanism, marker)
        self.offset = np.asarray(marker.position, dtype=float)
        self.angle = float(marker.angle)

    def point(self, poses: np.ndarray) -> np.ndarray:
        """The marker's position in the world [m]; poses may have leading axes."""
        pose = poses[..., self.body, :]
        return pose[..., :2] + turned(self.offset, pose[..., 2])

    def turn(self, poses: np.ndarray) -> np.ndarray | float:
        """The marker's angle in the world [rad]."""
        return poses[..., self.body, 2] + self.angle

    def put(self, shape: Points, poses: Poses) -> Points:
        """Transform a shape from the marker's frame to the world."""
        return self.point(poses) + turned(shape, self.turn(poses))


class Scene:
    """A mechanism over a motion `(times, nq)`, with its bodies' colours and the size of its symbols [m]."""

    def __init__(self, mechanism: Mechanism, qs: np.ndarray) -> None:
        self.mechanism = mechanism
        self.motion = poses_at(mechanism, qs)
        self.corners = [_corners(self, i) for i in range(len(mechanism.bodies))]
        self.size = _symbol_size(self)

    def place(self, marker: Any) -> Place:
        """A marker as NumPy data."""
        return Place(self.mechanism, marker)

    def colour(self, body: int) -> str:
        """The colour of a body; the ground is drawn in ink."""
        return body_colour(body)

    def same(self, a: np.ndarray, b: np.ndarray) -> bool:
        """True if two points coincide at the size of the symbols."""
        return look_same(a, b, self.size)

    def travel(self, a: Place, b: Place) -> tuple[float, float]:
        """The least and greatest coordinate of `b` along the x axis of `a` over the motion [m]."""
        axis = turned(np.array([1.0, 0.0]), a.turn(self.motion))
        along = np.sum(axis * (b.point(self.motion) - a.point(self.motion)), axis=-1)
        return float(along.min()), float(along.max())


def _corners(scene: Scene, body: int) -> Points:
    """The convex hull of a body's centre of mass and markers, in its own frame."""
    parts = drawn_parts(scene.mechanism)
    places = [scene.place(marker) for part in parts for marker in markers_of(part)]
    offsets = [place.offset for place in places if place.body == body]
    return hull(np.round(np.array([(0.0, 0.0), *offsets]), 12))


def _symbol_size(scene: Scene) -> float:
    points = [_world(scene.motion, i, corners) for i, corners in enumerate(scene.corners)]
    markers = [marker for part in drawn_parts(scene.mechanism) for marker in markers_of(part)]
    ground = [place.offset[None] for place in map(scene.place, markers) if place.body < 0]
    everything = np.concatenate([*points, *ground])
    extent = float(np.ptp(everything, axis=0).max())
    lengths = [float(np.linalg.norm(np.ptp(c, axis=0))) for c in scene.corners if len(c) > 1]
    return symbol_size(extent, lengths)


def _world(motion: Motion, body: int, corners: Points) -> Points:
    pose = motion[:, None, body]
    return (pose[..., :2] + turned(corners, pose[..., 2])).reshape(-1, 2)
