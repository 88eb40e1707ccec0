"""Friction and springs that remember: bristles that bend before they slip, and hysteresis."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float, is_concrete
from jaxmbd.checks import check_fields, check_finite
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_coordinate
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.states import AbstractOwnStates, OwnState

_PRESLIDING = 1e-5  # typical deflection of bristles [m, rad]: they slip beyond some micrometres


class LuGreFriction(AbstractJointForce, AbstractOwnStates):
    """Dry friction along a joint coordinate by bristles, whose deflection z is a state. While it sticks it is a stiff
    spring, so that it creeps elastically and needs no events.

    `τ = −(σ₀ z + σ₁ ż + σ₂ φ̇)`,   `ż = φ̇ − σ₀ |φ̇| z / g(φ̇)`,   `g = τ_c + τ_b exp(−(φ̇/v_b)²)`

    **Arguments:** `coordinate`, such as `"O.angle"`; `coulomb` τ_c, the friction at large rates `[N m]` or `[N]`;
    `bristle_stiffness` σ₀ `[N m/rad]` or `[N/m]`; `bristle_damping` σ₁ `[N m s/rad]` or `[N s/m]`; `viscous` σ₂
    `[N m s/rad]` or `[N s/m]`; `breakaway` τ_b, the excess of static over Coulomb friction `[N m]` or `[N]`; `stribeck`
    v_b, the rate over which the excess decays `[rad/s]` or `[m/s]`; `deflection`, the one at which a motion starts
    `[rad]` or `[m]`.

    With real bristles a motion is stiff: `simulate(..., solver="stiff")`. `"friction.deflection"` is z,
    `"friction.effort"` the friction.

    Source: Canudas de Wit, Olsson, Åström, Lischinsky, IEEE Trans. Automatic Control 40 (1995).

        >>> friction = pl.LuGreFriction("friction", "rail.displacement", coulomb=1.0, bristle_stiffness=1e5)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    coulomb: Scalar = eqx.field(converter=as_float)
    bristle_stiffness: Scalar = eqx.field(converter=as_float)
    bristle_damping: Scalar = eqx.field(converter=as_float, default=0.0)
    viscous: Scalar = eqx.field(converter=as_float, default=0.0)
    breakaway: Scalar = eqx.field(converter=as_float, default=0.0)
    stribeck: Scalar = eqx.field(converter=as_float, default=0.1)
    deflection: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        part = f"LuGreFriction {self.name!r}"
        check_coordinate("LuGreFriction", self.name, self.coordinate)
        check_fields(part, self, coulomb="N m", bristle_stiffness="N m/rad", stribeck="rad/s")
        check_fields(part, self, zero=True, bristle_damping="N m s/rad", viscous="N m s/rad", breakaway="N m")
        check_finite(part, "deflection", self.deflection)

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("deflection", "", _PRESLIDING),)

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        elastic = self.bristle_stiffness * self.deflection
        return -(elastic + self.bristle_damping * self._bending(rate) + self.viscous * rate)

    def potential(self, coordinate: Scalar) -> Scalar:
        return jnp.zeros(())

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        return self._bending(rate)[None]

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        """Sliding bends bristles as far as they go; those at rest stay as they are."""
        slipping = jnp.sign(rate) * self._limit(rate) / self.bristle_stiffness
        return jnp.where(rate == 0, self.deflection, slipping)[None]

    def _limit(self, rate: Scalar) -> Scalar:
        """The friction at which bristles slip at a constant rate."""
        return self.coulomb + self.breakaway * jnp.exp(-((rate / self.stribeck) ** 2))

    def _bending(self, rate: Scalar) -> Scalar:
        """The rate of the deflection."""
        return rate - self.bristle_stiffness * jnp.abs(rate) * self.deflection / self._limit(rate)


class BoucWen(AbstractJointForce, AbstractOwnStates):
    """A spring with hysteresis along a joint coordinate, such as of rubber, a wire rope or a yielding metal: an elastic
    part beside one that yields, whose share w of the yield effort, between −1 and 1, is a state.

    `τ = −k (φ − φ₀) − τ_y w`,   `φ_y ẇ = φ̇ − σ |φ̇| |w|ⁿ⁻¹ w + (σ − 1) φ̇ |w|ⁿ`

    **Arguments:** `coordinate`, such as `"O.angle"`; `stiffness` k beyond yielding `[N m/rad]` or `[N/m]`;
    `yield_effort` τ_y `[N m]` or `[N]`; `yield_deflection` φ_y `[rad]` or `[m]`: the stiffness before yielding is `k +
    τ_y / φ_y`; `exponent` n ≥ 1, of how sharply it yields `[1]`; `shape` σ ≥ 1/2, of how it unloads, elastically at 1/2
    and along a fuller loop above `[1]`; `free_position` φ₀ `[rad]` or `[m]`; `hysteresis` w, at which a motion starts
    `[1]`.

    `"spring.hysteresis"` is w, `"spring.effort"` the effort.

    Source: Ikhouane, Rodellar, *Systems with Hysteresis* (2007), §2.2, the normalised form of Wen's model.

        >>> rubber = pl.BoucWen("rubber", "O.angle", stiffness=5.0, yield_effort=2.0, yield_deflection=0.1)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    stiffness: Scalar = eqx.field(converter=as_float)
    yield_effort: Scalar = eqx.field(converter=as_float)
    yield_deflection: Scalar = eqx.field(converter=as_float)
    exponent: Scalar = eqx.field(converter=as_float, default=2.0)
    shape: Scalar = eqx.field(converter=as_float, default=0.5)
    free_position: Scalar = eqx.field(converter=as_float, default=0.0)
    hysteresis: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        part = f"BoucWen {self.name!r}"
        check_coordinate("BoucWen", self.name, self.coordinate)
        check_fields(part, self, zero=True, stiffness="N m/rad", yield_effort="N m")
        check_fields(part, self, yield_deflection="rad", exponent="1", shape="1")
        for field in ("free_position", "hysteresis"):
            check_finite(part, field, getattr(self, field))
        for field, least in (("exponent", 1.0), ("shape", 0.5)):
            value = getattr(self, field)
            if is_concrete(value) and float(value) < least:
                raise MechanismError(f"{part}: {field} must be at least {least:g}, got {float(value):g}.")

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("hysteresis", "1"),)

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return -self.stiffness * (coordinate - self.free_position) - self.yield_effort * self.hysteresis

    def potential(self, coordinate: Scalar) -> Scalar:
        return 0.5 * self.stiffness * (coordinate - self.free_position) ** 2

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        w = self.hysteresis
        yielded = jnp.where(w == 0, 0.0, jnp.abs(jnp.where(w == 0, 1.0, w)) ** self.exponent)
        loading = rate - self.shape * jnp.abs(rate) * jnp.sign(w) * yielded + (self.shape - 1) * rate * yielded
        return (loading / self.yield_deflection)[None]

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "1"]:
        """A spring that goes on yields; at rest it keeps what it remembers."""
        return jnp.where(rate == 0, self.hysteresis, jnp.sign(rate))[None]
