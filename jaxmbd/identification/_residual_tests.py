"""Tests of the residuals of a fit, channel by channel: are they noise, of the size that was given, and what follows.

- **Whiteness**: with the correlations `ρ_k` of samples `k` apart in each experiment, `Q = n (n + 2) Σ_k ρ_k² / (n − k)`
  has, for independent residuals, the χ² distribution with as many degrees of freedom as lags. With more than `log n` of
  them it exceeds large quantiles too often.
- **Level**: with the noise levels `σ` that are given, `Σ r²` has the χ² distribution, if model and levels are right.
  The variance of correlated residuals is known as well as that of `1 + 2 Σ ρ_k²` times fewer independent ones.
- **Widening**: standard errors take residuals as independent. With correlated ones the covariance of the estimates is
  `(JᵀJ)⁻¹ Jᵀ R J (JᵀJ)⁻¹`, where `R` holds the correlations, of each channel in all its experiments, and zero from the
  lag on from which they are those of noise.

Sources: Ljung and Box, Biometrika 65 (1978); Tsay, *Analysis of Financial Time Series* (2010), §2.2, for the number of
lags; Bartlett, Supplement to J. Royal Statistical Society 8 (1946), for the
variance of correlated samples; Politis, J. Nonparametric Statistics 15 (2003), for the lags that count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmbd.identification._problem import Problem
from jaxmbd.identification._stacks import by_channel
from jaxmbd.numerics.block_least_squares import Linearised

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


def _series(problem: Problem, residuals: Sequence[np.ndarray]) -> dict[str, list[Float[np.ndarray, " _"]]]:
    """The residuals of each channel without missing samples: one series for each experiment and component."""
    found: dict[str, list[np.ndarray]] = {}
    for stack, rows in zip(problem.stacks, residuals, strict=True):
        for name, r in by_channel(stack, rows).items():
            present = np.isfinite(np.asarray(stack.experiment.data[name])).reshape(r.shape)
            pairs = ((r[k, :, c], present[k, :, c]) for k in range(len(r)) for c in range(r.shape[2]))
            found.setdefault(name, []).extend(x[is_there] for x, is_there in pairs if is_there.any())
    return {name: parts for name, parts in found.items() if parts}


def correlations(parts: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, " lags"]:
    """Return the correlations of samples 0, 1, 2 … apart, of all series of a channel together, up to the lag from which
    they are those of noise, and tapered: one up to half of the lags, then falling to zero."""
    count, longest = sum(map(len, parts)), max(map(len, parts))
    sums = np.zeros(longest)
    for r in parts:
        whole = scipy.signal.correlate(r, r, mode="full", method="auto")[len(r) - 1 :]
        sums[: len(r)] += whole
    rho = sums / sums[0] if sums[0] > 0 else np.eye(1, longest)[0]
    quiet = np.abs(rho[1:]) < 2 * np.sqrt(np.log10(max(count, 10)) / count)
    run = max(5, int(np.ceil(np.sqrt(np.log10(max(count, 10))))))
    last = next((k for k in range(len(quiet)) if quiet[k : k + run].all()), len(quiet))
    lags = min(max(2 * last, 1), longest // 2)
    weights = np.clip(2 * (1 - np.arange(lags + 1) / (lags + 1)), 0.0, 1.0)
    return rho[: lags + 1] * weights


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
    series = _series(problem, residuals)
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
    rho = correlations(parts)
    freedom = sum(map(len, parts)) * (1 - fitted) / (1 + 2 * float(np.sum(rho[1:] ** 2)))
    return float(scipy.stats.chi2.sf(freedom * level**2, freedom))


def correlated_scores(problem: Problem, linearised: Linearised, channels: Iterable[str]) -> Float[np.ndarray, "n n"]:
    """Return `Jᵀ (R − 1) J`, what the correlations of the residuals of some channels add to the scatter of `Jᵀ r`, in
    the numbers of the search."""
    series = _series(problem, [block.whole[..., -1] for block in linearised.stacks])
    p = linearised.shared
    found = np.zeros((n := p + sum(len(block.whole) * block.own for block in linearised.stacks), n))
    kernels = {name: correlations(series[name]) for name in channels}
    at = p
    for stack, block in zip(problem.stacks, linearised.stacks, strict=True):
        parts = by_channel(stack, block.whole)
        for k in range(len(block.whole)):
            columns = np.concatenate([np.arange(at, at + block.own), np.arange(p)])
            at += block.own
            for name in kernels.keys() & parts.keys():
                mine = np.delete(parts[name][k], np.s_[block.own : block.width], axis=2)[..., :-1]
                found[np.ix_(columns, columns)] += _correlated(mine, kernels[name])
    return found


def _correlated(J: Float[np.ndarray, "samples components n"], rho: Float[np.ndarray, " lags"]) -> np.ndarray:
    """`Jᵀ (R − 1) J` of one channel of one experiment."""
    both = np.concatenate([rho[:0:-1], [0.0], rho[1:]])
    if not J.size:  # nothing is unknown; SciPy's convolution forgets the shape of an empty array
        return np.zeros((J.shape[2],) * 2)
    smoothed = scipy.signal.fftconvolve(J, both[:, None, None], axes=0)[len(rho) - 1 :][: len(J)]
    return np.einsum("tci,tcj->ij", J, smoothed)


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
            else f"the intervals are too narrow, that of {name} by about a factor of {factor:.2g}"
            if factor >= _MATTERS
            else "the intervals are hardly too narrow by that"
        )
        cure = (
            "the noise is of another kind" if coloured else "the noise is coloured, which noise='coloured' allows for"
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
