"""Quantities besides coordinates that assembly can be given values of: those that depend on the position alone.

They are orientation angles of bodies (`"frame.roll"`), sensors of position (`Point`, `Distance`, `Angle`,
`EulerAngle`), and `Scaled` readings of these and of coordinates.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.analyses.output_channels import ANGLES, Reader, Snapshot, channel_units
from jaxmbd.equations.equations import Configuration
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism, Sensor
from jaxmbd.model.sensor.scaled import Scaled
from jaxmbd.model.sensor.sensor import AbstractSensor, Point
from jaxmbd.space.vectors import nearest_turn


def is_reading(mechanism: Mechanism, name: str) -> bool:
    """Whether a name is that of such a quantity."""
    sensor = _sensor(mechanism, name)
    if isinstance(sensor, Scaled):
        return is_reading(mechanism, sensor.of) or _is_coordinate(mechanism, sensor.of)
    if sensor is None:
        return _is_angle(mechanism, name)
    return isinstance(sensor, AbstractSensor) and sensor.of_position


def _sensor(mechanism: Mechanism, name: str) -> Sensor | None:
    return next((sensor for sensor in mechanism.sensors if sensor.name == name), None)


def _is_angle(mechanism: Mechanism, name: str) -> bool:
    owner, _, component = name.partition(".")
    return mechanism.space.dim == 3 and component in ANGLES and owner in [body.name for body in mechanism.bodies]


def _is_coordinate(mechanism: Mechanism, name: str) -> bool:
    try:
        mechanism.coordinate(name)
    except MechanismError:
        return False
    return True


def shape_of(mechanism: Mechanism, name: str) -> tuple[int, ...]:
    """The shape of a prescribed quantity."""
    sensor = _sensor(mechanism, name)
    if isinstance(sensor, Scaled):
        return shape_of(mechanism, sensor.of)
    return (mechanism.space.dim,) if isinstance(sensor, Point) else ()


def rows_of(mechanism: Mechanism, name: str) -> int:
    """How many numbers a prescribed quantity has."""
    return math.prod(shape_of(mechanism, name))


def unit_of(mechanism: Mechanism, name: str) -> str:
    """The unit of a prescribed quantity."""
    return channel_units(mechanism)[name]


def missed_reading(at: Configuration, name: str, value: Array) -> Array:
    """How far a reading is from a value; an angle that is not scaled, from the nearest of its whole turns."""
    still, nothing = jnp.zeros(at.mechanism.nv, at.q.dtype), jnp.zeros(at.equations.m, at.q.dtype)
    reading = Reader(at.equations, Snapshot(at.t, at.q, still, still, nothing)).read(name)
    is_scaled = isinstance(_sensor(at.mechanism, name), Scaled)
    if not is_scaled and unit_of(at.mechanism, name) == "rad":
        reading = nearest_turn(reading, value)
    return jnp.atleast_1d(reading - value)
