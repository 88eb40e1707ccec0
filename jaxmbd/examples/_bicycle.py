"""Whipple's bicycle, with the parameters of the benchmark."""

import math

import jax.numpy as jnp

from jaxmbd import spatial as sp
from jaxmbd.arrays import Number
from jaxmbd.examples._example import Example, listed

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
