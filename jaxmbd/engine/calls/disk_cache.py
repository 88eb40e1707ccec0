"""Disk cache of traced and compiled functions: a later process loads them without even tracing.

JAX's own disk cache saves the compiler's time, but not the tracing and lowering of a first call. This cache stores the
whole function, as NumPy code or as an executable, with the programs that it calls, in the folder of JAX's cache if the
user names one, else in one of its own in the user's cache.

The key of an entry is a hash of everything that determines it: the function's name; the structure of its arguments, the
static leaves among them, the types of the arrays; the sources of this package and the versions of the libraries; the
settings of JAX and XLA; the processor. What a user's function computes is known from its jaxprs (`user_calls.py`): one
file says how an analysis calls the functions of its user, and the key of the analysis itself has what they become when
they are called so (`identity.py`). Not stored are analyses with objects of a user's own classes, whose methods the
library may call for anything, and with functions that cannot be told from others.

How files are checked, and how many are kept, is said in `store/artefacts.py`. Nothing is read or written if JAX's cache
is switched off (`JAX_ENABLE_COMPILATION_CACHE=false`).
"""

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import jax

from jaxmbd.engine.calls.calls import Call
from jaxmbd.engine.calls.entry import Entry, packed, unpacked
from jaxmbd.engine.calls.first_calls import FirstCalls
from jaxmbd.engine.calls.identity import UnidentifiedError, identity_of
from jaxmbd.engine.calls.known_code import LIBRARIES
from jaxmbd.engine.machine.build_vm import vm
from jaxmbd.engine.machine.c_library import processor
from jaxmbd.engine.store.artefacts import Artefact, Kind, own_folder, size_limit, user_folder
from jaxmbd.engine.store.sized_cache import INSTRUCTIONS_KEPT, sized_cache
from jaxmbd.upstream.jax_internals import (
    compilation_cache_folder,
    is_compilation_cache_on,
    use_compilation_cache,
)

_CALLS = "calls"  # the kind of a file that says how users' functions are called
_VARIABLES = ("XLA_", "EQX_")  # prefixes of environment variables that are part of the key


def first_calls(call: Call) -> FirstCalls:
    """A call that can be run: from disk if it is there, else traced, and stored."""
    return _first_calls(call, _folder())


def _folder() -> Path | None:
    """Where entries are stored; None where they are not."""
    if size_limit() <= 0 or not is_compilation_cache_on():
        return None
    named = compilation_cache_folder()
    return Path(named) if named else _own(user_folder())


@cache
def _own(preferred: Path) -> Path | None:
    """The folder of the user's own, looked up once as long as it is to be this one: each call of an analysis asks."""
    return own_folder()


@sized_cache(INSTRUCTIONS_KEPT, lambda found: found.size)
def _first_calls(call: Call, folder: Path | None) -> FirstCalls:
    if folder is None:
        return FirstCalls(call)
    try:
        key = identity_of((call.identity, _surroundings()))
    except UnidentifiedError:  # such as an object of a user's class, whose methods could do anything
        return FirstCalls(call)
    return FirstCalls(call, _find(call, key, folder), partial(_keep, call, key, folder), _without_jax_cache)


def _find(call: Call, key: bytes, folder: Path) -> Entry | None:
    """The entry of a call: that of the same users' functions, which are called as it says, and compute the same."""
    if not call.users:
        return _read(call, key, folder)
    found = _read(call, key, folder)
    if found is None or found.kind != _CALLS:
        return None
    try:
        calls = [
            [[x, user.again(x)] for x in stored] for user, stored in zip(call.users, found.description, strict=True)
        ]
    except Exception:  # whatever a user's function raises for arguments of another one
        return None
    key = _key_of(key, calls)
    return _read(call, key, folder)


def _keep(call: Call, key: bytes, folder: Path, entry: Entry) -> None:
    """Store the entry of a call, and how it calls users' functions, if there are any."""
    if call.users:
        try:
            calls = [user.identity() for user in call.users]
        except UnidentifiedError:
            return
        known = Entry(_CALLS, [[x for x, _ in each] for each in calls], [], None, (), [])
        _write(call, key, folder, known)
        key = _key_of(key, calls)
    _write(call, key, folder, entry)


def _key_of(key: bytes, calls: Sequence[object]) -> bytes:
    """The key of a call with users' functions that compute this."""
    return hashlib.sha256(key + json.dumps(calls).encode()).digest()


def _read(call: Call, key: bytes, folder: Path) -> Entry | None:
    """The entry with this key; None if there is none that can be trusted."""
    content = Artefact(Kind.CALL, call.name, key).read(folder)
    try:
        return None if content is None else unpacked(content)
    except Exception:  # whatever another version of a library has written
        return None


def _write(call: Call, key: bytes, folder: Path, entry: Entry) -> None:
    with suppress(TypeError):  # a result that cannot be encoded
        Artefact(Kind.CALL, call.name, key).write(folder, packed(entry))


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
def digest_of_sources() -> str:
    """Return a digest of the source files of jaxmbd."""
    package, digest = str(Path(__file__).parents[2]), hashlib.sha256()
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(package) for name in names)  # thrice `rglob`
    for path in sorted(path for path in paths if path.endswith((".py", ".c", ".h"))):
        with open(path, "rb", buffering=0) as file:
            digest.update(path.removeprefix(package).encode() + file.read())
    return digest.hexdigest()


@cache
def _surroundings() -> tuple[object, ...]:
    """The part of the key that is constant while a process runs: sources, versions, environment, device, processor."""
    variables = sorted((k, v) for k, v in os.environ.items() if k.startswith(_VARIABLES))
    device = jax.devices()[0]
    return (
        digest_of_sources(), [version(name) for name in LIBRARIES], variables, device.platform, device.device_kind,
        processor(), vm() is not None, sys.version,
    )  # fmt: skip
