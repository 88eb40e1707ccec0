"""Motions whose time loop runs in the virtual machine: the steps, states and derivatives of diffrax.

A subclass of a step-size controller is not known to the virtual machine, so that diffrax integrates with it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.simulation.step_control import StateNorm, default_controller
from jaxmbd.integrate.adjoint import native_steps, step_programs
from jaxmbd.integrate.adjoint.native_run import run_native
from tests.marks import slow_but
from tests.numeric import differences


class PID(dfx.PIDController):
    """Integrated by diffrax."""


class Constant(dfx.ConstantStepSize):
    """Integrated by diffrax."""


def twins(ts: Any, **changes: Any) -> tuple[dfx.PIDController, PID]:
    """The default controller, with changes, and the same for diffrax."""
    ours = dataclasses.replace(default_controller(mbd.Integration(), ts, 1.0, StateNorm()), **changes)  # pyright: ignore
    return ours, PID(**{field.name: getattr(ours, field.name) for field in dataclasses.fields(ours)})


def is_native(run: Callable[..., Any], *arguments: Any) -> bool:
    return "jaxmbd_solve" in str(jax.make_jaxpr(run)(*arguments))


def pendulum(length: Any = 0.5) -> pl.Mechanism:
    rod = pl.Body("rod", 1.3, 0.1, (0.5, 0.0, 0.0))
    return pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-length))], [pl.Gravity()])


def compare(mechanism: Any, state: mbd.State, ts: Any, first: Any, second: Any, atol: float, **settings: Any) -> None:
    runs = [mbd.simulate(mechanism, state, ts, stepsize_controller=c, **settings) for c in (first, second)]
    for name in ("num_steps", "num_accepted_steps", "num_rejected_steps"):
        assert int(runs[0].stats[name]) == int(runs[1].stats[name])
    np.testing.assert_allclose(runs[0].q, runs[1].q, atol=atol)
    np.testing.assert_allclose(runs[0].v, runs[1].v, atol=1e2 * atol)
    assert runs[0].result == runs[1].result


QUICK = {("pendulum", "joint"), ("bricard", "absolute")}
CASES = [
    (name, kind)
    for name in ("pendulum", "four-bar-with-springs", "bricard", "heavy-top", "suspension", "andrews")
    for kind in ("absolute", "joint")
]

# [s] later rounding decides whether a step is accepted: a mass greater by 7e-15 changes diffrax's own steps
DETERMINED = {"four-bar-with-springs": 0.6}


@pytest.mark.parametrize(("name", "coordinates"), [
    case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in CASES
])  # fmt: skip
def test_the_steps_are_those_of_diffrax(name: str, coordinates: str) -> None:
    """Also where constraints are redundant, so that the solved rows are exchanged between steps."""
    example = mbd.examples.get(name).with_coordinates(coordinates)
    ts = np.linspace(0.0, min(DETERMINED.get(name, 1.0), example.duration), 11)
    ours, theirs = twins(ts)
    state = example.state()
    assert is_native(lambda q: mbd.simulate(example.mechanism, eqx.tree_at(lambda s: s.q, state, q), ts).q, state.q)
    compare(example.mechanism, state, ts, ours, theirs, 1e-9)


METHODS = {
    "Heun": dfx.Heun(), "Midpoint": dfx.Midpoint(), "Ralston": dfx.Ralston(), "Bosh3": dfx.Bosh3(),
    "Tsit5": dfx.Tsit5(), "Dopri5": dfx.Dopri5(), "Dopri8": dfx.Dopri8(),
}  # fmt: skip
CONTROLS = {
    "default": {},
    "PI": {"pcoeff": 0.3, "icoeff": 0.4},
    "PID": {"pcoeff": 0.2, "icoeff": 0.3, "dcoeff": 0.1},
    "long steps": {"factormax": 3.0, "factormin": 0.3, "safety": 0.8, "dtmax": 0.04},
    "forced": {"dtmin": 0.02, "force_dtmin": True},
}


@pytest.mark.parametrize("method", slow_but(["Tsit5", "Bosh3"], METHODS))
def test_all_explicit_methods_of_diffrax(method: str) -> None:
    mechanism, ts = pendulum(), np.linspace(0.0, 0.7, 8)
    state = mbd.assemble(mechanism, {"rod.theta": 0.3})
    compare(mechanism, state, ts, *twins(ts, rtol=1e-6, atol=1e-8), 1e-10, solver=METHODS[method])
    fixed = {"dt0": 3e-3, "solver": METHODS[method]}
    compare(mechanism, state, ts, dfx.ConstantStepSize(), Constant(), 1e-11, **fixed)


@pytest.mark.parametrize("control", slow_but(["PID"], CONTROLS))
def test_step_size_control(control: str) -> None:
    mechanism, ts = pendulum(), np.linspace(0.0, 0.7, 8)
    state = mbd.assemble(mechanism, {"rod.theta": 0.3})
    changes = {"rtol": 1e-6, "atol": 1e-8, **CONTROLS[control]}
    compare(mechanism, state, ts, *twins(ts, **changes), 1e-9, control_speeds=False, solver=dfx.Tsit5())


def run_of(ts: Any, controller: Any, **settings: Any) -> Callable[..., Any]:
    """Saved coordinates as a function of the length of a pendulum, its initial speed, and the last time."""

    def run(length: Any, speed: Any, end: Any) -> Any:
        mechanism = pendulum(length)
        state = mbd.assemble(mechanism, {"rod.theta": 0.3}, speeds={"rod.omega": speed})
        times = jnp.asarray(ts) * end
        return mbd.simulate(mechanism, state, times, stepsize_controller=controller, **settings).q[1:]

    return run


AT = (0.5, 0.7, 0.9)


@pytest.mark.parametrize("jitted", [False, True])
def test_derivatives_are_those_of_diffrax(jitted: bool) -> None:
    ts = np.linspace(0.0, 1.0, 4)
    mode = jax.jit if jitted else lambda f: f
    for derivative in (jax.jacrev, jax.jacfwd):
        found = [mode(derivative(run_of(ts, c), (0, 1, 2)))(*AT) for c in twins(ts, rtol=1e-10, atol=1e-12)]
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)
            assert np.abs(theirs).max() > 1e-2


def test_tangents_are_differences_of_the_motion() -> None:
    """By the angle, the speed and the length of a pendulum in joint coordinates, in constant steps."""
    state = mbd.assemble(pendulum().with_coordinates("joint"), {"rod.theta": 0.3})

    def run(x: jax.Array) -> jax.Array:
        begin = eqx.tree_at(lambda s: (s.q, s.v), state, (x[:1], x[1:2]))
        settings: dict[str, Any] = {"dt0": 0.02, "solver": dfx.Bosh3(), "stepsize_controller": dfx.ConstantStepSize()}
        solution = mbd.simulate(pendulum(x[2]).with_coordinates("joint"), begin, [0.0, 0.5], throw=False, **settings)
        return jnp.append(solution.q[-1], solution.v[-1])

    at = jnp.array([0.3, 0.7, 0.5])
    assert is_native(run, at)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(run))(at), differences(run, at), rtol=1e-8)


@pytest.mark.slow
def test_derivatives_of_second_order() -> None:
    ts = np.linspace(0.0, 1.0, 3)
    ours, theirs = (run_of(ts, c, solver=dfx.Tsit5()) for c in twins(ts))
    wanted = jax.jacfwd(jax.jacfwd(lambda x: theirs(x, *AT[1:])[-1]))(AT[0])
    for inner in (jax.jacfwd, jax.jacrev):
        for outer in (jax.jacfwd, jax.jacrev):
            found = outer(inner(lambda x: ours(x, *AT[1:])[-1]))(AT[0])
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 11])
def test_lanes_have_steps_of_their_own(count: int) -> None:
    """Runs of different lengths side by side, with their derivatives, against one after another."""
    ts = np.linspace(0.0, 1.0, 4)
    # Rounding moves steps so much that results differ by some per cent of the accuracy, which is 5e-8 by default.
    run = run_of(ts, twins(ts, rtol=1e-12, atol=1e-13)[0], throw=False)
    lengths, speeds = np.linspace(0.3, 0.8, count), np.linspace(0.0, 9.0, count)
    steps = lambda speed: mbd.simulate(  # noqa: E731
        pendulum(), mbd.assemble(pendulum(), {"rod.theta": 0.3}, speeds={"rod.omega": speed}), ts, throw=False
    ).stats["num_steps"]
    assert len(np.unique(jax.vmap(steps)(speeds))) > 1
    for function in (run, jax.jacrev(run), jax.jacfwd(run)):
        together = jax.vmap(lambda a, b, f=function: f(a, b, 0.9))(lengths, speeds)
        alone = [function(a, b, 0.9) for a, b in zip(lengths, speeds, strict=True)]
        np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-9)
    grid = jax.vmap(lambda a: jax.vmap(lambda b: run(a, b, 0.9))(speeds[:2]))(lengths[:2])
    np.testing.assert_allclose(grid[1, 0], run(lengths[1], speeds[0], 0.9), atol=1e-9)


@pytest.mark.slow
def test_a_batch_of_derivatives_without_jit() -> None:
    """There each sweep is evaluated as it is met, batched or not."""
    ts, lengths = np.linspace(0.0, 0.1, 2), jnp.array([0.4, 0.5])
    run = run_of(ts, dfx.ConstantStepSize(), dt0=0.05, solver=dfx.Heun(), throw=False)
    slope = jax.grad(lambda x: run(x, *AT[1:])[-1, 2])
    with jax.disable_jit():
        found = jax.vmap(slope)(lengths)
    np.testing.assert_allclose(found, [slope(x) for x in lengths], rtol=1e-12)


WATCHED = {
    "another device": lambda: jax.default_device(jax.devices("cpu")[0]),
    "NaNs looked for": lambda: jax.debug_nans(True),
}


@pytest.mark.parametrize("watched", WATCHED)
def test_what_is_known_inside_jit_is_computed_while_tracing(watched: str) -> None:
    """Also where JAX watches what it computes: of a known mechanism it is known if its constraints are redundant."""
    example, ts = mbd.examples.get("pendulum"), jnp.linspace(0.0, 1.0, 3)
    start = example.state()

    def run(scale: Any) -> Any:
        state = eqx.tree_at(lambda s: s.v, start, scale * jnp.ones(3))
        return mbd.simulate(example.mechanism, state, ts, throw=False).q

    with WATCHED[watched]():
        found = jax.jit(jax.vmap(run))(jnp.array([0.1, 0.2]))
    np.testing.assert_allclose(found, jax.vmap(run)(jnp.array([0.1, 0.2])), rtol=1e-12)


def test_more_steps_than_checkpoints() -> None:
    """Gradients of 5,000 constant steps, of which not all first states are stored."""
    ts, settings = np.linspace(0.0, 1.0, 3), {"dt0": 2e-4, "solver": dfx.Bosh3(), "max_steps": 5000}
    found = [jax.grad(lambda x, c=c: run_of(ts, c, **settings)(x, *AT[1:])[-1, 2])(AT[0])
             for c in (dfx.ConstantStepSize(), Constant())]  # fmt: skip
    np.testing.assert_allclose(*found, rtol=1e-10)


def test_redundant_constraints_that_are_known_at_run_time_only() -> None:
    """A parallelogram with three cranks; under `jit` nothing is known of its rank."""

    def run(mass: Any, controller: Any) -> Any:
        cranks = [pl.Body(f"c{k}", mass, 0.02, (k + 0.0, 0.25, np.pi / 2)) for k in range(3)]
        bar = pl.Body("bar", 2.0, 0.1, (1.0, 0.5, 0.0))
        joints = [pl.Revolute(f"g{k}", pl.ground.at(k + 0.0, 0.0), c.at(-0.25)) for k, c in enumerate(cranks)]
        joints += [pl.Revolute(f"b{k}", c.at(0.25), bar.at(k - 1.0)) for k, c in enumerate(cranks)]
        mechanism = pl.Mechanism([*cranks, bar], joints, [pl.Gravity()])
        state = mbd.assemble(mechanism, speeds={"c0.omega": 2.0})
        return mbd.simulate(mechanism, state, jnp.linspace(0.0, 0.8, 3), stepsize_controller=controller).q[-1]

    ours, theirs = twins(np.linspace(0.0, 0.8, 3))
    assert is_native(lambda x: run(x, ours), 1.0)
    for mode in (lambda f: f, jax.jit):
        found = [mode(jax.jacrev(lambda x, c=c: run(x, c)))(1.0) for c in (ours, theirs)]
        np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-8)
        assert np.abs(found[1]).max() > 1e-3


def bouncing(speed: Any, is_walled: Any, x: Any, after: Any = None) -> Any:
    """The end of a motion with the speed `±speed` between two walls, if there are any, in 40 equal steps of 0.1."""

    def rate(given: Any, static: Any, t: Any, y: Any) -> Any:
        return given[0] * y[1:]  # of the position alone: the direction is constant within a step

    def turned(given: Any, static: Any, t: Any, y: Any) -> Any:
        return jnp.where(given[1] & (y[0] * y[1] > 0.35), -y[1:], y[1:])

    y, ts = [jnp.stack([x]), jnp.ones(1)], jnp.array([0.0, 4.0])
    found = native_steps.native_steps(
        rate, after or turned, (speed, is_walled), None, jnp.concatenate(y), dfx.Heun(), np.ones(2), 2, 64,
        condition=is_walled,
    )  # fmt: skip
    assert found is not None
    run, _ = run_native(*found, y, dfx.ConstantStepSize(), 0.1, ts[0], ts[1], ts)
    return run.ys[1][0][0, 0]  # pyright: ignore


def test_what_happens_after_steps_happens_only_where_its_condition_holds() -> None:
    """In each instance of a batch, in the motion and in both sweeps for its derivatives."""
    rng = np.random.default_rng(3)
    speeds, walls, starts = rng.uniform(0.5, 1.5, 21), np.arange(21) % 4 == 1, rng.uniform(-0.2, 0.2, 21)
    walls[8:16] = False  # no instance that is computed side by side with these has walls

    def expected(speed: Any, is_walled: Any, x: Any) -> tuple[float, float]:
        slope, direction = 0.0, 1.0
        for _ in range(40):
            x, slope = x + 0.1 * speed * direction, slope + 0.1 * direction
            direction = -direction if is_walled and x * direction > 0.35 else direction
        return x, slope

    ends, slopes = np.transpose([expected(*each) for each in zip(speeds, walls, starts, strict=True)])
    assert np.abs(ends[walls]).max() < 0.6 < np.abs(ends[~walls]).min()
    arguments = jnp.asarray(speeds), jnp.asarray(walls), jnp.asarray(starts)
    np.testing.assert_allclose(jax.vmap(bouncing)(*arguments), ends, atol=1e-13)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.vmap(derivative(bouncing))(*arguments), slopes, atol=1e-13)

    def always(given: Any, static: Any, t: Any, y: Any) -> Any:
        return -y[1:]

    # Where the condition does not hold, not even a program that does not look at it is run.
    np.testing.assert_allclose(bouncing(jnp.array(1.0), jnp.array(False), jnp.array(0.0), always), 4.0, atol=1e-13)
    np.testing.assert_allclose(bouncing(jnp.array(1.0), jnp.array(True), jnp.array(0.0), always), 0.0, atol=1e-13)


def swinging(length: Any, y: Any, ts: Any, rows: int) -> Any:
    """The saved and the final states of a pendulum in steps of its own; `rows`: of checkpoints."""

    def rate(given: Any, static: Any, t: Any, y: Any) -> Any:
        drag = jnp.sqrt(given[0] * jnp.sum(y * y))  # has no derivative at zero, where an instance without steps may be
        return jnp.stack([y[1], -9.81 / given[0] * jnp.sin(y[0]) + 0.1 * jnp.cos(t) - 0.1 * drag * y[1]])

    control, norm = dfx.PIDController(rtol=1e-7, atol=1e-7), np.ones(2)
    found = native_steps.native_steps(rate, None, (length,), None, y, dfx.Tsit5(), norm, len(ts), 80, rows=rows)
    assert found is not None
    run, _ = run_native(*found, (y,), control, 0.01, ts[0], ts[-1], ts)
    return run.ys[0][0], run.ys[1][0][0]  # pyright: ignore


@pytest.mark.parametrize("width", [np.float64, np.float32])
def test_an_instance_does_not_depend_on_those_beside_it(width: Any) -> None:
    """To the last bit, in any order: they take other numbers of steps, one is not finite, and one turns very far."""
    rng = np.random.default_rng(5)
    lengths, y = rng.uniform(0.1, 3.0, 61).astype(width), rng.uniform(-2.0, 2.0, (61, 2)).astype(width)
    lengths[7], y[40, 0] = np.nan, 3e6
    ts = np.linspace(0.0, 1.5, 4).astype(width)

    def states_and_slope(length: Any, y: Any) -> tuple[Any, Any]:
        run = lambda x: swinging(x, y, ts, 80)  # noqa: E731
        return run(length), jax.jvp(run, (length,), (jnp.ones_like(length),))[1]

    with jax.enable_x64(width is np.float64):
        together = jax.jit(jax.vmap(states_and_slope))
        orders = np.arange(61), rng.permutation(61)
        found = [jax.tree.leaves(together(jnp.asarray(lengths[order]), jnp.asarray(y[order]))) for order in orders]
    is_finite = np.isfinite(found[0][0]).all(axis=(1, 2))
    assert 40 < is_finite.sum() < 61  # the others use up their steps
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(np.asarray(first)[orders[1]], np.asarray(second))


@pytest.mark.parametrize("rows", [64, 5])  # 64 are as many as there are steps
def test_gradients_of_a_batch_are_those_of_its_instances(rows: int) -> None:
    """Each has other numbers of steps and other times, one of them takes no step, and one uses up its steps."""
    rng = np.random.default_rng(1)
    lengths, y = jnp.asarray(rng.uniform(0.1, 3.0, 21)), jnp.asarray(rng.uniform(-2.0, 2.0, (21, 2)))
    ts = np.cumsum(rng.uniform(0.05, 0.4, (21, 6)), axis=1)
    ts[4], ts[9] = ts[4, 0], ts[9] * 1e3
    weights = jnp.asarray(rng.normal(size=(6, 2)))

    def loss(length: Any, y: Any, ts: Any) -> Any:
        states, end = swinging(length, y, ts, rows)
        return jnp.sum(weights * jnp.where(jnp.isfinite(states), states, 0.0)) + end[0] - 2.0 * end[1]

    gradient = jax.jit(jax.grad(loss, (0, 1, 2)))
    singles = [gradient(*each) for each in zip(lengths, y, jnp.asarray(ts), strict=True)]
    together = jax.vmap(jax.grad(loss, (0, 1, 2)))(lengths, y, jnp.asarray(ts))
    for found, expected in zip(together, zip(*singles, strict=True), strict=True):
        np.testing.assert_allclose(found, np.stack(expected), rtol=1e-8, atol=1e-11)
        assert np.abs(found[5]).min() > 1e-3
    forward = jax.jacfwd(loss, (0, 1, 2))(lengths[5], y[5], jnp.asarray(ts[5]))
    for found, expected in zip(together, forward, strict=True):
        np.testing.assert_allclose(found[5], expected, rtol=1e-9)


@pytest.mark.parametrize(("settings", "result"), [
    ({"max_steps": 5}, mbd.RESULTS.max_steps_reached),
    ({"changes": {"dtmin": 0.2}}, mbd.RESULTS.step_too_small),
])  # fmt: skip
def test_failures_are_those_of_diffrax(settings: dict[str, Any], result: Any) -> None:
    ts, settings = np.linspace(0.0, 1.0, 4), dict(settings)
    mechanism = pendulum()
    state = mbd.assemble(mechanism, {"rod.theta": 0.3})
    pair = twins(ts, **settings.pop("changes", {}))
    runs = [mbd.simulate(mechanism, state, ts, stepsize_controller=c, throw=False, **settings) for c in pair]
    assert runs[0].result == runs[1].result == result
    np.testing.assert_allclose(runs[0].q, runs[1].q, atol=1e-12)
    assert int(runs[0].stats["num_steps"]) == int(runs[1].stats["num_steps"])


def test_single_precision() -> None:
    ts = np.linspace(0.0, 0.7, 8)
    exact = mbd.simulate(pendulum(), mbd.assemble(pendulum(), {"rod.theta": 0.3}), ts)
    with jax.enable_x64(False):
        found = mbd.simulate(pendulum(), mbd.assemble(pendulum(), {"rod.theta": 0.3}), ts)
        assert found.q.dtype == np.float32
        np.testing.assert_allclose(found.q, exact.q, atol=2e-4)


def test_a_method_used_in_single_precision_first_is_exact_in_double() -> None:
    """Its dense output is computed once."""
    step_programs.numbers_of.cache_clear()
    with jax.enable_x64(False):
        mbd.simulate(pendulum(), mbd.assemble(pendulum(), {"rod.theta": 0.3}), [0.0, 0.5], solver=dfx.Tsit5())
    ts = np.linspace(0.0, 0.7, 8)
    state = mbd.assemble(pendulum(), {"rod.theta": 0.3})
    compare(pendulum(), state, ts, *twins(ts), 1e-11, solver=dfx.Tsit5())


def test_quadratures() -> None:
    mechanism, ts = pendulum(), np.linspace(0.0, 0.7, 4)
    state = mbd.assemble(mechanism, {"rod.theta": 0.3})
    runs = [
        mbd.simulate(mechanism, state, ts, stepsize_controller=c, quadratures=["kinetic_energy"]) for c in twins(ts)
    ]
    np.testing.assert_allclose(*(run.quadratures["kinetic_energy"] for run in runs), rtol=1e-10, atol=1e-14)
    assert float(runs[0].quadratures["kinetic_energy"][-1]) > 0.1


# --- engines ----------------------------------------------------------------------------------------------------------
