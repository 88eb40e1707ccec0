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
    PROGRAMS,
    PULL,
    SLOPE,
    TANGENT,
    Buffer,
    Part,
    PartText,
    function,
    part_text,
)

_LOOP = ("gpu/device_slots.h", "irk_steps.h", "closing.h", "erk_loop.h", "erk_sweeps.h")
HEADERS = ("gpu/device.h", "program.h", "motion.h", "lanes.h", *_LOOP, "erk_events.h")
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

    `name`: as that of the call of the virtual machine; `parts`: the programs; `buffers`: operands and results in the
    order of the call; `arrays`: what those that belong to no program are in `motion.h`, and empty for the cotangent of
    a parameter; `tableau`: `a, b, c, e` and the polynomials of the dense output, side by side; `norm (n,)`: the weights
    of the squared errors; `settings`: by their names in `motion.h`; `sizes`: by the names of the macros that stand for
    them there, so that the compiler knows them.
    """

    name: str
    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...]
    arrays: tuple[str, ...]
    tableau: np.ndarray
    stages: int
    degree: int
    norm: np.ndarray
    sizes: dict[str, int]
    settings: dict[str, int]
    dtype: DTypeLike

    def source(self) -> tuple[str, int]:
        """The text of the kernel, and how many values are uniform."""
        limit = _CONSTANT_MEMORY // np.dtype(self.dtype).itemsize
        texts: list[PartText] = []
        for part in self.parts:
            texts.append(part_text(part, self.buffers, sum(text.uniform for text in texts), limit))
        uniform = sum(text.uniform for text in texts)
        functions, prepare = ("".join(getattr(text, name) for text in texts) for name in ("functions", "prepare"))
        first = self.parts[-1].end
        lines = [*self._sizes(texts, uniform), functions, *self._absent(), *self._all(), *self._delivery(first)]
        lines += [f'#include "{name}"' for name in _LOOP]
        lines += [
            f"KERNEL({PREPARE}, BUFFERS b, T *results) {{", "const int64_t zero = 0, *instances = &zero;",
            "Motion motion, *m = &motion;", "m->call.inputs = (void **)b.at;", prepare, "}",
            f"KERNEL({RUN}, BUFFERS b, const int64_t batch) {{", "FOR_EACH_INSTANCE(i, batch) {",
            "Motion motion, *m = &motion;", "memset(m, 0, sizeof *m);", *self._setup(first), _RUNS[self.name],
            "}", "}", "",
        ]  # fmt: skip
        return "\n".join(lines), uniform

    def _sizes(self, texts: Sequence[PartText], uniform: int) -> list[str]:
        """The beginning of the text: numbers, and what they are numbers of."""
        number, integer, suffix = _TYPES[np.dtype(self.dtype)]
        carried = {part.name: text.carried for part, text in zip(self.parts, texts, strict=True)}
        results = {part.name: part.program.output_sizes[0] for part in self.parts}
        numbers = [f"SLOTS_{k} = {carried.get(k, 0)}, RESULTS_{k} = {results.get(k, 0)}" for k in PROGRAMS]
        defined = {
            "BLOCK": BLOCK, "T": number, "INTEGER": integer, "M(g)": f"g{suffix}", "LANES": 1, "NAME": "lanes",
            "STATES(m)": self.norm.size, "STAGES(m)": self.stages, "LONGEST_STRIDE(steps)": self._longest_stride(),
            "PARAMETERS(m)": max(part.parameters for part in self.parts),
            **{f"{name}(m)": size for name, size in self.sizes.items()},
            "OF(place, size)": "((const T *)m->call.inputs[place] + size * *instances)",
        }  # fmt: skip
        return [
            *(f"#define {name} {value}" for name, value in defined.items()),
            '#include "gpu/device.h"', '#include "motion.h"', '#include "lanes.h"', f"enum {{ {', '.join(numbers)} }};",
            f"typedef struct {{ void *at[{len(self.buffers)}]; }} Buffers;",
            f"CONSTANT T uniform[{max(uniform, 1)}];",
            f"CONSTANT const double in_norm[] = {{{_numbers(self.norm)}}};",
            f"CONSTANT const double tableau[] = {{{_numbers(self.tableau)}}};",
        ]  # fmt: skip

    def _longest_stride(self) -> int:
        """The largest number of steps from a checkpoint to the next one, as `motion.h` has it."""
        most, rows = self.settings["max_steps"], self.settings["rows"]
        return 2 ** next(level for level in range(64) if most - 1 < rows << level)

    def _absent(self) -> list[str]:
        """The functions of the programs that the motion does not have, which are never called."""
        there = {(part.name, part.role) for part in self.parts}
        derivatives = [name for name in PROGRAMS if name.endswith("DERIVATIVE")]
        wanted = [(k, SLOPE) for k in PROGRAMS if k not in derivatives]
        wanted += [(k, role) for k in derivatives for role in (TANGENT, PULL)]
        return [f"{function(role, name)[0]}}}" for name, role in wanted if (name, role) not in there]

    def _all(self) -> list[str]:
        """The functions that begin all programs, and tell whether something happens after a step."""
        lines = ["INLINE void begin_all_lanes(const Motion *m, V *const *at, const int64_t *instances) {"]
        lines += [f"begin_{part.name}(m, at[{part.name}], instances);" for part in self.parts]
        after = next((part for part in self.parts if part.name == "AFTER"), None)
        settles = f"{int(after is not None)}"
        if after is not None and after.condition >= 0:
            place = after.place(after.condition)
            settles = f"*OF({place}, {self.buffers[place].size if self.buffers[place].varies else 0}) != 0"
        head = "INLINE int settles_lanes(const Motion *m, const int64_t *instances)"
        return [*lines, "}", f"{head} {{ return {settles}; }}"]

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
        lines += [f"m->n = STATES(m), m->moving = MOVING(m), m->method.stages = {s}, m->method.degree = {self.degree};"]
        lines += [f"m->method.{name} = tableau + {start};" for name, start in starts.items()]
        lines += [f"m->{name} = {value};" for name, value in self.settings.items()]
        for place, array in enumerate(self.arrays, first):
            if array:
                size, varies = self.buffers[place]
                values = {"data": f"b.at[{place}]", "size": size, "varies": int(varies)}
                lines += [f"m->{array}.{field} = {value};" for field, value in values.items()]
        return lines


def _numbers(numbers: np.ndarray) -> str:
    return ", ".join(float(x).hex() for x in numbers)
