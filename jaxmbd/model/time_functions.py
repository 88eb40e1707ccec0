"""Functions of time that are smooth between declared times: `Piecewise` and `Table`.

An integrator of order eight needs eight derivatives. A step across a jump or kink of a force is accurate to first or
second order only, whatever the tolerance, and the derivative with respect to that time is lost. Hence such functions
declare the times, and `simulate` ends steps on them.
"""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Number, Scalar, as_float, is_concrete
from jaxmbd.errors import MechanismError


class AbstractTimeFunction(eqx.Module):
    """A function of time (and of further arguments, if its caller passes any) that is smooth between known times.

    Subclasses have `times (k,)` [s], increasing, and `order`, the lowest time derivative that jumps there: 0 if the
    value itself jumps, 1 at kinks. The functions are continuous from the right.
    """

    times: eqx.AbstractVar[Float[Array, " k"]]
    order: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, t: Scalar, *args: Any) -> Any:
        """The value at time `t` [s]."""


class Piecewise(AbstractTimeFunction):
    """A function with switching times: `pieces[0]` before `times[0]`, `pieces[k]` from `times[k − 1]` on.

    For forces: `JointForce("motor", "O.angle", Piecewise([2.0], [5.0, 0.0]))` is a torque of 5 N m that is switched
    off at 2 s. `simulate` ends a step at each switching time; the derivatives of a motion with respect to `times` are
    exact, forward and reverse.

    **Arguments:** `times` `[s]`, increasing, `(k,)`; `pieces`, `k + 1` numbers (or vectors) or functions, which are
    called with the arguments of the part: `(t, coordinate, rate, parameters)` for a `JointForce`. All pieces are
    evaluated at all times, so each must be finite everywhere; `order`, the lowest time derivative that jumps, default
    0. The motion of a `Driver` must be continuous with its rate: it requires `order=2` (or 1, for
    `prescribes="speed"`).

    **Raises:** `MechanismError` if the times do not increase, or the number of pieces is not one more than of times.
    """

    times: Float[Array, " k"]
    pieces: tuple[Function | Array, ...]
    order: int = eqx.field(static=True)

    def __init__(self, times: Any, pieces: Sequence[Function | Number], order: int = 0) -> None:
        self.times, self.order = _times("Piecewise", times, strict=False), _order("Piecewise", order)
        self.pieces = tuple(piece if callable(piece) else as_float(piece) for piece in pieces)
        if len(self.pieces) != len(self.times) + 1:
            raise MechanismError(
                f"Piecewise: {len(self.times)} times have {len(self.times) + 1} pieces between them, got "
                f"{len(self.pieces)}."
            )

    def __call__(self, t: Scalar, *args: Any) -> Any:
        first, *rest = (jnp.asarray(piece(t, *args) if callable(piece) else piece) for piece in self.pieces)
        for k, value in enumerate(rest):
            first = jnp.where(t >= self.times[k], value, first)
        return first


class Table(AbstractTimeFunction):
    """A function of time from samples, piecewise linear or piecewise constant.

    For measured or planned forces: `JointForce("motor", "O.angle", Table(ts, torques))`. Before the first sample it
    has the first value, after the last one the last value. `simulate` ends a step at each sample, where a function
    made with `jnp.interp` costs many rejected steps and accuracy. Differentiable with respect to `times` and `values`.
    A sampled motion needs `SmoothingSpline`, which has continuous accelerations and needs no such steps.

    **Arguments:** `times` `[s]`, increasing, `(samples,)`; `values`, `(samples,)` or `(samples, components)`;
    `order`: 1, linear between the samples (the slope jumps), or 0, constant from each sample on (the value jumps).

    **Raises:** `MechanismError` for shapes that do not match, or times that do not increase.
    """

    times: Float[Array, " samples"]
    values: Float[Array, "samples *components"]
    order: int = eqx.field(static=True)

    def __init__(self, times: Any, values: Any, order: int = 1) -> None:
        if order not in (0, 1):
            raise MechanismError(f"Table: order must be 1 (linear between samples) or 0 (held), got {order!r}.")
        self.times, self.order = _times("Table", times, strict=order == 1), order
        self.values = _numbers("Table", "values", values)
        if self.values.ndim not in (1, 2) or len(self.values) != len(self.times):
            raise MechanismError(
                f"Table: values must have a row for each of the {len(self.times)} times, got shape {self.values.shape}."
            )
        if is_concrete(self.values) and not np.isfinite(np.asarray(self.values)).all():
            raise MechanismError("Table: values must be finite.")

    def __call__(self, t: Scalar, *args: Any) -> Any:
        last = len(self.times) - 1
        k = jnp.searchsorted(self.times, t, side="right") - 1
        if self.order == 0 or last == 0:
            return self.values[jnp.clip(k, 0, last)]
        k = jnp.clip(k, 0, last - 1)
        start, end, low, high = self.times[k], self.times[k + 1], self.values[k], self.values[k + 1]
        inside = low + (t - start) / (end - start) * (high - low)
        return jnp.where(t < self.times[0], self.values[0], jnp.where(t >= self.times[-1], self.values[-1], inside))


def _times(kind: str, times: Any, strict: bool) -> Array:
    array = _numbers(kind, "times", times)
    if array.ndim != 1 or not len(array):
        raise MechanismError(f"{kind}: times must be a sequence of at least one time [s], got shape {array.shape}.")
    if is_concrete(array):
        values = np.asarray(array)
        steps = np.diff(values)
        wrong = steps <= 0 if strict else steps < 0
        if not np.isfinite(values).all():
            raise MechanismError(f"{kind}: times must be finite [s], got {values}.")
        if wrong.any():
            k = int(np.argmax(wrong))
            raise MechanismError(
                f"{kind}: times must increase: times[{k + 1}] = {values[k + 1]:g} s does not come after times[{k}] = "
                f"{values[k]:g} s."
            )
    return array


def _order(kind: str, order: int) -> int:
    if isinstance(order, bool) or not isinstance(order, int) or order < 0:
        raise MechanismError(
            f"{kind}: order is the lowest derivative by time that jumps, a whole number from 0 on, got {order!r}."
        )
    return order


def _numbers(kind: str, field: str, values: Any) -> Array:
    array = as_float(values)
    if not isinstance(array, Array | np.ndarray) or np.issubdtype(array.dtype, np.complexfloating):
        raise MechanismError(f"{kind}: {field} must be real numbers, got {values!r}.")
    return jnp.asarray(array)
