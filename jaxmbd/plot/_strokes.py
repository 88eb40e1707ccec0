"""Pictures of bodies, supports and sensors in the plane, as strokes.

A stroke is a line or a filled outline. It computes its points from the poses of all bodies, so that still pictures and
animations are drawn by the same code.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba

from jaxmbd.model.force.marker_forces import SpringDamper
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.sensor import Point
from jaxmbd.planar import PinInSlot, Revolute, Rod, Weld
from jaxmbd.plot._parts import markers_of
from jaxmbd.plot._scene import Place, Poses, Scene
from jaxmbd.plot._shapes import Points, arc, hatched, support, turned
from jaxmbd.plot._style import GREY, INK

GROUND_LAYER, LINK_LAYER, BODY_LAYER, SPRING_LAYER, SLIDE_LAYER, CENTRE_LAYER, PIN_LAYER = range(1, 8)
PIN = 0.5  # radius of a pin, in symbol sizes
_HANGS = 0.5  # a support hangs if the mean depth of bodies below it exceeds this share of their mean distance


class Stroke:
    """A line or filled outline, with points `(k, 2)` [m] as a function of the poses; `style` is matplotlib's."""

    def __init__(self, shape: Callable[[Poses], Points], layer: int, *, filled: bool = False, **style: Any) -> None:
        self.shape = shape
        self.filled = filled
        self.style = {"zorder": layer, **style}


def on(place: Place, shape: Points, layer: int, *, filled: bool = False, **style: Any) -> Stroke:
    """A stroke fixed in a marker's frame."""
    return Stroke(lambda poses: place.put(shape, poses), layer, filled=filled, **style)


def between(a: Place, b: Place, layer: int, **style: Any) -> Stroke:
    """A straight line from one marker to another."""
    return Stroke(lambda poses: np.stack([a.point(poses), b.point(poses)]), layer, **style)


def body_strokes(scene: Scene, body: int) -> Iterable[Stroke]:
    """A bar for two corners, a translucent polygon for more, and the symbol of the centre of mass."""
    corners, colour = scene.corners[body], scene.colour(body)
    centre = Place(scene.mechanism, scene.mechanism.bodies[body].at())
    if len(corners) == 2:
        yield on(centre, corners, BODY_LAYER, color=colour, linewidth=4.0, solid_capstyle="round")
    if len(corners) > 2:
        face = to_rgba(colour, 0.22)
        yield on(centre, corners, BODY_LAYER, filled=True, facecolor=face, edgecolor=colour, linewidth=2.0)
    if not _is_covered(scene, centre):
        yield from centre_strokes(scene, centre)


def centre_strokes(scene: Scene, centre: Place) -> Iterable[Stroke]:
    """The symbol of a centre of mass: a small disc with two quarters filled."""
    radius = 0.45 * scene.size
    yield on(centre, arc(radius), CENTRE_LAYER, filled=True, facecolor="white", edgecolor=INK, linewidth=0.8)
    for start in (0.0, np.pi):
        quarter = np.concatenate([np.zeros((1, 2)), arc(radius, start, start + np.pi / 2, 13)])
        yield on(centre, quarter, CENTRE_LAYER, filled=True, facecolor=INK, edgecolor="none")


def _is_covered(scene: Scene, centre: Place) -> bool:
    """True if a pin covers the centre of mass."""
    pins = (Revolute, PinInSlot, Rod, Weld)
    joints = [joint for joint in scene.mechanism.joints if isinstance(joint, pins)]
    places = [scene.place(marker) for joint in joints for marker in joint.markers]
    return any(place.body == centre.body and scene.same(place.offset, centre.offset) for place in places)


def pin(scene: Scene, place: Place) -> Stroke:
    """The circle of a revolute joint."""
    return on(place, arc(PIN * scene.size), PIN_LAYER, filled=True, facecolor="white", edgecolor=INK, linewidth=1.3)


def point_strokes(scene: Scene, sensor: Point) -> Iterable[Stroke]:
    """A dot at the point of a sensor, unless a joint or a centre of mass is drawn there."""
    place = scene.place(sensor.at)
    joined = (marker for joint in scene.mechanism.joints for marker in markers_of(joint))
    taken = [other for other in map(scene.place, joined) if other.body == place.body]
    known = any(scene.same(other.offset, place.offset) for other in taken)
    if not known and not scene.same(place.offset, np.zeros(2)):
        yield on(place, arc(0.32 * scene.size), PIN_LAYER, filled=True, facecolor=INK, edgecolor="none")


# --- the ground -----------------------------------------------------------------------------------------


def ground_strokes(scene: Scene) -> Iterable[Stroke]:
    """A bearing or wall for each point of the ground that supports a pin, a rod or a spring."""
    seen: list[np.ndarray] = []
    walls: list[np.ndarray] = []
    for part in (*scene.mechanism.joints, *scene.mechanism.forces):
        for place, other in _on_ground(scene, part):
            if any(scene.same(place.offset, point) for point in seen):
                continue
            if isinstance(part, SpringDamper | Weld):
                walls.append(np.array([*place.offset, _facing(scene, place, other)]))
            else:
                seen.append(place.offset)
                yield _ground_stroke(scene, support(), place.offset, _bearing_angle(scene, place.offset))
    for x, y, angle in walls:
        if not any(scene.same(np.array([x, y]), point) for point in seen):
            seen.append(np.array([x, y]))
            yield _ground_stroke(scene, hatched(-2.0, 2.0), np.array([x, y]), angle)


def _on_ground(scene: Scene, part: Any) -> Iterable[tuple[Place, Place]]:
    """The markers on the ground that need a support, each with the opposite marker."""
    if not isinstance(part, Revolute | Rod | SpringDamper | Weld | PinInSlot):
        return
    a, b = scene.place(part.a), scene.place(part.b)
    if a.body < 0 and not isinstance(part, PinInSlot):
        yield a, b
    if b.body < 0:
        yield b, a


def _ground_stroke(scene: Scene, shape: Points, point: np.ndarray, angle: float) -> Stroke:
    fixed = point + turned(scene.size * shape, angle)
    return Stroke(lambda poses: fixed, GROUND_LAYER, color=INK, linewidth=1.0)


def _facing(scene: Scene, place: Place, other: Place) -> float:
    """The angle of a wall perpendicular to the line to the opposite marker at the first position."""
    dx, dy = other.point(scene.motion[0]) - place.offset
    return float(np.arctan2(dy, dx) - np.pi / 2) if (dx, dy) != (0.0, 0.0) else 0.0


def _bearing_angle(scene: Scene, point: np.ndarray) -> float:
    """The angle of a bearing: zero if it stands, π if it hangs, because bodies swing below the pin."""
    bodies = []
    for joint in scene.mechanism.joints:
        for place, other in _on_ground(scene, joint):
            if scene.same(place.offset, point) and other.body >= 0:
                bodies.append(other.body)
    if not bodies:
        return 0.0
    arms = scene.motion[:, bodies, :2].reshape(-1, 2) - point
    far = float(np.linalg.norm(arms, axis=1).mean())
    hangs = far > 0.1 * scene.size and float(arms[:, 1].mean()) < -_HANGS * far
    return np.pi if hangs else 0.0


def link(a: Place, b: Place) -> Stroke:
    """A dotted line, for joints without a symbol."""
    return between(a, b, LINK_LAYER, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)))


def links(scene: Scene, joint: AbstractJoint) -> list[Stroke]:
    """Dotted lines from the first marker of a joint to the others."""
    first, *others = (scene.place(marker) for marker in joint.markers)
    return [link(first, other) for other in others]
