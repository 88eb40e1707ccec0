"""The integration of a motion by diffrax and its verdict: the function that `simulate` compiles."""

import dataclasses
from functools import partial
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxmbd.analyses.events.changes import ForceChanges
from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.events.event_log import Events
from jaxmbd.analyses.events.event_programs import solution_with_events
from jaxmbd.analyses.events.parts import with_sides_untold
from jaxmbd.analyses.events.segmented_integration import run_with_events
from jaxmbd.analyses.redundancy import singular_where_redundant
from jaxmbd.analyses.simulation.native_motion import event_programs, rates, steps_of
from jaxmbd.analyses.simulation.samples import check_native_changes, sampled_controllers
from jaxmbd.analyses.simulation.settings import SettledIntegration
from jaxmbd.analyses.simulation.step_control import first_step, relative_tolerance
from jaxmbd.analyses.simulation.verdict import (
    MotionEnd,
    StartVerdict,
    failure_describer,
    times_are_valid,
    verdict,
    verdict_at_start,
)
from jaxmbd.arrays import Scalar
from jaxmbd.engine import as_program, cached_on_disk, choice, is_program
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import split_integrated, start_of
from jaxmbd.integrate.adjoint.derivative_modes import forward_only, reverse_only
from jaxmbd.integrate.adjoint.discrete_adjoint import UncheckedTimesAdjoint
from jaxmbd.integrate.adjoint.native_run import run_native
from jaxmbd.integrate.formulations.formulation import (
    AbstractClosingFormulation,
    AbstractFormulation,
    AbstractProjectedFormulation,
    Stabilized,
)
from jaxmbd.integrate.formulations.independent_constraints import (
    RowSelection,
    equations_of,
    row_selection_for_motion,
    update_row_selection,
)
from jaxmbd.integrate.formulations.newton_closure import closed_where_redundant
from jaxmbd.integrate.solvers.switching import SwitchingTimes, step_ends, stepping_onto, switches_of
from jaxmbd.integrate.solvers.unrolled_erk import unrolled
from jaxmbd.integrate.solvers.wrapped_solver import PostStepSolver, prepared
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.result_codes import invalidated, is_successful, number_of, raise_where
from jaxmbd.state.state import State

_FORWARD_ONLY = (
    "adjoint='forward' has no reverse derivatives (jax.grad, jax.vjp, jax.jacrev). Leave adjoint out: by default "
    "simulate has derivatives of both modes and of any order."
)
_REVERSE_ONLY = (
    "diffrax.RecursiveCheckpointAdjoint has no forward derivatives (jax.jvp, jax.jacfwd) and no second ones. Leave "
    "adjoint out: by default simulate has derivatives of both modes and of any order."
)


@cached_on_disk
def integrate(
    model: Mechanism | Equations, rows: RowSelection | None, formulation: AbstractFormulation, state: State, ts: Array,
    settings: SettledIntegration,
) -> tuple[dict[str, Any], StartVerdict, MotionEnd]:  # fmt: skip
    """The fields of a `Solution` except the mechanism, and the start and end of the motion for error messages.

    **Arguments:** `model`, a mechanism, or its equations; `rows`, the row selection, `None` if values are traced.
    """
    equations, all_ts = equations_of(model), jnp.asarray(ts)
    valid = jnp.ones((), bool) if settings.checked else times_are_valid(all_ts, state.t, settings.dt0)
    how = {"strict": settings.throw, "continued": settings.continued}
    start = verdict_at_start(equations, state, all_ts, valid, settings.tolerance, **how)
    ts, q, *_ = _initial_values(start, all_ts, state)
    rows = row_selection_for_motion(equations, ts[0], q) if rows is None else rows
    start = start.unless_singular(singular_where_redundant(equations, rows.redundant, ts[0], q))
    ts, q, v, z = _initial_values(start, all_ts, state)
    equations = equations.solved_in(rows.redundant, rows.rows)
    switches = switches_of(equations.mechanism, settings.switching)
    first = first_step(settings.controller, ts, settings.dt0)
    y, changes, log = (q, v, start_of(equations.mechanism, z, len(settings.quadratures))), None, None
    if settings.events:
        run, formulation, changes, log = _with_events(
            settings, switches, first, equations, formulation, y, ts, state.rank
        )
        ts = run.ts[0]
    else:
        run = _solve(settings, switches, first, equations, formulation, ts[0], ts[-1], y, ts)
    (_, (qs, vs, zs)), (t1, (q1, v1, _)) = zip(run.ts, run.ys, strict=True)  # pyright: ignore
    qs, vs = _projected(equations, formulation, ts, qs, vs)
    ends = (ts[0], q), (t1[0], q1[0], v1[0])
    result, ok, end = verdict(equations, start, run.result, ts, qs, vs, *ends, log, singular=not settings.known)
    inputs = model, formulation, state, all_ts
    zs, integrals = split_integrated(equations.mechanism, zs)
    qs, vs, zs, integrals = (invalidated(ok, x, inputs) for x in (qs, vs, zs, integrals))
    log = None if log is None else _log_of_begun(log, start.may_begin, inputs)
    if settings.throw:  # the compiled program raises when it runs
        at_start = start.position, start.velocity, start.limits, start.speed_limits, start.sides
        numbers = number_of(result), *at_start, end.violation, start.tolerance, end.t, end.open_at
        times = None if log is None else log.times
        text = failure_describer(equations.mechanism)
        values = qs, vs, zs, integrals, times
        qs, vs, zs, integrals, times = raise_where(values, ~is_successful(result), text, *numbers)
        log = None if log is None else eqx.tree_at(lambda e: e.times, log, times)
    fields = {
        "formulation": formulation, "ts": jnp.where(start.may_begin, ts, all_ts), "q": qs, "integrated_speeds": vs,
        "z": zs, "quadratures": dict(zip(settings.quadratures, integrals.T, strict=True)), "events": log,
        "force_changes": changes,
        "redundant": jnp.asarray(equations.redundant), "stats": dict(run.stats), "result": result,
    }  # fmt: skip
    return fields, *jax.lax.stop_gradient((start, end))


def logged_events(settings: SettledIntegration) -> tuple[Event, ...]:
    """The events that stand in the log of a motion."""
    return tuple(event for event in settings.events if event.then.logged)


def _with_events(
    settings: SettledIntegration, switches: SwitchingTimes | None, first: Scalar | None, equations: Equations,
    formulation: AbstractFormulation, y: Any, ts: Any, rank: Array,
) -> tuple[Any, AbstractFormulation, ForceChanges | None, Events | None]:  # fmt: skip
    """A motion with events: as a whole, or in segments if the virtual machine cannot run it. Laws that the native loop
    would switch then have their kinks within steps."""
    native = steps_of(settings, switches, equations, formulation, y, ts)
    tolerance = relative_tolerance(settings.controller)
    if not isinstance(native, choice.Hindrance):
        ends = None if switches is None else step_ends(switches, ts[0], ts[-1])
        run, log = run_native(*native, settings.controller, first, ts[0], ts[-1], ts, ends)
        assert log is not None
        if isinstance(settings.adjoint, dfx.ForwardMode):
            run, log = forward_only((run, log), _FORWARD_ONLY)
        programs = event_programs(settings, equations, formulation, ts)
        return solution_with_events(run, log, programs, jnp.asarray(ts), rank, tolerance)
    check_native_changes(equations.mechanism, native)
    # Samples end segments as events do, also where there are no other ones: then there is a clock alone.
    samples = len(settings.switching) if sampled_controllers(equations.mechanism) else 0  # pyright: ignore
    kept = logged_events(settings) or (settings.events if samples else ())
    settings = dataclasses.replace(settings, events=kept)  # pyright: ignore
    own, quadratures = split_integrated(equations.mechanism, y[2])
    own = with_sides_untold(equations.mechanism, own)
    y = *y[:2], jnp.concatenate([start_of(equations.mechanism, own, 0), quadratures])
    if not settings.events:
        return _solve(settings, switches, first, equations, formulation, ts[0], ts[-1], y, ts), formulation, None, None
    # diffrax looks at the ends of steps alone: these are no longer than the average interval of the times.
    control = settings.controller
    if isinstance(control, dfx.PIDController) and control.dtmax is None:
        control = dataclasses.replace(control, dtmax=(ts[-1] - ts[0]) / (len(ts) - 1))  # pyright: ignore
    solve = partial(_solve, dataclasses.replace(settings, controller=control), switches, first)
    events = settings.events, settings.max_events, samples
    run, formulation, changes, log = run_with_events(solve, equations, formulation, y, ts, *events, rank, tolerance)
    return run._replace(stats=run.stats | {"hindrance": native.number}), formulation, changes, log


def _solve(
    settings: SettledIntegration, switches: SwitchingTimes | None, first: Scalar | None, equations: Equations,
    formulation: AbstractFormulation, t0: Any, t1: Any, y: Any, ts: Any, event: dfx.Event | None = None,
) -> dfx.Solution:  # fmt: skip
    """Integrate a motion, or a segment of one, by diffrax."""
    t = jnp.asarray(t0)
    native = steps_of(settings, switches, equations, formulation, y, ts, event)
    if not isinstance(native, choice.Hindrance):
        ends = None if switches is None else step_ends(switches, t, jnp.asarray(t1))
        run, _ = run_native(*native, settings.controller, first, t0, t1, ts, ends)
        is_forward = isinstance(settings.adjoint, dfx.ForwardMode)
        ys = tuple(parts[:3] for parts in run.ys)  # without the selected rows  # pyright: ignore
        return eqx.tree_at(lambda r: r.ys, run, forward_only(ys, _FORWARD_ONLY) if is_forward else ys)
    if settings.events:  # the row selection is that of the motion's start, not of the segment's
        equations = equations.solved_in(equations.redundant, update_row_selection(equations, t, y[0]))
    is_projected = isinstance(formulation, AbstractProjectedFormulation)
    formulation = formulation.begin(equations, t, y[0]) if is_projected else formulation
    forward = isinstance(settings.adjoint, dfx.ForwardMode)
    # Unrolled stages are faster if the right-hand side is one call; otherwise they take long to compile.
    is_call = is_program(rates, equations, formulation, settings.quadratures, t, *y, forward=forward)
    solver = prepared(unrolled(settings.solver) if is_call else settings.solver, settings.controller, settings.adjoint)
    solver = PostStepSolver(solver) if is_projected or equations.independent_rows is not None else solver
    if isinstance(settings.adjoint, dfx.RecursiveCheckpointAdjoint):
        equations, formulation, y = reverse_only((equations, formulation, y), _REVERSE_ONLY)
    solver, controller, args, t0 = stepping_onto(
        switches, solver, settings.controller, (equations, formulation), t0, t1
    )
    right_hand_side = as_program(rates, forward)
    run = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, a: right_hand_side(a[0], a[1], settings.quadratures, jnp.asarray(t), *y)),
        solver, t0, t1, first, y, args=args,
        saveat=dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)]), stepsize_controller=controller,
        adjoint=UncheckedTimesAdjoint(settings.adjoint, t0, t1, ts, first), max_steps=settings.max_steps,
        progress_meter=settings.meter, throw=False, event=event,
    )  # fmt: skip
    run = eqx.tree_at(lambda r: r.stats, run, dict(run.stats) | {"hindrance": native.number})
    return eqx.tree_at(lambda r: r.ys, run, forward_only(run.ys, _FORWARD_ONLY)) if forward else run


def _projected(
    equations: Equations, formulation: AbstractFormulation, ts: Array, qs: Array, vs: Array
) -> tuple[Array, Array]:
    """The saved states projected onto the constraints, which the interpolation between steps does not satisfy."""
    if isinstance(formulation, AbstractProjectedFormulation):

        def projected(t: Array, q: Array, v: Array) -> tuple[Array, Array]:
            # One that closes the loops by Newton's method needs no choice at one instant.
            closes = isinstance(formulation, AbstractClosingFormulation)
            start = formulation if closes else formulation.begin(equations, t, q)
            return start.settle(equations, t, q, v)[1:]

        qs, vs = jax.vmap(projected)(ts, qs, vs)
    elif isinstance(formulation, Stabilized):
        qs = jax.vmap(lambda t, q: closed_where_redundant(equations, t, q))(ts, qs)
    return jax.vmap(lambda q: as_program(Equations.normalize)(equations, q))(qs), vs


def _initial_values(start: StartVerdict, ts: Array, state: State) -> tuple[Array, ...]:
    """Times, coordinates, speeds and states of parts to integrate from; if a motion may not begin, zero times and
    arbitrary finite values, so that results and derivatives become NaN only where they are set to NaN deliberately."""
    arbitrary = jnp.linspace(0.1, 1.0, len(state.q), dtype=state.q.dtype)
    fallbacks = jnp.zeros_like(ts), arbitrary, jnp.zeros_like(state.v), jnp.zeros_like(state.z)
    pairs = zip((ts, state.q, state.v, state.z), fallbacks, strict=True)
    return tuple(jnp.where(start.may_begin, value, fallback) for value, fallback in pairs)


def _log_of_begun(log: Events, begun: Bool[Array, ""], inputs: Any) -> Events:
    """The log of a motion; NaN and empty if it did not begin."""
    arrays = lambda e: (e.times, e.q, e.z, e.before, e.after, e.impulses, e.lam)  # noqa: E731
    log = eqx.tree_at(arrays, log, tuple(invalidated(begun, x, inputs) for x in arrays(log)))
    counts = lambda e: (e.count, e.which, e.trouble, e.nearest)  # noqa: E731
    pairs = zip(counts(log), (0, -1, 0, jnp.inf), strict=True)
    return eqx.tree_at(counts, log, tuple(jnp.where(begun, x, empty) for x, empty in pairs))
