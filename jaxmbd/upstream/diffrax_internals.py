"""Everything in diffrax that this package uses and that diffrax does not document.

It may change these at any minor version, which is why `pyproject.toml` caps it. `USED` says what each one is used for,
and `tests/upstream/test_upstream.py` fails with that sentence when one of them is gone.
"""

from typing import Any, TypeGuard

import diffrax as dfx

SAVE_STATE = dfx.SubSaveAt(t1=True).fn  # diffrax's function that saves the state as it is
FROM_CONTROLLER = dfx.with_stepsize_controller_tols(dfx.VeryChord)().rtol  # stands for a tolerance not given

# The fields of the loop's state, and the arguments of an adjoint's `loop`, that the discrete adjoint reads.
LOOP_STATE = (
    *("y", "tprev", "tnext", "solver_state", "controller_state", "save_state", "num_accepted_steps"),
    *("event_tprev", "event_tnext", "event_dense_info"),
)
LOOP_ARGUMENTS = (
    *("args", "terms", "solver", "stepsize_controller", "event", "saveat", "t0", "t1", "dt0", "max_steps"),
    *("init_state", "passed_solver_state", "passed_controller_state", "throw"),
)

USED = {
    "diffrax.AbstractERK.step": "an explicit method with diffrax's own step is replaced by its unrolled form",
    "diffrax.AbstractAdjoint.loop": "the discrete adjoint records the steps of diffrax's loop",
    "diffrax.AbstractAdjoint._loop": "the discrete adjoint runs diffrax's loop with loops of its own inside",
    "diffrax.with_stepsize_controller_tols": "implicit solvers inside wrappers get the tolerances of the controller",
}


def has_diffraxs_step(solver: Any) -> TypeGuard[dfx.AbstractERK]:
    """True if a solver is an explicit Runge–Kutta method that steps as diffrax's class does."""
    return isinstance(solver, dfx.AbstractERK) and type(solver).step is dfx.AbstractERK.step
