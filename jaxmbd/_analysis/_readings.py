"""Reading quantities off a motion by name, for one instant; everything else maps this over time.

`"rod.theta"`, `"rod.omega"`, `"rod.alpha"`: a body's coordinate, speed, acceleration. `"O.angle"`,
`"O.angle_rate"`: a joint's coordinate and its rate. `"O.fx"`, `"O.fy"`, `"O.moment"`: the reaction on the joint's
second body, world axes, moment about the joint's marker. `"motor.effort"`: the force or torque of a driver.
`"O.lambda"`: multipliers. A sensor's name: its reading. `"kinetic_energy"`, `"potential_energy"`, `"energy"`.
"""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._equations import Equations
from jaxmbd._errors import unknown
from jaxmbd._joint import AbstractJoint, GlobalConstraint
from jaxmbd._mechanism import Coordinate, Mechanism, Sensor
from jaxmbd._sensor import Measure
from jaxmbd._space import Frame
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
    for body in mechanism.bodies:
        for names, suffix in ((space.coordinates, ""), (space.speeds, "/s"), (space.accelerations, "/s²")):
            for name, unit in zip(names, space.units, strict=True):
                found[f"{body.name}.{name}"] = unit + suffix
    for joint in mechanism.joints:
        if isinstance(joint, AbstractJoint):
            for name, unit in zip(joint.motions, joint.motion_units, strict=True):
                found |= {f"{joint.name}.{name}": unit, f"{joint.name}.{name}_rate": unit + "/s"}
            for effort, unit in zip(space.efforts, ("N", "N", "N m"), strict=True):
                found[f"{joint.name}.{effort}"] = unit
    for part in mechanism.constraints():
        found[f"{part.name}.lambda"] = ""
    for driver in mechanism.drivers:
        unit = mechanism.coordinate(driver.coordinate).unit(space)
        found[f"{driver.name}.effort"] = "N m" if unit == "rad" else "N"
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
            return _sense(mechanism, sensor, at)
    for values, names in ((at.q, "coordinates"), (at.v, "speeds"), (at.vdot, "accelerations")):
        components = getattr(mechanism.space, names)
        for k, body in enumerate(mechanism.bodies):
            if body.name == owner and component in components:
                return values[k * len(components) + components.index(component)]
    found = _read_joint(equations, owner, component, at)
    if found is None:
        raise unknown("quantity", name, channel_units(mechanism))
    return found


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
            value, rate = _coordinate(mechanism, mechanism.coordinate(f"{owner}.{base}"), at)
            return value if base == component else rate
    return None


def reaction(equations: Equations, name: str, at: Snapshot) -> Float[Array, "markers 3"]:
    """The wrench of a joint or driver on the body at each of its markers: world axes, moment about the marker."""
    mechanism = equations.mechanism
    constraints = [part for part in mechanism.constraints() if not isinstance(part, GlobalConstraint)]
    place = next(i for i, part in enumerate(constraints) if part.name == name)
    wrenches = equations.reactions(at.t, at.q, at.lam)
    pairs = zip(equations.joints, wrenches, strict=True)
    about_centre = next(w[group.members.index(place)] for group, w in pairs if place in group.members)
    part = constraints[place]
    frames, poses = mechanism.frames(part.markers, at.q), mechanism.poses(part.markers, at.q)
    moved = [_about(pose, frame, w) for pose, frame, w in zip(poses, frames, about_centre, strict=True)]
    return jnp.stack(moved)


def _about(pose: Array, frame: Frame, wrench: Array) -> Array:
    arm = frame.position - pose[:2]
    moment = wrench[2] - (arm[0] * wrench[1] - arm[1] * wrench[0])
    return jnp.stack([wrench[0], wrench[1], moment])


def _energy(equations: Equations, name: str, at: Snapshot) -> Scalar:
    kinetic, potential = equations.kinetic_energy(at.v), equations.potential_energy(at.t, at.q)
    return {"kinetic_energy": kinetic, "potential_energy": potential, "energy": kinetic + potential}[name]


def _sense(mechanism: Mechanism, sensor: Sensor, at: Snapshot) -> Array:
    if isinstance(sensor, Measure):
        return jnp.asarray(sensor.value(at.t, at.q, at.v, at.vdot, at.lam))
    markers = (sensor.at,)

    def moved(s: Array) -> Frame:
        return mechanism.frames(markers, at.q + s * at.v + 0.5 * s * s * at.vdot)[0]

    def rate(s: Array) -> Frame:
        return jax.jvp(moved, (s,), (jnp.ones_like(s),))[1]

    zero = jnp.zeros_like(at.t)
    second = jax.jvp(rate, (zero,), (jnp.ones_like(zero),))[1]
    return sensor.read((moved(zero), rate(zero), second))


def _coordinate(mechanism: Mechanism, coordinate: Coordinate, at: Snapshot) -> tuple[Array, Array]:
    return jax.jvp(lambda q: coordinate.value(mechanism.frames(coordinate.markers, q)), (at.q,), (at.v,))
