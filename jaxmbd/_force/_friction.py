"""Friction along a joint's own coordinate."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._body import check_finite, check_name, check_number, check_shape
from jaxmbd._errors import MechanismError
from jaxmbd._maths import smooth_sign
from jaxmbd._types import Scalar, as_float


class JointForce(eqx.Module):
    """A force or torque along a joint's coordinate, as a user's function.

    **Arguments:** `coordinate`, such as `"O.angle"`; `function(t, coordinate, rate, parameters)` returns the
    force `[N]` or torque `[N m]` that drives the coordinate up; `parameters` any tree of arrays, or an equinox
    module (a neural network, say).
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    function: Any
    parameters: Any = None

    def __check_init__(self) -> None:
        check_coordinate("JointForce", self.name, self.coordinate)
        if not callable(self.function):
            raise MechanismError(
                f"JointForce {self.name!r}: function must be callable, got {type(self.function).__name__}."
            )

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, ""]:
        """The force or torque at a time, coordinate and rate."""
        value = jnp.asarray(self.function(t, coordinate, rate, self.parameters))
        check_shape(f"JointForce {self.name!r}", "what the function returns", value, ())
        return value


class JointFriction(eqx.Module):
    """Viscous and smooth Coulomb friction along a joint's coordinate.

    `τ = −c φ̇ − τ_c tanh(φ̇ / w) − d |φ̇| φ̇`

    **Arguments:** `coordinate`, such as `"O.angle"`; `viscous` c `[N m s]` or `[N s/m]`; `coulomb` τ_c `[N m]`
    or `[N]`; `width` w, the rate over which the Coulomb friction changes sign `[rad/s]` or `[m/s]`;
    `quadratic` d `[N m s²]` or `[N s²/m²]`.
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    viscous: Scalar = eqx.field(converter=as_float, default=0.0)
    coulomb: Scalar = eqx.field(converter=as_float, default=0.0)
    width: Scalar = eqx.field(converter=as_float, default=0.01)
    quadratic: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        part = f"JointFriction {self.name!r}"
        check_coordinate("JointFriction", self.name, self.coordinate)
        for field in ("viscous", "coulomb", "width", "quadratic"):
            check_finite(part, field, getattr(self, field))
        check_number(part, "viscous", self.viscous, "N m s", zero=True)
        check_number(part, "coulomb", self.coulomb, "N m", zero=True)
        check_number(part, "quadratic", self.quadratic, "N m s²", zero=True)
        check_number(part, "width", self.width, "rad/s")

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        """The friction force or torque at a rate."""
        drag = self.viscous + self.quadratic * abs(rate)
        return -drag * rate - self.coulomb * smooth_sign(rate, self.width)


def check_coordinate(kind: str, name: str, coordinate: str) -> None:
    """Raise unless the coordinate is written as a joint's name, a dot, and the coordinate's."""
    check_name(kind, name)
    if not isinstance(coordinate, str) or coordinate.count(".") != 1:
        raise MechanismError(
            f"{kind} {name!r}: coordinate must be written 'joint.angle' or 'joint.displacement', got {coordinate!r}."
        )
