"""The five benchmark problems and their reference answers.

Every mechanism is planar. A body has the absolute coordinates (x, y, theta) of its centre of mass, and points
on it are given in its own frame, whose origin is that centre and whose x axis is the rod's axis. All
quantities are in SI units: metres, radians, kilograms, seconds. Gravity acts along -y.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk

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


def all_problems() -> dict[str, Problem]:
    """The benchmark problems by name."""
    made = (pendulum(), slider_crank(), four_bars(1), four_bars(2), four_bars(10))
    return {problem.name: problem for problem in made}


# --- reference answers --------------------------------------------------------------------------------------


def reference(problem: Problem) -> Array:
    """The exact final (x, y, theta) of every body, from the mechanism's one-degree-of-freedom equation."""
    if problem.name == "slider-crank":
        return slider_crank_kinematics(slider_crank_angle(problem))[0]
    if problem.name == "pendulum":
        angle = swinging_angle(problem.duration, 1.5 * GRAVITY)
        return np.array([[np.cos(angle) / 2, np.sin(angle) / 2, angle]])
    n = (len(problem.bodies) - 1) // 2
    stiffness = GRAVITY * ((n + 1) / 2 + n) / ((n + 1) / 3 + n)
    return four_bars_at(n, turning_angle(problem.duration, stiffness, 1.0))


def swinging_angle(t: float, stiffness: float) -> float:
    """Solution at `t` of phi'' = -stiffness cos(phi) with phi(0) = phi'(0) = 0, by Jacobi's functions."""
    modulus = np.sqrt(0.5)  # sine of half the amplitude, 90 degrees
    _, cn, dn, _ = ellipj(np.sqrt(stiffness) * t, 0.5)
    return float(2 * np.arcsin(modulus * cn / dn) - np.pi / 2)


def turning_angle(t: float, stiffness: float, speed: float) -> float:
    """Solution at `t` of phi'' = -stiffness cos(phi) with phi(0) = pi/2 and phi'(0) = -speed (full turns)."""
    rate2 = speed**2 / 4 + stiffness
    m = stiffness / rate2
    amplitude = ellipj(ellipk(m) + np.sqrt(rate2) * t, m)[3]
    return float(1.5 * np.pi - 2 * amplitude)


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


def slider_crank_angle(problem: Problem) -> float:
    """Final crank angle. Energy conservation gives the crank's rate as a function of its angle alone.

    The time of one whole turn comes from the trapezium rule, which is exact to rounding for a smooth
    periodic integrand; only the part of a turn that is left over is integrated in time.
    """
    mass = np.array([[b.mass, b.mass, b.inertia] for b in problem.bodies])

    def parts(angle: float) -> tuple[float, float]:
        """Generalised inertia and potential energy at a crank angle."""
        positions, rates = slider_crank_kinematics(angle)
        return float(np.sum(mass * rates**2)), GRAVITY * float(mass[:, 1] @ positions[:, 1])

    inertia, potential = parts(CRANK_ANGLE)
    energy = inertia * CRANK_SPEED**2 / 2 + potential

    def rate(angle: float) -> float:
        inertia, potential = parts(angle)
        return float(np.sqrt(2 * (energy - potential) / inertia))

    angles = np.linspace(0.0, 2 * np.pi, 400, endpoint=False)
    turn_time = 2 * np.pi * float(np.mean([1 / rate(float(angle)) for angle in angles]))
    turns, rest = divmod(problem.duration, turn_time)
    last = solve_ivp(lambda _, y: [rate(y[0])], (0.0, rest), [CRANK_ANGLE], "DOP853", rtol=1e-13, atol=1e-13)
    return float(last.y[0, -1] + 2 * np.pi * turns)
