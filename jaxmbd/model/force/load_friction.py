"""Dry friction of joints by the loads that they carry."""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_fields
from jaxmbd.errors import MechanismError
from jaxmbd.model.force.dry_friction import AbstractDryFriction
from jaxmbd.space.vectors import dot, safe_norm, swept

T = TypeVar("T")


class LoadFriction(AbstractDryFriction):
    """Dry friction of a pin, a slider or a screw by the load that it carries, with sticking.

    It is a `DryFriction` whose N is the load of the joint itself: `τ = −d N (μ + μ_b exp(−|φ̇| / v_b)) − c φ̇` with

    - in a pin of radius ρ `N = ρ ‖f‖`, in space `ρ Σ ‖f_k‖ + ρ_a |f_axial|`, where the forces `f_k` across the axis are
      those of two bearings at a distance, the `span`, which carry the moment, too; without a span one bearing carries
      the force, and nothing rubs by the moment;
    - in a slider `N = Σ ‖f_k‖`, of two guides at that distance along the axis;
    - in a screw `N = ρ Σ ‖f_k‖ + ρ_a |f_axial|` along its angle, ρ_a being that of the thread: it locks itself where
      `μ ρ_a` exceeds the lead over 2π.

    The load depends on the friction, and that on the load: both are solved together at each instant. Where the load
    would grow by friction faster than friction by the load, the accelerations are not unique (Painlevé); there the
    motion ends with an error. In joint coordinates the joint is cut, since its load is a multiplier. With redundant
    joints the load is that of the multipliers of least norm.

    **Arguments:** `coordinate`, of a joint with one degree of freedom, such as `"O.angle"`; `coefficient` μ `[1]`;
    `radius` ρ `[m]`, of a pin or screw; `span` `[m]`; `thrust_radius` ρ_a `[m]`; `breakaway` μ_b, the excess near rest
    `[1]`; `stribeck` v_b, the rate over which that decays `[rad/s]` or `[m/s]`; `viscous` c `[N m s/rad]` or `[N s/m]`;
    `peak` p ≥ 1, the largest effort that holds by that at which it slips near rest `[1]`; `direction` d, at the start
    of a motion, where it follows from the rate `[1]`; `load` N `[N m]` or `[N]`, which the analyses find.

    Source: Haug, *Computer-Aided Kinematics and Dynamics of Mechanical Systems* II (2021), on Coulomb friction in
    joints; Painlevé, Comptes Rendus 121 (1895).

        >>> pin = pl.LoadFriction("pin", "O.angle", 0.3, radius=0.05)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    coefficient: Scalar = eqx.field(converter=as_float)
    radius: Scalar | None = eqx.field(converter=as_float, default=None)
    span: Scalar | None = eqx.field(converter=as_float, default=None)
    thrust_radius: Scalar = eqx.field(converter=as_float, default=0.0)
    breakaway: Scalar = eqx.field(converter=as_float, default=0.0)
    stribeck: Scalar = eqx.field(converter=as_float, default=0.1)
    viscous: Scalar = eqx.field(converter=as_float, default=0.0)
    peak: Scalar = eqx.field(converter=as_float, default=1.0)
    direction: Scalar = eqx.field(converter=as_float, default=0.0)
    load: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        self.check_friction(
            "LoadFriction", coefficient="1", thrust_radius="m", breakaway="1", viscous="N m s/rad", load="N"
        )
        given: dict[str, Any] = {name: "m" for name in ("radius", "span") if getattr(self, name) is not None}
        check_fields(f"LoadFriction {self.name!r}", self, **given)

    @property
    def joint(self) -> str:
        """The name of the joint."""
        return self.coordinate.partition(".")[0]

    @property
    def turns(self) -> bool:
        """True for friction along an angle."""
        return self.coordinate.endswith(".angle")

    def coulomb_coefficient(self) -> Scalar:
        return self.coefficient

    def pressed(self, t: Scalar) -> Scalar:
        return self.load

    def load_by(self, wrench: Float[Array, " efforts"], axis: Float[Array, " dim"]) -> Scalar:
        """N from the reaction of the joint, a force and a moment, and its axis, all in world axes. In the plane the
        axis of a pin, which is normal to the plane, is not used."""
        radius = 1.0 if self.radius is None else self.radius
        force, moment = wrench[: len(axis)], wrench[len(axis) :]
        if len(axis) == 2 and self.turns:
            return radius * safe_norm(force)
        along = dot(axis, force)
        across = force - along * axis
        if self.span is None:
            return radius * safe_norm(across) + self.thrust_radius * jnp.abs(along)
        # Two forces at ± half the span along the axis, which together are the force and the moment across it.
        couple = swept(moment, axis) / self.span
        both = safe_norm(across / 2 + couple) + safe_norm(across / 2 - couple)
        return radius * both + self.thrust_radius * jnp.abs(along)


def _rubs(part: Any) -> bool:
    return isinstance(part, LoadFriction)


def rubbing(forces: Sequence[Any]) -> list[LoadFriction]:
    """The frictions by load among forces, those within others among them."""
    return [part for part in jax.tree.leaves(tuple(forces), is_leaf=_rubs) if _rubs(part)]


def with_loads(forces: T, loads: Float[Array, " k"]) -> T:
    """The same forces with other loads of their frictions, in the order of `rubbing`."""
    each = iter(jnp.unstack(loads))
    changed = lambda part: eqx.tree_at(lambda p: p.load, part, next(each)) if _rubs(part) else part  # noqa: E731
    return jax.tree.map(changed, forces, is_leaf=_rubs)


def check_nothing_rubs(mechanism: Any, what: str) -> None:
    """Raise if a joint rubs by its load, for an analysis whose equations know no such friction."""
    for part in rubbing(mechanism.forces):
        raise MechanismError(
            f"{what} cannot take friction by load, that of LoadFriction {part.name!r}. Take an explicit method in "
            "simulate, or here a DryFriction with a load of your own."
        )
