"""Surfaces in space: their sizes, and normals that point outwards."""

import numpy as np
import pytest

from jaxmbd.scene.surfaces import (
    Faces,
    arrow,
    ball,
    bar,
    box,
    circle,
    coil,
    cylinder,
    equivalent_solid,
    hull_faces,
    joined,
    normals,
    pyramid,
    rectangle,
    rings,
    rounded_bar,
    spread,
    tube,
)


def volume(faces: Faces) -> float:
    """The volume that a closed surface encloses, by the divergence theorem: negative for normals that point inwards."""
    triangles = [(face[0], face[i], face[i + 1]) for face in faces for i in range(1, len(face) - 1)]
    return float(sum(np.dot(a, np.cross(b, c)) for a, b, c in triangles)) / 6


@pytest.mark.parametrize(
    ("faces", "exact", "missing"),
    [
        (box(1.0, 2.0, 3.0), 6.0, 1e-12),
        (ball(0.5, 64), np.pi / 6, 5e-3),
        (cylinder(0.5, 2.0, 64), np.pi / 2, 5e-3),
        (rounded_bar(2.0, 0.3, 4, 64), np.pi * (0.09 * 2.0 + 4 / 3 * 0.027), 2e-2),
        (pyramid(2.0, 1.0, 3.0), 7.0, 1e-12),
        (tube(circle(1.0, points=129), 0.2, 64), 2 * np.pi**2 * 0.04, 5e-3),
        (bar(np.zeros(3), np.array([1.0, 2.0, -2.0]), 0.1, 1.0), np.pi * (0.01 * 3.0 + 4 / 3 * 1e-3), 0.1),
    ],
    ids=["box", "ball", "cylinder", "rounded bar", "pyramid", "tube", "bar"],
)
def test_closed_surfaces_enclose_their_volume(faces: Faces, exact: float, missing: float) -> None:
    assert volume(faces) == pytest.approx(exact, rel=missing)


@pytest.mark.parametrize("length", [0.5, 4.0])
def test_a_coil_reaches_from_end_to_end(length: float) -> None:
    points = coil(0.3, 0.05, length, 6, lead=0.1).reshape(-1, 3)
    assert np.linalg.norm(points, axis=1).min() <= 0.05 + 1e-12
    assert np.linalg.norm(points - (0, 0, length), axis=1).min() <= 0.05 + 1e-12
    assert np.linalg.norm(points[:, :2], axis=1).max() == pytest.approx(0.35, abs=0.01)


def test_an_arrow_ends_at_its_vector() -> None:
    vector = np.array([0.3, -0.4, 1.2])
    points = arrow(vector, 0.02).reshape(-1, 3)
    along = points @ vector / 1.3
    np.testing.assert_allclose(points[np.argmax(along)], vector, atol=1e-12)
    assert along.max() == pytest.approx(1.3)
    across = np.linalg.norm(points - np.outer(along, vector / 1.3), axis=1)
    assert across.max() == pytest.approx(0.45 * 0.12)


def test_solids_have_the_mass_and_inertia_of_their_bodies() -> None:
    """Half-extents from the moments of a ball, a cylinder and a box, in principal axes that are turned."""
    turn = np.array([(0.36, 0.48, -0.8), (-0.8, 0.6, 0.0), (0.48, 0.64, 0.6)])
    a, b, c, m = 0.1, 0.25, 0.4, 3.0
    cases = {
        "ball": (np.full(3, 0.4 * a * a), np.full(3, a)),
        "cylinder": (np.array([(3 * a * a + 4 * c * c) / 12] * 2 + [a * a / 2]), np.array([a, a, c])),
        "box": (np.array([b * b + c * c, a * a + c * c, a * a + b * b]) / 3, np.array([a, b, c])),
    }
    for kind, (moments, halves) in cases.items():
        solid = equivalent_solid(m, m * turn @ np.diag(moments) @ turn.T)
        assert solid.kind == kind
        np.testing.assert_allclose(np.sort(solid.halves), np.sort(halves), rtol=1e-9)
        assert np.linalg.det(solid.axes) == pytest.approx(1.0) or kind == "ball"
        along, least, most = solid.reach(turn[:, 2])
        assert along == pytest.approx(halves[2])
        assert (least, most) == pytest.approx((min(halves[:2]), max(halves[:2])))
        assert solid.limited(0.05).halves.max() == pytest.approx(0.05)
        np.testing.assert_array_equal(solid.limited(9.0).halves, solid.halves)


def test_hulls_in_space_are_closed() -> None:
    corners = np.array([(x, y, z) for x in (0, 1) for y in (0, 2) for z in (0, 3)], dtype=float)
    faces = hull_faces(np.concatenate([corners, [(0.5, 1.0, 1.5)]]), 3)
    assert len(faces) == 6
    assert volume(joined(*(face[None] for face in faces))) == pytest.approx(6.0)
    (flat,) = hull_faces(corners[:4], 2)
    assert len(flat) == 4


def test_dimensions_of_points() -> None:
    line = np.outer(np.arange(4.0), (1.0, 2.0, 3.0))
    assert [spread(line[:1], 1e-6), spread(line, 1e-6)] == [0, 1]
    assert spread(np.concatenate([line, [(0.0, 1.0, 0.0)]]), 1e-6) == 2
    assert spread(np.concatenate([np.eye(3), np.zeros((1, 3))]), 1e-6) == 3
    assert spread(np.concatenate([np.eye(3), np.zeros((1, 3))]), 9.0) == 0


def test_normals_and_rings() -> None:
    np.testing.assert_allclose(normals(rectangle(np.zeros(2), np.ones(2))), [(0, 0, 1)])
    np.testing.assert_array_equal(normals(np.zeros((1, 4, 3))), [(0, 0, 0)])
    assert [rings(x, 1.0) for x in (0.2, 3.0, 3.1, 1e6)] == [1, 3, 4, 60]
