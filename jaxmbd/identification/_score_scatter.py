"""The scatter of the scores `Jᵀ r` where residuals are no white noise of the level that was given.

Least squares gives estimates whose errors are `(JᵀJ)⁻¹ Jᵀ e`, whatever the noise `e` is. With a covariance `Γ` of it,
taken from the residuals channel by channel, the covariance of the estimates is the sandwich

    (JᵀJ)⁻¹ Jᵀ Γ J (JᵀJ)⁻¹,     Γ = v R

where `R` holds the correlations of the samples of each channel and `v` its variance. White noise of one level has
`Γ = s² 1`, and gives `s² (JᵀJ)⁻¹`. A fit takes a part of the residuals, `tr P Jᵀ R J` samples of each channel, by
which the sum of their squares is too small. The variance of correlated residuals is known as well as that of
`1 + 2 Σ ρ_k²` times fewer independent ones (Bartlett, Supplement to J. Royal Statistical Society 8, 1946).

Source: White, Econometrica 48 (1980), for the sandwich; Hamilton, *Time Series Analysis* (1994), §8.2.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from jaxmbd.identification._problem import Problem
from jaxmbd.identification._stacks import by_channel, channel_series
from jaxmbd.numerics.autoregression import autocovariances
from jaxmbd.numerics.block_least_squares import Linearised

_SIGNIFICANT = 1e-3  # the p-value below which a channel has a level of its own


@dataclass(frozen=True)
class ChannelScores:
    """What one channel adds to the scatter of scores.

    `count`: its samples; `square`: the sum of the squares of its residuals; `repeated`: how many times fewer samples,
    if they were independent, would tell as much of its variance; `white`, `coloured (n, n)`: `JᵀJ` and `Jᵀ R J`.
    """

    count: int
    square: float
    repeated: float
    white: Float[np.ndarray, "n n"]
    coloured: Float[np.ndarray, "n n"]


def correlations(parts: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, " lags"]:
    """Return the correlations of samples 0, 1, 2 … apart, of all series of a channel together."""
    found = autocovariances(parts)
    return found / found[0] if found[0] > 0 else np.eye(1, len(found))[0]


def repeated(rho: Float[np.ndarray, " lags"]) -> float:
    """Return how many times fewer independent samples would tell as much of the variance."""
    return 1 + 2 * float(np.sum(rho[1:] ** 2))


def channel_scores(problem: Problem, linearised: Linearised, channels: Collection[str]) -> list[ChannelScores]:
    """Return the scores of all channels in the numbers of the search; those of `channels` with their correlations, the
    others as white noise."""
    series = channel_series(problem.stacks, [block.whole[..., -1] for block in linearised.stacks])
    n = linearised.shared + sum(len(block.whole) * block.own for block in linearised.stacks)
    found = []
    for name, parts in series.items():
        rho = correlations(parts) if name in channels else np.ones(1)
        white, more = np.zeros((n, n)), np.zeros((n, n))
        at = linearised.shared
        for stack, block in zip(problem.stacks, linearised.stacks, strict=True):
            rows = by_channel(stack, block.whole).get(name)
            for k in range(len(block.whole)):
                columns = np.concatenate([np.arange(at, at + block.own), np.arange(linearised.shared)])
                at += block.own
                if rows is not None:
                    J = np.delete(rows[k], np.s_[block.own : block.width], axis=2)[..., :-1]
                    white[np.ix_(columns, columns)] += np.einsum("tci,tcj->ij", J, J)
                    more[np.ix_(columns, columns)] += _correlated(J, rho)
        square = sum(float(r @ r) for r in parts)
        found.append(ChannelScores(sum(map(len, parts)), square, repeated(rho), white, white + more))
    return found


def _correlated(J: Float[np.ndarray, "samples components n"], rho: Float[np.ndarray, " lags"]) -> np.ndarray:
    """`Jᵀ (R − 1) J` of one channel of one experiment."""
    if not (J.size and rho[1:].any()):
        return np.zeros((J.shape[2],) * 2)
    both = np.concatenate([rho[:0:-1], [0.0], rho[1:]])
    smoothed = scipy.signal.fftconvolve(J, both[:, None, None], axes=0)[len(rho) - 1 :][: len(J)]
    return np.einsum("tci,tcj->ij", J, smoothed)


def scattered(
    covariance: Float[np.ndarray, "n n"], freedom: float, channels: Sequence[ChannelScores]
) -> tuple[Float[np.ndarray, "n n"], float]:
    """Return the sandwich, and the degrees of freedom of the variance.

    **Arguments:** `covariance`: the inverse of `JᵀJ` with the rows of priors, with residuals in units of the level that
    all channels have together, of `freedom`.
    """
    taken = [float(np.sum(covariance * one.coloured)) for one in channels]
    white = [float(np.sum(covariance * one.white)) for one in channels]
    left = max(freedom - sum(taken) + sum(white), 1.0)
    more = np.zeros_like(covariance)
    for one, numbers in zip(channels, taken, strict=True):
        mine = max(one.count - numbers, 1.0)
        own, expected = one.square / mine, freedom / left
        effective = mine / one.repeated
        below = float(scipy.stats.chi2.cdf(effective * own / expected, effective))
        variance = own if min(below, 1 - below) < _SIGNIFICANT / 2 else expected
        more += variance * one.coloured - one.white
    samples = sum(one.count for one in channels)
    share = samples / sum(one.count * one.repeated for one in channels)
    return covariance + covariance @ more @ covariance, max(freedom * share, 1.0)
