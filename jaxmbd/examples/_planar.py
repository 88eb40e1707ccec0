"""Planar examples: pendulums, a chain that hangs between two pins, slider-cranks and four-bars."""

import math

from jaxmbd import planar as pl
from jaxmbd.examples._example import MODELICA_GRAVITY, Example, listed, rod


@listed("IFToMM A01")
def pendulum() -> Example:
    """A rod on a pin, released at rest from the horizontal, to the left.

    The body has 1 kg, its centre 0.5 m from the pivot and an inertia of 0.5 kg m² about the pivot. Its equation
    `θ'' = −(m g r / I_O) sin θ` is that of a point mass 1 m from the pivot, where the sensor `P` is.
    """
    body = pl.Body("rod", mass=1.0, inertia=0.25, pose=(-0.5, 0.0, math.pi))
    mechanism = pl.Mechanism(
        bodies=[body],
        joints=[pl.Revolute("O", pl.ground.at(), body.at(-0.5, 0.0))],
        forces=[pl.Gravity(9.81)],
        sensors=[pl.Point("P", body.at(0.5, 0.0)), pl.PointVelocity("vP", body.at(0.5, 0.0))],
    )
    return Example(
        mechanism, {"rod.theta": math.pi}, {"rod.omega": 0.0}, duration=4.0,
        inputs=("O.angle",), outputs=("P", "rod.theta", "O.fx", "O.fy"),
    )  # fmt: skip


@listed()
def double_pendulum() -> Example:
    """Two unequal arms with every kind of friction in both joints, and drag at the tip."""
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
    return Example(
        mechanism, {"O.angle": -0.5, "A.angle": 0.8}, {"O.angle": -3.0, "A.angle": -1.0}, duration=4.0,
        inputs=("O.angle", "A.angle"),
        outputs=("O.angle", "A.angle", "friction O.effort", "friction A.effort", "energy"),
    )  # fmt: skip


@listed("Modelica Standard Library, Elementary.DoublePendulum")
def modelica_double_pendulum() -> Example:
    """Two boxes, horizontal at the start, with viscous friction in the first joint."""
    boxes = [pl.Body(f"box{i}", 13.86, 0.292908, (0.5 * i - 0.25, 0.0, 0.0)) for i in (1, 2)]
    mechanism = pl.Mechanism(
        bodies=boxes,
        joints=[
            pl.Revolute("revolute1", pl.ground.at(), boxes[0].at(-0.25, 0.0)),
            pl.Revolute("revolute2", boxes[0].at(0.25, 0.0), boxes[1].at(-0.25, 0.0)),
        ],
        forces=[pl.Gravity(MODELICA_GRAVITY), pl.JointFriction("damper", "revolute1.angle", viscous=0.1)],
    )
    zero = {"revolute1.angle": 0.0, "revolute2.angle": 0.0}
    return Example(
        mechanism, zero, zero, duration=3.0, inputs=("revolute1.angle",),
        outputs=("revolute1.angle", "revolute2.angle", "damper.effort", "energy"),
    )  # fmt: skip


@listed()
def hanging_chain(n: int = 10) -> Example:
    """A chain of equal links between two pins at one height, released from an arc; friction brings it to rest.

    The `n` links have 1.5 m and 1 kg in total; the pins are 1 m apart. The chain comes to rest as a polygon along the
    catenary, which gravity alone determines.
    """
    length, angle = 1.5 / n, _half_angle(1.5)
    turns = [-angle + (2 * k + 1) * angle / n for k in range(n)]  # angles of the chords of an arc between the pins
    links, start = [], ((1.0 - length * sum(map(math.cos, turns))) / 2, 0.0)  # the chords are shorter than the arc
    for k, turn in enumerate(turns, 1):
        links.append(rod(f"link{k}", 1.0 / n, length, start, turn))
        start = start[0] + length * math.cos(turn), start[1] + length * math.sin(turn)
    ends = [pl.ground.at(), *(link.at(length / 2) for link in links)]
    starts = [*(link.at(-length / 2) for link in links), pl.ground.at(1.0)]
    pins = [pl.Revolute(f"P{k}", a, b) for k, (a, b) in enumerate(zip(ends, starts, strict=True))]
    friction = [pl.JointFriction(f"friction{k}", f"P{k}.angle", viscous=2e-3) for k in range(n + 1)]
    middle = links[n // 2]
    mechanism = pl.Mechanism(
        links, pins, [pl.Gravity(9.81), *friction], sensors=[pl.Point("middle", middle.at(-length / 2))]
    )
    return Example(
        mechanism, duration=3.0, inputs=("P0.angle",), outputs=("middle", "P0.fx", "P0.fy", "kinetic_energy")
    )


def _half_angle(ratio: float) -> float:
    """Return half the angle of an arc that is `ratio` times as long as its chord: `a = ratio sin a`, by Newton's
    method."""
    a = math.sqrt(6 * (1 - 1 / ratio))
    for _ in range(8):
        a -= (a - ratio * math.sin(a)) / (1 - ratio * math.cos(a))
    return a


@listed("Exudyn, planar slider-crank")
def slider_crank(crank_angle: float = 0.0, crank_speed: float = 0.0) -> Example:
    """A crank with a constant torque, a rod and a slider, without gravity.

    The crank is 0.1 m long and driven by 0.1 N m, the rod is 0.3 m long.

    **Arguments:** the initial `crank_angle` [rad] and `crank_speed` [rad/s].
    """
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
            pl.Prismatic("rail", pl.ground.at(), slider.at()),
        ],
        forces=[pl.Torque("motor", crank.at(), 0.1)],
    )
    return Example(
        mechanism, {"crank.theta": crank_angle}, {"crank.omega": crank_speed}, duration=1.0,
        inputs=("O.angle",), outputs=("crank.omega", "slider.x", "C.fx", "C.fy"),
    )  # fmt: skip


@listed("SUNDIALS, idasSlCrank")
def sundials_slider_crank() -> Example:
    """A rod whose centre slides on a line, a crank, a spring-damper between them and a force at the rod's far end.

    The crank's centre of mass is at its hinge, so that its inertia is that about the hinge; its mass has no effect.
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
    return Example(
        mechanism, {"crank.theta": angle}, {"crank.omega": 0.0}, duration=10.0,
        inputs=("hinge.angle",), outputs=("crank.theta", "rod.x", "spring.tension", "kinetic_energy"),
    )  # fmt: skip


@listed("Modelica Standard Library, Loops.PlanarFourbar")
def planar_four_bar() -> Example:
    """Three moving boxes on four pins, with viscous friction in the first one, from rest.

    All body frames are initially parallel to the world's.
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
        forces=[pl.Gravity(MODELICA_GRAVITY), pl.TorsionalSpringDamper("damper", pl.ground.at(), b1.at(), damping=0.1)],
    )
    return Example(
        mechanism, {"revolute1.angle": 0.0}, {"revolute1.angle": 0.0}, duration=4.0,
        inputs=("revolute1.angle",),
        outputs=("revolute1.angle", "revolute1.angle_rate", "revolute3.fx", "revolute3.fy"),
    )  # fmt: skip


def _box(x: float, y: float, width: float) -> tuple[float, float]:
    """Return the mass and central inertia of Modelica's box (7700 kg/m³) from (0, 0) to `(x, y)` [m]."""
    length = math.hypot(x, y)
    mass = 7700 * length * width**2
    return mass, mass * (length**2 + width**2) / 12


@listed()
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
            pl.TorsionalSpringDamper("hinge", pl.ground.at(), rocker.at(), 2.0, free_angle=1.2, damping=0.02),
            pl.PointDrag("drag", coupler.at(0.05, 0.03), quadratic=0.1, linear=0.05),
            pl.Force("load", rocker.at(0.1, 0.02), (0.5, -1.0), torque=0.03, frame="body"),
            pl.Torque("motor", crank.at(), 0.15),
        ],
    )
    return Example(
        mechanism, {"O.angle": 1.0}, {"O.angle": 3.0}, duration=2.0,
        inputs=("O.angle",), outputs=("crank.theta", "rocker.theta", "spring.tension", "strut.tension"),
    )  # fmt: skip
