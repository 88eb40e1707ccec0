"""Forces and torques along a joint coordinate: motors, friction, springs, stops."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxmbd.arrays import Scalar, as_float, is_concrete
from jaxmbd.checks import check_fields, check_finite, check_law, check_shape
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_coordinate
from jaxmbd.model.force.force import AbstractJointForce, contact_energy, contact_force, smooth_sign
from jaxmbd.user_functions import user_array


class JointForce(AbstractJointForce):
    """A force or torque along a joint coordinate, such as of a motor.

    **Arguments:** `coordinate`, such as `"O.angle"`; `force`, a number `[N]` or `[N m]`, or a function
    `(t, coordinate, rate, parameters)` that returns it, positive in the direction of increasing coordinate;
    `parameters`, any tree of arrays, or an equinox module (such as a neural network).
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    force: Any = eqx.field(converter=as_float)
    parameters: PyTree = None

    def __check_init__(self) -> None:
        check_coordinate("JointForce", self.name, self.coordinate)
        check_law(f"JointForce {self.name!r}", "force (a number, or something to call)", self.force)

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        if not callable(self.force):
            return self.force
        part, arguments = f"JointForce {self.name!r}", (t, coordinate, rate, self.parameters)
        return user_array(part, "force", self.force, *arguments, takes="t, coordinate, rate, parameters", shape=())

    def potential(self, coordinate: Scalar) -> Scalar:
        return jnp.zeros(())


class JointFriction(AbstractJointForce):
    """Viscous, quadratic, smooth Coulomb and Stribeck friction along a joint coordinate.

    `τ = −c φ̇ − (τ_c + τ_b exp(−(φ̇/v_b)²)) tanh(φ̇ / w) − d |φ̇| φ̇`

    **Arguments:** `coordinate`, such as `"O.angle"`; `viscous` c `[N m s]` or `[N s/m]`; `coulomb` τ_c `[N m]`
    or `[N]`; `width` w, the rate over which the sign of friction is smoothed `[rad/s]` or `[m/s]`;
    `quadratic` d `[N m s²]` or `[N s²/m²]`; `breakaway` τ_b `[N m]` or `[N]`, the excess of static over Coulomb
    friction; `stribeck` v_b `[rad/s]` or `[m/s]`, the rate scale over which the excess decays.

    Source: Armstrong-Hélouvry, Dupont, Canudas de Wit, Automatica 30 (1994).
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    viscous: Scalar = eqx.field(converter=as_float, default=0.0)
    coulomb: Scalar = eqx.field(converter=as_float, default=0.0)
    width: Scalar = eqx.field(converter=as_float, default=0.01)
    quadratic: Scalar = eqx.field(converter=as_float, default=0.0)
    breakaway: Scalar = eqx.field(converter=as_float, default=0.0)
    stribeck: Scalar = eqx.field(converter=as_float, default=0.1)

    def __check_init__(self) -> None:
        part = f"JointFriction {self.name!r}"
        check_coordinate("JointFriction", self.name, self.coordinate)
        zero = {"viscous": "N m s", "coulomb": "N m", "quadratic": "N m s²", "breakaway": "N m"}
        check_fields(part, self, zero=True, **zero)
        check_fields(part, self, width="rad/s", stribeck="rad/s")

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        viscous_coefficient = self.viscous + self.quadratic * abs(rate)
        dry_friction = self.coulomb + self.breakaway * jnp.exp(-((rate / self.stribeck) ** 2))
        return -viscous_coefficient * rate - dry_friction * smooth_sign(rate, self.width)

    def potential(self, coordinate: Scalar) -> Scalar:
        return jnp.zeros(())


class JointSpringDamper(AbstractJointForce):
    """A spring-damper-actuator along a joint coordinate, torsional or translational.

    `τ = −k (x − x0) − c ẋ + τ_a(t, x, ẋ)`; an angle includes whole turns.

    **Arguments:** `coordinate`, such as `"O.angle"`; `stiffness` k `[N m/rad]` or `[N/m]`; `free_position` x0 `[rad]`
    or `[m]`; `damping` c `[N m s/rad]` or `[N s/m]`; `actuator` τ_a, a constant or a function `(t, x, ẋ)` `[N m]` or
    `[N]`.
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    stiffness: Scalar = eqx.field(converter=as_float, default=0.0)
    free_position: Scalar = eqx.field(converter=as_float, default=0.0)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    actuator: Any = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_coordinate("JointSpringDamper", self.name, self.coordinate)
        for field in ("stiffness", "free_position", "damping"):
            check_finite(f"JointSpringDamper {self.name!r}", field, getattr(self, field))
        check_law(f"JointSpringDamper {self.name!r}", "actuator", self.actuator)

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        part, arguments = f"JointSpringDamper {self.name!r}", (t, coordinate, rate)
        actuator = user_array(part, "actuator", self.actuator, *arguments, takes="t, coordinate, rate", shape=())
        return -self.stiffness * (coordinate - self.free_position) - self.damping * rate + actuator

    def potential(self, coordinate: Scalar) -> Scalar:
        return 0.5 * self.stiffness * (coordinate - self.free_position) ** 2


class CubicSpring(AbstractJointForce):
    """A spring along a joint coordinate that hardens or softens, with a damper: the flexspline of a harmonic drive.

    `τ = −k (x − x₀) − k₃ (x − x₀)³ − c ẋ`

    **Arguments:** `coordinate`, such as `"O.angle"`, or the `"twist"` of a `GearMesh`; `stiffness` k `[N m/rad]` or
    `[N/m]`; `cubic` k₃ `[N m/rad³]` or `[N/m³]`, negative for a spring that softens; `damping` c `[N m s/rad]` or
    `[N s/m]`; `free_position` x₀ `[rad]` or `[m]`.

    Source: Taghirad, Bélanger, *Modeling and parameter identification of harmonic drive systems*, J. Dynamic Systems,
    Measurement, and Control 120 (1998).

        >>> flexspline = pl.CubicSpring("flexspline", "O.angle", stiffness=6e3, cubic=4e8, damping=2.0)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    stiffness: Scalar = eqx.field(converter=as_float)
    cubic: Scalar = eqx.field(converter=as_float)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    free_position: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_coordinate("CubicSpring", self.name, self.coordinate)
        for field in ("stiffness", "cubic", "damping", "free_position"):
            check_finite(f"CubicSpring {self.name!r}", field, getattr(self, field))

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        x = coordinate - self.free_position
        return -(self.stiffness + self.cubic * x**2) * x - self.damping * rate

    def potential(self, coordinate: Scalar) -> Scalar:
        square = (coordinate - self.free_position) ** 2
        return 0.5 * self.stiffness * square + 0.25 * self.cubic * square**2


class JointStop(AbstractJointForce):
    """Compliant stops that limit the range of a joint coordinate.

    At a penetration δ of a stop the restoring effort is `k δ^n (1 + c δ̇) ≥ 0`, continuous at the beginning of contact.

    **Arguments:** `coordinate`, such as `"O.angle"`; `lower`, `upper` `[rad]` or `[m]` (infinite for no stop);
    `stiffness` k `[N m/radⁿ]` or `[N/mⁿ]`; `damping` c `[s/rad]` or `[s/m]`; `exponent` n > 0 (1.5 by Hertz,
    below 1 infinitely stiff at the beginning of contact).

    Source: Hunt, Crossley, J. Appl. Mech. 42 (1975).
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    lower: Scalar = eqx.field(converter=as_float)
    upper: Scalar = eqx.field(converter=as_float)
    stiffness: Scalar = eqx.field(converter=as_float)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    exponent: Scalar = eqx.field(converter=as_float, default=1.5)

    def __check_init__(self) -> None:
        part = f"JointStop {self.name!r}"
        check_coordinate("JointStop", self.name, self.coordinate)
        check_shape(part, "lower", self.lower, ())
        check_shape(part, "upper", self.upper, ())
        check_fields(part, self, stiffness="N m/radⁿ", exponent="1")
        check_fields(part, self, zero=True, damping="s/rad")
        limits = (self.lower, self.upper)
        if is_concrete(limits) and isinstance(self.lower, Array) and not float(self.lower) < float(self.upper):
            raise MechanismError(f"{part}: lower must be below upper, got {self.lower:g} and {self.upper:g}.")

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        law = (self.stiffness, self.damping, self.exponent)
        lower_stop = contact_force(self.lower - coordinate, -rate, *law)
        return lower_stop - contact_force(coordinate - self.upper, rate, *law)

    def potential(self, coordinate: Scalar) -> Scalar:
        depth = jnp.maximum(jnp.maximum(self.lower - coordinate, coordinate - self.upper), 0.0)
        return contact_energy(depth, self.stiffness, self.exponent)
