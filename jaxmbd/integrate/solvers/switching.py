"""Switching times, at which accelerations jump or have a kink, and steps that end at them.

Accelerations jump with a force, with the second derivative of a prescribed position, and with the first derivative of a
prescribed speed. A step that ends at a jump evaluates the accelerations before it, the next one those after it. The
derivative with respect to the time of a jump is that of the end of one step and the start of the next:
`∂y/∂t_s = f(t_s −) − f(t_s +)`, propagated by the later steps. Both ends depend on `t_s` inside the solver's step,
which every mode of differentiation passes through, so that none of them needs a rule for jumps. The ends of all other
steps are constants.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Flag, Number, Scalar, is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.solvers.unrolled_erk import StepResult
from jaxmbd.integrate.solvers.wrapped_solver import AbstractSolverAround, Arguments
from jaxmbd.model.mechanism.declared_times import declared_times, with_times
from jaxmbd.model.mechanism.mechanism import Mechanism

Time: TypeAlias = Number | np.floating  # of a user, [s]: not yet an array

# Least distance between jumps, and of jumps from the start and end, in units of rounding of the largest time.
_LEAST_GAP = 64.0


class SwitchingTimes(eqx.Module):
    """The times [s], unsorted, at which the accelerations jump, and those at which they have a kink."""

    jumps: Float[Array, " jumps"]
    kinks: Float[Array, " kinks"]


def switches_of(mechanism: Mechanism, more: Array | None) -> SwitchingTimes | None:
    """The switching times of a mechanism's parts, with `more` jumps added; None if there are none."""
    declared = declared_times(mechanism)
    jumps = [x.times for x in declared if x.jumps] + ([] if more is None else [more])
    kinks = [x.times for x in declared if not x.jumps]
    if not jumps and not kinks:
        return None
    return SwitchingTimes(*(jnp.concatenate(x) if x else jnp.zeros(0) for x in (jumps, kinks)))


def smallest_gap(t0: Time, t1: Time) -> Array | np.floating | np.ndarray:
    """The least distance [s] between jumps."""
    largest = np.maximum if is_concrete(t0, t1) else jnp.maximum
    return _LEAST_GAP * jnp.finfo(jnp.result_type(t0)).eps * largest(abs(t0), abs(t1))


def with_jumps_apart(mechanism: Mechanism, more: Array | None, t0: Time, t1: Time) -> tuple[Mechanism, Array | None]:
    """Separate coincident jumps of the mechanism, and of `more`, by an amount of the order of rounding.

    Then there is a step between any two jumps, so that the derivatives with respect to their times are distinct. Jumps
    at the start are moved before it and jumps at the end after it, outside the motion.
    """
    jumping = [x for x in declared_times(mechanism) if x.jumps]
    jump_times = ([] if more is None else [more]) + [x.times for x in jumping]
    if not jump_times or _are_apart(jump_times, t0, t1):
        return mechanism, more
    flat = jnp.concatenate([x.astype(jnp.result_type(t0)) for x in jump_times])
    separated = flat + _shifts(jax.lax.stop_gradient(flat), *jax.lax.stop_gradient((jnp.asarray(t0), jnp.asarray(t1))))
    pieces = iter(jnp.split(separated, np.cumsum([len(x) for x in jump_times])[:-1]))
    more = None if more is None else next(pieces)
    return with_times(mechanism, dict(zip(jumping, pieces, strict=True))), more


def _are_apart(jump_times: list[Array], t0: Time, t1: Time) -> bool:
    """True if all jumps are concrete and separated from each other, the start and the end."""
    if not is_concrete(jump_times, t0, t1):
        return False
    times = np.sort(np.concatenate([*map(np.asarray, jump_times), [float(t0), float(t1)]]))
    return bool((np.diff(times) > 8 * float(smallest_gap(t0, t1))).all())


def _shifts(times: Array, t0: Time, t1: Time) -> Array:
    """The shifts that separate times; coincident times keep their order."""
    gap = smallest_gap(t0, t1)
    order = jnp.argsort(times, stable=True)
    steps = gap * jnp.arange(len(times))
    # Each time at least one gap after its predecessor: a running maximum after subtracting k gaps from time k.
    forward = jax.lax.cummax(times[order] - steps) + steps - times[order]
    shift = jnp.zeros_like(times).at[order].set(jnp.where(forward > 0.5 * gap, forward, 0.0))
    shift = jnp.where(jnp.abs(times - t0) <= 4 * gap, t0 - 4 * gap - times, shift)
    return jnp.where(jnp.abs(times - t1) <= 4 * gap, t1 + 4 * gap - times, shift)


_STRETCH = 1e-3  # largest relative extension of a step to reach a switching time, instead of leaving a tiny step
_NUDGE = 2.0  # in units of rounding: the distance from a switching time at which the side is unambiguous (`erk_loop.h`)
_MAX_COMPARE_ALL = 64  # number of times up to which a linear search is used


def nudge_of(t0: Number, t1: Number) -> Array:
    """How far evaluations stay away from switching times at the ends of a step, a constant [s]."""
    return jax.lax.stop_gradient(_NUDGE * jnp.finfo(jnp.result_type(t0)).eps * jnp.maximum(abs(t0), abs(t1)))


class StepsOnto(dfx.AbstractStepSizeController[Any, Any]):
    """A step-size controller whose steps end at given times.

    After a truncated step the next one has the length that the inner controller had proposed; of constant steps, those
    that contain one of the times are divided in two, and the grid is unchanged.

    **Arguments:** `controller`, a `diffrax.PIDController`, a `diffrax.ConstantStepSize` or the like; `times` [s],
    sorted, the last of them never reached.
    """

    controller: dfx.AbstractStepSizeController
    times: Float[Array, " n"]

    def wrap(self, direction: int | np.ndarray | Array) -> "StepsOnto":
        return StepsOnto(self.controller.wrap(direction), self.times)

    def init(
        self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: PyTree[Array], dt0: Number | None, args: object,
        func: Callable[..., PyTree[Array]], error_order: Number | None,
    ) -> tuple[Number, tuple[PyTree, Array]]:  # fmt: skip
        proposed, state = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        return _step_end(self.times, t0, proposed), (state, jnp.asarray(proposed))

    def adapt_step_size(
        self, t0: Number, t1: Number, y0: PyTree[Array], y1_candidate: PyTree[Array], args: object,
        y_error: PyTree[Array] | None, error_order: Number, controller_state: tuple[PyTree, Array],
    ) -> tuple[Flag, Number, Number, Flag, tuple[PyTree, Number], dfx.RESULTS]:  # fmt: skip
        old, proposed = controller_state
        keep, start, end, jump, new, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, old
        )
        truncated = keep & (proposed > t1)
        if isinstance(self.controller, dfx.ConstantStepSize):
            new = jax.tree.map(lambda a, b: jnp.where(truncated, a, b), old, new)
            end = jnp.where(truncated, proposed, end)
        else:
            # Else the controller would go on from the length to which the step was cut.
            end = jnp.where(truncated, jnp.maximum(end, start + (proposed - t0)), end)
            # A truncated step is no sign of vanishing steps.
            result = dfx.RESULTS.where(truncated, dfx.RESULTS.successful, result)
        return keep, start, _step_end(self.times, start, end), jump, (new, end), result


def _step_end(times: Array, start: Number, proposed: Number) -> Array:
    """The end of a step from `start` whose proposed end is `proposed`: the next switching time, if it is nearer."""
    stop = times[_index(times, start, "right")]
    return jnp.where(stop < proposed + _STRETCH * (proposed - start), stop, proposed)


def _index(times: Array, t: Number, side: str) -> Array:
    kind = "compare_all" if len(times) <= _MAX_COMPARE_ALL else "scan"
    return jnp.searchsorted(jax.lax.stop_gradient(times), jax.lax.stop_gradient(t), side=side, method=kind)


class StepEnds(eqx.Module):
    """The times at which steps end. [s]

    `times`: sorted, differentiable with respect to the times of jumps; `start`, `end`: jumps at or next to the start
    and the end of the motion, across which the steps there must not evaluate forces; `lead`: by how much the first step
    starts earlier.
    """

    times: Float[Array, " n"]
    start: Scalar
    end: Scalar
    lead: Scalar

    def between(self, t0: Scalar, t1: Scalar, ts: Array) -> tuple[Array, Array, Array]:
        """Start, end and saved times of a motion, moved inside it from the jumps at its start and its end."""
        nudge = nudge_of(t0, t1)
        low, high = jax.lax.stop_gradient((self.start + nudge, self.end - nudge))
        inside = [t + jax.lax.stop_gradient(jnp.clip(t, low, high) - t) for t in (t0, t1, ts)]
        return inside[0], inside[1], inside[2]

    def moving(self, t: Array) -> tuple[Array, Array]:
        """`t` with the derivative of the entry of `times` that it equals, and whether it equals one."""
        nearest = self.times[jnp.minimum(_index(self.times, t, "left"), len(self.times) - 1)]
        is_equal = jax.lax.stop_gradient(nearest) == jax.lax.stop_gradient(jnp.asarray(t))
        return t + jnp.where(is_equal, nearest - jax.lax.stop_gradient(nearest), 0.0), is_equal

    def sides(self, t0: Array, t1: Array) -> tuple[Array, Array, Array]:
        """The ends of a step, moved inside it from the switching times at its ends; and whether it starts at one."""
        frozen = jax.lax.stop_gradient
        nudge = nudge_of(t0, t1)
        (start, starts_at_switch), (end, ends_at_switch) = self.moving(t0), self.moving(t1)
        start_offset = jnp.maximum(jnp.where(starts_at_switch, nudge, 0.0), frozen(self.start + nudge - start))
        end_offset = jnp.maximum(jnp.where(ends_at_switch, nudge, 0.0), frozen(end - self.end + nudge))
        return start + start_offset, end - end_offset, starts_at_switch | frozen(self.start + nudge > t0)


class StepInterpolation(dfx.AbstractLocalInterpolation):
    """The dense output of a step, with the ends that the inner solver's step had."""

    t0: Any
    t1: Any
    inner: dfx.AbstractLocalInterpolation

    def evaluate(self, t0: Number, t1: Number | None = None, left: bool = True) -> PyTree[Array]:
        return self.inner.evaluate(t0, t1, left)


class SwitchingSolver(AbstractSolverAround):
    """Any diffrax solver, with each step evaluated on one side of the switching times and differentiable in these.

    It takes `args = (equations, formulation, stops)` and passes `(equations, formulation)` to the inner solver. If a
    step starts at one of the times, its first stage is evaluated again: at a jump it has another value, at a kink
    another derivative with respect to the time of the kink.
    """

    solver: dfx.AbstractSolver[Any]  # pyright: ignore

    @property
    def interpolation_cls(self) -> Callable[..., StepInterpolation]:  # pyright: ignore
        inner = self.solver.interpolation_cls
        return lambda *, t0, t1, start, end, dense: StepInterpolation(t0, t1, inner(t0=start, t1=end, **dense))

    def init(
        self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: PyTree[Array], args: tuple[object, object, StepEnds]
    ) -> PyTree:
        return self.solver.init(terms, t0, t1, y0, args[:2])

    def step(
        self, terms: dfx.AbstractTerm, t0: Any, t1: Any, y0: PyTree[Array], args: tuple[object, object, StepEnds],
        solver_state: PyTree, made_jump: Flag,
    ) -> StepResult:  # fmt: skip
        start, end, after = args[2].sides(t0, t1)
        made_jump = after if made_jump is False else after | made_jump
        y1, error, dense, inner, result = self.solver.step(terms, start, end, y0, args[:2], solver_state, made_jump)
        return y1, error, {"start": start, "end": end, "dense": dense}, inner, result

    def func(
        self, terms: dfx.AbstractTerm, t0: Number, y0: PyTree[Array], args: tuple[object, object, StepEnds]
    ) -> PyTree[Array]:
        return self.solver.func(terms, t0, y0, args[:2])


def stepping_onto(
    switches: SwitchingTimes | None,
    solver: dfx.AbstractSolver,
    controller: dfx.AbstractStepSizeController,
    args: Arguments,
    t0: Scalar,
    t1: Scalar,
) -> tuple[dfx.AbstractSolver, dfx.AbstractStepSizeController, tuple[object, ...], Scalar]:
    """Solver, controller, `args` and `t0` for steps that end at the switching times; unchanged if there are none."""
    if switches is None:
        return solver, controller, args, t0
    t0, t1 = jnp.asarray(t0), jnp.asarray(t1)
    forward = jnp.where(t0 < t1, 1, -1).astype(t0.dtype)  # as in diffrax, times of a motion backward are negative
    stops = step_ends(SwitchingTimes(forward * switches.jumps, forward * switches.kinks), forward * t0, forward * t1)
    if not isinstance(controller, dfx.StepTo):
        t0 = t0 - forward * stops.lead
    times = jax.lax.stop_gradient(stops.times)
    if isinstance(controller, dfx.ConstantStepSize | dfx.AbstractAdaptiveStepSizeController):
        controller = StepsOnto(controller, times)
    return SwitchingSolver(solver), controller, (*args, stops), t0


def step_ends(switches: SwitchingTimes, t0: Array, t1: Array) -> StepEnds:
    """The times at which steps end; times outside the motion are replaced by one that no step reaches.

    Only the times of jumps carry derivatives: at a kink the accelerations on both sides are equal. A jump at the start
    or the end of a motion has only a one-sided effect and no derivative: `with_jumps_apart` has removed it. A jump just
    after an event belongs to the motion that follows, which starts earlier by `lead`, so that there is a step between
    the event and the jump.
    """
    jumps, kinks, never = switches.jumps, jax.lax.stop_gradient(switches.kinks), jnp.finfo(t0.dtype).max
    gap, (start, end) = jax.lax.stop_gradient((4 * smallest_gap(t0, t1), (t0, t1)))
    if len(jumps) and len(kinks):
        sorted_jumps = jnp.append(jnp.sort(jax.lax.stop_gradient(jumps)), never)
        following = sorted_jumps[jnp.searchsorted(sorted_jumps, kinks - gap)]
        kinks = jnp.where(following <= kinks + gap, never, kinks)
    times = jnp.concatenate([jumps, kinks])
    fixed = jax.lax.stop_gradient(times)
    first = jnp.max(jnp.where((fixed >= start - gap) & (fixed <= start), fixed, -never))
    last = jnp.min(jnp.where(abs(fixed - end) <= gap, fixed, never))
    inside = jnp.concatenate([fixed[: len(jumps)] > start, fixed[len(jumps) :] > start + gap]) & (fixed < end - gap)
    lead = jnp.where(jnp.any(inside & (fixed <= start + gap)), gap / 16, 0.0)
    times = jnp.append(jnp.where(inside, times, never), never)
    return StepEnds(times[jnp.argsort(jax.lax.stop_gradient(times), stable=True)], first, last, lead)


def check_steps(
    solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController, switches: SwitchingTimes | None, t0: Time,
    t1: Time,
) -> None:  # fmt: skip
    """Raise for a solver, or for prescribed steps, whose evaluations would cross a switching time."""
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
