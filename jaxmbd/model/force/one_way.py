"""Clutches that let a coordinate run in one direction only."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_fields, check_finite
from jaxmbd.model.body.checks import check_coordinate
from jaxmbd.model.force.sticking import AbstractSticking
from jaxmbd.model.states import AbstractSwitching, OwnState

_ON_A_TOOTH = 1e-9  # of the pitch, by which rounding may leave a position before the tooth on which it is


class OneWayClutch(AbstractSticking):
    """A freewheel along a joint coordinate: it lets the coordinate increase, and locks it where its rate becomes zero.

    While it overruns, only the drag acts, `τ = −τ_d`. Locked, it transmits the positive effort that prevents a motion
    back, of any size, until that would be less than `−τ_d`. These are events in the log, `"clutch.locks"` and
    `"clutch.overruns"`; `max_events` is the room for them. `"clutch.effort"` is what it transmits, `"clutch.direction"`
    is 1 while it overruns and 0 while it is locked. A motion must not begin backwards.

    **Arguments:** `coordinate`, such as `"O.angle"`; `drag` τ_d, the friction while it overruns `[N m]` or `[N]`;
    `direction`, at the start of a motion, where it follows from the rate `[1]`.

    Source: Modelica Standard Library 4.0, `Rotational.Components.OneWayClutch`; Pfeiffer, Glocker, *Multibody Dynamics
    with Unilateral Contacts* (1996), §2.

        >>> freewheel = pl.OneWayClutch("freewheel", "O.angle", drag=0.05)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    drag: Scalar = eqx.field(converter=as_float, default=0.0)
    direction: Scalar = eqx.field(converter=as_float, default=0.0)
    happenings: ClassVar[tuple[str, str, str]] = ("locks", "overruns", "")
    from_either_side: ClassVar[bool] = False

    def __check_init__(self) -> None:
        part = f"OneWayClutch {self.name!r}"
        check_coordinate("OneWayClutch", self.name, self.coordinate)
        check_fields(part, self, zero=True, drag="N m")
        check_finite(part, "direction", self.direction)

    def holds(self, t: Scalar) -> Float[Array, "2"]:
        return jnp.stack([self.drag, jnp.full_like(self.drag, jnp.inf)])

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return -self.direction * self.drag


class Ratchet(AbstractSticking, AbstractSwitching):
    """A ratchet with a pawl along a joint coordinate x: it lets x increase, tooth by tooth, and catches it where it
    falls back to the last tooth that it has passed, `x = x₀ + k h`.

    It catches without rebound, and holds the positive effort that this takes until that would be negative. These are
    events in the log, `"pawl.catches"` and `"pawl.advances"`; `max_events` is the room for them, and passing a tooth
    takes none. `"pawl.effort"` is what it holds, `"pawl.tooth"` the number k, `"pawl.direction"` is 0 while it holds.

    **Arguments:** `coordinate`, such as `"O.angle"`; `pitch` h, from tooth to tooth, and `offset` x₀, where one is
    `[rad]` or `[m]`; `viscous`, the damping by the pawl while it is not caught `[N m s/rad]` or `[N s/m]`; `direction`,
    0 if it holds at the start `[1]`; `tooth` k, the last one that was passed, which at the start of a motion follows
    from the position `[1]`.

        >>> pawl = pl.Ratchet("pawl", "O.angle", pitch=2 * np.pi / 60)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    pitch: Scalar = eqx.field(converter=as_float)
    offset: Scalar = eqx.field(converter=as_float, default=0.0)
    viscous: Scalar = eqx.field(converter=as_float, default=0.0)
    direction: Scalar = eqx.field(converter=as_float, default=1.0)
    tooth: Scalar = eqx.field(converter=as_float, default=0.0)
    happenings: ClassVar[tuple[str, str, str]] = ("catches", "advances", "")
    from_either_side: ClassVar[bool] = False
    locks_at_rest: ClassVar[bool] = False

    def __check_init__(self) -> None:
        part = f"Ratchet {self.name!r}"
        check_coordinate("Ratchet", self.name, self.coordinate)
        check_fields(part, self, pitch="rad")
        check_fields(part, self, zero=True, viscous="N m s/rad")
        for field in ("offset", "direction", "tooth"):
            check_finite(part, field, getattr(self, field))

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("direction", "1", held=True), OwnState("tooth", "1", held=True))

    @property
    def guard_units(self) -> tuple[str, ...]:
        return ("",)

    def holds(self, t: Scalar) -> Float[Array, "2"]:
        return jnp.stack([jnp.zeros_like(self.pitch), jnp.full_like(self.pitch, jnp.inf)])

    def caught(self, coordinate: Scalar, rate: Scalar) -> Scalar:
        """How far the coordinate is beyond the last tooth."""
        return coordinate - self.offset - self.tooth * self.pitch

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return -self.viscous * rate

    def guards(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        return (self.pitch - self.caught(coordinate, rate))[None]

    def changed(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1 2"]:
        return jnp.stack([self.direction, self.tooth + 1])[None]

    def begun(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "2"]:
        near = jnp.floor((coordinate - self.offset) / self.pitch + _ON_A_TOOTH)
        return jnp.stack([self.direction, near])

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "2"]:
        return jnp.zeros(2, rate.dtype)

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "2"]:
        return jnp.stack([self.direction, self.tooth])
