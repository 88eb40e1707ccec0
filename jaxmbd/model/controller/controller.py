"""Controllers: laws `y = f(t, u, x)` of quantities `u` by name, with states `x` of their own, `ẋ = g(t, u, x)`. What
they give is a quantity, `"pid.output"`, and is added to the inputs that they drive.

A controller may read what positions, speeds and states of parts determine, and outputs of other controllers. Reactions
and accelerations follow from the outputs themselves, so that they cannot be read.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, Scalar, as_float
from jaxmbd.checks import check_callable, check_finite, checked_names
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_name
from jaxmbd.model.states import AbstractStates, OwnState
from jaxmbd.user_functions import user_array


def as_names(given: Any) -> Any:
    """One name, several, or None, as a tuple of names; anything else as it is, for the check of the part."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else given


class AbstractController(eqx.Module):
    """A law of quantities by name, `y = output(t, u)`.

    A class has the fields `of`, the name of a quantity or several, and `drives`, the names of inputs, as a tuple. The
    entries of `u (k,)` are the quantities that it `reads`.
    """

    name: eqx.AbstractVar[str]
    is_foreign: ClassVar[bool] = False  # whether the law calls code that is not JAX's, which no engine can run

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the quantities that the law takes, in this order."""
        names = self._field("of")
        return (names,) if isinstance(names, str) else names

    @property
    def driven(self) -> tuple[str, ...]:
        """The names of the inputs (`inputs`) to which the output is added: none, or one for each of its components."""
        return self._field("drives")

    # Declared as `AbstractVar`, these would be the first arguments of each class to a type checker.
    def _field(self, name: str) -> Any:
        return getattr(self, name)

    @abc.abstractmethod
    def output(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, "*components"]:
        """The output, a number or several."""

    def __check_init__(self) -> None:
        kind = type(self).__name__
        check_name(kind, self.name)
        checked_names(f"{kind} {self.name!r}: of", self.reads, "O.angle")
        checked_names(f"{kind} {self.name!r}: drives", self.driven, "O.angle")


class AbstractDynamicController(AbstractController, AbstractStates):
    """A controller with states of its own, in the fields that `own_states` names."""

    @abc.abstractmethod
    def own_rates(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        """The rates of the states."""

    @abc.abstractmethod
    def steady(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        """The states at which the rates are zero for constant `u`. A state that has none there, such as an integral,
        keeps its value."""


class Controller(AbstractController):
    """A controller without states, by a function of one's own: `y = function(t, u, parameters)`.

    **Arguments:** `of`, the name of a quantity or several, whose values are the entries of `u`, such as `"O.angle"`,
    `"O.angle_rate"`, `"motor.current"`, `"filter.output"`, or the reading of a sensor of positions or speeds;
    `function` returns the output, a number, or one for each input that it drives; `drives`, the name of an input
    (`inputs`) or several, to which the output is added, such as `"O.angle"`, `"motor.voltage"`; none by default.

        >>> law = pl.Controller("law", ["O.angle", "O.angle_rate"], lambda t, u, k: -k @ u, "O.angle", jnp.ones(2))
    """

    name: str = eqx.field(static=True)
    of: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    function: Function
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names, default=())
    parameters: PyTree = None

    def __check_init__(self) -> None:
        check_callable("Controller", self.name, self.function)

    def output(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, "*components"]:
        part, arguments = f"Controller {self.name!r}", (t, u, self.parameters)
        return user_array(part, "function", self.function, *arguments, takes="t, u, parameters")


class DynamicController(AbstractDynamicController):
    """A controller with states x of its own, by functions of one's own, a neural network among them:
    `y = function(t, u, x, parameters)`, `ẋ = rates(t, u, x, parameters)`.

    **Arguments:** as for `Controller`; `rates` returns the rates of the states, in the shape of `state`; `state`, the
    ones at which a motion starts. Those of an equilibrium are the same: `steady` is not known of a function.

        >>> damper = pl.DynamicController(
        ...     "damper", "O.angle_rate", lambda t, u, x, parameters: -2.0 * x[0],
        ...     lambda t, u, x, parameters: 10.0 * (u - x), [0.0], "O.angle",
        ... )
    """

    name: str = eqx.field(static=True)
    of: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    function: Function
    rates: Function
    state: Float[Array, " n"] = eqx.field(converter=as_float)
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names, default=())
    parameters: PyTree = None

    def __check_init__(self) -> None:
        check_callable("DynamicController", self.name, self.function)
        check_callable("DynamicController", self.name, self.rates)
        check_states(f"DynamicController {self.name!r}", self.state)

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("state", ""),)

    def output(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, "*components"]:
        return self._value("function", self.function, t, u, None)

    def own_rates(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return self._value("rates", self.rates, t, u, self.state.shape)

    def steady(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return self.state

    def _value(self, field: str, function: Function, t: Scalar, u: Array, shape: tuple[int, ...] | None) -> Array:
        part, arguments = f"DynamicController {self.name!r}", (t, u, self.state, self.parameters)
        return user_array(part, field, function, *arguments, takes="t, u, x, parameters", shape=shape)


def check_states(part: str, state: Any) -> None:
    """Raise unless the states at which a motion starts are numbers `(n,)`, finite ones."""
    if getattr(state, "ndim", 1) != 1:
        raise MechanismError(f"{part}: state must be a list of numbers, such as [0.0], got shape {state.shape}.")
    check_finite(part, "state", state, getattr(state, "shape", (1,)))


def followed(part: Any) -> tuple[str, ...]:
    """What a controller of one quantity reads: that, its rate, and what is added to its reference, if there are any."""
    return tuple(name for name in (part.of, part.rate, part.follows) if name is not None)


def error_of(part: Any, t: Scalar, u: Float[Array, " k"]) -> Scalar:
    """How far such a quantity is from the reference; `u`, the values of `followed`."""
    name = f"{type(part).__name__} {part.name!r}"
    reference = jnp.asarray(user_array(name, "reference", part.reference, t, takes="t", shape=()))
    return (reference if part.follows is None else reference + u[-1]) - u[0]
