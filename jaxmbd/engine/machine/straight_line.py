"""Straight-line code: a program, after its uniform prefix, as C text without a loop over instructions.

The virtual machine reads and writes slots in memory for each operation. Here every value is a variable, so the compiler
keeps it in a register; the slots hold only what comes from outside: inputs, results of the prefix, and outputs.
Operations are those of `lanes.h`, which the interpreter runs too. Their order is a depth-first search from the outputs
that visits first the operand which needs more registers (Sethi and Ullman, J. ACM 17 (1970)), so that few values are
live at a time.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxmbd.engine.program.opcodes import ARITY, GATHER, NAMES, UNIFORM
from jaxmbd.engine.program.schedule import Program

# By kernel, as numbered in `program.h`: type, integer of its size, suffix of its functions in `math.h`, and lanes.
_DOUBLE, _SINGLE = ("double", "int64_t", ""), ("float", "int32_t", "f")
_KERNELS = ((*_DOUBLE, "1"), (*_DOUBLE, "F64_WIDTH"), (*_SINGLE, "1"), (*_SINGLE, "F32_WIDTH"))


class Value(NamedTuple):
    """A value: an operation on values by their indices (of a gather: index and table), or a slot or a constant.

    The names of the latter two are "slot" and "constant".
    """

    name: str
    operands: tuple[int, ...]
    number: float = 0.0

    @property
    def sources(self) -> tuple[int, ...]:
        """The values that it is computed from."""
        if self.name in ("slot", "constant"):
            return ()
        return self.operands[:1] if self.name == GATHER else self.operands


def is_straight(program: Program) -> bool:
    """True if a program can be straight-line code: no factors of its operations are shared by all lanes."""
    return not any(name in UNIFORM.values() for name, _ in _instructions(program, program.uniform_length))


def source(program: Program, kernel: int) -> str:
    """The C text of a program for a kernel, one of those in `program.h`; it defines the function `jaxmbd_straight`."""
    number, integer, suffix, lanes = _KERNELS[kernel]
    values, stored = values_of(program, program.uniform_length)
    given = {k: f"x[{value.operands[0]}]" for k, value in enumerate(values) if value.name == "slot"}
    computed = {slot: k for slot, k in stored.items() if values[k].name not in ("slot", "constant")}
    body = "\n".join(statements(values, {f"x[{slot}]": k for slot, k in computed.items()}, given))
    return f"""#include "program.h"
#define T {number}
#define INTEGER {integer}
#define M(g) g{"##" + suffix if suffix else ""}
#define LANES {lanes}
#define NAME lanes
#include "lanes.h"
#include "operands.h"

void jaxmbd_straight(void *restrict slots, const Call *restrict call, const int64_t *restrict instances) {{
V *restrict x = slots;
(void)call, (void)instances;
{body}
}}
"""


def _instructions(program: Program, start: int) -> Iterator[tuple[str, np.ndarray]]:
    """The instructions from a place in the code on: operation, and the slots of each result and its operands."""
    code, at = program.code, start
    while at < len(code):
        name, count = NAMES[code[at]], int(code[at + 1])
        first, at = at + 2, at + 2 + count * (1 + ARITY[name])
        yield name, code[first:at].reshape(count, -1)


def values_of(program: Program, start: int = 0) -> tuple[list[Value], dict[int, int]]:
    """The values in the order of the code from `start` on, and for each slot that an output is read from, its last
    value."""
    values: list[Value] = []
    current: dict[int, int] = {}  # the value in each slot

    def read(slot: int) -> int:
        if slot not in current:
            is_constant = slot < program.constants.size
            number = float(program.constants[slot]) if is_constant else 0.0
            values.append(Value("constant" if is_constant else "slot", (slot,), number))
            current[slot] = len(values) - 1
        return current[slot]

    for name, table in _instructions(program, start):
        for result, *operands in table.tolist():
            ids = (read(operands[0]), operands[1]) if name == GATHER else tuple(map(read, operands))
            values.append(Value(name, ids))
            current[result] = len(values) - 1
    return values, {slot: read(slot) for _, slot in program.stores.tolist()}


def order_of(values: Sequence[Value], roots: Sequence[int], given: Mapping[int, str]) -> list[int]:
    """The values on which some roots depend, operands before uses, those that need more registers first."""
    sources = [() if k in given else tuple(set(value.sources)) for k, value in enumerate(values)]
    registers = [1] * len(values)
    for k, operands in enumerate(sources):
        needs = sorted((registers[i] for i in operands), reverse=True)
        registers[k] = max([need + i for i, need in enumerate(needs)], default=1)
    order, seen = [], set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        k, is_ready = stack.pop()
        if is_ready:
            order.append(k)
        elif k not in seen:
            seen.add(k)
            stack.append((k, True))
            stack += [(i, False) for i in sorted(sources[k], key=registers.__getitem__)]
    return order


def statements(values: Sequence[Value], results: Mapping[str, int], given: Mapping[int, str]) -> Iterator[str]:
    """The statements that compute some `results`, values by the text of what they are assigned to; `given`: the text of
    values that are there already. Sines and cosines come first, those of one angle together: before a call of a
    function all values that are live in registers are stored."""
    needed = order_of(values, list(results.values()), given)
    angular = sorted(k for k in needed if values[k].name in ("sin", "cos") and k not in given)
    order = order_of(values, [*angular, *results.values()], given)
    angles: dict[int, dict[str, int]] = {}
    for k in angular:
        angles.setdefault(values[k].operands[0], {})[values[k].name] = k
    done = set()
    for k in order:
        if k in done:
            continue
        name, operands, number = values[k]
        if k in given:
            yield f"const V v{k} = {given[k]};"
        elif name == "constant":
            yield f"const V v{k} = ALL({literal(number)});"
        elif name == GATHER:
            yield f"const V v{k} = gather_lanes(call, {operands[1]}, v{operands[0]}, instances);"
        elif name in ("sin", "cos") and len(angles[operands[0]]) == 2:
            pair = angles[operands[0]]
            yield f"V v{pair['sin']}, v{pair['cos']};"
            yield f"sine_cosine_lanes(v{operands[0]}, &v{pair['sin']}, &v{pair['cos']});"
            done.update(pair.values())
        else:
            yield f"const V v{k} = {name}_lanes({', '.join(f'v{i}' for i in operands)});"
    for target, k in results.items():
        yield f"{target} = v{k};"


def gather_function(name: str, context: str, program: Program, operand: Callable[[int], str]) -> str:
    """The function `gather_name` that reads a table at an index, which is clamped into the table as in `operands.h`;
    empty if the program reads none. `context`: its first parameter; `operand`: the text of a pointer to an input."""
    cases = [
        f"case {k}: table = {operand(given)} + {first}, stride = {stride}, length = {length}; break;"
        for k, (given, first, stride, length) in enumerate(program.gathers.tolist())
    ]
    if not cases:
        return ""
    return "\n".join([
        f"INLINE V gather_{name}({context}, const int k, const V index, const int64_t *instances) {{",
        "const T *table = NULL;", "int64_t stride = 0, length = 1;", "switch (k) {", *cases, "}",
        "return table[stride * (!(index > 0) ? 0 : index < (T)length ? (int64_t)index : length - 1)];", "}",
    ])  # fmt: skip


def owners(ends: np.ndarray) -> list[int]:
    """The input or output of each pair of a table of a program."""
    return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)).tolist()


def literal(number: float) -> str:
    """A number in C, to the last bit."""
    if math.isfinite(number):
        return float(number).hex()
    return "NAN" if math.isnan(number) else "INFINITY" if number > 0 else "-INFINITY"
