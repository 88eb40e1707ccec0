"""Example mechanisms that the tests share: reference problems of others, and a few of our own.

Each function returns an `Example`: the mechanism, and what `assemble` needs to start it. An example is a tree
of arrays, the start included, so that a test can differentiate with respect to every number in it.

A body's frame has its origin at the centre of mass; a rod's x axis points along the rod. Units are SI.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

MODELICA_GRAVITY = 9.80665  # [m/s²]
ANDREWS_STARTS = {"iftomm_a03": -0.0620, "andrews_ivp": -0.0617138900142764496}  # crank angle [rad]


def _numbers(values: Mapping[str, float] | None) -> dict[str, Array]:
    return {name: jnp.asarray(value, dtype=float) for name, value in (values or {}).items()}


class Example(eqx.Module):
    """A mechanism and its start: `fixed` coordinates [m or rad] and `speeds` [m/s or rad/s] by name."""

    mechanism: pl.Mechanism
    fixed: dict[str, Array] = eqx.field(converter=_numbers, default=None)
    speeds: dict[str, Array] = eqx.field(converter=_numbers, default=None)

    def state(self) -> mbd.State:
        """The assembled start."""
        return mbd.assemble(self.mechanism, self.fixed, speeds=self.speeds)

    def simulate(self, ts: Any, **options: Any) -> mbd.Solution:
        """The motion from the assembled start."""
        return mbd.simulate(self.mechanism, self.state(), ts, **options)


def rod(name: str, mass: float, length: float, start: tuple[float, float], angle: float) -> pl.Body:
    """A uniform slender rod whose x axis points along it, with one end at `start` [m], at `angle` [rad]."""
    x, y = start
    centre = (x + length / 2 * math.cos(angle), y + length / 2 * math.sin(angle), angle)
    return pl.Body(name, mass=mass, inertia=mass * length**2 / 12, pose=centre)


# --- open mechanisms ------------------------------------------------------------------------------


def pendulum() -> Example:
    """IFToMM A01, released at rest from the horizontal, to the left.

    A body of 1 kg whose centre is 0.5 m from the pivot and whose inertia about the pivot is 0.5 kg m²: its
    equation `θ'' = −(m g r / I_O) sin θ` is that of a point mass 1 m from the pivot. The sensor `P` is there.
    """
    body = pl.Body("rod", mass=1.0, inertia=0.25, pose=(-0.5, 0.0, math.pi))
    mechanism = pl.Mechanism(
        bodies=[body],
        joints=[pl.Revolute("O", pl.ground.at(), body.at(-0.5, 0.0))],
        forces=[pl.Gravity(9.81)],
        sensors=[pl.Point("P", body.at(0.5, 0.0)), pl.PointVelocity("vP", body.at(0.5, 0.0))],
    )
    return Example(mechanism, {"rod.theta": math.pi}, {"rod.omega": 0.0})


def modelica_double_pendulum() -> Example:
    """Modelica's DoublePendulum: two boxes, horizontal at the start, viscous friction in the first joint."""
    boxes = [pl.Body(f"box{i}", 13.86, 0.292908, (0.5 * i - 0.25, 0.0, 0.0)) for i in (1, 2)]
    mechanism = pl.Mechanism(
        bodies=boxes,
        joints=[
            pl.Revolute("revolute1", pl.ground.at(), boxes[0].at(-0.25, 0.0)),
            pl.Revolute("revolute2", boxes[0].at(0.25, 0.0), boxes[1].at(-0.25, 0.0)),
        ],
        forces=[
            pl.Gravity(MODELICA_GRAVITY),
            pl.JointFriction("damper", "revolute1.angle", viscous=0.1),
        ],
    )
    zero = {"revolute1.angle": 0.0, "revolute2.angle": 0.0}
    return Example(mechanism, zero, zero)


def double_pendulum_with_friction() -> Example:
    """Two unequal arms, every kind of friction in both joints, and drag at the tip."""
    upper, lower = rod("upper", 0.4, 0.3, (0.0, 0.0), -0.4), rod("lower", 0.25, 0.25, (0.28, -0.12), 0.3)
    mechanism = pl.Mechanism(
        bodies=[upper, lower],
        joints=[
            pl.Revolute("O", pl.ground.at(0.01, -0.02, 0.1), upper.at(-0.15, 0.0)),
            pl.Revolute("A", upper.at(0.15, 0.01), lower.at(-0.125, 0.0, 0.05)),
        ],
        forces=[
            pl.Gravity(9.81),
            pl.JointFriction("friction O", "O.angle", viscous=0.01, coulomb=0.02, width=0.5, quadratic=0.002),
            pl.JointFriction("friction A", "A.angle", viscous=0.004, coulomb=0.01, width=0.4, quadratic=0.001),
            pl.PointDrag("drag", lower.at(0.125, 0.01), quadratic=0.02, linear=0.01),
        ],
    )
    return Example(mechanism, {"O.angle": -0.5, "A.angle": 0.8}, {"O.angle": -3.0, "A.angle": -1.0})


# --- parallelogram four-bars ----------------------------------------------------------------------


def four_bars(n: int) -> Example:
    """IFToMM A02: `n` square four-bars side by side, uprights at `x = 0 … n`, couplers moving at 1 m/s.

    All uprights turn clockwise at 1 rad/s. Twice a turn all rods lie flat, where the rank of `C` drops.
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
    return Example(mechanism, {"upright0.theta": math.pi / 2}, {"upright0.omega": -1.0})


# --- Andrews' squeezing mechanism -----------------------------------------------------------------

# Fixed points and lengths [m] under the names of Hairer and Wanner, Solving ODEs II, VII.7.
_A, _B, _C = (-0.06934, -0.00227), (-0.03635, 0.03273), (0.014, 0.072)
_d, _da, _e, _ea = 0.028, 0.0115, 0.02, 0.01421
_rr, _ra = 0.007, 0.00092
_ss, _sa, _sb, _sc, _sd = 0.035, 0.01874, 0.01043, 0.018, 0.02
_ta, _tb, _u, _ua, _ub = 0.02308, 0.00916, 0.04, 0.01228, 0.00449
_zf, _zt, _fa = 0.02, 0.04, 0.01421
_ANDREWS_MASSES = (0.04325, 0.00365, 0.02373, 0.00706, 0.07050, 0.00706, 0.05498)
_ANDREWS_INERTIAS = (2.194e-6, 4.410e-7, 5.255e-6, 5.667e-7, 1.169e-5, 5.667e-7, 1.912e-5)
_ANDREWS_GUESS = (0.0, 0.45528, 0.22267, 0.48737, -0.22267, 1.23055)  # Θ γ Φ δ Ω ε [rad]


def _placed(origin: tuple[float, float], angle: float, x: float, y: float) -> tuple[float, float]:
    """The point `origin + R(angle) (x, y)`."""
    c, s = math.cos(angle), math.sin(angle)
    return origin[0] + c * x - s * y, origin[1] + s * x + c * y


def _andrews_bodies(crank_angle: float) -> list[pl.Body]:
    theta, gamma, phi, delta, omega, epsilon = _ANDREWS_GUESS
    angles = (crank_angle, crank_angle + theta, gamma, phi + delta, delta, omega + epsilon, epsilon)
    f, g = _placed((0.0, 0.0), angles[0], _rr, 0.0), _placed(_A, angles[4], _zt, 0.0)
    h = _placed(_A, angles[6], 0.0, -_u)
    centres = (
        _placed((0.0, 0.0), angles[0], _ra, 0.0),
        _placed(f, angles[1], -_da, 0.0),
        _placed(_B, angles[2], _sb, -_sa),
        _placed(g, angles[3], 0.0, _ea - _e),
        _placed(_A, angles[4], _ta, _tb),
        _placed(h, angles[5], _zf - _fa, 0.0),
        _placed(_A, angles[6], -_ub, -_ua),
    )
    return [
        pl.Body(f"b{i + 1}", m, inertia, (*centre, angle))
        for i, (m, inertia, centre, angle) in enumerate(
            zip(_ANDREWS_MASSES, _ANDREWS_INERTIAS, centres, angles, strict=True)
        )
    ]


def andrews(problem: str = "andrews_ivp") -> Example:
    """Andrews' squeezing mechanism: seven bodies, a spring, a constant torque on the crank `b1`, at rest.

    **Arguments:** `problem`, `"iftomm_a03"` or `"andrews_ivp"`, which differ in the crank's start angle.
    """
    angle = ANDREWS_STARTS[problem]
    b1, b2, b3, b4, b5, b6, b7 = _andrews_bodies(angle)
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
    return Example(mechanism, {"b1.theta": angle}, {"b1.omega": 0.0})


def andrews_coordinates(values: Sequence[Array]) -> Array:
    """`(β, Θ, γ, Φ, δ, Ω, ε)`, or their rates, from those of the absolute angles of `b1 … b7`."""
    b1, b2, b3, b4, b5, b6, b7 = values
    return jnp.stack([b1, b2 - b1, b3, b4 - b5, b5, b6 - b7, b7], axis=-1)


# --- slider-cranks --------------------------------------------------------------------------------


def sundials_slider_crank() -> Example:
    """SUNDIALS' slider-crank: the rod's centre slides on the x axis; a force at its far end, a spring-damper.

    The crank's centre of mass sits at its hinge, so that its inertia is that about the hinge; its mass
    has no effect.
    """
    angle, tilt = math.pi / 2, -math.pi / 6
    crank = pl.Body("crank", mass=1.0, inertia=1.0, pose=(0.0, 0.0, angle))
    bar = pl.Body("rod", mass=1.0, inertia=2.0, pose=(math.cos(tilt), 0.0, tilt))
    mechanism = pl.Mechanism(
        bodies=[crank, bar],
        joints=[
            pl.Revolute("hinge", pl.ground.at(), crank.at()),
            pl.Revolute("pin", crank.at(0.5, 0.0), bar.at(-1.0, 0.0)),
            pl.PinInSlot("slot", pl.ground.at(), bar.at()),
        ],
        forces=[
            pl.SpringDamper("spring", crank.at(0.25, 0.0), bar.at(-0.5, 0.0), 1.0, 1.0, damping=1.0),
            pl.Force("push", bar.at(1.0, 0.0), (1.0, 0.0)),
        ],
    )
    return Example(mechanism, {"crank.theta": angle}, {"crank.omega": 0.0})


def slider_crank(crank_angle: float = 0.0, crank_speed: float = 0.0) -> Example:
    """Exudyn's planar slider-crank: 0.1 m crank with a constant torque of 0.1 N m, 0.3 m rod, no gravity."""
    pin = (0.1 * math.cos(crank_angle), 0.1 * math.sin(crank_angle))
    tilt = -math.asin(pin[1] / 0.3)
    crank, bar = rod("crank", 0.2, 0.1, (0.0, 0.0), crank_angle), rod("rod", 0.2, 0.3, pin, tilt)
    slider = pl.Body("slider", 0.4, 1e-3, (pin[0] + 0.3 * math.cos(tilt), 0.0, 0.0))
    mechanism = pl.Mechanism(
        bodies=[crank, bar, slider],
        joints=[
            pl.Revolute("O", pl.ground.at(), crank.at(-0.05, 0.0)),
            pl.Revolute("B", crank.at(0.05, 0.0), bar.at(-0.15, 0.0)),
            pl.Revolute("C", bar.at(0.15, 0.0), slider.at()),
            pl.Translational("rail", pl.ground.at(), slider.at()),
        ],
        forces=[pl.Torque("motor", crank.at(), 0.1)],
    )
    return Example(mechanism, {"crank.theta": crank_angle}, {"crank.omega": crank_speed})


# --- four-bars ------------------------------------------------------------------------------------


def modelica_four_bar() -> Example:
    """Modelica's PlanarFourbar: three moving boxes, viscous friction in the first joint, at rest.

    All body frames are parallel to the world's at the start.
    """
    b1 = pl.Body("b1", 7.7, 0.104270833333333, (0.2, 0.0, 0.0))
    b2 = pl.Body("b2", *_box(0.1, 1.1, 0.05), pose=(0.45, 0.55, 0.0))
    b4 = pl.Body("b4", *_box(0.65, 0.1, 0.05), pose=(0.175, 1.05, 0.0))
    mechanism = pl.Mechanism(
        bodies=[b1, b2, b4],
        joints=[
            pl.Revolute("revolute1", pl.ground.at(), b1.at(-0.2, 0.0)),
            pl.Revolute("revolute2", b1.at(0.2, 0.0), b2.at(-0.05, -0.55)),
            pl.Revolute("revolute3", pl.ground.at(-0.15, 1.0), b4.at(-0.325, -0.05)),
            pl.Revolute("revolute4", b2.at(0.05, 0.55), b4.at(0.325, 0.05)),
        ],
        forces=[
            pl.Gravity(MODELICA_GRAVITY),
            pl.TorsionalSpringDamper("damper", pl.ground.at(), b1.at(), damping=0.1),
        ],
    )
    return Example(mechanism, {"revolute1.angle": 0.0}, {"revolute1.angle": 0.0})


def _box(x: float, y: float, width: float) -> tuple[float, float]:
    """Mass and central inertia of Modelica's box (7700 kg/m³) that reaches from (0, 0) to `(x, y)` [m]."""
    length = math.hypot(x, y)
    mass = 7700 * length * width**2
    return mass, mass * (length**2 + width**2) / 12


def four_bar_with_springs() -> Example:
    """A crank-rocker with spring-dampers, a torsional one at the rocker, drag, a load and a torque."""
    crank, coupler = rod("crank", 0.3, 0.12, (0.0, 0.0), 1.0), rod("coupler", 0.5, 0.35, (0.065, 0.1), 0.35)
    rocker = rod("rocker", 0.4, 0.25, (0.4, 0.0), 1.6)
    mechanism = pl.Mechanism(
        bodies=[crank, coupler, rocker],
        joints=[
            pl.Revolute("O", pl.ground.at(), crank.at(-0.06, 0.0)),
            pl.Revolute("A", crank.at(0.06, 0.0), coupler.at(-0.175, 0.0)),
            pl.Revolute("B", coupler.at(0.175, 0.0), rocker.at(0.125, 0.0)),
            pl.Revolute("C", pl.ground.at(0.4, 0.0), rocker.at(-0.125, 0.0)),
        ],
        forces=[
            pl.Gravity(9.81),
            pl.SpringDamper("spring", pl.ground.at(0.1, 0.3), coupler.at(0.02, 0.01), 60.0, 0.15, damping=0.8),
            pl.SpringDamper("strut", crank.at(0.03, 0.0), rocker.at(0.05, 0.0), 25.0, 0.2, 0.5, actuator=1.5),
            pl.TorsionalSpringDamper("hinge", pl.ground.at(), rocker.at(), 2.0, angle=1.2, damping=0.02),
            pl.PointDrag("drag", coupler.at(0.05, 0.03), quadratic=0.1, linear=0.05),
            pl.Force("load", rocker.at(0.1, 0.02), (0.5, -1.0), torque=0.03, frame="body"),
            pl.Torque("motor", crank.at(), 0.15),
        ],
    )
    return Example(mechanism, {"O.angle": 1.0}, {"O.angle": 3.0})


ALL = {
    "pendulum": pendulum,
    "modelica_double_pendulum": modelica_double_pendulum,
    "double_pendulum_with_friction": double_pendulum_with_friction,
    "four_bars_2": lambda: four_bars(2),
    "andrews": andrews,
    "sundials_slider_crank": sundials_slider_crank,
    "slider_crank": lambda: slider_crank(0.4, 5.0),
    "modelica_four_bar": modelica_four_bar,
    "four_bar_with_springs": four_bar_with_springs,
}
