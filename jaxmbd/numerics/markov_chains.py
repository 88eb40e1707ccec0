"""What the samples of Markov chains tell: how many independent ones they are worth, and whether chains agree."""

import numpy as np
from jaxtyping import Float


def effective_samples(samples: Float[np.ndarray, "chains draws"]) -> float:
    """Return how many independent samples tell as much of the mean as those of some chains.

    The sum of autocorrelations ends where those of neighbouring lags are together negative, and never grows. Source:
    Geyer, Statistical Science 7 (1992), §3.3; Vehtari et al., Bayesian Analysis 16 (2021), §3.
    """
    chains, draws = samples.shape
    if draws < 2 or np.all(samples == samples[:, :1]):
        return float(chains if draws < 2 else 0)
    off = samples - samples.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(off, 2 * draws, axis=1)) ** 2
    covariances = np.fft.irfft(spectrum, axis=1)[:, :draws].mean(axis=0) / draws
    within = covariances[0] * draws / (draws - 1)
    total = covariances[0] + (samples.mean(axis=1).var(ddof=1) if chains > 1 else 0.0)
    correlations = 1 - (within - covariances) / total
    correlations[0] = 1.0
    pairs = correlations[: draws - draws % 2].reshape(-1, 2).sum(axis=1)
    count = int(np.argmax(np.append(pairs, -1.0) <= 0))
    rest = max(float(np.append(correlations, np.zeros(2))[2 * count]), 0.0)
    time = 2 * float(np.minimum.accumulate(pairs[:count]).sum()) + rest - 1
    time = max(time, 1 / np.log10(chains * draws))  # less than that is noise
    return chains * draws / time


def scale_reduction(samples: Float[np.ndarray, "chains draws"]) -> float:
    """Return by how much the deviation of all samples exceeds that within the chains; NaN of one chain.

    Source: Gelman and Rubin, Statistical Science 7 (1992).
    """
    chains, draws = samples.shape
    if chains < 2 or draws < 2:
        return np.nan
    within = samples.var(axis=1, ddof=1).mean()
    between = samples.mean(axis=1).var(ddof=1)
    return float(np.sqrt((between / within * draws + draws - 1) / draws))
