"""Names for the arrays that travel between modules, and the one conversion every number goes through."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Scalar: TypeAlias = Float[Array, ""]
Point: TypeAlias = Float[Array, " dim"]
Number: TypeAlias = float | int | np.ndarray | Array
Function: TypeAlias = Callable[..., Any]


def as_float(value: Any) -> Any:
    """Return `value` as a floating array, so that it is a leaf that gradients and sweeps can reach.

    Arrays that are traced or already floating pass through; integers become the default float. Anything else
    (the placeholders that `jax.tree_util` and `equinox.tree_at` put into a tree) is left alone.
    """
    # An explicit dtype makes the type strong: a weak one would compile everything a second time.
    if isinstance(value, float | int) and not isinstance(value, np.generic):
        return jnp.asarray(value, dtype=jnp.result_type(float))
    if isinstance(value, jax.Array | np.ndarray | np.generic | list | tuple):
        if isinstance(value, list | tuple) and any(isinstance(leaf, str) for leaf in jax.tree.leaves(value)):
            return value  # refused by name where it is checked
        try:
            given = jnp.asarray(value)
        except (TypeError, ValueError):  # rows of different lengths, refused likewise
            return value
        inexact = jnp.issubdtype(given.dtype, jnp.inexact)
        if inexact and not given.weak_type:
            return given
        return jnp.asarray(given, dtype=given.dtype if inexact else jnp.result_type(float))
    return value


def is_concrete(*values: Any) -> bool:
    """True when no leaf is being traced, so that its numbers can be looked at from Python."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def frozen(tree: Any) -> Any:
    """The same tree, its arrays constants to derivatives."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x, tree)
