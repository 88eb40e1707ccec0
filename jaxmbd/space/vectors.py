"""Vector functions that are differentiable at singular points, and small products that the compiler can fuse."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar

_LEVI_CIVITA = np.zeros((3, 3, 3))  # −ε by row, column and component
_LEVI_CIVITA[[0, 1, 2], [1, 2, 0], [2, 0, 1]] = -1.0
_LEVI_CIVITA[[1, 2, 0], [0, 1, 2], [2, 0, 1]] = 1.0


def safe_norm(x: Float[Array, " n"]) -> Scalar:
    """Euclidean length of `x`, with derivative zero (not NaN) at `x = 0`."""
    square = jnp.sum(x * x)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def direction(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Unit vector along `x`; the zero vector if `x = 0`."""
    length = safe_norm(x)
    return x / jnp.where(length > 0, length, 1.0)


def dot(a: Float[Array, " n"], b: Float[Array, " n"]) -> Scalar:
    """Inner product of short vectors as a sum, which the compiler can fuse, unlike `jnp.dot`."""
    return jnp.sum(a * b)


def times(A: Float[Array, "n m"], b: Float[Array, "m *k"]) -> Float[Array, "n *k"]:
    """Product of a small matrix and a vector or matrix, as sums (see `dot`)."""
    if b.ndim == 1:
        return jnp.sum(A * b[None, :], axis=1)
    return jnp.sum(A[:, :, None] * b[None, :, :], axis=1)


def cross(a: Float[Array, " n"], b: Float[Array, " n"]) -> Float[Array, "..."]:
    """Cross product: a vector in space, the out-of-plane component (a scalar) in the plane."""
    if a.shape == (2,):
        return a[0] * b[1] - a[1] * b[0]
    return jnp.roll(a * jnp.roll(b, -1) - jnp.roll(a, -1) * b, -1)


def skew(v: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The skew-symmetric matrix `ṽ` of the cross product, `ṽ r = v × r`."""
    return jnp.sum(_LEVI_CIVITA.astype(v.dtype) * v[None, None, :], axis=-1)


def smooth_sign(x: Scalar, width: Scalar) -> Scalar:
    """`tanh(x / width)`: the sign of `x`, smoothed over `width`."""
    return jnp.tanh(x / width)


def nearest_turn(angle: Float[Array, "*n"], near: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`angle` [rad] plus the number of whole turns that brings it nearest to `near`; derivative as of `angle`."""
    return angle + 2 * jnp.pi * jnp.round((near - angle) / (2 * jnp.pi))


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


def swept(angular: Float[Array, "..."], arm: Float[Array, " n"]) -> Float[Array, " n"]:
    """`ω × r`: velocity of a point at `arm` due to an angular velocity, in the plane or in space."""
    return angular * jnp.stack([-arm[1], arm[0]]) if arm.shape == (2,) else cross(angular, arm)
