"""Optimisation, scheduling and slot allocation: from SSA values to the encoded program of the virtual machine.

The passes are common subexpression elimination (CSE), dead code elimination, contraction of products and sums to fused
multiply-adds (FMA), list scheduling into vector instructions that each apply one opcode many times, and allocation of
slots by live ranges. Constants and inputs keep their slots for the whole program, so that a batch loads once what is
uniform, that is, the same in all its instances.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jaxmbd.engine import choice
from jaxmbd.engine.program.opcodes import COPY, GATHER, INPUT, NUMBER, UNIFORM
from jaxmbd.engine.program.ssa_builder import SSABuilder, ValueIds

_COMMUTATIVE = [NUMBER[name] for name in ("add", "mul", "max", "min", "eq", "ne", "and", "or")]
_NEVER = np.iinfo(np.int32).max

# Operands of values, which are wanted, roots -> postorder of a depth-first search. It goes from value to value, which
# the machine does, in C.
Postorder = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Program:
    """An encoded program: the tables that `vm.c` reads.

    `loads` and `stores` are pairs (element, slot), grouped by input or output; the groups end at `input_ends` and
    `output_ends`. `code` is a sequence of instructions: opcode, count, and for each repetition the slots of the result
    and of the operands. Its prefix of `uniform_length` depends on the first `uniform_inputs` inputs only; where it is
    run once for all lanes, `uniform_live_out` are the slots that are then copied to each lane. `gathers`: input, first
    element, stride and length of each table that gathers read. The last inputs are the `constant_tables`.
    """

    slots: int
    constants: np.ndarray
    input_sizes: np.ndarray
    input_ends: np.ndarray
    loads: np.ndarray
    output_sizes: np.ndarray
    output_ends: np.ndarray
    stores: np.ndarray
    code: np.ndarray
    uniform_live_out: np.ndarray
    gathers: np.ndarray
    constant_tables: tuple[np.ndarray, ...]
    uniform_length: int
    uniform_inputs: int
    operations: int
    instructions: int

    @cached_property
    def numbers(self) -> np.ndarray:
        """The sizes that the virtual machine needs, in its order."""
        inputs, outputs, length = self.input_sizes.size, self.output_sizes.size, self.code.size
        uniform = (self.uniform_length, self.uniform_inputs, self.uniform_live_out.size)
        return np.array([self.slots, self.constants.size, inputs, outputs, length, *uniform], np.int64)

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """All arrays, in the order in which the virtual machine takes them."""
        inputs = (self.input_sizes, self.input_ends, self.loads)
        outputs = (self.output_sizes, self.output_ends, self.stores)
        return self.numbers, self.constants, *inputs, *outputs, self.code, self.uniform_live_out, self.gathers

    @cached_property
    def key(self) -> int:
        """A hash of the program's content, by which the virtual machine identifies it; never zero."""
        # Not of `constant_tables`, which are operands of each call: programs that differ in these alone are one.
        digest = hashlib.sha256()
        for array in self.tables:
            digest.update(array.tobytes())
        return int.from_bytes(digest.digest()[:8], "little") >> 1 or 1


def schedule(
    builder: SSABuilder, outputs: Sequence[ValueIds], postorder: Postorder, uniform_inputs: int = 0, hoist: bool = False
) -> Program:  # fmt: skip
    """Compile the program that computes `outputs` from the builder's inputs.

    If `uniform_inputs` is positive, the operations that depend only on that many first inputs come first in the code:
    instances of a batch may share them. With `hoist` their slots are never used again, so that the rest of the code can
    be run many times after them.
    """
    op, args, outputs = without_repetitions(builder, outputs)
    op, args = _contract_fma(op, args, outputs)
    live = live_values(args, outputs)
    tables = np.array([*builder.tables.values()], int)
    is_leaf = (op == INPUT) & live
    is_leaf[tables] = False
    leaves = np.flatnonzero(is_leaf)
    is_constant = builder.is_constant[leaves]
    slot = np.full(len(op), -1, np.int64)
    ordered = np.concatenate([leaves[is_constant], leaves[~is_constant]])
    slot[ordered], slot[tables] = np.arange(len(ordered)), np.arange(len(tables))  # a table has its own numbering
    operations = live & (op != INPUT)
    is_varying = np.ones(len(op), bool)
    if uniform_inputs:
        is_varying = _dependents(args, _varying_leaves(builder, uniform_inputs))
    varying = operations & is_varying
    # What is hoisted is run as straight-line code too, which has no instructions with a shared factor (`is_straight`).
    if not hoist:
        op, args = _mark_uniform_factors(op, args, varying, ~is_varying)
    live_out = _uniform_live_out(op, args, varying, ~is_varying, outputs) if uniform_inputs else tables[:0]
    uniform = operations & ~varying
    before = _instructions(op, args, uniform, [np.flatnonzero(uniform).astype(np.int32)], postorder)
    after = _instructions(op, args, varying, outputs, postorder)
    last_use = _live_ranges(args, [*before, *after], [live_out, *outputs])
    code, slots = _allocate_and_encode(op, args, [*before, *after], slot, len(ordered), last_use)
    loads = [(np.flatnonzero(slot[ids.reshape(-1)] >= 0), ids.reshape(-1)) for ids in builder.arrays]
    stores = [(np.arange(ids.size), ids.reshape(-1)) for ids in outputs]
    return Program(
        slots, builder.value[leaves[is_constant]], *_transfers(loads, slot), *_transfers(stores, slot),
        np.concatenate([np.zeros(0), *code]).astype(np.int32), slot[live_out].astype(np.int32),
        np.array([*builder.tables], np.int32).reshape(-1, 4), tuple(builder.constant_tables),
        sum(map(len, code[: len(before)])), uniform_inputs, int(np.count_nonzero(operations)), len(code),
    )  # fmt: skip


def _varying_leaves(builder: SSABuilder, uniform_inputs: int) -> list[ValueIds]:
    """The leaves of the inputs after the uniform ones, and those of the tables in these inputs."""
    end = len(builder.arrays) - len(builder.constant_tables)
    tables = [leaf for table, leaf in builder.tables.items() if uniform_inputs <= table.input < end]
    return [*builder.arrays[uniform_inputs:end], np.array(tables, np.int32)]


def _dependents(args: ValueIds, leaves: Sequence[ValueIds]) -> np.ndarray:
    """A mask of the values that depend on some leaves."""
    users, starts = _users(args)
    return _reachable(len(args), leaves, lambda ids: _ranges(users, starts, ids))


def live_values(args: ValueIds, outputs: Sequence[ValueIds]) -> np.ndarray:
    """A mask of the live values, on which the outputs depend; all others are dead code."""
    return _reachable(len(args), outputs, lambda ids: args[ids].reshape(-1))


def _reachable(count: int, roots: Sequence[ValueIds], neighbours: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A mask of the values that are reached from some roots; −1 among the neighbours stands for a missing operand."""
    reached = np.zeros(count + 1, bool)
    reached[-1] = True
    front = _union(roots)
    while len(front):
        reached[front] = True
        front = neighbours(front)
        front = _distinct(front[~reached[front]])
    return reached[:-1]


def _union(arrays: Sequence[ValueIds]) -> ValueIds:
    """The sorted union of several arrays of value ids."""
    return _distinct(np.concatenate([np.zeros(0, np.int32), *(ids.reshape(-1) for ids in arrays)]))


def _distinct(ids: ValueIds) -> ValueIds:
    """The sorted distinct ids. (NumPy's `unique` takes several times as long.)"""
    ids = np.sort(ids)
    return ids[np.append(True, ids[1:] != ids[:-1])] if len(ids) else ids


def _mark_uniform_factors(
    op: np.ndarray, args: ValueIds, varying: np.ndarray, uniform: np.ndarray
) -> tuple[np.ndarray, ValueIds]:
    """Give varying products with a uniform factor opcodes of their own, with that factor as the first operand."""
    op, args = op.copy(), args.copy()
    for name, uniform_name in UNIFORM.items():
        products = np.flatnonzero(varying & (op == NUMBER[name]))
        flip = products[uniform[args[products, 1]]]
        args[flip, :2] = args[flip, 1::-1]
        op[products[uniform[args[products, 0]]]] = NUMBER[uniform_name]
    return op, args


def _uniform_live_out(
    op: np.ndarray, args: ValueIds, varying: np.ndarray, uniform: np.ndarray, outputs: Sequence[ValueIds]
) -> ValueIds:
    """The uniform values that are outputs, or operands of varying operations other than as uniform factor or table."""
    used = args[varying]
    used[np.isin(op[varying], [NUMBER[name] for name in UNIFORM.values()]), 0] = -1
    used[op[varying] == NUMBER[GATHER], 1] = -1
    ids = _union([used, *outputs])
    ids = ids[ids >= 0]
    return ids[uniform[ids]]


def _transfers(
    arrays: Sequence[tuple[np.ndarray, ValueIds]], slot: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, ends and pairs (element, slot) of the loads or stores of several arrays."""
    sizes = np.array([ids.size for _, ids in arrays], np.int32)
    ends = np.cumsum([len(elements) for elements, _ in arrays]).astype(np.int32)
    pairs = [np.stack([elements, slot[ids[elements]]], axis=1) for elements, ids in arrays]
    return sizes, ends, np.concatenate([np.zeros((0, 2)), *pairs]).astype(np.int32)


def asap_levels(op: np.ndarray, args: ValueIds) -> np.ndarray:
    """The depth of each value: the longest chain of operations that ends in it; leaves have depth 0."""
    level = np.zeros(len(op), np.int32)
    users, starts = _users(args)
    pending = np.count_nonzero((args >= 0) & (op[args] != INPUT), axis=1)
    operations = np.flatnonzero(op != INPUT)
    waves = _topological_waves(operations, pending, lambda ids: _ranges(users, starts, ids))
    for depth, ids in enumerate(waves, start=1):
        level[ids] = depth
    return level


def _topological_waves(
    ids: np.ndarray, pending: np.ndarray, successors: Callable[[np.ndarray], np.ndarray]
) -> Iterator[np.ndarray]:
    """Values in topological waves (Kahn): each one once its count of `pending` dependencies, which is updated, is zero.

    `successors(ids)`: the values that wait for these, each as often as it counts them.
    """
    ready = ids[pending[ids] == 0]
    while len(ready):
        yield ready
        touched = successors(ready)
        np.subtract.at(pending, touched, 1)
        ready = _distinct(touched[pending[touched] == 0])


def _users(args: ValueIds) -> tuple[np.ndarray, np.ndarray]:
    """The def-use lists: value `i` is an operand of `users[starts[i] : starts[i + 1]]`, with repetitions."""
    flat = args.reshape(-1)
    sources = np.flatnonzero(flat >= 0)
    order = np.argsort(flat[sources], kind="stable")
    counts = np.bincount(flat[sources], minlength=len(args))
    return sources[order] // args.shape[1], np.append(0, np.cumsum(counts))


def _ranges(values: np.ndarray, starts: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The concatenated ranges `values[starts[i] : starts[i + 1]]` of all ids."""
    counts = starts[ids + 1] - starts[ids]
    ends = np.cumsum(counts)
    return values[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[ids] - (ends - counts), counts)]


def without_repetitions(
    builder: SSABuilder, outputs: Sequence[ValueIds]
) -> tuple[np.ndarray, ValueIds, list[ValueIds]]:
    """Common subexpression elimination, level by level: equal values, copies among them, are replaced by the first."""
    op, args = builder.op.copy(), builder.args.copy()
    level = asap_levels(op, args)
    same = np.arange(len(op) + 1, dtype=np.int32)
    same[-1] = -1
    order = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[order], np.arange(1, level.max(initial=0) + 2))
    commutes = np.isin(op, _COMMUTATIVE)
    products = np.isin(op, [NUMBER["fma"], NUMBER["fms"], NUMBER["fnma"]])
    for first, last in itertools.pairwise(bounds):
        ids = order[first:last]
        operands = same[args[ids]]
        # The two factors of a multiply-add commute, its summand does not.
        flip = (commutes[ids] | products[ids]) & (operands[:, 0] > operands[:, 1])
        operands[flip, :2] = operands[flip, 1::-1]
        args[ids] = operands
        # Four numbers of 32 bits as two of 64, so that half as many keys are sorted.
        wide = np.concatenate([op[ids, None], operands], axis=1, dtype=np.int64)
        keys = wide[:, [0, 2]].T * 2**32 + wide[:, [1, 3]].T
        by_key = np.lexsort(keys)
        keys = keys[:, by_key]
        is_new = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))
        same[ids[by_key]] = ids[by_key[is_new]][np.cumsum(is_new) - 1]
        copies = op[ids] == COPY
        same[ids[copies]] = operands[copies, 0]
    return op, args, [np.asarray(same[ids]) for ids in outputs]


def _contract_fma(op: np.ndarray, args: ValueIds, outputs: Sequence[ValueIds]) -> tuple[np.ndarray, ValueIds]:
    """Contract products that are used once, by a sum or difference, into a fused multiply-add."""
    live = live_values(args, outputs)
    uses = np.bincount(args[live][args[live] >= 0], minlength=len(op))
    for ids in outputs:
        uses[np.unique(ids)] += 2  # an output is never used once
    op, args = op.copy(), args.copy()
    single_use = (op == NUMBER["mul"]) & (uses == 1)
    sums, differences = (live & (op == NUMBER[name]) for name in ("add", "sub"))
    for candidates, side, name in (
        (sums, 1, "fma"), (sums, 0, "fma"), (differences, 1, "fnma"), (differences, 0, "fms"),
    ):  # fmt: skip
        ids = np.flatnonzero(candidates & np.isin(op, [NUMBER["add"], NUMBER["sub"]]))
        ids = ids[single_use[args[ids, side]]]
        product, other = args[ids, side], args[ids, 1 - side]
        op[ids] = NUMBER[name]
        args[ids, 0], args[ids, 1], args[ids, 2] = args[product, 0], args[product, 1], other
    return op, args


def _instructions(
    op: np.ndarray, args: ValueIds, wanted: np.ndarray, results: Sequence[ValueIds], postorder: Postorder
) -> list[np.ndarray]:  # fmt: skip
    """The wanted operations grouped by instruction, in an order in which every operand is computed before its use.

    Many operations are scheduled in pieces of the postorder of a depth-first search from the results: its neighbours
    belong to neighbouring parts of the mechanism, so that the operands of a piece stay in the processor's caches.
    """
    order = np.flatnonzero(wanted)
    if len(order) <= choice.PIECE:
        return _list_schedule(op, args, order)
    pieces = np.array_split(postorder(args, wanted, _union(results)), -(-len(order) // choice.PIECE))
    return [ids for piece in pieces for ids in _list_schedule(op, args, np.sort(piece))]


def _list_schedule(op: np.ndarray, args: ValueIds, ids: np.ndarray) -> list[np.ndarray]:
    """List scheduling: the operations in groups of one opcode each.

    The choice is greedy: the opcode with the longest critical path through its ready operations, and among equals the
    one of whose remaining operations the largest share is ready.
    """
    op, args = op[ids], _local_indices(ids, args[ids])
    users, starts = _users(args)
    pending = np.count_nonzero(args >= 0, axis=1)
    height = _critical_path_lengths(args, starts)
    ready: dict[int, list[np.ndarray]] = {}
    counts = np.zeros(len(NUMBER), int)
    priority = np.zeros(len(NUMBER), int)

    def add(operations: np.ndarray) -> None:
        opcodes = op[operations]
        for opcode in np.flatnonzero(np.bincount(opcodes)).tolist():
            group = operations[opcodes == opcode]
            ready.setdefault(opcode, []).append(group)
            counts[opcode] += len(group)
            priority[opcode] = max(priority[opcode], height[group].max())

    add(np.flatnonzero(pending == 0))
    remaining = np.bincount(op, minlength=len(NUMBER)).astype(float)
    groups = []
    while ready:
        opcode = max(ready, key=lambda k: (priority[k], counts[k] / remaining[k]))
        group = np.concatenate(ready.pop(opcode))
        remaining[opcode] -= len(group)
        counts[opcode], priority[opcode] = 0, 0
        groups.append(ids[np.sort(group)])
        touched = _ranges(users, starts, group)
        np.subtract.at(pending, touched, 1)
        add(_distinct(touched[pending[touched] == 0]))
    return groups


def _local_indices(subset: np.ndarray, ids: ValueIds) -> ValueIds:
    """The positions of ids in a sorted subset; −1 for those outside it."""
    if not len(subset):
        return ids
    index = np.minimum(np.searchsorted(subset, ids), len(subset) - 1).astype(np.int32)
    return np.where(subset[index] == ids, index, np.int32(-1))


def _critical_path_lengths(args: ValueIds, starts: np.ndarray) -> np.ndarray:
    """The length of the longest chain of operations that starts at each value."""
    height = np.zeros(len(args), np.int32)
    operands = lambda ids: args[ids][args[ids] >= 0]  # noqa: E731
    for depth, ids in enumerate(_topological_waves(np.arange(len(args)), np.diff(starts), operands), start=1):
        height[ids] = depth
    return height


def _live_ranges(args: ValueIds, groups: Sequence[np.ndarray], live_out: Sequence[ValueIds]) -> np.ndarray:
    """The end of each value's live range: the last group that uses it, or `_NEVER` for values that are live out."""
    last_use = np.full(len(args), -1, np.int64)
    for k, group in enumerate(groups):
        used = args[group].reshape(-1)
        last_use[used[used >= 0]] = k
    for ids in live_out:
        last_use[ids.reshape(-1)] = _NEVER
    return last_use


def _allocate_and_encode(
    op: np.ndarray, args: ValueIds, groups: Sequence[np.ndarray], slot: np.ndarray, slots: int, last_use: np.ndarray
) -> tuple[list[np.ndarray], int]:
    """Allocate slots, writing them to `slot`, and encode the instructions; also return the number of slots.

    A slot is free again at the end of its value's live range. The slots that were freed last are reused first, while
    they are still in the processor's caches.
    """
    computed = np.concatenate([np.zeros(0, int), *groups]).astype(int)
    order = computed[np.argsort(last_use[computed], kind="stable")]
    ends, firsts = np.unique(last_use[order], return_index=True)
    by_end = dict(zip(ends.tolist(), np.split(order, firsts[1:]), strict=True)) if len(ends) else {}
    free, n_free = np.empty(len(op), np.int64), 0  # a stack
    code = []
    for k, group in enumerate(groups):
        n_reused = min(n_free, len(group))
        n_free -= n_reused
        fresh = np.arange(slots, slots + len(group) - n_reused)
        slots += len(fresh)
        slot[group] = np.concatenate([np.sort(free[n_free : n_free + n_reused]), fresh])
        arity = int(np.count_nonzero(args[group[0]] >= 0))
        table = np.concatenate([slot[group][:, None], slot[args[group, :arity]]], axis=1)
        code.append(np.concatenate([[op[group[0]], len(group)], table.reshape(-1)]))
        freed = slot[by_end.get(k, group[:0])]
        free[n_free : n_free + len(freed)] = freed[::-1]
        n_free += len(freed)
    return code, slots
