"""Values, rates and second rates of noisy samples, in time and memory proportional to their number.

`kalman_smoothed`: the jerk is white noise (`white_jerk.py`). How much of it there is, and how noisy the samples are,
follows from the samples. `butterworth_smoothed`: a low-pass filter, forwards and backwards, and differences.

Source: Wahba, *A comparison of GCV and GML for choosing the smoothing parameter in the generalized spline smoothing
problem*, Ann. Stat. 13 (1985); Challis, *A procedure for the automatic determination of filter cutoff frequency for the
processing of biomechanical data*, J. Appl. Biomech. 15 (1999).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmbd.arrays import Numbers, as_float, is_concrete
from jaxmbd.errors import MechanismError, shown
from jaxmbd.numerics.white_jerk import Path

_FEWEST = 6  # values: three numbers make a parabola, the others tell noise from motion
_STEP = 1.0  # of log10 p in a search over the weights p of the equivalent spline
_MARGIN = 2.0  # in log10 p: how far the search begins beyond the weight at which a parabola is left
_LIGHTEST = -4.0  # log10 p at which the curve passes through the samples
_RATE = 0.1  # of the logarithm of the jerk: a difference by which derivatives are taken
_TOLERANCE = 0.02  # of log10 p: what a search leaves open
_INTERPOLATES = 0.02  # least share of residual degrees of freedom: below it the samples do not tell noise from motion
_RESTS = 4.0  # samples on each step of a rounding: up to some ten, steps are taken for noise, beyond for motion
_FOLLOWS = 0.5  # of the noise of a rounding: a curve that leaves less follows the steps
_WHOLE = 1e-3  # how close to whole numbers the multiples of a resolution are
_LOWEST = 0.01  # periods over all samples: a filter below it has lost all digits
_UNEVEN = 0.02  # largest distance, in steps, of a time from its place among equally spaced ones
_FEWEST_FILTERED = 10  # samples: fewer than the filter and its differences reach over
_HIGHEST_ORDER = 10
_TRANSIENT = 1.0  # periods of the cutoff for each order: how long the filter remembers its start
_HIGHEST_CUTOFF = 0.45  # in periods per sample, of those that are tried
_CUTOFFS = 40
_FREQUENCIES = (np.arange(4096) + 0.5) / 8192  # in periods per sample, up to the half
_NOISES = ("noise", "rate_noise", "second_rate_noise")
_ROUNDING = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Smoothed:
    """What noisy samples say of a motion at their times.

    `noise`, `rate_noise`, `second_rate_noise`: standard deviations of the samples, given or estimated, NaN where
    nothing was measured. `errors`: standard deviations of values, rates and second rates, NaN where the method has
    none. `how`: the method in words. `smoothing`: the p of the `SmoothingSpline` that smooths values as heavily, NaN
    where there is none.
    """

    values: Float[np.ndarray, " n"]
    rates: Float[np.ndarray, " n"]
    second_rates: Float[np.ndarray, " n"]
    noise: float
    rate_noise: float
    second_rate_noise: float
    errors: Float[np.ndarray, "n 3"]
    how: str
    smoothing: float = math.nan


def kalman_smoothed(
    ts: Numbers,
    values: Numbers,
    rates: Numbers | None = None,
    second_rates: Numbers | None = None,
    *,
    noise: float | int | None = None,
    rate_noise: float | int | None = None,
    second_rate_noise: float | int | None = None,
) -> Smoothed:
    """The most probable motion whose jerk is white noise, `d³x/dt³ = w`, with nothing known of its beginning.

    Steps of time may differ, and samples may be missing. If only values are measured, their curve is the
    `SmoothingSpline` of the weight `smoothing`. The second rates of a motion that is smoother than this are mostly
    better than `errors` say, and worse where they jump.

    **Arguments:** `ts (n,)`, increasing; `values (n,)`, and what else was measured, `rates (n,)` and
    `second_rates (n,)`, with NaN where a sample is missing; `noise`, `rate_noise`, `second_rate_noise`: standard
    deviations of the samples. Those that are not given are estimated, which needs six samples of their kind; six values
    are needed anyway. Of rounded samples that rest on each step for long, `noise` is what they are smoothed with: the
    resolution / √12, times the root of how many rest on a step, because their errors are alike.

    **Returns:** `Smoothed`; its `errors` take the noise and the intensity of jerk for known.

    **Raises:** `MechanismError` if arguments do not fit together, or are no finite numbers.
    """
    call = "kalman_smoothed"
    times = _times(call, ts, _FEWEST)
    given = {"values": values, "rates": rates, "second_rates": second_rates}
    samples = np.stack([_column(call, name, column, times) for name, column in given.items()])
    sizes = zip(_NOISES, (noise, rate_noise, second_rate_noise), strict=True)
    known = np.array([_level(call, name, size) for name, size in sizes])
    for kind, (name, count) in enumerate(zip(given, np.isfinite(samples).sum(axis=1), strict=True)):
        if count < _FEWEST and (kind == 0 or (count and np.isnan(known[kind]))):
            raise MechanismError(
                f"{call}: at least {_FEWEST} {name} that are not NaN are needed"
                f"{f' to estimate their noise, or {_NOISES[kind]}' if kind else ''}, got {count}."
            )
        if given[name] is None and not np.isnan(known[kind]):
            raise MechanismError(f"{call}: {_NOISES[kind]} is given, so {name} must be given, too.")
    unit = float(times[-1] - times[0]) / (len(times) - 1)
    units, steps = unit ** np.arange(3.0)[:, None], np.diff(times) / unit
    if np.ptp(steps) <= 8 * _ROUNDING * np.max(np.abs(times)) / unit:
        steps = np.ones_like(steps)  # they differ by the rounding of times only
    path = Path(steps, samples * units, np.zeros_like(samples))
    levels = _estimated(path, (known * units[:, 0]) ** 2)
    states, covariances = path.about(levels).smoothed(levels)
    errors = np.sqrt(np.einsum("iin->in", covariances)) / units
    noises = np.where(np.isfinite(samples).any(axis=1), np.sqrt(levels[1:]) / units[:, 0], math.nan)
    named = [f"{name.replace('_', ' ')} {x:.3g}" for name, x in zip(_NOISES, noises, strict=True) if not math.isnan(x)]
    how, smoothing = "Kalman smoother: " + ", ".join(named), float(levels[1] / levels[0]) * unit**5
    x, rate, second = states / units
    noise, rate_noise, second_rate_noise = map(float, noises)
    return Smoothed(x, rate, second, noise, rate_noise, second_rate_noise, errors.T, how, smoothing)


def butterworth_smoothed(
    ts: Numbers, values: Numbers, *, cutoff: float | int | None = None, order: int = 4
) -> Smoothed:
    """A Butterworth low-pass filter, forwards and backwards, so that nothing is delayed, and second-order differences.

    **Arguments:** `ts (n,)`, equally spaced; `values (n,)`; `cutoff`: the frequency, in periods per unit of `ts`, at
    which one pass leaves half the power, and both a quarter; `None` chooses the one whose residual is closest to white
    noise, by the sum of its squared autocorrelations (Challis 1999); `order` of one pass.

    **Returns:** `Smoothed`, without `errors`; `noise` is the residual, corrected for what the filter takes of noise.

    **Raises:** `MechanismError` if times are not equally spaced, samples are missing, or the cutoff is beyond half the
    sampling frequency.
    """
    call = "butterworth_smoothed"
    times = _times(call, ts, _FEWEST_FILTERED)
    samples = _column(call, "values", values, times)
    if np.isnan(samples).any():
        k = int(np.argmax(np.isnan(samples)))
        raise MechanismError(f"{call}: values[{k}] is NaN; where samples are missing, use kalman_smoothed.")
    step = float(times[-1] - times[0]) / (len(times) - 1)
    off = np.abs(times - times[0] - step * np.arange(len(times))) / step
    if off[k := int(np.argmax(off))] > _UNEVEN:
        raise MechanismError(
            f"{call}: ts must be equally spaced: ts[{k}] = {times[k]:g} is {100 * off[k]:.2g} per cent of a step away "
            "from its place. Use kalman_smoothed, or resample."
        )
    if not isinstance(order, int) or isinstance(order, bool) or not 1 <= order <= _HIGHEST_ORDER:
        raise MechanismError(f"{call}: order must be a whole number from 1 to {_HIGHEST_ORDER}, got {shown(order)}.")
    lowest = _LOWEST / (step * len(times))
    if cutoff is not None and not (_is_positive(cutoff) and lowest < cutoff < 0.5 / step):
        raise MechanismError(
            f"{call}: cutoff must be a frequency below half the sampling frequency, {0.5 / step:.6g}, and above a "
            f"hundredth of a period over all samples, {lowest:.3g}, or None to choose it, got {shown(cutoff)}."
        )
    relative = _whitest(samples, order) if cutoff is None else float(cutoff) * step
    filtered = _filtered(samples, relative, order)
    # Of white noise, the residual holds the share that both passes do not let through.
    passes = 1 / (1 + (np.tan(np.pi * _FREQUENCIES) / math.tan(math.pi * relative)) ** (2 * order))
    noise = math.sqrt(float(np.mean((samples - filtered) ** 2) / np.mean((1 - passes) ** 2)))
    second = np.diff(filtered, 2)
    ends = [2 * x[0] - 5 * x[1] + 4 * x[2] - x[3] for x in (filtered, filtered[::-1])]
    second_rates = np.concatenate([ends[:1], second, ends[1:]]) / step**2
    how = f"Butterworth filter of order {order}, both ways: cutoff {relative / step:.3g}, noise {noise:.3g}"
    none = np.full((len(times), 3), math.nan)
    rates = np.gradient(filtered, step, edge_order=2)
    return Smoothed(filtered, rates, second_rates, noise, math.nan, math.nan, none, how)


def _filtered(samples: np.ndarray, cutoff: float, order: int) -> np.ndarray:
    """With a cutoff in periods per sample."""
    sections = scipy.signal.butter(order, 2 * cutoff, output="sos")
    around = min(len(samples) - 1, math.ceil(_TRANSIENT * order / min(cutoff, 0.5 - cutoff)))
    return scipy.signal.sosfiltfilt(sections, samples, padlen=around)


def _whitest(samples: np.ndarray, order: int) -> float:
    """The cutoff, in periods per sample, whose residual has the least sum of squared autocorrelations."""
    count = len(samples)

    def colour(log: float) -> float:
        left = samples - _filtered(samples, math.exp(log), order)
        power = np.abs(np.fft.rfft(left - np.mean(left), 2 * count)) ** 2
        correlations = np.fft.irfft(power)[: count // 2]
        return float(np.sum((correlations[1:] / max(correlations[0], float(np.finfo(float).tiny))) ** 2))

    logs = np.linspace(math.log(1 / count), math.log(_HIGHEST_CUTOFF), _CUTOFFS)
    best, step = logs[np.argmin([colour(x) for x in logs])], logs[1] - logs[0]
    bounds = max(best - step, logs[0]), min(best + step, logs[-1])
    return math.exp(float(scipy.optimize.fminbound(colour, *bounds)))  # pyright: ignore


def _unlikelihood(path: Path, levels: np.ndarray, is_scaled: bool) -> float:
    """−2 log of the likelihood, with the common factor of all levels that makes it least, if they are scaled."""
    square, rest = path.unlikelihood(levels)
    if not is_scaled:
        return square + rest
    free = path.count - 3
    factor = max(square / free, _floor(path.samples[0]) / levels[1])
    return free * math.log(factor) + square / factor + rest


def _risk(path: Path, levels: np.ndarray, is_scaled: bool) -> tuple[float, float]:
    """What rises with the expected error of the curve, and the common factor of the levels that residuals show.

    Generalized cross-validation where levels are known but for a factor, else Mallows' score. The sum of squares of the
    residuals, each by its variance, and the degrees of freedom that the curve takes, are derivatives of the likelihood
    by the logarithm of the jerk.
    """
    (more, rest), (less, other) = (path.unlikelihood(levels * [math.exp(x), 1.0, 1.0, 1.0]) for x in (_RATE, -_RATE))
    misfit = (more + less) / 2 + (more - less) / (2 * _RATE)
    taken = 3 + (rest - other) / (2 * _RATE)
    if not is_scaled:
        return misfit + 2 * taken, 1.0
    free = path.count - taken
    if free < _INTERPOLATES * path.count:
        return math.inf, 1.0
    factor = max(misfit / free, _floor(path.samples[0]) / levels[1])
    return path.count * math.log(factor / free), factor


def _estimated(path: Path, known: Float[np.ndarray, " 3"]) -> Float[np.ndarray, " 4"]:
    """The levels, with the variances that are known, not NaN.

    The noise of each kind of samples follows from these alone: together, the likelihood would take precise rates or
    second rates for free of noise, because they change from sample to sample by more than their noise.

    Where many samples rest on each step of a rounding, a curve may follow the steps, as if the noise were far less than
    the resolution / √12 of uniform errors. All errors on a step are alike: together, they count as one.
    """
    is_there = np.any(np.isfinite(path.samples), axis=1)
    levels, variances = np.ones(4), known.copy()
    variances[~is_there] = 1.0  # any
    for kind in np.flatnonzero(is_there & np.isnan(known)).tolist():
        alone = np.full_like(path.samples, math.nan)
        alone[0] = path.samples[kind]
        levels = _best(replace(path, samples=alone), np.ones(3), True)
        resolution, rest = _rounding(path.samples[kind])
        if rest > _RESTS and levels[1] < (_FOLLOWS * resolution) ** 2 / 12:
            levels = _best(replace(path, samples=alone), np.full(3, rest * resolution**2 / 12), False)
        variances[kind] = levels[1]
    if np.isnan(known[0]) and not is_there[1:].any():
        return levels
    return _best(path, variances, False)


def _rounding(samples: np.ndarray) -> tuple[float, float]:
    """The resolution of rounded samples, 0 of others, and how many rest on one step on average."""
    steps = np.abs(np.diff(samples[np.isfinite(samples)]))
    steps = steps[steps > 0]
    if not len(steps):
        return 0.0, 1.0
    multiples = steps / np.min(steps)
    is_rounded = bool((np.abs(multiples - np.rint(multiples)) < _WHOLE).all())
    return (float(np.min(steps)) if is_rounded else 0.0), float(np.isfinite(samples).sum()) / (1 + len(steps))


def _best(path: Path, variances: Float[np.ndarray, " 3"], is_scaled: bool) -> Float[np.ndarray, " 4"]:
    """The levels with these variances, or ones in proportion to them, that smooth best.

    First the jerk of the largest likelihood, from a parabola to interpolation. If the motion is smoother than its
    model, this smooths too lightly (Wahba 1985), so the jerk is lowered until the expected error is least.
    """

    def at(exponent: float) -> np.ndarray:
        return np.append(10.0**-exponent, variances)

    used = np.log10([x for x, column in zip(variances, path.samples, strict=True) if np.isfinite(column).any()])
    heaviest = 6 * math.log10(path.samples.shape[1]) + _MARGIN - float(np.min(used))
    lightest = _LIGHTEST - float(np.max(used))
    path = path.about(at(heaviest))
    exponents = np.arange(heaviest, lightest, -_STEP)
    start = float(exponents[np.argmin([_unlikelihood(path, at(x), is_scaled) for x in exponents])])
    path = path.about(at(start))
    start = _least(lambda x: _unlikelihood(path, at(x), is_scaled), start - _STEP, start + _STEP)

    def risk(exponent: float) -> float:
        return _risk(path, at(exponent), is_scaled)[0]

    exponent, least = start, risk(start)
    while exponent < heaviest and ((further := risk(exponent + _STEP)) < least or least == math.inf):
        exponent, least = exponent + _STEP, further
    exponent = _least(risk, max(exponent - _STEP, start), exponent + _STEP)
    return at(exponent) * _risk(path, at(exponent), is_scaled)[1]


def _least(function: Callable[[float], float], lower: float, upper: float) -> float:
    with np.errstate(invalid="ignore"):  # the risk may be infinite at the end of the bracket
        return float(scipy.optimize.fminbound(function, lower, upper, xtol=_TOLERANCE))  # pyright: ignore


def _floor(samples: np.ndarray) -> float:
    """The variance of the rounding of samples: no noise is estimated to be less."""
    return (_ROUNDING * (float(np.nanmax(np.abs(samples))) or 1.0)) ** 2


def _level(call: str, name: str, level: Any) -> float:
    """A standard deviation; NaN if it is to be estimated."""
    if level is not None and not _is_positive(level):
        raise MechanismError(
            f"{call}: {name} must be a positive number, the standard deviation of the samples, or None to estimate it, "
            f"got {shown(level)}."
        )
    return math.nan if level is None else float(level)


def _is_positive(given: Any) -> bool:
    number = as_float(given)
    return (
        isinstance(number, Array) and is_concrete(number) and number.shape == () and bool(0 < float(number) < math.inf)
    )


def _numbers(call: str, name: str, given: Any) -> np.ndarray:
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise MechanismError(f"{call}: {name} must be a sequence of real numbers ({error}).") from error


def _times(call: str, given: Any, fewest: int) -> np.ndarray:
    ts = _numbers(call, "ts", given)
    if ts.ndim != 1 or len(ts) < fewest:
        raise MechanismError(f"{call}: ts must be a sequence of at least {fewest} times, got the shape {ts.shape}.")
    if not np.isfinite(ts).all():
        raise MechanismError(f"{call}: ts must be finite numbers; ts[{int(np.argmin(np.isfinite(ts)))}] is not.")
    if (np.diff(ts) <= 0).any():
        k = int(np.argmax(np.diff(ts) <= 0))
        raise MechanismError(f"{call}: ts must increase: ts[{k + 1}] = {ts[k + 1]:g}, after {ts[k]:g}.")
    return ts


def _column(call: str, name: str, given: Any, ts: np.ndarray) -> np.ndarray:
    """Samples at times, NaN where they are missing."""
    if given is None and name != "values":
        return np.full(len(ts), math.nan)
    samples = _numbers(call, name, given)
    if samples.shape != ts.shape:
        raise MechanismError(f"{call}: {name} must have a number for each of the {len(ts)} ts, got {samples.shape}.")
    if np.isinf(samples).any():
        raise MechanismError(
            f"{call}: {name} must be finite numbers, or NaN where a sample is missing; {name}"
            f"[{int(np.argmax(np.isinf(samples)))}] is infinite."
        )
    return samples
