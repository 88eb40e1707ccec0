"""Libraries that wheels bring along: the best that the processor runs is used, and only if it is what it should be."""

import ctypes
import platform
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmbd.engine.binding.jax_binding import register
from jaxmbd.engine.binding.tracing import traced
from jaxmbd.engine.machine import build_vm, prebuilt, straight_line_compiler
from jaxmbd.engine.machine.build_vm import machine
from jaxmbd.engine.machine.c_library import NATIVE, CLibrary, compiler, processor
from jaxmbd.engine.machine.prebuilt import INSTRUCTION_SETS, file_name, made_for
from tests.engine.machine.test_straight_line import elementary

V4, V3, BASE, _ = INSTRUCTION_SETS
SYMBOLS = ("answer", "jaxmbd_padding_of_a_library")
FFI = (0, 3)
HERE = [x for x in INSTRUCTION_SETS if x.architecture == platform.machine() and x.flags <= set(processor().split())]


def small(folder: Path, text: str = "") -> CLibrary:
    """A library that is compiled in an instant."""
    header = folder / "small.h"
    header.write_text(f"#define NUMBER 42 /* {text} */")
    code = f'#include "{header}"\nint answer(void) {{ return NUMBER; }}\nint {SYMBOLS[1]};'
    return CLibrary("small", SYMBOLS, (str(header),), lambda: code, "", ())


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CLibrary:
    """A library, on a processor with AVX-512 and an XLA of version 0.3, and an empty folder for what is prebuilt."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    monkeypatch.setattr(prebuilt, "FOLDER", folder)
    monkeypatch.setattr(prebuilt, "ffi_version", lambda: FFI)
    has_flags(monkeypatch, V4.flags)
    return small(tmp_path)


def has_flags(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str]) -> None:
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(prebuilt, "processor", lambda: f"flags : fpu {' '.join(flags)}")


def put(library: CLibrary, instructions: prebuilt.InstructionSet, ffi: tuple[int, int] = FFI) -> Path:
    """A library that is prebuilt for some instructions, in fact for those that each processor has."""
    path = prebuilt.FOLDER / file_name(made_for(library, instructions), instructions, ffi)
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
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "aarch64")
    assert found(library) is None


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
