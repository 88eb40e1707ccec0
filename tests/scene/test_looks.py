"""The shapes of bodies in a scene: where their surfaces are, their colours, and meshes that are made coarser."""

from typing import Any

import numpy as np
import pytest

from jaxmbd import spatial as sp
from jaxmbd.scene import looks
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.pieces import BODIES, STAND, Piece
from jaxmbd.scene.scene import Scene
from jaxmbd.scene.surfaces import normals
from jaxmbd.space import rotation
from jaxmbd.space.shape import Shape, Triangles
from tests.space.mesh_bench import ball_mesh, box_mesh

shapes = sp.shapes
HALF = 0.5


def scene_of(*own: Shape, scenery: Any = ()) -> Scene:
    """A free body at (1, 2, 3), turned by a quarter about z."""
    pose = sp.pose(1.0, 2.0, 3.0, rotation.about("z", np.pi / 2))
    body = sp.Body("stone", 1.0, (1.0, 1.0, 1.0), pose, shape=own)
    mechanism = sp.Mechanism([body], scenery=scenery, floating=True)
    return Scene(Geometry(mechanism, np.zeros(1), np.asarray(pose)[None]))


def surface(scene: Scene, piece: Piece) -> np.ndarray:
    return piece.shape(scene.motion.at(0))


def volume(faces: np.ndarray) -> float:
    """The volume within polygons, by fans of triangles about their first corners."""
    a, b, c = faces[:, :1], faces[:, 1:-1], faces[:, 2:]
    return float(np.sum(np.cross(a, b) * c)) / 6


SIMPLE: dict[str, tuple[Shape, tuple[float, float, float], float]] = {
    "box": (shapes.box(0.1, 0.2, 0.3), (0.1, 0.2, 0.3), 0.006),
    "cylinder": (shapes.cylinder(0.1, 0.3), (0.2, 0.2, 0.3), np.pi * 0.003),
    "sphere": (shapes.sphere(0.1), (0.2, 0.2, 0.2), 4 / 3 * np.pi * 1e-3),
    "capsule": (shapes.capsule(0.1, 0.3), (0.2, 0.2, 0.5), np.pi * 0.003 + 4 / 3 * np.pi * 1e-3),
    "ellipsoid": (shapes.ellipsoid(0.2, 0.4, 0.6), (0.2, 0.4, 0.6), 4 / 3 * np.pi * 0.006),
    "mesh": (shapes.mesh(box_mesh(0.1, 0.2, 0.3)), (0.1, 0.2, 0.3), 0.006),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_surfaces_have_the_size_and_point_outwards(name: str) -> None:
    shape, extent, inside = SIMPLE[name]
    scene = scene_of(shape.translated(x=0.5))
    (piece,) = scene.pieces
    faces = surface(scene, piece)
    x, y, z = extent
    np.testing.assert_allclose(np.ptp(faces.reshape(-1, 3), axis=0), (y, x, z), rtol=6e-3)  # turned by a quarter
    np.testing.assert_allclose(np.mean([faces.min((0, 1)), faces.max((0, 1))], axis=0), (1.0, 2.5, 3.0), atol=1e-3)
    np.testing.assert_allclose(volume(faces - (1.0, 2.5, 3.0)), inside, rtol=0.03)
    outward = np.sum(normals(faces) * (faces.mean(axis=1) - (1.0, 2.5, 3.0)), axis=1)
    assert (outward > -1e-9).all()
    assert all(low < high for low, high in scene.limits)


def test_colours_are_the_shapes_or_the_bodys_and_never_ink() -> None:
    own = [shapes.sphere(0.1), shapes.sphere(0.1, "#123456", 0.5), shapes.sphere(0.1, "#000000")]
    scene = scene_of(*own, scenery=[shapes.box(1, 1, 1), shapes.box(1, 1, 1, "#ff0000")])
    ground, red, plain, half, black = scene.pieces
    assert (ground.colour, red.colour, plain.colour) == (STAND, "#ff0000", BODIES[0])
    assert (half.colour, half.alpha) == ("#123456", 0.5)
    assert black.colour == "#010101"  # ink is light in a dark page
    assert [piece.part for piece in scene.pieces] == ["ground", "ground", "stone", "stone", "stone"]


def test_the_symbols_of_a_body_are_gone_where_it_has_a_shape() -> None:
    assert len(scene_of().pieces) > 0
    assert not any(piece.is_look for piece in scene_of().pieces)
    assert all(piece.is_look for piece in scene_of(shapes.sphere(0.1)).pieces)


def test_symbols_fit_the_size_of_shapes() -> None:
    small, large = (scene_of(shapes.box(x, x, x)).size for x in (0.1, 10.0))
    np.testing.assert_allclose(large / small, 100.0)


def coloured() -> Shape:
    vertices, faces = ball_mesh(0.1, 4)
    colours = np.where(vertices[faces].mean(axis=1)[:, 2:] > 0, (255, 0, 0), (0, 0, 255)).astype(np.uint8)
    return Shape("mesh", (), Triangles(vertices.astype("<f4"), faces.astype("<u4"), colours))


def test_faces_of_a_mesh_have_their_colours() -> None:
    scene = scene_of(coloured())
    (piece,) = scene.pieces
    above = surface(scene, piece).mean(axis=1)[:, 2] > 3.0
    np.testing.assert_array_equal(np.asarray(piece.dark)[above], np.tile([1.0, 0, 0], (above.sum(), 1)))
    (plain,) = scene_of(coloured().coloured("#00ff00")).pieces
    assert (plain.colour, plain.dark) == ("#00ff00", 1.0)


def test_large_meshes_are_made_coarser_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "MOST_FACES", 500)
    scene = scene_of(coloured())  # 2048 triangles
    (piece,) = scene.pieces
    faces = surface(scene, piece)
    assert 250 < len(faces) <= 500
    np.testing.assert_allclose(volume(faces - (1, 2, 3)), 4 / 3 * np.pi * 1e-3, rtol=0.1)
    above = faces.mean(axis=1)[:, 2] > 3.02
    np.testing.assert_array_equal(np.asarray(piece.dark)[above], np.tile([1.0, 0, 0], (above.sum(), 1)))
    outward = np.sum(normals(faces) * (faces.mean(axis=1) - (1.0, 2.0, 3.0)), axis=1)
    assert (outward > 0).all()
    said = f"Meshes of stone are drawn with {len(faces)} of their 2048 triangles."
    assert looks.remark(scene.geometry.mechanism) == said
    assert looks.remark(scene_of(shapes.sphere(0.1), SIMPLE["mesh"][0]).geometry.mechanism) == ""


def test_meshes_share_what_a_page_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "MOST_FACES", 1000)
    scene = scene_of(coloured(), shapes.mesh(ball_mesh(0.1, 3)).translated(x=1.0))
    counts = [len(surface(scene, piece)) for piece in scene.pieces]
    assert sum(counts) <= 1000
    assert counts[0] > 2 * counts[1]


def test_pictures_sort_small_faces() -> None:
    scene = scene_of(shapes.box(1, 1, 1), coloured(), shapes.box(1, 1, 1, opacity=0.5))
    box, ball, sheer = looks.for_sorting(scene.pieces, 700)
    assert [len(surface(scene, piece)) for piece in (box, sheer)] == [6 * 64, 6]
    np.testing.assert_allclose(volume(surface(scene, box) - (1, 2, 3)), 1.0)
    assert len(surface(scene, ball)) < 700
    assert np.asarray(ball.dark).shape == (len(surface(scene, ball)), 3)
