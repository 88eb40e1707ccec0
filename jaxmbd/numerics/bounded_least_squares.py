"""Nonlinear least squares within bounds from many starts at once, of which those that get no better stop.

Levenberg's and Marquardt's method with projection onto the bounds: a variable on a bound, which the gradient pushes
outwards, is held for the step. All starts take the same number of steps side by side under `vmap`; between these rounds
those that have converged or get no better leave the batch, so the work goes to the others. The damped equations are
solved by a QR factorisation, since rows that stand for constraints have large weights (normal equations would square
their ratio).

Source: Kanzow, Yamashita, Fukushima, *Levenberg-Marquardt methods with strong local convergence properties for solving
nonlinear equations with convex constraints*, J. Comput. Appl. Math. 172 (2004); Nocedal, Wright, *Numerical
Optimization* (2006), §10.3; Golub, Van Loan, *Matrix Computations* (2013), §6.1.4 (large weights).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmbd.arrays import Scalar
from jaxmbd.numerics.least_squares import with_jacobian

_FIRST_DAMPING = 1e-2
_DAMPINGS = 1e-26, 1e14  # limits; a search at the upper one finds no descent any more
_LESS, _MORE = 0.3, 4.0  # factors of the damping after a step that is accepted, and one that is rejected
_ROUND = 10  # steps between two looks at the batch
_SMALL_STEP = 1e-12  # largest change of a scaled variable in a step that ends a search
# At a stationary point each free column of `J` and the residuals are at right angles: cosines that count as such. Where
# the residuals vanish their direction is rounding: there, the change of a scaled variable that would make them least.
_RIGHT_ANGLE, _SMALL_CHANGE = 1e-3, 1e-6

Residual = Callable[[Array, Any], Array]
Settle = Callable[[Array, Any], Array]


class Lanes(eqx.Module):
    """Searches side by side: the points, their costs `½ rᵀ r`, the dampings; of the last round the costs at its begin,
    and the largest change; and the size of the gradient, which at a stationary point is at most one.

    A cost is infinite where the residual is not finite, or not known yet; the gradient is NaN where the derivatives are
    not.
    """

    z: Float[Array, "lanes n"]
    cost: Float[Array, " lanes"]
    damping: Float[Array, " lanes"]
    before: Float[Array, " lanes"]
    change: Float[Array, " lanes"]
    gradient: Float[Array, " lanes"]


def begin(starts: Float[Array, "lanes n"], weight: float = 1.0) -> Lanes:
    """Return searches at their starting points.

    `weight`: that of rows which stand for constraints. The damping is relative to all rows, and has to let the search
    move along the constraints, where the other rows alone resist.
    """
    unknown = jnp.full(len(starts), jnp.inf, starts.dtype)
    return Lanes(starts, unknown, jnp.full_like(unknown, _FIRST_DAMPING / weight**2), unknown, unknown, unknown)


def _cost(r: Array) -> Scalar:
    cost = 0.5 * jnp.sum(r**2)
    return jnp.where(jnp.isfinite(cost), cost, jnp.inf)


@eqx.filter_jit
def advance(
    residual: Residual, lanes: Lanes, lower: Float[Array, " n"], upper: Float[Array, " n"], args: Any, steps: int,
    settle: Settle | None = None,
) -> Lanes:  # fmt: skip
    """Return searches after some more steps.

    `settle`: brings a trial point back to a manifold on which the search is to stay, before it is judged.
    """

    def one(z: Array, damping: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
        def step(carry: tuple[Array, Array, Array, Array, Array], is_first: Array) -> tuple[Any, Array]:
            z, r, J, cost, damping = carry
            trial = jnp.clip(z + _correction(z, r, J, damping, lower, upper), lower, upper)
            trial = trial if settle is None else settle(trial, args)
            trial = jnp.where(is_first, z, trial)
            r_trial, J_trial = with_jacobian(residual, trial, args)
            cost_trial = _cost(r_trial)
            accepted = is_first | (cost_trial < cost) & jnp.all(jnp.isfinite(J_trial))
            new, old = (trial, r_trial, J_trial, cost_trial), (z, r, J, cost)
            z, r, J, cost = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)
            changed = jnp.clip(damping * jnp.where(accepted, _LESS, _MORE), *_DAMPINGS)
            return (z, r, J, cost, jnp.where(is_first, damping, changed)), cost

        # The first pass evaluates the start, so that the residual is compiled once.
        rows = eqx.filter_eval_shape(residual, z, args).shape
        r, J, cost = jnp.zeros(rows, z.dtype), jnp.ones((*rows, *z.shape), z.dtype), jnp.full_like(damping, jnp.inf)
        begin = z, r, J, cost, damping
        (end, r, J, cost, damping), costs = jax.lax.scan(step, begin, jnp.arange(steps + 1) == 0)
        return end, cost, damping, costs[0], jnp.max(jnp.abs(end - z)), _gradient(end, r, J, lower, upper)

    return Lanes(*jax.vmap(one)(lanes.z, lanes.damping))


def _correction(z: Array, r: Array, J: Array, damping: Array, lower: Array, upper: Array) -> Array:
    """Return the step: the solution of `min |J d + r|² + damping |D d|²` with the held variables fixed.

    `D` holds the norms of the columns of `J` (Marquardt's scaling), so that the units of variables do not matter.
    """
    held = _held(z, J.T @ r, lower, upper)
    free = jnp.where(held[None], 0.0, jnp.where(jnp.isfinite(J), J, 0.0))
    sizes = jnp.linalg.norm(free, axis=0)
    sizes = jnp.maximum(sizes, 1e-8 * jnp.max(sizes) + jnp.finfo(z.dtype).tiny)
    stacked = jnp.concatenate([free, jnp.diag(jnp.sqrt(damping) * sizes)])
    Q, R = jnp.linalg.qr(stacked)
    d = jax.scipy.linalg.solve_triangular(R, -(Q[: len(r)].T @ jnp.where(jnp.isfinite(r), r, 0.0)))
    return jnp.where(held | ~jnp.isfinite(d), 0.0, d)


def _held(z: Array, gradient: Array, lower: Array, upper: Array) -> Array:
    """Return the variables on a bound that the gradient pushes outwards."""
    return ((z <= lower) & (gradient > 0)) | ((z >= upper) & (gradient < 0))


def _gradient(z: Array, r: Array, J: Array, lower: Array, upper: Array) -> Scalar:
    """Return the size of the projected gradient, at most one where a point counts as stationary."""
    tiny = jnp.finfo(z.dtype).tiny
    lengths = jnp.maximum(jnp.linalg.norm(J, axis=0), tiny)
    shares = (J / lengths[None]).T @ r
    cosines, changes = jnp.abs(shares) / jnp.maximum(jnp.linalg.norm(r), tiny), jnp.abs(shares) / lengths
    sizes = jnp.minimum(cosines / _RIGHT_ANGLE, changes / _SMALL_CHANGE)
    largest = jnp.max(jnp.where(_held(z, shares, lower, upper), 0.0, sizes), initial=0.0)
    return jnp.where(jnp.all(jnp.isfinite(J)), largest, jnp.nan)


def rounds(
    residual: Residual, lanes: Lanes, bounds: tuple[Array, Array], args: Any, *, steps: int, least_gain: float,
    report: Callable[[int, int, float], None], settle: Settle | None = None,
) -> tuple[Lanes, Int[np.ndarray, " lanes"]]:  # fmt: skip
    """Advance all searches until they have converged, get no better, or have taken all steps.

    **Arguments:** `least_gain`: a search ends if a round takes off less than this share of its cost;
    `report(step, running, best)`.

    **Returns:** the searches, and the number of steps that each has taken.
    """
    # On the host between the rounds, so that leaving the batch compiles nothing but one program for each power of two.
    done, taken = np.zeros(len(lanes.cost), bool), np.zeros(len(lanes.cost), int)
    fields, structure = jax.tree.flatten(jax.tree.map(np.array, lanes))
    for first in range(0, steps, _ROUND):
        running = np.flatnonzero(~done)
        if not len(running):
            break
        size = min(len(done), 1 << (len(running) - 1).bit_length())
        chosen = np.concatenate([running, np.full(size - len(running), running[0])])
        now = jax.tree.unflatten(structure, [jnp.asarray(x[chosen]) for x in fields])
        count = min(_ROUND, steps - first)
        found = jax.tree.leaves(advance(residual, now, *bounds, args, count, settle))
        values = [np.asarray(x)[: len(running)] for x in found]
        for field, value in zip(fields, values, strict=True):
            field[running] = value
        later = jax.tree.unflatten(structure, values)
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = np.where(later.before > 0, (later.before - later.cost) / later.before, 0.0)
        taken[running] += count
        done[running] = (later.change <= _SMALL_STEP) | (later.cost == 0) | ~(gain > least_gain)
        report(first + count, int(np.sum(~done)), float(np.min(jax.tree.unflatten(structure, fields).cost)))
    return jax.tree.unflatten(structure, [jnp.asarray(x) for x in fields]), taken
