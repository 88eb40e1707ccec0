"""Lagrange multipliers at the end of a search, from the conditions of Karush, Kuhn and Tucker.

With the margins `g ≥ 0` that are zero (limits and bounds that are active) and the equations `h = 0`,

    ∇f = Σ μ ∇g + Σ ν ∇h,   μ ≥ 0

is solved by least squares at the point that is returned; what remains tells how well the conditions are met. They are
not taken from SciPy: only its newest SLSQP returns them, and those of its last step, which need not be the best one.

Source: Nocedal, Wright, *Numerical Optimization* (2006), §12.3 and §12.8; Lawson, Hanson, *Solving Least Squares
Problems* (1995), ch. 23.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize as spo
from jaxtyping import Float

from jaxmbd.optimal_design._limits import ACTIVE
from jaxmbd.optimal_design._problem import Problem, linearised
from jaxmbd.optimal_design._variables import ON_BOUND


@dataclass(frozen=True)
class Multipliers:
    """The derivatives of the least objective by the limits: what it costs to move one, in the objective's unit per unit
    of the limit.

    Zero where a limit is not active. Of a lower limit they are positive, since a higher one costs more; of an upper
    limit they are negative, since a higher one costs less; of `equals` they have either sign.

    - `constraints`: by the name of a constraint one for each of its numbers, by the limit on which it lies;
    - `bounds`: by the name of a variable one for each of its numbers, like its value; the derivative by a bound that
      several numbers share is their sum;
    - `residual`: the largest change of the objective, when one variable changes by its range (or scale), that the
      multipliers leave over; zero at a minimum;
    - `unique`: False if the active limits depend on one another, so that other multipliers are possible too.
    """

    constraints: dict[str, np.ndarray]
    bounds: dict[str, Any]
    residual: float
    unique: bool


def multipliers_of(problem: Problem, x: Float[np.ndarray, " n"], sizes: Mapping[str, int]) -> Multipliers | None:
    """Return the multipliers at a point that keeps all constraints; None if derivatives there are not finite.

    `sizes`: how many numbers each constraint has.
    """
    value, slopes = linearised(jnp.asarray(x), problem)
    if not all(np.isfinite(row).all() for row in jax.tree.leaves(slopes)):
        return None
    variables, n = problem.variables, len(x)
    margins = np.concatenate([value.inequalities, x - np.asarray(variables.lower), np.asarray(variables.upper) - x])
    rows = np.concatenate([slopes.inequalities, np.eye(n), -np.eye(n), slopes.equations])
    limits, equations = len(value.inequalities), len(value.equations)
    near = np.concatenate([np.full(limits, ACTIVE), np.full(2 * n, ON_BOUND)])
    used = np.flatnonzero(np.concatenate([margins <= near, np.ones(equations, bool)]))
    lengths = np.linalg.norm(rows[used], axis=1)
    matrix = (rows[used] / np.where(lengths > 0, lengths, 1.0)[:, None]).T
    found, gradient = np.zeros(len(rows)), np.asarray(slopes.objective)
    if len(used):
        least = np.where(used < limits + 2 * n, 0.0, -np.inf)
        solved = spo.lsq_linear(matrix, gradient, (least, np.inf), method="bvls", tol=1e-15)
        found[used] = solved.x / np.where(lengths > 0, lengths, 1.0)
    left = np.max(np.abs(gradient - rows.T @ found), initial=0.0)
    lower, upper = found[limits : limits + n], found[limits + n : limits + 2 * n]
    physical = jnp.asarray((lower - upper) / np.asarray(variables.scale))
    return Multipliers(
        _by_constraint(problem, sizes, found[:limits], found[limits + 2 * n :]),
        jax.tree.map(np.asarray, variables.named(physical)),
        float(left),
        not len(used) or bool(np.linalg.matrix_rank(matrix) == len(used)),
    )


def _by_constraint(
    problem: Problem, sizes: Mapping[str, int], limits: np.ndarray, equations: np.ndarray
) -> dict[str, np.ndarray]:
    """The derivatives by the limits by name, from the multipliers of all rows."""
    found = {}
    for name, size in sorted(sizes.items()):  # as JAX sorts dictionaries, and so the rows of a compiled function
        limit = problem.limits[name]
        if limit.equals is not None:
            mine, equations = equations[:size], equations[size:]
        else:
            rows = size * ((limit.lower is not None) + (limit.upper is not None))
            mine, limits = limits[:rows], limits[rows:]
        found[name] = limit.derivatives(mine)
    return found
