"""`export_c`: a mechanism as one C file with a header, for real-time programs."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from jaxmbd.checks import as_path
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.io.fmu.c_model import CModel, Names, Settings, c_model
from jaxmbd.io.fmu.c_source import HERE, identifier, lanes_text
from jaxmbd.io.fmu.variables import Variable
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.replacement import folder_beside
from jaxmbd.state.state import State

_INCLUDE = re.compile(r'^#include "lanes.h"$', re.MULTILINE)
_MOTION = re.compile(r"^typedef struct \{[^}]*\} Motion;$", re.MULTILINE)

_HEADER = """\
/* A mechanism in C, written by jaxmbd; SI units. Nothing is allocated, and all that changes is in a struct.

     {name} m;
     {name}_start(&m);           the start values, with closed joints
     m.u[0] = 2.0;               inputs: they may change at any time
     {name}_advance(&m, 0.001);  to a time, by equal steps of {step:g} s at most
     {name}_outputs(&m, y);      those that are states are in m.x

   After a change of m.x or m.p, call {name}_close. Functions that return an int return 0 if they fail: joints that
   cannot be closed, which leaves the state as it was; a state that is not finite, which leaves the last one before. */

#ifndef {guard}
#define {guard}
#ifdef __cplusplus
extern "C" {{
#endif

{places}

/* `x`: the state; `u`: inputs; `p`: parameters; all else is the library's own. */
{struct}

int {name}_start({name} *m);
int {name}_close({name} *m);
int {name}_advance({name} *m, double t);
/* The state with speeds that satisfy the constraints; those in m.x violate them by the errors of steps. */
void {name}_state(const {name} *m, double *x);
void {name}_outputs(const {name} *m, double *y);
void {name}_rates(const {name} *m, double *dx);
/* Derivatives of rates and outputs by the time, the state, inputs and parameters: forward, and transposed. */
void {name}_tangents(const {name} *m, double dt, const double *dx, const double *du, const double *dp, double *rates,
                     double *outputs);
void {name}_cotangents(const {name} *m, const double *rates, const double *outputs, double *t, double *x, double *u,
                       double *p);

#ifdef __cplusplus
}}
#endif
#endif
"""


def export_c(
    mechanism: Mechanism,
    path: str | os.PathLike[str],
    state: State | None = None,
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    parameters: Iterable[str] = (),
    solver: Any = None,
    step: Any = None,
    formulation: AbstractFormulation | None = None,
) -> None:
    """Write a mechanism as one C file and a header beside it, for programs in real time.

    It is the text of an FMU (`export_fmu`) without FMI: states, inputs and parameters in a struct, functions that close
    joints, advance the motion by equal steps of an explicit Runge-Kutta method, and compute outputs, rates and their
    derivatives. The header says how they are called and where each variable is. C99; nothing is allocated.

    **Arguments:** `path`, the C file, which ends with `.c`; its name is the prefix of all names in it. The others are
    those of `export_fmu`.

    **Raises:** `MechanismError`, as `export_fmu`.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> names = {"inputs": ["O.angle"], "outputs": ["rod.position"], "parameters": ["*.mass"]}
        >>> mbd.export_c(pendulum.mechanism, "pendulum.c", pendulum.state(), **names)
    """
    path = as_path("export_c", path)
    if path.suffix != ".c":
        raise MechanismError(f"A C file ends with .c, such as 'crank.c', got {str(path)!r}.")
    built = c_model(
        "export_c",
        mechanism,
        state,
        Names(inputs, outputs, parameters),
        Settings(solver, step, formulation),
        adjoint=True,
    )
    name = identifier(path.stem)
    motion, single = ((HERE / file).read_text(encoding="utf-8") for file in ("motion.c", "single.c"))
    head = f'#include "{path.stem}.h"\n\n#define Motion {name}\n#define MODEL_PREFIX {name}_\n'
    body = _INCLUDE.sub(lambda _: lanes_text(), built.text)
    texts = {path.name: "\n".join([head, body, motion, single]), f"{path.stem}.h": _header(name, built, motion)}
    with folder_beside(path) as folder:
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8", newline="\n")
            os.replace(folder / file, path.parent / file)


def _header(name: str, built: CModel, motion: str) -> str:
    found = _MOTION.search(motion)
    assert found is not None
    states, memory, inputs, parameters = built.plant.sizes
    sizes = {"STATES": states, "MEMORY": memory, "INPUTS": inputs, "PARAMETERS": parameters}
    sizes["SWITCHES"] = built.plant.switches
    struct = re.sub(r"\b([A-Z]+) \+ 1\b", lambda size: str(sizes[size[1]] + 1), found[0]).replace("Motion;", f"{name};")
    letters = {"state": "x", "input": "u", "parameter": "p", "output": "y"}
    places = "\n".join(
        _places(f"{name}_{letter}", kind, [one for one in built.variables if one.kind == kind])
        for kind, letter in letters.items()
    )
    guard = f"{name}_h".upper()
    return _HEADER.format(name=name, step=built.step, guard=guard, places=places, struct=struct)


def _places(prefix: str, kind: str, variables: Sequence[Variable]) -> str:
    """The places of the variables of a kind as constants, with their names and units."""
    words = [identifier(one.name) for one in variables]
    lines = [f"#define {prefix}_size {len(variables)} /* {kind}s */"]
    for k, (one, word) in enumerate(zip(variables, words, strict=True)):
        comment = f"{one.name} [{one.unit}]" if one.unit else one.name
        word = word if words.count(word) == 1 else f"{word}_{k}"
        lines.append(f"#define {prefix}_{word} {k} /* {comment.replace('*/', '* /')} */")
    return "\n".join(lines)
