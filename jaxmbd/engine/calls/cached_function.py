"""The decorator of analyses: first calls run as NumPy code, later ones compiled, and both are stored on disk."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.arrays import frozen, is_concrete, is_local
from jaxmbd.engine.binding.mesh import is_in_shard_map, placed_by_xla, varying_alike
from jaxmbd.engine.binding.trace_once import as_static
from jaxmbd.engine.calls.array_types import types_of
from jaxmbd.engine.calls.call_primitive import call_p
from jaxmbd.engine.calls.calls import FlatCall, traced
from jaxmbd.engine.calls.disk_cache import first_calls
from jaxmbd.engine.calls.structure import ARRAY, filled
from jaxmbd.progress import announcing
from jaxmbd.upstream.jax_internals import settings_of_tracing, watches_values

Result = TypeVar("Result")


def cached_on_disk(function: Callable[..., Result]) -> Callable[..., Result]:
    """`equinox.filter_jit` whose first calls with known arguments run as NumPy code, without a compiler (`FirstCalls`).

    The same holds for its first derivatives, outside of `jit` and `vmap`. While JAX's disk cache is on, the
    code, and later the executable, are stored there.

        >>> print(mbd.extend.cached_on_disk(lambda x: 2 * x)(jnp.asarray(1.5)))
        3.0
    """
    usual = whole_in_meshes(announcing(function, eqx.filter_jit))

    @wraps(function)
    def call(*arguments: object) -> Result:
        if jax.config.jax_disable_jit:  # pyright: ignore  # the function gets arrays of JAX all the same
            return function(*jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, arguments))
        leaves, tree = jax.tree.flatten(arguments)
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        # NumPy code and stored functions show their values to none of JAX's checks, and know one device only.
        if watches_values() or not jax.sharding.get_abstract_mesh().empty or not all(map(is_local, frozen(arrays))):
            with jax.ensure_compile_time_eval() if is_concrete(arrays) else nullcontext():  # also inside a user's `jit`
                return usual(*arguments)
        # The settings are part of the key: with others the same function becomes another jaxpr.
        flat = FlatCall(types_of(arrays), function, tree, _static(leaves), settings_of_tracing())
        ready = first_calls(flat)
        if not ready.is_closed:
            return usual(*arguments)
        return filled(ready.like, ready.run(arrays) if is_concrete(arrays) else call_p.bind(*arrays, call=flat))

    return call


def steady_call(
    function: Callable[..., Sequence[jax.Array]], *arguments: object
) -> Callable[..., Sequence[np.ndarray]]:
    """A function of known values that returns several arrays, for calls by the thousand, such as one for each frame of
    a screen: traced for the structure and the types of these `arguments`, stored on disk, and never compiled meanwhile.

    The result is a function of the leaves of such arguments, in their order, as arrays of NumPy.
    """
    leaves, tree = jax.tree.flatten(arguments)
    types = types_of([leaf for leaf in leaves if eqx.is_array(leaf)])
    flat = FlatCall(types, function, tree, _static(leaves), settings_of_tracing())
    return first_calls(flat).steady()


def whole_in_meshes(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function; in a mesh, as one call of which JAX sees the types of arguments and results alone."""
    elsewhere = placed_by_xla(function)

    @wraps(function)
    def call(*arguments: object) -> Result:
        leaves, tree = jax.tree.flatten(arguments)
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        if is_in_shard_map() and not is_concrete(arrays):
            whole = FlatCall(types_of(arrays), function, tree, _static(leaves), settings_of_tracing(), in_mesh=True)
            found = traced(whole)
            if found.is_closed(whole):
                return filled(found.like, call_p.bind(*varying_alike(arrays), call=whole))
        return elsewhere(*arguments)

    return call


def _static(leaves: list[object]) -> tuple[Hashable, ...]:
    return tuple(ARRAY if eqx.is_array(leaf) else as_static(leaf) for leaf in leaves)
