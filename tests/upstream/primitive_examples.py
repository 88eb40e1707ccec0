"""For each primitive of JAX with parameters that are read, a function whose jaxpr has it."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import ClosedJaxpr, Jaxpr

X, A, K = np.arange(6.0).reshape(2, 3), np.diag([3.0, 1.0, 2.0]), np.arange(6).reshape(2, 3)
I = np.array([[0], [1]])


def with_rule(optimize: bool) -> Callable[..., Any]:
    """A function that brings its own derivative."""
    function = jax.custom_vjp(jnp.sin)
    function.defvjp(lambda x: (jnp.sin(x), x), lambda x, bar: (jnp.cos(x) * bar,), optimize_remat=optimize)
    return function


with_jvp = jax.custom_jvp(jnp.sin)
with_jvp.defjvp(lambda x, dx: (jnp.sin(x[0]), jnp.cos(x[0]) * dx[0]))

EXAMPLES: list[Callable[[Any], Any]] = [
    lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    lambda x: (lax.integer_pow(x, 3), x.astype(np.int32), lax.reduce_precision(x, 11, 52), x * x),
    lambda x: [f(x) for f in (jnp.sum, jnp.prod, jnp.max, jnp.min)],
    lambda x: (jnp.all(x > 0), jnp.any(x > 0), lax.reduce(x.astype(int), 0, lax.bitwise_xor, (0,))),
    lambda x: (jnp.argmax(x), jnp.argmin(x)),
    lambda x: [f(x) for f in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin)],
    lambda x: (lax.iota(np.int32, 3), jnp.broadcast_to(x, (4, 2, 3)), x.reshape(6), x[None], x.T, jnp.squeeze(x[:1])),
    lambda x: (jnp.flip(x), jnp.tile(x, 2), jnp.concatenate([x, x]), jnp.stack([x, x]), [*jnp.unstack(x)]),
    lambda x: (jnp.split(x, [1], 1), lax.slice(x, (0, 0), (1, 2)), jnp.pad(x, 1)),
    lambda x: lax.dynamic_slice(x, (x[0, 0].astype(int), 0), (1, 2)),
    lambda x: lax.dynamic_update_slice(x, x[:1], (x[0, 0].astype(int), 0)),
    lambda x: jnp.take(x, I, axis=0, mode="fill"),
    lambda x: [getattr(x.at[I], name)(1.0) for name in ("set", "add", "multiply", "min", "max", "subtract")],
    lambda x: (jnp.sort(x), lax.top_k(x, 2), x @ A),
    lambda x: (lax.linalg.lu(x @ x.T), lax.linalg.lu_pivots_to_permutation(x[0, :2].astype(np.int32), 3)),
    lambda x: (lax.linalg.qr(x), lax.linalg.qr(x, pivoting=True), lax.linalg.svd(x)),
    lambda x: (lax.linalg.eigh(x @ x.T), lax.linalg.eig(x @ x.T)),
    lambda x: lax.linalg.triangular_solve(A, x, left_side=False),
    lambda x: jnp.linalg.solve(A, x.T),
    lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    lambda x: lax.scan(lambda carry, row: (carry + 1.0, row + carry), 1.0, x),
    lambda x: lax.while_loop(lambda state: state[0] < 3, lambda state: (state[0] + 1, state[1] * 2.0), (0, x)),
    lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
    lambda x: (jax.jit(jnp.sin)(x), jax.checkpoint(jnp.sin)(x), lax.composite(jnp.sin, "a.b")(x)),
    lambda x: (with_jvp(x), with_rule(False)(x), jax.vjp(with_rule(True), x)[1](x)),
    lambda x: (jnp.searchsorted(A[2], x[0]), checkpoint_name(x, "label")),
]  # fmt: skip


def equations_in(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr and of all inside them."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from equations_in(value)


def examples() -> dict[str, list[Any]]:
    """The equations of all examples, by their primitives."""
    found: dict[str, list[Any]] = {}
    for function in EXAMPLES:
        for equation in equations_in(jax.make_jaxpr(function)(X)):
            found.setdefault(equation.primitive.name, []).append(equation)
    return found
