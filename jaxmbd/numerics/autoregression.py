"""The autocovariances of stationary noise, from few samples of it.

Those of the samples at large lags are noise themselves. Of an autoregressive process

    e_k = a₁ e_{k−1} + … + a_m e_{k−m} + w_k,      w white

the first `m` determine all others, by Yule and Walker's equations; the order `m` is that with the least Bayesian
information criterion, zero for white noise.

Sources: Brockwell, Davis, *Time Series: Theory and Methods* (1991), §5.2, §8.1; Schwarz, Ann. Statist. 6 (1978).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def autocovariances(parts: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, " lags"]:
    """Return the autocovariances at the lags 0, 1, 2 … of the noise of which these are samples, at equal intervals in
    each part, up to the length of the longest one; zero if the noise is."""
    count, lags = sum(map(len, parts)), max(map(len, parts))
    longest = min(int(10 * np.log10(count)), lags - 1)
    sampled = np.array([sum(float(r[k:] @ r[: len(r) - k]) for r in parts) for k in range(longest + 1)]) / count
    if not sampled[0] > 0:
        return np.zeros(lags)
    factors, variance = np.zeros(0), sampled[0]
    best = count * np.log(variance), factors
    for order in range(1, longest + 1):  # Levinson and Durbin's recursion
        last = (sampled[order] - factors @ sampled[order - 1 : 0 : -1]) / variance
        factors, variance = np.append(factors - last * factors[::-1], last), variance * (1 - last**2)
        if not variance > 0:
            break
        best = min(best, (count * np.log(variance) + order * np.log(count), factors), key=lambda one: one[0])
    factors = best[1]
    found = np.concatenate([sampled[: len(factors) + 1], np.zeros(lags - len(factors) - 1)])
    for k in range(len(factors) + 1, lags if len(factors) else 0):
        found[k] = factors @ found[k - 1 : k - len(factors) - 1 : -1]
    return found
