"""`export_fmu`: a mechanism as a Functional Mock-up Unit."""

import hashlib
import os
import platform
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxmbd.checks import as_path, check_flags
from jaxmbd.engine.machine.c_library import cause, shared_library
from jaxmbd.errors import MechanismError, shown
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.io.fmu.c_model import Names, Settings, c_model
from jaxmbd.io.fmu.c_source import HERE, identifier, lanes_text
from jaxmbd.io.fmu.description import Model, build_description, description_2, description_3
from jaxmbd.io.fmu.plant import PlantCode
from jaxmbd.io.fmu.variables import Variable
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.replacement import folder_beside
from jaxmbd.state.state import State

VERSIONS = ("3.0", "2.0")
_FLAGS = ("-std=gnu99", "-O1", "-fvisibility=hidden")
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the date of all files in the archive, so that equal models are equal files
SYSTEMS = {"Linux": ("linux", ".so"), "Darwin": ("darwin", ".dylib"), "Windows": ("win", ".dll")}
PROCESSORS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def export_fmu(
    mechanism: Mechanism,
    path: str | os.PathLike[str],
    state: State | None = None,
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    parameters: Iterable[str] = (),
    version: str = "3.0",
    solver: Any = None,
    step: Any = None,
    formulation: AbstractFormulation | None = None,
    binary: bool = True,
) -> None:
    """Write a mechanism as a Functional Mock-up Unit (FMU), for model exchange and co-simulation by other programs.

    The file holds `ẋ = f(t, x, u, p)`, `y = g(t, x, u, p)` for the states `x = (q, v, z)` as C source, and a binary
    for the computer that writes it. It needs neither Python nor jaxmbd. FMUs have any number of instances, keep and
    serialize their states, and allocate nothing in a step. `GetDirectionalDerivative` and, in FMI 3.0,
    `GetAdjointDerivative` are exact: those of rates and outputs by states, inputs, parameters and the time.

    Joints are kept closed as `simulate` does it. When states or parameters were set, at the start or in Event Mode or
    between steps, the state is first put onto the constraints, by the smallest change in the metric of the mass matrix.
    In co-simulation a communication step is divided into equal steps of an explicit Runge-Kutta method, and inputs are
    held over it. Steps end where functions of time switch; in model exchange these times are time events. Laws with
    kinks, such as `Backlash`, are smooth between events in model exchange, which the variables `"teeth.heights[0]"`
    indicate; in co-simulation steps pass over kinks.

    **Arguments:**

    - `mechanism`; `path`, the file, which ends with `.fmu` and is replaced if there is one;
    - `state`, the start values of the states, and the time; by default `assemble(mechanism)`. An importer may change
      them;
    - `inputs`: names from `inputs(mechanism)`; each is added to what the mechanism has, and zero at first. An input
      with the name of a quantity is the variable `"O.angle.input"`;
    - `outputs`: names of quantities, as in `solution["rod.position"]`; vectors become one variable for each component,
      `"rod.position[0]"`. An output that is a state is that state;
    - `parameters`: names or patterns of numbers, as in `numbers`, which an importer may change; all others are fixed;
    - `version`: `"3.0"` or `"2.0"`;
    - `solver`: the method of co-simulation, `RungeKutta4()` by default, or an explicit one of diffrax;
    - `step` `[s]`: the longest step of that method; by default a tenth of the time constant of the fastest small motion
      about the state (`time_scales`), at most a hundredth of the unit of time that suits the mechanism;
    - `formulation`: `Stabilized()` by default, or `Augmented(...)`;
    - `binary`: False to write the source alone, which importers compile.

    **Raises:** `MechanismError` for unknown names, for parts that change at events or instants of their own (dry
    friction that sticks, sampled controllers), for a law that is no program, such as one that calls back to Python, and
    if there is no C compiler.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> arguments = {"inputs": ["O.angle"], "outputs": ["O.angle", "rod.position"], "parameters": ["rod.mass"]}
        >>> mbd.export_fmu(pendulum.mechanism, "pendulum.fmu", pendulum.state(), **arguments, binary=False)

    Source: Modelica Association, *Functional Mock-up Interface Specification*, versions 3.0.2 and 2.0.5.
    """
    check_mechanism(mechanism)
    path = as_path("export_fmu", path)
    if path.suffix != ".fmu":
        raise MechanismError(f"An FMU is a file that ends with .fmu, such as 'crank.fmu', got {str(path)!r}.")
    check_flags("export_fmu", binary=binary)
    if not isinstance(version, str) or version not in VERSIONS:
        raise MechanismError(f"export_fmu: version must be {' or '.join(map(repr, VERSIONS))}, got {shown(version)}.")
    built = c_model(
        "export_fmu", mechanism, state, Names(inputs, outputs, parameters), Settings(solver, step, formulation),
        adjoint=version == "3.0", has_events=True,
    )  # fmt: skip
    model = Model(
        path.stem, identifier(path.stem), _described(mechanism), built.variables,
        _dependencies(built.variables, built.code), built.start, built.step,
    )  # fmt: skip
    files = _files(model, built.text, version)
    if binary:
        files |= _binary(model, files, version)
    _write(path, files)


def _described(mechanism: Mechanism) -> str:
    bodies = ", ".join(body.name for body in mechanism.bodies[:8])
    more = ", …" * (len(mechanism.bodies) > 8)
    return f"Mechanism of the bodies {bodies}{more}; {mechanism.nq} coordinates and {mechanism.nv} speeds"


def _dependencies(variables: Sequence[Variable], code: PlantCode) -> dict[int, list[int]]:
    """On which states, inputs and times each rate and output depends, by value references."""
    first = {kind: next((k for k, one in enumerate(variables) if one.kind == kind), 0) for kind in ("state", "input")}
    starts = {"t": 0, "x": first["state"], "u": first["input"]}
    reference = lambda found: sorted(starts[array] + element for array, element in found)  # noqa: E731
    rates, outputs = ([k for k, one in enumerate(variables) if one.kind == kind] for kind in ("rate", "output"))
    found = dict(zip((*rates, *outputs), map(reference, (*code.of_rates, *code.of_outputs)), strict=True))
    # An output that is a state depends on that alone.
    return found | {k: [k] for k, one in enumerate(variables) if one.kind == "state" and one.is_output}


def _files(model: Model, text: str, version: str) -> dict[str, bytes]:
    """The files of an FMU by their paths, without the binary; the token is a hash of all of them."""
    number = version[0]
    describe = description_3 if number == "3" else description_2
    headers = sorted((HERE / "headers").glob(f"fmi{number}*.h"))
    sources = {name: (HERE / name).read_text(encoding="utf-8") for name in ("motion.c", "instance.c", f"fmi{number}.c")}
    sources |= {f"headers/{each.name}": each.read_text(encoding="utf-8") for each in headers} | {
        "lanes.h": lanes_text()
    }
    content = "\n".join([version, text, describe(model, ""), *sources.values()])
    token = "{" + hashlib.sha256(content.encode()).hexdigest()[:32] + "}"
    head = (
        f'#define TOKEN "{token}"\n#define MODEL_PREFIX {model.identifier}_\n#define HAS_ADJOINT {int(number == "3")}\n'
    )
    files = {"modelDescription.xml": describe(model, token), "sources/model.c": head + text}
    files |= {f"sources/{name}": source for name, source in sources.items()}
    if number == "3":
        files["sources/buildDescription.xml"] = build_description(model.identifier)
    return {name: content.encode() for name, content in files.items()}


def _binary(model: Model, files: dict[str, bytes], version: str) -> dict[str, bytes]:
    """The shared library for this computer, by its path."""
    number = version[0]
    system, processor = platform.system(), PROCESSORS.get(platform.machine().lower(), platform.machine().lower())
    called, ending = SYSTEMS.get(system, (system.lower(), ".so"))
    folder = {
        "3": f"{processor}-{'windows' if called == 'win' else called}",
        "2": f"{called}{'64' if processor.endswith('64') else '32'}",
    }[number]
    with tempfile.TemporaryDirectory(prefix="jaxmbd-") as place:
        for name, content in files.items():
            if name.startswith("sources/"):
                file = Path(place, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        try:
            source = Path(place, "sources", f"fmi{number}.c")
            library = shared_library(source, *_FLAGS, f"-DFMI{number}_OVERRIDE_FUNCTION_PREFIX")
        except (OSError, subprocess.SubprocessError) as error:
            raise MechanismError(
                f"export_fmu: the binary could not be compiled: {cause(error)} Name a C compiler in the environment "
                "variable CC, or write the source alone, binary=False."
            ) from error
    return {f"binaries/{folder}/{model.identifier}{ending}": library}


def _write(path: Path, files: dict[str, bytes]) -> None:
    with folder_beside(path) as folder:
        new = folder / path.name
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, _EARLIEST)
                entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
                archive.writestr(entry, files[name])
        os.replace(new, path)
