"""`trace_once`, for functions inside of traced ones: they are traced once for each structure and type of arguments.

`known_by_numpy` wraps functions that are called by hand, too.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmbd.arrays import constant, is_concrete, is_local
from jaxmbd.engine.binding.mesh import placed_by_xla
from jaxmbd.engine.numpy_code.code import UNLIMITED, Budget, NumpyCode, StoppedError
from jaxmbd.engine.numpy_code.code import run as run_code
from jaxmbd.engine.numpy_code.translation import UnsupportedError, numpy_code
from jaxmbd.engine.store.sized_cache import INSTRUCTIONS_KEPT, sized_cache
from jaxmbd.upstream.jax_internals import ShapedArray, TreeDef, is_x64, watches_values

Result = TypeVar("Result")


def is_array(leaf: object) -> TypeGuard[Array]:
    """True if a leaf of an argument is an array, whose numbers may differ from call to call."""
    return isinstance(leaf, jax.Array | np.ndarray)


_for_known_values: ContextVar[bool] = ContextVar("for_known_values", default=False)


@contextmanager
def for_known_values() -> Iterator[None]:
    """While a function is traced for one instance with known values, which NumPy then runs."""
    token = _for_known_values.set(True)
    try:
        yield
    finally:
        _for_known_values.reset(token)


def is_for_known_values() -> bool:
    """True inside of `for_known_values`."""
    return _for_known_values.get()


def trace_once(function: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap a function of pytrees so that it is traced once for each structure and type of its arguments.

    Under differentiation and `vmap`, JAX then transforms the cached jaxpr instead of running the function's Python code
    again for each transformation, which would dominate the time of an analysis's first call. Leaves that are not
    arrays, functions among them, are static: they are part of the cache key; one without a hash is compared
    by identity. Arrays on another device than the default one are computed there, by XLA.

        >>> print(mbd.extend.trace_once(lambda x: 2 * x)(jnp.asarray(1.5)))
        3.0
    """

    @partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
    def run(tree: TreeDef, others: tuple[Hashable, ...], _: bool, arrays: list[Array]) -> Result:
        remaining = iter(arrays)
        leaves = [next(remaining) if leaf is _ARRAY else of_static(leaf) for leaf in others]
        return function(*jax.tree.unflatten(tree, leaves))

    @wraps(function)
    def call(*arguments: object) -> Result:
        leaves, tree = jax.tree.flatten(arguments)
        others = tuple(_ARRAY if is_array(leaf) else as_static(leaf) for leaf in leaves)
        arrays = [leaf for leaf in leaves if is_array(leaf)]
        if all(map(is_local, arrays)) and not watches_values():
            code, results = _known(run, tree, others, tuple(map(jax.typeof, arrays)), is_x64())
            if code is not None:
                with suppress(StoppedError):  # by a user's check, whose error XLA raises
                    return jax.tree.unflatten(results, run_code(code, arrays, Budget(UNLIMITED)))
        # The third argument is part of JAX's key: for known values small matrices are no programs (`prefers_programs`).
        return placed_by_xla(partial(run, tree, others, is_for_known_values()))(arrays)

    return call


@sized_cache(INSTRUCTIONS_KEPT, lambda found: 1 if found[0] is None else found[0].size)
def _known(
    run: Callable[..., object], tree: TreeDef, others: tuple[Hashable, ...], types: tuple[ShapedArray, ...], _: bool
) -> tuple[NumpyCode | None, TreeDef | None]:
    """The NumPy code of a function for values that are known, which compiles nothing, and the structure of the
    results."""
    # The last argument, the precision, is only part of the key: numbers without a type of their own take it.
    with for_known_values():
        jaxpr, results = jax.make_jaxpr(partial(run, tree, others, True), return_shape=True)([*types])
    try:
        return numpy_code(jaxpr), jax.tree.structure(results)
    except UnsupportedError:
        return None, None


def known_by_numpy(function: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap a function of pytrees so that NumPy computes it where all arguments are known, and nothing is compiled.

    Called by hand, each of its operations would be compiled on its own. Traced, it is the function itself.
    """
    plain = lambda arguments, named: function(*arguments, **named)  # noqa: E731
    once = trace_once(plain)

    @wraps(function)
    def call(*arguments: object, **named: object) -> Result:
        # Numbers become arrays, of the type of the others: each value of a number would be traced anew.
        types = [x.dtype for x in (*arguments, *named.values()) if is_array(x)]
        dtype = jnp.result_type(float, *(x for x in types if jnp.issubdtype(x, jnp.floating)))
        as_array = lambda x: constant(np.asarray(x, dtype)) if isinstance(x, float | int | np.generic) else x  # noqa: E731
        arguments, named = tuple(map(as_array, arguments)), {name: as_array(x) for name, x in named.items()}
        return (once if is_concrete(arguments, named) else plain)(arguments, named)

    return call


class _ByIdentity:
    """A static leaf without a hash, such as a user's object with `__eq__` alone that can be called."""

    def __init__(self, leaf: object) -> None:
        self.leaf = leaf

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.leaf is self.leaf

    def __hash__(self) -> int:
        return id(self.leaf)


def as_static(leaf: object) -> Hashable:
    """A leaf as part of a key."""
    try:
        hash(leaf)
    except TypeError:
        return _ByIdentity(leaf)
    return leaf


def of_static(leaf: object) -> Any:
    """The leaf of which `as_static` has made a part of a key."""
    return leaf.leaf if isinstance(leaf, _ByIdentity) else leaf


_ARRAY = object()  # the placeholder of an array among the static leaves
