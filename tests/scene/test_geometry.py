"""Outlines of bodies, extents and sizes of symbols over a motion."""

import numpy as np
import pytest

from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.errors import MechanismError
from jaxmbd.scene.geometry import Geometry, acting_marker, symbol_size, traced_marker
from tests.scene.bench import HINGE, KINDS, TS, centre, coordinates_of, ground_point, hung, rod_point, world


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_lengths_and_travel_follow_markers_that_move(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    geometry = Geometry(mechanism, TS, coordinates_of(mechanism, TS))
    a, b = (geometry.place(marker) for marker in mechanism["spring"].markers)
    away = np.array([rod_point(dim, t) - ground_point(dim, t) for t in TS])
    np.testing.assert_allclose(geometry.lengths(a, b), np.linalg.norm(away, axis=1), atol=1e-12)
    low, high = geometry.travel(a, b)  # the axes of the ground's marker are those of the world
    np.testing.assert_allclose(low, away.min(axis=0), atol=1e-12)
    np.testing.assert_allclose(high, away.max(axis=0), atol=1e-12)
    low, high = geometry.travel(geometry.centre(0), b)
    along = world(dim, (1, 0)) != 0
    np.testing.assert_allclose((low[along], high[along]), ([-0.1], [0.5]), atol=1e-12)


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_the_extent_contains_paths_of_markers(dim: int, coordinates: str) -> None:
    """The ground's marker goes from 1 to 3 m to the right, so the picture is as wide as from the rod to there."""
    mechanism = hung(dim, coordinates)
    geometry = Geometry(mechanism, TS, coordinates_of(mechanism, TS))
    fixed = [world(dim, HINGE), *(world(dim, centre(t)) for t in TS)]
    moving = [point for t in TS for point in (ground_point(dim, t), rod_point(dim, t))]
    extent = np.ptp(np.array([*fixed, *moving]), axis=0).max()
    assert extent > 2.5
    assert geometry.size == pytest.approx(symbol_size(extent, [0.5]), rel=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_outlines_hold_fixed_markers_alone(dim: int) -> None:
    mechanism = hung(dim, "absolute")
    geometry = Geometry(mechanism, TS, coordinates_of(mechanism, TS))
    (corners,) = geometry.corners
    np.testing.assert_allclose(corners, [world(dim, (-0.5, 0.0)), np.zeros(dim)])
    np.testing.assert_allclose(geometry.ground, [world(dim, HINGE)])
    assert [(place.body, place.frame) for place in geometry.moving] == [(-1, 1), (0, 2)]
    assert geometry.flat == [1]


def test_places_coincide_if_one_frame_carries_both() -> None:
    mechanism = hung(2, "absolute")
    geometry = Geometry(mechanism, TS, coordinates_of(mechanism, TS))
    support, rider = (geometry.place(marker) for marker in mechanism["spring"].markers)
    assert geometry.coincide(support, geometry.place(mechanism["S"].at))
    assert not geometry.coincide(support, rider)
    origin = geometry.place(pl.ground.at(0.0, 0.0))
    np.testing.assert_array_equal(origin.offset, support.offset)
    assert not geometry.coincide(origin, support)
    assert geometry.coincide(origin, geometry.place(pl.ground.at(0.9e-6 * geometry.size, 0.0)))
    assert not geometry.coincide(origin, geometry.place(pl.ground.at(1.1e-6 * geometry.size, 0.0)))


def test_sizes_of_symbols() -> None:
    """2.1 % of the picture; less if bodies are small: 11 % of the median one, but at least half."""
    assert symbol_size(2.0, []) == pytest.approx(0.042)
    assert symbol_size(0.0, []) == pytest.approx(0.021)
    assert symbol_size(2.0, [0.3, 0.31, 9.0]) == pytest.approx(0.0341)
    assert symbol_size(2.0, [0.01]) == pytest.approx(0.021)


def test_a_disc_and_a_ball_have_their_radii() -> None:
    """A body alone is drawn as its equivalent solid; a rolling disc by its radius."""
    ball = sp.Body("ball", 2.0, (0.008, 0.008, 0.008))  # 2/5 m r² with r = 0.1 m
    geometry = Geometry(sp.Mechanism([ball], floating=True), [0.0], [[0, 0, 0, 1, 0, 0, 0]])
    (solid,) = geometry.solids
    assert solid is not None
    np.testing.assert_allclose(solid.halves, 0.1)
    wheel = sp.Body("wheel", 1.0, (0.1, 0.1, 0.2))
    rolling = sp.Mechanism([wheel], [sp.RollingDisc("roll", sp.ground.at(), wheel.at(), radius=0.4)])
    geometry = Geometry(rolling, [0.0], [[0, 0, 0.4, np.sqrt(0.5), np.sqrt(0.5), 0, 0]])
    assert geometry.discs == {0: 0.4}
    assert geometry.size == pytest.approx(symbol_size(0.8, []))


def test_names_of_traces_and_reactions_are_checked() -> None:
    mechanism = hung(2, "joint")
    assert traced_marker(mechanism, "R") is mechanism["R"].at
    assert acting_marker(mechanism, "O") is mechanism["O"].b
    with pytest.raises(MechanismError, match="spring"):
        traced_marker(mechanism, "spring")
    with pytest.raises(MechanismError, match="rod"):
        acting_marker(mechanism, "rod")
