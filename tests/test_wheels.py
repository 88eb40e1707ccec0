"""The wheels of all systems, as `make wheels` builds them: what their libraries are, and that they run where they can.

They lie in `dist`, or in the folder that `JAXMBD_DIST` names; the tests of those that are missing are skipped.
"""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from jaxmbd.engine.binding.jax_binding import register
from jaxmbd.engine.binding.tracing import traced
from jaxmbd.engine.machine.build_vm import call_program, machine
from jaxmbd.engine.machine.c_library import architecture
from jaxmbd.engine.machine.gpu.launcher import launcher_library
from jaxmbd.engine.machine.prebuilt import ENDINGS, INSTRUCTION_SETS, features_library, made_for
from jaxmbd.engine.program.schedule import Program
from tests.engine.machine.test_straight_line import elementary
from tests.test_wheel import check_it_needs_no_compiler

ROOT = Path(__file__).parents[1]
DIST = Path(os.environ.get("JAXMBD_DIST", ROOT / "dist"))
WINDOWS_LIBRARIES = r"api-ms-win-crt-[a-z]+-l1-1-0\.dll|KERNEL32\.dll"
LINUX_LIBRARIES = r"(libc|libm|libdl|libpthread|ld-linux-(x86-64|aarch64))\.so\.\d"
BATCH = 37
pytestmark = pytest.mark.slow


def hook() -> ModuleType:
    specification = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    assert specification.loader is not None
    specification.loader.exec_module(module)
    return module


TARGETS = hook().TARGETS


@pytest.fixture(params=TARGETS, ids=lambda target: target.tag)
def target(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def wheel(target: Any) -> Path:
    """The wheel for a platform."""
    found = [*DIST.glob(f"jaxmbd-*-py3-none-{target.tag}.whl")]
    if len(found) != 1:
        pytest.skip(f"there is no wheel for {target.tag} in {DIST}; make wheels builds it")
    return found[0]


def libraries(wheel: Path, folder: Path) -> list[Path]:
    """The prebuilt libraries of a wheel, in a folder."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/prebuilt/" in name]
        return sorted(Path(archive.extract(name, folder)) for name in names)


def machines(wheel: Path, folder: Path) -> Iterator[Path]:
    return (path for path in libraries(wheel, folder) if path.name.startswith("machine-"))


def test_a_wheel_has_the_libraries_of_its_platform(target: Any, wheel: Path, tmp_path: Path) -> None:
    """Made from these sources, and whole."""
    wanted = {"Linux": [launcher_library()], "Windows": [features_library()], "Darwin": []}
    expected = {}
    for library in (machine(), *wanted[target.system]):
        for instructions in INSTRUCTION_SETS:
            if instructions.architecture == target.architecture and (
                library.name != "features" or not instructions.flags
            ):
                made = made_for(library, instructions)
                expected[f"{library.name}-{instructions.name}-{made.sources}"] = made
    found = libraries(wheel, tmp_path)
    assert {re.sub(r"-ffi\d+\.\d+", "", path.stem) for path in found} == set(expected)
    for path in found:
        assert path.suffix == ENDINGS[target.system]
        made, content = expected[re.sub(r"-ffi\d+\.\d+", "", path.stem)], path.read_bytes()
        assert made.is_whole(content)
        assert not made.is_whole(content[: len(content) // 2])
        assert check_file(path, target) >= set(made.symbols)


def check_file(path: Path, target: Any) -> set[str]:
    """Check the kind of a library and what it needs, and return the functions that it has."""
    lief: Any = pytest.importorskip("lief")
    found = lief.parse(str(path))
    if target.system == "Linux":
        assert found.format == lief.Binary.FORMATS.ELF
        assert (
            found.header.machine_type
            == {"x86_64": lief.ELF.ARCH.X86_64, "aarch64": lief.ELF.ARCH.AARCH64}[target.architecture]
        )
        assert all(re.fullmatch(LINUX_LIBRARIES, name) for name in found.libraries), found.libraries
        versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes())
        assert max((int(major), int(minor)) for major, minor in versions) <= (2, 28)
        assert not found.has_section(".debug_info")
    elif target.system == "Darwin":
        assert found.format == lief.Binary.FORMATS.MACHO
        assert found.header.cpu_type == lief.MachO.Header.CPU_TYPE.ARM64
        own = [lib.name for lib in found.libraries if lib.command != lief.MachO.LoadCommand.TYPE.ID_DYLIB]
        assert own == ["/usr/lib/libSystem.B.dylib"]
        assert [*found.build_version.minos][:2] == [11, 0]
        assert found.has_code_signature  # the system loads nothing without one
    else:
        assert found.format == lief.Binary.FORMATS.PE
        assert found.header.machine == lief.PE.Header.MACHINE_TYPES.AMD64
        assert all(re.fullmatch(WINDOWS_LIBRARIES, name) for name in found.libraries), found.libraries
        return {entry.name for entry in found.get_export().entries}
    return {function.name.removeprefix("_") for function in found.exported_functions}


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump reads machine code")
def test_no_library_has_instructions_that_its_processors_lack(target: Any, wheel: Path, tmp_path: Path) -> None:
    """By the registers of x86: those of 512 bits from x86-64-v4 on, of 256 bits from v3 on."""
    if target.architecture != "x86_64":
        pytest.skip("objdump knows the machine code of this computer")
    for path in libraries(wheel, tmp_path):
        code = subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True).stdout
        is_machine = path.name.startswith("machine-")
        assert ("%zmm" in code) == (is_machine and "-v4-" in path.name), path.name
        assert ("%ymm" in code) == (is_machine and ("-v4-" in path.name or "-v3-" in path.name)), path.name


def array(kind: str, name: str, numbers: np.ndarray) -> str:
    text = ", ".join(float(x).hex() if kind == "double" else str(x) for x in numbers.ravel().tolist())
    return f"static {kind} {name}[] = {{{text or 0}}};"


def written_call(program: Program, inputs: list[np.ndarray]) -> str:
    """The header with which `foreign_call.c` calls a program."""
    kinds = {np.dtype(np.int64): "int64_t", np.dtype(np.int32): "int32_t", np.dtype(np.float64): "double"}
    lines = [array(kinds[x.dtype], f"table_{k}", x) for k, x in enumerate(program.tables)]
    lines += [array("double", f"input_{k}", x) for k, x in enumerate(inputs)]
    outputs = len(program.output_sizes)
    names = [f"input_{k}" for k in range(len(inputs))] + [f"output_{k}" for k in range(outputs)]
    lines += [f"static double output_{k}[{BATCH}];" for k in range(outputs)]
    sizes = ", ".join(str(x) for x in [*(x.size for x in inputs), *[BATCH] * outputs])
    lines += [f"static void *data[] = {{{', '.join(names)}}};", f"static int64_t sizes[] = {{{sizes}}};"]
    lines += [f"enum {{ BATCH = {BATCH}, INPUTS = {len(inputs)}, OUTPUTS = {outputs} }};"]
    return "\n".join(lines)


def emulator(target: Any) -> list[str] | None:
    """The command that runs programs of a platform here, empty if none is needed; None if there is none.

    Wine and QEMU are used where they are on the path; QEMU finds the C library of ARM where `QEMU_LD_PREFIX` says.
    """
    if (target.system, target.architecture) == (platform.system(), architecture()):
        return []
    names = {
        "Windows": ("wine64", "wine"),
        "Linux": (f"qemu-{target.architecture}-static", f"qemu-{target.architecture}"),
    }
    return next(([name] for name in names.get(target.system, ()) if shutil.which(name)), None)


def test_libraries_run_where_they_are_emulated(
    target: Any, wheel: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Every operation of programs, to some units in the last place: the C library is another one."""
    pytest.importorskip("ziglang")
    run = emulator(target)
    if run is None:
        pytest.skip(f"nothing here runs programs of {target.tag}")
    program = traced(elementary, [jax.ShapeDtypeStruct((), np.float64)] * 2).program
    assert program is not None
    inputs = [rng.normal(0.0, 2.0, BATCH), rng.normal(0.0, 2.0, BATCH), *map(np.asarray, program.constant_tables)]
    (tmp_path / "call.h").write_text(written_call(program, inputs))
    caller = tmp_path / "caller.exe"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", target.clang, "-O1", f"-I{tmp_path}"]
    subprocess.run([*zig, str(ROOT / "tests" / "foreign_call.c"), "-o", str(caller)], check=True)
    results = [jax.ShapeDtypeStruct((BATCH,), np.float64)] * len(program.output_sizes)
    expected = np.array(call_program(register(program), BATCH, np.float64, inputs, results))
    tried = 0
    for path in machines(wheel, tmp_path):
        done = subprocess.run([*run, str(caller), str(path)], capture_output=True, text=True)
        if done.returncode < 0 or ("-v4-" in path.name and done.returncode):
            continue  # this processor, or its emulation, does not have these instructions
        assert done.returncode == 0, (path.name, done.stderr)
        found = np.array([int(line, 16) for line in done.stdout.split()], np.uint64).view(np.float64)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-13, atol=1e-13, err_msg=path.name)
        tried += 1
    assert tried > 0


def test_the_wheel_for_this_system_needs_no_compiler(target: Any, wheel: Path, tmp_path: Path) -> None:
    if (target.system, target.architecture) != (platform.system(), architecture()):
        pytest.skip(f"{target.tag} is not this system")
    check_it_needs_no_compiler(wheel, tmp_path)
