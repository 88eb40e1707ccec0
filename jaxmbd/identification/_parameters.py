"""Free parameters: the numbers of a mechanism that are estimated, and their ranges.

The optimiser works on unconstrained values `u`. A range maps them to physical values, so that every trial mechanism is
valid.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import as_float, is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_finite, check_instance, check_mapping
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.printing import readable
from jaxmbd.user_functions import call_user

_EDGE = 1e-3  # share of the width of a range: an estimate that is closer to an end counts as lying at it
# Shares of the starting value below which an estimate counts as running to zero: one that does not exceed its standard
# error, and any other.
_FALLEN, _VANISHED = 1e-3, 1e-6

Build = Callable[[dict[str, Any]], Mechanism]


class AbstractRange(eqx.Module):
    """The range of a parameter, as a smooth map from all real numbers to it."""

    @abc.abstractmethod
    def physical(self, u: Array, start: Array) -> Array:
        """Return the physical value of an unconstrained value; `u = 0` has no special meaning."""

    @abc.abstractmethod
    def unconstrained(self, value: Array) -> Array:
        """Return the unconstrained value of a physical value (the inverse of `physical`)."""

    @abc.abstractmethod
    def contains(self, value: np.ndarray) -> bool:
        """Return True if a starting value lies inside the range."""

    @abc.abstractmethod
    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return the change of the physical value that serves as its unit where sensitivities are compared."""

    @abc.abstractmethod
    def remark(self, value: float, start: float, error: float) -> str:
        """Return a remark on an estimate, with its standard error, at the edge of the range; "" elsewhere."""


class Unbounded(AbstractRange):
    """All real values, scaled by the starting value so that the optimiser works with numbers near one."""

    def physical(self, u: Array, start: Array) -> Array:
        return u * _scale(start)

    def unconstrained(self, value: Array) -> Array:
        return value / _scale(value)

    def contains(self, value: np.ndarray) -> bool:
        return bool(np.isfinite(value).all())

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.maximum(np.abs(value), np.asarray(_scale(jnp.asarray(start))))

    def remark(self, value: float, start: float, error: float) -> str:
        return ""


class Positive(AbstractRange):
    """Positive values, `p = exp(u)`."""

    def physical(self, u: Array, start: Array) -> Array:
        return jnp.exp(u)

    def unconstrained(self, value: Array) -> Array:
        return jnp.log(value)

    def contains(self, value: np.ndarray) -> bool:
        return bool((np.isfinite(value) & (value > 0)).all())

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.asarray(value)

    def remark(self, value: float, start: float, error: float) -> str:
        is_undetermined = value < _FALLEN * start and error >= value
        if is_undetermined or value < _VANISHED * start:
            return f"runs to zero, the end of its range (from {start:.3g} to {value:.3g})"
        return f"runs to infinity (from {start:.3g} to {value:.3g})" if value * _VANISHED > start else ""


class Bounded(AbstractRange):
    """Values between two bounds, `p = lower + (upper − lower) / (1 + exp(−u))`."""

    lower: Array = eqx.field(converter=as_float)
    upper: Array = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        for field in ("lower", "upper"):
            value = getattr(self, field)
            check_finite("Bounded", field, value, value.shape if isinstance(value, Array) else ())
        if is_concrete(self.lower, self.upper) and not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise MechanismError(f"Bounded: lower must be below upper, got {self.lower} and {self.upper}.")

    def __repr__(self) -> str:
        return readable(self, lambda: f"Bounded({self.lower:g}, {self.upper:g})", lower=0, upper=0)

    def physical(self, u: Array, start: Array) -> Array:
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(u)

    def unconstrained(self, value: Array) -> Array:
        share = (value - self.lower) / (self.upper - self.lower)
        return jnp.log(share) - jnp.log1p(-share)

    def contains(self, value: np.ndarray) -> bool:
        return bool(((value > self.lower) & (value < self.upper)).all())

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.upper - self.lower), np.shape(value))

    def remark(self, value: float, start: float, error: float) -> str:
        lower, upper = float(jnp.min(self.lower)), float(jnp.max(self.upper))
        share = (value - lower) / (upper - lower)
        if _EDGE < share < 1 - _EDGE:
            return ""
        return f"lies at the {'lower' if share <= _EDGE else 'upper'} end of its range, {lower:.6g} to {upper:.6g}"


def _scale(value: Array) -> Array:
    size = jnp.max(jnp.abs(value), initial=0.0)
    return jnp.where(size > 0, size, 1.0)


class Parameter(eqx.Module):
    """A free parameter.

    **Arguments:**

    - `where`: a function from the mechanism to the leaf that is free, to several leaves that share one value, or to a
      whole module, such as a neural network;
    - `start`: the starting value, in place of `where` if the first argument of `fit` is a function that builds the
      mechanism;
    - `within`: the range: `Unbounded()`, `Positive()` or `Bounded(lower, upper)`;
    - `unit`: the unit in the table of results.
    """

    where: Callable[[Mechanism], Any] | None = None
    start: Any = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    within: AbstractRange = Unbounded()
    unit: str = eqx.field(default="", static=True)

    def __check_init__(self) -> None:
        if self.where is not None and not callable(self.where):
            raise MechanismError(
                f"Parameter: where must be a function such as lambda m: m['spring'].stiffness, got {self.where!r}; a "
                "value to begin with is start=..."
            )
        if isinstance(self.start, str):
            raise MechanismError(f"Parameter: start must be a number, got {self.start!r}.")
        if isinstance(self.start, Array) and is_concrete(self.start):
            check_finite("Parameter", "start", self.start, self.start.shape)
        check_instance(
            "Parameter: within", self.within, AbstractRange, "a range, Unbounded(), Positive() or Bounded(lower, upper)"
        )


class Parameters(eqx.Module):
    """All free parameters, their starting values, and the mechanism as a function of unconstrained values."""

    mechanism: Mechanism | None
    build: Build | None = eqx.field(static=True)
    free: dict[str, Parameter]
    start: dict[str, Any]

    def mechanism_at(self, u: dict[str, Any]) -> Mechanism:
        """Return the mechanism for unconstrained values."""
        values = self.physical(u)
        if self.build is not None:
            takes = "{" + ", ".join(map(repr, values)) + "}"
            built = call_user("fit", "mechanism", self.build, values, takes=takes)
            check_instance("fit: what the function mechanism returns", built, Mechanism, "a Mechanism")
            return built
        mechanism = self.mechanism
        assert mechanism is not None
        for name, free in self.free.items():
            mechanism = _replace(mechanism, free, values[name])
        return mechanism

    def physical(self, u: dict[str, Any]) -> dict[str, Any]:
        """Return the physical values of unconstrained values."""
        return {name: jax.tree.map(free.within.physical, u[name], self.start[name]) for name, free in self.free.items()}

    def unconstrained(self) -> dict[str, Any]:
        """Return the unconstrained starting values."""
        return {name: jax.tree.map(free.within.unconstrained, self.start[name]) for name, free in self.free.items()}


def collect(mechanism: Mechanism | Build, free: Mapping[str, Any]) -> Parameters:
    """Look up and check all free parameters."""
    is_built = not isinstance(mechanism, Mechanism)
    if is_built and not callable(mechanism):
        raise MechanismError(
            f"fit: mechanism must be a Mechanism, or a function from parameters to one, got {type(mechanism).__name__}."
        )
    check_mapping("free", free, "{'k': lambda m: m['spring'].stiffness}")
    parameters = {name: f if isinstance(f, Parameter) else _free(name, f) for name, f in free.items()}
    start = {}
    for name, parameter in parameters.items():
        if is_built and parameter.start is None:
            raise MechanismError(f"Free parameter {name!r} needs a start value: Parameter(start=..., within=...).")
        start[name] = parameter.start if is_built else _look_up(mechanism, name, parameter)
        for leaf in jax.tree.leaves(start[name]):
            if not parameter.within.contains(np.asarray(leaf)):
                raise MechanismError(
                    f"Free parameter {name!r} starts at {np.asarray(leaf)}, outside its range {parameter.within}."
                )
    return Parameters(None if is_built else mechanism, mechanism if is_built else None, parameters, start)  # pyright: ignore[reportArgumentType]


def _free(name: str, where: Any) -> Parameter:
    if not callable(where):
        raise MechanismError(
            f"Free parameter {name!r} must be a function such as lambda m: m['spring'].stiffness, or Parameter(...), "
            f"got {where!r}."
        )
    return Parameter(where=where)


def _nodes(mechanism: Mechanism, free: Parameter) -> tuple[Any, ...]:
    assert free.where is not None
    node = free.where(mechanism)
    return node if isinstance(node, tuple) else (node,)


def _look_up(mechanism: Mechanism, name: str, free: Parameter) -> Any:
    if free.where is None:
        raise MechanismError(f"Free parameter {name!r} needs where=lambda m: m['part'].number.")
    selected = call_user(f"Free parameter {name!r}", "where", free.where, mechanism, takes="mechanism")
    nodes = selected if isinstance(selected, tuple) else (selected,)
    leaves = {id(leaf) for leaf in jax.tree.leaves(mechanism)}
    for node in nodes:
        if not all(id(leaf) in leaves for leaf in jax.tree.leaves(eqx.filter(node, eqx.is_inexact_array))):
            raise MechanismError(
                f"Free parameter {name!r} points at {eqx.tree_pformat(node)}, which is not a number of the mechanism: "
                "it has been computed, or taken out of an array."
            )
    node = nodes[0]
    value = eqx.filter(node, eqx.is_inexact_array)
    if not jax.tree.leaves(value):
        raise MechanismError(f"Free parameter {name!r} points at {node!r}, which holds no numbers.")
    return value


def _replace(mechanism: Mechanism, free: Parameter, value: Any) -> Mechanism:
    for k, node in enumerate(_nodes(mechanism, free)):
        replaced = eqx.combine(value, node)
        mechanism = eqx.tree_at(lambda m, k=k: _nodes(m, free)[k], mechanism, replaced)
    return mechanism


def flat(value: Any) -> np.ndarray:
    """Return all numbers of a parameter as one vector."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(value)])


def labels(name: str, size: int) -> list[str]:
    """Return the labels of the numbers of a parameter."""
    return [name] if size == 1 else [f"{name}[{k}]" for k in range(size)]
