"""The table of laws in space: one example or more of each class of `jaxmbd.spatial`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd import spatial as sp
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


def cam(t: Array, frames: tuple[sp.Frame, sp.Frame], parameters: Any) -> Array:
    """Two rows at once: the distance follows the angle between two axes, and a point's height an axis."""
    a, b = frames
    d = b.position - a.position
    along, across = (
        jnp.dot(a.x, d) - parameters * (1 + 0.3 * jnp.dot(a.y, b.x)),
        jnp.dot(a.z, d) - 0.1 * jnp.dot(a.x, b.z),
    )
    return jnp.stack([along, across])


def first_bodies(t: Array, q: Array, parameters: Any) -> Array:
    """Binds the coordinates of the bench's first two bodies to each other and to the time."""
    return parameters[0] * q[0] * q[8] + parameters[1] * jnp.sin(q[9] - q[4]) - 0.2 * jnp.cos(t)


def fixed_bodies(t: Array, q: Array, parameters: Any) -> Array:
    """A global constraint of two rows without time."""
    return jnp.stack([q[0] - parameters * q[7], jnp.sin(q[1]) + q[11] / q[10] - parameters])


def thrust(t: Array, frame: sp.Frame, rate: sp.Rate) -> Array:
    """A force that depends on everything it may."""
    return jnp.stack([1.0 + t, jnp.full_like(t, 0.5), jnp.cos(t)]) * frame.z[0] - 0.3 * rate.position


def twist(t: Array, frame: sp.Frame, rate: sp.Rate) -> Array:
    """A moment that depends on everything it may."""
    return 0.2 * jnp.sin(t) * frame.x - 0.1 * rate.angular + 0.05 * frame.position


def bearing(t: Array, frames: Any, rates: Any) -> Array:
    """A torque between two bodies that depends on everything it may, and resists turning."""
    return 0.3 * jnp.cos(t) * frames[0].z - 0.4 * (rates[1].angular - rates[0].angular)


JOINTS: Mapping[str, Case] = {
    "Revolute": joint(sp.Revolute, lambda n, a, b, s: sp.Revolute(n, a, b)),
    "Spherical": joint(sp.Spherical, lambda n, a, b, s: sp.Spherical(n, a, b)),
    "Prismatic": joint(sp.Prismatic, lambda n, a, b, s: sp.Prismatic(n, a, b)),
    "Cylindrical": joint(sp.Cylindrical, lambda n, a, b, s: sp.Cylindrical(n, a, b)),
    "Screw": joint(sp.Screw, lambda n, a, b, s: sp.Screw(n, a, b, -0.9 * s)),
    "Planar": joint(sp.Planar, lambda n, a, b, s: sp.Planar(n, a, b)),
    "Universal": joint(sp.Universal, lambda n, a, b, s: sp.Universal(n, a, b)),
    "ConstantVelocity": joint(sp.ConstantVelocity, lambda n, a, b, s: sp.ConstantVelocity(n, a, b)),
    "RevoluteSpherical": joint(sp.RevoluteSpherical, lambda n, a, b, s: sp.RevoluteSpherical(n, a, b, 0.8 * s)),
    "ParallelAxes": joint(sp.ParallelAxes, lambda n, a, b, s: sp.ParallelAxes(n, a, b)),
    "PerpendicularAxes": joint(sp.PerpendicularAxes, lambda n, a, b, s: sp.PerpendicularAxes(n, a, b)),
    "PointOnLine": joint(sp.PointOnLine, lambda n, a, b, s: sp.PointOnLine(n, a, b)),
    "PointOnPlane": joint(sp.PointOnPlane, lambda n, a, b, s: sp.PointOnPlane(n, a, b)),
    "RollingDisc": joint(sp.RollingDisc, lambda n, a, b, s: sp.RollingDisc(n, a, b, 0.4 * s)),
    "Rod": joint(sp.Rod, lambda n, a, b, s: sp.Rod(n, a, b, 0.8 * s)),
    "Weld": joint(sp.Weld, lambda n, a, b, s: sp.Weld(n, a, b)),
    "PointConstraint": joint(sp.PointConstraint, lambda n, a, b, s: sp.PointConstraint(n, a, b)),
    "PointConstraint, without y": joint(
        sp.PointConstraint, lambda n, a, b, s: sp.PointConstraint(n, a, b, without=("y",))
    ),
    "FixedConstraint": joint(sp.FixedConstraint, lambda n, a, b, s: sp.FixedConstraint(n, a, b)),
    "Gear": coupling(sp.Gear, sp.Universal, ("angle_a", "angle_b"), lambda n, c, d, s: sp.Gear(n, c, d, -1.5 * s, 0.2)),
    "RackAndPinion": coupling(
        sp.RackAndPinion,
        sp.Cylindrical,
        ("angle", "displacement"),
        lambda n, c, d, s: sp.RackAndPinion(n, c, d, 0.6 * s, 0.3),
    ),
    "Constraint, moving": joint(
        sp.Constraint,
        lambda n, a, b, s: sp.Constraint(
            n, laws.breathing_distance, a, b, {"length": array(0.9 * s), "rate": array(2.0)}
        ),
        moves=True,
    ),
    "Constraint, two rows": joint(sp.Constraint, lambda n, a, b, s: sp.Constraint(n, cam, a, b, array(0.7 * s))),
    "NonholonomicConstraint": joint(
        sp.NonholonomicConstraint,
        lambda n, a, b, s: sp.NonholonomicConstraint(
            n, laws.skate, a, b, {"slope": array(0.3 * s), "speed": array(0.5)}
        ),
        moves=True,
    ),
    "Driver of an angle": on_joint(
        sp.Driver, "drivers", sp.Revolute, "angle", lambda n, c, s: sp.Driver(n, c, laws.swing), moves=True
    ),
    "Driver of a displacement": on_joint(
        sp.Driver,
        "drivers",
        sp.Prismatic,
        "displacement",
        lambda n, c, s: sp.Driver(n, c, laws.Sine(array(0.5), array(0.2 * s), array(3.0))),
        moves=True,
    ),
    "Driver, constant": on_joint(sp.Driver, "drivers", sp.PointOnPlane, "y", lambda n, c, s: sp.Driver(n, c, 0.6 * s)),
    "Driver of a speed": on_joint(
        sp.Driver,
        "drivers",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.Driver(n, c, laws.Sine(array(0.5), array(0.2 * s), array(3.0)), prescribes="speed"),
        moves=True,
    ),
    "Driver of a body": Case(
        sp.Driver,
        lambda n, a, b, s: Parts(drivers=(sp.Driver(n, f"{b.body}.x", laws.swing),)),
        pair=False,
        moves=True,
    ),
    "PlanetaryGear": train(
        sp.PlanetaryGear, sp.Cylindrical, lambda n, c, d, e, s: sp.PlanetaryGear(n, c, d, e, 2.5 * s, 0.2)
    ),
    "Differential": train(sp.Differential, sp.Cylindrical, lambda n, c, d, e, s: sp.Differential(n, c, d, e, 0.2 * s)),
}

GLOBALS: Mapping[str, Callable[[str], sp.GlobalConstraint]] = {
    "GlobalConstraint, moving": lambda n: sp.GlobalConstraint(n, first_bodies, array(0.8, 0.5)),
    "GlobalConstraint, two rows": lambda n: sp.GlobalConstraint(n, fixed_bodies, array(0.6)),
}

FORCES: Mapping[str, Case] = {
    "Force": force(
        sp.Force, lambda n, a, b, s: sp.Force(n, b, (1.0 * s, -2.0, 0.5), (0.3, 0.1, -0.2)), pair=False, still=True
    ),
    "Force, body": force(
        sp.Force,
        lambda n, a, b, s: sp.Force(n, b, (1.0, -2.0 * s, 0.7), (0.3, 0.1, -0.2), frame="body"),
        pair=False,
        still=True,
    ),
    "Force, functions": force(sp.Force, lambda n, a, b, s: sp.Force(n, b, thrust, twist), pair=False),
    "Torque": force(sp.Torque, lambda n, a, b, s: sp.Torque(n, b, (0.7 * s, -0.2, 0.4), a), still=True),
    "Torque, body": force(
        sp.Torque, lambda n, a, b, s: sp.Torque(n, b, (0.7 * s, -0.2, 0.4), a, frame="body"), still=True
    ),
    "Torque, function": force(sp.Torque, lambda n, a, b, s: sp.Torque(n, b, bearing, a), dissipates=True),
    "SpringDamper": force(
        sp.SpringDamper,
        lambda n, a, b, s: sp.SpringDamper(n, a, b, 30.0 * s, 0.4, 1.5),
        conserves=True,
        dissipates=True,
    ),
    "SpringDamper, spring": force(
        sp.SpringDamper, lambda n, a, b, s: sp.SpringDamper(n, a, b, 20.0, 0.3 * s), conserves=True, still=True
    ),
    "SpringDamper, actuator": force(
        sp.SpringDamper, lambda n, a, b, s: sp.SpringDamper(n, a, b, 20.0, 0.3 * s, 0.1, laws.servo)
    ),
    "SpringDamper, constant": force(
        sp.SpringDamper, lambda n, a, b, s: sp.SpringDamper(n, a, b, 5.0 * s, 0.1, actuator=1.5), still=True
    ),
    # The same stiffness about all axes: only then the moment has a potential at large angles.
    "Bushing": force(
        sp.Bushing,
        lambda n, a, b, s: sp.Bushing(n, a, b, (20.0, 30.0 * s, 15.0, 4.0, 4.0, 4.0), (0.5, 0.8, 0.6, 0.3, 0.2, 0.4)),
        conserves=True,
        dissipates=True,
    ),
    "PlaneContact": force(
        sp.PlaneContact,
        lambda n, a, b, s: sp.PlaneContact(n, a, b, 5.0 * s, 3.0, 0.1, friction=0.4, width=0.6),
        conserves=True,
        dissipates=True,
    ),
    "PointDrag": force(sp.PointDrag, lambda n, a, b, s: sp.PointDrag(n, b, 0.4 * s, 0.2), pair=False, dissipates=True),
    "UserForce": force(
        sp.UserForce,
        lambda n, a, b, s: sp.UserForce(n, laws.attraction, (a, b), {"k": array(2.0 * s), "c": array(0.3)}),
    ),
    "JointForce": on_joint(
        sp.JointForce,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.JointForce(n, c, laws.hinge, {"k": array(2.0 * s), "c": array(0.2)}),
        dissipates=True,
    ),
    "JointFriction": on_joint(
        sp.JointFriction,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.JointFriction(n, c, 0.1 * s, 0.2, 0.5, 0.05, 0.3, 2.0),
        dissipates=True,
    ),
    "JointFriction, sliding": on_joint(
        sp.JointFriction,
        "forces",
        sp.Prismatic,
        "displacement",
        lambda n, c, s: sp.JointFriction(n, c, 0.1, 0.2, 0.5 * s, 0.07, 0.4, 1.5),
        dissipates=True,
    ),
    "JointSpringDamper": on_joint(
        sp.JointSpringDamper,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.JointSpringDamper(n, c, 3.0 * s, 0.2, 0.4, 0.0),
        conserves=True,
        dissipates=True,
    ),
    "JointSpringDamper, actuator": on_joint(
        sp.JointSpringDamper,
        "forces",
        sp.Prismatic,
        "displacement",
        lambda n, c, s: sp.JointSpringDamper(n, c, 3.0 * s, 0.2, 0.1, laws.servo),
        dissipates=True,
    ),
    "JointStop, lower": on_joint(
        sp.JointStop,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.JointStop(n, c, 9.0, np.inf, 2.0 * s, 0.05, 1.7),
        conserves=True,
        dissipates=True,
        idle=("upper",),
    ),
    "JointStop, upper": on_joint(
        sp.JointStop,
        "forces",
        sp.Prismatic,
        "displacement",
        lambda n, c, s: sp.JointStop(n, c, -9.0, -4.0, 2.0 * s, 0.05),
        conserves=True,
        dissipates=True,
        idle=("lower",),
    ),
    "Tendon": tendon(sp.Tendon, sp.Cylindrical, ("displacement", "angle"), sp.JointSpringDamper),
    "DCMotor": on_joint(
        sp.DCMotor,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.DCMotor(n, c, laws.Sine(array(1.0), array(2.0 * s), array(3.0)), 0.8, 0.3, 0.4, 2.0, 1.5),
        still=True,
    ),
    "LuGreFriction": on_joint(
        sp.LuGreFriction,
        "forces",
        sp.Prismatic,
        "displacement",
        lambda n, c, s: sp.LuGreFriction(n, c, 0.8 * s, 20.0, 0.3, 0.4, 0.5, 3.0, 0.02),
    ),
    "BoucWen": on_joint(
        sp.BoucWen,
        "forces",
        sp.Revolute,
        "angle",
        # where it unloads, since its shape has no effect on loading
        lambda n, c, s: sp.BoucWen(n, c, 3.0 * s, 0.8, 0.3, 1.5, 0.7, 0.1, 0.4 if s == 1.0 else -0.4),
        still=True,
    ),
    "HydraulicCylinder": force(
        sp.HydraulicCylinder,
        lambda n, a, b, s: sp.HydraulicCylinder(
            n, a, b, laws.servo, 0.9, 0.7 * s, 2.0, 3.0, 1.5, 0.4, 3.0, 0.1, 1.5, 0.7, 0.6, 1.2
        ),
    ),
    "DryFriction": on_joint(
        sp.DryFriction,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.DryFriction(
            n, c, 0.8 * s, laws.Sine(array(3.0), array(2.0), array(3.0)), 0.5, 0.3, 0.4, 1.2, 1.0
        ),
        idle=("peak",),  # it says when the friction breaks loose
    ),
    "Backlash": on_joint(
        sp.Backlash,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.Backlash(
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
        sp.OneWayClutch, "forces", sp.Revolute, "angle", lambda n, c, s: sp.OneWayClutch(n, c, 0.8 * s, 1.0)
    ),
    "Ratchet": on_joint(
        sp.Ratchet,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.Ratchet(n, c, 0.3, 0.1, 0.8 * s),
        idle=("pitch", "offset", "direction", "tooth"),  # they say when it catches
    ),
    "GearMesh": mesh(sp.GearMesh, sp.Cylindrical, ("angle", "displacement"), sp.JointSpringDamper),
    "GearMesh, with errors": mesh(
        sp.GearMesh,
        sp.Cylindrical,
        ("angle", "displacement"),
        sp.JointSpringDamper,
        error_amplitudes=(0.05, 0.02),
        error_orders=(2.0, 3.0),
        error_phases=(0.3, 0.1),
    ),
    "CubicSpring": on_joint(
        sp.CubicSpring,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.CubicSpring(n, c, 2.0, 3.0 * s, 0.4, 0.2),
        conserves=True,
        dissipates=True,
    ),
    "GearFriction": losses(sp, sp.Cylindrical, ("angle", "displacement")),
    "LoadFriction": on_joint(
        sp.LoadFriction,
        "forces",
        sp.Revolute,
        "angle",
        lambda n, c, s: sp.LoadFriction(n, c, 0.8 * s, 0.05, 0.2, 0.03, 0.5, 0.3, 0.4, 1.2, 1.0, 1.5),
        # At a load that is known; the load is another test's (`references/test_load_friction.py`).
        idle=("radius", "span", "thrust_radius", "peak"),
    ),
}

SENSORS: Mapping[str, Case] = {
    "Point": sensor(sp.Point, lambda n, a, b, s: sp.Point(n, b)),
    "PointVelocity": sensor(sp.PointVelocity, lambda n, a, b, s: sp.PointVelocity(n, b)),
    "PointAcceleration": sensor(sp.PointAcceleration, lambda n, a, b, s: sp.PointAcceleration(n, b)),
    "AngularVelocity": sensor(sp.AngularVelocity, lambda n, a, b, s: sp.AngularVelocity(n, b)),
    "AngularAcceleration": sensor(sp.AngularAcceleration, lambda n, a, b, s: sp.AngularAcceleration(n, b)),
    "Accelerometer": sensor(sp.Accelerometer, lambda n, a, b, s: sp.Accelerometer(n, b)),
    "Gyroscope": sensor(sp.Gyroscope, lambda n, a, b, s: sp.Gyroscope(n, b)),
    "Distance": sensor(sp.Distance, lambda n, a, b, s: sp.Distance(n, a, b)),
    "Angle": sensor(sp.AngleBetween, lambda n, a, b, s: sp.AngleBetween(n, a, b)),
    "Measure": sensor(sp.Measure, lambda n, a, b, s: sp.Measure(n, laws.momentum, array(1.5 * s), "kg")),
    "Scaled": Case(
        sp.Scaled,
        lambda n, a, b, s: Parts(
            sensors=(sp.Distance(f"{n} helper", a, b), sp.Scaled(n, f"{n} helper", -1.5 * s, array(0.2)))
        ),
    ),
    "EulerAngle": sensor(sp.EulerAngle, lambda n, a, b, s: sp.EulerAngle(n, b, "zyx", 1, a)),
    "EulerAngle, third": sensor(sp.EulerAngle, lambda n, a, b, s: sp.EulerAngle(n, b, "zxz", 3, a)),
}


def turned(rng: np.random.Generator, size: float) -> Array:
    """A random rotation."""
    return sp.rotation.from_vector(rng.uniform(-size, size, 3))


def body(name: str, rng: np.random.Generator) -> sp.Body:
    """A body of random inertia, its principal axes askew, at a random place."""
    mass, moments = rng.uniform(0.5, 2.0), rng.uniform(1.0, 1.6, 3) * rng.uniform(0.5, 1.5)
    R = np.asarray(sp.rotation.matrix(turned(rng, 1.0)))
    return sp.Body(name, mass, (R * moments) @ R.T, jnp.append(rng.uniform(-1.0, 1.0, 3), turned(rng, 0.6)))


def at(owner: Any, rng: np.random.Generator) -> sp.Marker:
    """A marker at a random place of a body."""
    return owner.at(*rng.uniform(-0.3, 0.3, 3), rotation=turned(rng, 0.5))


GRAVITY = sp.Gravity((0.4, 1.3, -9.81))
FIELDS = (GRAVITY, sp.GeneralizedForce("stir", laws.stir, array(0.3, 0.1)))
LAWS = Laws(sp, JOINTS, GLOBALS, FORCES, SENSORS, FIELDS, GRAVITY, body, at)
