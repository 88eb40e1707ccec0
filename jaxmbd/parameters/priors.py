"""Prior distributions of parameters: what is known of them before the measurements.

A prior adds a residual for each number, `r = (g(p) − g(p₀)) / σ`, to those of the measurements; the density of the
parameter is `exp(−½ r²)` times what makes its integral one.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import as_float, is_concrete
from jaxmbd.checks import check_number, check_some
from jaxmbd.errors import MechanismError


class AbstractPrior(eqx.Module):
    """The distribution of a parameter before the measurements."""

    @abc.abstractmethod
    def residual(self, value: Array) -> Array:
        """Return the deviation from the centre in standard deviations."""

    @abc.abstractmethod
    def log_density(self, value: Array) -> Array:
        """Return the logarithm of the probability density of each number."""

    @abc.abstractmethod
    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        """Return a value drawn from the distribution, of the shape of a starting value."""


class Normal(AbstractPrior):
    """A normal distribution with a mean and a standard deviation, both in the parameter's unit."""

    mean: Array = eqx.field(converter=as_float)
    deviation: Array = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        _check("Normal", mean=self.mean, deviation=self.deviation)

    def residual(self, value: Array) -> Array:
        return (value - self.mean) / self.deviation

    def log_density(self, value: Array) -> Array:
        return standard(self.residual(value)) - jnp.log(self.deviation)

    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        return np.asarray(self.mean) + np.asarray(self.deviation) * draws.standard_normal(start.shape)


class LogNormal(AbstractPrior):
    """A log-normal distribution: `log p` is normal about `log median`.

    `deviation` is the standard deviation of `log p`: 0.1 means that the parameter is known to about 10 %.
    """

    median: Array = eqx.field(converter=as_float)
    deviation: Array = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        _check("LogNormal", median=self.median, deviation=self.deviation)
        check_number("LogNormal", "median", self.median, "the parameter's unit")

    def residual(self, value: Array) -> Array:
        inside = value > 0  # a trial value may be negative: the residual is then infinite, and the trial rejected
        return jnp.where(inside, jnp.log(jnp.where(inside, value, 1.0) / self.median) / self.deviation, jnp.inf)

    def log_density(self, value: Array) -> Array:
        inside = value > 0
        normaliser = jnp.log(jnp.where(inside, value, 1.0) * self.deviation)
        return jnp.where(inside, standard(self.residual(value)) - normaliser, -jnp.inf)

    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        return np.asarray(self.median) * np.exp(np.asarray(self.deviation) * draws.standard_normal(start.shape))


def standard(residual: Array) -> Array:
    """Return the logarithm of the standard normal density."""
    return -0.5 * residual**2 - 0.5 * np.log(2 * np.pi)


def _check(name: str, **numbers: Array) -> None:
    for field, value in numbers.items():
        check_some(name, field, value)
    deviation = numbers["deviation"]
    if is_concrete(deviation) and not (np.asarray(deviation) > 0).all():
        raise MechanismError(f"{name}: deviation must be positive, got {deviation}.")
