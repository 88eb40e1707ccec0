"""The text of `model.c`: the sizes, the numbers and the functions of one mechanism, which the C files beside it use."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from jaxmbd.engine.machine.c_function import PRELUDE
from jaxmbd.engine.machine.straight_line import literal
from jaxmbd.integrate.adjoint.step_programs import numbers_of
from jaxmbd.integrate.solvers.unrolled_erk import ExplicitMethod
from jaxmbd.io.fmu.plant import Plant
from jaxmbd.io.fmu.variables import Variable
from jaxmbd.state.state import State

HERE = Path(__file__).parent


def model_text(
    plant: Plant, state: State, variables: Sequence[Variable], functions: str, solver: ExplicitMethod, step: float
) -> str:  # fmt: skip
    """The text of `model.c`; `functions`: those of the plant."""
    states, memory, inputs, parameters = plant.sizes
    a, b, c = _method(solver)
    rows = plant.selection.rows
    sizes = {
        "STATES": states, "COORDINATES": plant.mechanism.nq, "MEMORY": memory, "INPUTS": inputs,
        "PARAMETERS": parameters, "OUTPUTS": sum(one.kind == "output" for one in variables),
        "HEIGHTS": plant.heights, "SWITCHES": plant.switches, "STAGES": len(b),
        "CLOSES": int(sum(plant.mechanism.constraint_sizes()) > 0), "STEP": literal(step),
    }  # fmt: skip
    numbers = {
        "start_states[STATES + 1]": np.concatenate([state.q, state.v, state.z]),
        "start_memory[MEMORY + 1]": np.zeros(0) if rows is None else np.asarray(rows, float),
        "start_parameters[PARAMETERS + 1]": plant.values,
        "nominals[STATES + 1]": [one.nominal for one in variables if one.kind == "state"],
        "method_b[STAGES]": b, "method_c[STAGES]": c,
    }  # fmt: skip
    lines = [
        "/* The numbers and the functions of one mechanism, written by jaxmbd; SI units. */",
        *(f"#define {name} {size}" for name, size in sizes.items()),
        f"static const double start_time = {literal(float(state.t))};",
        *(f"static const double {name} = {{{_list([*map(float, of), 0.0])}}};"
          if "+ 1" in name else f"static const double {name} = {{{_list(of)}}};" for name, of in numbers.items()),
        f"static const double method_a[STAGES][STAGES] = {{{', '.join(f'{{{_list(row)}}}' for row in a)}}};",
        f"static const char *const names[] = {{{', '.join(_quoted(one.name) for one in variables)}}};",
        PRELUDE + '#include "lanes.h"',
        functions,
        *(f"#undef {name}" for name in _macros()),  # the files behind must not see them
    ]  # fmt: skip
    return "\n".join([*lines, ""])


def lanes_text() -> str:
    """The operations on numbers, which `model.c` includes."""
    from_engine = HERE.parents[1] / "engine" / "machine" / "lanes.h"
    return from_engine.read_text(encoding="utf-8")


def _macros() -> list[str]:
    return sorted(set(re.findall(r"^ *# *define (\w+)", PRELUDE + lanes_text(), re.MULTILINE)) - {"__attribute__"})


def identifier(name: str) -> str:
    """A name as an identifier of C."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return word if re.match(r"[A-Za-z_]", word) else f"_{word}"


def _method(solver: ExplicitMethod) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tableau of a method, without the last stages if no result depends on them: they serve dense output and the
    estimate of errors."""
    tableau = numbers_of(solver)
    s = tableau.stages
    a, b, c = (tableau.numbers[i:j] for i, j in ((0, s * s), (s * s, s * s + s), (s * s + s, s * s + 2 * s)))
    used = np.flatnonzero(b)[-1] + 1
    return a.reshape(s, s)[:used, :used], b[:used], c[:used]


def _list(numbers: Iterable[float]) -> str:
    return ", ".join(literal(float(x)) for x in numbers)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("??", "?\\?")  # no trigraphs
