"""Solids of meshes against closed forms and finite differences; which meshes are no solids, and why."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd import MechanismError
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.space import rotation
from tests.space.mesh_bench import ball_mesh, box_mesh

EDGES = (0.4, 0.7, 1.1)
VERTICES, FACES = box_mesh(*EDGES)


def assert_same(a: sp.Solid, b: sp.Solid, tolerance: float = 1e-13) -> None:
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance * float(b.mass))


def test_a_mesh_of_a_box_is_a_box() -> None:
    assert_same(sp.mesh(7800.0, (VERTICES, FACES)), sp.box(7800.0, *EDGES))


def test_a_mesh_far_from_the_origin_keeps_its_digits() -> None:
    turn = rotation.about("x", 0.7)
    points = VERTICES @ np.asarray(rotation.matrix(turn)).T + (30.0, -20.0, 10.0)
    solid = sp.mesh(2.0, (points, FACES))
    expected = sp.box(2.0, *EDGES).rotated(turn).translated(30.0, -20.0, 10.0)
    np.testing.assert_allclose(solid.inertia, expected.inertia, atol=1e-14)
    np.testing.assert_allclose(solid.centre, expected.centre, rtol=1e-13)


def test_balls_converge_to_the_ball() -> None:
    """The volume that an inscribed polyhedron misses falls with the square of its edges."""
    ball, errors = sp.sphere(1.0, 0.3), []
    for finer in (3, 4, 5):
        solid = sp.mesh(1.0, ball_mesh(0.3, finer))
        errors.append([float(1 - solid.mass / ball.mass), float(1 - solid.inertia[0, 0] / ball.inertia[0, 0])])
        np.testing.assert_allclose(solid.inertia, solid.inertia[0, 0] * np.eye(3), atol=1e-15)
    ratios = np.array(errors)[:-1] / np.array(errors)[1:]
    np.testing.assert_allclose(ratios, 4.0, rtol=0.02)


def test_a_cavity_is_left_out() -> None:
    inner, faces = box_mesh(0.2, 0.2, 0.2)
    both = np.concatenate([VERTICES, inner]), np.concatenate([FACES, faces[:, ::-1] + len(VERTICES)])
    solid, whole, hole = sp.mesh(5.0, both), sp.box(5.0, *EDGES), sp.box(5.0, 0.2, 0.2, 0.2)
    np.testing.assert_allclose(solid.mass, whole.mass - hole.mass, rtol=1e-14)
    np.testing.assert_allclose(solid.inertia, whole.inertia - hole.inertia, atol=1e-15)


def test_scale_and_its_derivatives() -> None:
    """`m ∝ s³` and `J ∝ s⁵`: forward and reverse, inside `jit`, and of many at once."""

    def numbers(scale: Any) -> Any:
        solid = sp.mesh(7800.0, (VERTICES, FACES), scale)
        return jnp.stack([solid.mass, *solid.inertia[jnp.array([0, 1, 2]), jnp.array([0, 1, 2])]])

    scale, orders = 1e-3, np.array([3.0, 5.0, 5.0, 5.0])
    value = np.asarray(numbers(scale))
    np.testing.assert_allclose(value, np.asarray(numbers(1.0)) * scale**orders, rtol=1e-14)
    for derivative in (jax.jacfwd(numbers), jax.jit(jax.jacrev(numbers))):
        np.testing.assert_allclose(derivative(scale), orders * value / scale, rtol=1e-13)
    several = jax.jit(jax.vmap(numbers))(jnp.array([1e-3, 2e-3]))
    np.testing.assert_allclose(several[1], value * 2.0**orders, rtol=1e-13)


def test_derivatives_by_vertices_are_those_of_differences() -> None:
    def number(vertices: Any, density: Any) -> Any:
        solid = sp.mesh(density, (vertices, FACES))
        return solid.inertia[0, 1] + 2.0 * solid.centre[2] + solid.mass

    forward = jax.jacfwd(number, (0, 1))(jnp.asarray(VERTICES), 3.0)
    reverse = jax.grad(number, (0, 1))(jnp.asarray(VERTICES), 3.0)
    step = 1e-6
    for k, i in ((0, 0), (3, 1), (7, 2)):
        moved = [VERTICES.copy() for _ in range(2)]
        moved[0][k, i] += step
        moved[1][k, i] -= step
        difference = (number(moved[0], 3.0) - number(moved[1], 3.0)) / (2 * step)
        np.testing.assert_allclose([forward[0][k, i], reverse[0][k, i]], difference, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose([forward[1], reverse[1]], float(sp.mesh(1.0, (VERTICES, FACES)).mass), rtol=1e-13)


def test_a_body_of_a_mesh_looks_like_it() -> None:
    solid = sp.mesh(7800.0, (VERTICES + np.array([1.0, 0.0, 0.0]), FACES))
    body = sp.Body("part", solid)
    (shape,) = body.shape
    np.testing.assert_allclose(shape.position, (-1.0, 0.0, 0.0), atol=1e-15)  # the origin is the centre of mass
    assert sp.Body("part", solid, shape=()).shape == ()
    assert sp.Body("part", solid, shape=sp.shapes.sphere(0.1)).shape == (sp.shapes.sphere(0.1),)
    assert (solid + sp.box(1.0, *EDGES).translated(x=3.0)).shape == solid.shape
    moved = solid.rotated(rotation.about("z", np.pi / 2)).translated(z=2.0).shape[0]
    np.testing.assert_allclose(moved.position, (0.0, 0.0, 2.0))
    np.testing.assert_allclose(moved.rotation, (np.sqrt(0.5), 0, 0, np.sqrt(0.5)))
    assert jax.jit(lambda s: sp.Body("part", sp.mesh(1.0, (VERTICES, FACES), s)))(1.0).shape == ()
    flat = pl.Body("part", solid)
    np.testing.assert_allclose(flat.inertia, solid.inertia[2, 2])


def with_one_turned() -> np.ndarray:
    return np.concatenate([FACES[:-1], FACES[-1:, ::-1]])


def two_boxes() -> tuple[np.ndarray, np.ndarray]:
    """Two boxes side by side, of which the second is inside out."""
    return np.concatenate([VERTICES, VERTICES * 0.5 + (2.0, 0, 0)]), np.concatenate([FACES, FACES[:, ::-1] + 8])


WRONG: dict[str, tuple[Any, str]] = {
    "open": ((VERTICES, FACES[:-1]), r"^mesh: it is not closed: 3 edges .* from \(-0.2, -0.35, 0.55\) to .*watertight"),
    "one inverted": ((VERTICES, with_one_turned()), r"^mesh: faces are inverted: at 3 edges .*fix_winding"),
    "inside out": ((VERTICES, FACES[:, ::-1]), r"all its faces point inwards.* volume would be -0.308.*faces\[:, ::-1"),
    "flat": ((VERTICES * (1, 1, 0), FACES), r"it encloses no volume \(0 for a surface of .*flat"),
    "one of two inside out": (two_boxes(), r"one of its 2 separate surfaces points inwards, about \(2, 0, 0\)"),
    "no faces": ((VERTICES, FACES[:0]), r"mesh: there is no triangle"),
    "a vertex too many": (
        (VERTICES, FACES + 1),
        r"mesh: a triangle has the vertex 8; there are 8, numbered from 0 to 7",
    ),
    "a negative vertex": ((VERTICES, FACES - 1), r"mesh: a triangle has the vertex -1"),
    "no numbers": ((VERTICES * np.nan, FACES), r"mesh: vertices must be finite"),
    "in the plane": ((VERTICES[:, :2], FACES), r"mesh: vertices must have shape \(8, 3\), got shape \(8, 2\)"),
    "no whole numbers": ((VERTICES, FACES * 1.0), r"mesh: triangles must be whole numbers of shape \(m, 3\)"),
    "three things": ((VERTICES, FACES, 1), r"expected a file or \(vertices, triangles\), got 3 things"),
}


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_solid_is_said(name: str) -> None:
    source, message = WRONG[name]
    with pytest.raises(MechanismError, match=message):
        sp.mesh(1.0, source)


def test_traced_vertices_need_a_closed_surface_too() -> None:
    with pytest.raises(MechanismError, match=r"not closed: 3 edges .*, the first from vertex \d to \d"):
        jax.jit(lambda x: sp.mesh(1.0, (x, FACES[:-1])).mass)(VERTICES)
    for density, scale, message in (
        (0.0, 1.0, r"density must be positive \[kg/m³\]"),
        (1.0, -1.0, "scale must be pos"),
    ):
        with pytest.raises(MechanismError, match=message):
            sp.mesh(density, (VERTICES, FACES), scale)
