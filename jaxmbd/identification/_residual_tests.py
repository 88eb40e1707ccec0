"""Tests of the residuals of a fit, channel by channel: are they noise, of the size that was given, and what follows.

- **Whiteness**: with the correlations `ρ_k` of samples `k` apart in each experiment, `Q = n (n + 2) Σ_k ρ_k² / (n − k)`
  has, for independent residuals, the χ² distribution with as many degrees of freedom as lags. With more than `log n` of
  them it exceeds large quantiles too often.
- **Level**: with the noise levels `σ` that are given, `Σ r²` has the χ² distribution, if model and levels are right.

Sources: Ljung and Box, Biometrika 65 (1978); Tsay, *Analysis of Financial Time Series* (2010), §2.2, for the number of
lags.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmbd.identification._problem import Problem
from jaxmbd.identification._score_scatter import correlations, repeated
from jaxmbd.identification._stacks import channel_series

# The p-value of all channels together below which a test says something. A fit takes a part of the residuals and makes
# the rest depend on each other, so that clean data of few samples are below it five times as often.
_SIGNIFICANT = 1e-3
_MATTERS = 1.1  # ratio of levels, or of widths of intervals, from which it is said
_EXPLAINED = 1e-6  # residuals relative to the readings that are errors of the search and the integration
_PER_TOLERANCE = 100.0  # the same, in relative tolerances of the integration
_FEWEST = 4.0  # samples for each estimated number below which residuals are correlated by the fit itself


@dataclass(frozen=True)
class ResidualTest:
    """What the residuals of one channel tell.

    - `channel`; `p_value`: of the test of whiteness; `correlation`: of neighbouring samples;
    - `is_correlated`: whether the p-value is below 0.001, divided by the number of channels;
    - `level`: their root mean square, in units of the noise level;
    - `is_too_large`: whether that is above one, the noise level being given, more than chance and by a tenth.
    """

    channel: str
    p_value: float
    correlation: float
    is_correlated: bool
    level: float
    is_too_large: bool


def ljung_box(parts: Iterable[Float[np.ndarray, " _"]], lags: int) -> tuple[float, float, float]:
    """Return the statistic of several series together, its p-value, and the mean correlation of neighbours; NaN for
    series that are all shorter than four samples."""
    total, freedom, first = 0.0, 0, []
    for r in parts:
        n, count = len(r), min(lags, len(r) // 4)
        if count < 1 or not np.any(r):
            continue
        rho = np.array([r[k:] @ r[:-k] for k in range(1, count + 1)]) / (r @ r)
        total += n * (n + 2) * float(np.sum(rho**2 / (n - np.arange(1, count + 1))))
        freedom += count
        first.append(rho[0])
    if not freedom:
        return total, np.nan, np.nan
    return total, float(scipy.stats.chi2.sf(total, freedom)), float(np.mean(first))


def residual_tests(
    problem: Problem,
    residuals: Sequence[np.ndarray],
    readings: Sequence[Mapping[str, Array | np.ndarray]],
    estimated: float,
) -> tuple[ResidualTest, ...]:
    """Return the tests of all channels but those that the model explains to the accuracy of the motions.

    **Arguments:** of each stack the `residuals`, as the loss takes them, and the model's `readings`; `estimated`: how
    many numbers the data determine. The level says nothing under a robust loss, which is there for larger residuals.
    """
    series = channel_series(problem.stacks, residuals)
    count = sum(len(r) for parts in series.values() for r in parts)
    if count < _FEWEST * max(estimated, 1.0):
        return ()
    rtol, found = problem.integration.rtol, []
    explained = max(_EXPLAINED, 0.0 if rtol is None else _PER_TOLERANCE * float(np.max(np.asarray(rtol))))
    limit = _SIGNIFICANT / max(len(series), 1)
    for name, parts in series.items():
        mine = sum(map(len, parts))
        square = sum(float(r @ r) for r in parts)
        if not square > mine * (explained * _size(problem, readings, name)) ** 2:
            continue
        _, p_value, neighbours = ljung_box(parts, max(2, round(np.log(max(map(len, parts))))))
        level = float(np.sqrt(square / (mine * (1 - estimated / count))))
        found.append(
            ResidualTest(
                name, p_value, neighbours, p_value < limit, level,
                _has_levels(problem, name) and level > _MATTERS and _chance(parts, level, estimated / count) < limit,
            )
        )  # fmt: skip
    return tuple(found)


def _size(problem: Problem, readings: Sequence[Mapping[str, Array | np.ndarray]], name: str) -> float:
    """The root mean square of a channel of the model, in units of its noise level."""
    total, count = 0.0, 0
    for values, stack in zip(readings, problem.stacks, strict=True):
        if name in stack.experiment.data:
            levels = np.asarray(stack.experiment.sigma[name]).reshape((-1,) + (1,) * (np.ndim(values[name]) - 1))
            present = np.isfinite(np.asarray(stack.experiment.data[name]))
            total += float(np.sum(np.where(present, np.asarray(values[name]) / levels, 0.0) ** 2))
            count += int(present.sum())
    return float(np.sqrt(total / max(count, 1)))


def _has_levels(problem: Problem, name: str) -> bool:
    """True if the noise level of a channel is given: 1, the default, says that it is not known."""
    if problem.noise != "given" or problem.likelihood.loss != "squares":
        return False
    levels = [np.asarray(s.experiment.sigma[name]) for s in problem.stacks if name in s.experiment.data]
    return all((level != 1.0).all() for level in levels)


def _chance(parts: Sequence[np.ndarray], level: float, fitted: float) -> float:
    """The probability of such a level or a larger one, if the noise level is right; `fitted`: the share of the
    residuals that the estimates take."""
    freedom = sum(map(len, parts)) * (1 - fitted) / repeated(correlations(parts))
    return float(scipy.stats.chi2.sf(freedom * level**2, freedom))


def residual_remarks(
    tests: Sequence[ResidualTest], widest: tuple[str, float], *, from_scatter: bool, coloured: bool
) -> list[str]:
    """Return a sentence for each kind of what the residuals tell.

    **Arguments:** `widest`: the parameter whose error correlations make larger by the largest factor, and that factor;
    `from_scatter`: errors come from the scatter between experiments; `coloured`: the noise has been estimated as such.
    """
    said, correlated = [], [test for test in tests if test.is_correlated]
    if correlated:
        listed = ", ".join(f"{test.channel} (p = {test.p_value:.0e})" for test in correlated)
        name, factor = widest
        effect = (
            "the standard errors allow for that, as they come from the scatter between experiments"
            if from_scatter
            else f"the standard errors allow for that, that of {name} by a factor of {factor:.2g}"
        )
        cure = (
            "the noise is of another kind"
            if coloured
            else "the noise is coloured, and noise='coloured' gives better estimates"
        )
        said.append(
            f"the residuals of {listed} are not independent from sample to sample: {effect}; either {cure}, or the "
            "model lacks something that follows the motion, such as a friction, and the estimates are wrong by more "
            "than their errors"
        )
    large = [test for test in tests if test.is_too_large]
    if large:
        listed = ", ".join(f"{test.channel} ({test.level:.2g} times)" for test in large)
        said.append(
            f"the residuals are larger than the noise level sigma that was given: {listed}; either the noise is "
            "larger, or the model lacks something, such as a force"
        )
    return said
