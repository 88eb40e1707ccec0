"""The No-U-Turn sampler against densities whose moments are known; what samples of chains are worth."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from jaxmbd.numerics.markov_chains import effective_samples, scale_reduction
from jaxmbd.numerics.no_u_turn import Chain, Step, sampled, side_by_side

Density = Callable[[np.ndarray], tuple[float, np.ndarray]]
ACCEPTANCE, DOUBLINGS = 0.9, 7


def drive(chains: list[Chain], count: int, density: Density, step: float | None) -> None:
    together = side_by_side([sampled(chain, count, DOUBLINGS, step) for chain in chains])
    asked = next(together)
    try:
        while True:
            asked = together.send([density(z) for z in asked])
    except StopIteration:
        return


def samples_of(density: Density, start: Sequence[float], draws: int, number: int = 2) -> tuple[np.ndarray, list[Chain]]:
    """Samples `(chains, draws, n)` after a warm-up."""
    chains = [Chain(np.array(start), np.random.default_rng([3, k]), Step(0.5, ACCEPTANCE)) for k in range(number)]
    drive(chains, 200, density, None)
    step = float(np.median([chain.step.settled for chain in chains]))
    for chain in chains:
        chain.samples, chain.divergences = [], 0
    drive(chains, draws, density, step)
    return np.array([chain.samples for chain in chains]), chains


def test_a_normal_density_with_correlated_numbers() -> None:
    """Mean, covariance and fourth moment, each within four standard errors."""
    covariance, mean = np.array([[1.0, 0.8], [0.8, 2.0]]), np.array([0.5, -1.0])
    precision = np.linalg.inv(covariance)
    found, chains = samples_of(
        lambda z: (float(-0.5 * (z - mean) @ precision @ (z - mean)), -precision @ (z - mean)), [0.0, 0.0], 1000
    )
    away = found - mean
    for k in range(2):
        deviation = np.sqrt(covariance[k, k])
        error = deviation / np.sqrt(effective_samples(found[..., k]))
        assert away[..., k].mean() == pytest.approx(0.0, abs=4 * error)
        squares, fourth = away[..., k] ** 2 / deviation**2, away[..., k] ** 4 / deviation**4
        assert squares.mean() == pytest.approx(1.0, abs=4 * np.sqrt(2 / effective_samples(squares)))
        assert fourth.mean() == pytest.approx(3.0, abs=4 * np.sqrt(96 / effective_samples(fourth)))
    product = away[..., 0] * away[..., 1]
    assert product.mean() == pytest.approx(0.8, abs=4 * product.std() / np.sqrt(effective_samples(product)))
    assert sum(chain.divergences for chain in chains) == 0
    rates = [chain.step.settled for chain in chains]
    assert all(0.1 < rate < 1.5 for rate in rates)


def test_a_lopsided_density() -> None:
    """The logarithm of a number that has the gamma distribution of shape three: its mean and variance are three."""
    found, _ = samples_of(lambda z: (3 * z[0] - np.exp(z[0]), np.array([3 - np.exp(z[0])])), [0.0], 1500)
    x = np.exp(found[..., 0])
    assert x.mean() == pytest.approx(3.0, abs=4 * np.sqrt(3 / effective_samples(x)))
    squares = (x - 3.0) ** 2
    assert squares.mean() == pytest.approx(3.0, abs=4 * squares.std() / np.sqrt(effective_samples(squares)))


def test_motions_that_leave_the_density_diverge() -> None:
    """Beyond a wall there is no density: samples stay before it, and the draws whose motion met it are counted."""

    def density(z: np.ndarray) -> tuple[float, np.ndarray]:
        return (-0.5 * float(z @ z), -z) if z[0] < 1.0 else (np.nan, np.full(1, np.nan))

    found, chains = samples_of(density, [0.0], 300)
    assert found.max() < 1.0
    assert sum(chain.divergences for chain in chains) > 20
    assert scale_reduction(found[..., 0]) == pytest.approx(1.0, abs=0.1)


def test_effective_samples_of_an_autoregressive_series() -> None:
    """`x' = a x + e` has `n (1 − a) / (1 + a)` effective samples; independent ones are worth their number."""
    draws, a = np.random.default_rng(0), 0.8
    e = draws.normal(size=(4, 30000))
    x = np.zeros_like(e)
    for k in range(1, e.shape[1]):
        x[:, k] = a * x[:, k - 1] + e[:, k]
    assert effective_samples(x) == pytest.approx(e.size * (1 - a) / (1 + a), rel=0.1)
    assert effective_samples(e) == pytest.approx(e.size, rel=0.05)
    assert effective_samples(np.ones((2, 100))) == 0
    assert scale_reduction(e) == pytest.approx(1.0, abs=1e-3)
    apart = e + np.arange(4)[:, None]  # variances between the chains 5/3, within them 1
    assert scale_reduction(apart) == pytest.approx(np.sqrt(1 + 5 / 3), rel=0.02)
    assert np.isnan(scale_reduction(e[:1]))
