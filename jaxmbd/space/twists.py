"""Velocities of rigid bodies as fields: a *rate* is the velocity of one point and the angular velocity, world axes.

Rates at one point may be added: that of a body is the sum of those of the joints that carry it. The world's origin
serves as that point for all bodies. Written once for both spaces.

A *wrench* is the force and the moment about one point, likewise.

Source: Featherstone, *Rigid Body Dynamics Algorithms* (2008), §2, with the linear part first.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.space.vectors import cross, swept

Rate = Float[Array, " twist"]


def shift_velocity(rate: Rate, arm: Float[Array, " dim"]) -> Rate:
    """The rate of the same motion at a point that is `arm` away: `v + ω × r`, `ω`."""
    linear, angular = split(rate)
    return jnp.concatenate([linear + swept(angular, arm), angular])


def motion_cross(by: Rate, rate: Rate) -> Rate:
    """How a rate changes that is fixed in a body moving by another one (the motion cross product)."""
    v, omega = split(by)
    u, w = split(rate)
    turned = jnp.zeros_like(w) if w.shape == (1,) else cross(omega, w)
    return jnp.concatenate([swept(omega, u) - swept(w, v), turned])


def shift_wrench(wrench: Rate, arm: Float[Array, " dim"]) -> Rate:
    """The same load with its moment about a point that is `arm` away: `m − r × f`."""
    force, moment = split(wrench)
    return jnp.concatenate([force, moment - jnp.atleast_1d(cross(arm, force))])


def split(rate: Rate) -> tuple[Array, Array]:
    """The linear part of a rate or wrench and the angular one."""
    dim = 2 if rate.shape[0] == 3 else 3
    return rate[:dim], rate[dim:]
