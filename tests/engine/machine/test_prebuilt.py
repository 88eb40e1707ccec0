"""Libraries that wheels bring along: the best that the processor runs is used, and only if it is what it should be."""

import ctypes
import platform
import struct
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmbd.engine.binding.jax_binding import register
from jaxmbd.engine.binding.tracing import traced
from jaxmbd.engine.machine import build_vm, prebuilt, straight_line_compiler
from jaxmbd.engine.machine.build_vm import machine
from jaxmbd.engine.machine.c_library import NATIVE, CLibrary, _length, architecture, compiler, processor
from jaxmbd.engine.machine.prebuilt import INSTRUCTION_SETS, file_name, made_for
from tests.engine.machine.test_straight_line import elementary

V4, V3, BASE, ARM = INSTRUCTION_SETS
SYMBOLS = ("answer", "jaxmbd_padding_of_a_library")
FFI = (0, 3)
HERE = [x for x in INSTRUCTION_SETS if x.architecture == architecture() and x.flags <= prebuilt.features()]


def small(folder: Path, text: str = "") -> CLibrary:
    """A library that is compiled in an instant."""
    header = folder / "small.h"
    header.write_text(f"#define NUMBER 42 /* {text} */")
    code = f'#include "{header}"\nint answer(void) {{ return NUMBER; }}\nint {SYMBOLS[1]};'
    return CLibrary("small", SYMBOLS, (str(header),), lambda: code, "", ())


def runs_on(monkeypatch: pytest.MonkeyPatch, system: str, architecture: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: architecture)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CLibrary:
    """A library, on Linux, a processor with AVX-512 and an XLA of version 0.3; an empty folder for what is prebuilt."""
    runs_on(monkeypatch, "Linux", "x86_64")
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    monkeypatch.setattr(prebuilt, "FOLDER", folder)
    monkeypatch.setattr(prebuilt, "ffi_version", lambda: FFI)
    has_flags(monkeypatch, V4.flags)
    return small(tmp_path)


def has_flags(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str]) -> None:
    monkeypatch.setattr(prebuilt, "processor", lambda: f"flags : fpu {' '.join(flags)}")


def put(library: CLibrary, instructions: prebuilt.InstructionSet, ffi: tuple[int, int] = FFI) -> Path:
    """A library that is prebuilt for some instructions, in fact for those that each processor has."""
    path = prebuilt.FOLDER / file_name(made_for(library, instructions), instructions, ffi, platform.system())
    path.write_bytes(replace(library, instructions=()).compiled(compiler()))
    return path


def found(library: CLibrary) -> str | None:
    """For which instructions the library was made that is used."""
    result = prebuilt.load_prebuilt(library)
    if result is None:
        return None
    assert result[1].answer() == 42
    return result[0].name


def test_the_best_that_the_processor_runs_is_used(library: CLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(library) is None
    put(library, BASE)
    assert found(library) == BASE.name
    put(library, V3)
    put(library, V4)
    assert found(library) == V4.name
    for missing in V4.flags:
        has_flags(monkeypatch, V4.flags - {missing})
        assert found(library) == (BASE.name if missing in V3.flags else V3.name)
    runs_on(monkeypatch, "Linux", "aarch64")
    assert found(library) is None


def test_each_system_has_libraries_of_its_own(library: CLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux on ARM, macOS and Windows, as far as they can be played here: what their libraries are called."""
    put(library, BASE)
    monkeypatch.setattr(prebuilt, "processor", lambda: "")  # no other system has /proc/cpuinfo
    for system, name, chosen, ending in (
        ("Linux", "aarch64", ARM, ".so"),
        ("Darwin", "arm64", ARM, ".dylib"),
        ("Windows", "AMD64", BASE, ".dll"),
    ):
        runs_on(monkeypatch, system, name)
        assert found(library) is None
        assert put(library, chosen).suffix == ending
        assert found(library) == chosen.name
    runs_on(monkeypatch, "Windows", "ARM64")
    assert found(library) is None


@pytest.mark.skipif(architecture() != "x86_64", reason="asks an x86 processor")
def test_an_x86_processor_says_itself_what_it_has(library: CLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as Linux says; on Windows a library is chosen by it."""
    known = V4.flags & set(processor().split())
    runs_on(monkeypatch, "Windows", "AMD64")
    monkeypatch.setattr(prebuilt, "processor", lambda: "")
    put(library, BASE)
    put(library, V3)
    prebuilt._asked.cache_clear()
    assert prebuilt.features() == frozenset()  # there is no such library
    assert found(library) == BASE.name
    put(prebuilt.features_library(), BASE)
    prebuilt._asked.cache_clear()
    try:
        assert prebuilt.features() == known
        assert found(library) == (V3.name if V3.flags <= known else BASE.name)
    finally:
        prebuilt._asked.cache_clear()


def test_only_what_was_made_from_these_sources_is_used(library: CLibrary, tmp_path: Path) -> None:
    put(library, BASE)
    changed = small(tmp_path, "a change")
    assert found(changed) is None
    assert found(replace(changed, flags=("-O2",))) is None
    put(changed, BASE)
    assert found(changed) == BASE.name


def test_only_what_this_xla_understands_is_used(library: CLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows its own version and older ones."""
    put(library, BASE)
    for version, expected in (((0, 2), None), ((1, 3), None), ((0, 3), BASE.name), ((0, 5), BASE.name)):
        monkeypatch.setattr(prebuilt, "ffi_version", lambda version=version: version)
        assert found(library) == expected


def test_the_version_of_xla_is_the_one_that_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (0, 3) <= prebuilt.ffi_version() < (1, 0)
    header = tmp_path / "xla" / "ffi" / "api" / "c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define XLA_FFI_API_MAJOR 2\nint x;\n#define XLA_FFI_API_MINOR 17\n")
    monkeypatch.setattr(prebuilt.jax.ffi, "include_dir", lambda: str(tmp_path))
    assert prebuilt.ffi_version() == (2, 17)


def test_a_truncated_one_is_not_loaded(library: CLibrary) -> None:
    put(library, BASE)
    path = put(library, V4)
    content = path.read_bytes()
    for length in (0, 100, len(content) // 2, len(content) - 1):
        path.unlink()
        path.write_bytes(content[:length])
        assert found(library) == BASE.name


def test_the_length_of_libraries_of_other_systems_is_known() -> None:
    """By their headers, of which these are the least that counts."""
    sections = b"".join(
        struct.pack("<8s8xII16x", name, 512, 1024 + 512 * k) for k, name in enumerate((b".text", b".data"))
    )
    windows = (
        b"MZ" + bytes(58) + struct.pack("<I", 64) + struct.pack("<4s2xH12xH2x", b"PE", 2, 240) + bytes(240) + sections
    )
    assert _length(windows) == 2048
    segments = b"".join(struct.pack("<II32xQQ16x", 0x19, 72, 16384 * k, 16384) for k in range(2))
    mac = (
        struct.pack("<4sIIIIIII", b"\xcf\xfa\xed\xfe", 0, 0, 6, 3, 168, 0, 0)
        + struct.pack("<II16x", 0x1D, 24)
        + segments
    )
    assert _length(mac) == 32768
    for content in (windows, mac):
        for cut in range(16, len(content), 8):
            assert not 64 <= _length(content[:cut]) <= cut


def test_straight_line_code_uses_the_instructions_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    program = traced(lambda x: (x * 1.9173,), [jax.ShapeDtypeStruct((), np.float64)]).program
    assert program is not None
    made = []
    for chosen in (None, (V3, ctypes.CDLL(None))):
        monkeypatch.setattr(build_vm, "_prebuilt", lambda chosen=chosen: chosen)
        made.append(straight_line_compiler._library.__wrapped__(program, 0))
    assert [library.instructions for library in made] == [NATIVE, V3.options]
    assert made[0].purpose != made[1].purpose


@pytest.mark.slow
@pytest.mark.parametrize("instructions", HERE, ids=lambda x: x.name)
def test_prebuilt_machines_give_the_numbers_of_one_compiled_here(
    instructions: prebuilt.InstructionSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """To the last bit; without fused products and sums to rounding."""
    made, path = made_for(machine(), instructions), tmp_path / "machine.so"
    path.write_bytes(made.compiled(compiler()))
    machines = [build_vm.vm(), made.load(path)]
    fuses = "fma" in instructions.flags or "fma" not in processor().split()
    program = traced(elementary, [jax.ShapeDtypeStruct((), np.float64)] * 2).program
    assert program is not None
    key, tables = register(program), program.tables
    assert machines[1] is not None
    machines[1].jaxmbd_register(ctypes.c_uint64(key), *(ctypes.c_void_p(x.ctypes.data) for x in tables))
    for dtype, rounding in ((np.float64, 1e-12), (np.float32, 1e-4)):
        for batch in (1, 3, 64, 1001):
            arrays = [rng.normal(0.0, 2.0, batch), rng.normal(0.0, 2.0, batch), *program.constant_tables]
            results = [jax.ShapeDtypeStruct((batch,), dtype)] * len(program.output_sizes)
            found = []
            for library in machines:
                monkeypatch.setattr(build_vm, "vm", lambda library=library: library)
                found.append(build_vm.call_program(key, batch, dtype, arrays, results))
            for k, (here, there) in enumerate(zip(*found, strict=True)):
                if fuses:
                    np.testing.assert_array_equal(there.view(np.uint8), here.view(np.uint8), err_msg=f"result {k}")
                else:
                    np.testing.assert_allclose(there, here, rtol=rounding, atol=rounding, err_msg=f"result {k}")
