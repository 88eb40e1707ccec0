"""One judgement of steps for all searches: its rule by numbers, and that the searches keep to it."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxmbd.numerics.block_least_squares import Linearised, Step
from jaxmbd.numerics.bounded_least_squares import advance, begin
from jaxmbd.numerics.levenberg_marquardt import held, judged
from jaxmbd.numerics.stepwise_search import SearchState, search

FIRST = 1e-2  # damping at the start
NAN = float("nan")


@pytest.mark.parametrize("lib", [np, jnp], ids=["numpy", "jax"])
@pytest.mark.parametrize(
    ("actual", "predicted", "is_known", "expected"),
    [
        (1.0, 1.0, True, (True, 0.1, 2.0)),  # 0.3 / 3: all that was predicted
        (1.0, 2.0, True, (True, 0.3, 2.0)),  # 0.3 (1 − (2 / 2 − 1)³): half of it
        (0.5, 2.0, True, (True, 0.3375, 2.0)),  # 0.3 (1 + 1 / 8)
        (9.0, 1.0, True, (True, 0.1, 2.0)),
        (np.inf, 1.0, True, (True, 0.1, 2.0)),  # from a point that is not finite
        (0.0, 1.0, True, (False, 1.2, 8.0)),  # 0.3 × 4, and the growth doubles
        (-1.0, 1.0, True, (False, 1.2, 8.0)),
        (1.0, -1.0, True, (False, 1.2, 8.0)),
        (1.0, 1.0, False, (False, 1.2, 8.0)),
        (NAN, 1.0, True, (False, 1.2, 8.0)),
    ],
)
def test_steps_and_the_damping_after_them(
    lib: Any, actual: float, predicted: float, is_known: bool, expected: tuple[bool, float, float]
) -> None:
    accepted, damping, growth = judged(0.3, 4.0, np.float64(actual), np.float64(predicted), is_known, lib)
    assert (bool(accepted), float(growth)) == (expected[0], expected[2])
    assert float(damping) == pytest.approx(expected[1], rel=1e-12)


def test_held_are_those_that_a_gradient_pushes_across_their_bound() -> None:
    x, gradient = np.array([0.0, 0.0, 1.0, 1.0, 0.5]), np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    for lib in (np, jnp):
        np.testing.assert_array_equal(held(lib.asarray(x), lib.asarray(gradient), 0.0, 1.0), [1, 0, 0, 1, 0])


def valley(x: Array, _: Any) -> Array:
    """Rosenbrock's residuals."""
    return jnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])


def asked(start: list[float], steps: int) -> tuple[list[np.ndarray], SearchState]:
    """The points that the search step by step asks for, and what it would go on from."""
    state = SearchState(np.array(start))
    generator = search(state, np.full(2, -np.inf), np.full(2, np.inf), Step(np.zeros(2), ()), 2, steps, 1e-8)
    points = [next(generator)]
    for _ in range(steps):
        x = points[-1]
        rows = np.array([[-20 * x[0], 10.0, 10 * (x[1] - x[0] ** 2)], [-1.0, 0.0, 1 - x[0]]])
        try:
            points.append(generator.send(Linearised((), rows)))
        except StopIteration:
            break
    return points, state


def test_searches_within_bounds_and_step_by_step_take_the_same_steps() -> None:
    """From starts where the first step is accepted, with the same damping after it, and where it is not."""
    unbounded = jnp.full(2, -jnp.inf), jnp.full(2, jnp.inf)
    for start in ([-1.2, 1.0], [0.5, 0.5], [0.9, 0.2]):
        lanes = advance(valley, begin(jnp.asarray([start])), *unbounded, None, 1)
        points, state = asked(start, 2)
        np.testing.assert_allclose(lanes.damping[0], state.damping, rtol=1e-9)
        np.testing.assert_allclose(lanes.growth[0], state.growth)
        np.testing.assert_allclose(lanes.z[0], state.u, rtol=1e-9)
        assert (np.asarray(lanes.z[0]) != start).any() == (float(lanes.growth[0]) == 2.0)
        assert len(points) > 1


def test_the_damping_grows_with_each_step_in_a_row_that_is_rejected() -> None:
    """Residuals are not finite beyond 0.4: steps `(1 − x) / (1 + μ)` with `μ` of 0.01, 0.02, 0.08 and 0.64 lead there,
    one with 10.24 to 0.09, one with 3.41 to 0.30; the next one leads beyond it again."""
    wall = lambda x, _: jnp.where(x > 0.4, jnp.nan, x - 1.0)  # noqa: E731
    bounds = jnp.full(1, -jnp.inf), jnp.full(1, jnp.inf)
    dampings = [
        float(advance(wall, begin(jnp.zeros((1, 1))), *bounds, None, steps).damping[0]) / FIRST for steps in range(8)
    ]
    np.testing.assert_allclose(dampings, [1, 2, 8, 64, 1024, 1024 / 3, 1024 / 9, 2048 / 9], rtol=1e-9)
