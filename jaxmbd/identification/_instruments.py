"""Instruments: what a measuring device makes of a channel of the motion.

    reading(t) = scale x̂(t) + offset,      τ dx̂/dt + x̂ = x(t − delay)

The channel `x` is computed at the times at which it is needed, by the dense output of the motion, so that the delay is
exact and differentiable. The filter is solved exactly for a channel that is quadratic between neighbouring samples and
their midpoint: an exponential integrator (Hochbruck and Ostermann, Acta Numerica 19 (2010), eq. 2.32) of order four
in the interval of the samples, for any ratio of the interval and the time constant `τ`. With a delay, the channel has a
kink where the motion starts; the order is lower in that interval.
"""

import itertools
import math
from collections.abc import Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxmbd.arrays import as_float
from jaxmbd.checks import check_finite, check_instance, check_number
from jaxmbd.errors import MechanismError

_SERIES = 12  # terms of the series of the weights for short intervals
_SHORT = 0.5  # ratio of interval and time constant below which the series is used: the closed form loses digits
_TIE = 1e-12  # share of the whole time by which equal times are set apart

Setting = Array | str | None  # a number, the name of a parameter, or none


class Instrument(eqx.Module):
    """A measuring device: `scale`, `offset`, time delay and first-order low-pass filter of a channel.

    Each number may be the name of a parameter instead, which is then estimated: `Instrument("arm.omega", delay="lag")`
    with `free={"lag": Parameter(start=0.01, within=Bounded(0, 0.1))}`.

    **Arguments:**

    - `channel`: the channel of the motion that it measures;
    - `scale`: the sensitivity, −1 for a reversed sign; `offset`: the zero error, in the unit of the reading;
    - `delay` `[s]`: before the start of the motion the mechanism is taken to be as at the start;
    - `time_constant` `[s]`: of the filter, which is in balance at the start; zero for none. A time constant that is
      estimated must stay positive.
    """

    channel: str = eqx.field(static=True)
    scale: Setting = eqx.field(converter=as_float, default=1.0)
    offset: Setting = eqx.field(converter=as_float, default=0.0)
    delay: Setting = eqx.field(converter=as_float, default=None)
    time_constant: Setting = eqx.field(converter=as_float, default=None)

    def __check_init__(self) -> None:
        part = f"Instrument on {self.channel!r}"
        check_instance("Instrument: channel", self.channel, str, "the name of a channel, such as 'arm.omega'")
        for field in ("scale", "offset", "delay", "time_constant"):
            value: Setting = getattr(self, field)
            if isinstance(value, str) or (value is None and field in ("delay", "time_constant")):
                continue
            if field in ("scale", "offset"):  # one number, or one for each component
                check_finite(part, field, value, np.shape(np.asarray(value)))
            else:
                check_finite(part, field, value)
                check_number(part, field, value, "s", zero=field == "delay")

    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters that it refers to."""
        return tuple(v for v in (self.scale, self.offset, self.delay, self.time_constant) if isinstance(v, str))

    def times(self, ts: Float[Array, " samples"], values: Mapping[str, PyTree]) -> Float[Array, " nodes"]:
        """Return the times at which the channel is needed for readings at the times `ts`."""
        times = ts if self.time_constant is None else _with_midpoints(ts)
        return times if self.delay is None else jnp.maximum(times - _value(self.delay, values), ts[0])

    def read(self, ts: Float[Array, " samples"], x: Array, values: Mapping[str, PyTree]) -> Array:
        """Return the readings from the channel at the times that it is needed."""
        if self.time_constant is not None:
            x = _filtered(ts, x, _value(self.time_constant, values))
        return _value(self.scale, values) * x + _value(self.offset, values)


def _value(setting: Any, values: Mapping[str, PyTree]) -> Array:
    return values[setting] if isinstance(setting, str) else setting


def _with_midpoints(ts: Float[Array, " samples"]) -> Float[Array, " nodes"]:
    """The times and, between neighbours, the midpoints."""
    return jnp.stack([ts, jnp.append(0.5 * (ts[1:] + ts[:-1]), ts[-1])], axis=1).reshape(-1)[:-1]


def _filtered(ts: Float[Array, " samples"], x: Array, time_constant: Array) -> Array:
    """The response to the channel `x` at the times and midpoints, from the balance `x̂ = x` on."""
    start, middle, end = x[:-1:2], x[1::2], x[2::2]
    decay, *weights = _weights(jnp.diff(ts) / time_constant)
    shape = (-1,) + (1,) * (x.ndim - 1)
    a, b, c = (w.reshape(shape) for w in weights)

    def step(y: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        y = inputs[0] * y + inputs[1]
        return y, y

    _, rest = jax.lax.scan(step, x[0], (decay.reshape(shape), a * start + b * middle + c * end))
    return jnp.concatenate([x[:1], rest])


def _weights(z: Float[Array, " steps"]) -> tuple[Array, Array, Array, Array]:
    """`exp(−z)`, and the weights of the channel at the start, the midpoint and the end of an interval of `z` time
    constants: with `I_k = z ∫₀¹ exp(−z (1 − s)) s^k ds` those of the interpolating parabola."""
    decay = jnp.exp(-z)
    is_short = z < _SHORT
    big = jnp.where(is_short, 1.0, z)
    closed0 = -jnp.expm1(-big)
    closed1 = 1 - closed0 / big
    closed2 = 1 - 2 * closed1 / big
    small = jnp.where(is_short, z, 0.0)
    # ∫ exp(−z (1 − s)) s^k ds = k! Σ (−z)^j / (j + k + 1)!
    series = [
        small * sum((-small) ** j * (math.factorial(k) / math.factorial(j + k + 1)) for j in range(_SERIES))
        for k in range(3)
    ]
    i0, i1, i2 = (jnp.where(is_short, s, c) for s, c in zip(series, (closed0, closed1, closed2), strict=True))
    return decay, i0 - 3 * i1 + 2 * i2, 4 * (i1 - i2), 2 * i2 - i1


def merged(
    grids: list[Float[Array, " _"]],
) -> tuple[Float[Array, " all"], list[Int[Array, " _"]]]:
    """Return all times in one increasing sequence, and the place of each grid's times in it."""
    together = jnp.concatenate(grids)
    order = jnp.argsort(jax.lax.stop_gradient(together))
    places = jnp.argsort(order)
    ends = [sum(len(grid) for grid in grids[:k]) for k in range(len(grids) + 1)]
    return apart(together[order]), [places[a:b] for a, b in itertools.pairwise(ends)]


def apart(ts: Float[Array, " times"]) -> Float[Array, " times"]:
    """Return nondecreasing times with ties set apart by a little, since the times of a motion must increase."""
    span, size = ts[-1] - ts[0], jnp.maximum(jnp.abs(ts[0]), jnp.abs(ts[-1]))
    gap = jax.lax.stop_gradient(jnp.maximum(_TIE * span, 4 * jnp.finfo(ts.dtype).eps * size))
    ramp = gap * jnp.arange(len(ts), dtype=ts.dtype)
    # Where the differences to the ramp increase, nothing is changed.
    spread = jax.lax.cummax(ts - ramp) + ramp
    return jnp.where(spread - ts > 0.5 * gap, spread, ts)


def check_instruments(instruments: Any, channels: Collection[str], parameters: Mapping[str, PyTree]) -> None:
    """Raise unless instruments are given by name and refer to parameters that exist."""
    for name, instrument in instruments.items():
        check_instance(
            f"instruments[{name!r}]", instrument, Instrument, "an Instrument, such as Instrument('arm.omega')"
        )
        if name in channels:
            raise MechanismError(
                f"The instrument {name!r} has the name of a channel of the mechanism: name it otherwise."
            )
        for setting in instrument.names():
            if setting not in parameters:
                raise MechanismError(
                    f"Instrument {name!r} refers to the parameter {setting!r}, which is not in free: "
                    f"free={{{setting!r}: Parameter(start=...)}}."
                )
