"""A design problem as functions of one vector: objective, margins, violations, and their derivatives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Number, Scalar
from jaxmbd.engine import cached_on_disk
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.optimal_design._limits import Limits
from jaxmbd.optimal_design._peak import Peak
from jaxmbd.optimal_design._variables import Variables
from jaxmbd.user_functions import RUN_TIME_ERRORS, user_array

_FEW = 24  # variables up to which derivatives are computed in forward mode


class Problem(eqx.Module):
    """The objective, a number, residuals or a peak, the variables and the constraints.

    `subject`: what objective and constraints are functions of, made of the mechanism and the values of the variables by
    name; by default the mechanism.
    """

    objective: Callable[[Any], Number] | Peak
    variables: Variables
    limits: Limits
    subject: Callable[[Mechanism, dict[str, PyTree]], PyTree] = lambda mechanism, values: mechanism

    def at(self, x: Float[Array, " n"]) -> PyTree:
        """Return the subject at a point."""
        return self.subject(self.variables.mechanism(x), self.variables.values(x))

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper bounds of `x`."""
        return np.asarray(self.variables.lower), np.asarray(self.variables.upper)

    def evaluated(self, x: Float[np.ndarray, " n"]) -> "tuple[Point, Point]":
        """Return the problem at a point and its derivatives; NaN where an analysis raises in place of returning it."""
        try:
            return jax.tree.map(np.asarray, linearised(jnp.asarray(x), self))
        except RUN_TIME_ERRORS:
            shapes = eqx.filter_eval_shape(linearised, jnp.asarray(x), self)
            return jax.tree.map(lambda s: np.full(s.shape, np.nan), shapes)


class Point(eqx.Module):
    """A design problem at one point: the objective, and the scaled margins of inequalities and equations.

    All are arrays of the rows that the optimiser sees, or their derivatives with respect to `x`; `heights`: those of a
    peak, of which the objective is the largest, or residuals; `values`: those of all constraints by name.
    """

    objective: Array | np.ndarray
    inequalities: Array | np.ndarray
    equations: Array | np.ndarray
    heights: Array | np.ndarray
    values: dict[str, Array]


def residuals(x: Float[Array, " n"], problem: Problem) -> Array:
    """Return what the objective function returns: a number, or residuals."""
    return _residuals(problem, problem.at(x))


def _residuals(problem: Problem, subject: PyTree) -> Array:
    if isinstance(problem.objective, Peak):
        return problem.objective.heights(subject)
    return user_array("design", "objective", problem.objective, subject, takes="mechanism")


def _values(x: Float[Array, " n"], problem: Problem) -> tuple[Array, dict[str, Array]]:
    """What the objective function returns, or the heights of a peak, and the values of all constraints by name."""
    subject = problem.at(x)
    return _residuals(problem, subject), {name: limit.value(name, subject) for name, limit in problem.limits.items()}


def _number(problem: Problem, residuals: Array) -> Scalar:
    """The number to be minimised: the objective, half the sum of squares of its residuals, or the peak."""
    if isinstance(problem.objective, Peak):
        return jnp.max(residuals)
    return residuals if residuals.ndim == 0 else 0.5 * jnp.sum(residuals**2)


def violations(x: Float[Array, " n"], problem: Problem) -> Float[Array, " rows"]:
    """Return by how much all constraints are missed, in their scales."""
    subject = problem.at(x)
    rows = [limit.violations(limit.value(name, subject)) for name, limit in problem.limits.items()]
    return jnp.concatenate(rows) if rows else jnp.zeros(0, x.dtype)


def _rows(x: Array, problem: Problem) -> Point:
    found, values = _values(x, problem)
    _check_sizes(problem, values)
    parts: dict[bool, list[Array]] = {True: [jnp.zeros(0, x.dtype)], False: [jnp.zeros(0, x.dtype)]}
    for name, limit in problem.limits.items():
        parts[limit.equals is not None].append(limit.margins(values[name]))
    heights = found if found.ndim else jnp.zeros(0, x.dtype)
    inequalities, equations = (jnp.concatenate(parts[key]) for key in (False, True))
    return Point(_number(problem, found), inequalities, equations, heights, values)


def sizes_of_samples(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the quantities of a peak by name; traced on shapes only."""

    def quantities(x: Array, problem: Problem) -> dict[str, Array]:
        return problem.objective.quantities(problem.at(x)) if isinstance(problem.objective, Peak) else {}

    found = eqx.filter_eval_shape(quantities, problem.variables.start, problem)
    return {name: samples.shape for name, samples in found.items()}


@cached_on_disk
def linearised(x: Float[Array, " n"], problem: Problem) -> tuple[Point, Point]:
    """Return a problem at one point, and its derivatives."""
    differentiate = jax.jacfwd if x.shape[0] <= _FEW else jax.jacrev

    def twice(x: Array) -> tuple[Point, Point]:
        rows = _rows(x, problem)
        return rows, rows

    slopes, rows = differentiate(twice, has_aux=True)(x)
    return rows, slopes


def check_problem(problem: Problem, start: Float[Array, " n"]) -> bool:
    """Evaluate a problem as the search does, with its trace, so that mistakes in users' functions are found at once.

    **Returns:** True if the objective is a vector of residuals.

    **Raises:** `MechanismError` if the objective returns no numbers, or if limits and values differ in shape.
    """
    try:
        found, _ = linearised(start, problem)
    except RUN_TIME_ERRORS:  # an analysis that raises in place of returning NaN
        found, _ = eqx.filter_eval_shape(linearised, start, problem)
    return found.heights.size > 0 and not isinstance(problem.objective, Peak)


def _check_sizes(problem: Problem, values: dict[str, Array]) -> None:
    """Raise if limits and values differ in shape."""
    for name, limit in problem.limits.items():
        size = values[name].size
        for end in (limit.lower, limit.upper, limit.equals):
            if end is not None and np.size(end) not in (1, size):
                raise MechanismError(
                    f"Constraint {name!r}: its function returns {size} numbers, and there are {np.size(end)} limits. "
                    "Give one limit for all, or one for each."
                )
