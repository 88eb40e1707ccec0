"""The efforts of actuators and the reactions that balance given generalized forces.

`Cᵀ λ + Gᵀ λ_a = f`, with the multipliers `λ` of the joints and `λ_a` of the actuators, whose coordinates have the rates
`G v`: with the projection `P` onto the speeds that the joints allow, `(G P)ᵀ λ_a = P f`, and `λ` takes what is left. If
there are more actuators than degrees of freedom, the efforts minimise `Σ w λ_a²`; reactions are those of least norm.

Source: Nahon, Angeles, *Force optimization in redundantly-actuated closed kinematic chains* (1989).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.events.changes import ForceChanges, equations_at
from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.errors import SolveError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.numerics.linear_solve import inverse_and_projection, tolerance_of_rank
from jaxmbd.state.output_channels import Snapshot

# Share of the largest generalized force that may remain unbalanced, with lengths in the mechanism's unit; in units of
# rounding, in single precision.
_UNBALANCED, _ROUNDING = 1e-7, 1e2


def configuration(mechanism: Mechanism, changes: ForceChanges | None, at: Snapshot) -> Configuration:
    """The equations of a mechanism at one instant of a motion."""
    return equations_at(Equations(mechanism), changes, at.t).with_own_states(at.z).at(at.t, at.q)


class Balanced(NamedTuple):
    """The multipliers of the joints and actuators at one instant; what they leave unbalanced, with lengths in the
    mechanism's unit, and the largest of the forces that take part."""

    joints: Float[Array, " rows"]
    actuators: Float[Array, " count"]
    left: Float[Array, " nv"]
    size: Scalar


class ActuatorBalance:
    """The balance at one configuration, whose last `count` constraint rows are those of the actuators.

    Lengths are in the mechanism's unit: neither ranks nor reactions of least norm then depend on its size. Efforts keep
    their units, since the weights belong to them.
    """

    def __init__(self, at: Configuration, weights: Float[Array, " count"]) -> None:
        scales, joints = at.equations.scales, at.equations.m - len(weights)
        self.speeds, self.rows = jnp.asarray(scales.speeds), jnp.asarray(scales.rows[:joints])
        self.C, self.G = (self.speeds[None] * part for part in (at.jacobian[:joints], at.jacobian[joints:]))
        self.C = self.C / self.rows[:, None]
        rank = tolerance_of_rank(self.C.dtype)
        self._inverse, projection = inverse_and_projection(self.C)
        scale = 1 / jnp.sqrt(weights)
        self._balancing = scale[:, None] * (
            jnp.linalg.pinv((scale[:, None] * self.G) @ projection, rtol=rank).T @ projection
        )

    def actuators(self, forces: Float[Array, "nv *more"]) -> Float[Array, "count *more"]:
        """`λ_a` for generalized forces `f`."""
        speeds = self.speeds.reshape(-1, *(1,) * (forces.ndim - 1))
        return self._balancing @ (speeds * forces)

    def of(self, at: Configuration, motion: Snapshot) -> Balanced:
        """The balance of `f = F − M v̇` along a motion."""
        applied, inertial = self.speeds * at.force(motion.v), self.speeds * at.inertia.times(motion.vdot)
        forces, scales = applied - inertial, at.equations.scales
        actuators = self._balancing @ forces
        joints = self._inverse.T @ (forces - self.G.T @ actuators)
        left = forces - self.C.T @ joints - self.G.T @ actuators
        usual = jnp.sum(at.equations.parts.masses) * (scales.length / scales.time) ** 2
        taking_part = jnp.concatenate([applied, inertial, joints, self.G.T @ actuators])
        return Balanced(joints / self.rows, actuators, left, usual + jnp.max(jnp.abs(taking_part)))


def largest_unbalanced(left: Float[Array, "times nv"], sizes: Float[Array, " times"]) -> Scalar:
    """The size up to which forces that are left count as balanced, over a motion."""
    share = max(_UNBALANCED, _ROUNDING * float(jnp.finfo(left.dtype).eps))
    return share * jnp.nanmax(sizes, initial=0.0)  # of the times that were reached


def check_balance(mechanism: Mechanism, ts: np.ndarray, unbalanced: np.ndarray, limit: float) -> None:
    """Raise if forces are left unbalanced; the drivers of the mechanism are the actuators."""
    if np.abs(unbalanced).max(initial=0.0) <= limit:
        return
    k, i = np.unravel_index(np.abs(unbalanced).argmax(), unbalanced.shape)
    force = abs(unbalanced[k, i]) / Scales(mechanism).speeds[i]
    actuators = ", ".join(f"{driver.name!r} along {driver.coordinate!r}" for driver in mechanism.drivers) or "none"
    raise SolveError(
        f"The actuators ({actuators}) cannot produce this motion: at t = {ts[k]:.6g} s a generalized force of "
        f"{force:.3g} along {mechanism.variables[i]!r} is left unbalanced. Add an actuator that moves "
        "this variable, or simulate the mechanism with the driven coordinates prescribed: the others then move freely."
    )
