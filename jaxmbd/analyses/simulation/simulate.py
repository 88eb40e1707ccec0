"""Dynamic analysis: the motion from an initial state, integrated by diffrax."""

from collections.abc import Iterable
from typing import Any, Unpack

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.assembly.assembly_errors import open_rows
from jaxmbd.analyses.assembly.speed_solve import check_mass
from jaxmbd.analyses.checks import check_assembled, check_times
from jaxmbd.analyses.events.changes import check_changes
from jaxmbd.analyses.events.event import check_events
from jaxmbd.analyses.events.event_log import Events, raise_if_halted
from jaxmbd.analyses.events.parts import events_of_parts
from jaxmbd.analyses.redundancy import jacobian, singular_parts, singular_text
from jaxmbd.analyses.simulation.automatic import run_by_choice
from jaxmbd.analyses.simulation.integration import integrate
from jaxmbd.analyses.simulation.samples import clock, sample_times
from jaxmbd.analyses.simulation.settings import Integration, Settings, SettledIntegration, chosen_integration
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.step_control import chosen_adjoint, stepping
from jaxmbd.analyses.simulation.verdict import (
    MotionEnd,
    StartVerdict,
    failure_text,
    torn_text,
    verdict_where_stopped,
)
from jaxmbd.arrays import frozen, is_concrete, is_known
from jaxmbd.checks import check_flags, checked_names
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, SolveError, check_known
from jaxmbd.integrate.formulations.formulation import (
    AbstractFormulation,
    AbstractProjectedFormulation,
    Augmented,
    Projection,
    Stabilized,
)
from jaxmbd.integrate.formulations.independent_constraints import initial_row_selection
from jaxmbd.integrate.solvers.collocation import AbstractCollocation, Radau
from jaxmbd.integrate.solvers.switching import check_steps, switches_of, with_jumps_apart
from jaxmbd.model.force.load_friction import check_nothing_rubs
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.progress import silenced
from jaxmbd.state.output_channels import vector_channels
from jaxmbd.state.result_codes import RESULTS, is_one_of
from jaxmbd.state.state import State, check_state

_OWN = "quadratures", "continued", "progress", "throw"  # keywords of `simulate` that are no settings
_MAX_STEPS = 2**16
_LARGE_MECHANISM = 64  # bodies


def simulate(
    mechanism: Mechanism,
    state: State,
    ts: Any,
    integration: Integration | None = None,
    *,
    quadratures: Iterable[str] = (),
    continued: bool = False,
    progress: bool = False,
    throw: bool = True,
    **settings: Unpack[Settings],
) -> Solution:
    """Integrate the motion from `state` and return it at the times `ts`.

    **Arguments:**

    - `mechanism`, and a `state` from `assemble`;
    - `ts`: increasing times `[s]`, shape `(times,)`; the first one is the time of the state;
    - `integration`: how the motion is integrated, an `Integration`, which says what all settings mean; or `settings` by
      name, `rtol=1e-9, solver="stiff"`, which have precedence over those of the object;
    - `quadratures`: names of scalar quantities to be integrated over time, to the same accuracy as the motion:
      `solution.quadratures["kinetic_energy"]`;
    - `continued`: true if the state is that of a motion before. Joints may then be open by `closure_tolerance` at the
      start too, since loose tolerances and long steps drift so far; else they must be closed as `assemble` closes them;
    - `progress`: show a progress bar;
    - `throw=False` raises no error: `solution.result` gives the verdict, for each instance of a batch; from the failure
      on values are NaN, and so are their derivatives. An instance that is not assembled takes no steps.

    **Returns:** a `Solution`.

    **Raises:** `MechanismError` for invalid times or settings or an invalid state, `AssemblyError` for a state that
    does not satisfy the constraints, `SolveError` if the integration fails. Inside `jit` or `vmap`, where values are
    not known, `throw=True` raises when the compiled program runs.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> start = mbd.assemble(pendulum, {"O.angle": 0.0})
        >>> motion = mbd.simulate(pendulum, start, np.linspace(0.0, 1.0, 101))
        >>> print(f"{motion['O.angle'][-1]:.4f} rad, {motion.reaction('O').force[-1].round(3)} N")
        -2.9758 rad, [2.395 5.306] N
    """
    check_state(mechanism, state, "simulate(mechanism, state, ts)")
    ts = check_times(ts, state)
    chosen = chosen_integration("simulate", integration, settings, _OWN)
    check_flags("simulate", progress=progress, throw=throw, continued=continued)
    quadratures = _integrands(mechanism, quadratures)
    check_events(mechanism, chosen.events)
    check_changes(mechanism, chosen.events)
    own = {"quadratures": quadratures, "continued": continued}
    if isinstance(chosen.solver, str) and chosen.solver == "auto":
        _check_implicit(Radau(), chosen.formulation, mechanism)  # which may be chosen
        run = lambda how, raises: _run(mechanism, state, ts, how, progress=progress and raises, throw=raises, **own)  # noqa: E731
        return run_by_choice(run, chosen, (mechanism, state, ts), throw, _MAX_STEPS)
    return _run(mechanism, state, ts, chosen, progress=progress, throw=throw, **own)[0]


def _run(
    mechanism: Mechanism, state: State, ts: Array | np.ndarray, chosen: Integration, *, quadratures: tuple[str, ...],
    continued: bool, progress: bool, throw: bool,
) -> tuple[Solution, MotionEnd]:  # fmt: skip
    """The motion by a known method, and its end."""
    formulation = Stabilized() if chosen.formulation is None else chosen.formulation
    steps = stepping(chosen, mechanism, ts)
    sampled = sample_times(mechanism, ts[0], ts[-1])
    given = [x.astype(ts.dtype) for x in (chosen.switching_times, sampled) if x is not None]
    switching = jnp.concatenate(given) if given else None
    own = (*chosen.events, *events_of_parts(mechanism))
    alone = sampled is not None and not own
    events, room = ((clock(),), 1) if alone else (own, chosen.max_events)
    _check_implicit(steps[0], formulation, mechanism)
    check_steps(*steps, switches_of(mechanism, switching), ts[0], ts[-1])
    known = is_known(mechanism, state, ts, chosen, steps)
    if known:
        _check_equations(*frozen((formulation, mechanism, state)), throw=throw)
    apart, switching = with_jumps_apart(mechanism, switching, ts[0], ts[-1])
    settled = SettledIntegration(
        *steps, chosen_adjoint(chosen.adjoint), quadratures, events, room, switching, chosen.dt0,
        _MAX_STEPS if chosen.max_steps is None else chosen.max_steps, _tolerance(chosen.closure_tolerance, ts),
        dfx.TextProgressMeter() if progress else dfx.NoProgressMeter(), throw=throw and not known, continued=continued,
        known=known, checked=is_known(ts, state.t, chosen.dt0), engine=chosen.engine,
    )  # fmt: skip
    # With many parameters as inputs, compiling takes longer than the motion: the equations are assembled beforehand.
    model = Equations(apart) if len(mechanism.bodies) > _LARGE_MECHANISM and is_concrete(apart) else apart
    rows = initial_row_selection(model, ts, state.q)
    with silenced("compiling ..." if progress and known else ""):  # the progress bar then has the terminal
        fields, start, end = integrate(model, rows, formulation, state, ts, settled)
    log = fields["events"]
    if not any(event.then.logged for event in events):
        fields["events"] = None
    fields["ts"] = jnp.asarray(fields["ts"])  # inside another trace they may be returned as NumPy's, as given
    solution = Solution(mechanism=mechanism, start_rank=state.rank, **fields)
    if known and throw:
        _raise_if_failed(frozen(solution), frozen(state), frozen(start), frozen(end), frozen(log))
    elif known:
        solution = eqx.tree_at(lambda s: s.result, solution, verdict_where_stopped(frozen(solution), frozen(end)))
    return solution, end


def _check_equations(formulation: AbstractFormulation, mechanism: Mechanism, state: State, *, throw: bool) -> None:
    """Raise unless the mass matrix is regular (with `throw`), and the formulation has as many independent coordinates
    as the mechanism degrees of freedom."""
    if throw:
        check_mass(mechanism, state.q, state.t, "simulate")
    if not isinstance(formulation, AbstractProjectedFormulation):
        return
    C_q = jnp.asarray(jacobian(mechanism, state.t, state.q))
    formulation.check(mechanism, mechanism.nv - int(rank_of(C_q)))


def _check_implicit(solver: dfx.AbstractSolver, formulation: AbstractFormulation | None, mechanism: Mechanism) -> None:
    """Raise if a collocation method, which solves the equations with their constraints itself, would leave something
    out that is part of a formulation's right-hand side."""
    if not isinstance(solver, AbstractCollocation):
        return
    check_nothing_rubs(mechanism, f"A motion by {type(solver).__name__}, which solves for the multipliers itself,")
    if formulation is None:
        return
    inner = formulation
    while isinstance(inner, Projection):
        inner = inner.base
    if not isinstance(inner, Augmented | Stabilized | AbstractProjectedFormulation):
        raise MechanismError(
            f"{type(solver).__name__} solves the constraints itself, without the right-hand side of "
            f"{type(inner).__name__}. Choose an explicit method, such as the default: leave solver out."
        )


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


def _tolerance(value: Any, ts: Array | np.ndarray) -> Any:
    if value is None:
        return None
    return np.asarray(value, dtype=ts.dtype) if is_concrete(value) else jnp.asarray(value, dtype=ts.dtype)


def _raise_if_failed(solution: Solution, state: State, start: StartVerdict, end: MotionEnd, log: Events | None) -> None:
    mechanism = solution.mechanism
    limits = start.limits, start.speed_limits
    check_assembled(mechanism, "initial state", start.position, start.velocity, *limits, start.sides)
    if is_one_of(solution.result, RESULTS.singular_at_start):
        text = singular_text(singular_parts(mechanism, state.t, state.q))
        raise SolveError(f"{text} The equations do not tell which one is meant: start a little beside it.")
    if log is not None:
        raise_if_halted(log, end.t)
    if is_one_of(solution.result, RESULTS.constraints_violated):
        rows = open_rows(mechanism, np.asarray(end.violation), (), np.asarray(start.tolerance))
        raise SolveError(torn_text(mechanism, end.open_at, rows))
    if not is_one_of(solution.result, RESULTS.successful):
        raise SolveError(failure_text(solution, end.t, end.q, end.v))
