"""Joints between two bodies in the plane."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_finite
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.joint.joint import AbstractCoordinateTreeJoint, AbstractGearedJoint, AbstractPair
from jaxmbd.space.planar import PLANAR, Frame
from jaxmbd.space.space import AbstractSpace
from jaxmbd.space.vectors import dot


class AbstractPlanarTreeJoint(AbstractCoordinateTreeJoint):
    """A tree joint between two markers in the plane."""

    space: ClassVar[AbstractSpace | None] = PLANAR


class Revolute(AbstractGearedJoint, AbstractPlanarTreeJoint):
    """A revolute joint (pin): the two markers' origins coincide, `p_A − p_B = 0` (2 rows).

    Its coordinate `angle` [rad] is the angle of the second marker relative to the first, including whole turns.

    **Arguments:** `armature` `[kg m²]`, the inertia of a geared motor's rotor along the coordinate (default: none).
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    armature: Scalar | None = eqx.field(converter=as_float, default=None)
    coordinate_names: ClassVar[tuple[str, ...]] = ("angle",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("rad",)
    loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        return a.position - b.position

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([b.angle - a.angle])

    def X_FM(self, c: Float[Array, "1"]) -> Frame:
        return Frame(jnp.zeros(2, c.dtype), c[0])

    def across_joint_velocity(self, c: Float[Array, "1"], w: Float[Array, "1"]) -> Float[Array, "3"]:
        return jnp.append(jnp.zeros(2, w.dtype), w)


class Prismatic(AbstractGearedJoint, AbstractPlanarTreeJoint):
    """A prismatic joint (slider) along the first marker's x axis, without rotation (2 rows).

    `n_A · (p_B − p_A) = 0` and `θ_B − θ_A = 0`, angles of the markers. Its coordinate `displacement` [m] is
    `u_A · (p_B − p_A)`.

    **Arguments:** `armature` `[kg]`, the inertia of a geared motor's rotor along the coordinate (default: none).
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    armature: Scalar | None = eqx.field(converter=as_float, default=None)
    coordinate_names: ClassVar[tuple[str, ...]] = ("displacement",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("m",)
    loads: ClassVar[tuple[str, ...]] = ("-Fn", "-M")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        return jnp.stack([dot(a.normal, b.position - a.position), b.angle - a.angle])

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([dot(a.axis, b.position - a.position)])

    def X_FM(self, c: Float[Array, "1"]) -> Frame:
        return Frame(jnp.append(c, 0.0), jnp.zeros_like(c[0]))

    def across_joint_velocity(self, c: Float[Array, "1"], w: Float[Array, "1"]) -> Float[Array, "3"]:
        return jnp.append(w, jnp.zeros(2, w.dtype))


class PinInSlot(AbstractPlanarTreeJoint):
    """A pin (second marker) in a straight slot along the first marker's x axis: `n_A · (p_B − p_A) = 0` (1 row).

    Coordinates: `displacement` [m] along the slot and `angle` [rad] of the pin's body relative to the slot's.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("displacement", "angle")
    coordinate_units: ClassVar[tuple[str, ...]] = ("m", "rad")
    loads: ClassVar[tuple[str, ...]] = ("-Fn",)

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([dot(a.normal, b.position - a.position)])

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        return jnp.stack([dot(a.axis, b.position - a.position), b.angle - a.angle])

    def X_FM(self, c: Float[Array, "2"]) -> Frame:
        return Frame(jnp.append(c[:1], 0.0), c[1])

    def across_joint_velocity(self, c: Float[Array, "2"], w: Float[Array, "2"]) -> Float[Array, "3"]:
        return jnp.stack([w[0], jnp.zeros_like(w[0]), w[1]])


class RelativeAngle(AbstractPair):
    """The angle of the second marker relative to the first is constant: `θ_B − θ_A − φ = 0` (1 row).

    **Arguments:** `angle` φ `[rad]`.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    angle: Scalar = eqx.field(converter=as_float, default=0.0)
    space: ClassVar[AbstractSpace | None] = PLANAR
    loads: ClassVar[tuple[str, ...]] = ("-M",)

    def __check_init__(self) -> None:
        check_finite(f"RelativeAngle {self.name!r}", "angle", self.angle)

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([b.angle - a.angle - self.angle])
