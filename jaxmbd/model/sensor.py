"""Sensors on markers, user-defined functions of the motion, and quantities with a scale and an offset.

Quantities that need no marker are read from a solution by name, without a sensor: `"rod.theta"`, `"rod.omega"`,
`"rod.alpha"`, `"O.angle"`, `"O.angle_rate"`, `"O.fx"`, `"O.moment"`, `"spring.tension"`, `"energy"`.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, Scalar, as_float
from jaxmbd.checks import check_callable, check_finite, check_instance
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND, AbstractMarker
from jaxmbd.model.body.checks import check_markers, check_name
from jaxmbd.model.body.spatial import Marker
from jaxmbd.space.rotation import angles, from_matrix
from jaxmbd.space.space import Frames, Rates
from jaxmbd.space.spatial import SPATIAL
from jaxmbd.space.vectors import safe_norm
from jaxmbd.user_functions import user_array


class Readings(eqx.Module):
    """The input of a sensor: frames, velocities and accelerations of its markers, and gravity `[m/s²]`."""

    frames: Frames
    rates: Rates
    accelerations: Rates
    gravity: Float[Array, " dim"]


class AbstractSensor(eqx.Module):
    """A function of the frames, velocities and accelerations of markers.

    `of_position`: True if the reading depends on the frames only, so that `assemble` can fix its value. `of_velocity`:
    True if it depends on frames and velocities only, so that a controller can read it, too.
    """

    name: eqx.AbstractVar[str]
    unit: ClassVar[str]
    of_position: ClassVar[bool] = False
    of_velocity: ClassVar[bool] = False

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
    of_velocity: ClassVar[bool] = True

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
    of_velocity: ClassVar[bool] = True

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
    of_velocity: ClassVar[bool] = True

    def read(self, of: Readings) -> Float[Array, " turns"]:
        return of.frames[0].spin(of.rates[0])


class AbstractPairSensor(AbstractSensor):
    """A sensor of the frames of two markers."""

    a: eqx.AbstractVar[AbstractMarker]
    b: eqx.AbstractVar[AbstractMarker]
    of_position: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_markers(type(self).__name__, self.name, self.a, self.b)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)


class Distance(AbstractPairSensor):
    """Distance [m] between two markers."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    unit: ClassVar[str] = "m"

    def read(self, of: Readings) -> Scalar:
        a, b = of.frames
        return safe_norm(b.position - a.position)


class AngleBetween(AbstractPairSensor):
    """The unsigned angle [rad], from 0 to π, between the last axes of two markers (y in the plane, z in space)."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    unit: ClassVar[str] = "rad"

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
    parameters: PyTree = None
    unit: str = eqx.field(default="", static=True)

    def __check_init__(self) -> None:
        check_name("Measure", self.name)
        check_callable("Measure", self.name, self.function)
        check_instance(f"Measure {self.name!r}: unit", self.unit, str, "text, such as 'N m'")

    def value(self, t: Scalar, q: Array, v: Array, vdot: Array, lam: Array) -> Array:
        """The reading at one instant."""
        part, arguments = f"Measure {self.name!r}", (t, q, v, vdot, lam, self.parameters)
        return user_array(part, "function", self.function, *arguments, takes="t, q, v, vdot, lam, parameters")


class EulerAngle(AbstractSensor):
    """An Euler or Cardan angle [rad] of a marker's axes: `R = R1(a1) R2(a2) R3(a3)`, rotations about body-fixed axes.

    **Arguments:** `at`, the marker; `sequence`, the axes of the three rotations, such as `"zyx"` (yaw, pitch, roll) or
    `"zxz"`; `which`, the number of the angle, 1, 2 or 3; `from_`, the marker of the reference axes (default: world
    axes).

    `a1` and `a3` are in `[−π, π]`; `jaxmbd.spatial.rotation.angles` describes the range of `a2` and gimbal lock. As a
    fixed value of `assemble`, the angle is understood modulo whole turns.

        >>> frame = sp.Body("frame", sp.box(7800, 0.3, 0.02, 0.02))
        >>> lean = sp.EulerAngle("lean", frame.at(), "zxy", 2)
    """

    name: str = eqx.field(static=True)
    at: Marker
    sequence: str = eqx.field(static=True)
    which: int = eqx.field(static=True)
    from_: Marker
    unit: ClassVar[str] = "rad"
    of_position: ClassVar[bool] = True

    def __init__(self, name: str, at: Marker, sequence: str, which: int, from_: Marker | None = None) -> None:
        from_ = Marker(GROUND, (0.0, 0.0, 0.0)) if from_ is None else from_
        check_markers("EulerAngle", name, from_, at, space=SPATIAL)
        try:
            angles((1.0, 0.0, 0.0, 0.0), sequence)
        except MechanismError as error:
            raise MechanismError(f"EulerAngle {name!r}: {error}") from None
        if which not in (1, 2, 3):
            raise MechanismError(f"EulerAngle {name!r}: which must be 1, 2 or 3, one of the angles, got {which!r}.")
        self.name, self.at, self.from_ = name, at, from_
        self.sequence, self.which = sequence, which

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.from_, self.at)

    def read(self, of: Readings) -> Scalar:
        start, end = of.frames
        return angles(from_matrix(start.rotation.T @ end.rotation), self.sequence)[self.which - 1]


class Scaled(eqx.Module):
    """The reading of an instrument: `scale · quantity + offset`.

    **Arguments:** `of`, the name of a quantity, such as a sensor declared before, `"O.angle"`, `"spring.tension"`,
    `"rod.position"`; `scale`, including the sign (−1 for an encoder mounted in the opposite direction), and `offset`,
    the reading at quantity zero, in the unit of the reading: numbers, or one per component; `unit` of the reading
    (default: that of the quantity).

        >>> encoder = pl.Scaled("encoder", "O.angle", scale=-1.0, offset=0.02)
    """

    name: str = eqx.field(static=True)
    of: str = eqx.field(static=True)
    scale: Float[Array, "*components"] = eqx.field(converter=as_float, default=1.0)
    offset: Float[Array, "*components"] = eqx.field(converter=as_float, default=0.0)
    unit: str | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_name("Scaled", self.name)
        if not isinstance(self.of, str) or not self.of:
            raise MechanismError(
                f"Scaled {self.name!r}: of must be the name of a quantity or sensor, such as 'O.angle', got "
                f"{self.of!r}."
            )
        for field in ("scale", "offset"):
            value = getattr(self, field)
            check_finite(f"Scaled {self.name!r}", field, value, getattr(value, "shape", ())[:1])

    def value(self, quantity: Array) -> Array:
        """The reading of a quantity."""
        for field in ("scale", "offset"):
            shape = getattr(self, field).shape
            if shape not in ((), quantity.shape):
                raise MechanismError(
                    f"Scaled {self.name!r}: {field} must be a number, or have the shape {quantity.shape} of "
                    f"{self.of!r}, got shape {shape}."
                )
        return self.scale * quantity + self.offset
