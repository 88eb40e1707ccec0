"""Nonlinear least squares, compiled: small dense problems, one or many side by side.

`least_squares` is for small residuals that may have no root. Under `vmap` all searches take as many steps as the
longest one, so a search ends also where the residual cannot be reduced any more: where it is orthogonal to the columns
of `J`. That needs some thirty steps, those to a root some ten. `bounded_least_squares.py` judges its steps alike,
within bounds, and lets searches that get no better leave the batch.

Source: Madsen, Nielsen, Tingleff, *Methods for Non-Linear Least Squares Problems* (2004), §3.2.
"""

from collections.abc import Callable
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxmbd.arrays import Scalar
from jaxmbd.engine import as_program, choice, is_program, prefers_programs
from jaxmbd.numerics.levenberg_marquardt import GROWTH, LARGEST_DAMPING, judged
from jaxmbd.numerics.linear_solve import spd_solver

_STEPS = 256
_FIRST_DAMPING = 0.3  # like the limits below, relative to the largest entry of the diagonal of Jᵀ J
_LEAST_DAMPING = 1e2  # in units of rounding: Jᵀ J is singular where a coordinate or a constraint row is redundant
_ORTHOGONAL = 1e-6  # |Jᵀ r| / (|J| |r|) below which a residual counts as orthogonal to the columns of J
_ROUNDING = 1e3  # length of the last step, in units of rounding

Residual = Callable[[Array, PyTree], Array]


class Point(eqx.Module):
    """Where a search is: its residual and Jacobian, the damping and its growth at the next rejected step."""

    x: Float[Array, " n"]
    r: Float[Array, " rows"]
    J: Float[Array, "rows n"]
    damping: Scalar
    growth: Scalar

    @property
    def cost(self) -> Scalar:
        """Half the sum of squares; infinite where it is not finite, so that any finite one is less."""
        cost = 0.5 * self.r @ self.r
        return jnp.where(jnp.isfinite(cost), cost, jnp.inf)


def least_squares(
    residual: Residual, start: Float[Array, " n"], args: PyTree, arithmetic: Residual | None = None
) -> Float[Array, " n"]:  # fmt: skip
    """Return a minimiser near a start of `½ rᵀ r` with `r = residual(x, args)`, a root or not.

    The minimiser of a sum of squares that is not zero is found to some 1e-6 of the distance from the start.
    `arithmetic`: the same residual as a function of a module that calls no program; with few unknowns a whole step is
    then one program.
    """
    if not start.size:
        return start
    one = jnp.ones((), start.dtype)
    begin = start, _FIRST_DAMPING * one, GROWTH * one
    is_small = start.size <= choice.SMALL_UNKNOWNS and prefers_programs()
    step = _step_of(arithmetic) if is_small and arithmetic is not None else None
    if step is not None and is_program(step, *begin, args):
        program = as_program(step)
        return _searched(lambda at: program(*at[:-1], args), (*begin, jnp.zeros((), bool)))[0]
    at = begun(residual, *begin, args)
    return _searched(lambda at: _improved(residual, at[0], args), (at, _is_stationary(at)))[0].x


def _searched(step: Callable[[PyTree], PyTree], begin: PyTree) -> PyTree:
    """Take steps until the search has ended, as the last entry of what they return says, or so many are taken."""
    unfinished = lambda carry: ~carry[0][-1] & (carry[1] < _STEPS)  # noqa: E731
    return jax.lax.while_loop(unfinished, lambda carry: (step(carry[0]), carry[1] + 1), (begin, jnp.zeros((), int)))[0]


@lru_cache(maxsize=64)
def _step_of(residual: Residual) -> Callable[..., tuple[Array, ...]]:
    """A step that remembers no Jacobian: its structural zeros are known where it is computed."""

    def step(x: Array, damping: Array, growth: Array, args: PyTree) -> tuple[Array, ...]:
        at, ended = _improved(residual, begun(residual, x, damping, growth, args), args)
        return at.x, at.damping, at.growth, ended

    return step


def with_jacobian(residual: Residual, x: Float[Array, " n"], args: PyTree) -> tuple[Array, Array]:
    """Return a residual and its Jacobian, by one evaluation in forward mode."""

    def twice(x: Array) -> tuple[Array, Array]:
        r = residual(x, args)
        return r, r

    J, r = jax.jacfwd(twice, has_aux=True)(x)
    return r, J


def begun(residual: Residual, x: Array, damping: Array, growth: Array, args: PyTree) -> Point:
    """Return a search at a point."""
    return Point(x, *with_jacobian(residual, x, args), damping, growth)


def better(at: Point, there: Point, predicted: Scalar) -> Point:
    """Return where a search is after a trial step: `there` if it is accepted.

    `predicted`: the reduction of `½ |r|²` if the residual were linear.
    """
    is_known = jnp.all(jnp.isfinite(there.J))
    accepted, damping, growth = judged(at.damping, at.growth, at.cost - there.cost, predicted, is_known)
    x, r, J = (jnp.where(accepted, getattr(there, name), getattr(at, name)) for name in ("x", "r", "J"))
    return Point(x, r, J, damping, growth)


def _improved(residual: Residual, at: Point, args: PyTree) -> tuple[Point, Bool[Array, ""]]:
    """Take one step; return whether the search has ended, too."""
    rounding = float(jnp.finfo(at.x.dtype).eps)
    g, A = at.J.T @ at.r, at.J.T @ at.J
    mu = jnp.max(jnp.diagonal(A)) * jnp.maximum(at.damping, _LEAST_DAMPING * rounding)
    d = -spd_solver(A + mu * jnp.eye(len(g), dtype=g.dtype))(g)
    there = begun(residual, at.x + d, at.damping, at.growth, args)
    after = better(at, there, 0.5 * d @ (mu * d - g))
    is_short = jnp.max(jnp.abs(d)) <= _ROUNDING * rounding * (1 + jnp.max(jnp.abs(after.x)))
    return after, is_short | _is_stationary(after) | (after.damping > LARGEST_DAMPING)


def _is_stationary(at: Point) -> Bool[Array, ""]:
    """Return True if the residual is orthogonal to the columns of `J`, zero, or not finite."""
    return ~(jnp.linalg.norm(at.J.T @ at.r) > _ORTHOGONAL * jnp.linalg.norm(at.J) * jnp.linalg.norm(at.r))
