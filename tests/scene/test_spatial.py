"""Symbols in space are at the markers of their parts: on bodies that are turned and displaced, on markers that move,
at a time that is not zero."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jaxmbd import spatial as sp
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import rotations
from jaxmbd.scene.parts import symbol
from jaxmbd.scene.pieces import Piece

T = 2.0  # [s]
TURNS = np.array([(0.8, 0.2, -0.4, 0.4), (0.1, 0.7, 0.1, 0.7)])
PLACES = np.array([(1.0, 2.0, -0.5), (6.0, -1.0, 1.5)])
R_A, R_B = rotations(TURNS)
A, B = sp.Body("A", 1.0, (1, 1, 1)), sp.Body("B", 1.0, (1, 1, 1))
# Where the markers are at `T`, in the axes of their bodies; at the time zero they are elsewhere by a metre and more.
ON_A, ON_B = np.array([0.4, 1.3, 0.2]), np.array([-1.1, 0.6, 0.9])
AT_A, AT_B = PLACES[0] + R_A @ ON_A, PLACES[1] + R_B @ ON_B


def moving(body: Any, end: np.ndarray) -> Any:
    return body.moving(lambda t: (end[0] + (t - T), end[1] - 0.5 * (t - T), end[2] + 0.2 * (t - T)))


def drawn(part: Any, is_force: bool = False) -> tuple[list[Piece], list[np.ndarray], float]:
    """The pieces of a part between `A` and `B`, their corners at `T`, and the size of symbols."""
    mechanism = sp.Mechanism([A, B], [] if is_force else [part], [part] if is_force else [], floating=True)
    q = np.concatenate([np.concatenate([PLACES, TURNS], axis=1).ravel(), np.zeros(len(mechanism.turns))])
    geometry = Geometry(mechanism, [T], q[None])
    pieces = list(symbol(geometry, part))
    return pieces, [piece.shape(geometry.motion.at(0)).reshape(-1, 3) for piece in pieces], geometry.size


def middle(points: np.ndarray) -> np.ndarray:
    """The centre of mass of distinct corners, which is the centre of a symmetric symbol."""
    return np.unique(np.round(points, 9), axis=0).mean(axis=0)


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "Spherical": lambda a, b: sp.Spherical("J", a, b),
    "PointConstraint": lambda a, b: sp.PointConstraint("J", a, b),
    "ConstantVelocity": lambda a, b: sp.ConstantVelocity("J", a, b),
    "Prismatic": lambda a, b: sp.Prismatic("J", a, b),
    "PointOnLine": lambda a, b: sp.PointOnLine("J", a, b),
    "PointOnPlane": lambda a, b: sp.PointOnPlane("J", a, b),
    "Rod": lambda a, b: sp.Rod("J", a, b, 1.0),
    "Weld": lambda a, b: sp.Weld("J", a, b),
    "FixedConstraint": lambda a, b: sp.FixedConstraint("J", a, b),
}
TURNING: dict[str, Callable[[Any, Any], Any]] = {  # they count turns and have no moving markers
    "Universal": lambda a, b: sp.Universal("J", a, b),
    "Planar": lambda a, b: sp.Planar("J", a, b),
    "RevoluteSpherical": lambda a, b: sp.RevoluteSpherical("J", a, b, 1.0),
    "Revolute": lambda a, b: sp.Revolute("J", a, b),
    "Cylindrical": lambda a, b: sp.Cylindrical("J", a, b),
    "Screw": lambda a, b: sp.Screw("J", a, b, 0.01),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_joints_are_drawn_at_markers_that_move(make: Callable[[Any, Any], Any]) -> None:
    _, shapes, size = drawn(make(moving(A, ON_A), moving(B, ON_B)))
    assert min(np.linalg.norm(middle(shape) - AT_B) for shape in shapes) < 0.02 * size


@pytest.mark.parametrize("make", [*PAIRS.values(), *TURNING.values()], ids=[*PAIRS, *TURNING])
def test_joints_are_drawn_at_markers_that_are_fixed(make: Callable[[Any, Any], Any]) -> None:
    _, shapes, size = drawn(make(A.at(*ON_A), B.at(*ON_B)))
    assert min(np.linalg.norm(middle(shape) - AT_B) for shape in shapes) < 0.02 * size


@pytest.mark.parametrize("name", ["Prismatic", "PointOnLine"])
def test_rails_lie_along_the_axis_of_the_first_marker(name: str) -> None:
    pieces, shapes, size = drawn(PAIRS[name](moving(A, ON_A), moving(B, ON_B)))
    rail = next(shape for piece, shape in zip(pieces, shapes, strict=True) if piece.place.body == 0)
    along = (rail - AT_A) @ R_A[:, 2]
    across = np.linalg.norm(rail - AT_A - np.outer(along, R_A[:, 2]), axis=1)
    assert across.max() == pytest.approx(0.3 * size)
    reached = float((AT_B - AT_A) @ R_A[:, 2])
    assert along.min() <= min(0.0, reached)
    assert along.max() >= max(0.0, reached)


@pytest.mark.parametrize("name", ["Planar", "PointOnPlane"])
def test_patches_lie_in_the_plane_of_the_first_marker(name: str) -> None:
    ends = (moving(A, ON_A), moving(B, ON_B)) if name in PAIRS else (A.at(*ON_A), B.at(*ON_B))
    pieces, shapes, _ = drawn((PAIRS | TURNING)[name](*ends))
    patch = next(shape for piece, shape in zip(pieces, shapes, strict=True) if piece.place.body == 0)
    np.testing.assert_allclose((patch - AT_A) @ R_A[:, 2], 0.0, atol=1e-12)
    under = AT_B - AT_A
    low, high = ((patch - AT_A) @ R_A[:, :2]).min(axis=0), ((patch - AT_A) @ R_A[:, :2]).max(axis=0)
    assert (low < under @ R_A[:, :2]).all()
    assert (high > under @ R_A[:, :2]).all()


LINES: dict[str, Callable[[Any, Any], Any]] = {
    "spring": lambda a, b: sp.SpringDamper("J", a, b, 1.0),
    "damper": lambda a, b: sp.SpringDamper("J", a, b, 0.0, damping=1.0),
    "Rod": PAIRS["Rod"],
    "ParallelAxes": lambda a, b: sp.ParallelAxes("J", a, b),
}


@pytest.mark.parametrize("make", LINES.values(), ids=LINES)
def test_what_has_two_ends_reaches_from_one_marker_to_the_other(make: Callable[[Any, Any], Any]) -> None:
    part = make(moving(A, ON_A), moving(B, ON_B))
    pieces, shapes, size = drawn(part, is_force=isinstance(part, sp.SpringDamper))
    line = next(shape for piece, shape in zip(pieces, shapes, strict=True) if piece.end is not None)
    length = float(np.linalg.norm(AT_B - AT_A))
    along = (line - AT_A) @ (AT_B - AT_A) / length
    far = {"ParallelAxes": 1.5}.get(type(part).__name__, 0.5) * size  # dashes leave gaps, bars have round ends
    assert along.min() == pytest.approx(0.0, abs=far)
    assert along.max() == pytest.approx(length, abs=far)


def test_forces_are_drawn_at_their_markers() -> None:
    a, b = moving(A, ON_A), moving(B, ON_B)
    (bushing,), shapes, size = drawn(sp.Bushing("J", a, b, (1.0,) * 6), is_force=True)
    assert bushing.place.body == 0
    assert np.linalg.norm(middle(shapes[0]) - AT_A) < 0.02 * size
    _, (plane, ball), _ = drawn(sp.PlaneContact("J", a, b, 1.0, radius=0.4), is_force=True)
    np.testing.assert_allclose((plane - AT_A) @ R_A[:, 2], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(ball - AT_B, axis=1), 0.4)
    axis = np.array([1.0, -2.0, 2.0]) / 3
    for frame, turn in (("world", np.eye(3)), ("body", R_B)):
        _, (arrow,), size = drawn(sp.Torque("J", b, tuple(axis), frame=frame), is_force=True)
        heights = (arrow - AT_B) @ turn @ axis
        radii = np.linalg.norm(arrow - AT_B - np.outer(heights, turn @ axis), axis=1)
        assert np.abs(heights).max() < 0.7 * size  # a ring about the axis, by its head at most
        assert np.median(radii) == pytest.approx(2.0 * size, rel=0.05)


def test_a_wheel_has_its_radius() -> None:
    joint = sp.RollingDisc("J", A.at(*ON_A), B.at(*ON_B), radius=0.7)
    pieces, shapes, _ = drawn(joint)
    rim = next(shape for piece, shape in zip(pieces, shapes, strict=True) if piece.part == "B")
    radii = np.linalg.norm((rim - AT_B) @ R_B[:, :2], axis=1)
    assert radii.max() == pytest.approx(0.7, rel=3e-3)
    np.testing.assert_allclose(((rim - AT_B) @ R_B[:, 2]).mean(), 0.0, atol=1e-12)
