"""Small functions that stay differentiable where the textbook formula does not."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._types import Scalar


def safe_norm(x: Float[Array, " n"]) -> Scalar:
    """Euclidean length of `x`, with derivative zero (not NaN) at `x = 0`."""
    square = jnp.sum(x * x)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def direction(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Unit vector along `x`; the zero vector where `x = 0`, which has no direction."""
    length = safe_norm(x)
    return x / jnp.where(length > 0, length, 1.0)


def cross(a: Float[Array, "2"], b: Float[Array, "2"]) -> Scalar:
    """Out-of-plane component of the cross product of two vectors in the plane."""
    return a[0] * b[1] - a[1] * b[0]


def smooth_sign(x: Scalar, width: Scalar) -> Scalar:
    """`tanh(x / width)`: the sign of `x`, smooth over a band of the given width."""
    return jnp.tanh(x / width)
