"""One start of a nonlinear programme, by the methods of SciPy with exact derivatives."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import jax
import numpy as np
import scipy.optimize as spo
from jaxtyping import Float

from jaxmbd.optimal_design._epigraph import WORSE, Epigraph, Programme, exceeds, finite, working_set
from jaxmbd.optimal_design._limits import TOLERANCE
from jaxmbd.optimal_design._peak import Peak
from jaxmbd.optimal_design._problem import Point

Method = Literal["slsqp", "trust-constr"]

PRECISION = 1e-12  # change of the scaled objective, and of the variables, that ends a search
_NOTHING = 1e-8  # objective, as a share of its slope, that says nothing of its size
_GAIN = 1e-9  # share of a peak that a search has to take off, or it is the last one
NOT_SMOOTH = "the derivative of the objective is not finite"


@runtime_checkable
class Solvable(Protocol):
    """A problem that is solved from one start."""

    @property
    def objective(self) -> object:
        """A `Peak`, or anything else."""
        ...

    @property
    def bounds(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """The lower and upper bounds of `x`."""
        ...

    def evaluated(self, x: Float[np.ndarray, " n"], /) -> tuple[Point, Point]:
        """The problem at a point and its derivatives, of NumPy's arrays; NaN where an analysis fails."""
        ...


@dataclass
class Search:
    """The course of one search: the best point, its objective and largest violation, the steps, the verdict, and why it
    has `ended`, limits apart; of a search by least squares the size of its gradient, which at a stationary point is at
    most one; its `course`: after each step its number, the best objective so far, and the largest violation there."""

    x: Float[np.ndarray, " n"]
    objective: float = np.inf
    violation: float = np.inf
    steps: int = 0
    verdict: str = ""
    ended: str = ""
    gradient: float = np.inf
    course: list[tuple[int, float, float]] = field(default_factory=list)

    def log(self) -> None:
        """Note where the search is."""
        self.course.append((self.steps, self.objective, self.violation))

    def offer(self, x: np.ndarray, objective: float, violation: float) -> None:
        """Keep a point if it is better: of less violation, or of less objective where both keep the limits."""
        if not np.isfinite(objective):
            return
        kept, was_kept = violation <= TOLERANCE, self.violation <= TOLERANCE
        better = objective < self.objective if kept and was_kept else violation < self.violation
        if better or not np.isfinite(self.objective):
            self.x, self.objective, self.violation = np.array(x), objective, violation


@dataclass
class _Evaluation:
    """Values and derivatives at the last points that SciPy asked for: it asks for each by itself."""

    problem: Solvable
    search: Search
    size: float = 1.0
    known: dict[bytes, tuple[Point, Point]] = field(default_factory=dict)

    def at(self, x: np.ndarray) -> tuple[Point, Point]:
        key = np.asarray(x).tobytes()
        if key not in self.known:
            if len(self.known) > 4:
                self.known.clear()
            self.known[key] = self._evaluate(x)
        return self.known[key]

    def _evaluate(self, x: np.ndarray) -> tuple[Point, Point]:
        found = self.problem.evaluated(x)
        self.search.offer(x, float(found[0].objective), violation_of(found[0]))
        return found

    def objective(self, x: np.ndarray, /) -> float:
        value, slopes = self.at(x)
        return float(value.objective) / self.size if _is_finite((value, slopes)) else WORSE

    def fault(self, x: np.ndarray) -> str:
        """Return which derivatives at a point are not finite; "" if all are. SciPy takes such ones for zeros."""
        slopes = self.at(x)[1]
        if not _is_finite(slopes.objective):
            return NOT_SMOOTH
        return "" if _is_finite(slopes) else "the derivative of a constraint is not finite"

    def rows(self, part: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: finite(getattr(self.at(x)[0], part))

    def slopes(self, part: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: finite(getattr(self.at(x)[1], part)) / (self.size if part == "objective" else 1.0)


def _is_finite(values: object) -> bool:
    return all(bool(np.isfinite(row).all()) for row in jax.tree.leaves(values))


def violation_of(value: Point) -> float:
    """Return the largest violation, infinite if one is unknown."""
    missed = [np.max(-np.asarray(value.inequalities), initial=0.0), np.max(np.abs(value.equations), initial=0.0)]
    return float(max(missed)) if np.isfinite(missed).all() else np.inf


def solve(
    problem: Solvable, start: Float[np.ndarray, " n"], method: Method, steps: int, search: Search,
    precision: float = PRECISION,
) -> None:  # fmt: skip
    """Minimise from one start. The best point so far is in `search` at any time, also after an interrupt. `precision`:
    of an objective that is no peak, the change that ends the search."""
    evaluation = _Evaluation(problem, search)
    first, slopes = evaluation.at(start)
    if not np.isfinite(first.objective):
        search.verdict = "the objective is not finite"
        return
    if not _is_finite(slopes.objective):
        search.verdict = NOT_SMOOTH
        return
    search.log()
    bounds = problem.bounds
    if isinstance(problem.objective, Peak):
        text = _lower_peak(evaluation, start, bounds, method, steps)
    else:
        evaluation.size = _size_of(float(first.objective), np.asarray(slopes.objective))
        text, _ = _minimise(evaluation, start, bounds, method, steps, search, precision)
    search.ended = text = evaluation.fault(search.x) or text
    search.verdict = text if search.violation <= TOLERANCE else f"the limits are not kept ({text})"


def _minimise(
    programme: Programme, start: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], method: Method, steps: int,
    search: Search, precision: float = PRECISION,
) -> tuple[str, np.ndarray]:  # fmt: skip
    """Run a method of SciPy; return why it has ended, and where."""
    rules = []
    for part, kind in (("inequalities", "ineq"), ("equations", "eq")):
        if programme.rows(part)(start).size:
            rules.append({"type": kind, "fun": programme.rows(part), "jac": programme.slopes(part)})
    ends = {"ftol": precision} if method == "slsqp" else {"xtol": precision, "gtol": 1e-9}

    def count(*_: object) -> None:
        search.steps += 1
        search.log()

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "delta_grad == 0.0")  # of a linear objective by trust-constr: it converges
        found = spo.minimize(
            programme.objective, start, method=method, jac=programme.slopes("objective"),
            bounds=spo.Bounds(*bounds),  # pyright: ignore[reportArgumentType]
            constraints=rules, callback=count, options={"maxiter": steps, **ends},
        )  # fmt: skip
    ended = {0: "used all its steps", 1: "converged", 2: "converged"}
    text = ended.get(int(found.status), str(found.message)) if method == "trust-constr" else _slsqp_text(found)
    return text, np.asarray(found.x)


def _lower_peak(
    evaluation: _Evaluation, start: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], method: Method, steps: int
) -> str:
    """Lower a peak with working sets of its samples until no other sample exceeds it, and no search lowers it further.

    Each search starts at the best point, and measures the bound by the peak there: it may be far below the first one.
    """
    search, before = evaluation.search, np.inf
    x, working, text = start, np.zeros(0, bool), ""
    while search.steps < steps:
        heights = np.asarray(evaluation.at(x)[0].heights)
        working = working_set(heights, working if len(working) else np.zeros(len(heights), bool))
        size, slopes = float(np.max(heights)), np.asarray(evaluation.at(x)[1].objective)
        epigraph = Epigraph(evaluation, evaluation.at, _size_of(size, slopes), working)
        limits = np.append(bounds[0], 0.0), np.append(bounds[1], np.inf)
        z = np.append(x, size / epigraph.size)
        text, end = _minimise(epigraph, z, limits, method, steps - search.steps, search)
        heights = np.asarray(evaluation.at(end[:-1])[0].heights)
        missed = np.isfinite(heights).all() and exceeds(heights, working)
        if missed:
            working = working_set(heights, working)
        elif not before - search.objective > _GAIN * abs(search.objective):
            break
        x, before = search.x, search.objective
    return text


def _size_of(objective: float, slopes: Float[np.ndarray, " n"]) -> float:
    """Return the size of the objective at the start; where it nearly vanishes, its largest slope."""
    steepest = float(np.max(np.abs(slopes), initial=0.0))
    return abs(objective) if abs(objective) > _NOTHING * steepest else steepest or 1.0


def _slsqp_text(found: spo.OptimizeResult) -> str:
    if found.success:
        return "converged"
    if found.status == 9:
        return "used all its steps"
    # At a minimum that is known to rounding the line search finds no descent any more.
    return "converged to rounding" if found.status == 8 else f"stopped: {found.message}"
