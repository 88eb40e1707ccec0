"""Applied forces in the plane: gravity, force and torque, spring-damper-actuators."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._body import GROUND, Marker, check_finite, check_markers, check_name, check_number, check_shape
from jaxmbd._errors import MechanismError
from jaxmbd._force._base import AbstractForce, pair, wrench
from jaxmbd._maths import direction, safe_norm
from jaxmbd._space import Frame
from jaxmbd._types import Function, Number, Scalar, as_float


class Gravity(eqx.Module):
    """A uniform field on every body's mass.

    **Arguments:** `acceleration`, a number g `[m/s²]` for `(0, −g)`, or a vector `(gx, gy)`.
    """

    name: str = eqx.field(static=True)
    acceleration: Float[Array, "2"]

    def __init__(self, acceleration: Number | Sequence[Number] = 9.81, name: str = "gravity") -> None:
        check_name("Gravity", name)
        value = as_float(acceleration)
        if value.ndim == 0:
            value = jnp.stack([jnp.zeros_like(value), -value])
        check_finite(f"Gravity {name!r}", "acceleration", value, (2,))
        self.name = name
        self.acceleration = value


class Force(AbstractForce):
    """A force and a moment at a marker.

    **Arguments:** `at`, the marker; `force` `[N]` and `torque` `[N m]`: constants, or functions
    `(t, frame, rate)` of the time, the marker's `Frame` and its time derivative; `frame`, `"world"` or `"body"`
    (the force turns with the marker).
    """

    name: str = eqx.field(static=True)
    at: Marker
    force: Function | Float[Array, "2"]
    torque: Function | Scalar
    frame: str = eqx.field(static=True)

    def __init__(self, name: str, at: Marker, force: Any = (0.0, 0.0), torque: Any = 0.0, frame: str = "world") -> None:
        check_markers("Force", name, at)
        if frame not in ("world", "body"):
            raise MechanismError(f"Force {name!r}: frame must be 'world' or 'body', got {frame!r}.")
        self.name = name
        self.at = at
        self.force = force if callable(force) else as_float(force)
        self.torque = torque if callable(torque) else as_float(torque)
        self.frame = frame
        check_finite(f"Force {name!r}", "force", self.force, (2,))
        check_finite(f"Force {name!r}", "torque", self.torque)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.at,)

    def wrenches(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[Frame]) -> Float[Array, "1 3"]:
        (frame,), (rate,) = frames, rates
        force = self.force(t, frame, rate) if callable(self.force) else self.force
        torque = self.torque(t, frame, rate) if callable(self.torque) else self.torque
        force, torque = jnp.asarray(force), jnp.asarray(torque)
        check_shape(f"Force {self.name!r}", "what the function force returns", force, (2,))
        check_shape(f"Force {self.name!r}", "what the function torque returns", torque, ())
        if self.frame == "body":
            force = force[0] * frame.axis + force[1] * frame.normal
        return wrench(force, torque)[None]

    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
        return jnp.zeros(())


class Torque(AbstractForce):
    """A torque on the second marker's body, its reaction on the first's (or on the ground).

    **Arguments:** `on`, the marker it acts on; `torque` `[N m]`: a constant or a function
    `(t, angle, rate)` of the time and the relative angle and rate; `from_`, the marker that takes the reaction.
    """

    name: str = eqx.field(static=True)
    on: Marker
    torque: Function | Scalar
    from_: Marker

    def __init__(self, name: str, on: Marker, torque: Any, from_: Marker | None = None) -> None:
        from_ = Marker(GROUND, (0.0, 0.0)) if from_ is None else from_
        check_markers("Torque", name, from_, on)
        self.name = name
        self.on = on
        self.torque = torque if callable(torque) else as_float(torque)
        self.from_ = from_
        check_finite(f"Torque {name!r}", "torque", self.torque)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.from_, self.on)

    def wrenches(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[Frame]) -> Float[Array, "2 3"]:
        (a, b), (da, db) = frames, rates
        angle, rate = b.angle - a.angle, db.angle - da.angle
        torque = jnp.asarray(self.torque(t, angle, rate) if callable(self.torque) else self.torque)
        check_shape(f"Torque {self.name!r}", "what the function torque returns", torque, ())
        return pair(jnp.zeros_like(a.position), torque)

    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
        return jnp.zeros(())


class SpringDamper(AbstractForce):
    """A translational spring-damper-actuator between two points.

    Tension `f = k (l − l0) + c l̇ + f_a(t, l, l̇)` pulls the points together.

    **Arguments:** `stiffness` k `[N/m]`; `length` l0 `[m]`; `damping` c `[N s/m]`; `actuator` f_a `[N]`, a
    constant or a function `(t, l, l̇)`.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    stiffness: Scalar = eqx.field(converter=as_float)
    length: Scalar = eqx.field(converter=as_float, default=0.0)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    actuator: Any = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_markers("SpringDamper", self.name, self.a, self.b)
        for field in ("stiffness", "length", "damping", "actuator"):
            check_finite(f"SpringDamper {self.name!r}", field, getattr(self, field))
        check_number(f"SpringDamper {self.name!r}", "length", self.length, "m", zero=True)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.a, self.b)

    def tension(self, t: Scalar, length: Scalar, rate: Scalar) -> Scalar:
        """The tension [N] at a length [m] and its rate [m/s]."""
        actuator = jnp.asarray(self.actuator(t, length, rate) if callable(self.actuator) else self.actuator)
        check_shape(f"SpringDamper {self.name!r}", "what the function actuator returns", actuator, ())
        return self.stiffness * (length - self.length) + self.damping * rate + actuator

    def wrenches(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[Frame]) -> Float[Array, "2 3"]:
        (a, b), (da, db) = frames, rates
        d = b.position - a.position
        u = direction(d)
        rate = jnp.dot(u, db.position - da.position)
        return pair(-self.tension(t, safe_norm(d), rate) * u)

    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return 0.5 * self.stiffness * (safe_norm(b.position - a.position) - self.length) ** 2


class TorsionalSpringDamper(AbstractForce):
    """A rotational spring-damper-actuator between two markers.

    Torque on the second body `τ = −k (φ − φ0) − c φ̇ + τ_a(t, φ, φ̇)`, with `φ = θ_B − θ_A` of the markers.

    **Arguments:** `stiffness` k `[N m/rad]`; `angle` φ0 `[rad]`; `damping` c `[N m s/rad]`; `actuator` τ_a
    `[N m]`, a constant or a function `(t, φ, φ̇)`.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    stiffness: Scalar = eqx.field(converter=as_float, default=0.0)
    angle: Scalar = eqx.field(converter=as_float, default=0.0)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    actuator: Any = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_markers("TorsionalSpringDamper", self.name, self.a, self.b)
        for field in ("stiffness", "angle", "damping", "actuator"):
            check_finite(f"TorsionalSpringDamper {self.name!r}", field, getattr(self, field))

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.a, self.b)

    def wrenches(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[Frame]) -> Float[Array, "2 3"]:
        (a, b), (da, db) = frames, rates
        angle, rate = b.angle - a.angle, db.angle - da.angle
        actuator = jnp.asarray(self.actuator(t, angle, rate) if callable(self.actuator) else self.actuator)
        check_shape(f"TorsionalSpringDamper {self.name!r}", "what the function actuator returns", actuator, ())
        torque = -self.stiffness * (angle - self.angle) - self.damping * rate + actuator
        return pair(jnp.zeros_like(a.position), torque)

    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return 0.5 * self.stiffness * (b.angle - a.angle - self.angle) ** 2


class PointDrag(AbstractForce):
    """Air drag at a point, quadratic and linear: `f = −(c2 ‖v‖ + c1) v`.

    **Arguments:** `at`, the marker; `quadratic` c2 `[N s²/m²]`; `linear` c1 `[N s/m]`.
    """

    name: str = eqx.field(static=True)
    at: Marker
    quadratic: Scalar = eqx.field(converter=as_float, default=0.0)
    linear: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_markers("PointDrag", self.name, self.at)
        check_finite(f"PointDrag {self.name!r}", "quadratic", self.quadratic)
        check_finite(f"PointDrag {self.name!r}", "linear", self.linear)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.at,)

    def wrenches(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[Frame]) -> Float[Array, "1 3"]:
        v = rates[0].position
        return wrench(-(self.quadratic * safe_norm(v) + self.linear) * v)[None]

    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
        return jnp.zeros(())
