"""Small products that the compiler can fuse, differentiable at singular points; spatial velocities and wrenches.

A *rate* is the velocity of one point and the angular velocity, in world axes. Rates at a common point add: the rate of
a body is the sum of the joint rates on its path to the ground. The world's origin is the common point of all bodies. A
*wrench* is a force and the moment about one point, in world axes. The functions hold in both spaces.

Source of rates and wrenches: Featherstone, *Rigid Body Dynamics Algorithms* (2008), §2, with the linear part first.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar

_LEVI_CIVITA = np.zeros((3, 3, 3))  # −ε by row, column and component
_LEVI_CIVITA[[0, 1, 2], [1, 2, 0], [2, 0, 1]] = -1.0
_LEVI_CIVITA[[1, 2, 0], [0, 1, 2], [2, 0, 1]] = 1.0


def safe_norm(x: Float[Array, " n"]) -> Scalar:
    """Euclidean length of `x`, with derivative zero (not NaN) at `x = 0`.

    >>> print(mbd.extend.safe_norm(jnp.array([3.0, 4.0])))
    5.0
    """
    square = jnp.sum(x * x)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def direction(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Unit vector along `x`; the zero vector if `x = 0`.

    >>> print(mbd.extend.direction(jnp.array([3.0, 4.0])))
    [0.6 0.8]
    """
    length = safe_norm(x)
    return x / jnp.where(length > 0, length, 1.0)


def dot(a: Float[Array, " n"], b: Float[Array, " n"]) -> Scalar:
    """Inner product of short vectors as a sum, which the compiler can fuse, unlike `jnp.dot`.

    >>> print(mbd.extend.dot(jnp.array([3.0, 4.0]), jnp.array([1.0, 2.0])))
    11.0
    """
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
    (a_next, a_last), (b_next, b_last) = _turned(a), _turned(b)
    return a_next * b_last - a_last * b_next


def _turned(v: Float[Array, "3"]) -> tuple[Array, Array]:
    """The components `(y, z, x)` and `(z, x, y)`."""
    twice = jnp.concatenate([v, v])
    return twice[1:4], twice[2:5]


def skew(v: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The skew-symmetric matrix `ṽ` of the cross product, `ṽ r = v × r`."""
    return jnp.sum(_LEVI_CIVITA.astype(v.dtype) * v[None, None, :], axis=-1)


def nearest_turn(angle: Float[Array, "*n"], near: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`angle` [rad] plus the number of whole turns that brings it nearest to `near`; derivative as of `angle`."""
    return angle + 2 * jnp.pi * jnp.round((near - angle) / (2 * jnp.pi))


def swept(angular: Float[Array, "..."], arm: Float[Array, " n"]) -> Float[Array, " n"]:
    """`ω × r`: velocity of a point at `arm` due to an angular velocity, in the plane or in space."""
    return angular * jnp.stack([-arm[1], arm[0]]) if arm.shape == (2,) else cross(angular, arm)


Rate = Float[Array, " twist"]


def shift_velocity(rate: Rate, arm: Float[Array, " dim"]) -> Rate:
    """The rate of the same motion at a point displaced by `arm`: `v + ω × r`, `ω`."""
    linear, angular = split(rate)
    return jnp.concatenate([linear + swept(angular, arm), angular])


def motion_cross(by: Rate, rate: Rate) -> Rate:
    """The motion cross product `by × rate`: time derivative of a rate that is fixed in a body moving with `by`."""
    v, omega = split(by)
    u, w = split(rate)
    angular = jnp.zeros_like(w) if w.shape == (1,) else cross(omega, w)
    return jnp.concatenate([swept(omega, u) - swept(w, v), angular])


def shift_wrench(wrench: Rate, arm: Float[Array, " dim"]) -> Rate:
    """The same wrench with its moment about a point displaced by `arm`: `m − r × f`."""
    force, moment = split(wrench)
    return jnp.concatenate([force, moment - jnp.atleast_1d(cross(arm, force))])


def split(rate: Rate) -> tuple[Array, Array]:
    """Split a rate or wrench into its linear and angular parts."""
    linear, angular = jnp.split(rate, [2 if rate.shape[0] == 3 else 3])
    return linear, angular
