"""Which tables a function looks up at its first argument, through everything that a user's function may do."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax import Array

import jaxmbd as mbd
from jaxmbd.engine.binding.lookups import looked_up_at_first

TIMES = jnp.arange(4.0)


def table(times: Array) -> mbd.Table:
    return eqx.tree_at(lambda f: f.times, mbd.Table(TIMES, TIMES**2), times)


CASES: dict[str, Any] = {
    # at the first argument
    "directly": (lambda t, w, a, b: table(a)(t) + table(b)(w), {1}),
    "jit": (lambda t, w, a, b: jax.jit(lambda s: table(a)(s))(t), {1}),
    "jit of the table": (lambda t, w, a, b: eqx.filter_jit(lambda f, s: f(s))(table(b), t), {2}),
    "array": (lambda t, w, a, b: table(a)(jnp.atleast_1d(jnp.asarray(t))[0]), {1}),
    "one entry": (lambda t, w, a, b: jax.vmap(table(a))(jnp.atleast_1d(t)), {1}),
    "single precision": (lambda t, w, a, b: table(a)(t.astype(jnp.float32)), {1}),
    "stopped": (lambda t, w, a, b: table(a)(jax.lax.stop_gradient(t)), {1}),
    "checkpoint": (lambda t, w, a, b: jax.checkpoint(lambda s: table(a)(s))(t), {1}),
    "tangent": (lambda t, w, a, b: jax.jvp(lambda s: table(a)(s) * w, (t,), (w,)), {1}),
    "gradient": (lambda t, w, a, b: jax.grad(lambda s: table(a)(t) * s)(w), {1}),
    "condition": (lambda t, w, a, b: jax.lax.cond(w > 0, lambda: table(a)(t), lambda: table(b)(w)), {1}),
    "scan": (lambda t, w, a, b: jax.lax.scan(lambda c, x: (c + table(a)(t) * x, None), w, a)[0], {1}),
    "while": (lambda t, w, a, b: jax.lax.while_loop(lambda c: c < 1, lambda c: c + table(a)(t), w), {1}),
    "through a function": (lambda t, w, a, b: table(a)(jax.jit(lambda x, y: (y, x))(w, t)[0]), {1}),
    "both": (lambda t, w, a, b: table(a)(t) + table(a)(w), {1}),
    "piecewise": (lambda t, w, a, b: mbd.Piecewise(a, [0.0, table(b), 1.0, 2.0, 3.0])(t, w), {1, 2}),
    # at something else
    "another": (lambda t, w, a, b: table(a)(w), set()),
    "delay": (lambda t, w, a, b: table(a)(t - 1.0), set()),
    "period": (lambda t, w, a, b: table(a)(t % 2.0), set()),
    "whole number": (lambda t, w, a, b: table(a)(t.astype(int).astype(float)), set()),
    "carry": (lambda t, w, a, b: jax.lax.scan(lambda c, x: (table(a)(c) + x, None), t, a)[0], set()),
    "of another table": (lambda t, w, a, b: table(a)(table(b)(t)), {2}),
    "computed samples": (lambda t, w, a, b: table(a + 1.0)(t), set()),
}


@pytest.mark.parametrize("case", CASES)
def test_looked_up_at_the_first_argument(case: str) -> None:
    function, expected = CASES[case]
    number = jax.ShapeDtypeStruct((), TIMES.dtype)
    assert looked_up_at_first(function, number, number, TIMES, TIMES) == expected


def test_a_lookup_costs_nothing() -> None:
    """Compiled, the equation that names the table is gone."""
    f = lambda x: mbd.Table(TIMES, TIMES**2)(x)  # noqa: E731
    assert "jaxmbd_lookup" in str(jax.make_jaxpr(f)(jnp.asarray(1.5)))
    assert "jaxmbd_lookup" not in str(jax.jit(f).lower(jnp.asarray(1.5)).compile().as_text())
    assert float(f(jnp.asarray(1.5))) == float(jax.jit(f)(jnp.asarray(1.5))) == 2.5
