"""Closing the joints: what a position misses, the search for one that misses nothing, and its derivative.

The search is a damped least-squares one (Levenberg-Marquardt). It gives *a* closed position near its start. Its
derivative is that of the implicit function theorem: of all changes that keep the joints closed, the least. The
*nearest* position takes one more solve, of the conditions of a least change; its derivative is exact.

Source: Nocedal, Wright, *Numerical Optimization* (2006), §10.3 (the search), §18.1 (the conditions).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.fixed_readings import is_reading, missed_reading
from jaxmbd.analyses.redundancy import singular
from jaxmbd.arrays import Scalar
from jaxmbd.compile.jax_binding import as_program
from jaxmbd.equations.equations import Configuration, Equations

_STEPS = 256
_SOFT = 1e-2  # how much a miss weighs against a change of one, before the conditions are solved: 1 / _SOFT²

# The equations; what is prescribed, `{"crank.theta": value, "rod": pose}`; the time.
Closing = tuple[Equations, dict[str, Array], Scalar]


def closure(q: Float[Array, " nq"], closing: Closing) -> Float[Array, " rows"]:
    """`Φ(q, t)` and, below it, what the prescribed coordinates and poses miss."""
    return as_program(_closure)(q, closing)


def _closure(q: Array, closing: Closing) -> Array:
    equations, prescribed, t = closing
    at = equations.at(t, q)
    return jnp.concatenate([at.position(), *(_missed(at, name, value) for name, value in prescribed.items())])


def _missed(at: Configuration, name: str, value: Array) -> Array:
    """How far a named coordinate or reading is from a value, an angle of whole turns from the nearest one; or a body
    from a pose."""
    mechanism, bodies = at.mechanism, [body.name for body in at.mechanism.bodies]
    if name in bodies:
        here, there = jax.tree.map(lambda x: x[bodies.index(name)], at.bodies.frames), at.space.place(value)
        return jnp.append(here.position - there.position, there.turn(here))
    if is_reading(mechanism, name):
        return missed_reading(at, name, value)
    if name in mechanism.tree.coordinates:
        return at.q[mechanism.tree.coordinates.index(name)][None] - value
    coordinate = mechanism.coordinate(name).by(value)
    return coordinate.value(at.near(coordinate.markers).frames)[None] - value


def current_values(equations: Equations, t: Scalar, q: Float[Array, " nq"], names: tuple[str, ...]) -> dict[str, Array]:
    """The values of coordinates, and the poses of bodies, at a position."""
    at, bodies = equations.at(t, q), [body.name for body in equations.mechanism.bodies]
    still = jnp.zeros(equations.mechanism.nv, q.dtype)
    return {n: at.poses()[bodies.index(n)] if n in bodies else at.coordinate(n, still)[0] for n in names}


def least_squares(residual: Callable[[Array, Any], Array], start: Array, args: Any) -> Array:
    """Levenberg and Marquardt's search for the least sum of squares, from a start."""
    tolerance = 1e3 * float(jnp.finfo(start.dtype).eps)
    search = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance, linear_solver=singular(start.dtype))
    return optx.least_squares(residual, search, start, args=args, max_steps=_STEPS, throw=False).value


@eqx.filter_custom_jvp
def closed(closing: Closing, start: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """A position without miss, near `start`. Its derivative is the least change that keeps it without miss."""
    return least_squares(closure, start, closing)


@closed.def_jvp
def _closed_jvp(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    """By the implicit function theorem: `A δq = −∂Φ/∂p δp`, the solution of least norm."""
    (closing, start), (changes, _) = primals, tangents
    q = closed(closing, start)
    return q, _response(closure, q, closing, changes)


def nearest(
    closing: Closing, weights: Float[Array, " nq"], guess: Float[Array, " nq"], start: Float[Array, " nq"]
) -> tuple[Float[Array, " nq"], Scalar]:
    """The closed position nearest to `guess`, sought from a closed one; and how far it is from being the nearest.

    It is stationary for `½ (q − q₀)ᵀ W (q − q₀)` subject to `Φ(q) = 0`: with `z = W^½ (q − q₀)` and the rows `A` of
    `Φ` by `z`, `z + Aᵀ μ = 0`. Its derivative is that of these conditions, by all that is in them, `q₀` and `W` too.
    """
    root = jnp.sqrt(weights / jax.lax.stop_gradient(jnp.max(weights)))  # a common factor changes nothing
    problem = (closing, root, guess)
    unknowns = _stationary(problem, root * (start - guess))
    slope = _conditions(unknowns, problem)[: guess.shape[0]]
    return guess + unknowns[: guess.shape[0]] / root, jnp.max(jnp.abs(slope))


@eqx.filter_custom_jvp
def _stationary(problem: Any, start: Array) -> Array:
    """`z` and `μ`. A search with the joints a little soft slides to a minimum; the conditions are then solved."""
    soft = least_squares(lambda z, p: jnp.append(_stretched(z, p) / _SOFT, z), start, problem)
    A = jax.jacfwd(_stretched)(soft, problem)
    mu = lx.linear_solve(lx.MatrixLinearOperator(A.T), -soft, singular(soft.dtype), throw=False).value
    return least_squares(_conditions, jnp.append(soft, mu), problem)


@_stationary.def_jvp
def _stationary_jvp(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (problem, start), (changes, _) = primals, tangents
    unknowns = _stationary(problem, start)
    return unknowns, _response(_conditions, unknowns, problem, changes)


def _stretched(z: Array, problem: Any) -> Array:
    """What the position `q₀ + W^-½ z` misses."""
    closing, root, guess = problem
    return closure(guess + z / root, closing)


def _conditions(unknowns: Array, problem: Any) -> Array:
    """`z + Aᵀ μ` and `Φ`."""
    z, mu = jnp.split(unknowns, [problem[-1].shape[0]])
    rows, pull = jax.vjp(lambda z: _stretched(z, problem), z)
    return jnp.append(z + pull(mu)[0], rows)


def _response(residual: Callable[[Array, Any], Array], x: Array, args: Any, changes: Any) -> Array:
    """How a root `x` of a residual changes with its arguments: the change of least norm that keeps it one."""
    _, miss = eqx.filter_jvp(lambda a: residual(x, a), (args,), (changes,))
    if miss is None:
        return jnp.zeros_like(x)
    slope = lx.MatrixLinearOperator(jax.jacfwd(residual)(x, args))
    return -lx.linear_solve(slope, miss, singular(miss.dtype), throw=False).value
