"""Forces multiplied by a factor: 1 for an active force, 0 for an inactive one."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Scalar
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce
from jaxmbd.model.force.shared import Gravity
from jaxmbd.model.force.user import GeneralizedForce


class ScaledForce(AbstractForce):
    """A force between markers, multiplied by a factor."""

    name: str = eqx.field(static=True)
    of: AbstractForce
    factor: Scalar

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.of.markers

    def wrenches(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "k efforts"]:
        return self.factor * self.of.wrenches(t, frames, rates)

    def potential(self, t: Scalar, frames: Sequence[Any]) -> Scalar:
        return self.factor * self.of.potential(t, frames)


class ScaledJointForce(AbstractJointForce):
    """A force along a joint coordinate, multiplied by a factor."""

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    of: AbstractJointForce
    factor: Scalar

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return self.factor * self.of.effort(t, coordinate, rate)

    def potential(self, coordinate: Scalar) -> Scalar:
        return self.factor * self.of.potential(coordinate)


class ScaledFunction(eqx.Module):
    """A function multiplied by a factor."""

    of: Function
    factor: Scalar

    def __call__(self, *args: Any) -> Array:
        return self.factor * self.of(*args)


def scaled(force: Any, factor: Scalar) -> Any:
    """A force of any type, multiplied by a factor, with the same name."""
    if isinstance(force, Gravity):
        return Gravity(factor * force.acceleration, force.name)
    if isinstance(force, GeneralizedForce):
        return GeneralizedForce(force.name, ScaledFunction(force.function, factor), force.parameters)
    if isinstance(force, AbstractJointForce):
        return ScaledJointForce(force.name, force.coordinate, force, factor)
    return ScaledForce(force.name, force, factor)
