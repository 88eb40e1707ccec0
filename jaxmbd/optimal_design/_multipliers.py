"""Lagrange multipliers at the end of a search, from the conditions of Karush, Kuhn and Tucker.

With the margins `g ≥ 0` that are zero (limits and bounds that are active) and the equations `h = 0`,

    ∇f = Σ μ ∇g + Σ ν ∇h,   μ ≥ 0

is solved by least squares at the point that is returned; what remains tells how well the conditions are met. For a
peak the bound on its samples is a variable more, of which `f` is a multiple, and samples are margins. Multipliers are
not taken from SciPy: only its newest SLSQP returns them, and those of its last step, which need not be the best one.

Source: Nocedal, Wright, *Numerical Optimization* (2006), §12.3 and §12.8; Lawson, Hanson, *Solving Least Squares
Problems* (1995), ch. 23.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize as spo
from jaxtyping import Float, Int, PyTree

from jaxmbd.optimal_design._limits import ON_BOUND
from jaxmbd.optimal_design._problem import Point, Problem

NO_ROWS = np.zeros(0, int)


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
    - `unique`: False if the active limits depend on one another, so that other multipliers are possible too;
    - `samples`: of a `Peak`, one for each of the `active_samples` of the design: the share of an addition to this
      sample by which the least peak rises. They are positive or zero, and their sum is one.
    """

    constraints: dict[str, np.ndarray]
    bounds: dict[str, PyTree]
    residual: float
    unique: bool
    samples: np.ndarray = field(default_factory=lambda: np.zeros(0))


def multipliers_of(
    problem: Problem,
    x: Float[np.ndarray, " n"],
    at: tuple[Point, Point],
    values: Mapping[str, np.ndarray],
    peaks: Int[np.ndarray, " active"] = NO_ROWS,
) -> Multipliers:
    """Return the multipliers at a point that keeps all constraints.

    `at`: the problem `linearised` there, with finite derivatives; `values`: those of all constraints; `peaks`: the rows
    of the heights that attain the peak.
    """
    value, slopes = (jax.tree.map(np.asarray, part) for part in at)
    variables, n = problem.variables, len(x)
    rows = np.concatenate([slopes.inequalities, np.eye(n), -np.eye(n), slopes.equations])
    limits, equations, gradient = len(value.inequalities), len(value.equations), slopes.objective
    size = abs(float(value.objective)) or 1.0
    if len(peaks):  # the bound is the last variable, as a multiple of the peak
        samples = np.append(-slopes.heights[peaks] / size, np.ones((len(peaks), 1)), axis=1)
        rows, gradient = np.append(rows, np.zeros((len(rows), 1)), axis=1), np.append(np.zeros(n), size)
        rows = np.insert(rows, limits + 2 * n, samples, axis=0)
    distances = np.concatenate([x - np.asarray(variables.lower), np.asarray(variables.upper) - x])
    active = {
        name: problem.limits[name].active(values[name], mine)
        for name, mine in by_constraint(problem, values, slopes.inequalities, slopes.equations).items()
    }
    inside, exact = (
        np.concatenate([np.zeros(0, bool), *(active[n] for n in active if (problem.limits[n].equals is None) == kind)])
        for kind in (True, False)
    )
    used = np.flatnonzero(np.concatenate([inside, distances <= ON_BOUND, np.ones(len(peaks), bool), exact]))
    lengths = np.linalg.norm(rows[used], axis=1)
    matrix = (rows[used] / lengths[:, None]).T
    found = np.zeros(len(rows))
    if len(used):
        least = np.where(used < limits + 2 * n + len(peaks), 0.0, -np.inf)
        solved = spo.lsq_linear(matrix, gradient, (least, np.inf), method="bvls", tol=1e-15)
        found[used] = solved.x / lengths
    left = np.max(np.abs(gradient - rows.T @ found), initial=0.0)
    lower, upper = found[limits : limits + n], found[limits + n : limits + 2 * n]
    physical = jnp.asarray((lower - upper) / np.asarray(variables.scale))
    of_rows = by_constraint(problem, values, found[:limits], found[len(found) - equations :])
    return Multipliers(
        {name: problem.limits[name].derivatives(mine) for name, mine in of_rows.items()},
        jax.tree.map(np.asarray, variables.named(physical)),
        float(left),
        not len(used) or bool(np.linalg.matrix_rank(matrix) == len(used)),
        found[limits + 2 * n :][: len(peaks)] / size,
    )


def by_constraint(
    problem: Problem, values: Mapping[str, np.ndarray], inequalities: np.ndarray, equations: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the rows of all constraints by name, one for each number and each of its limits."""
    found = {}
    for name, value in sorted(values.items()):  # as JAX sorts dictionaries, and so the rows of a compiled function
        limit = problem.limits[name]
        if limit.equals is not None:
            found[name], equations = equations[: value.size], equations[value.size :]
        else:
            count = value.size * ((limit.lower is not None) + (limit.upper is not None))
            found[name], inequalities = inequalities[:count], inequalities[count:]
    return found
