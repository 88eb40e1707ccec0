"""What a space has to offer, so that everything above is written once.

A *frame* is the placement of a body or a marker in the world. A *pose* holds the coordinates of one body, a *twist* its
generalized speeds, an *effort* the generalized force that does work on the twist; a *wrench* is a force and a moment in
world axes. `retract` moves a pose along a twist times a time, exactly to second order, so that derivatives of a law
along `retract` are those along the motion.
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from jaxmbd.arrays import Point
from jaxmbd.space.chart import AbstractChart


class AbstractFrame(eqx.Module):
    """A placement: of a body, or of a marker, which is what a joint or force law sees of its body. Laws for both spaces
    use only what is here."""

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
    def compose(self, inner: Any) -> Any:
        """The placement in the world of a frame that is placed in this one."""

    @abc.abstractmethod
    def inverse(self) -> Any:
        """The world's placement in this frame."""

    @abc.abstractmethod
    def to_world(self, vector: Point) -> Point:
        """A vector given in the frame's axes, in world axes."""

    @abc.abstractmethod
    def to_local(self, vector: Point) -> Point:
        """A vector given in world axes, in the frame's axes."""

    @abc.abstractmethod
    def misalignment(self, other: Any) -> Float[Array, " turns"]:
        """Rows that are zero when the axes of both frames coincide: 1 in the plane, 3 in space."""

    @abc.abstractmethod
    def turn(self, other: Any) -> Float[Array, " turns"]:
        """The rotation [rad] from this frame to another, in this frame's axes: an angle, or a rotation vector."""

    @abc.abstractmethod
    def perturbed(self, step: Array) -> Any:
        """The frame moved by a step, a marker's rate times a time: exact to second order."""

    @abc.abstractmethod
    def spin(self, rate: Any) -> Float[Array, " turns"]:
        """The angular velocity [rad/s] of the frame in its own axes, from its rate."""


class AbstractSpace(AbstractChart):
    """What a space has to offer: `Planar` and `Spatial`. As a chart, it moves poses with twists."""

    dim: eqx.AbstractVar[int]  # of a position
    coordinates: eqx.AbstractVar[tuple[str, ...]]  # of a pose
    units: eqx.AbstractVar[tuple[str, ...]]
    prescribable: eqx.AbstractVar[tuple[str, ...]]  # those a driver may prescribe
    speeds: eqx.AbstractVar[tuple[str, ...]]  # of a twist
    accelerations: eqx.AbstractVar[tuple[str, ...]]
    twist_units: eqx.AbstractVar[tuple[str, ...]]  # times seconds
    efforts: eqx.AbstractVar[tuple[str, ...]]  # of a wrench
    effort_units: eqx.AbstractVar[tuple[str, ...]]
    rest: eqx.AbstractVar[tuple[float, ...]]  # the ground's pose
    down: eqx.AbstractVar[tuple[float, ...]]  # where a gravity given as a number points

    @abc.abstractmethod
    def place(self, pose: Array) -> Any:
        """The frame of a body at a pose."""

    @abc.abstractmethod
    def pose(self, frame: Any) -> Array:
        """The pose of a body whose frame is given."""

    @abc.abstractmethod
    def rotate_to_world(self, frame: Any, rate: Array) -> Array:
        """A rate given in the axes of a frame, in world axes."""

    @abc.abstractmethod
    def to_twist(self, body: Any, rate: Array) -> Array:
        """The twist of a body from the rate of its centre of mass."""

    @abc.abstractmethod
    def marker_rate(self, body: Any, twist: Array, point: Array) -> Array:
        """The velocity of a world point of a body, and the angular velocity in world axes: a marker's rate. `body` is
        the frame of the body, here and below."""

    @abc.abstractmethod
    def marker_acceleration(self, body: Any, twist: Array, vdot: Array, point: Array) -> Array:
        """The accelerations that belong to `marker_rate`."""

    @abc.abstractmethod
    def as_rate(self, rate: Array) -> Any:
        """A marker's rate (or acceleration) as laws and sensors see it, with `position` and `angular`."""

    @abc.abstractmethod
    def inertia(self, mass: Array, inertia: Array) -> Any:
        """What `momentum` and `acceleration` need of a body, computed once."""

    @abc.abstractmethod
    def momentum(self, inertia: Any, twist: Array) -> Array:
        """One body's `M v`."""

    @abc.abstractmethod
    def acceleration(self, inertia: Any, effort: Array) -> Array:
        """One body's `M⁻¹ f`."""

    @abc.abstractmethod
    def gyroscopic(self, inertia: Any, twist: Array) -> Array:
        """The effort that speeds alone give: it belongs to `F`."""

    @abc.abstractmethod
    def to_centre(self, body: Any, point: Array, wrench: Array) -> Array:
        """The effort of a wrench that acts at a world point of a body."""

    @abc.abstractmethod
    def in_body(self, body: Any, wrench: Array) -> Array:
        """A wrench in world axes, in the axes of a body."""

    @abc.abstractmethod
    def in_world(self, body: Any, effort: Array) -> Array:
        """An effort on a body as a wrench at its centre of mass, in world axes."""

    @abc.abstractmethod
    def moment(self, wrench: Array) -> Array:
        """The moments of wrenches `(..., efforts)`: numbers in the plane, vectors in space."""

    @abc.abstractmethod
    def to_effort(self, force: Array) -> Array:
        """The effort of a force at the centre of mass."""
