"""Symbols in the plane are at the markers of their parts: on bodies that are turned and displaced, on markers that
move, at a time that is not zero."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jaxmbd import planar as pl
from jaxmbd.scene.gears import pitch_radii
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.parts import symbol
from jaxmbd.scene.pieces import Piece

T = 2.0  # [s]
POSES = np.array([1.0, 2.0, 0.7, 6.0, -1.0, -2.1])  # of the bodies A and B
A, B = pl.Body("A", 1.0, 1.0), pl.Body("B", 1.0, 1.0)
# Where the markers are at `T`, in the axes of their bodies; at the time zero they are elsewhere by a metre and more.
ON_A, ON_B = np.array([0.4, 1.3]), np.array([-1.1, 0.6])


def moving(body: Any, end: np.ndarray, angle: float = 0.0) -> Any:
    return body.moving(lambda t: (end[0] + (t - T), end[1] - 0.5 * (t - T)), angle)


def turn(angle: float) -> np.ndarray:
    return np.array([(np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))])


AT_A = POSES[:2] + turn(POSES[2]) @ ON_A
AT_B = POSES[3:5] + turn(POSES[5]) @ ON_B


def drawn(part: Any, is_force: bool = False) -> tuple[list[Piece], list[np.ndarray], float]:
    """The pieces of a part between `A` and `B`, their points at `T`, and the size of symbols."""
    mechanism = pl.Mechanism([A, B], [] if is_force else [part], [part] if is_force else [], floating=True)
    geometry = Geometry(mechanism, [T], POSES[None])
    pieces = list(symbol(geometry, part))
    return pieces, [piece.shape(geometry.motion.at(0)) for piece in pieces], geometry.size


def middle(points: np.ndarray) -> np.ndarray:
    return (np.nanmin(points, axis=0) + np.nanmax(points, axis=0)) / 2


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "Revolute": lambda a, b: pl.Revolute("J", a, b),
    "PointConstraint": lambda a, b: pl.PointConstraint("J", a, b),
    "Weld": lambda a, b: pl.Weld("J", a, b),
    "FixedConstraint": lambda a, b: pl.FixedConstraint("J", a, b),
    "Prismatic": lambda a, b: pl.Prismatic("J", a, b),
    "PinInSlot": lambda a, b: pl.PinInSlot("J", a, b),
    "Rod": lambda a, b: pl.Rod("J", a, b, 1.0),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("moves", [False, True])
def test_joints_are_drawn_at_their_second_marker(make: Callable[[Any, Any], Any], moves: bool) -> None:
    a, b = (moving(A, ON_A), moving(B, ON_B)) if moves else (A.at(*ON_A), B.at(*ON_B))
    _, shapes, size = drawn(make(a, b))
    assert min(np.linalg.norm(middle(shape) - AT_B) for shape in shapes) < 1e-9 * size + 1e-12


@pytest.mark.parametrize("name", ["Prismatic", "PinInSlot"])
def test_guides_lie_along_the_axis_of_the_first_marker(name: str) -> None:
    pieces, shapes, _ = drawn(PAIRS[name](moving(A, ON_A, 0.3), moving(B, ON_B)))
    guide = next(shape for piece, shape in zip(pieces, shapes, strict=True) if piece.place.body == 0)
    axes = turn(POSES[2] + 0.3)
    along, across = ((guide - AT_A) @ axes).T
    reached = float(((AT_B - AT_A) @ axes)[0])
    assert along.min() <= min(0.0, reached) + 1e-12
    assert along.max() >= max(0.0, reached) - 1e-12
    assert abs(across.max() + across.min()) < 1e-12


SPRINGS: dict[str, Callable[[Any, Any], Any]] = {
    "spring": lambda a, b: pl.SpringDamper("J", a, b, 1.0),
    "damper": lambda a, b: pl.SpringDamper("J", a, b, 0.0, damping=1.0),
    "both": lambda a, b: pl.SpringDamper("J", a, b, 1.0, damping=1.0),
}


@pytest.mark.parametrize("make", [*SPRINGS.values(), PAIRS["Rod"]], ids=[*SPRINGS, "Rod"])
def test_what_has_two_ends_reaches_from_one_marker_to_the_other(make: Callable[[Any, Any], Any]) -> None:
    part = make(moving(A, ON_A), moving(B, ON_B))
    pieces, shapes, _ = drawn(part, is_force=not isinstance(part, pl.Rod))
    lines = [shape for piece, shape in zip(pieces, shapes, strict=True) if piece.end is not None]
    assert lines
    for line in lines:
        np.testing.assert_allclose(line[[0, -1]], [AT_A, AT_B], atol=1e-12)


def test_forces_are_drawn_at_their_markers() -> None:
    a, b = moving(A, ON_A), moving(B, ON_B)
    forces = {
        "bushing": (pl.Bushing("J", a, b, (1.0, 1.0, 1.0)), AT_A, 1e-9),
        "torque": (pl.Torque("J", b, 2.0), AT_B, 2.5),
        "spiral": (pl.TorsionalSpringDamper("J", A.at(*ON_A), B.at(*ON_B), 1.0), AT_B, 0.5),
        "contact": (pl.PlaneContact("J", a, b, 1.0, radius=0.4), AT_B, 1e-9),
    }
    for name, (force, wanted, far) in forces.items():
        _, shapes, size = drawn(force, is_force=True)
        assert min(np.linalg.norm(middle(shape) - wanted) for shape in shapes) < far * size, name
    contact, shapes, size = drawn(forces["contact"][0], is_force=True)
    ball = next(shape for piece, shape in zip(contact, shapes, strict=True) if piece.place.body == 1)
    np.testing.assert_allclose(np.linalg.norm(ball - AT_B, axis=1), 0.4)
    edge = next(shape for piece, shape in zip(contact, shapes, strict=True) if piece.place.body == 0)[:2]
    np.testing.assert_allclose((edge - AT_A) @ turn(POSES[2])[:, 1], 0.0, atol=1e-12)


def test_a_torque_that_turns_with_the_clock_is_mirrored() -> None:
    (one,), (other,) = (drawn(pl.Torque("J", B.at(*ON_B), sign), is_force=True)[1] for sign in (1.0, -1.0))
    np.testing.assert_allclose(other - AT_B, (one - AT_B) * (-1.0, 1.0), atol=1e-12)


def test_gears_touch_between_their_axles() -> None:
    wheel, pinion = pl.Body("wheel", 1.0, 1.0), pl.Body("pinion", 1.0, 1.0)
    hinges = [
        pl.Revolute("W", pl.ground.at(1.0, 1.0), wheel.at()),
        pl.Revolute("P", pl.ground.at(1.0, 4.0), pinion.at()),
    ]
    mechanism = pl.Mechanism([wheel, pinion], [*hinges, pl.Gear("gear", "W.angle", "P.angle", ratio=-2.0)])
    geometry = Geometry(mechanism, [0.0], [[1.0, 1.0, 0.2, 1.0, 4.0, 0.5]])
    circles = [piece for piece in symbol(geometry, mechanism.with_reactions()["gear"]) if piece.fill is not None]
    assert len(circles) == 2
    radii = pitch_radii(-2.0, 3.0)
    assert radii is not None
    for piece, axle, radius in zip(circles, ((1.0, 1.0), (1.0, 4.0)), radii, strict=True):
        np.testing.assert_allclose(np.linalg.norm(piece.shape(geometry.motion.at(0)) - axle, axis=1), radius)
