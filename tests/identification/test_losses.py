"""Robust losses as likelihoods, and how much of the information of normal noise they take, against simulations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import jaxmbd as mbd
from jaxmbd.identification import Parameter, Positive, Problem, fisher_information, information
from jaxmbd.identification._losses import _SLOPES, LOSSES, efficiency, likeliest_level, log_normaliser, transformed
from tests.identification.swings import plain_pendulum

CASES: list[tuple[Any, float]] = [("huber", 1.5), ("soft_l1", 0.5), ("cauchy", 1.2), ("huber", 0.3)]


def psi(loss: str, scale: float, r: np.ndarray) -> np.ndarray:
    return r * _SLOPES[loss]((r / scale) ** 2)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_slopes_are_the_derivatives(loss: str) -> None:
    z = np.array([0.0, 0.3, 0.99, 1.5, 40.0])
    np.testing.assert_allclose(_SLOPES[loss](z), jax.vmap(jax.grad(LOSSES[loss]))(jnp.asarray(z)), rtol=1e-12)


@pytest.mark.parametrize(("loss", "scale"), CASES)
def test_the_efficiency_is_that_of_many_small_problems(loss: Any, scale: float) -> None:
    """The variances of 4,000 estimates of a straight line from 40 samples with normal noise, by least squares and by
    reweighting for the loss. Their ratio has a standard deviation of 1 to 2 %, and a bias of some percent for so few
    samples."""
    x = np.stack([np.ones(40), np.linspace(-1.0, 1.0, 40)], axis=1)
    noise = np.random.default_rng(0).normal(size=(4000, 40))
    least = np.linalg.lstsq(x, noise.T, rcond=None)[0].T
    found = least
    for _ in range(60):
        weights = _SLOPES[loss](((noise - found @ x.T) / scale) ** 2)
        normal = np.einsum("ki,si,ij->skj", x.T, weights, x)
        found = np.linalg.solve(normal, np.einsum("ki,si->sk", x.T, weights * noise)[..., None])[..., 0]
    ratio = np.mean(least.var(axis=0) / found.var(axis=0))
    assert efficiency(loss, scale) == pytest.approx(ratio, rel=0.04)
    assert efficiency(loss, scale) < 0.98


def test_known_efficiencies() -> None:
    """95 % at 1.345 of Huber's loss and 2.385 of Cauchy's (Huber, Ronchetti (2009); Holland, Welsch (1977)); that of
    the median, 2/π, where Huber's is nearly the absolute value."""
    assert efficiency("huber", 1.345) == pytest.approx(0.95, abs=1e-4)
    assert efficiency("cauchy", 2.385) == pytest.approx(0.95, abs=1e-3)
    assert efficiency("huber", 0.01) == pytest.approx(
        2 / np.pi * (1 + 0.53e-2), rel=1e-3
    )  # of first order in the scale
    assert efficiency("squares", 1.5) == 1.0


@pytest.mark.parametrize(("loss", "scale"), [*CASES, ("squares", 1.0)])
def test_a_loss_is_a_density(loss: Any, scale: float) -> None:
    """Its integral, and the noise level of largest likelihood, both by other means."""
    half = lambda r: 0.5 * float(transformed(loss, scale, jnp.asarray(r))) ** 2  # noqa: E731
    ends = np.concatenate([[0.0], np.logspace(-1, 9 if loss == "cauchy" else 3, 40)])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    r = (ends[:-1, None] + np.diff(ends)[:, None] * (nodes + 1) / 2).ravel()
    w = (np.diff(ends)[:, None] * weights / 2).ravel()
    density = np.exp(-0.5 * np.asarray(transformed(loss, scale, jnp.asarray(r))) ** 2)
    tail = 0.0
    if loss == "cauchy":  # falls like a power of 1.44
        tail = ends[-1] * density[-1] / (scale**2 - 1)
    assert log_normaliser(loss, scale) == pytest.approx(np.log(2 * (np.sum(w * density) + tail)), abs=1e-3)
    draws = np.random.default_rng(1)
    residuals = 0.3 * np.concatenate([draws.normal(size=60), 20.0 * draws.normal(size=6)])

    def minus_log(log_level: float) -> float:
        return len(residuals) * log_level + sum(half(x / np.exp(log_level)) for x in residuals)

    best = scipy.optimize.minimize_scalar(minus_log, bounds=(-6.0, 4.0), method="bounded", options={"xatol": 1e-9})
    assert likeliest_level(loss, scale, residuals) == pytest.approx(float(np.exp(best.x)), rel=1e-4)


def test_no_density() -> None:
    assert log_normaliser("cauchy", 1.0) == np.inf


@pytest.mark.parametrize("loss", ["huber", pytest.param("squares", marks=pytest.mark.slow)])
def test_information_takes_the_likelihood_of_the_loss(loss: Any) -> None:
    """Of a pendulum's record with outliers; and the information of an experiment is what the loss leaves of it."""
    ts, mechanism = np.linspace(0.0, 2.0, 41), plain_pendulum(1.3, 0.1)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 1.0}), ts)
    draws = np.random.default_rng(0)
    data = np.asarray(motion["O.angle"]) + 1e-3 * draws.normal(size=41) + 0.05 * (draws.uniform(size=41) > 0.9)
    one = mbd.Experiment(ts, {"O.angle": data}, start={"O.angle": 1.0}, sigma=1e-3)
    free = {"mass": Parameter(lambda m: m["bar"].mass, 1.2, Positive())}
    problem = Problem(plain_pendulum(1.0, 0.1), one, free, loss=loss)
    result = mbd.fit(problem, progress=False)
    r = result.residuals[0]["O.angle"]
    level = likeliest_level(loss, 1.5, r / 1e-3) * 1e-3
    rows = np.asarray(transformed(loss, 1.5, jnp.asarray(r / level)))
    expected = -41 * (log_normaliser(loss, 1.5) + np.log(level)) - 0.5 * rows @ rows
    assert information(result).log_likelihood == pytest.approx(float(expected), rel=1e-9)
    plain = fisher_information(Problem(plain_pendulum(1.0, 0.1), one, free), result.theta)
    np.testing.assert_allclose(fisher_information(problem, result.theta), efficiency(loss, 1.5) * plain, rtol=1e-9)
