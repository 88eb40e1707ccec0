"""Functions that are traced once, however often they are called."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import numpy as np


def is_array(leaf: Any) -> bool:
    """Whether a leaf of an argument holds numbers that may differ from call to call."""
    return isinstance(leaf, jax.Array | np.ndarray)


def trace_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of pytrees, traced once for each structure and type of its arguments.

    Where it is differentiated or mapped, JAX transforms what was traced, instead of running the function's Python under
    each transformation anew, which is most of what a first call of an analysis takes. Leaves that are no arrays,
    functions among them, tell calls apart and must be hashable.
    """

    @partial(jax.jit, static_argnums=(0, 1), inline=True)
    def run(tree: Any, others: tuple[Any, ...], arrays: list[Any]) -> Any:
        given = iter(arrays)
        return function(*jax.tree.unflatten(tree, [next(given) if leaf is _ARRAY else leaf for leaf in others]))

    @wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        others = tuple(_ARRAY if is_array(leaf) else leaf for leaf in leaves)
        return run(tree, others, [leaf for leaf in leaves if is_array(leaf)])

    return call


_ARRAY = object()  # stands where an array was
