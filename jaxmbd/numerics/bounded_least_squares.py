"""Nonlinear least squares within bounds from many starts at once, of which those that get no better stop.

Steps are judged as those of `least_squares.py`, and projected onto the bounds: a variable on a bound, which the
gradient pushes outwards, is held for the step. All starts take the same number of steps side by side under `vmap`;
between these rounds those that have converged or get no better leave the batch, so the work goes to the others. The
damped equations are solved by a QR factorisation, since rows that stand for constraints have large weights: the normal
equations of `least_squares`, which are fast in a program, would square their ratio.

Source: Nocedal, Wright, *Numerical Optimization* (2006), §10.3; Golub, Van Loan, *Matrix Computations* (2013), §6.1.4
(large weights).
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxmbd.arrays import Scalar
from jaxmbd.engine import cached_on_disk
from jaxmbd.numerics.least_squares import Point, Residual, begun, better
from jaxmbd.numerics.levenberg_marquardt import GROWTH, LARGEST_DAMPING, held

_FIRST_DAMPING = 1e-2
_LEAST_DAMPING = 1e-26  # large weights of constraints make the damping of the other rows so small
_ROUND = 10  # steps between two looks at the batch
_SMALL_STEP = 1e-12  # largest change of a scaled variable in a step that ends a search
# At a stationary point each free column of `J` and the residuals are at right angles: cosines that count as such. Where
# the residuals vanish their direction is rounding: there, the change of a scaled variable that would make them least.
_RIGHT_ANGLE, _SMALL_CHANGE = 1e-3, 1e-6

Settle = Callable[[Array, PyTree], Array]


class Lanes(eqx.Module):
    """Searches side by side: the points, their costs `½ rᵀ r`, the dampings with their growth; of the last round the
    costs at its begin, and the largest change; and the size of the gradient, which at a stationary point is at most
    one.

    A cost is infinite where the residual is not finite, or not known yet; the gradient is NaN where the derivatives are
    not.
    """

    z: Float[Array, "lanes n"]
    cost: Float[Array, " lanes"]
    damping: Float[Array, " lanes"]
    growth: Float[Array, " lanes"]
    before: Float[Array, " lanes"]
    change: Float[Array, " lanes"]
    gradient: Float[Array, " lanes"]


def begin(starts: Float[Array, "lanes n"], weight: float = 1.0) -> Lanes:
    """Return searches at their starting points.

    `weight`: that of rows which stand for constraints. The damping is relative to all rows, and has to let the search
    move along the constraints, where the other rows alone resist.
    """
    unknown = jnp.full(len(starts), jnp.inf, starts.dtype)
    damping, growth = (jnp.full_like(unknown, x) for x in (_FIRST_DAMPING / weight**2, GROWTH))
    return Lanes(starts, unknown, damping, growth, unknown, unknown, unknown)


@cached_on_disk
def advance(
    residual: Residual, lanes: Lanes, lower: Float[Array, " n"], upper: Float[Array, " n"], args: PyTree, steps: int,
    settle: Settle | None = None,
) -> Lanes:  # fmt: skip
    """Return searches after some more steps.

    `settle`: brings a trial point back to a manifold on which the search is to stay, before it is judged.
    """

    def one(z: Array, damping: Array, growth: Array) -> tuple[Array, ...]:
        def step(at: Point, is_first: Array) -> tuple[Point, Array]:
            d, g = _correction(at, lower, upper), at.J.T @ at.r
            trial = jnp.clip(at.x + d, lower, upper)
            change = trial - at.x
            predicted = -change @ g - 0.5 * jnp.sum((at.J @ change) ** 2)
            trial = trial if settle is None else settle(trial, args)
            there = begun(residual, jnp.where(is_first, z, trial), at.damping, at.growth, args)
            after = jax.tree.map(lambda a, b: jnp.where(is_first, a, b), there, better(at, there, predicted))
            limited = jnp.clip(after.damping, _LEAST_DAMPING, LARGEST_DAMPING)
            return eqx.tree_at(lambda p: p.damping, after, limited), after.cost

        # The first pass evaluates the start, so that the residual is compiled once.
        rows = eqx.filter_eval_shape(residual, z, args).shape
        begin = Point(z, jnp.zeros(rows, z.dtype), jnp.ones((*rows, *z.shape), z.dtype), damping, growth)
        end, costs = jax.lax.scan(step, begin, jnp.arange(steps + 1) == 0)
        change = jnp.max(jnp.abs(end.x - z))
        return end.x, end.cost, end.damping, end.growth, costs[0], change, _gradient(end, lower, upper)

    return Lanes(*jax.vmap(one)(lanes.z, lanes.damping, lanes.growth))


def _correction(at: Point, lower: Array, upper: Array) -> Array:
    """Return the step: the solution of `min |J d + r|² + damping |D d|²` with the held variables fixed.

    `D` holds the norms of the columns of `J` (Marquardt's scaling), so that the units of variables do not matter.
    """
    fixed = held(at.x, at.J.T @ at.r, lower, upper)
    free = jnp.where(fixed[None], 0.0, jnp.where(jnp.isfinite(at.J), at.J, 0.0))
    sizes = jnp.linalg.norm(free, axis=0)
    sizes = jnp.maximum(sizes, 1e-8 * jnp.max(sizes) + jnp.finfo(sizes.dtype).tiny)
    d = damped_step(free, jnp.where(jnp.isfinite(at.r), at.r, 0.0), jnp.sqrt(at.damping) * sizes)
    return jnp.where(fixed | ~jnp.isfinite(d), 0.0, d)


def damped_step(J: Float[Array, "rows n"], r: Float[Array, " rows"], damping: Float[Array, " n"]) -> Array:
    """Return the `d` that makes `|J d + r|² + |damping d|²` least, by orthogonal transformations."""
    Q, R = jnp.linalg.qr(jnp.concatenate([J, jnp.diag(damping)]))
    return jax.scipy.linalg.solve_triangular(R, -(Q[: len(r)].T @ r))


def _gradient(at: Point, lower: Array, upper: Array) -> Scalar:
    """Return the size of the projected gradient, at most one where a point counts as stationary."""
    r, J, tiny = at.r, at.J, jnp.finfo(at.r.dtype).tiny
    lengths = jnp.maximum(jnp.linalg.norm(J, axis=0), tiny)
    shares = (J / lengths[None]).T @ r
    cosines, changes = jnp.abs(shares) / jnp.maximum(jnp.linalg.norm(r), tiny), jnp.abs(shares) / lengths
    sizes = jnp.minimum(cosines / _RIGHT_ANGLE, changes / _SMALL_CHANGE)
    largest = jnp.max(jnp.where(held(at.x, shares, lower, upper), 0.0, sizes), initial=0.0)
    return jnp.where(jnp.all(jnp.isfinite(J)), largest, jnp.nan)


def rounds(
    residual: Residual, lanes: Lanes, bounds: tuple[Array, Array], args: PyTree, *, steps: int, least_gain: float,
    report: Callable[[int, int, float], None], settle: Settle | None = None, fewest: int = 1,
) -> tuple[Lanes, Int[np.ndarray, " lanes"]]:  # fmt: skip
    """Advance all searches until they have converged, get no better, or have taken all steps.

    **Arguments:** `least_gain`: a search ends if a round takes off less than this share of its cost;
    `report(step, running, best)`; `fewest`: a batch of so many searches is not made smaller, since each
    size is compiled by itself.

    **Returns:** the searches, and the number of steps that each has taken.
    """
    # On the host between the rounds, so that leaving the batch compiles nothing but one program for each power of two.
    done, taken = np.zeros(len(lanes.cost), bool), np.zeros(len(lanes.cost), int)
    fields, structure = jax.tree.flatten(jax.tree.map(np.array, lanes))
    for first in range(0, steps, _ROUND):
        running = np.flatnonzero(~done)
        if not len(running):
            break
        size = min(len(done), max(fewest, 1 << (len(running) - 1).bit_length()))
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
