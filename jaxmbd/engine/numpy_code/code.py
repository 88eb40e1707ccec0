"""NumPy code: a function of arrays as a list of instructions on NumPy arrays, which needs no compiler.

It serves for the first calls of an analysis, whose heavy parts are programs and motions of the virtual machine anyway.
An instruction is plain data: the name of a function, its attributes (numbers, texts, lists, other codes), and the
places of its operands and results among the values.
"""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np

from jaxmbd.arrays import constant
from jaxmbd.engine.machine.build_vm import call_program, call_vm
from jaxmbd.engine.numpy_code.functions import FUNCTIONS, SEVERAL
from jaxmbd.engine.program.equation import Operation

Instruction = tuple[str, dict[str, object], list[int], list[int]]  # name, attributes, operands, results
ArrayTypes = list[tuple[list[int], str]]  # shape and dtype of each, as in JSON


UNLIMITED = sys.maxsize  # instructions


class StoppedError(Exception):
    """NumPy code cannot go on: it has executed as many instructions as it may, or has come to what only XLA can do."""


class Budget:
    """The number of instructions that may still be executed. It is no time, so that results do not depend on a load."""

    def __init__(self, instructions: int) -> None:
        self.left = instructions

    def spend(self, instructions: int) -> None:
        """Count instructions that follow.

        Raises:
            StoppedError: If they are too many.
        """
        self.left -= instructions
        if self.left < 0:
            raise StoppedError


@dataclass
class NumpyCode:
    """Instructions on `count` values: first the constants, then the arguments.

    `types`: the dtypes of the results; `cost`: the number of instructions, those on batches of matrices counted for
    each matrix.
    """

    constants: list[np.ndarray]
    arguments: int
    count: int
    cost: int
    instructions: list[Instruction]
    results: list[int]
    types: list[str]

    def check(self) -> None:
        """Check that all places are among the values, and that all functions exist.

        Raises:
            ValueError: If that is not so.
        """
        places = [k for *_, operands, results in self.instructions for k in (*operands, *results)]
        if not all(0 <= k < self.count for k in (*places, *self.results)) or len(self._steps) != len(self.instructions):
            raise ValueError("An instruction refers to a value that does not exist.")

    @property
    def size(self) -> int:
        """The number of instructions, those of loops and branches included."""
        return len(self.instructions) + sum(
            code.size for _, attributes, *_ in self.instructions for value in attributes.values()
            for code in (value if isinstance(value, list) else [value]) if isinstance(code, NumpyCode)
        )  # fmt: skip

    @cached_property
    def _steps(self) -> list[tuple[Operation, bool, bool, list[int], list[int]]]:
        """For each instruction its function, whether it needs the budget, whether it has one result; its places."""
        return [
            (_function(name, attributes), name in _CONTROL, name not in _SEVERAL, operands, results)
            for name, attributes, operands, results in self.instructions
        ]

    def __call__(self, arguments: Sequence[np.ndarray | None], budget: Budget) -> list[np.ndarray]:
        """Run the instructions.

        Raises:
            StoppedError: If the budget does not allow that.
        """
        # In advance and at once: a lap that does not fit is not begun, and nothing is counted at each instruction.
        budget.spend(self.cost)
        values: list[Any] = [*self.constants, *arguments, *[None] * (self.count - len(self.constants) - self.arguments)]
        for function, is_control, is_single, operands, results in self._steps:
            given = [values[k] for k in operands]
            found = function(*given, budget=budget) if is_control else function(*given)
            if is_single:
                values[results[0]] = found
            else:
                for k, value in zip(results, found, strict=True):
                    values[k] = value
        return [values[k] for k in self.results]


def run(code: NumpyCode, arrays: Sequence[np.ndarray | jax.Array], budget: Budget) -> list[jax.Array]:
    """Run a code on arrays of JAX or NumPy; the results are arrays of JAX.

    Raises:
        StoppedError: If the code cannot be run to its end.
    """
    with np.errstate(all="ignore"):
        # A key of random numbers is none of NumPy, nor does an instruction use it.
        results = code([np.asarray(x) if isinstance(x.dtype, np.dtype) else None for x in arrays], budget)
    return [constant(np.array(x, kind)) for x, kind in zip(results, code.types, strict=True)]


def plain(code: NumpyCode, arrays: list[np.ndarray]) -> dict[str, Any]:
    """A code as JSON data, which refers to its constants by their indices in `arrays`, to which they are appended."""

    def attribute(value: object) -> object:
        if isinstance(value, NumpyCode):
            return {"code": plain(value, arrays)}
        return [attribute(x) for x in value] if isinstance(value, list) else value

    fields = {field.name: getattr(code, field.name) for field in dataclasses.fields(code)}
    fields["constants"] = [*range(len(arrays), len(arrays) + len(code.constants))]
    arrays += code.constants
    fields["instructions"] = [
        (name, {key: attribute(x) for key, x in attributes.items()}, *places)
        for name, attributes, *places in code.instructions
    ]
    return fields


def code_from(fields: dict[str, Any], arrays: Sequence[np.ndarray]) -> NumpyCode:
    """The code that `plain` has described.

    Raises:
        Exception: If the data cannot be the result of `plain`.
    """

    def attribute(value: object) -> object:
        if isinstance(value, dict):
            return code_from(value["code"], arrays)
        return [attribute(x) for x in value] if isinstance(value, list) else value

    instructions = [
        (name, {key: attribute(x) for key, x in attributes.items()}, *places)
        for name, attributes, *places in fields["instructions"]
    ]
    constants = [arrays[k] for k in fields["constants"]]
    code = NumpyCode(**(fields | {"constants": constants, "instructions": instructions}))
    code.check()
    return code


# --- control flow and calls -------------------------------------------------------------------------------


def _while(
    *operands: np.ndarray, condition: NumpyCode, body: NumpyCode, counts: list[int], owned: list[int], budget: Budget
) -> list[np.ndarray]:
    first, second = counts[0], sum(counts)
    known, constants, state = operands[:first], operands[first:second], _state(operands[second:], owned)
    while (going := np.asarray(condition([*known, *state], budget)[0])).any():
        new = body([*constants, *state], budget)
        state = [_where(going, *each) for each in zip(new, state, strict=True)] if going.ndim else new
    return state


def _state(start: Sequence[np.ndarray], owned: Sequence[int]) -> list[np.ndarray]:
    """The state of a loop at its start; those that are `owned` are overwritten by its body."""
    return [np.array(x, order="C") if k in owned else x for k, x in enumerate(start)]


def _where(going: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The new value in the instances of a batch that go on, the old one in the others."""
    return np.where(going.reshape(going.shape + (1,) * (np.ndim(new) - going.ndim)), new, old)


def _scan(
    *operands: np.ndarray, body: NumpyCode, counts: list[int], length: int, reverse: bool, owned: list[int],
    rows: ArrayTypes, budget: Budget,
) -> list[np.ndarray]:  # fmt: skip
    constants, state = operands[: counts[0]], _state(operands[counts[0] : sum(counts)], owned)
    arrays = operands[sum(counts) :]
    stacked = [np.empty((length, *shape), kind) for shape, kind in rows]
    for k in reversed(range(length)) if reverse else range(length):
        results = body([*constants, *state, *(x[k] for x in arrays)], budget)
        state = results[: counts[1]]
        for rows_of, value in zip(stacked, results[counts[1] :], strict=True):
            rows_of[k] = value
    return [*state, *stacked]


def _cond(index: np.ndarray, *operands: np.ndarray, branches: list[NumpyCode], budget: Budget) -> list[np.ndarray]:
    return branches[max(0, min(int(index), len(branches) - 1))](operands, budget)


def _program(
    *operands: np.ndarray, key: int, batch: int, results: Sequence[jax.ShapeDtypeStruct], dtype: str
) -> list[np.ndarray]:
    return call_program(key, batch, dtype, operands, results)


def _motion(*operands: np.ndarray, name: str, results: Sequence[jax.ShapeDtypeStruct], dtype: str) -> list[np.ndarray]:
    return call_vm(name, dtype, operands, results)


def _stop(*_: np.ndarray, budget: Budget) -> list[np.ndarray]:
    """In place of what NumPy code cannot express, in a branch that is hardly ever taken, such as raising an error."""
    raise StoppedError


_CONTROL: dict[str, Operation] = {"while": _while, "scan": _scan, "cond": _cond, "stop": _stop}
_CALLS: dict[str, Operation] = {"program": _program, "motion": _motion}
_SEVERAL = {*_CONTROL, *_CALLS, *SEVERAL}


def _function(name: str, attributes: dict[str, Any]) -> Operation:
    if name in _CALLS:
        attributes = attributes | {"results": [jax.ShapeDtypeStruct(*each) for each in attributes["results"]]}
    function = _CONTROL.get(name) or _CALLS.get(name) or FUNCTIONS[name]
    return partial(function, **attributes) if attributes else function
