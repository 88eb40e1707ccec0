"""Abstract forces: wrenches at markers as functions of their frames and rates, and efforts along coordinates."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Point, Scalar
from jaxmbd.model.body.body import AbstractMarker


class AbstractForce(eqx.Module):
    """A law for the wrench at each of its markers, in world axes: `(fx, fy, moment)` in the plane,
    `(fx, fy, fz, mx, my, mz)` in space [N, N m]."""

    name: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers whose frames are the arguments of the law, in this order."""

    @abc.abstractmethod
    def wrenches(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "k efforts"]:
        """The wrench on the body at each marker; `rates` holds the velocities of the frames."""

    @abc.abstractmethod
    def potential(self, t: Scalar, frames: Sequence[Any]) -> Scalar:
        """Potential energy [J]; zero for a law without a potential."""


def wrench(force: Point, moment: Any = 0.0) -> Float[Array, " efforts"]:
    """A force [N] and a moment [N m] (default zero) as one array."""
    if isinstance(moment, float):
        moment = jnp.full((1 if force.shape[0] == 2 else 3,), moment)
    return jnp.append(force, moment)


def pair(force: Point, moment: Any = 0.0) -> Float[Array, "2 efforts"]:
    """A wrench on the second marker and its reaction on the first."""
    on_b = wrench(force, moment)
    return jnp.stack([-on_b, on_b])


class AbstractJointForce(eqx.Module):
    """A force or torque along a joint coordinate, referred to by name."""

    name: eqx.AbstractVar[str]
    coordinate: eqx.AbstractVar[str]

    @abc.abstractmethod
    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        """The force [N] or torque [N m] in the direction of increasing coordinate."""

    @abc.abstractmethod
    def potential(self, coordinate: Scalar) -> Scalar:
        """Potential energy [J]; zero for a law without a potential."""
