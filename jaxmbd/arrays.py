"""Array type aliases, and the conversion of numbers to arrays that all parts use."""

from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any, TypeAlias, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.upstream.jax_internals import put_on_device

Scalar: TypeAlias = Float[Array, ""]
Point: TypeAlias = Float[Array, " dim"]
Number: TypeAlias = float | int | np.ndarray | Array
Numbers: TypeAlias = Number | Sequence[Number] | Sequence[Sequence[Number]]  # as users write them
Flag: TypeAlias = bool | np.ndarray | Array
Function: TypeAlias = Callable[..., Any]
Entry = TypeVar("Entry")  # an array, its type, or its tangent

_FLOAT = np.dtype(float)


def as_float(value: Any) -> Any:
    """Return `value` as a floating-point array, so that it is a leaf for gradients and `vmap`.

    Traced and floating-point arrays are returned unchanged; integers become the default float type. Anything else
    (the placeholders that `jax.tree_util` and `equinox.tree_at` put into a tree) is returned unchanged.

        >>> mbd.extend.as_float(2).dtype == float
        True
    """
    # An explicit dtype makes the type strong: a weak one would cause a second compilation.
    try:
        if isinstance(value, float | int) and not isinstance(value, np.generic):
            return constant(np.asarray(value, jnp.result_type(float)))
        if isinstance(value, jax.Array | np.ndarray | np.generic | list | tuple):
            if isinstance(value, list | tuple) and any(isinstance(leaf, str) for leaf in jax.tree.leaves(value)):
                return value  # the check of the field raises with its name
            array = value if isinstance(value, jax.Array) else _array(value)
            inexact = jnp.issubdtype(array.dtype, jnp.inexact)
            if inexact and not array.weak_type:
                return array
            dtype = array.dtype if inexact else jnp.result_type(float)
            return constant(np.asarray(array, dtype)) if is_concrete(array) else jnp.asarray(array, dtype)
    except (TypeError, ValueError, OverflowError):  # ragged rows, objects, 10**400: the check of the field raises
        pass
    return value


def _array(values: Any) -> Array:
    return constant(np.asarray(values)) if is_concrete(values) else jnp.asarray(values)


def is_concrete(*values: Any) -> bool:
    """True if no leaf is a tracer, nor a function that closes over one, so that the values are available in Python.

    >>> mbd.extend.is_concrete(jnp.ones(2))
    True
    """
    return not _is_traced(values, set())


def is_local(array: Any) -> bool:
    """True if an array is concrete and on the default device, on which NumPy code and stored functions run."""
    if isinstance(array, jax.Array):  # asked of each number of a mechanism, at each call of an analysis
        return not isinstance(array, jax.core.Tracer) and array.devices() == {jax.devices()[0]}
    return is_concrete(array)


def _is_traced(tree: Any, functions: set[int]) -> bool:
    """True if there is a tracer in a tree, or in a closure or the defaults of its functions, except those known
    already."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.core.Tracer):
            return True
        if isinstance(leaf, FunctionType) and id(leaf) not in functions:
            functions.add(id(leaf))
            if _is_traced([*map(content_of, leaf.__closure__ or ()), leaf.__defaults__], functions):
                return True
    return False


def content_of(cell: CellType) -> Any:
    """What a cell of a closure holds, None if nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:  # it is assigned later
        return None


def constant(value: Any) -> Array:
    """Numbers, or an array of NumPy, as an array of JAX, with nothing traced or compiled."""
    numbers = np.asarray(value)
    if numbers.dtype.kind in "fiubc":
        return put_on_device(numbers)
    with jax.ensure_compile_time_eval():
        return jax.device_put(numbers)


def combined(operation: str, values: Any) -> Array:
    """`jax.numpy`'s operation of this name; by NumPy, which compiles nothing, if no value is traced or a random key."""
    if is_concrete(values) and all(isinstance(getattr(x, "dtype", _FLOAT), np.dtype) for x in jax.tree.leaves(values)):
        return constant(getattr(np, operation)(values))
    return getattr(jnp, operation)(values)


def at_rows(x: Array | np.ndarray, rows: np.ndarray) -> Array:
    """`x[rows]` for known rows within the array, counted from its start: one gather.

    The brackets of JAX make five operations of it, and take ten times as long to trace.
    """
    window = tuple(range(rows.ndim, rows.ndim + x.ndim - 1))
    numbers = jax.lax.GatherDimensionNumbers(window, (0,), (0,))
    places = np.asarray(rows, np.int32)[..., None]
    return jax.lax.gather(x, places, numbers, (1, *x.shape[1:]), mode="promise_in_bounds")


def added_at_rows(x: Array, rows: np.ndarray, values: Array) -> Array:
    """`x.at[rows].add(values)` for known rows within the array, which may repeat: one scatter, as in `at_rows`."""
    return jax.lax.scatter_add(x, *_into_rows(rows, values), mode="promise_in_bounds")


def put_at_rows(x: Array, rows: np.ndarray, values: Array) -> Array:
    """`x.at[rows].set(values)` for known rows within the array, none of them twice: one scatter, as in `at_rows`."""
    return jax.lax.scatter(x, *_into_rows(rows, values), unique_indices=True, mode="promise_in_bounds")


def _into_rows(rows: np.ndarray, values: Array) -> tuple[np.ndarray, Array, jax.lax.ScatterDimensionNumbers]:
    window = tuple(range(1, values.ndim))
    return np.asarray(rows, np.int32)[:, None], values, jax.lax.ScatterDimensionNumbers(window, (0,), (0,))


def frozen(tree: Any) -> Any:
    """The same tree with arrays that are constants under differentiation (`stop_gradient`)."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.core.Tracer) else x, tree)


def is_known(*values: Any) -> bool:
    """True if the values are available in Python by `frozen`: concrete, or only being differentiated, without `jit`."""
    return is_concrete(frozen(values))


def replaced(x: Sequence[Entry], places: Sequence[int], arrays: Sequence[Entry]) -> list[Entry]:
    """The list with other arrays at some places."""
    full = list(x)
    for i, array in zip(places, arrays, strict=True):
        full[i] = array
    return full
