"""Kinematic analysis: the motion of a mechanism that has as many drivers as degrees of freedom."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.assembly.sides import is_opposed, opposed_text, sides_at
from jaxmbd.analyses.checks import check_times, first_time
from jaxmbd.analyses.redundancy import jacobian, nonholonomic_rows, redundancy
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.simulation.verdict import singularity_margin, times_are_valid
from jaxmbd.arrays import frozen, is_known
from jaxmbd.checks import check_flags
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import AssemblyError, MechanismError, SolveError
from jaxmbd.integrate.formulations.formulation import Kinematic
from jaxmbd.integrate.formulations.newton_closure import (
    DeterminedCorrection,
    apply_correction,
    close_loops,
    consistent_speeds,
)
from jaxmbd.model.driver import Driver
from jaxmbd.model.joint.joint import AbstractJointWithCoordinates
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.mechanism.validation import count_position_rows
from jaxmbd.numerics.linear_solve import pivot_columns, rank_of
from jaxmbd.printing import count_of
from jaxmbd.state.result_codes import RESULTS, first_failure, invalidated, is_successful, raise_unless_successful
from jaxmbd.state.state import State, check_state

_SINGULAR = 1e-6  # share of the largest singular value below which the smallest one counts as zero
_LEAST_STEP = 1e-9  # share of the interval between two times
# A step is accepted if Newton's method corrects the prediction by less than this share of the step, plus this angle
# [rad] or this share of the unit of length that suits the mechanism.
_SHARE, _NEAR = 0.01, 1e-5

_Point = tuple[Array, Array, Array]  # t, q, v


def kinematics(mechanism: Mechanism, ts: Any, state: State | None = None, *, throw: bool = True) -> Solution:
    """Compute the motion of a mechanism that its drivers prescribe completely, and the loads that it requires.

    `Φ(q, t) = 0`,   `C v = −Φ_t`,   `C v̇ = γ`,   `Cᵀ λ = F − M v̇`

    Positions are computed one time after another: speeds and accelerations predict the next position, Newton's method
    corrects it, and the step is divided where the correction is too large. Speeds, accelerations and multipliers follow
    for all times at once. States of parts, such as the current of a motor, are taken as the steady ones at each time.

    **Arguments:** `ts`, increasing times `[s]`, `(times,)`; `state`, an assembled state at the first time, which
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
    state = assemble(mechanism, t=first_time(ts)) if state is None else state
    check_state(mechanism, state, "kinematics(mechanism, ts, state)")
    ts = check_times(ts, state)
    known = is_known(mechanism, state, ts)
    if throw and known:
        _check_drivers(*frozen((mechanism, state)))
    elif (missing := mechanism.nv - int(np.sum(~nonholonomic_rows(mechanism)))) > 0:
        raise MechanismError(f"{_too_few(mechanism, missing)} Or let forces move them: simulate(mechanism, state, ts).")
    solution = _motion(mechanism, jnp.asarray(ts), state, is_known(ts, state.t))
    if throw and known:
        _check_motion(frozen(solution))
    elif throw:
        of = lambda s: (s.q, s.integrated_speeds)  # noqa: E731
        solution = eqx.tree_at(of, solution, raise_unless_successful(of(solution), solution.result))
    return solution


@cached_on_disk
def _motion(mechanism: Mechanism, ts: Array, state: State, checked: bool) -> Solution:
    """Return the motion. `checked`: the values of the times are known and have been checked."""
    equations, q, v, inputs = Equations(mechanism), state.q, state.v, (mechanism, ts, state)
    rows, of_speeds = equations.scaled_jacobian(ts[0], q), nonholonomic_rows(mechanism)
    rank = rank_of(rows)
    positions = rank_of(rows[~of_speeds]) if of_speeds.any() else rank
    fixed, q, v, times = frozen((equations, q, v, ts))
    opposed = is_opposed(fixed.at(times[0], q).sides())
    q = close_loops(fixed, times[0], q, DeterminedCorrection())
    start = times[0], q, consistent_speeds(fixed.at(times[0], q), v, DeterminedCorrection())

    def follow(here: _Point, t: Array) -> tuple[_Point, tuple[Array, Array]]:
        _, q, v = _reach(fixed, here, t)
        return (t, q, v), (q, v)

    _, (qs, vs) = jax.lax.scan(follow, start, times)
    qs = jax.vmap(lambda t, q: equations.normalize(close_loops(equations, t, q, DeterminedCorrection())))(ts, qs)
    result = first_failure(
        (~is_successful(state.result), state.result),
        (jnp.zeros((), bool) if checked else ~times_are_valid(ts, state.t, None), RESULTS.times_invalid),
        (opposed, RESULTS.opposed),
        (positions < mechanism.nv, RESULTS.motion_undetermined),
        (~jnp.all(jnp.isfinite(qs)), RESULTS.position_not_reached),
    )
    ok = is_successful(result) | (result == RESULTS.position_not_reached) & jnp.all(jnp.isfinite(qs), axis=1)
    qs, vs = (invalidated(ok, x, inputs) for x in (qs, vs))
    zs = jax.vmap(lambda t, q, v: equations.at(t, q).steady_states(v))(ts, qs, vs)
    return Solution(mechanism, Kinematic(), ts, qs, vs, zs, {}, rank < equations.m, {}, result, rank)


def _reach(equations: Equations, here: _Point, end: Array) -> _Point:
    """Return time, position and speeds at `end`, continued from a closed position.

    Steps are so short that the prediction lies near the corrected position, since a longer step may lead to another
    assembly mode. The position is NaN if no step is short enough.
    """
    least_step = _LEAST_STEP * (end - here[0])

    def unfinished(carry: tuple[_Point, Array]) -> Array:
        (t, _, _), step = carry
        return (t < end) & (step > least_step)

    def advance(carry: tuple[_Point, Array]) -> tuple[_Point, Array]:
        (t, q, v), step = carry
        later = jnp.where(t + 1.5 * step > end, end, t + step)  # avoids a last step that is much shorter
        at, ahead = equations.at(t, q), later - t
        vdot = apply_correction(DeterminedCorrection(), at, at.gamma(v))
        predicted = at.advanced(v + 0.5 * ahead * vdot, ahead)
        corrected = close_loops(equations, later, predicted, DeterminedCorrection())
        changes = corrected - predicted, predicted - q
        correction, distance = (jnp.max(jnp.abs(x / equations.scales.coordinates)) for x in changes)
        speeds = consistent_speeds(equations.at(later, corrected), v + ahead * vdot, DeterminedCorrection())
        next_point, accepted = (later, corrected, speeds), correction <= _SHARE * distance + _NEAR
        return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), (next_point, 2 * step), (carry[0], step / 2))

    (t, q, v), _ = jax.lax.while_loop(unfinished, advance, (here, end - here[0]))
    return t, jnp.where(t < end, jnp.nan, q), v


def _check_drivers(mechanism: Mechanism, state: State) -> None:
    if opposed := opposed_text(sided_joints(mechanism), sides_at(mechanism, state.t, state.q)):
        raise AssemblyError(f"The state is not assembled. {opposed}")
    C = jacobian(mechanism, state.t, state.q)[~nonholonomic_rows(mechanism)]
    drivers = [driver.name for driver in mechanism.drivers]
    freedom = mechanism.nv - int(rank_of(jnp.asarray(C)))
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
    for repeat in redundancy(mechanism, state).repeats:
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
        if rank_of(jnp.asarray(more)) > rank_of(jnp.asarray(held)):
            held, proposed = more, [*proposed, name]
    dependent = np.asarray(pivot_columns(jnp.asarray(held)))
    return proposed, [name for name, is_held in zip(mechanism.variables, dependent, strict=True) if not is_held]


def _driver_list(drivers: list[str]) -> str:
    return f"{count_of(len(drivers), 'driver')} ({', '.join(map(repr, drivers)) or 'none'})"


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
    margins = np.asarray(solution.singularity_margin())
    if (margins < _SINGULAR).any():
        k = int(np.argmin(margins))
        _, names = singularity_margin(mechanism, solution.ts[k], solution.q[k], mechanism.nv)
        raise SolveError(
            f"The position at t = {ts[k]:.6g} s is singular: the rows of {', '.join(map(repr, names))} become "
            "dependent there, so that speeds and loads are not determined. Ask for other times (the motion passes "
            "through), change dimensions, or drive another coordinate; throw=False returns the motion as it is."
        )
