"""Planar examples with several closed loops, or with more than one degree of freedom.

Andrews' squeezing mechanism has the symbols and numbers of Hairer and Wanner, Solving ODEs II, VII.7.
"""

import math

import jax.numpy as jnp

from jaxmbd import planar as pl
from jaxmbd.arrays import Scalar
from jaxmbd.errors import unknown
from jaxmbd.examples._example import Example, listed, rod


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
        forces=[pl.Gravity(9.81), pl.JointSpringDamper("spring", "q2.displacement", 100.0, 0.1, 2.0)],
        coordinates="joint",
    )
    return Example(
        mechanism, {"q1.angle": 1.0, "q2.displacement": 0.2}, duration=2.0,
        inputs=("q1.angle", "spring.effort"),
        outputs=("q1.angle", "q2.displacement", "spring.effort", "cut.fx", "cut.fy"),
    )  # fmt: skip


ANDREWS_STARTS = {"iftomm_a03": -0.0620, "andrews_ivp": -0.0617138900142764496}  # crank angle [rad]

# Fixed points and lengths [m].
_A, _B, _C = (-0.06934, -0.00227), (-0.03635, 0.03273), (0.014, 0.072)
_d, _da, _e, _ea = 0.028, 0.0115, 0.02, 0.01421
_rr, _ra = 0.007, 0.00092
_ss, _sa, _sb, _sc, _sd = 0.035, 0.01874, 0.01043, 0.018, 0.02
_ta, _tb, _u, _ua, _ub = 0.02308, 0.00916, 0.04, 0.01228, 0.00449
_zf, _zt, _fa = 0.02, 0.04, 0.01421
_MASSES = (0.04325, 0.00365, 0.02373, 0.00706, 0.07050, 0.00706, 0.05498)  # [kg]
_INERTIAS = (2.194e-6, 4.410e-7, 5.255e-6, 5.667e-7, 1.169e-5, 5.667e-7, 1.912e-5)  # [kg m²]
_GUESS = (0.0, 0.45528, 0.22267, 0.48737, -0.22267, 1.23055)  # Θ γ Φ δ Ω ε [rad]


def _point(origin: tuple[float, float], angle: float, x: float, y: float) -> tuple[float, float]:
    """Return the point `origin + R(angle) (x, y)`."""
    c, s = math.cos(angle), math.sin(angle)
    return origin[0] + c * x - s * y, origin[1] + s * x + c * y


def _bodies(crank_angle: float) -> list[pl.Body]:
    theta, gamma, phi, delta, omega, epsilon = _GUESS
    angles = (crank_angle, crank_angle + theta, gamma, phi + delta, delta, omega + epsilon, epsilon)
    f, g = _point((0.0, 0.0), angles[0], _rr, 0.0), _point(_A, angles[4], _zt, 0.0)
    h = _point(_A, angles[6], 0.0, -_u)
    centres = (
        _point((0.0, 0.0), angles[0], _ra, 0.0),
        _point(f, angles[1], -_da, 0.0),
        _point(_B, angles[2], _sb, -_sa),
        _point(g, angles[3], 0.0, _ea - _e),
        _point(_A, angles[4], _ta, _tb),
        _point(h, angles[5], _zf - _fa, 0.0),
        _point(_A, angles[6], -_ub, -_ua),
    )
    return [
        pl.Body(f"b{i + 1}", m, inertia, (*centre, angle))
        for i, (m, inertia, centre, angle) in enumerate(zip(_MASSES, _INERTIAS, centres, angles, strict=True))
    ]


@listed("IVP test set; IFToMM A03; Hairer, Wanner, Solving ODEs II, VII.7")
def andrews(problem: str = "andrews_ivp") -> Example:
    """Andrews' squeezing mechanism: seven bodies, a spring, a constant torque on the crank, from rest.

    **Arguments:** `problem`: `"iftomm_a03"` or `"andrews_ivp"`, which differ in the crank's initial angle.
    """
    if problem not in ANDREWS_STARTS:
        raise unknown("version of Andrews' mechanism", problem, ANDREWS_STARTS)
    angle = ANDREWS_STARTS[problem]
    b1, b2, b3, b4, b5, b6, b7 = _bodies(angle)
    pin_e = b3.at(-_sb, _sa - _ss)
    mechanism = pl.Mechanism(
        bodies=[b1, b2, b3, b4, b5, b6, b7],
        joints=[
            pl.Revolute("O", pl.ground.at(), b1.at(-_ra, 0.0)),
            pl.Revolute("F", b1.at(_rr - _ra, 0.0), b2.at(_da, 0.0)),
            pl.Revolute("B", pl.ground.at(*_B), b3.at(-_sb, _sa)),
            pl.Revolute("A5", pl.ground.at(*_A), b5.at(-_ta, -_tb)),
            pl.Revolute("A7", pl.ground.at(*_A), b7.at(_ub, _ua)),
            pl.Revolute("G", b5.at(_zt - _ta, -_tb), b4.at(0.0, _e - _ea)),
            pl.Revolute("H", b7.at(_ub, _ua - _u), b6.at(_fa - _zf, 0.0)),
            pl.Revolute("E2", pin_e, b2.at(_da - _d, 0.0)),
            pl.Revolute("E4", pin_e, b4.at(0.0, -_ea)),
            pl.Revolute("E6", pin_e, b6.at(_fa, 0.0)),
        ],
        forces=[
            pl.SpringDamper("spring", pl.ground.at(*_C), b3.at(_sd - _sb, _sa - _sc), 4530.0, 0.07785),
            pl.Torque("motor", b1.at(), 0.033),
        ],
        sensors=[pl.Point("pin F", b1.at(_rr - _ra, 0.0))],
    )
    return Example(
        mechanism, {"b1.theta": angle}, {"b1.omega": 0.0}, duration=0.03,
        inputs=("O.angle",), outputs=("pin F", "b3.theta", "spring.length", "spring.tension"),
    )  # fmt: skip
