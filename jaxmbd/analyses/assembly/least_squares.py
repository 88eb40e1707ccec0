"""Nonlinear least squares for small residuals that may have no root, one search or many side by side.

Levenberg's and Marquardt's method: the step `d` solves `(Jᵀ J + μ I) d = −Jᵀ r`, and the damping `μ` follows the ratio
of the actual to the predicted reduction of `½ rᵀ r`. Under `vmap` all searches take as many steps as the longest one,
so a search ends also where the residual cannot be reduced any more: where it is orthogonal to the columns of `J`.
That needs some thirty steps, those to a root some ten.

Source: Madsen, Nielsen, Tingleff, *Methods for Non-Linear Least Squares Problems* (2004), §3.2.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.arrays import Scalar

_STEPS = 256
_FIRST_DAMPING = 0.3  # like the limits below, relative to the largest entry of the diagonal of Jᵀ J
_LEAST_DAMPING = 1e2  # in units of rounding: Jᵀ J is singular where a coordinate or a constraint row is redundant
_LARGEST_DAMPING = 1e16  # then no step, however short, reduces the sum of squares
_ORTHOGONAL = 1e-6  # |Jᵀ r| / (|J| |r|) below which a residual counts as orthogonal to the columns of J
_ROUNDING = 1e3  # length of the last step, in units of rounding

Residual = Callable[[Array, Any], Array]


class _Search(eqx.Module):
    """A point with its residual and Jacobian, the damping and its growth at the next rejected step, and the course."""

    x: Float[Array, " n"]
    r: Float[Array, " rows"]
    J: Float[Array, "rows n"]
    damping: Scalar
    growth: Scalar
    steps: Int[Array, ""]
    ended: Bool[Array, ""]

    @property
    def cost(self) -> Scalar:
        return 0.5 * self.r @ self.r


def least_squares(residual: Residual, start: Float[Array, " n"], args: Any) -> Float[Array, " n"]:
    """Return a minimiser near a start of `½ rᵀ r` with `r = residual(x, args)`, a root or not.

    The minimiser of a sum of squares that is not zero is found to some 1e-6 of the distance from the start.
    """
    rounding = float(jnp.finfo(start.dtype).eps)

    def linearised(x: Array) -> tuple[Array, Array]:
        def twice(x: Array) -> tuple[Array, Array]:
            r = residual(x, args)
            return r, r

        J, r = jax.jacfwd(twice, has_aux=True)(x)
        return r, J

    def step(at: _Search) -> _Search:
        g, A = at.J.T @ at.r, at.J.T @ at.J
        scale = jnp.max(jnp.diagonal(A))
        mu = scale * jnp.maximum(at.damping, _LEAST_DAMPING * rounding)
        L = jnp.linalg.cholesky(A + mu * jnp.eye(len(g), dtype=g.dtype))
        d = -jax.scipy.linalg.cho_solve((L, True), g)
        x = at.x + d
        r, J = linearised(x)
        reduction, predicted = at.cost - 0.5 * r @ r, 0.5 * d @ (mu * d - g)
        accepted = (reduction > 0) & jnp.all(jnp.isfinite(J))  # false for NaN
        ratio = reduction / predicted
        shrunk = at.damping * jnp.maximum(1 / 3, 1 - (2 * ratio - 1) ** 3)
        x, r, J = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), (x, r, J), (at.x, at.r, at.J))
        damping, growth = jnp.where(accepted, shrunk, at.damping * at.growth), jnp.where(accepted, 2.0, 2 * at.growth)
        is_short = jnp.max(jnp.abs(d)) <= _ROUNDING * rounding * (1 + jnp.max(jnp.abs(x)))
        ended = is_short | _is_stationary(r, J) | (damping > _LARGEST_DAMPING)
        return _Search(x, r, J, damping, growth.astype(damping.dtype), at.steps + 1, ended)

    if not start.size:
        return start
    r, J = linearised(start)
    one = jnp.ones((), start.dtype)
    begin = _Search(start, r, J, _FIRST_DAMPING * one, 2 * one, jnp.zeros((), int), _is_stationary(r, J))
    return jax.lax.while_loop(lambda at: ~at.ended & (at.steps < _STEPS), step, begin).x


def _is_stationary(r: Array, J: Array) -> Bool[Array, ""]:
    """Return True if the residual is orthogonal to the columns of `J`, zero, or not finite."""
    return ~(jnp.linalg.norm(J.T @ r) > _ORTHOGONAL * jnp.linalg.norm(J) * jnp.linalg.norm(r))
