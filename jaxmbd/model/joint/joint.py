"""Abstract joints: markers, and a residual of their frames that is zero if the joint is assembled.

The residual suffices as a definition: the Jacobian `C` and the acceleration term `γ` follow by differentiation. A joint
that can be part of the spanning tree also defines its coordinates and its across-joint transform `X_FM`.
"""

import abc
from typing import Any, ClassVar, TypeGuard

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.checks import check_fields
from jaxmbd.engine import trace_once
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_markers
from jaxmbd.model.body.names import Name
from jaxmbd.space.space import VECTOR, AbstractChart, AbstractSpace, Frames, Rates


class AbstractJoint(eqx.Module):
    """A constraint between the frames of two or more markers.

    `coordinate_names` are the joint's own coordinates (an angle, a displacement), to which drivers, friction and
    sensors refer as `"joint.angle"`. The angles listed in `unwrapped` follow from the frames only modulo whole turns:
    if the joint is cut, the mechanism integrates them as additional coordinates, so that whole turns count.

    `loads` names, for each row, the load on the last marker's body that its multiplier represents: force components F
    and moments M along axes of the first marker (for coincident points, forces along world axes), or the
    tension T of a rod, which is `λ length`. A "-" means that the load is `−λ`. If `loads` is empty, or an entry is
    "lambda", the multiplier has no such meaning. `plane_loads`: the same in the plane, for a joint of both spaces.
    """

    name: eqx.AbstractVar[Name]
    coordinate_names: ClassVar[tuple[str, ...]] = ()
    coordinate_units: ClassVar[tuple[str, ...]] = ()
    unwrapped: ClassVar[tuple[str, ...]] = ()
    loads: ClassVar[tuple[str, ...]] = ()
    plane_loads: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers whose frames are the arguments of `residual` and `motion`, in this order."""

    @abc.abstractmethod
    def residual(self, t: Scalar, frames: Frames) -> Float[Array, " m"]:
        """`Φ(q, t)` of this joint, zero if it is assembled."""


class AbstractSidedJoint(AbstractJoint):
    """A joint whose residual is also zero where the joint is not assembled: on the other side.

    A unit vector that is held along an axis by two smooth rows is as well held against it, since such rows have at
    least two zeros on the sphere; a frame that is aligned with another has more. So a hinge whose axes point against
    each other has no residual, and no angle either. Assembly searches on the right side, and accepts no other one.
    """

    @abc.abstractmethod
    def side(self, frames: Frames) -> Scalar:
        """A number in [−1, 1], such as the cosine of an angle: 1 where the joint is assembled, and zero or less at all
        other zeros of `residual`."""


class AbstractJointWithCoordinates(AbstractJoint):
    """A joint with coordinates of its own."""

    @abc.abstractmethod
    def motion(self, frames: Frames) -> Float[Array, " k"]:
        """The values of the joint coordinates `coordinate_names`."""


class AbstractPair(AbstractJoint):
    """A joint between two markers on different bodies, restricted to `space` unless that is None."""

    a: eqx.AbstractVar[AbstractMarker]
    b: eqx.AbstractVar[AbstractMarker]
    space: ClassVar[AbstractSpace | None] = None

    def __check_init__(self) -> None:
        check_markers(type(self).__name__, self.name, self.a, self.b, space=self.space)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)


class AbstractGearedJoint(AbstractJointWithCoordinates):
    """A joint with one coordinate `c`, on which a motor may act through a gear.

    `armature` a: the inertia of the motor's rotor reflected to the joint, the gear ratio squared times its moment of
    inertia `[kg m²]` (for a displacement: its effective mass `[kg]`), or None. It adds `½ a ċ²` to the kinetic energy.
    The rotor turns fast about one axis, so that its gyroscopic moments are left out, and its mass is the body's that
    carries it.

    Source: Featherstone, *Rigid Body Dynamics Algorithms* (2008), §9.6.
    """

    armature: eqx.AbstractVar[Scalar | None]

    def __check_init__(self) -> None:
        if self.armature is not None:
            unit = "kg m²" if self.coordinate_units == ("rad",) else "kg"
            check_fields(f"{type(self).__name__} {self.name!r}", self, zero=True, armature=unit)


class AbstractNonholonomic(AbstractJoint):
    """A joint with nonholonomic constraint rows."""

    @abc.abstractmethod
    def slip(self, t: Scalar, frames: Frames, rates: Rates) -> Float[Array, " k"]:
        """The nonholonomic residual `Ψ`, affine in the rates of the frames; its rows follow those of `residual`."""


class AbstractTreeJoint(AbstractPair):
    """A joint between two markers that can be part of a spanning tree, with joint coordinates `c` and joint speeds `w`.

    `tree_coordinate_units` and `speeds` hold their names and units; `chart` relates `w` to `ċ`.

    Source: the joint models of Featherstone, *Rigid Body Dynamics Algorithms* (2008), §4.4.
    """

    @property
    @abc.abstractmethod
    def chart(self) -> AbstractChart:
        """The kinematic differential equation `ċ = N(c) w`."""

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
        """The across-joint transform: the frame M of the second marker relative to the frame F of the first."""

    @abc.abstractmethod
    def across_joint_velocity(self, c: Float[Array, " k"], w: Float[Array, " f"]) -> Float[Array, " twist"]:
        """The velocity of the second marker's origin and its angular velocity, relative to the first marker, in the
        first marker's axes."""

    @abc.abstractmethod
    def measure(self, frames: Frames) -> Float[Array, " k"]:
        """The joint coordinates of two marker frames; approximate if the frames violate the constraint."""


class AbstractCoordinateTreeJoint(AbstractTreeJoint, AbstractJointWithCoordinates):
    """A tree joint whose coordinates are `coordinate_names` and whose speeds are their rates."""

    @property
    def chart(self) -> AbstractChart:
        return VECTOR

    @property
    def tree_coordinate_units(self) -> dict[str, str]:
        return dict(zip(self.coordinate_names, self.coordinate_units, strict=True))

    @property
    def speeds(self) -> dict[str, str]:
        return {f"{name}_rate": f"{unit}/s" for name, unit in self.tree_coordinate_units.items()}

    def measure(self, frames: Frames) -> Float[Array, " k"]:
        return self.motion(frames)


def has_armature(joint: object) -> TypeGuard[AbstractGearedJoint]:
    """True for a joint with an armature, known or traced."""
    return isinstance(joint, AbstractGearedJoint) and joint.armature is not None


@trace_once
def residual_of(joint: AbstractJoint, t: Array, frames: Frames) -> Array:
    """`joint.residual`, traced once per type if the joint's name has been removed (`unnamed`)."""
    return joint.residual(t, frames)


@trace_once
def slip_of(joint: AbstractNonholonomic, t: Array, frames: Frames, rates: Rates) -> Array:
    """`joint.slip`, traced like `residual_of`."""
    return joint.slip(t, frames, rates)


def no_rows() -> Float[Array, "0"]:
    """The empty residual of a joint without holonomic rows."""
    return jnp.zeros((0,))
