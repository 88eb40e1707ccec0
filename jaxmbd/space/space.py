"""Charts, frames and spaces: the common interface of the plane and of three dimensions.

A *frame* is the position and orientation of a body or marker in the world. A *pose* is the vector of coordinates of one
body, a *twist* its generalized speeds, an *effort* the generalized force that does work on the twist. A *wrench* is a
force and a moment in world axes.

A *chart* is the kinematic differential equation `q̇ = N(q) v` of a body or of a joint. `rate` is `N(q) v`; `retract`
advances the coordinates by a step (speeds times a time), exactly to second order, so that derivatives of a law along it
are those along the motion; `normalize` restores the constraint of redundant coordinates.
"""

import abc
from collections.abc import Sequence
from typing import Any, Self, TypeAlias, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Point, Scalar
from jaxmbd.space.rotation import multiply
from jaxmbd.space.vectors import dot


class AbstractChart(eqx.Module):
    """The relation between coordinates and speeds."""

    @abc.abstractmethod
    def retract(self, q: Array, step: Array) -> Array:
        """The coordinates after a `step` (speeds times a time) from `q`."""

    @abc.abstractmethod
    def rate(self, q: Array, v: Array) -> Array:
        """`q̇ = N(q) v`."""

    @abc.abstractmethod
    def pull(self, q: Array) -> Array:
        """The rate of coordinates at which a violation of their own constraint (a quaternion's norm) decays at 1/s."""

    @abc.abstractmethod
    def normalize(self, q: Array) -> Array:
        """The same configuration with the constraint of redundant coordinates satisfied exactly."""


class VectorChart(AbstractChart):
    """Coordinates whose rates are the speeds: angles and displacements."""

    def retract(self, q: Float[Array, " n"], step: Float[Array, " n"]) -> Float[Array, " n"]:
        return q + step

    def rate(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        return v

    def pull(self, q: Float[Array, " n"]) -> Float[Array, " n"]:
        return jnp.zeros_like(q)

    def normalize(self, q: Float[Array, " n"]) -> Float[Array, " n"]:
        return q


class QuaternionChart(AbstractChart):
    """Euler parameters with the angular velocity in body axes: `ė = ½ e ∘ (0, ω)`.

    Only the direction of the quaternion matters. `pull` drives its norm to one, `normalize` sets it. `retract` is
    `e ∘ (1, ½ θ)`, a Cayley map: it agrees with the exponential map to second order, which suffices for `C`, `Φ̇` and
    `γ`, and needs no square root.
    """

    def retract(self, q: Float[Array, "4"], step: Float[Array, "3"]) -> Float[Array, "4"]:
        return q + _half_product(q, step)

    def rate(self, q: Float[Array, "4"], v: Float[Array, "3"]) -> Float[Array, "4"]:
        return _half_product(q, v)

    def pull(self, q: Float[Array, "4"]) -> Float[Array, "4"]:
        return 0.5 * (1.0 - dot(q, q)) * q

    def normalize(self, q: Float[Array, "4"]) -> Float[Array, "4"]:
        return q / jnp.sqrt(dot(q, q))


def _half_product(e: Float[Array, "4"], turn: Float[Array, "3"]) -> Float[Array, "4"]:
    """`½ e ∘ (0, θ)`, `θ` in body axes."""
    return 0.5 * multiply(e, jnp.concatenate([jnp.zeros_like(turn[:1]), turn]))


VECTOR, QUATERNION = VectorChart(), QuaternionChart()

# The arguments of laws. `Any`, here and where two frames must be of one space: an override may not narrow a type, and a
# law of the plane takes frames of the plane alone.
Frames: TypeAlias = Sequence[Any]
Rates: TypeAlias = Sequence[Any]  # with `position` and `angular`

F = TypeVar("F", bound="AbstractFrame")


class AbstractFrame(eqx.Module):
    """Position and orientation of a body or marker in the world; the argument of joint and force laws.

    Laws that hold in both spaces use this interface only.
    """

    position: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def axis(self) -> Point:
        """Unit vector of the frame's x axis in the world."""

    @property
    @abc.abstractmethod
    def normal(self) -> Point:
        """Unit vector of the frame's last axis in the world: y in the plane, z in space."""

    @abc.abstractmethod
    def compose(self, inner: Any) -> Self:
        """The world frame of `inner`, which is defined relative to this frame: `X_WA X_AB`."""

    @abc.abstractmethod
    def inverse(self) -> Self:
        """The inverse transform: the world relative to this frame."""

    @abc.abstractmethod
    def to_world(self, vector: Point) -> Point:
        """Transform a vector from the frame's axes to world axes."""

    @abc.abstractmethod
    def to_local(self, vector: Point) -> Point:
        """Transform a vector from world axes to the frame's axes."""

    @abc.abstractmethod
    def misalignment(self, other: Any) -> Float[Array, " turns"]:
        """Constraint rows that are zero if the axes of both frames are aligned: 1 in the plane, 3 in space."""

    @abc.abstractmethod
    def likeness(self, other: Any) -> Scalar:
        """The cosine of the rotation angle between both frames: 1 if they are aligned, −1 after half a turn.

        It distinguishes the zeros of `misalignment`. In the plane there is one only, since angles count turns: 1.
        """

    @abc.abstractmethod
    def turn(self, other: Any) -> Float[Array, " turns"]:
        """The rotation [rad] from this frame to another, in this frame's axes: an angle, or a rotation vector."""

    @abc.abstractmethod
    def perturbed(self: F, step: Array) -> F:
        """The frame displaced by a step (a marker's rate times a time), exact to second order."""

    @abc.abstractmethod
    def rate(self, change: Any) -> Array:
        """The velocity of the origin and the angular velocity, from the rates `change` of the frame's numbers.

        Both are in the axes that the frame is given in.
        """

    @abc.abstractmethod
    def spin(self, rate: Any) -> Float[Array, " turns"]:
        """The angular velocity [rad/s] of the frame in its own axes, from its rate."""


class AbstractSpace(AbstractChart):
    """A space, `Planar` or `Spatial`: kinematics and inertia of one body. As a chart, it relates poses to twists."""

    dim: eqx.AbstractVar[int]  # length of a position vector
    coordinates: eqx.AbstractVar[tuple[str, ...]]  # names of the entries of a pose
    units: eqx.AbstractVar[tuple[str, ...]]
    prescribable: eqx.AbstractVar[tuple[str, ...]]  # coordinates that a driver may prescribe
    speeds: eqx.AbstractVar[tuple[str, ...]]  # names of the entries of a twist
    accelerations: eqx.AbstractVar[tuple[str, ...]]
    twist_units: eqx.AbstractVar[tuple[str, ...]]  # units of a twist, times seconds
    efforts: eqx.AbstractVar[tuple[str, ...]]  # names of the entries of a wrench
    effort_units: eqx.AbstractVar[tuple[str, ...]]
    inertial_numbers: eqx.AbstractVar[tuple[str, ...]]  # names of the numbers in which the dynamics of a body is linear
    rest: eqx.AbstractVar[tuple[float, ...]]  # the pose of the ground
    down: eqx.AbstractVar[tuple[float, ...]]  # direction of a scalar gravity

    @abc.abstractmethod
    def place(self, pose: Array) -> AbstractFrame:
        """The frame of a body at a pose."""

    @abc.abstractmethod
    def pose(self, frame: Any) -> Array:
        """The pose of a body from its frame."""

    @abc.abstractmethod
    def rotate_to_world(self, frame: Any, rate: Array) -> Array:
        """Transform a rate from the axes of a frame to world axes."""

    @abc.abstractmethod
    def to_twist(self, body: Any, rate: Array) -> Array:
        """The twist of a body from the rate of its centre of mass."""

    @abc.abstractmethod
    def marker_rate(self, body: Any, twist: Array, point: Array) -> Array:
        """A marker's rate: the velocity of the body's point at `point` (world) and its angular velocity, world axes.

        `body` is the frame of the body, here and below.
        """

    @abc.abstractmethod
    def marker_acceleration(self, body: Any, twist: Array, vdot: Array, point: Array) -> Array:
        """The acceleration of the point and the angular acceleration, the time derivative of `marker_rate`."""

    @abc.abstractmethod
    def as_rate(self, rate: Array) -> Any:
        """A marker's rate (or acceleration) as an object with `position` and `angular`, for laws and sensors."""

    @abc.abstractmethod
    def inertia(self, mass: Array, inertia: Array) -> Any:
        """The inertia data of a body for `momentum` and `acceleration`, computed once."""

    @abc.abstractmethod
    def momentum(self, inertia: Any, twist: Array) -> Array:
        """The momentum `M v` of one body."""

    @abc.abstractmethod
    def acceleration(self, inertia: Any, effort: Array) -> Array:
        """`M⁻¹ f` of one body."""

    @abc.abstractmethod
    def gyroscopic(self, inertia: Any, twist: Array) -> Array:
        """The gyroscopic effort, part of `F`."""

    @abc.abstractmethod
    def inertial_effort(self, body: Any, twist: Array, vdot: Array, numbers: Array) -> Array:
        """The effort that gives a body with the `inertial_numbers` the twist's rate `vdot`; linear in these.

        The numbers are the mass, the first moments of mass `m c`, and the inertia, all about the origin of the frame
        `body` and in its axes; the centre `c` of mass may be elsewhere.
        """

    @abc.abstractmethod
    def to_centre(self, body: Any, point: Array, wrench: Array) -> Array:
        """The effort on a body from a wrench that acts at the body's point at `point` (world)."""

    @abc.abstractmethod
    def in_body(self, body: Any, wrench: Array) -> Array:
        """Transform a wrench from world axes to the axes of a body."""

    @abc.abstractmethod
    def in_world(self, body: Any, effort: Array) -> Array:
        """An effort on a body as a wrench at its centre of mass, in world axes."""

    @abc.abstractmethod
    def moment(self, wrench: Array) -> Array:
        """The moments of wrenches `(..., efforts)`: scalars in the plane, vectors in space."""

    @abc.abstractmethod
    def to_effort(self, force: Array) -> Array:
        """The effort of a force at the centre of mass."""
