"""What determines the content of a store, as digests by part, so that a difference can be named."""

import hashlib
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from jax.stages import Wrapped

from jaxmbd.engine.calls.disk_cache import digest_of_sources
from jaxmbd.engine.calls.identity import UnidentifiedError, identity_of
from jaxmbd.errors import MechanismError
from jaxmbd.sweeps._outputs import Function, Output, name_of, traced
from jaxmbd.sweeps._space import Space

_SAYS = {
    "computation": "what the function computes, its operations or a constant in them",
    "chunk": "the size of a chunk",
    "precision": "JAX's setting of 64-bit floats",
    "jaxmbd": "the version of jaxmbd",
    "code": "the source files of jaxmbd",
    "jax": "the version of JAX",
}


def digests(function: Function, run: Wrapped, space: Space, outputs: tuple[Output, ...], chunk: int) -> dict[str, Any]:
    """The parts that determine a store, by name; numbers of the space and outputs each by their own.

    `run`: the function for a chunk, jitted; what it computes is its jaxpr, with the constants in it.

    **Raises:** `MechanismError` if what the function computes cannot be told from what another one does.
    """
    try:
        computation = identity_of(traced(run, space, chunk))
    except UnidentifiedError as error:
        raise MechanismError(
            f"sweep: a store keeps what {name_of(function)} computes, and goes on only with a function that computes "
            f"the same; of this one that cannot be told: {error}. Leave out store, or whatever calls Python while it "
            "runs (callbacks, debugging) and primitives of your own."
        ) from None
    return {
        "function": name_of(function),  # which is shown, and may differ
        "computation": computation.hex(),
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
        if stored.get(part) != given[part]
    ]
    if len(said) > 1 or stored.get("space", {}).keys() != given["space"].keys():
        said = [words for words in said if words != _SAYS["computation"]]  # of which the others are the reason
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


def _shown(before: object, now: object) -> str:
    """Values that say something to a reader; a digest does not."""
    return "" if len(str(now)) == 64 else f" ({before} in the store, {now} now)"
