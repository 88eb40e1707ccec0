"""Inverse dynamics: the efforts of actuators, and all reactions, for a motion that is known."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.kinematics import kinematics
from jaxmbd.analyses.output_channels import Snapshot
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.state import State
from jaxmbd.arrays import Number, as_float, is_concrete
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.rank import tolerance_of_rank
from jaxmbd.errors import MechanismError, SolveError, unknown
from jaxmbd.model.body.checks import check_finite, check_mapping
from jaxmbd.model.driver.driver import Driver
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism

_UNBALANCED = 1e-7  # of the largest generalized force: what actuators leave over of it


def inverse_dynamics(
    mechanism: Mechanism,
    motion: Any,
    actuators: Mapping[str, str] | None = None,
    *,
    weights: Mapping[str, Number] | None = None,
    throw: bool = True,
) -> Solution:
    """The efforts that a motion takes, and the reactions in all joints.

    `Cᵀ λ + Gᵀ λ_a = F − M v̇`: λ of the joints, and one `λ_a` for each actuator, whose coordinate changes by `G v`; its
    effort is `−λ_a`. Where there are more actuators than degrees of freedom, of all efforts `τ` that will do those with
    the least `Σ w τ²`; reactions that are not unique are those of least norm.

    **Arguments:**

    - `motion`: times `[s]` at which the mechanism's drivers prescribe all of the motion (as in `kinematics`), or a
      `Solution` of `kinematics` or `simulate`, of a mechanism with the same coordinates. Measured motions: drivers
      that follow `SmoothingSpline(ts, values)`;
    - `actuators`: what exerts the efforts, by names of your choice: `{"left": "A.angle", "right": "E.angle"}`,
      coordinates of joints or bodies. The drivers themselves unless given; if given, the drivers tell the motion and
      exert nothing;
    - `weights`: w by the same names, one unless given.

    **Returns:** a `Solution` in which the actuators are drivers: `effort(name)`, `reaction(joint)` and all else.

    **Raises:** `MechanismError` for names that do not exist; `SolveError` if the actuators cannot produce the motion.

    Source: Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems* (1989), §6.4; Nahon, Angeles, *Force
    optimization in redundantly-actuated closed kinematic chains* (1989).
    """
    check_mechanism(mechanism)
    check_mapping("actuators", actuators, "{'motor': 'O.angle'}")
    check_mapping("weights", weights, "{'motor': 2.0}")
    if motion is None or isinstance(motion, State):
        raise MechanismError(
            "motion must be times [s] at which drivers prescribe the motion, or a Solution of kinematics or simulate, "
            f"got {'None' if motion is None else 'a State'}."
        )
    if not isinstance(motion, Solution):
        motion = kinematics(mechanism, motion, throw=throw)
    if motion.mechanism.coordinate_names != mechanism.coordinate_names:
        raise MechanismError("The motion belongs to another mechanism: its coordinates are not those of this one.")
    moved = mechanism if actuators is None else _actuated(mechanism, actuators)
    names = [driver.name for driver in moved.drivers]
    for name in weights or {}:
        if name not in names:
            raise unknown("actuator", name, names)
        check_finite("weights", repr(name), as_float((weights or {})[name]))
    factors = jnp.stack([as_float((weights or {}).get(name, 1.0)) for name in names]) if names else jnp.zeros(0)
    if is_concrete(factors) and not (np.asarray(factors) > 0).all():
        raise MechanismError(f"weights must be greater than zero, got {dict(weights or {})}.")
    found, missing = _efforts(moved, motion.snapshots(), factors)
    limit = _UNBALANCED * (1 + jnp.max(jnp.abs(found.lam), initial=0.0))
    if throw and is_concrete(missing, limit):
        _check_balance(moved, np.asarray(motion.ts), np.asarray(missing), float(limit))
    elif throw:
        text = "Inverse dynamics failed: the actuators cannot produce the motion."
        found = eqx.tree_at(lambda s: s.lam, found, eqx.error_if(found.lam, jnp.max(jnp.abs(missing)) > limit, text))
    return eqx.tree_at(lambda s: (s.mechanism, s.found), motion, (moved, found), is_leaf=lambda x: x is None)


def _actuated(mechanism: Mechanism, actuators: Mapping[str, str]) -> Mechanism:
    """The mechanism, in the same coordinates, with a driver for each actuator. How these would move it does not matter,
    as positions are known."""
    if not actuators:
        raise MechanismError("actuators must name at least one: {'motor': 'O.angle'}.")
    taken = {part.name for part in mechanism.parts()} - {driver.name for driver in mechanism.drivers}
    for name, coordinate in actuators.items():
        mechanism.coordinate(coordinate)
        if name in taken:
            raise MechanismError(f"The actuator {name!r} has the name of another part; give it a name of its own.")
    return mechanism.replaced(drivers=(Driver(name, coordinate, 0.0) for name, coordinate in actuators.items()))


@cached_on_disk
def _efforts(mechanism: Mechanism, motion: Snapshot, weights: Float[Array, " k"]) -> tuple[Snapshot, Array]:
    """The motion with `λ` of all rows, and the generalized forces that are left over, at each time."""
    equations, k = Equations(mechanism), len(weights)

    def one(s: Snapshot) -> tuple[Snapshot, Array]:
        at = equations.at(s.t, s.q)
        wanted = at.force(s.v) - at.inertia.times(s.vdot)
        C, G = at.jacobian[: equations.m - k], at.jacobian[equations.m - k :]
        rank = tolerance_of_rank(C.dtype)
        # Without rows there is nothing to invert, and JAX's second derivative of `pinv` fails.
        inverse = jnp.linalg.pinv(C, rtol=rank) if len(C) else jnp.zeros(C.shape[::-1], C.dtype)
        moves = jnp.eye(C.shape[1], dtype=C.dtype) - inverse @ C  # onto speeds that joints allow
        scale = 1 / jnp.sqrt(weights)
        of_actuators = scale * (jnp.linalg.pinv((scale[:, None] * G) @ moves, rtol=rank).T @ (moves @ wanted))
        lam = jnp.append(inverse.T @ (wanted - G.T @ of_actuators), of_actuators)
        return Snapshot(s.t, s.q, s.v, s.vdot, lam), wanted - at.jacobian.T @ lam

    return jax.vmap(one)(motion)


def _check_balance(mechanism: Mechanism, ts: np.ndarray, missing: np.ndarray, limit: float) -> None:
    if np.abs(missing).max(initial=0.0) <= limit:
        return
    k, i = np.unravel_index(np.abs(missing).argmax(), missing.shape)
    actuators = ", ".join(f"{driver.name!r} along {driver.coordinate!r}" for driver in mechanism.drivers) or "none"
    raise SolveError(
        f"The actuators ({actuators}) cannot produce this motion: at t = {ts[k]:.6g} s a generalized force of "
        f"{abs(missing[k, i]):.3g} along {mechanism.variables[i]!r} is left unbalanced. Add an actuator that moves "
        "this variable, or simulate the mechanism with the driven coordinates prescribed: the others then move freely."
    )
