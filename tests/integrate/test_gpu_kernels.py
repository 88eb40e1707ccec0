"""Whole motions as kernels for a GPU against the virtual machine, and the text of kernels for CUDA's compiler.

On a computer without a GPU the same text runs as C (`tests/stand_in_gpu.py`).
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.simulation import native_motion
from jaxmbd.engine import choice
from jaxmbd.engine.machine.gpu import launcher, nvrtc
from jaxmbd.engine.machine.gpu.erk_kernel import HEADERS, RUN
from jaxmbd.engine.store import artefacts
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.adjoint import linear_sweeps, native_steps
from tests import planar_examples
from tests.integrate import test_native_switching as native_switching
from tests.marks import slow_but
from tests.stand_in_gpu import Gpu, StandIn

AnyGpu = Gpu | StandIn
SCALES = np.linspace(0.8, 1.3, 5)
CONSTANT = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01, "solver": mbd.RungeKutta4()}


@pytest.fixture
def gpu() -> Iterator[AnyGpu]:
    """A GPU, or a stand-in."""
    if jax.default_backend() == "gpu":
        yield Gpu()
    else:
        with StandIn().inserted() as found:
            yield found


@pytest.fixture
def stand_in(gpu: AnyGpu) -> StandIn:
    """A stand-in, for what a real GPU cannot be asked to do."""
    if not isinstance(gpu, StandIn):
        pytest.skip("this needs a GPU that fails when it is told to")
    return gpu


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
    pytest.param("heavy-top", "joint", {"solver": dfx.Dopri8()}, marks=pytest.mark.slow),
    pytest.param("suspension", "joint", {}, marks=pytest.mark.slow),
    pytest.param("four-bar-with-springs", "absolute", CONSTANT, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "coordinates", "settings"), CASES)
def test_a_kernel_takes_the_steps_of_the_virtual_machine(
    name: str, coordinates: str, settings: dict[str, Any], gpu: AnyGpu
) -> None:
    run = family(name, coordinates, **settings)
    found = jax.block_until_ready(jax.jit(jax.vmap(run))(SCALES))
    assert gpu.has_launched(2)  # what is the same for all instances, and the motions
    assert jax.tree.map(lambda x: x[0], found).engine == "native"
    with gpu.idle():
        known = jax.block_until_ready(jax.jit(jax.vmap(family(name, coordinates, **settings)))(SCALES))
    tolerance = 1e-12 if settings == CONSTANT else gpu.tolerance
    for count in ("num_steps", "num_accepted_steps", "num_rejected_steps"):
        np.testing.assert_allclose(found.stats[count], known.stats[count], atol=tolerance > 1e-10)
    for x, y in ((found.q, known.q), (found.integrated_speeds, known.integrated_speeds)):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * float(jnp.max(jnp.abs(y))))
    assert float(jnp.max(jnp.abs(found.q[0, -1] - found.q[-1, -1]))) > 1e-6  # each instance has its own mass


def bounces(scale: Any) -> mbd.Solution:
    """A ball that is pushed up from a switching time on, and bounces on the floor before that, or after it."""
    return native_switching.run(jnp.stack([2.0 * scale, 4.0, 0.6]), True)


def catches(scale: Any) -> mbd.Solution:
    """A ball that a latch catches in its flight, that is released and then falls until it is stopped."""
    body = pl.Body("ball", 1.0, 0.1)
    pull = pl.JointForce("pull", "rail.displacement", -9.81)
    mechanism = pl.Mechanism([body], [pl.Prismatic("rail", pl.ground.at(), body.at())], [pull])
    start = planar_examples.at_rest(mechanism, jnp.stack([2.0 * scale, 0.0, 0.0]))
    events = [
        mbd.Event("catch", "rail.displacement", below=1.0, then=mbd.Latch()),
        mbd.Event("let go", "t", above=0.9, then=mbd.Release("catch")),
        mbd.Event("passes", "rail.displacement", below=0.5, then=mbd.LogOnly()),
        mbd.Event("ends", "kinetic_energy", above=8.0 * scale, then=mbd.Stop()),
    ]
    return mbd.simulate(mechanism, start, jnp.linspace(0.0, 2.0, 9), events=events, max_events=6, throw=False)


def samples(scale: Any) -> mbd.Solution:
    """A pendulum under a controller that computes at instants, with a delay."""
    rod = pl.Body("rod", 1.0, 0.1, pose=(0.0, -0.5, 0.0))
    servo = pl.SampledPID("servo", "O.angle", 1.0, 0.05, 30.0 * scale, 5.0, 4.0, "O.angle", delay=1)
    hinge = pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.5))
    mechanism = pl.Mechanism([rod], [hinge], [pl.Gravity()], controllers=[servo], coordinates="joint")
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.0}), np.linspace(0.0, 0.5, 5), throw=False)


ALL_OF_THE_LOOP = {
    "events and a switching time": bounces,
    "a latch": catches,
    "samples": samples,
    "projection": family("planar-four-bar", "absolute", formulation=mbd.Projection()),
    "partitioning": family("planar-four-bar", "joint", formulation=mbd.CoordinatePartitioning()),
    "Radau": family("slider-crank", "joint", solver=mbd.Radau(3)),
    "Radau with an event": lambda scale: family(
        "pendulum", "joint", solver=mbd.Radau(), max_events=4,
        events=[mbd.Event("up", "O.angle", above=3.3, then=mbd.LogOnly())],
    )(scale),
}  # fmt: skip


def batched(*functions: Callable[[Any], Any]) -> Any:
    """The results of functions for all scales, each compiled anew."""
    return jax.block_until_ready([jax.jit(jax.vmap(lambda s, f=f: f(s)))(SCALES) for f in functions])


@pytest.mark.parametrize("what", slow_but(["events and a switching time"], ALL_OF_THE_LOOP))
def test_all_that_the_native_loop_does_a_kernel_does(what: str, gpu: AnyGpu) -> None:
    """Motions, and logs of events."""

    def readings(scale: Any) -> tuple[Any, ...]:
        motion = ALL_OF_THE_LOOP[what](scale)
        log, ok = motion.events, motion.result == mbd.RESULTS.successful
        logged = () if log is None else (log.which, log.times, log.q, log.before, log.after, log.impulses)
        return ok, motion.q, motion.integrated_speeds, motion.stats["num_steps"], logged

    (found,) = batched(readings)
    assert gpu.has_launched(2)
    with gpu.idle():
        (known,) = batched(readings)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=gpu.tolerance), found, known)
    ok, *_, logged = found
    assert bool(jnp.all(ok))
    assert not logged or bool(jnp.all(logged[0][:, 0] >= 0))  # something has happened in each instance


@pytest.mark.slow
@pytest.mark.parametrize("what", ALL_OF_THE_LOOP)
def test_derivatives_of_all_that_the_native_loop_does(what: str, gpu: AnyGpu) -> None:
    def reading(scale: Any) -> Any:
        motion = ALL_OF_THE_LOOP[what](scale)
        of_events = 0.0 if motion.events is None else jnp.sum(motion.events.times) + jnp.sum(motion.events.after)
        return jnp.sin(motion.q[-1, 0]) + motion.q[3, 0] ** 2 + of_events

    both = jax.grad(reading), lambda scale: jax.jvp(reading, (scale,), (1.0,))[1]
    found = batched(*both)
    assert gpu.has_launched(4 + 4)
    with gpu.idle():
        known = batched(*both)
    accuracy = max(1e-8, 100 * gpu.tolerance)
    for x, y in (*zip(found, known, strict=True), found):  # each as by the virtual machine, and both modes alike
        np.testing.assert_allclose(x, y, rtol=accuracy, atol=accuracy)
    assert float(jnp.min(jnp.abs(found[1]))) > 1e-4


def test_a_lane_that_fails_says_so_for_itself(gpu: AnyGpu) -> None:
    """On the GPU, by the interpreter and by straight-line code, which stops the lane and not its neighbours."""
    example = mbd.examples.get("pendulum")
    mechanism, state, ts = example.mechanism, example.state(), jnp.linspace(0.0, 1.0, 9)
    speeds = jnp.array([0.1, 40.0, 0.2, jnp.nan])

    def run(engine: Any) -> mbd.Solution:
        def one(speed: Any) -> mbd.Solution:
            start = eqx.tree_at(lambda s: s.v, state, speed * jnp.ones_like(state.v))
            return mbd.simulate(mechanism, start, ts, throw=False, max_steps=30, engine=engine)

        return jax.block_until_ready(jax.jit(jax.vmap(one))(speeds))

    found = [run("auto")]
    assert gpu.has_launched(2)
    with gpu.idle():
        found += [run("interpreter"), run("native")]
    verdicts = mbd.RESULTS.successful, mbd.RESULTS.max_steps_reached, mbd.RESULTS.not_finite
    for each in found:
        for verdict, expected in zip(verdicts, ([1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]), strict=True):
            np.testing.assert_array_equal(each.result == verdict, expected)
        np.testing.assert_allclose(each.q, found[1].q, rtol=0, atol=1e-9)  # NaN after a failure
        np.testing.assert_array_equal(jnp.isnan(each.q[:, -1, 0]), [0, 1, 0, 1])


def test_a_motion_too_large_for_the_compiler_is_left_to_xla(gpu: AnyGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_motion, "default_platform", lambda: "gpu")
    monkeypatch.setattr(nvrtc, "version", lambda: "13.0")

    def engine(max_steps: int, **settings: Any) -> str:
        return jax.jit(family("pendulum", "joint", max_steps=max_steps, **settings))(1.1).engine

    assert engine(100) == "native"
    monkeypatch.setattr(choice, "KERNEL_OPERATIONS", 10)
    assert engine(101) == "diffrax"
    assert engine(101, engine="native") == "native"
    with pytest.raises(
        MechanismError, match=r"engine='interpreter' cannot run a motion on a device that has no such engine \(GPU\)"
    ):
        engine(101, engine="interpreter")


def test_one_motion_and_single_precision(gpu: AnyGpu) -> None:
    def check(run: Callable[[Any], mbd.Solution], dtype: Any, tolerance: float) -> None:
        found = jax.block_until_ready(jax.jit(run)(1.1))
        assert gpu.has_launched(2)
        assert found.q.dtype == dtype
        with gpu.idle():
            known = jax.jit(lambda scale: run(scale).q)(1.1)
        np.testing.assert_allclose(found.q, known, rtol=0, atol=tolerance)

    check(family("pendulum", "joint", **CONSTANT), jnp.float64, 1e-12)
    with jax.enable_x64(False):
        check(family("pendulum", "joint"), jnp.float32, 2e-5)


def test_tables_are_read_where_the_index_points(gpu: AnyGpu) -> None:
    """One table of each instance's own and one of all; an index beyond the end means the last element."""

    def rate(given: Any, static: Any, t: Any, y: Any) -> Any:
        own, shared = given
        at = jnp.floor(4 * t).astype(int) - 1
        return jnp.stack([own.at[at].get(mode="clip"), shared.at[at].get(mode="clip") * y[0]])

    y, shared, ts = jnp.array([0.5, -0.2]), jnp.array([2.0, 3.0, 5.0]), jnp.array([0.3, 1.7])
    tables = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)))

    def run(own: Any) -> Any:
        method = native_steps.native_steps(
            rate, None, (own, shared), None, y, mbd.RungeKutta4(), np.ones(2), len(ts), 100
        )
        assert method is not None
        steps, known = method
        return linear_sweeps.solve(steps, [y, *known, 0.0, 2.0, ts], 0.25, jnp.zeros(10), False, False)[:2]

    found = jax.block_until_ready(jax.jit(jax.vmap(run))(tables))
    assert gpu.has_launched(2)
    with gpu.idle():
        known = jax.jit(jax.vmap(lambda own: run(own)))(tables)
    jax.tree.map(np.testing.assert_array_equal, found, known)
    weights = jnp.array([0.25, 0.25, 0.25, 1.25])  # the index -1 means the last one
    np.testing.assert_allclose(found[1][:, 0], 0.5 + tables @ weights, rtol=1e-12)


@pytest.mark.parametrize("name", slow_but(["pendulum"], ["slider-crank", "pendulum"]))
def test_derivatives_are_kernels_too(name: str, gpu: AnyGpu) -> None:
    example = mbd.examples.get(name)
    start, mass = example.state(), example.mechanism.bodies[0].mass

    def reading(scale: Any, v: Any, end: Any) -> Any:
        mechanism = eqx.tree_at(lambda m: m.bodies[0].mass, example.mechanism, mass * scale)
        state = eqx.tree_at(lambda s: s.v, start, v)
        found = mbd.simulate(mechanism, state, jnp.linspace(0.0, 1.0, 5) * end, throw=False, max_steps=3000)
        return jnp.sin(found.q[-1, 0]) + found.q[2, 0] ** 2 + found.q[3, 0]

    def derivatives() -> tuple[Any, Any]:
        given = SCALES, start.v, 0.3
        in_reverse = jax.jit(jax.vmap(jax.grad(lambda *x: reading(*x), (0, 1, 2)), (0, None, None)))(*given)
        forward = lambda *x: jax.jvp(reading, x, (1.0, jnp.ones_like(start.v), 1.0))[1]  # noqa: E731
        return jax.block_until_ready((in_reverse, jax.jit(jax.vmap(forward, (0, None, None)))(*given)))

    (by_scale, by_v, by_end), along = derivatives()
    assert gpu.has_launched(8)  # motion and sweep, in both modes, each after what its instances share
    with gpu.idle():
        known = derivatives()
    accuracy = max(1e-8, 100 * gpu.tolerance)
    for x, y in zip((by_scale, by_v, by_end, along), (*known[0], known[1]), strict=True):
        np.testing.assert_allclose(x, y, rtol=accuracy, atol=accuracy / 100)
    np.testing.assert_allclose(along, by_scale + jnp.sum(by_v, 1) + by_end, rtol=1e-8)
    assert float(jnp.min(jnp.abs(by_end))) > 1e-3


def test_the_call_for_a_gpu_has_no_transposes(gpu: AnyGpu) -> None:
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


def test_a_refusal_of_the_driver_says_why(stand_in: StandIn) -> None:
    stand_in.driver.stand_in_refuse(719)
    try:
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"cannot be launched: the stand-in refuses \(719\)"):
            jax.block_until_ready(jax.jit(jax.vmap(family("pendulum", "joint")))(SCALES).q)
    finally:
        stand_in.driver.stand_in_refuse(0)


def test_without_driver_or_compiler_the_error_says_what_is_missing(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(launcher, "_DRIVER", str(tmp_path / "libcuda.so.1"))
    with pytest.raises(MechanismError, match=r"NVIDIA's driver.*libcuda\.so\.1"):
        jax.jit(jax.vmap(family("pendulum", "joint")))(SCALES)
    monkeypatch.setattr(nvrtc, "_library", lambda: None)
    with pytest.raises(OSError, match=r"NVRTC is not installed.*jax\[cuda13\]"):
        nvrtc.cubin("", (), "sm_90")


# --- for the compiler of CUDA -----------------------------------------------------------------------------

# For what is in its cache the compiler writes no log. Before CUDA 13 it has none, and refuses the option.
NO_CACHE = ("--no-cache",) if nvrtc.version().startswith("13.") else ()
with_nvrtc = pytest.mark.skipif(not nvrtc.version(), reason="NVRTC is not installed (pip install 'jaxmbd[gpu-test]')")


def kernels_of(run: Callable[[Any], Any]) -> list[Any]:
    """The kernels of a batch."""
    found: list[Any] = []

    def recorded(kernel: Any, operands: Any, results: Any, batch: int) -> list[Any]:
        found.append(kernel)
        return [jnp.zeros(x.shape, x.dtype) for x in results]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_sweeps, "launched", recorded)
        patch.setitem(linear_sweeps._NATIVE, "cpu", linear_sweeps._by_kernel)
        jax.jit(jax.vmap(run)).lower(SCALES)
    return found


def end(run: Callable[[Any], mbd.Solution]) -> Callable[[Any], Any]:
    return lambda scale: run(scale).q[-1, 0]


def sensitivity(run: Callable[[Any], mbd.Solution]) -> Callable[[Any], Any]:
    return lambda scale: jax.jvp(end(run), (scale,), (1.0,))[1]


# The registers of a thread, at most 255, and the bytes that do not fit into them, for an H100.
FOUR_BAR = {"formulation": mbd.Augmented()}
CEILINGS = {
    "equal steps": (end, "planar-four-bar", FOUR_BAR | CONSTANT, [(255, 0)]),
    "adaptive steps": (end, "planar-four-bar", FOUR_BAR, [(255, 1000)]),
    "forward mode": (sensitivity, "pendulum", {}, [(200, 0), (255, 200)]),
    "reverse mode": (lambda run: jax.grad(end(run)), "pendulum", {}, [(200, 0), (255, 200)]),
    "a latch": (end, catches, {}, [(255, 2000)]),
    "projection": (end, "planar-four-bar", {"formulation": mbd.Projection()}, [(255, 3000)]),
    "Radau": (end, "pendulum", {"solver": mbd.Radau(3)}, [(255, 3000)]),
}


@with_nvrtc
@pytest.mark.parametrize("case", slow_but(["reverse mode"], CEILINGS))
def test_a_kernel_fits_into_the_registers_of_a_gpu(case: str) -> None:
    """All of the loop's text is compiled with each of them."""
    quantity, run, settings, ceilings = CEILINGS[case]
    kernels = kernels_of(quantity(run if callable(run) else family(run, "joint", **settings)))
    for kernel, (registers, spilled) in zip(kernels, ceilings, strict=True):
        text, _ = kernel.source()
        code, log = nvrtc.cubin(text, HEADERS, "sm_90", ("--ptxas-options=-v", *NO_CACHE))
        assert code[:4] == b"\x7fELF"
        main = log[log.index(f"'{RUN}'") :]
        assert int(re.findall(r"Used (\d+) registers", main)[0]) <= registers
        assert int(re.findall(r"(\d+) bytes spill stores", main)[0]) <= spilled


class Kernel(NamedTuple):
    """What a kernel is for its compiler."""

    text: str

    def source(self) -> tuple[str, int]:
        return self.text, 3


def test_a_compiled_kernel_is_stored_and_only_the_whole_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = list[str]()

    def cubin(text: str, *_: Any) -> tuple[bytes, str]:
        compiled.append(text)
        return f"\x7fELF of {text}".encode(), ""

    def image(text: str, count: int) -> bytes:
        found = launcher.compiled(cast(Any, Kernel(text)), "sm_90")
        assert (len(compiled), found.uniform) == (count, 3)
        return found.code.tobytes()

    monkeypatch.setattr(nvrtc, "cubin", cubin)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for text, count in (("first", 1), ("second", 2), ("first", 2), ("second", 2)):
        code = image(text, count)
        assert code.rstrip(b"\0") == f"\x7fELF of {text}".encode()
        assert len(code) % 8 == 0
    (path, other) = sorted(
        (tmp_path / "jaxmbd" / "compiled").iterdir(), key=lambda path: b"second" in path.read_bytes()
    )
    whole = path.read_bytes()
    flipped = [whole[:k] + bytes([whole[k] ^ 4]) + whole[k + 1 :] for k in range(0, len(whole), 3)]
    for count, content in enumerate([other.read_bytes(), whole[:-8], b"", *flipped], start=3):
        path.write_bytes(content)
        assert image("first", count).startswith(b"\x7fELF of first")
        assert path.read_bytes() == whole
    monkeypatch.setenv("JAXMBD_CACHE_MIB", "0")
    image("first", len(compiled) + 1)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setenv("JAXMBD_CACHE_MIB", "1")
    monkeypatch.setattr(artefacts.tempfile, "gettempdir", lambda: "/dev/null")
    image("first", len(compiled) + 1)  # where there is no folder


@with_nvrtc
def test_a_text_that_is_no_cuda_is_refused() -> None:
    with pytest.raises(OSError, match=r"cannot compile a kernel for sm_90.*error"):
        nvrtc.cubin("this is no kernel", (), "sm_90")
