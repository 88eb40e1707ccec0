"""Torques and torsional springs in the plane."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Scalar, as_float
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.checks import check_finite, check_markers
from jaxmbd.model.body.planar import Marker
from jaxmbd.model.force.force import AbstractForce, pair
from jaxmbd.space.planar import PLANAR, Frame
from jaxmbd.user_functions import user_array


class Torque(AbstractForce):
    """A torque on the body of marker `on`, with its reaction on the body of marker `from_`.

    **Arguments:** `on`, the marker it acts on; `torque` `[N m]`, a constant or a function `(t, angle, rate)` of the
    time and the relative angle and rate; `from_`, the marker of the reaction (default: the ground).
    """

    name: str = eqx.field(static=True)
    on: Marker
    torque: Function | Scalar
    from_: Marker

    def __init__(self, name: str, on: Marker, torque: Any, from_: Marker | None = None) -> None:
        from_ = Marker(GROUND, (0.0, 0.0)) if from_ is None else from_
        check_markers("Torque", name, from_, on, space=PLANAR)
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
        part, arguments = f"Torque {self.name!r}", (t, angle, rate)
        torque = user_array(part, "torque", self.torque, *arguments, takes="t, angle, rate", shape=())
        return pair(jnp.zeros_like(a.position), torque)

    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
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
        for field in ("stiffness", "free_angle", "damping", "actuator"):
            check_finite(f"TorsionalSpringDamper {self.name!r}", field, getattr(self, field))

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
