"""The quantities of a mechanism by name: all that can be read from a motion, and those that follow from positions,
speeds and states of parts alone, which controllers can read."""

from typing import Any

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import AbstractComposite, AbstractCoupling
from jaxmbd.model.sensor import AbstractSensor, Measure, Scaled

TIME = "t"
ENERGIES = ("kinetic_energy", "potential_energy", "energy")

# Vectors of a body, and angles of a body in space, with their units.
VECTORS = {"position": "m", "velocity": "m/s", "acceleration": "m/s²"}
ANGLES = ("yaw", "pitch", "roll")
ROTATIONS = {"omega": "rad/s", "omega_world": "rad/s", "alpha": "rad/s²", "alpha_world": "rad/s²"}
ROTATIONS |= dict.fromkeys(ANGLES, "rad")
OF_ACCELERATION = ("acceleration", "alpha", "alpha_world")


def channel_units(mechanism: Any) -> dict[str, str]:
    """Return the names of all output channels of a mechanism, with their units."""
    units = {name: unit for name, (unit, _) in _channels(mechanism).items()}
    return {name: unit for name, unit in units.items() if name not in ENERGIES} | dict.fromkeys(ENERGIES, "J")


def kinematic_units(mechanism: Any) -> dict[str, str]:
    """The names of the channels that positions, speeds and states of parts determine, with their units."""
    return {name: unit for name, (unit, is_kinematic) in _channels(mechanism).items() if is_kinematic}


def reads_speeds_alone(sensor: object) -> bool:
    """True for a sensor of positions and speeds."""
    return isinstance(sensor, AbstractSensor) and (sensor.of_position or sensor.of_velocity)


def _channels(mechanism: Any) -> dict[str, tuple[str, bool]]:
    """The units of all channels, and whether positions, speeds and states of parts determine them."""
    space = mechanism.space
    found: dict[str, tuple[str, bool]] = {}
    own = [(name, unit, True) for name, unit in zip(space.coordinates, space.units, strict=True)]
    own += [(name, unit + "/s", True) for name, unit in zip(space.speeds, space.twist_units, strict=True)]
    own += [(name, unit + "/s²", False) for name, unit in zip(space.accelerations, space.twist_units, strict=True)]
    vectors = VECTORS | (ROTATIONS if space.dim == 3 else {})
    own += [(name, unit, name not in OF_ACCELERATION) for name, unit in vectors.items()]
    for body in mechanism.bodies:
        found |= {f"{body.name}.{name}": (unit, is_kinematic) for name, unit, is_kinematic in own}
    for joint in mechanism.joints:
        if isinstance(joint, AbstractJoint | AbstractComposite):
            for name, unit in zip(joint.coordinate_names, joint.coordinate_units, strict=True):
                found |= {f"{joint.name}.{name}": (unit, True), f"{joint.name}.{name}_rate": (unit + "/s", True)}
        if isinstance(joint, AbstractJoint):
            for effort, unit in zip(space.efforts, space.effort_units, strict=True):
                found[f"{joint.name}.{effort}"] = unit, False
        if isinstance(joint, AbstractCoupling):
            units = [mechanism.coordinate(name).unit(space) for name in joint.coordinates]
            members = zip(joint.members, units, strict=True)
            found |= {f"{joint.name}.{member}_effort": ("N m" if u == "rad" else "N", False) for member, u in members}
    for part in mechanism.constraints():
        found[f"{part.name}.lambda"] = "", False
    found |= {n: (unit, True) for n, unit in zip(mechanism.layout.names, mechanism.layout.units, strict=True)}
    for part in (*mechanism.drivers, *(force for force in mechanism.forces if isinstance(force, AbstractJointForce))):
        unit = mechanism.coordinate(part.coordinate).unit(space)
        found[f"{part.name}.effort"] = "N m" if unit == "rad" else "N", False
    for force in mechanism.forces:
        if isinstance(force, AbstractLineForce):
            found |= {f"{force.name}.length": ("m", True), f"{force.name}.tension": ("N", False)}
    found |= {f"{controller.name}.output": ("", True) for controller in mechanism.controllers}
    found |= dict.fromkeys(ENERGIES, ("J", False))
    for sensor in mechanism.sensors:
        found[sensor.name] = _scaled(sensor, found) if isinstance(sensor, Scaled) else _of_sensor(sensor)
    return found


def rate_name(mechanism: Any, coordinate: str) -> str:
    """The name of the rate of a coordinate: `"O.angle_rate"`, `"rod.vx"`."""
    owner, _, component = coordinate.partition(".")
    if any(body.name == owner for body in mechanism.bodies):
        return f"{owner}.{mechanism.space.speeds[mechanism.space.coordinates.index(component)]}"
    return f"{coordinate}_rate"


def component_of(name: str) -> tuple[str, int | None]:
    """A name without the index of a component, and that: `"tip[1]"` is `("tip", 1)`."""
    base, bracket, place = name.removesuffix("]").partition("[")
    return (base, int(place)) if bracket and place.isdigit() else (name, None)


def _of_sensor(sensor: AbstractSensor | Measure) -> tuple[str, bool]:
    return sensor.unit, reads_speeds_alone(sensor)


def _scaled(sensor: Scaled, known: dict[str, tuple[str, bool]]) -> tuple[str, bool]:
    """The channel of a `Scaled` sensor; raise unless the quantity that it scales exists."""
    if sensor.of not in known:
        raise MechanismError(f"Scaled {sensor.name!r}: {unknown('quantity', sensor.of, known)}")
    unit, is_kinematic = known[sensor.of]
    return unit if sensor.unit is None else sensor.unit, is_kinematic
