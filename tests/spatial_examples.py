"""The examples in space that the tests share: those of `jaxmbd.examples`, and the cases of MSC ADAMS.

A body's frame has its origin at the centre of mass. Units are SI.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd import spatial as sp
from jaxmbd.examples import bricard as bricard
from jaxmbd.examples import governor as governor
from jaxmbd.examples import heavy_top as heavy_top
from jaxmbd.examples import spatial_four_bar
from jaxmbd.space import rotation as rot

Point: TypeAlias = tuple[float, float, float]
Turn: TypeAlias = tuple[str, float]  # an axis and an angle [°]

modelica_spatial_four_bar = spatial_four_bar

ADAMS_GRAVITY = 9.80665  # [m/s²]
ORIGIN: Point = (0, 0, 0)
AWAY: Point = (1, 2, 3)  # [m]
SLENDER: Point = (0.04, 0.1, 0.1)  # [kg m²]

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
