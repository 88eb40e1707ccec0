"""One example or more of each joint, driver, force and sensor class, for the laws that all of them have to keep.

Each case is built twice on a bench: between two bodies of its own, and between the ground and a body (other numbers).
Whatever acts on those bodies then comes from this one part. Units are SI.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd import planar as pl


class Sine(eqx.Module):
    """A motion with parameters of its own: `offset + amplitude sin(rate t)`."""

    offset: Array
    amplitude: Array
    rate: Array

    def __call__(self, t: Array) -> Array:
        return self.offset + self.amplitude * jnp.sin(self.rate * t)


@dataclass(frozen=True)
class Parts:
    """What a case adds to a mechanism; the part under test has the case's name, the others help it."""

    joints: tuple[Any, ...] = ()
    drivers: tuple[Any, ...] = ()
    forces: tuple[Any, ...] = ()
    sensors: tuple[Any, ...] = ()


Build = Callable[[str, pl.Marker, pl.Marker, float], Parts]


@dataclass(frozen=True)
class Case:
    """A part of a type, how to build it between two markers (the number scales its parameters), and its promises."""

    part: type
    build: Build
    pair: bool = True  # acts on two bodies, with equal and opposite effect
    moves: bool = False  # depends on time: may do work
    conserves: bool = False  # a force that is minus the gradient of its potential, at rest
    dissipates: bool = False  # its dependence on speed takes energy out


def joint(part: type, make: Callable[..., Any], **promises: bool) -> Case:
    """A case of a joint alone."""
    return Case(part, lambda name, a, b, s: Parts(joints=(make(name, a, b, s),)), **promises)


def force(part: type, make: Callable[..., Any], **promises: bool) -> Case:
    """A case of a force alone."""
    return Case(part, lambda name, a, b, s: Parts(forces=(make(name, a, b, s),)), **promises)


def sensor(part: type, make: Callable[..., Any]) -> Case:
    """A case of a sensor alone."""
    return Case(part, lambda name, a, b, s: Parts(sensors=(make(name, a, b, s),)))


def on_joint(part: type, coordinate: str, make: Callable[..., Any], **promises: bool) -> Case:
    """A case of a driver or force along the coordinate of a helping joint."""
    kind = {"angle": pl.Revolute, "displacement": pl.Translational, "offset": pl.PinInSlot}[coordinate]
    motion = {"offset": "displacement"}.get(coordinate, coordinate)

    def build(name: str, a: pl.Marker, b: pl.Marker, s: float) -> Parts:
        helper = kind(f"{name} helper", a, b)
        made = make(name, f"{helper.name}.{motion}", s)
        return Parts((helper,), **{"drivers" if part is pl.Driver else "forces": (made,)})

    return Case(part, build, **promises)


def swing(t: Array) -> Array:
    """A motion as a plain function."""
    return 0.3 + 0.5 * t + 0.2 * jnp.sin(3 * t)


def breathing_distance(t: Array, a: pl.Frame, b: pl.Frame, parameters: Any) -> Array:
    """A rod whose length changes with time, as a user's constraint."""
    d = b.position - a.position
    return jnp.dot(d, d) - (parameters["length"] + 0.1 * jnp.sin(parameters["rate"] * t)) ** 2


def cam(t: Array, a: pl.Frame, b: pl.Frame, parameters: Any) -> Array:
    """Two rows at once: the distance follows the relative angle, and the angle is bound to the distance's."""
    d, phi = b.position - a.position, b.angle - a.angle
    along = jnp.dot(a.axis, d)
    return jnp.stack([along - parameters * (1 + 0.3 * jnp.cos(phi)), jnp.dot(a.normal, d) - 0.1 * jnp.sin(phi)])


def first_bodies(t: Array, q: Array, parameters: Any) -> Array:
    """Binds the coordinates of the bench's first two bodies to each other and to the time."""
    return parameters[0] * q[0] * q[4] + parameters[1] * jnp.sin(q[5] - q[2]) - 0.2 * jnp.cos(t)


def fixed_bodies(t: Array, q: Array, parameters: Any) -> Array:
    """A global constraint of two rows without time."""
    return jnp.stack([q[0] - parameters * q[3], jnp.sin(q[1]) + q[4] - parameters])


def thrust(t: Array, frame: pl.Frame, rate: pl.Frame) -> Array:
    """A force that depends on everything it may."""
    return jnp.stack([1.0 + t, 0.5]) * jnp.cos(frame.angle) - 0.3 * rate.position


def twist(t: Array, frame: pl.Frame, rate: pl.Frame) -> Array:
    """A moment that depends on everything it may."""
    return 0.2 * jnp.sin(t) - 0.1 * rate.angle + 0.05 * frame.position[0]


def servo(t: Array, x: Array, rate: Array) -> Array:
    """An actuator on a length or angle: pulls it to 0.4 sin(t)."""
    return 2.0 * (0.4 * jnp.sin(t) - x) - 0.3 * rate


def attraction(t: Array, frames: Any, rates: Any, parameters: Any) -> Array:
    """A cubic pull between two markers and a damping of their closing speed, as a user's force."""
    a, b = frames
    d = b.position - a.position
    f = -parameters["k"] * d * jnp.dot(d, d) - parameters["c"] * (rates[1].position - rates[0].position)
    r_f = d[0] * f[1] - d[1] * f[0]
    on_a = jnp.stack([-f[0], -f[1], -r_f])  # the reaction, taken at the second marker's place
    return jnp.stack([on_a, jnp.append(f, 0.0)])


def hinge(t: Array, x: Array, rate: Array, parameters: Any) -> Array:
    """A nonlinear spring and damper along a joint's coordinate, as a user's function."""
    return -parameters["k"] * jnp.sin(x) - parameters["c"] * rate


def stir(t: Array, q: Array, v: Array, parameters: Any) -> Array:
    """A user's force on all coordinates."""
    return parameters[0] * jnp.cos(t) * q - parameters[1] * v * jnp.sum(v * v)


def momentum(t: Array, q: Array, v: Array, vdot: Array, lam: Array, parameters: Any) -> Array:
    """A user's reading of everything there is."""
    return parameters * jnp.sum(v) + jnp.sum(q * vdot) + t


def array(*numbers: float) -> Array:
    """Numbers as an array, one number as a scalar."""
    return jnp.asarray(numbers if len(numbers) != 1 else next(iter(numbers)), dtype=float)


JOINTS: Mapping[str, Case] = {
    "Revolute": joint(pl.Revolute, lambda n, a, b, s: pl.Revolute(n, a, b)),
    "Translational": joint(pl.Translational, lambda n, a, b, s: pl.Translational(n, a, b)),
    "Weld": joint(pl.Weld, lambda n, a, b, s: pl.Weld(n, a, b)),
    "PinInSlot": joint(pl.PinInSlot, lambda n, a, b, s: pl.PinInSlot(n, a, b)),
    "Rod": joint(pl.Rod, lambda n, a, b, s: pl.Rod(n, a, b, 0.8 * s)),
    "RelativeAngle": joint(pl.RelativeAngle, lambda n, a, b, s: pl.RelativeAngle(n, a, b, 0.4 * s)),
    "Gear": joint(pl.Gear, lambda n, a, b, s: pl.Gear(n, a, b, -1.5 * s, phase=0.2)),
    "Constraint, moving": joint(
        pl.Constraint,
        lambda n, a, b, s: pl.Constraint(n, breathing_distance, a, b, {"length": array(0.9 * s), "rate": array(2.0)}),
        moves=True,
    ),
    "Constraint, two rows": joint(pl.Constraint, lambda n, a, b, s: pl.Constraint(n, cam, a, b, array(0.7 * s))),
    "Driver of an angle": on_joint(pl.Driver, "angle", lambda n, c, s: pl.Driver(n, c, swing), moves=True),
    "Driver of a displacement": on_joint(
        pl.Driver,
        "displacement",
        lambda n, c, s: pl.Driver(n, c, Sine(array(0.5), array(0.2 * s), array(3.0))),
        moves=True,
    ),
    "Driver, constant": on_joint(pl.Driver, "offset", lambda n, c, s: pl.Driver(n, c, 0.6 * s)),
    "Driver of a body": Case(
        pl.Driver,
        lambda n, a, b, s: Parts(drivers=(pl.Driver(n, f"{b.body}.x", swing),)),
        pair=False,
        moves=True,
    ),
}

GLOBALS: Mapping[str, Callable[[str], pl.GlobalConstraint]] = {
    "GlobalConstraint, moving": lambda n: pl.GlobalConstraint(n, first_bodies, array(0.8, 0.5)),
    "GlobalConstraint, two rows": lambda n: pl.GlobalConstraint(n, fixed_bodies, array(0.6)),
}

FORCES: Mapping[str, Case] = {
    "Force": force(pl.Force, lambda n, a, b, s: pl.Force(n, b, (1.0 * s, -2.0), 0.3), pair=False),
    "Force, body": force(pl.Force, lambda n, a, b, s: pl.Force(n, b, (1.0, -2.0 * s), frame="body"), pair=False),
    "Force, functions": force(pl.Force, lambda n, a, b, s: pl.Force(n, b, thrust, twist), pair=False),
    "Torque": force(pl.Torque, lambda n, a, b, s: pl.Torque(n, b, 0.7 * s, a)),
    "Torque, function": force(pl.Torque, lambda n, a, b, s: pl.Torque(n, b, servo, a), dissipates=True),
    "SpringDamper": force(
        pl.SpringDamper,
        lambda n, a, b, s: pl.SpringDamper(n, a, b, 30.0 * s, 0.4, 1.5),
        conserves=True,
        dissipates=True,
    ),
    "SpringDamper, spring": force(
        pl.SpringDamper, lambda n, a, b, s: pl.SpringDamper(n, a, b, 20.0, 0.3 * s), conserves=True
    ),
    "SpringDamper, actuator": force(
        pl.SpringDamper, lambda n, a, b, s: pl.SpringDamper(n, a, b, 20.0, 0.3 * s, 0.1, servo)
    ),
    "SpringDamper, constant": force(
        pl.SpringDamper, lambda n, a, b, s: pl.SpringDamper(n, a, b, 5.0 * s, 0.1, actuator=1.5)
    ),
    "TorsionalSpringDamper": force(
        pl.TorsionalSpringDamper,
        lambda n, a, b, s: pl.TorsionalSpringDamper(n, a, b, 3.0 * s, 0.2, 0.4),
        conserves=True,
        dissipates=True,
    ),
    "TorsionalSpringDamper, actuator": force(
        pl.TorsionalSpringDamper, lambda n, a, b, s: pl.TorsionalSpringDamper(n, a, b, s, actuator=servo)
    ),
    "PointDrag": force(pl.PointDrag, lambda n, a, b, s: pl.PointDrag(n, b, 0.4 * s, 0.2), pair=False, dissipates=True),
    "UserForce": force(
        pl.UserForce,
        lambda n, a, b, s: pl.UserForce(n, attraction, (a, b), {"k": array(2.0 * s), "c": array(0.3)}),
    ),
    "JointForce": on_joint(
        pl.JointForce,
        "angle",
        lambda n, c, s: pl.JointForce(n, c, hinge, {"k": array(2.0 * s), "c": array(0.2)}),
        dissipates=True,
    ),
    "JointFriction": on_joint(
        pl.JointFriction,
        "angle",
        lambda n, c, s: pl.JointFriction(n, c, 0.1 * s, 0.2, 0.5, 0.05),
        dissipates=True,
    ),
    "JointFriction, sliding": on_joint(
        pl.JointFriction,
        "displacement",
        lambda n, c, s: pl.JointFriction(n, c, 0.1, 0.2, 0.5 * s),
        dissipates=True,
    ),
}

SENSORS: Mapping[str, Case] = {
    "Point": sensor(pl.Point, lambda n, a, b, s: pl.Point(n, b)),
    "PointVelocity": sensor(pl.PointVelocity, lambda n, a, b, s: pl.PointVelocity(n, b)),
    "PointAcceleration": sensor(pl.PointAcceleration, lambda n, a, b, s: pl.PointAcceleration(n, b)),
    "Measure": sensor(pl.Measure, lambda n, a, b, s: pl.Measure(n, momentum, array(1.5 * s), "kg")),
}


def fields() -> tuple[Any, ...]:
    """The forces that act on every body."""
    return pl.Gravity((0.4, -9.81)), pl.GeneralizedForce("stir", stir, array(0.3, 0.1))


# A constraint on all coordinates, or a field, is no case of the bench's bodies: they have tests of their own.
REGISTERED = {case.part for table in (JOINTS, FORCES, SENSORS) for case in table.values()} | {
    pl.GlobalConstraint,
    pl.Gravity,
    pl.GeneralizedForce,
}


def names(table: Mapping[str, Case]) -> list[str]:
    """The names of the parts under test: each case between two bodies, and between the ground and a body."""
    return [f"{case}{place}" for case in table for place in ("", " on ground")]


def case_of(name: str) -> Case:
    """The case that a part under test belongs to."""
    return {**JOINTS, **FORCES, **SENSORS}[name.removesuffix(" on ground")]


def bench(table: Mapping[str, Case], extra: tuple[Any, ...] = (), loads: tuple[Any, ...] = ()) -> pl.Mechanism:
    """All cases of a table in one mechanism, each twice and on bodies of its own, at random places."""
    rng = np.random.default_rng(5)
    bodies: list[pl.Body] = []
    parts: list[Parts] = []

    def body(name: str) -> pl.Body:
        mass, inertia = rng.uniform(0.5, 2.0, 2)
        bodies.append(pl.Body(name, mass, inertia, rng.uniform(-1.0, 1.0, 3)))
        return bodies[-1]

    def at(owner: Any) -> pl.Marker:
        return owner.at(*rng.uniform(-0.3, 0.3, 3))

    for name, case in table.items():
        a, b, c = body(f"{name}/a"), body(f"{name}/b"), body(f"{name} on ground/b")
        parts.append(case.build(name, at(a), at(b), 1.0))
        parts.append(case.build(f"{name} on ground", at(pl.ground), at(c), 1.3))
    return pl.Mechanism(
        bodies,
        [*(p for group in parts for p in group.joints), *extra],
        [*(p for group in parts for p in group.forces), *loads],
        [p for group in parts for p in group.drivers],
        [p for group in parts for p in group.sensors],
        floating=True,
    )
