"""Joints between two bodies in space; the joint axis is the z axis of each marker.

`d = p_B − p_A`; `x_A, y_A, z_A` are the first marker's axes in the world. Each residual is a set of basic constraints
of Haug (1989), §9.4: coincident points, `d` perpendicular to an axis, two perpendicular axes.
"""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Point, Scalar, as_float
from jaxmbd.checks import check_number, check_shape
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.joint.joint import (
    AbstractCoordinateTreeJoint,
    AbstractGearedJoint,
    AbstractJointWithCoordinates,
    AbstractPair,
    AbstractSidedJoint,
    AbstractTreeJoint,
)
from jaxmbd.space.rotation import from_matrix, matrix
from jaxmbd.space.space import QUATERNION, VECTOR, AbstractChart, AbstractSpace
from jaxmbd.space.spatial import SPATIAL
from jaxmbd.space.spatial import SpatialFrame as Frame
from jaxmbd.space.vectors import dot, nearest_turn, times


class AbstractSpatialPair(AbstractPair):
    """A joint between two markers in space."""

    space: ClassVar[AbstractSpace | None] = SPATIAL


class AbstractSpatialTreeJoint(AbstractSpatialPair, AbstractCoordinateTreeJoint):
    """A tree joint between two markers in space."""


class Spherical(AbstractSpatialPair, AbstractTreeJoint):
    """A spherical joint (ball): the markers' origins coincide, `p_A − p_B = 0` (3 rows).

    As a tree joint its coordinates are the Euler parameters of the second marker relative to the first, and its speeds
    the relative angular velocity in the second marker's axes.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy", "Fz")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "3"]:
        a, b = frames
        return a.position - b.position

    @property
    def chart(self) -> AbstractChart:
        return QUATERNION

    @property
    def tree_coordinate_units(self) -> dict[str, str]:
        return dict.fromkeys(("e0", "e1", "e2", "e3"), "1")

    @property
    def speeds(self) -> dict[str, str]:
        return dict.fromkeys(("omega_x", "omega_y", "omega_z"), "rad/s")

    def X_FM(self, c: Float[Array, "4"]) -> Frame:
        return Frame(jnp.zeros(3, c.dtype), matrix(c))

    def across_joint_velocity(self, c: Float[Array, "4"], w: Float[Array, "3"]) -> Float[Array, "6"]:
        return jnp.append(jnp.zeros(3, w.dtype), times(matrix(c), w))

    def measure(self, frames: Sequence[Frame]) -> Float[Array, "4"]:
        a, b = frames
        return from_matrix(times(a.rotation.T, b.rotation))


class Revolute(AbstractGearedJoint, AbstractSpatialTreeJoint, AbstractSidedJoint):
    """A revolute joint (hinge) about the markers' common z axis: `p_A − p_B = 0`, `x_A · z_B = y_A · z_B = 0` (5 rows).

    Its coordinate `angle` [rad] is the angle of the second marker relative to the first, including whole turns.

    **Arguments:** `armature` `[kg m²]`, the inertia of a geared motor's rotor along the coordinate (default: none).
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    armature: Scalar | None = eqx.field(converter=as_float, default=None)
    coordinate_names: ClassVar[tuple[str, ...]] = ("angle",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("rad",)
    unwrapped: ClassVar[tuple[str, ...]] = ("angle",)
    loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy", "Fz", "-My", "Mx")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "5"]:
        a, b = frames
        return jnp.append(a.position - b.position, across(a, b.z))

    def side(self, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return dot(a.z, b.z)

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "1"]:
        return jnp.stack([angle_about_z(*frames)])

    def X_FM(self, c: Float[Array, "1"]) -> Frame:
        return Frame(jnp.zeros(3, c.dtype), _about_z(c[0]))

    def across_joint_velocity(self, c: Float[Array, "1"], w: Float[Array, "1"]) -> Float[Array, "6"]:
        return jnp.append(jnp.zeros(5, w.dtype), w)


class Prismatic(AbstractGearedJoint, AbstractSpatialTreeJoint, AbstractSidedJoint):
    """A prismatic joint (slider) along the markers' common z axis, without rotation (5 rows).

    `x_A · d = y_A · d = 0` and `y_A · z_B = z_A · x_B = x_A · y_B = 0`. Its coordinate `displacement` [m] is `z_A · d`.

    **Arguments:** `armature` `[kg]`, the inertia of a geared motor's rotor along the coordinate (default: none).
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    armature: Scalar | None = eqx.field(converter=as_float, default=None)
    coordinate_names: ClassVar[tuple[str, ...]] = ("displacement",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("m",)
    loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy", "Mx", "My", "Mz")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "5"]:
        a, b = frames
        return jnp.append(across(a, b.position - a.position), a.misalignment(b))

    def side(self, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return a.likeness(b)

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "1"]:
        a, b = frames
        return jnp.stack([dot(a.z, b.position - a.position)])

    def X_FM(self, c: Float[Array, "1"]) -> Frame:
        return Frame(_along_z(c[0]), jnp.eye(3, dtype=c.dtype))

    def across_joint_velocity(self, c: Float[Array, "1"], w: Float[Array, "1"]) -> Float[Array, "6"]:
        return jnp.append(_along_z(w[0]), jnp.zeros(3, w.dtype))


class Cylindrical(AbstractSpatialTreeJoint, AbstractSidedJoint):
    """A cylindrical joint (rotation and translation) along the markers' common z axis: `x_A, y_A ⊥ d, z_B` (4 rows).

    Coordinates: `displacement` [m] and `angle` [rad], including whole turns.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("displacement", "angle")
    coordinate_units: ClassVar[tuple[str, ...]] = ("m", "rad")
    unwrapped: ClassVar[tuple[str, ...]] = ("angle",)
    loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy", "-My", "Mx")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "4"]:
        a, b = frames
        return jnp.append(across(a, b.position - a.position), across(a, b.z))

    def side(self, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return dot(a.z, b.z)

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        return jnp.stack([dot(a.z, b.position - a.position), angle_about_z(a, b)])

    def X_FM(self, c: Float[Array, "2"]) -> Frame:
        return Frame(_along_z(c[0]), _about_z(c[1]))

    def across_joint_velocity(self, c: Float[Array, "2"], w: Float[Array, "2"]) -> Float[Array, "6"]:
        return jnp.append(_along_z(w[0]), _along_z(w[1]))


class Screw(AbstractSpatialPair, AbstractTreeJoint, AbstractJointWithCoordinates, AbstractSidedJoint):
    """A screw along the markers' common z axis: the rows of a cylindrical joint, and `z_A · d − p φ / 2π = 0` (5 rows).

    **Arguments:** `lead` p `[m]`, the advance per turn (negative for a left-hand thread).

    Coordinates: `displacement` [m] and `angle` [rad]. The displacement determines the number of whole turns, so
    prescribe it if the initial guess is several turns away.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    lead: Scalar = eqx.field(converter=as_float)
    coordinate_names: ClassVar[tuple[str, ...]] = ("displacement", "angle")
    coordinate_units: ClassVar[tuple[str, ...]] = ("m", "rad")
    loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy", "-My", "Mx", "-Fz")

    def __check_init__(self) -> None:
        check_shape(f"Screw {self.name!r}", "lead", self.lead, ())
        try:
            check_number(f"Screw {self.name!r}", "lead", abs(self.lead) if isinstance(self.lead, Array) else 1.0, "m")
        except MechanismError as error:
            raise MechanismError(f"{error} Without advance it is a Revolute.") from None

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "5"]:
        a, b = frames
        displacement, angle = self.motion(frames)
        advance = displacement - self.lead / (2 * jnp.pi) * angle
        return jnp.concatenate([across(a, b.position - a.position), across(a, b.z), advance[None]])

    def side(self, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return dot(a.z, b.z)

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        displacement = dot(a.z, b.position - a.position)
        return jnp.stack([displacement, nearest_turn(angle_about_z(a, b), 2 * jnp.pi * displacement / self.lead)])

    @property
    def chart(self) -> AbstractChart:
        return VECTOR

    @property
    def tree_coordinate_units(self) -> dict[str, str]:
        return {"angle": "rad"}

    @property
    def speeds(self) -> dict[str, str]:
        return {"angle_rate": "rad/s"}

    def X_FM(self, c: Float[Array, "1"]) -> Frame:
        return Frame(_along_z(self.lead / (2 * jnp.pi) * c[0]), _about_z(c[0]))

    def across_joint_velocity(self, c: Float[Array, "1"], w: Float[Array, "1"]) -> Float[Array, "6"]:
        return jnp.append(_along_z(self.lead / (2 * jnp.pi) * w[0]), _along_z(w[0]))

    def measure(self, frames: Sequence[Frame]) -> Float[Array, "1"]:
        return self.motion(frames)[1:]


class Planar(AbstractSpatialTreeJoint, AbstractSidedJoint):
    """A planar joint: `z_A · d = 0`, `x_A · z_B = y_A · z_B = 0` (3 rows).

    Coordinates: `x`, `y` [m] of the second marker in the first one's plane, and `angle` [rad], including whole turns.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("x", "y", "angle")
    coordinate_units: ClassVar[tuple[str, ...]] = ("m", "m", "rad")
    unwrapped: ClassVar[tuple[str, ...]] = ("angle",)
    loads: ClassVar[tuple[str, ...]] = ("-My", "Mx", "-Fz")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "3"]:
        a, b = frames
        return jnp.append(across(a, b.z), dot(a.z, b.position - a.position))

    def side(self, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return dot(a.z, b.z)

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "3"]:
        a, b = frames
        return jnp.append(across(a, b.position - a.position), angle_about_z(a, b))

    def X_FM(self, c: Float[Array, "3"]) -> Frame:
        return Frame(jnp.append(c[:2], 0.0), _about_z(c[2]))

    def across_joint_velocity(self, c: Float[Array, "3"], w: Float[Array, "3"]) -> Float[Array, "6"]:
        return jnp.concatenate([w[:2], jnp.zeros(3, w.dtype), w[2:]])


class Universal(AbstractSpatialTreeJoint):
    """A universal (Hooke, Cardan) joint: `p_A − p_B = 0`, `x_A · y_B = 0` (4 rows).

    The cross has one axis along x of the first marker and the other along y of the second. Coordinates: `angle_a` [rad]
    about the first, `angle_b` [rad] about the second, `R_AB = R_x(angle_a) R_y(angle_b)`; both include whole turns.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("angle_a", "angle_b")
    coordinate_units: ClassVar[tuple[str, ...]] = ("rad", "rad")
    unwrapped: ClassVar[tuple[str, ...]] = ("angle_a", "angle_b")
    loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy", "Fz", "M")

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "4"]:
        a, b = frames
        return jnp.append(a.position - b.position, dot(a.x, b.y))

    def motion(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        a, b = frames
        about_a = jnp.arctan2(dot(a.z, b.y), dot(a.y, b.y))
        about_b = jnp.arctan2(dot(a.x, b.z), dot(a.x, b.x))
        return jnp.stack([about_a, about_b])

    def X_FM(self, c: Float[Array, "2"]) -> Frame:
        (ca, cb), (sa, sb) = jnp.cos(c), jnp.sin(c)
        zero = jnp.zeros_like(ca)
        rows = [[cb, zero, sb], [sa * sb, ca, -sa * cb], [-ca * sb, sa, ca * cb]]
        return Frame(jnp.zeros(3, c.dtype), jnp.stack([jnp.stack(row) for row in rows]))

    def across_joint_velocity(self, c: Float[Array, "2"], w: Float[Array, "2"]) -> Float[Array, "6"]:
        return jnp.append(jnp.zeros(3, w.dtype), jnp.stack([w[0], jnp.cos(c[0]) * w[1], jnp.sin(c[0]) * w[1]]))


def across(a: Frame, vector: Point) -> Float[Array, "2"]:
    """The components of a vector along the x and y axes of a frame: zero if the vector is parallel to z."""
    return jnp.stack([dot(a.x, vector), dot(a.y, vector)])


def angle_about_z(a: Frame, b: Frame) -> Scalar:
    """The angle of `b` relative to `a` about their common z axis, in (−π, π]."""
    return jnp.arctan2(dot(a.y, b.x) - dot(a.x, b.y), dot(a.x, b.x) + dot(a.y, b.y))


def _about_z(angle: Scalar) -> Float[Array, "3 3"]:
    """The rotation matrix of a rotation about the z axis."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    return jnp.stack([jnp.stack(row) for row in ([c, -s, zero], [s, c, zero], [zero, zero, one])])


def _along_z(z: Scalar) -> Float[Array, "3"]:
    return jnp.stack([jnp.zeros_like(z), jnp.zeros_like(z), z])
