"""Andrews' squeezing mechanism, with the symbols and numbers of Hairer and Wanner, Solving ODEs II, VII.7."""

import math

from jaxmbd import planar as pl
from jaxmbd.errors import unknown
from jaxmbd.examples._example import Example, listed

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
