"""Lowering rules for reads and writes at indices that depend on the inputs, such as table interpolation.

Evenly spaced elements of an input, and constants, are read by a gather of the virtual machine, however many there are;
among other values a tree of selects chooses.
"""

from typing import Any

import numpy as np

from jaxmbd.compile.graph.step import Step
from jaxmbd.compile.graph.windows import Windows, read_known, window_rules, write_known
from jaxmbd.compile.ssa_builder import ONE, ZERO, Rows, SSABuilder
from jaxmbd.compile.targets.opcodes import GATHER, INPUT, NAMES, NUMBER

_MOST = 2**15  # the largest number of candidates for which selects are emitted


def _read(step: Step, x: Rows, windows: Windows, fill: Any) -> Rows:
    if step.graph.values(windows.starts, int) is not None:
        return read_known(step, x, windows, fill)
    graph = step.graph
    first, start, inside, reach = _window_positions(graph, windows)
    choices = x.reshape(-1)[windows.places(first)[..., None] + reach]  # (..., *sizes, starts)
    starts = _broadcast_to_windows(start, windows)
    result = np.empty(starts.shape, np.int32)
    for at in np.ndindex(*starts.shape):
        result[at] = _lookup(step, choices[at], starts[at])
    return result if fill is None else graph.apply("select", _broadcast_to_windows(inside, windows), result, fill)


def _write(step: Step, x: Rows, windows: Windows, new: Rows, drops: bool, combine: Any) -> Rows:
    if step.graph.values(windows.starts, int) is not None:
        return write_known(step, x, windows, new, drops, combine)
    graph = step.graph
    first, start, inside, reach = _window_positions(graph, windows)
    places = windows.places(first)[..., None] + reach
    _check_number(step, places.size)
    result, steps = x.reshape(-1).copy(), graph.constants(np.arange(len(reach)))
    for at in np.ndindex(*start.shape):
        here = graph.apply("eq", start[at], steps)
        here = graph.apply("and", here, inside[at]) if drops else here
        for targets, row in zip(places[at].reshape(-1, len(reach)), new[at].reshape(-1), strict=True):
            old = result[targets]
            result[targets] = graph.apply("select", here, combine(step, old, np.broadcast_to(row, old.shape)), old)
    return result.reshape(x.shape)


RULES = window_rules(
    _read,
    _write,
    {
        name: lambda step, old, new, name=name: step.graph.apply(name, old, new)
        for name in ("add", "sub", "mul", "max", "min")
    },
)


def _window_positions(graph: SSABuilder, windows: Windows) -> tuple[np.ndarray, Rows, Rows, np.ndarray]:
    """The possible positions of windows: `first, start, inside, reach`.

    A window starts at the flat index `first + reach[start]`, which is clamped into the array; `inside` is true if that
    changed nothing. `first` comes from the constant indices; `start` is the value of an integer, from the others.
    """
    lead = windows.starts.shape[:-1]
    first, start, inside = np.zeros(lead, int), np.full(lead, ZERO, np.int32), np.full(lead, ONE, np.int32)
    axes = list(zip(np.moveaxis(windows.starts, -1, 0), windows.room, windows.strides, strict=True))
    moving = [graph.values(index, int) is None and room > 0 for index, room, _ in axes]
    unit = int(np.gcd.reduce([stride for (*_, stride), moves in zip(axes, moving, strict=True) if moves] or [1]))
    last = 0
    for (index, room, stride), moves in zip(axes, moving, strict=True):
        above, below = graph.apply("le", ZERO, index), graph.apply("le", index, graph.constant(room))
        inside = graph.apply("and", inside, graph.apply("and", above, below))
        index = graph.apply("min", graph.apply("max", index, ZERO), graph.constant(room)) if room else ZERO
        if moves:
            start = graph.apply("add", start, graph.apply("mul", graph.constant(stride // unit), index))
            last += room * stride // unit
        else:
            first = first + stride * np.asarray(graph.values(index, int))
    return first, start, inside, unit * np.arange(last + 1)


def _broadcast_to_windows(rows: Rows, windows: Windows) -> Rows:
    """Broadcast one value per window to one per element of the window."""
    spread = rows.reshape(rows.shape + (1,) * len(windows.sizes))
    return np.broadcast_to(spread, rows.shape + windows.sizes)


def _lookup(step: Step, choices: Rows, index: Rows) -> Rows:
    """`choices[index]`, for an index in range.

    If all choices are results of the same operation, the lookup is moved to its operands: so a table that has been
    scaled is still read by a gather.
    """
    graph = step.graph
    if (choices == choices[0]).all():
        return choices[0]
    gathered = graph.gather(choices, index)
    if gathered is not None:
        return gathered
    op, operands = graph.op[choices], graph.args[choices]
    if op[0] not in (INPUT, NUMBER[GATHER]) and (op == op[0]).all():
        return graph.apply(NAMES[op[0]], *(_lookup(step, column, index) for column in operands.T if column[0] >= 0))
    _check_number(step, len(choices))
    return _select_tree(graph, choices, index)


def _select_tree(graph: SSABuilder, choices: Rows, index: Rows) -> Rows:
    """`choices[index]`, by a binary tree of selects."""
    size = 1
    while len(choices) > 1:
        left, right = choices[:-1:2], choices[1::2]
        bounds = graph.constants((2 * np.arange(len(right)) + 1) * size)
        chosen = graph.apply("select", graph.apply("lt", index, bounds), left, right)
        choices, size = np.concatenate([chosen, choices[2 * len(right) :]]), 2 * size
    return choices[0]


def _check_number(step: Step, count: int) -> None:
    if count > _MOST:
        raise step.unsupported(f" with an index that depends on the inputs, among {count} places")
