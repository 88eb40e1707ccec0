"""Coordinates as a change of variables: from `q` and `v` to the frames, twists and accelerations of the bodies.

With `V = J(q) v` and `V̇ = J v̇ + a(q, v)`, the body quantities `M_b`, `W`, `C_b`, `γ_b` become `M = Jᵀ M_b J`,
`F = Jᵀ (W − M_b a)`, `C = C_b J`, `γ = γ_b − C_b a`. In absolute coordinates `J` is the identity. Generalized speeds
`p` defined by the user (Kane) are a further change of variables, `v = A(q, t) p + b(q, t)`.
"""

import abc
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Scalar, at_rows
from jaxmbd.equations.constraint_kinematics import ConstraintBodyTerms
from jaxmbd.equations.inertia import AbstractInertia, BodyInertia, CoupledInertia
from jaxmbd.model.mechanism.named_coordinates import GeneralizedSpeeds
from jaxmbd.numerics.linear_solve import symmetric
from jaxmbd.numerics.sparse_matrices import SparseMatrix, full, summed
from jaxmbd.space.space import AbstractFrame, AbstractSpace

Twists = Float[Array, "frames twist"]  # of the bodies, then of the sites and pieces of flexible ones


class AbstractPlacement(abc.ABC):
    """The kinematics of the bodies at one configuration; common subexpressions are evaluated once."""

    frames: AbstractFrame  # stacked: of the bodies, of the sites and pieces of flexible ones, last of the ground

    @abc.abstractmethod
    def poses(self) -> Float[Array, "bodies pose"]:
        """The poses of the bodies."""

    @abc.abstractmethod
    def rate(self, v: Array) -> Array:
        """`q̇`, without the pull."""

    @abc.abstractmethod
    def pull(self) -> Array:
        """The rate of the coordinates at which errors of quaternions' norms decay at 1/s."""

    @abc.abstractmethod
    def perturbed(self, step: Array) -> Array:
        """The coordinates after a `step` (speeds times a time), exact to second order."""

    @abc.abstractmethod
    def along(self, v: Array, s: Scalar) -> Array:
        """The coordinates after a time `s` at constant `v`, exact to second order."""

    @abc.abstractmethod
    def twists(self, v: Array) -> Twists:
        """`V = J v`."""

    @abc.abstractmethod
    def accelerations(self, v: Array, vdot: Array) -> Twists:
        """`V̇ = J v̇ + a`."""

    @abc.abstractmethod
    def drift(self, v: Array) -> Twists | None:
        """The velocity-product acceleration `a`, that is `V̇` at constant `v`; None if it is identically zero."""

    @abc.abstractmethod
    def loads(self, efforts: Twists) -> Array:
        """`Jᵀ f`: the generalized forces of `efforts` on the bodies."""

    @abc.abstractmethod
    def loads_rate(self, v: Array, efforts: Twists) -> Array:
        """`J̇ᵀ f` along the motion."""

    @abc.abstractmethod
    def twist_rate(self, v: Array, u: Array) -> Twists | None:
        """`J̇ u` along the motion; None if it is identically zero."""

    @abc.abstractmethod
    def rows(self, terms: ConstraintBodyTerms) -> SparseMatrix:
        """The local constraint rows `C_b J`, from the nonzero blocks of `C_b`."""

    @abc.abstractmethod
    def inertia(self, parts: PyTree) -> AbstractInertia:
        """`M = Jᵀ M_b J`; `parts` are the inertia data of the bodies and pieces (`AbstractSpace.inertia`),
        stacked."""

    def own_loads(self, v: Array) -> Array | None:
        """The generalized forces of strain and damping of flexible bodies; None if there are none."""
        return None

    def own_momenta(self, v: Array) -> Array | None:
        """The momenta of flexible bodies beside those of their pieces; None if there are none."""
        return None

    def strain_energy(self) -> Scalar | None:
        """The strain energy [J] of flexible bodies; None if there are none."""
        return None

    def own_kinetic_energy(self, v: Array) -> Scalar | None:
        """The kinetic energy [J] of flexible bodies beside that of their pieces; None if there are none."""
        return None

    @abc.abstractmethod
    def joint_axes(self) -> Float[Array, "speeds twist"]:
        """The axes of the tree joints: relative spatial velocity at the world's origin, per unit of each speed."""

    @abc.abstractmethod
    def subtree_sum(self, wrenches: Float[Array, "frames twist"]) -> Float[Array, "bodies twist"]:
        """Sum of wrenches over each body's subtree; all wrenches are about the world's origin."""


class AbstractCoordinates(eqx.Module):
    """A choice of coordinates `q` (without the integrated joint angles) and speeds `v` for the bodies."""

    @abc.abstractmethod
    def at(self, t: Scalar, q: Array) -> AbstractPlacement:
        """The kinematics of the bodies at time `t` and coordinates `q`."""

    @abc.abstractmethod
    def normalize(self, q: Array) -> Array:
        """The same configuration with quaternions of unit norm."""

    @abc.abstractmethod
    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        """The coordinates of bodies at the given poses; where a joint is open, the ones that fit its markers best."""


class AbsoluteCoordinates(AbstractCoordinates):
    """Absolute coordinates: the poses and twists of the bodies."""

    space: AbstractSpace
    bodies: int = eqx.field(static=True)

    def at(self, t: Scalar, q: Array) -> "AbsolutePlacement":
        return AbsolutePlacement(self.space, q.reshape(self.bodies, -1))

    def normalize(self, q: Array) -> Array:
        return jax.vmap(self.space.normalize)(q.reshape(self.bodies, -1)).reshape(-1)

    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        return poses.reshape(-1)


class AbsolutePlacement(AbstractPlacement):
    """The kinematics of bodies described by their poses: `J` is the identity."""

    def __init__(self, space: AbstractSpace, poses: Float[Array, "bodies pose"]) -> None:
        self.space, self._poses = space, poses
        ground = jnp.asarray(space.rest, poses.dtype)
        self.frames = jax.vmap(space.place)(jnp.concatenate([poses, ground[None]]))

    def rate(self, v: Array) -> Array:
        return jax.vmap(self.space.rate)(self._poses, self.twists(v)).reshape(-1)

    def pull(self) -> Array:
        return jax.vmap(self.space.pull)(self._poses).reshape(-1)

    def perturbed(self, step: Array) -> Array:
        return jax.vmap(self.space.retract)(self._poses, self.twists(step)).reshape(-1)

    def along(self, v: Array, s: Scalar) -> Array:
        return self.perturbed(s * v)

    def poses(self) -> Float[Array, "bodies pose"]:
        return self._poses

    def twists(self, v: Array) -> Twists:
        return v.reshape(len(self._poses), -1)

    def accelerations(self, v: Array, vdot: Array) -> Twists:
        return self.twists(vdot)

    def drift(self, v: Array) -> None:
        return None

    def loads(self, efforts: Twists) -> Array:
        return efforts.reshape(-1)

    def loads_rate(self, v: Array, efforts: Twists) -> Array:
        return jnp.zeros_like(v)

    def twist_rate(self, v: Array, u: Array) -> None:
        return None

    def rows(self, terms: ConstraintBodyTerms) -> SparseMatrix:
        on_bodies, width = np.flatnonzero(terms.body < len(self._poses)), terms.values.shape[1]
        columns = terms.body[on_bodies, None] * width + np.arange(width)
        rows = np.broadcast_to(terms.row[on_bodies, None], columns.shape)
        shape = terms.m, len(self._poses) * width
        return summed(at_rows(terms.values, on_bodies).reshape(-1), rows.reshape(-1), columns.reshape(-1), shape)

    def inertia(self, parts: PyTree) -> BodyInertia:
        return BodyInertia(self.space, parts)

    def joint_axes(self) -> Float[Array, "0 twist"]:
        return jnp.zeros((0, len(self.space.speeds)), self.frames.position.dtype)

    def subtree_sum(self, wrenches: Float[Array, "bodies twist"]) -> Float[Array, "bodies twist"]:
        return wrenches


class CoordinatesWithSpeeds(AbstractCoordinates):
    """The coordinates `base` with generalized speeds defined by the user."""

    base: AbstractCoordinates
    speeds: GeneralizedSpeeds

    def at(self, t: Scalar, q: Array) -> "PlacementWithSpeeds":
        return PlacementWithSpeeds(self, t, q)

    def normalize(self, q: Array) -> Array:
        return self.base.normalize(q)

    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        return self.base.measured(poses)


class PlacementWithSpeeds(AbstractPlacement):
    """The kinematics of the bodies at one configuration, with generalized speeds `p`.

    The arguments `v` and `vdot` of the methods of `AbstractPlacement` are `p` and `ṗ` here.
    """

    def __init__(self, coordinates: CoordinatesWithSpeeds, t: Scalar, q: Array) -> None:
        self.base, self.coordinates = coordinates.base.at(t, q), coordinates
        self.t, self.q, self.frames = t, q, self.base.frames

    def base_speeds(self, p: Array) -> Array:
        """`v = A p + b`."""
        return self.coordinates.speeds.given(self.t, self.q, p)

    @cached_property
    def slope(self) -> Float[Array, "nv nv"]:
        """`A = ∂v/∂p`."""
        return self._slope(self.q, self.t)

    def _slope(self, q: Array, t: Scalar) -> Array:
        zero = jnp.zeros(len(self.coordinates.speeds.names), self.q.dtype)
        return jax.jacfwd(lambda p: self.coordinates.speeds.given(t, q, p))(zero)

    def _velocity_product(self, p: Array) -> Array:
        """`v̇` at constant `p`."""
        moving = (self.rate(p), jnp.ones_like(self.t))
        function = self.coordinates.speeds.given
        return jax.jvp(lambda q, t: function(t, q, p), (self.q, self.t), moving)[1]

    def poses(self) -> Float[Array, "bodies pose"]:
        return self.base.poses()

    def rate(self, v: Array) -> Array:
        return self.base.rate(self.base_speeds(v))

    def pull(self) -> Array:
        return self.base.pull()

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

    def loads_rate(self, v: Array, efforts: Twists) -> Array:
        slope_term = self._slope_rate(v).T @ self.base.loads(efforts)
        return self.slope.T @ self.base.loads_rate(self.base_speeds(v), efforts) + slope_term

    def twist_rate(self, v: Array, u: Array) -> Twists:
        slope_term = self.base.twists(self._slope_rate(v) @ u)
        base_term = self.base.twist_rate(self.base_speeds(v), self.slope @ u)
        return slope_term if base_term is None else slope_term + base_term

    def _slope_rate(self, v: Array) -> Array:
        return jax.jvp(self._slope, (self.q, self.t), (self.rate(v), jnp.ones_like(self.t)))[1]

    def rows(self, terms: ConstraintBodyTerms) -> SparseMatrix:
        return full(self.base.rows(terms).dense() @ self.slope)

    def inertia(self, parts: PyTree) -> CoupledInertia:
        return CoupledInertia(symmetric(self.slope.T @ self.base.inertia(parts).matrix() @ self.slope))

    def own_loads(self, v: Array) -> Array | None:
        loads = self.base.own_loads(self.base_speeds(v))
        return None if loads is None else self.slope.T @ loads

    def own_momenta(self, v: Array) -> Array | None:
        momenta = self.base.own_momenta(self.slope @ v)
        return None if momenta is None else self.slope.T @ momenta

    def strain_energy(self) -> Scalar | None:
        return self.base.strain_energy()

    def own_kinetic_energy(self, v: Array) -> Scalar | None:
        return self.base.own_kinetic_energy(self.base_speeds(v))

    def joint_axes(self) -> Float[Array, "speeds twist"]:
        return self.base.joint_axes()

    def subtree_sum(self, wrenches: Float[Array, "bodies twist"]) -> Float[Array, "bodies twist"]:
        return self.base.subtree_sum(wrenches)
