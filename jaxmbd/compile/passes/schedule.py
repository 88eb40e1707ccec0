"""From a recording to a program: what nobody needs is dropped, equal values are computed once, products and sums are
fused, and the rest is put into few instructions that each do one operation many times.

A program's places are a small memory that values share one after the other: those of constants and inputs keep
their places, so that a batch can load once what all its instances have in common.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jaxmbd.compile.ssa_builder import Rows, SSABuilder
from jaxmbd.compile.targets.build_vm import postorder
from jaxmbd.compile.targets.opcodes import GATHER, INPUT, NUMBER, UNIFORM

_COMMUTATIVE = [NUMBER[name] for name in ("add", "mul", "max", "min", "eq", "ne", "and", "or")]
_NEVER = np.iinfo(np.int32).max
_PIECE = 2**15  # operations that are put in order together


@dataclass(frozen=True, eq=False)
class Program:
    """The tables that `vm.c` reads.

    `loads` and `stores` are pairs (element, place), those of one input or output after the other, ending at
    `input_ends` and `output_ends`. `code` is one instruction after the other: operation, count, and for each time the
    places of the result and of the operands. Its part up to `shared_length` needs only the first `shared_inputs`
    inputs; where it is run once for all lanes, `carried` are the places that are then copied to each. `lookups`: input,
    first element, stride and length of each table that numbers are looked up in. The last inputs are `kept`, tables of
    constants.
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
        """The sizes that the machine asks for."""
        inputs, outputs, length = self.input_sizes.size, self.output_sizes.size, self.code.size
        shared = (self.uniform_length, self.uniform_inputs, self.uniform_live_out.size)
        return np.array([self.slots, self.constants.size, inputs, outputs, length, *shared], np.int64)

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """All arrays, in the order in which the machine takes them."""
        inputs = (self.input_sizes, self.input_ends, self.loads)
        outputs = (self.output_sizes, self.output_ends, self.stores)
        return self.numbers, self.constants, *inputs, *outputs, self.code, self.uniform_live_out, self.gathers

    @cached_property
    def key(self) -> int:
        """A number that two programs share only where they are the same."""
        digest = hashlib.sha256()
        for array in self.tables:
            digest.update(array.tobytes())
        return int.from_bytes(digest.digest()[:8], "little") >> 1 or 1


def schedule(recorder: SSABuilder, outputs: Sequence[Rows], shared: int = 0) -> Program:
    """The program that computes `outputs` from the recorder's inputs.

    What the first `shared` of the inputs determine comes first, if `shared` is given: instances may have it in common.
    """
    op, args, outputs = _cse(recorder, outputs)
    op, args = _contract_fma(op, args, outputs)
    needed = _live_values(args, outputs)
    tables = np.array([*recorder.tables.values()], int)
    is_leaf = (op == INPUT) & needed
    is_leaf[tables] = False
    leaves = np.flatnonzero(is_leaf)
    is_constant = recorder.is_constant[leaves]
    place = np.full(len(op), -1, np.int64)
    ordered = np.concatenate([leaves[is_constant], leaves[~is_constant]])
    place[ordered], place[tables] = np.arange(len(ordered)), np.arange(len(tables))
    todo = needed & (op != INPUT)
    varies = _reached(args, _from(recorder, shared)) if shared else np.ones(len(op), bool)
    own = todo & varies
    op, args = _mark_uniform_factors(op, args, own, ~varies)
    kept = _uniform_live_out(op, args, own, ~varies, outputs) if shared else tables[:0]
    before = _instructions(op, args, todo & ~own, [np.flatnonzero(todo & ~own).astype(np.int32)])
    after = _instructions(op, args, own, outputs)
    last = _live_ranges(args, [*before, *after], [kept, *outputs])
    code, places = _allocate_and_encode(op, args, [*before, *after], place, len(ordered), last)
    loads = [(np.flatnonzero(place[rows.reshape(-1)] >= 0), rows.reshape(-1)) for rows in recorder.arrays]
    stores = [(np.arange(rows.size), rows.reshape(-1)) for rows in outputs]
    return Program(
        places, recorder.value[leaves[is_constant]], *_moves(loads, place), *_moves(stores, place),
        np.concatenate([np.zeros(0), *code]).astype(np.int32), place[kept].astype(np.int32),
        np.array([*recorder.tables], np.int32).reshape(-1, 4), tuple(recorder.constant_tables),
        sum(map(len, code[: len(before)])), shared, int(np.count_nonzero(todo)), len(code),
    )  # fmt: skip


def _from(recorder: SSABuilder, shared: int) -> list[Rows]:
    """What stands for the inputs beyond the first ones: their rows and those of their tables."""
    end = len(recorder.arrays) - len(recorder.constant_tables)
    tables = [row for table, row in recorder.tables.items() if shared <= table.input < end]
    return [*recorder.arrays[shared:end], np.array(tables, np.int32)]


def _reached(args: Rows, inputs: Sequence[Rows]) -> np.ndarray:
    """The rows that depend on some inputs."""
    users, starts = _users(args)
    reached = np.zeros(len(args), bool)
    front = _together(inputs)
    while len(front):
        reached[front] = True
        found = _ranges(users, starts, front)
        front = _distinct(found[~reached[found]])
    return reached


def _together(arrays: Sequence[Rows]) -> Rows:
    """The rows of several arrays, each once."""
    return _distinct(np.concatenate([np.zeros(0, np.int32), *(rows.reshape(-1) for rows in arrays)]))


def _distinct(rows: Rows) -> Rows:
    """Each row once, in order. (NumPy's `unique` takes several times as long.)"""
    rows = np.sort(rows)
    return rows[np.append(True, rows[1:] != rows[:-1])] if len(rows) else rows


def _mark_uniform_factors(op: np.ndarray, args: Rows, own: np.ndarray, shared: np.ndarray) -> tuple[np.ndarray, Rows]:
    """Products in which one factor is shared get operations of their own, with that factor first."""
    op, args = op.copy(), args.copy()
    for name, scaled in UNIFORM.items():
        rows = np.flatnonzero(own & (op == NUMBER[name]))
        flip = rows[shared[args[rows, 1]]]
        args[flip, :2] = args[flip, 1::-1]
        op[rows[shared[args[rows, 0]]]] = NUMBER[scaled]
    return op, args


def _uniform_live_out(op: np.ndarray, args: Rows, own: np.ndarray, shared: np.ndarray, outputs: Sequence[Rows]) -> Rows:
    """The shared rows that others work on other than as factors, or that are outputs."""
    used = args[own]
    used[np.isin(op[own], [NUMBER[name] for name in UNIFORM.values()]), 0] = -1
    used[op[own] == NUMBER[GATHER], 1] = -1
    rows = _together([used, *outputs])
    rows = rows[rows >= 0]
    return rows[shared[rows]]


def _moves(moves: Sequence[tuple[np.ndarray, Rows]], place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sizes = np.array([rows.size for _, rows in moves], np.int32)
    ends = np.cumsum([len(elements) for elements, _ in moves]).astype(np.int32)
    pairs = [np.stack([elements, place[rows[elements]]], axis=1) for elements, rows in moves]
    return sizes, ends, np.concatenate([np.zeros((0, 2)), *pairs]).astype(np.int32)


def _asap_levels(op: np.ndarray, args: Rows) -> np.ndarray:
    """How many operations deep each row is; leaves are at 0."""
    level = np.zeros(len(op), np.int32)
    users, starts = _users(args)
    waiting = np.count_nonzero((args >= 0) & (op[args] != INPUT), axis=1)
    operations = np.flatnonzero(op != INPUT)
    for depth, rows in enumerate(_waves(operations, waiting, lambda rows: _ranges(users, starts, rows)), start=1):
        level[rows] = depth
    return level


def _waves(rows: np.ndarray, waiting: np.ndarray, after: Callable[[np.ndarray], np.ndarray]) -> Iterator[np.ndarray]:
    """Rows in waves, each row when nothing is left that it is `waiting` for; `after(rows)` wait for them, each as often
    as the number says."""
    ready = rows[waiting[rows] == 0]
    while len(ready):
        yield ready
        touched = after(ready)
        np.subtract.at(waiting, touched, 1)
        ready = _distinct(touched[waiting[touched] == 0])


def _users(args: Rows) -> tuple[np.ndarray, np.ndarray]:
    """For each row, who works on it: `users[starts[row] : starts[row + 1]]`, once for each time."""
    flat = args.reshape(-1)
    sources = np.flatnonzero(flat >= 0)
    order = np.argsort(flat[sources], kind="stable")
    counts = np.bincount(flat[sources], minlength=len(args))
    return sources[order] // args.shape[1], np.append(0, np.cumsum(counts))


def _ranges(values: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Those of `values` between `starts[row]` and `starts[row + 1]`, for all rows."""
    counts = starts[rows + 1] - starts[rows]
    ends = np.cumsum(counts)
    return values[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[rows] - (ends - counts), counts)]


def _cse(recorder: SSABuilder, outputs: Sequence[Rows]) -> tuple[np.ndarray, Rows, list[Rows]]:
    """Operations and arguments where equal values are one row: the first one, level by level."""
    op, args = recorder.op.copy(), recorder.args.copy()
    level = _asap_levels(op, args)
    same = np.arange(len(op) + 1, dtype=np.int32)
    same[-1] = -1
    order = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[order], np.arange(1, level.max(initial=0) + 2))
    commutes = np.isin(op, _COMMUTATIVE)
    products = np.isin(op, [NUMBER["fma"], NUMBER["fms"], NUMBER["fnma"]])
    for first, last in itertools.pairwise(bounds):
        rows = order[first:last]
        mine = same[args[rows]]
        flip = (commutes[rows] | products[rows]) & (mine[:, 0] > mine[:, 1])
        mine[flip, :2] = mine[flip, 1::-1]
        args[rows] = mine
        wide = np.concatenate([op[rows, None], mine], axis=1, dtype=np.int64)
        keys = wide[:, [0, 2]].T * 2**32 + wide[:, [1, 3]].T
        first_of = np.lexsort(keys)
        keys = keys[:, first_of]
        is_new = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))
        same[rows[first_of]] = rows[first_of[is_new]][np.cumsum(is_new) - 1]
    return op, args, [np.asarray(same[rows]) for rows in outputs]


def _live_values(args: Rows, outputs: Sequence[Rows]) -> np.ndarray:
    """The rows that the outputs are made of."""
    needed = np.zeros(len(args) + 1, bool)
    needed[-1] = True  # what stands for no argument
    front = _together(outputs)
    while len(front):
        needed[front] = True
        found = args[front].reshape(-1)
        front = _distinct(found[~needed[found]])
    return needed[:-1]


def _contract_fma(op: np.ndarray, args: Rows, outputs: Sequence[Rows]) -> tuple[np.ndarray, Rows]:
    """Products that only one sum or difference uses become a part of it."""
    needed = _live_values(args, outputs)
    uses = np.bincount(args[needed][args[needed] >= 0], minlength=len(op))
    for rows in outputs:
        uses[np.unique(rows)] += 2
    op, args = op.copy(), args.copy()
    alone = (op == NUMBER["mul"]) & (uses == 1)
    sums, differences = (needed & (op == NUMBER[name]) for name in ("add", "sub"))
    for rows, side, name in (
        (sums, 1, "fma"), (sums, 0, "fma"), (differences, 1, "fnma"), (differences, 0, "fms"),
    ):  # fmt: skip
        found = np.flatnonzero(rows & np.isin(op, [NUMBER["add"], NUMBER["sub"]]))
        found = found[alone[args[found, side]]]
        product, other = args[found, side], args[found, 1 - side]
        op[found] = NUMBER[name]
        args[found, 0], args[found, 1], args[found, 2] = args[product, 0], args[product, 1], other
    return op, args


def _instructions(op: np.ndarray, args: Rows, wanted: np.ndarray, results: Sequence[Rows]) -> list[np.ndarray]:
    """The wanted operations in an order that respects what they work on, those of one instruction together.

    Where they are many they are taken in pieces, which the order of a search depth first from the results makes parts
    of the mechanism near to one another: so what is worked on stays in the processor's caches.
    """
    order = np.flatnonzero(wanted)
    if len(order) <= _PIECE:
        return _list_schedule(op, args, order)
    pieces = np.array_split(postorder(args, wanted, _together(results)), -(-len(order) // _PIECE))
    return [rows for piece in pieces for rows in _list_schedule(op, args, np.sort(piece))]


def _list_schedule(op: np.ndarray, args: Rows, todo: np.ndarray) -> list[np.ndarray]:
    """Some operations, in groups of one kind each.

    Greedy: always the kind of operation that the longest chain waits for, and of these the one of which most of what is
    left can be done now.
    """
    op, args = op[todo], _among(todo, args[todo])
    users, starts = _users(args)
    waiting = np.count_nonzero(args >= 0, axis=1)
    height = _critical_path_lengths(args, starts)
    ready: dict[int, list[np.ndarray]] = {}
    counts = np.zeros(len(NUMBER), int)
    urgent = np.zeros(len(NUMBER), int)

    def add(rows: np.ndarray) -> None:
        kinds = op[rows]
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            those = rows[kinds == kind]
            ready.setdefault(kind, []).append(those)
            counts[kind] += len(those)
            urgent[kind] = max(urgent[kind], height[those].max())

    add(np.flatnonzero(waiting == 0))
    remaining = np.bincount(op, minlength=len(NUMBER)).astype(float)
    groups = []
    while ready:
        kind = max(ready, key=lambda k: (urgent[k], counts[k] / remaining[k]))
        rows = np.concatenate(ready.pop(kind))
        remaining[kind] -= len(rows)
        counts[kind], urgent[kind] = 0, 0
        groups.append(todo[np.sort(rows)])
        touched = _ranges(users, starts, rows)
        np.subtract.at(waiting, touched, 1)
        add(_distinct(touched[waiting[touched] == 0]))
    return groups


def _among(some: np.ndarray, rows: Rows) -> Rows:
    """The places of rows among `some`, which are sorted; −1 for those that are not."""
    if not len(some):
        return rows
    found = np.minimum(np.searchsorted(some, rows), len(some) - 1).astype(np.int32)
    return np.where(some[found] == rows, found, np.int32(-1))


def _critical_path_lengths(args: Rows, starts: np.ndarray) -> np.ndarray:
    """How many operations wait for each row, one after the other."""
    height = np.zeros(len(args), np.int32)
    used = lambda rows: args[rows][args[rows] >= 0]  # noqa: E731
    for depth, rows in enumerate(_waves(np.arange(len(args)), np.diff(starts), used), start=1):
        height[rows] = depth
    return height


def _live_ranges(args: Rows, groups: Sequence[np.ndarray], kept: Sequence[Rows]) -> np.ndarray:
    """The last of the groups that works on each row; never, for those that are kept."""
    last = np.full(len(args), -1, np.int64)
    for k, rows in enumerate(groups):
        used = args[rows].reshape(-1)
        last[used[used >= 0]] = k
    for rows in kept:
        last[rows.reshape(-1)] = _NEVER
    return last


def _allocate_and_encode(
    op: np.ndarray, args: Rows, groups: Sequence[np.ndarray], place: np.ndarray, places: int, last: np.ndarray
) -> tuple[list[np.ndarray], int]:
    """The instructions' tables, and how many places there are.

    A place is free again after its value's last use; those that are free last are taken first, while the caches hold
    them.
    """
    computed = np.concatenate([np.zeros(0, int), *groups]).astype(int)
    order = computed[np.argsort(last[computed], kind="stable")]
    ends, firsts = np.unique(last[order], return_index=True)
    by_end = dict(zip(ends.tolist(), np.split(order, firsts[1:]), strict=True)) if len(ends) else {}
    free, left = np.empty(len(op), np.int64), 0
    code = []
    for k, rows in enumerate(groups):
        again = min(left, len(rows))
        left -= again
        fresh = np.arange(places, places + len(rows) - again)
        places += len(fresh)
        place[rows] = np.concatenate([np.sort(free[left : left + again]), fresh])
        arity = int(np.count_nonzero(args[rows[0]] >= 0))
        table = np.concatenate([place[rows][:, None], place[args[rows, :arity]]], axis=1)
        code.append(np.concatenate([[op[rows[0]], len(rows)], table.reshape(-1)]))
        freed = place[by_end.get(k, rows[:0])]
        free[left : left + len(freed)] = freed[::-1]
        left += len(freed)
    return code, places
