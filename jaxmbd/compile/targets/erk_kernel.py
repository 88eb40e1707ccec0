"""A whole motion as the text of one kernel: the time loop of `erk_loop.h` around programs in straight-line code.

A GPU has a thread for each instance of a batch. The text is that of the virtual machine, with functions of its own
where the machine interprets programs, and with all sizes as numbers. It is CUDA, and it is C, too, which runs the
instances one after another: for tests on computers without a GPU.

What a program computes has one of three levels: what is the same for all instances is computed once, by a kernel of one
thread, and is in the constant memory of the solving kernel; what depends on an instance's parameters is computed before
its time loop; the rest at each stage.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jaxmbd.compile.passes.schedule import Program
from jaxmbd.compile.targets.opcodes import GATHER
from jaxmbd.compile.targets.straight_line import Value, statements, values_of

HEADERS = ("device.h", "program.h", "motion.h", "lanes.h", "erk_loop.h")
BLOCK = 128  # threads that run side by side; they share nothing
PREPARE, SOLVE = "jaxmbd_prepare", "jaxmbd_solve"  # the kernels' names
_CONSTANT_MEMORY = 2**16 - 2**12  # [bytes] of a GPU's constant memory for the first level; the method has the rest
_UNIFORM, _INSTANCE, _MOVING = range(3)  # levels
_COUNTS = 6  # results that count, as in `motion.h`
CONTROLS = 10  # the numbers of a step-size controller, as in `motion.h`


class Buffer(NamedTuple):
    """An operand or a result: its numbers per instance, and whether each instance has its own."""

    size: int
    varies: bool


class Part(NamedTuple):
    """A program of a motion: the slope, or what happens after a step.

    `time`, `state`: the inputs that are not operands; `first`: the place of its first operand; `condition`: the input
    that is zero where nothing happens, -1 for none.
    """

    program: Program
    time: int
    state: int
    first: int
    condition: int = -1

    def place(self, given: int) -> int:
        """The place of an input among the operands."""
        return self.first + given - sum(given > k for k in (self.time, self.state))

    @property
    def end(self) -> int:
        """The place after its last operand."""
        return self.first + len(self.program.input_sizes) - 2


class MotionKernel(NamedTuple):
    """A kernel for a motion: programs, operands and results in the order of the call, method and settings.

    `tableau`: `a, b, c, e` and the polynomials of the dense output, side by side; `norm (n,)`: 1 for components in the
    norm of the error; `flags`: by their names in `motion.h`.
    """

    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...]
    tableau: np.ndarray
    stages: int
    degree: int
    norm: np.ndarray
    flags: dict[str, int]
    dtype: Any

    def source(self) -> tuple[str, int]:
        """The text of the kernel, and the number of results of its first level."""
        texts, uniform, limit = list[_PartText](), 0, _CONSTANT_MEMORY // np.dtype(self.dtype).itemsize
        for number, part in enumerate(self.parts):
            levels = _Levels(part, self.buffers)
            levels = levels if uniform + len(levels.kept(_UNIFORM)) <= limit else _Levels(part, self.buffers, _INSTANCE)
            texts.append(_part_text(number, levels, uniform))
            uniform += len(levels.kept(_UNIFORM))
        slots = [max(len(text.carried), 1) for text in texts]
        number, integer, suffix = ("double", "int64_t", "") if np.dtype(self.dtype) == np.float64 else (
            "float", "int32_t", "f"
        )  # fmt: skip
        has_after = len(self.parts) > 1
        after = "m->part ? {0}_1(m, x, {1}) : {0}_0(m, x, {1});" if has_after else "{0}_0(m, x, {1});"
        return (
            f"""#define BLOCK {BLOCK}
#include "device.h"
#include "motion.h"
#define T {number}
#define INTEGER {integer}
#define M(g) g{"##" + suffix if suffix else ""}
#define LANES 1
#define NAME lanes
#include "lanes.h"
#define LANE_OF(v, l) (v)
#define EACH_LANE for (int l = 0; l < 1; l++)
#define STATES(m) {self.norm.size}
#define STAGES(m) {self.stages}
#define SLOTS(m) {slots[0]}
#define SLOTS_AFTER(m) {slots[1] if has_after else 0}
#define WAITS(instances) 0
#define OFTEN 2147483647

typedef struct {{
  void *at[{len(self.buffers)}];
}} Buffers;
CONSTANT T uniform[{max(uniform, 1)}];
CONSTANT const double in_norm[] = {{{_numbers(self.norm)}}};
CONSTANT const double tableau[] = {{{_numbers(self.tableau)}}};
#define OF(place, size) ((const T *)m->call.inputs[place] + size * instance)
{"".join(text.functions for text in texts)}
typedef struct {{
  const Motion *m;
  V *x, *waiting;
  int64_t first;
}} Slots_lanes;
INLINE void fill_lanes(Slots_lanes *s, V *x, const int64_t instance) {{
  const Motion *m = s->m;
  {after.format("begin", "instance")}
}}
INLINE void admit_lanes(Slots_lanes *s, const int lane, const int64_t instance) {{}}
INLINE void slope_lanes(const Motion *m, V *x, const V *t, const V *y, const int64_t *instances, V *f) {{
  {after.format("slope", "*t, y, *instances, f")}
}}
{self._after_text()}
INLINE int64_t engine_lanes(const Call *c) {{ return STRAIGHT_LINE; }}
INLINE void count_lanes(const Call *c, const int64_t evaluations) {{}}
#include "erk_loop.h"

KERNEL({PREPARE}, BUFFERS b, T *results) {{
  Motion motion, *m = &motion;
  const int64_t instance = 0;
  m->call.inputs = (void **)b.at;
{"".join(text.prepare for text in texts)}
}}

KERNEL({SOLVE}, BUFFERS b, const int64_t batch) {{
  FOR_EACH_INSTANCE(i, batch) {{
    Motion m, last;
    memset(&m, 0, sizeof m);
{self._setup_text()}
    solve_lanes(&m, i, i + 1);
  }}
}}
""",
            uniform,
        )

    def _after_text(self) -> str:
        head = "INLINE const Motion *after_lanes(const Motion *m, const int64_t *instances)"
        if len(self.parts) == 1:
            return f"{head} {{ return NULL; }}"
        part = self.parts[1]
        if part.condition < 0:
            return f"{head} {{ return m->after; }}"
        place = part.place(part.condition)
        size = self.buffers[place].size if self.buffers[place].varies else 0
        return f"""{head} {{
  const int64_t instance = *instances;
  return *OF({place}, {size}) != 0 ? m->after : NULL;
}}"""

    def _setup_text(self) -> str:
        """The statements that set up a motion."""
        s, places = self.stages, iter(range(self.parts[-1].end, len(self.buffers)))
        names = ["y0", "t0", "t1", "ts", "h0", "control", "ys", "y_end", "t_end"]
        names += [f"counts[{k}]" for k in range(_COUNTS)]
        names += ["starts", "ends", "checkpoints"] if self.flags["recorded"] else []
        lines = [f"    m.call.inputs = (void **)b.at, m.call.batch = batch, m.n = {self.norm.size}, m.norm = in_norm;"]
        lines += [f"    m.method.stages = {s}, m.method.degree = {self.degree};"]
        starts = {"a": 0, "b": s * s, "c": s * (s + 1), "e": s * (s + 2), "dense": s * (s + 3)}
        lines += [f"    m.method.{name} = tableau + {start};" for name, start in starts.items()]
        lines += [f"    m.{name} = {value};" for name, value in self.flags.items()]
        for name in names:
            place = next(places)
            size, varies = self.buffers[place]
            lines += [f"    m.{name}.data = b.at[{place}], m.{name}.size = {size}, m.{name}.varies = {int(varies)};"]
        if len(self.parts) > 1:
            results = self.parts[1].program.output_sizes[0]
            lines += [f"    last = m, last.part = 1, last.results = {results}, m.after = &last;"]
        return "\n".join(lines)


class _Levels:
    """The values of a part, with their levels. `least`: the lowest one that is used."""

    def __init__(self, part: Part, buffers: Sequence[Buffer], least: int = _UNIFORM) -> None:
        self.part, self.buffers = part, buffers
        self.values, stored = values_of(part.program)
        program = part.program
        inputs = zip(program.loads.tolist(), self._owners(program.input_ends), strict=True)
        self._inputs = {slot: (k, element) for (element, slot), k in inputs}
        pairs = zip(program.stores.tolist(), self._owners(program.output_ends), strict=True)
        self.results = {element: stored[slot] for (element, slot), output in pairs if output == 0}
        self.level: list[int] = []
        for value in self.values:
            self.level.append(max(least, self._own_level(value), *(self.level[k] for k in value.sources), 0))

    def _owners(self, ends: np.ndarray) -> list[int]:
        """The input or output of each pair of a table."""
        return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)).tolist()

    def _own_level(self, value: Value) -> int:
        if value.name == "slot":
            return self._input_level(self._inputs[value.operands[0]][0])
        return self._input_level(self.part.program.gathers[value.operands[1]][0]) if value.name == GATHER else 0

    def _input_level(self, k: int) -> int:
        if k in (self.part.time, self.part.state):
            return _MOVING
        return _INSTANCE if self.buffers[self.part.place(k)].varies else _UNIFORM

    @cached_property
    def _needed(self) -> set[int]:
        """The values on which the results depend."""
        needed, stack = set(), list(self.results.values())
        while stack:
            k = stack.pop()
            if k not in needed:
                needed.add(k)
                stack += self.values[k].sources
        return needed

    def kept(self, level: int) -> list[int]:
        """The values of a level that values of a higher one need, or the results, without constants."""
        users = [(self.values[k].sources, self.level[k]) for k in self._needed]
        users.append((tuple(self.results.values()), _MOVING))
        kept = {k for sources, above in users if above > level for k in sources if self.level[k] == level}
        return sorted(k for k in kept if self.values[k].name != "constant")

    def input_text(self, value: Value) -> str:
        """The text of an input."""
        k, element = self._inputs[value.operands[0]]
        if k == self.part.time:
            return "t"
        return f"y[{element}]" if k == self.part.state else f"{self.operand_text(k)}[{element}]"

    def operand_text(self, k: int) -> str:
        """The text of a pointer to an input of the instance."""
        size, varies = self.buffers[self.part.place(k)]
        return f"OF({self.part.place(k)}, {size if varies else 0})"


class _PartText(NamedTuple):
    functions: str
    prepare: str
    carried: list[int]


def _part_text(number: int, levels: _Levels, offset: int) -> _PartText:
    """The functions of a part: what it computes before the time loop, and at a stage."""
    values = levels.values
    inputs = {k: levels.input_text(value) for k, value in enumerate(values) if value.name == "slot"}
    uniform, carried = levels.kept(_UNIFORM), levels.kept(_INSTANCE)
    before = inputs | {k: f"uniform[{offset + i}]" for i, k in enumerate(uniform)}
    moving = before | {k: f"x[{i}]" for i, k in enumerate(carried)}
    prepare = statements(values, {f"results[{offset + i}]": k for i, k in enumerate(uniform)}, inputs)
    begin = statements(values, {f"x[{i}]": k for i, k in enumerate(carried)}, before)
    slope = statements(values, {f"f[{element}]": k for element, k in levels.results.items()}, moving)
    return _PartText(
        f"""
{_gather_text(number, levels)}
#define gather_lanes gather_{number}
INLINE void begin_{number}(const Motion *m, V *x, const int64_t instance) {{
{_body(begin)}
}}
INLINE void slope_{number}(const Motion *m, const V *x, const V t, const V *y, const int64_t instance, V *f) {{
{_body(slope)}
}}
#undef gather_lanes
""",
        f"#define gather_lanes gather_{number}\n  {{\n{_body(prepare)}\n  }}\n#undef gather_lanes\n",
        carried,
    )


def _body(lines: Iterator[str]) -> str:
    return "\n".join(f"  {line}" for line in lines).replace("(call, ", "(m, ").replace(", instances)", ", instance)")


def _gather_text(number: int, levels: _Levels) -> str:
    """The function that reads a table at an index, which is clamped into the table as in `lanes.h`."""
    cases = "".join(
        f"    case {k}: table = {levels.operand_text(given)} + {first}, stride = {stride}, length = {length}; break;\n"
        for k, (given, first, stride, length) in enumerate(levels.part.program.gathers.tolist())
    )
    if not cases:
        return ""
    return f"""INLINE V gather_{number}(const Motion *m, const int k, const V index, const int64_t instance) {{
  const T *table = NULL;
  int64_t stride = 0, length = 1;
  switch (k) {{
{cases}  }}
  return table[stride * (!(index > 0) ? 0 : index < (T)length ? (int64_t)index : length - 1)];
}}"""


def _numbers(numbers: np.ndarray) -> str:
    return ", ".join(float(x).hex() for x in numbers)
