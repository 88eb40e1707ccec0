"""Steps that end at given times: where accelerations jump, and where they have a kink.

A step that ends at a jump sees the accelerations before it, the next one those after it. The derivative by the time of a
jump is that of the end of one step and the start of the next: `∂y/∂t_s = f(t_s −) − f(t_s +)` and all that follows from
it. Both ends are moved inside the solver's step, which all ways of differentiation go through, so none of them
knows of jumps. All other steps are held where they are.
"""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd._errors import MechanismError
from jaxmbd._mechanism import Switches, smallest_gap
from jaxmbd._types import Scalar, is_concrete

_STRETCH = 1e-3  # of a step: it is made longer by no more than that to reach a time instead of leaving a tiny step
_NUDGE = 2.0  # in units of rounding: from a time to where the side of it is certain
_FEW = 64  # times that are looked through one by one


class StepsOnto(dfx.AbstractAdaptiveStepSizeController[Any, Any]):
    """A step-size controller whose steps end at given times.

    After a step that was cut short the next one has the length that was wanted before. Equal steps keep their grid:
    one that is cut in two ends where it would have ended.

    **Arguments:** `controller`, a `diffrax.PIDController` or the like, or `diffrax.ConstantStepSize`; `times` [s], sorted,
    with infinity at the end.
    """

    controller: dfx.AbstractStepSizeController
    times: Float[Array, " n"]

    @property
    def rtol(self) -> Any:  # pyright: ignore
        return self.controller.rtol  # pyright: ignore

    @property
    def atol(self) -> Any:  # pyright: ignore
        return self.controller.atol  # pyright: ignore

    @property
    def norm(self) -> Any:  # pyright: ignore
        return self.controller.norm  # pyright: ignore

    def wrap(self, direction: Any) -> "StepsOnto":
        return StepsOnto(self.controller.wrap(direction), self.times)

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> tuple[Any, Any]:
        wanted, state = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        end = self._end(jnp.asarray(t0), jnp.asarray(wanted))
        return end, (state, jnp.asarray(wanted))

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any,
        controller_state: Any,
    ) -> tuple[Any, Any, Any, Any, Any, Any]:  # fmt: skip
        old, wanted = controller_state
        keep, start, end, jump, new, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, old
        )
        keep, cut = jnp.asarray(keep), wanted > t1
        if isinstance(self.controller, dfx.ConstantStepSize):
            new = jax.tree.map(lambda a, b: jnp.where(cut, a, b), old, new)
            end = jnp.where(cut, wanted, end)
        else:
            end = jnp.where(keep & cut, jnp.maximum(end, start + (wanted - t0)), end)
            result = dfx.RESULTS.where(keep & cut, dfx.RESULTS.successful, result)  # a short step is no vanishing one
        return keep, start, self._end(start, end), jump, (new, end), result

    def _end(self, start: Any, wanted: Any) -> Any:
        """The end of a step from `start` that is to end at `wanted`."""
        stop = self.times[_index(self.times, start, "right")]
        return jnp.where(stop < wanted + _STRETCH * (wanted - start), stop, wanted)


class Between(dfx.AbstractLocalInterpolation):
    """The dense output of a step with the ends that it was made with."""

    t0: Any
    t1: Any
    of: dfx.AbstractLocalInterpolation

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        return self.of.evaluate(t0, t1, left)


class Switched(dfx.AbstractAdaptiveSolver[Any], dfx.AbstractWrappedSolver[Any]):
    """Any diffrax solver whose steps stay on their own side of given times, and move with them.

    It takes `args = (equations, method, times)`, times [s] sorted, and gives `(equations, method)` to the solver inside.
    Where a step starts at one of the times, its first stage is computed anew: at a jump it has another value, at a kink
    another derivative by the time of the kink.
    """

    solver: dfx.AbstractSolver[Any]  # pyright: ignore

    @property
    def term_structure(self) -> Any:  # pyright: ignore
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore
        inner = self.solver.interpolation_cls
        return lambda *, t0, t1, start, end, dense: Between(t0, t1, inner(t0=start, t1=end, **dense))

    @property
    def term_compatible_contr_kwargs(self) -> Any:  # pyright: ignore
        return self.solver.term_compatible_contr_kwargs

    @property
    def root_finder(self) -> Any:
        """That of an implicit solver: diffrax hands it the tolerances of the step-size control."""
        return self.solver.root_finder  # pyright: ignore

    @property
    def scan_kind(self) -> Any:
        """That of a Runge-Kutta method: diffrax chooses it to suit the adjoint."""
        return self.solver.scan_kind  # pyright: ignore

    def order(self, terms: Any) -> int | None:
        return self.solver.order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        return self.solver.init(terms, t0, t1, y0, args[:2])

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        nudge = jax.lax.stop_gradient(_NUDGE * jnp.finfo(jnp.result_type(t0)).eps * jnp.maximum(abs(t0), abs(t1)))
        (start, after), (end, before) = _moving(args[2], t0), _moving(args[2], t1)
        start, end = jnp.where(after, start + nudge, start), jnp.where(before, end - nudge, end)
        made_jump = after if made_jump is False else after | made_jump
        y1, error, dense, inner, result = self.solver.step(terms, start, end, y0, args[:2], solver_state, made_jump)
        return y1, error, {"start": start, "end": end, "dense": dense}, inner, result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args[:2])


def _index(times: Array, t: Any, side: str) -> Array:
    kind = "compare_all" if len(times) <= _FEW else "scan"
    return jnp.searchsorted(jax.lax.stop_gradient(times), jax.lax.stop_gradient(t), side=side, method=kind)


def _moving(times: Array, t: Any) -> tuple[Array, Array]:
    """A time, moving with the one of `times` that it is; and whether it is one."""
    near = times[jnp.minimum(_index(times, t, "left"), len(times) - 1)]
    here = jax.lax.stop_gradient(near) == jax.lax.stop_gradient(jnp.asarray(t))
    return t + jnp.where(here, near - jax.lax.stop_gradient(near), 0.0), here


def onto(
    switches: Switches, solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController, t0: Scalar, t1: Scalar
) -> tuple[dfx.AbstractSolver, dfx.AbstractStepSizeController, Array]:
    """Solver and controller for a motion from `t0` to `t1`, and the third part of its `args`."""
    t0, t1 = jnp.asarray(t0), jnp.asarray(t1)
    if isinstance(controller, dfx.StepTo):
        _check_grid(controller, switches, t0, t1)
    forward = jnp.where(t0 < t1, 1, -1).astype(t0.dtype)  # as in diffrax, times of a motion backward are negative
    times = _stops(forward * switches.jumps, forward * switches.kinks, forward * t0, forward * t1)
    if not isinstance(controller, dfx.StepTo):
        controller = StepsOnto(controller, jax.lax.stop_gradient(times))
    return Switched(solver), controller, times


def _stops(jumps: Array, kinks: Array, t0: Array, t1: Array) -> Float[Array, " n"]:
    """The times that steps end on, sorted; those that are none of the motion's are so large that no step reaches them.

    Only those of jumps move the ends of steps: at a kink the accelerations on both sides are the same. A jump at the
    start or the end has no derivative, since moving it changes nothing on one of its sides.
    """
    kinks, never = jax.lax.stop_gradient(kinks), jnp.finfo(t0.dtype).max
    gap, (start, end) = jax.lax.stop_gradient((4 * smallest_gap(t0, t1), (t0, t1)))
    if len(jumps) and len(kinks):
        sorted_jumps = jnp.append(jnp.sort(jax.lax.stop_gradient(jumps)), never)
        following = sorted_jumps[jnp.searchsorted(sorted_jumps, kinks - gap)]
        kinks = jnp.where(following <= kinks + gap, never, kinks)
    times = jnp.concatenate([jumps, kinks])
    times = jnp.where(
        (times > start + gap) & (times < end - gap), times, jnp.where(abs(times - end) <= gap, end, never)
    )
    times = jnp.append(times, never)
    return times[jnp.argsort(jax.lax.stop_gradient(times), stable=True)]


def _check_grid(controller: dfx.StepTo, switches: Switches, t0: Array, t1: Array) -> None:
    """Raise if steps are given that run across a time at which accelerations are not smooth."""
    times = jnp.concatenate([switches.jumps, switches.kinks])
    if not is_concrete(controller.ts, times, t0, t1):
        return
    missing = np.setdiff1d(np.asarray(times), np.asarray(controller.ts))
    missing = missing[(missing > float(t0)) & (missing < float(t1))]
    if len(missing):
        raise MechanismError(
            f"StepTo says where steps end, and a force or driver switches at {missing[0]:g} s: add this time to its "
            "times, or leave the controller to simulate."
        )
