"""Compiled functions kept on disk from one process to the next: the second one does not even trace them.

JAX's own cache on disk saves the compiler's time; what is left of a first call is tracing and lowering. Here the whole
compiled function is kept, beside the programs that it calls, in the folder of JAX's cache and only while that is on.

It is found again by all that makes it: the function's name; the structure of its arguments, what is no array in them,
the types of the arrays; the sources of this package, the versions of the libraries; what JAX and XLA are told; the
processor. What depends on code that is known by its name alone, a user's own law or solver, is not kept.

A file is read only if it is the user's own, carries this key and is whole (`executable.py`); anything else is made
anew and replaced. `JAXMBD_CACHE_MIB` limits what all files together take, of which the least recently used go; with 0
nothing is read or written, which is how tests turn it off.
"""

import hashlib
import io
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, wraps
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.arrays import is_concrete
from jaxmbd.compile.cache.executable import deserialized, serialized
from jaxmbd.compile.cache.files import limit_size, read_own, size_limit, touch, write_whole
from jaxmbd.compile.cache.structure import ARRAY
from jaxmbd.compile.jax_binding import register, registering
from jaxmbd.compile.jax_internals import compilation_cache_folder, is_compilation_cache_on, use_compilation_cache
from jaxmbd.compile.targets.build_vm import processor, vm

_LIBRARIES = ("jax", "jaxlib", "numpy", "equinox", "diffrax", "optimistix", "lineax", "optax")
_KNOWN = {*_LIBRARIES, "jaxmbd", "builtins", "collections", "copyreg", "functools", "enum", "math", "operator", "types"}
# What JAX is told that changes what it makes of a function, and what keeps it from being kept.
_SETTINGS = ("enable_x64", "default_matmul_precision", "numpy_rank_promotion", "numpy_dtype_promotion")
_WATCHED = ("disable_jit", "debug_nans", "debug_infs", "check_tracer_leaks", "default_device")
_VARIABLES = ("XLA_", "EQX_")  # of the environment


def cached_on_disk(function: Callable[..., Any]) -> Callable[..., Any]:
    """`equinox.filter_jit`, and where JAX's cache on disk is on, what it compiled for known numbers is kept there."""
    usual = eqx.filter_jit(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if jax.config.jax_disable_jit:  # pyright: ignore  # the function gets arrays of JAX all the same
            return function(*jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, arguments))
        if not _is_keeping():
            return usual(*arguments)
        leaves, tree = jax.tree.flatten(arguments)
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        if not all(map(_is_here, arrays)):
            return usual(*arguments)
        others = tuple(ARRAY if eqx.is_array(leaf) else leaf for leaf in leaves)
        ready = _ready(function, tree, others, tuple(map(_type, arrays)), _settings())
        return usual(*arguments) if ready is None else ready(arrays)

    return call


class _Ready:
    """A compiled function of a list of arrays; and its result, with `ARRAY` in the place of the arrays."""

    def __init__(self, compiled: jax.stages.Compiled, like: Any) -> None:
        self._compiled = compiled
        self._leaves, self._tree = jax.tree.flatten(like)

    def __call__(self, arrays: list[Any]) -> Any:
        values = iter(self._compiled(arrays))
        return jax.tree.unflatten(self._tree, [next(values) if x is ARRAY else x for x in self._leaves])


@lru_cache(maxsize=128)
def _ready(
    function: Callable[..., Any], tree: Any, others: tuple[Any, ...], types: tuple[Any, ...], settings: Any
) -> _Ready | None:
    """The compiled function, from the disk or else put there; None where it cannot be kept."""
    kinds = [(shape, str(dtype), is_weak) for shape, dtype, is_weak in types]
    made_of = _described((function, jax.tree.unflatten(tree, others), kinds, settings, _surroundings()))
    if made_of is None:
        return None
    key = hashlib.sha256(made_of).digest()
    name = f"jaxmbd_{function.__name__.strip('_')}-{key.hex()}"
    path = Path(compilation_cache_folder() or "") / name
    return _read(key, path) or _made(function, tree, others, types, key, path)


def _made(
    function: Callable[..., Any], tree: Any, others: tuple[Any, ...], types: tuple[Any, ...], key: bytes, path: Path
) -> _Ready | None:
    """Traced and compiled, and written down if it can be."""
    like: Any = None

    def flat(arrays: list[Any]) -> list[Any]:
        nonlocal like
        given = iter(arrays)
        result = function(*jax.tree.unflatten(tree, [next(given) if x is ARRAY else x for x in others]))
        like = jax.tree.map(lambda x: ARRAY if eqx.is_array(x) else x, result)
        return [x for x in jax.tree.leaves(result) if eqx.is_array(x)]

    with registering() as programs:
        given = [jax.ShapeDtypeStruct(shape, dtype, weak_type=is_weak) for shape, dtype, is_weak in types]
        lowered = jax.jit(flat).lower(given)
    with _apart_from_jax():
        compiled = lowered.compile()
    with suppress(Exception):  # it calls Python back, its result holds what has no text, the folder takes no files
        content = serialized(key, compiled, like, programs)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        limit_size(path.parent, "jaxmbd_*", size_limit())
    return _Ready(compiled, like)


def _read(key: bytes, path: Path) -> _Ready | None:
    """What is kept there; None where that is nothing, or nothing that can be trusted."""
    content = read_own(path)
    if content is None:
        return None
    try:
        _load_lapack()
        compiled, like, programs = deserialized(key, content)
        for program in programs:
            register(program)
    except Exception:
        return None
    touch(path)
    return _Ready(compiled, like)


_lock = threading.Lock()  # of a setting that all threads share


@contextmanager
def _apart_from_jax() -> Iterator[None]:
    """Without JAX's cache: what that gives was loaded, and on a CPU cannot be written down a second time."""
    with _lock:
        use_compilation_cache(False)
        try:
            yield
        finally:
            use_compilation_cache(True)


@cache
def _load_lapack() -> None:
    """JAX loads it when it lowers a function that calls it, and not when it loads one."""
    if jax.default_backend() == "cpu":
        jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), float))


def _is_keeping() -> bool:
    if not is_compilation_cache_on() or any(getattr(jax.config, f"jax_{name}") for name in _WATCHED):
        return False
    return jax.sharding.get_abstract_mesh().empty and size_limit() > 0


def _is_here(array: Any) -> bool:
    """Whether an array's numbers are known, and lie on the device that compiled functions run on."""
    return is_concrete(array) and (not isinstance(array, jax.Array) or array.devices() == {jax.devices()[0]})


def _type(array: Any) -> tuple[tuple[int, ...], Any, bool]:
    like = jax.typeof(array)
    return like.shape, like.dtype, like.weak_type


def _settings() -> tuple[Any, ...]:
    return tuple(getattr(jax.config, f"jax_{name}") for name in _SETTINGS)


@cache
def _surroundings() -> tuple[Any, ...]:
    """What a compiled function depends on that stays as it is while a process runs."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".c", ".h")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    variables = sorted((k, v) for k, v in os.environ.items() if k.startswith(_VARIABLES))
    device = jax.devices()[0]
    return (
        digest.hexdigest(), [version(name) for name in _LIBRARIES], variables, device.platform, device.device_kind,
        processor(), vm() is not None,
    )  # fmt: skip


class _Describer(pickle.Pickler):
    """Writes down what something is, not to be read again. Code is named, if it is of a known library."""

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, FunctionType | BuiltinFunctionType | type):
            return None
        if (obj.__module__ or "").partition(".")[0] not in _KNOWN or "<" in obj.__qualname__:
            raise pickle.PicklingError(f"{obj} may change without its name.")
        return f"{obj.__module__}.{obj.__qualname__}"


def _described(given: Any) -> bytes | None:
    text = io.BytesIO()
    describer = _Describer(text)
    describer.fast = True  # what is equal is written alike, whether it is one object or two
    try:
        describer.dump(given)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return text.getvalue()
