"""Splines of samples, in time and memory proportional to their number: `SmoothingSpline`, and interpolating splines.

A spline is linear in its values. Where its places are known, so are the matrices of its linear systems, which are
banded (`numerics/banded.py`), and the values may be traced.

Source: Reinsch, *Smoothing by Spline Functions II*, Numer. Math. 16 (1971); Woltring, *A FORTRAN package for
generalized, cross-validatory spline smoothing and differentiation*, Adv. Eng. Software 8 (1986); de Boor, *A Practical
Guide to Splines* (2001), chapters XIII and XIV.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmbd.arrays import Numbers, Scalar, as_float, constant, is_concrete
from jaxmbd.errors import MechanismError, shown
from jaxmbd.model.functions.function import AbstractFunction, as_finite, as_increasing, polynomial
from jaxmbd.numerics.banded import BandedMatrix

_DEGREE = 5
_INTERPOLATES = 0.02  # least share of residual degrees of freedom: below it the samples do not tell noise from motion
_STEP = 1.0  # of log10 p in the search for the least score, which changes by sigmoids two units wide
_MARGIN = 2.0  # in log10 p: how far the search begins beyond the weight at which a parabola is left


class SmoothingSpline(AbstractFunction):
    """The quintic spline f that minimises `Σ (y_k − f(t_k))² + p ∫ f⃛² dt` over samples `(t_k, y_k)`.

    For the motion of a `Driver`: `Driver("elbow", "E.angle", SmoothingSpline(ts, angles))`. Outside the samples the
    first and last polynomial are extrapolated. Differentiable with respect to time and, with a fixed p, the samples:
    `f(t)` is linear in them. Steps of `simulate` do not end at the samples, where the fifth derivative jumps. Time and
    memory are proportional to the number of samples.

    **Arguments:** `ts`, increasing times `[s]`, `(samples,)`, at least 6; `values`, `(samples,)`; `smoothing`:
    `"auto"`, p by generalized cross-validation (for noise that is independent from sample to sample); a number, p
    itself `[s⁵]`; or 0 for the interpolating spline.

    Source: Woltring, *A FORTRAN package for generalized, cross-validatory spline smoothing and differentiation*, Adv.
    Eng. Software 8 (1986); de Boor, *A Practical Guide to Splines* (2001), chapter XIV.
    """

    ends_steps: ClassVar[bool] = False

    breaks: Float[Array, " pieces"]
    coefficients: Float[Array, "pieces 6"]
    smoothing: float = eqx.field(static=True)

    def __init__(self, ts: Numbers, values: Any, smoothing: float | int | str = "auto") -> None:
        ts = _checked(ts, values)
        number = as_float(smoothing)
        is_number = isinstance(number, Array) and number.shape == () and is_concrete(number)
        if smoothing != "auto" if isinstance(smoothing, str) else not (is_number and 0 <= np.asarray(number) < np.inf):
            raise MechanismError(
                "SmoothingSpline: smoothing must be 'auto' or a finite number of at least zero, got "
                f"{shown(smoothing)}."
            )
        if smoothing == "auto" and not is_concrete(values):
            raise MechanismError(
                "SmoothingSpline: where the values are traced (jit, grad, vmap), give smoothing as a number."
            )
        values = np.asarray(values, dtype=float) if is_concrete(values) else jnp.asarray(values, dtype=float)
        if not isinstance(smoothing, str) and smoothing == 0:
            self.smoothing, (breaks, coefficients) = 0.0, spline_through(ts, values, _DEGREE)
        else:
            samples = _Samples(ts)
            self.smoothing = samples.cross_validated(values) if isinstance(smoothing, str) else float(smoothing)
            breaks, coefficients = ts[:-1], samples.smoothed(values, self.smoothing)
        self.breaks, self.coefficients = constant(breaks), _as_array(coefficients)

    def __check_init__(self) -> None:
        """The fields of a spline that is not made of samples, but read from a file."""
        breaks = as_increasing("SmoothingSpline", "breaks", self.breaks, strict=True)
        numbers = as_finite("SmoothingSpline", "coefficients", self.coefficients)
        if numbers.shape != (len(breaks), _DEGREE + 1):
            raise MechanismError(
                f"SmoothingSpline: coefficients must have shape {(len(breaks), _DEGREE + 1)}, six for each break, got "
                f"{numbers.shape}."
            )

    @property
    def order(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _DEGREE

    def value(self, x: Scalar, *args: object) -> Scalar:
        return polynomial(self.breaks, self.coefficients, x)


def _as_array(values: Any) -> Array:
    """Known numbers in JAX's floating-point type; traced ones as they are."""
    return constant(np.asarray(values, jnp.result_type(float))) if is_concrete(values) else values


def _checked(ts: Numbers, values: Any) -> np.ndarray:
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


@dataclass(frozen=True)
class _Samples:
    """The smoothing splines of samples at times `ts`, by Reinsch's equations.

    With the quadratic B-splines `B_j`, `f⃛ = Σ γ_j B_j`, the third differences `Qᵀ f = ∫ B_j f⃛ dt`, and
    `R = ∫ B_i B_j dt`, the minimum is at `y − f = p Q γ`, `R γ = Qᵀ f`. They are solved as they stand, for f and
    `g = √p γ` at once:

        [[I, √p Q], [√p Qᵀ, −R]] (f, g) = (y, 0)

    The normal equations `(R + p Qᵀ Q) γ = Qᵀ y` are half as large, and lose all digits where the spline smooths over a
    hundred samples or more: their condition is the sixth power of that number, that of these the third.

    Times are in units of the mean distance of samples, in which the weight is `p / unit⁵`.
    """

    ts: np.ndarray

    @cached_property
    def unit(self) -> float:
        return float((self.ts[-1] - self.ts[0]) / (len(self.ts) - 1))

    @cached_property
    def steps(self) -> np.ndarray:
        return np.diff(self.ts) / self.unit

    @cached_property
    def differences(self) -> Float[np.ndarray, "splines 4"]:
        """The columns of Q: a third divided difference times twice the support of its B-spline."""
        h = np.lib.stride_tricks.sliding_window_view(self.steps, 3)
        places = np.concatenate([np.zeros((len(h), 1)), np.cumsum(h, axis=1)], axis=1)
        apart = places[:, :, None] - places[:, None, :] + np.eye(4)
        return 2 * places[:, -1:] / np.prod(apart, axis=2)

    @cached_property
    def gram(self) -> Float[np.ndarray, "splines 3"]:
        """The diagonals of R, by Gauss quadrature, which is exact for these quartics."""
        points, weights = np.polynomial.legendre.leggauss(3)
        x, h = (1 + points[:, None]) / 2, np.pad(self.steps, 1, constant_values=1.0)  # steps beyond the ends: any
        before, here, after = h[:-2], h[1:-1], h[2:]
        first, last = (1 - x) ** 2 * here / (before + here), x**2 * here / (here + after)
        three = np.stack([first, 1 - first - last, last])  # on piece k: the B-splines k − 2, k − 1 and k
        pairs = np.einsum("q,k,iqk,jqk->ijk", weights / 2, here, three, three)
        count = len(self.steps) - 2
        found = np.zeros((count, 3))
        for i in range(3):
            for j in range(i, 3):  # of B-splines at a distance j − i, on the piece 2 − i after the first one's first
                distance, piece = j - i, 2 - i
                found[: count - distance, distance] += pairs[i, j, piece : piece + count - distance]
        return found

    def system(self, root: float, is_rated: bool = False) -> BandedMatrix:
        """The matrix for a root √p; if it `is_rated`, with the derivatives of its entries by log p.

        f_k is unknown number 2k, and g_j is number 2j + 3, between the samples of its B-spline; two unknowns, at the
        ends, are zero.
        """
        n, count = len(self.ts), len(self.steps) - 2
        ones = np.concatenate([2 * np.arange(n), [1, 2 * n - 3]])
        g = 2 * np.arange(count) + 3
        samples = (g - 3)[:, None] + 2 * np.arange(4)
        beside, q = np.broadcast_to(g[:, None], samples.shape).ravel(), (root * self.differences).ravel()
        near = [(g[: count - k], g[k:], -self.gram[: count - k, k]) for k in range(3)]
        near += [(columns, rows, values) for rows, columns, values in near[1:]]
        blocks = [(ones, ones, np.ones(len(ones))), (samples.ravel(), beside, q), (beside, samples.ravel(), q), *near]
        rows, columns, values = map(np.concatenate, zip(*blocks, strict=True))
        if not is_rated:
            return BandedMatrix(rows, columns, values, 2 * n - 1)
        rates = np.zeros_like(values)
        rates[len(ones) : len(ones) + 2 * len(q)] = np.concatenate([q, q]) / 2
        return BandedMatrix(rows, columns, values, 2 * n - 1, rates)

    def solved(self, system: BandedMatrix, values: Array | np.ndarray) -> tuple[Any, Any]:
        """f and g for values y, known or traced."""
        xp = np if is_concrete(values) else jnp
        right = xp.stack([values, xp.zeros_like(values)], axis=1).reshape(-1)[:-1]
        x = system.solve(right)
        return x[::2], x[3:-2:2]

    def smoothed(self, values: Array | np.ndarray, p: float) -> Any:
        """The coefficients of the polynomials, highest power first, that begin at the samples but the last."""
        root = math.sqrt(p) / self.unit**2.5
        f, g = self.solved(self.system(root), values)
        xp, h = (np if is_concrete(values) else jnp), self.steps
        before, after = h[:-1], h[1:]
        ends = xp.zeros_like(f[:1])
        gamma = xp.concatenate([ends, g / root, ends])
        # The third and fourth derivative at the samples, from the B-splines; zero at both ends.
        third = xp.concatenate([ends, (after * gamma[:-1] + before * gamma[1:]) / (before + after), ends])
        fourth = xp.concatenate([ends, 2 * xp.diff(gamma) / (before + after), ends])
        fifth = xp.diff(fourth) / h
        # What a piece rises by them, seen from its start and from its end; the rest of f is a parabola about a sample.
        rise = h**3 * (third[:-1] / 6 + h * (fourth[:-1] / 24 + h * fifth / 120))
        fall = h**3 * (third[1:] / 6 - h * (fourth[1:] / 24 - h * fifth / 120))
        forward, backward = (xp.diff(f) - rise) / h, (xp.diff(f) - fall) / h
        second = 2 * (forward[1:] - backward[:-1]) / (before + after)
        start = second[:1] - h[0] * (third[:1] + h[0] * (fourth[:1] / 2 + h[0] * fifth[:1] / 6))
        second = xp.concatenate([start, second])
        powers = [fifth / 120, fourth[:-1] / 24, third[:-1] / 6, second / 2, forward - h * second / 2, f[:-1]]
        return xp.stack(powers, axis=1) * self.unit ** -np.arange(_DEGREE, -1.0, -1.0)[None]

    def cross_validated(self, values: np.ndarray) -> float:
        """The p that minimises `n Σ (y_k − f(t_k))² / (n − tr A)²`, with the matrix A from the samples to their fit.

        `n − tr A` is the derivative by log p of the logarithm of the determinant of `system`. From weights that leave a
        parabola down to those that interpolate, the best on a grid is refined.
        """
        n = len(values)

        def score(exponent: float) -> float:
            system = self.system(10.0 ** (exponent / 2), is_rated=True)
            misfit, free = np.sum((values - self.solved(system, values)[0]) ** 2), system.log_determinant_rate
            return float(n * misfit / free**2) if free > _INTERPOLATES * n else np.inf

        exponent, scores = 6 * math.log10(n) + _MARGIN, []
        while not scores or np.isfinite(scores[-1]):
            scores.append(score(exponent - _STEP * len(scores)))
        best = exponent - _STEP * int(np.argmin(scores))
        with np.errstate(invalid="ignore"):  # the score may be infinite at the end of the bracket
            found = scipy.optimize.fminbound(score, best - _STEP, best + _STEP)
        return float(10.0**found * self.unit**5)  # pyright: ignore


def spline_through(
    ts: np.ndarray, values: Array | np.ndarray, degree: int, closed: bool = False, breaks: np.ndarray | None = None
) -> tuple[np.ndarray, Any]:
    """The interpolating spline of odd degree: the breaks of its polynomials, and their coefficients.

    **Arguments:** `ts (n,)`, increasing; `values (n, *components)`, known or traced. An open spline has no breaks next
    to its ends (*not-a-knot*), as many as samples need. A closed one is periodic: `ts (n + 1,)` ends with the period.
    `breaks`: more of them, at which polynomials begin.
    """
    half, xp = degree // 2, np if is_concrete(values) else jnp
    if closed:
        n, period = len(ts) - 1, ts[-1] - ts[0]
        knots = np.concatenate([ts[-1 - degree : -1] - period, ts, ts[1 : degree + 1] + period])
        own, places = ts[:-1], ts[:-1]
    else:
        n = len(ts)
        knots = np.concatenate([[ts[0]] * (degree + 1), ts[half + 1 : n - half - 1], [ts[-1]] * (degree + 1)])
        own, places = np.unique(knots)[:-1], ts
    columns, entries = _basis(places, knots, degree)
    rows = np.broadcast_to(np.arange(n)[:, None], columns.shape)
    if closed:
        # A spline's centre is at its sample. Samples from both ends by turns: neighbours in the circle stay near.
        turns = np.minimum(2 * np.arange(n), 2 * np.arange(n)[::-1] + 1)
        order = np.argsort(turns)
        rows, columns = turns[rows], turns[(columns - half) % n]
        c = BandedMatrix(rows.ravel(), columns.ravel(), entries.ravel(), n).solve(values[order])[turns]
        c = c[(np.arange(n + degree) - half) % n]
    else:
        c = BandedMatrix(rows.ravel(), columns.ravel(), entries.ravel(), n).solve(values)
    breaks, powers = own if breaks is None else breaks, []
    for k in range(degree + 1):
        columns, entries = _basis(breaks, knots, degree - k)
        entries = entries.reshape(*entries.shape, *(1,) * (c.ndim - 1)) / math.factorial(k)
        powers.append(xp.sum(entries * c[columns], axis=1))
        if k < degree:
            support = (knots[degree - k + 1 : -1] - knots[1 : -1 - degree + k]).reshape(-1, *(1,) * (c.ndim - 1))
            c, knots = (degree - k) * xp.diff(c, axis=0) / support, knots[1:-1]
    return breaks, xp.stack(powers[::-1], axis=1)


def hermite(
    ts: Float[Array | np.ndarray, " times"], samples: Float[Array | np.ndarray, "times 3"]
) -> Float[Array | np.ndarray, "pieces 6"]:
    """The coefficients, highest power first, of the quintic polynomials that start at times but the last and have the
    values, rates and second rates of `samples` at both of their ends."""
    h, (before, after) = ts[1:] - ts[:-1], (samples[:-1].T, samples[1:].T)
    value, rate, half = before[0], before[1], before[2] / 2
    rise = after[0] - (value + h * (rate + h * half))
    steeper, bent = h * (after[1] - rate - 2 * h * half), h**2 * (after[2] - 2 * half)
    third, fourth, fifth = 10 * rise - 4 * steeper + bent / 2, -15 * rise + 7 * steeper - bent, 6 * rise - 3 * steeper
    powers = [(fifth + bent / 2) / h**5, fourth / h**4, third / h**3, half, rate, value]
    return (np if is_concrete(samples, ts) else jnp).stack(powers, axis=1)


def _basis(places: np.ndarray, knots: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The B-splines that are not zero at places, `(places, degree + 1)`: their numbers and values."""
    basis = scipy.interpolate.BSpline.design_matrix(places, knots, degree)
    return basis.indices.reshape(-1, degree + 1), basis.data.reshape(-1, degree + 1)
