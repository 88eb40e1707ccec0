"""Rolling without slip, a nonholonomic constraint."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Point, Scalar, as_float
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_number, check_shape
from jaxmbd.model.joint.joint import AbstractNonholonomic
from jaxmbd.model.joint.spatial import AbstractSpatialPair, across
from jaxmbd.space.spatial import SpatialFrame as Frame
from jaxmbd.space.spatial import SpatialRate
from jaxmbd.space.vectors import cross, direction, dot


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
