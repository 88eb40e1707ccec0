"""A mechanism as the text of `model.c`, with all arguments of an export checked."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import diffrax as dfx
import numpy as np

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.events.parts import with_sides_untold
from jaxmbd.analyses.time_scales import time_scales
from jaxmbd.arrays import is_concrete
from jaxmbd.checks import check_instance, checked_names
from jaxmbd.errors import MechanismError, shown
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, Augmented, Stabilized
from jaxmbd.integrate.formulations.independent_constraints import initial_row_selection
from jaxmbd.integrate.solvers.switching import check_steps, switches_of
from jaxmbd.integrate.solvers.unrolled_erk import ExplicitMethod, RungeKutta4, is_explicit
from jaxmbd.io.fmu.c_source import model_text
from jaxmbd.io.fmu.plant import Plant, PlantCode, check_without_discrete_changes, code_of
from jaxmbd.io.fmu.variables import Variable, checked_inputs, checked_outputs, checked_parameters, variables_of
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.mechanism.scales import unit_of_length, unit_of_time
from jaxmbd.state.state import State, check_state
from jaxmbd.upstream.equinox_internals import with_fields

# The default step times the fastest eigenvalue: an error of 1e-7 in a step of a method of fourth order.
_PER_EIGENVALUE = 0.1
_PER_UNIT_OF_TIME = 0.01  # the largest default step in the unit of time that suits the mechanism


class Names(NamedTuple):
    """The names of inputs, outputs and parameters, as a user gives them."""

    inputs: Any
    outputs: Any
    parameters: Any


class Settings(NamedTuple):
    """How the mechanism is integrated, as a user gives it; `None` for the defaults."""

    solver: Any
    step: Any
    formulation: AbstractFormulation | None


@dataclass(frozen=True, eq=False)
class CModel:
    """A mechanism as C text: `text`, that of `model.c`; `start` and `step` [s]: the time of the start values, and the
    longest step."""

    plant: Plant
    variables: Sequence[Variable]
    code: PlantCode
    text: str
    start: float
    step: float


def c_model(
    call: str, mechanism: Mechanism, state: State | None, names: Names, settings: Settings, *, adjoint: bool,
    has_events: bool = False,
) -> CModel:  # fmt: skip
    """Return a mechanism as C text; `call`: the function, for errors; `adjoint`: with cotangents; `has_events`: with
    events at which laws with kinks change sides.

    **Raises:** `MechanismError` for all arguments that cannot be.
    """
    check_mechanism(mechanism)
    check_without_discrete_changes(mechanism)
    if state is None:
        state = assemble(mechanism)
    check_state(mechanism, state, f"{call}(mechanism, path, state)")
    if not is_concrete(mechanism, state):
        raise MechanismError(f"{call} needs known numbers: call it outside of jax.jit, jax.vmap and jax.grad.")
    if state.q.dtype != np.float64:
        raise MechanismError(
            f"{call}: the numbers of C are in double precision, those of the state in {state.q.dtype}: call "
            'jax.config.update("jax_enable_x64", True) before the mechanism is made.'
        )
    # Until a motion has begun, laws with kinks take the signs themselves.
    state = with_fields(state, z=with_sides_untold(mechanism, state.z))
    _check_step(call, settings.step)
    method = _method(call, settings.solver, mechanism, state)
    inputs, outputs, parameters = (
        checked_names(f"{call}: {what}", given, example)
        for what, given, example in zip(Names._fields, names, ("motor.voltage", "O.angle", "rod.mass"), strict=True)
    )
    checked = checked_inputs(mechanism, inputs), checked_parameters(mechanism, parameters)
    variables, own = variables_of(
        mechanism, state, *checked, checked_outputs(mechanism, checked[0], outputs), has_events
    )
    selection = initial_row_selection(mechanism, np.asarray(state.t)[None], state.q)
    assert selection is not None  # all numbers are known
    plant = Plant(mechanism, _formulation(call, settings.formulation), selection, *checked, own, has_events)
    code = code_of(plant, adjoint)
    step = _default_step(mechanism, state) if settings.step is None else float(settings.step)
    text = model_text(plant, state, variables, code.text, method, step)
    return CModel(plant, variables, code, text, float(state.t), step)


def _method(call: str, solver: Any, mechanism: Mechanism, state: State) -> ExplicitMethod:
    if solver is None:
        return RungeKutta4()
    if not is_explicit(solver):
        raise MechanismError(
            f"{call}: solver must be an explicit Runge-Kutta method, jaxmbd.RungeKutta4() or one of diffrax such as "
            f"diffrax.Tsit5(), got {shown(solver)}. Importers of model exchange bring methods of their own, implicit "
            "ones too."
        )
    check_steps(solver, dfx.ConstantStepSize(), switches_of(mechanism, None), state.t, state.t)
    return solver


def _formulation(call: str, formulation: AbstractFormulation | None) -> AbstractFormulation:
    if formulation is None:
        return Stabilized()
    check_instance(
        f"{call}: formulation", formulation, (Stabilized, Augmented), "Stabilized(...) or Augmented(alpha, beta)"
    )
    return formulation


def _check_step(call: str, step: Any) -> None:
    is_number = isinstance(step, int | float | np.floating) and not isinstance(step, bool)
    if step is not None and not (is_number and 0 < step <= sys.float_info.max):
        raise MechanismError(f"{call}: step must be positive [s] and finite, got {shown(step)}.")


def _default_step(mechanism: Mechanism, state: State) -> float:
    """The longest step [s] that is chosen: a round number by the fastest small motion."""
    fastest = time_scales(mechanism, state).fastest
    slowest = _PER_UNIT_OF_TIME * float(unit_of_time(mechanism, unit_of_length(mechanism)))
    step = min(slowest, _PER_EIGENVALUE / fastest) if fastest else slowest
    power = 10.0 ** np.floor(np.log10(step))
    return float(max(digit for digit in (1, 2, 5) if digit * power <= step * (1 + 1e-9)) * power)
