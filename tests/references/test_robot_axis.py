"""One axis of a robot: a cascade, a motor with a controlled current, an elastic gear, and friction that sticks.

Of the Modelica Standard Library (RobotR3.OneAxis), its circuit of operational amplifiers written as its equations; the
numbers are those of a method of order 8 and of Radau IIA, which agree to 1e-11 rad and 3e-9 A.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

RATIO, KP, TS = 210.0, 5.0, 0.05
RI, D, OMEGA, RA, EMF = 10.0, 0.6, 5500.0, 250.0, 1.1616
CAPACITY, LA = 0.004 * D / OMEGA, 250 / (2 * D * OMEGA)
ENDS = np.array([0.3, 0.6981317007977, 0.9981317007977])  # of acceleration, constant speed, deceleration
LAST = 1.4981317007977
AT_LAST = {
    "M.angle": 439.777879158, "M.angle_rate": 0.208064868561, "L.angle": 2.09418041348,
    "L.angle_rate": 0.00100253962983, "drive.state[0]": 0.842140022879, "drive.state[1]": -21.5368610896,
    "drive.state[2]": 0.429773317839,
}  # fmt: skip
WITHIN = {"M.angle": 1e-7, "M.angle_rate": 1e-6, "L.angle": 1e-9, "L.angle_rate": 1e-8}
FORWARD, BACK, STUCK = (0.0006523292003, 1.353623952), (0.9979175996, 1.098922818), (1.093454452, 1.127850153)
BY_KS = (-0.00112791686451, 0.00550539891558, 1.28889546253)  # at 1 s


def reference(t: Array) -> tuple[Array, Array]:
    """The angle and its rate on the fastest way to 120°, with 3 rad/s and 10 rad/s² at most."""
    t1, t2, t3 = ENDS
    s = jnp.clip(t, 0.0, t3)
    rate = jnp.where(s < t1, 10 * s, jnp.where(s < t2, 3.0, 10 * (t3 - s)))
    on = 0.45 + 3 * (s - t1)
    angle = jnp.where(s < t1, 5 * s**2, jnp.where(s < t2, on, 2 * np.pi / 3 - 5 * (t3 - s) ** 2))
    return angle, rate


def demanded(t: Array, u: Array) -> Array:
    angle, rate = reference(t)
    return RATIO * rate + KP * (RATIO * angle - u[0]) - u[1]


def rates(t: Array, u: Array, x: Array, ks: Array) -> Array:
    """Of the integral, of the voltage of the capacitor and of the current."""
    gap = demanded(t, u)
    charge = (x[2] - ks * (x[0] + gap)) / (RI * CAPACITY)
    return jnp.stack([gap / TS, charge, (-5 * x[1] - RA * x[2] - EMF * u[1]) / LA])


def axis(coordinates: str, ks: Any = 0.5) -> pl.Mechanism:
    motor, load = pl.Body("motor", 1.0, 0.0013), pl.Body("load", 1.0, 19.5)
    joints = [pl.Revolute("M", pl.ground.at(), motor.at()), pl.Revolute("L", pl.ground.at(), load.at())]
    gear = pl.Tendon("gear", ("L.angle", "M.angle"), (RATIO, -1.0))
    drive = pl.DynamicController(
        "drive", ["M.angle", "M.angle_rate"], lambda t, u, x, ks: EMF * x[2], rates, [0.0, 0.0, 0.0], "M.angle", ks
    )
    forces = [
        pl.JointSpringDamper("shaft", "gear.length", 8.0, damping=0.01),
        pl.DryFriction("bearing", "M.angle", 0.5, viscous=0.1 / 130),
    ]
    return pl.Mechanism([motor, load], [*joints, gear], forces, controllers=[drive], coordinates=coordinates)


def moved(coordinates: str, ks: Any = 0.5, end: float = LAST, **settings: Any) -> mbd.Solution:
    mechanism = axis(coordinates, ks)
    start = mbd.assemble(mechanism, {"M.angle": 0.0, "L.angle": 0.0})
    how = {"rtol": 1e-11, "atol": 1e-12, "max_events": 16, "switching_times": ENDS[end > ENDS]} | settings
    return mbd.simulate(mechanism, start, np.array([0.0, end]), **how)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_the_axis_arrives(coordinates: str) -> None:
    solution = moved(coordinates)
    for name, value in AT_LAST.items():
        np.testing.assert_allclose(solution[name][-1], value, rtol=0, atol=WITHIN.get(name, 1e-6), err_msg=name)
    log = solution.events
    assert log is not None
    for name, times in (("slips forward", FORWARD), ("slips back", BACK), ("sticks", (STUCK[0], STUCK[1]))):
        np.testing.assert_allclose(log.times_of(f"bearing.{name}")[-len(times) :], times, rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_by_a_gain(mode: Any) -> None:
    def at_one(ks: Array) -> Array:
        solution = moved("joint", ks, 1.0)
        return jnp.stack([solution[name][-1] for name in ("L.angle", "L.angle_rate", "drive.state[2]")])

    np.testing.assert_allclose(mode(at_one)(jnp.asarray(0.5)), BY_KS, rtol=1e-6)
