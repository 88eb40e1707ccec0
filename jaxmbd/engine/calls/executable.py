"""Compiled functions as data: XLA's machine code, and the types of arguments and results.

`jax.experimental.serialize_executable` uses `pickle`, and unpickling executes arbitrary code that a file contains. Here
JAX's objects around the machine code are constructed from numbers and text.
"""

import dataclasses
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from jaxmbd.engine.machine.gpu.launcher import TARGET, ready
from jaxmbd.upstream.jax_internals import ShapedArray, compiled_from, has_constant_arguments, unloaded_executable


def described(compiled: jax.stages.Compiled) -> tuple[dict[str, object], np.ndarray]:
    """A compiled function of a list of arrays as JSON data and machine code.

    Raises:
        TypeError: If it does more than compute arrays from arrays on one device.
    """
    parts = unloaded_executable(compiled)
    effects = (parts.host_callbacks, parts.keepalive, parts.unordered_effects, parts.ordered_effects, parts.mut)
    if any(effects) or has_constant_arguments(compiled):
        raise TypeError("It calls Python back, or holds on to something outside of it.")
    if any(not isinstance(x, SingleDeviceSharding) for x in (*parts.input_shardings, *parts.output_shardings)):
        raise TypeError("It runs on several devices.")
    description = {
        "name": parts.name,
        "count": len(jax.tree.leaves(compiled.args_info)),
        "taken": sorted(parts.kept_var_idx),
        "arguments": [_type_text(x) for x in parts.input_avals],
        "results": [_type_text(x) for x in parts.output_avals],
    }
    return description, np.frombuffer(parts.xla_executable.serialize(), np.uint8)


def loaded(description: Any, machine_code: np.ndarray) -> jax.stages.Compiled:
    """The compiled function that `described` has described: JAX's object around XLA's machine code.

    Raises:
        Exception: If it was written by another version of JAX.
    """
    _load_lapack()
    device, content = jax.devices()[0], machine_code.tobytes()
    if device.platform == "gpu" and TARGET.encode() in content:  # it launches a kernel
        ready()
    arguments, results = ([_type(x) for x in description[name]] for name in ("arguments", "results"))
    place = SingleDeviceSharding(device, memory_kind=device.default_memory().kind)
    parts = dataclasses.replace(
        unloaded_executable(_smallest()),
        xla_executable=device.client.deserialize_executable(content, executable_devices=(device,)),
        name=description["name"],
        input_avals=arguments, output_avals=results,
        input_shardings=[place] * len(arguments), output_shardings=[place] * len(results),
        xla_in_layouts=[None] * len(arguments), dispatch_in_layouts=[None] * len(arguments),
        xla_out_layouts=[None] * len(results),
        kept_var_idx=set(description["taken"]), all_args_info=None,
    )  # fmt: skip
    args_info, out_tree = (([0] * description["count"],), {}), jax.tree.structure([0] * len(results))
    return compiled_from(parts.load(), args_info, out_tree)


@cache
def _smallest() -> jax.stages.Compiled:
    """A trivial compiled function, whose description is the template for all others."""
    return jax.jit(lambda: ()).lower().compile()


def _type_text(x: ShapedArray) -> list[object]:
    return [list(x.shape), str(x.dtype), bool(x.weak_type)]


def _type(text: list[Any]) -> ShapedArray:
    shape, dtype, is_weak = text
    return ShapedArray(tuple(shape), np.dtype(dtype), is_weak)


@cache
def _load_lapack() -> None:
    """Load LAPACK, which JAX does when it lowers a function that needs it, but not when it loads a compiled one."""
    if jax.default_backend() == "cpu":
        jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), float))
