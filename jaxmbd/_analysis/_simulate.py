"""Dynamic analysis: the motion from an initial state, integrated by diffrax."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd._analysis._assembly._misfit import open_rows
from jaxmbd._analysis._checks import (
    check_assembled,
    check_controller,
    check_method,
    check_state,
    check_times,
    check_tolerances,
)
from jaxmbd._analysis._diagnose import failure_text, torn_text, verdict_where_stopped
from jaxmbd._analysis._events._changes import check_changes, equations_at
from jaxmbd._analysis._events._event import Event, check_events
from jaxmbd._analysis._events._happened import Events, raise_if_halted
from jaxmbd._analysis._events._segments import run_with_events
from jaxmbd._analysis._readings import Snapshot, channel_units, read, vector_channels
from jaxmbd._analysis._redundancy import jacobian
from jaxmbd._analysis._results import RESULTS, invalidated, is_successful, number_of
from jaxmbd._analysis._runtime import raise_where
from jaxmbd._analysis._solution import Solution
from jaxmbd._analysis._state import State
from jaxmbd._analysis._verdict import (
    CLOSURE_TOLERANCE,
    Describe,
    End,
    Start,
    times_are_valid,
    verdict,
    verdict_at_start,
)
from jaxmbd._body import check_count, checked_names
from jaxmbd._equations import Equations, rank_of
from jaxmbd._errors import MechanismError, SolveError, unknown
from jaxmbd._mechanism import Mechanism, switches_of, with_jumps_apart
from jaxmbd._method import (
    AbstractMethod,
    AbstractSettling,
    DiscreteAdjoint,
    KeptRows,
    Radau,
    Settled,
    Stabilized,
    Trusting,
    check_grid,
    closed_where_redundant,
    equations_of,
    forward_only,
    known_rows,
    onto,
    reverse_only,
    rows_anew,
    rows_for_motion,
    written_out,
)
from jaxmbd._program import compiled, is_program, kept
from jaxmbd._types import Scalar, is_concrete

_FIRST_STEP = 1e-4  # of the whole time; the step control grows it tenfold per step

_MANY = 64  # bodies

_TOLERANCES = {
    ("standard", True): (1e-8, 1e-10),
    ("high", True): (1e-12, 1e-13),
    ("standard", False): (1e-5, 1e-6),
    ("high", False): (1e-6, 1e-7),
}

_FORWARD_ONLY = (
    "derivative='forward' has no reverse derivatives (jax.grad, jax.vjp, jax.jacrev). Leave derivative out: by default "
    "simulate has derivatives of both modes and of any order."
)
_REVERSE_ONLY = (
    "diffrax.RecursiveCheckpointAdjoint has no forward derivatives (jax.jvp, jax.jacfwd) and no second ones. Leave "
    "derivative out: by default simulate has derivatives of both modes and of any order."
)

Accuracy = Literal["standard", "high"]
Derivative = Literal["any", "reverse", "forward"] | dfx.AbstractAdjoint


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
    derivative: Derivative = "any",
    integrals: Iterable[str] = (),
    events: Iterable[Event] = (),
    max_events: int = 32,
    switching_times: Any = (),
    dt0: float | int | Array | None = None,
    max_steps: int = 2**16,
    closure_tolerance: float | Array = CLOSURE_TOLERANCE,
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
    - `derivative`: `"any"` (also called `"reverse"`): forward and reverse derivatives of any order; `"forward"`, faster
      where forward ones alone are wanted (`jax.jvp`, `jax.jacfwd`, `jax.linearize`); or a diffrax adjoint. See
      docs/derivatives.md;
    - `integrals`: names of scalar quantities whose integral over time is wanted, to the same accuracy as the
      motion: `solution.integrals["kinetic_energy"]`;
    - `events`: `Event`s that stop the motion, let it bounce or latch, or are only listed, in `solution.events`; at most
      `max_events` crossings, silent ones (in the direction an event does not ask for) included. Steps are then no
      longer than the times `ts` are apart on average: what crosses a value and returns within one may be missed;
    - `switching_times`: times `[s]` at which users' own functions jump or have a kink; steps end there, and derivatives
      by these numbers are exact. A `Piecewise` and a `Table` among forces and drivers know their own;
    - `dt0`: the first step `[s]`, none with `diffrax.StepTo`; `max_steps`; `progress` (a progress bar);
    - `closure_tolerance`: how far the joints may be open at any of the times `[m, rad]`;
    - `throw=False` raises no error: `solution.result` tells how it went, for each instance of a batch; from where it
      failed on values are NaN, and so are derivatives of these. What is not assembled takes no steps.

    **Returns:** a `Solution`.

    **Raises:** `MechanismError` for times or a state that cannot be right, `AssemblyError` for a state that does
    not satisfy the constraints, `SolveError` if the integration fails. Inside `jit`, `grad` or `vmap`, where
    values are not known, `throw=True` raises when the compiled program runs.
    """
    check_state(mechanism, state)
    ts = check_times(ts, state)
    check_method(method)
    check_controller(controller, rtol, atol, control_speeds)
    check_tolerances(rtol, atol)
    check_count("max_steps", max_steps, 1)
    check_accuracy(accuracy)
    integrals = _integrands(mechanism, integrals)
    method = Stabilized() if method is None else method
    solver = _solver(solver)
    controller = _steps(solver, controller, dt0)
    events = check_events(mechanism, events, max_events)
    check_changes(mechanism, events)
    if controller is None:
        controller = default_controller(ts, accuracy, rtol, atol, control_speeds, isinstance(solver, Radau))
        if events:  # only the ends of steps are looked at
            longest = (ts[-1] - ts[0]) / (len(ts) - 1)
            controller = dataclasses.replace(controller, dtmax=longest)  # pyright: ignore
    if isinstance(solver, Radau) and isinstance(controller, dfx.PIDController):
        solver = solver.within(controller.rtol)
    known = is_concrete(mechanism, state, ts, method, events, switching_times)
    if known and isinstance(method, AbstractSettling):
        method.check(mechanism, mechanism.nv - int(rank_of(jnp.asarray(jacobian(mechanism, state.t, state.q)))))
    if progress and known:
        print("compiling ...", flush=True)
    meter = dfx.TextProgressMeter() if progress else dfx.NoProgressMeter()
    raised = throw and not known
    # To the compiler many numbers are more work than many times the motion: they are put together before.
    given = _as_times(switching_times, ts)
    check_grid(controller, switches_of(mechanism, given), ts[0], ts[-1])
    apart, switching = with_jumps_apart(mechanism, given, ts[0], ts[-1])
    described = Equations(apart) if known and len(mechanism.bodies) > _MANY else apart
    rows = known_rows(described, jnp.asarray(ts[0]), state.q) if known else None
    checked = is_concrete(ts, state.t, dt0)
    found, start, end = _integrate(
        described, rows, method, state, ts, switching,
        solver, controller, _adjoint(derivative), integrals, dt0, max_steps, meter, raised, checked,
        events, max_events, _tolerance(closure_tolerance, ts),
    )  # fmt: skip
    found["ts"] = jnp.asarray(found["ts"])  # within another trace it may come back as it was given
    solution = Solution(mechanism=mechanism, **found)
    if known and not throw:
        solution = eqx.tree_at(lambda s: s.result, solution, verdict_where_stopped(solution, end))
    if throw and known:
        _raise_if_failed(solution, start, end, float(closure_tolerance))
    return solution


@kept
def _integrate(
    described: Mechanism | Equations, rows: KeptRows | None, method: AbstractMethod, state: State, ts: Array,
    switching: Array | None, solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController,
    adjoint: dfx.AbstractAdjoint, integrals: tuple[str, ...], dt0: float | int | Array | None, max_steps: int,
    meter: dfx.AbstractProgressMeter, throw: bool, checked: bool, events: tuple[Event, ...], max_events: int,
    tolerance: Scalar,
) -> tuple[dict[str, Any], Start, End]:  # fmt: skip
    """The fields of a `Solution` but the mechanism, and what an error message takes. `checked`: are times?"""
    equations, asked = equations_of(described), jnp.asarray(ts)
    valid = jnp.ones((), bool) if checked else times_are_valid(asked, state.t, dt0)
    start = verdict_at_start(equations, state, asked, valid, tolerance, throw)
    ts, q, v = _beginning(start, asked, state)
    known = rows is not None  # numbers, not tracers
    rows = rows if known else rows_for_motion(equations, ts[0], q)
    equations = equations.solved_in(rows.redundant, rows.kept)
    switches = switches_of(equations.mechanism, switching)
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
        own = equations_at(method, own, t0) if isinstance(solver, Radau) else own  # it asks no method
        settling = isinstance(method, AbstractSettling)
        start = method.begin(own, jnp.asarray(t0), y[0]) if settling else method
        # Written-out stages are faster where the right-hand side is one call, and take long to compile elsewhere.
        is_call = is_program(_rates, own, start, integrals, jnp.asarray(t0), y[0], y[1], forward=forward)
        stepping = written_out(solver) if is_call else solver
        stepping = Settled(stepping) if settling or own.kept is not None else stepping
        if isinstance(adjoint, dfx.RecursiveCheckpointAdjoint):
            own, start, y = reverse_only((own, start, y), _REVERSE_ONLY)
        stepping, control, args = onto(switches, stepping, controller, (own, start), t0, t1)
        run = dfx.diffeqsolve(
            dfx.ODETerm(lambda t, y, args: rates(*args[:2], integrals, jnp.asarray(t), y[0], y[1])),
            stepping, t0, t1, first, y, args=args,
            saveat=dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)]), stepsize_controller=control,
            adjoint=Trusting(adjoint, t0, t1, ts, first), max_steps=max_steps, progress_meter=meter, throw=False,
            event=event,
        )  # fmt: skip
        return eqx.tree_at(lambda r: r.ys, run, forward_only(run.ys, _FORWARD_ONLY)) if forward else run

    first, log = _first_step(controller, ts, dt0), None
    y = q, v, jnp.zeros(len(integrals), q.dtype)
    if events:
        run, method, log = run_with_events(solve, equations, method, y, ts, events, max_events)
        ts = run.ts[0]
    else:
        run = solve(method, ts[0], ts[-1], y, ts)
    (_, (qs, vs, zs)), (t1, (q1, v1, _)) = zip(run.ts, run.ys, strict=True)  # pyright: ignore
    if isinstance(method, AbstractSettling):  # between steps the solver interpolates
        qs, vs = jax.vmap(lambda t, q, v: method.begin(equations, t, q).settle(equations, t, q, v)[1:])(ts, qs, vs)
    elif isinstance(method, Stabilized):
        qs = jax.vmap(lambda t, q: closed_where_redundant(equations, t, q))(ts, qs)
    qs = jax.vmap(lambda q: compiled(Equations.tidy)(equations, q))(qs)
    ends = (ts[0], q), (t1[0], q1[0], v1[0])
    result, ok, end = verdict(equations, start, run.result, ts, qs, vs, *ends, log, tolerance, singular=not known)
    motion = _valid(_Motion(qs, vs, zs, log), ok, start, (described, method, state, asked))
    if throw:
        motion = _raising(motion, result, equations, start, end, tolerance)
    found = {
        "method": method, "ts": jnp.where(start.may_begin, ts, asked), "q": motion.q, "integrated_speeds": motion.v,
        "integrals": dict(zip(integrals, motion.integrals.T, strict=True)), "events": motion.events,
        "redundant": jnp.asarray(equations.redundant), "stats": dict(run.stats), "result": result,
    }  # fmt: skip
    return found, *jax.lax.stop_gradient((start, end))


class _Motion(NamedTuple):
    """What is saved of a motion."""

    q: Float[Array, "times nq"]
    v: Float[Array, "times nv"]
    integrals: Float[Array, "times integrals"]
    events: Events | None


def _beginning(start: Start, ts: Array, state: State) -> tuple[Array, Array, Array]:
    """Times, coordinates and speeds to integrate; where a motion may not begin, no time and any finite numbers, of
    which no result and no derivative becomes NaN that is not made so on purpose."""
    some = jnp.linspace(0.1, 1.0, len(state.q), dtype=state.q.dtype)
    pairs = (ts, jnp.zeros_like(ts)), (state.q, some), (state.v, jnp.zeros_like(state.v))
    ts, q, v = (jnp.where(start.may_begin, given, other) for given, other in pairs)
    return ts, q, v


def _valid(motion: _Motion, ok: Bool[Array, " times"], start: Start, inputs: Any) -> _Motion:
    """The same motion, NaN where it failed; of one that did not begin nothing happened, at no time."""
    q, v, integrals = (invalidated(ok, x, inputs) for x in motion[:3])
    log, begun = motion.events, start.may_begin
    if log is None:
        return _Motion(q, v, integrals, None)
    values = lambda e: (e.times, e.q, e.before, e.after, e.impulses, e.lam)  # noqa: E731
    log = eqx.tree_at(values, log, tuple(invalidated(begun, x, inputs) for x in values(log)))
    counts = lambda e: (e.count, e.which, e.trouble)  # noqa: E731
    old = zip(counts(log), (0, -1, 0), strict=True)
    return _Motion(q, v, integrals, eqx.tree_at(counts, log, tuple(jnp.where(begun, x, none) for x, none in old)))


def _raising(
    motion: _Motion, result: RESULTS, equations: Equations, start: Start, end: End, tolerance: Scalar
) -> _Motion:
    """The same motion, which raises when the program runs if it failed."""
    times = None if motion.events is None else motion.events.times
    numbers = number_of(result), start.position, start.velocity, end.violation, tolerance, end.t, end.open_at
    given = (*motion[:3], times)
    q, v, integrals, times = raise_where(given, ~is_successful(result), Describe(equations), *numbers)
    events = None if motion.events is None else eqx.tree_at(lambda e: e.times, motion.events, times)
    return _Motion(q, v, integrals, events)


def _rates(
    equations: Equations, method: AbstractMethod, integrals: tuple[str, ...], t: Array, q: Array, v: Array
) -> tuple[Array, Array, Array]:
    """The right-hand side: `(q̇, v̇)` and the integrands."""
    motion = method.motion(equations, t, q, v)
    equations = equations_at(method, equations, t) if integrals else equations
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
    check_accuracy(accuracy)
    usual = _TOLERANCES[accuracy, double]
    rtol, atol = usual[0] if rtol is None else rtol, usual[1] if atol is None else atol
    rtol, atol = (np.asarray(x, dtype=ts.dtype) if is_concrete(x) else x for x in (rtol, atol))
    norm = state_norm if control_speeds else position_norm
    least = (ts[-1] - ts[0]) * (1e-14 if double else 1e-8)
    factors = {"factormin": 0.5, "factormax": 3.0} if gentle else {}
    return dfx.PIDController(rtol=rtol, atol=atol, norm=norm, dtmin=least, force_dtmin=False, **factors)  # pyright: ignore


def check_accuracy(accuracy: Any) -> None:
    """Raise unless it is one of those that there are."""
    if accuracy not in ("standard", "high"):
        raise MechanismError(f"accuracy must be 'standard' or 'high', got {accuracy!r}.")


def _integrands(mechanism: Mechanism, names: Iterable[str]) -> tuple[str, ...]:
    """The names of the integrals that are asked for; raise for those that do not exist, and for vectors."""
    names = checked_names("integrals", names, "energy")
    if not names:
        return names
    known = channel_units(mechanism)
    for name in names:
        if name not in known:
            raise unknown("quantity", name, known)
    for name, shape in vector_channels(mechanism, names).items():
        raise MechanismError(f"integrals takes scalar quantities, and {name!r} has shape {shape}.")
    return names


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
    if dt0 is not None and (np.shape(dt0) != () or isinstance(dt0, str | complex)):
        raise MechanismError(f"dt0 must be a positive number of seconds, got {dt0!r}.")
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


def _as_times(switching_times: Any, ts: Any) -> Array | None:
    """The times that a user gives, None if there are none."""
    try:
        times = jnp.asarray(switching_times, ts.dtype)
    except (TypeError, ValueError):
        times = None
    if times is None or times.ndim != 1 or (is_concrete(times) and not np.isfinite(np.asarray(times)).all()):
        raise MechanismError(f"switching_times must be a sequence of finite times [s], got {switching_times!r}.")
    return times if len(times) else None


def _adjoint(derivative: Derivative) -> dfx.AbstractAdjoint:
    if isinstance(derivative, dfx.AbstractAdjoint):
        return derivative
    if derivative in ("any", "reverse"):
        return DiscreteAdjoint()
    if derivative == "forward":
        return dfx.ForwardMode()
    raise MechanismError(f"derivative must be 'any', 'reverse', 'forward' or a diffrax adjoint, got {derivative!r}.")


def _tolerance(given: Any, ts: Array | np.ndarray) -> Any:
    if is_concrete(given) and not 0 < given < np.inf:
        raise MechanismError(f"closure_tolerance must be a positive number [m, rad], got {given!r}.")
    return np.asarray(given, dtype=ts.dtype) if is_concrete(given) else jnp.asarray(given, dtype=ts.dtype)


def _raise_if_failed(solution: Solution, start: Start, end: End, tolerance: float) -> None:
    mechanism = solution.mechanism
    check_assembled(mechanism, "initial state", start.position, start.velocity)
    if solution.events is not None:
        raise_if_halted(solution.events, end.t)
    if bool(solution.result == RESULTS.constraints_violated):
        rows = open_rows(mechanism, np.asarray(end.violation), (), tolerance)
        raise SolveError(torn_text(mechanism, end.open_at, rows))
    if not bool(is_successful(solution.result)):
        raise SolveError(failure_text(solution, end.t, end.q, end.v))
