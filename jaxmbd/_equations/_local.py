"""What one part's law gives on the bodies it touches: rows, their derivatives, efforts.

`poses (markers, pose)` and `twists (markers, twist)` are those of the bodies at the part's markers.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._joint import AbstractNonholonomic
from jaxmbd._space import AbstractSpace
from jaxmbd._types import Scalar

Poses = Float[Array, "markers pose"]
Twists = Float[Array, "markers twist"]


def frames_of(law: Any, poses: Poses) -> tuple[Any, ...]:
    """The world frames of a law's markers."""
    return tuple(marker.frame(pose) for marker, pose in zip(law.markers, poses, strict=True))


def rates_of(space: AbstractSpace, law: Any, poses: Poses, twists: Twists) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The frames and their velocities."""
    still = jnp.zeros(twists.shape[1:], twists.dtype)

    def moved(s: Array) -> tuple[Any, ...]:
        return frames_of(law, jnp.stack([space.retract(p, s * v + still) for p, v in zip(poses, twists, strict=True)]))

    zero = jnp.zeros((), twists.dtype)
    frames, changes = jax.jvp(moved, (zero,), (jnp.ones_like(zero),))
    return frames, tuple(space.frame_rate(f, d) for f, d in zip(frames, changes, strict=True))


class Rows:
    """The rows of one joint: those of `Φ`, and below them those that constrain velocities alone, `Ψ`."""

    def __init__(self, space: AbstractSpace, law: Any, t: Scalar, poses: Poses) -> None:
        self.space, self.law, self.t, self.poses = space, law, t, poses
        self.rolling = isinstance(law, AbstractNonholonomic)

    def position(self) -> Float[Array, " rows"]:
        """`Φ`, and zeros for the rows of `Ψ`."""
        phi = self.law.residual(self.t, frames_of(self.law, self.poses))
        if not self.rolling:
            return phi
        extra = jax.eval_shape(lambda: self._slip(jnp.zeros_like(self.t), *self._still()))
        return jnp.concatenate([phi, jnp.zeros(extra.shape, phi.dtype)])

    def jacobian(self) -> Float[Array, "rows markers twist"]:
        """`C`: of `Φ` along `retract`, of `Ψ` along the twists."""
        zero, still = jnp.zeros_like(self.t), self._still()[0]
        C = jax.jacfwd(self._phi)(still, zero)
        return jnp.concatenate([C, jax.jacfwd(self._slip, 1)(zero, still, still)]) if self.rolling else C

    def velocity(self, twists: Twists) -> Float[Array, " rows"]:
        """`Φ̇ = C v + Φ_t`, and `Ψ`."""
        phi = taylor(lambda s: self._phi(s * twists, s), self.t, 1)
        return jnp.concatenate([phi, self._slip(jnp.zeros_like(self.t), twists, twists)]) if self.rolling else phi

    def gamma(self, twists: Twists) -> Float[Array, " rows"]:
        """What `C v̇` has to be: minus the rows' second (of `Ψ`, first) time derivative at constant `v`."""
        phi = taylor(lambda s: self._phi(s * twists, s), self.t, 2)
        if self.rolling:
            phi = jnp.concatenate([phi, taylor(lambda s: self._slip(s, twists, twists), self.t, 1)])
        return -phi

    def load_rate(self, twists: Twists, eta: Float[Array, " rows"]) -> Twists:
        """`Ċᵀ η` on the part's bodies."""
        zero, still = jnp.zeros_like(self.t), self._still()[0]
        count = jax.eval_shape(self._phi, still, zero).shape[0]
        load = jax.grad(lambda step, s: jnp.dot(eta[:count], self._phi(step, s)))
        rate = jax.jvp(load, (still, zero), (twists, jnp.ones_like(zero)))[1]
        if not self.rolling:
            return rate
        slipping = jax.grad(lambda v, s: jnp.dot(eta[count:], self._slip(s, v, twists)))
        return rate + jax.jvp(lambda s: slipping(twists, s), (zero,), (jnp.ones_like(zero),))[1]

    def _still(self) -> tuple[Twists, Twists]:
        still = jnp.zeros((self.poses.shape[0], len(self.space.speeds)), self.poses.dtype)
        return still, still

    def _moved(self, step: Twists) -> Poses:
        return jnp.stack([self.space.retract(pose, d) for pose, d in zip(self.poses, step, strict=True)])

    def _phi(self, step: Twists, s: Scalar) -> Array:
        """`Φ(retract(q, step), t + s)`."""
        return self.law.residual(self.t + s, frames_of(self.law, self._moved(step)))

    def _slip(self, s: Scalar, v: Twists, along: Twists) -> Array:
        """`Ψ` at the speeds `v`, a time `s` along the motion with speeds `along`."""
        frames, rates = rates_of(self.space, self.law, self._moved(s * along), v)
        return self.law.slip(self.t + s, frames, rates)


def wrenches(space: AbstractSpace, t: Scalar, law: Any, poses: Poses, twists: Twists) -> Twists:
    """The efforts of one force on the bodies it acts on."""
    frames, rates = rates_of(space, law, poses, twists)
    applied = law.wrenches(t, frames, rates)
    return jnp.stack([space.to_centre(p, f.position, w) for p, f, w in zip(poses, frames, applied, strict=True)])


def efforts_along(space: AbstractSpace, t: Scalar, part: Any, poses: Poses, twists: Twists) -> Twists:
    """The efforts of a force along a coordinate: `∂c/∂v` times the force."""

    def coordinate(step: Array) -> Array:
        moved = jnp.stack([space.retract(pose, d) for pose, d in zip(poses, step, strict=True)])
        return part.coordinate.value(frames_of(part, moved))

    value, slope = jax.value_and_grad(coordinate)(jnp.zeros_like(twists))
    return slope * part.law.effort(t, value, jnp.sum(slope * twists))


def taylor(f: Callable[[Array], Any], t: Scalar, order: int) -> Any:
    """The derivative of `f(s)` of the given order at `s = 0`, by nested forward mode."""
    for _ in range(order):
        f = _differentiated(f)
    return f(jnp.zeros_like(t))


def taylor_pair(f: Callable[[Array], Any], t: Scalar) -> tuple[Any, Any]:
    """`f(s)` and its derivative at `s = 0`."""
    zero = jnp.zeros_like(t)
    return jax.jvp(f, (zero,), (jnp.ones_like(zero),))


def _differentiated(f: Callable[[Array], Any]) -> Callable[[Array], Any]:
    return lambda s: jax.jvp(f, (s,), (jnp.ones_like(s),))[1]
