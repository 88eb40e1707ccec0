"""The run of a motion in the native time loop, as diffrax returns its own."""

from collections.abc import Sequence
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import frozen
from jaxmbd.integrate.adjoint.linear_sweeps import solve
from jaxmbd.integrate.adjoint.native_steps import NativeSteps
from jaxmbd.integrate.solvers.switching import StepEnds


def run_native(
    steps: NativeSteps, theta: list[Array], y: Sequence[Array], controller: dfx.AbstractStepSizeController,
    first: Any, t0: Any, t1: Any, ts: Array | np.ndarray, ends: StepEnds | None = None,
) -> tuple[dfx.Solution, Array | None]:  # fmt: skip
    """The solution as diffrax returns it, for the times `ts` and the end; and what events have logged. `ends`: where
    steps end."""
    dtype, order = ts.dtype, steps.error_order
    adaptive = isinstance(controller, dfx.PIDController)
    control = _control(controller, order, dtype) if adaptive else jnp.zeros(10, dtype)
    times = (t0, t1, ts) if ends is None else (*ends.between(t0, t1, jnp.asarray(ts)), ends.times)
    x = [jnp.concatenate(y), *theta, *(jnp.asarray(t, dtype) for t in times)]
    force = bool(adaptive and controller.force_dtmin)
    # Sizes of steps are constants in derivatives, as in those of diffrax's loop (`discrete_adjoint.py`).
    step, control = frozen((jnp.asarray(first, dtype), control))
    ys, end, *log, t_end, count, accepted, rejected, _, outcome, engine = solve(
        steps, x, step, control, adaptive, force
    )
    sizes = [len(part) for part in y]
    result = dfx.RESULTS.where(outcome == 1, dfx.RESULTS.max_steps_reached, dfx.RESULTS.successful)
    result = dfx.RESULTS.where(outcome == 2, dfx.RESULTS.dt_min_reached, result)
    counts = {"num_steps": count, "num_accepted_steps": accepted, "num_rejected_steps": rejected}
    stats = {name: x.astype(int) for name, x in counts.items()}
    stats |= {"max_steps": steps.max_steps, "engine": engine, "operations": steps.operations}
    run = dfx.Solution(
        t0=t0, t1=t1, ts=(ts, t_end[None]), ys=(_split(ys, sizes), _split(end[None], sizes)), interpolation=None,
        stats=stats, result=result, solver_state=None, controller_state=None, made_jump=None, event_mask=None,
    )  # fmt: skip
    return run, log[0] if log else None


def _split(ys: Array, sizes: list[int]) -> tuple[Array, ...]:
    """The parts of states, empty where they are not saved."""
    ends = np.cumsum(sizes).tolist()
    return tuple(ys[:, end - size : end] for size, end in zip(sizes, ends, strict=True))


def _control(control: dfx.PIDController, order: Any, dtype: np.dtype) -> Array:
    """The numbers of the controller, in the order of `vm.c`; its coefficients are exponents of the scaled errors."""
    p, i, d = control.pcoeff, control.icoeff, control.dcoeff
    numbers = (
        control.rtol, control.atol, 0.0 if control.dtmin is None else control.dtmin,
        jnp.inf if control.dtmax is None else control.dtmax, control.factormin, control.factormax, control.safety,
        (i + p + d) / order, -(p + 2 * d) / order, d / order,
    )  # fmt: skip
    return jnp.stack([jnp.asarray(x, dtype) for x in numbers])
