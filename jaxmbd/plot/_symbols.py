"""The symbols of joints, drivers and forces in the plane."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba

from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.joint_coordinates import CouplingConstraint, PositionDriverConstraint
from jaxmbd.planar import Gear, PinInSlot, Prismatic, Revolute, Rod, SpringDamper, Torque, TorsionalSpringDamper, Weld
from jaxmbd.plot._scene import Place, Scene
from jaxmbd.plot._shapes import (
    Points,
    arc,
    box,
    dashpot,
    gear_ticks,
    hatched,
    moved,
    round_arrow,
    spiral,
    stadium,
    turned,
    zigzag,
)
from jaxmbd.plot._strokes import (
    BODY_LAYER,
    GROUND_LAYER,
    LINK_LAYER,
    PIN_LAYER,
    SLIDE_LAYER,
    SPRING_LAYER,
    Stroke,
    between,
    link,
    links,
    on,
    pin,
)
from jaxmbd.plot._style import INK
from jaxmbd.space.planar import PLANAR

_BLOCK = (3.6, 2.2)  # length and height of a slider; this and the next two are in symbol sizes
_SLOT = 0.85  # half the width of a slot
_TOOTH = 1.5  # the circular pitch of a gear's ticks
_SAME_RADIUS = 1e-3  # |1 - ratio| below which the wheels of an internal pair have no finite radii


def symbol(scene: Scene, part: Any) -> Iterable[Stroke]:
    """The strokes of a joint, driver or force; none for parts without a position, such as gravity."""
    match part:
        case Revolute():
            return [pin(scene, scene.place(part.b))]
        case Rod():
            return _rod(scene, part)
        case Prismatic():
            return _slider(scene, part)
        case PinInSlot():
            return _slot(scene, part)
        case Weld():
            shape = box(1.1 * scene.size, 1.1 * scene.size)
            return [on(scene.place(part.b), shape, PIN_LAYER, filled=True, facecolor=INK, edgecolor=INK)]
        case CouplingConstraint():
            return _gear(scene, part, part.law) if isinstance(part.law, Gear) else links(scene, part)
        case AbstractJoint():
            return links(scene, part)
        case SpringDamper():
            return _spring(scene, part)
        case TorsionalSpringDamper():
            shape = spiral(2.2 * scene.size, 2.5)
            return [on(scene.place(part.b), shape, SPRING_LAYER, color=INK, linewidth=1.1)]
        case Torque():
            sign = 1.0 if callable(part.torque) else float(np.sign(part.torque))
            return [_round_arrow(scene, scene.place(part.on), sign)]
        case PositionDriverConstraint() if _turns(part):
            return [_round_arrow(scene, scene.place(part.markers[-1]), 1.0)]
        case _:
            return []


def _rod(scene: Scene, joint: Rod) -> list[Stroke]:
    a, b = scene.place(joint.a), scene.place(joint.b)
    return [between(a, b, LINK_LAYER, color=INK, linewidth=1.3), pin(scene, a), pin(scene, b)]


def _slider(scene: Scene, joint: Prismatic) -> list[Stroke]:
    a, b, size = scene.place(joint.a), scene.place(joint.b), scene.size
    length, height = _BLOCK[0] * size, _BLOCK[1] * size
    low, high = scene.travel(a, b)
    block = on(
        b,
        box(length, height),
        SLIDE_LAYER,
        filled=True,
        facecolor=to_rgba("white"),
        edgecolor=scene.colour(b.body),
        linewidth=1.8,
    )
    # The block has a constant distance of zero from the axis, so the guide can be drawn along the edge of the block.
    if a.body < 0:
        reach = 0.5 * length + 1.5 * size
        edge = size * hatched((low - reach) / size, (high + reach) / size)
        flip = 1.0 if np.cos(a.angle) >= -1e-9 else -1.0
        guide = on(a, moved(edge, y=-0.5 * height) * np.array([1.0, flip]), GROUND_LAYER, color=INK, linewidth=1.0)
        return [guide, block]
    reach = 0.5 * length + 1.2 * size
    line = np.array([(min(low - reach, 0.0), 0.0), (max(high + reach, 0.0), 0.0)])
    guide = on(a, line, BODY_LAYER, color=scene.colour(a.body), linewidth=2.5, solid_capstyle="round")
    return [guide, block, *([_foot(scene, b, height)] if b.body < 0 else [])]


def _foot(scene: Scene, block: Place, height: float) -> Stroke:
    """The hatched edge under a block that is fixed to the ground."""
    edge = moved(scene.size * hatched(-2.4, 2.4), y=-0.5 * height)
    return on(block, edge, GROUND_LAYER, color=INK, linewidth=1.0)


def _slot(scene: Scene, joint: PinInSlot) -> list[Stroke]:
    a, b, size = scene.place(joint.a), scene.place(joint.b), scene.size
    low, high = scene.travel(a, b)
    if high - low < size:  # almost no travel: a slot of standard length about its origin
        low, high = min(low, -abs(high)) - 1.5 * size, max(high, abs(low)) + 1.5 * size
    shape = stadium(low - 0.4 * size, high + 0.4 * size, _SLOT * size)
    colour = scene.colour(a.body)
    slot = on(a, shape, SLIDE_LAYER, filled=True, facecolor="white", edgecolor=colour, linewidth=1.6)
    if a.body >= 0:
        return [slot, pin(scene, b)]
    edge = moved(size * hatched(low / size - 1.2, high / size + 1.2), y=-_SLOT * size)
    flip = 1.0 if np.cos(a.angle) >= -1e-9 else -1.0
    return [on(a, edge * np.array([1.0, flip]), GROUND_LAYER, color=INK, linewidth=1.0), slot, pin(scene, b)]


# --- gears ----------------------------------------------------------------------------------------------


def _gear(scene: Scene, part: CouplingConstraint, law: Gear) -> list[Stroke]:
    """The two pitch circles if the axles and the ratio determine their radii, else a dotted line."""
    a, b = (scene.place(coordinate.markers[-1]) for coordinate in part.coordinates)
    radii = pitch_radii(float(law.ratio), _distance(scene, a, b))
    if radii is None:
        return [link(a, b)]
    drawn = [_wheel(scene, wheel, radius) for wheel, radius in zip((a, b), radii, strict=True) if wheel.body >= 0]
    return [stroke for wheel in drawn for stroke in wheel]


def pitch_radii(ratio: float, distance: float) -> tuple[float, float] | None:
    """Radii [m] of the pitch circles, `r_a / r_b = |ratio|`; None if there are none.

    The pair is external for a negative ratio, internal for a positive one.
    """
    share = 1 + abs(ratio) if ratio < 0 else abs(1 - ratio)
    if ratio == 0 or distance <= 0 or share < _SAME_RADIUS:
        return None
    radius = distance / share
    return abs(ratio) * radius, radius


def _distance(scene: Scene, a: Place, b: Place) -> float:
    return float(np.linalg.norm(a.point(scene.motion[0]) - b.point(scene.motion[0])))


def _wheel(scene: Scene, wheel: Place, radius: float) -> list[Stroke]:
    size, colour = scene.size, scene.colour(wheel.body)
    count = max(round(2 * np.pi * radius / (_TOOTH * size)), 8)
    mark = np.array([(0.0, 0.0), (radius, 0.0)])
    return [
        on(
            wheel,
            arc(radius, points=121),
            LINK_LAYER,
            filled=True,
            facecolor=to_rgba(colour, 0.15),
            edgecolor=colour,
            linewidth=1.8,
        ),
        on(wheel, gear_ticks(radius, count, 0.6 * size), LINK_LAYER, color=colour, linewidth=0.9),
        on(wheel, mark, LINK_LAYER, color=colour, linewidth=1.2),
    ]


# --- forces ---------------------------------------------------------------------------------------------


def _spring(scene: Scene, force: SpringDamper) -> list[Stroke]:
    """A zigzag line if there is stiffness, beside a piston in a cup if there is damping or an actuator."""
    a, b, size = scene.place(force.a), scene.place(force.b), scene.size
    has_spring = float(force.stiffness) != 0.0
    has_damper = float(force.damping) != 0.0 or callable(force.actuator) or float(force.actuator) != 0.0
    lengths = np.linalg.norm(b.point(scene.motion) - a.point(scene.motion), axis=-1)
    coils = int(np.clip(np.mean(lengths) / (1.6 * size), 4, 9))
    offset = 1.1 * size if has_spring and has_damper else 0.0

    def spring(length: float) -> Points:
        return zigzag(length, coils, 0.8 * size, 1.6 * size) if has_spring else _straight(length)

    def damper(length: float) -> Points:
        return dashpot(length, 0.8 * size, 2.6 * size)

    shapes = [(spring, offset)] if has_spring or not has_damper else []
    shapes += [(damper, -offset)] if has_damper else []
    return [
        Stroke(
            lambda poses, s=shape, y=beside: _along(a.point(poses), b.point(poses), s, y, size),
            SPRING_LAYER,
            color=INK,
            linewidth=1.1,
            solid_joinstyle="round",
        )
        for shape, beside in shapes
    ]


def _straight(length: float) -> Points:
    return np.array([(0.0, 0.0), (length, 0.0)])


def _along(p: np.ndarray, r: np.ndarray, shape: Any, offset: float, size: float) -> Points:
    """A shape on the line between two points, with a sideways offset between short stubs at both ends."""
    dx, dy = r - p
    length = float(np.hypot(dx, dy))
    stub = min(0.9 * size, 0.15 * length) if offset else 0.0
    inner = moved(shape(length - 2 * stub), stub, offset)
    if offset:
        start, stop = np.array([(0.0, 0.0), (stub, 0.0)]), np.array([(length - stub, 0.0), (length, 0.0)])
        inner = np.concatenate([start, inner, stop])
    return p + turned(inner, float(np.arctan2(dy, dx)))


def _turns(drive: PositionDriverConstraint) -> bool:
    """True if a driver prescribes an angle."""
    joint, index = drive.coordinate.joint, drive.coordinate.index
    return joint.coordinate_units[index] == "rad" if joint is not None else PLANAR.units[index] == "rad"


def _round_arrow(scene: Scene, place: Place, sign: float) -> Stroke:
    """An arc with an arrow head, for a torque or a driven angle; a torque that may change sign is drawn as positive."""
    shape = scene.size * round_arrow(2.4, sign)
    return Stroke(lambda poses: place.point(poses) + shape, PIN_LAYER, color=INK, linewidth=1.3)
