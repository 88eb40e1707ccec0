"""The losses of gears: friction of a shaft in proportion to what teeth transmit, which sticks and may lock itself."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, Scalar, as_float, is_concrete
from jaxmbd.checks import check_fields, check_finite
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_coordinate, check_name
from jaxmbd.model.body.names import Name
from jaxmbd.model.force.force import AbstractLoadedForce
from jaxmbd.model.force.sticking import AbstractSticking
from jaxmbd.model.states import AbstractSided, OwnState, sides_state, untold


class GearFriction(AbstractSticking, AbstractLoadedForce, AbstractSided):
    """The losses of a gear with elastic teeth: dry friction on one of its shafts, in proportion to the torque τ that
    the teeth exert on that, by the direction in which power flows, and of its bearings.

    `−d ((1/η − 1) |τ| + τ_b)` where the shaft drives the teeth, `d τ < 0`, and `−d ((1 − η_b) |τ| + τ_b)` where they
    drive it, with the direction `d = ±1` of the motion: driving costs `1/η` times the torque, and being driven returns
    `η_b` of it. Where the rate becomes zero the shaft is locked, until the torque on it exceeds the same friction. A
    gear with `η_b ≤ 0` locks itself: its teeth cannot drive the shaft. These are events in the log of the motion,
    `"losses.sticks"`, `"losses.slips forward"` and `"losses.slips back"`; `max_events` is the room for them.

    **Arguments:** `coordinate`, the shaft's, such as `"motor.angle"`; `load`, the name of the force of the teeth, a
    `Backlash`, say, along the twist of a `GearMesh` or the length of a `Tendon` to which that coordinate belongs;
    `efficiency` η, above 0 and up to 1 `[1]`; `back_efficiency` η_b, up to 1, by default that of the same friction, `2
    − 1/η` `[1]`; `bearing` τ_b, the friction without load `[N m]` or `[N]`; `direction` d, at the start of a motion,
    where it follows from the rate `[1]`.

    `"losses.effort"` is the friction, `"losses.direction"` d, zero while it sticks. The other shaft gets the torque of
    the teeth, so that the loss is that of this shaft's power. Steps end where the teeth change flanks, at which the law
    has a kink.

    Source: Pelchen, Schweiger, Otter, *Modeling and Simulating the Efficiency of Gearboxes and of Planetary Gearboxes*,
    2nd Modelica Conference (2002); Modelica Standard Library 4.0, `Rotational.Components.LossyGear`.

        >>> losses = pl.GearFriction("losses", "motor.angle", "teeth", efficiency=0.45)  # a worm that locks itself
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    load: Name = eqx.field(static=True)
    efficiency: Scalar = eqx.field(converter=as_float)
    back_efficiency: Scalar | None = eqx.field(converter=as_float, default=None)
    bearing: Scalar = eqx.field(converter=as_float, default=0.0)
    direction: Scalar = eqx.field(converter=as_float, default=0.0)
    sides: Float[Array, "1"] = eqx.field(converter=as_float, default_factory=lambda: untold(1))

    def __check_init__(self) -> None:
        part = f"GearFriction {self.name!r}"
        check_coordinate("GearFriction", self.name, self.coordinate)
        check_name("force (load of a GearFriction)", self.load)
        check_fields(part, self, efficiency="1")
        check_fields(part, self, zero=True, bearing="N m")
        check_finite(part, "direction", self.direction)
        check_finite(part, "sides", self.sides, (1,))
        if self.back_efficiency is not None:
            check_finite(part, "back_efficiency", self.back_efficiency)
        for field in ("efficiency", "back_efficiency"):
            value = getattr(self, field)
            if isinstance(value, Array) and is_concrete(value) and float(value) > 1.0:
                raise MechanismError(f"{part}: {field} must be at most 1, got {float(value):g}.")

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("direction", "1", held=True), sides_state())

    @property
    def guard_units(self) -> tuple[str, ...]:
        return ("N m",)

    def heights(self, *at: Any, **_: Any) -> Float[Array, "1"]:
        """The load, the last of what the law takes: its sign is that of the flank that is in touch."""
        return jnp.asarray(at[-1])[None]

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar, load: Number = 0.0) -> Scalar:
        return -self.direction * self._friction(self.direction, load)

    def holds(self, t: Scalar, load: Number = 0.0) -> Float[Array, "2"]:
        return jnp.stack([self._friction(way, load) for way in (1.0, -1.0)])

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar, load: Number = 0.0) -> Float[Array, "2"]:
        return jnp.zeros(2, rate.dtype)

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar, load: Number = 0.0) -> Float[Array, "2"]:
        return jnp.stack([jnp.sign(rate), jnp.zeros_like(rate)])

    def _friction(self, direction: Number, load: Number) -> Scalar:
        """What resists a motion in a direction, where the teeth push with `load`."""
        driving = 1 / self.efficiency - 1
        driven = driving if self.back_efficiency is None else 1 - self.back_efficiency
        flank = jnp.where(self.is_above(load)[0], 1.0, -1.0)
        return self.bearing + flank * load * jnp.where(direction * flank < 0, driving, driven)
