"""The noise of measurements: white, or an Ornstein-Uhlenbeck process with a correlation time `T`.

Between samples `Δ` apart the noise has the correlation `ρ = exp(−Δ / T)`, so that

    r_k = (e_k − ρ e_{k−1}) / (σ √(1 − ρ²))

are independent, with variance one; samples that are missing are stepped over. White noise has `ρ = 0`.

Source: Åström, *Introduction to Stochastic Control Theory* (1970), §3.4; Ljung, *System Identification* (1999), §7.2.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float

from jaxmbd.engine import trace_once

_SHORTEST = 0.05  # share of the shortest interval of samples: noise with such a correlation time is white
_LN_2PI = float(np.log(2 * np.pi))


@trace_once
def whitened(
    errors: Float[Array, "samples *k"], present: Bool[Array, "samples *k"], ts: Float[Array, " samples"], sigma: Array,
    correlation_time: Array,
) -> tuple[Float[Array, "samples *k"], Float[Array, "samples *k"]]:  # fmt: skip
    """Return independent residuals of variance one, zero for missing samples, and the logarithms of their scales."""
    errors = jnp.where(present, errors, 0.0)
    before, rho = _before(present, ts, correlation_time)
    previous = jnp.take_along_axis(errors, jnp.maximum(before, 0), axis=0)
    scale = sigma * jnp.sqrt(1 - rho**2)
    residuals = jnp.where(present, (errors - rho * previous) / scale, 0.0)
    return residuals, jnp.where(present, jnp.log(scale), 0.0)


def _before(present: Array, ts: Array, correlation_time: Array) -> tuple[Array, Array]:
    """The index of the last sample present before each one (−1 if there is none), and the correlation with it."""
    index = jnp.arange(len(ts)).reshape((-1,) + (1,) * (present.ndim - 1))
    last = jax.lax.cummax(jnp.where(present, index, -1), axis=0)
    before = jnp.concatenate([jnp.full_like(last[:1], -1), last[:-1]])
    interval = ts.reshape(index.shape) - ts[jnp.maximum(before, 0)]
    is_coloured = (correlation_time > 0) & (before >= 0)
    rho = jnp.exp(-interval / jnp.where(correlation_time > 0, correlation_time, 1.0))
    return before, jnp.where(is_coloured, rho, 0.0)


def log_density(residuals: Array, log_scales: Array, present: Array) -> Array:
    """Return the logarithm of the density of measurements from `whitened` residuals."""
    return -0.5 * jnp.sum(residuals**2) - jnp.sum(log_scales) - 0.5 * _LN_2PI * jnp.sum(present)


def estimated_noise(
    errors: list[Float[np.ndarray, "samples k"]],
    ts: list[Float[np.ndarray, " samples"]],
    coloured: bool,
    freedom: float,
) -> tuple[float, float]:
    """Return the noise level and the correlation time of one channel that have the largest likelihood.

    **Arguments:** the errors of each experiment, NaN for missing samples, `(samples, k)`; `freedom`, the share of
    degrees of freedom, by which the variance is divided.
    """
    spans = [np.diff(t) for t in ts]
    shortest, longest = min(float(s.min()) for s in spans), max(float(s.sum()) for s in spans)

    def variance(correlation_time: float) -> tuple[float, float]:
        """The variance for a correlation time, and minus twice the logarithm of the likelihood, but for a constant."""
        total, logs, count = 0.0, 0.0, 0
        for error, t in zip(errors, ts, strict=True):
            present = np.isfinite(error)
            r, log_scale = whitened(
                jnp.asarray(error), jnp.asarray(present), jnp.asarray(t), jnp.ones(()), jnp.asarray(correlation_time)
            )
            total, logs = total + float(jnp.sum(r**2)), logs + float(jnp.sum(log_scale))
            count += int(present.sum())
        return total / max(count, 1), count * np.log(total / max(count, 1)) + 2 * logs

    time = 0.0
    if coloured:
        search = scipy.optimize.minimize_scalar(
            lambda x: variance(float(np.exp(x)))[1],
            bounds=(np.log(_SHORTEST * shortest), np.log(longest)),
            method="bounded",
        )
        found = float(np.exp(search.x))
        time = found if found > 2 * _SHORTEST * shortest else 0.0
    return float(np.sqrt(variance(time)[0] / freedom)), time
