"""Whole motions as kernels for a GPU: the same text as C against the virtual machine, and as CUDA for a compiler."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.compile.targets import launcher, nvrtc
from jaxmbd.compile.targets.erk_kernel import HEADERS
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.adjoint import explicit_steps, linear_sweeps
from tests.stand_in_gpu import stand_in

SCALES = np.linspace(0.8, 1.3, 5)
CONSTANT = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01, "solver": mbd.RungeKutta4()}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for a GPU."""
    yield stand_in(monkeypatch)
    launcher.ready.cache_clear()


def family(name: str, coordinates: str, **settings: Any) -> Callable[[Any], mbd.Solution]:
    """The motion of an example with a mass of its own for its first body."""
    example = mbd.examples.get(name).with_coordinates(coordinates)
    start = example.state()

    def run(scale: Any) -> mbd.Solution:
        scaled = example.mechanism.bodies[0].mass * scale
        mechanism = eqx.tree_at(lambda m: m.bodies[0].mass, example.mechanism, scaled)
        return mbd.simulate(mechanism, start, jnp.linspace(0.0, 0.4, 9), throw=False, **settings)

    return run


CASES = [
    ("slider-crank", "joint", {}),  # with rows that are chosen again after each step
    pytest.param("planar-four-bar", "absolute", {"formulation": mbd.Augmented()}, marks=pytest.mark.slow),
    pytest.param("planar-four-bar", "joint", CONSTANT, marks=pytest.mark.slow),
    ("heavy-top", "joint", {"solver": dfx.Dopri8()}),
    pytest.param("suspension", "joint", {}, marks=pytest.mark.slow),
    pytest.param("four-bar-with-springs", "absolute", CONSTANT, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "coordinates", "settings"), CASES)
def test_a_kernel_takes_the_steps_of_the_virtual_machine(
    name: str, coordinates: str, settings: dict[str, Any], gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = family(name, coordinates, **settings)
    found = jax.block_until_ready(jax.jit(jax.vmap(run))(SCALES))
    assert gpu.stand_in_launches() == 2  # what is the same for all instances, and the motions
    assert jax.tree.map(lambda x: x[0], found).engine == "native"
    monkeypatch.undo()
    known = jax.block_until_ready(jax.jit(jax.vmap(family(name, coordinates, **settings)))(SCALES))
    assert gpu.stand_in_launches() == 0
    for count in ("num_steps", "num_accepted_steps", "num_rejected_steps"):
        np.testing.assert_array_equal(found.stats[count], known.stats[count])
    for x, y in ((found.q, known.q), (found.integrated_speeds, known.integrated_speeds)):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * float(jnp.max(jnp.abs(y))))
    assert float(jnp.max(jnp.abs(found.q[0, -1] - found.q[-1, -1]))) > 1e-6  # each instance has its own mass


def test_one_motion_and_single_precision(gpu: Any) -> None:
    run = family("pendulum", "joint", **CONSTANT)
    found = jax.block_until_ready(jax.jit(run)(1.1))
    assert gpu.stand_in_launches() == 2
    np.testing.assert_allclose(found.q, run(1.1).q, rtol=0, atol=1e-12)
    with jax.enable_x64(False):
        run = family("pendulum", "joint")
        found = jax.block_until_ready(jax.jit(run)(1.1))
        assert gpu.stand_in_launches() == 2
        assert found.q.dtype == jnp.float32
        np.testing.assert_allclose(found.q, run(1.1).q, rtol=0, atol=2e-5)


def test_derivatives_go_through_a_kernel(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    end = lambda run: lambda scale: run(scale).q[-1, 0]  # noqa: E731
    batch = lambda run: jax.jit(jax.vmap(jax.value_and_grad(end(run))))(SCALES)  # noqa: E731
    values, slopes = jax.block_until_ready(batch(family("slider-crank", "joint")))
    assert gpu.stand_in_launches() == 2
    tangents = jax.jit(jax.vmap(lambda s: jax.jvp(end(family("slider-crank", "joint")), (s,), (1.0,))[1]))(SCALES)
    monkeypatch.undo()
    known, expected = batch(family("slider-crank", "joint"))
    np.testing.assert_allclose(values, known, rtol=1e-11)
    np.testing.assert_allclose(slopes, expected, rtol=1e-8)
    np.testing.assert_allclose(tangents, expected, rtol=1e-8)
    assert float(jnp.min(jnp.abs(expected))) > 1e-4


def test_the_call_for_a_gpu_has_no_transposes(gpu: Any) -> None:
    exported = jax.export.export(
        jax.jit(jax.vmap(lambda s: family("pendulum", "joint")(s).q)), platforms=["cuda"],
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(launcher.TARGET)],
    )(SCALES)  # fmt: skip
    text = str(exported.mlir_module())
    (call,) = re.findall(rf"custom_call @{launcher.TARGET}.*", text)
    operands = re.findall(r"%\d+", call[: call.index("{")])
    assert len(operands) > 10
    for operand in operands:
        definition = text[: text.index(call)].rpartition(f" {operand} = ")[2].partition("\n")[0]
        if "transpose" in definition:  # to move axes of length one costs nothing
            order = [int(k) for k in re.findall(r"\d+", re.findall(r"dims = \[(.*?)\]", definition)[0])]
            shape = re.findall(r"(\d+)x", definition.partition("->")[0].partition("tensor")[2])
            moved = [k for k in order if shape[k] != "1"]
            assert moved == sorted(moved)


def test_a_refusal_of_the_driver_says_why(gpu: Any) -> None:
    gpu.stand_in_refuse(719)
    try:
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"cannot be launched: the stand-in refuses \(719\)"):
            jax.block_until_ready(jax.jit(jax.vmap(family("pendulum", "joint")))(SCALES).q)
    finally:
        gpu.stand_in_refuse(0)


def test_without_driver_or_compiler_the_error_says_what_is_missing(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(launcher, "_DRIVER", str(tmp_path / "libcuda.so.1"))
    with pytest.raises(MechanismError, match=r"NVIDIA's driver.*libcuda\.so\.1"):
        jax.jit(jax.vmap(family("pendulum", "joint")))(SCALES)
    monkeypatch.setattr(nvrtc, "_library", lambda: None)
    with pytest.raises(OSError, match=r"NVRTC is not installed.*jax\[cuda13\]"):
        nvrtc.cubin("", (), "sm_90")


# --- for the compiler of CUDA -----------------------------------------------------------------------------

with_nvrtc = pytest.mark.skipif(not nvrtc.version(), reason="NVRTC is not installed (pip install 'jaxmbd[gpu-test]')")


def kernel_of(run: Callable[[Any], mbd.Solution]) -> Any:
    """The kernel of a batch of motions."""

    def solves(jaxpr: Any) -> Iterator[Any]:
        for equation in jaxpr.eqns:
            if equation.primitive is linear_sweeps.solve_p:
                yield equation
            for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
                if hasattr(inner, "jaxpr"):
                    yield from solves(inner.jaxpr)

    (solve,) = solves(jax.make_jaxpr(jax.vmap(run))(SCALES).jaxpr)
    settings = {name: solve.params[name] for name in ("adaptive", "force_dtmin", "recorded")}
    varies = [any(batch.has_axis[k] for batch in solve.params["batches"]) for k in range(len(solve.invars))]
    steps: explicit_steps.ExplicitSteps = solve.params["steps"]
    return steps.kernel(varies, **settings)


# The registers of a thread, at most 255, and what does not fit into them, for an H100.
CEILINGS = [
    ("planar-four-bar", "joint", {"formulation": mbd.Augmented(), **CONSTANT}, 240, 0),
    ("planar-four-bar", "joint", {"formulation": mbd.Augmented()}, 255, 1000),
    ("pendulum", "joint", {}, 200, 0),
]


@with_nvrtc
@pytest.mark.parametrize(("name", "coordinates", "settings", "registers", "spilled"), CEILINGS)
def test_a_kernel_fits_into_the_registers_of_a_gpu(
    name: str, coordinates: str, settings: dict[str, Any], registers: int, spilled: int
) -> None:
    text, _ = kernel_of(family(name, coordinates, **settings)).source()
    code, log = nvrtc.cubin(text, HEADERS, "sm_90", ("--ptxas-options=-v",))
    assert code[:4] == b"\x7fELF"
    solve = log[log.index("'jaxmbd_solve'") :]
    assert int(re.findall(r"Used (\d+) registers", solve)[0]) <= registers
    assert int(re.findall(r"(\d+) bytes spill stores", solve)[0]) <= spilled


@with_nvrtc
def test_a_compiled_kernel_is_stored(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "folders", lambda: [tmp_path / "cache"])
    kernel = kernel_of(family("pendulum", "joint"))
    first = launcher.compiled(kernel, "sm_90")
    monkeypatch.setattr(nvrtc, "cubin", lambda *_: pytest.fail("it is compiled again"))
    again = launcher.compiled(kernel, "sm_90")
    assert first.key == again.key
    np.testing.assert_array_equal(first.code, again.code)
    (path,) = (tmp_path / "cache").iterdir()
    path.write_bytes(path.read_bytes()[:-8])  # a damaged file counts as none
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        launcher.compiled(kernel, "sm_90")


@with_nvrtc
def test_a_text_that_is_no_cuda_is_refused() -> None:
    with pytest.raises(OSError, match=r"cannot compile a kernel for sm_90.*error"):
        nvrtc.cubin("this is no kernel", (), "sm_90")
