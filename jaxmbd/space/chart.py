"""How the numbers that tell a position move with speeds: of a body, or of one joint.

`retract` moves them along speeds times a time, exactly to second order, so that derivatives along it are those along
the motion; `rate` is `q̇ = N(q) v`; `normalize` makes redundant numbers exact.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.space.rotation import multiply
from jaxmbd.space.vectors import dot

NORM_RATE = 10.0  # [1/s], at which a quaternion's norm returns to one; the motion does not feel it


class AbstractChart(eqx.Module):
    """Coordinates and the speeds that move them."""

    @abc.abstractmethod
    def retract(self, q: Array, step: Array) -> Array:
        """The coordinates reached from `q` along `step`, speeds times a time."""

    @abc.abstractmethod
    def rate(self, q: Array, v: Array) -> Array:
        """`q̇ = N(q) v`, with what keeps the coordinates' own constraint (a quaternion's norm)."""

    @abc.abstractmethod
    def normalize(self, q: Array) -> Array:
        """The same position with the coordinates' own constraint satisfied exactly."""


class VectorChart(AbstractChart):
    """Coordinates whose rates are the speeds: angles and displacements."""

    def retract(self, q: Float[Array, " n"], step: Float[Array, " n"]) -> Float[Array, " n"]:
        return q + step

    def rate(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        return v

    def normalize(self, q: Float[Array, " n"]) -> Float[Array, " n"]:
        return q


class QuaternionChart(AbstractChart):
    """Euler parameters and an angular velocity in the turned axes: `ė = ½ e ∘ (0, ω)`.

    Only the direction of the quaternion matters. `rate` draws its norm to one, `normalize` sets it. `retract` goes
    along `e ∘ (1, ½ θ)`, a Cayley map: it agrees with the exponential to second order, which is all that `C`, `Φ̇` and
    `γ` ask for, and needs no root.
    """

    def retract(self, q: Float[Array, "4"], step: Float[Array, "3"]) -> Float[Array, "4"]:
        return q + _spun(q, step)

    def rate(self, q: Float[Array, "4"], v: Float[Array, "3"]) -> Float[Array, "4"]:
        return _spun(q, v) + 0.5 * NORM_RATE * (1.0 - dot(q, q)) * q

    def normalize(self, q: Float[Array, "4"]) -> Float[Array, "4"]:
        return q / jnp.sqrt(dot(q, q))


def _spun(e: Float[Array, "4"], turn: Float[Array, "3"]) -> Float[Array, "4"]:
    """`½ e ∘ (0, θ)`, `θ` in body axes."""
    return 0.5 * multiply(e, jnp.concatenate([jnp.zeros_like(turn[:1]), turn]))


VECTOR, QUATERNION = VectorChart(), QuaternionChart()
