"""A whole motion as the text of one kernel: the loops of `erk_loop.h` and `erk_sweeps.h` around straight-line code.

A GPU has a thread for each instance of a batch. The text is that of the virtual machine, with functions of its own
where the machine interprets programs, and with all sizes as numbers. It is CUDA, and it is C, too, which runs the
instances one after another: for tests on computers without a GPU.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from jaxmbd.engine.machine.gpu.kernel_part import (
    BEGIN,
    PULL,
    SLOPE,
    TANGENT,
    Buffer,
    Part,
    PartText,
    Role,
    function,
    part_text,
)

HEADERS = (
    "gpu/device.h", "program.h", "motion.h", "lanes.h", "gpu/device_slots.h", "erk_loop.h", "erk_events.h",
    "erk_sweeps.h",
)  # fmt: skip
BLOCK = 128  # threads that run side by side; they share nothing
PREPARE, RUN = "jaxmbd_prepare", "jaxmbd_run"  # the kernels' names
_CONSTANT_MEMORY = 2**16 - 2**12  # [bytes] of a GPU's constant memory for uniform values; the method has the rest
_TYPES = {np.dtype(np.float64): ("double", "int64_t", ""), np.dtype(np.float32): ("float", "int32_t", "##f")}
_RUNS = {
    "solve": "solve_lanes(m, i, i + 1);",
    "tangents": "sweep_tangents_lanes(m, &i, 1);",
    "cotangents": "sweep_cotangents_lanes(m, &i, 1);",
}


class MotionKernel(NamedTuple):
    """A run of a motion or a sweep over its steps, as a kernel.

    `name`: as that of the call of the virtual machine; `parts`: the programs, the last one that of what happens after a
    step if `has_after`; `buffers`: operands and results in the order of the call; `arrays`: what those that belong to
    no program are in `motion.h`, with `pull.` in front for the program that pulls back, and empty for the cotangent of
    a parameter; `tableau`: `a, b, c, e` and the polynomials of the dense output, side by side; `norm (n,)`: the
    weights of the squared errors; `moving`: how many components of the state move within a step; `settings`: by their
    names in `motion.h`.
    """

    name: str
    parts: tuple[Part, ...]
    has_after: bool
    buffers: tuple[Buffer, ...]
    arrays: tuple[str, ...]
    tableau: np.ndarray
    stages: int
    degree: int
    norm: np.ndarray
    moving: int
    settings: dict[str, int]
    dtype: DTypeLike

    def source(self) -> tuple[str, int]:
        """The text of the kernel, and how many values are uniform."""
        limit = _CONSTANT_MEMORY // np.dtype(self.dtype).itemsize
        texts: list[PartText] = []
        for number, part in enumerate(self.parts):
            texts.append(part_text(number, part, self.buffers, sum(text.uniform for text in texts), limit))
        uniform = sum(text.uniform for text in texts)
        functions, prepare = ("".join(getattr(text, name) for text in texts) for name in ("functions", "prepare"))
        first = self.parts[-1].end
        lines = [*self._sizes(texts, uniform), functions, *self._dispatch(), self._after(), *self._delivery(first)]
        lines += ['#include "gpu/device_slots.h"', '#include "erk_loop.h"', '#include "erk_sweeps.h"']
        lines += [
            f"KERNEL({PREPARE}, BUFFERS b, T *results) {{", "const int64_t zero = 0, *instances = &zero;",
            "Motion motion, *m = &motion;", "m->call.inputs = (void **)b.at;", prepare, "}",
            f"KERNEL({RUN}, BUFFERS b, const int64_t batch) {{", "FOR_EACH_INSTANCE(i, batch) {",
            "Motion m[3];", "memset(m, 0, sizeof m);", *self._setup(first), _RUNS[self.name], "}", "}", "",
        ]  # fmt: skip
        return "\n".join(lines), uniform

    def _sizes(self, texts: Sequence[PartText], uniform: int) -> list[str]:
        """The beginning of the text: numbers, and what they are numbers of."""
        number, integer, suffix = _TYPES[np.dtype(self.dtype)]
        slots = [text.carried for text in texts]
        defined = {
            "BLOCK": BLOCK, "T": number, "INTEGER": integer, "M(g)": f"g{suffix}", "LANES": 1, "NAME": "lanes",
            "STATES(m)": self.norm.size, "MOVING(m)": self.moving, "STAGES(m)": self.stages, "SLOTS(m)": slots[0],
            "SLOTS_BESIDE(m)": slots[1] if self.name == "cotangents" else 0,
            "SLOTS_AFTER(m)": slots[-1] if self.has_after else 0, "SLOTS_GUARD(m)": 0,
            "SLOTS_EVENT(m)": 0, "EVENTS(m)": 0, "LONGEST_STRIDE(steps)": self._longest_stride(),
            "PARAMETERS(m)": sum(part.parameters for part in self.parts),
            "OF(place, size)": "((const T *)m->call.inputs[place] + size * *instances)",
        }  # fmt: skip
        return [
            *(f"#define {name} {value}" for name, value in defined.items()),
            '#include "gpu/device.h"', '#include "motion.h"', '#include "lanes.h"',
            f"typedef struct {{ void *at[{len(self.buffers)}]; }} Buffers;",
            f"CONSTANT T uniform[{max(uniform, 1)}];",
            f"CONSTANT const double in_norm[] = {{{_numbers(self.norm)}}};",
            f"CONSTANT const double tableau[] = {{{_numbers(self.tableau)}}};",
        ]  # fmt: skip

    def _longest_stride(self) -> int:
        """The largest number of steps from a checkpoint to the next one, as `motion.h` has it."""
        most, rows = self.settings["max_steps"], self.settings["rows"]
        return 2 ** next(level for level in range(64) if most - 1 < rows << level)

    def _dispatch(self) -> list[str]:
        """The functions of the motion, each by those of the parts, which are numbered by `part`."""
        lines = _choice(BEGIN, range(len(self.parts)))
        for role in (SLOPE, TANGENT, PULL):
            lines += _choice(role, [k for k, part in enumerate(self.parts) if part.role is role])
        return lines

    def _after(self) -> str:
        """The function that tells whether something happens after a step."""
        head = "INLINE const Motion *after_lanes(const Motion *m, const int64_t *instances)"
        if not self.has_after:
            return f"{head} {{ return NULL; }}"
        part = self.parts[-1]
        if part.condition < 0:
            return f"{head} {{ return m->after; }}"
        place = part.place(part.condition)
        size = self.buffers[place].size if self.buffers[place].varies else 0
        return f"{head} {{ return *OF({place}, {size}) != 0 ? m->after : NULL; }}"

    def _delivery(self, first: int) -> list[str]:
        """The function that stores the cotangents of parameters."""
        lines, start = [], 0
        for place, array in enumerate(self.arrays, first):
            if not array:
                size = self.buffers[place].size
                own = f"((T *)m->call.inputs[{place}] + {size} * instance)"
                lines.append(f"for (int k = 0; k < {size}; k++) {own}[k] = bars[{start} + k];")
                start += size
        head = "const Motion *m, const V *bars, const int64_t l, const int64_t instance"
        return [f"INLINE void deliver_lanes({head}) {{", *lines, "}"]

    def _setup(self, first: int) -> list[str]:
        """The statements that set up a motion; `first`: the place of the first operand that is no program's."""
        s = self.stages
        starts = {"a": 0, "b": s * s, "c": s * (s + 1), "e": s * (s + 2), "dense": s * (s + 3)}
        lines = ["m->call.inputs = (void **)b.at, m->call.batch = batch, m->norm = in_norm;"]
        lines += [f"m->n = {self.norm.size}, m->moving = {self.moving};"]
        lines += [f"m->method.stages = {s}, m->method.degree = {self.degree};"]
        lines += [f"m->method.{name} = tableau + {start};" for name, start in starts.items()]
        lines += [f"m->{name} = {value};" for name, value in self.settings.items()]
        lines += ["m[1] = m[2] = *m;"]
        if self.has_after:
            results = self.parts[-1].program.output_sizes[0]
            lines += [f"m[2].part = {len(self.parts) - 1}, m[2].results = {results}, m->after = m + 2;"]
        if self.name == "cotangents":
            lines += ["m[1].part = 1;"]
        for place, array in enumerate(self.arrays, first):
            if array:
                size, varies = self.buffers[place]
                target = f"m[1].{array[5:]}" if array.startswith("pull.") else f"m->{array}"
                values = {"data": f"b.at[{place}]", "size": size, "varies": int(varies)}
                lines += [f"{target}.{field} = {value};" for field, value in values.items()]
        return lines


def _choice(role: Role, numbers: Sequence[int]) -> list[str]:
    """A function that calls that of the part whose number the motion has."""
    conditions = [f"if (m->part == {k}) " if k != numbers[-1] else "" for k in numbers]
    calls = [
        f"{condition}{role.name}_{k}(m, {role.arguments});" for condition, k in zip(conditions, numbers, strict=True)
    ]
    return [*function(role, "lanes"), " else ".join(calls), "}"]


def _numbers(numbers: np.ndarray) -> str:
    return ", ".join(float(x).hex() for x in numbers)
