"""Ranges of parameters: smooth maps from all real numbers to the values that are allowed, or bounds of the search."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import as_float, is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_finite
from jaxmbd.printing import readable

_EDGE = 1e-3  # share of the width of a range: an estimate that is closer to an end counts as lying at it
# Shares of the starting value below which an estimate counts as running to zero: one that does not exceed its standard
# error, and any other.
_FALLEN, _VANISHED = 1e-3, 1e-6


class AbstractRange(eqx.Module):
    """The range of a parameter: a smooth map `p(u)` from the numbers `u` of the search, element by element, and the
    bounds of these numbers, onto which the search is projected."""

    @abc.abstractmethod
    def physical(self, u: Array, start: Array) -> Array:
        """Return the physical value of a number of the search; `u = 0` has no special meaning."""

    @abc.abstractmethod
    def unconstrained(self, value: Array, start: Array) -> Array:
        """Return the number of the search of a physical value (the inverse of `physical`)."""

    @abc.abstractmethod
    def bounds(self, start: Array) -> tuple[Array, Array]:
        """Return the least and the largest number of the search; infinite if the map leaves the range open."""

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

    def unconstrained(self, value: Array, start: Array) -> Array:
        return value / _scale(start)

    def bounds(self, start: Array) -> tuple[Array, Array]:
        return _everything(start)

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

    def unconstrained(self, value: Array, start: Array) -> Array:
        return jnp.log(value)

    def bounds(self, start: Array) -> tuple[Array, Array]:
        return _everything(start)

    def contains(self, value: np.ndarray) -> bool:
        return bool((np.isfinite(value) & (value > 0)).all())

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.asarray(value)

    def remark(self, value: float, start: float, error: float) -> str:
        is_undetermined = value < _FALLEN * start and error >= value
        if is_undetermined or value < _VANISHED * start:
            return f"runs to zero, the end of its range (from {start:.3g} to {value:.3g})"
        return f"runs to infinity (from {start:.3g} to {value:.3g})" if value * _VANISHED > start else ""


class AbstractInterval(AbstractRange):
    """Values between two bounds."""

    lower: eqx.AbstractVar[Array]
    upper: eqx.AbstractVar[Array]

    def __check_init__(self) -> None:
        name = type(self).__name__
        for field in ("lower", "upper"):
            value = getattr(self, field)
            check_finite(name, field, value, value.shape if isinstance(value, Array) else ())
        if is_concrete(self.lower, self.upper) and not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise MechanismError(f"{name}: lower must be below upper, got {self.lower} and {self.upper}.")

    def __repr__(self) -> str:
        return readable(self, lambda: f"{type(self).__name__}({self.lower:g}, {self.upper:g})", lower=0, upper=0)

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.upper - self.lower), np.shape(value))

    def share(self, value: Array) -> Array:
        """Return where a value lies: 0 at the lower bound, 1 at the upper one."""
        return (value - self.lower) / (self.upper - self.lower)

    def remark(self, value: float, start: float, error: float) -> str:
        lower, upper = float(jnp.min(self.lower)), float(jnp.max(self.upper))
        share = (value - lower) / (upper - lower)
        if _EDGE < share < 1 - _EDGE:
            return ""
        return f"lies at the {'lower' if share <= _EDGE else 'upper'} end of its range, {lower:.6g} to {upper:.6g}"


class Bounded(AbstractInterval):
    """Values between two bounds, `p = lower + (upper − lower) / (1 + exp(−u))`. The bounds are never reached."""

    lower: Array = eqx.field(converter=as_float)
    upper: Array = eqx.field(converter=as_float)

    def physical(self, u: Array, start: Array) -> Array:
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(u)

    def unconstrained(self, value: Array, start: Array) -> Array:
        share = self.share(value)
        return jnp.log(share) - jnp.log1p(-share)

    def bounds(self, start: Array) -> tuple[Array, Array]:
        return _everything(start)

    def contains(self, value: np.ndarray) -> bool:
        return bool(((value > self.lower) & (value < self.upper)).all())


class Box(AbstractInterval):
    """Values between two bounds, both of which can be reached: the search is projected onto them.

    Unlike `Bounded` it has no flat ends: a parameter that sits at a bound leaves it again when the others have moved.
    """

    lower: Array = eqx.field(converter=as_float)
    upper: Array = eqx.field(converter=as_float)

    def physical(self, u: Array, start: Array) -> Array:
        return self.lower + (self.upper - self.lower) * u

    def unconstrained(self, value: Array, start: Array) -> Array:
        return self.share(value)

    def bounds(self, start: Array) -> tuple[Array, Array]:
        return jnp.zeros_like(start), jnp.ones_like(start)

    def contains(self, value: np.ndarray) -> bool:
        return bool(((value >= self.lower) & (value <= self.upper)).all())


def _everything(start: Array) -> tuple[Array, Array]:
    return jnp.full_like(start, -jnp.inf), jnp.full_like(start, jnp.inf)


def _scale(value: Array) -> Array:
    size = jnp.max(jnp.abs(value), initial=0.0)
    return jnp.where(size > 0, size, 1.0)
