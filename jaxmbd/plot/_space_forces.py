"""The symbols of forces in space: springs, dampers, bushings, contacts, torques."""

import numpy as np

from jaxmbd.plot._space_pieces import FLOOR_ALPHA, STEEL, Piece, between, on
from jaxmbd.plot._space_scene import SpaceScene
from jaxmbd.plot._space_solids import (
    Faces,
    ball,
    circle,
    cylinder,
    facing,
    helix,
    joined,
    rectangle,
    revolved,
    rounded_bar,
    tube,
)
from jaxmbd.plot._style import INK
from jaxmbd.spatial import Bushing, JointSpringDamper, PlaneContact, SpringDamper, Torque

_COIL = 1.0  # radius of a spring, in symbol sizes
_WIRE = 0.17  # radius of its wire
_CUP = 0.48  # radius of a damper's cylinder
_RUBBER = "#4d4d4d"


def spring(scene: SpaceScene, force: SpringDamper) -> list[Piece]:
    """A helix if there is stiffness, around a piston in a cylinder if there is damping or an actuator."""
    a, b, size = scene.place(force.a), scene.place(force.b), scene.size
    has_spring = float(force.stiffness) != 0.0
    has_damper = float(force.damping) != 0.0 or callable(force.actuator) or float(force.actuator) != 0.0
    lengths = np.linalg.norm(b.point(scene.motion) - a.point(scene.motion), axis=-1)
    coils = int(np.clip(np.mean(lengths) / (1.3 * size), 5, 14))
    pieces = []
    if has_spring or not has_damper:
        pieces.append(between(force.name, a, b, lambda length: _coil(length, coils, size), INK))
    if has_damper:
        shortest = float(lengths.min())
        pieces.append(between(force.name, a, b, lambda length: _piston(length, shortest, size), STEEL))
    return pieces


def along_joint(scene: SpaceScene, force: JointSpringDamper) -> list[Piece]:
    """A coil about the axis of a rotation, or between the markers of a translation; none without stiffness."""
    coordinate, size = scene.mechanism.coordinate(force.coordinate), scene.size
    if float(force.stiffness) == 0.0 or coordinate.joint is None:
        return []
    a, b = (scene.place(marker) for marker in coordinate.markers)
    if coordinate.unit(scene.mechanism.space) == "rad":
        coil = helix(1.25 * size, 2.0 * size, 3.0) - np.array([0.0, 0.0, size])
        return [on(force.name, b, tube(coil, _WIRE * size, 5), INK)]
    lengths = np.linalg.norm(b.point(scene.motion) - a.point(scene.motion), axis=-1)
    coils = int(np.clip(np.mean(lengths) / (1.3 * size), 5, 14))
    return [between(force.name, a, b, lambda length: _coil(length, coils, size), INK)]


def _coil(length: float, coils: int, size: float) -> Faces:
    lead = min(1.2 * size, 0.15 * length)
    return tube(helix(_COIL * size, length, coils, max(lead, 1e-9 * size)), _WIRE * size, 5)


def _piston(length: float, shortest: float, size: float) -> Faces:
    """A cylinder with a rod; the cylinder is short enough for the shortest length [m]."""
    cup = min(0.65 * shortest, length) if shortest > 0.5 * size else 0.6 * length
    heights = np.array([0.1, 0.1, *np.linspace(0.1, 1.0, 6), 1.0]) * cup
    radii = _CUP * size * np.array([0.0, *[1.0] * 7, 0.0])
    return joined(revolved(radii, heights, 12), rounded_bar(length, 0.2 * size, 2.0 * size, 8))


def bushing(scene: SpaceScene, force: Bushing) -> list[Piece]:
    """A block of rubber."""
    faces = cylinder(1.0 * scene.size, 1.4 * scene.size)
    return [on(force.name, scene.place(force.a), faces, _RUBBER)]


def contact(scene: SpaceScene, force: PlaneContact) -> list[Piece]:
    """The contacting ball, if it has a radius, and a patch of the plane under its motion."""
    plane, point, size = scene.place(force.plane), scene.place(force.point), scene.size
    radius = float(force.radius)
    low, high = scene.travel(plane, point)
    margin = max(2.0 * radius, 4.0 * size)
    faces = rectangle(low[:2] - margin, high[:2] + margin)
    pieces = [on(force.name, plane, faces, INK, alpha=FLOOR_ALPHA, floor=plane.body < 0)]
    if radius > 0 and np.linalg.norm(point.offset) > 0.1 * radius:
        pieces.append(on(force.name, point, ball(radius), scene.colour(point.body), alpha=0.35))
    return pieces


def torque(scene: SpaceScene, force: Torque) -> list[Piece]:
    """A round arrow about the torque vector if it is constant, else about the marker's z axis."""
    place, size = scene.place(force.on), scene.size
    if callable(force.torque):
        return [on(force.name, place, turning_arrow(np.array([0.0, 0.0, 1.0]), 2.0 * size, 0.2 * size), INK)]
    axis = np.asarray(force.torque, dtype=float)
    if not np.any(axis):
        return []
    faces = turning_arrow(axis, 2.0 * size, 0.2 * size)
    if force.frame == "body":
        return [on(force.name, place, faces, INK)]
    return [Piece(force.name, lambda poses: faces + place.point(poses), INK)]


def turning_arrow(axis: np.ndarray, radius: float, thick: float) -> Faces:
    """A round arrow about an axis through the origin, by the right-hand rule."""
    line = circle(radius, -0.3 * np.pi, 1.1 * np.pi)
    tip = circle(radius, 1.1 * np.pi, 1.35 * np.pi, 2)
    head = revolved(np.array([0.0, 3.0, 0.0]) * thick, np.array([0.0, 0.0, 7.0]) * thick, 12)
    head = head @ facing(tip[1] - tip[0]).T + tip[0]
    return joined(tube(line, thick), head) @ facing(axis).T
