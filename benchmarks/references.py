"""Reference answers of the planar problems, from their equations of one degree of freedom."""

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk

from benchmarks.problems import (
    CRANK_ANGLE,
    CRANK_SPEED,
    GRAVITY,
    Array,
    Problem,
    four_bars_at,
    slider_crank_kinematics,
)


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
