"""The space a mechanism lives in: pose, twist and frames, so that everything above is written once.

A *pose* holds the coordinates of one body, a *twist* its generalized speeds; `retract` moves a pose along a
twist. In the plane a pose is `(x, y, theta)` of the centre of mass and `q̇ = v`.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._maths import cross
from jaxmbd._types import Scalar


class Frame(eqx.Module):
    """Position [m] and angle [rad] of a marker in the world: what a joint or force law sees of a body."""

    position: Float[Array, "2"]
    angle: Scalar

    @property
    def axis(self) -> Float[Array, "2"]:
        """Unit vector of the frame's x axis in the world."""
        return jnp.stack([jnp.cos(self.angle), jnp.sin(self.angle)])

    @property
    def normal(self) -> Float[Array, "2"]:
        """Unit vector of the frame's y axis in the world."""
        return jnp.stack([-jnp.sin(self.angle), jnp.cos(self.angle)])


class AbstractSpace(eqx.Module):
    """What a space has to offer; `Planar` is the one for mechanisms in a plane."""

    coordinates: eqx.AbstractVar[tuple[str, ...]]
    speeds: eqx.AbstractVar[tuple[str, ...]]
    accelerations: eqx.AbstractVar[tuple[str, ...]]
    efforts: eqx.AbstractVar[tuple[str, ...]]
    units: eqx.AbstractVar[tuple[str, ...]]

    @abc.abstractmethod
    def retract(self, pose: Array, step: Array) -> Array:
        """The pose reached from `pose` along `step`, a twist times a time."""

    @abc.abstractmethod
    def frame(self, pose: Array, position: Array, angle: Array) -> Frame:
        """The world frame of a marker at `position`, `angle` in the body's frame."""

    @abc.abstractmethod
    def mass(self, mass: Array, inertia: Array) -> Array:
        """The diagonal of one body's mass matrix with respect to its twist."""

    @abc.abstractmethod
    def to_centre(self, pose: Array, point: Array, wrench: Array) -> Array:
        """Move a wrench that acts at a world point to the body's centre of mass: its generalized force."""

    @abc.abstractmethod
    def in_body(self, pose: Array, wrench: Array) -> Array:
        """A wrench in world axes, in the axes of the body at `pose`."""


class Planar(AbstractSpace):
    """The plane: pose `(x, y, theta)`, twist `(vx, vy, omega)`, wrench `(fx, fy, moment)`."""

    coordinates: tuple[str, ...] = eqx.field(default=("x", "y", "theta"), static=True)
    speeds: tuple[str, ...] = eqx.field(default=("vx", "vy", "omega"), static=True)
    accelerations: tuple[str, ...] = eqx.field(default=("ax", "ay", "alpha"), static=True)
    efforts: tuple[str, ...] = eqx.field(default=("fx", "fy", "moment"), static=True)
    units: tuple[str, ...] = eqx.field(default=("m", "m", "rad"), static=True)

    def retract(self, pose: Float[Array, "3"], step: Float[Array, "3"]) -> Float[Array, "3"]:
        return pose + step

    def frame(self, pose: Float[Array, "3"], position: Float[Array, "2"], angle: Scalar) -> Frame:
        c, s = jnp.cos(pose[2]), jnp.sin(pose[2])
        x, y = position
        offset = jnp.stack([c * x - s * y, s * x + c * y])
        return Frame(pose[:2] + offset, pose[2] + angle)

    def mass(self, mass: Scalar, inertia: Scalar) -> Float[Array, "3"]:
        return jnp.stack([mass, mass, inertia])

    def to_centre(
        self, pose: Float[Array, "3"], point: Float[Array, "2"], wrench: Float[Array, "3"]
    ) -> Float[Array, "3"]:
        moment = wrench[2] + cross(point - pose[:2], wrench[:2])
        return jnp.stack([wrench[0], wrench[1], moment])

    def in_body(self, pose: Float[Array, "3"], wrench: Float[Array, "3"]) -> Float[Array, "3"]:
        c, s = jnp.cos(pose[2]), jnp.sin(pose[2])
        return jnp.stack([c * wrench[0] + s * wrench[1], c * wrench[1] - s * wrench[0], wrench[2]])


PLANAR = Planar()
