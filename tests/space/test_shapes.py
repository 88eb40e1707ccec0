# pyright: reportArgumentType=false
"""Shapes: their poses, what makes two equal, and what is none."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxmbd import MechanismError
from jaxmbd import spatial as sp
from jaxmbd.space import rotation
from jaxmbd.space.shape import Shape, Triangles, matrix
from tests.space.mesh_bench import box_mesh

shapes = sp.shapes
BOX = box_mesh(1.0, 2.0, 3.0)


def test_poses_compose() -> None:
    first, second = rotation.about("x", 0.3), rotation.about((1, 2, 3), 0.8)
    shape = shapes.box(1, 2, 3).rotated(first).translated(0.1, 0.2, 0.3).rotated(second).translated(z=1.0)
    R, p = np.asarray(rotation.matrix(second)), np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(shape.position, R @ p + (0, 0, 1), atol=1e-15)
    np.testing.assert_allclose(matrix(np.array(shape.rotation)), R @ np.asarray(rotation.matrix(first)), atol=1e-15)
    assert shape.size == (1.0, 2.0, 3.0)


def test_colours() -> None:
    shape = shapes.sphere(0.1, colour="#AbCdEf", opacity=0.5)
    assert (shape.colour, shape.opacity) == ("#abcdef", 0.5)
    assert shape.coloured(None) == shapes.sphere(0.1, opacity=0.5)
    assert shape.coloured("#000000", 1.0) == shapes.sphere(0.1, colour="#000000")


def test_a_mirrored_mesh_still_points_outwards() -> None:
    mirrored = shapes.mesh(BOX, scale=(1, 1, -2)).triangles
    assert mirrored is not None
    solid = sp.mesh(1.0, (np.asarray(mirrored.vertices, float), np.asarray(mirrored.faces, int)))
    np.testing.assert_allclose(solid.mass, 12.0)


def test_meshes_are_equal_by_what_they_look_like() -> None:
    a, b = shapes.mesh(BOX), shapes.mesh((BOX[0].copy(), BOX[1].copy()))
    assert (a, hash(a)) == (b, hash(b))
    assert a != shapes.mesh(BOX, scale=2.0)
    assert a != shapes.mesh((BOX[0], BOX[1][:-1]))
    assert a.triangles is not None
    mesh = a.triangles
    assert Triangles(mesh.vertices, mesh.faces, file="elsewhere.stl") == mesh
    assert Triangles(mesh.vertices, mesh.faces, np.zeros((12, 3), np.uint8)) != mesh
    with pytest.raises(ValueError, match="read-only"):
        mesh.vertices[0] = 0.0


def test_shapes_are_no_numbers_of_a_mechanism() -> None:
    body = sp.Body("part", 1.0, (1, 1, 1), shape=[shapes.mesh(BOX), shapes.box(1, 1, 1)])
    assert len(jax.tree.leaves(body)) == 3  # mass, inertia, pose
    doubled = jax.tree.map(lambda x: 2.0 * x, body)
    assert doubled.shape == body.shape


def test_a_mechanism_keeps_its_scenery() -> None:
    body, wall = sp.Body("part", 1.0, (1, 1, 1)), shapes.box(1, 1, 0.1)
    mechanism = sp.Mechanism([body], scenery=wall, floating=True)
    added = mechanism.with_parts([sp.Body("other", 1.0, (1, 1, 1))])
    for other in (mechanism, added, mechanism.with_coordinates("joint"), mechanism.replacing(forces=[sp.Gravity()])):
        assert other.scenery == (wall,)


TRACED = "is traced. Shapes are looked at"
WRONG: dict[str, tuple[Any, str]] = {
    "size": (lambda: shapes.box(1, 0, 1), r"shapes.box: y must be positive \[m\] and finite, got 0"),
    "colour": (lambda: shapes.box(1, 1, 1, colour="red"), r'colour must be written as "#rrggbb".* got \'red\''),
    "opacity": (lambda: shapes.sphere(1, opacity=0), r"shapes.sphere: opacity must be above 0, and at most 1, got 0"),
    "rotation": (lambda: shapes.sphere(1).placed((0, 0, 0), (0, 0, 0, 0)), r"Euler parameters .* are all zero"),
    "position": (lambda: shapes.sphere(1).translated(x=np.inf), r"position must be finite"),
    "kind": (lambda: Shape("cone"), r"kind must be one of box, cylinder, .*, got 'cone'"),
    "a mesh without triangles": (lambda: Shape("mesh"), r"a mesh has triangles"),
    "scale": (lambda: shapes.mesh(BOX, scale=0.0), r"scale must be a number that is not zero, or three, got 0.0"),
    "a far vertex": (lambda: shapes.mesh(BOX, scale=1e300), r"too far away for numbers in single precision"),
    "no shape": (lambda: sp.Body("b", 1.0, (1, 1, 1), shape="box"), r"Body 'b': shape must be a shape, such as"),
    "no shapes": (lambda: sp.Body("b", 1.0, (1, 1, 1), shape=[1]), r"Body 'b': shape must be a shape, .* got 1"),
    "a traced size": (lambda: jax.jit(lambda x: shapes.box(x, 1, 1).size[0])(1.0), TRACED),
    "a traced place": (lambda: jax.jit(lambda x: shapes.sphere(1).translated(x).position[0])(1.0), TRACED),
    "scenery": (lambda: sp.Mechanism([sp.Body("b", 1.0, (1, 1, 1))], scenery=3, floating=True), r"scenery must be a"),
}  # fmt: skip


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_shape_is_said(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(MechanismError, match=message):
        make()
