"""The efforts of actuators and the reactions that balance given generalized forces.

`Cᵀ λ + Gᵀ λ_a = f`, with the multipliers `λ` of the joints and `λ_a` of the actuators, whose coordinates have the rates
`G v`: with the projection `P` onto the speeds that the joints allow, `(G P)ᵀ λ_a = P f`, and `λ` takes what is left. If
there are more actuators than degrees of freedom, the efforts minimise `Σ w λ_a²`; reactions are those of least norm.

Source: Nahon, Angeles, *Force optimization in redundantly-actuated closed kinematic chains* (1989).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.analyses.events.changes import ForceChanges, equations_at
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import tolerance_of_rank
from jaxmbd.state.output_channels import Snapshot


def configuration(mechanism: Mechanism, changes: ForceChanges | None, at: Snapshot) -> Configuration:
    """The equations of a mechanism at one instant of a motion."""
    return equations_at(Equations(mechanism), changes, at.t).with_own_states(at.z).at(at.t, at.q)


def required(at: Configuration, motion: Snapshot) -> Float[Array, " nv"]:
    """`F − M v̇`, which joints and actuators have to balance."""
    return at.force(motion.v) - at.inertia.times(motion.vdot)


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
        # Without rows JAX's second derivative of `pinv` fails.
        self._inverse = jnp.linalg.pinv(self.C, rtol=rank) if joints else jnp.zeros(self.C.shape[::-1], self.C.dtype)
        projection = jnp.eye(self.C.shape[1], dtype=self.C.dtype) - self._inverse @ self.C
        scale = 1 / jnp.sqrt(weights)
        self._balancing = scale[:, None] * (
            jnp.linalg.pinv((scale[:, None] * self.G) @ projection, rtol=rank).T @ projection
        )

    def actuators(self, forces: Float[Array, "nv *more"]) -> Float[Array, "count *more"]:
        """`λ_a` for `f`, given with lengths in the mechanism's unit, `speeds · f`."""
        return self._balancing @ forces

    def joints(self, forces: Float[Array, " nv"], actuators: Float[Array, " count"]) -> Float[Array, " rows"]:
        """`λ`, with lengths in the mechanism's unit."""
        return self._inverse.T @ (forces - self.G.T @ actuators)

    def left(self, forces: Float[Array, " nv"], joints: Array, actuators: Array) -> Float[Array, " nv"]:
        """What remains of `f` unbalanced."""
        return forces - self.C.T @ joints - self.G.T @ actuators
