"""Joints in space that never carry coordinates of a spanning tree: primitive and composite constraints, rolling."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Point, Scalar, as_float
from jaxmbd.checks import check_number, check_shape
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.joint.joint import (
    AbstractJointWithCoordinates,
    AbstractNonholonomic,
    AbstractSidedJoint,
)
from jaxmbd.model.joint.spatial import AbstractSpatialPair, across
from jaxmbd.space.spatial import SpatialFrame as Frame
from jaxmbd.space.spatial import SpatialRate
from jaxmbd.space.vectors import cross, direction, dot


class PointOnLine(AbstractSpatialPair, AbstractJointWithCoordinates):
    """The second marker's origin lies on the first one's z axis: `x_A · d = y_A · d = 0` (2 rows).

    Its coordinate `displacement` [m] is `z_A · d`.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("displacement",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("m",)
    loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        return across(a, b.position - a.position)

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([dot(a.z, b.position - a.position)])


class PointOnPlane(AbstractSpatialPair, AbstractJointWithCoordinates):
    """The second marker's origin lies in the first one's xy plane: `z_A · d = 0` (1 row).

    Coordinates: `x`, `y` [m] of that point in the plane.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("x", "y")
    coordinate_units: ClassVar[tuple[str, ...]] = ("m", "m")
    loads: ClassVar[tuple[str, ...]] = ("-Fz",)

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([dot(a.z, b.position - a.position)])

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        return across(a, b.position - a.position)


class ParallelAxes(AbstractSpatialPair):
    """The markers' z axes are parallel, in the same or in opposite directions: `x_A · z_B = y_A · z_B = 0` (2 rows)."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    loads: ClassVar[tuple[str, ...]] = ("-My", "Mx")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        return across(a, b.z)


class PerpendicularAxes(AbstractSpatialPair):
    """The markers' z axes are perpendicular: `z_A · z_B = 0` (1 row)."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    loads: ClassVar[tuple[str, ...]] = ("M",)

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([dot(a.z, b.z)])


_FOLDED = 1e-6  # `1 + z_A · z_B` below which shafts are folded back onto each other


class ConstantVelocity(AbstractSpatialPair, AbstractSidedJoint):
    """A constant-velocity (Rzeppa) joint of two shafts along the markers' z axes: `p_A − p_B = 0`,
    `y_A · x_B − x_A · y_B = 0` (4 rows).

    The relative rotation has no component about the shafts, so their speeds are equal at any bend below half a turn.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy", "Fz", "lambda")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "4"]:
        a, b = frames
        return jnp.append(a.position - b.position, dot(a.y, b.x) - dot(a.x, b.y))

    def side(self, frames: Sequence[Frame]) -> Scalar:
        """The cosine of the rotation about the shafts, `(x_A · x_B + y_A · y_B) / (1 + z_A · z_B)`: −1 where they are
        half a turn apart. It has no value where one shaft is folded back onto the other, and neither has the joint."""
        a, b = frames
        return (dot(a.x, b.x) + dot(a.y, b.y)) / jnp.maximum(1 + dot(a.z, b.z), _FOLDED)


class RevoluteSpherical(AbstractSpatialPair, AbstractJointWithCoordinates):
    """A massless rod with a revolute joint at one end (z axis of the first marker) and a spherical joint at the other
    (second marker): `½ ‖d‖² − ½ l² = 0`, `z_A · d = 0` (2 rows).

    **Arguments:** `length` l `[m]`; zero raises. Its coordinate `angle` [rad] is the rod's angle from the x axis of the
    first marker, including whole turns.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    length: Scalar = eqx.field(converter=as_float)
    coordinate_names: ClassVar[tuple[str, ...]] = ("angle",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("rad",)
    unwrapped: ClassVar[tuple[str, ...]] = ("angle",)
    loads: ClassVar[tuple[str, ...]] = ("T", "-Fz")

    def __check_init__(self) -> None:
        check_shape(f"RevoluteSpherical {self.name!r}", "length", self.length, ())
        check_number(f"RevoluteSpherical {self.name!r}", "length", self.length, "m")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        d = b.position - a.position
        return jnp.stack([0.5 * (dot(d, d) - self.length**2), dot(a.z, d)])

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        d = b.position - a.position
        return jnp.stack([jnp.arctan2(dot(a.y, d), dot(a.x, d))])


class RollingDisc(AbstractSpatialPair, AbstractNonholonomic):
    """A thin disc that rolls on a plane without slip (1 holonomic row, 2 nonholonomic rows).

    The plane is the first marker's xy plane; the disc's centre is the second marker's origin and its axis that
    marker's z. The contact point is `p_C = p_B + r e`, with `e` the downward direction in the disc's plane:
    `z_A · (p_C − p_A) = 0`, and the velocity of the disc relative to the plane at `p_C` has no components along `x_A`
    and `y_A`.

    **Arguments:** `radius` r `[m]`. A disc that lies flat has no unique contact point.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    radius: Scalar = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        check_shape(f"RollingDisc {self.name!r}", "radius", self.radius, ())
        check_number(f"RollingDisc {self.name!r}", "radius", self.radius, "m")

    def arm(self, frames: Sequence[Frame]) -> Point:
        """`r e`, from the disc's centre to the contact point, in world axes."""
        a, b = frames
        return -self.radius * direction(a.z - dot(a.z, b.z) * b.z)

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([dot(a.z, b.position + self.arm(frames) - a.position)])

    def slip(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[SpatialRate]) -> Float[Array, "2"]:
        (a, b), (da, db) = frames, rates
        arm = self.arm(frames)
        of_disc = db.position + cross(db.angular, arm)
        of_plane = da.position + cross(da.angular, b.position + arm - a.position)
        return across(a, of_disc - of_plane)
