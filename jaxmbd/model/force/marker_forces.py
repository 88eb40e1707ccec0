"""Forces at markers: force, torque, spring-damper-actuators, drag, and laws defined by a user's function."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, Numbers, Scalar, as_float
from jaxmbd.checks import check_callable, check_fields, check_finite, check_law, check_number
from jaxmbd.errors import MechanismError, is_one_of
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_markers
from jaxmbd.model.body.planar import Marker
from jaxmbd.model.body.planar import ground as plane_ground
from jaxmbd.model.body.spatial import ground as space_ground
from jaxmbd.model.force.force import AbstractForce, pair, wrench
from jaxmbd.space.planar import PLANAR, Frame
from jaxmbd.space.space import AbstractFrame, Frames, Rates
from jaxmbd.space.vectors import direction, dot, safe_norm
from jaxmbd.user_functions import user_array


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
        self,
        name: str,
        at: AbstractMarker,
        force: Function | Numbers | None = None,
        torque: Function | Numbers | None = None,
        frame: str = "world",
    ) -> None:
        check_markers("Force", name, at)
        _check_axes("Force", name, frame)
        if force is None and torque is None:
            raise MechanismError(f"Force {name!r}: give a force [N], a torque [N m], or both.")
        self.name, self.at, self.frame = name, at, frame
        force = jnp.zeros(at.space.dim) if force is None else force
        torque = jnp.zeros(_torque_shape(at)) if torque is None else torque
        self.force = force if callable(force) else as_float(force)
        self.torque = torque if callable(torque) else as_float(torque)
        check_law(f"Force {name!r}", "force", self.force, (at.space.dim,))
        check_law(f"Force {name!r}", "torque", self.torque, _torque_shape(at))

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.at,)

    def wrenches(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "1 efforts"]:
        (frame,), (rate,) = frames, rates
        force, torque = (
            user_array(f"Force {self.name!r}", field, value, t, frame, rate, takes="t, frame, rate", shape=shape)
            for field, value, shape in (
                ("force", self.force, (self.at.space.dim,)),
                ("torque", self.torque, _torque_shape(self.at)),
            )
        )
        if self.frame == "body":
            force = frame.to_world(force)
            torque = frame.to_world(torque) if torque.shape else torque
        return wrench(force, torque)[None]

    def potential(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Scalar:
        return jnp.zeros(())


class AbstractLineForce(AbstractForce):
    """A force along the line through two points, by its tension; a positive one pulls the points together."""

    name: eqx.AbstractVar[str]
    a: eqx.AbstractVar[AbstractMarker]
    b: eqx.AbstractVar[AbstractMarker]

    @abc.abstractmethod
    def tension(self, t: Scalar, length: Scalar, rate: Scalar) -> Scalar:
        """The tension [N] at a length [m] and its rate [m/s]."""

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)

    def span(self, frames: Sequence[AbstractFrame]) -> Scalar:
        """The distance [m] of the points."""
        a, b = frames
        return safe_norm(b.position - a.position)

    def stretch(self, frames: Sequence[AbstractFrame], rates: Rates) -> tuple[Scalar, Scalar]:
        """The length [m] and its rate [m/s]."""
        (a, b), (da, db) = frames, rates
        unit = direction(b.position - a.position)
        return self.span(frames), dot(unit, db.position - da.position)

    def wrenches(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "2 efforts"]:
        a, b = frames
        pull = self.tension(t, *self.stretch(frames, rates))
        return pair(-pull * direction(b.position - a.position))


class SpringDamper(AbstractLineForce):
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
        for field in ("stiffness", "free_length", "damping"):
            check_finite(f"SpringDamper {self.name!r}", field, getattr(self, field))
        check_law(f"SpringDamper {self.name!r}", "actuator", self.actuator)
        check_number(f"SpringDamper {self.name!r}", "free_length", self.free_length, "m", zero=True)

    def tension(self, t: Scalar, length: Scalar, rate: Scalar) -> Scalar:
        part, arguments = f"SpringDamper {self.name!r}", (t, length, rate)
        actuator = user_array(part, "actuator", self.actuator, *arguments, takes="t, length, rate", shape=())
        return self.stiffness * (length - self.free_length) + self.damping * rate + actuator

    def potential(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Scalar:
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
        check_fields(f"PointDrag {self.name!r}", self, zero=True, quadratic="N s²/m²", linear="N s/m")

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.at,)

    def wrenches(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "1 efforts"]:
        v = rates[0].position
        return wrench(-(self.quadratic * safe_norm(v) + self.linear) * v)[None]

    def potential(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Scalar:
        return jnp.zeros(())


class Torque(AbstractForce):
    """A torque on the body of marker `on`, with its reaction on the body of marker `from_`.

    **Arguments:** `on`, the marker it acts on; `torque` `[N m]`, a number in the plane, a vector `(3,)` in space, or a
    function `(t, frames, rates)` of the time, the frames of `from_` and `on`, and their velocities, that returns it;
    `from_`, the marker of the reaction (default: the ground); `frame`, the axes in which a vector is expressed:
    `"world"`, or `"body"` for the axes of `on`. A torque about a joint's axis is a `JointForce`.
    """

    name: str = eqx.field(static=True)
    on: AbstractMarker
    torque: Function | Array
    from_: AbstractMarker
    frame: str = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        on: AbstractMarker,
        torque: Function | Numbers,
        from_: AbstractMarker | None = None,
        frame: str = "world",
    ) -> None:
        check_markers("Torque", name, on)
        if from_ is None:
            from_ = plane_ground.at() if on.space.dim == 2 else space_ground.at()
        check_markers("Torque", name, from_, on)
        _check_axes("Torque", name, frame)
        self.name, self.on, self.from_, self.frame = name, on, from_, frame
        self.torque = torque if callable(torque) else as_float(torque)
        check_law(f"Torque {name!r}", "torque", self.torque, _torque_shape(on))

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.from_, self.on)

    def wrenches(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "2 efforts"]:
        part, arguments, shape = f"Torque {self.name!r}", (t, tuple(frames), tuple(rates)), _torque_shape(self.on)
        torque = user_array(part, "torque", self.torque, *arguments, takes="t, frames, rates", shape=shape)
        if self.frame == "body" and shape:
            torque = frames[1].to_world(torque)
        return pair(jnp.zeros_like(frames[0].position), torque)

    def potential(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Scalar:
        return jnp.zeros(())


class TorsionalSpringDamper(AbstractForce):
    """A rotational spring-damper-actuator between two markers.

    Torque on the second body `τ = −k (φ − φ0) − c φ̇ + τ_a(t, φ, φ̇)`, with `φ = θ_B − θ_A` of the markers.

    **Arguments:** `stiffness` k `[N m/rad]`; `free_angle` φ0 `[rad]`; `damping` c `[N m s/rad]`; `actuator` τ_a
    `[N m]`, a constant or a function `(t, φ, φ̇)`.
    """

    name: str = eqx.field(static=True)
    a: Marker
    b: Marker
    stiffness: Scalar = eqx.field(converter=as_float, default=0.0)
    free_angle: Scalar = eqx.field(converter=as_float, default=0.0)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    actuator: Any = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_markers("TorsionalSpringDamper", self.name, self.a, self.b, space=PLANAR)
        for field in ("stiffness", "free_angle", "damping"):
            check_finite(f"TorsionalSpringDamper {self.name!r}", field, getattr(self, field))
        check_law(f"TorsionalSpringDamper {self.name!r}", "actuator", self.actuator)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.a, self.b)

    def wrenches(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[Frame]) -> Float[Array, "2 3"]:
        (a, b), (da, db) = frames, rates
        angle, rate = b.angle - a.angle, db.angle - da.angle
        part, arguments = f"TorsionalSpringDamper {self.name!r}", (t, angle, rate)
        actuator = user_array(part, "actuator", self.actuator, *arguments, takes="t, angle, rate", shape=())
        torque = -self.stiffness * (angle - self.free_angle) - self.damping * rate + actuator
        return pair(jnp.zeros_like(a.position), torque)

    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
        a, b = frames
        return 0.5 * self.stiffness * (b.angle - a.angle - self.free_angle) ** 2


class UserForce(AbstractForce):
    """A user-defined force law between markers.

    **Arguments:** `function(t, frames, rates, parameters)` takes the time [s], the markers' frames, their
    velocities and `parameters`, and returns the wrenches in world axes, one row per marker: `(fx, fy, moment)` in the
    plane, `(fx, fy, fz, mx, my, mz)` in space [N, N m]; `at`, a tuple of markers; `parameters`, any tree of arrays, or
    an equinox module.
    """

    name: str = eqx.field(static=True)
    function: Function
    at: tuple[AbstractMarker, ...]
    parameters: PyTree = None

    def __check_init__(self) -> None:
        if not isinstance(self.at, tuple | list) or not self.at:
            raise MechanismError(
                f"UserForce {self.name!r}: give a tuple of at least one marker, such as (body.at(),), got {self.at!r}; "
                "a force on coordinates is a GeneralizedForce."
            )
        for marker in self.at:
            check_markers("UserForce", self.name, marker)
        check_callable("UserForce", self.name, self.function)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.at

    def wrenches(self, t: Scalar, frames: Frames, rates: Rates) -> Float[Array, "k efforts"]:
        part, arguments = f"UserForce {self.name!r}", (t, frames, rates, self.parameters)
        value = user_array(part, "function", self.function, *arguments, takes="t, frames, rates, parameters")
        efforts = self.at[0].space.efforts
        expected = (len(self.at), len(efforts))
        if value.shape != expected:
            raise MechanismError(
                f"UserForce {self.name!r}: the function must return wrenches of shape {expected} "
                f"(a row ({', '.join(efforts)}) for each marker), got shape {value.shape}."
            )
        return value

    def potential(self, t: Scalar, frames: Frames) -> Scalar:
        return jnp.zeros(())


def _torque_shape(marker: AbstractMarker) -> tuple[int, ...]:
    """A torque is a scalar in the plane, a vector in space."""
    return () if marker.space.dim == 2 else (3,)


def _check_axes(kind: str, name: str, frame: str) -> None:
    if not is_one_of(frame, ("world", "body")):
        raise MechanismError(f"{kind} {name!r}: frame must be 'world' or 'body', got {frame!r}.")
