"""Compliant connections for both spaces: bushings, and contact of a ball with a plane."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Numbers, Point, Scalar, as_float
from jaxmbd.checks import check_fields, check_finite
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_markers
from jaxmbd.model.force.force import AbstractForce, contact_energy, contact_force, wrench
from jaxmbd.space.space import AbstractFrame, Rates
from jaxmbd.space.vectors import cross, dot, swept


class Bushing(AbstractForce):
    """A spring-damper along and about all axes of the first marker: 6 in space, 3 in the plane.

    With the offset `r = R_Aᵀ (p_B − p_A)` and the rotation vector `θ` of `R_Aᵀ R_B`, on the second body at its marker:
    `f = −k r − c ṙ`, `m = −k_θ θ − c_θ ω_AB`, in the first marker's axes.

    **Arguments:** `stiffness`, `(kx, ky, kz, kθx, kθy, kθz)` `[N/m, N m/rad]` (`(kx, ky, kθ)` in the plane);
    `damping`, in the same order `[N s/m, N m s/rad]`. Rotations should stay well below half a turn; with unequal
    rotational stiffnesses the moment is exact for small rotations only.
    """

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    stiffness: Float[Array, " efforts"] = eqx.field(converter=as_float)
    damping: Float[Array, " efforts"]

    def __init__(
        self, name: str, a: AbstractMarker, b: AbstractMarker, stiffness: Numbers, damping: Numbers | None = None
    ) -> None:
        check_markers("Bushing", name, a, b)
        self.name, self.a, self.b = name, a, b
        self.stiffness = as_float(stiffness)
        self.damping = jnp.zeros(len(a.space.efforts)) if damping is None else as_float(damping)
        check_finite(f"Bushing {name!r}", "stiffness", self.stiffness, (len(a.space.efforts),))
        check_finite(f"Bushing {name!r}", "damping", self.damping, (len(a.space.efforts),))

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)

    def wrenches(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "2 efforts"]:
        (a, b), (da, db) = frames, rates
        d = b.position - a.position
        offset_rate = a.to_local(db.position - da.position - swept(da.angular, d))
        rate = jnp.append(offset_rate, a.spin(db) - a.spin(da))
        load = -self.stiffness * self._offset(frames) - self.damping * rate
        force, moment = a.to_world(load[: d.shape[0]]), load[d.shape[0] :]
        moment = moment[0] if d.shape == (2,) else a.to_world(moment)
        return jnp.stack([-wrench(force, moment + cross(d, force)), wrench(force, moment)])

    def potential(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Scalar:
        return 0.5 * jnp.sum(self.stiffness * self._offset(frames) ** 2)

    def _offset(self, frames: Sequence[AbstractFrame]) -> Float[Array, " efforts"]:
        a, b = frames
        return jnp.append(a.to_local(b.position - a.position), a.turn(b))


class PlaneContact(AbstractForce):
    """Compliant contact of a ball (or a point) with a plane, with smooth Coulomb friction.

    At a penetration depth `δ = r − n · (p_B − p_A) > 0` the normal force is `N = k δ^n (1 + c δ̇) ≥ 0`, and the friction
    force is `−μ N v_t / √(v_t² + w²)`, with the sliding velocity `v_t` of the contact point.

    **Arguments:** `plane`, a marker whose last axis (y in the plane, z in space) is the normal `n`; `point`, the
    ball's centre; `stiffness` k `[N/mⁿ]`; `radius` r `[m]`; `damping` c `[s/m]`; `exponent` n > 0 (1.5 by Hertz,
    below 1 infinitely stiff at the beginning of contact); `friction` μ; `width` w `[m/s]`, the sliding speed over which
    the sign of friction is smoothed.

    Source: Hunt, Crossley, J. Appl. Mech. 42 (1975).
    """

    name: str = eqx.field(static=True)
    plane: AbstractMarker
    point: AbstractMarker
    stiffness: Scalar = eqx.field(converter=as_float)
    radius: Scalar = eqx.field(converter=as_float, default=0.0)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    exponent: Scalar = eqx.field(converter=as_float, default=1.5)
    friction: Scalar = eqx.field(converter=as_float, default=0.0)
    width: Scalar = eqx.field(converter=as_float, default=0.01)

    def __check_init__(self) -> None:
        part = f"PlaneContact {self.name!r}"
        check_markers("PlaneContact", self.name, self.plane, self.point)
        check_fields(part, self, stiffness="N/mⁿ", exponent="1", width="m/s")
        check_fields(part, self, zero=True, radius="m", damping="s/m", friction="1")

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.plane, self.point)

    def depth(self, frames: Sequence[AbstractFrame]) -> Scalar:
        """The penetration depth [m] of the ball; negative without contact."""
        a, b = frames
        return self.radius - dot(a.normal, b.position - a.position)

    def wrenches(self, t: Scalar, frames: Sequence[AbstractFrame], rates: Rates) -> Float[Array, "2 efforts"]:
        (a, b), (da, db) = frames, rates
        arm = -self.radius * a.normal
        from_a = b.position + arm - a.position
        sliding = db.position + swept(db.angular, arm) - da.position - swept(da.angular, from_a)
        force = self._force(self.depth(frames), a.normal, sliding)
        return jnp.stack([-wrench(force, cross(from_a, force)), wrench(force, cross(arm, force))])

    def _force(self, depth: Scalar, normal: Point, velocity: Point) -> Point:
        closing = -dot(normal, velocity)
        normal_force = contact_force(depth, closing, self.stiffness, self.damping, self.exponent)
        sliding = velocity + closing * normal
        friction = self.friction * normal_force / jnp.sqrt(dot(sliding, sliding) + self.width**2)
        return normal_force * normal - friction * sliding

    def potential(self, t: Scalar, frames: Sequence[AbstractFrame]) -> Scalar:
        return contact_energy(self.depth(frames), self.stiffness, self.exponent)
