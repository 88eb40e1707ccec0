"""Nonlinear least squares for small residuals that may have no root, one search or many side by side.

Levenberg's and Marquardt's method: the step `d` solves `(Jᵀ J + μ I) d = −Jᵀ r`, and the damping `μ` follows the ratio
of the actual to the predicted reduction of `½ rᵀ r`. Under `vmap` all searches take as many steps as the longest one,
so a search ends also where the residual cannot be reduced any more: where it is orthogonal to the columns of `J`.
That needs some thirty steps, those to a root some ten.

Source: Madsen, Nielsen, Tingleff, *Methods for Non-Linear Least Squares Problems* (2004), §3.2.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.engine import as_program, choice, is_program, prefers_programs
from jaxmbd.numerics.linear_solve import spd_solver

_STEPS = 256
_FIRST_DAMPING = 0.3  # like the limits below, relative to the largest entry of the diagonal of Jᵀ J
_LEAST_DAMPING = 1e2  # in units of rounding: Jᵀ J is singular where a coordinate or a constraint row is redundant
_LARGEST_DAMPING = 1e16  # then no step, however short, reduces the sum of squares
_ORTHOGONAL = 1e-6  # |Jᵀ r| / (|J| |r|) below which a residual counts as orthogonal to the columns of J
_ROUNDING = 1e3  # length of the last step, in units of rounding

Residual = Callable[[Array, Any], Array]


class _Search(eqx.Module):
    """A point with its residual and Jacobian, the damping and its growth at the next rejected step, and the end."""

    x: Float[Array, " n"]
    r: Float[Array, " rows"]
    J: Float[Array, "rows n"]
    damping: Scalar
    growth: Scalar
    ended: Bool[Array, ""]

    @property
    def cost(self) -> Scalar:
        return 0.5 * self.r @ self.r


def least_squares(
    residual: Residual, start: Float[Array, " n"], args: Any, arithmetic: Residual | None = None
) -> Float[Array, " n"]:  # fmt: skip
    """Return a minimiser near a start of `½ rᵀ r` with `r = residual(x, args)`, a root or not.

    The minimiser of a sum of squares that is not zero is found to some 1e-6 of the distance from the start.
    `arithmetic`: the same residual as a function of a module that calls no program; with few unknowns a whole step is
    then one program.
    """
    if not start.size:
        return start
    one = jnp.ones((), start.dtype)
    begin = start, _FIRST_DAMPING * one, 2 * one
    is_small = start.size <= choice.SMALL_UNKNOWNS and prefers_programs()
    step = _step_of(arithmetic) if is_small and arithmetic is not None else None
    if step is not None and is_program(step, *begin, args):
        program, first = as_program(step), (*begin, jnp.zeros((), bool))
        return _searched(lambda at: program(*at[:-1], args), first, lambda at: at[-1])[0]
    return _searched(lambda at: _improved(residual, at, args), _begun(residual, *begin, args), lambda at: at.ended).x


def _searched(step: Callable[[Any], Any], begin: Any, ended: Callable[[Any], Array]) -> Any:
    """Take steps until the search has ended, or so many are taken."""
    unfinished = lambda carry: ~ended(carry[0]) & (carry[1] < _STEPS)  # noqa: E731
    return jax.lax.while_loop(unfinished, lambda carry: (step(carry[0]), carry[1] + 1), (begin, jnp.zeros((), int)))[0]


@lru_cache(maxsize=64)
def _step_of(residual: Residual) -> Callable[..., Any]:
    """A step that remembers no Jacobian: its structural zeros are known where it is computed."""

    def step(x: Array, damping: Array, growth: Array, args: Any) -> tuple[Array, ...]:
        at = _improved(residual, _begun(residual, x, damping, growth, args), args)
        return at.x, at.damping, at.growth, at.ended

    return step


def with_jacobian(residual: Residual, x: Float[Array, " n"], args: Any) -> tuple[Array, Array]:
    """Return a residual and its Jacobian, by one evaluation in forward mode."""

    def twice(x: Array) -> tuple[Array, Array]:
        r = residual(x, args)
        return r, r

    J, r = jax.jacfwd(twice, has_aux=True)(x)
    return r, J


def _begun(residual: Residual, x: Array, damping: Array, growth: Array, args: Any) -> _Search:
    r, J = with_jacobian(residual, x, args)
    return _Search(x, r, J, damping, growth, _is_stationary(r, J))


def _improved(residual: Residual, at: _Search, args: Any) -> _Search:
    """Take one step, which is not accepted if it does not reduce the residual."""
    rounding = float(jnp.finfo(at.x.dtype).eps)
    g, A = at.J.T @ at.r, at.J.T @ at.J
    mu = jnp.max(jnp.diagonal(A)) * jnp.maximum(at.damping, _LEAST_DAMPING * rounding)
    d = -spd_solver(A + mu * jnp.eye(len(g), dtype=g.dtype))(g)
    x = at.x + d
    r, J = with_jacobian(residual, x, args)
    reduction, predicted = at.cost - 0.5 * r @ r, 0.5 * d @ (mu * d - g)
    accepted = (reduction > 0) & jnp.all(jnp.isfinite(J))  # false for NaN
    ratio = reduction / predicted
    shrunk = at.damping * jnp.maximum(1 / 3, 1 - (2 * ratio - 1) ** 3)
    x, r, J = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), (x, r, J), (at.x, at.r, at.J))
    damping, growth = jnp.where(accepted, shrunk, at.damping * at.growth), jnp.where(accepted, 2.0, 2 * at.growth)
    is_short = jnp.max(jnp.abs(d)) <= _ROUNDING * rounding * (1 + jnp.max(jnp.abs(x)))
    ended = is_short | _is_stationary(r, J) | (damping > _LARGEST_DAMPING)
    return _Search(x, r, J, damping, growth.astype(damping.dtype), ended)


def _is_stationary(r: Array, J: Array) -> Bool[Array, ""]:
    """Return True if the residual is orthogonal to the columns of `J`, zero, or not finite."""
    return ~(jnp.linalg.norm(J.T @ r) > _ORTHOGONAL * jnp.linalg.norm(J) * jnp.linalg.norm(r))
