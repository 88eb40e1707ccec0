"""Smoothed samples against known motions, dense matrices and the smoothing spline."""

import math
from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxmbd.errors import MechanismError
from jaxmbd.model.functions.spline import SmoothingSpline
from jaxmbd.numerics.smoothing import Smoothed, butterworth_smoothed, kalman_smoothed
from jaxmbd.numerics.white_jerk import Path


def sines(ts: np.ndarray) -> np.ndarray:
    """Value, rate and second rate of a sum of sines, `(3, n)`."""
    frequency, size, phase = np.array([[2.0, 1.0, 0.1], [4.6, 0.4, 1.2], [8.2, 0.15, 2.0]]).T
    angle = np.outer(ts, frequency) + phase
    second = -np.sin(angle) @ (size * frequency**2)
    return np.stack([np.sin(angle) @ size, np.cos(angle) @ (size * frequency), second])


def white_jerk(rng: np.random.Generator, ts: np.ndarray, intensity: float) -> np.ndarray:
    """A motion of the model, `(3, n)`."""
    states = np.zeros((3, len(ts)))
    for k, h in enumerate(np.diff(ts)):
        states[:, k + 1] = transition(h) @ states[:, k]
        states[:, k + 1] += np.linalg.cholesky(intensity * spread(h)) @ rng.standard_normal(3)
    return states


def transition(h: float) -> np.ndarray:
    return np.array([[1, h, h**2 / 2], [0, 1, h], [0, 0, 1]])


def spread(h: float) -> np.ndarray:
    return np.array([[h**5 / 20, h**4 / 8, h**3 / 6], [h**4 / 8, h**3 / 3, h**2 / 2], [h**3 / 6, h**2 / 2, h]])


def rms(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(x**2, axis=-1))


def results(found: Smoothed) -> np.ndarray:
    return np.stack([found.values, found.rates, found.second_rates])


def normal_equations(path: Path, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The information of all states and its right side, dense, and what the determinant of the prior adds."""
    n, determinant = path.samples.shape[1], 0.0
    information, right = np.zeros((3 * n, 3 * n)), np.zeros(3 * n)
    for k, h in enumerate(path.steps):
        rows = np.zeros((3, 3 * n))
        rows[:, 3 * k : 3 * k + 3], rows[:, 3 * k + 3 : 3 * k + 6] = -transition(h), np.eye(3)
        information += rows.T @ np.linalg.solve(levels[0] * spread(h), rows)
        determinant += np.linalg.slogdet(levels[0] * spread(h))[1]
    for kind, k in np.argwhere(np.isfinite(path.samples)):
        information[3 * k + kind, 3 * k + kind] += 1 / levels[1 + kind]
        right[3 * k + kind] += path.samples[kind, k] / levels[1 + kind]
        determinant += math.log(levels[1 + kind])
    return information, right, determinant


@pytest.mark.parametrize("n", [1 << 4, 23])
@pytest.mark.parametrize("is_even", [True, False])
def test_states_covariances_and_likelihood_are_those_of_dense_matrices(
    rng: np.random.Generator, n: int, is_even: bool
) -> None:
    steps = np.ones(n - 1) if is_even else rng.uniform(0.3, 2.0, n - 1)
    samples = rng.standard_normal((3, n))
    if not is_even:
        samples[rng.uniform(size=samples.shape) < 0.3] = np.nan
        samples[0, [0, -1]] = np.nan
    levels, path = np.array([0.3, 1.0, 0.5, 2.0]), Path(steps, samples, np.zeros((3, n)))
    information, right, determinant = normal_equations(path, levels)
    states = np.linalg.solve(information, right)
    covariance = np.linalg.inv(information)
    for started in (path, replace(path, reference=rng.standard_normal((3, n)))):
        found, covariances = started.smoothed(levels)
        np.testing.assert_allclose(found.T.ravel(), states, atol=1e-9)
        for k in range(n):
            block = slice(3 * k, 3 * k + 3)
            np.testing.assert_allclose(covariances[..., k], covariance[block, block], atol=1e-9)
        square, rest = started.unlikelihood(levels)
        measured = np.isfinite(samples)
        np.testing.assert_allclose(
            square, np.nansum((samples**2 / levels[1:, None])[measured]) - right @ states, rtol=1e-9
        )
        np.testing.assert_allclose(rest, np.linalg.slogdet(information)[1] + determinant, rtol=1e-9)


@pytest.mark.parametrize(("n", "is_even"), [(300, True), (300, False), (6000, True)])
def test_positions_alone_are_the_smoothing_spline(rng: np.random.Generator, n: int, is_even: bool) -> None:
    ts = np.linspace(0, 5, n) if is_even else np.sort(rng.uniform(0, 5, n))
    values = sines(ts)[0] + 0.02 * rng.standard_normal(n)
    found = kalman_smoothed(ts, values)
    spline = SmoothingSpline(ts, values, found.smoothing)
    by_spline = jax.jit(jax.vmap(spline.value))(ts)
    np.testing.assert_allclose(found.values, by_spline, atol=1e-9)
    rates = jax.jit(jax.vmap(jax.grad(spline.value)))(ts)
    np.testing.assert_allclose(found.rates, rates, atol=1e-7 * np.max(np.abs(rates)))


def least_errors(ts: np.ndarray, values: np.ndarray, truth: np.ndarray, near: float) -> np.ndarray:
    """The errors of each result at its best weight, found by knowing the truth, within three decades."""
    unit, errors = (ts[-1] - ts[0]) / (len(ts) - 1), []
    nothing = np.full_like(values, np.nan)
    path = Path(np.diff(ts) / unit, np.stack([values, nothing, nothing]), np.zeros((3, len(ts))))
    for p in near * np.logspace(-1.5, 1.5, 9):
        levels = np.array([unit**5 / p, 1.0, 1.0, 1.0])
        path = path.about(levels)
        errors.append(rms(path.smoothed(levels)[0] / unit ** np.arange(3.0)[:, None] - truth))
    return np.min(errors, axis=0)


@pytest.mark.parametrize(
    ("duration", "n", "noise", "is_even"),
    [
        (10, 400, 0.05, True),
        (10, 1000, 0.05, False),
        (10, 2000, 1e-4, True),
        (10, 1000, 1e-6, True),
        (10, 1000, 1e-3, False),
        (0.3, 2000, 1e-9, True),
        (2, 6000, 0.01, True),
        (0.5, 3001, 1e-3, True),
    ],
)
def test_the_best_weight_and_the_noise_are_found(
    rng: np.random.Generator, duration: float, n: int, noise: float, is_even: bool
) -> None:
    """From samples that are hardly noisy to those of which a thousand lie within a quarter of a period."""
    ratios = []
    for _ in range(3):
        ts = np.linspace(0, duration, n)
        ts += 0 if is_even else rng.uniform(-0.4, 0.4, n) * duration / n
        truth = sines(ts)
        values = truth[0] + noise * rng.standard_normal(n)
        found = kalman_smoothed(ts, values)
        assert abs(found.noise / noise - 1) < 0.1
        ratios.append(rms(results(found) - truth) / least_errors(ts, values, truth, found.smoothing))
    assert (np.median(ratios, axis=0) < 1.3).all()
    assert (np.max(ratios, axis=0) < 2.0).all()


@pytest.mark.parametrize(("n", "noise", "missing"), [(3000, 0.05, 0.0), (3000, 1e-3, 0.0), (2000, 0.02, 0.3)])
def test_errors_are_as_large_as_they_are_said_to_be(
    rng: np.random.Generator, n: int, noise: float, missing: float
) -> None:
    ts = np.sort(rng.uniform(0, 20, n)) if missing else np.linspace(0, 20, n)
    truth = white_jerk(rng, ts, 300.0)
    values = truth[0] + noise * rng.standard_normal(n)
    values[rng.uniform(size=n) < missing] = np.nan
    found = kalman_smoothed(ts, values)
    assert abs(found.noise / noise - 1) < 0.1
    relative = rms((results(found) - truth) / found.errors.T)
    assert (relative > 0.8).all()
    assert (relative < 1.2).all()
    np.testing.assert_allclose(found.smoothing, noise**2 / 300, rtol=0.5)


def test_measured_rates_and_second_rates_make_all_better(rng: np.random.Generator) -> None:
    n, noises = 2000, (0.01, 0.05, 0.5)
    ts = np.linspace(0, 10, n)
    truth = sines(ts)
    values, rates, second_rates = truth + np.array(noises)[:, None] * rng.standard_normal((3, n))
    alone, two = kalman_smoothed(ts, values), kalman_smoothed(ts, values, rates)
    three = kalman_smoothed(ts, values, rates, second_rates)
    np.testing.assert_allclose([two.noise, two.rate_noise], noises[:2], rtol=0.1)
    np.testing.assert_allclose([three.noise, three.rate_noise, three.second_rate_noise], noises, rtol=0.1)
    assert math.isnan(alone.rate_noise)
    assert math.isnan(two.second_rate_noise)
    errors = np.array([rms(results(found) - truth) for found in (alone, two, three)])
    assert (errors[1] < 0.8 * errors[0]).all()
    assert errors[2, 2] < 0.7 * errors[1, 2]
    said = np.array([rms(found.errors.T) for found in (alone, two, three)])
    assert (said[1:] < said[:-1]).all()


def test_precise_rates_are_not_taken_for_free_of_noise(rng: np.random.Generator) -> None:
    """Rates change from sample to sample by a hundred times their noise."""
    ts, noises = np.linspace(0, 10, 1000), np.array([[1e-3], [1e-4], [1e-2]])
    truth = sines(ts)
    found = kalman_smoothed(ts, *(truth + noises * rng.standard_normal((3, 1000))))
    np.testing.assert_allclose([found.noise, found.rate_noise, found.second_rate_noise], noises.ravel(), rtol=0.15)
    assert (rms(results(found) - truth) < [3e-4, 1e-4, 1e-2]).all()


def test_noise_that_is_known_is_kept(rng: np.random.Generator) -> None:
    ts = np.linspace(0, 10, 1000)
    truth = sines(ts)
    values, rates, _ = truth + np.array([[0.05], [0.2], [0.0]]) * rng.standard_normal((3, 1000))
    by_value = kalman_smoothed(ts, values, noise=0.05)
    assert by_value.noise == pytest.approx(0.05, rel=1e-12)
    assert (rms(results(by_value) - truth) < 1.3 * least_errors(ts, values, truth, by_value.smoothing)).all()
    assert kalman_smoothed(ts, values, noise=0.2).smoothing > 3 * by_value.smoothing
    by_rate = kalman_smoothed(ts, values, rates, rate_noise=0.3)
    assert by_rate.rate_noise == pytest.approx(0.3, rel=1e-12)
    assert by_rate.noise == pytest.approx(0.05, rel=0.1)


def test_samples_may_be_missing(rng: np.random.Generator) -> None:
    """Some here and there, a whole stretch, and more of the rates, which were sampled less often."""
    ts = np.linspace(0, 10, 2000)
    truth = sines(ts)
    values, rates, _ = truth + np.array([[0.01], [0.1], [0.0]]) * rng.standard_normal((3, 2000))
    values[rng.uniform(size=2000) < 0.3] = np.nan
    values[1000:1030] = np.nan
    rates[np.arange(2000) % 4 != 0] = np.nan
    rates[900:1100] = np.nan
    found = kalman_smoothed(ts, values, rates)
    np.testing.assert_allclose([found.noise, found.rate_noise], [0.01, 0.1], rtol=0.1)
    assert (np.abs(results(found) - truth) < 5 * found.errors.T).all()
    assert found.errors[1015, 0] > 2 * found.errors[500, 0]
    scaled = kalman_smoothed(1e-3 * ts + 7, 5 * values, 5e3 * rates)  # other units, another origin
    np.testing.assert_allclose(scaled.second_rates, 5e6 * found.second_rates, rtol=1e-4, atol=1e3)


@pytest.mark.parametrize("counts", [1 << 10, 1 << 12, 1 << 16])
def test_an_encoder(rng: np.random.Generator, counts: int) -> None:
    """Rounding is noise of a uniform distribution, if samples do not rest on a step for long."""
    ts, resolution = np.linspace(0, 10, 2000), 2 * math.pi / counts
    truth = sines(ts)
    found = kalman_smoothed(ts, resolution * np.round(truth[0] / resolution))
    assert found.noise == pytest.approx(resolution / math.sqrt(12), rel=0.15)
    assert (rms((results(found) - truth) / found.errors.T) < 1.2).all()


@pytest.mark.parametrize(("n", "resolution"), [(4001, 0.1), (4001, 0.01), (1001, 0.1)])
def test_an_encoder_whose_samples_rest_on_each_step(n: int, resolution: float) -> None:
    """A slow motion, of which 50 to 400 samples are equal: the curve does not follow the steps."""
    ts = np.linspace(-5, 5, n)
    truth = 0.3 * np.stack([np.sin(ts / 2), np.cos(ts / 2) / 2, -np.sin(ts / 2) / 4])
    found = kalman_smoothed(ts, resolution * np.round(truth[0] / resolution))
    assert (rms(results(found) - truth) < [0.3 * resolution, 0.01, 0.015]).all()
    assert (rms((results(found) - truth) / found.errors.T) < 1.0).all()
    assert found.noise > resolution


def test_rounding_does_not_grow_with_the_number_of_samples(rng: np.random.Generator) -> None:
    """100,000 samples, a thousand within the time in which the motion changes: two ways to the same numbers."""
    n = 100_000
    ts = np.linspace(0, 1, n)
    truth = sines(ts)
    values = truth[0] + 0.1 * rng.standard_normal(n)
    found = kalman_smoothed(ts, values)
    assert abs(found.noise / 0.1 - 1) < 0.01
    assert (rms(results(found) - truth) < [0.003, 0.1, 3.0]).all()
    unit, nothing = 1 / (n - 1), np.full(n, np.nan)
    path = Path(np.ones(n - 1), np.stack([values, nothing, nothing]), np.zeros((3, n)))
    levels = np.array([unit**5 / found.smoothing, 1.0, 1.0, 1.0])
    once = path.smoothed(levels)[0] / unit ** np.arange(3.0)[:, None]
    assert (np.abs(once - results(found)) < 1e-6 * found.errors.T).all()


def test_samples_without_noise() -> None:
    ts = np.linspace(0, 10, 1000)
    truth = sines(ts)
    found = kalman_smoothed(ts, truth[0])
    assert found.noise < 1e-5
    assert (rms(results(found) - truth) < [1e-6, 1e-4, 0.03]).all()
    parabola = np.stack([3 + 2 * ts - ts**2, 2 - 2 * ts, np.full_like(ts, -2.0)])
    np.testing.assert_allclose(results(kalman_smoothed(ts, parabola[0])), parabola, atol=1e-9)
    still = kalman_smoothed(ts, np.zeros(1000), np.zeros(1000))
    np.testing.assert_allclose(results(still), 0.0, atol=1e-12)


@pytest.mark.parametrize("noise", [0.1, 0.01, 1e-3])
def test_the_filter_finds_its_cutoff(rng: np.random.Generator, noise: float) -> None:
    ts = np.linspace(0, 10, 3000)
    truth = sines(ts)
    values = truth[0] + noise * rng.standard_normal(3000)
    found = butterworth_smoothed(ts, values)
    assert found.noise == pytest.approx(noise, rel=0.1)
    tried = [rms(results(butterworth_smoothed(ts, values, cutoff=x)) - truth) for x in np.geomspace(0.5, 50, 30)]
    assert (rms(results(found) - truth) < 1.6 * np.min(tried, axis=0)).all()
    assert np.isnan(found.errors).all()
    assert math.isnan(found.smoothing)


def test_what_the_filter_does_to_a_sine_and_to_noise(rng: np.random.Generator) -> None:
    """At the cutoff both passes leave half the size, without delay; differences are of second order."""
    ts = np.linspace(-1, 1, 4001)
    sine = np.stack([np.sin(40 * ts), 40 * np.cos(40 * ts), -1600 * np.sin(40 * ts)])
    for order in (2, 4):
        found = butterworth_smoothed(ts, sine[0], cutoff=40 / (2 * math.pi), order=order)
        middle = slice(1500, 2500)
        np.testing.assert_allclose(results(found)[:, middle], sine[:, middle] / 2, rtol=2e-3, atol=0.5)
        np.testing.assert_allclose(found.values[middle], sine[0, middle] / 2, atol=1e-3)
    for cutoff, order in ((20.0, 4), (500.0, 4), (500.0, 1)):
        found = butterworth_smoothed(ts, 0.3 * rng.standard_normal(4001), cutoff=cutoff, order=order)
        assert found.noise == pytest.approx(0.3, rel=0.05)
        x, step = found.values[:3], ts[1] - ts[0]
        np.testing.assert_allclose(found.rates[0], (4 * x[1] - 3 * x[0] - x[2]) / (2 * step))
        np.testing.assert_allclose(found.second_rates[1], (x[0] - 2 * x[1] + x[2]) / step**2)
    ends = butterworth_smoothed(ts, ts**2, cutoff=900.0)
    np.testing.assert_allclose(ends.rates, 2 * ts, atol=5e-3)


TS = np.linspace(0, 1, 20)
WRONG: list[tuple[Callable[[], Smoothed], str]] = [
    (lambda: kalman_smoothed(TS[:5], TS[:5]), r"ts must be a sequence of at least 6 times, got the shape \(5,\)"),
    (lambda: kalman_smoothed(TS, TS[:-1]), r"values must have a number for each of the 20 ts, got .*\(19,\)"),
    (lambda: kalman_smoothed(TS, TS, TS[:3]), r"rates must have a number for each"),
    (lambda: kalman_smoothed(TS, np.where(TS < 0.8, np.nan, TS)), "at least 6 values that are not NaN .* got 4"),
    (lambda: kalman_smoothed(TS, TS, np.where(TS < 0.8, np.nan, TS)), "at least 6 rates .* or rate_noise, got 4"),
    (
        lambda: kalman_smoothed(TS, np.where(TS < 0.8, TS, np.inf)),
        r"NaN where a sample is missing; values\[16\] is inf",
    ),
    (lambda: kalman_smoothed(np.where(TS < 0.8, TS, np.nan), TS), r"ts\[16\] is not"),
    (lambda: kalman_smoothed(TS[::-1], TS), r"ts must increase: ts\[1\] = 0.947368, after 1"),
    (lambda: kalman_smoothed(TS, TS, noise=0.0), "noise must be a positive number, .* got 0.0"),
    (lambda: kalman_smoothed(TS, TS, TS, rate_noise=-1), "rate_noise must be a positive number, .* got -1"),
    (lambda: kalman_smoothed(TS, TS, rate_noise=1), "rate_noise is given, so rates must be given"),
    (lambda: kalman_smoothed(TS, np.array(["a"] * 20)), "values must be a sequence of real numbers"),
    (lambda: butterworth_smoothed(TS**2, TS), r"equally spaced: ts\[9\] = .* Use kalman_smoothed"),
    (lambda: butterworth_smoothed(TS, np.where(TS < 0.8, TS, np.nan)), r"values\[16\] is NaN.*use kalman_smoothed"),
    (lambda: butterworth_smoothed(TS, TS, cutoff=9.6), "below half the sampling frequency, 9.5.* got 9.6"),
    (lambda: butterworth_smoothed(TS, TS, order=0), "order must be a whole number from 1 to 10, got 0"),
    (lambda: butterworth_smoothed(TS[:9], TS[:9]), "at least 10 times"),
]


@pytest.mark.parametrize(("call", "text"), WRONG)
def test_wrong_arguments(call: Callable[[], Smoothed], text: str) -> None:
    with pytest.raises(MechanismError, match=text):
        call()
