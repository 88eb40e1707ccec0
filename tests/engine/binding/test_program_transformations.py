"""Programs under what surrounds them: several threads, meshes, empty batches, `jax.disable_jit`, no memory left."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.engine.binding import jax_binding as calls
from jaxmbd.engine.binding.jax_binding import as_program
from jaxmbd.engine.machine.build_vm import call_program
from tests import planar_examples as examples
from tests.c_code import compiler

X = np.array([0.3, 0.7, 1.1])


def product(x: Any, y: Any) -> Any:
    """The second result does not depend on `x`."""
    return jnp.sin(x) * y, jnp.sum(y**2)


def test_threads_that_register_one_program_share_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine reads the tables of whoever comes first: those must be the ones that are kept alive."""
    call = lambda: calls._look_up(product, *jax.tree.flatten((X, X)), forward=False)  # noqa: E731
    programs, started = [], threading.Barrier(4)
    for _ in range(4):
        calls._program_of.cache_clear()
        found = call()
        assert found is not None
        programs.append(found[0].program)
    (key,) = {program.key for program in programs}
    assert len({id(program) for program in programs}) == 4
    registered = []

    class Slow:
        """A machine that takes its time between looking for the key and writing it down."""

        def jaxmbd_register(self, key: Any, *tables: Any) -> int:
            registered.append(tables[0].value)
            started_late.wait(0.2)
            return 0

    started_late = threading.Event()
    monkeypatch.setattr(calls, "vm", Slow)
    monkeypatch.setattr(calls, "_programs", {})
    monkeypatch.setattr(calls, "watch", lambda programs: None)  # else the compiler would serve these for ever

    def work(program: Any) -> None:
        started.wait()
        assert calls.register(program) == key

    threads = [threading.Thread(target=work, args=(program,)) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registered == [calls._programs[key].numbers.ctypes.data]


def test_programs_run_in_several_threads() -> None:
    calls._program_of.cache_clear()
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        found[k] = jax.jit(as_program(lambda x, y: product(x, k * y)))(X, X)[0]

    threads = [threading.Thread(target=work, args=(k % 3,)) for k in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(3):
        np.testing.assert_allclose(found[k], k * np.sin(X) * X, rtol=1e-14)


@pytest.mark.parametrize("transform", [jax.jit, lambda f: f])
def test_a_batch_of_no_lanes_is_empty(transform: Any) -> None:
    none = jnp.zeros((0, 3))
    batch = lambda f, axes: transform(jax.vmap(f, axes))  # noqa: E731
    first, second = batch(as_program(product), (0, None))(none, X)
    assert (first.shape, second.shape) == ((0, 3), (0,))
    push = lambda d: jax.jvp(lambda x: as_program(product, forward=True)(x, X), (X,), (d,))  # noqa: E731
    values, tangents = transform(jax.vmap(push, out_axes=(None, 0)))(none)  # values have no lanes: they stay
    np.testing.assert_allclose(values[0], np.sin(X) * X, rtol=1e-14)
    assert [x.shape for x in tangents] == [(0, 3), (0,)]
    first, _ = transform(jax.vmap(jax.vmap(as_program(product), (0, None)), (None, 0)))(none, np.stack([X, X]))
    assert first.shape == (2, 0, 3)
    first, _ = transform(jax.vmap(jax.vmap(as_program(product), (None, 0)), (0, None)))(none, np.stack([X, X]))
    assert first.shape == (0, 2, 3)
    last, _ = transform(jax.vmap(as_program(product), (1, None), -1))(jnp.zeros((3, 0)), X)
    assert last.shape == (3, 0)


def test_derivatives_of_a_batch_of_no_lanes() -> None:
    none = jnp.zeros((0, 3))
    loss = lambda x, y: jnp.sum(y) + sum(jnp.sum(part) for part in jax.vmap(as_program(product), (0, None))(x, y))  # noqa: E731
    by_none, by_all = jax.grad(loss, (0, 1))(none, jnp.asarray(X))
    assert by_none.shape == (0, 3)
    np.testing.assert_array_equal(by_all, 1.0)
    jacobian = jax.vmap(jax.jacfwd(lambda x: as_program(product)(x, X)[0]))(none)
    assert jacobian.shape == (0, 3, 3)


def mixture(a: Any, b: Any, c: Any, d: Any, e: Any, empty: Any) -> Any:
    return jnp.sin(a) * b + c * d * e + jnp.sum(empty), jnp.sum(a * d)


NESTED = {
    "a": (0, None, None), "b": (None, 0, None), "c": (None, None, 0), "d": (None, None, None), "e": (0, None, 0),
    "empty": (None, 0, 0),
}  # fmt: skip
SIZES = 3, 5, 7  # of the axes, outermost first


def nested(function: Any) -> Any:
    """Three maps, in which each argument varies along other axes."""
    for axes in reversed([*zip(*NESTED.values(), strict=True)]):
        function = jax.vmap(function, axes)
    return function


@pytest.mark.parametrize("transform", [jax.jit, lambda f: f])
def test_operands_that_vary_along_some_axes_of_nested_batches_only(transform: Any) -> None:
    rng = np.random.default_rng(0)
    shapes = [[n for n, axis in zip(SIZES, axes, strict=True) if axis == 0] for axes in NESTED.values()]
    arguments = [jnp.asarray(rng.uniform(0.5, 1.5, (*shape, 2))) for shape in shapes]
    arguments[-1] = arguments[-1][..., :0]
    every = tuple(range(len(arguments)))

    def results(function: Any) -> Any:
        run = nested(function)
        weighed = lambda *x: sum(jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))) for y in run(*x))  # noqa: E731
        pushed = lambda *x: jax.jvp(run, x, tuple(jnp.cos(y) for y in x))[1]  # noqa: E731
        each = nested(jax.grad(lambda *x: jnp.sum(function(*x)[0]), every))
        return [transform(f)(*arguments) for f in (run, jax.grad(weighed, every), pushed, each)]

    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), results(as_program(mixture)), results(mixture)
    )


def test_xla_takes_the_same_operands_as_a_program() -> None:
    """Operands without a batch axis, with one of the batch, and with one of blocks of instances."""
    x = [np.linspace(0.1, 1.0, 2 * n).reshape(n, 2) for n in (1, 3, 12)]
    types = [jax.ShapeDtypeStruct((2,), float)] * 3
    function = calls.traced(lambda a, b, c: [jnp.sin(a) * b + c], types)
    operands = x[0][0], x[1], x[2]
    expected = np.sin(x[0]) * np.repeat(x[1], 4, axis=0) + x[2]
    for run in (calls._run_by_xla, calls.run_p.bind, jax.jit(calls.run_p.bind, static_argnames=("function", "batch"))):
        np.testing.assert_allclose(run(*operands, function=function, batch=12)[0], expected, rtol=1e-14)


def test_without_jit_programs_run_as_they_do_with_it() -> None:
    pushed = lambda x: jax.vmap(jax.grad(lambda x: as_program(product)(x, x)[0].sum()))(x)  # noqa: E731
    with jax.disable_jit():
        found, second = as_program(product)(X, X)
        slopes = pushed(jnp.stack([X, 2 * X]))
    np.testing.assert_allclose(found, np.sin(X) * X, rtol=1e-14)
    assert float(second) == pytest.approx(float(np.sum(X**2)), rel=1e-15)
    np.testing.assert_allclose(slopes, [np.cos(x) * x + np.sin(x) for x in (X, 2 * X)], rtol=1e-13)


@pytest.mark.slow
def test_without_jit_analyses_give_the_same_numbers() -> None:
    made = examples.pendulum()
    assembled, found = mbd.assemble(made.mechanism), made.simulate([0.0, 0.1])
    with jax.disable_jit():
        np.testing.assert_allclose(mbd.assemble(made.mechanism).q, assembled.q, atol=1e-13)
        np.testing.assert_allclose(made.simulate([0.0, 0.1]).q, found.q, atol=1e-13)


MESHES = """
import json, jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from jax.sharding import Mesh, PartitionSpec as P
from jaxmbd.engine.binding.jax_binding import as_program as compiled
from jaxmbd.engine.binding.trace_once import trace_once as traced_once

inner = traced_once(lambda x, y: jnp.sin(x) * y)
product = lambda x, y: inner(x, y) + x
transformed = {
    "values": lambda x, y: jax.vmap(compiled(product), (0, None))(x, y),
    "forward": lambda x, y: jax.vmap(jax.jacfwd(compiled(product)), (0, None))(x, y),
    "reverse": lambda x, y: jax.vmap(jax.grad(compiled(product)), (0, None))(x, y),
}
x, y, found = jnp.arange(4.0), jnp.asarray(3.0), {}
for name, function in transformed.items():
    for axis in "ik":
        for check in (True, False):
            mesh = Mesh(np.array(jax.devices()), (axis,))
            mapped = jax.shard_map(function, mesh=mesh, in_specs=(P(axis), P()), out_specs=P(axis), check_vma=check)
            found[f"{name} {axis} {check}"] = mapped(x, y).tolist()
    found[f"{name} alone"] = function(x, y).tolist()
for axis in "ik":  # of what the devices have in common, the sum over them
    loss = lambda x, y: jax.lax.psum(jnp.sum(jax.vmap(compiled(product), (0, None))(x, y)), axis)
    mesh = Mesh(np.array(jax.devices()), (axis,))
    total = jax.shard_map(loss, mesh=mesh, in_specs=(P(axis), P()), out_specs=P())
    found[f"common {axis}"] = float(jax.grad(total, 1)(x, y))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_program_runs_in_one_mesh_after_another() -> None:
    """Two devices: a process of its own."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", MESHES], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    x = np.arange(4.0)
    for name, values in found.items():
        kind = name.split()[0]
        if kind == "common":
            assert values == pytest.approx(np.sum(np.sin(x)), rel=1e-14)
        else:
            wanted = np.sin(x) * 3 + x if kind == "values" else np.cos(x) * 3 + 1
            np.testing.assert_allclose(values, wanted, rtol=1e-14, err_msg=name)
    assert len(found) == 17


FULL = """
#include <stdlib.h>
static void *scarce(size_t size) { return size > 65536 ? NULL : malloc(size); }
#define malloc scarce
"""
STARVED = """
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
from jaxmbd.engine.binding.jax_binding import as_program as compiled

def function(x):
    return jnp.sin(x) * jnp.cumsum(x)

run = jax.jit(jax.vmap(compiled(function)))
print(float(run(jnp.ones((64, 10)))[3, 2]))
for lanes in (16, 4000):
    try:
        jax.block_until_ready(run(jnp.ones((lanes, 3000))))
    except jax.errors.JaxRuntimeError as error:
        print(str(error).splitlines()[0])
print(float(run(jnp.ones((64, 10)))[3, 2]))
"""


@pytest.mark.slow
def test_no_memory_left_is_an_error_of_xla(tmp_path: Path) -> None:
    """The machine, compiled with an allocator that gives little."""
    (tmp_path / "full.h").write_text(FULL)
    variables = {"CC": f"{compiler()} -include '{tmp_path / 'full.h'}'", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", STARVED], env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, *errors, last = done.stdout.splitlines()
    assert first == last
    assert float(first) == pytest.approx(3 * np.sin(1.0), rel=1e-15)
    assert errors == ["RESOURCE_EXHAUSTED: jaxmbd: out of memory."] * 2


def test_a_program_that_is_not_there_is_not_called_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="not registered with the virtual machine of this process"):
        call_program(2**63 + 1, 0, np.float64, [np.ones(1)], [jax.ShapeDtypeStruct((1,), np.float64)])
