"""Abstract forces, forces on a whole mechanism, and forces with inputs or multiplied by a factor.

A force is a law for wrenches at markers, from their frames and rates, or for an effort along a coordinate. `Gravity`
and `GeneralizedForce` act on all bodies and all coordinates.
"""

import abc
from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, Number, Point, Scalar, as_float, is_concrete
from jaxmbd.checks import check_callable, check_finite, check_law, check_shape, checked_items
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_name
from jaxmbd.model.body.names import Name
from jaxmbd.space.space import AbstractSpace, Frames, Rates
from jaxmbd.user_functions import user_array


class AbstractForce(eqx.Module):
    """A law for the wrench at each of its markers, in world axes: `(fx, fy, moment)` in the plane,
    `(fx, fy, fz, mx, my, mz)` in space [N, N m]."""

    name: eqx.AbstractVar[Name]

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[AbstractMarker, ...]:
        """The markers whose frames are the arguments of the law, in this order."""

    @abc.abstractmethod
    def wrenches(self, t: Scalar, frames: Frames, rates: Rates) -> Float[Array, "k efforts"]:
        """The wrench on the body at each marker; `rates` holds the velocities of the frames."""

    @abc.abstractmethod
    def potential(self, t: Scalar, frames: Frames) -> Scalar:
        """Potential energy [J]; zero for a law without a potential."""


def wrench(force: Point, moment: Number = 0.0) -> Float[Array, " efforts"]:
    """A force [N] and a moment [N m] (default zero) as one array."""
    if isinstance(moment, float):
        moment = jnp.full((1 if force.shape[0] == 2 else 3,), moment)
    return jnp.append(force, moment)


def pair(force: Point, moment: Number = 0.0) -> Float[Array, "2 efforts"]:
    """A wrench on the second marker and its reaction on the first.

    >>> print(mbd.extend.pair(jnp.array([1.0, 2.0]))[1])
    [1. 2. 0.]
    """
    on_b = wrench(force, moment)
    return jnp.stack([-on_b, on_b])


class AbstractJointForce(eqx.Module):
    """A force or torque along a joint coordinate, referred to by name."""

    name: eqx.AbstractVar[Name]
    coordinate: eqx.AbstractVar[Name]

    @abc.abstractmethod
    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        """The force [N] or torque [N m] in the direction of increasing coordinate."""

    @abc.abstractmethod
    def potential(self, coordinate: Scalar) -> Scalar:
        """Potential energy [J]; zero for a law without a potential."""


class AbstractLoadedForce(AbstractJointForce):
    """A force along a joint coordinate that another one presses, the force of the name `load`.

    Its laws take, as a last argument that may be left out, the effort which that has on the coordinate.
    """

    load: eqx.AbstractVar[Name]


def smooth_sign(x: Scalar, width: Scalar) -> Scalar:
    """`tanh(x / width)`: the sign of `x`, smoothed over `width`."""
    return jnp.tanh(x / width)


def contact_force(depth: Scalar, rate: Scalar, stiffness: Scalar, damping: Scalar, exponent: Scalar) -> Scalar:
    """Contact force `k δ^n (1 + c δ̇) ≥ 0` at a penetration depth `δ > 0`, else zero (Hunt and Crossley, 1975)."""
    touching = depth > 0
    elastic = stiffness * jnp.where(touching, depth, 1.0) ** exponent
    return jnp.where(touching, elastic * jnp.maximum(1.0 + damping * rate, 0.0), 0.0)


def contact_energy(depth: Scalar, stiffness: Scalar, exponent: Scalar) -> Scalar:
    """`k δ^(n+1) / (n+1)`, the elastic energy at a penetration depth `δ > 0`, else zero."""
    touching = depth > 0
    stored = stiffness * jnp.where(touching, depth, 1.0) ** (exponent + 1) / (exponent + 1)
    return jnp.where(touching, stored, 0.0)


class Gravity(eqx.Module):
    """A uniform gravitational field that acts on all bodies.

    **Arguments:** `acceleration` `[m/s²]`, a number g ≥ 0, directed downwards (−y in the plane, −z in space), or a
    vector, which has its own direction.

    **Raises:** `MechanismError` for a negative number, which would act upwards.

        >>> moon, sideways = pl.Gravity(1.62), pl.Gravity((9.81, 0.0))
    """

    name: Name = eqx.field(static=True)
    acceleration: Float[Array, "*dim"]

    def __init__(self, acceleration: Number | Sequence[Number] = 9.81, name: str = "gravity") -> None:
        check_name("Gravity", name)
        value = as_float(acceleration)
        shape = value.shape if isinstance(value, Array) and value.ndim < 2 else (3,)
        check_finite(f"Gravity {name!r}", "acceleration", value, shape if isinstance(value, Array) else ())
        if isinstance(value, Array) and value.ndim == 0 and is_concrete(value) and np.asarray(value) < 0:
            raise MechanismError(
                f"Gravity {name!r}: a number acts downwards (−y in the plane, −z in space) and is not negative, got "
                f"{float(value):g}. For another direction give a vector [m/s²], such as (0.0, 9.81)."
            )
        self.name = name
        self.acceleration = value

    def vector(self, space: AbstractSpace) -> Point:
        """The field as a vector in `space`."""
        if self.acceleration.ndim == 0:
            return self.acceleration * np.asarray(space.down, self.acceleration.dtype)
        check_shape(f"Gravity {self.name!r}", "acceleration", self.acceleration, (space.dim,))
        return self.acceleration


class GeneralizedForce(eqx.Module):
    """A user-defined generalized force on all coordinates: `Q = function(t, q, v, parameters)`.

    **Arguments:** `function` returns the generalized forces `Q` of shape `(nv,)`, in the mechanism's order.

    With joint coordinates it acts in the joints, as described for `GlobalConstraint`.
    """

    name: Name = eqx.field(static=True)
    function: Function
    parameters: PyTree = None

    def __check_init__(self) -> None:
        check_name("GeneralizedForce", self.name)
        check_callable("GeneralizedForce", self.name, self.function)

    def generalized(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The generalized forces `Q` at a state."""
        part, arguments = f"GeneralizedForce {self.name!r}", (t, q, v, self.parameters)
        return user_array(part, "function", self.function, *arguments, takes="t, q, v, parameters", shape=v.shape)


AnyForce: TypeAlias = AbstractForce | AbstractJointForce | Gravity | GeneralizedForce


class ScaledForce(AbstractForce):
    """A force between markers, multiplied by a factor."""

    name: str = eqx.field(static=True)
    force: AbstractForce
    factor: Scalar

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.force.markers

    def wrenches(self, t: Scalar, frames: Frames, rates: Rates) -> Float[Array, "k efforts"]:
        return self.factor * self.force.wrenches(t, frames, rates)

    def potential(self, t: Scalar, frames: Frames) -> Scalar:
        return self.factor * self.force.potential(t, frames)


class ScaledJointForce(AbstractJointForce):
    """A force along a joint coordinate, multiplied by a factor."""

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    force: AbstractJointForce
    factor: Scalar

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar, *load: Scalar) -> Scalar:
        return self.factor * self.force.effort(t, coordinate, rate, *load)

    def potential(self, coordinate: Scalar) -> Scalar:
        return self.factor * self.force.potential(coordinate)


class ScaledFunction(eqx.Module):
    """A function multiplied by a factor."""

    function: Function
    factor: Scalar

    def __call__(self, *args: object) -> Array:
        return self.factor * self.function(*args)


def _signals(given: object) -> Any:
    return tuple(map(as_float, given)) if isinstance(given, tuple | list) else given


class FunctionWithInputs(eqx.Module):
    """The law in a field of a part, with inputs: `f(t, …) + e Σ u(t)`.

    **Arguments:** `signals` u, numbers or functions of time, in the unit of the law; `without_inputs` f, a number or a
    function that takes the time first, None for zero; `axis` e, the direction if the law is a vector.
    """

    signals: tuple[Any, ...] = eqx.field(converter=_signals)
    without_inputs: Any = eqx.field(converter=as_float, default=None)
    axis: tuple[float, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        _check_signals("FunctionWithInputs", self.signals)

    def __call__(self, t: Scalar, *args: object) -> Array:
        added = _total(self.signals, t)
        if self.axis is not None:
            added = added * jnp.asarray(self.axis, added.dtype)
        law: Any = self.without_inputs
        if law is None:
            return added
        value: Any = law(t, *args) if callable(law) else law
        return value + added


class JointForceWithInputs(AbstractJointForce):
    """A force along a joint coordinate whose law is no field, such as friction, with inputs: `τ + Σ u(t)`.

    **Arguments:** `without_inputs`, the force; `signals` u, numbers or functions of time `[N]` or `[N m]`.
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    without_inputs: AbstractJointForce
    signals: tuple[Any, ...] = eqx.field(converter=_signals)

    def __check_init__(self) -> None:
        _check_signals(f"JointForceWithInputs {self.name!r}", self.signals)

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar, *load: Scalar) -> Scalar:
        return self.without_inputs.effort(t, coordinate, rate, *load) + _total(self.signals, t)

    def potential(self, coordinate: Scalar) -> Scalar:
        return self.without_inputs.potential(coordinate)


def innermost(force: Any) -> Any:
    """A force along a coordinate without the factors and inputs around it."""
    while isinstance(force, ScaledJointForce | JointForceWithInputs):
        force = force.force if isinstance(force, ScaledJointForce) else force.without_inputs
    return force


def _check_signals(part: str, signals: object) -> None:
    for k, signal in enumerate(checked_items(f"{part}: signals", signals, "a sequence of numbers or functions")):
        check_law(part, f"signals[{k}]", signal)


def _total(signals: Sequence[Function | Number], t: Scalar) -> Scalar:
    first, *others = (jnp.asarray(signal(t) if callable(signal) else signal) for signal in signals)
    return sum(others, first)


def scaled(force: AnyForce, factor: Scalar) -> Any:
    """A force of any type, multiplied by a factor, with the same name."""
    if isinstance(force, Gravity):
        return Gravity(factor * force.acceleration, force.name)
    if isinstance(force, GeneralizedForce):
        return GeneralizedForce(force.name, ScaledFunction(force.function, factor), force.parameters)
    if isinstance(force, AbstractJointForce):
        return ScaledJointForce(force.name, force.coordinate, force, factor)
    return ScaledForce(force.name, force, factor)
