"""Example mechanisms in space that the tests share: reference problems of others.

Beside `tests/examples.py`, whose `Example` serves here too. A body's frame has its origin at the centre of mass.
Units are SI.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd import rotation as rot
from jaxmbd import spatial as sp
from tests.examples import MODELICA_GRAVITY, Example

Point: TypeAlias = tuple[float, float, float]
Turn: TypeAlias = tuple[str, float]  # an axis and an angle [°]

ADAMS_GRAVITY = 9.80665  # [m/s²]
ORIGIN: Point = (0, 0, 0)
AWAY: Point = (1, 2, 3)  # [m]
SLENDER: Point = (0.04, 0.1, 0.1)  # [kg m²]
HEAVY_TOP_SPIN = (0.0, 150.0, -4.61538)  # [rad/s]

# --- 18 bodies of one joint or force, computed by MSC ADAMS for Project Chrono --------------------


class SpringLaw(eqx.Module):
    """A user's own law of tension: `k e + h |e| e + c l̇`, `e = l − l0`."""

    stiffness: Array
    hardening: Array
    damping: Array
    length: Array

    def __call__(self, t: Array, length: Array, rate: Array) -> Array:
        e = length - self.length
        return self.stiffness * e + self.hardening * jnp.abs(e) * e + self.damping * rate


def adams(case: str) -> sp.Mechanism:
    """One case by its name. Its parts are named alike in all: cases that differ only in numbers share one program.

    `body`, 1 kg, is where it starts; `joint`, `spring` and `actuator` are what holds it. Sensors: `held`, the point at
    which it is held, and its angular velocity and acceleration, `avel` and `aacc`, in world axes.
    """
    return ADAMS[case]()


def _adams(body: sp.Body, held: sp.Marker, law: Any, *laws: Any, drivers: Sequence[sp.Driver] = ()) -> sp.Mechanism:
    forces = (sp.SpringDamper, sp.JointSpringDamper)
    return sp.Mechanism(
        bodies=[body],
        joints=[law for law in (law, *laws) if not isinstance(law, forces)],
        forces=[sp.Gravity(ADAMS_GRAVITY), *(law for law in (law, *laws) if isinstance(law, forces))],
        drivers=drivers,
        sensors=[
            sp.Point("held", at=held),
            sp.AngularVelocity("avel", at=body.at()),
            sp.AngularAcceleration("aacc", at=body.at()),
        ],
    )


def _hung(
    joint: type, loc: Point = ORIGIN, turn: Turn = ("x", 0), arm: Point = (-2, 0, 0), inertia: Point = SLENDER,
    laws: Sequence[Any] = (), drivers: Sequence[sp.Driver] = (),
) -> sp.Mechanism:  # fmt: skip
    """A body held at `loc` at its point `arm`; the axes of the joint are those of the body, turned from the world's."""
    body = _body(loc, arm, turn, inertia)
    start, held = sp.ground.at(*loc, rotation=_rotation(turn)), body.at(*arm)
    return _adams(body, held, joint("joint", start, held), *laws, drivers=drivers)


def _on_rod(arm: Point, turn: Turn = ("x", 0)) -> sp.Mechanism:
    body = _body((0, 2, 0), arm, turn)
    return _adams(body, body.at(*arm), sp.Rod("joint", sp.ground.at(), body.at(*arm), length=2.0))


def _on_link() -> sp.Mechanism:
    body = _body((2, 0, 0), (0, -2, 0), inertia=(0.1, 0.04, 0.1))
    held = body.at(0, -2, 0)
    return _adams(body, held, sp.RevoluteSpherical("joint", sp.ground.at(), held, length=2.0))


def _on_spring(end: Point, stiffness: float, damping: float, length: float) -> sp.Mechanism:
    """A spring-damper from the origin to the body's centre, which starts at `end`."""
    body = _body(end, ORIGIN)
    return _adams(body, body.at(), sp.SpringDamper("spring", sp.ground.at(), body.at(), stiffness, length, damping))


def _on_law(loc: Point, end: Point, arm: Point, *numbers: float) -> sp.Mechanism:
    """The law with its `numbers` as tension between `loc` and the body's point `arm`, which starts at `end`."""
    body = _body(end, arm)
    held, law = body.at(*arm), SpringLaw(*(jnp.asarray(number) for number in numbers))
    return _adams(body, held, sp.SpringDamper("spring", sp.ground.at(*loc), held, stiffness=0.0, actuator=law))


def _body(place: Point, arm: Point, turn: Turn = ("x", 0), inertia: Point = SLENDER) -> sp.Body:
    """A body of 1 kg, turned from the world's axes, whose point `arm` is at `place`."""
    rotation = _rotation(turn)
    x, y, z = jnp.subtract(jnp.asarray(place), rot.rotate(rotation, arm))
    return sp.Body("body", mass=1.0, inertia=inertia, pose=sp.pose(x, y, z, rotation))


def _rotation(turn: Turn) -> Array:
    axis, degrees = turn
    return rot.about(axis, math.radians(degrees))


_DOOR = sp.JointSpringDamper("spring", "joint.angle", stiffness=200.0, damping=10.0)
_MOTOR = sp.Driver("actuator", "joint.displacement", lambda t: 1.0 * t)
ADAMS: dict[str, Callable[[], sp.Mechanism]] = {
    "revolute_1": lambda: _hung(sp.Revolute, turn=("x", -90)),
    "revolute_2": lambda: _hung(sp.Revolute, AWAY, ("x", -45)),
    "spherical_2": lambda: _hung(sp.Spherical, AWAY, ("x", -45)),
    "cylindrical_1": lambda: _hung(sp.Cylindrical),
    "cylindrical_2": lambda: _hung(sp.Cylindrical, turn=("x", -90)),
    "prismatic_1": lambda: _hung(sp.Prismatic),
    "prismatic_2": lambda: _hung(sp.Prismatic, AWAY, ("x", -45)),
    "universal_1": lambda: _hung(sp.Universal, turn=("x", 90), arm=(0, 0, 2), inertia=(0.1, 0.1, 0.04)),
    "distance_1": lambda: _on_rod(ORIGIN),
    "distance_3": lambda: _on_rod((2, 0, 0), ("z", -90)),
    "revspherical_1": _on_link,
    # Both points of the spring coincide at the start. It has no direction there, and needs none: with a free length of
    # zero and no speed there is no tension either. Gravity gives it one at once.
    "transpring_1": lambda: _on_spring(ORIGIN, 10.0, 0.5, 0.0),
    "transpring_2": lambda: _on_spring((0, 2, 0), 100.0, 5.0, 2.0),
    "transpring_cb_1": lambda: _on_law(ORIGIN, ORIGIN, ORIGIN, 10.0, 0.0, 0.5, 0.0),
    "transpring_cb_2": lambda: _on_law(ORIGIN, (0, 2, 0), ORIGIN, 100.0, 0.0, 5.0, 2.0),
    "transpring_cb_3": lambda: _on_law(AWAY, (1, 4, 3), (2, 0, 0), 50.0, 10.0, 5.0, 2.0),
    "rotspring_1": lambda: _hung(sp.Revolute, turn=("x", -90), laws=(_DOOR,)),
    "linactuator_1": lambda: _hung(sp.Prismatic, arm=ORIGIN, inertia=(1, 1, 1), drivers=(_MOTOR,)),
}


# --- heavy top ------------------------------------------------------------------------------------


def heavy_top() -> Example:
    """A fast symmetric top on a ball at the origin (Brüls, Cardona, Arnold, 2012)."""
    top = sp.Body("top", mass=15.0, inertia=(0.234375, 0.46875, 0.234375), pose=(0.0, 1.0, 0.0))
    mechanism = sp.Mechanism(
        bodies=[top],
        joints=[sp.Spherical("O", sp.ground.at(), top.at(0, -1, 0))],
        forces=[sp.Gravity(9.81)],
    )
    spin = {f"top.omega_{axis}": speed for axis, speed in zip("xyz", HEAVY_TOP_SPIN, strict=True)}
    return Example(mechanism, speeds=spin)


# --- Modelica Standard Library --------------------------------------------------------------------


def modelica_spatial_four_bar() -> Example:
    """Modelica's Fourbar1: a crank, a coupler and a slider, the coupler between a ball and a universal joint."""
    crank, slider = _cylinder("b1", (0, 0, 0), (0, 0.5, 0.1)), _cylinder("b2", (1, 0, 0), (0, 0.2, 0))
    coupler = _cylinder("b3", (1, 0.2, 0), (-1, 0.3, 0.1))
    # Axes of the cross: y, the first marker's x, fixed in b2; z, the second marker's y, fixed in b3.
    first = np.array([(0, 0, 1), (1, 0, 0), (0, 1, 0)], dtype=float)  # x, y, z axes: y, z, x
    second = first
    mechanism = sp.Mechanism(
        bodies=[crank, slider, coupler],
        joints=[
            sp.Revolute("j1", sp.ground.at(axis=(1, 0, 0)), crank.at_world(0, 0, 0, axis=(1, 0, 0))),
            sp.Prismatic("j2", sp.ground.at(1.2, 0, 0, axis=(1, 0, 0)), slider.at_world(1, 0, 0, axis=(1, 0, 0))),
            sp.Universal(
                "rev", slider.at_world(1, 0.2, 0, rotation=first), coupler.at_world(1, 0.2, 0, rotation=second)
            ),
            sp.Spherical("j3", crank.at_world(0, 0.5, 0.1), coupler.at_world(0, 0.5, 0.1)),
        ],
        forces=[sp.Gravity((0.0, -MODELICA_GRAVITY, 0.0))],
    )
    return Example(mechanism, speeds={"j1.angle": 5.235987755982989})


def _cylinder(name: str, start: Point, r: Point) -> sp.Body:
    """A steel cylinder of 0.05 m diameter from `start` along `r`; the body's axes are the world's."""
    d, length = 0.05, math.hypot(*r)
    mass = 7700 * math.pi / 4 * d**2 * length
    along, across = mass * d**2 / 8, mass * (length**2 + 0.75 * d**2) / 12
    u = np.array(r) / length
    inertia = across * np.eye(3) + (along - across) * np.outer(u, u)
    return sp.Body(name, mass=mass, inertia=inertia, pose=tuple(np.array(start) + np.array(r) / 2))


# --- IFToMM library -------------------------------------------------------------------------------

AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def bricard() -> Example:
    """IFToMM A04: five bars of 1 m, 1 kg and a square section of .1 m, joined to a ring by six hinges.

    Thirty rows on thirty speeds, and yet it moves. Sensor `corner`: the hinge P3.
    """
    points = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], dtype=float)
    along, across = 0.1**2 / 6, (1 + 0.1**2) / 12
    bodies = []
    for i, (p, q) in enumerate(itertools.pairwise(points), 1):
        moments = np.where(np.abs(q - p) > 0.5, along, across)
        bodies.append(sp.Body(f"rod{i}", 1.0, moments, (p + q) / 2))
    chain = [sp.ground, *bodies, sp.ground]
    joints = []
    for i, axis in enumerate("yzxyzx"):
        here = [body.at_world(*points[i], axis=AXES[axis]) for body in chain[i : i + 2]]
        joints.append(sp.Revolute(f"P{i + 1}", *here))
    sensors = [sp.Point("corner", at=bodies[1].at_world(*points[2]))]
    return Example(sp.Mechanism(bodies, joints, [sp.Gravity((0.0, -9.81, 0.0))], sensors=sensors))


def governor() -> Example:
    """IFToMM A05: a flyball governor with very stiff springs, spinning at 2π rad/s.

    `slide.displacement` is the slider's height above its start, .5 m.
    """
    solids = [sp.box(3000.0, 0.01, 0.01, 1.0), sp.box(3000.0, 0.1, 0.1, 0.1)]
    shaft, slider = (
        sp.Body(n, s.mass, s.inertia, (0, 0, 0.5)) for n, s in zip(("shaft", "slider"), solids, strict=True)
    )
    rod = sp.box(3000.0, 1.0, 0.01, 0.01).moved(0.5) + sp.point(5.0).moved(1.0)
    bodies, forces = [shaft, slider], []
    joints = [
        sp.Revolute("spin", sp.ground.at(), shaft.at_world(0, 0, 0)),
        sp.Prismatic("slide", shaft.at_world(0, 0, 0.5), slider.at_world(0, 0, 0.5)),
    ]
    for name, side, angle in (("right", 1, math.radians(30)), ("left", -1, math.radians(150))):
        turn, hinge = rot.about("y", angle), np.array([0.05 * side, 0.0, 1.0])
        x, y, z = hinge + rot.rotate(turn, rod.centre)
        ball = sp.Body(name, rod.mass, rod.inertia, sp.pose(x, y, z, turn))
        middle = hinge + np.asarray(rot.rotate(turn, (0.5, 0.0, 0.0)))
        ends = [body.at_world(*hinge, axis=AXES["y"]) for body in (shaft, ball)]
        joints.append(sp.Revolute(f"hinge {name}", *ends))
        bodies.append(ball)
        forces.append(sp.SpringDamper(f"spring {name}", slider.at(0.05 * side), ball.at_world(*middle), 8e5, 0.5, 4e4))
    speeds = {"spin.angle": 2 * math.pi, "hinge right.angle": 0.0, "hinge left.angle": 0.0, "slide.displacement": 0.0}
    return Example(sp.Mechanism(bodies, joints, [sp.Gravity(9.81), *forces]), speeds=speeds)
