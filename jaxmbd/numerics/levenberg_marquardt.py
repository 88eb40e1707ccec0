"""What all searches by Levenberg's and Marquardt's method share: the judgement of a step, and who is held at a bound.

A step `d` from a point with residual `r` and Jacobian `J` makes `½ |r + J d|² + ½ μ |D d|²` least. It is accepted if it
reduces `½ |r|²`, and the damping `μ` follows the ratio of the actual to the predicted reduction: a step that does what
is predicted divides it by three, one that does not multiplies it, by more each time in a row.

Two searches are made of it, since a step costs so differently. `least_squares.py` is compiled, for small dense
problems of which many are solved side by side; `stepwise_search.py` asks for one linearisation after another, for fits,
of which a linearisation takes seconds, and the rows come in blocks.

Source: Nielsen, *Damping parameter in Marquardt's method*, IMM-REP-1999-05; Madsen, Nielsen, Tingleff, *Methods for
Non-Linear Least Squares Problems* (2004), §3.2; for the bounds Kanzow, Yamashita, Fukushima, *Levenberg-Marquardt
methods with strong local convergence properties for solving nonlinear equations with convex constraints*, J. Comput.
Appl. Math. 172 (2004).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import Number

GROWTH = 2.0  # factor of the damping at the first rejected step; it doubles with each in a row
LARGEST_DAMPING = 1e16  # relative to the diagonal of `Jᵀ J`: then no step, however short, reduces the sum of squares


def judged(
    damping: Any, growth: Any, actual: Any, predicted: Any, is_known: Any, lib: Any = jnp
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return whether a step is accepted, and the damping and its growth for the next one.

    **Arguments:** `actual`, `predicted`: the reductions of `½ |r|²`; `is_known`: False if there is no finite residual
    and Jacobian after the step; `lib`: `jax.numpy`, or `numpy` for numbers.
    """
    accepted = is_known & (actual > 0) & (predicted > 0)  # False for NaN
    ratio = actual / lib.where(accepted, predicted, 1.0)
    followed = damping * lib.maximum(1 / 3, 1 - (2 * ratio - 1) ** 3)
    return accepted, lib.where(accepted, followed, damping * growth), lib.where(accepted, GROWTH, 2 * growth)


def held(x: Array | np.ndarray, gradient: Array | np.ndarray, lower: Number, upper: Number) -> Any:
    """Return True for variables on a bound, across which the gradient pushes them; of `jax.numpy` or `numpy`."""
    return ((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0))
