"""Kinematic analysis: the motion of a mechanism that has as many drivers as degrees of freedom."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.assembly.sides import is_opposed, opposed_text, sides_at
from jaxmbd.analyses.checks import check_times, first_time
from jaxmbd.analyses.measured_motion import MeasuredMotion, reconciled
from jaxmbd.analyses.redundancy import jacobian, nonholonomic_rows, redundancy, singular_parts, singular_text
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.verdict import singularity_margin, times_are_valid
from jaxmbd.arrays import Scalar, constant, frozen, is_known
from jaxmbd.checks import check_flags
from jaxmbd.engine import as_program, cached_on_disk
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import AssemblyError, MechanismError, SolveError
from jaxmbd.integrate.formulations.formulation import Kinematic
from jaxmbd.integrate.formulations.newton_closure import (
    DeterminedCorrection,
    RowsAndSpeeds,
    close_loops,
    consistent_motion,
)
from jaxmbd.model.driver import Driver
from jaxmbd.model.joint.joint import AbstractJointWithCoordinates
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.mechanism.validation import count_position_rows
from jaxmbd.numerics.linear_solve import gram, pivot_columns, rank_of
from jaxmbd.printing import count_of
from jaxmbd.state.result_codes import (
    RESULTS,
    first_failure,
    invalidated,
    is_one_of,
    is_successful,
    raise_unless_successful,
)
from jaxmbd.state.state import State, check_state

_SINGULAR = 1e-6  # share of the largest singular value below which the smallest one counts as zero
_NEARLY = 1e-4  # the share, by an estimate, below which singular values are computed
_LEAST_STEP = 1e-9  # share of the interval between two times
# A step is accepted if Newton's method corrects the prediction by less than this share of the step, plus this angle
# [rad] or this share of the unit of length that suits the mechanism.
_SHARE, _NEAR = 0.01, 1e-5
# Of that, the last of Newton's steps at an end, which serves predictions alone: its square, which is left, is nothing.
_LAST = 0.1


class _Point(NamedTuple):
    """A closed position on the motion, with the rates of its coordinates, its speeds and accelerations.

    `jerk`: the rate of the accelerations since the point before.
    """

    t: Scalar
    q: Float[Array, " nq"]
    qdot: Float[Array, " nq"]
    v: Float[Array, " nv"]
    vdot: Float[Array, " nv"]
    jerk: Float[Array, " nv"]


class _March(NamedTuple):
    """Where a motion has been followed to, and the step that is tried next.

    `later`: the end of this step; `predicted`: its position; `allowed`: how large the correction of this may be;
    `least_step`: a shorter one is given up.
    """

    here: _Point
    step: Scalar
    later: Scalar
    predicted: Float[Array, " nq"]
    allowed: Scalar
    least_step: Scalar


def kinematics(mechanism: Mechanism, ts: Any, state: State | None = None, *, throw: bool = True) -> Solution:
    """Compute the motion of a mechanism that its drivers prescribe completely, and the loads that it requires.

    `Φ(q, t) = 0`,   `C v = −Φ_t`,   `C v̇ = γ`,   `Cᵀ λ = F − M v̇`

    The motion is followed from its start: speeds and accelerations predict the next position, Newton's method corrects
    it, and the step is as long as the correction stays small. Positions, speeds, accelerations and multipliers at the
    times `ts` follow for all of these at once. States of parts, such as the current of a motor, are taken as the steady
    ones at each time.

    **Arguments:** `ts`, increasing times `[s]`, `(times,)`, or a `MeasuredMotion`, which takes the place of the
    mechanism's drivers; `state`, an assembled state at the first time, which
    selects the assembly mode (by default the one near the bodies' own poses); with `throw=False` positions that cannot
    be reached, and motions that the drivers do not determine, are NaN (see `solution.result`), and loads at singular
    positions are returned as computed.

    **Returns:** a `Solution`: every channel by name, `reaction(joint)`, `effort(driver)`, `singularity_margin()` (the
    distance from a singular position).

    **Raises:** `MechanismError` if there are too few drivers of positions or if they are redundant; `SolveError` if the
    motion cannot be continued, or if a position is singular. Inside `jit` and `vmap` redundant drivers and singular
    positions are not looked for.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> driven = pendulum.with_parts([pl.Driver("motor", "O.angle", lambda t: 0.5 * t**2)])
        >>> motion = mbd.kinematics(driven, np.linspace(0.0, 1.0, 11))
        >>> print(motion["rod.position"][-1].round(4), motion.effort("motor")[::10].round(3))  # [m], [N m]
        [0.4388 0.2397] [5.405 4.805]

    Source: Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems* (1989), §3.6, §4.8.
    """
    check_mechanism(mechanism)
    check_flags("kinematics", throw=throw)
    if isinstance(ts, MeasuredMotion):
        measured = reconciled(mechanism, ts, kinematics) if is_known(mechanism, ts) else ts
        mechanism, ts = measured.driven(mechanism), measured.ts
    state = assemble(mechanism, t=first_time(ts)) if state is None else state
    check_state(mechanism, state, "kinematics(mechanism, ts, state)")
    ts = check_times(ts, state)
    known = throw and is_known(mechanism, state, ts)
    rows = _known_position_rows(frozen(mechanism)) if known else _position_rows(mechanism)
    if (missing := mechanism.nv - int(rows)) > 0:
        if known:
            _check_drivers(*frozen((mechanism, state)))
        raise MechanismError(f"{_too_few(mechanism, missing)} Or let forces move them: simulate(mechanism, state, ts).")
    ts = constant(ts) if isinstance(ts, np.ndarray) else ts
    q, v, z, redundant, result, rank = _motion(mechanism, ts, state, is_known(ts, state.t))
    solution = Solution(mechanism, Kinematic(), ts, q, v, z, {}, redundant, {}, result, rank)
    if known:
        if bool(solution.redundant) or is_one_of(solution.result, RESULTS.opposed, RESULTS.motion_undetermined):
            _check_drivers(*frozen((mechanism, state)))
        _check_motion(frozen(solution))
    elif throw:
        of = lambda s: (s.q, s.integrated_speeds)  # noqa: E731
        solution = eqx.tree_at(of, solution, raise_unless_successful(of(solution), solution.result))
    return solution


def _position_rows(mechanism: Mechanism) -> Int[Array, ""]:
    """The number of rows that constrain positions."""
    return constant(np.sum(~nonholonomic_rows(mechanism)))


_known_position_rows = cached_on_disk(_position_rows)  # to count rows takes a trace of each kind of joint and driver


@cached_on_disk
def _motion(
    mechanism: Mechanism, ts: Array, state: State, checked: bool
) -> tuple[Array, Array, Array, Array, RESULTS, Array]:
    """Return positions, speeds and states of parts, whether rows are redundant, the verdict and the rank.

    `checked`: the values of the times are known and have been checked. No mechanism is returned, since a result that
    holds users' functions cannot be stored.
    """
    equations, q, v, inputs = Equations(mechanism), state.q, state.v, (mechanism, ts, state)
    fixed, q, v, times = frozen((equations, q, v, ts))
    (rows, sides), of_speeds = as_program(_rows_and_sides)(fixed, times[0], q), nonholonomic_rows(mechanism)
    rank = rank_of(rows)
    positions = rank_of(rows[~of_speeds]) if of_speeds.any() else rank
    qs, vs = _followed(fixed, times, q, v)
    qs = _closed(equations, ts, qs, laps=0)  # they are closed; this gives them their derivative
    result = first_failure(
        (~is_successful(state.result), state.result),
        (jnp.zeros((), bool) if checked else ~times_are_valid(ts, state.t, None), RESULTS.times_invalid),
        (is_opposed(sides), RESULTS.opposed),
        (positions < mechanism.nv, RESULTS.motion_undetermined),
        (~jnp.all(jnp.isfinite(qs)), RESULTS.position_not_reached),
    )
    ok = is_successful(result) | (result == RESULTS.position_not_reached) & jnp.all(jnp.isfinite(qs), axis=1)
    qs, vs = (invalidated(ok, x, inputs) for x in (qs, vs))
    zs = jnp.zeros((len(ts), 0), qs.dtype)
    if len(mechanism.layout.z):
        zs = jax.vmap(lambda t, q, v: equations.at(t, q).steady_states(v))(ts, qs, vs)
    return qs, vs, zs, rank < equations.m, result, rank


def _rows_and_sides(equations: Equations, t: Array, q: Array) -> tuple[Array, Array]:
    return equations.scaled_jacobian(t, q), equations.at(t, q).sides()


def _followed(equations: Equations, ts: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """Return closed positions and near speeds at all times, continued from a position at the first one.

    At first steps are as long as the motion allows, and the positions between their ends are closed together, from
    interpolated ones. If one of these turns out far from the closed position, such as in a short pulse of a driver
    between two ends, the motion is followed once more with an end at each time. So it is if there are more steps than
    times.
    """
    q = close_loops(equations, ts[0], q, DeterminedCorrection())
    start = _start(equations, ts, q, v)

    def follow(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        attempt, _, _, _ = carry
        predicted, vs, sizes = _predicted_positions(equations, start, ts, attempt > 0)
        qs = _closed(equations, ts, predicted)
        changes = jax.vmap(partial(_size, equations))(qs - predicted)
        return attempt + 1, qs, vs, jnp.all(changes <= _SHARE * sizes + _NEAR)

    places, speeds = (jnp.zeros((len(ts), len(x)), x.dtype) for x in (q, v))
    nothing = jnp.zeros((), int), places, speeds, jnp.zeros((), bool)
    _, qs, vs, _ = jax.lax.while_loop(lambda carry: (carry[0] < 2) & ~carry[3], follow, nothing)
    return qs, vs


def _predicted_positions(
    equations: Equations, start: _March, ts: Array, at_each: Array
) -> tuple[Float[Array, "times nq"], Float[Array, "times nv"], Float[Array, " times"]]:
    """Return positions and speeds at all times, interpolated between the ends of steps, and the sizes of the steps.

    Positions are NaN that are not reached, or lie beyond as many steps as there are times.
    """
    ends = _ends_of_steps(equations, start, ts, at_each)
    after = jnp.searchsorted(ends.t, ts)
    before, after = (jax.tree.map(lambda x: x[index], ends) for index in (jnp.maximum(after - 1, 0), after))  # noqa: B023
    share = (ts - before.t) / jnp.where(after.t > before.t, after.t - before.t, 1.0)
    qs = jax.vmap(partial(as_program(_normalized), equations))(jax.vmap(_interpolated)(before, after, share))
    vs = before.v + share[:, None] * (after.v - before.v)
    return qs, vs, jax.vmap(partial(_size, equations))(after.q - before.q)


def _start(equations: Equations, ts: Array, q: Array, v: Array) -> _March:
    """Return the march before its first step, which has no length: so the start is a point as all others are."""
    zero, none = jnp.zeros_like(ts[0]), jnp.zeros_like(v)
    here = _Point(ts[0], q, jnp.zeros_like(q), v, none, none)
    step = (ts[-1] - ts[0]) / max(1, len(ts) - 1)
    return _March(here, step, ts[0], q, zero + _NEAR, zero)


def _ends_of_steps(equations: Equations, start: _March, ts: Array, at_each: Array) -> _Point:
    """Return the ends of steps along the motion, from its `start` on, `(1 + times, …)`; what is not reached is at
    infinity.

    `at_each`: a step ends at each of the times, and only these ends are returned.
    """
    row, point_of = ravel_pytree(start.here)  # one write for each end in place of one for each of its numbers
    ends = jnp.full((len(ts) + 1, len(row)), jnp.inf, row.dtype)

    def next_end(count: Array) -> Array:
        return jnp.where(at_each, ts[jnp.minimum(count, len(ts) - 1)], ts[-1])

    def unfinished(carry: tuple[Array, _March, Array]) -> Array:
        count, march, _ = carry
        return (march.here.t < ts[-1]) & (march.step > march.least_step) & (count <= len(ts))

    def advance(carry: tuple[Array, _March, Array]) -> tuple[Array, _March, Array]:
        count, march, ends = carry
        near = _LAST * march.allowed
        q = close_loops(equations, march.later, march.predicted, DeterminedCorrection(), tolerance=near)
        march, is_kept = as_program(_advanced)(equations, march, q, (next_end(count), next_end(count + 1)), at_each)
        place = jnp.where(is_kept, count, len(ts) + 1)  # beyond the end nothing is written
        ends = ends.at[place].set(ravel_pytree(march.here)[0], mode="drop")
        return count + is_kept, march, ends

    ends = jax.lax.while_loop(unfinished, advance, (jnp.zeros((), int), start, ends))[2]
    return jax.vmap(point_of)(ends)


def _tried(equations: Equations, here: _Point, step: Scalar, end: Scalar) -> _March:
    """Return the next step, with the position that speeds, accelerations and their rates predict for its end."""
    later = jnp.where(here.t + 1.5 * step > end, end, here.t + step)  # avoids a last step that is much shorter
    ahead = later - here.t
    mean = here.v + ahead * (here.vdot / 2 + ahead * here.jerk / 6)
    predicted = equations.at(here.t, here.q).advanced(mean, ahead)
    allowed = _SHARE * _size(equations, predicted - here.q) + _NEAR
    return _March(here, step, later, predicted, allowed, _LEAST_STEP * (end - here.t))


def _advanced(
    equations: Equations, march: _March, q: Array, times: tuple[Scalar, Scalar], at_each: Array
) -> tuple[_March, Array]:
    """Return the march after a step whose end was closed at `q`, and whether that end is kept.

    A step is accepted if the prediction lies near the closed position, since a longer one may lead to another assembly
    mode. `times`: where steps end now, and once this is reached.
    """
    (here, step, later, predicted, allowed, _), (end, next_end) = march, times
    ahead = later - here.t
    correction = _size(equations, q - predicted)
    accepted = correction <= allowed
    # The correction grows with the fourth power of the step, and the distance with the first.
    growth = jnp.clip(0.8 * jnp.cbrt(allowed / correction), 0.2, 5.0)
    suits = ahead * jnp.where(jnp.isfinite(growth), growth, 0.5)
    there = _point(equations, later, q, here.v + ahead * here.vdot)
    # Between times that are nearly equal, the difference of accelerations is rounding.
    jerk = jnp.where(ahead > _LEAST_STEP * step, (there.vdot - here.vdot) / ahead, here.jerk)
    here = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), there._replace(jerk=jerk), here)
    is_whole = (later < end) & (ahead > 0)
    longer = jnp.where(is_whole, suits, jnp.maximum(step, suits))  # a step that ends early says less, the start nothing
    step = jnp.where(accepted, longer, jnp.minimum(suits, ahead / 2))
    is_kept = accepted & (~at_each | (later >= end))
    return _tried(equations, here, step, jnp.where(is_kept, next_end, end)), is_kept


def _interpolated(before: _Point, after: _Point, share: Array) -> Array:
    """Return the position of Hermite's cubic at a share of the step between two points."""
    step, change = after.t - before.t, after.q - before.q
    start, end = step * before.qdot, step * after.qdot
    return before.q + share * (start + share * (3 * change - 2 * start - end + share * (start + end - 2 * change)))


def _point(equations: Equations, t: Array, q: Array, v: Array) -> _Point:
    """Return the point at a closed position, with the consistent speeds near `v`."""
    q = equations.normalize(q)
    at = equations.at(t, q)
    v, vdot = consistent_motion(at, v, DeterminedCorrection())
    return _Point(t, q, at.rate(v), v, vdot, jnp.zeros_like(v))


def _closed(equations: Equations, ts: Array, qs: Array, laps: int | None = None) -> Array:
    """Return the closed positions near `qs`, at all times at once."""
    return jax.vmap(lambda t, q: close_loops(equations, t, q, DeterminedCorrection(), laps))(ts, qs)


def _normalized(equations: Equations, q: Array) -> Array:
    return equations.normalize(q)


def _size(equations: Equations, change: Array) -> Array:
    """Return the largest change of a coordinate, relative to the unit that suits each."""
    return jnp.max(jnp.abs(change / equations.scales.coordinates))


def _check_drivers(mechanism: Mechanism, state: State) -> None:
    if opposed := opposed_text(sided_joints(mechanism), sides_at(mechanism, state.t, state.q)):
        raise AssemblyError(f"The state is not assembled. {opposed}")
    C = jacobian(mechanism, state.t, state.q)[~nonholonomic_rows(mechanism)]
    drivers = [driver.name for driver in mechanism.drivers]
    freedom = mechanism.nv - int(rank_of(C))
    found = redundancy(mechanism, state)
    if found.is_singular:
        text = singular_text(singular_parts(mechanism, state.t, state.q))
        raise SolveError(f"{text} The drivers do not tell which one: start a little beside it.")
    if freedom:
        proposed, idle = _more_drivers(mechanism, state)
        mend = f" Prescribe as many more coordinates, such as {', '.join(proposed)}." if proposed else ""
        if idle:
            mend += (
                f" No driver can hold {', '.join(idle)}: replace a joint by one that does. (A body between two "
                "Sphericals spins about itself: make one of them a Universal, or the body a Rod.)"
            )
        raise MechanismError(
            f"{_too_few(mechanism, freedom)}{mend} Or let forces move them: simulate(mechanism, state, ts)."
        )
    for repeat in found.repeats:
        if repeat.joint in drivers:
            raise MechanismError(
                f"Too many drivers for a kinematic analysis: {repeat}. Leave one of {_driver_list(drivers)} out."
            )


def _too_few(mechanism: Mechanism, freedom: int) -> str:
    """Return the text for a motion that is not determined."""
    drivers = _driver_list([driver.name for driver in mechanism.drivers])
    counts = zip(mechanism.constraints(), mechanism.constraint_sizes(), strict=True)
    rolling = [part.name for part, size in counts if count_position_rows(mechanism, part) < size]
    named = ", ".join(map(repr, rolling))
    cause = f", since {named} constrain{'s' * (len(rolling) == 1)} speeds: the position is an integral of these"
    return (
        f"Too few drivers for a kinematic analysis: {drivers} and the joints leave {count_of(freedom, 'degree')} of "
        f"freedom{cause * bool(rolling)}."
    )


def _more_drivers(mechanism: Mechanism, state: State) -> tuple[list[str], list[str]]:
    """Return coordinates whose drivers would determine the motion, and the speeds that no driver reaches."""
    joints = [part for part in mechanism.joints if isinstance(part, AbstractJointWithCoordinates)]
    names = [f"{joint.name}.{coordinate}" for joint in joints for coordinate in joint.coordinate_names]
    names += [f"{body.name}.{coordinate}" for body in mechanism.bodies for coordinate in mechanism.space.prescribable]
    drivers = [Driver(f"driver {k}", name, 0.0) for k, name in enumerate(names)]
    driven = mechanism.replaced(drivers=[*mechanism.drivers, *drivers])
    rows = jacobian(driven, state.t, state.q)[~nonholonomic_rows(driven)]
    held, tried = np.split(rows, [len(rows) - len(names)])
    proposed: list[str] = []
    for name, row in zip(names, tried, strict=True):
        more = np.vstack([held, row])
        if rank_of(more) > rank_of(held):
            held, proposed = more, [*proposed, name]
    dependent = np.asarray(pivot_columns(held))
    return proposed, [name for name, is_held in zip(mechanism.variables, dependent, strict=True) if not is_held]


def _driver_list(drivers: list[str]) -> str:
    return f"{count_of(len(drivers), 'driver')} ({', '.join(map(repr, drivers)) or 'none'})"


@cached_on_disk
def _near_singular(mechanism: Mechanism, ts: Array, qs: Array) -> Float[Array, " times"]:
    """Return the distance from a singular position at each time as an estimate that costs no singular values."""
    return jax.vmap(lambda t, q: as_program(_estimated_margin)(Equations(mechanism), t, q))(ts, qs)


def _estimated_margin(equations: Equations, t: Array, q: Array) -> Scalar:
    """Return the ratio of the smallest to the largest singular value of `C`, by inverse iteration on `Cᵀ C`.

    Each of the iterations multiplies the share of the smallest one's vector by the square of their ratio.
    """
    scales = equations.scales
    S = gram(RowsAndSpeeds(equations.at(t, q).entries, scales, scales.rows).scaled)
    largest = S.largest()
    solve, x = S.shifted((0.1 * _NEARLY) ** 2 * largest).solver(), jnp.cos(1.0 + jnp.arange(S.pattern.n, dtype=q.dtype))
    for _ in range(3):
        x = solve(x / jnp.linalg.norm(x))
    return 1 / jnp.sqrt(jnp.linalg.norm(x) * largest)


def _check_motion(solution: Solution) -> None:
    """Raise if the motion ends early, or if the position at one of the times is singular."""
    mechanism, ts = solution.mechanism, np.asarray(solution.ts)
    reached = np.isfinite(np.asarray(solution.q)).all(axis=1)
    if not reached.all():
        k = int(np.argmin(reached))
        if not k:
            raise AssemblyError(
                f"The drivers ask for a position at t = {ts[0]:.6g} s that Newton's method does not reach from the "
                "state given. Get one from jaxmbd.assemble(mechanism, t=...)."
            )
        near, names = singularity_margin(mechanism, solution.ts[k - 1], solution.q[k - 1], mechanism.nv)
        raise SolveError(
            f"The drivers' motion cannot be followed from t = {ts[k - 1]:.6g} s to {ts[k]:.6g} s: no closed position "
            f"lies near what the one before predicts. The rows of {', '.join(map(repr, names))} are nearest to a "
            f"dependence there (smallest singular value {near:.1g} of the largest): a limit position, which the "
            "drivers push beyond. Prescribe a smaller range, or another coordinate."
        )
    if not np.min(np.asarray(_near_singular(mechanism, solution.ts, solution.q))) < _NEARLY:
        return
    margins = np.asarray(solution.singularity_margin())
    if (margins < _SINGULAR).any():
        k = int(np.argmin(margins))
        _, names = singularity_margin(mechanism, solution.ts[k], solution.q[k], mechanism.nv)
        raise SolveError(
            f"The position at t = {ts[k]:.6g} s is singular: the rows of {', '.join(map(repr, names))} become "
            "dependent there, so that speeds and loads are not determined. Ask for other times (the motion passes "
            "through), change dimensions, or drive another coordinate; throw=False returns the motion as it is."
        )
