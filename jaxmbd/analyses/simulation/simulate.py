"""Dynamic analysis: the motion from an initial state, integrated by diffrax."""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.assembly.assembly_errors import open_rows
from jaxmbd.analyses.assembly.speed_solve import check_mass
from jaxmbd.analyses.checks import check_assembled, check_controller, check_times, checked_formulation
from jaxmbd.analyses.events.changes import check_changes
from jaxmbd.analyses.events.event import Event, check_events
from jaxmbd.analyses.events.event_log import raise_if_halted
from jaxmbd.analyses.redundancy import jacobian
from jaxmbd.analyses.simulation.integration import IntegrationSettings, integrate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.step_control import Accuracy, Adjoint, ErrorControl, chosen_adjoint, stepping
from jaxmbd.analyses.simulation.verdict import (
    MotionEnd,
    StartVerdict,
    failure_text,
    torn_text,
    verdict_where_stopped,
)
from jaxmbd.arrays import as_float, frozen, is_concrete, is_known
from jaxmbd.checks import check_count, check_flags, check_shape, checked_names
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, SolveError, check_known
from jaxmbd.integrate.adjoint.explicit_steps import Engine
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, AbstractProjectedFormulation
from jaxmbd.integrate.formulations.independent_constraints import initial_row_selection
from jaxmbd.integrate.solvers.switching import check_steps, switches_of, with_jumps_apart
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import unit_of_length
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.progress import silenced
from jaxmbd.state.output_channels import channel_units, vector_channels
from jaxmbd.state.result_codes import RESULTS, is_one_of
from jaxmbd.state.state import State, check_state

_LARGE_MECHANISM = 64  # bodies


def simulate(
    mechanism: Mechanism,
    state: State,
    ts: Any,
    *,
    formulation: AbstractFormulation | None = None,
    solver: dfx.AbstractSolver | Literal["stiff"] | None = None,
    accuracy: Accuracy = "standard",
    rtol: float | int | Array | None = None,
    atol: float | int | Array | None = None,
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    control_speeds: bool = False,
    adjoint: Adjoint = "any",
    quadratures: Iterable[str] = (),
    events: Iterable[Event] = (),
    max_events: int = 32,
    switching_times: Any = (),
    dt0: float | int | Array | None = None,
    dtmin: float | int | Array | None = None,
    max_steps: int = 2**16,
    closure_tolerance: float | Array | None = None,
    continued: bool = False,
    engine: Engine = "auto",
    progress: bool = False,
    throw: bool = True,
) -> Solution:
    """Integrate the motion from `state` and return it at the times `ts`.

    **Arguments:**

    - `mechanism`, and a `state` from `assemble`;
    - `ts`: increasing times `[s]`, shape `(times,)`; the first one is the time of the state;
    - `formulation`: the constraint formulation; by default `Stabilized()`, or `Augmented(alpha, beta)`,
      `CoordinatePartitioning()`, `Projection()`;
    - `solver`: any diffrax solver for ordinary differential equations, by default `diffrax.Dopri8()`; `"stiff"` is
      `jaxmbd.Radau()`, and `time_scales(mechanism, state)` shows if it is needed; `jaxmbd.RungeKutta4()` takes constant
      steps of `dt0`;
    - `accuracy`: `"standard"` or `"high"`, the tolerances of the step-size controller: `rtol`, `atol` 1e-8, 1e-10 or
      1e-12, 1e-13 in double, 1e-5, 1e-6 or 1e-6, 1e-7 in single precision. For mechanisms smaller than 0.25 m `atol`
      is smaller by the power of ten that suits their size;
    - `rtol`, `atol`: other tolerances; the controller measures the error of the coordinates;
    - `control_speeds`: control the error of the speeds, too; more accurate for the same tolerance if speeds are large,
      but near singular positions the steps may tend to zero;
    - `stepsize_controller`: any diffrax step-size controller instead; `diffrax.ConstantStepSize()` needs `dt0` `[s]`;
    - `adjoint`: `"any"` (also called `"reverse"`): forward and reverse derivatives of any order; `"forward"`, faster
      if only forward derivatives are needed (`jax.jvp`, `jax.jacfwd`, `jax.linearize`); or a diffrax adjoint. See
      docs/derivatives.md;
    - `quadratures`: names of scalar quantities to be integrated over time, to the same accuracy as the motion:
      `solution.quadratures["kinetic_energy"]`;
    - `events`: `Event`s that stop the motion, apply an impact or a latch, or are only logged, in `solution.events`; at
      most `max_events` crossings, including those in a direction that an event ignores. Steps are then no longer than
      the average interval of `ts`: a quantity that crosses a value and returns within one step may be missed;
    - `switching_times`: times `[s]` at which user functions jump or have a kink; steps end there, and derivatives with
      respect to these times are exact. Those of a `Piecewise` or `Table` in forces, drivers and joints are added
      automatically;
    - `dt0`: the first step `[s]`, not allowed with `diffrax.StepTo`; `max_steps`; `progress`, to show a progress bar;
    - `dtmin`: the smallest step `[s]`; a motion that needs smaller ones fails, by default only when they tend to zero.
      In a sweep, mechanisms that lock then take a fraction of the steps;
    - `engine`: what runs the motion; `solution.engine` says which did. The engines take the same steps and differ by
      rounding. By default (`"auto"`) the virtual machine runs explicit methods, by interpreting until compiling would
      pay, then by compiled code; `diffrax` runs everything else. `"native"` waits for the compiled code (seconds, once
      on a computer), which is several times faster; `"interpreter"` and `"diffrax"` do not use it. On an NVIDIA GPU
      all instances of a batch run as one kernel, which is `"native"`; by default diffrax's loop serves mechanisms too
      large for its compiler. Of a batch over several devices each runs its own instances;
    - `closure_tolerance`: the largest constraint violation allowed at any of the times `[m, rad]`; by default 1e-2 rad
      and 1e-2 of the unit of length that suits the mechanism (a power of ten: 1 m for sizes from 0.25 to 2.5 m);
    - `continued`: true if the state is that of a motion before. Joints may then be open by `closure_tolerance` at the
      start too, since loose tolerances and long steps drift so far; else they must be closed as `assemble` closes them;
    - `throw=False` raises no error: `solution.result` gives the verdict, for each instance of a batch; from the failure
      on values are NaN, and so are their derivatives. An instance that is not assembled takes no steps.

    **Returns:** a `Solution`.

    **Raises:** `MechanismError` for invalid times or an invalid state, `AssemblyError` for a state that does not
    satisfy the constraints, `SolveError` if the integration fails. Inside `jit` or `vmap`, where values are not
    known, `throw=True` raises when the compiled program runs.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> start = mbd.assemble(pendulum, {"O.angle": 0.0})
        >>> motion = mbd.simulate(pendulum, start, np.linspace(0.0, 1.0, 101))
        >>> print(f"{motion['O.angle'][-1]:.4f} rad, {motion.reaction('O').force[-1].round(3)} N")
        -2.9758 rad, [2.395 5.306] N
    """
    check_state(mechanism, state, "simulate(mechanism, state, ts)")
    ts = check_times(ts, state)
    check_controller(stepsize_controller, rtol, atol, control_speeds, dtmin)
    quadratures = _integrands(mechanism, quadratures)
    formulation = checked_formulation(formulation)
    events = check_events(mechanism, events, max_events)
    check_changes(mechanism, events)
    flags = {"control_speeds": control_speeds, "progress": progress, "throw": throw, "continued": continued}
    _check_settings(max_steps, engine, **flags)
    control = ErrorControl(accuracy, rtol, atol, dtmin, control_speeds, unit_of_length(mechanism))
    steps = solver, stepsize_controller = stepping(solver, stepsize_controller, dt0, ts, control, bool(events))
    switching = _as_times(switching_times, ts)
    check_steps(solver, stepsize_controller, switches_of(mechanism, switching), ts[0], ts[-1])
    known = is_known(mechanism, state, ts, formulation, events, switching_times, steps, dt0, closure_tolerance)
    if known:
        _check_equations(*frozen((formulation, mechanism, state)), throw=throw)
    apart, switching = with_jumps_apart(mechanism, switching, ts[0], ts[-1])
    settings = IntegrationSettings(
        solver, stepsize_controller, chosen_adjoint(adjoint), quadratures, events, max_events, switching, dt0,
        max_steps, _tolerance(closure_tolerance, ts), dfx.TextProgressMeter() if progress else dfx.NoProgressMeter(),
        throw=throw and not known, continued=continued, known=known, checked=is_known(ts, state.t, dt0), engine=engine,
    )  # fmt: skip
    # With many parameters as inputs, compiling takes longer than the motion: the equations are assembled beforehand.
    model = Equations(apart) if len(mechanism.bodies) > _LARGE_MECHANISM and is_concrete(apart) else apart
    rows = initial_row_selection(model, ts, state.q)
    with silenced("compiling ..." if progress and known else ""):  # the progress bar then has the terminal
        fields, start, end = integrate(model, rows, formulation, state, ts, settings)
    # Inside another trace the times may be returned unchanged, as a NumPy array.
    solution = Solution(mechanism=mechanism, start_rank=state.rank, **fields | {"ts": jnp.asarray(fields["ts"])})
    if known and throw:
        _raise_if_failed(frozen(solution), frozen(start), frozen(end))
    elif known:
        solution = eqx.tree_at(lambda s: s.result, solution, verdict_where_stopped(frozen(solution), frozen(end)))
    return solution


def _check_settings(max_steps: int, engine: str, **flags: bool) -> None:
    check_count("max_steps", max_steps, 1)
    check_known("engine", [engine], get_args(Engine))
    check_flags("simulate", **flags)


def _check_equations(formulation: AbstractFormulation, mechanism: Mechanism, state: State, *, throw: bool) -> None:
    """Raise unless the mass matrix is regular (with `throw`), and the formulation has as many independent coordinates
    as the mechanism degrees of freedom."""
    if throw:
        check_mass(mechanism, state.q, state.t, "simulate")
    if not isinstance(formulation, AbstractProjectedFormulation):
        return
    C_q = jnp.asarray(jacobian(mechanism, state.t, state.q))
    formulation.check(mechanism, mechanism.nv - int(rank_of(C_q)))


def _integrands(mechanism: Mechanism, names: Iterable[str]) -> tuple[str, ...]:
    """The names of the quadratures; raise for unknown names and for vectors."""
    names = checked_names("quadratures", names, "energy")
    if not names:
        return names
    known = channel_units(mechanism)
    check_known("quantity", names, known)
    for name, shape in vector_channels(mechanism, names).items():
        raise MechanismError(f"quadratures takes scalar quantities, and {name!r} has shape {shape}.")
    return names


def _as_times(switching_times: Any, ts: Any) -> Array | None:
    """The user's switching times as an array, `None` if there are none."""
    times = as_float(switching_times)
    if (
        not isinstance(times, Array)
        or times.ndim != 1
        or (is_concrete(times) and not np.isfinite(np.asarray(times)).all())
    ):
        raise MechanismError(f"switching_times must be a sequence of finite times [s], got {switching_times!r}.")
    return times.astype(ts.dtype) if len(times) else None


def _tolerance(value: Any, ts: Array | np.ndarray) -> Any:
    if value is None:
        return None
    check_shape("simulate", "closure_tolerance", as_float(value), ())
    if is_concrete(value) and not 0 < value < np.inf:
        raise MechanismError(f"closure_tolerance must be a positive number [m, rad], got {value!r}.")
    return np.asarray(value, dtype=ts.dtype) if is_concrete(value) else jnp.asarray(value, dtype=ts.dtype)


def _raise_if_failed(solution: Solution, start: StartVerdict, end: MotionEnd) -> None:
    mechanism = solution.mechanism
    limits = start.limits, start.speed_limits
    check_assembled(mechanism, "initial state", start.position, start.velocity, *limits, start.sides)
    if solution.events is not None:
        raise_if_halted(solution.events, end.t)
    if is_one_of(solution.result, RESULTS.constraints_violated):
        rows = open_rows(mechanism, np.asarray(end.violation), (), np.asarray(start.tolerance))
        raise SolveError(torn_text(mechanism, end.open_at, rows))
    if not is_one_of(solution.result, RESULTS.successful):
        raise SolveError(failure_text(solution, end.t, end.q, end.v))
