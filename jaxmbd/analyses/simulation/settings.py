"""How a motion is integrated, as one object of settings: `Integration`."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, get_args

import diffrax as dfx
import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.events.event import Event, checked_events
from jaxmbd.arrays import Number, as_float, is_concrete
from jaxmbd.checks import (
    check_count,
    check_finite,
    check_flags,
    check_instance,
    check_mapping,
    check_number,
    check_shape,
)
from jaxmbd.errors import MechanismError, check_known, is_one_of, shown
from jaxmbd.integrate.adjoint.native_steps import Engine
from jaxmbd.integrate.formulations.formulation import AbstractFormulation

Accuracy = Literal["standard", "high"]
Solver = dfx.AbstractSolver | Literal["stiff", "auto"]
Adjoint = Literal["any", "reverse", "forward"] | dfx.AbstractAdjoint


class Settings(TypedDict, total=False):
    """The settings of `Integration` as keywords of the functions that take them."""

    formulation: AbstractFormulation | None
    solver: Solver | None
    accuracy: Accuracy
    rtol: Number | None
    atol: Number | None
    stepsize_controller: dfx.AbstractStepSizeController | None
    control_speeds: bool
    error_weights: Mapping[str, float]
    adjoint: Adjoint
    events: Iterable[Event]
    max_events: int
    switching_times: Any
    dt0: Number | None
    dtmin: Number | None
    max_steps: int | None
    closure_tolerance: Number | None
    engine: Engine


class Integration(eqx.Module):
    """How a motion is integrated: the settings of `simulate`, `step`, `Problem`, `fit` and `optimal_control`.

    They take settings by name, too, which have precedence over those of the object.
    `dataclasses.replace(integration, rtol=1e-9)` is another one. Values are checked when it is made; what depends on
    the mechanism or the times is checked where it is used. `print` shows what differs from the defaults.

    **Arguments:**

    - `formulation`: the constraint formulation; by default `Stabilized()`, or `Augmented(alpha, beta)`,
      `CoordinatePartitioning()`, `Projection()`;
    - `solver`: any diffrax solver for ordinary differential equations, by default `diffrax.Dopri8()`; `"stiff"` is
      `jaxmbd.Radau()`, and `time_scales(mechanism, state)` shows if it is needed; `"auto"` is the one of both that
      suits the motion, found by some hundred steps (`solution.solver_reason`); `jaxmbd.RungeKutta4()` takes constant
      steps of `dt0`;
    - `accuracy`: `"standard"` or `"high"`, the tolerances of the step-size controller: `rtol`, `atol` 1e-8, 1e-10 or
      1e-12, 1e-13 in double, 1e-5, 1e-6 or 1e-6, 1e-7 in single precision. For mechanisms smaller than 0.25 m `atol`
      is smaller by the power of ten that suits their size;
    - `rtol` `[1]`, `atol` `[m, rad]`: other tolerances; the controller measures the error of the coordinates;
    - `stepsize_controller`: any diffrax step-size controller instead; `diffrax.ConstantStepSize()` needs `dt0`;
    - `control_speeds`: control the error of the speeds, too; more accurate for the same tolerance if speeds are large,
      but near singular positions the steps may tend to zero;
    - `error_weights`: how much the errors of single entries of the state count, by their names in `mechanism.layout` or
      patterns, `{"wheel.theta": 0.0, "motor.*": 0.1, "rod.omega": 1.0}`; by default 1 for coordinates and states of
      parts, 0 for speeds (1 with `control_speeds`);
    - `adjoint`: `"any"` (also called `"reverse"`): forward and reverse derivatives of any order; `"forward"`, faster
      if only forward derivatives are needed (`jax.jvp`, `jax.jacfwd`, `jax.linearize`); or a diffrax adjoint. See
      docs/derivatives.md;
    - `events`: `Event`s that stop the motion, apply an impact or a latch, or are only logged, in `solution.events`; at
      most `max_events` crossings, including those in a direction that an event ignores. A quantity that crosses a value
      and returns within one step is found, except where diffrax integrates the motion (`solution.engine_reason`): its
      steps are then no longer than the average interval of `ts`;
    - `switching_times`: times `[s]` at which user functions jump or have a kink; steps end there, and derivatives with
      respect to these times are exact. Those of a `Piecewise` or `Table` in forces, drivers and joints are added
      automatically;
    - `dt0`: the first step `[s]`, not allowed with `diffrax.StepTo`;
    - `dtmin`: the smallest step `[s]`; a motion that needs smaller ones fails, by default only when they tend to zero.
      In a sweep, mechanisms that lock then take a fraction of the steps;
    - `max_steps`: the largest number of steps, by default 65,536, and 256 in `step`;
    - `closure_tolerance`: the largest constraint violation allowed at any of the times `[m, rad]`; by default 1e-2 rad
      and 1e-2 of the unit of length that suits the mechanism (a power of ten: 1 m for sizes from 0.25 to 2.5 m);
    - `engine`: what runs the motion; `solution.engine` says which did, `solution.engine_reason` why. The engines take
      the same steps and differ by rounding. By default (`"auto"`) the virtual machine runs explicit methods and
      `Radau`, by interpreting until compiling would pay, then by compiled code; `diffrax` the others. `"native"` waits
      for the compiled code (seconds, once on a computer), which is several times faster; `"interpreter"` and
      `"diffrax"` do not use it. On an NVIDIA GPU all instances of a batch run as one kernel, which is `"native"`; by
      default diffrax's loop serves mechanisms too large for its compiler. Of a batch over several devices each runs its
      own instances.

    **Raises:** `MechanismError` for an unknown setting, or a value that cannot be one.

        >>> from dataclasses import replace
        >>> fine = mbd.Integration(rtol=1e-10, atol=1e-12, solver="stiff")
        >>> print(replace(fine, rtol=1e-11))
        Integration(solver='stiff', rtol=1e-11, atol=1e-12)
        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> start = mbd.assemble(pendulum, {"O.angle": 0.0})
        >>> motion = mbd.simulate(pendulum, start, [0.0, 1.0], fine, max_steps=1000)
        >>> print(f"{motion['O.angle'][-1]:.4f} rad")
        -2.9758 rad
    """

    formulation: AbstractFormulation | None = None
    solver: Solver | None = None
    accuracy: Accuracy = eqx.field(static=True, default="standard")
    rtol: Number | None = None
    atol: Number | None = None
    stepsize_controller: dfx.AbstractStepSizeController | None = None
    control_speeds: bool = eqx.field(static=True, default=False)
    error_weights: tuple[tuple[str, float], ...] = eqx.field(static=True, default=())
    adjoint: Adjoint = eqx.field(static=True, default="any")
    events: tuple[Event, ...] = ()
    max_events: int = eqx.field(static=True, default=32)
    switching_times: Array | None = None
    dt0: Number | None = None
    dtmin: Number | None = None
    max_steps: int | None = eqx.field(static=True, default=None)
    closure_tolerance: Number | None = None
    engine: Engine = eqx.field(static=True, default="auto")

    def __init__(self, **settings: Unpack[Settings]) -> None:
        check_known("setting", settings, _DEFAULTS)
        given: dict[str, Any] = {**_DEFAULTS, **settings}
        _check_choices(given)
        _check_numbers(given)
        _check_controller(given)
        given["events"] = checked_events(given["events"], given["max_events"])
        given["switching_times"] = _times(given["switching_times"])
        given["error_weights"] = _weights(given["error_weights"])
        for name, value in given.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"Integration({', '.join(f'{name}={_shown(value)}' for name, value in self.changed().items())})"

    def changed(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, by name."""
        values = {name: getattr(self, name) for name in _DEFAULTS}
        return {name: value for name, value in values.items() if not _is_default(value, _DEFAULTS[name])}


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Integration)}


def chosen_integration(
    function: str, integration: Integration | None, settings: Settings, others: Sequence[str] = ()
) -> Integration:
    """The integration that a user asks a function for: an object, or none, in which settings by name are changed.

    **Arguments:** `others`, the other keywords of the function, one of which an unknown name may have been meant for.
    """
    if integration is not None:
        check_instance(f"{function}: integration", integration, Integration, "an Integration(rtol=1e-9)")
    check_known(f"setting of {function}", settings, [*_DEFAULTS, *others])
    # Values that a map has put into an object, or `equinox.tree_at`, have not been checked: so it is made again.
    return Integration(**settings) if integration is None else dataclasses.replace(integration, **settings)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str | int | tuple) and value == default)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        names = [event.name for event in value if isinstance(event, Event)]
        return f"[{', '.join(names)}]" if names else repr(dict(value))
    if isinstance(value, Array | np.ndarray) and is_concrete(value):
        return str(np.asarray(value))
    if isinstance(value, str | int | float):
        return repr(value)
    known = lambda x: x.item() if isinstance(x, Array) and x.ndim == 0 and is_concrete(x) else x  # noqa: E731
    return eqx.tree_pformat(jax.tree.map(known, value), width=10**4)


def _check_choices(given: dict[str, Any]) -> None:
    """Raise for what is none of the things that there are to choose from."""
    if given["formulation"] is not None:
        need = "one such as Stabilized(), Augmented(alpha, beta), Projection() or CoordinatePartitioning()"
        check_instance("formulation", given["formulation"], AbstractFormulation, need)
    solver, accuracy, adjoint = given["solver"], given["accuracy"], given["adjoint"]
    if not (solver is None or is_one_of(solver, ["stiff", "auto"]) or isinstance(solver, dfx.AbstractSolver)):
        raise MechanismError(
            f"solver must be 'stiff', 'auto' or a diffrax solver such as diffrax.Tsit5(), got {solver!r}."
        )
    if not is_one_of(accuracy, get_args(Accuracy)):
        raise MechanismError(f"accuracy must be 'standard' or 'high', got {accuracy!r}.")
    if not (isinstance(adjoint, dfx.AbstractAdjoint) or is_one_of(adjoint, ("any", "reverse", "forward"))):
        raise MechanismError(f"adjoint must be 'any', 'reverse', 'forward' or a diffrax adjoint, got {adjoint!r}.")
    check_known("engine", [given["engine"]], get_args(Engine))
    check_flags("simulate", control_speeds=given["control_speeds"])


def _check_numbers(given: dict[str, Any]) -> None:
    """Raise for what is no such number. Placeholders and traced numbers pass."""
    if given["max_steps"] is not None:
        check_count("max_steps", given["max_steps"], 1)
    for name, unit in (("rtol", "1"), ("atol", "m or rad"), ("dt0", "s"), ("dtmin", "s")):
        if given[name] is not None:
            value = as_float(given[name])
            check_finite("simulate", name, value)
            check_number("simulate", name, value, unit, zero=name in ("rtol", "atol"))
    tolerance = given["closure_tolerance"]
    if tolerance is not None:
        check_shape("simulate", "closure_tolerance", as_float(tolerance), ())
        if is_concrete(tolerance) and not 0 < tolerance < np.inf:
            raise MechanismError(f"closure_tolerance must be a positive number [m, rad], got {tolerance!r}.")


def _check_controller(given: dict[str, Any]) -> None:
    """Raise for tolerances that no step meets, and for a controller that is none or whose settings are given twice."""
    names = "rtol", "atol", "dtmin"
    known = [np.asarray(given[name]) for name in names[:2] if given[name] is not None and is_concrete(given[name])]
    if len(known) == 2 and not np.any(known):
        raise MechanismError("simulate: rtol and atol must not both be zero: no step is small enough for that.")
    controller = given["stepsize_controller"]
    if controller is None:
        return
    need = "a diffrax step-size controller such as diffrax.PIDController(rtol=1e-8, atol=1e-10)"
    check_instance("stepsize_controller", controller, dfx.AbstractStepSizeController, need)
    unused = [name for name in names if given[name] is not None]
    unused += [name for name in ("control_speeds", "error_weights") if given[name]]
    if unused:
        raise MechanismError(
            f"simulate: {' and '.join(unused)} has no effect beside a controller of your own: give the tolerances, "
            "the smallest step and the norm to that."
        )
    if isinstance(controller, dfx.StepTo) and given["dt0"] is not None:
        raise MechanismError(f"StepTo says where steps end: it goes without dt0, got dt0={given['dt0']!r}.")


def _weights(given: Any) -> tuple[tuple[str, float], ...]:
    """Weights of errors by name, as pairs that can be a key."""
    given = dict(given) if isinstance(given, tuple) else given
    check_mapping("error_weights", given, '{"wheel.theta": 0.0}')
    for name, value in (given or {}).items():
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (is_number and 0 <= value < np.inf):
            raise MechanismError(
                f"error_weights[{shown(name)}] must be a number from 0 (does not count) on, got {shown(value)}."
            )
    return tuple((name, float(value)) for name, value in (given or {}).items())


def _times(given: Any) -> Array | None:
    """Switching times as an array, `None` if there are none."""
    if given is None:
        return None
    times = as_float(given)
    if (
        not isinstance(times, Array)
        or times.ndim != 1
        or (is_concrete(times) and not np.isfinite(np.asarray(times)).all())
    ):
        raise MechanismError(f"switching_times must be a sequence of finite times [s], got {given!r}.")
    return times if len(times) else None


class SettledIntegration(eqx.Module):
    """An `Integration` with all that was left open settled for a mechanism and its times, and what else `simulate` was
    asked for.

    `tolerance`: the largest constraint violation allowed at a saved time `[m, rad]`, or None; `throw`: true if the
    compiled program raises; `continued`: true if the state is that of a motion before; `known`: true if all values are
    known, so that the caller makes the diagnosis of a failure; `checked`: true if times and the first step have been
    checked before; `engine`: what runs the motion.
    """

    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    adjoint: dfx.AbstractAdjoint
    quadratures: tuple[str, ...]
    events: tuple[Event, ...]
    max_events: int
    switching: Array | None
    dt0: Number | None
    max_steps: int
    tolerance: Any
    meter: dfx.AbstractProgressMeter
    throw: bool
    continued: bool
    known: bool
    checked: bool
    engine: Engine
