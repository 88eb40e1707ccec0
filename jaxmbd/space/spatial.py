"""Three dimensions: a pose is the position of the centre of mass and four Euler parameters.

Pose `(x, y, z, e0, e1, e2, e3)`, the unit quaternion scalar first, from body to world axes; twist
`(vx, vy, vz, omega_x, omega_y, omega_z)`, the velocity of the centre of mass in world axes and the angular velocity in
body axes, `q̇ = N(q) v` with `ė = ½ e ∘ (0, ω)`.

Only the direction of the quaternion matters: rotation matrices divide by its squared norm, so an error of the norm
scales nothing. The kinematic differential equation of the quaternion is in `chart`.

Source: Nikravesh, *Computer-Aided Analysis of Mechanical Systems* (1988), §6; Haug (1989), §9.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.space.rotation import from_matrix, matrix, vector
from jaxmbd.space.space import QUATERNION, AbstractFrame, AbstractSpace
from jaxmbd.space.vectors import cross, dot, skew, times


class SpatialFrame(AbstractFrame):
    """Position [m] and rotation matrix of a body or marker in the world; the columns of `rotation` are its axes."""

    position: Float[Array, "3"]
    rotation: Float[Array, "3 3"]

    @property
    def x(self) -> Float[Array, "3"]:
        """Unit vector of the frame's x axis in the world."""
        return self.rotation[:, 0]

    @property
    def y(self) -> Float[Array, "3"]:
        """Unit vector of the frame's y axis in the world."""
        return self.rotation[:, 1]

    @property
    def z(self) -> Float[Array, "3"]:
        """Unit vector of the frame's z axis in the world."""
        return self.rotation[:, 2]

    @property
    def axis(self) -> Float[Array, "3"]:
        return self.rotation[:, 0]

    @property
    def normal(self) -> Float[Array, "3"]:
        return self.rotation[:, 2]

    def compose(self, inner: "SpatialFrame") -> "SpatialFrame":
        return SpatialFrame(self.position + self.to_world(inner.position), times(self.rotation, inner.rotation))

    def inverse(self) -> "SpatialFrame":
        return SpatialFrame(-self.to_local(self.position), self.rotation.T)

    def to_world(self, vector: Float[Array, "3"]) -> Float[Array, "3"]:
        return times(self.rotation, vector)

    def to_local(self, vector: Float[Array, "3"]) -> Float[Array, "3"]:
        return times(self.rotation.T, vector)

    def misalignment(self, other: "SpatialFrame") -> Float[Array, "3"]:
        return jnp.stack([dot(self.y, other.z), dot(self.z, other.x), dot(self.x, other.y)])

    def likeness(self, other: "SpatialFrame") -> Scalar:
        return 0.5 * (dot(self.x, other.x) + dot(self.y, other.y) + dot(self.z, other.z) - 1)

    def turn(self, other: "SpatialFrame") -> Float[Array, "3"]:
        return vector(from_matrix(times(self.rotation.T, other.rotation)))

    def perturbed(self, step: Float[Array, "6"]) -> "SpatialFrame":
        turn = skew(step[3:])
        return SpatialFrame(
            self.position + step[:3], self.rotation + times(turn, self.rotation + 0.5 * times(turn, self.rotation))
        )

    def rate(self, change: "SpatialFrame") -> Float[Array, "6"]:
        turning = times(change.rotation, self.rotation.T)  # skew-symmetric
        return jnp.concatenate([change.position, jnp.stack([turning[2, 1], turning[0, 2], turning[1, 0]])])

    def spin(self, rate: "SpatialRate") -> Float[Array, "3"]:
        return self.to_local(rate.angular)


class SpatialRate(eqx.Module):
    """A marker's velocity [m/s] and angular velocity [rad/s] (or accelerations), in world axes."""

    position: Float[Array, "3"]
    angular: Float[Array, "3"]


class Inertia(eqx.Module):
    """Mass, inertia tensor and its inverse, about the centre of mass in body axes."""

    mass: Scalar
    tensor: Float[Array, "3 3"]
    inverse: Float[Array, "3 3"]


class Spatial(AbstractSpace):
    """Three dimensions; the module's docstring defines poses and twists.

    A wrench is `(fx, fy, fz, mx, my, mz)` in world axes; the moment of an effort is about the centre of mass, in body
    axes.
    """

    dim: int = eqx.field(default=3, static=True)
    coordinates: tuple[str, ...] = eqx.field(default=("x", "y", "z", "e0", "e1", "e2", "e3"), static=True)
    units: tuple[str, ...] = eqx.field(default=("m",) * 3 + ("1",) * 4, static=True)
    prescribable: tuple[str, ...] = eqx.field(default=("x", "y", "z"), static=True)
    speeds: tuple[str, ...] = eqx.field(default=("vx", "vy", "vz", "omega_x", "omega_y", "omega_z"), static=True)
    accelerations: tuple[str, ...] = eqx.field(default=("ax", "ay", "az", "alpha_x", "alpha_y", "alpha_z"), static=True)
    twist_units: tuple[str, ...] = eqx.field(default=("m",) * 3 + ("rad",) * 3, static=True)
    efforts: tuple[str, ...] = eqx.field(default=("fx", "fy", "fz", "mx", "my", "mz"), static=True)
    effort_units: tuple[str, ...] = eqx.field(default=("N",) * 3 + ("N m",) * 3, static=True)
    rest: tuple[float, ...] = eqx.field(default=(0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), static=True)
    down: tuple[float, ...] = eqx.field(default=(0.0, 0.0, -1.0), static=True)
    inertial_numbers: tuple[str, ...] = eqx.field(
        default=(
            "mass", *(f"first_moment.{x}" for x in "xyz"),
            *(f"inertia.{x}" for x in ("xx", "yy", "zz", "xy", "xz", "yz")),
        ),
        static=True,
    )  # fmt: skip

    def retract(self, q: Float[Array, "7"], step: Float[Array, "6"]) -> Float[Array, "7"]:
        return jnp.concatenate([q[:3] + step[:3], QUATERNION.retract(q[3:], step[3:])])

    def rate(self, q: Float[Array, "7"], v: Float[Array, "6"]) -> Float[Array, "7"]:
        return jnp.concatenate([v[:3], QUATERNION.rate(q[3:], v[3:])])

    def pull(self, q: Float[Array, "7"]) -> Float[Array, "7"]:
        return jnp.concatenate([jnp.zeros_like(q[:3]), QUATERNION.pull(q[3:])])

    def normalize(self, q: Float[Array, "7"]) -> Float[Array, "7"]:
        return jnp.concatenate([q[:3], QUATERNION.normalize(q[3:])])

    def place(self, pose: Float[Array, "7"]) -> SpatialFrame:
        return SpatialFrame(pose[:3], matrix(pose[3:]))

    def pose(self, frame: SpatialFrame) -> Float[Array, "7"]:
        return jnp.concatenate([frame.position, from_matrix(frame.rotation)])

    def rotate_to_world(self, frame: SpatialFrame, rate: Float[Array, "6"]) -> Float[Array, "6"]:
        return jnp.concatenate([frame.to_world(rate[:3]), frame.to_world(rate[3:])])

    def to_twist(self, body: SpatialFrame, rate: Float[Array, "6"]) -> Float[Array, "6"]:
        return jnp.concatenate([rate[:3], body.to_local(rate[3:])])

    def marker_rate(self, body: SpatialFrame, twist: Float[Array, "6"], point: Float[Array, "3"]) -> Float[Array, "6"]:
        omega = body.to_world(twist[3:])
        return jnp.concatenate([twist[:3] + cross(omega, point - body.position), omega])

    def marker_acceleration(
        self, body: SpatialFrame, twist: Float[Array, "6"], vdot: Float[Array, "6"], point: Float[Array, "3"]
    ) -> Float[Array, "6"]:
        arm = point - body.position
        omega, alpha = body.to_world(twist[3:]), body.to_world(vdot[3:])
        return jnp.concatenate([vdot[:3] + cross(alpha, arm) + cross(omega, cross(omega, arm)), alpha])

    def as_rate(self, rate: Float[Array, "6"]) -> SpatialRate:
        return SpatialRate(rate[:3], rate[3:])

    def inertia(self, mass: Scalar, inertia: Float[Array, "3 3"]) -> Inertia:
        return Inertia(mass, inertia, _inverse(inertia))

    def momentum(self, inertia: Inertia, twist: Float[Array, "6"]) -> Float[Array, "6"]:
        return jnp.concatenate([inertia.mass * twist[:3], times(inertia.tensor, twist[3:])])

    def acceleration(self, inertia: Inertia, effort: Float[Array, "6"]) -> Float[Array, "6"]:
        return jnp.concatenate([effort[:3] / inertia.mass, times(inertia.inverse, effort[3:])])

    def gyroscopic(self, inertia: Inertia, twist: Float[Array, "6"]) -> Float[Array, "6"]:
        omega = twist[3:]
        return jnp.concatenate([jnp.zeros_like(omega), cross(times(inertia.tensor, omega), omega)])

    def inertial_effort(
        self, body: SpatialFrame, twist: Float[Array, "6"], vdot: Float[Array, "6"], numbers: Float[Array, "10"]
    ) -> Float[Array, "6"]:
        mass, first, (xx, yy, zz, xy, xz, yz) = numbers[0], numbers[1:4], numbers[4:]
        tensor = jnp.stack([jnp.stack([xx, xy, xz]), jnp.stack([xy, yy, yz]), jnp.stack([xz, yz, zz])])
        omega, alpha = twist[3:], vdot[3:]
        turning = cross(alpha, first) + cross(omega, cross(omega, first))
        moment = times(tensor, alpha) + cross(omega, times(tensor, omega)) + cross(first, body.to_local(vdot[:3]))
        return jnp.concatenate([mass * vdot[:3] + body.to_world(turning), moment])

    def to_centre(self, body: SpatialFrame, point: Float[Array, "3"], wrench: Float[Array, "6"]) -> Float[Array, "6"]:
        moment = wrench[3:] + cross(point - body.position, wrench[:3])
        return jnp.concatenate([wrench[:3], body.to_local(moment)])

    def in_body(self, body: SpatialFrame, wrench: Float[Array, "6"]) -> Float[Array, "6"]:
        return jnp.concatenate([body.to_local(wrench[:3]), body.to_local(wrench[3:])])

    def in_world(self, body: SpatialFrame, effort: Float[Array, "6"]) -> Float[Array, "6"]:
        return jnp.concatenate([effort[:3], body.to_world(effort[3:])])

    def moment(self, wrench: Float[Array, "*batch 6"]) -> Float[Array, "*batch 3"]:
        return wrench[..., 3:]

    def to_effort(self, force: Float[Array, "3"]) -> Float[Array, "6"]:
        return jnp.concatenate([force, jnp.zeros_like(force)])


def _inverse(J: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """Inverse of a 3 × 3 matrix by its cofactors."""
    rows = jnp.stack([cross(J[1], J[2]), cross(J[2], J[0]), cross(J[0], J[1])])
    # The inertia of a thin rod is singular: the inverse is NaN, without NaN in derivatives of code that ignores it.
    determinant = dot(J[0], rows[0])
    is_singular = determinant == 0
    return jnp.where(is_singular, jnp.nan, rows.T / jnp.where(is_singular, 1.0, determinant))


SPATIAL = Spatial()
