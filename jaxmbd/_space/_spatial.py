"""Three dimensions: a pose is the position of the centre of mass and four Euler parameters.

Pose `(x, y, z, e0, e1, e2, e3)`, the unit quaternion scalar first, from body to world axes; twist
`(vx, vy, vz, omega_x, omega_y, omega_z)`, the velocity of the centre of mass in world axes and the angular velocity in
body axes, `q̇ = N(q) v` with `ė = ½ e ∘ (0, ω)`.

Only the direction of the quaternion matters: rotation matrices divide by its square, so a norm that is not one does
not scale anything. `rate` draws the norm to one, `tidy` sets it. `retract` goes along `e ∘ (1, ½ θ)`, a Cayley map: it
agrees with the exponential to second order, which is all that `C`, `Φ̇` and `γ` ask for, and needs no root.

Source: Nikravesh, *Computer-Aided Analysis of Mechanical Systems* (1988), §6; Haug (1989), §9.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._maths import cross, dot, skew, times
from jaxmbd._space._base import AbstractFrame, AbstractSpace
from jaxmbd._types import Scalar
from jaxmbd.rotation import from_matrix, matrix, multiply, vector

NORM_RATE = 10.0  # [1/s], at which a quaternion's norm returns to one; the motion does not feel it


class SpatialFrame(AbstractFrame):
    """Position [m] and rotation matrix of a marker in the world; the columns of `rotation` are its axes."""

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

    def to_world(self, vector: Float[Array, "3"]) -> Float[Array, "3"]:
        return times(self.rotation, vector)

    def to_local(self, vector: Float[Array, "3"]) -> Float[Array, "3"]:
        return times(self.rotation.T, vector)

    def misalignment(self, other: "SpatialFrame") -> Float[Array, "3"]:
        return jnp.stack([dot(self.y, other.z), dot(self.z, other.x), dot(self.x, other.y)])

    def turn(self, other: "SpatialFrame") -> Float[Array, "3"]:
        return vector(from_matrix(times(self.rotation.T, other.rotation)))

    def moved(self, step: Float[Array, "6"]) -> "SpatialFrame":
        turn = skew(step[3:])
        return SpatialFrame(
            self.position + step[:3], self.rotation + times(turn, self.rotation + 0.5 * times(turn, self.rotation))
        )

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
    """Three dimensions; see the module's text for poses and twists. A wrench is `(fx, fy, fz, mx, my, mz)`, world
    axes; an effort has the moment about the centre of mass in body axes."""

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

    def retract(self, pose: Float[Array, "7"], step: Float[Array, "6"]) -> Float[Array, "7"]:
        turned = pose[3:] + _spun(pose[3:], step[3:])
        return jnp.concatenate([pose[:3] + step[:3], turned])

    def rate(self, pose: Float[Array, "7"], twist: Float[Array, "6"]) -> Float[Array, "7"]:
        e = pose[3:]
        restored = 0.5 * NORM_RATE * (1.0 - dot(e, e)) * e
        return jnp.concatenate([twist[:3], _spun(e, twist[3:]) + restored])

    def tidy(self, pose: Float[Array, "7"]) -> Float[Array, "7"]:
        e = pose[3:]
        return jnp.concatenate([pose[:3], e / jnp.sqrt(dot(e, e))])

    def frame(self, pose: Float[Array, "7"], position: Float[Array, "3"], orientation: Float[Array, "4"]) -> Any:
        R = matrix(pose[3:])
        return SpatialFrame(pose[:3] + times(R, position), times(R, matrix(orientation)))

    def marker_rate(
        self, pose: Float[Array, "7"], twist: Float[Array, "6"], point: Float[Array, "3"]
    ) -> Float[Array, "6"]:
        omega = times(matrix(pose[3:]), twist[3:])
        return jnp.concatenate([twist[:3] + cross(omega, point - pose[:3]), omega])

    def marker_acceleration(
        self, pose: Float[Array, "7"], twist: Float[Array, "6"], vdot: Float[Array, "6"], point: Float[Array, "3"]
    ) -> Float[Array, "6"]:
        R, arm = matrix(pose[3:]), point - pose[:3]
        omega, alpha = times(R, twist[3:]), times(R, vdot[3:])
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

    def to_centre(
        self, pose: Float[Array, "7"], point: Float[Array, "3"], wrench: Float[Array, "6"]
    ) -> Float[Array, "6"]:
        moment = wrench[3:] + cross(point - pose[:3], wrench[:3])
        return jnp.concatenate([wrench[:3], times(matrix(pose[3:]).T, moment)])

    def in_body(self, pose: Float[Array, "7"], wrench: Float[Array, "6"]) -> Float[Array, "6"]:
        R = matrix(pose[3:])
        return jnp.concatenate([times(R.T, wrench[:3]), times(R.T, wrench[3:])])

    def moment(self, wrench: Float[Array, "*batch 6"]) -> Float[Array, "*batch 3"]:
        return wrench[..., 3:]

    def to_effort(self, force: Float[Array, "3"]) -> Float[Array, "6"]:
        return jnp.concatenate([force, jnp.zeros_like(force)])


def _spun(e: Float[Array, "4"], turn: Float[Array, "3"]) -> Float[Array, "4"]:
    """`½ e ∘ (0, θ)`, `θ` in body axes."""
    return 0.5 * multiply(e, jnp.concatenate([jnp.zeros_like(turn[:1]), turn]))


def _inverse(J: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """Inverse of a 3 × 3 matrix by its cofactors."""
    rows = jnp.stack([cross(J[1], J[2]), cross(J[2], J[0]), cross(J[0], J[1])])
    return rows.T / dot(J[0], rows[0])


SPATIAL = Spatial()
