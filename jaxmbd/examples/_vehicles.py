"""Vehicles: a car's axis on a bumpy road and a wheel suspension in the plane, and Whipple's bicycle in space."""

import math

import equinox as eqx
import jax.numpy as jnp

from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.arrays import Number, Scalar, as_float
from jaxmbd.examples._example import Example, listed, rod


class Bumps(eqx.Module):
    """The angle of an axle of length `L` [m] whose far wheel moves up by `r sin ωt`: `sin φ = (r / L) sin ωt`."""

    height: Scalar = eqx.field(converter=as_float)  # r [m]
    rate: Scalar = eqx.field(converter=as_float)  # ω [rad/s]
    length: Scalar = eqx.field(converter=as_float)

    def __call__(self, t: Scalar) -> Scalar:
        return jnp.arcsin(self.height / self.length * jnp.sin(self.rate * t))


@listed("IVP test set, Car Axis (Schneider, 1994)")
def car_axis() -> Example:
    """A car's body on two stiff springs over an axle, one wheel of which runs over bumps.

    The axle, 1 m long, is hinged at the left wheel and driven so that the right wheel moves up and down by 0.1 m. The
    body is a bar of 1 m with half its mass at each end and a spring of 0.5 m under each end. Its left end stays on the
    normal to the axle through the left wheel. In the units of the test set there are `M ε² / 2 = 5e-4` kg at each end,
    springs of 1 N/m, and g = 1 m/s². The mass of the axle has an effect on its driver alone.
    """
    mass, length, height = 10 * 0.01**2 / 2, 1.0, 0.5
    axle = pl.Body("axle", mass=1e-3, inertia=1e-4, pose=(length / 2, 0.0, 0.0))
    body = pl.Body("body", mass=2 * mass, inertia=mass * length**2 / 2, pose=(length / 2, height, 0.0))
    left, right = body.at(-length / 2), body.at(length / 2)
    mechanism = pl.Mechanism(
        bodies=[axle, body],
        joints=[
            pl.Revolute("wheel", pl.ground.at(), axle.at(-length / 2)),
            pl.PinInSlot("guide", axle.at(-length / 2, 0.0, math.pi / 2), left),
        ],
        forces=[
            pl.Gravity(1.0),
            pl.SpringDamper("left spring", axle.at(-length / 2), left, stiffness=1.0, free_length=height),
            pl.SpringDamper("right spring", axle.at(length / 2), right, stiffness=1.0, free_length=height),
        ],
        drivers=[pl.Driver("road", "wheel.angle", Bumps(height=0.1, rate=10.0, length=length))],
        sensors=[pl.Point("left", left), pl.Point("right", right)],
    )
    return Example(
        mechanism, {"body.y": height, "body.theta": 0.0}, {"body.vy": 0.0, "body.omega": 0.0}, duration=3.0,
        inputs=("left spring.tension", "right spring.tension"),
        outputs=("left", "right", "left spring.tension", "right spring.tension"),
    )  # fmt: skip


@listed()
def suspension() -> Example:
    """Two superimposed arms that carry an upright and a wheel: a car's corner that drops onto its tyre.

    The arms are 0.35 m and 0.4 m long, and hinged to the chassis at (0, 0.3) and (0, 0); the chassis slides up and
    down. Five joints form the spanning tree, the pin `B` closes the loop.
    """
    chassis = pl.Body("chassis", 250.0, 10.0)
    lower, upper = rod("lower", 3.0, 0.4, (0.0, 0.0), 0.1), rod("upper", 2.0, 0.35, (0.0, 0.3), 0.05)
    upright = pl.Body("upright", 20.0, 0.3, (0.4, 0.17, 0.05))
    wheel = pl.Body("wheel", 15.0, 0.8, (0.45, 0.17, 0.0))
    mechanism = pl.Mechanism(
        bodies=[chassis, lower, upper, upright, wheel],
        joints=[
            pl.Prismatic("heave", pl.ground.at(0, 0, math.pi / 2), chassis.at(0, 0, math.pi / 2)),
            pl.Revolute("L", chassis.at(0.0, 0.0), lower.at(-0.2, 0.0)),
            pl.Revolute("U", chassis.at(0.0, 0.3), upper.at(-0.175, 0.0)),
            pl.Revolute("A", lower.at(0.2, 0.0), upright.at(0.0, -0.14)),
            pl.Revolute("axle", upright.at(0.05, 0.0), wheel.at()),
            pl.Revolute("B", upper.at(0.175, 0.0), upright.at(-0.05, 0.16)),
        ],
        forces=[
            pl.Gravity(9.81),
            pl.SpringDamper("strut", chassis.at(0.0, 0.45), lower.at(0.05, 0.0), 6e4, 0.565, damping=3e3),
            pl.SpringDamper("tyre", pl.ground.at(0.45, -0.15), wheel.at(), 2e5, 0.32, damping=500.0),
        ],
        coordinates="joint",
        cuts=["B"],
    )
    return Example(
        mechanism, duration=2.0, inputs=("heave.displacement", "tyre.tension"),
        outputs=("heave.displacement", "L.angle", "strut.tension", "tyre.tension", "B.fx", "B.fy"),
    )  # fmt: skip


WHEEL_BASE, TRAIL, TILT = 1.02, 0.08, math.pi / 10  # [m, m, rad]; the tilt is that of the steering axis
REAR_RADIUS, FRONT_RADIUS = 0.3, 0.35  # [m]


@listed("Meijaard, Papadopoulos, Ruina, Schwab, 2007")
def bicycle(speed: Number = 5.0, front_radius: Number = FRONT_RADIUS) -> Example:
    """A bicycle that rides straight ahead without hands: it stays upright by itself between 4.3 and 6.0 m/s.

    Two thin wheels roll without slip; the rider is part of the rear frame. x points ahead, z up.

    **Arguments:** `speed` `[m/s]`; `front_radius` `[m]`, which changes the height of the front wheel's centre, but not
    wheel base, trail, tilt, masses and moments of inertia.
    """
    y, up = (0.0, 1.0, 0.0), (-math.sin(TILT), 0.0, math.cos(TILT))  # directions of the hubs and of the steering axis
    r, front_radius = REAR_RADIUS, jnp.asarray(front_radius, float)
    rear = sp.Body("rear wheel", 2.0, (0.0603, 0.12, 0.0603), (0.0, 0.0, r))
    frame = sp.Body("frame", 85.0, _inertia(9.2, 11.0, 2.8, -2.4), (0.3, 0.0, 0.9))
    fork = sp.Body("fork", 4.0, _inertia(0.05892, 0.06, 0.00708, 0.00756), (0.9, 0.0, 0.7))
    front = sp.Body("front wheel", 3.0, (0.1405, 0.28, 0.1405), jnp.stack([WHEEL_BASE, 0.0, front_radius]))
    foot = WHEEL_BASE + TRAIL  # where the steering axis meets the road
    joints = [
        sp.Revolute("rear hub", frame.at(-0.3, 0.0, r - 0.9, axis=y), rear.at(axis=y)),
        sp.Revolute("steer", frame.at(foot - 0.3, 0.0, -0.9, axis=up), fork.at(foot - 0.9, 0.0, -0.7, axis=up)),
        sp.Revolute("front hub", fork.at(WHEEL_BASE - 0.9, 0.0, front_radius - 0.7, axis=y), front.at(axis=y)),
        sp.RollingDisc("rear contact", sp.ground.at(), rear.at(axis=y), r),
        sp.RollingDisc("front contact", sp.ground.at(), front.at(axis=y), front_radius),
    ]
    mechanism = sp.Mechanism([frame, rear, fork, front], joints, [sp.Gravity(9.81)], coordinates="joint", floating=True)
    return Example(
        mechanism, speeds={"frame.vx": speed, "frame.omega_x": 0.0, "steer.angle": 0.0}, duration=2.0,
        inputs=("steer.angle",), outputs=("steer.angle", "frame.roll", "frame.y", "energy"),
    )  # fmt: skip


def _inertia(xx: float, yy: float, zz: float, xz: float) -> list[list[float]]:
    """Return an inertia matrix with z up; in the benchmark z points down, and `xz` has the opposite sign."""
    return [[xx, 0.0, xz], [0.0, yy, 0.0], [xz, 0.0, zz]]
