"""Pictures of bodies, the ground and sensors in space."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxmbd.model.sensor import Point
from jaxmbd.plot._parts import markers_of
from jaxmbd.plot._space_pieces import STAND, Piece, bar, edges, ink_ball, on, quarters
from jaxmbd.plot._space_scene import SpacePlace, SpaceScene
from jaxmbd.plot._space_solids import ball, box, facing, hull_faces, joined, pyramid
from jaxmbd.plot._style import INK
from jaxmbd.spatial import (
    ConstantVelocity,
    FixedConstraint,
    PointConstraint,
    Revolute,
    RevoluteSpherical,
    Rod,
    Spherical,
    SpringDamper,
    Universal,
    Weld,
)

BAR = 0.40  # radius of a body's bar; this and all lengths here are in symbol sizes
EDGE = 0.17  # radius of the edges of a hull
HULL_ALPHA = 0.28
STEP = 1.0  # length of the segments of a bar
_STRUT = 0.10  # radius of the lines from the centre of mass to the markers
_HANGS = 0.5  # a support hangs if the mean depth of bodies below it exceeds this share of their mean distance
_STANDING = Revolute | Spherical | Universal | ConstantVelocity | RevoluteSpherical | Rod | PointConstraint
_COVERING = _STANDING | Weld | FixedConstraint


def body_pieces(scene: SpaceScene, body: int) -> Iterable[Piece]:
    """A bar, a hull or an equivalent solid, and the mark of the centre of mass."""
    name, size, colour = scene.mechanism.bodies[body].name, scene.size, scene.colour(body)
    centre, corners, solid = scene.centre(body), scene.corners[body], scene.solids[body]
    if solid is not None:
        faces = solid.faces()
        alpha = HULL_ALPHA if scene.encloses(body) else 1.0
        yield on(name, centre, faces, colour, alpha=alpha, dark=quarters(faces, solid.axes))
    if body in scene.discs or (solid is not None and len(corners) == 1):
        return
    if scene.flat[body] == 0:
        yield on(name, centre, ball(0.9 * size), colour)
        return
    if scene.flat[body] == 1:
        along = np.linalg.svd(corners - corners.mean(axis=0))[2][0]
        start, stop = corners[np.argmin(corners @ along)], corners[np.argmax(corners @ along)]
        yield on(name, centre, bar(start, stop, BAR * size, STEP * size), colour)
    else:
        faces = hull_faces(corners, scene.flat[body])
        arms = [bar(np.zeros(3), corner, _STRUT * size, STEP * size) for corner in corners if np.any(corner)]
        yield on(name, centre, joined(*(face[None] for face in faces)), colour, alpha=HULL_ALPHA)
        yield on(name, centre, edges(faces, EDGE * size, STEP * size), colour)
        yield on(name, centre, joined(*arms), colour)
    if solid is None and not _is_covered(scene, centre):
        yield ink_ball(name, centre, ball(0.75 * size))


def _is_covered(scene: SpaceScene, centre: SpacePlace) -> bool:
    """True if a joint covers the centre of mass."""
    joints = [joint for joint in scene.mechanism.joints if isinstance(joint, _COVERING)]
    places = [scene.place(marker) for joint in joints for marker in joint.markers]
    return any(place.body == centre.body and scene.same(place.offset, centre.offset) for place in places)


def point_pieces(scene: SpaceScene, sensor: Point) -> Iterable[Piece]:
    """A dot at the point of a sensor, unless a joint or a centre of mass is drawn there."""
    place = scene.place(sensor.at)
    joined_here = (marker for joint in scene.mechanism.joints for marker in markers_of(joint))
    taken = [other for other in map(scene.place, joined_here) if other.body == place.body]
    known = any(scene.same(other.offset, place.offset) for other in taken)
    if not known and not scene.same(place.offset, np.zeros(3)):
        yield on(sensor.name, place, ball(0.55 * scene.size, 12), INK)


# --- the ground -----------------------------------------------------------------------------------------


def ground_pieces(scene: SpaceScene) -> Iterable[Piece]:
    """A post for each point of the ground that supports a joint, and a plate for each spring and weld."""
    seen: list[np.ndarray] = []
    parts = [*scene.mechanism.joints, *scene.mechanism.forces]
    standing = [part for part in parts if isinstance(part, _STANDING)]
    fixed = [part for part in parts if isinstance(part, SpringDamper | Weld | FixedConstraint)]
    for part in (*standing, *fixed):
        for place, other in _on_ground(scene, part):
            if any(scene.same(place.offset, point) for point in seen):
                continue
            seen.append(place.offset)
            faces = _post(scene, place.offset, standing) if part in standing else _plate(scene, place, other)
            yield Piece("ground", lambda poses, faces=faces: faces, STAND)


def _on_ground(scene: SpaceScene, part: Any) -> Iterable[tuple[SpacePlace, SpacePlace]]:
    """The markers of a part that are on the ground, each with the opposite marker."""
    a, b = scene.place(part.a), scene.place(part.b)
    for place, other in ((a, b), (b, a)):
        if place.body < 0:
            yield place, other


def _post(scene: SpaceScene, point: np.ndarray, parts: list[Any]) -> np.ndarray:
    """A tapered post on a slab, below the point, or above it if bodies swing below."""
    size = scene.size
    faces = joined(pyramid(2.0 * size, 1.0 * size, 2.0 * size), box(3.4 * size, 3.4 * size, 0.5 * size))
    faces[-6:, :, 2] -= 2.25 * size
    arms = [
        scene.motion.position[:, other.body] - point
        for part in parts
        for place, other in _on_ground(scene, part)
        if scene.same(place.offset, point) and other.body >= 0
    ]
    away = np.concatenate(arms) if arms else np.zeros((1, 3))
    far = float(np.linalg.norm(away, axis=1).mean())
    hangs = far > 0.1 * size and float(away[:, 2].mean()) < -_HANGS * far
    return (faces @ np.diag([1.0, -1.0, -1.0]) if hangs else faces) + point


def _plate(scene: SpaceScene, place: SpacePlace, other: SpacePlace) -> np.ndarray:
    """A square plate perpendicular to the line to the opposite marker at the first position."""
    size, away = scene.size, other.point(scene.motion.at(0)) - place.offset
    faces = box(3.0 * size, 3.0 * size, 0.5 * size)
    faces[..., 2] -= 0.25 * size
    return faces @ facing(away).T + place.offset
