"""Systems of known sparsity, real and complex, against dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.engine.binding.tracing import traced
from jaxmbd.numerics.sparse_lu import Complex, Structure, factored, substituted, symbolic_lu


def saddle_point(rng: np.random.Generator, bodies: int, rows: int, kind: type) -> tuple[np.ndarray, Structure]:
    """A matrix as an implicit step has: unsymmetric blocks of bodies that are coupled in a chain, and constraint rows
    with zeros on their diagonal."""
    n = 2 * bodies
    number = lambda *shape: rng.normal(size=shape) + (1j * rng.normal(size=shape) if kind is complex else 0)  # noqa: E731
    A = np.zeros((n + rows, n + rows), kind)
    for k in range(bodies):
        here, next_ = slice(2 * k, 2 * k + 2), slice(2 * k, min(2 * k + 4, n))
        A[next_, here] += number(next_.stop - next_.start, 2)
        A[here, next_] += number(2, next_.stop - next_.start)
        A[here, here] += 9 * np.eye(2)
    for k in range(rows):
        own = slice(2 * k, 2 * k + 4)
        A[n + k, own], A[own, n + k] = number(4), number(4)
    return A, Structure(A != 0, (n, rows))


def parts(x: np.ndarray) -> Complex:
    return Complex(jnp.asarray(np.real(x)), jnp.asarray(np.imag(x)) if np.iscomplexobj(x) else None)


@pytest.mark.parametrize("kind", [float, complex])
def test_a_saddle_point_is_solved_as_a_dense_system(rng: np.random.Generator, kind: type) -> None:
    A, structure = saddle_point(rng, 6, 4, kind)
    b = rng.normal(size=len(A)) + (1j * rng.normal(size=len(A)) if kind is complex else 0)
    x = jax.jit(lambda A, b: substituted(factored(A, structure), b, structure))(parts(A), parts(b))
    assert (x.im is None) == (kind is float)
    found = np.asarray(x.re) + (0 if x.im is None else 1j * np.asarray(x.im))
    np.testing.assert_allclose(found, np.linalg.solve(A, b), rtol=1e-11)


def test_a_multiplier_comes_after_the_speeds_of_its_row() -> None:
    """Its diagonal is zero until these are eliminated."""
    A, structure = saddle_point(np.random.default_rng(0), 5, 4, float)
    order = [p for level in symbolic_lu(structure).levels for p in level.pivots.tolist()]
    assert sorted(order) == list(range(14))
    for row in range(10, 14):
        assert {*np.flatnonzero(A[row]).tolist()} <= {*order[: order.index(row)]}


def test_a_chain_has_entries_nearly_in_proportion_to_its_length(rng: np.random.Generator) -> None:
    """Times its logarithm."""
    few, many = (saddle_point(rng, n, n - 1, float)[1].entries for n in (20, 80))
    assert 4 < many / few < 4 * np.log(80) / np.log(20)
    assert many < 0.06 * (3 * 80) ** 2


def test_structural_zeros_cost_nothing_in_a_program(rng: np.random.Generator) -> None:
    A, structure = saddle_point(rng, 12, 0, float)
    n = len(A)
    solve = lambda x, b: [substituted(factored(Complex(x), structure), Complex(b), structure).re]  # noqa: E731
    program = traced(solve, [jax.ShapeDtypeStruct(shape, float) for shape in ((n, n), (n,))]).program
    assert program is not None
    assert program.operations < 0.2 * 2 * n**3 / 3


def test_which_elements_may_differ_from_zero_is_known() -> None:
    """A function's structure is that of its operations, also where values happen to be zero."""
    function = traced(
        lambda x: [jnp.zeros((2, 2)).at[0, 1].set(x[0] - x[0] * x[1]).at[1, 1].set(0.0 * x[1])],
        [jax.ShapeDtypeStruct((2,), float)],
    )
    assert function.structure is not None
    np.testing.assert_array_equal(function.structure[0], [[False, True], [False, False]])
