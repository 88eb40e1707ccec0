"""Hydraulic drives: a cylinder whose oil is compressed, between a valve and a piston."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_fields, check_finite, check_law
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_markers
from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.states import AbstractOwnStates, OwnState
from jaxmbd.space.space import AbstractFrame, Rates
from jaxmbd.user_functions import user_array


class HydraulicCylinder(AbstractLineForce, AbstractOwnStates):
    """A double-acting hydraulic cylinder between two points, with a four-way valve. The pressures at its cap end and at
    its rod end are states: `p₀` pushes the points apart, `p₁` pulls them together.

    The tension is `f = A₁ p₁ − A₀ p₀ + d l̇`, and

    `ṗ₀ = E (Q(a, p₀) − A₀ l̇) / (V₀ + A₀ (l − l₀))`,   `ṗ₁ = E (Q(−a, p₁) + A₁ l̇) / (V₁ − A₁ (l − l₀))`,

    with the flow `Q(a, p) = a c √(p_S − p)` from the supply through an opening `a ≥ 0`, and `a c √(p − p_T)` into the
    tank for `a < 0`; both turn round where the difference of pressure does.

    **Arguments:** `a`, `b`, the markers; `opening` a of the valve `[1]`, a constant or a function `(t, l, l̇)`, positive
    to push; `cap_area` A₀, `rod_area` A₁ `[m²]`; `cap_volume` V₀, `rod_volume` V₁ of the oil, with its lines, at the
    length l₀ `[m³]`; `bulk_modulus` E of the oil `[Pa]`; `flow` c of the open valve `[m³/(s √Pa)]`;
    `supply_pressure` p_S, `tank_pressure` p_T `[Pa]`; `damping` d of the piston `[N s/m]`; `length` l₀ `[m]`: if it is
    none, the volumes are constant; `cap_pressure`, `rod_pressure`, the ones at which a motion starts `[Pa]`.

    Oil is stiff: `simulate(..., solver="stiff")`. `"cylinder.cap_pressure"`, `"cylinder.rod_pressure"` are the
    pressures, `"cylinder.tension"` is f, `"cylinder.length"` l.

    Source: Jelali, Kroll, *Hydraulic Servo-systems* (2003), §4.3.

        >>> arm = pl.Body("arm", 120.0, 10.0, pose=(0.5, 0.0, 0.0))
        >>> cylinder = pl.HydraulicCylinder(
        ...     "cylinder", pl.ground.at(0.0, -0.25), arm.at(-0.25), 0.1, cap_area=0.01, rod_area=0.008,
        ...     cap_volume=2e-3, rod_volume=2e-3, bulk_modulus=1.5e9, flow=2e-7, supply_pressure=2e7,
        ... )
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    opening: Any = eqx.field(converter=as_float)
    cap_area: Scalar = eqx.field(converter=as_float)
    rod_area: Scalar = eqx.field(converter=as_float)
    cap_volume: Scalar = eqx.field(converter=as_float)
    rod_volume: Scalar = eqx.field(converter=as_float)
    bulk_modulus: Scalar = eqx.field(converter=as_float)
    flow: Scalar = eqx.field(converter=as_float)
    supply_pressure: Scalar = eqx.field(converter=as_float)
    tank_pressure: Scalar = eqx.field(converter=as_float, default=0.0)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    length: Scalar | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    cap_pressure: Scalar = eqx.field(converter=as_float, default=0.0)
    rod_pressure: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        part = f"HydraulicCylinder {self.name!r}"
        check_markers("HydraulicCylinder", self.name, self.a, self.b)
        check_law(part, "opening", self.opening)
        check_fields(part, self, cap_area="m²", rod_area="m²", cap_volume="m³", rod_volume="m³", bulk_modulus="Pa")
        check_fields(part, self, flow="m³/(s √Pa)")
        check_fields(part, self, zero=True, damping="N s/m", **({} if self.length is None else {"length": "m"}))
        for field in ("supply_pressure", "tank_pressure", "cap_pressure", "rod_pressure"):
            check_finite(part, field, getattr(self, field))

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("cap_pressure", "Pa", 1e5), OwnState("rod_pressure", "Pa", 1e5))

    def tension(self, t: Scalar, length: Scalar, rate: Scalar) -> Scalar:
        return self.rod_area * self.rod_pressure - self.cap_area * self.cap_pressure + self.damping * rate

    def potential(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Scalar:
        return jnp.zeros(())

    def own_rates(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "2"]:
        length, rate = self.stretch(frames, rates)
        opening, moved = self._opened(t, length, rate), 0.0 if self.length is None else length - self.length
        into_cap = self._flow(opening, self.cap_pressure) - self.cap_area * rate
        into_rod = self._flow(-opening, self.rod_pressure) + self.rod_area * rate
        volumes = self.cap_volume + self.cap_area * moved, self.rod_volume - self.rod_area * moved
        return self.bulk_modulus * jnp.stack([into_cap / volumes[0], into_rod / volumes[1]])

    def steady(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "2"]:
        """The pressures with which an open valve lets as much oil pass as the piston takes; those behind a closed valve
        stay as they are."""
        length, rate = self.stretch(frames, rates)
        opening = self._opened(t, length, rate)
        cap = self._balanced(opening, self.cap_area * rate, self.cap_pressure)
        return jnp.stack([cap, self._balanced(-opening, -self.rod_area * rate, self.rod_pressure)])

    def _opened(self, t: Scalar, length: Scalar, rate: Scalar) -> Scalar:
        part = f"HydraulicCylinder {self.name!r}"
        return user_array(part, "opening", self.opening, t, length, rate, takes="t, length, rate", shape=())

    def _flow(self, opening: Scalar, pressure: Scalar) -> Scalar:
        """The flow into an end [m³/s]."""
        drop = jnp.where(opening >= 0, self.supply_pressure - pressure, pressure - self.tank_pressure)
        return opening * self.flow * _signed_root(drop)

    def _balanced(self, opening: Scalar, taken: Scalar, pressure: Scalar) -> Scalar:
        """The pressure at which an end gets what the piston takes [Pa]."""
        root = taken / (self.flow * jnp.where(opening == 0, 1.0, opening))
        drop = root * jnp.abs(root)
        balanced = jnp.where(opening >= 0, self.supply_pressure - drop, self.tank_pressure + drop)
        return jnp.where(opening == 0, pressure, balanced)


def _signed_root(x: Scalar) -> Scalar:
    """`sign(x) √|x|`, with the derivative zero at zero, where there is none."""
    return jnp.sign(x) * jnp.sqrt(jnp.where(x == 0, 1.0, jnp.abs(x)))
