"""The search for an exciting motion from random ones, and what is kept over the whole period.

The samples of the search are few, so a motion exceeds its limits between them. Limits are tightened by that excess, and
the search goes on from where it was: an exchange with constant shapes, so that nothing is compiled again.

Source: Hettich, Kortanek, *Semi-infinite programming: theory, methods, and applications*, SIAM Review 35 (1993).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmbd.errors import SolveError
from jaxmbd.optimal_design._excitation_problem import Criterion, ExcitationProblem
from jaxmbd.optimal_design._limits import TOLERANCE, Margin, margin_of
from jaxmbd.optimal_design._nonlinear_programme import Search, solve
from jaxmbd.printing import count_of

_FINER = 8  # times as many samples show whether the limits are kept between those of the search
_PRECISION = 1e-5  # change of the logarithm of the criterion that ends a search
_EXPONENTS = 4.0, 16.0, 64.0  # of the condition number without kinks, one search after the other
_ROUNDS = 6  # searches at most in which limits are tightened by what the motion exceeds its samples
# Shares of a limit's scale: by which it is tightened further, more in each round; up to which it counts as reached.
_PAD, _MORE, _ACTIVE = 1e-5, 4.0, 1e-3
_WIDTH, _SHIFT = 0.8, 0.2  # of random starts: of what the limits allow; of the middle, as a share of half the range
_HALVINGS = 6  # of a random start whose loops cannot be closed


def random_starts(problem: ExcitationProblem, count: int, seed: int) -> list[np.ndarray]:
    """Random motions that keep the limits of what is moved, and along which the loops close.

    **Raises:** `SolveError` if there is none.
    """
    series, draws, found = problem.series, np.random.default_rng(seed), []
    at = {place: k for k, place in enumerate(problem.moved.get(name) for name in problem.limits) if place is not None}
    for start in range(count):
        x = draws.normal(size=(len(series.units), problem.B.shape[2]))
        x[:, 0] = 0.0
        swings = np.abs(series.samples(x.ravel(), problem.B) - series.at_middle).max(axis=0)
        for moved in range(len(x)):
            room = [
                np.abs(problem.ends[row] - series.at_middle[moved, order]).min() / swings[moved, order]
                for (k, order), row in at.items()
                if k == moved
            ]
            x[moved] *= _WIDTH * min(room)
        x[:, 0] = _SHIFT * draws.uniform(-1, 1, len(x)) * (start > 0)
        shares = (0.5**k for k in range(_HALVINGS))
        found += [s * x.ravel() for s in shares if problem.positions(s * x.ravel(), problem.ts) is not None][:1]
    if not found:
        raise SolveError(
            f"excitation: the loops cannot be closed along any of {count_of(count, 'random motion')}, even small ones: "
            "choose limits of the moved coordinates about positions that can be assembled."
        )
    return found


class Quality(NamedTuple):
    """Of the regressor of a motion: the condition number, the mean of `−log σ` over its singular values, and the
    geometric mean of the standard errors of the base parameters, in units of their noise and sizes."""

    condition: float
    volume: float
    errors: float


@dataclass
class Course:
    """The course of one start: the point it has come to, the margins there over the whole period, and the verdict.

    `first`, `quality`: of the random motion, and of the one that it has become.
    """

    x: np.ndarray
    first: Quality
    quality: Quality
    verdict: str = "interrupted"
    steps: int = 0
    margins: tuple[Margin, ...] = ()
    violation: float = np.inf

    def rank(self, criterion: Criterion) -> tuple[bool, float]:
        """The lower, the better: motions that keep the limits come first."""
        reached = self.quality.condition if criterion == "condition" else self.quality.volume
        return (False, reached) if self.violation <= TOLERANCE else (True, self.violation)


def searches(
    problem: ExcitationProblem, xs: Sequence[np.ndarray], steps: int, report: Callable[[str], None]
) -> list[Course]:
    """Search from each start; an interrupt ends the search with what it has found."""
    courses = []
    try:
        for k, x in enumerate(xs):
            first = _quality(_known(problem.regressor(x)))
            courses.append(Course(x, first, first))
            report(f"excitation: start {k + 1} of {len(xs)}, condition {first.condition:.4g}")
            _search(problem, courses[-1], steps)
    except KeyboardInterrupt:
        if not courses:
            raise
    return courses


def with_sizes(problem: ExcitationProblem, xs: Sequence[np.ndarray]) -> ExcitationProblem:
    """The problem with columns in units of their sizes in these motions, by root mean square."""
    problem = replace(problem, sizes=np.ones(len(problem.unknowns.columns)))
    squares = [np.sum(_known(problem.regressor(x)) ** 2, axis=0) for x in xs]
    return replace(problem, sizes=np.sqrt(np.mean(squares, axis=0)))


def _quality(rows: Float[np.ndarray, "rows columns"]) -> Quality:
    _, sigma, V = np.linalg.svd(rows, full_matrices=False)
    errors = np.linalg.norm(V / sigma[:, None], axis=0)  # √ of the diagonal of (XᵀX)⁻¹
    return Quality(float(sigma[0] / sigma[-1]), -float(np.mean(np.log(sigma))), float(np.exp(np.mean(np.log(errors)))))


def _known(found: Any) -> Any:
    assert found is not None  # the motion has been followed before
    return found


def _search(problem: ExcitationProblem, course: Course, steps: int) -> None:
    """Search with ever larger exponents, and limits tightened by what the motion exceeds them between the samples."""
    exponents = _EXPONENTS if problem.criterion == "condition" else _EXPONENTS[:1]
    for k in range(_ROUNDS):
        problem = replace(problem, exponent=exponents[min(k, len(exponents) - 1)])
        search = Search(course.x)
        try:
            solve(problem, course.x, "slsqp", steps, search, _PRECISION)
        finally:
            course.x, course.verdict = search.x, search.verdict or course.verdict
            course.steps += search.steps
            excess = _judge(problem, course)
        if course.violation <= TOLERANCE:  # whether or not the tightened ones are kept, too
            course.verdict = search.ended or course.verdict
        is_over = (excess > TOLERANCE * problem.scales[:, None]) | (problem.tightened > 0)
        if course.violation <= TOLERANCE and k >= len(exponents) - 1:
            break
        wanted = problem.tightened + excess + _PAD * _MORE**k * problem.scales[:, None]
        problem = replace(problem, tightened=np.where(is_over, np.maximum(wanted, 0.0), 0.0))


def _judge(problem: ExcitationProblem, course: Course) -> Float[np.ndarray, "limits 2"]:
    """Compute criterion and margins of the whole period; return by how much each limit is exceeded."""
    shifts = problem.ts[1] * np.arange(_FINER) / _FINER
    parts = [_known(problem.readings(course.x, problem.ts + shift)) for shift in shifts]
    values = {name: _with_peaks(np.stack([part[name] for part in parts], axis=1).ravel()) for name in problem.limits}
    found = [margin_of(name, limit, values[name]) for name, limit in problem.limits.items()]
    course.margins = tuple(
        replace(m, active=m.kept and m.margin <= _ACTIVE * size) for m, size in zip(found, problem.scales, strict=True)
    )
    course.violation = max(0.0, *(-m.margin / size for m, size in zip(found, problem.scales, strict=True)))
    course.quality = _quality(_known(problem.regressor(course.x)))
    ends = np.array([[np.min(values[name]), np.max(values[name])] for name in problem.limits])
    return np.where(np.isfinite(problem.ends), (ends - problem.ends) * [-1, 1], -np.inf)


def _with_peaks(values: Float[np.ndarray, " times"]) -> Float[np.ndarray, " more"]:
    """Equally spaced values of a period, and the vertices of the parabolas through each extreme and its neighbours."""
    before, after = np.roll(values, 1), np.roll(values, -1)
    is_extreme = (after - values) * (values - before) < 0
    bend = np.where(is_extreme, after - 2 * values + before, 1.0)
    return np.concatenate([values, (values - (after - before) ** 2 / (8 * bend))[is_extreme]])
