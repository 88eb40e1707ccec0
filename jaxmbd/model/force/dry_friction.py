"""Dry friction that sticks exactly: brakes, clutches and joints that are held until a load breaks them loose."""

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


class DryFriction(AbstractSticking):
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
        part = f"DryFriction {self.name!r}"
        check_coordinate("DryFriction", self.name, self.coordinate)
        check_law(part, "normal", self.normal)
        check_fields(part, self, zero=True, coulomb="N m", breakaway="N m", viscous="N m s/rad")
        check_fields(part, self, stribeck="rad/s", peak="1")
        check_finite(part, "direction", self.direction)
        if is_concrete(self.peak) and float(self.peak) < 1.0:
            raise MechanismError(f"{part}: peak must be at least 1, got {float(self.peak):g}.")

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        near_rest = jnp.exp(-jnp.abs(rate) / self.stribeck)
        return -self.direction * self._pressed(t) * (self.coulomb + self.breakaway * near_rest) - self.viscous * rate

    def holds(self, t: Scalar) -> Float[Array, "2"]:
        return jnp.broadcast_to(self.peak * self._pressed(t) * (self.coulomb + self.breakaway), (2,))

    def _pressed(self, t: Scalar) -> Scalar:
        normal = user_array(f"DryFriction {self.name!r}", "normal", self.normal, t, takes="t", shape=())
        return jnp.maximum(normal, 0.0)
