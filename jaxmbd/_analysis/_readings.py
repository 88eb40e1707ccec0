"""Reading quantities off a motion by name, for one instant; everything else maps this over time.

`"rod.theta"`, `"rod.omega"`, `"rod.alpha"`: a body's coordinate, speed, acceleration. `"O.angle"`,
`"O.angle_rate"`: a joint's coordinate and its rate. `"O.fx"`, `"O.fy"`, `"O.moment"`: the reaction on the joint's
second body, world axes, moment about the joint's marker (`"O.mx"`, … in space). `"motor.effort"`: the force or torque
of a driver, or of a force along a coordinate. `"spring.length"`, `"spring.tension"`. `"O.lambda"`: multipliers.
A sensor's name: its reading. `"kinetic_energy"`, `"potential_energy"`, `"energy"`.
"""

from collections.abc import Iterable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._equations import Equations
from jaxmbd._errors import unknown
from jaxmbd._force import AbstractAlong, SpringDamper
from jaxmbd._joint import AbstractJoint, GlobalConstraint
from jaxmbd._mechanism import Mechanism, Sensor
from jaxmbd._sensor import Measure, Readings
from jaxmbd._types import Scalar

ENERGIES = ("kinetic_energy", "potential_energy", "energy")


class Snapshot(eqx.Module):
    """One instant of a motion: `t`, `q (nq,)`, `v (nv,)`, `v̇ (nv,)`, `λ (m,)`."""

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    vdot: Float[Array, " nv"]
    lam: Float[Array, " m"]


def channel_units(mechanism: Mechanism) -> dict[str, str]:
    """All names that can be read from a mechanism's motion, with their units."""
    space = mechanism.space
    found: dict[str, str] = {}
    components = [(name, unit) for name, unit in zip(space.coordinates, space.units, strict=True)]
    components += [(name, unit + "/s") for name, unit in zip(space.speeds, space.twist_units, strict=True)]
    components += [(name, unit + "/s²") for name, unit in zip(space.accelerations, space.twist_units, strict=True)]
    for body in mechanism.bodies:
        found |= {f"{body.name}.{name}": unit for name, unit in components}
    for joint in mechanism.joints:
        if isinstance(joint, AbstractJoint):
            for name, unit in zip(joint.motions, joint.motion_units, strict=True):
                found |= {f"{joint.name}.{name}": unit, f"{joint.name}.{name}_rate": unit + "/s"}
            for effort, unit in zip(space.efforts, space.effort_units, strict=True):
                found[f"{joint.name}.{effort}"] = unit
    for part in mechanism.constraints():
        found[f"{part.name}.lambda"] = ""
    for part in (*mechanism.drivers, *(force for force in mechanism.forces if isinstance(force, AbstractAlong))):
        unit = mechanism.coordinate(part.coordinate).unit(space)
        found[f"{part.name}.effort"] = "N m" if unit == "rad" else "N"
    for force in mechanism.forces:
        if isinstance(force, SpringDamper):
            found |= {f"{force.name}.length": "m", f"{force.name}.tension": "N"}
    for sensor in mechanism.sensors:
        found[sensor.name] = sensor.unit
    return {**found, **dict.fromkeys(ENERGIES, "J")}


def read(equations: Equations, names: Iterable[str], at: Snapshot) -> dict[str, Array]:
    """The named quantities at one instant."""
    return {name: _read(equations, name, at) for name in names}


def _read(equations: Equations, name: str, at: Snapshot) -> Array:
    mechanism = equations.mechanism
    if name in ENERGIES:
        return _energy(equations, name, at)
    owner, _, component = name.partition(".")
    for sensor in mechanism.sensors:
        if sensor.name == name:
            return _sense(equations, sensor, at)
    found = _read_body(mechanism, owner, component, at)
    found = _read_joint(equations, owner, component, at) if found is None else found
    found = _read_force(equations, owner, component, at) if found is None else found
    if found is None:
        raise unknown("quantity", name, channel_units(mechanism))
    return found


def _read_body(mechanism: Mechanism, owner: str, component: str, at: Snapshot) -> Array | None:
    names = [body.name for body in mechanism.bodies]
    if owner not in names:
        return None
    poses, _ = mechanism.split(at.q)
    sources = ((poses, "coordinates"), (at.v, "speeds"), (at.vdot, "accelerations"))
    for values, kind in sources:
        components = getattr(mechanism.space, kind)
        if component in components:
            return values.reshape(len(names), -1)[names.index(owner), components.index(component)]
    return None


def _read_joint(equations: Equations, owner: str, component: str, at: Snapshot) -> Array | None:
    mechanism = equations.mechanism
    if component == "lambda" and any(part.name == owner for part in mechanism.constraints()):
        return at.lam[equations.rows_of(owner)]
    if component == "effort" and any(driver.name == owner for driver in mechanism.drivers):
        return -at.lam[equations.rows_of(owner)][0]
    for joint in mechanism.joints:
        if joint.name != owner or not isinstance(joint, AbstractJoint):
            continue
        if component in mechanism.space.efforts:
            return reaction(equations, owner, at)[1][mechanism.space.efforts.index(component)]
        base = component.removesuffix("_rate")
        if base in joint.motions:
            value, rate = equations.coordinate(f"{owner}.{base}", at.q, at.v)
            return value if base == component else rate
    return None


def _read_force(equations: Equations, owner: str, component: str, at: Snapshot) -> Array | None:
    mechanism = equations.mechanism
    for force in mechanism.forces:
        if force.name == owner and component == "effort" and isinstance(force, AbstractAlong):
            return force.effort(at.t, *equations.coordinate(force.coordinate, at.q, at.v))
        if force.name == owner and component in ("length", "tension") and isinstance(force, SpringDamper):
            frames, rates = equations.at_markers(force.markers, at.q, at.v)
            length, rate = force.stretch(frames, [equations.mechanism.space.as_rate(r) for r in rates])
            return length if component == "length" else force.tension(at.t, length, rate)
    return None


def reaction(equations: Equations, name: str, at: Snapshot) -> Float[Array, "markers efforts"]:
    """The wrench of a joint or driver on the body at each of its markers: world axes, moment about the marker."""
    mechanism = equations.mechanism
    constraints = [part for part in mechanism.constraints() if not isinstance(part, GlobalConstraint)]
    place = next(i for i, part in enumerate(constraints) if part.name == name)
    pairs = zip(equations.joints, equations.reactions(at.t, at.q, at.lam), strict=True)
    return next(w[group.members.index(place)] for group, w in pairs if place in group.members)


def _energy(equations: Equations, name: str, at: Snapshot) -> Scalar:
    kinetic, potential = equations.kinetic_energy(at.v), equations.potential_energy(at.t, at.q)
    return {"kinetic_energy": kinetic, "potential_energy": potential, "energy": kinetic + potential}[name]


def _sense(equations: Equations, sensor: Sensor, at: Snapshot) -> Array:
    if isinstance(sensor, Measure):
        return jnp.asarray(sensor.value(at.t, at.q, at.v, at.vdot, at.lam))
    near, space = equations.near(sensor.markers, at.q), equations.mechanism.space
    twists, vdot = equations.on_markers(sensor.markers, at.v), equations.on_markers(sensor.markers, at.vdot)
    rates, accelerations = near.rates(twists), near.accelerations(twists, vdot)
    velocities, changes = (tuple(space.as_rate(x) for x in values) for values in (rates, accelerations))
    return sensor.read(Readings(near.frames, velocities, changes, equations.gravity()))
