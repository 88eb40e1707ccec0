"""Where bodies and markers are over a motion: poses, places, and what lies between the times of a motion."""

import numpy as np
import pytest

from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.errors import MechanismError
from jaxmbd.scene.motion import (
    Place,
    Poses,
    divided,
    facing,
    frame_times,
    interpolate,
    linear,
    moving_markers,
    place_of,
    poses_at,
    poses_of,
    rates_of,
    rotations,
)
from tests.scene.bench import (
    HINGE,
    KINDS,
    RATE,
    TS,
    angle,
    centre,
    coordinates_of,
    ground_point,
    hung,
    rod_point,
    rotation,
    speeds_of,
    world,
)


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_moving_markers_are_where_they_are_at_each_time(dim: int, coordinates: str) -> None:
    """On a body that is turned and displaced, and on the ground; each marker has one frame, however many use it."""
    mechanism = hung(dim, coordinates)
    assert len(moving_markers(mechanism)) == 2
    poses = poses_of(mechanism, TS, coordinates_of(mechanism, TS))
    assert poses.position.shape == (5, 4, dim)  # the rod, two markers, the ground
    spring, hinge = mechanism["spring"], mechanism["O"]
    for k, t in enumerate(TS):
        wanted = [(spring.a, ground_point(dim, t)), (spring.b, rod_point(dim, t)), (hinge.a, world(dim, HINGE))]
        wanted += [(hinge.b, world(dim, HINGE)), (mechanism["rod"].at(), world(dim, centre(t)))]
        for marker, point in wanted:
            np.testing.assert_allclose(place_of(mechanism, marker).point(poses.at(k)), point, atol=1e-12)
    assert [place_of(mechanism, marker).body for marker in (spring.a, spring.b)] == [-1, 0]


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_moving_markers_keep_their_angle_on_the_body(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    poses = poses_of(mechanism, TS, coordinates_of(mechanism, TS))
    R = place_of(mechanism, mechanism["spring"].b).axes(poses)
    pair = R if dim == 2 else R[:, [0, 2]][:, :, [0, 2]]
    np.testing.assert_allclose(pair, [rotation(t) for t in TS], atol=1e-12)
    ground = place_of(mechanism, mechanism["spring"].a).axes(poses)
    np.testing.assert_allclose(ground, np.broadcast_to(np.eye(dim), ground.shape), atol=1e-15)


def test_a_moving_marker_is_turned_by_its_own_angle() -> None:
    body = pl.Body("b", 1.0, 1.0)
    marker = body.moving(lambda t: (t, 0.0), angle=0.3)
    mechanism = pl.Mechanism([body], sensors=[pl.Point("P", marker)], floating=True)
    poses = poses_of(mechanism, [2.0], [[1.0, -1.0, np.pi / 2]]).at(0)
    point = place_of(mechanism, marker).put(np.array([0.1, 0.0]), poses)
    turn = np.pi / 2 + 0.3
    np.testing.assert_allclose(point, [1.0 + 0.1 * np.cos(turn), -1.0 + 2.0 + 0.1 * np.sin(turn)], atol=1e-12)


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_rates_are_the_derivatives_of_coordinates(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    q, v = coordinates_of(mechanism, TS), speeds_of(mechanism, TS)
    step = 1e-6
    slopes = (coordinates_of(mechanism, TS + step) - coordinates_of(mechanism, TS - step)) / (2 * step)
    shown = slice(0, 7) if dim == 3 and coordinates == "absolute" else slice(None)  # pictures show no turns
    np.testing.assert_allclose(rates_of(mechanism, TS, q, v)[:, shown], slopes[:, shown], atol=1e-8)


def test_places_put_points_into_the_world() -> None:
    """`p + R (offset + axes x)`, for one pose and for many."""
    R = rotations(np.array([[0.0], [np.pi / 2]]))
    poses = Poses(np.array([[0.0, 0.0], [2.0, 1.0]])[:, None], R[:, None])
    place = Place(0, 0, np.array([1.0, 0.0]), rotations(np.array([np.pi / 2])))
    np.testing.assert_allclose(place.point(poses), [[1.0, 0.0], [2.0, 2.0]], atol=1e-15)
    np.testing.assert_allclose(place.put(np.array([[1.0, 0.0]]), poses.at(1)), [[1.0, 2.0]], atol=1e-15)


def test_rotations_of_angles_and_quaternions() -> None:
    turn = 0.7
    c, s = np.cos(turn), np.sin(turn)
    np.testing.assert_allclose(rotations(np.array([turn])), [[c, -s], [s, c]])
    about_y = 3.0 * np.array([np.cos(turn / 2), 0.0, np.sin(turn / 2), 0.0])  # of any norm
    np.testing.assert_allclose(rotations(about_y), [[c, 0, s], [0, 1, 0], [-s, 0, c]], atol=1e-15)


@pytest.mark.parametrize("direction", [(3.0, 4.0), (1.0, 2.0, -2.0), (0.0, 0.0, -1.0), (0.0, 0.0, 5.0)])
def test_facing_turns_the_first_or_last_axis(direction: tuple[float, ...]) -> None:
    R = facing(np.array(direction))
    np.testing.assert_allclose(R[:, 0 if len(direction) == 2 else 2], np.array(direction) / np.linalg.norm(direction))
    np.testing.assert_allclose(R.T @ R, np.eye(len(direction)), atol=1e-15)
    assert np.linalg.det(R) == pytest.approx(1.0)
    np.testing.assert_array_equal(facing(np.zeros(3)), np.eye(3))


def test_between_saved_times_motions_are_cubic_and_forces_linear() -> None:
    ts, times = np.array([0.0, 0.5, 2.0]), np.linspace(0.0, 2.0, 9)
    cubic = np.polynomial.Polynomial([1.0, -2.0, 0.5, 3.0])
    found = interpolate(times, ts, cubic(ts)[:, None], cubic.deriv()(ts)[:, None])
    np.testing.assert_allclose(found[:, 0], cubic(times), atol=1e-12)
    np.testing.assert_array_equal(interpolate(times, ts[:1], np.ones((1, 2)), np.ones((1, 2))), np.ones((9, 2)))
    np.testing.assert_allclose(linear(np.array([0.25, 1.25]), ts, np.array([[0.0], [2.0], [8.0]])), [[1.0], [5.0]])


def test_times_of_frames() -> None:
    """From the first to the last time, at the rate of the film times the speed of the motion."""
    np.testing.assert_allclose(frame_times(np.array([1.0, 3.0]), 10, 2.0), np.linspace(1.0, 3.0, 11))
    np.testing.assert_allclose(divided(np.array([0.0, 1.0, 4.0]), 2), [0.0, 0.5, 1.0, 2.5, 4.0])
    with pytest.raises(MechanismError, match="fps must be positive and finite, got 0"):
        frame_times(TS, 0, 1.0)


def test_coordinates_that_cannot_be_drawn_are_named() -> None:
    mechanism = hung(2, "absolute")
    with pytest.raises(MechanismError, match=r"q must have 3 entries \(rod.x, rod.y, rod.theta\), got shape \(2,\)"):
        poses_at(mechanism, [0.0], [[0.0, 0.0]])
    with pytest.raises(MechanismError, match="not finite"):
        poses_at(mechanism, [0.0], [[0.0, np.nan, 0.0]])
    flat = sp.Mechanism([sp.Body("b", 1.0, (1, 1, 1))], floating=True)
    with pytest.raises(MechanismError, match="Euler parameters that are all zero"):
        poses_of(flat, [0.0], np.zeros((1, 7)))
    assert angle(0.5) == pytest.approx(0.4 + 0.5 * RATE)
