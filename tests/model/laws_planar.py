"""The table of laws in the plane: one example or more of each class of `jaxmbd.planar`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd import planar as pl
from tests.model import laws
from tests.model.laws import (
    Case,
    Laws,
    Parts,
    array,
    coupling,
    force,
    joint,
    losses,
    mesh,
    on_joint,
    sensor,
    tendon,
    train,
)


def cam(t: Array, frames: tuple[pl.Frame, pl.Frame], parameters: Any) -> Array:
    """Two rows at once: the distance follows the relative angle, and the angle is bound to the distance's."""
    a, b = frames
    d, phi = b.position - a.position, b.angle - a.angle
    along = jnp.dot(a.axis, d)
    return jnp.stack([along - parameters * (1 + 0.3 * jnp.cos(phi)), jnp.dot(a.normal, d) - 0.1 * jnp.sin(phi)])


def bearing(t: Array, frames: Any, rates: Any) -> Array:
    """A torque between two bodies that depends on everything it may, and resists turning."""
    angle, rate = frames[1].angle - frames[0].angle, rates[1].angular - rates[0].angular
    return laws.servo(t, angle, rate)


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


JOINTS: Mapping[str, Case] = {
    "Revolute": joint(pl.Revolute, lambda n, a, b, s: pl.Revolute(n, a, b)),
    "Prismatic": joint(pl.Prismatic, lambda n, a, b, s: pl.Prismatic(n, a, b)),
    "Weld": joint(pl.Weld, lambda n, a, b, s: pl.Weld(n, a, b)),
    "PinInSlot": joint(pl.PinInSlot, lambda n, a, b, s: pl.PinInSlot(n, a, b)),
    "Rod": joint(pl.Rod, lambda n, a, b, s: pl.Rod(n, a, b, 0.8 * s)),
    "PointConstraint": joint(pl.PointConstraint, lambda n, a, b, s: pl.PointConstraint(n, a, b)),
    "PointConstraint, without y": joint(
        pl.PointConstraint, lambda n, a, b, s: pl.PointConstraint(n, a, b, without=("y",))
    ),
    "FixedConstraint": joint(pl.FixedConstraint, lambda n, a, b, s: pl.FixedConstraint(n, a, b)),
    "RelativeAngle": joint(pl.RelativeAngle, lambda n, a, b, s: pl.RelativeAngle(n, a, b, 0.4 * s)),
    "Gear": coupling(
        pl.Gear, pl.PinInSlot, ("angle", "displacement"), lambda n, c, d, s: pl.Gear(n, c, d, -1.5 * s, 0.2)
    ),
    "RackAndPinion": coupling(
        pl.RackAndPinion,
        pl.PinInSlot,
        ("angle", "displacement"),
        lambda n, c, d, s: pl.RackAndPinion(n, c, d, 0.6 * s, 0.3),
    ),
    "Constraint, moving": joint(
        pl.Constraint,
        lambda n, a, b, s: pl.Constraint(
            n, laws.breathing_distance, a, b, {"length": array(0.9 * s), "rate": array(2.0)}
        ),
        moves=True,
    ),
    "Constraint, two rows": joint(pl.Constraint, lambda n, a, b, s: pl.Constraint(n, cam, a, b, array(0.7 * s))),
    "NonholonomicConstraint": joint(
        pl.NonholonomicConstraint,
        lambda n, a, b, s: pl.NonholonomicConstraint(
            n, laws.skate, a, b, {"slope": array(0.3 * s), "speed": array(0.5)}
        ),
        moves=True,
    ),
    "Driver of an angle": on_joint(
        pl.Driver, "drivers", pl.Revolute, "angle", lambda n, c, s: pl.Driver(n, c, laws.swing), moves=True
    ),
    "Driver of a displacement": on_joint(
        pl.Driver,
        "drivers",
        pl.Prismatic,
        "displacement",
        lambda n, c, s: pl.Driver(n, c, laws.Sine(array(0.5), array(0.2 * s), array(3.0))),
        moves=True,
    ),
    "Driver, constant": on_joint(
        pl.Driver, "drivers", pl.PinInSlot, "displacement", lambda n, c, s: pl.Driver(n, c, 0.6 * s)
    ),
    "Driver of a speed": on_joint(
        pl.Driver,
        "drivers",
        pl.PinInSlot,
        "displacement",
        lambda n, c, s: pl.Driver(n, c, laws.Sine(array(0.5), array(0.2 * s), array(3.0)), prescribes="speed"),
        moves=True,
    ),
    "Driver of a body": Case(
        pl.Driver,
        lambda n, a, b, s: Parts(drivers=(pl.Driver(n, f"{b.body}.x", laws.swing),)),
        pair=False,
        moves=True,
    ),
    "PlanetaryGear": train(
        pl.PlanetaryGear, pl.PinInSlot, lambda n, c, d, e, s: pl.PlanetaryGear(n, c, d, e, 2.5 * s, 0.2)
    ),
    "Differential": train(pl.Differential, pl.PinInSlot, lambda n, c, d, e, s: pl.Differential(n, c, d, e, 0.2 * s)),
}

GLOBALS: Mapping[str, Callable[[str], pl.GlobalConstraint]] = {
    "GlobalConstraint, moving": lambda n: pl.GlobalConstraint(n, first_bodies, array(0.8, 0.5)),
    "GlobalConstraint, two rows": lambda n: pl.GlobalConstraint(n, fixed_bodies, array(0.6)),
}

FORCES: Mapping[str, Case] = {
    "Force": force(pl.Force, lambda n, a, b, s: pl.Force(n, b, (1.0 * s, -2.0), 0.3), pair=False, still=True),
    "Force, body": force(
        pl.Force, lambda n, a, b, s: pl.Force(n, b, (1.0, -2.0 * s), 0.2, frame="body"), pair=False, still=True
    ),
    "Force, functions": force(pl.Force, lambda n, a, b, s: pl.Force(n, b, thrust, twist), pair=False),
    "Torque": force(pl.Torque, lambda n, a, b, s: pl.Torque(n, b, 0.7 * s, a), still=True),
    "Torque, function": force(pl.Torque, lambda n, a, b, s: pl.Torque(n, b, bearing, a), dissipates=True),
    "SpringDamper": force(
        pl.SpringDamper,
        lambda n, a, b, s: pl.SpringDamper(n, a, b, 30.0 * s, 0.4, 1.5),
        conserves=True,
        dissipates=True,
    ),
    "SpringDamper, spring": force(
        pl.SpringDamper, lambda n, a, b, s: pl.SpringDamper(n, a, b, 20.0, 0.3 * s), conserves=True, still=True
    ),
    "SpringDamper, actuator": force(
        pl.SpringDamper, lambda n, a, b, s: pl.SpringDamper(n, a, b, 20.0, 0.3 * s, 0.1, laws.servo)
    ),
    "SpringDamper, constant": force(
        pl.SpringDamper, lambda n, a, b, s: pl.SpringDamper(n, a, b, 5.0 * s, 0.1, actuator=1.5), still=True
    ),
    "TorsionalSpringDamper": force(
        pl.TorsionalSpringDamper,
        lambda n, a, b, s: pl.TorsionalSpringDamper(n, a, b, 3.0 * s, 0.2, 0.4),
        conserves=True,
        dissipates=True,
    ),
    "TorsionalSpringDamper, actuator": force(
        pl.TorsionalSpringDamper,
        lambda n, a, b, s: pl.TorsionalSpringDamper(n, a, b, s, actuator=laws.servo),
        dissipates=True,
    ),
    "Bushing": force(
        pl.Bushing,
        lambda n, a, b, s: pl.Bushing(n, a, b, (20.0, 30.0 * s, 4.0), (0.5, 0.8, 0.3)),
        conserves=True,
        dissipates=True,
    ),
    "PlaneContact": force(
        pl.PlaneContact,
        lambda n, a, b, s: pl.PlaneContact(n, a, b, 5.0 * s, 3.0, 0.1, friction=0.4, width=0.6),
        conserves=True,
        dissipates=True,
    ),
    "PointDrag": force(pl.PointDrag, lambda n, a, b, s: pl.PointDrag(n, b, 0.4 * s, 0.2), pair=False, dissipates=True),
    "UserForce": force(
        pl.UserForce,
        lambda n, a, b, s: pl.UserForce(n, laws.attraction, (a, b), {"k": array(2.0 * s), "c": array(0.3)}),
    ),
    "JointForce": on_joint(
        pl.JointForce,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.JointForce(n, c, laws.hinge, {"k": array(2.0 * s), "c": array(0.2)}),
        dissipates=True,
    ),
    "JointFriction": on_joint(
        pl.JointFriction,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.JointFriction(n, c, 0.1 * s, 0.2, 0.5, 0.05, 0.3, 2.0),
        dissipates=True,
    ),
    "JointFriction, sliding": on_joint(
        pl.JointFriction,
        "forces",
        pl.Prismatic,
        "displacement",
        lambda n, c, s: pl.JointFriction(n, c, 0.1, 0.2, 0.5 * s, 0.07, 0.4, 1.5),
        dissipates=True,
    ),
    "JointSpringDamper": on_joint(
        pl.JointSpringDamper,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.JointSpringDamper(n, c, 3.0 * s, 0.2, 0.4, 0.0),
        conserves=True,
        dissipates=True,
    ),
    "JointSpringDamper, actuator": on_joint(
        pl.JointSpringDamper,
        "forces",
        pl.Prismatic,
        "displacement",
        lambda n, c, s: pl.JointSpringDamper(n, c, 3.0 * s, 0.2, 0.1, laws.servo),
        dissipates=True,
    ),
    "JointStop, lower": on_joint(
        pl.JointStop,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.JointStop(n, c, 4.0, np.inf, 2.0 * s, 0.05, 1.7),
        conserves=True,
        dissipates=True,
        idle=("upper",),
    ),
    "JointStop, upper": on_joint(
        pl.JointStop,
        "forces",
        pl.Prismatic,
        "displacement",
        lambda n, c, s: pl.JointStop(n, c, -9.0, -4.0, 2.0 * s, 0.05),
        conserves=True,
        dissipates=True,
        idle=("lower",),
    ),
    "Tendon": tendon(pl.Tendon, pl.PinInSlot, ("displacement", "angle"), pl.JointSpringDamper),
    "DCMotor": on_joint(
        pl.DCMotor,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.DCMotor(n, c, laws.Sine(array(1.0), array(2.0 * s), array(3.0)), 0.8, 0.3, 0.4, 2.0, 1.5),
        still=True,
    ),
    "LuGreFriction": on_joint(
        pl.LuGreFriction,
        "forces",
        pl.Prismatic,
        "displacement",
        lambda n, c, s: pl.LuGreFriction(n, c, 0.8 * s, 20.0, 0.3, 0.4, 0.5, 0.3, 0.02),
    ),
    "BoucWen": on_joint(
        pl.BoucWen,
        "forces",
        pl.Revolute,
        "angle",
        # where it unloads, since its shape has no effect on loading
        lambda n, c, s: pl.BoucWen(n, c, 3.0 * s, 0.8, 0.3, 1.5, 0.7, 0.1, -0.4),
        still=True,
    ),
    "HydraulicCylinder": force(
        pl.HydraulicCylinder,
        lambda n, a, b, s: pl.HydraulicCylinder(
            n, a, b, laws.servo, 0.9, 0.7 * s, 2.0, 3.0, 1.5, 0.4, 3.0, 0.1, 1.5, 0.7, 0.6, 1.2
        ),
    ),
    "DryFriction": on_joint(
        pl.DryFriction,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.DryFriction(
            n, c, 0.8 * s, laws.Sine(array(3.0), array(2.0), array(3.0)), 0.5, 0.3, 0.4, 1.2, 1.0
        ),
        idle=("peak",),  # it says when the friction breaks loose
    ),
    "Backlash": on_joint(
        pl.Backlash,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.Backlash(
            n,
            c,
            3.0 * s,
            0.4,
            0.1,
            -9.0,
            sides=[1.0, 1.0, 1.0, -1.0, -1.0, 1.0],  # it touches on the upper side
        ),
        idle=("sides",),
    ),
    "OneWayClutch": on_joint(
        pl.OneWayClutch, "forces", pl.Revolute, "angle", lambda n, c, s: pl.OneWayClutch(n, c, 0.8 * s, 1.0)
    ),
    "Ratchet": on_joint(
        pl.Ratchet,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.Ratchet(n, c, 0.3, 0.1, 0.8 * s),
        idle=("pitch", "offset", "direction", "tooth"),  # they say when it catches
    ),
    "GearMesh": mesh(pl.GearMesh, pl.PinInSlot, ("angle", "displacement"), pl.JointSpringDamper),
    "GearMesh, with errors": mesh(
        pl.GearMesh,
        pl.PinInSlot,
        ("angle", "displacement"),
        pl.JointSpringDamper,
        error_amplitudes=(0.05, 0.02),
        error_orders=(2.0, 3.0),
        error_phases=(0.3, 0.1),
    ),
    "CubicSpring": on_joint(
        pl.CubicSpring,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.CubicSpring(n, c, 2.0, 3.0 * s, 0.4, 0.2),
        conserves=True,
        dissipates=True,
    ),
    "GearFriction": losses(pl, pl.PinInSlot, ("angle", "displacement")),
    "LoadFriction": on_joint(
        pl.LoadFriction,
        "forces",
        pl.Revolute,
        "angle",
        lambda n, c, s: pl.LoadFriction(n, c, 0.8 * s, 0.05, 0.2, 0.03, 0.5, 0.3, 0.4, 1.2, 1.0, 1.5),
        # At a load that is known; the load is another test's (`references/test_load_friction.py`).
        idle=("radius", "span", "thrust_radius", "peak"),
    ),
}

SENSORS: Mapping[str, Case] = {
    "Point": sensor(pl.Point, lambda n, a, b, s: pl.Point(n, b)),
    "PointVelocity": sensor(pl.PointVelocity, lambda n, a, b, s: pl.PointVelocity(n, b)),
    "PointAcceleration": sensor(pl.PointAcceleration, lambda n, a, b, s: pl.PointAcceleration(n, b)),
    "AngularVelocity": sensor(pl.AngularVelocity, lambda n, a, b, s: pl.AngularVelocity(n, b)),
    "AngularAcceleration": sensor(pl.AngularAcceleration, lambda n, a, b, s: pl.AngularAcceleration(n, b)),
    "Accelerometer": sensor(pl.Accelerometer, lambda n, a, b, s: pl.Accelerometer(n, b)),
    "Gyroscope": sensor(pl.Gyroscope, lambda n, a, b, s: pl.Gyroscope(n, b)),
    "Distance": sensor(pl.Distance, lambda n, a, b, s: pl.Distance(n, a, b)),
    "Angle": sensor(pl.AngleBetween, lambda n, a, b, s: pl.AngleBetween(n, a, b)),
    "Measure": sensor(pl.Measure, lambda n, a, b, s: pl.Measure(n, laws.momentum, array(1.5 * s), "kg")),
    "Scaled": Case(
        pl.Scaled,
        lambda n, a, b, s: Parts(
            sensors=(pl.Distance(f"{n} helper", a, b), pl.Scaled(n, f"{n} helper", -1.5 * s, array(0.2)))
        ),
    ),
}


def body(name: str, rng: np.random.Generator) -> pl.Body:
    """A body of random inertia at a random place."""
    mass, inertia = rng.uniform(0.5, 2.0, 2)
    return pl.Body(name, mass, inertia, rng.uniform(-1.0, 1.0, 3))


def at(owner: Any, rng: np.random.Generator) -> pl.Marker:
    """A marker at a random place of a body."""
    return owner.at(*rng.uniform(-0.3, 0.3, 3))


GRAVITY = pl.Gravity((0.4, -9.81))
FIELDS = (GRAVITY, pl.GeneralizedForce("stir", laws.stir, array(0.3, 0.1)))
LAWS = Laws(pl, JOINTS, GLOBALS, FORCES, SENSORS, FIELDS, GRAVITY, body, at)
