"""Sensors on markers, and user-defined functions of the motion.

Quantities that need no marker are read from a solution by name, without a sensor: `"rod.theta"`, `"rod.omega"`,
`"rod.alpha"`, `"O.angle"`, `"O.angle_rate"`, `"O.fx"`, `"O.moment"`, `"spring.tension"`, `"energy"`.
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Scalar
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_callable, check_instance, check_markers, check_name
from jaxmbd.space.vectors import safe_norm
from jaxmbd.user_functions import user_array


class Readings(eqx.Module):
    """The input of a sensor: frames, velocities and accelerations of its markers, and gravity `[m/s²]`."""

    frames: Sequence[Any]
    rates: Sequence[Any]
    accelerations: Sequence[Any]
    gravity: Float[Array, " dim"]


class AbstractSensor(eqx.Module):
    """A function of the frames, velocities and accelerations of markers.

    `of_position`: True if the reading depends on the frames only, so that `assemble` can fix its value.
    """

    name: eqx.AbstractVar[str]
    unit: ClassVar[str]
    of_position: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers of the sensor."""

    @abc.abstractmethod
    def read(self, of: Readings) -> Array:
        """The reading."""


class AbstractMarkerSensor(AbstractSensor):
    """A sensor on one marker."""

    at: eqx.AbstractVar[AbstractMarker]

    def __check_init__(self) -> None:
        check_markers(type(self).__name__, self.name, self.at)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.at,)


class Point(AbstractMarkerSensor):
    """Position [m] of a marker in the world."""

    name: str = eqx.field(static=True)
    at: AbstractMarker
    unit: ClassVar[str] = "m"
    of_position: ClassVar[bool] = True

    def read(self, of: Readings) -> Float[Array, " dim"]:
        return of.frames[0].position


class PointVelocity(AbstractMarkerSensor):
    """Velocity [m/s] of a marker in the world."""

    name: str = eqx.field(static=True)
    at: AbstractMarker
    unit: ClassVar[str] = "m/s"

    def read(self, of: Readings) -> Float[Array, " dim"]:
        return of.rates[0].position


class PointAcceleration(AbstractMarkerSensor):
    """Acceleration [m/s²] of a marker in the world."""

    name: str = eqx.field(static=True)
    at: AbstractMarker
    unit: ClassVar[str] = "m/s²"

    def read(self, of: Readings) -> Float[Array, " dim"]:
        return of.accelerations[0].position


class AngularVelocity(AbstractMarkerSensor):
    """Angular velocity [rad/s] of a marker's body, world axes (a scalar in the plane)."""

    name: str = eqx.field(static=True)
    at: AbstractMarker
    unit: ClassVar[str] = "rad/s"

    def read(self, of: Readings) -> Array:
        return of.rates[0].angular


class AngularAcceleration(AbstractMarkerSensor):
    """Angular acceleration [rad/s²] of a marker's body, world axes (a scalar in the plane)."""

    name: str = eqx.field(static=True)
    at: AbstractMarker
    unit: ClassVar[str] = "rad/s²"

    def read(self, of: Readings) -> Array:
        return of.accelerations[0].angular


class Accelerometer(AbstractMarkerSensor):
    """The reading of an accelerometer: the specific force `R_Mᵀ (a − g)` [m/s²], in the marker's axes."""

    name: str = eqx.field(static=True)
    at: AbstractMarker
    unit: ClassVar[str] = "m/s²"

    def read(self, of: Readings) -> Float[Array, " dim"]:
        return of.frames[0].to_local(of.accelerations[0].position - of.gravity)


class Gyroscope(AbstractMarkerSensor):
    """The reading of a gyroscope: the angular velocity [rad/s] in the marker's axes (a scalar in the plane)."""

    name: str = eqx.field(static=True)
    at: AbstractMarker
    unit: ClassVar[str] = "rad/s"

    def read(self, of: Readings) -> Float[Array, " turns"]:
        return of.frames[0].spin(of.rates[0])


class Distance(AbstractSensor):
    """Distance [m] between two markers."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    unit: ClassVar[str] = "m"
    of_position: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_markers("Distance", self.name, self.a, self.b)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)

    def read(self, of: Readings) -> Scalar:
        a, b = of.frames
        return safe_norm(b.position - a.position)


class AngleBetween(AbstractSensor):
    """The unsigned angle [rad], from 0 to π, between the last axes of two markers (y in the plane, z in space)."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    unit: ClassVar[str] = "rad"
    of_position: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_markers("AngleBetween", self.name, self.a, self.b)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)

    def read(self, of: Readings) -> Scalar:
        a, b = of.frames
        difference, total = safe_norm(a.normal - b.normal), safe_norm(a.normal + b.normal)
        return 2 * jnp.arctan2(difference, total)


class Measure(eqx.Module):
    """A user-defined reading: `function(t, q, v, v̇, λ, parameters)`, a scalar or a vector.

    **Arguments:** `function` takes the time [s], coordinates `(nq,)`, speeds `(nv,)`, accelerations `(nv,)` and
    multipliers `(m,)` in the mechanism's order.
    """

    name: str = eqx.field(static=True)
    function: Function
    parameters: Any = None
    unit: str = eqx.field(default="", static=True)

    def __check_init__(self) -> None:
        check_name("Measure", self.name)
        check_callable("Measure", self.name, self.function)
        check_instance(f"Measure {self.name!r}: unit", self.unit, str, "text, such as 'N m'")

    def value(self, t: Scalar, q: Array, v: Array, vdot: Array, lam: Array) -> Array:
        """The reading at one instant."""
        part, arguments = f"Measure {self.name!r}", (t, q, v, vdot, lam, self.parameters)
        return user_array(part, "function", self.function, *arguments, takes="t, q, v, vdot, lam, parameters")
