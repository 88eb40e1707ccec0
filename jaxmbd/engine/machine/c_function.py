"""Programs as C functions of plain arrays, for C code that runs without the virtual machine and without Python.

They need the operations of `lanes.h` for one number at a time, with the names of `straight_line.py`, and
allocate nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmbd.engine.machine.straight_line import gather_function, literal, owners, statements, values_of
from jaxmbd.engine.program.opcodes import GATHER
from jaxmbd.engine.program.schedule import Program

# What stands before the functions: one double at a time, in C alone.
PRELUDE = """\
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __GNUC__ /* a hint that other compilers do not know */
#define __attribute__(hint)
#define __builtin_expect(condition, usual) (condition)
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define T double
#define INTEGER int64_t
#define M(g) g
#define LANES 1
#define NAME lanes
"""


def c_functions(program: Program, inputs: Sequence[str], functions: Mapping[str, Sequence[str]]) -> str:
    """The text of functions `static void name(const double *input, …, double *output, …)` of one program.

    `inputs`: the names of the arrays of the program, which may have no numbers; `functions`: by name, those of the
    outputs, which may have none either; an output without a name is not computed. An output may be an input.
    """
    first = next(iter(functions))
    tables = [f"{first}_table_{k}" for k in range(len(program.constant_tables))]
    gather = gather_function(first, "const double *const *call", program, lambda k: f"call[{k}]")
    operands = ""
    if gather:
        operands = f"const double *const call[] = {{{', '.join([*inputs, *tables])}}}; const int64_t *instances = 0;"
    texts = [_function(name, program, inputs, outputs, operands) for name, outputs in functions.items()]
    lines = [_array(table, numbers) for table, numbers in zip(tables, program.constant_tables, strict=True)]
    if gather:
        texts = [gather, f"#define gather_lanes gather_{first}", *texts, "#undef gather_lanes"]
    return "\n\n".join([*lines, *texts])


def _function(name: str, program: Program, inputs: Sequence[str], outputs: Sequence[str], operands: str) -> str:
    values, stored = values_of(program)
    loads = zip(program.loads.tolist(), owners(program.input_ends), strict=True)
    texts = {slot: f"{inputs[k]}[{element}]" for (element, slot), k in loads}
    given = {k: texts[value.operands[0]] for k, value in enumerate(values) if value.name == "slot"}
    stores = zip(program.stores.tolist(), owners(program.output_ends), strict=True)
    results = {f"{outputs[k]}[{element}]": stored[slot] for (element, slot), k in stores if outputs[k]}
    computed = [x for x in outputs if x]
    arguments = [f"const double *{x}" for x in inputs] + [f"double *{x}" for x in computed]
    unused = "".join(f"(void){x};" for x in (*inputs, *computed))  # not all depend on all that there is
    head = f"static void {name}({', '.join(arguments)}) {{"
    return "\n".join([head, unused, *([operands] if operands else []), *statements(values, results, given), "}"])


def dependencies(program: Program) -> list[list[set[tuple[int, int]]]]:
    """For each output and each of its elements the elements of inputs, (input, element), on which it may depend."""
    values, stored = values_of(program)
    loads = zip(program.loads.tolist(), owners(program.input_ends), strict=True)
    leaves = [(k, element) for (element, _), k in loads]
    bit_of = {slot: 1 << i for i, (_, slot) in enumerate(program.loads.tolist())}
    bits: list[int] = []  # for each value, the set of its leaves: many sets of few hundred members
    for value in values:
        own = bit_of.get(value.operands[0], 0) if value.name == "slot" else 0
        if value.name == GATHER:
            own |= sum(1 << i for i, (k, _) in enumerate(leaves) if k == program.gathers[value.operands[1]][0])
        for k in value.sources:
            own |= bits[k]
        bits.append(own)
    found: list[list[set[tuple[int, int]]]] = [[] for _ in program.output_ends]
    for (_, slot), k in zip(program.stores.tolist(), owners(program.output_ends), strict=True):
        found[k].append({leaf for i, leaf in enumerate(leaves) if bits[stored[slot]] >> i & 1})
    return found


def _array(name: str, numbers: np.ndarray) -> str:
    return f"static const double {name}[] = {{{', '.join(map(literal, numbers.ravel().tolist()))}}};"
