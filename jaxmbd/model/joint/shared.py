"""Joints and couplings for both spaces, among them the loop cuts: rod, ball and body cut; gears, racks and pinions.

The multipliers of a cut are the loads at the cut: the axial force of a rod, the force in a ball joint, the force and
moment at a section of a body.

Source of the cuts: Samin and Fisette, *Symbolic Modeling of Multibody Systems* (2003), §7 (Robotran).
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, Scalar, as_float, constant
from jaxmbd.checks import check_finite, check_number, check_shape, checked_names
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND, AbstractBody, AbstractMarker
from jaxmbd.model.body.checks import check_coordinate, check_markers
from jaxmbd.model.body.names import Name
from jaxmbd.model.joint.joint import AbstractPair, AbstractSidedJoint, AbstractTreeJoint, no_rows
from jaxmbd.space.space import VECTOR, AbstractChart, AbstractFrame
from jaxmbd.space.vectors import dot


class Rod(AbstractPair):
    """A massless rigid rod: the markers' distance is constant, `½ ‖p_B − p_A‖² − ½ l² = 0` (1 row).

    In space, the spherical-spherical composite joint; as a cut, the rod cut.

    **Arguments:** `length` `[m]`; a length of zero raises, since the row's gradient vanishes there.

    The rod's tension is `λ l`.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    length: Scalar = eqx.field(converter=as_float)
    loads: ClassVar[tuple[str, ...]] = ("T",)

    def __check_init__(self) -> None:
        check_shape(f"Rod {self.name!r}", "length", self.length, ())
        try:
            check_number(f"Rod {self.name!r}", "length", self.length, "m")
        except MechanismError as error:
            raise MechanismError(f"{error} Points that coincide are joined by a PointConstraint.") from None

    def residual(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Float[Array, "1"]:
        a, b = frames
        d = b.position - a.position
        return jnp.stack([0.5 * (dot(d, d) - self.length**2)])


def _directions(names: object) -> tuple[str, ...]:
    return checked_names("PointConstraint: without", tuple(names) if isinstance(names, str) else names, "z")


class PointConstraint(AbstractPair):
    """The markers' origins coincide: `R_Aᵀ (p_B − p_A) = 0`, along the first marker's axes (3 rows; 2 in the plane).

    **Arguments:** `without`, unconstrained directions, of `"x"`, `"y"`, `"z"` (the first marker's axes).
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    without: tuple[str, ...] = eqx.field(static=True, converter=_directions, default=())
    loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy", "-Fz")
    plane_loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy")

    def __check_init__(self) -> None:
        check_markers(
            "PointConstraint", self.name, self.a, self.b
        )  # before AbstractPair's check, since `space` is needed below
        axes = "xyz"[: self.a.space.dim]
        for direction in self.without:
            if direction not in axes:
                raise MechanismError(
                    f"PointConstraint {self.name!r}: without must name some of {tuple(axes)}, got {direction!r}."
                )
        if len(set(self.without)) == len(axes):
            raise MechanismError(
                f"PointConstraint {self.name!r}: without names every direction; nothing is left to hold."
            )

    def residual(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Float[Array, " m"]:
        a, b = frames
        rows = a.to_local(b.position - a.position)
        constrained = [i for i, axis in enumerate("xyz"[: rows.shape[0]]) if axis not in self.without]
        return rows if len(constrained) == rows.shape[0] else jnp.stack([rows[i] for i in constrained])


class FixedConstraint(AbstractPair, AbstractSidedJoint):
    """The markers' frames coincide, with rows along the first marker's axes (6 rows; 3 in the plane).

    `R_Aᵀ (p_B − p_A) = 0`, and `y_A · z_B = z_A · x_B = x_A · y_B = 0` (`θ_B − θ_A = 0` in the plane).
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy", "-Fz", "Mx", "My", "Mz")
    plane_loads: ClassVar[tuple[str, ...]] = ("-Fx", "-Fy", "-M")

    def residual(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Float[Array, " m"]:
        a, b = frames
        return jnp.append(a.to_local(b.position - a.position), a.misalignment(b))

    def side(self, frames: Sequence[AbstractFrame]) -> Scalar:
        a, b = frames
        return a.likeness(b)


class Weld(AbstractTreeJoint, AbstractSidedJoint):
    """The markers' frames coincide, with rows along world axes (6 rows; 3 in the plane).

    `p_A − p_B = 0`, and `y_A · z_B = z_A · x_B = x_A · y_B = 0` (`θ_B − θ_A = 0` in the plane).
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy", "Fz", "Mx", "My", "Mz")
    plane_loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy", "-M")

    def residual(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Float[Array, " m"]:
        a, b = frames
        return jnp.append(a.position - b.position, a.misalignment(b))

    def side(self, frames: Sequence[AbstractFrame]) -> Scalar:
        a, b = frames
        return a.likeness(b)

    @property
    def chart(self) -> AbstractChart:
        return VECTOR

    @property
    def tree_coordinate_units(self) -> dict[str, str]:
        return {}

    @property
    def speeds(self) -> dict[str, str]:
        return {}

    def X_FM(self, c: Float[Array, "0"]) -> AbstractFrame:
        space = self.a.space
        return space.place(jnp.asarray(space.rest, c.dtype))

    def across_joint_velocity(self, c: Float[Array, "0"], w: Float[Array, "0"]) -> Float[Array, " twist"]:
        return jnp.zeros(len(self.a.space.speeds), w.dtype)

    def measure(self, frames: Sequence[AbstractFrame]) -> Float[Array, "0"]:
        return no_rows()


class FreeMotion(AbstractTreeJoint):
    """A joint without constraints, from the ground to a body that no other tree joint reaches (floating base).

    Its coordinates are the pose of the body, and its name is the body's.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker

    def __init__(self, body: AbstractBody) -> None:
        self.name, self.b = body.name, body.at()
        self.a = type(self.b)(GROUND, constant(np.zeros(self.b.position.shape, self.b.position.dtype)))

    @property
    def chart(self) -> AbstractChart:
        return self.b.space

    @property
    def tree_coordinate_units(self) -> dict[str, str]:
        space = self.b.space
        return dict(zip(space.coordinates, space.units, strict=True))

    @property
    def speeds(self) -> dict[str, str]:
        space = self.b.space
        return {name: f"{unit}/s" for name, unit in zip(space.speeds, space.twist_units, strict=True)}

    def residual(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Float[Array, "0"]:
        return no_rows()

    def X_FM(self, c: Float[Array, " pose"]) -> AbstractFrame:
        return self.b.space.place(c)

    def across_joint_velocity(self, c: Float[Array, " pose"], w: Float[Array, " twist"]) -> Float[Array, " twist"]:
        body = self.X_FM(c)
        return self.b.space.marker_rate(body, w, body.position)

    def measure(self, frames: Sequence[AbstractFrame]) -> Float[Array, " pose"]:
        return self.b.space.pose(frames[1])


def _terms(names: object) -> tuple[str, ...]:
    return checked_names("Tendon: coordinates", names, "A.angle")


class AbstractCoupling(eqx.Module):
    """A constraint between joint coordinates, referred to by name: `Φ(x₁, x₂, …) = 0` (1 row).

    `members` names the coordinates: `"gear.a_effort"` is the effort `−λ ∂Φ/∂a` with which the row acts along `a`.
    """

    name: eqx.AbstractVar[Name]
    members: ClassVar[tuple[str, ...]]

    @property
    @abc.abstractmethod
    def coordinates(self) -> tuple[str, ...]:
        """The coordinates."""

    @abc.abstractmethod
    def couple(self, *values: Any, **_: Any) -> Scalar:
        """The residual at the values of the coordinates."""


class AbstractPairCoupling(AbstractCoupling):
    """A constraint between two joint coordinates: `Φ(a, b) = 0` (1 row)."""

    a: eqx.AbstractVar[Name]
    b: eqx.AbstractVar[Name]
    members: ClassVar[tuple[str, ...]] = ("a", "b")

    @property
    def coordinates(self) -> tuple[str, ...]:
        """`a` and `b`."""
        return (self.a, self.b)


class Gear(AbstractPairCoupling):
    """A constant ratio between two joint angles: `b − r a − φ = 0` (1 row).

    **Arguments:** `a`, `b`, coordinates such as `"input.angle"`, of joints whose first bodies carry the wheels;
    `ratio` r (negative for external gears, `−z_a / z_b`); `phase` φ `[rad]`. Angles include whole turns.

    `"gear.a_effort"` and `"gear.b_effort"` are the torques on the wheels, `r M` and `−M`.
    """

    name: str = eqx.field(static=True)
    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    ratio: Scalar = eqx.field(converter=as_float)
    phase: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_coupled(self, "ratio", "phase")

    def couple(self, a: Scalar, b: Scalar) -> Scalar:
        return b - self.ratio * a - self.phase


class RackAndPinion(AbstractPairCoupling):
    """A pinion that drives a rack: `s − r φ − s0 = 0` (1 row).

    **Arguments:** `pinion`, an angle such as `"pinion.angle"`; `rack`, a displacement such as
    `"rack.displacement"`; `radius` r `[m]` of the pinion's pitch circle (negative for the opposite direction);
    `offset` s0 `[m]`. The angle includes whole turns.
    """

    name: str = eqx.field(static=True)
    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    radius: Scalar
    offset: Scalar
    members: ClassVar[tuple[str, ...]] = ("pinion", "rack")

    def __init__(self, name: str, pinion: str, rack: str, radius: Number, offset: Number = 0.0) -> None:
        self.name, self.a, self.b = name, pinion, rack
        self.radius, self.offset = as_float(radius), as_float(offset)
        check_coupled(self, "radius", "offset")

    def couple(self, a: Scalar, b: Scalar) -> Scalar:
        return b - self.radius * a - self.offset


class AbstractComposite(eqx.Module):
    """A coordinate that is made of others, for forces, drivers, gears and sensors to act on (no rows)."""

    name: eqx.AbstractVar[Name]
    coordinate_names: ClassVar[tuple[str, ...]]
    coordinate_units: ClassVar[tuple[str, ...]]

    @property
    @abc.abstractmethod
    def made_of(self) -> tuple[str, ...]:
        """The coordinates that it is made of."""

    @abc.abstractmethod
    def value(self, *values: Any, **_: Any) -> Scalar:
        """The value at those of the coordinates."""


class Tendon(AbstractComposite):
    """A cable over pulleys on joints, a coordinate for others to act on: its `length` is `l = Σ r_k c_k` (no rows).

    Springs, motors, stops, drivers, gears and sensors refer to it as `"tendon.length"`, like to a joint's coordinate.

    **Arguments:** `coordinates` c_k, such as `("knee.angle", "hip.angle")`; `ratios` r_k, the pulleys' radii `[m]` with
    the sign of the winding (1 for a displacement). Angles include whole turns.
    """

    name: str = eqx.field(static=True)
    coordinates: tuple[Name, ...] = eqx.field(static=True, converter=_terms)
    ratios: Float[Array, " k"] = eqx.field(converter=as_float)
    coordinate_names: ClassVar[tuple[str, ...]] = ("length",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("m",)

    def __check_init__(self) -> None:
        if not self.coordinates:
            raise MechanismError(f"Tendon {self.name!r}: coordinates must name at least one, such as ('A.angle',).")
        for coordinate in self.coordinates:
            check_coordinate("Tendon", self.name, coordinate)
        check_finite(f"Tendon {self.name!r}", "ratios", self.ratios, (len(self.coordinates),))

    @property
    def made_of(self) -> tuple[str, ...]:
        """The coordinates."""
        return self.coordinates

    def value(self, *values: Scalar) -> Scalar:
        total = jnp.zeros(())
        for k, value in enumerate(values):
            total = total + self.ratios[k] * value
        return total


def check_coupled(part: AbstractCoupling | AbstractComposite, *fields: str) -> None:
    """Raise unless the coordinates of a part are names of different ones, and fields are finite numbers."""
    kind, names = type(part).__name__, part.made_of if isinstance(part, AbstractComposite) else part.coordinates
    for k, name in enumerate(names):
        check_coordinate(kind, part.name, name)
        if name in names[:k]:
            raise MechanismError(
                f"{kind} {part.name!r} couples {name!r} with itself; name {len(names)} different coordinates."
            )
    for field in fields:
        check_finite(f"{kind} {part.name!r}", field, getattr(part, field))
