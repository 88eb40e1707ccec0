"""Solids against sums over fine grids and closed forms; which inertias are refused."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd import MechanismError
from jaxmbd.space import rotation
from jaxmbd.space.solid import Solid, box, check_inertia, cylinder, disc, inertia_matrix, point, rod, sphere, tube

SHAPES: dict[str, tuple[Callable[..., Solid], tuple[float, ...], Callable[..., Any]]] = {
    "box": (box, (0.4, 0.7, 1.1), lambda x, y, z: np.ones_like(x, dtype=bool)),
    "cylinder": (cylinder, (0.5, 1.4), lambda x, y, z: x**2 + y**2 < 0.25),
    "tube": (tube, (0.5, 0.35, 1.4), lambda x, y, z: (x**2 + y**2 < 0.25) & (x**2 + y**2 > 0.35**2)),
    "disc": (disc, (0.5, 0.1), lambda x, y, z: x**2 + y**2 < 0.25),
    "rod": (rod, (1.4, 0.2), lambda x, y, z: y**2 + z**2 < 0.04),
    "sphere": (sphere, (0.5,), lambda x, y, z: x**2 + y**2 + z**2 < 0.25),
}
EDGES = {
    "box": (0.4, 0.7, 1.1),
    "cylinder": (1, 1, 1.4),
    "tube": (1, 1, 1.4),
    "disc": (1, 1, 0.1),
    "rod": (1.4, 0.4, 0.4),
    "sphere": (1, 1, 1),
}


def assert_same(a: Solid, b: Solid) -> None:
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-13, atol=1e-13)


def steiner(mass: Any, inertia: Any, centre: Any) -> np.ndarray:
    """The inertia about the frame's origin."""
    c = np.asarray(centre)
    return np.asarray(inertia) + np.asarray(mass) * (c @ c * np.eye(3) - np.outer(c, c))


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_the_sums_over_small_cubes(name: str) -> None:
    make, sizes, inside = SHAPES[name]
    n = 100
    lines = [edge * ((np.arange(n) + 0.5) / n - 0.5) for edge in EDGES[name]]
    points = np.stack(np.meshgrid(*lines, indexing="ij")).reshape(3, -1)
    points = points[:, inside(*points)]
    dm = 3.0 * np.prod(EDGES[name]) / n**3
    squares = dm * np.sum(points**2, axis=1)
    solid = make(3.0, *sizes)
    np.testing.assert_allclose(solid.mass, dm * points.shape[1], rtol=2e-3)
    np.testing.assert_allclose(solid.inertia, np.diag(squares.sum() - squares), rtol=4e-3, atol=1e-15)
    np.testing.assert_array_equal(solid.centre, 0)


def test_a_box_is_its_two_halves_moved_turned_and_added() -> None:
    whole = box(7800, 0.3, 0.2, 0.1)
    half = box(7800, 0.15, 0.2, 0.1)
    assert_same(half.translated(x=0.075) + half.translated(-0.075), whole)
    upright = box(7800, 0.2, 0.15, 0.1).translated(y=-0.075)
    turn = rotation.about("z", np.pi / 2)
    both = upright.rotated(turn) + half.translated(x=-0.075)
    assert_same(both, whole)
    oblique = rotation.from_vector((0.3, -1.0, 0.5))
    shifted = whole.translated(1, 2, 3)
    assert_same(
        (upright.rotated(turn) + half.translated(-0.075)).translated(1, 2, 3).rotated(oblique), shifted.rotated(oblique)
    )
    assert_same(shifted.rotated(oblique).rotated(rotation.inverse(oblique)), shifted)


def test_turning_and_adding_keep_the_inertia_about_the_origin(rng: np.random.Generator) -> None:
    a, b = box(2, 1, 2, 3).translated(0.5, -1, 2), cylinder(1, 0.4, 2).translated(z=-3)
    R = np.asarray(rotation.matrix(rng.normal(size=4)))
    total = a.rotated(R) + b
    np.testing.assert_allclose(total.mass, a.mass + b.mass)
    np.testing.assert_allclose(total.mass * total.centre, a.mass * (R @ a.centre) + b.mass * b.centre)
    expected = R @ steiner(a.mass, a.inertia, a.centre) @ R.T + steiner(b.mass, b.inertia, b.centre)
    np.testing.assert_allclose(steiner(total.mass, total.inertia, total.centre), expected, rtol=1e-13)


def test_closed_forms_of_points_tubes_and_thin_rods() -> None:
    dumbbell = point(2.0).translated(x=0.5) + point(2.0).translated(x=-0.5)
    np.testing.assert_allclose(dumbbell.inertia, np.diag([0, 1, 1]), atol=1e-16)
    thin = rod(1000, length=2, radius=1e-4)
    np.testing.assert_allclose(thin.inertia[1, 1], thin.mass * 4 / 12, rtol=1e-8)
    whole, core, shell = cylinder(5, 0.3, 1), cylinder(5, 0.2, 1), tube(5, 0.3, 0.2, 1)
    assert_same(shell + core, whole)
    assert_same(disc(5, 0.3, 1), whole)


def test_numbers_of_solids_are_differentiable() -> None:
    def moment(length: jax.Array) -> jax.Array:
        solid = rod(1.0, length, 0.1).translated(x=length / 2) + sphere(1.0, 0.2).translated(length)
        return solid.rotated(rotation.about("z", length)).inertia[2, 2]

    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(moment)))(jnp.array([1.0 - 1e-6, 1.0, 1.0 + 1e-6]))
    np.testing.assert_allclose(slopes[1], (values[2] - values[0]) / 2e-6, rtol=1e-7)


def test_single_precision_stays_single() -> None:
    one = jnp.float32(1)
    solid = box(one, one, one, one).rotated(rotation.from_vector((1.0, 2.0, 3.0))).translated(1, 2, 3) + disc(
        one, one, one
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(solid)} == {jnp.dtype("float32")}


def test_inertias_are_matrices_or_principal_moments() -> None:
    np.testing.assert_array_equal(inertia_matrix((1, 2, 3)), np.diag([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(inertia_matrix(np.eye(3)), np.eye(3))
    assert inertia_matrix((1, 2, 3)).dtype == jnp.dtype(float)
    np.testing.assert_array_equal(Solid(1.0, (2.0, 2.0, 2.0)).inertia, 2 * np.eye(3))


def test_good_inertias_pass() -> None:
    R = np.asarray(rotation.matrix((1.0, 0.3, -0.2, 0.5)))
    check_inertia("Body 'a'", R @ np.diag([1.0, 2.0, 3.0]) @ R.T)
    check_inertia("Body 'a'", jnp.asarray(R @ np.diag([1.0, 1e-8, 1.0]) @ R.T))
    check_inertia("Body 'a'", rod(1000, 2, 1e-4).inertia)
    check_inertia("Body 'a'", jnp.asarray(R @ np.diag([1.0, 2.0, 3.0]) @ R.T, dtype=jnp.float32))
    jax.jit(lambda J: check_inertia("Body 'a'", J))(-jnp.eye(3))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: check_inertia("Body 'a'", np.ones(3)), r"Body 'a': inertia must have shape \(3, 3\)"),
        (lambda: check_inertia("Body 'a'", np.diag([1, 1, 3.0])), "the largest, 3, must not exceed .* 2. Give"),
        (lambda: check_inertia("Body 'a'", np.diag([1, 1, -1.0])), "positive definite .*moments -1, 1, 1"),
        (lambda: check_inertia("Body 'a'", np.diag([1, 1, 0.0])), "positive definite .*moments 0, 1, 1"),
        (lambda: check_inertia("Body 'a'", np.diag([1, 1, np.nan])), "must be finite"),
        (
            lambda: check_inertia("Body 'a'", np.eye(3) + np.eye(3, k=1) / 2),
            "got 0.5 in row 1, column 2 but 0 in row 2",
        ),
        (lambda: inertia_matrix(2.0), r"three principal moments or a matrix .* got shape \(\)"),
        (lambda: box(1000, 0.1, -0.2, 0.3), "box: y must be positive .* got -0.2"),
        (lambda: sphere(0, 1), "sphere: density must be positive .kg/m³. and finite, got 0"),
        (lambda: tube(1, 0.1, 0.2, 1), "inner radius must be less than the outer .* inner 0.2, outer 0.1"),
        (lambda: point(np.ones(2)), r"point: mass must be a number .kg., got shape \(2,\)"),
        (lambda: Solid(-1.0, (1, 1, 1)), "Solid: mass must be positive"),
        (lambda: Solid(1.0, (1, 1, 3)), "Solid: no mass distribution"),
        (lambda: Solid(1.0, (1, 1, 1), (0.0, 1.0)), r"centre must have shape \(3,\)"),
        (lambda: Solid(1.0, (1, 1, 1), (0.0, 1.0, np.inf)), "centre must be finite"),
        (lambda: point(1.0).translated(np.ones(3)), r"translated\(x, y, z\): x must be a number .m., got shape \(3,\)"),
        (lambda: point(1.0).rotated((1, 2, 3)), "A rotation must be"),
    ],
)
def test_errors_say_what_is_right(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(MechanismError, match=text):
        call()
