"""Readings that assembly can prescribe besides coordinates: quantities that depend on the position alone.

They are orientation angles of bodies (`"frame.roll"`), sensors of position (`Point`, `Distance`, `AngleBetween`,
`EulerAngle`), and `Scaled` readings of these and of coordinates.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.analyses.output_channels import ANGLES, Reader, Snapshot, channel_units
from jaxmbd.equations.equations import Configuration
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism, Sensor
from jaxmbd.model.sensor import AbstractSensor, Point, Scaled
from jaxmbd.space.vectors import nearest_turn


def is_reading(mechanism: Mechanism, name: str) -> bool:
    """Return True if the name is that of a reading that can be prescribed."""
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
    """Return the shape of a prescribed quantity."""
    sensor = _sensor(mechanism, name)
    if isinstance(sensor, Scaled):
        return shape_of(mechanism, sensor.of)
    return (mechanism.space.dim,) if isinstance(sensor, Point) else ()


def rows_of(mechanism: Mechanism, name: str) -> int:
    """Return the number of components of a prescribed quantity."""
    return math.prod(shape_of(mechanism, name))


def unit_of(mechanism: Mechanism, name: str) -> str:
    """Return the unit of a prescribed quantity."""
    return channel_units(mechanism)[name]


def missed_reading(at: Configuration, name: str, value: Array) -> Array:
    """Return a reading minus its prescribed value; for an angle that is not scaled, up to the nearest whole turn."""
    still, nothing = jnp.zeros(at.mechanism.nv, at.q.dtype), jnp.zeros(at.equations.m, at.q.dtype)
    reading = Reader(at.equations, Snapshot(at.t, at.q, still, still, nothing)).read(name)
    is_scaled = isinstance(_sensor(at.mechanism, name), Scaled)
    if not is_scaled and unit_of(at.mechanism, name) == "rad":
        reading = nearest_turn(reading, value)
    return jnp.atleast_1d(reading - value)
