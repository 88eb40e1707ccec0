"""The symbols of joints, drivers and forces in space."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.joint_coordinates import CouplingConstraint, PositionDriverConstraint, SpeedDriverConstraint
from jaxmbd.plot._space_bodies import STEP
from jaxmbd.plot._space_forces import along_joint, bushing, contact, spring, torque, turning_arrow
from jaxmbd.plot._space_pieces import FLOOR_ALPHA, STAND, STEEL, Piece, bar, between, dashes, on
from jaxmbd.plot._space_scene import SpacePlace, SpaceScene
from jaxmbd.plot._space_solids import Faces, ball, box, circle, cylinder, helix, joined, rectangle, rounded_bar, tube
from jaxmbd.plot._style import DRIVEN, INK
from jaxmbd.spatial import (
    Bushing,
    ConstantVelocity,
    Cylindrical,
    FixedConstraint,
    JointSpringDamper,
    Planar,
    PlaneContact,
    PointConstraint,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    RevoluteSpherical,
    Rod,
    RollingDisc,
    Screw,
    Spherical,
    SpringDamper,
    Torque,
    Universal,
    Weld,
)

_HINGE = (0.78, 2.4)  # radius and length of a hinge; this and all lengths here are in symbol sizes
_PIN = (0.26, 3.8)  # radius and length of the pin in a hinge
_SLEEVE = (0.85, 3.2)  # radius and length of a sleeve, half the width and length of a block
_RAIL = 0.3  # radius of the bar on which a sleeve slides
_ROUND_BALL = 0.85
_SPOKES = 6


def symbol(scene: SpaceScene, part: Any) -> Iterable[Piece]:
    """The pieces of a joint, driver or force; none for parts without a position, such as gravity."""
    match part:
        case Revolute():
            return _hinge(scene, part.name, scene.place(part.b))
        case Spherical() | PointConstraint():
            return [_ball(scene, part.name, scene.place(part.b))]
        case Universal():
            return _cross(scene, part)
        case ConstantVelocity():
            return _homokinetic(scene, part)
        case Prismatic() | Cylindrical() | Screw() | PointOnLine():
            return _slide(scene, part)
        case Planar() | PointOnPlane():
            return _glide(scene, part)
        case Rod() | RevoluteSpherical():
            return _rod(scene, part)
        case Weld() | FixedConstraint():
            side = 1.3 * scene.size
            return [on(part.name, scene.place(part.b), box(side, side, side), INK)]
        case RollingDisc():
            return _wheel(scene, part)
        case PositionDriverConstraint() | SpeedDriverConstraint():
            return _drive(scene, part)
        case CouplingConstraint():
            return []
        case SpringDamper():
            return spring(scene, part)
        case Bushing():
            return bushing(scene, part)
        case PlaneContact():
            return contact(scene, part)
        case Torque():
            return torque(scene, part)
        case JointSpringDamper():
            return along_joint(scene, part)
        case AbstractJoint():
            return _links(scene, part)
        case _:
            return []


def _links(scene: SpaceScene, joint: AbstractJoint) -> list[Piece]:
    """Dashed lines from the first marker of a joint to the others."""
    first, *others = (scene.place(marker) for marker in joint.markers)
    return [dashes(joint.name, first, other, scene.size) for other in others]


def _ball(scene: SpaceScene, name: str, place: SpacePlace, radius: float = _ROUND_BALL) -> Piece:
    return on(name, place, ball(radius * scene.size), STEEL)


def _hinge(scene: SpaceScene, name: str, place: SpacePlace, share: float = 1.0) -> list[Piece]:
    size = share * scene.size
    sleeve = cylinder(_HINGE[0] * size, _HINGE[1] * size)
    return [on(name, place, sleeve, STEEL), on(name, place, _pin(size), INK)]


def _pin(size: float) -> Faces:
    """The pin of a hinge, of which only the ends are visible."""
    radius, length = _PIN[0] * size, _PIN[1] * size
    return rounded_bar(length, radius, length / 5) - np.array([0.0, 0.0, length / 2])


def _cross(scene: SpaceScene, joint: Universal) -> list[Piece]:
    """A bar along x of the first marker and one along y of the second, with their bearings."""
    a, b, size = scene.place(joint.a), scene.place(joint.b), scene.size
    pieces = []
    for place, axis in ((a, np.array([1.0, 0.0, 0.0])), (b, np.array([0.0, 1.0, 0.0]))):
        tips = [side * 1.5 * size * axis for side in (-1, 1)]
        pieces.append(on(joint.name, place, bar(tips[0], tips[1], 0.28 * size, 0.5 * size), INK))
        pieces.append(on(joint.name, place, joined(*(ball(0.55 * size, 12) + tip for tip in tips)), STEEL))
    return pieces


def _homokinetic(scene: SpaceScene, joint: ConstantVelocity) -> list[Piece]:
    """A ball with a ring about each shaft."""
    ring = tube(circle(1.0 * scene.size), 0.16 * scene.size)
    rings = [on(joint.name, scene.place(marker), ring, INK) for marker in joint.markers]
    return [_ball(scene, joint.name, scene.place(joint.b)), *rings]


def _slide(scene: SpaceScene, joint: Any) -> list[Piece]:
    """A block, sleeve, nut or ball on a rail along z of the first marker; the rail is as long as the travel."""
    a, b, size, name = scene.place(joint.a), scene.place(joint.b), scene.size, joint.name
    width, length = _SLEEVE[0] * size, _SLEEVE[1] * size
    low, high = (float(x[2]) for x in scene.travel(a, b))
    reach = 0.5 * length + 1.5 * size
    start, stop = min(low - reach, 0.0), max(high + reach, 0.0)
    rail = _between(start, stop, _RAIL * size, size)
    pieces = [on(name, a, rail, INK if a.body < 0 else scene.colour(a.body))]
    if a.body < 0:
        blocks = [box(1.6 * size, 1.6 * size, 0.7 * size) + np.array([0.0, 0.0, z]) for z in (start, stop)]
        pieces.append(on("ground", a, joined(*blocks), STAND))
    if isinstance(joint, Screw):
        pitch = max(abs(float(joint.lead)), 0.7 * size)
        thread = helix(1.25 * _RAIL * size, stop - start, (stop - start) / pitch) + np.array([0.0, 0.0, start])
        pieces.append(on(name, a, tube(thread, 0.13 * size, 4), INK))
    if isinstance(joint, PointOnLine):
        return [*pieces, _ball(scene, name, b)]
    edge = 2 * width
    shape = box(edge, edge, length) if isinstance(joint, Prismatic) else cylinder(width, length, 20)
    shape = cylinder(1.15 * width, 0.6 * length, 6) if isinstance(joint, Screw) else shape
    return [*pieces, on(name, b, shape, STEEL)]


def _between(start: float, stop: float, radius: float, size: float) -> Faces:
    """A round bar along z."""
    return bar(np.array([0.0, 0.0, start]), np.array([0.0, 0.0, stop]), radius, STEP * size)


def _glide(scene: SpaceScene, joint: Planar | PointOnPlane) -> list[Piece]:
    """A puck or a ball on a patch of the first marker's plane; the patch is as large as the travel."""
    b, size = scene.place(joint.b), scene.size
    puck = cylinder(1.3 * size, 0.7 * size)
    rider = on(joint.name, b, puck, STEEL) if isinstance(joint, Planar) else _ball(scene, joint.name, b)
    return [patch(scene, joint.name, scene.place(joint.a), b, 5.0 * size), rider]


def patch(scene: SpaceScene, part: str, plane: SpacePlace, rider: SpacePlace, margin: float) -> Piece:
    """A translucent rectangle in a marker's xy plane, under all positions of another marker over the motion."""
    low, high = scene.travel(plane, rider)
    faces = rectangle(low[:2] - margin, high[:2] + margin)
    if plane.body < 0:
        return on(part, plane, faces, INK, alpha=FLOOR_ALPHA, floor=True)
    return on(part, plane, faces, scene.colour(plane.body), alpha=2 * FLOOR_ALPHA)


def _rod(scene: SpaceScene, joint: Rod | RevoluteSpherical) -> list[Piece]:
    a, b, size = scene.place(joint.a), scene.place(joint.b), scene.size
    rod = between(joint.name, a, b, lambda length: rounded_bar(length, 0.24 * size, STEP * size), INK)
    first = [_ball(scene, joint.name, a, 0.6)] if isinstance(joint, Rod) else _hinge(scene, joint.name, a, 0.8)
    return [rod, *first, _ball(scene, joint.name, b, 0.6)]


def _wheel(scene: SpaceScene, joint: RollingDisc) -> list[Piece]:
    """A rim with spokes on the second marker, on a patch of the first one's plane."""
    b, size, radius = scene.place(joint.b), scene.size, float(joint.radius)
    colour = scene.colour(b.body)
    thick = min(0.45 * size, 0.12 * radius)
    rim = tube(circle(radius - thick, points=49), thick, 8)
    angles = 2 * np.pi * np.arange(_SPOKES) / _SPOKES
    ends = [(radius - thick) * np.array([np.cos(x), np.sin(x), 0.0]) for x in angles]
    spokes = joined(*(bar(np.zeros(3), end, 0.45 * thick, STEP * size) for end in ends))
    hub = cylinder(1.6 * thick, 4.0 * thick)
    name = scene.mechanism.bodies[b.body].name if b.body >= 0 else "ground"
    wheel = [on(name, b, rim, colour), on(name, b, spokes, colour), on(name, b, hub, STEEL)]
    return [patch(scene, joint.name, scene.place(joint.a), b, 1.3 * radius), *wheel]


def _drive(scene: SpaceScene, drive: PositionDriverConstraint | SpeedDriverConstraint) -> list[Piece]:
    """A driver, in its own colour: an arrow about the axis of a rotation, or a collar for a translation."""
    joint, index, place = drive.coordinate.joint, drive.coordinate.index, scene.place(drive.markers[-1])
    size = scene.size
    if joint is None:
        return [on(drive.name, place, ball(1.0 * size), DRIVEN)]
    if joint.coordinate_units[index] != "rad":
        return [on(drive.name, place, cylinder(1.35 * size, 0.9 * size), DRIVEN)]
    axis = np.eye(3)[{"angle_a": 0, "angle_b": 1}.get(joint.coordinate_names[index], 2)]
    place = scene.place(drive.markers[0]) if joint.coordinate_names[index] == "angle_a" else place
    ring = on(drive.name, place, turning_arrow(axis, 2.0 * size, 0.24 * size), DRIVEN)
    if not isinstance(joint, Revolute):
        return [ring]
    return [on(drive.name, place, cylinder(1.06 * _HINGE[0] * size, 0.6 * _HINGE[1] * size), DRIVEN), ring]
