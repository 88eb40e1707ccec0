"""Applied forces for both spaces: gravity, force and torque, spring-damper-actuators, drag."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Number, Point, Scalar, as_float
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_finite, check_markers, check_name, check_number, check_shape
from jaxmbd.model.force.force import AbstractForce, pair, wrench
from jaxmbd.space.space import AbstractSpace
from jaxmbd.space.vectors import direction, dot, safe_norm
from jaxmbd.user_functions import user_array


class Gravity(eqx.Module):
    """A uniform gravitational field that acts on all bodies.

    **Arguments:** `acceleration` `[m/s²]`, a number g, directed downwards (−y in the plane, −z in space), or a vector.
    """

    name: str = eqx.field(static=True)
    acceleration: Float[Array, "*dim"]

    def __init__(self, acceleration: Number | Sequence[Number] = 9.81, name: str = "gravity") -> None:
        check_name("Gravity", name)
        value = as_float(acceleration)
        shape = value.shape if isinstance(value, Array) and value.ndim < 2 else (3,)
        check_finite(f"Gravity {name!r}", "acceleration", value, shape if isinstance(value, Array) else ())
        self.name = name
        self.acceleration = value

    def vector(self, space: AbstractSpace) -> Point:
        """The field as a vector in `space`."""
        if self.acceleration.ndim == 0:
            return self.acceleration * jnp.asarray(space.down)
        check_shape(f"Gravity {self.name!r}", "acceleration", self.acceleration, (space.dim,))
        return self.acceleration


class Force(AbstractForce):
    """A force and a moment at a marker.

    **Arguments:** `at`, the marker; `force` `[N]` and `torque` `[N m]`: constants, or functions
    `(t, frame, rate)` of the time, the marker's frame and its velocity; `frame`, the axes in which they are expressed:
    `"world"`, or `"body"` for the axes of the marker. A torque is a scalar in the plane, a vector in space.
    """

    name: str = eqx.field(static=True)
    at: AbstractMarker
    force: Function | Float[Array, " dim"]
    torque: Function | Array
    frame: str = eqx.field(static=True)

    def __init__(
        self, name: str, at: AbstractMarker, force: Any = None, torque: Any = None, frame: str = "world"
    ) -> None:
        check_markers("Force", name, at)
        if frame not in ("world", "body"):
            raise MechanismError(f"Force {name!r}: frame must be 'world' or 'body', got {frame!r}.")
        if force is None and torque is None:
            raise MechanismError(f"Force {name!r}: give a force [N], a torque [N m], or both.")
        self.name, self.at, self.frame = name, at, frame
        force = jnp.zeros(at.space.dim) if force is None else force
        torque = jnp.zeros(self._turns) if torque is None else torque
        self.force = force if callable(force) else as_float(force)
        self.torque = torque if callable(torque) else as_float(torque)
        check_finite(f"Force {name!r}", "force", self.force, (at.space.dim,))
        check_finite(f"Force {name!r}", "torque", self.torque, self._turns)

    @property
    def _turns(self) -> tuple[int, ...]:
        """The shape of a torque."""
        return () if self.at.space.dim == 2 else (3,)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.at,)

    def wrenches(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "1 efforts"]:
        (frame,), (rate,) = frames, rates
        force, torque = (
            user_array(f"Force {self.name!r}", field, value, t, frame, rate, takes="t, frame, rate", shape=shape)
            for field, value, shape in (
                ("force", self.force, (self.at.space.dim,)),
                ("torque", self.torque, self._turns),
            )
        )
        if self.frame == "body":
            force = frame.to_world(force)
            torque = frame.to_world(torque) if self._turns else torque
        return wrench(force, torque)[None]

    def potential(self, t: Scalar, frames: Sequence[Any]) -> Scalar:
        return jnp.zeros(())


class SpringDamper(AbstractForce):
    """A translational spring-damper-actuator between two points.

    The tension is `f = k (l − l0) + c l̇ + f_a(t, l, l̇)`; a positive tension pulls the points together.

    **Arguments:** `stiffness` k `[N/m]`; `free_length` l0 `[m]`; `damping` c `[N s/m]`; `actuator` f_a `[N]`, a
    constant or a function `(t, l, l̇)`.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    stiffness: Scalar = eqx.field(converter=as_float)
    free_length: Scalar = eqx.field(converter=as_float, default=0.0)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    actuator: Any = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_markers("SpringDamper", self.name, self.a, self.b)
        for field in ("stiffness", "free_length", "damping", "actuator"):
            check_finite(f"SpringDamper {self.name!r}", field, getattr(self, field))
        check_number(f"SpringDamper {self.name!r}", "free_length", self.free_length, "m", zero=True)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)

    def span(self, frames: Sequence[Any]) -> Scalar:
        """The distance [m] of the points."""
        a, b = frames
        return safe_norm(b.position - a.position)

    def tension(self, t: Scalar, length: Scalar, rate: Scalar) -> Scalar:
        """The tension [N] at a length [m] and its rate [m/s]."""
        part, arguments = f"SpringDamper {self.name!r}", (t, length, rate)
        actuator = user_array(part, "actuator", self.actuator, *arguments, takes="t, length, rate", shape=())
        return self.stiffness * (length - self.free_length) + self.damping * rate + actuator

    def stretch(self, frames: Sequence[Any], rates: Sequence[Any]) -> tuple[Scalar, Scalar]:
        """The length [m] and its rate [m/s]."""
        (a, b), (da, db) = frames, rates
        unit = direction(b.position - a.position)
        return self.span(frames), dot(unit, db.position - da.position)

    def wrenches(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "2 efforts"]:
        a, b = frames
        pull = self.tension(t, *self.stretch(frames, rates))
        return pair(-pull * direction(b.position - a.position))

    def potential(self, t: Scalar, frames: Sequence[Any]) -> Scalar:
        return 0.5 * self.stiffness * (self.span(frames) - self.free_length) ** 2


class PointDrag(AbstractForce):
    """Air drag at a point, quadratic and linear: `f = −(c2 ‖v‖ + c1) v`.

    **Arguments:** `at`, the marker; `quadratic` c2 `[N s²/m²]`, which is `½ ρ c_d A`; `linear` c1 `[N s/m]`.
    """

    name: str = eqx.field(static=True)
    at: AbstractMarker
    quadratic: Scalar = eqx.field(converter=as_float, default=0.0)
    linear: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_markers("PointDrag", self.name, self.at)
        check_finite(f"PointDrag {self.name!r}", "quadratic", self.quadratic)
        check_finite(f"PointDrag {self.name!r}", "linear", self.linear)
        check_number(f"PointDrag {self.name!r}", "quadratic", self.quadratic, "N s²/m²", zero=True)
        check_number(f"PointDrag {self.name!r}", "linear", self.linear, "N s/m", zero=True)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.at,)

    def wrenches(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "1 efforts"]:
        v = rates[0].position
        return wrench(-(self.quadratic * safe_norm(v) + self.linear) * v)[None]

    def potential(self, t: Scalar, frames: Sequence[Any]) -> Scalar:
        return jnp.zeros(())
