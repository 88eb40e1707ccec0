"""Loss functions of residuals, as transformations of the residuals: `½ Σ ρ(r²) = ½ Σ r̂²` with `r̂ = sign(r) √ρ(r²)`.

Any method for least squares then minimises a robust loss as it is, and `r̂ ≈ r` for residuals that are small against
one, in units of the noise.

Source: Triggs et al., *Bundle Adjustment* (2000), §4.3; the functions are those of scipy's `least_squares`.
"""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array

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


def transformed(loss: Loss, scale: float, residuals: Array) -> Array:
    """Return `r̂` for residuals in units of the noise; `scale` is the residual from which the loss grows less than
    its square."""
    if loss == "squares":
        return residuals
    r = residuals / scale
    is_small = jnp.abs(r) < _SMALL
    z = jnp.where(is_small, 1.0, r) ** 2
    return jnp.where(is_small, residuals, scale * jnp.sign(r) * jnp.sqrt(LOSSES[loss](z)))
