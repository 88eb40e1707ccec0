"""Inverse dynamics: the efforts of actuators, and all reactions, for a known motion."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.actuator_balance import ActuatorBalance, check_balance, configuration, largest_unbalanced
from jaxmbd.analyses.assembly.speed_solve import check_mass
from jaxmbd.analyses.events.changes import ForceChanges
from jaxmbd.analyses.kinematics import kinematics
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import Number, Scalar, as_float, frozen, is_concrete, is_known
from jaxmbd.checks import check_finite, check_mapping
from jaxmbd.engine import cached_on_disk
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.integrate.formulations.joint_loads import with_balanced_loads
from jaxmbd.model.driver import Driver
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.state.output_channels import Snapshot
from jaxmbd.state.result_codes import RESULTS, first_failure, invalidated, is_successful, raise_unless_successful
from jaxmbd.state.state import State


def inverse_dynamics(
    mechanism: Mechanism,
    motion: Any,
    actuators: Mapping[str, str] | None = None,
    *,
    weights: Mapping[str, Number] | None = None,
    throw: bool = True,
) -> Solution:
    """Compute the efforts that a motion requires, and the reactions in all joints.

    `Cᵀ λ + Gᵀ λ_a = F − M v̇`, with the multipliers `λ` of the joints and one multiplier `λ_a` for each actuator. The
    coordinate of an actuator has the rate `G v`, and its effort is `−λ_a`. If there are more actuators than degrees of
    freedom, the efforts `τ` minimise `Σ w τ²`. Reactions that are not unique are those of least norm.

    **Arguments:**

    - `motion`: times `[s]` at which the mechanism's drivers prescribe the complete motion (as in `kinematics`); a
      `MeasuredMotion`, of any set of coordinates that determines it; or a `Solution` of `kinematics` or `simulate` for
      a mechanism with the same coordinates;
    - `actuators`: the coordinates of joints or bodies along which efforts act, by names of your choice:
      `{"left": "A.angle", "right": "E.angle"}`. By default the drivers themselves, or the measured coordinates that
      were needed if there are no drivers; otherwise the drivers only define the motion and exert no effort;
    - `weights`: the weights `w` by the same names, one by default;
    - `throw=False`: raise no error of the motion. `solution.result` is then the verdict, and efforts and reactions are
      NaN at the times where forces remain unbalanced.

    **Returns:** a `Solution` in which the actuators are drivers: `effort(name)`, `reaction(joint)` and all channels.

    **Raises:** `MechanismError` for names that do not exist; `SolveError` if the actuators cannot produce the motion.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> driven = pendulum.with_parts([pl.Driver("motor", "O.angle", lambda t: 0.5 * t**2)])
        >>> efforts = mbd.inverse_dynamics(driven, np.linspace(0.0, 1.0, 11), {"push": "rod.y"})
        >>> print(efforts.effort("push")[::10].round(3))  # [N]
        [10.81  10.949]

    Source: Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems* (1989), §6.4; Nahon, Angeles, *Force
    optimization in redundantly-actuated closed kinematic chains* (1989).
    """
    check_mapping("weights", weights, "{'motor': 2.0}")
    motion, moved = motion_with_actuators("inverse_dynamics", mechanism, motion, actuators, throw)
    names = [driver.name for driver in moved.drivers]
    for name in weights or {}:
        check_known("actuator", [name], names)
        check_finite("weights", repr(name), as_float((weights or {})[name]))
    factors = jnp.stack([as_float((weights or {}).get(name, 1.0)) for name in names]) if names else jnp.zeros(0)
    if is_concrete(factors) and not (np.asarray(factors) > 0).all():
        raise MechanismError(f"weights must be greater than zero, got {dict(weights or {})}.")
    snapshots, left, limit, result = _efforts(moved, motion.snapshots(), factors, motion.result, motion.force_changes)
    if throw and is_known(motion.ts, left, limit):
        ts, left, limit = frozen((motion.ts, left, limit))
        check_balance(moved, np.asarray(ts), np.asarray(left), float(limit))
    elif throw:
        lam = raise_unless_successful(snapshots.lam, result)
        snapshots = eqx.tree_at(lambda s: s.lam, snapshots, lam)
    return eqx.tree_at(
        lambda s: (s.mechanism, s.computed, s.result), motion, (moved, snapshots, result),
        is_leaf=lambda x: x is None,
    )  # fmt: skip


def motion_with_actuators(
    caller: str, mechanism: Mechanism, motion: Any, actuators: Mapping[str, str] | None, throw: bool
) -> tuple[Solution, Mechanism]:
    """Return a motion, prescribed by the drivers if times are given, and the mechanism whose drivers are the actuators.

    **Raises:** `MechanismError`, as `inverse_dynamics`.
    """
    check_mechanism(mechanism)
    check_mapping("actuators", actuators, "{'motor': 'O.angle'}")
    if motion is None or isinstance(motion, State):
        raise MechanismError(
            "motion must be times [s] at which drivers prescribe the motion, a MeasuredMotion, or a Solution of "
            f"kinematics or simulate, got {'None' if motion is None else 'a State'}."
        )
    if not isinstance(motion, Solution):
        motion = kinematics(mechanism, motion, throw=throw)
    if motion.mechanism.coordinate_names != mechanism.coordinate_names:
        raise MechanismError("The motion belongs to another mechanism: its coordinates are not those of this one.")
    if throw:
        check_mass(mechanism, motion.q[0], motion.ts[0], caller)
    if actuators is not None:
        return motion, actuated(mechanism, actuators)
    return motion, mechanism if mechanism.drivers else motion.mechanism


def actuated(mechanism: Mechanism, actuators: Mapping[str, str]) -> Mechanism:
    """Return the mechanism, in the same coordinates, with a driver for each actuator in place of its own drivers.

    The motions of these drivers have no effect, since positions are known.
    """
    if not actuators:
        raise MechanismError("actuators must name at least one: {'motor': 'O.angle'}.")
    taken = {part.name for part in mechanism.parts()} - {driver.name for driver in mechanism.drivers}
    for name, coordinate in actuators.items():
        mechanism.coordinate(coordinate)
        if name in taken:
            raise MechanismError(f"The actuator {name!r} has the name of another part; give it a name of its own.")
    return mechanism.replaced(drivers=(Driver(name, coordinate, 0.0) for name, coordinate in actuators.items()))


@cached_on_disk
def _efforts(
    mechanism: Mechanism, motion: Snapshot, weights: Float[Array, " k"], result: RESULTS,
    changes: ForceChanges | None,
) -> tuple[Snapshot, Array, Scalar, RESULTS]:  # fmt: skip
    """Return the motion with the multipliers of all rows, NaN where forces remain unbalanced; these, without units of
    length, at each time, and the size up to which they count as balanced; and the verdict, from that on the motion."""

    def one(s: Snapshot) -> tuple[Snapshot, Array, Scalar]:
        at = configuration(mechanism, changes, s)
        balance = ActuatorBalance(at, weights)
        found_with = lambda equations: balance.of(equations.at(s.t, s.q), s)  # noqa: E731
        multipliers = lambda found: jnp.append(found.joints, found.actuators)  # noqa: E731
        equations = with_balanced_loads(at.equations, s.t, s.q, lambda e: multipliers(found_with(e)))
        found = found_with(equations)
        lam = multipliers(found)
        return Snapshot(s.t, s.q, s.v, s.vdot, lam, s.z), found.left, found.size

    snapshots, left, sizes = jax.vmap(one)(motion)
    limit = largest_unbalanced(left, sizes)
    balanced = jnp.max(jnp.abs(left), axis=1, initial=0.0) <= limit
    result = first_failure((~is_successful(result), result), (~jnp.all(balanced), RESULTS.motion_unbalanced))
    lam = invalidated(balanced, snapshots.lam, (mechanism, motion, weights))
    return eqx.tree_at(lambda s: s.lam, snapshots, lam), left, limit, result
