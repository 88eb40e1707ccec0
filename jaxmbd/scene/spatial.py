"""The pieces of parts in space: surfaces of bars, hulls, balls, cylinders and boxes."""

from collections.abc import Callable
from types import UnionType
from typing import Any

import numpy as np

from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.mechanism.named_coordinates import (
    Coordinate,
    CouplingConstraint,
    PositionDriverConstraint,
    SpeedDriverConstraint,
)
from jaxmbd.scene.gears import PLANETS, PlanetarySizes, axles, pitch_radii
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.looks import looks
from jaxmbd.scene.motion import Place, facing, rotations
from jaxmbd.scene.pieces import DRIVEN, GREY, INK, RUBBER, STAND, STEEL, WHITE, Piece, body_colour, spring_and_damper
from jaxmbd.scene.surfaces import (
    Faces,
    ball,
    bar,
    box,
    circle,
    coil,
    cylinder,
    edges,
    hull_faces,
    joined,
    pyramid,
    rectangle,
    revolved,
    rings,
    rounded_bar,
    tube,
)
from jaxmbd.spatial import (
    Bushing,
    ConstantVelocity,
    CubicSpring,
    Cylindrical,
    Differential,
    FixedConstraint,
    Gear,
    GearMesh,
    JointSpringDamper,
    Planar,
    PlaneContact,
    PlanetaryGear,
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
    Torque,
    Universal,
    Weld,
)

STANDING = Revolute | Spherical | Universal | ConstantVelocity | RevoluteSpherical | Rod | PointConstraint
WELDED = Weld | FixedConstraint
UPSIDE_DOWN = np.diag([1.0, -1.0, -1.0])
UP = np.array([0.0, 0.0, 1.0])
_BAR = 0.40  # radius of a body's bar; this and all lengths here are in symbol sizes
_EDGE = 0.17  # radius of the edges of a hull
_STRUT = 0.10  # radius of the lines from the centre of mass to the markers
_STEP = 1.0  # length of the segments of a bar
_HINGE = (0.78, 2.4)  # radius and length of a hinge
_PIN = (0.26, 3.8)  # radius and length of the pin in a hinge
_SLEEVE = (0.85, 3.2)  # radius and length of a sleeve, half the width and length of a block
_RAIL = 0.3  # radius of the bar on which a sleeve slides
_ROUND_BALL = 0.85
_DASH = 0.7
_COIL = 1.0  # radius of a spring
_WIRE = 0.17  # radius of its wire
_CUP = 0.48  # radius of a damper's cylinder
_SPOKES = 6
_HULL_ALPHA = 0.28
_FLOOR_ALPHA = 0.10
_TOOTH = 0.2  # half the thickness of a wheel's rim
_PARALLEL = 1 - 1e-6  # the cosine from which axes count as parallel


# --- bodies and supports --------------------------------------------------------------------------------


def body(geometry: Geometry, i: int, is_covered: bool) -> list[Piece]:
    """The shapes of the body; without any, a bar, a hull or an equivalent solid, and the mark of the centre of mass:
    black and white octants of a ball.
    """
    name, size, colour = geometry.mechanism.bodies[i].name, geometry.size, body_colour(i)
    centre, corners = geometry.centre(i), geometry.corners[i]
    if own := looks(geometry.mechanism, i):
        return own
    solid = None if i in _wheels(geometry) else geometry.solids[i]  # which would hide the wheel
    pieces = []
    if solid is not None:
        faces = solid.faces()
        middle = faces.mean(axis=1) @ solid.axes
        quarters = np.where(middle[:, 0] * middle[:, 1] > 0, 0.72, 1.0)
        alpha = _HULL_ALPHA if geometry.encloses(i) else 1.0
        pieces.append(Piece(name, centre, faces, colour, alpha=alpha, dark=quarters))
    if i in geometry.discs or (solid is not None and len(corners) == 1):
        return pieces
    if geometry.flat[i] == 0:
        return [*pieces, Piece(name, centre, ball(0.9 * size), colour)]
    if geometry.flat[i] == 1:
        along = np.linalg.svd(corners - corners.mean(axis=0))[2][0]
        start, stop = corners[np.argmin(corners @ along)], corners[np.argmax(corners @ along)]
        pieces.append(Piece(name, centre, bar(start, stop, _BAR * size, _STEP * size), colour))
    else:
        faces = hull_faces(corners, geometry.flat[i])
        arms = [bar(np.zeros(3), corner, _STRUT * size, _STEP * size) for corner in corners if np.any(corner)]
        pieces.append(Piece(name, centre, joined(*(face[None] for face in faces)), colour, alpha=_HULL_ALPHA))
        pieces.append(Piece(name, centre, edges(faces, _EDGE * size, _STEP * size), colour))
        pieces.append(Piece(name, centre, joined(*arms), colour))
    if solid is None and not is_covered:
        faces = ball(0.75 * size)
        octants = np.where(np.prod(np.sign(faces.mean(axis=1) + 1e-12), axis=1) > 0, 1.0, 0.12)
        pieces.append(Piece(name, centre, faces, WHITE, dark=octants))
    return pieces


def dot(geometry: Geometry, name: str, place: Place) -> Piece:
    """The point of a sensor."""
    return Piece(name, place, ball(0.55 * geometry.size, 12), INK)


def segment(geometry: Geometry, name: str, a: Place, b: Place) -> Piece:
    """A part of a flexible body."""
    bar = lambda length: tube(np.outer([0.0, length], UP), 0.3 * geometry.size)  # noqa: E731
    return Piece(name, a, bar, body_colour(a.body), end=b)


def link(geometry: Geometry, name: str, a: Place, b: Place) -> Piece:
    """A dashed line, for joints without a symbol."""

    count = max(round(_mean_length(geometry, a, b) / (2 * _DASH * geometry.size)), 1)

    def dashes(length: float) -> Faces:
        ends = length * (np.arange(2 * count) + 0.25) / (2 * count)
        lines = zip(ends[::2], ends[1::2], strict=True)
        return joined(*(tube(np.outer([s, t], UP), 0.1 * geometry.size, 4) for s, t in lines))

    return Piece(name, a, dashes, GREY, end=b)


def stand(size: float, place: Place) -> Piece:
    """A tapered post on a slab."""
    faces = joined(pyramid(2.0 * size, 1.0 * size, 2.0 * size), box(3.4 * size, 3.4 * size, 0.5 * size))
    faces[-6:, :, 2] -= 2.25 * size
    return Piece("ground", place, faces, STAND)


def wall(size: float, place: Place) -> Piece:
    """A square plate, perpendicular to the z axis of its place."""
    return Piece("ground", place, box(3.0 * size, 3.0 * size, 0.5 * size) - 0.25 * size * UP, STAND)


# --- joints and drivers ---------------------------------------------------------------------------------


def _ball(geometry: Geometry, name: str, place: Place, radius: float = _ROUND_BALL) -> Piece:
    return Piece(name, place, ball(radius * geometry.size), STEEL)


def _hinge(geometry: Geometry, name: str, place: Place, share: float = 1.0) -> list[Piece]:
    """A sleeve, and a pin of which only the ends are visible."""
    size = share * geometry.size
    radius, length = _PIN[0] * size, _PIN[1] * size
    pin = rounded_bar(length, radius, 5) - 0.5 * length * UP
    return [Piece(name, place, cylinder(_HINGE[0] * size, _HINGE[1] * size), STEEL), Piece(name, place, pin, INK)]


def _revolute(geometry: Geometry, joint: Revolute) -> list[Piece]:
    return _hinge(geometry, joint.name, geometry.place(joint.b))


def _spherical(geometry: Geometry, joint: Spherical | PointConstraint) -> list[Piece]:
    return [_ball(geometry, joint.name, geometry.place(joint.b))]


def _cube(geometry: Geometry, joint: Weld | FixedConstraint) -> list[Piece]:
    side = 1.3 * geometry.size
    return [Piece(joint.name, geometry.place(joint.b), box(side, side, side), INK)]


def _cross(geometry: Geometry, joint: Universal) -> list[Piece]:
    """A bar along x of the first marker and one along y of the second, with their bearings."""
    size, pieces = geometry.size, []
    for marker, axis in zip((joint.a, joint.b), np.eye(3), strict=False):
        tips, place = [side * 1.5 * size * axis for side in (-1, 1)], geometry.place(marker)
        pieces.append(Piece(joint.name, place, bar(tips[0], tips[1], 0.28 * size, 0.5 * size), INK))
        pieces.append(Piece(joint.name, place, joined(*(ball(0.55 * size, 12) + tip for tip in tips)), STEEL))
    return pieces


def _homokinetic(geometry: Geometry, joint: ConstantVelocity) -> list[Piece]:
    """A ball with a ring about each shaft."""
    ring = tube(circle(1.0 * geometry.size), 0.16 * geometry.size)
    rings = [Piece(joint.name, geometry.place(marker), ring, INK) for marker in joint.markers]
    return [_ball(geometry, joint.name, geometry.place(joint.b)), *rings]


def _slide(geometry: Geometry, joint: Prismatic | Cylindrical | Screw | PointOnLine) -> list[Piece]:
    """A block, sleeve, nut or ball on a rail along z of the first marker; the rail is as long as the travel."""
    a, b, size, name = geometry.place(joint.a), geometry.place(joint.b), geometry.size, joint.name
    width, length = _SLEEVE[0] * size, _SLEEVE[1] * size
    low, high = (float(x[2]) for x in geometry.travel(a, b))
    reach = 0.5 * length + 1.5 * size
    start, stop = min(low - reach, 0.0), max(high + reach, 0.0)
    pieces = [Piece(name, a, bar(start * UP, stop * UP, _RAIL * size, _STEP * size), body_colour(a.body))]
    if a.body < 0:
        blocks = [box(1.6 * size, 1.6 * size, 0.7 * size) + z * UP for z in (start, stop)]
        pieces.append(Piece("ground", a, joined(*blocks), STAND))
    if isinstance(joint, Screw):
        pitch = max(abs(float(joint.lead)), 0.7 * size)
        thread = coil(1.25 * _RAIL * size, 0.13 * size, stop - start, (stop - start) / pitch, sides=4) + start * UP
        pieces.append(Piece(name, a, thread, INK))
    if isinstance(joint, PointOnLine):
        return [*pieces, _ball(geometry, name, b)]
    shape = box(2 * width, 2 * width, length) if isinstance(joint, Prismatic) else cylinder(width, length, 20)
    shape = cylinder(1.15 * width, 0.6 * length, 6) if isinstance(joint, Screw) else shape
    return [*pieces, Piece(name, b, shape, STEEL)]


def _glide(geometry: Geometry, joint: Planar | PointOnPlane) -> list[Piece]:
    """A puck or a ball on a patch of the first marker's plane; the patch is as large as the travel."""
    b, size = geometry.place(joint.b), geometry.size
    puck = Piece(joint.name, b, cylinder(1.3 * size, 0.7 * size), STEEL)
    rider = puck if isinstance(joint, Planar) else _ball(geometry, joint.name, b)
    return [_patch(geometry, joint.name, geometry.place(joint.a), b, 5.0 * size), rider]


def _patch(geometry: Geometry, name: str, plane: Place, rider: Place, margin: float) -> Piece:
    """A translucent rectangle in a place's xy plane, under all positions of another over the motion."""
    low, high = geometry.travel(plane, rider)
    alpha = _FLOOR_ALPHA if plane.body < 0 else 2 * _FLOOR_ALPHA
    faces = rectangle(low[:2] - margin, high[:2] + margin)
    return Piece(name, plane, faces, body_colour(plane.body), alpha=alpha, is_floor=plane.body < 0)


def _rod(geometry: Geometry, joint: Rod | RevoluteSpherical) -> list[Piece]:
    a, b, size, name = geometry.place(joint.a), geometry.place(joint.b), geometry.size, joint.name
    segments = rings(_mean_length(geometry, a, b), _STEP * size)
    rod = Piece(name, a, lambda length: rounded_bar(length, 0.24 * size, segments), INK, end=b)
    first = [_ball(geometry, name, a, 0.6)] if isinstance(joint, Rod) else _hinge(geometry, name, a, 0.8)
    return [rod, *first, _ball(geometry, name, b, 0.6)]


def _wheel(geometry: Geometry, joint: RollingDisc) -> list[Piece]:
    """A rim with spokes on the second marker, on a patch of the first one's plane."""
    b, size, radius = geometry.place(joint.b), geometry.size, float(joint.radius)
    colour, name = body_colour(b.body), joint.b.body
    thick = min(0.45 * size, 0.12 * radius)
    rim = tube(circle(radius - thick, points=49), thick, 8)
    angles = 2 * np.pi * np.arange(_SPOKES) / _SPOKES
    ends = [(radius - thick) * np.array([np.cos(x), np.sin(x), 0.0]) for x in angles]
    spokes = joined(*(bar(np.zeros(3), end, 0.45 * thick, _STEP * size) for end in ends))
    wheel = [Piece(name, b, rim, colour), Piece(name, b, spokes, colour)]
    hub = Piece(name, b, cylinder(1.6 * thick, 4.0 * thick), STEEL)
    return [_patch(geometry, joint.name, geometry.place(joint.a), b, 1.3 * radius), *wheel, hub]


def _drive(geometry: Geometry, drive: PositionDriverConstraint | SpeedDriverConstraint) -> list[Piece]:
    """A driver, in its own colour: an arrow about the axis of a rotation, or a collar for a translation."""
    coordinate, size, name = drive.coordinate, geometry.size, drive.name
    place = geometry.place(drive.markers[-1])
    if not isinstance(coordinate, Coordinate) or coordinate.joint is None:  # a tendon's length, a body's place
        return [Piece(name, place, ball(1.0 * size), DRIVEN)]
    joint, index = coordinate.joint, coordinate.index
    if joint.coordinate_units[index] != "rad":
        return [Piece(name, place, cylinder(1.35 * size, 0.9 * size), DRIVEN)]
    axis = np.eye(3)[{"angle_a": 0, "angle_b": 1}.get(joint.coordinate_names[index], 2)]
    place = geometry.place(drive.markers[0]) if joint.coordinate_names[index] == "angle_a" else place
    ring = Piece(name, place, _turning_arrow(axis, 2.0 * size, 0.24 * size), DRIVEN)
    if not isinstance(joint, Revolute):
        return [ring]
    return [Piece(name, place, cylinder(1.06 * _HINGE[0] * size, 0.6 * _HINGE[1] * size), DRIVEN), ring]


# --- gears ----------------------------------------------------------------------------------------------


def _coupling(geometry: Geometry, part: CouplingConstraint) -> list[Piece]:
    """Wheels if axles and ratio determine their radii; nothing for other couplings."""
    law = part.law
    if isinstance(law, PlanetaryGear | Differential):
        return _train(geometry, law)
    return _gear(geometry, law) if isinstance(law, Gear) else []


def _train(geometry: Geometry, law: PlanetaryGear | Differential) -> list[Piece]:
    """A planetary set or the cage of a differential, between hinges."""
    if not all(isinstance(geometry.mechanism.coordinate(name).joint, Revolute) for name in law.coordinates):
        return []
    if isinstance(law, Differential):
        side, cage = 3.0 * geometry.size, axles(geometry, law)[-1]
        return [Piece(law.name, cage, box(side, side, side), body_colour(cage.body), alpha=_HULL_ALPHA)]
    return _planetary(geometry, law) if float(law.ratio) > 1.0 else []


def _wheels(geometry: Geometry) -> set[int]:
    """The bodies on which wheels of gears are drawn."""
    found = list[Piece]()
    for joint in geometry.mechanism.joints:
        if isinstance(joint, Gear | GearMesh):
            found += _gear(geometry, joint)
        elif isinstance(joint, PlanetaryGear | Differential):
            found += _train(geometry, joint)
    return {piece.place.body for piece in found}


def _gear(geometry: Geometry, gear: Gear | GearMesh) -> list[Piece]:
    """The wheels of a gear between hinges at a distance whose axes are parallel."""
    if not all(isinstance(geometry.mechanism.coordinate(name).joint, Revolute) for name in (gear.a, gear.b)):
        return []
    a, b = axles(geometry, gear)
    (along, other), apart = (x.axes(geometry.motion)[0, :, 2] for x in (a, b)), _apart(geometry, a, b)
    alike = float(along @ other)
    if abs(alike) < _PARALLEL:
        return []
    radii = pitch_radii(float(gear.ratio) * alike, float(np.linalg.norm(np.cross(along, apart))))
    wheels = [] if radii is None else zip((a, b), radii, strict=True)
    return [_pitch_circle(geometry, gear.name, axle, radius) for axle, radius in wheels if axle.body >= 0]


def _apart(geometry: Geometry, a: Place, b: Place) -> np.ndarray:
    """The position of one place from another at the start."""
    return b.point(geometry.motion)[0] - a.point(geometry.motion)[0]


def _planetary(geometry: Geometry, law: PlanetaryGear) -> list[Piece]:
    """The wheels of a planetary set, of the size of a symbol, with three planets on their carrier."""
    (sun, ring, carrier), size = axles(geometry, law), geometry.size
    sizes = PlanetarySizes.of(float(law.ratio), size)
    turns = [np.array([np.cos(x), np.sin(x), 0.0]) for x in PLANETS]
    arms = joined(*(bar(np.zeros(3), sizes.arm * turn, _STRUT * size, _STEP * size) for turn in turns))
    rim = circle(sizes.planet - _TOOTH * size, points=25)
    planets = joined(*(tube(rim + sizes.arm * turn, _TOOTH * size) for turn in turns))
    colour = body_colour(carrier.body)
    wheels = [_pitch_circle(geometry, law.name, x, r) for x, r in ((sun, sizes.sun), (ring, sizes.ring))]
    return [*wheels, Piece(law.name, carrier, arms, colour), Piece(law.name, carrier, planets, colour)]


def _pitch_circle(geometry: Geometry, name: str, axle: Place, radius: float) -> Piece:
    """A rim with teeth outside of it, and a spoke that shows how it is turned."""
    thick = min(_TOOTH * geometry.size, 0.2 * radius)
    rim = tube(circle(radius - thick, points=49), thick)
    count = max(round(2 * np.pi * radius / (6 * thick)), 8)
    teeth = [box(2 * thick, 1.5 * thick, 2 * thick) + radius * np.eye(3)[0] for _ in range(count)]
    around = rotations(np.linspace(0.0, 2 * np.pi, count, endpoint=False)[:, None])
    teeth = [np.concatenate([x[..., :2] @ R.T, x[..., 2:]], axis=-1) for x, R in zip(teeth, around, strict=True)]
    spoke = bar(np.zeros(3), (radius - thick) * np.eye(3)[0], 0.5 * thick, _STEP * geometry.size)
    return Piece(name, axle, joined(rim, *teeth, spoke), body_colour(axle.body))


# --- forces ---------------------------------------------------------------------------------------------


def _spring(geometry: Geometry, force: AbstractLineForce) -> list[Piece]:
    """A helix if there is stiffness, around a piston in a cylinder if there is damping or an actuator."""
    a, b = geometry.place(force.a), geometry.place(force.b)
    has_spring, has_damper = spring_and_damper(force)
    pieces = [_coil(geometry, force.name, a, b)] if has_spring or not has_damper else []
    if has_damper:
        pieces.append(_piston(geometry, force.name, a, b))
    return pieces


def _along_joint(geometry: Geometry, force: JointSpringDamper | CubicSpring) -> list[Piece]:
    """A coil about the axis of a rotation, or between the markers of a translation; none without stiffness."""
    coordinate, size = geometry.mechanism.coordinate(force.coordinate), geometry.size
    if float(force.stiffness) == 0.0 or coordinate.joint is None:
        return []
    a, b = (geometry.place(marker) for marker in coordinate.markers)
    if coordinate.unit(geometry.mechanism.space) == "rad":
        return [Piece(force.name, b, coil(1.25 * size, _WIRE * size, 2.0 * size, 3.0) - size * UP, INK)]
    return [_coil(geometry, force.name, a, b)]


def _coil(geometry: Geometry, name: str, a: Place, b: Place) -> Piece:
    size = geometry.size
    turns = int(np.clip(_mean_length(geometry, a, b) / (1.3 * size), 5, 14))

    def spring(length: float) -> Faces:
        lead = min(1.2 * size, 0.15 * length)
        return coil(_COIL * size, _WIRE * size, length, turns, max(lead, 1e-9 * size))

    return Piece(name, a, spring, INK, end=b)


def _piston(geometry: Geometry, name: str, a: Place, b: Place) -> Piece:
    """A cylinder with a rod; the cylinder is short enough for the shortest length."""
    size, shortest = geometry.size, float(geometry.lengths(a, b).min())
    segments = rings(_mean_length(geometry, a, b), 2.0 * size)

    def piston(length: float) -> Faces:
        cup = min(0.65 * shortest, length) if shortest > 0.5 * size else 0.6 * length
        heights = np.array([0.1, 0.1, *np.linspace(0.1, 1.0, 6), 1.0]) * cup
        radii = _CUP * size * np.array([0.0, *[1.0] * 7, 0.0])
        return joined(revolved(radii, heights, 12), rounded_bar(length, 0.2 * size, segments, 8))

    return Piece(name, a, piston, STEEL, end=b)


def _mean_length(geometry: Geometry, a: Place, b: Place) -> float:
    return float(np.mean(geometry.lengths(a, b)))


def _bushing(geometry: Geometry, force: Bushing) -> list[Piece]:
    return [Piece(force.name, geometry.place(force.a), cylinder(geometry.size, 1.4 * geometry.size), RUBBER)]


def _contact(geometry: Geometry, force: PlaneContact) -> list[Piece]:
    """The contacting ball, if it has a radius, and a patch of the plane under its motion."""
    plane, point, radius = geometry.place(force.plane), geometry.place(force.point), float(force.radius)
    low, high = geometry.travel(plane, point)
    margin = max(2.0 * radius, 4.0 * geometry.size)
    faces = rectangle(low[:2] - margin, high[:2] + margin)
    pieces = [Piece(force.name, plane, faces, INK, alpha=_FLOOR_ALPHA, is_floor=plane.body < 0)]
    is_centre = point.frame == point.body and np.linalg.norm(point.offset) <= 0.1 * radius  # where the body itself is
    if radius > 0 and not is_centre:
        pieces.append(Piece(force.name, point, ball(radius), body_colour(point.body), alpha=0.35))
    return pieces


def _torque(geometry: Geometry, force: Torque) -> list[Piece]:
    """A round arrow about the torque vector if it is constant, else about the marker's z axis."""
    axis = UP if callable(force.torque) else np.asarray(force.torque, dtype=float)
    if not np.any(axis):
        return []
    faces = _turning_arrow(axis, 2.0 * geometry.size, 0.2 * geometry.size)
    is_fixed = not callable(force.torque) and force.frame != "body"
    return [Piece(force.name, geometry.place(force.on), faces, INK, is_upright=is_fixed)]


def _turning_arrow(axis: np.ndarray, radius: float, thick: float) -> Faces:
    """A round arrow about an axis through the origin, by the right-hand rule."""
    line = circle(radius, -0.3 * np.pi, 1.1 * np.pi)
    tip = circle(radius, 1.1 * np.pi, 1.35 * np.pi, 2)
    head = revolved(np.array([0.0, 3.0, 0.0]) * thick, np.array([0.0, 0.0, 7.0]) * thick, 12)
    head = head @ facing(tip[1] - tip[0]).T + tip[0]
    return joined(tube(line, thick), head) @ facing(axis).T


SYMBOLS: tuple[tuple[type | UnionType, Callable[[Geometry, Any], list[Piece]]], ...] = (
    (Revolute, _revolute),
    (Spherical | PointConstraint, _spherical),
    (Universal, _cross),
    (ConstantVelocity, _homokinetic),
    (Prismatic | Cylindrical | Screw | PointOnLine, _slide),
    (Planar | PointOnPlane, _glide),
    (Rod | RevoluteSpherical, _rod),
    (WELDED, _cube),
    (RollingDisc, _wheel),
    (PositionDriverConstraint | SpeedDriverConstraint, _drive),
    (CouplingConstraint, _coupling),
    (GearMesh, _gear),
    (AbstractLineForce, _spring),
    (JointSpringDamper | CubicSpring, _along_joint),
    (Bushing, _bushing),
    (PlaneContact, _contact),
    (Torque, _torque),
)
