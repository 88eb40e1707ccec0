"""Samples of the posterior: against densities that are known, and the Laplace approximation where it is right."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from matplotlib import pyplot as plt

import jaxmbd as mbd
from jaxmbd import plot
from jaxmbd.identification import Box, LogNormal, Parameter, Positive, Problem, sample_posterior
from tests.identification.swings import plain_pendulum

TS = np.linspace(0.0, 2.0, 21)
NOISE = 0.02


def swing(noise: float = NOISE) -> mbd.Experiment:
    mechanism = plain_pendulum(1.0, 0.2)
    angle = np.asarray(mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 1.0}), TS)["O.angle"])
    measured = angle + noise * np.random.default_rng(0).normal(size=len(TS))
    return mbd.Experiment(TS, {"O.angle": measured}, start={"O.angle": 1.0}, estimate=True, sigma=noise)


FRICTION = Parameter(lambda m: m["friction"].viscous, within=Positive(), prior=LogNormal(0.2, 0.5), unit="N m s/rad")


def test_samples_where_the_laplace_approximation_is_right() -> None:
    result = mbd.fit(plain_pendulum(), swing(), {"friction": FRICTION}, rtol=1e-6, atol=1e-7, progress=False)
    posterior = sample_posterior(result, draws=300, warmup=100, progress=False)
    assert posterior.divergences == 0
    for name, samples in posterior.samples.items():
        assert samples.shape == (2, 300)
        assert posterior.effective[name] > 200
        assert abs(posterior.r_hat[name] - 1) < 0.03
        assert samples.std() == pytest.approx(posterior.laplace[name], rel=0.15)
    assert posterior.samples["friction"].mean() == pytest.approx(float(result.parameters["friction"]), rel=0.1)
    assert posterior.z.std() == pytest.approx(1.0, rel=0.15)
    assert "R-hat" in str(posterior)
    axes = plot.posterior(posterior)
    for name, ax in axes.items():
        assert sum(bar.get_width() * bar.get_height() for bar in ax.patches) == pytest.approx(1.0)  # pyright: ignore
        assert np.asarray(ax.lines[0].get_data()[1]).max() == pytest.approx(1 / np.sqrt(2 * np.pi), rel=0.01)
        mean = sum(bar.get_width() * bar.get_height() * bar.get_center()[0] for bar in ax.patches)  # pyright: ignore
        off = (posterior.samples[name].mean() - posterior.estimates[name]) / posterior.laplace[name]
        assert mean == pytest.approx(off, abs=0.1)
    assert float(result.parameters["friction"]) == pytest.approx(posterior.estimates["friction"])
    assert re.fullmatch(r"friction = 0\.\d+ ± 0\.\d+ N m s/rad", axes["friction"].get_title(loc="left"))
    plt.close("all")
    assert list(plot.posterior(posterior, ["friction"])) == ["friction"]
    plt.close("all")
    with pytest.raises(mbd.MechanismError, match="no unknown named 'fraction'"):
        plot.posterior(posterior, ["fraction"])


def test_samples_have_the_density_of_the_problem() -> None:
    """Measurements that hardly tell anything: the posterior is then nearly the prior, which is lopsided, so that the
    change of variables counts. Against its integrals on a grid."""
    result = mbd.fit(
        plain_pendulum(), mbd.Experiment(TS, swing().data, start={"O.angle": 1.0}, sigma=1.0), {"friction": FRICTION},
        rtol=1e-6, atol=1e-7, progress=False,
    )  # fmt: skip
    posterior = sample_posterior(result, draws=1500, warmup=200, progress=False)
    grid = np.linspace(0.01, 3.0, 200)
    problem, theta = result.problem, result.theta
    log_density = np.array(
        [
            float(problem.log_likelihood(at) + problem.log_prior(at))
            for at in (theta._replace(parameters={"friction": np.asarray(x)}) for x in grid)  # pyright: ignore
        ]
    )
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = np.sum(weights * grid)
    deviation = np.sqrt(np.sum(weights * (grid - mean) ** 2))
    samples = posterior.samples["friction"]
    assert samples.mean() == pytest.approx(mean, abs=4 * deviation / np.sqrt(posterior.effective["friction"]))
    assert samples.std() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize(("low", "high"), [(-9.0, 0.3), pytest.param(-1.5, 2.0, marks=pytest.mark.slow)])
def test_samples_stay_within_a_box(low: float, high: float) -> None:
    """One bound, or both, within the width of a density that is nearly normal: the samples have the mean and the
    deviation of the normal distribution that is cut off there."""
    options: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-7, "progress": False}
    known = mbd.Experiment(TS, swing().data, start={"O.angle": 1.0}, sigma=NOISE)
    where = lambda m: m["friction"].viscous  # noqa: E731
    whole = mbd.fit(plain_pendulum(), known, {"friction": where}, **options)
    centre, deviation = float(whole.parameters["friction"]), deviation_of(whole)
    lower, upper = centre + low * deviation, centre + high * deviation
    friction = Parameter(where, start=(lower + upper) / 2, within=Box(lower, upper))
    bounded = mbd.fit(plain_pendulum(), known, {"friction": friction}, **options)
    posterior = sample_posterior(bounded, draws=400, warmup=100, progress=False)
    samples, effective = posterior.samples["friction"], posterior.effective["friction"]
    assert posterior.divergences == 0
    assert lower <= samples.min() < samples.max() <= upper
    law = scipy.stats.truncnorm(low, high, loc=centre, scale=deviation)
    assert effective > 150
    assert samples.mean() == pytest.approx(law.mean(), abs=4 * law.std() / np.sqrt(effective))
    assert samples.std() == pytest.approx(law.std(), rel=0.15)
    away = np.abs(samples - float(bounded.parameters["friction"])) / deviation
    np.testing.assert_allclose(np.abs(posterior.z[..., 0]), away, rtol=0.05)


def deviation_of(result: mbd.Fit) -> float:
    """The standard deviation in the linear model, with the noise level that was given."""
    problem, theta = result.problem, result.theta
    slope = jax.jacfwd(lambda x: problem.residuals(theta._replace(parameters={"friction": x}), "forward"))
    return float(1 / jnp.linalg.norm(slope(theta.parameters["friction"])))


def test_a_posterior_without_width_is_refused() -> None:
    mass = Parameter(lambda m: m["bar"].mass, within=Positive())
    inertia = Parameter(lambda m: m["bar"].inertia, within=Positive())
    friction = Parameter(lambda m: m["friction"].viscous, within=Positive())
    free = {"mass": mass, "inertia": inertia, "friction": friction}
    result = mbd.fit(plain_pendulum(), swing(), free, progress=False)
    with pytest.raises(mbd.MechanismError, match=r"do not determine all unknowns.*give priors to some"):
        sample_posterior(result)


@pytest.mark.slow
def test_samples_with_jumps_between_segments() -> None:
    """The density has the jumps in it: without them the states of the second segment would be as uncertain as two
    seconds of measurements leave them. The problem is nearly linear, so that the Laplace approximation is right."""
    whole = mbd.Experiment(TS, swing().data, {"O.angle": 1.0}, {"O.angle": 0.0}, estimate=True, sigma=NOISE)
    problem = Problem(plain_pendulum(), whole, {"friction": FRICTION}, segments=2, continuity=1e-3)
    posterior = sample_posterior(mbd.fit(problem, progress=False), draws=300, warmup=100, progress=False)
    assert posterior.divergences == 0
    for name, samples in posterior.samples.items():
        assert samples.std() == pytest.approx(posterior.laplace[name], rel=0.15)
        assert samples.mean() == pytest.approx(posterior.estimates[name], abs=0.3 * posterior.laplace[name])
