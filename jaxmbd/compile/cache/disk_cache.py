"""Disk cache of traced and compiled functions: a later process loads them without even tracing.

JAX's own disk cache saves the compiler's time, but not the tracing and lowering of a first call. This cache stores the
whole function, as NumPy code or as an executable, with the programs that it calls, in the folder of JAX's cache and
only while that is enabled.

The key of an entry is a hash of everything that determines it: the function's name; the structure of its arguments, the
static leaves among them, the types of the arrays; the sources of this package and the versions of the libraries; the
settings of JAX and XLA; the processor. Code of a user's own joints, forces and functions is part of the key by its
content (`fingerprint.py`); what reads more than that, such as another module of the user, is not cached.

A file is read only if it belongs to the user, contains this key and is complete (`entry.py`); anything else is made
again and replaced. `JAXMBD_CACHE_MIB` limits the total size of the files; the least recently used ones are removed.
With 0 nothing is read or written, which is how tests disable the cache.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.arrays import is_concrete
from jaxmbd.compile.cache.entry import Entry, packed, unpacked
from jaxmbd.compile.cache.files import limit_size, read_own, size_limit, touch, write_whole
from jaxmbd.compile.cache.fingerprint import LIBRARIES, fingerprint
from jaxmbd.compile.cache.first_calls import FirstCalls, FlatCall
from jaxmbd.compile.cache.structure import ARRAY
from jaxmbd.compile.jax_internals import (
    compilation_cache_folder,
    is_compilation_cache_on,
    use_compilation_cache,
    watches_values,
)
from jaxmbd.compile.targets.build_vm import processor, vm
from jaxmbd.progress import announcing

# Settings of JAX that are part of the key.
_SETTINGS = ("enable_x64", "default_matmul_precision", "numpy_rank_promotion", "numpy_dtype_promotion")
_VARIABLES = ("XLA_", "EQX_")  # prefixes of environment variables that are part of the key


def cached_on_disk(function: Callable[..., Any]) -> Callable[..., Any]:
    """`equinox.filter_jit` whose first calls with known arguments run as NumPy code, without a compiler (`FirstCalls`).

    While JAX's disk cache is on, the code, and later the executable, are stored there.
    """
    usual = announcing(function, eqx.filter_jit)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if jax.config.jax_disable_jit:  # pyright: ignore  # the function gets arrays of JAX all the same
            return function(*jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, arguments))
        leaves, tree = jax.tree.flatten(arguments)
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        if watches_values() or not jax.sharding.get_abstract_mesh().empty or not all(map(_is_local, arrays)):
            return usual(*arguments)
        others = tuple(ARRAY if eqx.is_array(leaf) else leaf for leaf in leaves)
        is_stored = is_compilation_cache_on() and size_limit() > 0
        ready = _ready(function, tree, others, tuple(map(_type, arrays)), _settings(), is_stored)
        return ready(arrays) if ready.is_closed else usual(*arguments)

    return call


@lru_cache(maxsize=1024)
def _ready(
    function: Callable[..., Any], tree: Any, others: tuple[Any, ...], types: tuple[Any, ...], settings: Any,
    is_stored: bool,
) -> FirstCalls:  # fmt: skip
    """The function of a list of arrays, from disk if it is there, else traced, and stored."""
    call = FlatCall(function, tree, others, types)
    if not is_stored:
        return FirstCalls(call)
    type_names = [(shape, str(dtype), is_weak) for shape, dtype, is_weak in types]
    description = fingerprint((function, jax.tree.unflatten(tree, others), type_names, settings, _surroundings()))
    if description is None:
        return FirstCalls(call)
    key = hashlib.sha256(description).digest()
    name = f"jaxmbd_{function.__name__.strip('_')}-{key.hex()}"
    path = Path(compilation_cache_folder() or "") / name
    return FirstCalls(call, _read(key, path), partial(_write, key, path), _without_jax_cache)


def _read(key: bytes, path: Path) -> Entry | None:
    """The entry in a file; None if there is no file or it cannot be trusted."""
    content = read_own(path)
    if content is None:
        return None
    try:
        entry = unpacked(key, content)
    except Exception:  # whatever a file can contain
        return None
    touch(path)
    return entry


def _write(key: bytes, path: Path, entry: Entry) -> None:
    with suppress(TypeError, OSError):  # a result that cannot be encoded; a folder that is not writable
        content = packed(key, entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        limit_size(path.parent, "jaxmbd_*", size_limit())


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
