"""Bisection to rounding precision, as the root finder for diffrax's event times."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array


class _Interval(eqx.Module):
    lower: Array
    upper: Array


class Bisection(optx.AbstractRootFinder):
    """Bisection of an interval at whose lower end the function is positive, until it is as short as rounding allows.

    `optimistix.Bisection` also requires a small function value, in a unit that is not known here.
    """

    rtol: float = 0.0
    atol: float = 0.0
    norm: Any = eqx.field(static=True, default=optx.max_norm)

    def init(self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any) -> Any:
        dtype = jnp.result_type(y)
        return _Interval(jnp.asarray(options["lower"], dtype), jnp.asarray(options["upper"], dtype))

    def step(self, fn: Any, y: Any, args: Any, options: Any, state: Any, tags: Any) -> Any:
        value, aux = fn(y, args)
        state = _Interval(jnp.where(value > 0, y, state.lower), jnp.where(value > 0, state.upper, y))
        return 0.5 * (state.lower + state.upper), state, aux

    def terminate(self, fn: Any, y: Any, args: Any, options: Any, state: Any, tags: Any) -> Any:
        ends = jnp.maximum(jnp.abs(state.lower), jnp.abs(state.upper))
        width = jnp.asarray(options["upper"] - options["lower"])
        limit = jnp.finfo(ends.dtype).eps * (2 * ends + width)
        return state.upper - state.lower <= limit, optx.RESULTS.successful

    def postprocess(
        self, fn: Any, y: Any, aux: Any, args: Any, options: Any, state: Any, tags: Any, result: Any
    ) -> Any:
        return y, aux, {}
