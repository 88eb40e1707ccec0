"""A program as a C function of plain arrays, for C code that runs without the virtual machine and without Python.

The function needs the operations of `lanes.h` for one number at a time, with the names of `straight_line.py`, and
allocates nothing.
"""

from collections.abc import Sequence

import numpy as np

from jaxmbd.engine.machine.straight_line import gather_function, literal, owners, statements, values_of
from jaxmbd.engine.program.opcodes import GATHER
from jaxmbd.engine.program.schedule import Program

# What stands before the functions: one double at a time, in C alone.
PRELUDE = """\
#include <math.h>
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


def c_function(name: str, program: Program, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """The text of `static void name(const double *input, …, double *output, …)`.

    `inputs` and `outputs`: the names of the arrays of the program, which may have no numbers; an output without a name
    is not computed. An output may be an input.
    """
    tables = [f"{name}_table_{k}" for k in range(len(program.constant_tables))]
    values, stored = values_of(program)
    loads = zip(program.loads.tolist(), owners(program.input_ends), strict=True)
    texts = {slot: f"{inputs[k]}[{element}]" for (element, slot), k in loads}
    given = {k: texts[value.operands[0]] for k, value in enumerate(values) if value.name == "slot"}
    stores = zip(program.stores.tolist(), owners(program.output_ends), strict=True)
    results = {f"{outputs[k]}[{element}]": stored[slot] for (element, slot), k in stores if outputs[k]}
    computed = [x for x in outputs if x]
    arguments = [f"const double *{x}" for x in inputs] + [f"double *{x}" for x in computed]
    gather = gather_function(name, "const double *const *call", program, lambda k: f"call[{k}]")
    lines = [
        *(_array(table, numbers) for table, numbers in zip(tables, program.constant_tables, strict=True)),
        *([gather, f"#define gather_lanes gather_{name}"] if gather else []),
        f"static void {name}({', '.join(arguments)}) {{",
        # Not all functions depend on all that there is.
        "".join(f"(void){x};" for x in (*inputs, *computed)),
    ]
    if gather:
        lines.append(f"const double *const call[] = {{{', '.join([*inputs, *tables])}}}; const int64_t *instances = 0;")
    lines += [*statements(values, results, given), "}", *(["#undef gather_lanes"] if gather else [])]
    return "\n".join(lines)


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
