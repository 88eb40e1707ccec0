"""What a joint is: markers, and a residual of their frames that is zero when the joint is fitted.

Nothing else has to be defined: the Jacobian `C` and the acceleration term `γ` follow by differentiation. A joint that
can carry coordinates of a spanning tree says besides where it places its second marker.
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.compile.tracing import trace_once
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_markers
from jaxmbd.space.chart import VECTOR, AbstractChart
from jaxmbd.space.space import AbstractSpace


class AbstractJoint(eqx.Module):
    """A constraint between the frames of two or more markers.

    `coordinate_names` names the joint's own coordinates (an angle, a displacement) that drivers, friction and sensors
    refer to as `"joint.angle"`. Those listed in `unwrapped` are angles that the frames tell only up to whole turns: the
    mechanism then carries them among its coordinates, and counts.

    `loads` names what the rows' multipliers are as loads on the last marker's body, in the order of the rows: force
    components F and moments M about axes of the first marker (forces of points that coincide: world axes), or the
    tension T of a rod, which is `λ length`. A "-" says that the load is `−λ`. Where it is empty, or says "lambda",
    they are multipliers and no more. `plane_loads`: the same for a joint of both spaces, in the plane.
    """

    name: eqx.AbstractVar[str]
    coordinate_names: ClassVar[tuple[str, ...]] = ()
    coordinate_units: ClassVar[tuple[str, ...]] = ()
    unwrapped: ClassVar[tuple[str, ...]] = ()
    loads: ClassVar[tuple[str, ...]] = ()
    plane_loads: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers whose frames `residual` and `motion` are given, in that order."""

    @abc.abstractmethod
    def residual(self, t: Scalar, frames: Sequence[Any]) -> Float[Array, " m"]:
        """`Φ(q, t)` of this joint, zero when it is fitted."""


class AbstractJointWithCoordinates(AbstractJoint):
    """A joint with coordinates of its own."""

    @abc.abstractmethod
    def motion(self, frames: Sequence[Any]) -> Float[Array, " k"]:
        """The joint's own coordinates, one for each name in `coordinate_names`."""


class AbstractPair(AbstractJoint):
    """A joint between two markers on different bodies, of `space` where that is given."""

    a: eqx.AbstractVar[AbstractMarker]
    b: eqx.AbstractVar[AbstractMarker]
    space: ClassVar[AbstractSpace | None] = None

    def __check_init__(self) -> None:
        check_markers(type(self).__name__, self.name, self.a, self.b, space=self.space)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)


class AbstractNonholonomic(AbstractJoint):
    """A joint that constrains velocities in a way that no residual of positions does."""

    @abc.abstractmethod
    def slip(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, " k"]:
        """Rows that are zero, affine in the rates of the frames; they come below the rows of `residual`."""


class AbstractTreeJoint(AbstractPair):
    """A pair that can carry coordinates of a spanning tree: numbers `c` tell every position that it leaves free.

    The numbers are named by `free`, the speeds `w` that move them (as `chart` says) by `speeds`.

    Source: the joint models of Featherstone, *Rigid Body Dynamics Algorithms* (2008), §4.4.
    """

    @property
    @abc.abstractmethod
    def chart(self) -> AbstractChart:
        """How the coordinates move with the speeds."""

    @property
    @abc.abstractmethod
    def tree_coordinate_units(self) -> dict[str, str]:
        """Names and units of the coordinates."""

    @property
    @abc.abstractmethod
    def speeds(self) -> dict[str, str]:
        """Names and units of the speeds."""

    @abc.abstractmethod
    def X_FM(self, c: Float[Array, " k"]) -> Any:
        """The placement of the second marker in the first one's frame."""

    @abc.abstractmethod
    def across_joint_velocity(self, c: Float[Array, " k"], w: Float[Array, " f"]) -> Float[Array, " twist"]:
        """The velocity of the second marker's origin and its angular velocity, relative to the first marker and in
        its axes."""

    @abc.abstractmethod
    def measure(self, frames: Sequence[Any]) -> Float[Array, " k"]:
        """The coordinates of frames that are placed as the joint asks; near those, where they are not."""


class AbstractCoordinateTreeJoint(AbstractTreeJoint, AbstractJointWithCoordinates):
    """A pair that leaves free just its own coordinates `coordinate_names`, whose rates are the speeds."""

    @property
    def chart(self) -> AbstractChart:
        return VECTOR

    @property
    def tree_coordinate_units(self) -> dict[str, str]:
        return dict(zip(self.coordinate_names, self.coordinate_units, strict=True))

    @property
    def speeds(self) -> dict[str, str]:
        return {f"{name}_rate": f"{unit}/s" for name, unit in self.tree_coordinate_units.items()}

    def measure(self, frames: Sequence[Any]) -> Float[Array, " k"]:
        return self.motion(frames)


@trace_once
def residual_of(joint: Any, t: Array, frames: Sequence[Any]) -> Array:
    """`joint.residual`; without its name a joint shares what was traced with all of its kind."""
    return joint.residual(t, frames)


@trace_once
def slip_of(joint: Any, t: Array, frames: Sequence[Any], rates: Sequence[Any]) -> Array:
    """`joint.slip`, likewise."""
    return joint.slip(t, frames, rates)


def no_rows() -> Float[Array, "0"]:
    """The residual of a joint that constrains no position."""
    return jnp.zeros((0,))
