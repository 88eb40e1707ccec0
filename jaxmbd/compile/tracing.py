"""`trace_once`: functions that are traced once for each structure and type of their arguments."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import numpy as np


def is_array(leaf: Any) -> bool:
    """True if a leaf of an argument is an array, whose numbers may differ from call to call."""
    return isinstance(leaf, jax.Array | np.ndarray)


def trace_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of pytrees so that it is traced once for each structure and type of its arguments.

    Under differentiation and `vmap`, JAX then transforms the cached jaxpr instead of running the function's Python code
    again for each transformation, which would dominate the time of an analysis's first call. Leaves that are not
    arrays, functions among them, are static: they are part of the cache key and must be hashable.
    """

    @partial(jax.jit, static_argnums=(0, 1), inline=True)
    def run(tree: Any, others: tuple[Any, ...], arrays: list[Any]) -> Any:
        remaining = iter(arrays)
        return function(*jax.tree.unflatten(tree, [next(remaining) if leaf is _ARRAY else leaf for leaf in others]))

    @wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        others = tuple(_ARRAY if is_array(leaf) else leaf for leaf in leaves)
        return run(tree, others, [leaf for leaf in leaves if is_array(leaf)])

    return call


_ARRAY = object()  # the placeholder of an array among the static leaves
