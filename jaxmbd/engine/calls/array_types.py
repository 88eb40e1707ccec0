"""Types of arrays, as values that can be compared, hashed and stored."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

Type = tuple[tuple[int, ...], np.dtype, bool]  # of an array: shape, dtype, and whether its type is weak


def type_of(array: ArrayLike) -> Type:
    """The type of an array or a tracer."""
    like = jax.typeof(array)
    return like.shape, like.dtype, like.weak_type


def types_of(arrays: Sequence[ArrayLike]) -> tuple[Type, ...]:
    """The types of several arrays."""
    return tuple(map(type_of, arrays))


def struct_of(kind: Type) -> jax.ShapeDtypeStruct:
    """A type as JAX describes it."""
    shape, dtype, is_weak = kind
    return jax.ShapeDtypeStruct(shape, dtype, weak_type=is_weak)


def has_tangent(kind: Type) -> bool:
    """True if values of this type have derivatives."""
    return bool(jnp.issubdtype(kind[1], jnp.inexact))


def as_data(types: Sequence[Type]) -> list[list[object]]:
    """Types as JSON data, with dtypes by name."""
    return [[list(shape), str(dtype), bool(is_weak)] for shape, dtype, is_weak in types]


def from_data(data: Any) -> tuple[Type, ...]:
    """Types from JSON data.

    Raises:
        Exception: If it is none of types.
    """
    return tuple((tuple(map(int, shape)), np.dtype(dtype), bool(is_weak)) for shape, dtype, is_weak in data)
