"""Primitive constraints in space: point on line, point on plane, parallel and perpendicular axes."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.joint.joint import AbstractJointWithCoordinates
from jaxmbd.model.joint.spatial import AbstractSpatialPair, across
from jaxmbd.space.spatial import SpatialFrame as Frame
from jaxmbd.space.vectors import dot


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
    """The markers' z axes are parallel: `x_A · z_B = y_A · z_B = 0` (2 rows)."""

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
