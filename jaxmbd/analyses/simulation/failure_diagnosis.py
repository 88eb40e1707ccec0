"""Diagnosis of a failed simulation in mechanical terms, from the last state that was reached."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.redundancy import jacobian
from jaxmbd.analyses.results import RESULTS
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.verdict import NEARLY_SINGULAR, End
from jaxmbd.analyses.time_scales import time_scales_at
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.linear_solve import nonzero_singular_values
from jaxmbd.integrate.formulations.formulation import motion_of
from jaxmbd.model.mechanism.mechanism import Mechanism

_TAKES_PART = 1e-3  # entry of the left singular vector above which a row takes part in a dependence
_STIFF_STEP = 0.1  # of the stability limit of an explicit solver: longer average steps are limited by stiffness
# A motion diverges if the speeds would change by their own size in 1e-9 of the run, except at its very start.
_INSTANT, _LATE = 1e-9, 1e-6


def singularity_margin(mechanism: Mechanism, t: Array, q: Array) -> tuple[float, tuple[str, ...]]:
    """The singularity margin of a position, which is the ratio of the smallest nonzero singular value of `C` to the
    largest one; and the joints whose rows are nearest to a dependence."""
    left, values, _ = np.linalg.svd(jacobian(mechanism, t, q))
    values = values[nonzero_singular_values(values)]
    if not len(values):
        return 0.0, ()
    share = np.abs(left[:, len(values) - 1])
    names = dict.fromkeys(name for (name, _), s in zip(mechanism.row_labels(), share, strict=True) if s > _TAKES_PART)
    return float(values[-1] / values[0]), tuple(names)


def verdict_where_stopped(solution: Solution, end: End) -> RESULTS:
    """The verdict on a motion with concrete values: `singular` if it stopped near a singular position."""
    stopped = [RESULTS.max_steps_reached, RESULTS.step_too_small, RESULTS.solver_failed]
    if not any(bool(solution.result == item) for item in stopped) or not np.isfinite(np.asarray(end.q)).all():
        return solution.result
    mechanism = solution.mechanism
    near, begin = (
        singularity_margin(mechanism, end.t, end.q)[0],
        singularity_margin(mechanism, solution.ts[0], solution.q[0])[0],
    )
    return RESULTS.singular if near < NEARLY_SINGULAR * begin else solution.result


def failure_text(solution: Solution, t: Array, q: Array, v: Array) -> str:
    """The error message for an integration that did not reach its end."""
    mechanism, start = solution.mechanism, float(solution.ts[0])
    span = float(solution.ts[-1]) - start
    steps, where = int(solution.stats["num_steps"]), f"t = {float(t):.6g} s"
    head = f"The simulation stopped at {where} after {steps} steps"
    if not (np.isfinite(np.asarray(q)).all() and np.isfinite(np.asarray(v)).all()):
        return f"{head}: the state is no longer finite. A force grows without bound, or a tolerance is far too loose."
    motion = motion_of(solution.formulation, Equations(mechanism, solution.redundant), jnp.asarray(t), q, v)
    bad = _nonfinite_forces(mechanism, t, q, v, motion.vdot, span)
    if bad:
        return f"{head}: {bad}"
    vdot = np.asarray(motion.vdot)
    near, names = singularity_margin(mechanism, t, q)
    first = solution.q[0] if np.isfinite(np.asarray(solution.q[0])).all() else q  # not saved where no step succeeded
    if near < NEARLY_SINGULAR * singularity_margin(mechanism, solution.ts[0], first)[0] or not np.isfinite(vdot).all():
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


def _nonfinite_forces(mechanism: Mechanism, t: Array, q: Array, v: Array, vdot: Array, span: float) -> str:
    """Name the forces that are not finite at a state, or just after it.

    A step with a NaN is rejected and halved until it ends just before the NaN, so that the last state is finite.
    """
    for ahead in (0.0, 1e-12, 1e-10, 1e-8, 1e-6):
        s = ahead * span
        there = (
            jnp.asarray(t + s),
            Equations(mechanism).at(jnp.asarray(t), q).advanced(v, jnp.asarray(s, q.dtype)),
            v + s * jnp.nan_to_num(vdot),
        )
        if np.isfinite(np.asarray(Equations(mechanism).force(*there))).all():
            continue
        names = [force.name for force in mechanism.forces if not _is_finite(mechanism, force, *there)]
        these = f"the force {names[0]!r} is" if len(names) == 1 else f"the forces {', '.join(map(repr, names))} are"
        return f"{these} not finite from there on. Check the function, its parameters and the range it is valid in."
    return ""


def _is_finite(mechanism: Mechanism, force: Any, t: Array, q: Array, v: Array) -> bool:
    alone = Equations(mechanism.replaced(forces=(force,)))
    return bool(np.isfinite(np.asarray(alone.force(t, q, v))).all())


def torn_text(mechanism: Mechanism, t: Array, rows: str) -> str:
    """The error message for a motion that violates the constraints."""
    return (
        f"The joints are torn apart at t = {float(t):.6g} s: {rows} (m or rad; m² for a Rod). The mechanism locks on "
        "the way (a limit position, a rod stretched by a driver), or its constraints contradict one another from some "
        "position on: change dimensions or motion."
    )
