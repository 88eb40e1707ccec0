"""Steps that end at given times: where accelerations jump, and where they have a kink.

A step that ends at a jump sees the accelerations before it, the next one those after it. The derivative by the time
of a jump is that of the end of one step and the start of the next: `∂y/∂t_s = f(t_s −) − f(t_s +)` and all that
follows from it. Both ends are moved inside the solver's step, which all ways of differentiation go through, so none
of them knows of jumps. All other steps are held where they are.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.wrapped_solver import AbstractSolverAround
from jaxmbd.model.mechanism.switching_times import Switches, smallest_gap

_STRETCH = 1e-3  # of a step: it is made longer by no more than that to reach a time instead of leaving a tiny step
_NUDGE = 2.0  # in units of rounding: from a time to where the side of it is certain
_FEW = 64  # times that are looked through one by one


class StepsOnto(dfx.AbstractStepSizeController[Any, Any]):
    """A step-size controller whose steps end at given times.

    After a step that was cut short the next one has the length that was wanted before; of equal steps, those that run
    across a time are cut in two there, and the grid stays as it is.

    **Arguments:** `controller`, a `diffrax.PIDController`, a `diffrax.ConstantStepSize` or the like; `times` [s],
    sorted, the last of them never reached.
    """

    controller: dfx.AbstractStepSizeController
    times: Float[Array, " n"]

    def wrap(self, direction: Any) -> "StepsOnto":
        return StepsOnto(self.controller.wrap(direction), self.times)

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> tuple[Any, Any]:
        wanted, state = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        return _end(self.times, t0, wanted), (state, jnp.asarray(wanted))

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any,
        controller_state: Any,
    ) -> tuple[Any, Any, Any, Any, Any, Any]:  # fmt: skip
        old, wanted = controller_state
        keep, start, end, jump, new, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, old
        )
        cut = keep & (wanted > t1)
        if isinstance(self.controller, dfx.ConstantStepSize):
            new = jax.tree.map(lambda a, b: jnp.where(cut, a, b), old, new)
            end = jnp.where(cut, wanted, end)
        else:
            end = jnp.where(cut, jnp.maximum(end, start + (wanted - t0)), end)
            result = dfx.RESULTS.where(cut, dfx.RESULTS.successful, result)  # a step cut short is no vanishing one
        return keep, start, _end(self.times, start, end), jump, (new, end), result


def _end(times: Array, start: Any, wanted: Any) -> Any:
    """The end of a step from `start` that is to end at `wanted`."""
    stop = times[_index(times, start, "right")]
    return jnp.where(stop < wanted + _STRETCH * (wanted - start), stop, wanted)


def _index(times: Array, t: Any, side: str) -> Array:
    kind = "compare_all" if len(times) <= _FEW else "scan"
    return jnp.searchsorted(jax.lax.stop_gradient(times), jax.lax.stop_gradient(t), side=side, method=kind)


class Stops(eqx.Module):
    """Where steps end: `times`, sorted, which those of jumps move; a jump beside the `start` or the `end` of the
    motion, of which the steps there have to keep clear; and the `lead` of the first step. [s]"""

    times: Float[Array, " n"]
    start: Scalar
    end: Scalar
    lead: Scalar

    def moving(self, t: Any) -> tuple[Array, Array]:
        """A time, moving with the one of `times` that it is; and whether it is one."""
        near = self.times[jnp.minimum(_index(self.times, t, "left"), len(self.times) - 1)]
        here = jax.lax.stop_gradient(near) == jax.lax.stop_gradient(jnp.asarray(t))
        return t + jnp.where(here, near - jax.lax.stop_gradient(near), 0.0), here

    def sides(self, t0: Any, t1: Any) -> tuple[Array, Array, Array]:
        """The ends of a step inside of the times at which it starts and ends; and whether it starts at one of them."""
        still = jax.lax.stop_gradient
        nudge = still(_NUDGE * jnp.finfo(jnp.result_type(t0)).eps * jnp.maximum(abs(t0), abs(t1)))
        (start, after), (end, before) = self.moving(t0), self.moving(t1)
        later = jnp.maximum(jnp.where(after, nudge, 0.0), still(self.start + nudge - start))
        sooner = jnp.maximum(jnp.where(before, nudge, 0.0), still(end - self.end + nudge))
        return start + later, end - sooner, after | still(self.start + nudge > t0)


class Between(dfx.AbstractLocalInterpolation):
    """The dense output of a step with the ends that it was made with."""

    t0: Any
    t1: Any
    of: dfx.AbstractLocalInterpolation

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        return self.of.evaluate(t0, t1, left)


class Switched(AbstractSolverAround):
    """Any diffrax solver whose steps stay on their own side of given times, and move with them.

    It takes `args = (equations, method, stops)` and gives `(equations, method)` to the solver inside.
    Where a step starts at one of the times, its first stage is computed anew: at a jump it has another value, at a kink
    another derivative by the time of the kink.
    """

    solver: dfx.AbstractSolver[Any]  # pyright: ignore

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore
        inner = self.solver.interpolation_cls
        return lambda *, t0, t1, start, end, dense: Between(t0, t1, inner(t0=start, t1=end, **dense))

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        return self.solver.init(terms, t0, t1, y0, args[:2])

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        start, end, after = args[2].sides(t0, t1)
        made_jump = after if made_jump is False else after | made_jump
        y1, error, dense, inner, result = self.solver.step(terms, start, end, y0, args[:2], solver_state, made_jump)
        return y1, error, {"start": start, "end": end, "dense": dense}, inner, result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args[:2])


def stepping_onto(
    switches: Switches | None,
    solver: dfx.AbstractSolver,
    controller: dfx.AbstractStepSizeController,
    args: tuple[Any, Any],
    t0: Scalar,
    t1: Scalar,
) -> tuple[dfx.AbstractSolver, dfx.AbstractStepSizeController, tuple[Any, ...], Scalar]:
    """Solver, controller, `args` and the start of a motion from `t0` to `t1`: those given where nothing switches."""
    if switches is None:
        return solver, controller, args, t0
    t0, t1 = jnp.asarray(t0), jnp.asarray(t1)
    forward = jnp.where(t0 < t1, 1, -1).astype(t0.dtype)  # as in diffrax, times of a motion backward are negative
    stops = _stops(forward * switches.jumps, forward * switches.kinks, forward * t0, forward * t1)
    if not isinstance(controller, dfx.StepTo):
        t0 = t0 - forward * stops.lead
    times = jax.lax.stop_gradient(stops.times)
    if isinstance(controller, dfx.ConstantStepSize | dfx.AbstractAdaptiveStepSizeController):
        controller = StepsOnto(controller, times)
    return Switched(solver), controller, (*args, stops), t0


def _stops(jumps: Array, kinks: Array, t0: Array, t1: Array) -> Stops:
    """The times that steps end on; those that are none of the motion's are so large that no step reaches them.

    Only jumps move the ends of steps: at a kink the accelerations on both sides are the same. A jump at the start or
    the end of a motion has no derivative, since moving it changes nothing on one of its sides: `with_jumps_apart` has
    taken it out. One just after an event is a jump of the motion that follows, which begins so much earlier that there
    is a step between the event and the jump.
    """
    kinks, never = jax.lax.stop_gradient(kinks), jnp.finfo(t0.dtype).max
    gap, (start, end) = jax.lax.stop_gradient((4 * smallest_gap(t0, t1), (t0, t1)))
    if len(jumps) and len(kinks):
        sorted_jumps = jnp.append(jnp.sort(jax.lax.stop_gradient(jumps)), never)
        following = sorted_jumps[jnp.searchsorted(sorted_jumps, kinks - gap)]
        kinks = jnp.where(following <= kinks + gap, never, kinks)
    times = jnp.concatenate([jumps, kinks])
    still = jax.lax.stop_gradient(times)
    first = jnp.max(jnp.where((still >= start - gap) & (still <= start), still, -never))
    last = jnp.min(jnp.where(abs(still - end) <= gap, still, never))
    inside = jnp.concatenate([still[: len(jumps)] > start, still[len(jumps) :] > start + gap]) & (still < end - gap)
    lead = jnp.where(jnp.any(inside & (still <= start + gap)), gap / 16, 0.0)
    times = jnp.append(jnp.where(inside, times, never), never)
    return Stops(times[jnp.argsort(jax.lax.stop_gradient(times), stable=True)], first, last, lead)


def check_steps(solver: Any, controller: Any, switches: Switches | None, t0: Any, t1: Any) -> None:
    """Raise for a solver, or steps given, that cannot keep to one side of a time at which accelerations are not
    smooth."""
    if switches is None:
        return
    tableau = getattr(solver, "tableau", None)
    last = max(tableau.c, default=0.0) if isinstance(tableau, dfx.ButcherTableau) else 0.0
    if last > 1:
        raise MechanismError(
            f"{type(solver).__name__} evaluates forces beyond the end of a step, at {last:.3g} of it, and a force or "
            "driver switches, where steps have to end: use solver='stiff', or diffrax.Kvaerno3()."
        )
    if not isinstance(controller, dfx.StepTo) or not is_concrete(controller.ts, switches, t0, t1):
        return
    times = np.concatenate([switches.jumps, switches.kinks])
    missing = np.setdiff1d(times, np.asarray(controller.ts))
    missing = missing[(missing > float(t0)) & (missing < float(t1))]
    if len(missing):
        raise MechanismError(
            f"StepTo says where steps end, and a force or driver switches at {missing[0]:g} s: add this time to its "
            "times, or leave the controller to simulate."
        )
