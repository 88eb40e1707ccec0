"""The verdict on a motion: checks at its start, the result of the integration, constraint violations at saved times.

An instance with an invalid start (its state is not assembled, or its times are invalid) is integrated over an interval
of zero length, so that in a batch it takes no steps.
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.assembly.assembly_errors import open_text, row_names
from jaxmbd.analyses.checks import START_OFF, closed_enough
from jaxmbd.analyses.events.event_log import BLOCKED, STARTED, USED_UP, Events
from jaxmbd.analyses.results import RESULTS, first_failure, is_successful, number_of, text_of
from jaxmbd.analyses.state import State
from jaxmbd.arrays import Scalar, frozen
from jaxmbd.compile.jax_binding import as_program
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.linear_solve import nonzero_singular_values
from jaxmbd.integrate.diffrax_binding import any_instance

# [m, rad]: the default of the largest constraint violation at a saved time. Drift without stabilisation is smaller,
# the violation of separated joints is larger.
CLOSURE_TOLERANCE = 1e-2
NEARLY_SINGULAR = 1e-2  # a position with a smaller singularity margin, relative to that of the start, is singular
_MAX_SVD_ROWS = 400  # with more rows than this singular values would cost more than the motion


class Start(eqx.Module):
    """Violations `Φ` and `Φ̇` at the start, and the verdict on whether the motion may begin."""

    position: Float[Array, " m"]
    velocity: Float[Array, " m"]
    result: RESULTS

    @property
    def may_begin(self) -> Bool[Array, ""]:
        """True if the motion can be integrated."""
        return is_successful(self.result)


class End(eqx.Module):
    """The last state of a run; and the first saved time at which the joints are open (the last one if they never are),
    with the violation there."""

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    open_at: Scalar
    violation: Float[Array, " m"]


def times_are_valid(ts: Array, start: Scalar, dt0: float | int | Array | None) -> Bool[Array, ""]:
    """The conditions of `check_times` on times and on a first step, for traced values."""
    near = jnp.abs(ts[0] - start) <= START_OFF * (ts[-1] - ts[0])
    valid = jnp.all(jnp.isfinite(ts)) & jnp.all(jnp.diff(ts) > 0) & near
    return valid if dt0 is None else valid & (jnp.asarray(dt0) > 0) & jnp.isfinite(dt0)


def verdict_at_start(
    equations: Equations, state: State, ts: Array, valid: Bool[Array, ""], tolerance: Scalar, strict: bool
) -> Start:
    """The verdict at the start: the state's own result, valid times, closed joints.

    `strict`: apply the tolerance of the checks that raise, to positions and speeds.
    """
    position, velocity = as_program(_violations)(*frozen((equations, ts[0], state.q, state.v)))
    limit = closed_enough(position) if strict else tolerance
    is_open, slides = (~(jnp.max(jnp.abs(x), initial=0.0) <= limit) for x in (position, velocity))
    result = first_failure(
        (~is_successful(state.result), state.result),
        (~valid, RESULTS.times_invalid),
        (is_open | ~jnp.all(jnp.isfinite(state.q)), RESULTS.not_assembled),
        (slides if strict else jnp.zeros((), bool), RESULTS.speeds_contradict),
        (~jnp.all(jnp.isfinite(state.v)), RESULTS.not_finite),
    )
    return Start(position, velocity, result)


def verdict(
    equations: Equations, start: Start, how: dfx.RESULTS, ts: Array, qs: Array, vs: Array,
    begin: tuple[Array, Array], end: tuple[Array, Array, Array], log: Events | None, tolerance: Scalar,
    singular: bool,
) -> tuple[RESULTS, Bool[Array, " times"], End]:  # fmt: skip
    """The verdict on a motion, a mask of the saved times that are valid, and the data of an error message.

    **Arguments:** `how`, diffrax's result; `ts`, `qs`, `vs`, the saved motion; `begin`, `(t, q)`; `end`, the last state
    `(t, q, v)`; `log`, its events; `singular`, true to determine if a motion stopped at a singular position.
    """
    equations, ts, qs, vs, begin, end = frozen((equations, ts, qs, vs, begin, end))
    violation = jax.vmap(lambda t, q: as_program(_position)(equations, t, q))(ts, qs)
    is_closed = jnp.max(jnp.abs(violation), axis=1, initial=0.0) <= tolerance
    is_finite = jnp.all(jnp.isfinite(qs), axis=1) & jnp.all(jnp.isfinite(vs), axis=1)
    stopped, trouble = how != dfx.RESULTS.successful, jnp.zeros((), int) if log is None else log.trouble
    near = _near_singular(equations, begin, end[:2], stopped) if singular else jnp.zeros((), bool)
    result = first_failure(
        (~start.may_begin, start.result),
        (trouble == STARTED, RESULTS.event_at_start),
        (trouble == BLOCKED, RESULTS.event_blocked),
        (trouble == USED_UP, RESULTS.max_events_reached),
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
    return result, ok, End(*end, ts[k], violation[k])


def _violations(equations: Equations, t: Scalar, q: Array, v: Array) -> tuple[Array, Array]:
    at = equations.at(t, q)
    return at.position(), at.velocity(v)


def _position(equations: Equations, t: Scalar, q: Array) -> Array:
    return equations.at(t, q).position()


def _near_singular(
    equations: Equations, begin: tuple[Array, Array], end: tuple[Array, Array], stopped: Bool[Array, ""]
) -> Bool[Array, ""]:
    """True if the singularity margin at the end is much smaller than at the start; evaluated only if a run stopped."""

    def margin(t: Scalar, q: Array) -> Array:
        values = jnp.linalg.svd(equations.jacobian(t, q), compute_uv=False)
        return jnp.min(jnp.where(nonzero_singular_values(values), values, jnp.inf)) / values[0]

    if not 0 < equations.m <= _MAX_SVD_ROWS:
        return jnp.zeros((), bool)
    no = lambda: jnp.zeros((), bool)  # noqa: E731
    return jax.lax.cond(any_instance(stopped), lambda: margin(*end) < NEARLY_SINGULAR * margin(*begin), no)


class Describe:
    """The error text of a failed motion, from its verdict and data (a callback for `raise_where`)."""

    def __init__(self, equations: Equations) -> None:
        self._rows = row_names(equations.mechanism, ())

    def __call__(
        self, code: np.ndarray, position: np.ndarray, velocity: np.ndarray, violation: np.ndarray,
        tolerance: np.ndarray, t: np.ndarray, open_at: np.ndarray,
    ) -> str:  # fmt: skip
        text, kind = text_of(code), int(code)
        if kind in (_NOT_ASSEMBLED, _SPEEDS_CONTRADICT):
            miss, unit = (position, "m or rad") if kind == _NOT_ASSEMBLED else (velocity, "m/s or rad/s")
            rows = open_text(self._rows, miss, closed_enough(miss))
            return f"{text} {rows} ({unit}). Get a state from jaxmbd.assemble(mechanism, ...)." if rows else text
        if kind == _CONSTRAINTS_VIOLATED:
            rows = open_text(self._rows, violation, float(tolerance))
            return f"{text} At t = {float(open_at):.6g} s {rows} (m or rad; m² for a Rod)."
        return text if kind == _TIMES_INVALID else f"{text} The motion stopped at t = {float(t):.6g} s."


_NOT_ASSEMBLED, _TIMES_INVALID = int(number_of(RESULTS.not_assembled)), int(number_of(RESULTS.times_invalid))
_SPEEDS_CONTRADICT = int(number_of(RESULTS.speeds_contradict))
_CONSTRAINTS_VIOLATED = int(number_of(RESULTS.constraints_violated))
