"""The choice of the solver, the step-size controller and the adjoint."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.simulation.settings import Accuracy, Adjoint, Integration
from jaxmbd.arrays import Number, Scalar, is_concrete
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.integrate.adjoint.discrete_adjoint import DiscreteAdjoint
from jaxmbd.integrate.solvers.collocation import AbstractCollocation, Radau
from jaxmbd.integrate.solvers.wrapped_solver import missing_tolerances
from jaxmbd.model.mechanism.layout import Layout
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import unit_of_length
from jaxmbd.parameters.numbers import matches

_FIRST_STEP = 1e-4  # of the whole time; the controller increases it tenfold per step

# Steps of the default method before `solver="auto"` chooses: what needs fewer ends sooner than an implicit method.
TRIAL = 500

TOLERANCES = {
    ("standard", True): (1e-8, 1e-10),
    ("high", True): (1e-12, 1e-13),
    ("standard", False): (1e-5, 1e-6),
    ("high", False): (1e-6, 1e-7),
}


class SolverChoice(Enum):
    """What `solver="auto"` has chosen, and why."""

    SHORT = f"Dopri8, the default, since it ended within {TRIAL} steps"
    ACCURATE = f"Dopri8, the default, since after {TRIAL} steps their error, not its stability, limits them"
    STIFF = f"Radau, since after {TRIAL} steps of Dopri8 its stability limits them, not their error"

    @property
    def number(self) -> int:
        """Its place, which `stats` hold."""
        return list(SolverChoice).index(self)


def solver_reason(number: int) -> str:
    """The choice of this number in `stats`, in words."""
    return f"solver='auto' chose {[*SolverChoice][number].value}"


def stepping(
    integration: Integration, mechanism: Mechanism, ts: Any
) -> tuple[dfx.AbstractSolver, dfx.AbstractStepSizeController]:
    """The solver and the step-size controller that were asked for, or the default ones."""
    solver = integration.solver
    if not isinstance(solver, dfx.AbstractSolver):
        solver = dfx.Dopri8() if solver is None else Radau()
    controller = _given_controller(solver, integration.stepsize_controller, integration.dt0)
    _check_iteration(solver, controller)
    if controller is None:
        norm = StateNorm.of(integration, mechanism.layout)
        gentle = isinstance(solver, AbstractCollocation)
        controller = default_controller(integration, ts, unit_of_length(mechanism), norm, gentle=gentle)
    if isinstance(solver, AbstractCollocation) and isinstance(controller, dfx.PIDController):
        solver = solver.within(controller.rtol)
    return solver, controller


def _given_controller(solver: dfx.AbstractSolver, controller: Any, dt0: Any) -> dfx.AbstractStepSizeController | None:
    """The user's controller, or constant steps for a solver without error estimate; `None` for the default one."""
    if isinstance(controller, dfx.StepTo) or isinstance(solver, dfx.AbstractAdaptiveSolver):
        return controller
    if dt0 is None or isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        got, name = "no dt0" if dt0 is None else type(controller).__name__, type(solver).__name__
        raise MechanismError(f"{name} has no estimate of its error: give it steps of a size dt0 [s], got {got}.")
    return dfx.ConstantStepSize() if controller is None else controller


def _check_iteration(solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController | None) -> None:
    """Raise for an implicit solver whose iteration has no tolerances."""
    fixed = isinstance(controller, dfx.ConstantStepSize | dfx.StepTo)
    if fixed and isinstance(solver, dfx.AbstractImplicitSolver) and missing_tolerances(solver):
        name = type(solver).__name__
        raise MechanismError(
            f"{name} solves for its stages to the tolerances of the step-size control, and {type(controller).__name__} "
            f"has none: give them to the solver, diffrax.{name}(root_finder=diffrax.VeryChord(rtol=1e-8, atol=1e-10)), "
            "or leave the controller out."
        )


def first_step(controller: dfx.AbstractStepSizeController, ts: Array, dt0: Number | None) -> Scalar | None:
    """The size of the first step [s]; `None` if the controller prescribes the ends of the steps."""
    if isinstance(controller, dfx.StepTo):
        return None
    return (ts[-1] - ts[0]) * _FIRST_STEP if dt0 is None else jnp.asarray(dt0, ts.dtype)


def relative_tolerance(controller: dfx.AbstractStepSizeController) -> Scalar:
    """The tolerance of steps, relative to the sizes of what moves; zero if their error is not controlled."""
    if not isinstance(controller, dfx.PIDController):
        return jnp.zeros(())
    return jnp.maximum(jnp.asarray(controller.rtol), jnp.asarray(controller.atol))


def usual_tolerances(accuracy: Accuracy, dtype: Any, length: Any) -> tuple[float, Any]:
    """The relative and the absolute tolerance of an accuracy, for a mechanism with this unit of length [m]."""
    rtol, atol = TOLERANCES[accuracy, dtype == jnp.float64]
    # One number serves lengths and angles: it has to be small for the smaller of the two.
    return rtol, atol * (np if is_concrete(length) else jnp).minimum(length, 1.0)


def default_controller(
    integration: Integration, ts: Any, length: Any, norm: "StateNorm", *, gentle: bool = False
) -> dfx.PIDController:
    """The default controller, on the error in this `norm`; `length`: the mechanism's unit of length [m].

    It fails at steps smaller than `dtmin`, by default if they tend to zero, while they still change the time.
    `gentle`: limit the change of the step size to small factors, for implicit solvers, whose error is infinite if their
    iteration has not converged.
    """
    default, dtmin = usual_tolerances(integration.accuracy, ts.dtype, length), integration.dtmin
    given = integration.rtol, integration.atol
    tolerances = [usual if own is None else own for own, usual in zip(given, default, strict=True)]
    rtol, atol = (np.asarray(x, dtype=ts.dtype) if is_concrete(x) else x for x in tolerances)
    numbers, times = (np, np.asarray(ts)) if is_concrete(ts) else (jnp, ts)  # NumPy compiles nothing
    largest = numbers.maximum(times[-1] - times[0], numbers.maximum(abs(times[0]), abs(times[-1])))
    smallest = largest * max(1e-14, 8 * float(jnp.finfo(ts.dtype).eps))
    if dtmin is not None:
        smallest = (numbers if is_concrete(dtmin) else jnp).maximum(smallest, dtmin).astype(ts.dtype)
    factors = {"factormin": 0.5, "factormax": 3.0} if gentle else {}
    return dfx.PIDController(rtol=rtol, atol=atol, norm=norm, dtmin=smallest, force_dtmin=False, **factors)  # pyright: ignore


class StateNorm(eqx.Module):
    """The norm of errors in `(q, v, z)`; infinite if one of them is not finite.

    By default speeds do not count, as in index-2 and index-3 codes: near a singular position they may have noise that
    the next evaluation removes, but no reduction of the step size does. `speeds`: they count; `factors`: those of the
    entries whose errors are weighted otherwise, by their place in `(q, v, z)`.
    """

    speeds: bool = eqx.field(static=True, default=False)
    factors: tuple[tuple[int, float], ...] = eqx.field(static=True, default=())

    @classmethod
    def of(cls, integration: Integration, layout: Layout) -> "StateNorm":
        """The norm that a user asks for.

        **Raises:** `MechanismError` for a name that no entry has, and a pattern that matches none.
        """
        factors: dict[int, float] = {}
        for name, factor in integration.error_weights:
            found = [k for k, entry in enumerate(layout.names) if matches(name, entry)]
            if not found:
                check_known("entry of the state for error_weights", [name], layout.names)
            factors |= dict.fromkeys(found, factor)
        return cls(integration.control_speeds, tuple(sorted(factors.items())))

    def __call__(self, y: tuple[Array, Array, Array]) -> Array:
        errors = jnp.concatenate(y)
        norm = jnp.sqrt(jnp.sum(self.weights(y).astype(errors.dtype) * errors**2))
        return jnp.where(jnp.all(jnp.isfinite(errors)), norm, jnp.inf)

    def weights(self, y: Sequence[Array]) -> Float[np.ndarray, " n"]:
        """The weight of each squared error in `(q, v, z, …)`: the squared norm is the mean over what counts of the
        motion, the coordinates and speeds, plus the mean over `z`. What follows has no weight.

        With one mean over everything a motor would loosen the control of the bodies that it moves, and a mechanism of
        many bodies that of its motor.
        """
        ends = np.cumsum([len(part) for part in y]).tolist()
        usual = 1.0, float(self.speeds), 1.0, *(0.0 for _ in y[3:])
        factors: np.ndarray = np.repeat(usual, [len(part) for part in y])
        for k, factor in self.factors:
            factors[k] = factor
        motion, z, rest = np.split(factors**2, ends[1:3])
        means = [part / max(np.count_nonzero(part), 1) for part in (motion, z)]
        return np.concatenate([*means, rest])


def chosen_adjoint(adjoint: Adjoint) -> dfx.AbstractAdjoint:
    """The adjoint for the kind of derivatives requested."""
    if isinstance(adjoint, dfx.AbstractAdjoint):
        return adjoint
    return dfx.ForwardMode() if adjoint == "forward" else DiscreteAdjoint()
