"""Libraries that a wheel brings along, compiled for several instruction sets, so that no compiler is needed.

`hatch_build.py` makes them. The name of a library says for which instructions, for which version of XLA's foreign
function interface and from which sources it was made; one is used only if all three fit, and else compiled here. Like
the modules beside them they are what the installer has put there, so their owners are not checked.

What the processor can run is told by Linux, and on Windows by a small library that asks the processor, `features.c`,
which comes with the wheel too. On macOS all ARM processors are at least what is compiled for.
"""

import ctypes
import platform
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jax

from jaxmbd.engine.machine.c_library import HERE, WIDE, CLibrary, architecture, processor

FOLDER = HERE / "prebuilt"
ENDINGS = {"Linux": ".so", "Darwin": ".dylib", "Windows": ".dll"}  # of libraries, by `platform.system()`


@dataclass(frozen=True)
class InstructionSet:
    """Instructions that all processors of a level have.

    `architecture`: of the processor, as Linux calls it; `flags`: what `/proc/cpuinfo` lists for a processor that has
    them; `options`: what compilers are told. Old compilers do not know the names of the levels.
    """

    name: str
    architecture: str
    flags: frozenset[str]
    options: tuple[str, ...]


_V3 = frozenset(["avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"])
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_BASE_OPTIONS = ("-march=x86-64", *WIDE)
_V3_OPTIONS = (*_BASE_OPTIONS, "-mavx2", "-mbmi", "-mbmi2", "-mf16c", "-mfma", "-mlzcnt", "-mmovbe")
_V4_OPTIONS = (*_V3_OPTIONS, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
# The best first. The levels are those of the x86-64 psABI, https://gitlab.com/x86-psABIs/x86-64-ABI
INSTRUCTION_SETS = (
    InstructionSet("x86-64-v4", "x86_64", _V4, _V4_OPTIONS),
    InstructionSet("x86-64-v3", "x86_64", _V3, _V3_OPTIONS),
    InstructionSet("x86-64", "x86_64", frozenset(), _BASE_OPTIONS),
    InstructionSet("armv8-a", "aarch64", frozenset(), ("-march=armv8-a",)),
)


def load_prebuilt(library: CLibrary) -> tuple[InstructionSet, ctypes.CDLL] | None:
    """Load the best prebuilt form of a library that the processor can run; None if there is none.

    XLA takes what was made for the minor version of its foreign function interface, or for an older one.
    """
    for instructions in INSTRUCTION_SETS:
        if instructions.architecture == architecture() and instructions.flags <= features():
            loaded = _loaded(made_for(library, instructions), instructions)
            if loaded is not None:
                return instructions, loaded
    return None


def _loaded(made: CLibrary, instructions: InstructionSet) -> ctypes.CDLL | None:
    """A library as it is prebuilt for an instruction set; None if it is not."""
    if not FOLDER.exists():
        return None
    major, newest = ffi_version()
    for minor in range(newest, -1, -1):
        path = FOLDER / file_name(made, instructions, (major, minor), platform.system())
        if path.exists() and made.is_whole(path.read_bytes()) and (loaded := made.load(path)) is not None:
            return loaded
    return None


def features() -> frozenset[str]:
    """What this processor has, by the names in `InstructionSet.flags`; empty if that is unknown."""
    return frozenset(processor().split()) or _asked()


@cache
def _asked() -> frozenset[str]:
    """What an x86 processor says by itself, where the system does not tell."""
    for instructions in INSTRUCTION_SETS:
        if instructions.architecture == architecture() == "x86_64" and not instructions.flags:
            library = _loaded(made_for(features_library(), instructions), instructions)
            if library is not None:
                library.jaxmbd_features.restype = ctypes.c_char_p
                return frozenset(library.jaxmbd_features().decode().split())
    return frozenset()


@cache
def features_library() -> CLibrary:
    """The library that asks an x86 processor what it has; it must run on any."""
    text = '#include "features.c"\n'
    return CLibrary("features", ("jaxmbd_features",), ("features.c",), lambda: text, "", ("-O2",))


def made_for(library: CLibrary, instructions: InstructionSet) -> CLibrary:
    """The library, compiled for an instruction set."""
    return replace(library, instructions=instructions.options)


def file_name(library: CLibrary, instructions: InstructionSet, ffi: tuple[int, int], system: str) -> str:
    """The name of the file with a library for an instruction set, a version of XLA's foreign function interface, and a
    system, as in `platform.system()`."""
    ending = ENDINGS.get(system, ".so")
    return f"{library.name}-{instructions.name}-ffi{ffi[0]}.{ffi[1]}-{library.sources}{ending}"


def ffi_version() -> tuple[int, int]:
    """The version of XLA's foreign function interface, from its header: incompatible changes, and compatible ones."""
    header = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    numbers = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", header, re.MULTILINE))
    return int(numbers["MAJOR"]), int(numbers["MINOR"])
