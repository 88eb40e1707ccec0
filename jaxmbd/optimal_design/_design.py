"""Optimal design: the dimensions of a mechanism that minimise an objective under constraints, and the result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.arrays import Number
from jaxmbd.checks import check_callable, check_count, check_flags
from jaxmbd.errors import check_known
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.bounded_least_squares import begin, rounds
from jaxmbd.optimal_design._limits import TOLERANCE, Limit, Margin, limits_of, margin_of
from jaxmbd.optimal_design._multipliers import NO_ROWS, Multipliers, by_constraint, multipliers_of
from jaxmbd.optimal_design._nonlinear_programme import NOT_SMOOTH, Method, Search, solve, violation_of
from jaxmbd.optimal_design._peak import ActiveSample, Peak
from jaxmbd.optimal_design._problem import (
    Point,
    Problem,
    check_problem,
    linearised,
    residuals,
    sizes_of_samples,
    violations,
)
from jaxmbd.optimal_design._tables import constraints_table, samples_table, starts_table, variables_table
from jaxmbd.optimal_design._variables import variables_of
from jaxmbd.parameters.parameters import Build, Free
from jaxmbd.printing import count_of
from jaxmbd.progress import reporting
from jaxmbd.user_functions import RUN_TIME_ERRORS

_RESTORING_STEPS = 60
# Share of its cost that a round has to take off, unless a search ends: of violations, and of an objective.
_IDLE, _CONVERGED = 1e-3, 1e-9
_LANES = 16  # searches that run side by side to the end: a smaller batch is compiled again, which takes far longer
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Start:
    """One of the starts: its number, why it ended, and its best point: values, objective, largest violation, steps.

    `course`: after each step its number, the best objective so far, and the largest violation there; empty of starts
    that were given up, and of searches by least squares.
    """

    number: int
    verdict: str
    objective: float
    violation: float
    values: dict[str, PyTree]
    steps: int
    course: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True)
class Design:
    """The result of `design`. `print` shows it as a table.

    - `values`: the best values of the variables by name; `objective`: the objective there;
    - `mechanism`: the mechanism with these values;
    - `constraints`: the constraints with their margins; `is_feasible`: whether all are kept;
    - `active_bounds`: the variables that lie on a bound;
    - `starts`: all starts with their verdicts, the best first; `outcome`: why the search stopped;
    - `multipliers`: what it costs to move a limit or a bound, as `Multipliers`; None if constraints are violated, or if
      derivatives there are not finite;
    - `active_samples`: of a `Peak` the samples that attain it, the largest first.

    If no start keeps all constraints, the values are those of the least violation.
    """

    values: dict[str, PyTree]
    objective: float
    mechanism: Mechanism
    constraints: tuple[Margin, ...]
    active_bounds: tuple[str, ...]
    starts: tuple[Start, ...]
    outcome: str
    labels: tuple[str, ...]
    numbers: np.ndarray
    units: tuple[str, ...]
    multipliers: Multipliers | None = None
    active_samples: tuple[ActiveSample, ...] = ()
    unit: str = ""

    @property
    def is_feasible(self) -> bool:
        """True if all constraints are kept."""
        return all(margin.kept for margin in self.constraints)

    def __repr__(self) -> str:
        kept = "all constraints kept" if self.is_feasible else "NOT FEASIBLE"
        what = "peak" if self.active_samples else "objective"
        size = f"{self.objective:.6g} {self.unit}".strip()
        head = f"Design: {self.outcome}; {what} {size}" + f", {kept}" * bool(self.constraints)
        weights = np.zeros(0) if self.multipliers is None else self.multipliers.samples
        rows = [
            [str(start.number), start.verdict, f"{start.objective:.6g}", f"{start.violation:.2g}", str(start.steps)]
            for start in self.starts
        ]
        headings = ["start", "verdict", "objective", "violation", "steps"]
        parts = [
            head,
            variables_table(self.labels, self.units, self.numbers, self.active_bounds),
            *constraints_table(self.constraints),
            *samples_table(self.active_samples, weights),
            starts_table(headings, rows, [start.verdict for start in self.starts]),
        ]
        return "\n\n".join(parts)


def design(
    objective: Callable[[Mechanism], Number] | Peak,
    variables: Free,
    constraints: Mapping[str, Limit] | None = None,
    *,
    mechanism: Mechanism | Build,
    starts: int = 16,
    seed: int = 0,
    method: Method = "slsqp",
    steps: int = 200,
    progress: bool = True,
) -> Design:
    """Find the values of named variables that minimise an objective and keep all constraints.

    `min f(x)`,   `lower ≤ g(x) ≤ upper`,   `h(x) = value`,   `x` within its ranges

    Feasibility comes first: from all starts at once the violations of the constraints are reduced (least squares,
    side by side under `vmap`; starts that get no further are given up). Each start that remains is then optimised by
    SciPy's sequential quadratic programming with exact gradients; without constraints, and with an objective that is a
    vector, all at once by Levenberg and Marquardt's method. A start that cannot be assembled ends with a verdict and
    does not stop the others.

    **Arguments:**

    - `objective`: from the mechanism to a number, or to residuals, of which half the sum of squares is minimised; or a
      `Peak`, the largest magnitude of quantities over a motion. Any analysis may be called in it, with `check=False` or
      `throw=False`: its values are NaN where it fails;
    - `variables`: numbers of the mechanism by name or pattern, each with a pair of bounds or another range,
      `{"spring.stiffness": (1.0, 1e3), "*.mass": Positive()}`; or by a name of your choice a `Parameter` or a function
      to a leaf of the mechanism; as in `fit`, without priors.
      Bounds may be reached, those of `Bounded` too, and a start may lie on one. A `Positive` variable
      is at least 1e-6 of its starting value;
    - `constraints`: a `Limit` by name. `closure_error` leads back designs that cannot be assembled;
    - `mechanism`: the mechanism, or a function from the values by name to one;
    - `starts`: the number of starts: the starting values, then random ones within the ranges; `seed`;
    - `method`: `"slsqp"` or `"trust-constr"`, which is slower, for objectives with badly scaled curvature;
    - `steps`: the maximum number of steps of a start;
    - `progress`: show the progress on one line.

    **Returns:** a `Design`; print it. Its `outcome` names the constraint that no start can keep. Ctrl-C ends the
    search and returns the best design so far.

    **Raises:** `MechanismError` for unknown names, reversed bounds, ranges that are no intervals, priors, and functions
    that return no numbers.

        >>> four_bar = mbd.examples.get("four-bar-with-springs").mechanism
        >>> rest = lambda m: mbd.equilibrium(m)["O.angle"]  # [rad], to become 0.2
        >>> aim = lambda m: (rest(m) - 0.2) ** 2
        >>> found = mbd.design(aim, {"spring.free_length": (0.01, 0.4)}, mechanism=four_bar, starts=2)  # doctest: +SKIP

    Source: Nocedal, Wright, *Numerical Optimization* (2006), ch. 18; Kraft, *A software package for sequential
    quadratic programming* (1988).
    """
    if not isinstance(objective, Peak):
        check_callable("design", "objective", objective)
    check_known("method", [method], get_args(Method))
    check_count("design: starts", starts, 1)
    check_count("design: seed", seed, 0)
    check_count("design: steps", steps, 1)
    check_flags("design", progress=progress)
    problem = Problem(objective, variables_of("design", mechanism, variables), limits_of("design", constraints))
    return optimise(problem, starts, seed, method, steps, progress, "design")


def optimise(problem: Problem, starts: int, seed: int, method: Method, steps: int, progress: bool, what: str) -> Design:
    """Solve a design problem that has been checked; `what` is the verb that the user called."""
    x = np.asarray(problem.variables.random(starts, seed))
    searches = [Search(point) for point in x]
    outcome = ""
    with reporting(progress, f"{what}: tracing the problem and its derivatives ...") as report:
        has_residuals = check_problem(problem, jnp.asarray(x[0]))
        try:
            _search(problem, searches, has_residuals, method, steps, report)
        except KeyboardInterrupt:
            outcome = INTERRUPTED
            for search in searches:
                search.verdict = search.verdict or INTERRUPTED
    return _result(problem, searches, outcome)


def _search(
    problem: Problem, searches: list[Search], has_residuals: bool, method: Method, steps: int,
    report: Callable[[str], None],
) -> None:  # fmt: skip
    """Run all searches; what they have found so far is in `searches` at any time."""
    if problem.limits:
        # Where all starts keep the limits, the search for feasible ones is not compiled.
        if missing := [search for search in searches if not _keeps(problem, search)]:
            _in_batches(violations, problem, missing, _RESTORING_STEPS, report, "feasibility", _IDLE)
    elif has_residuals:
        _in_batches(_residual_vector, problem, searches, steps, report, "least squares", _CONVERGED)
    _evaluate(problem, searches)
    if has_residuals and not problem.limits:
        for search in searches:
            search.verdict = search.verdict or _least_squares_verdict(search, steps)
    todo = sorted((s for s in searches if not s.verdict), key=lambda s: (s.violation, s.objective))
    for k, search in enumerate(todo):
        best = min((s.objective for s in searches if s.violation <= TOLERANCE), default=np.inf)
        report(f"design: start {k + 1} of {len(todo)}, best objective {best:.6g}")
        solve(problem, search.x, method, steps, search)


def _least_squares_verdict(search: Search, steps: int) -> str:
    if search.objective > 0 and np.isnan(search.gradient):
        return NOT_SMOOTH
    if search.steps >= steps:
        return "used all its steps"
    is_stationary = search.objective == 0 or search.gradient <= 1
    return "converged" if is_stationary else "stopped: no step reduces the objective, whose gradient is not zero"


def _residual_vector(x: Array, problem: Problem) -> Array:
    return jnp.ravel(residuals(x, problem))


def _in_batches(
    residual: Callable[..., Array], problem: Problem, searches: list[Search], steps: int, report: Callable[[str], None],
    what: str, least_gain: float,
) -> None:  # fmt: skip
    """Reduce residuals from all starts side by side; one by one if an analysis raises in place of returning NaN.

    A search ends when a round takes off less than the share `least_gain` of its cost: it has converged, or it is stuck;
    its gradient and the violations tell which.
    """
    bounds = problem.variables.lower, problem.variables.upper

    def said(step: int, running: int, best: float) -> None:
        report(f"design, {what}: step {step}, {count_of(running, 'start')}, best {best:.3g}")

    def run(chosen: list[Search]) -> None:
        lanes = begin(jnp.asarray(np.stack([s.x for s in chosen])))
        lanes, taken = rounds(
            residual, lanes, bounds, problem, steps=steps, least_gain=least_gain, report=said, fewest=_LANES
        )
        found = [np.asarray(x) for x in (lanes.z, lanes.cost, lanes.gradient)]
        for search, x, cost, gradient, count in zip(chosen, *found, taken, strict=True):
            search.x, search.gradient, search.steps = x, float(gradient), int(count)
            if not np.isfinite(cost):
                search.verdict = "the objective is not finite"

    try:
        run(searches)
    except RUN_TIME_ERRORS:
        for search in searches:
            try:
                run([search])
            except RUN_TIME_ERRORS as error:
                search.verdict = f"an analysis raises: {str(error).strip().splitlines()[0]}"


def _keeps(problem: Problem, search: Search) -> bool:
    """Return True if a search is known to start at a point that keeps all limits."""
    at = _linearised(problem, jnp.asarray(search.x))
    return at is not None and violation_of(at[0]) <= 0


def _evaluate(problem: Problem, searches: list[Search]) -> None:
    """Give each search its objective and violation, and those that are not worth going on a verdict."""
    for search in searches:
        if search.verdict:
            continue
        try:
            here, _ = linearised(jnp.asarray(search.x), problem)  # with slopes: one program to compile, not two
        except RUN_TIME_ERRORS as error:
            search.verdict = f"an analysis raises: {str(error).strip().splitlines()[0]}"
            continue
        missed = [np.max(np.abs(limit.violations(here.values[name]))) for name, limit in problem.limits.items()]
        search.objective, search.violation = float(here.objective), float(max(missed, default=0.0))
        if not np.isfinite(search.objective):
            search.objective, search.verdict = np.inf, "the objective is not finite"


def _result(problem: Problem, searches: list[Search], outcome: str) -> Design:
    variables = problem.variables
    order = sorted(range(len(searches)), key=lambda k: _rank(searches[k]))
    best = searches[order[0]]
    starts = tuple(
        Start(k, s.verdict, s.objective, s.violation, variables.values(jnp.asarray(s.x)), s.steps, tuple(s.course))
        for k, s in ((k, searches[k]) for k in order)
    )
    x = jnp.asarray(best.x)
    there = _linearised(problem, x)
    values = {name: np.full(1, np.nan) for name in problem.limits}
    if there is not None:
        values = {name: np.asarray(value) for name, value in there[0].values.items()}
    margins = _margins(problem, values, None)
    is_minimum = np.isfinite(best.objective) and all(margin.kept for margin in margins)
    at, multipliers = there if is_minimum else None, None
    samples, peaks = _samples(problem, at)
    if at is not None and all(np.isfinite(row).all() for row in jax.tree.leaves(at[1])):
        margins = _margins(problem, values, at[1])
        multipliers = multipliers_of(problem, best.x, at, values, peaks)
    return Design(
        variables.values(x), best.objective, variables.mechanism(x), margins, variables.on_bounds(x), starts,
        outcome or _outcome(best, margins, len(searches)), variables.labels, np.asarray(variables.physical(x)),
        variables.units, multipliers, samples, problem.objective.unit if isinstance(problem.objective, Peak) else "",
    )  # fmt: skip


def _samples(problem: Problem, at: tuple[Point, Point] | None) -> tuple[tuple[ActiveSample, ...], np.ndarray]:
    """The samples that attain the peak, and their rows; none of an objective that is no peak, or is not finite."""
    if at is None or not isinstance(problem.objective, Peak):
        return (), NO_ROWS
    return problem.objective.attained(sizes_of_samples(problem), np.asarray(at[0].heights))


def _linearised(problem: Problem, x: jax.Array) -> tuple[Point, Point] | None:
    """The problem at a point with its derivatives; None if an analysis raises."""
    try:
        return linearised(x, problem)
    except RUN_TIME_ERRORS:
        return None


def _margins(problem: Problem, values: dict[str, np.ndarray], slopes: Point | None) -> tuple[Margin, ...]:
    """The margins of all constraints; `slopes`: the derivatives of their rows, if they are known."""
    rows = (
        {}
        if slopes is None
        else by_constraint(problem, values, *map(np.asarray, (slopes.inequalities, slopes.equations)))
    )
    return tuple(margin_of(name, limit, values[name], rows.get(name)) for name, limit in problem.limits.items())


def _rank(search: Search) -> tuple[bool, float]:
    is_kept = search.violation <= TOLERANCE and np.isfinite(search.objective)
    return (False, search.objective) if is_kept else (True, search.violation)


def _outcome(best: Search, margins: tuple[Margin, ...], starts: int) -> str:
    """Return why the search stopped, for the best start."""
    broken = [margin for margin in margins if not margin.kept]
    if broken:
        names = ", ".join(f"{m.name!r} (by {-m.margin:.3g})" for m in broken)
        return f"no design found that keeps all constraints, from {count_of(starts, 'start')}; violated: {names}"
    if not np.isfinite(best.objective):
        return f"no design found, from {count_of(starts, 'start')}: {best.verdict}"
    return best.verdict
