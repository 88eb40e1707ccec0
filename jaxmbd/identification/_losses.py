"""Loss functions of residuals, as transformations of the residuals: `½ Σ ρ(r²) = ½ Σ r̂²` with `r̂ = sign(r) √ρ(r²)`.

Any method for least squares then minimises a robust loss as it is, and `r̂ ≈ r` for residuals that are small against
one, in units of the noise.

A loss is minus the logarithm of a density, `exp(−½ ρ(r²)) / c`, and an estimate with it a maximum of likelihood. If the
noise is normal all the same, the covariance of an M-estimate, `E[ψ²] / E[ψ']² (JᵀJ)⁻¹` with `ψ = ½ dρ/dr`, says how
much is lost against least squares: of the information `JᵀJ` the share `E[ψ']² / E[ψ²]` is left, the efficiency.

Source: Triggs et al., *Bundle Adjustment* (2000), §4.3; the functions are those of scipy's `least_squares`; Huber,
Ronchetti, *Robust Statistics* (2009), §3.2 and §7.6.
"""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

_SMALL = 1e-6  # r̂ = r there, to less than rounding; the root has no derivative at zero

Loss = Literal["squares", "huber", "soft_l1", "cauchy"]


def _huber(z: Array) -> Array:
    return jnp.where(z <= 1, z, 2 * jnp.sqrt(jnp.maximum(z, 1.0)) - 1)


# By name: ρ(z) of the squared residual z, in units of the noise.
LOSSES: dict[str, Callable[[Array], Array]] = {
    "huber": _huber,
    "soft_l1": lambda z: 2 * z / (jnp.sqrt(1 + z) + 1),
    "cauchy": jnp.log1p,
}


# Their derivatives ρ'(z), with `ψ = r ρ'`, by NumPy.
_SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "squares": np.ones_like,
    "huber": lambda z: 1 / np.sqrt(np.maximum(z, 1.0)),
    "soft_l1": lambda z: 1 / np.sqrt(1 + z),
    "cauchy": lambda z: 1 / (1 + z),
}
_LOG_SPAN = 15.0  # how much smaller than the root mean square a level may be, as a logarithm
_WIDEST, _POINTS = 10.0, 20_001  # of the normal distribution, over which expectations are summed


def transformed(loss: Loss, scale: float, residuals: Array) -> Array:
    """Return `r̂` for residuals in units of the noise; `scale` is the residual from which the loss grows less than
    its square."""
    if loss == "squares":
        return residuals
    r = residuals / scale
    is_small = jnp.abs(r) < _SMALL
    z = jnp.where(is_small, 1.0, r) ** 2
    return jnp.where(is_small, residuals, scale * jnp.sign(r) * jnp.sqrt(LOSSES[loss](z)))


def efficiency(loss: Loss, scale: float) -> float:
    """Return the share of the information of normal noise that an estimate with a loss takes from it."""
    if loss == "squares":
        return 1.0
    r = np.linspace(-_WIDEST, _WIDEST, _POINTS)
    psi, weights = r * _SLOPES[loss]((r / scale) ** 2), scipy.stats.norm.pdf(r) * (r[1] - r[0])
    # E[ψ'] = E[r ψ] for the normal distribution (Stein).
    return float(np.sum(weights * r * psi) ** 2 / np.sum(weights * psi**2))


def log_normaliser(loss: Loss, scale: float) -> float:
    """Return `log ∫ exp(−½ ρ(r²)) dr`; infinite if the loss is that of no density."""
    square = scale**2
    if loss == "huber":
        whole = np.sqrt(2 * np.pi) * scipy.special.erf(scale / np.sqrt(2)) + 2 / scale * np.exp(-square / 2)
        return float(np.log(whole))
    if loss == "soft_l1":
        return float(np.log(2 * scale * scipy.special.k1e(square)))
    if loss == "cauchy":
        if square <= 1:
            return np.inf
        ratio = scipy.special.gammaln((square - 1) / 2) - scipy.special.gammaln(square / 2)
        return float(np.log(scale * np.sqrt(np.pi)) + ratio)
    return float(0.5 * np.log(2 * np.pi))


def likeliest_level(loss: Loss, scale: float, residuals: Float[np.ndarray, " n"]) -> float:
    """Return the noise level, in units of that of the residuals, with which they have the largest likelihood: `Σ ψ r =
    n` in its units, which has one solution."""
    rms = max(float(np.sqrt(np.mean(residuals**2))), np.finfo(float).tiny)
    if loss == "squares":
        return rms

    def excess(log_level: float) -> float:
        z = (residuals / np.exp(log_level)) ** 2
        return float(np.mean(z * _SLOPES[loss](z / scale**2))) - 1

    low, high = np.log(rms) - _LOG_SPAN, np.log(rms)
    return float(np.exp(scipy.optimize.brentq(excess, low, high) if excess(low) > 0 else low))
