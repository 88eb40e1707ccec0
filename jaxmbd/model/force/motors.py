"""Motors with states of their own."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_fields, check_finite, check_law
from jaxmbd.model.body.checks import check_coordinate
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.states import AbstractOwnStates, OwnState
from jaxmbd.user_functions import user_array


class DCMotor(AbstractJointForce, AbstractOwnStates):
    """A direct-current motor with a gear, which acts along a joint coordinate. Its current i is a state.

    `L di/dt = u(t) − R i − k n φ̇`,   `τ = k n i`

    **Arguments:** `coordinate`, such as `"O.angle"`; `voltage` u, a number or a function of time `[V]`; `resistance` R
    `[Ω]`; `inductance` L `[H]`; `constant` k `[N m/A]`, also the voltage that a unit of speed induces `[V s]`; `gear`
    n, the turns of the motor per turn of the joint (negative if it turns the other way); `current`, the one at which a
    motion starts `[A]`.

    The inertia of the rotor is the joint's `armature`, n² times its moment of inertia, and the friction of its bearings
    a `JointFriction` along the same coordinate. `"motor.current"` is the current, `"motor.effort"` the torque τ.

    Source: Isermann, *Mechatronic Systems* (2005), §5.3.

        >>> motor = pl.DCMotor("motor", "O.angle", 24.0, resistance=1.0, inductance=0.01, constant=0.05, gear=10.0)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    voltage: Any = eqx.field(converter=as_float)
    resistance: Scalar = eqx.field(converter=as_float)
    inductance: Scalar = eqx.field(converter=as_float)
    constant: Scalar = eqx.field(converter=as_float)
    gear: Scalar = eqx.field(converter=as_float, default=1.0)
    current: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        part = f"DCMotor {self.name!r}"
        check_coordinate("DCMotor", self.name, self.coordinate)
        check_law(part, "voltage", self.voltage)
        check_fields(part, self, resistance="Ω", inductance="H", constant="N m/A")
        for field in ("gear", "current"):
            check_finite(part, field, getattr(self, field))

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("current", "A"),)

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return self.constant * self.gear * self.current

    def potential(self, coordinate: Scalar) -> Scalar:
        return jnp.zeros(())

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        return ((self._driving(t, rate) - self.resistance * self.current) / self.inductance)[None]

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        return (self._driving(t, rate) / self.resistance)[None]

    def _driving(self, t: Scalar, rate: Scalar) -> Scalar:
        """The voltage less that which the rotation induces."""
        voltage = user_array(f"DCMotor {self.name!r}", "voltage", self.voltage, t, takes="t", shape=())
        return voltage - self.constant * self.gear * rate
