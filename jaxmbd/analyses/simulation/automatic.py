"""`solver="auto"`: the default method, or the implicit one where stability holds the steps of the default.

The default method runs first. If it has not ended after some hundred steps, these are as long as its stability allows,
or shorter because their error asks for it: then the motion itself is fast, and an implicit method would need as short
ones. The motion is integrated by one method from its start to its end, so that its derivatives are those of that
method; the choice has none.

Source: Hairer, Wanner, *Solving Ordinary Differential Equations II* (1996), §IV.2 (stiffness shows in steps `h` with
`h |λ|` near the boundary of the stability domain). The eigenvalue is that of the mechanism (`time_scales`), in place of
an estimate from two stages.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.simulation.settings import Integration
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.step_control import TRIAL, SolverChoice
from jaxmbd.analyses.simulation.verdict import MotionEnd
from jaxmbd.analyses.time_scales import STABLE, time_scales_at
from jaxmbd.arrays import constant, frozen, is_known
from jaxmbd.errors import MechanismError
from jaxmbd.state.result_codes import RESULTS, is_one_of, is_successful

# Average steps between these shares of the stability limit are held by it. Longer ones say that what was fast at the
# start no longer is. Measured at the default tolerance over a second of the examples: .5 with a stiff bushing (a load
# on a slider-crank) and .7 with stiff springs (governor), at most .13 of the others; .4 at a tolerance of 1e-4.
_HELD = 0.4, 2.0

Run = Callable[[Integration, bool], tuple[Solution, MotionEnd]]  # of settings, and whether it raises


def run_by_choice(run: Run, chosen: Integration, values: object, throw: bool, most: int) -> Solution:
    """A motion by the method that suits it. `values`: what the motion depends on; `most`: the default of `max_steps`.

    **Raises:** `MechanismError` if the values are not known.
    """
    if not is_known(values, chosen):
        raise MechanismError(
            "solver='auto' looks at a motion before it chooses, whose values are not known inside jit and vmap, nor in "
            "a fit. Ask simulate for one such motion outside, and give what its solver_reason says: None or 'stiff'."
        )
    limit = most if chosen.max_steps is None else chosen.max_steps
    usual = replace(chosen, solver=None)
    solution, end = run(replace(usual, max_steps=min(TRIAL, limit)), False)
    if bool(is_successful(frozen(solution.result))):
        return _told(solution, SolverChoice.SHORT)
    choice = SolverChoice.SHORT
    if is_one_of(frozen(solution.result), RESULTS.max_steps_reached) and limit > TRIAL:
        choice = SolverChoice.STIFF if _is_held(frozen(solution), frozen(end)) else SolverChoice.ACCURATE
    solver = "stiff" if choice is SolverChoice.STIFF else None
    return _told(run(replace(chosen, solver=solver), throw)[0], choice)


def _is_held(solution: Solution, end: MotionEnd) -> bool:
    """True if the steps that were taken are on average as long as stability allows, from the start to their end."""
    if not all(np.isfinite(np.asarray(x)).all() for x in (end.q, end.v)):
        return False
    average = (float(end.t) - float(solution.ts[0])) / TRIAL
    mechanism = solution.mechanism.with_own_states(solution.z[0])
    start = solution.ts[0], solution.q[0], solution.integrated_speeds[0]
    rates = [time_scales_at(mechanism, *at).fastest for at in (start, (end.t, end.q, end.v))]
    low, high = _HELD
    return low < average * sum(rates) / (2 * STABLE) < high


def _told(solution: Solution, choice: SolverChoice) -> Solution:
    number: Array = constant(np.int64(choice.number))
    return replace(solution, stats=solution.stats | {"solver_choice": number})
