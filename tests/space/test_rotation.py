"""Rotations against SciPy, by round trips, and their derivatives against central differences."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxmbd import MechanismError
from jaxmbd.engine import is_program
from jaxmbd.space import rotation

SEQUENCES = ["xyx", "xyz", "xzx", "xzy", "yxy", "yxz", "yzx", "yzy", "zxy", "zxz", "zyx", "zyz"]
BOTH = (jax.jacfwd, jax.jacrev)
IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])


def random_e(rng: np.random.Generator, n: int = 40) -> np.ndarray:
    """Random rotations of random lengths, with the identity and half turns about the axes among them."""
    e = np.concatenate([rng.normal(size=(n, 4)), np.eye(4)])
    return e * rng.uniform(0.3, 3.0, size=(n + 4, 1))


def scipy_rotation(e: np.ndarray) -> Rotation:
    return Rotation.from_quat(np.roll(e, -1, axis=-1))


def each(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(function))(*map(jnp.asarray, arrays)))


def assert_same_rotation(a: np.ndarray, b: np.ndarray, atol: float = 1e-12) -> None:
    a, b = (e / np.linalg.norm(e, axis=-1, keepdims=True) for e in (a, b))
    np.testing.assert_allclose(np.abs(np.sum(a * b, axis=-1)), 1, atol=atol)


def test_matrices_products_and_inverses_are_those_of_scipy(rng: np.random.Generator) -> None:
    a, b = random_e(rng), random_e(rng)[::-1]
    r = rng.normal(size=(len(a), 3))
    R, S = scipy_rotation(a), scipy_rotation(b)
    np.testing.assert_allclose(each(rotation.matrix, a), R.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(each(rotation.rotate, a, r), R.apply(r), atol=1e-13)
    product = each(rotation.multiply, a, b)
    np.testing.assert_allclose(each(rotation.matrix, product), (R * S).as_matrix(), atol=1e-14)
    np.testing.assert_allclose(
        each(lambda e: rotation.multiply(e, rotation.inverse(e)), a), [IDENTITY] * len(a), atol=1e-14
    )
    np.testing.assert_allclose(np.linalg.norm(each(rotation.normalize, a), axis=1), 1, atol=1e-15)
    assert_same_rotation(each(rotation.normalize, a), a)


def test_a_matrix_gives_back_its_rotation(rng: np.random.Generator) -> None:
    e = random_e(rng)
    back = each(lambda e: rotation.from_matrix(rotation.matrix(e)), e)
    assert_same_rotation(back, e)
    assert (back[:, 0] >= 0).all()
    # Near half turns every branch is used.
    near = np.repeat(np.eye(4), 10, axis=0) + 1e-7 * rng.normal(size=(40, 4))
    back = each(lambda e: rotation.from_matrix(rotation.matrix(e)), near)
    back = back * np.sign(np.sum(back * near, axis=1, keepdims=True))
    np.testing.assert_allclose(back, near / np.linalg.norm(near, axis=1, keepdims=True), atol=1e-15)


def test_the_rotation_of_a_matrix_is_arithmetic() -> None:
    """With it mechanisms in space that have a bushing are programs; with an index of the largest entry none was."""
    assert is_program(rotation.from_matrix, jnp.eye(3))


def test_rotation_vectors_are_those_of_scipy(rng: np.random.Generator) -> None:
    e = random_e(rng)[:40]
    expected = scipy_rotation(e).as_rotvec()
    np.testing.assert_allclose(each(rotation.vector, e), expected, atol=1e-13)
    np.testing.assert_allclose(each(rotation.vector, -e), expected, atol=1e-13)
    assert_same_rotation(each(rotation.from_vector, expected), e)
    # Across the switches between series and formula, and for angles from tiny to almost π.
    angle = np.concatenate([[0.0], np.geomspace(1e-12, 3.14, 200)])[:, None]
    theta = angle * np.array([2, -1, 2]) / 3
    np.testing.assert_allclose(each(lambda t: rotation.vector(rotation.from_vector(t)), theta), theta, rtol=4e-14)
    half = each(rotation.vector, np.eye(4)[1:])
    np.testing.assert_allclose(half, np.pi * np.eye(3), atol=1e-15)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_angles_are_those_of_scipy(rng: np.random.Generator, sequence: str) -> None:
    e, given = random_e(rng)[:40], rng.uniform(-4, 4, size=(40, 3))

    def checks(e: jax.Array, a: jax.Array) -> tuple[Any, Any]:
        return rotation.angles(e, sequence), rotation.matrix(rotation.from_angles(a, sequence))

    angles, matrices = jax.jit(jax.vmap(checks))(jnp.asarray(e), jnp.asarray(given))
    intrinsic = sequence.upper()  # in SciPy's notation
    np.testing.assert_allclose(angles, scipy_rotation(e).as_euler(intrinsic), atol=1e-12)
    np.testing.assert_allclose(matrices, Rotation.from_euler(intrinsic, given).as_matrix(), atol=1e-14)


@pytest.mark.parametrize("sequence", ["zxz", "xyz", "zyx"])
def test_at_gimbal_lock_the_third_angle_is_zero_and_the_rotation_right(sequence: str) -> None:
    ends = (0.0, np.pi) if sequence[0] == sequence[2] else (-np.pi / 2, np.pi / 2)
    given = np.array([(a, end, b) for a in (-2.5, 0.0, 0.7, 3.0) for end in ends for b in (-1.0, 0.0, 2.9)])

    def checks(a: jax.Array) -> tuple[Any, ...]:
        e = rotation.from_angles(a, sequence)
        back = rotation.angles(e, sequence)
        jacobians = [of(lambda e: rotation.angles(e, sequence))(e) for of in BOTH]
        return e, back, rotation.from_angles(back, sequence), jacobians

    e, angles, again, jacobians = jax.jit(jax.vmap(checks))(jnp.asarray(given))
    np.testing.assert_allclose(angles[:, 1], given[:, 1], atol=1e-14)
    np.testing.assert_allclose(angles[:, 2], 0, atol=1e-14)
    assert (np.abs(angles[:, 0]) <= np.pi).all()
    assert_same_rotation(again, e)
    assert np.isfinite(jacobians).all()


def test_turns_about_axes() -> None:
    np.testing.assert_allclose(
        rotation.matrix(rotation.about("z", np.pi / 2)), [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15
    )
    axis = (1.0, -2.0, 0.5)
    expected = Rotation.from_rotvec(0.7 * np.array(axis) / np.linalg.norm(axis)).as_matrix()
    np.testing.assert_allclose(rotation.matrix(rotation.about(axis, 0.7)), expected, atol=1e-15)
    np.testing.assert_array_equal(rotation.rotate(rotation.identity(), (1, 2, 3)), [1, 2, 3])


def test_along_takes_z_to_the_axis_by_the_smallest_turn(rng: np.random.Generator) -> None:
    axis = np.concatenate([rng.normal(size=(30, 3)), np.eye(3), -np.eye(3), [[1e-9, 2e-9, -3], [1e-200, 0, -1]]])
    unit = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    e = each(rotation.along, axis)
    np.testing.assert_allclose(each(rotation.matrix, e)[:, :, 2], unit, atol=1e-15)
    np.testing.assert_array_equal(e[:, 3], 0)
    np.testing.assert_allclose(2 * np.arccos(e[:, 0]), np.arccos(unit[:, 2]), atol=1e-7)
    np.testing.assert_array_equal(rotation.along((0, 0, -2)), [0, 1, 0, 0])
    assert np.isfinite(each(lambda a: jnp.stack([d(rotation.along)(a) for d in BOTH]), axis)).all()


def test_along_with_x_sets_both_axes(rng: np.random.Generator) -> None:
    axis, x = rng.normal(size=(2, 30, 3))
    R = each(lambda a, x: rotation.matrix(rotation.along(a, x)), axis, x)
    unit = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    np.testing.assert_allclose(R[:, :, 2], unit, atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(R), 1, atol=1e-14)
    assert (np.einsum("ni,ni->n", R[:, :, 0], x) > 0).all()
    np.testing.assert_allclose(np.einsum("ni,ni->n", R[:, :, 1], x), 0, atol=1e-14)
    np.testing.assert_allclose(rotation.matrix(rotation.along("x", "y")), np.eye(3)[[2, 0, 1]], atol=1e-15)


FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "products": (lambda e: rotation.multiply(rotation.normalize(e), rotation.inverse(e[::-1])), 4),
    "matrix": (rotation.matrix, 4),
    "rotate": (lambda e: rotation.rotate(e, (1.0, 2.0, 3.0)), 4),
    "matrix and back": (lambda e: rotation.from_matrix(rotation.matrix(e)), 4),
    "vector": (rotation.vector, 4),
    "from_vector": (rotation.from_vector, 3),
    "about": (lambda a: rotation.about(a, jnp.sum(a)), 3),
    "angles xyz": (lambda e: rotation.angles(e, "xyz"), 4),
    "angles zxz": (lambda e: rotation.angles(e, "zxz"), 4),
    "from_angles": (lambda a: rotation.from_angles(a, "zxz"), 3),
    "along": (rotation.along, 3),
    "along x": (lambda a: rotation.along(a, (1.0, 0.2, 0.0)), 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_central_differences(rng: np.random.Generator, name: str) -> None:
    function, n = FUNCTIONS[name]
    points = rng.normal(size=(6, n))
    special = {"vector": IDENTITY, "matrix and back": IDENTITY, "angles xyz": IDENTITY}
    special |= {"from_vector": np.zeros(3), "from_angles": np.zeros(3), "along": np.array([0.0, 0, 1])}
    if name in special:
        points = np.concatenate([points, special[name][None], special[name][None] + 0.05 * rng.normal(size=(2, n))])
    h = 1e-6 * np.eye(n)

    def checks(x: jax.Array) -> tuple[Any, Any, Any]:
        ends = jax.vmap(lambda step: function(x + step), out_axes=-1)(jnp.concatenate([h, -h]))
        return jax.jacfwd(function)(x), jax.jacrev(function)(x), (ends[..., :n] - ends[..., n:]) / 2e-6

    forward, reverse, differences = jax.jit(jax.vmap(checks))(jnp.asarray(points))
    np.testing.assert_allclose(forward, reverse, atol=1e-12)
    np.testing.assert_allclose(forward, differences, rtol=1e-6, atol=1e-7)


def test_second_derivatives_of_from_vector_at_zero() -> None:
    # e ≈ (1 − |θ|²/8, θ/2)
    expected = np.zeros((4, 3, 3))
    expected[0] = -np.eye(3) / 4
    for outer in BOTH:
        second = jax.jit(outer(jax.jacfwd(rotation.from_vector)))
        np.testing.assert_allclose(second(jnp.zeros(3)), expected, atol=1e-16)


def test_second_derivatives_agree_across_the_switch_to_the_series() -> None:
    sides = {
        "from_vector": (rotation.from_vector, 1.0),
        "vector": (lambda v: rotation.vector(jnp.append(1.0, v)), 5 / 12),
    }
    for function, size in sides.values():
        second = jax.jit(jax.jacfwd(jax.jacrev(function)))
        below, above = (second(size * (1 + side) * jnp.array([2.0, -1.0, 2.0]) / 3) for side in (-1e-12, 1e-12))
        np.testing.assert_allclose(below, above, atol=2e-11)


def some_of_everything(e: jax.Array, v: jax.Array) -> list[jax.Array]:
    R = rotation.matrix(e)
    results = [R, rotation.from_matrix(R), rotation.as_rotation(R), rotation.as_rotation(e), rotation.normalize(e)]
    results += [rotation.multiply(e, (1, 2, 3, 4)), rotation.inverse(e), rotation.rotate(e, (1, 2, 3))]
    results += [rotation.vector(e), rotation.from_vector(v), rotation.angles(e, "xyz"), rotation.from_angles(v, "zxz")]
    results += [rotation.about("z", v[2]), rotation.about((0, 0, 1), v[2])]
    return [*results, rotation.along(v), rotation.along(v, "x"), rotation.along(v, (1, 0, 0))]


def test_single_precision_stays_single() -> None:
    e, v = jnp.ones(4, dtype=jnp.float32), jnp.ones(3, dtype=jnp.float32)
    assert {result.dtype for result in jax.eval_shape(some_of_everything, e, v)} == {jnp.dtype("float32")}
    given_numbers = [rotation.about("x", 1), rotation.along((0, 1, 0)), rotation.identity()]
    assert {result.dtype for result in given_numbers} == {jnp.dtype(float)}


def test_as_rotation_takes_euler_parameters_and_matrices() -> None:
    e = rotation.from_vector((0.3, -0.2, 1.0))
    np.testing.assert_allclose(rotation.as_rotation(3 * e), e, atol=1e-15)
    np.testing.assert_allclose(rotation.as_rotation(rotation.matrix(e)), e, atol=1e-15)
    np.testing.assert_allclose(rotation.as_rotation([[0, -1, 0], [1, 0, 0], [0, 0, 1]]), rotation.about("z", np.pi / 2))
    np.testing.assert_allclose(jax.jit(rotation.as_rotation)(2 * e), e, atol=1e-15)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad])
def test_lists_may_hold_traced_numbers(transform: Callable[..., Any]) -> None:
    def entry(of: Callable[[Any], Any]) -> Any:
        return transform(lambda a: of(a)[0])(0.3)

    together = entry(lambda a: rotation.from_angles(jnp.stack([a, 0.2, 0.1]), "zyx"))
    np.testing.assert_allclose(entry(lambda a: rotation.from_angles((a, 0.2, 0.1), "zyx")), together, rtol=1e-14)
    together = entry(lambda a: rotation.as_rotation(jnp.stack([a, 1.0, 0.0, 0.5])))
    np.testing.assert_allclose(entry(lambda a: rotation.as_rotation([a, 1, 0, 0.5])), together, rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: rotation.as_rotation([[1, 2], [3]]), r"matrix of shape \(3, 3\), got \[\[1, 2\], \[3\]\]; "),
        (lambda: rotation.angles((1, 0, 0, 0), "xxz"), "got 'xxz'. Valid: xyx, xyz, "),
        (lambda: rotation.from_angles((1, 0, 0), "XYZ"), "got 'XYZ'. Valid: "),
        (lambda: rotation.from_angles((1, 0), "xyz"), r"angles must have shape \(3,\), got shape \(2,\)"),
        (lambda: rotation.about("w", 1.0), "must be 'x', 'y', 'z', '-x', '-y', '-z' or a direction of three numbers"),
        (lambda: rotation.about((0, 0, 0), 1.0), "axis must be a direction, finite and not zero"),
        (lambda: rotation.about("x", np.ones(2)), r"angle must be a number, got shape \(2,\)"),
        (lambda: rotation.along((0, 1, 1), (0, 2, 2)), "x must not be parallel to axis"),
        (lambda: rotation.as_rotation((1, 0, 0)), r"Euler parameters of shape \(4,\) or a matrix"),
        (lambda: rotation.as_rotation((0, 0, 0, 0)), "must not all be zero"),
        (lambda: rotation.as_rotation((np.nan, 0, 0, 0)), "must be finite"),
        (lambda: rotation.as_rotation(np.diag([1, 1, 1.1])), "must be orthogonal"),
        (lambda: rotation.as_rotation(np.diag([1, 1, -1])), r"determinant \+1"),
    ],
)
def test_errors_say_what_is_right(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(MechanismError, match=text):
        call()
