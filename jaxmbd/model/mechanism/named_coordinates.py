"""Coordinates by name, with the drivers, couplings and forces bound to them; generalized speeds of a user's choice."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, Scalar
from jaxmbd.checks import check_line, checked_names
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.names import Name
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.joint.joint import (
    AbstractJoint,
    AbstractJointWithCoordinates,
    AbstractNonholonomic,
    has_armature,
    no_rows,
)
from jaxmbd.model.joint.shared import AbstractComposite, AbstractCoupling
from jaxmbd.space.space import AbstractSpace, Frames, Rates
from jaxmbd.space.vectors import nearest_turn
from jaxmbd.user_functions import check_affine, user_array


class Coordinate(eqx.Module):
    """One coordinate of a joint or body as a function of the frames of its markers.

    `near`: for an angle that follows from the frames modulo whole turns, a value within half a turn of it. If the
    coordinate is itself an entry of `q` in joint coordinates (`is_integrated`), its value is `near`, and only its
    derivatives are computed from the frames.
    """

    name: Name = eqx.field(static=True)
    joint: AbstractJointWithCoordinates | None
    markers: tuple[AbstractMarker, ...]
    index: int = eqx.field(static=True)
    is_integrated: bool = eqx.field(static=True, default=False)
    near: Scalar | None = None

    @property
    def unwrapped(self) -> bool:
        """True if the coordinate is an angle that follows from the frames only modulo whole turns."""
        return self.joint is not None and self.joint.coordinate_names[self.index] in self.joint.unwrapped

    def value(self, frames: Frames) -> Scalar:
        """The coordinate's value [m or rad]."""
        if self.joint is not None:
            value = self.joint.motion(frames)[self.index]
            if self.is_integrated and self.near is not None:
                return jax.lax.stop_gradient(self.near) + (value - jax.lax.stop_gradient(value))
            return nearest_turn(value, self.near) if self.unwrapped and self.near is not None else value
        (frame,) = frames
        return frame.position[self.index] if self.index < frame.position.shape[0] else frame.angle

    def by(self, near: Scalar) -> "Coordinate":
        """The same coordinate with whole turns such that it is nearest to `near`; equal to it if `is_integrated`."""
        if not self.unwrapped and not self.is_integrated:
            return self
        return Coordinate(self.name, self.joint, self.markers, self.index, self.is_integrated, near)

    def unit(self, space: AbstractSpace) -> str:
        """The coordinate's unit, m or rad."""
        return (space.units if self.joint is None else self.joint.coordinate_units)[self.index]

    @property
    def in_q(self) -> tuple["Coordinate", ...]:
        """The coordinate itself if its whole turns or its value must be taken from `q`."""
        return (self,) if self.unwrapped or self.is_integrated else ()

    def bound(self, near: Iterator[Scalar]) -> "Coordinate":
        """The same coordinate by the next of the values for `in_q`."""
        return self.by(next(near)) if self.in_q else self


class CompositeCoordinate(eqx.Module):
    """A coordinate that is made of others, such as a tendon's length, with the interface of `Coordinate`."""

    name: Name = eqx.field(static=True)
    parts: tuple[Coordinate, ...]
    law: AbstractComposite
    joint: ClassVar[None] = None
    is_integrated: ClassVar[bool] = True  # whole turns of its parts are always those of `q`

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers of all parts, one after the other."""
        return tuple(marker for part in self.parts for marker in part.markers)

    def value(self, frames: Frames) -> Scalar:
        """The coordinate's value [m or rad]."""
        return self.law.value(*values_of(self.parts, frames))

    def by(self, near: Scalar) -> "CompositeCoordinate":
        """The coordinate itself: its value does not tell the whole turns of its parts."""
        return self

    def unit(self, space: AbstractSpace) -> str:
        """The coordinate's unit, m or rad."""
        return self.law.coordinate_units[0]

    @property
    def in_q(self) -> tuple[Coordinate, ...]:
        """The parts whose whole turns or value must be taken from `q`."""
        return tuple(own for part in self.parts for own in part.in_q)

    def bound(self, near: Iterator[Scalar]) -> "CompositeCoordinate":
        """The same coordinate, with each part by its value among those for `in_q`."""
        return CompositeCoordinate(self.name, tuple(part.bound(near) for part in self.parts), self.law)


class OwnCoordinate(eqx.Module):
    """A flexible body's own coordinate: an entry of `q`, which no frames of markers tell."""

    name: Name = eqx.field(static=True)
    own_unit: str = eqx.field(static=True)
    joint: ClassVar[None] = None
    is_integrated: ClassVar[bool] = True
    markers: ClassVar[tuple[AbstractMarker, ...]] = ()
    in_q: ClassVar[tuple[Coordinate, ...]] = ()

    def value(self, frames: Frames) -> Scalar:
        """There is none: it is read from `q`."""
        raise MechanismError(f"{self.name!r} is an own coordinate of a flexible body, and no function of markers.")

    def by(self, near: Scalar) -> "OwnCoordinate":
        """The coordinate itself."""
        return self

    def unit(self, space: AbstractSpace) -> str:
        """The coordinate's unit."""
        return self.own_unit

    def bound(self, near: Iterator[Scalar]) -> "OwnCoordinate":
        """The coordinate itself."""
        return self


AnyCoordinate: TypeAlias = Coordinate | CompositeCoordinate | OwnCoordinate


def values_of(coordinates: Sequence[AnyCoordinate], frames: Frames) -> list[Scalar]:
    """The values of coordinates, from the frames of all their markers, one after the other."""
    values, rest = [], list(frames)
    for coordinate in coordinates:
        own, rest = rest[: len(coordinate.markers)], rest[len(coordinate.markers) :]
        values.append(coordinate.value(own))
    return values


class PositionDriverConstraint(AbstractJoint):
    """The constraint `c(q) − f(t) = 0` of a driver on the coordinate that it prescribes."""

    name: str = eqx.field(static=True)
    coordinate: AnyCoordinate
    driver: Driver

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.coordinate.markers

    def residual(self, t: Scalar, frames: Frames) -> Float[Array, "1"]:
        value = self.driver.value(t)
        coordinate = self.coordinate if self.coordinate.is_integrated else self.coordinate.by(value)
        return (coordinate.value(frames) - value)[None]


class SpeedDriverConstraint(AbstractNonholonomic):
    """The constraint `ċ − f(t) = 0` of a driver on the coordinate whose rate it prescribes."""

    name: str = eqx.field(static=True)
    coordinate: AnyCoordinate
    driver: Driver

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.coordinate.markers

    def residual(self, t: Scalar, frames: Frames) -> Float[Array, "0"]:
        return no_rows()

    def slip(self, t: Scalar, frames: Frames, rates: Rates) -> Float[Array, "1"]:
        steps = [jnp.append(rate.position, rate.angular) for rate in rates]

        def value(s: Scalar) -> Scalar:
            return self.coordinate.value([frame.perturbed(s * step) for frame, step in zip(frames, steps, strict=True)])

        zero = jnp.zeros_like(t)
        rate = jax.jvp(value, (zero,), (jnp.ones_like(zero),))[1]
        return (rate - self.driver.value(t))[None]


class CouplingConstraint(AbstractJoint):
    """The constraint of a coupling on the coordinates that it names."""

    name: str = eqx.field(static=True)
    coordinates: tuple[AnyCoordinate, ...]
    law: AbstractCoupling

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return tuple(marker for coordinate in self.coordinates for marker in coordinate.markers)

    def residual(self, t: Scalar, frames: Frames) -> Float[Array, "1"]:
        return self.law.couple(*values_of(self.coordinates, frames))[None]


class Load(eqx.Module):
    """A force that presses another one, bound to its coordinate: that of the other is the part at `place` of it."""

    name: Name = eqx.field(static=True)
    coordinate: CompositeCoordinate
    law: AbstractJointForce
    place: int = eqx.field(static=True)

    def effort(self, t: Scalar, values: Sequence[Scalar], rates: Sequence[Scalar]) -> Scalar:
        """The effort along that part, from the values and rates of all of them."""
        made_of = self.coordinate.law.value
        at = jax.jvp(made_of, tuple(values), tuple(rates))
        return self.law.effort(t, *at) * jax.grad(made_of, self.place)(*values)


class CoordinateForce(eqx.Module):
    """A force law bound to the joint coordinate that it acts along, and to the force that presses it, if one does."""

    name: Name = eqx.field(static=True)
    coordinate: AnyCoordinate
    law: AbstractJointForce
    load: Load | None = None

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers of the coordinate, then those of the load's."""
        return self.coordinate.markers + (() if self.load is None else self.load.coordinate.markers)

    @property
    def in_q(self) -> tuple[Coordinate, ...]:
        """The coordinates whose whole turns or value must be taken from `q`."""
        return self.coordinate.in_q + (() if self.load is None else self.load.coordinate.in_q)

    def bound(self, near: Iterator[Scalar]) -> "CoordinateForce":
        """The same force with its coordinates by the values for `in_q`."""
        own, load = self.coordinate.bound(near), self.load
        if load is not None:
            load = Load(load.name, load.coordinate.bound(near), load.law, load.place)
        return CoordinateForce(self.name, own, self.law, load)

    def value(self, frames: Frames) -> Scalar:
        """The value of the coordinate."""
        return self.coordinate.value(frames[: len(self.coordinate.markers)])

    def load_values(self, frames: Frames) -> tuple[Scalar, ...]:
        """The values of the parts of the load's coordinate."""
        parts = () if self.load is None else self.load.coordinate.parts
        return tuple(values_of(parts, frames[len(self.coordinate.markers) :]))


class Armature(AbstractJoint):
    """The armature of a joint bound to its coordinate `c`, which is its only row."""

    name: str = eqx.field(static=True)
    coordinate: AnyCoordinate
    inertia: Scalar | None

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.coordinate.markers

    def residual(self, t: Scalar, frames: Frames) -> Float[Array, "1"]:
        return self.coordinate.value(frames)[None]


def armatures_of(mechanism: Any) -> list[Armature]:
    """The armatures of a mechanism's joints."""
    return [
        Armature(joint.name, mechanism.coordinate(f"{joint.name}.{joint.coordinate_names[0]}"), joint.armature)
        for joint in mechanism.joints
        if has_armature(joint)
    ]


def turn_coordinates(part: Any) -> tuple[Coordinate, ...]:
    """The coordinates of a part whose whole turns or value must be taken from `q`."""
    if isinstance(part, CouplingConstraint):
        return tuple(own for coordinate in part.coordinates for own in coordinate.in_q)
    if isinstance(part, CoordinateForce):
        return part.in_q
    is_driven = isinstance(part, PositionDriverConstraint) and part.coordinate.is_integrated
    return part.coordinate.in_q if is_driven else ()


def bind_turn_counts(part: Any, near: Float[Array, " k"]) -> Any:
    """The part with its `turn_coordinates` bound to the values `near`."""
    if near.shape[0] == 0:
        return part
    values = iter(near)
    if isinstance(part, CoordinateForce):
        return part.bound(values)
    if isinstance(part, PositionDriverConstraint):
        return PositionDriverConstraint(part.name, part.coordinate.bound(values), part.driver)
    return CouplingConstraint(part.name, tuple(coordinate.bound(values) for coordinate in part.coordinates), part.law)


class GeneralizedSpeeds(eqx.Module):
    """Generalized speeds `p` defined by the user: `v = function(t, q, p, parameters)`, affine in `p`.

    **Arguments:** `names` of the speeds, as many as `v` has entries; `function` returns `v` in the order of the
    `speed_names` of the mechanism without `GeneralizedSpeeds` (rates of joint coordinates, twists of floating bodies);
    `parameters`, any tree of arrays. The map from `p` to `v` must be one to one.

    Source: Kane and Levinson, *Dynamics: Theory and Applications* (1985), §2.14.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    function: Function
    parameters: PyTree

    def __init__(self, names: Iterable[str], function: Function, parameters: PyTree = None) -> None:
        self.names = checked_names("GeneralizedSpeeds: names", (names,) if isinstance(names, str) else names, "u")
        for name in self.names:
            check_line("generalized speed", name)
        self.function, self.parameters = function, parameters
        if not callable(function):
            raise MechanismError(f"GeneralizedSpeeds: function must be callable, got {type(function).__name__}.")
        if len(set(self.names)) < len(self.names):
            raise MechanismError(f"GeneralizedSpeeds: two of the names {self.names} are the same.")

    def given(self, t: Scalar, q: Float[Array, " own"], p: Float[Array, " nv"]) -> Array:
        """The speeds `v (nv,)` of the coordinates."""
        arguments = (t, q, p, self.parameters)
        return user_array("GeneralizedSpeeds", "function", self.function, *arguments, takes="t, q, p, parameters")

    def check(self, nq: int, nv: int) -> None:
        """Raise unless there are `nv` names and the function returns `nv` values; traced on shapes only."""
        if len(self.names) != nv:
            raise MechanismError(
                f"GeneralizedSpeeds: {nv} speeds are needed, got {len(self.names)} names {self.names}."
            )
        dtype = jnp.result_type(float)
        p, q, t = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((nv,), (nq,), ()))
        shape = eqx.filter_eval_shape(self.given, t, q, p).shape
        if shape != (nv,):
            raise MechanismError(
                f"GeneralizedSpeeds: the function must return shape {(nv,)}, got {shape}. It is called as "
                "function(t, q, p, parameters)."
            )
        check_affine("GeneralizedSpeeds", self.given, (t, q), p, ("t, q, parameters", "p"))
