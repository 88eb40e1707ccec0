"""Pendulums with a motor and friction, and measurements of their swings."""

from functools import cache
from typing import Any

import numpy as np

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Parameter, Positive

NOISE = 1e-3
KNOTS = np.linspace(0.0, 2.5, 9)


def torque(values: Any) -> mbd.SmoothingSpline:
    """A smooth torque over the first seconds."""
    return mbd.SmoothingSpline(KNOTS, np.asarray(values), smoothing=0.0)


def pendulum(mass: Any = 1.0, viscous: Any = 0.1, motor: Any = None) -> pl.Mechanism:
    """A bar of 1 m on a pin at its upper end, with friction and a motor."""
    bar = pl.Body("bar", mass, 0.1, pose=(0.0, -0.5, 0.0))
    course = torque(np.zeros(9)) if motor is None else motor
    return pl.Mechanism(
        [bar],
        [pl.Revolute("O", pl.ground.at(), bar.at(0.0, 0.5))],
        [
            pl.Gravity(9.81),
            pl.JointFriction("friction", "O.angle", viscous=viscous),
            pl.JointForce("motor", "O.angle", lambda t, angle, rate, course: course(t), course),
        ],
        sensors=[pl.Point("tip", bar.at(0.0, -0.5)), pl.Accelerometer("imu", bar.at(0.1, -0.4))],
        coordinates="joint",
    )


def motion(ts: np.ndarray, angle: float = 1.0, **numbers: Any) -> mbd.Solution:
    mechanism = pendulum(**numbers)
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": angle}), ts)


def plain_pendulum(mass: float = 1.0, viscous: float = 0.1) -> pl.Mechanism:
    """The same without a motor and sensors."""
    bar = pl.Body("bar", mass, 0.1, pose=(0.0, -0.5, 0.0))
    return pl.Mechanism(
        [bar],
        [pl.Revolute("O", pl.ground.at(), bar.at(0.0, 0.5))],
        [pl.Gravity(9.81), pl.JointFriction("friction", "O.angle", viscous=viscous)],
        coordinates="joint",
    )


MASS = Parameter(lambda m: m["bar"].mass, within=Positive(), unit="kg")
FRICTION = Parameter(lambda m: m["friction"].viscous, within=Positive(), unit="N m s")
FREE = {"mass": MASS, "friction": FRICTION}


@cache
def swings() -> tuple[mbd.Experiment, ...]:
    """Three swings of other lengths and sampling; one of them lacks a channel, one lacks samples."""
    draws = np.random.default_rng(0)
    measured = []
    for k, (count, step) in enumerate(((41, 0.05), (31, 0.04), (21, 0.09))):
        ts = step * np.arange(count)
        solution = motion(ts, 0.8 + 0.3 * k, mass=1.3, viscous=0.2)
        data = {name: np.array(solution[name]) for name in ("O.angle", "tip")[: 1 if k == 1 else 2]}
        noisy = {name: x + NOISE * draws.normal(size=x.shape) for name, x in data.items()}
        noisy["O.angle"][5 * k] = np.nan
        start = {"O.angle": 0.8 + 0.3 * k}
        measured.append(mbd.Experiment(ts, noisy, start=start, sigma=NOISE, estimate=True, missing=True))
    return tuple(measured)
