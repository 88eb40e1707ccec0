"""Dynamic analysis: the motion from an initial state, integrated by diffrax."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd._analysis._assembly._misfit import open_rows
from jaxmbd._analysis._checks import check_assembled, check_state, check_times
from jaxmbd._analysis._diagnose import failure_text, torn_text
from jaxmbd._analysis._events._event import Event, check_events
from jaxmbd._analysis._events._happened import halted, raise_if_halted
from jaxmbd._analysis._events._segments import run_with_events
from jaxmbd._analysis._readings import Snapshot, read
from jaxmbd._analysis._redundancy import jacobian
from jaxmbd._analysis._solution import Solution
from jaxmbd._analysis._state import State
from jaxmbd._equations import Equations, rank_of
from jaxmbd._errors import MechanismError, SolveError
from jaxmbd._mechanism import Mechanism
from jaxmbd._method import (
    AbstractMethod,
    AbstractSettling,
    DiscreteAdjoint,
    KeptRows,
    Radau,
    Settled,
    Stabilized,
    Trusting,
    closed_where_redundant,
    equations_of,
    known_rows,
    rows_anew,
    rows_for_motion,
    written_out,
)
from jaxmbd._program import compiled, is_program, kept
from jaxmbd._types import Scalar, is_concrete

_FIRST_STEP = 1e-4  # of the whole time; the step control grows it tenfold per step

_MANY = 64  # bodies

_TORN = 1e-2  # [m, rad]: a violation at the end that no drift explains

_TOLERANCES = {
    ("standard", True): (1e-8, 1e-10),
    ("high", True): (1e-12, 1e-13),
    ("standard", False): (1e-5, 1e-6),
    ("high", False): (1e-6, 1e-7),
}

Accuracy = Literal["standard", "high"]
Derivative = Literal["reverse", "forward"] | dfx.AbstractAdjoint


def simulate(
    mechanism: Mechanism,
    state: State,
    ts: Any,
    *,
    method: AbstractMethod | None = None,
    solver: dfx.AbstractSolver | Literal["stiff"] | None = None,
    accuracy: Accuracy = "standard",
    rtol: float | int | Array | None = None,
    atol: float | int | Array | None = None,
    controller: dfx.AbstractStepSizeController | None = None,
    control_speeds: bool = False,
    derivative: Derivative = "reverse",
    integrals: Iterable[str] = (),
    events: Iterable[Event] = (),
    max_events: int = 32,
    dt0: float | int | Array | None = None,
    max_steps: int = 2**16,
    progress: bool = False,
    throw: bool = True,
) -> Solution:
    """Integrate the motion from `state` and return it at the times `ts`.

    **Arguments:**

    - `mechanism`, and a `state` from `assemble`;
    - `ts`: increasing times `[s]`, shape `(times,)`; the first one is the time of the state;
    - `method`: how the constraints are kept; `Stabilized()` unless given, or `Augmented(alpha, beta)`,
      `CoordinatePartitioning()`, `Projection()`;
    - `solver`: any diffrax solver for ordinary differential equations; `diffrax.Dopri8()` unless given; `"stiff"` is
      `jaxmbd.Radau()`, and `stiffness(mechanism, state)` tells whether that is wanted; `jaxmbd.RungeKutta4()` takes
      equal steps of `dt0`;
    - `accuracy`: `"standard"` or `"high"`, the tolerances of the step-size control: `rtol`, `atol` 1e-8, 1e-10 or
      1e-12, 1e-13 in double, 1e-5, 1e-6 or 1e-6, 1e-7 in single precision;
    - `rtol`, `atol`: other tolerances; the control measures the error of the coordinates;
    - `control_speeds`: hold the error of the speeds to the tolerances too; more accurate for the same tolerance where
      speeds are large, but the steps may shrink without end near singular positions;
    - `controller`: any diffrax step-size controller instead; with `diffrax.ConstantStepSize()` give `dt0` `[s]`;
    - `derivative`: `"reverse"` (`jax.grad`, `jax.vjp`), `"forward"` (`jax.jvp`, `jax.jacfwd`), or a diffrax adjoint;
    - `integrals`: names of scalar quantities whose integral over time is wanted, to the same accuracy as the
      motion: `solution.integrals["kinetic_energy"]`;
    - `events`: `Event`s that stop the motion, let it bounce or latch, or are only listed, in `solution.events`; at most
      `max_events` crossings, silent ones (in the direction an event does not ask for) included. Steps are then no
      longer than the times `ts` are apart on average: what crosses a value and returns within one may be missed;
    - `dt0`: the first step `[s]`, none with `diffrax.StepTo`; `max_steps`; `progress` (a progress bar); `throw`.

    **Returns:** a `Solution`.

    **Raises:** `MechanismError` for times or a state that cannot be right, `AssemblyError` for a state that does
    not satisfy the constraints, `SolveError` if the integration fails. Inside `jit`, `grad` or `vmap`, where
    values are not known, `throw=True` raises when the compiled program runs.
    """
    check_state(mechanism, state)
    ts = check_times(ts, state)
    method = Stabilized() if method is None else method
    solver = _solver(solver)
    controller = _steps(solver, controller, dt0)
    events = check_events(mechanism, events, max_events)
    if controller is None:
        controller = default_controller(ts, accuracy, rtol, atol, control_speeds, isinstance(solver, Radau))
        if events:  # only the ends of steps are looked at
            longest = (ts[-1] - ts[0]) / (len(ts) - 1)
            controller = dataclasses.replace(controller, dtmax=longest)  # pyright: ignore
    if isinstance(solver, Radau) and isinstance(controller, dfx.PIDController):
        solver = solver.within(controller.rtol)
    known = is_concrete(mechanism, state, ts, method, events)
    if known and isinstance(method, AbstractSettling):
        method.check(mechanism, mechanism.nv - int(rank_of(jnp.asarray(jacobian(mechanism, state.t, state.q)))))
    if progress and known:
        print("compiling ...", flush=True)
    meter = dfx.TextProgressMeter() if progress else dfx.NoProgressMeter()
    raised = throw and not known
    # To the compiler many numbers are more work than many times the motion: they are put together before.
    described = Equations(mechanism) if known and len(mechanism.bodies) > _MANY else mechanism
    rows = known_rows(described, jnp.asarray(ts[0]), state.q) if known else None
    found, check = _integrate(
        described, rows, method, state.q, state.v, ts,
        solver, controller, _adjoint(derivative), tuple(integrals), dt0, max_steps, meter, raised, is_concrete(ts, dt0),
        events, max_events,
    )  # fmt: skip
    found["ts"] = jnp.asarray(found["ts"])  # within another trace it may come back as it was given
    solution = Solution(mechanism=mechanism, **found)
    if throw and known:
        _raise_if_failed(solution, check)
    return solution


class _Check(eqx.Module):
    """What tells a good run from a bad one: the start's violations, the last state reached and the violation there."""

    position: Float[Array, " m"]
    velocity: Float[Array, " m"]
    end: Float[Array, " m"]
    reached: Array
    t: Array
    q: Array
    v: Array


@kept
def _integrate(
    described: Mechanism | Equations, rows: KeptRows | None, method: AbstractMethod, q: Array, v: Array, ts: Array,
    solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController, adjoint: dfx.AbstractAdjoint,
    integrals: tuple[str, ...], dt0: float | int | Array | None, max_steps: int, meter: dfx.AbstractProgressMeter,
    throw: bool, checked: bool, events: tuple[Event, ...], max_events: int,
) -> tuple[dict[str, Any], _Check]:  # fmt: skip
    """The fields of a `Solution` but the mechanism, and what tells whether it is a good one. `checked`: are times?"""
    equations = equations_of(described)
    rows = rows_for_motion(equations, jnp.asarray(ts[0]), q) if rows is None else rows
    equations = equations.solved_in(rows.redundant, rows.kept)
    forward = isinstance(adjoint, dfx.ForwardMode)
    rates = compiled(_rates, forward)

    def solve(
        method: AbstractMethod, t0: Any, t1: Any, y: Any, ts: Any, event: dfx.Event | None = None
    ) -> dfx.Solution:
        # A segment after an event starts elsewhere than the motion did.
        own = (
            equations.solved_in(equations.redundant, rows_anew(equations, jnp.asarray(t0), y[0]))
            if events
            else equations
        )
        settling = isinstance(method, AbstractSettling)
        start = method.begin(own, jnp.asarray(t0), y[0]) if settling else method
        # Written-out stages are faster where the right-hand side is one call, and take long to compile elsewhere.
        is_call = is_program(_rates, own, start, integrals, jnp.asarray(t0), y[0], y[1], forward=forward)
        stepping = written_out(solver) if is_call else solver
        sweep = Trusting(adjoint, t0, t1, ts, first) if checked else adjoint
        return dfx.diffeqsolve(
            dfx.ODETerm(lambda t, y, args: rates(*args, integrals, jnp.asarray(t), y[0], y[1])),
            Settled(stepping) if settling or own.kept is not None else stepping, t0, t1, first, y, args=(own, start),
            saveat=dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)]), stepsize_controller=controller,
            adjoint=sweep, max_steps=max_steps, progress_meter=meter, throw=throw, event=event,
        )  # fmt: skip

    first, log = _first_step(controller, ts, dt0), None
    y = q, v, jnp.zeros(len(integrals), q.dtype)
    if events:
        run, method, log = run_with_events(solve, equations, method, y, ts, events, max_events)
        ts = run.ts[0]
    else:
        run = solve(method, ts[0], ts[-1], y, ts)
    (_, (qs, vs, zs)), (t1, (q1, v1, _)) = zip(run.ts, run.ys, strict=True)  # pyright: ignore
    integrated = dict(zip(integrals, zs.T, strict=True))
    if isinstance(method, AbstractSettling):  # between steps the solver interpolates
        qs, vs = jax.vmap(lambda t, q, v: method.begin(equations, t, q).settle(equations, t, q, v)[1:])(ts, qs, vs)
    elif isinstance(method, Stabilized):
        qs = jax.vmap(lambda t, q: closed_where_redundant(equations, t, q))(ts, qs)
    qs = jax.vmap(lambda q: compiled(Equations.tidy)(equations, q))(qs)
    qs = qs if log is None or not throw else halted(log, qs)
    found = {
        "method": method, "ts": ts, "q": qs, "integrated_speeds": vs, "integrals": integrated,
        "redundant": jnp.asarray(equations.redundant), "stats": dict(run.stats), "result": run.result, "events": log,
    }  # fmt: skip
    reached = (run.result == dfx.RESULTS.successful) & jnp.all(jnp.isfinite(q1))
    start, end = (compiled(_violations)(equations, *at) for at in ((ts[0], q, v), (t1[0], q1[0], v1[0])))
    check = _Check(start[0], start[1], end[0], reached, t1[0], q1[0], v1[0])
    return found, jax.lax.stop_gradient(check)


def _violations(equations: Equations, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    at = equations.at(t, q)
    return at.position(), at.velocity(v)


def _rates(
    equations: Equations, method: AbstractMethod, integrals: tuple[str, ...], t: Array, q: Array, v: Array
) -> tuple[Array, Array, Array]:
    """The right-hand side: `(q̇, v̇)` and the integrands."""
    motion = method.motion(equations, t, q, v)
    readings = read(equations, integrals, Snapshot(t, q, motion.v, motion.vdot, motion.lam))
    integrands = jnp.stack(list(readings.values())) if integrals else jnp.zeros(0, q.dtype)
    return motion.qdot, motion.rate, integrands


def default_controller(
    ts: Any, accuracy: Accuracy, rtol: Any, atol: Any, control_speeds: bool, gentle: bool
) -> dfx.PIDController:
    """Step-size control on the error of the coordinates, and of the speeds if wanted. Gives up on vanishing steps.

    `gentle`: steps change by small factors, for implicit solvers: they give an infinite error where their iteration has
    not converged.
    """
    double = ts.dtype == jnp.float64
    if accuracy not in ("standard", "high"):
        raise MechanismError(f"accuracy must be 'standard' or 'high', got {accuracy!r}.")
    usual = _TOLERANCES[accuracy, double]
    rtol, atol = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
    rtol, atol = (np.asarray(x, dtype=ts.dtype) if is_concrete(x) else x for x in (rtol, atol))
    norm = state_norm if control_speeds else position_norm
    least = (ts[-1] - ts[0]) * (1e-14 if double else 1e-8)
    factors = {"factormin": 0.5, "factormax": 3.0} if gentle else {}
    return dfx.PIDController(rtol=rtol, atol=atol, norm=norm, dtmin=least, force_dtmin=False, **factors)  # pyright: ignore


def position_norm(y: tuple[Array, Array, Array]) -> Array:
    """Root mean square of the coordinates and integrals in `(q, v, integrals)`; infinite where a speed is.

    Else speeds are left out, as index-2 and index-3 codes do: near a singular position a speed may carry noise that
    the next evaluation removes, and that no step size can.
    """
    q, v, integrals = y
    norm = jnp.sqrt(jnp.mean(jnp.concatenate([q, integrals]) ** 2))
    return jnp.where(jnp.all(jnp.isfinite(v)), norm, jnp.inf)


def state_norm(y: tuple[Array, Array, Array]) -> Array:
    """Root mean square of coordinates, speeds and integrals."""
    return jnp.sqrt(jnp.mean(jnp.concatenate(y) ** 2))


def _solver(solver: Any) -> dfx.AbstractSolver:
    if solver is None or solver == "stiff":
        solver = dfx.Dopri8() if solver is None else Radau()
    if isinstance(solver, dfx.AbstractSolver):
        return solver
    raise MechanismError(f"solver must be 'stiff' or a diffrax solver such as diffrax.Tsit5(), got {solver!r}.")


def _steps(solver: dfx.AbstractSolver, controller: Any, dt0: Any) -> dfx.AbstractStepSizeController | None:
    """The controller given, or equal steps for a solver that has no other choice."""
    if isinstance(controller, dfx.StepTo):
        if dt0 is not None:
            raise MechanismError(f"StepTo says where steps end: it goes without dt0, got dt0={dt0!r}.")
        return controller
    if dt0 is not None and is_concrete(dt0) and not 0 < dt0 < np.inf:
        raise MechanismError(f"dt0 must be a positive number of seconds, got {dt0!r}.")
    if isinstance(solver, dfx.AbstractAdaptiveSolver):
        return controller
    if dt0 is None or isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        given, name = "no dt0" if dt0 is None else type(controller).__name__, type(solver).__name__
        raise MechanismError(f"{name} has no estimate of its error: give it steps of a size dt0 [s], got {given}.")
    return dfx.ConstantStepSize() if controller is None else controller


def _first_step(
    controller: dfx.AbstractStepSizeController, ts: Array, dt0: float | int | Array | None
) -> Scalar | None:
    if isinstance(controller, dfx.StepTo):
        return None
    return (ts[-1] - ts[0]) * _FIRST_STEP if dt0 is None else jnp.asarray(dt0, ts.dtype)


def _adjoint(derivative: Derivative) -> dfx.AbstractAdjoint:
    if isinstance(derivative, dfx.AbstractAdjoint):
        return derivative
    if derivative == "reverse":
        return DiscreteAdjoint()
    if derivative == "forward":
        return dfx.ForwardMode()
    raise MechanismError(f"derivative must be 'reverse', 'forward' or a diffrax adjoint, got {derivative!r}.")


def _raise_if_failed(solution: Solution, check: _Check) -> None:
    mechanism = solution.mechanism
    check_assembled(mechanism, "initial state", check.position, check.velocity)
    if solution.events is not None:
        raise_if_halted(solution.events, check.t)
    if bool(check.reached):
        miss = np.asarray(check.end)
        if np.abs(miss).max(initial=0.0) > _TORN:
            raise SolveError(torn_text(mechanism, check.t, open_rows(mechanism, miss, (), _TORN)))
        return
    raise SolveError(failure_text(solution, check.t, check.q, check.v))
