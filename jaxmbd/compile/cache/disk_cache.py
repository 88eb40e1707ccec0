"""Disk cache of compiled functions: a later process loads them without even tracing.

JAX's own disk cache saves the compiler's time, but not the tracing and lowering of a first call. This cache stores the
whole compiled function with the programs that it calls, in the folder of JAX's cache and only while that is enabled.

The key of an entry is a hash of everything that determines it: the function's name; the structure of its arguments, the
static leaves among them, the types of the arrays; the sources of this package and the versions of the libraries; the
settings of JAX and XLA; the processor. Code of a user's own joints, forces and functions is part of the key by its
content (`fingerprint.py`); what reads more than that, such as another module of the user, is not cached.

A file is read only if it belongs to the user, contains this key and is complete (`executable.py`); anything else is
compiled again and replaced. `JAXMBD_CACHE_MIB` limits the total size of the files; the least recently used ones are
removed. With 0 nothing is read or written, which is how tests disable the cache.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.arrays import is_concrete
from jaxmbd.compile.cache.executable import ARRAY, deserialized, encoded, serialized
from jaxmbd.compile.cache.files import limit_size, read_own, size_limit, touch, write_whole
from jaxmbd.compile.cache.fingerprint import LIBRARIES, fingerprint
from jaxmbd.compile.jax_binding import register, registering
from jaxmbd.compile.jax_internals import compilation_cache_folder, is_compilation_cache_on, use_compilation_cache
from jaxmbd.compile.targets.build_vm import processor, vm
from jaxmbd.progress import announced, announcing

# Settings of JAX that are part of the key, and those that disable the cache.
_SETTINGS = ("enable_x64", "default_matmul_precision", "numpy_rank_promotion", "numpy_dtype_promotion")
_WATCHED = ("disable_jit", "debug_nans", "debug_infs", "check_tracer_leaks", "default_device")
_VARIABLES = ("XLA_", "EQX_")  # prefixes of environment variables that are part of the key


def cached_on_disk(function: Callable[..., Any]) -> Callable[..., Any]:
    """`equinox.filter_jit` that, while JAX's disk cache is on, also stores what it compiles for concrete arguments."""
    usual = announcing(function, eqx.filter_jit)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if jax.config.jax_disable_jit:  # pyright: ignore  # the function gets arrays of JAX all the same
            return function(*jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, arguments))
        if not _is_enabled():
            return usual(*arguments)
        leaves, tree = jax.tree.flatten(arguments)
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        if not all(map(_is_local, arrays)):
            return usual(*arguments)
        others = tuple(ARRAY if eqx.is_array(leaf) else leaf for leaf in leaves)
        ready = _ready(function, tree, others, tuple(map(_type, arrays)), _settings())
        return usual(*arguments) if ready is None else ready(arrays)

    return call


class _CompiledCall:
    """A compiled function of a list of arrays, and the structure of its result with `ARRAY` as placeholder."""

    def __init__(self, compiled: jax.stages.Compiled, like: Any) -> None:
        self._compiled = compiled
        self._leaves, self._tree = jax.tree.flatten(like)

    def __call__(self, arrays: list[Any]) -> Any:
        values = iter(self._compiled(arrays))
        return jax.tree.unflatten(self._tree, [next(values) if x is ARRAY else x for x in self._leaves])


@lru_cache(maxsize=128)
def _ready(
    function: Callable[..., Any], tree: Any, others: tuple[Any, ...], types: tuple[Any, ...], settings: Any
) -> _CompiledCall | None:
    """The compiled function, loaded from disk or else compiled and stored; None if it cannot be cached."""
    type_names = [(shape, str(dtype), is_weak) for shape, dtype, is_weak in types]
    description = fingerprint((function, jax.tree.unflatten(tree, others), type_names, settings, _surroundings()))
    if description is None:
        return None
    key = hashlib.sha256(description).digest()
    name = f"jaxmbd_{function.__name__.strip('_')}-{key.hex()}"
    path = Path(compilation_cache_folder() or "") / name
    ready = _read(key, path)
    if ready is None:
        with announced(function, jax.tree.unflatten(tree, others)):
            ready = _compile_and_store(function, tree, others, types, key, path)
    return ready


def _compile_and_store(
    function: Callable[..., Any], tree: Any, others: tuple[Any, ...], types: tuple[Any, ...], key: bytes, path: Path
) -> _CompiledCall:
    """Trace and compile the function, and store it if its result can be encoded; if not, JAX's cache serves."""
    like: Any = None

    def flat(arrays: list[Any]) -> list[Any]:
        nonlocal like
        remaining = iter(arrays)
        result = function(*jax.tree.unflatten(tree, [next(remaining) if x is ARRAY else x for x in others]))
        like = jax.tree.map(lambda x: ARRAY if eqx.is_array(x) else x, result)
        return [x for x in jax.tree.leaves(result) if eqx.is_array(x)]

    with registering() as programs:
        array_types = [jax.ShapeDtypeStruct(shape, dtype, weak_type=is_weak) for shape, dtype, is_weak in types]
        lowered = jax.jit(flat).lower(array_types)
    try:
        encoded(like)
    except TypeError:
        return _CompiledCall(lowered.compile(), like)
    with _without_jax_cache():
        compiled = lowered.compile()
    with suppress(Exception):  # a callback to Python, a folder that is not writable
        content = serialized(key, compiled, like, programs)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        limit_size(path.parent, "jaxmbd_*", size_limit())
    return _CompiledCall(compiled, like)


def _read(key: bytes, path: Path) -> _CompiledCall | None:
    """Load the compiled function from a file; None if there is no file or it cannot be trusted."""
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
    return _CompiledCall(compiled, like)


_lock = threading.Lock()  # of a global setting of JAX, which all threads share


@contextmanager
def _without_jax_cache() -> Iterator[None]:
    """Disable JAX's disk cache: an executable that JAX loaded from it cannot be serialized again on a CPU."""
    with _lock:
        use_compilation_cache(False)
        try:
            yield
        finally:
            use_compilation_cache(True)


@cache
def _load_lapack() -> None:
    """Load LAPACK, which JAX does when it lowers a function that needs it, but not when it loads a compiled one."""
    if jax.default_backend() == "cpu":
        jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), float))


def _is_enabled() -> bool:
    """True if the settings of JAX and the size limit allow the cache, outside of any mesh."""
    if not is_compilation_cache_on() or any(getattr(jax.config, f"jax_{name}") for name in _WATCHED):
        return False
    return jax.sharding.get_abstract_mesh().empty and size_limit() > 0


def _is_local(array: Any) -> bool:
    """True if an array is concrete and on the default device, on which the compiled functions run."""
    return is_concrete(array) and (not isinstance(array, jax.Array) or array.devices() == {jax.devices()[0]})


def _type(array: Any) -> tuple[tuple[int, ...], Any, bool]:
    like = jax.typeof(array)
    return like.shape, like.dtype, like.weak_type


def _settings() -> tuple[Any, ...]:
    return tuple(getattr(jax.config, f"jax_{name}") for name in _SETTINGS)


@cache
def _surroundings() -> tuple[Any, ...]:
    """The part of the key that is constant while a process runs: sources, versions, environment, device, processor."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".c", ".h")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    variables = sorted((k, v) for k, v in os.environ.items() if k.startswith(_VARIABLES))
    device = jax.devices()[0]
    return (
        digest.hexdigest(), [version(name) for name in LIBRARIES], variables, device.platform, device.device_kind,
        processor(), vm() is not None, sys.version,
    )  # fmt: skip
