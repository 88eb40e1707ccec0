"""What analyses ask of the state they start from and of the times they are wanted at."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd._analysis._assembly._misfit import open_rows, tolerance_of
from jaxmbd._analysis._state import State
from jaxmbd._errors import AssemblyError, MechanismError
from jaxmbd._mechanism import Mechanism
from jaxmbd._types import is_concrete

START_OFF = 1e-6  # of the whole time: how far the first time may be from that of the state


def check_times(ts: Any, state: State) -> Array | np.ndarray:
    """The times of an analysis that starts at a state, as an array; those that are traced are checked by the compiled
    program (`times_are_valid`)."""
    ts = np.asarray(ts, dtype=state.q.dtype) if is_concrete(ts) else jnp.asarray(ts, dtype=state.q.dtype)
    if ts.ndim != 1 or ts.shape[0] < 2:
        raise MechanismError(f"ts must be a sequence of at least two times [s], got shape {ts.shape}.")
    if isinstance(ts, np.ndarray):
        values = ts
        if not np.isfinite(values).all():
            k = int(np.argmin(np.isfinite(values)))
            raise MechanismError(f"ts must be finite times [s]: ts[{k}] = {values[k]}.")
        steps = np.diff(values)
        if (steps <= 0).any():
            k = int(np.argmax(steps <= 0))
            raise MechanismError(
                f"ts must increase: ts[{k + 1}] = {values[k + 1]:g} s does not come after ts[{k}] = {values[k]:g} s."
            )
        if is_concrete(state.t) and abs(values[0] - float(state.t)) > START_OFF * (values[-1] - values[0]):
            raise MechanismError(
                f"ts must start at the time of the state, {float(state.t):g} s, got ts[0] = {values[0]:g} s. Assemble "
                "the state at that time: assemble(mechanism, ..., t=...)."
            )
    return ts


def check_state(mechanism: Mechanism, state: State) -> None:
    """That a state is one, and of this mechanism."""
    if not isinstance(state, State):
        raise MechanismError(f"state must be a State from jaxmbd.assemble(mechanism, ...), got {type(state).__name__}.")
    if state.coordinate_names != mechanism.coordinate_names:
        raise MechanismError(
            f"The state belongs to another mechanism: it has the coordinates {_shortened(state.coordinate_names)}; "
            f"this mechanism has {_shortened(mechanism.coordinate_names)}. Get a state from "
            "jaxmbd.assemble(mechanism, ...)."
        )


def closed_enough(q: Array | np.ndarray) -> float:
    """What a state may miss of the constraints: a hundred times as much as assembly leaves."""
    return 1e2 * tolerance_of(q)


def check_assembled(mechanism: Mechanism, what: str, position: Array, velocity: Array) -> None:
    """That a state satisfies the constraints; `position` and `velocity` are `Φ` and `Φ̇` there."""
    for miss, level, unit in ((position, "positions", "m or rad"), (velocity, "speeds", "m/s or rad/s")):
        tolerance = closed_enough(miss)
        if not np.abs(miss).max(initial=0.0) <= tolerance:
            rows = open_rows(mechanism, np.asarray(miss), (), tolerance)
            raise AssemblyError(
                f"The {what} is not assembled: its {level} violate the constraints, {rows} ({unit}). "
                "Get a state from jaxmbd.assemble(mechanism, ...)."
            )


def _shortened(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f", … ({len(names)} in all)" if len(names) > 6 else "")
