"""Copies of a program inside others, from its scalar operations: its jaxpr is interpreted once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxmbd.engine.program.opcodes import GATHER, INPUT, NAMES
from jaxmbd.engine.program.schedule import asap_levels, live_values, without_repetitions
from jaxmbd.engine.program.ssa_builder import SSABuilder, ValueIds


@dataclass(frozen=True, eq=False)
class Original:
    """The operations of a program, in rows of one kind that depend on earlier rows alone.

    `size`: the number of values; `inputs`, `outputs`: their ids for each input and result; `constants`: their ids and
    numbers; `rows`: the name of an operation, the ids of its results, and those of its operands; `tables`: of the id of
    each table, the ids of its elements, which are inputs, or their numbers; `is_transposable`: False if a solve in it
    has a transpose of its own.
    """

    size: int
    inputs: list[ValueIds]
    constants: tuple[ValueIds, np.ndarray]
    rows: list[tuple[str, ValueIds, ValueIds]]
    outputs: list[ValueIds]
    tables: dict[int, ValueIds | np.ndarray]
    is_transposable: bool

    def copied(self, builder: SSABuilder, inputs: Sequence[ValueIds]) -> list[ValueIds]:
        """Emit the operations for other inputs, and return the results; what the inputs make constant is folded. There
        may be no tables: they lie in its own inputs."""
        copies = np.empty(self.size, np.int32)
        for ids, given in zip(self.inputs, inputs, strict=True):
            copies[ids] = given
        ids, numbers = self.constants
        copies[ids] = builder.constants(numbers)
        builder.is_transposable &= self.is_transposable
        for name, results, operands in self.rows:
            copies[results] = self.emitted(builder, copies, name, operands)
        return [copies[ids] for ids in self.outputs]

    def emitted(self, builder: SSABuilder, copies: ValueIds, name: str, operands: ValueIds) -> ValueIds:
        """Emit operations of one kind whose operands have copies."""
        if name != GATHER:
            return builder.apply(name, *copies[operands])
        found = [builder.gather(self._elements(builder, copies, leaf), copies[index]) for index, leaf in operands.T]
        return np.array(found, np.int32)

    def _elements(self, builder: SSABuilder, copies: ValueIds, leaf: int) -> ValueIds:
        table = self.tables[leaf]
        return copies[table] if table.dtype == np.int32 else builder.constants(table)


def original(builder: SSABuilder, outputs: Sequence[ValueIds]) -> Original:
    """The program that computes `outputs`, to be copied."""
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
    own = len(builder.arrays) - len(builder.constant_tables)
    tables: dict[int, np.ndarray] = {}
    for table, leaf in builder.tables.items():
        places = table.first + table.stride * np.arange(table.length)
        holds = builder.arrays[table.input] if table.input < own else builder.constant_tables[table.input - own]
        tables[leaf] = holds.reshape(-1)[places]
    return Original(
        builder.count, builder.arrays[:own], (constants, builder.value[constants]), rows, outputs, tables,
        builder.is_transposable,
    )  # fmt: skip
