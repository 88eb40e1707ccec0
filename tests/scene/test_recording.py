"""Scenes of motions: everything is where it is at the time of each frame."""

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.scene.recording import coordinates_at, scene_of
from jaxmbd.scene.scene import Scene
from tests.scene.bench import (
    KINDS,
    TS,
    centre,
    coordinates_of,
    ground_point,
    hung,
    motion_of,
    rod_point,
    rotation,
    world,
)

TIMES = np.array([0.1, 0.35, 0.9])
CUBIC = 2e-3  # [m] what cubics between the times of the motion miss at most


def ends(scene: Scene, part: str, k: int) -> np.ndarray:
    """The first and the last point of the piece of a part that has two ends."""
    piece = next(piece for piece in scene.pieces if piece.part == part and piece.end is not None)
    poses = scene.motion.at(k)
    assert piece.end is not None
    return np.stack([piece.place.point(poses), piece.end.point(poses)])


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_springs_hang_on_markers_where_they_are(dim: int, coordinates: str) -> None:
    solution = motion_of(hung(dim, coordinates))
    scene = scene_of(solution, (), ("S", "R"), TIMES)
    for k, t in enumerate(TIMES):
        np.testing.assert_allclose(ends(scene, "spring", k), [ground_point(dim, t), rod_point(dim, t)], atol=CUBIC)
        # The line from the rod to the marker that moves on it, which is no part of its outline.
        np.testing.assert_allclose(ends(scene, "rod", k), [world(dim, centre(t)), rod_point(dim, t)], atol=CUBIC)
        spring = next(piece for piece in scene.pieces if piece.part == "spring")
        points = spring.shape(scene.motion.at(k)).reshape(-1, dim)
        near = np.linalg.norm(points[:, None] - [ground_point(dim, t), rod_point(dim, t)], axis=-1).min(axis=0)
        assert near.max() < 0.3 * scene.size + CUBIC  # a helix ends with the radius of its wire


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_walls_and_traces_move_with_their_markers(dim: int, coordinates: str) -> None:
    solution = motion_of(hung(dim, coordinates))
    scene = scene_of(solution, (), ("S", "R", "rod"), TIMES)
    walls = [piece for piece in scene.pieces if piece.part == "ground" and piece.place.frame != piece.place.body]
    assert len(walls) == 1
    for k, t in enumerate(TIMES):
        points = walls[0].shape(scene.motion.at(k)).reshape(-1, dim)
        assert np.nanmax(np.linalg.norm(points - ground_point(dim, t), axis=-1)) < 2.5 * scene.size
    finer = scene.traces[0].per_frame
    times = np.interp(np.arange(2 * finer + 1) / finer, np.arange(3), TIMES)
    for trace, path in zip(scene.traces, (ground_point, rod_point, None), strict=True):
        wanted = [path(dim, t) if path else world(dim, centre(t)) for t in times]
        np.testing.assert_allclose(trace.points, wanted, atol=CUBIC)
        np.testing.assert_allclose(trace.until(1)[-1], wanted[finer], atol=CUBIC)
    np.testing.assert_allclose(scene.traces[0].points, [ground_point(dim, t) for t in times], atol=1e-12)


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_coordinates_of_saved_times_are_those_of_the_motion(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    solution = motion_of(mechanism)
    np.testing.assert_array_equal(coordinates_at(solution, TS), solution.q)
    shown = slice(0, 7) if dim == 3 and coordinates == "absolute" else slice(None)
    found = coordinates_at(solution, TIMES)[:, shown]
    np.testing.assert_allclose(found, coordinates_of(mechanism, TIMES)[:, shown], atol=CUBIC)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_forces_act_on_markers_that_move_at_their_times(coordinates: str) -> None:
    """A force in the axes of the body, which grows with time; its arrow starts where the marker is."""
    rod = hung(2, coordinates)["rod"]
    push = pl.Force("push", rod.moving(lambda t: (0.2 * t, 0.1)), lambda t, at, rate: (1.0 + t, 2.0 * t), frame="body")
    scene = scene_of(motion_of(hung(2, coordinates, forces=[push])), (), (), TS)
    (arrow,) = scene.arrows
    for k, t in enumerate(TS):
        start = centre(t) + rotation(t) @ (0.2 * t, 0.1)
        np.testing.assert_allclose(arrow.place.point(scene.motion.at(k)), start, atol=1e-12)
        np.testing.assert_allclose(arrow.forces[k], rotation(t) @ (1.0 + t, 2.0 * t), atol=1e-12)


def test_reactions_are_those_of_the_motion() -> None:
    mechanism = hung(2, "absolute")
    solution = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.4}), TS)
    scene = scene_of(solution, ("O",), (), TS)
    np.testing.assert_allclose(scene.arrows[0].forces, solution.reaction("O").force)
    assert scene.legend is not None
    assert scene.legend.value / scene.legend.length == pytest.approx(scene.arrows[0].scale)
