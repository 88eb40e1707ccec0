"""Intervals by the likelihood, for parameters in which a model is too far from linear for their standard errors.

Along a parameter `p`, with all other unknowns fitted anew at each value, the root of what the loss `L` gains,

    τ(p) = sign(p − p̂) √(2 (L(p) − L(p̂))) / s,

is the straight line `(p − p̂) / σ` for a linear model, and `|τ| ≤ t` an interval for any. Where it differs from `t` by
more than a tenth at the ends of the interval by the standard error, the interval ends where the root is `t`; at the end
of the parameter's range if it is nowhere. The other unknowns follow by the linear model, and by a step of Gauss and
Newton from there; what that step still gains is foreseen. Along what the data do not determine such a step would be
rounding, however far; so unknowns that are open are damped, which hinders no combination of them that is determined.
Where residuals are not independent, `τ` is divided by the factor by which standard errors are then larger.

Sources: Bates and Watts, *Nonlinear Regression Analysis and Its Applications* (1988), §6.1.2; Venzon and Moolgavkar,
Applied Statistics 37 (1988); Chandler and Bate, Biometrika 94 (2007), for residuals that are not independent.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array

from jaxmbd.identification._linearisation import bounds_of, flattened, linearised, shapes_of, unflattened
from jaxmbd.identification._minimise import INTERRUPTED, Minimum, Report, evaluator, without_multipliers
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._uncertainty import RootProfile, Uncertainty, by_physical_values, unknowns_of
from jaxmbd.numerics.block_least_squares import Linearised
from jaxmbd.numerics.stepwise_search import positive, shaped
from jaxmbd.parameters.labels import LISTED
from jaxmbd.parameters.parameters import flat
from jaxmbd.parameters.ranges import AbstractElementwiseRange
from jaxmbd.user_functions import RUN_TIME_ERRORS

LEVEL = 0.95  # of the interval that decides, and to which the profile reaches
_BENT = 0.1  # difference of the root from a straight line, as a share, from which a standard error is not enough
_LINEAR = 0.02  # a standard error that is a smaller share of its parameter's size is enough
_MOST = 12  # parameters that are looked at: those with the largest relative standard errors
_EXACT = 0.01  # share of the root to which the ends of intervals are found
_TRIALS = 8  # values on one side
_FARTHER = 3.0  # times as far as the value before, at most
_BEYOND = 1.05  # times as far as a straight line says, so that the next value lies beyond the end
_INNER = 0.05  # share of the way between two values that a value between them keeps from both
_SIDES = 3.0  # times as far as in physical values: an end in the numbers of the search beyond that is no good trial
_LEFT = 0.05  # share of the gain that the step of the others may still promise
_NEAR = 1e-6  # share of the way to the end of an open range that is left
_DAMPING = 1e-11  # as small as rounding allows
_OPEN = 1e3  # how many times stronger unknowns are damped, by the root, that the data do not determine

Flat = np.ndarray
Trials = Generator[Flat, Linearised | None, RootProfile | None]


def with_likelihood_intervals(
    problems: Sequence[Problem], minima: Sequence[Minimum], known: Sequence[Uncertainty | None], lanes: int,
    report: Report,
) -> list[Uncertainty | None]:  # fmt: skip
    """Return the uncertainties of several fits with the profiles of the parameters that need them.

    **Arguments:** `lanes`: how many searches the evaluation was compiled for, side by side.
    """
    found: list[dict[int, RootProfile]] = [{} for _ in problems]
    trials = [_all_trials(a, b, c, into) for a, b, c, into in zip(problems, minima, known, found, strict=True)]
    asked = [next(one, None) for one in trials]
    if any(u is not None for u in asked):
        report("intervals ...")
        like = problems[0].unconstrained(problems[0].start())
        together, joins = evaluator(problems, lanes), without_multipliers(problems[0])
        try:
            while any(u is not None for u in asked):
                rest = [
                    minimum.u if u is None else unflattened(u, like) for u, minimum in zip(asked, minima, strict=True)
                ]
                try:
                    evaluations = together(rest + rest[:1] * (lanes - len(rest)), joins, False)
                except RUN_TIME_ERRORS:  # numbers that a part refuses
                    evaluations = [None] * lanes
                for k, (problem, evaluation) in enumerate(zip(problems, evaluations, strict=False)):
                    if asked[k] is not None:
                        asked[k] = _answered(trials[k], None if evaluation is None else linearised(problem, evaluation))
        except KeyboardInterrupt:
            pass
    return [
        None if one is None else replace(one, profiles=profiles) for one, profiles in zip(known, found, strict=True)
    ]


def _answered(trials: Generator[Flat, Linearised | None, None], answer: Linearised | None) -> Flat | None:
    try:
        return trials.send(answer)
    except StopIteration:
        return None


def _all_trials(
    problem: Problem, minimum: Minimum, known: Uncertainty | None, into: dict[int, RootProfile]
) -> Generator[Flat, Linearised | None, None]:
    """The trials of all parameters of a fit that need them, one after another."""
    if known is None or minimum.outcome == INTERRUPTED or problem.is_cut:
        return
    estimates, slopes = unknowns_of(problem, minimum)
    relative = np.divide(known.errors, estimates.sizes, out=np.zeros_like(known.errors), where=estimates.sizes > 0)
    places = [k for k in np.argsort(-relative) if relative[k] > _LINEAR and not known.is_open[k]]
    for place in [int(k) for k in places if _is_looked_at(problem, int(k))][:_MOST]:
        profile = yield from _Line(problem, minimum, known, slopes, place).trials()
        if profile is not None:
            into[place] = profile


def _is_looked_at(problem: Problem, place: int) -> bool:
    """True for the numbers of a parameter that all experiments share, each with a range of its own."""
    owners = problem.owners()
    if place >= len(problem.parameter_names()):
        return False
    within = problem.parameters.free[owners[place]].within
    return isinstance(within, AbstractElementwiseRange) and owners.count(owners[place]) <= LISTED


def _by_numbers_of_the_search(is_open: np.ndarray, slopes: Sequence[np.ndarray]) -> np.ndarray:
    """Which numbers of the search have an effect on physical values that are open."""
    parts = np.split(is_open, np.cumsum([len(slope) for slope in slopes])[:-1])
    return np.concatenate([
        (slope[part] != 0).any(axis=0) if slope.ndim == 2 else part for part, slope in zip(parts, slopes, strict=True)
    ])  # fmt: skip


class _Line:
    """The values of one parameter, and what the others are there."""

    def __init__(
        self, problem: Problem, minimum: Minimum, known: Uncertainty, slopes: Sequence[np.ndarray], place: int
    ) -> None:
        self.problem, self.place = problem, place
        self.u, self.shapes = flattened(minimum.u), shapes_of(problem, minimum.u)
        self.bounds = bounds_of(problem, minimum.u)
        owners = problem.owners()
        self.name = owners[place]
        self.number = place - owners.index(self.name)
        self.estimate = float(known.values[place])
        self.error = float(known.errors[place])
        self.unit = known.level * float(known.widening[place])
        self.freedom = known.freedom
        assert minimum.linearised is not None
        self.loss = minimum.linearised.loss
        along = known.covariance[:, place] / known.covariance[place, place]
        self.others = by_physical_values(along[None], [slope.T for slope in slopes])[0]  # a change, not a derivative
        self.damped = np.where(_by_numbers_of_the_search(known.is_open, slopes), _OPEN, 1.0)
        self.within, self.start = problem.parameters.free[self.name].within, problem.parameters.start[self.name]
        self.whole = flat(problem.physical(minimum.u).parameters[self.name])
        whole = self._whole(self.estimate)
        lower, upper = (self.within.moved(whole, jnp.asarray(x), self.start) for x in (-np.inf, np.inf))
        self.ends = float(np.ravel(lower)[self.number]), float(np.ravel(upper)[self.number])

    def trials(self) -> Trials:
        """Ask for one evaluation after another; return the profile, None if the standard error is enough."""
        target = float(scipy.stats.t.ppf(0.5 + LEVEL / 2, self.freedom))
        sides, is_enough = [], True
        for side in (-1.0, 1.0):
            value, is_near = self._by_standard_error(side * target)
            sides.append((yield from self._root(value, self._guess(value, (self.estimate, 0.0, self.u)))))
            is_enough &= is_near and abs(sides[-1][1] / (side * target) - 1) <= _BENT
        if is_enough:
            return None
        values, roots = [self.estimate], [0.0]
        for side, first in zip((-1.0, 1.0), sides, strict=True):
            mine = yield from self._side(side, target, first)
            values, roots = values + [v for v, _ in mine], roots + [r for _, r in mine]
        if len(values) == 1:
            return None
        order = np.argsort(values)
        values, roots = np.array(values)[order], np.maximum.accumulate(np.array(roots)[order])
        below, above = (
            self._is_last(float(values[k]), side) and bool(abs(roots[k]) < target) for k, side in ((0, -1.0), (-1, 1.0))
        )
        return RootProfile(values, roots, self.ends, (below, above))

    def _by_standard_error(self, width: float) -> tuple[float, bool]:
        """The end of the interval by the standard error, in the numbers of the search; and whether it is near the one
        in physical values. Else the latter is a better trial."""
        moved = self.within.moved(self._whole(self.estimate), jnp.asarray(width * self.error), self.start)
        end, plain = float(np.ravel(moved)[self.number]), self._inside(self.estimate + width * self.error)
        is_near = abs(end - self.estimate) <= _SIDES * abs(plain - self.estimate)
        return (self._inside(end), True) if is_near else (plain, False)

    def _side(
        self, side: float, target: float, first: tuple[float, float, Flat]
    ) -> Generator[Flat, Linearised | None, list[tuple[float, float]]]:
        """Values on one side with their roots, up to where the root is the target, or the range ends."""
        found = [first]
        below, above = (self.estimate, 0.0), None
        for _ in range(_TRIALS):
            value, size = found[-1][0], side * found[-1][1]
            if size > target:  # also where there is no motion
                above = value, size
            else:
                below = value, size
            if abs(size / target - 1) <= _EXACT or (above is None and self._is_last(value, side)):
                break
            if above is None:
                reach = _BEYOND * target
                far = reach / max(size, reach / _FARTHER)
                value = self._inside(self.estimate + far * (value - self.estimate))
            else:
                share = (target - below[1]) / (above[1] - below[1]) if np.isfinite(above[1]) else 0.5
                value = below[0] + min(max(share, _INNER), 1 - _INNER) * (above[0] - below[0])
            found.append((yield from self._root(value, self._guess(value, found[-1]))))
        return [(value, root) for value, root, _ in found if np.isfinite(root)]

    def _guess(self, value: float, last: tuple[float, float, Flat]) -> Flat:
        """All unknowns at a value: by those at the last one if there is a motion, else by the linear model."""
        moved = last[0] - self.estimate
        along = (last[2] - self.u) / moved if moved and np.isfinite(last[1]) else self.others
        return self.u + along * (value - self.estimate)

    def _root(self, value: float, guess: Flat) -> Generator[Flat, Linearised | None, tuple[float, float, Flat]]:
        """The root at a value, and all unknowns there; infinite where there is no motion."""
        side = 1.0 if value > self.estimate else -1.0
        lower, upper = self.bounds
        u = np.clip(guess, lower, upper)
        u[self.place] = np.ravel(self.within.unconstrained(self._whole(value), self.start))[self.number]
        root = side * np.inf
        for _ in range(2):
            there = yield u
            if there is None or not there.is_finite:
                return value, root, u
            fixed = (u <= lower) | (u >= upper)
            fixed[self.place] = True
            scale = self.damped * positive(there.norms().flat())
            step = there.solved(_DAMPING, shaped(scale, self.shapes), shaped(fixed, self.shapes))
            left = max(there.predicted(step), 0.0)
            gain = 2 * max(left - self.loss, 0.0) / self.unit**2
            root = side * float(np.sqrt(gain))
            u = np.clip(u + step.flat(), lower, upper)
            if 2 * (there.loss - left) / self.unit**2 <= _LEFT * max(gain, 1.0):
                break
        return value, root, u

    def _whole(self, value: float) -> Array:
        """All numbers of the parameter, this one with another value."""
        whole = self.whole.copy()
        whole[self.number] = value
        return jnp.asarray(whole.reshape(np.shape(self.start)))

    def _inside(self, value: float) -> float:
        """The value, or one near the end of the range beyond which it lies."""
        if self.within.contains(np.asarray(self._whole(value))):
            return value
        end = self.ends[0] if value < self.estimate else self.ends[1]
        closed = self.within.contains(np.asarray(self._whole(end)))
        return end if closed else end + _NEAR * (self.estimate - end)

    def _is_last(self, value: float, side: float) -> bool:
        """True for a value at, or near, the end of the range on a side."""
        return self._inside(value + side * self.error) == value
