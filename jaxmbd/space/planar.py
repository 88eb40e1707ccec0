"""The plane: a pose is `(x, y, theta)` of the centre of mass and `q̇ = v`."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.space.space import AbstractFrame, AbstractSpace
from jaxmbd.space.vectors import cross, dot, swept


class Frame(AbstractFrame):
    """Position [m] and angle [rad] of a body or marker in the world; as a rate, their time derivatives."""

    position: Float[Array, "2"]
    angle: Scalar

    @property
    def angular(self) -> Scalar:
        """The angular velocity [rad/s], if this is a rate."""
        return self.angle

    @property
    def axis(self) -> Float[Array, "2"]:
        """Unit vector of the frame's x axis in the world."""
        return jnp.stack([jnp.cos(self.angle), jnp.sin(self.angle)])

    @property
    def normal(self) -> Float[Array, "2"]:
        """Unit vector of the frame's y axis in the world."""
        return jnp.stack([-jnp.sin(self.angle), jnp.cos(self.angle)])

    def compose(self, inner: "Frame") -> "Frame":
        return Frame(self.position + self.to_world(inner.position), self.angle + inner.angle)

    def inverse(self) -> "Frame":
        return Frame(-self.to_local(self.position), -self.angle)

    def to_world(self, vector: Float[Array, "2"]) -> Float[Array, "2"]:
        return vector[0] * self.axis + vector[1] * self.normal

    def to_local(self, vector: Float[Array, "2"]) -> Float[Array, "2"]:
        return jnp.stack([dot(self.axis, vector), dot(self.normal, vector)])

    def misalignment(self, other: "Frame") -> Float[Array, "1"]:
        return jnp.stack([other.angle - self.angle])

    def likeness(self, other: "Frame") -> Scalar:
        return jnp.ones_like(self.angle)

    def turn(self, other: "Frame") -> Float[Array, "1"]:
        return jnp.stack([other.angle - self.angle])

    def perturbed(self, step: Float[Array, "3"]) -> "Frame":
        return Frame(self.position + step[:2], self.angle + step[2])

    def rate(self, change: "Frame") -> Float[Array, "3"]:
        return jnp.append(change.position, change.angle)

    def spin(self, rate: "Frame") -> Float[Array, "1"]:
        return jnp.stack([rate.angle])


class Planar(AbstractSpace):
    """The plane: pose `(x, y, theta)`, twist `(vx, vy, omega)`, wrench and effort `(fx, fy, moment)`."""

    dim: int = eqx.field(default=2, static=True)
    coordinates: tuple[str, ...] = eqx.field(default=("x", "y", "theta"), static=True)
    units: tuple[str, ...] = eqx.field(default=("m", "m", "rad"), static=True)
    prescribable: tuple[str, ...] = eqx.field(default=("x", "y", "theta"), static=True)
    speeds: tuple[str, ...] = eqx.field(default=("vx", "vy", "omega"), static=True)
    accelerations: tuple[str, ...] = eqx.field(default=("ax", "ay", "alpha"), static=True)
    twist_units: tuple[str, ...] = eqx.field(default=("m", "m", "rad"), static=True)
    efforts: tuple[str, ...] = eqx.field(default=("fx", "fy", "moment"), static=True)
    effort_units: tuple[str, ...] = eqx.field(default=("N", "N", "N m"), static=True)
    rest: tuple[float, ...] = eqx.field(default=(0.0, 0.0, 0.0), static=True)
    down: tuple[float, ...] = eqx.field(default=(0.0, -1.0), static=True)
    inertial_numbers: tuple[str, ...] = eqx.field(
        default=("mass", "first_moment.x", "first_moment.y", "inertia"), static=True
    )

    def retract(self, q: Float[Array, "3"], step: Float[Array, "3"]) -> Float[Array, "3"]:
        return q + step

    def rate(self, q: Float[Array, "3"], v: Float[Array, "3"]) -> Float[Array, "3"]:
        return v

    def pull(self, q: Float[Array, "3"]) -> Float[Array, "3"]:
        return jnp.zeros_like(q)

    def normalize(self, q: Float[Array, "3"]) -> Float[Array, "3"]:
        return q

    def place(self, pose: Float[Array, "3"]) -> Frame:
        return Frame(pose[:2], pose[2])

    def pose(self, frame: Frame) -> Float[Array, "3"]:
        return jnp.append(frame.position, frame.angle)

    def rotate_to_world(self, frame: Frame, rate: Float[Array, "3"]) -> Float[Array, "3"]:
        return jnp.append(frame.to_world(rate[:2]), rate[2])

    def to_twist(self, body: Frame, rate: Float[Array, "3"]) -> Float[Array, "3"]:
        return rate

    def marker_rate(self, body: Frame, twist: Float[Array, "3"], point: Float[Array, "2"]) -> Float[Array, "3"]:
        return jnp.append(twist[:2] + swept(twist[2], point - body.position), twist[2])

    def marker_acceleration(
        self, body: Frame, twist: Float[Array, "3"], vdot: Float[Array, "3"], point: Float[Array, "2"]
    ) -> Float[Array, "3"]:
        arm = point - body.position
        return jnp.append(vdot[:2] + swept(vdot[2], arm) - twist[2] ** 2 * arm, vdot[2])

    def as_rate(self, rate: Float[Array, "3"]) -> Frame:
        return Frame(rate[:2], rate[2])

    def inertia(self, mass: Scalar, inertia: Scalar) -> Float[Array, "3"]:
        return jnp.stack([mass, mass, inertia])

    def momentum(self, inertia: Float[Array, "3"], twist: Float[Array, "3"]) -> Float[Array, "3"]:
        return inertia * twist

    def acceleration(self, inertia: Float[Array, "3"], effort: Float[Array, "3"]) -> Float[Array, "3"]:
        return effort / inertia

    def gyroscopic(self, inertia: object, twist: Float[Array, "3"]) -> Float[Array, "3"]:
        return jnp.zeros_like(twist)

    def inertial_effort(
        self, body: Frame, twist: Float[Array, "3"], vdot: Float[Array, "3"], numbers: Float[Array, "4"]
    ) -> Float[Array, "3"]:
        mass, first, inertia = numbers[0], body.to_world(numbers[1:3]), numbers[3]
        force = mass * vdot[:2] + swept(vdot[2], first) - twist[2] ** 2 * first
        return jnp.append(force, inertia * vdot[2] + cross(first, vdot[:2]))

    def to_centre(self, body: Frame, point: Float[Array, "2"], wrench: Float[Array, "3"]) -> Float[Array, "3"]:
        moment = wrench[2] + cross(point - body.position, wrench[:2])
        return jnp.stack([wrench[0], wrench[1], moment])

    def in_body(self, body: Frame, wrench: Float[Array, "3"]) -> Float[Array, "3"]:
        return jnp.append(body.to_local(wrench[:2]), wrench[2])

    def in_world(self, body: Frame, effort: Float[Array, "3"]) -> Float[Array, "3"]:
        return effort

    def moment(self, wrench: Float[Array, "*batch 3"]) -> Float[Array, "*batch"]:
        return wrench[..., 2]

    def to_effort(self, force: Float[Array, "2"]) -> Float[Array, "3"]:
        return jnp.append(force, 0.0)


PLANAR = Planar()
