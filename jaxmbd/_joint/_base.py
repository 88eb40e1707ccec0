"""What a joint is: markers, and a residual of their frames that is zero when the joint is fitted.

Nothing else has to be defined: the Jacobian `C` and the acceleration term `γ` follow by differentiation.
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._body import AbstractMarker
from jaxmbd._types import Scalar


class AbstractJoint(eqx.Module):
    """A constraint between the frames of two or more markers.

    `motions` names the joint's own coordinates (an angle, a displacement) that drivers, friction and sensors
    refer to as `"joint.angle"`; `motion` gives their values. Those listed in `turning` are angles that `motion` knows
    only up to whole turns: the mechanism then carries them among its coordinates, and counts.
    """

    name: eqx.AbstractVar[str]
    motions: ClassVar[tuple[str, ...]] = ()
    motion_units: ClassVar[tuple[str, ...]] = ()
    turning: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers whose frames `residual` and `motion` are given, in that order."""

    @abc.abstractmethod
    def residual(self, t: Scalar, frames: Sequence[Any]) -> Float[Array, " m"]:
        """`Φ(q, t)` of this joint, zero when it is fitted."""

    @abc.abstractmethod
    def motion(self, frames: Sequence[Any]) -> Float[Array, " k"]:
        """The joint's own coordinates, one for each name in `motions`."""


class AbstractPair(AbstractJoint):
    """A joint between two markers."""

    a: eqx.AbstractVar[AbstractMarker]
    b: eqx.AbstractVar[AbstractMarker]

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)


class AbstractNonholonomic(AbstractJoint):
    """A joint that constrains velocities in a way that no residual of positions does."""

    @abc.abstractmethod
    def slip(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, " k"]:
        """Rows that are zero, affine in the rates of the frames; they come below the rows of `residual`."""


def no_motion() -> Float[Array, "0"]:
    """The coordinates of a joint that has none."""
    return jnp.zeros((0,))


def no_rows() -> Float[Array, "0"]:
    """The residual of a joint that constrains no position."""
    return jnp.zeros((0,))
