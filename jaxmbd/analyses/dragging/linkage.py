"""`Linkage`: all that a position after a small step is asked for, by one program that runs in a tenth of a millisecond.

What is found in each frame of a screen cannot wait for a compiler, and a call through JAX would take longer than what
it computes. So the constraints, their Jacobian, the poses of all frames with theirs, and the coordinates of joints are
one program, whose numbers, those of the mechanism among them, are arrays of NumPy.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.sides import is_opposed
from jaxmbd.arrays import Scalar, frozen
from jaxmbd.engine import as_program, steady_call
from jaxmbd.equations.equations import Equations
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism


class Position(NamedTuple):
    """A position of a mechanism, and how it changes along the speeds; steps, rows and coordinates have no units.

    `q (nq,)`; `rows (m,)`, the residual of the constraints, with its Jacobian `C (m, nv)`; `poses (frames, pose)` of
    the bodies, and of the sites and pieces of flexible ones, with the twists `(frames, twist, nv)` of unit steps [m,
    rad; rotations in the axes of the frame]; `coordinates (k,)` [m, rad] of joints, with `rates (k, nv)`; `is_right`:
    False if the axes of a joint point against each other.
    """

    q: np.ndarray
    rows: np.ndarray
    C: np.ndarray
    poses: np.ndarray
    twists: np.ndarray
    coordinates: np.ndarray
    rates: np.ndarray
    is_right: bool

    @property
    def miss(self) -> float:
        """The largest residual of a constraint."""
        return float(np.abs(self.rows).max(initial=0.0))


def joint_coordinates(mechanism: Mechanism) -> tuple[str, ...]:
    """The names of all coordinates of joints."""
    joints = [joint for joint in mechanism.joints if isinstance(joint, AbstractJoint)]
    return tuple(f"{joint.name}.{name}" for joint in joints for name in joint.coordinate_names)


class Linkage:
    """The constraints of a mechanism without drivers at a time `t` [s], for numbers that may change.

    `names`: those of the coordinates of its joints, with their `sizes` and whether each `is_angle`; `length`: the unit
    of length [m]; `numbers`: the arrays of the mechanism, and the time, with which its programs begin.
    """

    def __init__(self, mechanism: Mechanism, t: float, q: Float[np.ndarray, " nq"]) -> None:
        self.t, self.names = t, joint_coordinates(mechanism)
        scales = Equations(mechanism).scales
        self.length, self.speeds, self.scales = (np.asarray(x) for x in (scales.length, scales.speeds, scales.rows))
        units = [mechanism.coordinate(name).unit(mechanism.space) for name in self.names]
        self.sizes = np.where(np.array(units) == "rad", 1.0, float(self.length))
        self.is_angle = np.array(units) == "rad"
        arguments = (mechanism, *map(jnp.asarray, (t, q, np.zeros(mechanism.nv))), self.names)
        self._run = steady_call(_position, *arguments)
        self.set(mechanism)

    def set(self, mechanism: Mechanism) -> None:
        """Take the numbers of a mechanism that differs in these alone."""
        self.mechanism = mechanism
        arrays = [np.asarray(x) for x in jax.tree.leaves(frozen(mechanism)) if eqx.is_array(x)]
        self.numbers = [*arrays, np.asarray(self.t)]

    def at(self, q: Float[np.ndarray, " nq"], step: Float[np.ndarray, " nv"] | None = None) -> Position:
        """The position after a step, without units, from coordinates."""
        moved = np.zeros(len(self.speeds)) if step is None else self.speeds * step
        with np.errstate(all="ignore"):
            q, rows, C, poses, twists, values, rates, is_wrong = self._run([*self.numbers, np.asarray(q), moved])
        return Position(
            q, rows / self.scales, C * self.speeds / self.scales[:, None], poses, twists * self.speeds, values,
            rates * self.speeds, not bool(is_wrong),
        )  # fmt: skip


def _position(mechanism: Mechanism, t: Scalar, q: Array, step: Array, names: tuple[str, ...]) -> tuple[Array, ...]:
    return as_program(_position_after)(mechanism, t, q, step, names)


def _position_after(
    mechanism: Mechanism, t: Scalar, q: Array, step: Array, names: tuple[str, ...]
) -> tuple[Array, ...]:
    equations = Equations(mechanism)
    q = equations.at(t, q).perturbed(step)
    at, still = equations.at(t, q), jnp.zeros(mechanism.nv, q.dtype)
    poses = jax.vmap(mechanism.space.pose)(jax.tree.map(lambda x: x[:-1], at.placement.frames))  # without the ground
    values = [at.coordinate(name, still)[0] for name in names]
    rates = [jax.jacfwd(lambda v, name=name: at.coordinate(name, v)[1])(still) for name in names]
    return (
        q,
        at.position(),
        at.jacobian,
        poses,
        jax.jacfwd(at.twists)(still),
        jnp.stack(values) if values else still[:0],
        jnp.stack(rates) if rates else still[None][:0],
        is_opposed(at.sides()),
    )
