"""Explicit Runge–Kutta methods written out: those of diffrax to rounding, and the classical one.

The system is a pair of pendulums with a driven support, `q̈ = −p sin q + cos 3t`, with `∫ q² dt` for an integral.
"""

import inspect
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.simulation import simulate
from jaxmbd.integrate.adjoint import native_steps
from jaxmbd.integrate.formulations.formulation import Projection
from jaxmbd.integrate.solvers.unrolled_erk import UnrolledERK, unrolled
from jaxmbd.integrate.solvers.wrapped_solver import PostStepSolver
from tests import planar_examples as examples
from tests.crank_rocker import four_bar
from tests.numeric import worst

ROUNDING = 2e-14  # of states of size one, over a hundred steps
ROUNDING_SINGLE = 2e-6
CONTROLLED = 1e-10  # where the control may choose other steps by rounding, at tolerances of 1e-9
END = 1.0  # [s]
STEP = 0.01  # [s]
TS = np.linspace(0.0, END, 8)  # [s], not at the ends of steps
START = (np.array([1.0, -0.5]), np.array([0.2, 0.4]), np.zeros(1))
P = np.array([9.81, 3.0])  # [1/s²]
SOLVERS = [dfx.Dopri8(), dfx.Dopri5(), dfx.Tsit5(), dfx.Bosh3(), dfx.Heun(), dfx.Ralston(), dfx.Midpoint()]
EACH = pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
FIXED = dfx.ConstantStepSize()
CONTROL = dfx.PIDController(rtol=1e-9, atol=1e-9)


def rates(t: Any, y: Any, p: Array) -> Any:
    q, v, _ = y
    return v, -p * jnp.sin(q) + jnp.cos(3 * t), jnp.sum(q**2, keepdims=True)


def start(dtype: Any = float) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), START)


def solve(solver: Any, controller: Any = FIXED, y: Any = None, p: Any = None, **options: Any) -> Any:
    y, p = start() if y is None else y, jnp.asarray(P) if p is None else p
    saveat = options.pop("saveat", dfx.SaveAt(ts=jnp.asarray(TS)))
    t0, t1 = options.pop("t0", 0.0), options.pop("t1", END)
    dt0 = STEP if controller is FIXED else 10 * STEP  # else the error is rounding, and so is what follows from it
    dt0 = dt0 if t1 > t0 else -dt0
    return dfx.diffeqsolve(
        dfx.ODETerm(rates), solver, t0, t1, dt0, y, p, saveat=saveat, stepsize_controller=controller, **options
    )


def apart(a: Any, b: Any) -> float:
    return max(
        worst(np.asarray(x) - np.asarray(y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@EACH
def test_steps_and_dense_output_are_those_of_diffrax(solver: dfx.AbstractERK) -> None:
    made, expected = solve(unrolled(solver)), solve(solver)
    assert worst(expected.ys[0][-1] - START[0]) > 0.1  # it moves
    assert apart(made.ys, expected.ys) < ROUNDING


@EACH
def test_step_control_makes_the_same_steps(solver: dfx.AbstractERK) -> None:
    """The estimate of the error is the same."""
    made, expected = solve(unrolled(solver), CONTROL, max_steps=2**18), solve(solver, CONTROL, max_steps=2**18)
    assert int(made.stats["num_steps"]) == int(expected.stats["num_steps"])
    assert apart(made.ys, expected.ys) < CONTROLLED


@pytest.mark.parametrize("solver", [dfx.Dopri8(), dfx.Heun()], ids=["first-same-as-last", "not"])
def test_one_step_and_its_error_are_those_of_diffrax(solver: dfx.AbstractERK) -> None:
    """At once after the start, with what is carried, and after a jump of the state, also a traced one."""
    terms, h, y, p = dfx.ODETerm(rates), 0.3, start(), jnp.asarray(P)
    ours = unrolled(solver)
    state, known = ours.init(terms, 0.0, h, y, p), solver.init(terms, 0.0, h, y, p)
    moved = jax.tree.map(lambda x: x + 0.1, y)
    for at, jumped in ((y, False), (moved, True), (moved, jnp.asarray(True)), (moved, jnp.asarray(False))):
        y1, error, _, new, _ = ours.step(terms, 0.0, h, at, p, state, jumped)
        expected, error2, _, new2, _ = solver.step(terms, 0.0, h, at, p, known, jumped)
        assert worst(jax.tree.leaves(error)[0]) > 1e-12
        assert apart((y1, error), (expected, error2)) < ROUNDING
        state, known = new, new2


def test_what_is_no_explicit_method_of_diffrax_stays_as_it_is() -> None:
    for solver in (dfx.Kvaerno5(), dfx.Euler(), mbd.Radau(), dfx.KenCarp4(), mbd.RungeKutta4()):
        assert unrolled(solver) is solver
    assert isinstance(unrolled(dfx.Tsit5()), UnrolledERK)


def loss(solver: Any, adjoint: Any, controller: Any) -> Callable[[Any, Any], Array]:
    def value(y: Any, p: Any) -> Array:
        q, v, z = solve(solver, controller, y, p, adjoint=adjoint, max_steps=256).ys
        return jnp.sum(q[3] ** 2) + jnp.sum(v[-1] * jnp.arange(1.0, 3.0)) + z[-1, 0]

    return value


@pytest.mark.parametrize("adjoint", [dfx.RecursiveCheckpointAdjoint(), dfx.DirectAdjoint()], ids=["reverse", "direct"])
def test_reverse_derivatives_are_those_of_diffrax(adjoint: Any) -> None:
    expected = jax.grad(loss(dfx.Tsit5(), dfx.RecursiveCheckpointAdjoint(), FIXED), argnums=(0, 1))(start(), P)
    made = jax.grad(loss(unrolled(dfx.Tsit5()), adjoint, FIXED), argnums=(0, 1))(start(), jnp.asarray(P))
    assert worst(expected[1]) > 0.1
    assert apart(made, expected) < 10 * ROUNDING


@pytest.mark.parametrize("adjoint", [dfx.ForwardMode(), dfx.DirectAdjoint()], ids=["forward", "direct"])
def test_forward_derivatives_are_those_of_reverse_mode(adjoint: Any) -> None:
    p, solver = jnp.asarray(P), unrolled(dfx.Dopri8())
    expected = jax.grad(loss(solver, dfx.RecursiveCheckpointAdjoint(), CONTROL), argnums=1)(start(), p)
    made = jax.jacfwd(lambda p: loss(solver, adjoint, CONTROL)(start(), p))(p)
    assert worst(made - expected) < 1e-12 * worst(expected)


def test_a_batch_is_its_members() -> None:
    """Each with its own number of steps."""
    ps = jnp.stack([jnp.asarray(P), 4 * jnp.asarray(P), 0.1 * jnp.asarray(P)])
    ends = jax.vmap(lambda p: solve(unrolled(dfx.Dopri8()), CONTROL, p=p).ys)(ps)
    for k, p in enumerate(ps):
        alone = solve(unrolled(dfx.Dopri8()), CONTROL, p=p).ys
        assert apart(jax.tree.map(lambda x, k=k: x[k], ends), alone) < CONTROLLED


def test_backward_time_events_and_dense_solutions() -> None:
    """What diffrax does with a method's interpolation."""
    solver, ours = dfx.Tsit5(), unrolled(dfx.Tsit5())
    event = dfx.Event(lambda t, y, args, **_: y[0][0] - 0.5, optx.Bisection(rtol=1e-12, atol=1e-12))
    for options in (
        {"saveat": dfx.SaveAt(t1=True), "event": event, "controller": CONTROL},
        {"saveat": dfx.SaveAt(steps=True), "max_steps": 256},
        {"saveat": dfx.SaveAt(t1=True), "t0": END, "t1": 0.0},
    ):
        made, expected = solve(ours, **options), solve(solver, **options)
        finite = jax.tree.map(lambda x: jnp.nan_to_num(x, posinf=0.0), (made.ys, expected.ys))
        assert apart(*finite) < CONTROLLED
    dense = (
        solve(ours, saveat=dfx.SaveAt(dense=True), max_steps=256),
        solve(solver, saveat=dfx.SaveAt(dense=True), max_steps=256),
    )
    assert apart(*(s.evaluate(0.123) for s in dense)) < ROUNDING


def test_single_precision_stays_single() -> None:
    expected = solve(dfx.Dopri8()).ys
    with jax.enable_x64(False):
        made = solve(unrolled(dfx.Dopri8())).ys
        assert {x.dtype for x in jax.tree.leaves(made)} == {jnp.dtype("float32")}
    assert apart(made, expected) < ROUNDING_SINGLE


def test_a_projected_formulation_starts_each_step_anew() -> None:
    """A pendulum put back onto its constraints after each step, at equal steps, as with diffrax's own stages."""
    made = examples.pendulum()
    runs = [
        made.simulate(
            [0.0, 0.5], formulation=Projection(), solver=solver, stepsize_controller=FIXED, dt0=STEP
        ).integrated_speeds
        for solver in (dfx.Tsit5(), unrolled(dfx.Tsit5()))
    ]
    assert worst(runs[0][-1]) > 0.1
    assert apart(*runs) < 10 * ROUNDING
    assert isinstance(PostStepSolver(unrolled(dfx.Tsit5())), dfx.AbstractAdaptiveSolver)


# --- the classical method -------------------------------------------------------------------------


def classical(y: Any, steps: int) -> Any:
    """The textbook's formula, in NumPy."""
    h, p = END / steps, P

    def f(t: float, y: Any) -> Any:
        q, v, _ = y
        return np.array([*v, *(-p * np.sin(q) + np.cos(3 * t)), np.sum(q**2)])

    flat = np.concatenate(y)
    for i in range(steps):
        parts = lambda x: (x[:2], x[2:4], x[4:])  # noqa: E731
        t = i * h
        k1 = f(t, parts(flat))
        k2 = f(t + h / 2, parts(flat + h / 2 * k1))
        k3 = f(t + h / 2, parts(flat + h / 2 * k2))
        k4 = f(t + h, parts(flat + h * k3))
        flat = flat + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return flat


def test_the_classical_method_is_the_textbooks() -> None:
    ys = solve(mbd.RungeKutta4(), saveat=dfx.SaveAt(t1=True)).ys
    assert worst(np.concatenate([np.asarray(x)[0] for x in ys]) - classical(START, round(END / STEP))) < ROUNDING


def test_its_dense_output_is_of_third_order() -> None:
    """Cubic Hermite: halving the step takes the error between steps to a sixteenth, as at their ends."""
    exact = solve(dfx.Dopri8(), CONTROL).ys
    errors = []
    for h in (0.1, 0.05):
        run = dfx.diffeqsolve(
            dfx.ODETerm(rates),
            mbd.RungeKutta4(),
            0.0,
            END,
            h,
            start(),
            jnp.asarray(P),
            saveat=dfx.SaveAt(ts=jnp.asarray(TS)),
        )
        errors.append(apart(run.ys, exact))
    assert 3.5 < np.log2(errors[0] / errors[1]) < 5.0


def test_the_classical_method_needs_a_step() -> None:
    made = examples.pendulum()
    with pytest.raises(mbd.MechanismError, match=r"no estimate of its error: .* got no dt0"):
        made.simulate([0.0, 0.1], solver=mbd.RungeKutta4())
    with pytest.raises(mbd.MechanismError, match="Euler has no estimate of its error"):
        made.simulate([0.0, 0.1], solver=dfx.Euler())
    with pytest.raises(mbd.MechanismError, match="got PIDController"):
        made.simulate([0.0, 0.1], solver=mbd.RungeKutta4(), dt0=1e-2, stepsize_controller=CONTROL)
    equal = made.simulate([0.0, 0.5], solver=mbd.RungeKutta4(), dt0=1e-3)
    assert worst(equal.q[-1] - made.simulate([0.0, 0.5]).q[-1]) < 1e-9
    assert equal.stats["num_steps"] == 500
    of_a_step = jax.jit(lambda h: made.simulate([0.0, 0.5], solver=mbd.RungeKutta4(), dt0=h).q[-1])
    assert worst(equal.q[-1] - of_a_step(1e-3)) < 1e-14


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adjoint": "forward", "formulation": Projection()},
        {"solver": mbd.RungeKutta4(), "dt0": 1e-3},
        {"events": [mbd.Event("turned", "rod.theta", at=3.3)]},
    ],
)
def test_nothing_calls_back_to_python(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """No program that does can be kept on disk: every motion would be compiled in each process anew."""

    class LoweredError(Exception):
        pass

    def lower(*arguments: Any) -> None:
        raise LoweredError(integrate.lower(*arguments).as_text())

    integrate: Any = eqx.filter_jit(inspect.unwrap(simulate.integrate))
    monkeypatch.setattr(simulate, "integrate", lower)
    with pytest.raises(LoweredError) as caught:
        examples.pendulum().simulate([0.0, 0.1], **options)
    text = str(caught.value)
    assert "jaxmbd_solve" in text or "while" in text  # a time loop in the virtual machine, or one of XLA
    assert "callback" not in text


def test_times_that_are_known_late_are_checked_late() -> None:
    positions = jax.jit(lambda ts: examples.pendulum().simulate(ts).q)
    with pytest.raises(Exception, match="do not increase"):
        jax.block_until_ready(positions(jnp.array([0.0, 0.2, 0.1])))


def test_steps_end_where_the_user_says() -> None:
    made, ends = examples.pendulum(), jnp.linspace(0.0, 0.1, 11)
    controller = dfx.StepTo(ts=ends)
    told = made.simulate([0.0, 0.1], stepsize_controller=controller)
    assert told.stats["num_steps"] == 10
    assert worst(told.q[-1] - made.simulate([0.0, 0.1]).q[-1]) < 1e-9
    for dt0, words in ((-1e-3, r"dt0 must be positive \[s\] and finite, got -0\.001"), (float("nan"), "got nan")):
        with pytest.raises(mbd.MechanismError, match=words):
            made.simulate([0.0, 0.1], dt0=dt0)
    with pytest.raises(mbd.MechanismError, match="goes without dt0"):
        made.simulate([0.0, 0.1], dt0=1e-3, stepsize_controller=controller)


def test_steps_end_in_single_precision_too() -> None:
    """A driven crank that stretches its linkage: steps that no longer change the time must not be tried again."""
    with jax.enable_x64(False):
        m = four_bar([0.53, 0.53, 0.56, 0.65])
        driven = pl.Mechanism(m.bodies, m.joints, drivers=[pl.Driver("motor", "O.angle", lambda t: 0.5 + 4.0 * t)])
        solution = mbd.simulate(driven, mbd.assemble(driven), np.array([0.0, 2.0]), throw=False)
    assert solution.q.dtype == jnp.float32
    assert solution.result == mbd.RESULTS.singular
    assert int(solution.stats["num_steps"]) < 200


def test_a_step_in_jax_ends_with_what_happens_after_it() -> None:
    """Derivatives of higher order are taken of such steps: the last component becomes the first one at the end."""
    y, length = jnp.array([1.0, 0.0, 7.0]), 0.1
    found = native_steps.native_steps(
        lambda speed, _, t, y: speed * jnp.stack([y[1], -y[0], 0.0 * t]), lambda speed, _, t, y: y[:1],
        jnp.asarray(2.0), None, y, dfx.Tsit5(), np.array([1.0, 1.0, 0.0]), 2, 64,
    )  # fmt: skip
    assert found is not None
    steps, known = found
    (end,), _ = steps.advance(known, [y], [*jnp.array([0.0, length])], None)
    np.testing.assert_allclose(end, [np.cos(2 * length), -np.sin(2 * length), np.cos(2 * length)], atol=1e-7)
    assert end[2] == end[0]
