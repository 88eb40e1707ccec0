"""The verdict on a motion, and the diagnosis of a failure in mechanical terms from the last state that was reached.

The verdict considers checks at the start, the result of the integration, and constraint violations at saved times.

An instance with an invalid start (its state is not assembled, or its times are invalid) is integrated over an interval
of zero length, so that in a batch it takes no steps.
"""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.assembly.assembly_errors import open_text, row_names
from jaxmbd.analyses.assembly.sides import is_opposed, opposed_text
from jaxmbd.analyses.checks import OTHERWISE, START_OFF, closed_enough
from jaxmbd.analyses.events.changes import equations_at
from jaxmbd.analyses.events.event_log import REASONS, Events
from jaxmbd.analyses.redundancy import jacobian, parts_in
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.time_scales import time_scales_at
from jaxmbd.arrays import Number, Scalar, frozen
from jaxmbd.engine import as_program, cached_on_disk
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.kinematic_quantities import KinematicReader
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.integrate.formulations.joint_loads import motion_of
from jaxmbd.model.force.load_friction import rubbing
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.user_classes import is_users
from jaxmbd.numerics.linear_solve import (
    MARGIN_BY_SVD_ROWS,
    condition_number,
    else_by_singular_values,
    is_well_conditioned,
    nonzero_singular_values,
    suits_programs,
)
from jaxmbd.state.result_codes import RESULTS, first_failure, is_one_of, is_successful, number_of, text_of
from jaxmbd.state.state import State
from jaxmbd.upstream.equinox_internals import any_instance

# The default of the largest constraint violation at a saved time, without units (`Scales`). Drift without stabilisation
# is smaller, the violation of separated joints is larger.
CLOSURE_TOLERANCE = 1e-2
NEARLY_SINGULAR = 3e-2  # a position with a smaller singularity margin, relative to that of the start, is singular
_GROWTH_ROOM = 10.0  # so far below the limit of well-conditioned rows, growth by 1 / NEARLY_SINGULAR is distinguished


class StartVerdict(eqx.Module):
    """Violations `Φ` and `Φ̇` at the start, the sides of the joints, and the verdict on whether the motion may
    begin.

    `limits`, `speed_limits`: the largest violations of a state that counts as assembled; `tolerance`: those at the
    saved times.
    """

    position: Float[Array, " m"]
    velocity: Float[Array, " m"]
    limits: Float[Array, " m"]
    speed_limits: Float[Array, " m"]
    tolerance: Float[Array, " m"]
    sides: Float[Array, " sides"]
    result: RESULTS

    @property
    def may_begin(self) -> Bool[Array, ""]:
        """True if the motion can be integrated."""
        return is_successful(self.result)

    def unless_singular(self, singular: Bool[Array, ""]) -> "StartVerdict":
        """The same; if the position is singular, no motion may begin there."""
        result = first_failure((~self.may_begin, self.result), (singular, RESULTS.singular_at_start))
        return eqx.tree_at(lambda verdict: verdict.result, self, result)


class MotionEnd(eqx.Module):
    """The last state of a run; and the first saved time at which the joints are open (the last one if they never are),
    with the violation there."""

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    open_at: Scalar
    violation: Float[Array, " m"]


def times_are_valid(ts: Array, start: Scalar, dt0: Number | None) -> Bool[Array, ""]:
    """The conditions of `check_times` on times and on a first step, for traced values."""
    near = jnp.abs(ts[0] - start) <= START_OFF * (ts[-1] - ts[0])
    valid = jnp.all(jnp.isfinite(ts)) & jnp.all(jnp.diff(ts) > 0) & near
    return valid if dt0 is None else valid & (jnp.asarray(dt0) > 0) & jnp.isfinite(dt0)


def verdict_at_start(
    equations: Equations, state: State, ts: Array, valid: Bool[Array, ""], tolerance: Scalar | None, *, strict: bool,
    continued: bool,
) -> StartVerdict:  # fmt: skip
    """The verdict at the start: the state's own result, valid times, closed joints.

    **Arguments:** `tolerance`, the largest violation at a saved time [m, rad], by default one that suits the
    mechanism's size; `strict`, true if the joints must be closed as `assemble` closes them, with their speeds, else
    only as at a saved time; `continued`, true if the state is that of a motion before, so that they need not.
    """
    scales, (assembled, speed_limits) = equations.scales.rows, closed_enough(equations)
    tolerances = jnp.asarray(CLOSURE_TOLERANCE * scales if tolerance is None else tolerance * jnp.ones_like(scales))
    position, velocity, sides = as_program(_violations)(*frozen((equations, ts[0], state.q, state.v)))
    limits = tolerances if continued else assembled
    is_open = ~jnp.all(jnp.abs(position) <= (limits if strict else tolerances))
    slides = ~jnp.all(jnp.abs(velocity) <= speed_limits)
    result = first_failure(
        (~is_successful(state.result), state.result),
        (~valid, RESULTS.times_invalid),
        (is_open | ~jnp.all(jnp.isfinite(state.q)), RESULTS.not_assembled),
        (is_opposed(sides), RESULTS.opposed),
        (slides if strict else jnp.zeros((), bool), RESULTS.speeds_contradict),
        (~jnp.all(jnp.isfinite(state.v)), RESULTS.not_finite),
    )
    return StartVerdict(position, velocity, limits, speed_limits, tolerances, sides, result)


def verdict(
    equations: Equations, start: StartVerdict, how: dfx.RESULTS, ts: Array, qs: Array, vs: Array,
    begin: tuple[Array, Array], end: tuple[Array, Array, Array], log: Events | None, singular: bool,
) -> tuple[RESULTS, Bool[Array, " times"], MotionEnd]:  # fmt: skip
    """The verdict on a motion, a mask of the saved times that are valid, and the data of an error message.

    **Arguments:** `how`, diffrax's result; `ts`, `qs`, `vs`, the saved motion; `begin`, `(t, q)`; `end`, the last state
    `(t, q, v)`; `log`, its events; `singular`, true to determine if a motion stopped at a singular position.
    """
    equations, ts, qs, vs, begin, end = frozen((equations, ts, qs, vs, begin, end))
    violation = jax.vmap(lambda t, q: as_program(Equations.position)(equations, t, q))(ts, qs)
    is_closed = jnp.all(jnp.abs(violation) <= start.tolerance[None], axis=1)
    is_finite = jnp.all(jnp.isfinite(qs), axis=1) & jnp.all(jnp.isfinite(vs), axis=1)
    stopped, trouble = how != dfx.RESULTS.successful, jnp.zeros((), int) if log is None else log.trouble
    near = _near_singular(equations, begin, end[:2], stopped) if singular else jnp.zeros((), bool)
    result = first_failure(
        (~start.may_begin, start.result),
        *((trouble == code, reason) for code, reason in REASONS.items()),
        (stopped & near, RESULTS.singular),
        (how == dfx.RESULTS.max_steps_reached, RESULTS.max_steps_reached),
        (how == dfx.RESULTS.dt_min_reached, RESULTS.step_too_small),
        (stopped, RESULTS.solver_failed),
        (~jnp.all(is_finite), RESULTS.not_finite),
        (~jnp.all(is_closed), RESULTS.constraints_violated),
    )
    # If an event halts the motion, the saved times after it are replaced by the time of the event.
    is_after_halt = (trouble > 0) & (ts >= end[0]) & (jnp.arange(len(ts)) > 0)
    ok = jnp.cumprod(start.may_begin & is_finite & is_closed & ~is_after_halt).astype(bool)
    k = jnp.where(jnp.all(is_closed | ~is_finite), len(ts) - 1, jnp.argmin(is_closed))
    return result, ok, MotionEnd(*end, ts[k], violation[k])


def _violations(equations: Equations, t: Scalar, q: Array, v: Array) -> tuple[Array, Array, Array]:
    at = equations.at(t, q)
    return at.position(), at.velocity(v), at.sides()


def _near_singular(
    equations: Equations, begin: tuple[Array, Array], end: tuple[Array, Array], stopped: Bool[Array, ""]
) -> Bool[Array, ""]:
    """True if the position at the end is nearly singular, compared with the start; evaluated only if a run stopped."""
    if not 0 < equations.m <= MARGIN_BY_SVD_ROWS:
        return jnp.zeros((), bool)

    def is_near() -> Array:
        return _is_nearly_singular(equations.scaled_jacobian(*begin), equations.scaled_jacobian(*end), stopped)

    return jax.lax.cond(any_instance(stopped), is_near, lambda: jnp.zeros((), bool))


def _is_nearly_singular(first: Array, last: Array, counts: Bool[Array, ""]) -> Bool[Array, ""]:
    """True if the singularity margin of the second Jacobian is much smaller than that of the first.

    A few rows that are independent at the start are compared by their condition numbers; else singular values are
    computed, for all instances of a batch if one that `counts` needs them.
    """

    def by_singular_values() -> Array:
        at_start, at_end = jnp.linalg.svd(jnp.stack([first, last]), compute_uv=False)
        counted = nonzero_singular_values(at_start)
        begin, end = (jnp.min(jnp.where(counted, x, jnp.inf)) / x[0] for x in (at_start, at_end))
        return end < NEARLY_SINGULAR * begin

    if not suits_programs(*first.shape):
        return by_singular_values()
    begin, end = (as_program(condition_number)(C) for C in (first, last))
    grows, is_known = end > begin / NEARLY_SINGULAR, is_well_conditioned(begin * _GROWTH_ROOM)
    return else_by_singular_values(is_known | ~counts, grows, by_singular_values)


def failure_describer(mechanism: Mechanism) -> Callable[..., str]:
    """The error text of a failed motion as a function of its verdict and data, for `raise_where`."""
    names, sided = row_names(mechanism, ()), sided_joints(mechanism)  # not the mechanism: its values may be traced

    def describe(
        code: np.ndarray, position: np.ndarray, velocity: np.ndarray, limits: np.ndarray, speed_limits: np.ndarray,
        sides: np.ndarray, violation: np.ndarray, tolerance: np.ndarray, t: np.ndarray, open_at: np.ndarray,
    ) -> str:  # fmt: skip
        text, kind = text_of(code), int(code)
        if kind == _OPPOSED:
            return f"The initial state is not assembled. {opposed_text(sided, sides) or text}"
        if kind in (_NOT_ASSEMBLED, _SPEEDS_CONTRADICT):
            miss, unit = (position, "m or rad") if kind == _NOT_ASSEMBLED else (velocity, "m/s or rad/s")
            rows = open_text(names, miss, limits if kind == _NOT_ASSEMBLED else speed_limits)
            return f"{text} {rows} ({unit}). {OTHERWISE}" if rows else text
        if kind == _CONSTRAINTS_VIOLATED:
            rows = open_text(names, violation, tolerance)
            return f"{text} At t = {float(open_at):.6g} s {rows} (m or rad; m² for a Rod)."
        return (
            text
            if kind in (_TIMES_INVALID, _SINGULAR_AT_START)
            else f"{text} The motion stopped at t = {float(t):.6g} s."
        )

    return describe


_NOT_ASSEMBLED, _TIMES_INVALID = int(number_of(RESULTS.not_assembled)), int(number_of(RESULTS.times_invalid))
_OPPOSED, _SINGULAR_AT_START = int(number_of(RESULTS.opposed)), int(number_of(RESULTS.singular_at_start))
_SPEEDS_CONTRADICT = int(number_of(RESULTS.speeds_contradict))
_CONSTRAINTS_VIOLATED = int(number_of(RESULTS.constraints_violated))


_STIFF_STEP = 0.1  # of the stability limit of an explicit solver: longer average steps are limited by stiffness
# A motion diverges if the speeds would change by their own size in 1e-9 of the run, except at its very start.
_INSTANT, _LATE = 1e-9, 1e-6


def singularity_margin(
    mechanism: Mechanism, t: Array, q: Array, rank: int | None = None
) -> tuple[float, tuple[str, ...]]:
    """The singularity margin of a position, which is the ratio of the smallest nonzero singular value of `C` to the
    largest one; and the joints whose rows are nearest to a dependence. `rank`: the number of nonzero ones where the
    position is not singular, by default here."""
    left, values, _ = np.linalg.svd(jacobian(mechanism, t, q))
    rank = int(np.sum(nonzero_singular_values(values))) if rank is None else rank
    if not rank:
        return 0.0, ()
    return float(values[rank - 1] / values[0]), parts_in(mechanism, np.abs(left[:, rank - 1]))


def verdict_where_stopped(solution: Solution, end: MotionEnd) -> RESULTS:
    """The verdict on a motion with concrete values: `singular` if it stopped near a singular position."""
    stopped = RESULTS.max_steps_reached, RESULTS.step_too_small, RESULTS.solver_failed
    if not is_one_of(solution.result, *stopped) or not np.isfinite(np.asarray(end.q)).all():
        return solution.result
    return RESULTS.singular if _where_stopped(solution, end.t, end.q)[0] else solution.result


def _where_stopped(solution: Solution, t: Array, q: Array) -> tuple[bool, float, tuple[str, ...]]:
    """Whether a motion stopped near a singular position; the singularity margin there, and the joints nearest to a
    dependence. The start is not saved if no step succeeded: then the motion is still there."""
    mechanism, begin = solution.mechanism, solution.ts[0]
    start = solution.q[0] if np.isfinite(np.asarray(solution.q[0])).all() else q
    first, last = jacobian(mechanism, begin, start), jacobian(mechanism, t, q)
    rank = int(np.sum(nonzero_singular_values(np.linalg.svd(first, compute_uv=False))))
    near, names = singularity_margin(mechanism, t, q, rank)
    return (
        rank > 0 and bool(_is_nearly_singular(jnp.asarray(first), jnp.asarray(last), jnp.ones((), bool))),
        near,
        names,
    )


@cached_on_disk
def _accelerations(formulation: AbstractFormulation, equations: Equations, t: Array, q: Array, v: Array) -> Array:
    return motion_of(formulation, equations, t, q, v).vdot


def _jammed(solution: Solution, equations: Equations, t: Array, q: Array, v: Array) -> str:
    """What is wrong if friction by load leaves no unique accelerations, in the directions of the motion; else empty."""
    names = ", ".join(repr(part.name) for part in rubbing(equations.mechanism.forces))
    if not names:
        return ""
    equations = equations.with_own_states(equations.at(jnp.asarray(t), q).steady_states(v))
    vdot = np.asarray(_accelerations(solution.formulation, equations, jnp.asarray(t), q, v))
    if np.isfinite(vdot).all():
        return ""
    return (
        f"the accelerations are not unique there (Painlevé). The loads of {names} grow by friction as fast as the "
        "friction by the loads, so that it jams. Reduce a coefficient or a radius, or make a span longer."
    )


def failure_text(solution: Solution, t: Array, q: Array, v: Array) -> str:
    """The error message for an integration that did not reach its end."""
    mechanism, start = solution.mechanism, float(solution.ts[0])
    span = float(solution.ts[-1]) - start
    steps, where = int(solution.stats["num_steps"]), f"t = {float(t):.6g} s"
    head = f"The simulation stopped at {where} after {steps} steps"
    if not (np.isfinite(np.asarray(q)).all() and np.isfinite(np.asarray(v)).all()):
        return f"{head}: the state is no longer finite. A force grows without bound, or a tolerance is far too loose."
    equations = equations_at(Equations(mechanism, solution.redundant), solution.force_changes, jnp.asarray(t))
    vdot = np.asarray(_accelerations(solution.formulation, equations, jnp.asarray(t), q, v))
    jammed = _jammed(solution, equations, t, q, v)
    if jammed:
        return f"{head}: {jammed}"
    bad = _nonfinite_forces(equations, t, q, v, vdot, span)
    if bad:
        return f"{head}: {bad}"
    is_singular, near, names = _where_stopped(solution, t, q)
    if is_singular or not np.isfinite(vdot).all():
        return (
            f"{head}, at a singular position: the constraint rows of {', '.join(map(repr, names)) or 'unknown joints'} "
            f"become dependent there (the smallest singular value is {near:.1g} of the largest). A looser tolerance or "
            "a fixed step may carry it through; if the mechanism locks there (a limit position, a rod stretched by a "
            "driver), change dimensions or motion."
        )
    if float(t) - start > _LATE * span and _INSTANT * span * np.abs(vdot).max() > np.abs(np.asarray(v)).max():
        k = int(np.abs(vdot).argmax())
        return (
            f"{head}: the motion runs away. {mechanism.speed_names[k]!r} is {float(v[k]):.3g} there and changes at "
            f"{vdot[k]:.3g} per second. Look for a force that feeds its own growth: a wrong sign, a negative damping "
            "or stiffness, a torque that rises with speed."
        )
    if solution.result == RESULTS.max_steps_reached:
        average = (float(t) - start) / max(steps, 1)
        head = f"{head} (max_steps reached), on average {average:.3g} s each."
        stiff = time_scales_at(mechanism, t, q, v)
        if _STIFF_STEP * stiff.step < average:
            return f"{head} The motion is too stiff for this solver. {stiff} Or raise max_steps."
        return (
            f"{head} The motion may pass near a singular position, have kinks, or need more steps: raise max_steps, or "
            "loosen rtol and atol."
        )
    k = int(np.abs(vdot).argmax())
    return (
        f"{head}: {RESULTS[solution.result]} There {mechanism.speed_names[k]!r} changes at {vdot[k]:.3g} per second, "
        "the most of all speeds."
    )


def _nonfinite_forces(
    equations: Equations, t: Array, q: Array, v: Array, vdot: Float[np.ndarray, " nv"], span: float
) -> str:
    """Name the forces that are not finite at a state, or just after it.

    A step with a NaN is rejected and halved until it ends just before the NaN, so that the last state is finite.
    """
    for ahead in (0.0, 1e-12, 1e-10, 1e-8, 1e-6):
        forces, *there = _forces_ahead(equations, jnp.asarray(t), q, v, vdot, jnp.asarray(ahead * span, q.dtype))
        if np.isfinite(np.asarray(forces)).all():
            continue
        mechanism = equations.mechanism
        kind, names = "force", [f.name for f in mechanism.forces if not _is_finite(mechanism, f, *there)]
        if not names:
            reader = KinematicReader(equations.at(*there[:2]), there[2])
            outputs = {part.name: np.asarray(reader.output(part.name)) for part in mechanism.controllers}
            kind, names = "output of the controller", [n for n, y in outputs.items() if not np.isfinite(y).all()]
        many = "s"[: len(names) != 1]
        these = f"the {kind}{many} {', '.join(map(repr, names))} {'are' if many else 'is'}"
        return f"{these} not finite from there on. Check the function, its parameters and the range it is valid in."
    return ""


@cached_on_disk
def _forces_ahead(
    equations: Equations, t: Array, q: Array, v: Array, vdot: Array, duration: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the applied forces after a short while, and the time and the state then."""
    there = t + duration, equations.at(t, q).advanced(v, duration), v + duration * jnp.nan_to_num(vdot)
    return equations.force(*there), *there


def _is_finite(mechanism: Mechanism, force: Any, t: Array, q: Array, v: Array) -> bool:
    alone = Equations(mechanism.replaced(forces=(force,), controllers=()))
    return bool(np.isfinite(np.asarray(alone.force(t, q, v))).all())


def torn_text(mechanism: Mechanism, t: Array, rows: str) -> str:
    """The error message for a motion that violates the constraints."""
    text = (
        f"The joints are torn apart at t = {float(t):.6g} s: {rows} (m or rad; m² for a Rod). The mechanism locks on "
        "the way (a limit position, a rod stretched by a driver), or its constraints contradict one another from some "
        "position on: change dimensions or motion."
    )
    driven = (mechanism.coordinate(driver.coordinate) for driver in mechanism.drivers)
    uncounted = [c.name for c in driven if c.unit(mechanism.space) == "rad" and is_users(c.joint) and not c.in_q]
    if not uncounted:
        return text
    return (
        f"{text} Or an angle that a driver prescribes, {', '.join(map(repr, uncounted))}, has jumped by a whole turn: "
        "if it is an arctan2, name it in unwrapped of the joint's class."
    )
