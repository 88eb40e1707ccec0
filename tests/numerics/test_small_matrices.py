"""Matrices of a few rows in a batch: ranks, solutions of least norm and condition numbers without singular values."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.analyses.redundancy import least_norm
from jaxmbd.engine.choice import SMALL_ROWS
from jaxmbd.equations.equations import Equations
from jaxmbd.numerics.linear_solve import condition_number, is_well_conditioned, pivot_columns, rank_of


def matrices(rng: np.random.Generator, shape: tuple[int, int], ratios: list[float]) -> np.ndarray:
    """Matrices with these ratios of the largest to the smallest singular value; the others are in between."""
    m, n = shape
    left, right = np.linalg.qr(rng.normal(size=(len(ratios), m, m)))[0], np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = np.geomspace(np.ones(len(ratios)), 1 / np.asarray(ratios), min(m, n), axis=1)
    return 3.0 * left[:, :, : min(m, n)] * values[:, None] @ right[: min(m, n)]


def test_condition_numbers(rng: np.random.Generator) -> None:
    """Between the ratio of singular values and `m^(1/4)` times this ratio, as far as rounding allows."""
    ratios = np.asarray([1.0, 30.0, 1e3, 5e4, 1e9, 1e13])
    A = matrices(rng, (9, 11), ratios.tolist())
    A = jnp.asarray(np.concatenate([A, 0 * A[:1], np.inf * A[:1]]))
    numbers = np.asarray(jax.jit(jax.vmap(condition_number))(A))
    assert np.all(numbers[:4] >= ratios[:4] * (1 - 1e-6))
    assert np.all(numbers[:4] <= ratios[:4] * 9**0.25 * (1 + 1e-6))
    assert 1e6 < numbers[6] < 1e7
    np.testing.assert_array_equal(numbers[4:], [*[numbers[6]] * 3, np.nan])
    found = jax.vmap(is_well_conditioned)(jnp.asarray(numbers))
    np.testing.assert_array_equal(found, [True] * 4 + [False] * 3 + [True])


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (5, 5), (SMALL_ROWS + 1, SMALL_ROWS + 3), (0, 3)])
def test_rank_in_a_batch(shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Also of rows with singular values a little above and below the threshold of 1e-7, and far below, in a batch and
    alone."""
    ratios = [2.0, 3e6, 3e7, 3e12]  # with the last one no value is at the threshold itself
    A = matrices(rng, shape, ratios)
    expected = [int(np.sum(np.geomspace(1, 1 / ratio, min(shape)) > 1e-7)) for ratio in ratios]
    assert shape[0] == 0 or expected[2] == expected[1] - 1 == min(shape) - 1
    np.testing.assert_array_equal(jax.jit(jax.vmap(rank_of))(A), expected)
    np.testing.assert_array_equal([rank_of(jnp.asarray(a)) for a in A], expected)
    np.testing.assert_array_equal([rank_of(np.asarray(a)) for a in A], expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(rank_of))(A[:2]), expected[:2])


def test_numbers_that_are_missing_have_no_rank() -> None:
    for missing in (np.nan, np.inf):
        rows = np.array([[1.0, missing], [0.0, 1.0]])
        assert int(rank_of(rows)) == int(rank_of(jnp.asarray(rows))) == 0


@pytest.mark.parametrize("fit", [1.0, 0.1])
@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (0, 3)])
def test_pivots_of_numbers_are_those_that_are_traced(
    shape: tuple[int, int], fit: float, rng: np.random.Generator
) -> None:
    """With a row that repeats others, and a column that is the last one of those which fit."""
    C = rng.normal(size=shape)
    if shape == (4, 7):
        C[3], C[:, 5] = C[0] - 2 * C[1], 0.5 * C[:, 0]
    found = pivot_columns(C, fit)
    assert isinstance(found, np.ndarray)
    assert found.sum() == np.linalg.matrix_rank(C) if C.size else not found.any()
    np.testing.assert_array_equal(found, pivot_columns(jnp.asarray(C), fit))


@pytest.mark.parametrize("ratios", [[2.0, 100.0, 4e4], [2.0, 100.0, 3e6], [2.0, 100.0, 1e12]])
@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (5, 5)])
def test_least_norm_in_a_batch(shape: tuple[int, int], ratios: list[float], rng: np.random.Generator) -> None:
    """Independent rows, and a batch in which one instance needs singular values."""
    A, b = matrices(rng, shape, ratios), rng.normal(size=(3, shape[0]))
    expected = np.stack([np.linalg.pinv(a, rtol=1e-7) @ x for a, x in zip(A, b, strict=True)])
    found = jax.jit(jax.vmap(least_norm))(A, b)
    for k, ratio in enumerate(ratios):
        np.testing.assert_allclose(found[k], expected[k], rtol=0, atol=2e-15 * ratio * np.abs(expected[k]).max())
    np.testing.assert_allclose(least_norm(jnp.asarray(A[2]), jnp.asarray(b[2])), expected[2], rtol=1e-2)


@pytest.mark.parametrize("rows", ["independent", "dependent", "one zero", "two equal"])
def test_derivatives_of_least_norm_in_a_batch(rows: str, rng: np.random.Generator) -> None:
    """By matrix and right side, forward, reverse and second, against those of JAX's pseudo-inverse."""
    A, b = matrices(rng, (4, 6), [3.0, 50.0]), rng.normal(size=(2, 4))
    A[1, 3] = {"dependent": A[1, 0] + A[1, 1], "one zero": 0.0, "two equal": A[1, 0]}.get(rows, A[1, 3])

    def derivatives(solve: Callable[..., Any], A: Any, b: Any) -> Any:
        value = lambda A, b: jnp.sum(jnp.sin(solve(A, b)))  # noqa: E731
        second = lambda b: jax.grad(lambda A: jax.jvp(lambda b: value(A, b), (b,), (b,))[1])(A)  # noqa: E731
        return jax.jacfwd(solve, (0, 1))(A, b), jax.jacrev(solve, (0, 1))(A, b), second(b)

    ours = jax.jit(jax.vmap(lambda A, b: derivatives(least_norm, A, b)))(A, b)
    by_jax = jax.jit(jax.vmap(lambda A, b: derivatives(lambda A, b: jnp.linalg.pinv(A, rtol=1e-7) @ b, A, b)))(A, b)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(by_jax), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9 * np.abs(other).max())


def test_rows_of_any_size_in_single_precision(rng: np.random.Generator) -> None:
    """Eighth powers of large ones would overflow, and dependent ones count as independent."""
    A = matrices(rng, (4, 6), [3.0, 3.0]).astype(np.float32) * np.float32(1e8)
    A[1, 3] = A[1, 0]
    b = A @ np.ones(6, np.float32)
    np.testing.assert_array_equal(jax.jit(jax.vmap(rank_of))(A), [4, 3])
    found = jax.jit(jax.vmap(least_norm))(A, b)
    assert found.dtype == np.float32
    expected = [np.linalg.pinv(a, rtol=1e-5) @ x for a, x in zip(A.astype(float), b.astype(float), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_derivatives_where_a_row_of_a_closure_is_zero() -> None:
    """Positions do not feel a constraint of speeds alone; under `jit` it must not make derivatives NaN."""
    example = mbd.examples.get("rolling-disc")
    radius = lambda m: m.joints[0].radius  # noqa: E731

    def height(value: jax.Array) -> jax.Array:
        return mbd.assemble(eqx.tree_at(radius, example.mechanism, value), check=False).q[2]

    start = radius(example.mechanism)
    by_hand = jax.grad(height)(start)
    assert by_hand != 0
    in_a_batch = lambda r: jax.vmap(jax.grad(height))(r[None])[0]  # noqa: E731
    for slope in (jax.jit(jax.grad(height)), jax.jit(jax.jacfwd(height)), in_a_batch):
        np.testing.assert_allclose(slope(start), by_hand, rtol=1e-9, atol=1e-12)


def test_what_is_not_finite_stays_so(rng: np.random.Generator) -> None:
    A, b = matrices(rng, (4, 6), [3.0, 3.0, 3.0]), np.ones((3, 4))
    A[1, 2, 2], b[2, 0] = np.nan, np.inf
    found = jax.jit(jax.vmap(least_norm))(A, b)
    np.testing.assert_array_equal(np.isfinite(found).all(axis=1), [True, False, False])


@pytest.mark.parametrize("name", ["planar-four-bar", "double-pendulum", "five-bar"])
def test_least_kinetic_energy(name: str) -> None:
    """`x = M⁻¹ Cᵀ (C M⁻¹ Cᵀ)⁻¹ b`, and with a row twice the same."""
    example = mbd.examples.get(name)
    state = example.state()
    at = Equations(example.mechanism).at(state.t, state.q)
    C, M = np.asarray(at.jacobian), np.asarray(at.inertia.matrix())
    b = C @ np.linspace(1.0, 2.0, C.shape[1])
    weighted = np.linalg.solve(M, C.T)
    expected = weighted @ np.linalg.solve(C @ weighted, b)
    rows, rates = (np.concatenate([x, x[:1]]) for x in (C, b))
    for A, y in ((C, b), (rows, rates)):
        found = jax.jit(jax.vmap(lambda A, y: least_norm(A, y, at.inertia)))(A[None], y[None])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(
            least_norm(jnp.asarray(A), jnp.asarray(y), at.inertia), expected, rtol=1e-9, atol=1e-10
        )


@pytest.mark.parametrize(("coordinates", "least"), [("absolute", 0.0), ("joint", -10.0)])
def test_a_mass_matrix_that_is_not_positive_definite_has_no_speeds(coordinates: str, least: float) -> None:
    """A fit must not go there: in a batch the inertia of a body is not checked otherwise. With joint coordinates the
    distance of its centre from the pivot adds to it."""
    mechanism = mbd.examples.get("planar-four-bar").mechanism.with_coordinates(coordinates)
    driven = "b1.omega" if coordinates == "absolute" else mechanism.speed_names[0]

    def moving(inertia: jax.Array) -> jax.Array:
        changed = eqx.tree_at(lambda m: m["b2"].inertia, mechanism, inertia)
        return mbd.assemble(changed, speeds={driven: 1.0}, check=False).v

    v = jax.jit(jax.vmap(moving))(jnp.asarray([0.1, least - 0.5, 1e-6]))
    np.testing.assert_array_equal(np.isfinite(v).all(axis=1), [True, False, True])
