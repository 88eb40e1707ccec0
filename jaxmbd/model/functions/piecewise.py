"""Functions in pieces: `Piecewise`, of functions or numbers between switching times, and `Table`, of samples."""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Number, Numbers, Scalar
from jaxmbd.errors import MechanismError, is_one_of, shown
from jaxmbd.model.functions.function import AbstractFunction, as_finite, as_increasing, as_order


class Piecewise(AbstractFunction):
    """A function with switching times: `pieces[0]` before `times[0]`, `pieces[k]` from `times[k − 1]` on.

    For forces: `JointForce("motor", "O.angle", Piecewise([2.0], [5.0, 0.0]))` is a torque of 5 N m that is switched
    off at 2 s. `simulate` ends a step at each switching time; the derivatives of a motion with respect to `times` are
    exact, forward and reverse.

    **Arguments:** `times` `[s]`, increasing, `(k,)`; `pieces`, `k + 1` numbers (or vectors) or functions, which are
    called with the arguments of the part: `(t, coordinate, rate, parameters)` for a `JointForce`. All pieces are
    evaluated at all times, so each must be finite everywhere; `order`, the lowest time derivative that jumps, default
    0. The motion of a `Driver` must be continuous with its rate: it requires `order=2` (or 1, for
    `prescribes="speed"`).

    **Raises:** `MechanismError` if the times do not increase, the number of pieces is not one more than of times, or a
    number is not finite.
    """

    times: Float[Array, " k"]
    pieces: tuple[Function | Array, ...]
    order: int = eqx.field(static=True)

    def __init__(self, times: Numbers, pieces: Sequence[Function | Number], order: int = 0) -> None:
        self.times, self.order = as_increasing("Piecewise", "times", times, strict=False), as_order("Piecewise", order)
        if not isinstance(pieces, Iterable) or getattr(pieces, "ndim", 1) == 0:
            raise MechanismError(
                "Piecewise: pieces must be a sequence of numbers or functions, one more than times, got "
                f"{shown(pieces)}."
            )
        self.pieces = tuple(
            piece if callable(piece) and not isinstance(piece, type) else as_finite("Piecewise", f"pieces[{k}]", piece)
            for k, piece in enumerate(pieces)
        )
        if len(self.pieces) != len(self.times) + 1:
            raise MechanismError(
                f"Piecewise: {len(self.times)} times have {len(self.times) + 1} pieces between them, got "
                f"{len(self.pieces)}."
            )

    @property
    def breaks(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.times

    def value(self, t: Scalar, *args: object) -> Array:
        first, *rest = (jnp.asarray(piece(t, *args) if callable(piece) else piece) for piece in self.pieces)
        for k, value in enumerate(rest):
            first = jnp.where(t >= self.times[k], value, first)
        return first


class Table(AbstractFunction):
    """A function from samples, piecewise linear or piecewise constant: of time, or of any other variable.

    For measured or planned forces: `JointForce("motor", "O.angle", Table(ts, torques))`. Before the first sample it
    has the first value, after the last one the last value. `simulate` ends a step at each sample, where a function
    made with `jnp.interp` costs many rejected steps and accuracy. Differentiable with respect to `times` and `values`.
    A sampled motion needs `SmoothingSpline`, which has continuous accelerations and needs no such steps.

    As a characteristic, of a torque over a speed, say, a law calls it with that variable. Steps end at the samples of
    what a law calls with its argument `t` itself, and of nothing else (`table(t - 1.0)` is a curve, too).

    **Arguments:** `times` `[s]`, or values of the other variable, increasing, `(samples,)`; `values`, `(samples,)` or
    `(samples, components)`; `order`: 1, linear between the samples (the slope jumps), or 0, constant from each sample
    on (the value jumps).

    **Raises:** `MechanismError` for shapes that do not match, times that do not increase, or numbers that are not
    finite.

        >>> torque = mbd.Table([0.0, 10.0, 50.0], [8.0, 6.0, 0.0])  # [N m] over a speed [rad/s]
        >>> motor = pl.JointForce("motor", "O.angle", lambda t, angle, rate, curve: curve(rate), parameters=torque)
    """

    times: Float[Array, " samples"]
    values: Float[Array, "samples *components"]
    order: int = eqx.field(static=True)

    def __init__(self, times: Numbers, values: Numbers, order: int = 1) -> None:
        if not is_one_of(order, (0, 1)):
            raise MechanismError(f"Table: order must be 1 (linear between samples) or 0 (held), got {shown(order)}.")
        self.times, self.order = as_increasing("Table", "times", times, strict=order == 1), order
        self.values = as_finite("Table", "values", values)
        if self.values.ndim not in (1, 2) or len(self.values) != len(self.times):
            raise MechanismError(
                f"Table: values must have a row for each of the {len(self.times)} times, got shape {self.values.shape}."
            )

    @property
    def breaks(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.times

    def value(self, t: Scalar, *args: object) -> Array:
        last = len(self.times) - 1
        k = jnp.searchsorted(self.times, t, side="right") - 1
        if self.order == 0 or last == 0:
            return self.values[jnp.clip(k, 0, last)]
        k = jnp.clip(k, 0, last - 1)
        start, end, low, high = self.times[k], self.times[k + 1], self.values[k], self.values[k + 1]
        inside = low + (t - start) / (end - start) * (high - low)
        return jnp.where(t < self.times[0], self.values[0], jnp.where(t >= self.times[-1], self.values[-1], inside))
