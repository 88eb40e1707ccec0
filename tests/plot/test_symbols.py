"""The symbols of parts in the plane: their outlines, and which parts have one."""

import math

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.scene.gears import pitch_radii
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.outlines import hull
from jaxmbd.scene.parts import pieces_of, symbol


def test_the_hull_leaves_out_inner_points_and_points_on_a_line() -> None:
    square = np.array([[0, 0], [1, 0], [0.5, 0.0], [0.5, 0.5], [1, 1], [0, 1]], dtype=float)
    np.testing.assert_array_equal(hull(square), [[0, 0], [1, 0], [1, 1], [0, 1]])
    line = np.array([[0.0, 0.0], [0.1, 0.3], [0.2, 0.6]])
    np.testing.assert_array_equal(hull(line), line[[0, 2]])
    np.testing.assert_array_equal(hull(np.zeros((3, 2))), [[0.0, 0.0]])


@pytest.mark.parametrize(("ratio", "expected"), [(-0.5, (0.1, 0.2)), (-2.0, (0.2, 0.1)), (0.25, (0.1, 0.4))])
def test_pitch_radii_roll_on_each_other(ratio: float, expected: tuple[float, float]) -> None:
    """`r_a = |r| r_b`; side by side the radii add up to the distance, of an inner pair they differ by it."""
    assert pitch_radii(ratio, 0.3) == pytest.approx(expected)


def yoke() -> pl.Mechanism:
    crank, slide = pl.Body("crank", 1.0, 0.1), pl.Body("slide", 1.0, 0.1)
    return pl.Mechanism(
        bodies=[crank, slide],
        joints=[
            pl.Revolute("O", pl.ground.at(), crank.at()),
            pl.PinInSlot("slot", slide.at(0.0, 0.0, math.pi / 2), crank.at(1.0, 0.0)),
            pl.Prismatic("rail", pl.ground.at(3.0, 0.0), slide.at(3.0, 0.0)),
        ],
    )


def test_slot_and_guide_are_as_long_as_the_travel() -> None:
    angle = np.linspace(0.0, 2 * np.pi, 41)
    zero = np.zeros_like(angle)
    qs = np.stack([zero, zero, angle, np.cos(angle), zero, zero], axis=1)
    mechanism = yoke()
    geometry = Geometry(mechanism, angle, qs)
    (slot, _), (guide, block) = (list(symbol(geometry, mechanism[name])) for name in ("slot", "rail"))
    for k in (0, 7):
        poses = geometry.motion.at(k)
        points = slot.shape(poses)
        assert np.ptp(points[:, 1]) == pytest.approx(2.0, abs=4 * geometry.size)
        assert np.ptp(points[:, 1]) > 2.0
        assert points[:, 0].mean() == pytest.approx(math.cos(angle[k]), abs=0.2 * geometry.size)
        assert block.shape(poses)[:4].mean(axis=0) == pytest.approx([3.0 + math.cos(angle[k]), 0.0])
    edge = guide.shape(geometry.motion.at(0))[:2]
    assert edge[0, 0] < 2.0
    assert edge[1, 0] > 4.0
    assert edge[0, 1] == edge[1, 1] == pytest.approx(block.shape(geometry.motion.at(0))[:, 1].min())


def strokes_of(mechanism: pl.Mechanism, name: str) -> int:
    geometry = Geometry(mechanism, np.zeros(1), np.stack([body.pose for body in mechanism.bodies]).reshape(1, -1))
    parts = {part.name: part for part in (*mechanism.forces, *mechanism.constraints())}
    return len(list(symbol(geometry, parts[name])))


@pytest.mark.parametrize(
    ("stiffness", "damping", "actuator", "expected"),
    [(1.0, 0.0, 0.0, 1), (0.0, 1.0, 0.0, 1), (1.0, 1.0, 0.0, 2), (1.0, 0.0, 2.0, 2), (0.0, 0.0, 0.0, 1)],
)
def test_spring_and_damper_have_a_symbol_each(stiffness: float, damping: float, actuator: float, expected: int) -> None:
    body = pl.Body("body", 1.0, 0.1, (1.0, 0.0, 0.0))
    force = pl.SpringDamper("s", pl.ground.at(), body.at(), stiffness, 0.5, damping, actuator)
    assert strokes_of(pl.Mechanism([body], forces=[force]), "s") == expected


def test_every_part_has_its_place() -> None:
    """Gravity, friction and sensors of the ground have no symbol; a user's joint is a dotted line."""
    body = pl.Body("body", 1.0, 0.1, (1.0, 0.0, 0.0))
    mechanism = pl.Mechanism(
        bodies=[body],
        joints=[
            pl.Revolute("O", pl.ground.at(), body.at(-1.0, 0.0)),
            pl.Constraint("own", lambda t, f, p: f[0].angle - f[1].angle, pl.ground.at(), body.at()),
        ],
        forces=[
            pl.Gravity(),
            pl.JointFriction("friction", "O.angle", viscous=0.1),
            pl.Torque("motor", body.at(), 2.0),
            pl.TorsionalSpringDamper("coil", pl.ground.at(), body.at(), 1.0),
        ],
    )
    expected = {"gravity": 0, "friction": 0, "motor": 1, "coil": 1, "O": 1, "own": 1}
    assert {name: strokes_of(mechanism, name) for name in expected} == expected


def test_parts_have_the_symbols_that_they_have_in_space() -> None:
    arm, slide = pl.Body("arm", 1.0, 0.1, (1.0, 0.0, 0.0)), pl.Body("slide", 1.0, 0.1)
    pivot, weld = (pl.ground.at(), arm.at(-1.0, 0.0)), (pl.ground.at(2.0, 0.0), arm.at(1.0, 0.0))
    joints = [pl.PointConstraint("pin", *pivot), pl.FixedConstraint("weld", *weld), pl.Revolute("O", *pivot)]
    mechanism = pl.Mechanism(
        bodies=[arm, slide],
        joints=[*joints, pl.Prismatic("rail", pl.ground.at(), slide.at())],
        forces=[
            pl.JointSpringDamper("coil", "O.angle", 1.0),
            pl.JointSpringDamper("push", "rail.displacement", 1.0),
            pl.JointSpringDamper("damper", "rail.displacement", damping=1.0),
            pl.Bushing("bushing", pl.ground.at(), arm.at(), np.ones(3)),
            pl.PlaneContact("contact", pl.ground.at(0.0, -0.3), arm.at(), 1e4, 0.25),
        ],
    )
    geometry = Geometry(mechanism, np.zeros(1), np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))
    shapes: dict[str, list[np.ndarray]] = {}
    for piece in pieces_of(geometry):
        shapes.setdefault(piece.part, []).append(piece.shape(geometry.motion.at(0)))
    assert "damper" not in shapes
    expected = {"pin": (0.0, 0.0), "weld": (2.0, 0.0), "coil": (0.0, 0.0), "bushing": (0.0, 0.0), "push": (0.0, 0.0)}
    for name, place in expected.items():
        (shape,) = shapes[name]
        assert np.linalg.norm(shape - place, axis=1).max() < 3 * geometry.size
    edge, ball = shapes["contact"]
    assert np.nanmax(edge[:, 1]) == pytest.approx(-0.3)
    np.testing.assert_allclose(np.linalg.norm(ball - (1.0, 0.0), axis=1), 0.25)
    assert len(shapes["ground"]) == 2


def names_of(mechanism: pl.Mechanism, state: mbd.State) -> list[tuple[str, int]]:
    """Names of the pieces of a picture, with the layer that each is drawn in."""
    return sorted(
        (piece.part, piece.layer) for piece in pieces_of(Geometry(mechanism, np.zeros(1), np.asarray(state.q)[None]))
    )


@pytest.mark.parametrize("name", ["planar-four-bar", "slider-crank"])
def test_joint_coordinates_have_the_same_picture(name: str) -> None:
    """Joints of the spanning tree, which are no constraints, are drawn too."""
    example = mbd.examples.get(name)
    absolute, joint = (example.mechanism.with_coordinates(kind) for kind in ("absolute", "joint"))
    first, second = (names_of(m, mbd.assemble(m, example.fixed)) for m in (absolute, joint))
    assert first == second
    assert {part.name for part in absolute.joints} <= {name for name, _ in first}


@pytest.mark.parametrize(("driven", "arrows"), [("O.angle", 1), ("rail.displacement", 0)])
def test_a_driven_angle_is_a_round_arrow(driven: str, arrows: int) -> None:
    """In the colour of symbols at the driven body; any other driven quantity is a dotted line."""
    crank, slide = pl.Body("crank", 1.0, 0.1, (0.5, 0.0, 0.0)), pl.Body("slide", 1.0, 0.1)
    joints = [pl.Revolute("O", pl.ground.at(), crank.at(-0.5)), pl.Prismatic("rail", pl.ground.at(), slide.at())]
    mechanism = pl.Mechanism([crank, slide], joints, drivers=[pl.Driver("drive", driven, lambda t: t)])
    geometry = Geometry(mechanism, np.zeros(1), np.concatenate([body.pose for body in mechanism.bodies])[None])
    (piece,) = symbol(geometry, mechanism.with_reactions()["drive"])
    assert (piece.is_upright, piece.is_dotted) == (bool(arrows), not arrows)
