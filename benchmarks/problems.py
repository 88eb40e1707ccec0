"""The planar benchmark problems.

A body has the absolute coordinates (x, y, theta) of its centre of mass, and points on it are given in its own
frame, whose origin is that centre and whose x axis is the rod's axis. All quantities are in SI units: metres,
radians, kilograms, seconds. Gravity acts along -y.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Point = tuple[float, float]

GROUND = -1
GRAVITY = 9.81


@dataclass(frozen=True)
class Body:
    """A rigid body: mass, moment of inertia about the centre of mass, and rod length."""

    mass: float
    inertia: float
    length: float


@dataclass(frozen=True)
class Pin:
    """A revolute joint between `point` of `body` and `other_point` of `other` (GROUND: a fixed point)."""

    body: int
    point: Point
    other: int
    other_point: Point


@dataclass(frozen=True, eq=False)
class Problem:
    """A mechanism with one degree of freedom, its initial state and how long it is to be followed.

    `sliders` names the bodies that move along the ground's x axis without turning (y = theta = 0).
    `positions` and `velocities` have the shape (number of bodies, 3).
    """

    name: str
    title: str
    bodies: tuple[Body, ...]
    pins: tuple[Pin, ...]
    sliders: tuple[int, ...]
    positions: Array
    velocities: Array
    duration: float


def rod(mass: float, length: float) -> Body:
    """A uniform slender rod."""
    return Body(mass, mass * length**2 / 12, length)


def pendulum() -> Problem:
    """A rod of 1 kg and 1 m, pinned to the ground at one end, released at rest from the horizontal."""
    return Problem(
        name="pendulum",
        title="Pendulum, 10 s",
        bodies=(rod(1.0, 1.0),),
        pins=(Pin(0, (-0.5, 0.0), GROUND, (0.0, 0.0)),),
        sliders=(),
        positions=np.array([[0.5, 0.0, 0.0]]),
        velocities=np.zeros((1, 3)),
        duration=10.0,
    )


CRANK, ROD = 0.15, 0.4  # lengths of the slider-crank's crank and connecting rod
CRANK_ANGLE, CRANK_SPEED = np.pi / 4, 20.0  # its initial crank angle and rate


def slider_crank() -> Problem:
    """A crank, a connecting rod and a slider; the crank starts at 45 degrees with 20 rad/s."""
    positions, rates = slider_crank_kinematics(CRANK_ANGLE)
    return Problem(
        name="slider-crank",
        title="Slider-crank, 5 s",
        bodies=(rod(0.1, CRANK), rod(0.2, ROD), Body(0.3, 1e-4, 0.05)),
        pins=(
            Pin(0, (-CRANK / 2, 0.0), GROUND, (0.0, 0.0)),
            Pin(1, (-ROD / 2, 0.0), 0, (CRANK / 2, 0.0)),
            Pin(2, (0.0, 0.0), 1, (ROD / 2, 0.0)),
        ),
        sliders=(2,),
        positions=positions,
        velocities=CRANK_SPEED * rates,
        duration=5.0,
    )


def four_bars(n: int) -> Problem:
    """`n` parallelogram four-bars in a row (the A02 benchmark): n + 1 cranks, n couplers, 1 kg and 1 m each.

    The cranks stand upright and the couplers move at 1 m/s in +x. Whenever the cranks lie flat the
    constraint Jacobian loses rank.
    """
    cranks = tuple(Pin(k, (-0.5, 0.0), GROUND, (float(k), 0.0)) for k in range(n + 1))
    left = tuple(Pin(n + 1 + k, (-0.5, 0.0), k, (0.5, 0.0)) for k in range(n))
    right = tuple(Pin(n + 1 + k, (0.5, 0.0), k + 1, (0.5, 0.0)) for k in range(n))
    velocities = np.zeros((2 * n + 1, 3))
    velocities[: n + 1] = [0.5, 0.0, -1.0]
    velocities[n + 1 :] = [1.0, 0.0, 0.0]
    return Problem(
        name=f"four-bar-{n}",
        title=f"A02 N-four-bar, N = {n}, 10 s",
        bodies=(rod(1.0, 1.0),) * (2 * n + 1),
        pins=cranks + left + right,
        sliders=(),
        positions=four_bars_at(n, np.pi / 2),
        velocities=velocities,
        duration=10.0,
    )


def four_bars_at(n: int, angle: float) -> Array:
    """Absolute coordinates of the A02 mechanism when its cranks stand at `angle`."""
    c, s = np.cos(angle), np.sin(angle)
    cranks = [[k + c / 2, s / 2, angle] for k in range(n + 1)]
    couplers = [[k + 0.5 + c, s, 0.0] for k in range(n)]
    return np.array(cranks + couplers)


def slider_crank_kinematics(angle: float) -> tuple[Array, Array]:
    """Absolute coordinates of the slider-crank at a crank angle, and their derivatives by that angle."""
    c, s = np.cos(angle), np.sin(angle)
    tilt = -np.arcsin(CRANK * s / ROD)
    ct, st = np.cos(tilt), np.sin(tilt)
    turn = -CRANK * c / (ROD * ct)  # d tilt / d angle
    positions = [
        [CRANK / 2 * c, CRANK / 2 * s, angle],
        [CRANK * c + ROD / 2 * ct, CRANK * s + ROD / 2 * st, tilt],
        [CRANK * c + ROD * ct, 0.0, 0.0],
    ]
    rates = [
        [-CRANK / 2 * s, CRANK / 2 * c, 1.0],
        [-CRANK * s - ROD / 2 * st * turn, CRANK * c + ROD / 2 * ct * turn, turn],
        [-CRANK * s - ROD * st * turn, 0.0, 0.0],
    ]
    return np.array(positions), np.array(rates)
