"""Copies of a program inside others, from its scalar operations: its jaxpr is interpreted once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxmbd.engine.program.opcodes import INPUT, NAMES
from jaxmbd.engine.program.schedule import asap_levels, live_values, without_repetitions
from jaxmbd.engine.program.ssa_builder import SSABuilder, ValueIds


@dataclass(frozen=True, eq=False)
class Original:
    """The operations of a program, in rows of one kind that depend on earlier rows alone.

    `size`: the number of values; `inputs`, `outputs`: their ids for each input and result; `constants`: their ids and
    numbers; `rows`: the name of an operation, the ids of its results, and those of its operands; `is_transposable`:
    False if a solve in it has a transpose of its own.
    """

    size: int
    inputs: list[ValueIds]
    constants: tuple[ValueIds, np.ndarray]
    rows: list[tuple[str, ValueIds, ValueIds]]
    outputs: list[ValueIds]
    is_transposable: bool

    def copied(self, builder: SSABuilder, inputs: Sequence[ValueIds]) -> list[ValueIds]:
        """Emit the operations for other inputs, and return the results; what the inputs make constant is folded."""
        copies = np.empty(self.size, np.int32)
        for ids, given in zip(self.inputs, inputs, strict=True):
            copies[ids] = given
        ids, numbers = self.constants
        copies[ids] = builder.constants(numbers)
        builder.is_transposable &= self.is_transposable
        for name, results, operands in self.rows:
            copies[results] = builder.apply(name, *copies[operands])
        return [copies[ids] for ids in self.outputs]


def original(builder: SSABuilder, outputs: Sequence[ValueIds]) -> Original | None:
    """What can be copied of the program that computes `outputs`; None if it reads tables, which lie in its inputs."""
    if builder.tables:
        return None
    op, args, outputs = without_repetitions(builder, outputs)
    live = live_values(args, outputs)
    constants = np.flatnonzero(live & builder.is_constant)
    operations = np.flatnonzero(live & (op != INPUT))
    level = asap_levels(op, args)
    order = operations[np.lexsort([op[operations], level[operations]])]
    starts = np.flatnonzero(np.diff(level[order], prepend=-1) | np.diff(op[order], prepend=-1))
    rows: list[tuple[str, ValueIds, ValueIds]] = []
    for ids in np.split(order, starts[1:]) if len(order) else []:
        operands = args[ids].T
        rows.append((NAMES[op[ids[0]]], ids, operands[operands[:, 0] >= 0]))
    return Original(
        builder.count, builder.arrays, (constants, builder.value[constants]), rows, outputs, builder.is_transposable
    )
