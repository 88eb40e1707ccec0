"""Coordinates as a change of variables: from `q` and `v` to the frames, twists and accelerations of the bodies.

`V = J(q) v`, `V̇ = J v̇ + a(q, v)`, so that what the parts say of the bodies becomes `M = Jᵀ M_b J`,
`F = Jᵀ (W − M_b a)`, `C = C_b J`, `γ = γ_b − C_b a`. In absolute coordinates `J` is the identity.
"""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.groups import Group
from jaxmbd.equations.inertia import AbstractInertia, BodyInertia
from jaxmbd.equations.sparse_coo import SparseMatrix, legs_of, summed
from jaxmbd.space.space import AbstractSpace

Twists = Float[Array, "bodies twist"]


class AbstractPlacement(abc.ABC):
    """The bodies at one position. What several questions need is computed once."""

    frames: Any  # of the bodies, and of the ground, stacked

    @abc.abstractmethod
    def poses(self) -> Float[Array, "bodies pose"]:
        """The poses of the bodies."""

    @abc.abstractmethod
    def rate(self, v: Array) -> Array:
        """`q̇`."""

    @abc.abstractmethod
    def perturbed(self, step: Array) -> Array:
        """The coordinates reached along `step`, speeds times a time: exact to second order."""

    @abc.abstractmethod
    def along(self, v: Array, s: Scalar) -> Array:
        """The coordinates a time `s` later, at constant `v`: exact to second order."""

    @abc.abstractmethod
    def twists(self, v: Array) -> Twists:
        """`V = J v`."""

    @abc.abstractmethod
    def accelerations(self, v: Array, vdot: Array) -> Twists:
        """`V̇ = J v̇ + a`."""

    @abc.abstractmethod
    def drift(self, v: Array) -> Twists | None:
        """`a`: the bodies' `V̇` at constant `v`; None where it is zero everywhere."""

    @abc.abstractmethod
    def loads(self, efforts: Twists) -> Array:
        """`Jᵀ f`: the generalized forces of efforts on the bodies."""

    @abc.abstractmethod
    def constraint_force_rate(self, v: Array, efforts: Twists) -> Array:
        """`J̇ᵀ f` along the motion."""

    @abc.abstractmethod
    def twist_rate(self, v: Array, u: Array) -> Twists | None:
        """`J̇ u` along the motion; None where it is zero everywhere."""

    @abc.abstractmethod
    def rows(self, groups: Sequence[Group], blocks: Sequence[Array]) -> SparseMatrix:
        """`C_b J` from the non-zero blocks of `C_b` that joints give."""

    @abc.abstractmethod
    def inertia(self, parts: Any) -> AbstractInertia:
        """`M = Jᵀ M_b J`, `parts` being what the space keeps of each body."""

    @abc.abstractmethod
    def subtree_sum(self, wrenches: Float[Array, "bodies twist"]) -> Float[Array, "bodies twist"]:
        """For the joint that carries each body, the sum of wrenches on the body and on all that hang on it; wrenches
        about the world's origin."""


class AbstractCoordinates(eqx.Module):
    """How coordinates `q` (without carried angles) and speeds `v` describe the bodies."""

    @abc.abstractmethod
    def at(self, t: Scalar, q: Array) -> AbstractPlacement:
        """The bodies at a time and `q`."""

    @abc.abstractmethod
    def normalize(self, q: Array) -> Array:
        """The same position with quaternions of norm one."""

    @abc.abstractmethod
    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        """The coordinates of bodies at given poses; the nearest where joints are open."""


class Absolute(AbstractCoordinates):
    """The bodies' own poses and twists."""

    space: AbstractSpace
    bodies: int = eqx.field(static=True)

    def at(self, t: Scalar, q: Array) -> "AbsolutePlacement":
        return AbsolutePlacement(self.space, q.reshape(self.bodies, -1))

    def normalize(self, q: Array) -> Array:
        return jax.vmap(self.space.normalize)(q.reshape(self.bodies, -1)).reshape(-1)

    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        return poses.reshape(-1)


class AbsolutePlacement(AbstractPlacement):
    """The bodies at their own poses: `J` is the identity."""

    def __init__(self, space: AbstractSpace, poses: Float[Array, "bodies pose"]) -> None:
        self.space, self._poses = space, poses
        rest = jnp.asarray(space.rest, poses.dtype)
        self.frames = jax.vmap(space.place)(jnp.concatenate([poses, rest[None]]))

    def rate(self, v: Array) -> Array:
        return jax.vmap(self.space.rate)(self._poses, self.twists(v)).reshape(-1)

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

    def constraint_force_rate(self, v: Array, efforts: Twists) -> Array:
        return jnp.zeros_like(v)

    def twist_rate(self, v: Array, u: Array) -> None:
        return None

    def rows(self, groups: Sequence[Group], blocks: Sequence[Array]) -> SparseMatrix:
        legs = legs_of(groups, blocks, len(self.space.speeds))
        moving, width = np.flatnonzero(legs.body < len(self._poses)), legs.values.shape[1]
        columns = legs.body[moving, None] * width + np.arange(width)
        rows = np.broadcast_to(legs.row[moving, None], columns.shape)
        shape = legs.m, len(self._poses) * width
        return summed(legs.values[moving].reshape(-1), rows.reshape(-1), columns.reshape(-1), shape)

    def inertia(self, parts: Any) -> BodyInertia:
        return BodyInertia(self.space, parts)

    def subtree_sum(self, wrenches: Float[Array, "bodies twist"]) -> Float[Array, "bodies twist"]:
        return wrenches
