"""What a joint is: markers, and a residual of their frames that is zero when the joint is fitted.

Nothing else has to be defined: the Jacobian `C` and the acceleration term `γ` follow by differentiation.
"""

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._body import Marker
from jaxmbd._space import Frame
from jaxmbd._types import Scalar


class AbstractJoint(eqx.Module):
    """A constraint between the frames of two or more markers.

    `motions` names the joint's own coordinates (an angle, a displacement) that drivers, friction and sensors
    refer to as `"joint.angle"`; `motion` gives their values.
    """

    name: eqx.AbstractVar[str]
    motions: ClassVar[tuple[str, ...]] = ()
    motion_units: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[Marker, ...]:
        """The markers whose frames `residual` and `motion` are given, in that order."""

    @abc.abstractmethod
    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, " m"]:
        """`Φ(q, t)` of this joint, zero when it is fitted."""

    @abc.abstractmethod
    def motion(self, frames: Sequence[Frame]) -> Float[Array, " k"]:
        """The joint's own coordinates, one for each name in `motions`."""


def no_motion() -> Float[Array, "0"]:
    """The coordinates of a joint that has none."""
    return jnp.zeros((0,))
