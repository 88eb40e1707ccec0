"""Parameters of primitives that change what is computed: every evaluator follows them, or leaves them to XLA."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmbd.engine import as_program, known_by_numpy, trace_once
from jaxmbd.errors import MechanismError
from jaxmbd.symbolic.graph.trace import trace

X = np.arange(6.0).reshape(2, 3) + 0.3


@jax.custom_vjp
def own_sine(x: Any) -> Any:
    return jnp.sin(x)


own_sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, bar: (3.0 * jnp.cos(x) * bar,), optimize_remat=True)

Case = tuple[Callable[[Any], Any], Any]
SINGLE = X.astype(np.float32)
# Each with the values that NumPy gives.
CASES: dict[str, Case] = {
    "a function of elements": (lambda x: x.at[jnp.array([0])].apply(jnp.sin), np.stack([np.sin(X[0]), X[1]])),
    "a function of chosen elements": (
        lambda x: x.at[jnp.array([1, 0]), jnp.array([2, 1])].apply(lambda y: y**2 + 1.0),
        np.array([[0.3, 1.3**2 + 1.0, 2.3], [3.3, 4.3, 5.3**2 + 1.0]]),
    ),
    "a transposed reshape": (lambda x: lax.reshape(x, (6,), dimensions=(1, 0)), X.T.reshape(6)),
    "fewer bits": (
        lambda x: lax.reduce_precision(x, 5, 3), np.array([[0.3125, 1.25, 2.25], [3.25, 4.5, 5.5]]),
    ),
    "all bits": (lambda x: lax.reduce_precision(x, 11, 52) * 2.0, 2.0 * X),
    "a product of another type": (
        lambda x: lax.mul(x.astype(jnp.float32), x.astype(jnp.float32), out_dtype=jnp.float64),
        np.float64(SINGLE) ** 2,
    ),
    "a product of integers of another type": (
        lambda x: lax.mul(*[x.astype(jnp.int32) + 100_000] * 2, out_dtype=jnp.int64) * 1.0, (np.trunc(X) + 1e5) ** 2,
    ),
    "an optimised rule": (own_sine, np.sin(X)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wrapped", [as_program, known_by_numpy, trace_once], ids=lambda f: f.__name__)
def test_evaluators_follow_them(case: str, wrapped: Callable[..., Any]) -> None:
    function, expected = CASES[case]
    wrap = wrapped(function)
    np.testing.assert_allclose(wrap(X), expected, rtol=1e-14)
    np.testing.assert_allclose(jax.jit(wrap)(X), expected, rtol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.vmap(wrap))(np.stack([X, X])), [expected] * 2, rtol=1e-14)


@pytest.mark.parametrize("case", ["a transposed reshape", "an optimised rule"])
def test_derivatives_follow_them(case: str) -> None:
    function, _ = CASES[case]
    weights = np.arange(1.0, 7.0)

    def scalar(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: jnp.sum(weights * jnp.ravel(f(x)))

    slopes = {
        "a transposed reshape": weights.reshape(3, 2).T,
        "an optimised rule": 3.0 * np.cos(X) * weights.reshape(2, 3),
    }
    np.testing.assert_allclose(jax.jit(jax.grad(scalar(as_program(function))))(X), slopes[case], rtol=1e-13)
    np.testing.assert_allclose(jax.grad(scalar(known_by_numpy(function)))(X), slopes[case], rtol=1e-13)


def test_formulas_follow_them_or_say_that_they_cannot() -> None:
    found = trace(CASES["a transposed reshape"][0], [["a", "b", "c"], ["d", "e", "f"]]).result
    assert [str(x.name) for x in found] == ["a", "d", "b", "e", "c", "f"]
    for name in ("a function of elements", "fewer bits"):
        with pytest.raises(
            MechanismError, match=r"cannot be written as a formula: it uses '(scatter|reduce_precision)"
        ):
            trace(CASES[name][0], [["a", "b", "c"], ["d", "e", "f"]])
