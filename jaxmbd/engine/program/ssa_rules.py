"""Rules of programs: integers and booleans as floats, and reads and writes at indices that depend on the inputs.

Evenly spaced elements of an input, and constants, are read by a gather of the virtual machine, however many there are;
among other values a tree of selects chooses.
"""

import numpy as np

from jaxmbd.engine import choice
from jaxmbd.engine.program.arithmetic import truncate
from jaxmbd.engine.program.control_flow import linear_solve, note_transpose
from jaxmbd.engine.program.equation import Arrays, Equation, Rule
from jaxmbd.engine.program.opcodes import COPY, GATHER, INPUT, NAMES, NUMBER
from jaxmbd.engine.program.ssa_builder import ONE, ZERO, SSABuilder, ValueIds
from jaxmbd.engine.program.windows import Windows, combine, read_known, window_rules, write_known

_SMALL = 2**16  # bound of a constant integer factor, with which products of indices stay exact


def _mul(equation: Equation, a: ValueIds, b: ValueIds) -> ValueIds | Arrays:
    """A product. Integers, which overflow in JAX, are multiplied by small constants only, as in index arithmetic."""
    if np.issubdtype(equation.operand_dtype, np.integer):
        constants = [numbers for x in (a, b) if (numbers := equation.builder.values(x, float)) is not None]
        if not any(np.all(np.abs(numbers) < _SMALL) for numbers in constants):
            return equation.evaluate(a, b)
    return equation.builder.apply("mul", a, b)


def _convert(equation: Equation, x: ValueIds) -> ValueIds | Arrays:
    before, after = equation.operand_dtype, equation.dtype
    if after == np.bool_:
        return equation.builder.apply("ne", x, ZERO)
    if not np.issubdtype(before, np.floating) or before == after:
        return x
    return truncate(equation.builder, x) if np.issubdtype(after, np.integer) else equation.evaluate(x)


def _linear_solve(equation: Equation, *operands: ValueIds) -> Arrays:
    note_transpose(equation)
    return linear_solve(equation, *operands)


def _read(equation: Equation, x: ValueIds, windows: Windows, fill: object) -> ValueIds:
    if equation.builder.values(windows.starts, int) is not None:
        return read_known(equation, x, windows, fill)
    builder = equation.builder
    first, start, inside, reach = _window_positions(builder, windows)
    choices = x.reshape(-1)[windows.places(first)[..., None] + reach]  # (..., *sizes, starts)
    starts = _broadcast_to_windows(start, windows)
    result = np.empty(starts.shape, np.int32)
    for at in np.ndindex(*starts.shape):
        result[at] = _lookup(equation, choices[at], starts[at])
    return result if fill is None else builder.apply("select", _broadcast_to_windows(inside, windows), result, fill)


def _write(equation: Equation, x: ValueIds, windows: Windows, new: ValueIds, drops: bool, name: str | None) -> ValueIds:
    if equation.builder.values(windows.starts, int) is not None:
        return write_known(equation, x, windows, new, drops, name)
    builder = equation.builder
    first, start, inside, reach = _window_positions(builder, windows)
    places = windows.places(first)[..., None] + reach
    _check_number(equation, places.size)
    result, steps = x.reshape(-1).copy(), builder.constants(np.arange(len(reach)))
    for at in np.ndindex(*start.shape):
        here = builder.apply("eq", start[at], steps)
        here = builder.apply("and", here, inside[at]) if drops else here
        for targets, row in zip(places[at].reshape(-1, len(reach)), new[at].reshape(-1), strict=True):
            old = result[targets]
            result[targets] = builder.apply(
                "select", here, combine(builder, name, old, np.broadcast_to(row, old.shape)), old
            )
    return result.reshape(x.shape)


RULES: dict[str, Rule] = {
    **window_rules(_read, _write),
    "mul": _mul,
    "convert_element_type": _convert,
    "custom_linear_solve": _linear_solve,
}


def _window_positions(builder: SSABuilder, windows: Windows) -> tuple[np.ndarray, ValueIds, ValueIds, np.ndarray]:
    """The possible positions of windows: `first, start, inside, reach`.

    A window starts at the flat index `first + reach[start]`, which is clamped into the array; `inside` is true if that
    changed nothing. `first` comes from the constant indices; `start` is the value of an integer, from the others.
    """
    lead = windows.starts.shape[:-1]
    first, start, inside = np.zeros(lead, int), np.full(lead, ZERO, np.int32), np.full(lead, ONE, np.int32)
    axes = list(zip(np.moveaxis(windows.starts, -1, 0), windows.room, windows.strides, strict=True))
    moving = [builder.values(index, int) is None and room > 0 for index, room, _ in axes]
    strides = [stride for (*_, stride), moves in zip(axes, moving, strict=True) if moves]
    unit = int(np.gcd.reduce(strides or [1])) or 1  # all strides are zero in an array without entries
    last = 0
    for (index, room, stride), moves in zip(axes, moving, strict=True):
        above, below = builder.apply("le", ZERO, index), builder.apply("le", index, builder.constant(room))
        inside = builder.apply("and", inside, builder.apply("and", above, below))
        index = builder.apply("min", builder.apply("max", index, ZERO), builder.constant(room)) if room else ZERO
        if moves:
            start = builder.apply("add", start, builder.apply("mul", builder.constant(stride // unit), index))
            last += room * stride // unit
        else:
            first = first + stride * np.asarray(builder.values(index, int))
    return first, start, inside, unit * np.arange(last + 1)


def _broadcast_to_windows(rows: ValueIds, windows: Windows) -> ValueIds:
    """Broadcast one value per window to one per element of the window."""
    spread = rows.reshape(rows.shape + (1,) * len(windows.sizes))
    return np.broadcast_to(spread, rows.shape + windows.sizes)


def _lookup(equation: Equation, choices: ValueIds, index: ValueIds) -> ValueIds:
    """`choices[index]`, for an index in range.

    If all choices are results of the same operation, the lookup is moved to its operands: so a table that has been
    scaled is still read by a gather.
    """
    builder = equation.builder
    if (choices == choices[0]).all():
        return choices[0]
    gathered = builder.gather(choices, index)
    if gathered is not None:
        return gathered
    op, operands = builder.op[choices], builder.args[choices]
    if op[0] not in (INPUT, COPY, NUMBER[GATHER]) and (op == op[0]).all():
        return builder.apply(
            NAMES[op[0]], *(_lookup(equation, column, index) for column in operands.T if column[0] >= 0)
        )
    _check_number(equation, len(choices))
    return _select_tree(builder, choices, index)


def _select_tree(builder: SSABuilder, choices: ValueIds, index: ValueIds) -> ValueIds:
    """`choices[index]`, by a binary tree of selects."""
    size = 1
    while len(choices) > 1:
        left, right = choices[:-1:2], choices[1::2]
        bounds = builder.constants((2 * np.arange(len(right)) + 1) * size)
        chosen = builder.apply("select", builder.apply("lt", index, bounds), left, right)
        choices, size = np.concatenate([chosen, choices[2 * len(right) :]]), 2 * size
    return choices[0]


def _check_number(equation: Equation, count: int) -> None:
    if count > choice.CANDIDATES:
        raise equation.unsupported(f" with an index that depends on the inputs, among {count} places")
