"""Ranges of parameters: smooth maps from all real numbers to the values that are allowed, or bounds of the search."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import as_float, is_concrete
from jaxmbd.checks import check_number, check_some
from jaxmbd.errors import MechanismError
from jaxmbd.parameters.labels import LISTED
from jaxmbd.printing import readable

_EDGE = 1e-3  # share of the width of a range: an estimate that is closer to an end counts as lying at it
# Shares of the starting value below which an estimate counts as running to zero: one that does not exceed its standard
# error, and any other.
_FALLEN, _VANISHED = 1e-3, 1e-6
# The standard deviation of drawn starts: of the logarithm of positive numbers, of others relative to their start.
WIDTH = 0.5


class AbstractRange(eqx.Module):
    """The range of a parameter: a smooth map `p(u)` from the numbers `u` of the search, as many as those of its value,
    and the bounds of these numbers, onto which the search is projected."""

    @abc.abstractmethod
    def physical(self, u: Array, start: Array) -> Array:
        """Return the physical value of a number of the search; `u = 0` has no special meaning."""

    @abc.abstractmethod
    def unconstrained(self, value: Array, start: Array) -> Array:
        """Return the number of the search of a physical value (the inverse of `physical`)."""

    @abc.abstractmethod
    def slopes(self, u: Array, start: Array) -> Array:
        """Return the derivatives `dp/du`: of each number, or a matrix `(n, n)` where numbers depend on one another."""

    @abc.abstractmethod
    def bounds(self, start: Array) -> tuple[Array, Array]:
        """Return the least and the largest number of the search; infinite if the map leaves the range open."""

    @abc.abstractmethod
    def moved(self, value: Array, change: Array, start: Array) -> Array:
        """Return a value within the range that lies beside another one by about a change: by as much in the numbers of
        the search; an end of the range for an infinite change."""

    @abc.abstractmethod
    def contains(self, value: np.ndarray) -> bool:
        """Return True if a starting value lies inside the range."""

    @abc.abstractmethod
    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return the change of the physical value that serves as its unit where sensitivities are compared."""

    @abc.abstractmethod
    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        """Return a random value that a search may start at."""

    @abc.abstractmethod
    def remarks(
        self, name: str, labels: list[str], values: np.ndarray, starts: np.ndarray, errors: np.ndarray
    ) -> list[str]:
        """Return remarks on estimates, with their labels and standard errors, at the edge of the range.

        `values`, `starts`, `errors` have the shape of the parameter of this name, or are flat if it is a module.
        """


class AbstractElementwiseRange(AbstractRange):
    """A range whose map takes each number by itself."""

    @abc.abstractmethod
    def remark(self, value: float, start: float, error: float) -> str:
        """Return a remark on one estimate, with its standard error, at the edge of its range; "" elsewhere."""

    def slopes(self, u: Array, start: Array) -> Array:
        return jax.jvp(lambda u: self.physical(u, start), (u,), (jnp.ones_like(u),))[1]

    def moved(self, value: Array, change: Array, start: Array) -> Array:
        u = self.unconstrained(value, start)
        step = jnp.where(change == 0, 0.0, change / self.slopes(u, start))
        return self.physical(jnp.clip(u + step, *self.bounds(start)), start)

    def remarks(
        self, name: str, labels: list[str], values: np.ndarray, starts: np.ndarray, errors: np.ndarray
    ) -> list[str]:
        each = jax.tree.map(lambda x: np.broadcast_to(x, values.shape).ravel(), self)  # bounds may be arrays
        numbers = zip(labels, values.ravel(), starts.ravel(), errors.ravel(), strict=True)
        texts = []
        for k, (label, *number) in enumerate(numbers):
            text = jax.tree.map(lambda x, k=k: x[k], each).remark(*map(float, number))
            texts += [f"{label} {text}"] * bool(text)
        if len(texts) <= LISTED:
            return texts
        return [f"{len(texts)} of {len(labels)} numbers of {name} lie at the edge of their range"]


class Unbounded(AbstractElementwiseRange):
    """All real values, scaled so that the optimiser works with numbers near one: by `scale`, in the parameter's unit,
    or by the starting value if no scale is given, or by one if that is zero."""

    scale: Array | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)

    def __check_init__(self) -> None:
        if self.scale is not None:
            check_some("Unbounded", "scale", self.scale)
            check_number("Unbounded", "scale", self.scale, "the parameter's unit")

    def physical(self, u: Array, start: Array) -> Array:
        return u * self._scale(start)

    def unconstrained(self, value: Array, start: Array) -> Array:
        return value / self._scale(start)

    def bounds(self, start: Array) -> tuple[Array, Array]:
        return everything(start)

    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        one = 1.0 if self.scale is None else float(self.scale)
        return start + WIDTH * np.where(start == 0, one, np.abs(start)) * draws.standard_normal(start.shape)

    def _scale(self, start: Array | np.ndarray) -> Array:
        if self.scale is not None:
            return jnp.asarray(self.scale, jnp.result_type(start))
        size = jnp.max(jnp.abs(start), initial=0.0)
        return jnp.where(size > 0, size, 1.0)

    def contains(self, value: np.ndarray) -> bool:
        return bool(np.isfinite(value).all())

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.maximum(np.abs(value), np.asarray(self._scale(jnp.asarray(start))))

    def remark(self, value: float, start: float, error: float) -> str:
        return ""


class Positive(AbstractElementwiseRange):
    """Positive values, `p = exp(u)`."""

    def physical(self, u: Array, start: Array) -> Array:
        return jnp.exp(u)

    def unconstrained(self, value: Array, start: Array) -> Array:
        return jnp.log(value)

    def bounds(self, start: Array) -> tuple[Array, Array]:
        return everything(start)

    def contains(self, value: np.ndarray) -> bool:
        return bool((np.isfinite(value) & (value > 0)).all())

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.maximum(value, _FALLEN * start)  # an estimate that runs to zero is no unit

    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        return start * np.exp(WIDTH * draws.standard_normal(start.shape))

    def remark(self, value: float, start: float, error: float) -> str:
        is_undetermined = value < _FALLEN * start and error >= value
        if is_undetermined or value < _VANISHED * start:
            return f"runs to zero, the end of its range (from {start:.3g} to {value:.3g})"
        return f"runs to infinity (from {start:.3g} to {value:.3g})" if value * _VANISHED > start else ""


class AbstractInterval(AbstractElementwiseRange):
    """Values between two bounds."""

    lower: eqx.AbstractVar[Array]
    upper: eqx.AbstractVar[Array]

    def __check_init__(self) -> None:
        name = type(self).__name__
        for field in ("lower", "upper"):
            check_some(name, field, getattr(self, field))
        if is_concrete(self.lower, self.upper) and not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise MechanismError(f"{name}: lower must be below upper, got {self.lower} and {self.upper}.")

    def __repr__(self) -> str:
        return readable(self, lambda: f"{type(self).__name__}({self.lower:g}, {self.upper:g})", lower=0, upper=0)

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.upper - self.lower), np.shape(value))

    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        return lower + (upper - lower) * draws.uniform(size=start.shape)

    def share(self, value: Array) -> Array:
        """Return where a value lies: 0 at the lower bound, 1 at the upper one."""
        return (value - self.lower) / (self.upper - self.lower)

    def remark(self, value: float, start: float, error: float) -> str:
        lower, upper = float(self.lower), float(self.upper)
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
        return everything(start)

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


def everything(start: Array) -> tuple[Array, Array]:
    """Return the bounds of numbers that have none."""
    return jnp.full_like(start, -jnp.inf), jnp.full_like(start, jnp.inf)
