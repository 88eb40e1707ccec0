"""Outlines of symbols in the plane: their ends and sizes."""

import numpy as np
import pytest

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
    strokes,
    support,
    turned,
    zigzag,
)


def reach(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and greatest coordinates, without interruptions."""
    return np.nanmin(points, axis=0), np.nanmax(points, axis=0)


@pytest.mark.parametrize("length", [0.01, 1.0, 30.0])
def test_springs_and_dampers_reach_from_end_to_end(length: float) -> None:
    for line in (zigzag(length, 5, 0.8, 1.6), dashpot(length, 0.8, 2.6), straight(length)):
        np.testing.assert_allclose(line[[0, -1]], [(0.0, 0.0), (length, 0.0)], atol=1e-15)
        low, high = reach(line)
        assert (low[0], high[0]) == (0.0, pytest.approx(length))
    low, high = reach(zigzag(length, 5, 0.8, 1.6))
    assert (low[1], high[1]) == (-0.8, 0.8)


def test_circles_boxes_and_slots_have_their_sizes() -> None:
    np.testing.assert_allclose(np.linalg.norm(arc(0.7), axis=1), 0.7)
    np.testing.assert_allclose(arc(2.0, 0.0, np.pi / 2)[[0, -1]], [(2, 0), (0, 2)], atol=1e-15)
    np.testing.assert_allclose(reach(box(3.0, 2.0)), [(-1.5, -1.0), (1.5, 1.0)])
    np.testing.assert_allclose(reach(stadium(-1.0, 2.0, 0.5)), [(-1.5, -0.5), (2.5, 0.5)], atol=1e-15)
    np.testing.assert_allclose(stadium(-1.0, 2.0, 0.5)[0], stadium(-1.0, 2.0, 0.5)[-1])


def test_the_ground_is_below_its_edge() -> None:
    low, high = reach(hatched(-2.0, 3.0))
    np.testing.assert_allclose((low, high), [(-2.0, -0.7), (3.0, 0.0)], atol=0.3)
    np.testing.assert_array_equal(hatched(-2.0, 3.0)[:2], [(-2.0, 0.0), (3.0, 0.0)])
    assert high[1] == 0.0
    low, high = reach(support())
    assert (high[1], low[1]) == (0.0, pytest.approx(-2.4))


def test_spirals_arrows_and_ticks() -> None:
    line = spiral(2.0, 2.5)
    np.testing.assert_allclose(line[[0, -1]], [(0, 0), (-2, 0)], atol=1e-14)
    ends = round_arrow(2.0), round_arrow(2.0, -1.0)
    np.testing.assert_array_equal(ends[1], ends[0] * (-1.0, 1.0))
    tip = ends[0][-2]  # of the head: on the circle, at the end of the turn against the clock
    np.testing.assert_allclose(tip, 2.0 * np.array([np.cos(1.1 * np.pi), np.sin(1.1 * np.pi)]))
    ticks = gear_ticks(1.0, 8, 0.2).reshape(-1, 2)
    radii = np.linalg.norm(ticks[~np.isnan(ticks[:, 0])], axis=1)
    np.testing.assert_allclose(np.sort(radii), [0.8] * 8 + [1.0] * 8)


def test_outlines_are_turned_moved_and_joined() -> None:
    np.testing.assert_allclose(turned(np.array([[1.0, 0.0]]), np.pi / 2), [[0.0, 1.0]], atol=1e-15)
    np.testing.assert_array_equal(moved(straight(1.0), 2.0, 3.0), [(2, 3), (3, 3)])
    joined = strokes(straight(1.0), straight(2.0))
    assert np.isnan(joined[2]).all()
    np.testing.assert_array_equal(joined[[0, 1, 3, 4], 0], [0, 1, 0, 2])


def test_hulls_are_convex_and_go_against_the_clock() -> None:
    points = np.random.default_rng(0).normal(size=(40, 2))
    corners = hull(points)
    sides = np.roll(corners, -1, axis=0) - corners
    turns = np.cross(np.pad(sides, ((0, 0), (0, 1))), np.pad(np.roll(sides, -1, axis=0), ((0, 0), (0, 1))))[:, 2]
    assert (turns > 0).all()
    heights = np.stack([(points - c) @ (-side[1], side[0]) for c, side in zip(corners, sides, strict=True)])
    assert heights.min() > -1e-12
