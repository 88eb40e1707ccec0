"""Pieces move with their places: fixed, upright, and between two ends."""

import numpy as np
import pytest

from jaxmbd import planar as pl
from jaxmbd.scene.motion import Place, Poses, rotations
from jaxmbd.scene.outlines import straight
from jaxmbd.scene.pieces import BODIES, INK, Piece, body_colour, spring_and_damper

QUARTER = rotations(np.array([np.pi / 2]))
POSES = Poses(np.array([[2.0, 1.0], [0.5, 0.0], [0.0, 0.0]]), np.stack([QUARTER, np.eye(2), np.eye(2)]))
ON_BODY = Place(0, 0, np.array([1.0, 0.0]), QUARTER)  # at (2, 2), turned by half a turn
MOVING = Place(-1, 1, np.zeros(2), np.eye(2))  # at (1/2, 0)


def test_a_piece_turns_with_its_place_unless_it_is_upright() -> None:
    points = np.array([(0.0, 0.0), (1.0, 0.0)])
    np.testing.assert_allclose(Piece("p", ON_BODY, points, INK).shape(POSES), [(2, 2), (1, 2)], atol=1e-15)
    upright = Piece("p", ON_BODY, points, INK, is_upright=True)
    np.testing.assert_allclose(upright.shape(POSES), [(2, 2), (3, 2)], atol=1e-15)


def test_a_piece_with_two_ends_reaches_from_one_to_the_other() -> None:
    line = Piece("p", MOVING, straight, INK, end=ON_BODY)
    np.testing.assert_allclose(line.shape(POSES), [(0.5, 0.0), (2.0, 2.0)], atol=1e-15)


def test_colours_of_bodies_repeat_and_the_ground_is_ink() -> None:
    assert [body_colour(k) for k in (-1, 0, 5, 6)] == [INK, BODIES[0], BODIES[5], BODIES[0]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stiffness": 1.0}, (True, False)),
        ({"stiffness": 0.0, "damping": 2.0}, (False, True)),
        ({"stiffness": 1.0, "damping": 2.0}, (True, True)),
        ({"stiffness": 0.0, "actuator": 3.0}, (False, True)),
        ({"stiffness": 0.0, "actuator": lambda t, length, rate: t}, (False, True)),
    ],
)
def test_what_a_spring_and_damper_is_drawn_with(options: dict[str, object], expected: tuple[bool, bool]) -> None:
    body = pl.Body("b", 1.0, 1.0)
    assert spring_and_damper(pl.SpringDamper("s", pl.ground.at(), body.at(1.0), **options)) == expected  # pyright: ignore[reportArgumentType]
