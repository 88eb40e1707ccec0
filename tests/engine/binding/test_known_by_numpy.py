"""`trace_once` and `known_by_numpy`: how often a function runs in Python, and that values and derivatives are right."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxmbd.engine.binding.trace_once import known_by_numpy, trace_once


class Counted:
    """`scale · sin(a x)` of a pytree, and how often it has been run."""

    def __init__(self) -> None:
        self.runs = 0
        self.once = trace_once(self.plain)

    def plain(self, scale: float, tree: dict[str, Array]) -> Array:
        self.runs += 1
        return scale * jnp.sin(tree["a"] * tree["x"])


@pytest.fixture
def counted() -> Counted:
    return Counted()


X = jnp.linspace(0.1, 1.0, 4)


def test_the_python_of_a_function_runs_once(counted: Counted) -> None:
    """Also where it is mapped, and differentiated twice, both ways."""

    def all_of(f: Any, x: Array) -> list[Array]:
        one = lambda x: f(2.0, {"a": jnp.asarray(3.0), "x": x})  # noqa: E731
        slope = jax.grad(one)
        return [jax.vmap(one)(x), jax.vmap(slope)(x), jax.vmap(jax.jacfwd(slope))(x), jax.jit(jax.vmap(one))(x)]

    found = all_of(counted.once, X)
    assert counted.runs == 1
    for mine, expected in zip(found, all_of(counted.plain, X), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-14)


def test_other_leaves_shapes_and_types_are_traced_anew(counted: Counted) -> None:
    calls: list[tuple[float, Any]] = [(1.0, X), (1.0, X), (2.0, X), (2.0, X[:2]), (2.0, X.astype(jnp.float32))]
    for scale, x in calls:
        tree = {"a": x, "x": x}
        np.testing.assert_allclose(counted.once(scale, tree), scale * np.sin(np.asarray(x) ** 2), rtol=1e-6)
    assert counted.runs == 4


def test_what_a_function_closes_over_may_be_traced() -> None:
    def value(a: Array) -> Array:
        return trace_once(lambda x: a * x**2)(jnp.asarray(3.0))

    np.testing.assert_allclose(jax.jit(jax.grad(value))(jnp.asarray(2.0)), 9.0)
    np.testing.assert_allclose(jax.vmap(value)(X), 9.0 * X, rtol=1e-15)


def test_numbers_of_python_are_traced_once(counted: Counted) -> None:
    """Their derivatives are those of the function itself, which then runs as usual."""
    by_numpy = known_by_numpy(counted.plain)
    tree = {"a": X, "x": X}
    for scale in (1.0, 2.0, 3):
        np.testing.assert_allclose(by_numpy(scale, tree=tree), scale * np.sin(np.asarray(X) ** 2), rtol=1e-14)
    assert counted.runs == 1
    slope = jax.grad(lambda scale: jnp.sum(by_numpy(scale, tree)))(2.0)
    np.testing.assert_allclose(slope, np.sum(np.sin(np.asarray(X) ** 2)), rtol=1e-14)
    assert counted.runs == 2
