"""Libraries that a wheel brings along, compiled for several instruction sets, so that no compiler is needed.

`hatch_build.py` makes them. The name of a library says for which instructions, for which version of XLA's foreign
function interface and from which sources it was made; one is used only if all three fit, and else compiled here. Like
the modules beside them they are what the installer has put there, so their owners are not checked.
"""

import ctypes
import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from jaxmbd.engine.machine.c_library import HERE, CLibrary, processor

FOLDER = HERE / "prebuilt"


@dataclass(frozen=True)
class InstructionSet:
    """Instructions that all processors of a level have.

    `architecture`: of the processor, as in `platform.machine()`; `flags`: what `/proc/cpuinfo` lists for a processor
    that has them; `options`: what compilers are told. Old compilers do not know the names of the levels.
    """

    name: str
    architecture: str
    flags: frozenset[str]
    options: tuple[str, ...]


_V3 = frozenset(["avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"])
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_V3_OPTIONS = ("-march=x86-64", "-mavx2", "-mbmi", "-mbmi2", "-mf16c", "-mfma", "-mlzcnt", "-mmovbe")
_V4_OPTIONS = (*_V3_OPTIONS, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
# The best first. The levels are those of the x86-64 psABI, https://gitlab.com/x86-psABIs/x86-64-ABI
INSTRUCTION_SETS = (
    InstructionSet("x86-64-v4", "x86_64", _V4, _V4_OPTIONS),
    InstructionSet("x86-64-v3", "x86_64", _V3, _V3_OPTIONS),
    InstructionSet("x86-64", "x86_64", frozenset(), ("-march=x86-64",)),
    InstructionSet("armv8-a", "aarch64", frozenset(), ("-march=armv8-a",)),
)


def load_prebuilt(library: CLibrary) -> tuple[InstructionSet, ctypes.CDLL] | None:
    """Load the best prebuilt form of a library that the processor can run; None if there is none.

    XLA takes what was made for the minor version of its foreign function interface, or for an older one.
    """
    if not FOLDER.exists():
        return None
    major, newest = ffi_version()
    for instructions in INSTRUCTION_SETS:
        if instructions.architecture != platform.machine() or not instructions.flags <= set(processor().split()):
            continue
        made = made_for(library, instructions)
        for minor in range(newest, -1, -1):
            path = FOLDER / file_name(made, instructions, (major, minor))
            if path.exists() and made.is_whole(path.read_bytes()) and (loaded := made.load(path)) is not None:
                return instructions, loaded
    return None


def made_for(library: CLibrary, instructions: InstructionSet) -> CLibrary:
    """The library, compiled for an instruction set."""
    return replace(library, instructions=instructions.options)


def file_name(library: CLibrary, instructions: InstructionSet, ffi: tuple[int, int]) -> str:
    """The name of the file with a library for an instruction set and a version of XLA's foreign function interface."""
    return f"{library.name}-{instructions.name}-ffi{ffi[0]}.{ffi[1]}-{library.sources}.so"


def ffi_version() -> tuple[int, int]:
    """The version of XLA's foreign function interface, from its header: incompatible changes, and compatible ones."""
    header = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    numbers = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", header, re.MULTILINE))
    return int(numbers["MAJOR"]), int(numbers["MINOR"])
