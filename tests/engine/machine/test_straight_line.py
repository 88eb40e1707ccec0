"""Straight-line code: the numbers of the interpreter to the last bit, installed while motions go on."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.engine import choice
from jaxmbd.engine.binding.jax_binding import register
from jaxmbd.engine.binding.tracing import traced
from jaxmbd.engine.machine import c_library, straight_line_compiler
from jaxmbd.engine.machine.build_vm import call_program, vm

SIZES = (1, 8, 11)  # instances: alone, one group of lanes, and a group with a remainder


def elementary(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """Everything that a program can compute from two numbers."""
    one = [
        jnp.sin, jnp.cos, jnp.tan, jnp.arcsin, jnp.arccos, jnp.arctan, jnp.sinh, jnp.cosh, jnp.tanh, jnp.arcsinh,
        jnp.arccosh, jnp.arctanh, jnp.exp, jnp.exp2, jnp.expm1, jnp.log, jnp.log1p, jnp.cbrt, jax.scipy.special.erf,
        jax.scipy.special.erfc, jnp.sqrt, jnp.abs, jnp.sign, jnp.floor, jnp.ceil, jnp.round, jnp.negative,
        lambda x: jax.lax.round(x, jax.lax.RoundingMethod.AWAY_FROM_ZERO),
        lambda x: jnp.where(jnp.isfinite(x), 1.0, 2.0),
    ]  # fmt: skip
    two = [
        jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.arctan2, jnp.power, jax.lax.rem,
        lambda x, y: jnp.where((x < y) & (x != 0.0), x, y), lambda x, y: jnp.where((x <= y) | ~(x == 0.0), x * y, y),
        lambda x, y: x * y + x, lambda x, y: x * y - y, lambda x, y: x - y * y,
    ]  # fmt: skip
    return (*(f(x) for f in one), *(f(x, y) for f in two))


def chosen(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """An element of a table at a computed index."""
    return (jnp.array([3.0, -1.0, 4.0, 1.5], x.dtype)[jnp.clip(jnp.floor(x).astype(int), 0, 3)] * y, y[()])


def library() -> ctypes.CDLL:
    machine = vm()
    assert machine is not None
    return machine


def both(function: Callable[..., Any], dtype: Any, batch: int, *arrays: np.ndarray) -> tuple[list[Any], list[Any]]:
    """The results of a program by the interpreter, and by straight-line code."""
    program = traced(function, [jax.ShapeDtypeStruct((), dtype)] * len(arrays)).program
    assert program is not None
    key, kernel = register(program), 2 * (dtype == np.float32) + (batch > 1)
    results = [jax.ShapeDtypeStruct((batch,), dtype)] * len(program.output_sizes)
    operands = [*arrays, *(table.astype(dtype) for table in program.constant_tables)]
    library().jaxmbd_install(ctypes.c_uint64(key), kernel, None, None)
    interpreted = call_program(key, batch, dtype, operands, results)
    straight_line_compiler.install(library(), program, kernel)
    return interpreted, call_program(key, batch, dtype, operands, results)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("batch", SIZES)
def test_all_operations_are_those_of_the_interpreter(dtype: Any, batch: int, rng: np.random.Generator) -> None:
    special = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e5, -2e3]
    x = np.array((special * 2)[:batch], dtype) if batch > 1 else np.array([0.7], dtype)
    with jax.enable_x64(dtype == np.float64):
        for values in (x, rng.normal(0.0, 3.0, batch).astype(dtype), rng.uniform(-0.9, 0.9, batch).astype(dtype)):
            found = both(elementary, dtype, batch, values, rng.normal(1.0, 2.0, batch).astype(dtype))
            for k, (interpreted, straight) in enumerate(zip(*found, strict=True)):
                np.testing.assert_array_equal(straight, interpreted, err_msg=f"result {k}")
        index = rng.uniform(-2.0, 6.0, batch).astype(dtype)
        interpreted, straight = both(chosen, dtype, batch, index, values)
    table = np.array([3.0, -1.0, 4.0, 1.5])[np.clip(np.floor(index).astype(int), 0, 3)]
    np.testing.assert_allclose(straight[0], table * values, rtol=1e-6)
    np.testing.assert_array_equal(straight, interpreted)


def test_the_installed_code_is_what_runs() -> None:
    """In its place a function that only counts: outputs keep what is in their slots."""
    program = traced(lambda x: (x * x + 3.0,), [jax.ShapeDtypeStruct((), np.float64)]).program
    assert program is not None
    key, calls = register(program), []
    instances = ctypes.POINTER(ctypes.c_int64)
    count = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, instances)(lambda x, c, k: calls.append(k[0]))
    library().jaxmbd_install(ctypes.c_uint64(key), 1, count, None)
    result = [jax.ShapeDtypeStruct((19,), np.float64)]
    call_program(key, 19, np.float64, [np.arange(19.0)], result)
    assert calls == [*range(0, 19, calls[1])]
    assert calls[1] in (2, 4, 8)  # as many as the processor's vector registers hold
    library().jaxmbd_install(ctypes.c_uint64(key), 1, None, None)
    (found,) = call_program(key, 19, np.float64, [np.arange(19.0)], result)
    np.testing.assert_array_equal(found, np.arange(19.0) ** 2 + 3.0)


BATCH = """
import hashlib, jax, numpy as np, jaxmbd as mbd
jax.config.update("jax_enable_x64", True)
mechanism = mbd.examples.get("pendulum").mechanism
state = mbd.assemble(mechanism)
run = lambda engine: jax.vmap(lambda angle: mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": angle}),
    np.linspace(0.0, 1.0, 5), engine=engine).q)(np.linspace(-1.0, 1.0, 23))
for engine in ("interpreter", "native"):
    print(hashlib.sha256(np.asarray(run(engine)).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_lanes_of_any_width_give_the_same_numbers() -> None:
    """Widths of processors without AVX, with AVX, and with AVX-512 [bytes]; compilers split what is too wide."""
    found = set()
    for width in (16, 32, 64):
        compiler = os.environ | {"CC": f"{os.environ.get('CC', 'cc')} -DVECTOR={width}"}
        run = subprocess.run([sys.executable, "-c", BATCH], env=compiler, capture_output=True, text=True, check=True)
        found.update(run.stdout.split())
    assert len(found) == 1


@pytest.fixture
def soon() -> Iterator[None]:
    """Programs count as running often after ten evaluations."""
    program = traced(lambda x: (jnp.sin(x) * 1.7124,), [jax.ShapeDtypeStruct((), np.float64)]).program
    assert program is not None
    register(program)  # the first one of a process starts the compiler, with the usual number
    library().jaxmbd_watch(straight_line_compiler._pipe, ctypes.c_int64(10))
    yield
    library().jaxmbd_watch(straight_line_compiler._pipe, ctypes.c_int64(choice.INTERPRETED))


@pytest.fixture
def nothing_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder without libraries. Tests that use it run programs that no other test has loaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_runs_often_is_compiled_meanwhile(soon: None, nothing_stored: None) -> None:
    example = mbd.examples.get("pendulum")
    state, ts = example.state(), np.linspace(0.0, 0.3, 4)
    settings: Any = {"rtol": 3e-9, "quadratures": ("kinetic_energy", "energy")}
    first = mbd.simulate(example.mechanism, state, ts, **settings)
    last, end = first, time.monotonic() + 60.0
    while last.engine != "native" and time.monotonic() < end:
        time.sleep(0.05)
        last = mbd.simulate(example.mechanism, state, ts, **settings)
    assert (first.engine, last.engine) == ("interpreter", "native")
    np.testing.assert_array_equal(last.q, first.q)


def test_what_was_compiled_before_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    program = traced(lambda x: (jnp.sin(x) * 1.7123,), [jax.ShapeDtypeStruct((), np.float64)]).program
    assert program is not None
    register(program)
    code = straight_line_compiler._library(program, 0)
    straight_line_compiler.install(library(), program, 0)
    assert code.is_stored()
    straight_line_compiler._loaded.cache_clear()
    compiled = c_library.CLibrary.compiled

    def others(library: c_library.CLibrary, *arguments: Any) -> Any:
        assert library is not code, "it is compiled again"
        return compiled(library, *arguments)

    monkeypatch.setattr(c_library.CLibrary, "compiled", others)
    library().jaxmbd_install(ctypes.c_uint64(program.key), 0, None, None)
    straight_line_compiler.request_if_stored(program)
    assert _runs_straight_within(4.0, program)


def _runs_straight_within(seconds: float, program: Any) -> bool:
    """True once straight-line code runs a program of one number, which is not counted as interpreted."""
    for _ in range(round(seconds / 0.02)):
        time.sleep(0.02)
        before = _evaluations(program.key)
        call_program(program.key, 0, np.float64, [np.ones(1)], [jax.ShapeDtypeStruct((1,), np.float64)])
        if _evaluations(program.key) == before:
            return True
    return False


def _evaluations(key: int) -> int:
    function = library().jaxmbd_evaluations
    function.restype = ctypes.c_int64
    return function(ctypes.c_uint64(key), 0)


def test_nothing_ends_the_compiler(nothing_stored: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a thread, for which motions wait: neither what is no program, nor what ends other threads."""
    install = straight_line_compiler.install
    first, last = (
        traced(lambda x, k=k: (jnp.cos(x) * k,), [jax.ShapeDtypeStruct((), np.float64)]).program for k in (1.82, 1.83)
    )
    assert first is not None
    assert last is not None

    def ended(library: ctypes.CDLL, program: Any, kernel: int) -> None:
        if program.key == first.key:
            raise SystemExit
        install(library, program, kernel)

    monkeypatch.setattr(straight_line_compiler, "install", ended)
    keys = 12345, register(first), register(last)
    pipe = straight_line_compiler._pipe
    assert pipe is not None
    for key in keys:
        os.write(pipe, straight_line_compiler._REQUEST.pack(key, 0, 1))
    assert _runs_straight_within(10.0, last)
    assert not _runs_straight_within(0.1, first)


def test_forked_processes_say_that_they_do_not_compile(nothing_stored: None) -> None:
    example = mbd.examples.get("pendulum")
    state, settings = example.state(), {"engine": "native", "quadratures": ("energy", "kinetic_energy")}
    run = lambda: mbd.simulate(example.mechanism, state, [0.0, 0.01], **settings)  # noqa: E731  # pyright: ignore
    library().jaxmbd_watch(-1, ctypes.c_int64(choice.INTERPRETED))  # as after `os.fork`
    try:
        with pytest.raises(mbd.SolveError, match=r"engine='native' failed: this process was forked"):
            run()
    finally:
        library().jaxmbd_watch(straight_line_compiler._pipe, ctypes.c_int64(choice.INTERPRETED))
    assert run().engine == "native"


def test_a_compiler_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, nothing_stored: None) -> None:
    example = mbd.examples.get("pendulum")
    state, quadratures = example.state(), ("energy", "kinetic_energy", "potential_energy")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(mbd.SolveError, match=r"(?s)engine='native' failed: .*'false'.*needs a C compiler.*CC"):
        mbd.simulate(example.mechanism, state, [0.0, 0.01], engine="native", quadratures=quadratures)
    assert mbd.simulate(example.mechanism, state, [0.0, 0.01], quadratures=quadratures).engine == "interpreter"
