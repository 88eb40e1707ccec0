"""Programs as C functions of plain arrays, for C code that runs without the virtual machine and without Python.

They need the operations of `lanes.h` for one number at a time, with the names of `straight_line.py`, and
allocate nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxmbd.engine.machine.straight_line import Value, gather_function, literal, order_of, owners, statements, values_of
from jaxmbd.engine.program.opcodes import GATHER
from jaxmbd.engine.program.schedule import Program

# Statements in one function. gcc took 41 s for six functions of 33,000 statements in all, and 14 s in such pieces.
_LONGEST = 500

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
    outputs, which may have none either; an output without a name is not computed. Outputs must not overlap with inputs.
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
    names = (*inputs, *(x for x in outputs if x))
    arguments = ", ".join([f"const double *{x}" for x in inputs] + [f"double *{x}" for x in outputs if x])
    start = "".join(f"(void){x};" for x in names) + operands  # not all functions depend on all that there is
    pieces = _pieces(values, results, given)
    if len(pieces) == 1:
        return "\n".join([f"static void {name}({arguments}) {{", start, *statements(values, results, given), "}"])
    carried = {k: f"carried[{i}]" for i, k in enumerate(sorted({k for piece in pieces for k in piece.carried}))}
    lines = []
    for i, piece in enumerate(pieces):
        lines.append(f"static __attribute__((noinline)) void {name}_{i}({arguments}, double *carried) {{\n{start}")
        wanted = piece.results | {carried[k]: k for k in piece.carried}
        before = {k: text for k, text in carried.items() if k not in piece.carried}
        lines += [*statements(values, wanted, given | before), "}"]
    calls = [f"{name}_{i}({', '.join(names)}, carried);" for i in range(len(pieces))]
    return "\n".join([*lines, f"static void {name}({arguments}) {{", f"double carried[{len(carried)}];", *calls, "}"])


class _Piece(NamedTuple):
    """A piece of a function: the results that it computes, and the values that later pieces need."""

    results: dict[str, int]
    carried: list[int]


def _pieces(values: Sequence[Value], results: Mapping[str, int], given: Mapping[int, str]) -> list[_Piece]:
    """The pieces of a long function: compilers allocate registers in a time that grows faster than the function."""
    computed = lambda k: k not in given and values[k].name != "constant"  # noqa: E731
    order = [k for k in order_of(values, list(results.values()), given) if computed(k)]
    piece_of = {k: i // _LONGEST for i, k in enumerate(order)}
    used_later = {i for k in order for i in values[k].sources if computed(i) and piece_of[i] < piece_of[k]}
    pieces = [_Piece({}, []) for _ in range(max(piece_of.values(), default=0) + 1)]
    for k in used_later:
        pieces[piece_of[k]].carried.append(k)
    for target, k in results.items():
        pieces[piece_of.get(k, 0)].results[target] = k
    return pieces


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
