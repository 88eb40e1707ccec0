"""A motion as functions of one array of numbers, which the native time loop runs as programs; and what hinders that.

The state is `(q, v, z)`, then what is constant within a step: what events remember, the selected rows, the chosen
independent speeds, and of an implicit method the step before.
"""

from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.events.event_programs import EventPrograms, Room
from jaxmbd.analyses.simulation.settings import SettledIntegration
from jaxmbd.analyses.simulation.step_control import StateNorm
from jaxmbd.engine import choice
from jaxmbd.engine.machine.build_vm import vm
from jaxmbd.engine.machine.gpu import launcher
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import at_integrated, integrated_rates
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.adjoint.collocation_in_loop import AtState, CollocationInLoop
from jaxmbd.integrate.adjoint.discrete_adjoint import DiscreteAdjoint
from jaxmbd.integrate.adjoint.event_functions import EventFunctions
from jaxmbd.integrate.adjoint.native_steps import Closing, NativeSteps, native_steps
from jaxmbd.integrate.formulations.formulation import (
    AbstractClosingFormulation,
    AbstractFormulation,
    AbstractProjectedFormulation,
)
from jaxmbd.integrate.formulations.independent_constraints import exchanged_rows
from jaxmbd.integrate.formulations.joint_loads import motion_at
from jaxmbd.integrate.solvers.collocation import AbstractCollocation
from jaxmbd.integrate.solvers.switching import SwitchingTimes, smallest_gap
from jaxmbd.integrate.solvers.unrolled_erk import is_explicit
from jaxmbd.model.mechanism.controllers import foreign_parts
from jaxmbd.state.output_channels import Snapshot, channel_values
from jaxmbd.upstream.jax_internals import default_platform

_STEPS_A_CHANGE, _FEWEST_CHANGES = 8, 64  # how often parts may change, for each step and at least


def event_programs(
    settings: SettledIntegration, equations: Equations, formulation: AbstractFormulation, ts: Any
) -> EventPrograms:
    gap = jnp.asarray(smallest_gap(ts[0], ts[-1]))
    return EventPrograms(equations, formulation, settings.events, gap, _room(settings))


def _room(settings: SettledIntegration) -> Room:
    return Room(settings.max_events, max(settings.max_steps // _STEPS_A_CHANGE, _FEWEST_CHANGES))


def steps_of(
    settings: SettledIntegration, switches: SwitchingTimes | None, equations: Equations,
    formulation: AbstractFormulation, y: Any, ts: Any, event: dfx.Event | None = None,
) -> tuple[NativeSteps, list[Any], Any] | choice.Hindrance:  # fmt: skip
    """The steps of a motion that the virtual machine can run as a whole, and its parameters; or what hinders that.

    It runs explicit Runge-Kutta methods with the step-size control of `diffrax.PIDController` or with constant steps,
    if the right-hand side is a program, and events whose quantities and effects are.
    """
    found, which = _hindrance(settings, formulation, event)
    if found is choice.Hindrance.NONE and (foreign := foreign_parts(equations.mechanism)):
        found, which = choice.Hindrance.FOREIGN, ", ".join(foreign)
    count = 0 if switches is None else len(switches.jumps) + len(switches.kinks) + 1  # and one that is never reached
    given = settings, equations, formulation, y, ts
    steps = found if found is not choice.Hindrance.NONE else _motion_steps(*given, count)
    if isinstance(steps, choice.Hindrance) and settings.engine not in ("auto", "diffrax"):
        raise MechanismError(
            f"engine={settings.engine!r} cannot run a motion {steps.value}{which and f' ({which})'}. Leave engine out: "
            "diffrax then runs what the virtual machine cannot."
        )
    return steps


class _Given(NamedTuple):
    """The arrays that a motion depends on. `tolerance`: of an implicit method's iteration."""

    equations: Equations
    formulation: AbstractFormulation
    events: tuple[Event, ...]
    gap: Array | None
    tolerance: Array | None


class _Fixed(NamedTuple):
    """What else a motion depends on: the names of the quadratures, where the parts of the state end, how much may
    happen, whether rows are selected, and whether independent speeds are chosen anew."""

    quadratures: tuple[str, ...]
    ends: tuple[int, ...]
    room: Room
    selects_rows: bool
    chooses_speeds: bool


def _motion_steps(
    settings: SettledIntegration, equations: Equations, formulation: AbstractFormulation, y: Any, ts: Any, switches: int
) -> tuple[NativeSteps, list[Any], Any] | choice.Hindrance:  # fmt: skip
    """The same where nothing else hinders: the right-hand side may be no program, or too large for a GPU."""
    solver, control = settings.solver, settings.controller
    rows, events, gap, motion = equations.independent_rows, None, None, sum(map(len, y))
    dtype, own, tolerance, added = y[0].dtype, len(y[2]) - len(settings.quadratures), None, 0
    if settings.events:
        programs = event_programs(settings, equations, formulation, ts)
        logged = motion + len(y[1]) - len(settings.quadratures)  # of (q, v, v, z)
        added = programs.rules.added_rows
        events = EventFunctions(_heights, _effect, programs.layout(motion, logged, switches))
        y, gap = (*y, programs.packed(programs.start._replace(time=jnp.asarray(ts[0])))), programs.rules.gap
    y = y if rows is None else (*y, rows.astype(dtype))
    closing = chosen = None
    if isinstance(formulation, AbstractClosingFormulation) and equations.m:
        formulation, closing = formulation.begin(equations, jnp.asarray(ts[0]), y[0]), Closing(_closing_step, len(y[0]))
        chosen = formulation.choice()
        y = y if chosen is None else (*y, chosen.astype(dtype))
    if isinstance(solver, AbstractCollocation):
        tolerance = jnp.asarray(jnp.inf if solver.tolerance is None else solver.tolerance, dtype)
        sizes = len(y[0]), len(y[1]), own, equations.m + added
        method = CollocationInLoop(solver.method, sum(map(len, y)), sizes, _at_state)
        y = *y, method.start(dtype)
    else:
        assert is_explicit(solver)
        method = solver
    norm = control.norm if isinstance(control, dfx.PIDController) else StateNorm()
    assert isinstance(norm, StateNorm)
    ends = tuple(np.cumsum([len(part) for part in y])[:-1].tolist())
    given = _Given(equations, formulation, settings.events, gap, tolerance)
    fixed = _Fixed(settings.quadratures, ends, _room(settings), rows is not None, chosen is not None)
    changes = not isinstance(solver, AbstractCollocation) and (rows is not None or chosen is not None)
    found = native_steps(
        _flat_rates, _selected_after if changes else None, given, fixed,
        jnp.concatenate(y), method, norm.weights(y), len(ts), settings.max_steps, settings.engine,
        condition=equations.redundant if chosen is None else None, events=events, switches=switches, closing=closing,
    )  # fmt: skip
    if found is None:
        return choice.Hindrance.NO_PROGRAM
    is_free = settings.engine == "auto" and default_platform() == "gpu"  # to leave it to XLA
    if is_free and not launcher.is_worthwhile(found[0].operations_of_all):
        return choice.Hindrance.LARGE
    return (*found, y)


def _hindrance(
    settings: SettledIntegration, formulation: AbstractFormulation, event: dfx.Event | None
) -> tuple[choice.Hindrance, str]:
    """Why the virtual machine cannot run a motion as a whole, whatever its right-hand side, and the class or device."""
    solver, control, adjoint = settings.solver, settings.controller, settings.adjoint
    platform = default_platform()
    has_loop = platform == "cpu" or (platform == "gpu" and settings.engine != "interpreter")
    controlled = type(control) is dfx.PIDController and isinstance(control.norm, StateNorm)
    name = lambda x: type(x).__name__  # noqa: E731
    kind = choice.Hindrance
    holds = {
        kind.ASKED: (settings.engine == "diffrax", ""),
        kind.SEGMENT: (event is not None, ""),
        kind.PROJECTION: (
            isinstance(formulation, AbstractProjectedFormulation)
            and not isinstance(formulation, AbstractClosingFormulation),
            name(formulation),
        ),
        kind.PROGRESS: (not isinstance(settings.meter, dfx.NoProgressMeter), ""),
        kind.PLATFORM: (not has_loop, platform.upper()),
        kind.MACHINE: (vm() is None, ""),
        kind.ADJOINT: (not isinstance(adjoint, DiscreteAdjoint | dfx.ForwardMode), name(adjoint)),
        kind.SOLVER: (not (is_explicit(solver) or isinstance(solver, AbstractCollocation)), name(solver)),
        kind.CONTROLLER: (not (controlled or type(control) is dfx.ConstantStepSize), name(control)),
    }
    return next(((found, which) for found, (does, which) in holds.items() if does), (kind.NONE, ""))


def _flat_rates(given: _Given, fixed: _Fixed, t: Array, y: Array) -> Array:
    """The right-hand side for the state as one array: of `q`, `v`, `z`, not of what events remember and of the selected
    rows, which are constant within a step."""
    at = _unpacked(given, fixed, y)
    return jnp.concatenate(rates(*at.now(), fixed.quadratures, t, *at.motion))


def _selected_after(given: _Given, fixed: _Fixed, t: Array, y: Array) -> Array:
    """The selected rows and the chosen speeds for the next step."""
    at = _unpacked(given, fixed, y)
    return jnp.concatenate(_selected(at.equations, at.formulation, fixed, t, at.motion[0]))


def _selected(equations: Equations, formulation: AbstractFormulation, fixed: _Fixed, t: Array, q: Array) -> list[Array]:
    rows = [exchanged_rows(equations, t, q)] if fixed.selects_rows else []
    if fixed.chooses_speeds:
        assert isinstance(formulation, AbstractClosingFormulation)
        chosen = formulation.next_choice(equations, t, q)
        assert chosen is not None
        rows.append(chosen)
    return [x.astype(q.dtype) for x in rows]


def _closing_step(given: _Given, fixed: _Fixed, t: Array, y: Array) -> Array:
    """The coordinates after one step of Newton's method back onto the constraints, the speeds for these, and the size
    of the change."""
    at = _unpacked(given, fixed, y)
    equations, formulation = at.now()
    assert isinstance(formulation, AbstractClosingFormulation)
    q, v, change = formulation.closing_step(equations, t, *at.motion[:2])
    return jnp.concatenate([q, v, change[None]])


def _heights(given: _Given, fixed: _Fixed, t: Array, y: Array) -> Array:
    """The heights of the events and their rates."""
    at = _unpacked(given, fixed, y)
    assert at.programs is not None
    return at.programs.guard(t, at.motion, at.memory)


def _effect(given: _Given, fixed: _Fixed, t: Array, y: Array) -> Array:
    """The state after the event that is due, and its entry in the log."""
    at = _unpacked(given, fixed, y)
    assert at.programs is not None
    motion, memory, entry = at.programs.effect(t, at.motion, at.memory)
    return jnp.concatenate([*motion, at.programs.packed(memory), *at.constant[1:], entry])


def _at_state(given: _Given, fixed: _Fixed, t: Array, y: Array) -> AtState:
    """What a step of an implicit method needs of the motion."""
    at = _unpacked(given, fixed, y)
    equations, formulation = at.now()
    right_hand_side = lambda t, motion: rates(equations, formulation, fixed.quadratures, t, *motion)  # noqa: E731
    selected = lambda t, q: _selected(equations, formulation, fixed, t, q)  # noqa: E731
    tolerance = given.tolerance
    assert tolerance is not None
    solved = formulation.with_rows(equations, t)
    return AtState(solved, right_hand_side, at.motion, at.constant, selected, tolerance)


class _Unpacked(NamedTuple):
    """The parts of a state as one array: `(q, v, z)`, and what is constant within a step; and what they belong to."""

    equations: Equations
    formulation: AbstractFormulation
    motion: tuple[Array, Array, Array]
    constant: list[Array]
    programs: EventPrograms | None
    memory: Any

    def now(self) -> tuple[Equations, AbstractFormulation]:
        """The equations and the formulation as events have left them."""
        return (self.equations, self.formulation) if self.programs is None else self.programs.at_memory(self.memory)


def _unpacked(given: _Given, fixed: _Fixed, y: Array) -> _Unpacked:
    q, v, z, *constant = jnp.split(y, fixed.ends)
    equations, formulation, events, gap, _ = given
    selected = [jax.lax.stop_gradient(x) != 0 for x in constant[1 if events else 0 :]]
    if fixed.selects_rows:
        equations = equations.solved_in(equations.redundant, selected.pop(0))
    if fixed.chooses_speeds:
        assert isinstance(formulation, AbstractClosingFormulation)
        formulation = formulation.with_choice(selected.pop(0))
    if not events:
        return _Unpacked(equations, formulation, (q, v, z), constant, None, None)
    assert gap is not None
    programs = EventPrograms(equations, formulation, events, gap, fixed.room)
    return _Unpacked(equations, formulation, (q, v, z), constant, programs, programs.unpacked(constant[0]))


def rates(
    equations: Equations, formulation: AbstractFormulation, quadratures: tuple[str, ...], t: Array, q: Array, v: Array,
    z: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The right-hand side: `q̇`, `v̇`, and the rates of the states of parts with the integrands of the quadratures."""
    equations = at_integrated(equations, z)
    motion, own = motion_at(formulation, equations, t, q, v), equations.mechanism.z
    readings = channel_values(equations, quadratures, Snapshot(t, q, motion.v, motion.vdot, motion.lam, own))
    return motion.qdot, motion.rate, integrated_rates(equations.at(t, q), motion.v, *readings.values())
