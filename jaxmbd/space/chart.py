"""Charts: the kinematic differential equations `q̇ = N(q) v` of the coordinates of a body or of a joint.

`rate` is `N(q) v`. `retract` advances the coordinates by a step (speeds times a time), exactly to second order, so that
derivatives along it are those along the motion. `normalize` restores the constraint of redundant coordinates.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.space.rotation import multiply
from jaxmbd.space.vectors import dot

NORM_RATE = 10.0  # [1/s], decay rate of the error of a quaternion's norm; the norm does not affect the motion


class AbstractChart(eqx.Module):
    """The relation between coordinates and speeds."""

    @abc.abstractmethod
    def retract(self, q: Array, step: Array) -> Array:
        """The coordinates after a `step` (speeds times a time) from `q`."""

    @abc.abstractmethod
    def rate(self, q: Array, v: Array) -> Array:
        """`q̇ = N(q) v`, plus a stabilising term for the constraint of redundant coordinates (a quaternion's norm)."""

    @abc.abstractmethod
    def normalize(self, q: Array) -> Array:
        """The same configuration with the constraint of redundant coordinates satisfied exactly."""


class VectorChart(AbstractChart):
    """Coordinates whose rates are the speeds: angles and displacements."""

    def retract(self, q: Float[Array, " n"], step: Float[Array, " n"]) -> Float[Array, " n"]:
        return q + step

    def rate(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        return v

    def normalize(self, q: Float[Array, " n"]) -> Float[Array, " n"]:
        return q


class QuaternionChart(AbstractChart):
    """Euler parameters with the angular velocity in body axes: `ė = ½ e ∘ (0, ω)`.

    Only the direction of the quaternion matters. `rate` drives its norm to one, `normalize` sets it. `retract` is
    `e ∘ (1, ½ θ)`, a Cayley map: it agrees with the exponential map to second order, which suffices for `C`, `Φ̇` and
    `γ`, and needs no square root.
    """

    def retract(self, q: Float[Array, "4"], step: Float[Array, "3"]) -> Float[Array, "4"]:
        return q + _half_product(q, step)

    def rate(self, q: Float[Array, "4"], v: Float[Array, "3"]) -> Float[Array, "4"]:
        return _half_product(q, v) + 0.5 * NORM_RATE * (1.0 - dot(q, q)) * q

    def normalize(self, q: Float[Array, "4"]) -> Float[Array, "4"]:
        return q / jnp.sqrt(dot(q, q))


def _half_product(e: Float[Array, "4"], turn: Float[Array, "3"]) -> Float[Array, "4"]:
    """`½ e ∘ (0, θ)`, `θ` in body axes."""
    return 0.5 * multiply(e, jnp.concatenate([jnp.zeros_like(turn[:1]), turn]))


VECTOR, QUATERNION = VectorChart(), QuaternionChart()
