"""Serialization of compiled functions, with the programs that they call.

`jax.experimental.serialize_executable` uses `pickle`, and unpickling executes arbitrary code that a file contains. Here
a file holds numbers and text only: XLA's serialized machine code, the types of arguments and results, the tables of the
programs, the structure of the result. JAX's objects around the machine code are constructed from these.

Decoding the structure executes nothing that the text names. It builds numbers, strings, containers, and objects of
classes of libraries that are already imported, field by field: constructors do not run, and functions cannot be named.

    magic · SHA-256 of all that follows · key · length of the header · header (JSON) · arrays and machine code

The key identifies what was compiled, and from what, so that a file under the name of another one is rejected.
"""

import dataclasses
import hashlib
import json
import struct
import sys
from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from jaxmbd.compile.jax_internals import ShapedArray, compiled_from, has_constant_arguments, unloaded_executable
from jaxmbd.compile.passes.schedule import Program

_MAGIC = b"jaxmbd1\n"
_START = struct.Struct("<8s32s32sQ")
_ARRAYS = [field.name for field in dataclasses.fields(Program) if field.type is np.ndarray]
_NUMBERS = [field.name for field in dataclasses.fields(Program) if field.type is int]
_LIBRARIES = {"jaxmbd", "equinox", "diffrax", "optimistix", "lineax"}
_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS = {"tuple": tuple, "list": list, "frozenset": frozenset}


def serialized(key: bytes, compiled: jax.stages.Compiled, like: Any, programs: dict[int, Program]) -> bytes:
    """Serialize a compiled function of a list of arrays, the structure of its result, and the programs that it calls.

    `key`: 32 bytes that identify it.

    Raises:
        TypeError: If it does more than compute arrays from arrays on one device, or its result cannot be encoded.
    """
    parts = unloaded_executable(compiled)
    effects = (parts.host_callbacks, parts.keepalive, parts.unordered_effects, parts.ordered_effects, parts.mut)
    if any(effects) or has_constant_arguments(compiled):
        raise TypeError("It calls Python back, or holds on to something outside of it.")
    if any(not isinstance(x, SingleDeviceSharding) for x in (*parts.input_shardings, *parts.output_shardings)):
        raise TypeError("It runs on several devices.")
    arrays = [np.frombuffer(parts.xla_executable.serialize(), np.uint8)]
    header = {
        "name": parts.name,
        "result": encoded(like),
        "count": len(jax.tree.leaves(compiled.args_info)),
        "taken": sorted(parts.kept_var_idx),
        "arguments": [_type_text(x) for x in parts.input_avals],
        "results": [_type_text(x) for x in parts.output_avals],
        "programs": [],
    }
    for program in programs.values():
        numbers = {name: int(getattr(program, name)) for name in _NUMBERS}
        header["programs"].append({"numbers": numbers, "tables": len(program.constant_tables)})
        arrays += [*(getattr(program, name) for name in _ARRAYS), *program.constant_tables]
    header["arrays"] = [[x.dtype.str, list(x.shape)] for x in arrays]
    text = json.dumps(header).encode()
    content = b"".join([text, *(np.ascontiguousarray(x).tobytes() for x in arrays)])
    content = _START.pack(_MAGIC, bytes(32), key, len(text))[40:] + content
    return _MAGIC + hashlib.sha256(content).digest() + content


def deserialized(key: bytes, content: bytes) -> tuple[jax.stages.Compiled, Any, list[Program]]:
    """The compiled function of a list of arrays, the structure of its result, and the programs that it calls.

    Raises:
        ValueError: If the content was not written under this key, or has changed.
        Exception: If it was written by another version of JAX.
    """
    if len(content) < _START.size:
        raise ValueError("The file ends in its header.")
    magic, digest, written, length = _START.unpack_from(content)
    if (magic, written, digest) != (_MAGIC, key, hashlib.sha256(memoryview(content)[40:]).digest()):
        raise ValueError("The file was written under another key, or is damaged.")
    at = _START.size + length
    header = json.loads(content[_START.size : at])
    arrays = []
    for kind, shape in header["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(content, np.dtype(kind), count, at).reshape(shape).copy())
        at += arrays[-1].nbytes
    executable, *tables = arrays
    compiled = _loaded(executable.tobytes(), header)
    return compiled, decoded(header["result"]), [_program(each, tables) for each in header["programs"]]


def _program(header: Any, arrays: list[np.ndarray]) -> Program:
    """A program from its sizes and the next of the arrays, which are removed from the list."""
    fields = {name: arrays.pop(0) for name in _ARRAYS}
    constant_tables = tuple(arrays.pop(0) for _ in range(header["tables"]))
    return Program(**fields, constant_tables=constant_tables, **header["numbers"])


def _loaded(executable: bytes, header: Any) -> jax.stages.Compiled:
    """JAX's object around XLA's machine code, as it results from compilation for one device."""
    device = jax.devices()[0]
    arguments, results = ([_type(x) for x in header[name]] for name in ("arguments", "results"))
    place = SingleDeviceSharding(device, memory_kind=device.default_memory().kind)
    parts = dataclasses.replace(
        unloaded_executable(_smallest()),
        xla_executable=device.client.deserialize_executable(executable, executable_devices=(device,)),
        name=header["name"],
        input_avals=arguments, output_avals=results,
        input_shardings=[place] * len(arguments), output_shardings=[place] * len(results),
        xla_in_layouts=[None] * len(arguments), dispatch_in_layouts=[None] * len(arguments),
        xla_out_layouts=[None] * len(results),
        kept_var_idx=set(header["taken"]), all_args_info=None,
    )  # fmt: skip
    args_info, out_tree = (([0] * header["count"],), {}), jax.tree.structure([0] * len(results))
    return compiled_from(parts.load(), args_info, out_tree)


@cache
def _smallest() -> jax.stages.Compiled:
    """A trivial compiled function, whose description is the template for all others."""
    return jax.jit(lambda: ()).lower().compile()


def _type_text(x: Any) -> list[Any]:
    return [list(x.shape), str(x.dtype), bool(x.weak_type)]


def _type(text: list[Any]) -> Any:
    shape, dtype, is_weak = text
    return ShapedArray(tuple(shape), np.dtype(dtype), is_weak)


# --- the structure of a result ----------------------------------------------------------------------------


class _Array:
    """The class of the placeholder for arrays."""

    def __reduce__(self) -> str:
        return "ARRAY"


ARRAY = _Array()


def encoded(value: Any) -> Any:
    """Encode a value, with `ARRAY` in place of its arrays, as JSON data.

    Raises:
        TypeError: If the value contains something that `decoded` does not build.
    """
    if type(value) in _PLAIN:
        return value
    if value is ARRAY:
        return ["array"]
    if type(value) is dict:
        return ["dict", [[encoded(k), encoded(x)] for k, x in value.items()]]
    if type(value) in _CONTAINERS.values():
        return [type(value).__name__, [encoded(x) for x in value]]
    if isinstance(value, type):
        return ["class", _name(value)]
    if dataclasses.is_dataclass(value):
        return ["object", _name(type(value)), [[name, encoded(x)] for name, x in vars(value).items()]]
    raise TypeError(f"{value!r} has no text that it can be built from.")


def decoded(text: Any) -> Any:
    """Decode a value that was `encoded`.

    Raises:
        Exception: If the text cannot be the result of `encoded`.
    """
    if type(text) in _PLAIN:
        return text
    kind, *content = text
    if kind == "array":
        return ARRAY
    if kind == "dict":
        return {decoded(k): decoded(x) for k, x in content[0]}
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](decoded(x) for x in content[0])
    if kind == "class":
        return _class(content[0])
    if kind == "object":
        cls = _class(content[0])
        if not dataclasses.is_dataclass(cls):
            raise TypeError(f"{cls} has no fields.")
        value = object.__new__(cls)
        for name, x in content[1]:
            object.__setattr__(value, str(name), decoded(x))
        return value
    raise TypeError(f"'{kind}' is no kind of value.")


def _name(cls: type) -> list[str]:
    """Module and qualified name of a class, checked to identify it."""
    name = [cls.__module__, cls.__qualname__]
    if _class(name) is not cls:
        raise TypeError(f"{cls} is not found by its name.")
    return name


def _class(name: list[str]) -> type:
    """The class of a module and qualified name. Its module must be imported already: a file never causes an import."""
    module, path = name
    if module.partition(".")[0] not in _LIBRARIES:
        raise TypeError(f"{module} is not among the libraries whose classes may be in a result.")
    cls: Any = sys.modules[module]
    for part in path.split("."):
        cls = vars(cls)[part]
    if not isinstance(cls, type) or not (dataclasses.is_dataclass(cls) or isinstance(cls, type(eqx.Enumeration))):
        raise TypeError(f"{path} is no class of values.")
    return cls
