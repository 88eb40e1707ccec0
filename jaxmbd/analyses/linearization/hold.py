"""From continuous to discrete time: the state after a while in which the inputs are constant (zero-order hold).

Source: Åström, Wittenmark, *Computer-Controlled Systems* (1997), §2.3.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float, frozen, is_concrete
from jaxmbd.checks import check_finite, check_number
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError

_SQUARINGS = 40  # the most, of a matrix exponential: enough for rates of 1e12 periods
_LONGEST = 1000.0  # [samples], of a delay


class Discrete(NamedTuple):
    """The matrices of `x_{k+1} = A x_k + B u_k`, `y_k = C x_k + D u_k`."""

    A: Float[Array, "x x"]
    B: Float[Array, "x inputs"]
    C: Float[Array, "outputs x"]
    D: Float[Array, "outputs inputs"]


@trace_once
def held(
    A: Float[Array, "x x"], B: Float[Array, "x inputs"], sizes: Float[Array, " x"], duration: Scalar
) -> tuple[Float[Array, "x x"], Float[Array, "x inputs"]]:
    """Return `e^{A T}` and `∫₀ᵀ e^{A s} ds B`, by the exponential of one matrix, with states scaled by their sizes."""
    (n, r), power = B.shape, lambda x: jnp.exp2(jnp.round(jnp.log2(jax.lax.stop_gradient(x))))  # exact factors
    sizes = power(sizes)
    scaled, driven = A * sizes[None] / sizes[:, None], B / sizes[:, None]
    largest = jnp.max(jnp.abs(driven), axis=0, initial=0.0) * duration
    by = power(jnp.where(largest > 0, largest, 1.0))
    rows = jnp.concatenate([scaled, driven / by[None]], axis=1)
    both = jax.scipy.linalg.expm(
        jnp.zeros((n + r, n + r), A.dtype).at[:n].set(duration * rows), max_squarings=_SQUARINGS
    )
    kept, gained = both[:n, :n], both[:n, n:] * by[None]
    return kept * sizes[:, None] / sizes[None], gained * sizes[:, None]


def checked_period(period: Any) -> Scalar:
    """The period as an array; raise unless it is positive and finite."""
    period = as_float(period)
    check_finite("sampled", "period", period)
    check_number("sampled", "period", period, "s")
    return period


def checked_delay(delay: Any) -> tuple[Scalar, int]:
    """A delay as an array, and the samples that have to be remembered for it."""
    delay = as_float(delay)
    check_finite("sampled", "delay", delay)
    known = frozen(delay) if is_concrete(frozen(delay)) else None
    if known is None:
        raise MechanismError(
            "sampled: how many states there are depends on the delay, which is not known inside jit or vmap. Give it "
            "as a number of samples, such as delay=1.5; the period may be any value."
        )
    check_number("sampled", "delay", known, "samples", zero=True)
    samples = float(known)
    if samples > _LONGEST:
        raise MechanismError(f"sampled: delay must be {_LONGEST:g} samples at most, got {samples:g}.")
    if samples == 0 and not is_concrete(delay):
        raise MechanismError(
            "sampled: a derivative by the delay needs one that is not zero: without a delay there is no state for what "
            "waits."
        )
    return delay, int(np.ceil(samples))


def discretised(matrices: Discrete, sizes: Float[Array, " x"], period: Scalar, delay: Scalar, waiting: int) -> Discrete:
    """Return the matrices at instants `period` apart, with inputs that are constant in between and act `delay` samples
    later. After the states come the inputs that wait, `u_{k-waiting}, …, u_{k-1}`."""
    A, B, C, D = matrices
    (n, r), dtype = B.shape, A.dtype
    kept, gained = held(A, B, sizes, period)
    if not waiting:
        return Discrete(kept, gained, C, D)
    newer = held(A, B, sizes, (waiting - delay) * period)[
        1
    ]  # in the rest of a period the input after the oldest one acts
    total = n + waiting * r
    shifted = jnp.eye(waiting * r, total + r, n + r, dtype=dtype)  # each input is a sample older
    moved = jnp.zeros((n, total + r), dtype).at[:, :n].set(kept).at[:, n : n + r].set(gained - newer)
    rows = jnp.concatenate([moved.at[:, n + r : n + 2 * r].add(newer), shifted])
    read = jnp.zeros((len(C), total), dtype).at[:, :n].set(C).at[:, n : n + r].set(D)
    return Discrete(rows[:, :total], rows[:, total:], read, jnp.zeros_like(D))
