"""Dry friction that sticks exactly: brakes, clutches and joints that are held until a load breaks them loose."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float, is_concrete
from jaxmbd.checks import check_fields, check_finite, check_law
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_coordinate
from jaxmbd.model.force.sticking import AbstractSticking
from jaxmbd.user_functions import user_array


class AbstractDryFriction(AbstractSticking):
    """Coulomb friction along a joint coordinate, with sticking: `τ = −d N (μ + μ_b exp(−|φ̇| / v_b)) − c φ̇`.

    Fields of its classes: the excess `breakaway` μ_b near rest, the rate `stribeck` v_b over which that decays, the
    `viscous` c, the `peak` p, by which what holds exceeds what slips near rest, and the `direction` d.
    """

    @abc.abstractmethod
    def pressed(self, t: Scalar) -> Scalar:
        """What presses, N ≥ 0."""

    @abc.abstractmethod
    def coulomb_coefficient(self) -> Scalar:
        """The coefficient μ of a fast motion."""

    # Declared as `AbstractVar`, fields would be the first arguments of each class to a type checker.
    def _number(self, name: str) -> Scalar:
        return getattr(self, name)

    def check_friction(self, kind: str, **units: str) -> None:
        """Raise unless the numbers are those of a friction; `units` of those that a class has besides."""
        part = f"{kind} {self.name!r}"
        check_coordinate(kind, self.name, self.coordinate)
        check_fields(part, self, zero=True, **units)
        check_fields(part, self, stribeck="rad/s", peak="1")
        check_finite(part, "direction", self._number("direction"))
        if is_concrete(peak := self._number("peak")) and float(peak) < 1.0:
            raise MechanismError(f"{part}: peak must be at least 1, got {float(peak):g}.")

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        near_rest = self._number("breakaway") * jnp.exp(-jnp.abs(rate) / self._number("stribeck"))
        dry = self._number("direction") * self.pressed(t) * (self.coulomb_coefficient() + near_rest)
        return -dry - self._number("viscous") * rate

    def holds(self, t: Scalar) -> Float[Array, "2"]:
        most = self.pressed(t) * (self.coulomb_coefficient() + self._number("breakaway"))
        return jnp.broadcast_to(self._number("peak") * most, (2,))


class DryFriction(AbstractDryFriction):
    """Coulomb friction along a joint coordinate, with sticking: a brake, a clutch between two bodies, a dry bearing.

    While it slips, `τ = −d N (τ_c + τ_b exp(−|φ̇| / v_b)) − c φ̇` with the direction `d = ±1` of the motion. Where the
    rate becomes zero the coordinate is locked, without creep, by the effort that this takes, until that exceeds
    `p N (τ_c + τ_b)`. These are events in the log of the motion, `"brake.sticks"`, `"brake.slips forward"` and
    `"brake.slips back"`, and `"brake.opens"` where N becomes negative; `max_events` is the room for them.

    **Arguments:** `coordinate`, such as `"O.angle"`; `coulomb` τ_c `[N m]` or `[N]`, with `normal` a coefficient;
    `normal` N, a number or a function of time that multiplies it, such as the force that presses a brake, one by
    default; what is negative is none; `breakaway` τ_b, the excess of friction near rest `[N m]` or `[N]`; `stribeck`
    v_b, the rate over which that decays `[rad/s]` or `[m/s]`; `viscous` c `[N m s/rad]` or `[N s/m]`; `peak` p ≥ 1, the
    largest effort that holds by that at which it slips near rest `[1]`; `direction` d, at the start of a motion, where
    it follows from the rate `[1]`.

    `"brake.effort"` is the friction, `"brake.direction"` d, zero while it sticks.

    Source: Armstrong-Hélouvry, Dupont, Canudas de Wit, Automatica 30 (1994); Pfeiffer, Glocker, *Multibody Dynamics
    with Unilateral Contacts* (1996), §2.3.

        >>> brake = pl.DryFriction("brake", "O.angle", 0.5, normal=mbd.Piecewise([0.5], [0.0, 160.0]))
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    coulomb: Scalar = eqx.field(converter=as_float)
    normal: Any = eqx.field(converter=as_float, default=1.0)
    breakaway: Scalar = eqx.field(converter=as_float, default=0.0)
    stribeck: Scalar = eqx.field(converter=as_float, default=0.1)
    viscous: Scalar = eqx.field(converter=as_float, default=0.0)
    peak: Scalar = eqx.field(converter=as_float, default=1.0)
    direction: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_law(f"DryFriction {self.name!r}", "normal", self.normal)
        self.check_friction("DryFriction", coulomb="N m", breakaway="N m", viscous="N m s/rad")

    def coulomb_coefficient(self) -> Scalar:
        return self.coulomb

    def pressed(self, t: Scalar) -> Scalar:
        normal = user_array(f"DryFriction {self.name!r}", "normal", self.normal, t, takes="t", shape=())
        return jnp.maximum(normal, 0.0)
