"""Spatial velocities and wrenches. A *rate* is the velocity of one point and the angular velocity, in world axes.

Rates at a common point add: the rate of a body is the sum of the joint rates on its path to the ground. The world's
origin is the common point of all bodies. The functions hold in both spaces. A *wrench* is a force and the moment about
one point, in world axes.

Source: Featherstone, *Rigid Body Dynamics Algorithms* (2008), §2, with the linear part first.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.space.vectors import cross, swept

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
    dim = 2 if rate.shape[0] == 3 else 3
    return rate[:dim], rate[dim:]
