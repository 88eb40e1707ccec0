"""Planar examples with several closed loops, or with more than one degree of freedom."""

import math

import jax.numpy as jnp

from jaxmbd import planar as pl
from jaxmbd.arrays import Scalar
from jaxmbd.examples._example import Example, listed
from jaxmbd.examples._shared import rod


@listed("IFToMM A02")
def four_bars(n: int = 2) -> Example:
    """Square four-bars side by side that fold flat twice a turn, where the constraints lose rank.

    `n` of them, uprights at `x = 0 … n`, all turning clockwise at 1 rad/s at the start: the couplers move at 1 m/s.
    """
    uprights = [rod(f"upright{i}", 1.0, 1.0, (float(i), 0.0), math.pi / 2) for i in range(n + 1)]
    couplers = [rod(f"coupler{i}", 1.0, 1.0, (float(i), 1.0), 0.0) for i in range(n)]
    pins = [
        pl.Revolute(f"A{i}", pl.ground.at(float(i), 0.0), upright.at(-0.5, 0.0)) for i, upright in enumerate(uprights)
    ]
    for i, coupler in enumerate(couplers):
        pins += [
            pl.Revolute(f"L{i}", uprights[i].at(0.5, 0.0), coupler.at(-0.5, 0.0)),
            pl.Revolute(f"R{i}", uprights[i + 1].at(0.5, 0.0), coupler.at(0.5, 0.0)),
        ]
    mechanism = pl.Mechanism(
        bodies=[*uprights, *couplers],
        joints=pins,
        forces=[pl.Gravity(9.81)],
        sensors=[pl.Point("B0", uprights[0].at(0.5, 0.0)), pl.PointVelocity("vB0", uprights[0].at(0.5, 0.0))],
    )
    return Example(
        mechanism, {"upright0.theta": math.pi / 2}, {"upright0.omega": -1.0}, duration=4.0,
        inputs=("A0.angle",), outputs=("B0", "upright0.theta", "upright0.omega"),
    )  # fmt: skip


@listed()
def five_bar() -> Example:
    """Five bars with two degrees of freedom, both driven: the pin `P` follows the cranks as a plotter's pen does.

    Motors turn the crank at two turns a second and swing the rocker by 0.2 rad at three times that rate.
    """
    crank, left = _bar("crank", 0.10, (0.03, 0.04, 1.0)), _bar("left", 0.25, (0.07, 0.21, 1.46))
    right, rocker = _bar("right", 0.25, (0.18, 0.26, 2.53)), _bar("rocker", 0.20, (0.32, 0.09, 1.9))
    mechanism = pl.Mechanism(
        bodies=[crank, left, right, rocker],
        joints=[
            pl.Revolute("O", pl.ground.at(), crank.at(-0.05)),
            pl.Revolute("A", crank.at(0.05), left.at(-0.125)),
            pl.Revolute("P", left.at(0.125), right.at(0.125)),
            pl.Revolute("B", rocker.at(0.10), right.at(-0.125)),
            pl.Revolute("C", pl.ground.at(0.35), rocker.at(-0.10)),
        ],
        forces=[pl.Gravity(9.81)],
        drivers=[pl.Driver("left motor", "O.angle", _turning), pl.Driver("right motor", "C.angle", _swinging)],
        sensors=[pl.Point("pen", left.at(0.125))],
    )
    return Example(
        mechanism, duration=0.5, outputs=("pen", "left motor.effort", "right motor.effort", "O.fx", "O.fy"),
    )  # fmt: skip


def _bar(name: str, length: float, pose: tuple[float, float, float]) -> pl.Body:
    """Return a slender bar of 2 kg/m."""
    return pl.Body(name, mass=2.0 * length, inertia=length**3 / 6, pose=pose)


def _turning(t: Scalar) -> Scalar:
    return 1.0 + 4 * jnp.pi * t


def _swinging(t: Scalar) -> Scalar:
    return 1.9 + 0.2 * jnp.sin(12 * jnp.pi * t)


@listed()
def pendulum_with_four_bar() -> Example:
    """A pendulum that carries a slider on a spring-damper; a crank and a rod close a loop to its end.

    The pendulum hangs at the origin, with its centre of mass at 0.5 m and the loop's pin at 0.4 m. `q1` is its angle
    from the vertical, `q2` the slider's distance from the origin along the pendulum. The crank turns about (0.6, 0);
    crank and rod are 0.5 m long. The loop has two assembly modes; a guess of `"crank pin.angle": -4.0` and
    `"rod pin.angle": 2.0` leads to the other one.
    """
    pendulum = pl.Body("pendulum", 5.0, 0.1, (0.42, -0.27, -0.57))
    slider = pl.Body("slider", 2.0, 0.01, (0.17, -0.11, -0.57))
    crank, bar = pl.Body("crank", 2.0, 0.1, (0.74, -0.21, -1.0)), pl.Body("rod", 2.0, 0.1, (0.62, -0.46, -3.0))
    mechanism = pl.Mechanism(
        bodies=[pendulum, slider, crank, bar],
        joints=[
            pl.Revolute("q1", pl.ground.at(0, 0, -math.pi / 2), pendulum.at(-0.5, 0.0)),
            pl.Prismatic("q2", pendulum.at(-0.5, 0.0), slider.at()),
            pl.Revolute("crank pin", pl.ground.at(0.6, 0.0), crank.at(-0.25, 0.0)),
            pl.Revolute("rod pin", crank.at(0.25, 0.0), bar.at(-0.25, 0.0)),
            pl.PointConstraint("cut", bar.at(0.25, 0.0), pendulum.at(-0.1, 0.0)),
        ],
        forces=[
            pl.Gravity(9.81),
            pl.JointSpringDamper("spring", "q2.displacement", 100.0, 0.1, 2.0),
        ],
        coordinates="joint",
    )
    return Example(
        mechanism, {"q1.angle": 1.0, "q2.displacement": 0.2}, duration=2.0,
        inputs=("q1.angle", "spring.effort"),
        outputs=("q1.angle", "q2.displacement", "spring.effort", "cut.fx", "cut.fy"),
    )  # fmt: skip
