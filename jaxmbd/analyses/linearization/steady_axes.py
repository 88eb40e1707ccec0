"""Coordinates in which the matrices of the small motions are constant along a motion, as far as there are such.

Frozen coefficients describe the small motions about a trajectory exactly if they are constant. Whether they are depends
on the coordinates, so several choices are compared, in one order for both kinds of coordinates: angular velocities
about world axes, those about the axes of bodies, and the coordinates of joints.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.linearization.independent_coordinates import (
    IndependentCoordinates,
    choose,
    own_angular,
    turning_rates,
)
from jaxmbd.analyses.linearization.linearized_dynamics import Input, LinearizedMatrices, linearized, sizes_of
from jaxmbd.arrays import Scalar, frozen
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.flexible import own_coordinates
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.state.state import State

_STEP = 1e-3  # [rad, units of length]: the motion between the two instants whose matrices are compared
_MOVING = 1e-6  # [rad, units of length] in a unit of time: slower states count as resting
_LESS = 0.1  # other coordinates are chosen if the matrix changes by less than this share of its change before
_NONE = 1e-9  # share of the largest entry: smaller changes count as zero
_CONSTANT = 2.0**7  # units of rounding of the largest entry: smaller changes of the matrix count as errors

Choice = tuple[IndependentCoordinates, LinearizedMatrices]


def with_constant_matrices(
    mechanism: Mechanism, state: State, choice: IndependentCoordinates, matrices: LinearizedMatrices,
    inputs: tuple[Input, ...], outputs: tuple[str, ...],
) -> tuple[IndependentCoordinates, LinearizedMatrices, bool]:  # fmt: skip
    """Return a choice in which the matrices are constant, with its matrices; and whether there is one.

    An asymmetric body that spins freely has constant matrices in its own axes, a wheel that rolls straight ahead in
    world axes, a governor in the coordinates of its joints. If there is none, axes that turn are refused: their
    eigenvalues of the instant are not those of the motion.
    """
    fixed, scales = frozen((mechanism, state)), Scales(frozen(mechanism))
    fastest = float(np.abs(np.asarray(fixed[1].v) / np.asarray(scales.speeds)).max(initial=0.0))
    rates = turning_rates(mechanism, fixed[1].v)
    turning = [name for name in choice.places if name in rates]
    if fastest * float(scales.time) <= _MOVING:
        return choice, matrices, True
    time = _STEP / max([fastest, *rates.values()])
    constant = _NONE + _CONSTANT * float(jnp.finfo(state.q.dtype).eps)

    def change(choice: IndependentCoordinates, here: LinearizedMatrices) -> float:
        """Return the change of the matrix of the small motions after `time`, as a share of its largest entry."""
        (mechanism, state), here = fixed, frozen(here)
        q, v = _advanced(mechanism, state.t, here.q, here.v, here.vdot, jnp.asarray(time))
        later = linearized(mechanism, state.t + time, q, v, state.z, choice, inputs, outputs)
        size = sizes_of(here.A, here.mass, choice)
        before, after = (np.asarray(x.A * size[None, :] / size[:, None]) for x in (here, later))
        return float(np.abs(after - before).max() / np.abs(before).max())

    def of(other: IndependentCoordinates, q: Array) -> Choice:
        return other, linearized(mechanism, state.t, q, state.v, state.z, other, inputs, outputs)

    by_world, about_world = np.inf, (choice, matrices)
    if turning:
        owners = {name.rpartition(".")[0] for name in turning}
        others = [name for name in own_angular(mechanism) if name.rpartition(".")[0] in owners]
        about_world = of(*choose(fixed[0], fixed[1], None, others))
        by_world = change(*about_world)
    if by_world <= constant:
        return *about_world, True
    own = change(choice, matrices)
    if own <= constant:
        return choice, matrices, True
    if by_world + _NONE < _LESS * own:
        return *about_world, False
    names = _of_joints(*fixed)
    if names is not None:
        of_joints = of(*choose(fixed[0], fixed[1], names))
        by_joints = change(*of_joints)
        if by_joints <= constant or not turning:
            return *of_joints, by_joints <= constant
    if turning:
        raise MechanismError(_turning_text(mechanism, choice, {name: rates[name] for name in turning}))
    return choice, matrices, False


@cached_on_disk
def _advanced(
    mechanism: Mechanism, t: Scalar, q: Array, v: Array, vdot: Array, duration: Scalar
) -> tuple[Array, Array]:
    """Return coordinates and speeds after a while with constant accelerations."""
    return Equations(mechanism).at(t, q).advanced(v + 0.5 * duration * vdot, duration), v + duration * vdot


def _of_joints(mechanism: Mechanism, state: State) -> tuple[str, ...] | None:
    """Return the independent coordinates that a mechanism in absolute coordinates would have in joint coordinates.

    None if it is in those already, or if they cannot be named in absolute ones (a ball joint has no angles).
    """
    if mechanism.coordinates == "joint" or mechanism.speeds is not None:
        return None
    other = mechanism.with_coordinates("joint")
    place = {name: k for k, name in enumerate(mechanism.coordinate_names)}
    turns = state.q[np.asarray([place[name] for name in other.turns], int)]
    q, v = _in_joint_coordinates(other, state.t, state.q[: len(mechanism.tree.coordinates)], turns, state.v)
    try:
        names = choose(other, State(state.t, q, v, other.layout), None)[0].speeds
        choice = choose(mechanism, state, names)[0]
    except MechanismError:
        return None
    return None if any(name in turning_rates(mechanism, state.v) for name in choice.places) else names


@cached_on_disk
def _in_joint_coordinates(
    mechanism: Mechanism, t: Scalar, absolute: Array, turns: Array, speeds: Array
) -> tuple[Array, Array]:
    """Return coordinates and speeds of a mechanism in joint coordinates from its absolute ones."""
    equations, bodies, own = Equations(mechanism), len(mechanism.bodies), len(own_coordinates(mechanism.bodies))
    poses, eta = jnp.split(absolute, [len(absolute) - own])
    measured = equations.coordinates.measured(poses.reshape(bodies, -1))
    q = jnp.concatenate([measured[: len(measured) - own], eta, turns])
    nv = mechanism.nv
    moved = lambda v: jnp.append(equations.at(t, q).twists(v)[:bodies].reshape(-1), v[nv - own :])  # noqa: E731
    J = jax.jacfwd(moved)(jnp.zeros(nv, q.dtype))
    return q, jnp.linalg.lstsq(J, speeds)[0]


def _turning_text(mechanism: Mechanism, choice: IndependentCoordinates, rates: dict[str, float]) -> str:
    """Return the message for an automatic choice that cannot avoid axes that turn with the bodies."""
    parts = {body.name: (body.name,) for body in mechanism.bodies}
    parts |= {joint.name: tuple(marker.body for marker in joint.markers) for joint in mechanism.tree_joints()}
    bodies = dict.fromkeys(body for name in rates for body in parts[name.rpartition(".")[0]] if body != GROUND)
    turning = ", ".join(f"{name!r} ({rate:.3g} rad/s)" for name, rate in rates.items())
    joint = "If a joint carries the spin, take joint coordinates (coordinates='joint'), which have its angle. Or name"
    return (
        f"linearize: no choice of independent coordinates avoids axes that turn with {', '.join(map(repr, bodies))}: "
        f"{turning}. The matrices change along the motion, and eigenvalues with frozen axes are not those of the "
        f"motion. {joint if mechanism.coordinates == 'absolute' else 'Name'} the coordinates, "
        f"independent={list(choice.speeds)!r}: the matrices are then those of the instant."
    )
