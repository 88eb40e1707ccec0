"""Gear trains: planetary sets, differentials, and meshes that are not rigid, for elastic gears and harmonic drives."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float, is_concrete
from jaxmbd.checks import check_finite
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.names import Name
from jaxmbd.model.joint.shared import AbstractComposite, AbstractCoupling, check_coupled


class PlanetaryGear(AbstractCoupling):
    """A planetary set, by Willis' equation of its three angles: `c − (s + ρ r) / (1 + ρ) − φ = 0` (1 row).

    **Arguments:** `sun` s, `ring` r and `carrier` c, coordinates such as `"sun.angle"`, which all count from one body,
    the housing, whether that rests or turns; `ratio` ρ, the teeth of the ring by those of the sun, `z_r / z_s` `[1]`
    (negative with pairs of planets that mesh with each other); `phase` φ `[rad]`. Angles include whole turns.

    Any of the three may be an input or be held: with the ring held, the sun turns `1 + ρ` times as fast as the carrier.
    The torques on them are `"set.sun_effort"`, `"set.ring_effort"` and `"set.carrier_effort"`, always in the ratio of
    `1 : ρ : −(1 + ρ)`, and their powers add up to zero. The planets have no mass of their own: that of their
    revolution belongs to the carrier.

    Source: Willis, *Principles of Mechanism* (1870); Modelica Standard Library 4.0,
    `Rotational.Components.IdealPlanetary`.

        >>> planets = pl.PlanetaryGear("set", "sun.angle", "ring.angle", "carrier.angle", ratio=72 / 24)
    """

    name: str = eqx.field(static=True)
    sun: Name = eqx.field(static=True)
    ring: Name = eqx.field(static=True)
    carrier: Name = eqx.field(static=True)
    ratio: Scalar = eqx.field(converter=as_float)
    phase: Scalar = eqx.field(converter=as_float, default=0.0)
    members: ClassVar[tuple[str, ...]] = ("sun", "ring", "carrier")

    def __check_init__(self) -> None:
        check_coupled(self, "ratio", "phase")
        if is_concrete(self.ratio) and float(self.ratio) == -1.0:
            raise MechanismError(
                f"PlanetaryGear {self.name!r}: with a ratio of -1 sun and ring turn as one and the carrier stays free; "
                "give z_r / z_s, such as 72 / 24."
            )

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Those of the sun, the ring and the carrier."""
        return (self.sun, self.ring, self.carrier)

    def couple(self, sun: Scalar, ring: Scalar, carrier: Scalar) -> Scalar:
        return carrier - (sun + self.ratio * ring) / (1 + self.ratio) - self.phase


class Differential(AbstractCoupling):
    """A differential: its carrier turns by the mean of both sides, `c − (l + r) / 2 − φ = 0` (1 row).

    **Arguments:** `left` l, `right` r and `carrier` c, coordinates such as `"left.angle"`, which all count from one
    body, the housing; `phase` φ `[rad]`. Angles include whole turns.

    Both sides get the same torque, `"axle.left_effort"` and `"axle.right_effort"`, each half of what drives the
    carrier, `−"axle.carrier_effort"`, whatever their speeds. A `Gear` from the carrier to a shaft is the final drive, a
    `PlanetaryGear` a differential that divides the torque unequally, and a `DryFriction` along the coordinate of a
    joint between both sides limits its slip.

        >>> axle = pl.Differential("axle", "left.angle", "right.angle", "cage.angle")
    """

    name: str = eqx.field(static=True)
    left: Name = eqx.field(static=True)
    right: Name = eqx.field(static=True)
    carrier: Name = eqx.field(static=True)
    phase: Scalar = eqx.field(converter=as_float, default=0.0)
    members: ClassVar[tuple[str, ...]] = ("left", "right", "carrier")

    def __check_init__(self) -> None:
        check_coupled(self, "phase")

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Those of both sides and the carrier."""
        return (self.left, self.right, self.carrier)

    def couple(self, left: Scalar, right: Scalar, carrier: Scalar) -> Scalar:
        return carrier - 0.5 * (left + right) - self.phase


class GearMesh(AbstractComposite):
    """A gear that is not rigid: its `twist` is a coordinate for springs and play to act on (no rows).

    `b − r a − φ − Σ A_k sin(n_k a + ψ_k)`, with a kinematic error (transmission error) of the teeth, if there is one.

    **Arguments:** `a`, `b`, coordinates such as `"motor.angle"`, of joints whose first bodies carry the wheels; `ratio`
    r, as of a `Gear` `[1]`; `phase` φ `[rad]`; `error_amplitudes` A, at b `[rad]`, `error_orders` n, per turn of a
    `[1]`, and `error_phases` ψ, zero if they are not given `[rad]`.

    A `Backlash`, a `JointSpringDamper`, a `CubicSpring` or any other force along `"mesh.twist"` turns b against a: its
    effort τ is the torque on b, and a gets `−τ (r + Σ n_k A_k cos(n_k a + ψ_k))`. A `GearFriction` adds losses.

    Source: Tuttle, Seering, *A nonlinear model of a harmonic drive gear transmission*, IEEE Trans. Robotics and
    Automation 12 (1996), on kinematic errors.

        >>> mesh = pl.GearMesh("mesh", "motor.angle", "load.angle", ratio=-1 / 100)
    """

    name: str = eqx.field(static=True)
    a: Name = eqx.field(static=True)
    b: Name = eqx.field(static=True)
    ratio: Scalar = eqx.field(converter=as_float)
    phase: Scalar = eqx.field(converter=as_float, default=0.0)
    error_amplitudes: Float[Array, " k"] = eqx.field(converter=as_float, default=())
    error_orders: Float[Array, " k"] = eqx.field(converter=as_float, default=())
    error_phases: Float[Array, " j"] = eqx.field(converter=as_float, default=())
    coordinate_names: ClassVar[tuple[str, ...]] = ("twist",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("rad",)

    def __check_init__(self) -> None:
        check_coupled(self, "ratio", "phase")
        part, amplitudes = f"GearMesh {self.name!r}", self.error_amplitudes
        shape = amplitudes.shape if isinstance(amplitudes, Array) and amplitudes.ndim == 1 else (1,)
        check_finite(part, "error_amplitudes", amplitudes, shape)
        check_finite(part, "error_orders", self.error_orders, shape)
        if not isinstance(self.error_phases, Array) or self.error_phases.shape != (0,):
            check_finite(part, "error_phases", self.error_phases, shape)

    @property
    def made_of(self) -> tuple[str, ...]:
        """`a` and `b`."""
        return (self.a, self.b)

    def value(self, a: Scalar, b: Scalar) -> Scalar:
        twist = b - self.ratio * a - self.phase
        for k in range(self.error_amplitudes.shape[0]):
            at = self.error_orders[k] * a
            at = at + self.error_phases[k] if self.error_phases.shape[0] else at
            twist = twist - self.error_amplitudes[k] * jnp.sin(at)
        return twist
