"""The search for closed positions by itself: roots, minimisers without a root, and searches that end side by side."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxmbd.numerics.least_squares import least_squares


def circle_and_line(x: Array, distance: Any) -> Array:
    """A unit circle and a line at a distance from its centre: without a common point if the distance exceeds one."""
    return jnp.stack([x @ x - 1, x[1] - distance])


@pytest.mark.parametrize("arithmetic", [None, circle_and_line], ids=["compiled", "program"])
def test_roots_and_minimisers_without_a_root(arithmetic: Any) -> None:
    distances, start = jnp.array([0.0, 0.5, 0.999, 1.5, 4.0]), jnp.array([2.0, 0.1])
    found = jax.jit(jax.vmap(lambda d: least_squares(circle_and_line, start, d, arithmetic)))(distances)
    for x, distance in zip(np.asarray(found), np.asarray(distances), strict=True):
        if distance < 1:
            np.testing.assert_allclose(x, [np.sqrt(1 - distance**2), distance], rtol=1e-12, atol=1e-12)
        else:  # on the axis, where the derivative of ½ (y² − 1)² + ½ (y − d)² vanishes
            y = next(y.real for y in np.roots([2, 0, -1, -distance]) if abs(y.imag) < 1e-12)
            np.testing.assert_allclose(x, [0.0, y], atol=1e-5)


@pytest.mark.parametrize("distance", [0.5, 3.0])
def test_a_search_ends_where_nothing_can_be_gained(distance: float) -> None:
    evaluations = []

    def residual(x: Array, args: Any) -> Array:
        jax.debug.callback(lambda: evaluations.append(1))
        return circle_and_line(x, args)

    least_squares(residual, jnp.array([2.0, 0.1]), distance)
    jax.effects_barrier()
    assert 3 < len(evaluations) < 60


@pytest.mark.parametrize("by_program", [False, True], ids=["compiled", "program"])
def test_redundant_rows_and_undetermined_coordinates(by_program: bool) -> None:
    def residual(x: Array, _: Any) -> Array:
        row = x[0] * x[1] - 2
        return jnp.stack([row, 2 * row, row])

    arithmetic = residual if by_program else None
    found = jax.jit(lambda x: least_squares(residual, x, None, arithmetic))(jnp.array([1.0, 1.0, 7.0]))
    assert float(found[0] * found[1]) == pytest.approx(2, rel=1e-12)
    assert float(found[2]) == 7.0


@pytest.mark.parametrize("by_program", [False, True], ids=["compiled", "program"])
def test_a_residual_that_is_not_finite_ends_the_search(by_program: bool) -> None:
    """At the start, which is returned; at a trial point, which is rejected."""

    def logarithm(x: Array, _: Any) -> Array:
        return jnp.log(x)

    search = jax.jit(lambda x: least_squares(logarithm, x, None, logarithm if by_program else None))
    np.testing.assert_array_equal(search(jnp.array([-1.0])), [-1.0])
    np.testing.assert_allclose(search(jnp.array([40.0])), [1.0], rtol=1e-12)
    assert search(jnp.zeros(0)).shape == (0,)
