"""Generalized speeds `p` defined by the user (Kane): a further change of variables, `v = A(q, t) p + b(q, t)`."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.coordinates import AbstractCoordinates, AbstractPlacement, Twists
from jaxmbd.equations.groups import Group
from jaxmbd.equations.inertia import CoupledInertia
from jaxmbd.equations.sparse_coo import SparseMatrix, full
from jaxmbd.equations.spd_solve import symmetric
from jaxmbd.model.mechanism.generalized_speeds import GeneralizedSpeeds


class ChosenSpeeds(AbstractCoordinates):
    """The coordinates `base` with generalized speeds defined by the user."""

    base: AbstractCoordinates
    speeds: GeneralizedSpeeds

    def at(self, t: Scalar, q: Array) -> "ChosenPlacement":
        return ChosenPlacement(self, t, q)

    def normalize(self, q: Array) -> Array:
        return self.base.normalize(q)

    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        return self.base.measured(poses)


class ChosenPlacement(AbstractPlacement):
    """The kinematics of the bodies at one configuration, with generalized speeds `p`.

    The arguments `v` and `vdot` of the methods of `AbstractPlacement` are `p` and `ṗ` here.
    """

    def __init__(self, coordinates: ChosenSpeeds, t: Scalar, q: Array) -> None:
        self.base, self.coordinates = coordinates.base.at(t, q), coordinates
        self.t, self.q, self.frames = t, q, self.base.frames

    def base_speeds(self, p: Array) -> Array:
        """`v = A p + b`."""
        return self.coordinates.speeds.given(p, self.q, self.t)

    @cached_property
    def slope(self) -> Float[Array, "nv nv"]:
        """`A = ∂v/∂p`."""
        return self._slope(self.q, self.t)

    def _slope(self, q: Array, t: Scalar) -> Array:
        zero = jnp.zeros(len(self.coordinates.speeds.names), self.q.dtype)
        return jax.jacfwd(lambda p: self.coordinates.speeds.given(p, q, t))(zero)

    def _velocity_product(self, p: Array) -> Array:
        """`v̇` at constant `p`."""
        moving = (self.rate(p), jnp.ones_like(self.t))
        function = self.coordinates.speeds.given
        return jax.jvp(lambda q, t: function(p, q, t), (self.q, self.t), moving)[1]

    def poses(self) -> Float[Array, "bodies pose"]:
        return self.base.poses()

    def rate(self, v: Array) -> Array:
        return self.base.rate(self.base_speeds(v))

    def perturbed(self, step: Array) -> Array:
        return self.base.perturbed(self.slope @ step)

    def along(self, v: Array, s: Scalar) -> Array:
        return self.base.perturbed(s * self.base_speeds(v) + 0.5 * s * s * self._velocity_product(v))

    def twists(self, v: Array) -> Twists:
        return self.base.twists(self.base_speeds(v))

    def accelerations(self, v: Array, vdot: Array) -> Twists:
        return self.base.accelerations(self.base_speeds(v), self.slope @ vdot + self._velocity_product(v))

    def drift(self, v: Array) -> Twists:
        return self.accelerations(v, jnp.zeros_like(v))

    def loads(self, efforts: Twists) -> Array:
        return self.slope.T @ self.base.loads(efforts)

    def constraint_force_rate(self, v: Array, efforts: Twists) -> Array:
        slope_term = self._slope_rate(v).T @ self.base.loads(efforts)
        return self.slope.T @ self.base.constraint_force_rate(self.base_speeds(v), efforts) + slope_term

    def twist_rate(self, v: Array, u: Array) -> Twists:
        slope_term = self.base.twists(self._slope_rate(v) @ u)
        base_term = self.base.twist_rate(self.base_speeds(v), self.slope @ u)
        return slope_term if base_term is None else slope_term + base_term

    def _slope_rate(self, v: Array) -> Array:
        return jax.jvp(self._slope, (self.q, self.t), (self.rate(v), jnp.ones_like(self.t)))[1]

    def rows(self, groups: Sequence[Group], blocks: Sequence[Array]) -> SparseMatrix:
        return full(self.base.rows(groups, blocks).dense() @ self.slope)

    def inertia(self, parts: Any) -> CoupledInertia:
        return CoupledInertia(symmetric(self.slope.T @ self.base.inertia(parts).matrix() @ self.slope))

    def subtree_sum(self, wrenches: Float[Array, "bodies twist"]) -> Float[Array, "bodies twist"]:
        return self.base.subtree_sum(wrenches)
