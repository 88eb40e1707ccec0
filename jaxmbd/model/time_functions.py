"""Functions of time or of another variable: `Piecewise` and `Table`, smooth between declared places, and
`SmoothingSpline` of samples.

An integrator of order eight needs eight derivatives. A step across a jump or kink of a force is accurate to first or
second order only, whatever the tolerance, and the derivative with respect to that time is lost. Hence such functions
declare the times, and `simulate` ends steps on them: on those of functions that a law calls with the time itself
(`integrate/solvers/switching.py`). A torque over a speed has no times.
"""

import abc
import math
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Number, Scalar, as_float, constant, is_concrete
from jaxmbd.engine.binding.lookups import looked_up
from jaxmbd.errors import MechanismError, is_one_of, shown


class AbstractTimeFunction(eqx.Module):
    """A function of time (and of further arguments, if its caller passes any) that is smooth between known times.

    Subclasses have `times (k,)` [s], increasing, and `order`, the lowest time derivative that jumps there: 0 if the
    value itself jumps, 1 at kinks. The functions are continuous from the right. Of another variable than time, `times`
    are the values of that variable, in its unit.
    """

    times: eqx.AbstractVar[Float[Array, " k"]]
    order: eqx.AbstractVar[int]

    def __call__(self, t: Scalar, *args: Any) -> Any:
        """The value at time `t` [s], or at a value of another variable."""
        looked_up(t, self.times)
        return self.value(t, *args)

    @abc.abstractmethod
    def value(self, t: Scalar, *args: Any) -> Any:
        """The value, which subclasses define and users get by a call."""


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

    **Raises:** `MechanismError` if the times do not increase, the number of pieces is not one more than of times, or a
    number is not finite.
    """

    times: Float[Array, " k"]
    pieces: tuple[Function | Array, ...]
    order: int = eqx.field(static=True)

    def __init__(self, times: Any, pieces: Sequence[Function | Number], order: int = 0) -> None:
        self.times, self.order = _times("Piecewise", times, strict=False), _order("Piecewise", order)
        if not isinstance(pieces, Iterable) or getattr(pieces, "ndim", 1) == 0:
            raise MechanismError(
                "Piecewise: pieces must be a sequence of numbers or functions, one more than times, got "
                f"{shown(pieces)}."
            )
        self.pieces = tuple(
            piece if callable(piece) and not isinstance(piece, type) else _finite("Piecewise", f"pieces[{k}]", piece)
            for k, piece in enumerate(pieces)
        )
        if len(self.pieces) != len(self.times) + 1:
            raise MechanismError(
                f"Piecewise: {len(self.times)} times have {len(self.times) + 1} pieces between them, got "
                f"{len(self.pieces)}."
            )

    def value(self, t: Scalar, *args: Any) -> Any:
        first, *rest = (jnp.asarray(piece(t, *args) if callable(piece) else piece) for piece in self.pieces)
        for k, value in enumerate(rest):
            first = jnp.where(t >= self.times[k], value, first)
        return first


class Table(AbstractTimeFunction):
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

    def __init__(self, times: Any, values: Any, order: int = 1) -> None:
        if not is_one_of(order, (0, 1)):
            raise MechanismError(f"Table: order must be 1 (linear between samples) or 0 (held), got {shown(order)}.")
        self.times, self.order = _times("Table", times, strict=order == 1), order
        self.values = _finite("Table", "values", values)
        if self.values.ndim not in (1, 2) or len(self.values) != len(self.times):
            raise MechanismError(
                f"Table: values must have a row for each of the {len(self.times)} times, got shape {self.values.shape}."
            )

    def value(self, t: Scalar, *args: Any) -> Any:
        last = len(self.times) - 1
        k = jnp.searchsorted(self.times, t, side="right") - 1
        if self.order == 0 or last == 0:
            return self.values[jnp.clip(k, 0, last)]
        k = jnp.clip(k, 0, last - 1)
        start, end, low, high = self.times[k], self.times[k + 1], self.values[k], self.values[k + 1]
        inside = low + (t - start) / (end - start) * (high - low)
        return jnp.where(t < self.times[0], self.values[0], jnp.where(t >= self.times[-1], self.values[-1], inside))


def _times(kind: str, times: Any, strict: bool) -> Array:
    array = _finite(kind, "times", times)
    if array.ndim != 1 or not len(array):
        raise MechanismError(f"{kind}: times must be a sequence of at least one number, got shape {array.shape}.")
    if is_concrete(array):
        values = np.asarray(array)
        steps = np.diff(values)
        wrong = steps <= 0 if strict else steps < 0
        if wrong.any():
            k = int(np.argmax(wrong))
            raise MechanismError(
                f"{kind}: times must increase: times[{k + 1}] = {values[k + 1]:g} does not come after times[{k}] = "
                f"{values[k]:g}."
            )
    return array


def _order(kind: str, order: int) -> int:
    if isinstance(order, bool) or not isinstance(order, int) or not 0 <= order <= _SMOOTHEST:
        raise MechanismError(
            f"{kind}: order is the lowest derivative by time that jumps, a whole number from 0 to {_SMOOTHEST}, got "
            f"{shown(order)}."
        )
    return order


def _finite(kind: str, field: str, values: Any) -> Array:
    """Real numbers as an array, each of them finite."""
    array = as_float(values)
    if not isinstance(array, Array) or np.issubdtype(array.dtype, np.complexfloating):
        raise MechanismError(f"{kind}: {field} must be real numbers, got {shown(values)}.")
    if is_concrete(array):
        numbers = np.asarray(array)
        wrong = np.argwhere(~np.isfinite(numbers)).tolist()
        if wrong:
            place = "".join(f"[{k}]" for k in wrong[0])
            raise MechanismError(f"{kind}: {field}{place} must be finite, got {numbers[tuple(wrong[0])]}.")
    return array


_DEGREE = 5
_SMOOTHEST = 100  # an order beyond which no method of integration notices a jump
_EMPTY = 1e-12  # modes of the spline with less weight in the samples are not determined by them
_INTERPOLATES = 0.02  # least share of residual degrees of freedom: below it the residual is lost in rounding

# Range of log10 p in the search of cross-validation; p is the weight of roughness relative to misfit.
_RANGE = (-14.0, 14.0)


class SmoothingSpline(eqx.Module):
    """The quintic spline f that minimises `Σ (y_k − f(t_k))² + p ∫ f⃛² dt` over samples `(t_k, y_k)`.

    For the motion of a `Driver`: `Driver("elbow", "E.angle", SmoothingSpline(ts, angles))`. Outside the samples the
    first and last polynomial are extrapolated. Differentiable with respect to time and, with a fixed p, the samples.

    **Arguments:** `ts`, increasing times `[s]`, `(samples,)`, at least 6; `values`, `(samples,)`; `smoothing`:
    `"auto"`, p by generalized cross-validation (for noise that is independent from sample to sample); a number, p
    itself `[s⁵]`; or 0 for the interpolating spline.

    Source: Woltring, *A FORTRAN package for generalized, cross-validatory spline smoothing and differentiation*, Adv.
    Eng. Software 8 (1986); de Boor, *A Practical Guide to Splines* (2001), chapter XIV.
    """

    breaks: Float[Array, " pieces"]
    coefficients: Float[Array, "pieces 6"]
    smoothing: float = eqx.field(static=True)

    def __init__(self, ts: Any, values: Any, smoothing: float | int | str = "auto") -> None:
        ts = _checked(ts, values)
        number = as_float(smoothing)
        is_number = isinstance(number, Array) and number.shape == ()
        if smoothing != "auto" if isinstance(smoothing, str) else not (is_number and 0 <= number < math.inf):
            raise MechanismError(
                "SmoothingSpline: smoothing must be 'auto' or a finite number of at least zero, got "
                f"{shown(smoothing)}."
            )
        if smoothing == "auto" and not is_concrete(values):
            raise MechanismError(
                "SmoothingSpline: where the values are traced (jit, grad, vmap), give smoothing as a number."
            )
        values = jnp.asarray(values, dtype=float)
        knots, matrix, self.smoothing = _fit(ts, values, smoothing)
        self.breaks, pieces = _pieces(knots, matrix)
        self.coefficients = jnp.tensordot(pieces, values, 1)

    def __check_init__(self) -> None:
        """The fields of a spline that is not made of samples, but read from a file."""
        times = _times("SmoothingSpline", self.breaks, strict=True)
        numbers = _finite("SmoothingSpline", "coefficients", self.coefficients)
        if numbers.shape != (len(times), _DEGREE + 1):
            raise MechanismError(
                f"SmoothingSpline: coefficients must have shape {(len(times), _DEGREE + 1)}, six for each break, got "
                f"{numbers.shape}."
            )

    def __call__(self, t: Scalar) -> Scalar:
        piece = jnp.clip(jnp.searchsorted(self.breaks, t, side="right") - 1, 0, len(self.breaks) - 1)
        offset, value = t - self.breaks[piece], jnp.zeros_like(t)
        for coefficient in self.coefficients[piece]:
            value = value * offset + coefficient
        return value


def _checked(ts: Any, values: Any) -> np.ndarray:
    try:
        times, shape = np.asarray(ts, dtype=float), np.shape(values)
        if is_concrete(values):
            np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise MechanismError(f"SmoothingSpline: ts and values must be sequences of real numbers ({error}).") from error
    if times.ndim != 1 or shape != times.shape or len(times) < _DEGREE + 1:
        raise MechanismError(
            f"SmoothingSpline: ts and values must be sequences of the same length, at least {_DEGREE + 1}, got shapes "
            f"{times.shape} and {shape}."
        )
    bad = ~np.isfinite(times)
    if is_concrete(values):
        bad |= ~np.isfinite(np.asarray(values))
    if bad.any():
        k = int(np.argmax(bad))
        raise MechanismError(f"SmoothingSpline: ts and values must be finite numbers; sample {k} is not.")
    if (np.diff(times) <= 0).any():
        k = int(np.argmax(np.diff(times) <= 0))
        raise MechanismError(
            f"SmoothingSpline: ts must increase: ts[{k + 1}] = {times[k + 1]:g} s, after {times[k]:g} s."
        )
    return times


def _fit(ts: np.ndarray, values: Array, smoothing: float | int | str) -> tuple[np.ndarray, np.ndarray, float]:
    """The knots, the matrix from the samples to the B-spline coefficients, and the smoothing p."""
    if not isinstance(smoothing, str) and smoothing == 0:
        through = scipy.interpolate.make_interp_spline(ts, np.eye(len(ts)), k=_DEGREE)
        return through.t, np.asarray(through.c), 0.0
    knots = np.concatenate([np.full(_DEGREE, ts[0]), ts, np.full(_DEGREE, ts[-1])])
    basis = scipy.interpolate.BSpline.design_matrix(ts, knots, _DEGREE).toarray()
    roughness, gram = _roughness(knots), basis.T @ basis
    unit = np.trace(gram) / np.trace(roughness)  # scale of p at which both terms have about equal weight
    # The generalized eigenvectors diagonalise both matrices: share for the roughness, 1 − share for gram.
    share, modes = scipy.linalg.eigh(unit * roughness, gram + unit * roughness)
    share, projected = np.clip(share, 0, 1), modes.T @ basis.T
    share[:3] = 0.0  # parabolas have no roughness
    projected = np.where((1 - share > _EMPTY)[:, None], projected, 0.0)
    p = (
        _cross_validated(share, projected @ np.asarray(values), values)
        if smoothing == "auto"
        else float(smoothing) / unit
    )
    return knots, modes @ (projected / np.maximum(1 - share + p * share, _EMPTY)[:, None]), float(p * unit)


def _cross_validated(share: np.ndarray, y: np.ndarray, values: Array) -> float:
    """The p that minimises `n Σ (y_k − f(t_k))² / (n − tr A)²`, with the matrix A from the samples to their fit."""
    n, total = len(values), float(np.sum(np.asarray(values) ** 2))

    def score(exponent: float) -> float:
        shrink = 1 / np.maximum(1 - share + 10.0**exponent * share, _EMPTY)
        misfit = total - np.sum((2 * shrink - shrink**2 * (1 - share)) * y**2)
        degrees_of_freedom = n - np.sum(shrink * (1 - share))
        return n * misfit / degrees_of_freedom**2 if degrees_of_freedom > _INTERPOLATES * n else np.inf

    grid = np.linspace(*_RANGE, 57)
    best = int(np.argmin([score(x) for x in grid]))
    bracket = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    return 10.0 ** float(scipy.optimize.fminbound(score, *bracket))  # pyright: ignore


def _roughness(knots: np.ndarray) -> np.ndarray:
    """`∫ B_i⃛ B_j⃛ dt` by Gauss quadrature, exact since the third derivatives are quadratic on each piece."""
    points, weights = np.polynomial.legendre.leggauss(3)
    breaks = np.unique(knots)
    half = np.diff(breaks)[:, None] / 2
    times, weight = (breaks[:-1, None] + half * (1 + points)).ravel(), (half * weights).ravel()
    third = scipy.interpolate.BSpline(knots, np.eye(len(knots) - _DEGREE - 1), _DEGREE).derivative(3)(times)
    return third.T @ (weight[:, None] * third)


def _pieces(knots: np.ndarray, matrix: np.ndarray) -> tuple[Array, Float[Array, "pieces 6 samples"]]:
    """The start times of the polynomials, and the matrices from samples to their coefficients, highest power first."""
    breaks, spline = np.unique(knots)[:-1], scipy.interpolate.BSpline(knots, matrix, _DEGREE)
    powers = [spline(breaks, nu=k) / math.factorial(k) for k in reversed(range(_DEGREE + 1))]
    return constant(breaks), constant(np.stack(powers, axis=1))
