"""Functions and classes of a user's own, in a module that can be imported."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd import planar as pl
from jaxmbd.arrays import as_float


def pull(t: Array, coordinate: Array, rate: Array, parameters: Any) -> Array:
    """A force that takes any parameters."""
    return -coordinate + 0 * t


def feedback(t: Array, u: Array, parameters: Any) -> Array:
    """A controller."""
    return -parameters * u[0] - 0.1 * u[1]


def observed(t: Array, u: Array, x: Array, parameters: Any) -> Array:
    """What a controller with states gives."""
    return x[0] - x[1]


def observer(t: Array, u: Array, x: Array, parameters: Any) -> Array:
    """The rates of its states."""
    return u[0] - x


def sampled(t: Array, u: Array, x: Array, parameters: Any) -> tuple[Array, Array]:
    """A sampled controller with two outputs."""
    return jnp.stack([u[0], x[0]]), 0.5 * x


def wave(t: Array) -> Array:
    """A place that moves."""
    return jnp.stack([0.1 * jnp.sin(t), 0.0 * t])


def twice(t: Array, q: Array, p: Array, parameters: Any) -> Array:
    """Generalized speeds that are half of the usual ones."""
    return parameters * p


class Tie(pl.AbstractForce):
    """A linear spring, with a converter and a default."""

    name: str = eqx.field(static=True)
    a: pl.Marker
    b: pl.Marker
    stiffness: Array = eqx.field(converter=as_float, default=5.0)
    order: int = eqx.field(static=True, default=1)

    @property
    def markers(self) -> tuple[pl.Marker, ...]:
        return (self.a, self.b)

    def wrenches(self, t: Array, frames: Sequence[Any], rates: Sequence[Any]) -> Array:
        f = self.stiffness * (frames[1].position - frames[0].position)
        return jnp.stack([jnp.append(f, 0.0), jnp.append(-f, 0.0)])

    def potential(self, t: Array, frames: Sequence[Any]) -> Array:
        return 0.5 * self.stiffness * jnp.sum((frames[1].position - frames[0].position) ** 2)


class Doubled(eqx.Module):
    """A motion whose constructor stores something else than it takes."""

    rate: Array

    def __init__(self, rate: Any) -> None:
        self.rate = 2 * as_float(rate)

    def __call__(self, t: Array) -> Array:
        return self.rate * t
