"""A call as it is kept on disk: what a function does, with the programs that it calls, as data.

    length of the header · header (JSON) · arrays

Whether a file holds what was once written is checked before it gets here (`store/artefacts.py`).
"""

import dataclasses
import json
import struct
from typing import Any, NamedTuple

import numpy as np

from jaxmbd.engine.calls.array_types import Type, as_data, from_data
from jaxmbd.engine.calls.structure import decoded, encoded
from jaxmbd.engine.program.schedule import Program

_LENGTH = struct.Struct("<Q")
_ARRAYS = [field.name for field in dataclasses.fields(Program) if field.type is np.ndarray]
_NUMBERS = [field.name for field in dataclasses.fields(Program) if field.type is int]


class Entry(NamedTuple):
    """A stored function of a list of arrays: NumPy code, or a compiled executable.

    `description`: JSON data that refers to some of the `arrays` by their indices; `like`: the structure of the result,
    with `ARRAY` in place of its arrays, and `results`, their types; `programs`: those that it calls.
    """

    kind: str
    description: Any
    arrays: list[np.ndarray]
    like: object
    results: tuple[Type, ...]
    programs: list[Program]


def packed(entry: Entry) -> bytes:
    """An entry as the content of a file.

    Raises:
        TypeError: If the structure of the result cannot be encoded.
    """
    arrays, programs = list(entry.arrays), []
    for program in entry.programs:
        numbers = {name: int(getattr(program, name)) for name in _NUMBERS}
        programs.append({"numbers": numbers, "tables": len(program.constant_tables)})
        arrays += [*(getattr(program, name) for name in _ARRAYS), *program.constant_tables]
    header = {
        "kind": entry.kind, "description": entry.description, "result": encoded(entry.like), "programs": programs,
        "types": as_data(entry.results),
        "count": len(entry.arrays), "arrays": [[x.dtype.str, list(x.shape)] for x in arrays],
    }  # fmt: skip
    text = json.dumps(header).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *(np.ascontiguousarray(x).tobytes() for x in arrays)])


def unpacked(content: bytes) -> Entry:
    """The entry in the content of a file.

    Raises:
        Exception: If it was written by another version of a library.
    """
    at = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    header = json.loads(content[_LENGTH.size : at])
    arrays = []
    for kind, shape in header["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        # Copied, since in the file it lies at any byte: the virtual machine reads tables of numbers in place.
        arrays.append(np.frombuffer(content, np.dtype(kind), count, at).reshape(shape).copy())
        at += arrays[-1].nbytes
    arrays, tables = arrays[: header["count"]], arrays[header["count"] :]
    programs = [_program(each, tables) for each in header["programs"]]
    results = from_data(header["types"])
    return Entry(header["kind"], header["description"], arrays, decoded(header["result"]), results, programs)


def _program(header: Any, arrays: list[np.ndarray]) -> Program:
    """A program from its sizes and the next of the arrays, which are removed from the list."""
    fields = {name: arrays.pop(0) for name in _ARRAYS}
    constant_tables = tuple(arrays.pop(0) for _ in range(header["tables"]))
    return Program(**fields, constant_tables=constant_tables, **header["numbers"])
