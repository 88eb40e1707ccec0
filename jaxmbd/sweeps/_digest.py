"""What determines the content of a store, as digests by part, so that a difference can be named."""

import hashlib
import inspect
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from jaxmbd.compile.cache.disk_cache import digest_of_sources
from jaxmbd.compile.cache.fingerprint import fingerprint
from jaxmbd.errors import MechanismError
from jaxmbd.sweeps._outputs import Function, Output, name_of
from jaxmbd.sweeps._space import Space

_SAYS = {
    "function": "the function's name",
    "source": "the source text of the function",
    "constants": "what the function closes over or reads (constants, or other functions that it calls)",
    "chunk": "the size of a chunk",
    "precision": "JAX's setting of 64-bit floats",
    "jaxmbd": "the version of jaxmbd",
    "code": "the source files of jaxmbd",
    "jax": "the version of JAX",
}


def digests(function: Function, space: Space, outputs: tuple[Output, ...], chunk: int) -> dict[str, Any]:
    """The parts that determine a store, by name; numbers of the space and outputs each by their own.

    **Raises:** `MechanismError` if the content of the function cannot be told from that of another.
    """
    content = fingerprint(function)
    if content is None:
        raise MechanismError(
            f"sweep: it cannot be determined what {name_of(function)} depends on, so a store could not tell whether it "
            "has changed. Pass a plain Python function, and import what it calls at the top of its file by name (from "
            "my_module import my_function), not inside the function and not as a module; it must not read files, the "
            "clock or random numbers."
        )
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):  # a partial, or typed at a prompt: `constants` has its code
        source = ""
    return {
        "function": name_of(function),
        "source": _hash(source.encode()),
        "constants": _hash(content),
        "space": {one.name: _number(one.dims, one.values) for one in space.swept},
        "outputs": {one.name: f"{one.dtype}{list(one.shape)}" for one in outputs},
        "chunk": chunk,
        "precision": "64 bit" if jax.config.read("jax_enable_x64") else "32 bit",
        "jaxmbd": version("jaxmbd"),
        "code": digest_of_sources(),
        "jax": jax.__version__,
    }


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _number(dims: tuple[str, ...], values: np.ndarray) -> str:
    return _hash(repr((dims, values.shape, values.dtype.str)).encode() + np.ascontiguousarray(values).tobytes())


def differences(stored: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    said = [
        f"{words}{_shown(stored.get(part), given[part])}"
        for part, words in _SAYS.items()
        if stored.get(part) != given[part] and not (part == "constants" and stored.get("source") != given["source"])
    ]
    for part, words in (("space", "the number"), ("outputs", "the output")):
        before, now = stored.get(part, {}), given[part]
        for name in [*before, *(x for x in now if x not in before)]:
            if name not in now:
                said.append(f"{words} {name!r} is in the store only")
            elif name not in before:
                said.append(f"{words} {name!r} is not in the store")
            elif before[name] != now[name]:
                said.append(f"{words} {name!r}{_shown(before[name], now[name])}")
    if not said and list(stored.get("space", {})) != list(given["space"]):
        said.append("the order of the numbers")
    return said


def _shown(before: Any, now: Any) -> str:
    """Values that say something to a reader; a digest does not."""
    return "" if len(str(now)) == 64 else f" ({before} in the store, {now} now)"
