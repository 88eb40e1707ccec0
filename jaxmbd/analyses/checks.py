"""Checks of the arguments of analyses: times, and whether a state counts as assembled."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assembly_errors import open_rows, row_limits
from jaxmbd.analyses.assembly.sides import opposed_text
from jaxmbd.arrays import is_concrete
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import AssemblyError, MechanismError, shown
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.state import State

OTHERWISE = (
    "Get a state from jaxmbd.assemble(mechanism, ...); if it is the state of a motion, simulate goes on from it with "
    "continued=True."
)
START_OFF = 1e-6  # share of the whole interval by which the first time may differ from the time of the state


def check_times(ts: Any, state: State) -> Array | np.ndarray:
    """Return the times of an analysis that starts at a state as an array; raise unless they are valid.

    Traced times are checked when the compiled program runs (`times_are_valid`).
    """
    ts = _times(ts, state.q.dtype)
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


def first_time(ts: Any) -> Any:
    """Return the first of the times of an analysis, for which no state exists yet."""
    return _times(ts, jnp.result_type(float))[0]


def _times(ts: Any, dtype: Any) -> Array | np.ndarray:
    if is_concrete(ts):
        try:
            values = np.asarray(ts)
            if values.dtype.kind in "cSU":  # NumPy would drop imaginary parts and parse strings as numbers
                raise TypeError("real numbers are needed")
            values = np.asarray(values, dtype=values.dtype if values.dtype.kind in "fiu" else float)
            times = np.asarray(values, dtype=dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise MechanismError(
                f"ts must be a sequence of at least two times [s], real numbers, got {shown(ts)}."
            ) from error
    else:
        times = jnp.asarray(ts, dtype=dtype)
    if times.ndim != 1 or times.shape[0] < 2:
        given = f"{ts!r}" if is_concrete(ts) and times.size < 2 else f"shape {times.shape}"
        raise MechanismError(
            f"ts must be a sequence of at least two times [s], such as jnp.linspace(0.0, 2.0, 201), got {given}."
        )
    return times


def closed_enough(equations: Equations) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """Return the largest constraint residuals of positions and of speeds of a state that counts as assembled: 100 times
    the assembly tolerance, and as much in the mechanism's unit of time."""
    limits = jnp.asarray(1e2 * row_limits(equations))
    return limits, limits / equations.scales.time


def check_assembled(
    mechanism: Mechanism, what: str, position: Array, velocity: Array, limits: Array, speed_limits: Array,
    sides: Array,
) -> None:  # fmt: skip
    """Raise unless a state satisfies the constraints, with each joint on its right side; `position` and `velocity` are
    its `Φ` and `Φ̇`, `limits` and `speed_limits` the values up to which these count as zero."""
    if opposed := opposed_text(sided_joints(mechanism), sides):
        raise AssemblyError(f"The {what} is not assembled. {opposed}")
    levels = (position, limits, "positions", "m or rad"), (velocity, speed_limits, "speeds", "m/s or rad/s")
    for residual, limit, level, unit in levels:
        if not (np.abs(residual) <= np.asarray(limit)).all():
            rows = open_rows(mechanism, np.asarray(residual), (), np.asarray(limit))
            raise AssemblyError(
                f"The {what} is not assembled: its {level} violate the constraints, {rows} ({unit}). {OTHERWISE}"
            )
