"""Residuals that are not the noise they should be are said to be so; clean ones are not; intervals keep to ranges."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification import Bounded, Box, Parameter, Positive, Problem, Unbounded, fit_many
from jaxmbd.identification._score_scatter import ChannelScores, channel_scores, correlations, scattered
from jaxmbd.numerics.block_least_squares import Block, Linearised
from tests.identification.swings import plain_pendulum

TS = np.linspace(0.0, 4.0, 161)
SIGMA, MASS, RHO = 5e-3, 1.3, 0.9
CLEAN, COLOURED = 40, 24


def angle(friction: float) -> np.ndarray:
    mechanism = plain_pendulum(MASS, friction)
    return np.asarray(mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 1.0}), TS)["O.angle"])


def noise(seed: int, rho: float = 0.0, count: int = len(TS)) -> np.ndarray:
    """White noise, or such with the correlation `rho` of neighbours."""
    draws = SIGMA * np.random.default_rng(seed).normal(size=count)
    x = draws.copy()
    for k in range(1, len(x)):
        x[k] = rho * x[k - 1] + np.sqrt(1 - rho**2) * draws[k]
    return x


def problem(data: np.ndarray, **options: Any) -> Problem:
    """The mass of a pendulum, whose inertia about its centre and friction are known."""
    experiment = mbd.Experiment(TS, {"O.angle": data}, start={"O.angle": 1.0}, sigma=SIGMA)
    free = {"mass": Parameter(lambda m: m["bar"].mass, 1.0, Positive())}
    return Problem(plain_pendulum(1.0, 0.02), experiment, free, **options)


@cache
def fits(clean: int, coloured: int) -> tuple[mbd.Fit, ...]:
    """Of clean data, of coloured noise that nobody told of, of a motion with ten times the friction, and of data
    without noise."""
    right = angle(0.02)
    data = [right + noise(seed) for seed in range(clean)]
    data += [right + noise(seed, RHO) for seed in range(coloured)]
    return fit_many([problem(x) for x in [*data, angle(0.2) + noise(0), right]], progress=False)


def inside(result: mbd.Fit) -> bool:
    lower, upper = result.interval()["mass"]
    return bool(lower < MASS < upper)


@pytest.mark.parametrize("count", [1, pytest.param(CLEAN, marks=pytest.mark.slow)])
def test_clean_residuals_raise_no_alarm(count: int) -> None:
    """At most one in a hundred would: none of forty. Nor do data without noise: what is left are errors of motions."""
    several = fits(count, COLOURED if count > 1 else 1)
    widenings = np.array([one.uncertainty.widening[0] for one in several[:count] if one.uncertainty is not None])
    assert np.mean(widenings == 1.0) >= 0.9  # a correlation by chance is found in one of twenty
    for result in (*several[:count], several[-1]):
        assert result.outcome == "converged"
        assert result.warnings == result.remarks == ()
        np.testing.assert_allclose(result.uncertainty.widening, 1.0, atol=0.4)  # pyright: ignore[reportOptionalMemberAccess]
    assert several[-1].residual_tests == ()


def test_coloured_noise_is_said() -> None:
    result = fits(1, 1)[1]
    assert result.uncertainty is not None
    assert result.outcome == "converged"
    (text,) = result.warnings
    assert text.startswith("the residuals of O.angle (p = ")
    factor = result.uncertainty.widening[0]
    assert 1.5 < factor < 5.0
    assert f"allow for that, that of mass by a factor of {factor:.2g}; either the noise is coloured" in text
    assert text in str(result)


@pytest.mark.slow
def test_standard_errors_allow_for_coloured_noise() -> None:
    """They are the scatter of the estimates, two to three times what they would be for independent residuals, and
    intervals hold the truth as often as they say."""
    coloured = fits(CLEAN, COLOURED)[CLEAN : CLEAN + COLOURED]
    scatter = np.std([float(one.parameters["mass"]) for one in coloured])
    errors = np.array([float((one.standard_errors or {})["mass"]) for one in coloured])
    assert np.median(errors) == pytest.approx(scatter, rel=0.25)
    known = [one.uncertainty for one in coloured]
    widening = np.array([one.widening[0] for one in known if one is not None])
    assert np.median(widening) > 2
    freedom = np.array([one.freedom for one in known if one is not None])
    assert np.median(freedom) == pytest.approx(len(TS) * (1 - RHO**2) / (1 + RHO**2), rel=0.4)
    assert sum(map(inside, coloured)) >= 0.87 * COLOURED
    assert all(len(one.warnings) == 1 for one in coloured)


def test_what_a_model_lacks_is_said() -> None:
    """Without most of its friction the mass of the pendulum is off by many of the errors of independent residuals;
    those that allow for correlations are several times as large."""
    result = fits(1, 1)[-2]
    assert result.uncertainty is not None
    error, widening = float((result.standard_errors or {})["mass"]), result.uncertainty.widening[0]
    assert widening > 4
    assert abs(float(result.parameters["mass"]) - MASS) > 3 * error / widening
    correlated, large = result.remarks
    assert "or the model lacks something that follows the motion, such as a friction" in correlated
    (test,) = result.residual_tests
    assert test.is_correlated
    assert test.is_too_large
    assert f"larger than the noise level sigma that was given: O.angle ({test.level:.2g} times)" in large
    rms = np.sqrt(np.mean(result.residuals[0]["O.angle"] ** 2)) / SIGMA
    assert test.level == pytest.approx(rms, rel=0.01)


@pytest.mark.slow
def test_noise_that_is_estimated_as_coloured_raises_no_alarm() -> None:
    result = mbd.fit(problem(angle(0.02) + noise(CLEAN, RHO), noise="coloured"), progress=False)
    assert result.remarks == ()
    assert inside(result)


def test_the_scatter_of_scores_is_that_of_a_matrix_of_correlations() -> None:
    """`Jᵀ R J` with `R` written out; and the correlations of a long series with known ones."""
    data = noise(0, RHO)
    J, r = np.random.default_rng(0).normal(size=(1, len(TS), 3)), data[None, :, None] / SIGMA
    block = Block(np.concatenate([J, r], axis=2), np.zeros((1, 0, 4)), None, 1, 1)  # one own unknown, two shared ones
    rows = Linearised((block,), np.zeros((0, 3)))
    J = J[:, :, [1, 2, 0]]
    rho = correlations([r[0, :, 0]])
    lags = np.abs(np.subtract.outer(np.arange(len(TS)), np.arange(len(TS))))
    R = np.append(rho, np.zeros(len(TS)))[np.minimum(lags, len(rho))]
    (found,) = channel_scores(problem(data), rows, ["O.angle"])
    np.testing.assert_allclose(found.coloured, J[0].T @ R @ J[0], rtol=1e-9)
    np.testing.assert_allclose(found.white, J[0].T @ J[0], rtol=1e-12)
    P = np.linalg.inv(J[0].T @ J[0])
    covariance, freedom = scattered(P, len(TS) - 3.0, [replace(found, square=len(TS) - 3.0)])
    taken = np.trace(P @ J[0].T @ R @ J[0])
    np.testing.assert_allclose(covariance, (len(TS) - 3) / (len(TS) - taken) * P @ J[0].T @ R @ J[0] @ P, rtol=1e-9)
    assert freedom == pytest.approx((len(TS) - 3) / (1 + 2 * np.sum(rho[1:] ** 2)))
    long = noise(1, RHO, 20_000)
    found = correlations([long])
    np.testing.assert_allclose(found[:100], RHO ** np.arange(100), atol=0.03)


def test_channels_that_have_other_levels_than_was_given_count_as_they_are() -> None:
    """Two channels of noise, the second of which is ten times larger than its level says: weighted least squares with
    wrong weights. And one that is larger by chance counts like the others."""
    draws = np.random.default_rng(0)
    J, sizes = draws.normal(size=(2, 400, 2)), np.array([1.0, 10.0])
    r = sizes[:, None] * draws.normal(size=(2, 400))
    level = np.sqrt(np.sum(r**2) / 798)
    white = [x.T @ x for x in J]
    P = np.linalg.inv(white[0] + white[1])
    parts = [ChannelScores(400, float(np.sum(r[k] ** 2)) / level**2, 1.0, white[k], white[k]) for k in range(2)]
    covariance, freedom = scattered(P, 798.0, parts)
    right = P @ (white[0] + 100 * white[1]) @ P / level**2
    np.testing.assert_allclose(covariance, right, rtol=0.15)
    assert freedom == 798.0
    alike = [replace(part, square=399.0 * x) for part, x in zip(parts, (1.05, 0.95), strict=True)]
    np.testing.assert_allclose(scattered(P, 798.0, alike)[0], P, rtol=1e-12)


@pytest.mark.parametrize(
    ("within", "value", "error", "ends"),
    [
        (Positive(), 0.01, 0.02, (0.01 * np.exp(-4.0), 0.01 * np.exp(4.0))),
        (Bounded(0.0, 1.0), 0.9, 0.09, (1 / (1 + np.exp(2.0 - np.log(9.0))), 1 / (1 + np.exp(-2.0 - np.log(9.0))))),
        (Box(0.0, 1.0), 0.9, 0.1, (0.7, 1.0)),
        (Unbounded(), 0.01, 0.02, (-0.03, 0.05)),
    ],
)
def test_an_interval_never_leaves_the_range(within: Any, value: float, error: float, ends: tuple[float, float]) -> None:
    """Two standard errors on both sides, in the numbers of the search, whose error is `σ du/dp`."""
    at, start = jnp.asarray(value), jnp.asarray(0.5)
    found = [float(within.moved(at, jnp.asarray(side * 2 * error), start)) for side in (-1, 1)]
    np.testing.assert_allclose(found, ends, rtol=1e-12)
    unknown = [float(within.moved(at, jnp.asarray(side * np.inf), start)) for side in (-1, 1)]
    ranges = {Positive: [0.0, np.inf], Unbounded: [-np.inf, np.inf]}
    np.testing.assert_array_equal(unknown, ranges.get(type(within), [0.0, 1.0]))
