"""The pieces of parts in the plane: lines and filled outlines."""

from collections.abc import Callable
from types import UnionType
from typing import Any

import numpy as np

from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.mechanism.named_coordinates import CouplingConstraint, PositionDriverConstraint, SpeedDriverConstraint
from jaxmbd.planar import (
    Bushing,
    CubicSpring,
    Differential,
    FixedConstraint,
    Gear,
    GearMesh,
    JointSpringDamper,
    PinInSlot,
    PlaneContact,
    PlanetaryGear,
    PointConstraint,
    Prismatic,
    Revolute,
    Rod,
    Torque,
    TorsionalSpringDamper,
    Weld,
)
from jaxmbd.scene.gears import PLANETS, PlanetarySizes, axles, pitch_radii
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import Place
from jaxmbd.scene.outlines import (
    arc,
    box,
    dashpot,
    gear_ticks,
    hatched,
    hull,
    moved,
    round_arrow,
    spiral,
    stadium,
    straight,
    support,
    turned,
    zigzag,
)
from jaxmbd.scene.pieces import (
    BODY_LAYER,
    CENTRE_LAYER,
    GREY,
    GROUND_LAYER,
    INK,
    LINK_LAYER,
    PIN_LAYER,
    RUBBER,
    SLIDE_LAYER,
    SPRING_LAYER,
    WHITE,
    Piece,
    body_colour,
    spring_and_damper,
)

# Joints that need a bearing on the ground and cover a centre of mass.
STANDING = Revolute | Rod | PinInSlot | PointConstraint
WELDED = Weld | FixedConstraint
UPSIDE_DOWN = -np.eye(2)
UP = np.array([0.0, 1.0])
_PIN = 0.5  # radius of a pin; this and the next three are in symbol sizes
_BLOCK = (3.6, 2.2)  # length and height of a slider
_SLOT = 0.85  # half the width of a slot
_TOOTH = 1.5  # the circular pitch of a gear's ticks


def body(geometry: Geometry, i: int, is_covered: bool) -> list[Piece]:
    """A bar for two corners, a translucent polygon for more, and the symbol of the centre of mass."""
    name, colour, centre = geometry.mechanism.bodies[i].name, body_colour(i), geometry.centre(i)
    corners, radius, pieces = hull(geometry.corners[i]), 0.45 * geometry.size, list[Piece]()
    if len(corners) == 2:
        pieces.append(Piece(name, centre, corners, colour, layer=BODY_LAYER, width=4.0))
    if len(corners) > 2:
        look = {"fill": colour, "alpha": 0.22, "width": 2.0}
        pieces.append(Piece(name, centre, corners, colour, layer=BODY_LAYER, **look))
    if not is_covered:
        pieces.append(Piece(name, centre, arc(radius), INK, layer=CENTRE_LAYER, fill=WHITE, width=0.8))
        for start in (0.0, np.pi):
            quarter = np.concatenate([np.zeros((1, 2)), arc(radius, start, start + np.pi / 2, 13)])
            pieces.append(Piece(name, centre, quarter, INK, layer=CENTRE_LAYER, fill=INK))
    return pieces


def dot(geometry: Geometry, name: str, place: Place) -> Piece:
    """The point of a sensor."""
    return Piece(name, place, arc(0.32 * geometry.size), INK, layer=PIN_LAYER, fill=INK)


def link(geometry: Geometry, name: str, a: Place, b: Place) -> Piece:
    """A dotted line, for joints without a symbol."""
    return Piece(name, a, straight, GREY, end=b, layer=LINK_LAYER, width=1.0, is_dotted=True)


def segment(geometry: Geometry, name: str, a: Place, b: Place) -> Piece:
    """A part of a flexible body."""
    return Piece(name, a, straight, body_colour(a.body), end=b, layer=BODY_LAYER, width=4.0)


def stand(size: float, place: Place) -> Piece:
    """A bearing on the ground."""
    return Piece("ground", place, size * support(), INK, layer=GROUND_LAYER, width=1.0)


def wall(size: float, place: Place) -> Piece:
    """A hatched wall, perpendicular to the x axis of its place."""
    return Piece("ground", place, turned(size * hatched(-2.0, 2.0), -np.pi / 2), INK, layer=GROUND_LAYER, width=1.0)


# --- joints ---------------------------------------------------------------------------------------------


def _pin(geometry: Geometry, name: str, place: Place) -> Piece:
    return Piece(name, place, arc(_PIN * geometry.size), INK, layer=PIN_LAYER, fill=WHITE, width=1.3)


def _revolute(geometry: Geometry, joint: Revolute | PointConstraint) -> list[Piece]:
    return [_pin(geometry, joint.name, geometry.place(joint.b))]


def _rod(geometry: Geometry, joint: Rod) -> list[Piece]:
    a, b = geometry.place(joint.a), geometry.place(joint.b)
    rod = Piece(joint.name, a, straight, INK, end=b, layer=LINK_LAYER, width=1.3)
    return [rod, _pin(geometry, joint.name, a), _pin(geometry, joint.name, b)]


def _square(geometry: Geometry, joint: Weld | FixedConstraint) -> list[Piece]:
    shape, look = box(1.1 * geometry.size, 1.1 * geometry.size), {"fill": INK, "width": 1.0}
    return [Piece(joint.name, geometry.place(joint.b), shape, INK, layer=PIN_LAYER, **look)]


def _edge(geometry: Geometry, name: str, place: Place, low: float, high: float, depth: float) -> Piece:
    """The hatched edge of the ground below the x axis of a place; above it if the axis points to the left."""
    shape = moved(geometry.size * hatched(low / geometry.size, high / geometry.size), y=-depth)
    shape = shape * np.array([1.0, 1.0 if place.rotation[0, 0] >= -1e-9 else -1.0])
    return Piece(name, place, shape, INK, layer=GROUND_LAYER, width=1.0)


def _slider(geometry: Geometry, joint: Prismatic) -> list[Piece]:
    a, b, size, name = geometry.place(joint.a), geometry.place(joint.b), geometry.size, joint.name
    length, height = _BLOCK[0] * size, _BLOCK[1] * size
    low, high = (float(x[0]) for x in geometry.travel(a, b))
    colour = body_colour(b.body)
    block = Piece(name, b, box(length, height), colour, layer=SLIDE_LAYER, fill=WHITE, width=1.8)
    # The block has a constant distance of zero from the axis, so the guide can be drawn along the edge of the block.
    if a.body < 0:
        reach = 0.5 * length + 1.5 * size
        return [_edge(geometry, name, a, low - reach, high + reach, 0.5 * height), block]
    reach = 0.5 * length + 1.2 * size
    line = np.array([(min(low - reach, 0.0), 0.0), (max(high + reach, 0.0), 0.0)])
    guide = Piece(name, a, line, body_colour(a.body), layer=BODY_LAYER, width=2.5)
    if b.body >= 0:
        return [guide, block]
    foot = moved(size * hatched(-2.4, 2.4), y=-0.5 * height)
    return [guide, block, Piece(name, b, foot, INK, layer=GROUND_LAYER, width=1.0)]


def _slot(geometry: Geometry, joint: PinInSlot) -> list[Piece]:
    a, b, size, name = geometry.place(joint.a), geometry.place(joint.b), geometry.size, joint.name
    low, high = (float(x[0]) for x in geometry.travel(a, b))
    if high - low < size:  # almost no travel: a slot of standard length about its origin
        low, high = min(low, -abs(high)) - 1.5 * size, max(high, abs(low)) + 1.5 * size
    shape = stadium(low - 0.4 * size, high + 0.4 * size, _SLOT * size)
    slot = Piece(name, a, shape, body_colour(a.body), layer=SLIDE_LAYER, fill=WHITE, width=1.6)
    edge = [_edge(geometry, name, a, low - 1.2 * size, high + 1.2 * size, _SLOT * size)] if a.body < 0 else []
    return [*edge, slot, _pin(geometry, name, b)]


# --- gears ----------------------------------------------------------------------------------------------


def _coupling(geometry: Geometry, part: CouplingConstraint) -> list[Piece]:
    """The pitch circles of gears if axles and ratio determine their radii, else broken lines."""
    law, (a, *others) = part.law, axles(geometry, part.law)
    if isinstance(law, PlanetaryGear) and float(law.ratio) > 1.0:
        return _planetary(geometry, law)
    if isinstance(law, Gear) and (wheels := _wheels(geometry, law)):
        return wheels
    cage = [_cage(geometry, part.name, others[-1])] if isinstance(law, Differential) else []
    return [*cage, *(link(geometry, part.name, a, other) for other in others)]


def _mesh(geometry: Geometry, mesh: GearMesh) -> list[Piece]:
    a, b = axles(geometry, mesh)
    return _wheels(geometry, mesh) or [link(geometry, mesh.name, a, b)]


def _wheels(geometry: Geometry, gear: Gear | GearMesh) -> list[Piece]:
    """The two pitch circles of a gear; none if axles and ratio do not determine their radii."""
    a, b = axles(geometry, gear)
    radii = pitch_radii(float(gear.ratio), float(geometry.lengths(a, b)[0]))
    wheels = [] if radii is None else zip((a, b), radii, strict=True)
    return [piece for axle, r in wheels if axle.body >= 0 for piece in _wheel(gear.name, axle, r, geometry.size)]


def _planetary(geometry: Geometry, law: PlanetaryGear) -> list[Piece]:
    """The pitch circles of a planetary set, of the size of a symbol, with three planets on their carrier."""
    (sun, ring, carrier), size = axles(geometry, law), geometry.size
    sizes = PlanetarySizes.of(float(law.ratio), size)
    pieces = [*_wheel(law.name, sun, sizes.sun, size), *_wheel(law.name, ring, sizes.ring, size)]
    colour = body_colour(carrier.body)
    for angle in PLANETS:
        arm = turned(straight(sizes.arm), angle)
        planet, look = arc(sizes.planet) + arm[-1], {"fill": colour, "alpha": 0.15, "width": 1.4}
        pieces.append(Piece(law.name, carrier, planet, colour, layer=LINK_LAYER, **look))
        pieces.append(Piece(law.name, carrier, arm, colour, layer=LINK_LAYER, width=2.0))
    return pieces


def _cage(geometry: Geometry, name: str, carrier: Place) -> Piece:
    """The cage of a differential."""
    shape, look = box(3.6 * geometry.size, 2.6 * geometry.size), {"fill": WHITE, "alpha": 0.6, "width": 1.6}
    return Piece(name, carrier, shape, body_colour(carrier.body), layer=LINK_LAYER, **look)


def _wheel(name: str, axle: Place, radius: float, size: float) -> list[Piece]:
    colour, count = body_colour(axle.body), max(round(2 * np.pi * radius / (_TOOTH * size)), 8)
    circle, look = arc(radius, points=121), {"fill": colour, "alpha": 0.15, "width": 1.8}
    return [
        Piece(name, axle, circle, colour, layer=LINK_LAYER, **look),
        Piece(name, axle, gear_ticks(radius, count, 0.6 * size), colour, layer=LINK_LAYER, width=0.9),
        Piece(name, axle, straight(radius), colour, layer=LINK_LAYER, width=1.2),
    ]


def _driver(geometry: Geometry, drive: PositionDriverConstraint | SpeedDriverConstraint) -> list[Piece]:
    """A round arrow for a driven angle, broken lines for any other quantity."""
    joint, (first, *others) = drive.coordinate.joint, map(geometry.place, drive.markers)
    if joint is None or drive.coordinate.unit(geometry.mechanism.space) != "rad":
        return [link(geometry, drive.name, first, other) for other in others]
    shape, look = geometry.size * round_arrow(2.4, 1.0), {"is_upright": True, "width": 1.3}
    return [Piece(drive.name, others[-1], shape, INK, layer=PIN_LAYER, **look)]


# --- forces ---------------------------------------------------------------------------------------------


def _spring(geometry: Geometry, force: AbstractLineForce) -> list[Piece]:
    """A zigzag line if there is stiffness, beside a piston in a cup if there is damping or an actuator."""
    a, b, size = geometry.place(force.a), geometry.place(force.b), geometry.size
    has_spring, has_damper = spring_and_damper(force)
    coil = _coil(geometry, a, b)
    offset = 1.1 * size if has_spring and has_damper else 0.0

    def spring(length: float) -> np.ndarray:
        return coil(length) if has_spring else straight(length)

    def damper(length: float) -> np.ndarray:
        return dashpot(length, 0.8 * size, 2.6 * size)

    def beside(length: float, shape: Callable[[float], np.ndarray], offset: float) -> np.ndarray:
        """A shape with a sideways offset between short stubs at both ends."""
        stub = min(0.9 * size, 0.15 * length) if offset else 0.0
        inner = moved(shape(length - 2 * stub), stub, offset)
        return np.concatenate([straight(stub), inner, moved(straight(stub), length - stub)]) if offset else inner

    shapes = [(spring, offset)] if has_spring or not has_damper else []
    shapes += [(damper, -offset)] if has_damper else []
    lines = [lambda length, s=shape, y=side: beside(length, s, y) for shape, side in shapes]
    return [Piece(force.name, a, line, INK, end=b, layer=SPRING_LAYER, width=1.1) for line in lines]


def _coil(geometry: Geometry, a: Place, b: Place) -> Callable[[float], np.ndarray]:
    """The zigzag line of a spring between two places, by its length [m]."""
    size = geometry.size
    coils = int(np.clip(np.mean(geometry.lengths(a, b)) / (1.6 * size), 4, 9))
    return lambda length: zigzag(length, coils, 0.8 * size, 1.6 * size)


def _torsional(geometry: Geometry, force: TorsionalSpringDamper) -> list[Piece]:
    return [_spiral(geometry, force.name, geometry.place(force.b))]


def _spiral(geometry: Geometry, name: str, place: Place) -> Piece:
    return Piece(name, place, spiral(2.2 * geometry.size, 2.5), INK, layer=SPRING_LAYER, width=1.1)


def _along_joint(geometry: Geometry, force: JointSpringDamper | CubicSpring) -> list[Piece]:
    """A spiral about a rotation, or a zigzag line between the markers of a translation; none without stiffness."""
    coordinate = geometry.mechanism.coordinate(force.coordinate)
    if float(force.stiffness) == 0.0 or coordinate.joint is None:
        return []
    a, b = (geometry.place(marker) for marker in coordinate.markers)
    if coordinate.unit(geometry.mechanism.space) == "rad":
        return [_spiral(geometry, force.name, b)]
    return [Piece(force.name, a, _coil(geometry, a, b), INK, end=b, layer=SPRING_LAYER, width=1.1)]


def _bushing(geometry: Geometry, force: Bushing) -> list[Piece]:
    shape, look = arc(0.8 * geometry.size), {"fill": RUBBER, "width": 1.0}
    return [Piece(force.name, geometry.place(force.a), shape, INK, layer=PIN_LAYER, **look)]


def _contact(geometry: Geometry, force: PlaneContact) -> list[Piece]:
    """The contacting ball, if it has a radius, and the hatched edge of the plane under its motion."""
    plane, point, radius = geometry.place(force.plane), geometry.place(force.point), float(force.radius)
    size, (low, high) = geometry.size, (float(x[0]) for x in geometry.travel(plane, point))
    margin = max(2.0 * radius, 4.0 * size)
    edge = size * hatched((low - margin) / size, (high + margin) / size)
    pieces = [Piece(force.name, plane, edge, INK, layer=GROUND_LAYER, width=1.0)]
    if radius > 0:
        colour = body_colour(point.body)
        look = {"fill": colour, "alpha": 0.15, "width": 1.8}
        pieces.append(Piece(force.name, point, arc(radius), colour, layer=LINK_LAYER, **look))
    return pieces


def _torque(geometry: Geometry, force: Torque) -> list[Piece]:
    """A round arrow; a torque that may change its sign is drawn as positive."""
    sign = 1.0 if callable(force.torque) else float(np.sign(force.torque))
    shape, look = geometry.size * round_arrow(2.4, sign), {"is_upright": True, "width": 1.3}
    return [Piece(force.name, geometry.place(force.on), shape, INK, layer=PIN_LAYER, **look)]


SYMBOLS: tuple[tuple[type | UnionType, Callable[[Geometry, Any], list[Piece]]], ...] = (
    (Revolute | PointConstraint, _revolute),
    (Rod, _rod),
    (Prismatic, _slider),
    (PinInSlot, _slot),
    (WELDED, _square),
    (CouplingConstraint, _coupling),
    (GearMesh, _mesh),
    (PositionDriverConstraint | SpeedDriverConstraint, _driver),
    (AbstractLineForce, _spring),
    (TorsionalSpringDamper, _torsional),
    (JointSpringDamper | CubicSpring, _along_joint),
    (Bushing, _bushing),
    (PlaneContact, _contact),
    (Torque, _torque),
)
