"""Instruments and noise: delay, filter, scale and offset of readings, and residuals of coloured noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.identification import Box, Instrument, Parameter, Positive, Problem, Unknowns
from tests.identification.swings import FREE, FRICTION, NOISE, motion, pendulum, swings

# --- instruments ----------------------------------------------------------------------------------------


def response(ts: np.ndarray, lag: float, time_constant: float) -> np.ndarray:
    """The angle through a delay and a filter, by a fine integration that has nothing in common with the instrument."""
    fine = np.linspace(0.0, ts[-1], 40_001)
    angle = np.asarray(motion(np.linspace(0.0, ts[-1], 2001), 1.0, mass=1.3, viscous=0.2)["O.angle"])
    x = np.interp(np.maximum(fine - lag, 0.0), np.linspace(0.0, ts[-1], 2001), angle)
    y, h = np.empty_like(x), fine[1]
    y[0] = x[0]
    for k in range(len(x) - 1):  # the trapezoidal rule
        y[k + 1] = ((1 - 0.5 * h / time_constant) * y[k] + 0.5 * h / time_constant * (x[k] + x[k + 1])) / (
            1 + 0.5 * h / time_constant
        )
    return np.interp(ts, fine, y)


@pytest.mark.parametrize("interval", [0.02, 0.05])
def test_delay_and_filter_of_an_instrument(interval: float) -> None:
    ts = np.arange(0.0, 2.0, interval)
    expected = -2.0 * response(ts, 0.033, 0.06) + 0.1
    encoder = Instrument("O.angle", scale=-2.0, offset=0.1, delay=0.033, time_constant=0.06)
    experiment = mbd.Experiment(ts, {"encoder": expected, "O.angle": np.zeros(len(ts))}, start={"O.angle": 1.0})
    problem = Problem(pendulum(1.3, 0.2), experiment, FREE, instruments={"encoder": encoder})
    readings = problem.readings(problem.start())[0]
    late = ts > 0.033 + 0.6  # what the kink at the start has left is gone after ten time constants
    np.testing.assert_allclose(readings["encoder"][0][late], expected[late], atol=2e-6 if interval < 0.03 else 2e-5)
    np.testing.assert_allclose(readings["encoder"][0], expected, atol=0.1 * interval**2)
    plain = motion(ts, 1.0, mass=1.3, viscous=0.2)["O.angle"]
    np.testing.assert_allclose(readings["O.angle"][0], plain, atol=1e-8)


def test_a_delay_alone_is_exact() -> None:
    ts = np.arange(0.0, 2.0, 0.05)
    late = np.concatenate([[0.0], ts[ts > 0.033] - 0.033])
    expected = np.concatenate(
        [[1.0] * int(np.sum(ts <= 0.033)), motion(late, 1.0, mass=1.3, viscous=0.2)["O.angle"][1:]]
    )
    experiment = mbd.Experiment(ts, {"encoder": expected}, start={"O.angle": 1.0})
    encoder = {"encoder": Instrument("O.angle", delay=0.033)}
    problem = Problem(pendulum(1.3, 0.2), experiment, FREE, instruments=encoder)
    np.testing.assert_allclose(problem.readings(problem.start())[0]["encoder"][0], expected, atol=1e-8)


def test_weights_of_the_filter_are_exact_for_parabolas_at_any_ratio() -> None:
    """Where the closed form is used and where the series is, and next to the limit between them."""
    instrument = Instrument("x", time_constant="T")
    for ratio in (1e-6, 1e-2, 0.4999, 0.5001, 3.0, 300.0):
        time_constant = 0.1 / ratio
        ts = 0.1 * jnp.arange(4)
        nodes = instrument.times(ts, {})
        x = 1.0 + 2.0 * nodes - 3.0 * nodes**2
        y = instrument.read(ts, x, {"T": jnp.asarray(time_constant)})
        tau = time_constant  # the particular solution of a parabola, and what is left of the start
        particular = lambda t: 1 + 2 * (t - tau) - 3 * (t**2 - 2 * tau * t + 2 * tau**2)  # noqa: E731, B023
        expected = particular(np.asarray(ts)) + (1.0 - particular(0.0)) * np.exp(-np.asarray(ts) / tau)
        np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12 * max(1.0, tau**2))


def test_delay_scale_and_time_constant_are_identified_with_the_mass() -> None:
    ts = np.arange(0.0, 2.0, 0.02)
    draws = np.random.default_rng(5)
    data = {"encoder": 1.1 * response(ts, 0.033, 0.06) + NOISE * draws.normal(size=len(ts))}
    plain = np.asarray(motion(ts, 1.0, mass=1.3, viscous=0.2)["tip"])
    data["tip"] = plain + NOISE * draws.normal(size=plain.shape)
    experiment = mbd.Experiment(ts, data, start={"O.angle": 1.0}, sigma=NOISE)
    encoder = Instrument("O.angle", scale="gain", delay="lag", time_constant="T")
    free = FREE | {
        "gain": Parameter(start=1.0),
        "lag": Parameter(start=0.01, within=Box(0.0, 0.2), unit="s"),
        "T": Parameter(start=0.02, within=Positive(), unit="s"),
    }
    result = mbd.fit(pendulum(1.2, 0.1), experiment, free, instruments={"encoder": encoder}, progress=False)
    for name, true in {"mass": 1.3, "friction": 0.2, "gain": 1.1, "lag": 0.033, "T": 0.06}.items():
        lower, upper = result.interval(0.999)[name]
        assert lower < true < upper, name
    assert float(result.parameters["lag"]) == pytest.approx(0.033, abs=3e-3)
    slope = jax.jacfwd(lambda lag: _readings_at(result, lag))(result.parameters["lag"])
    step = 1e-5
    moved = [_readings_at(result, result.parameters["lag"] + sign * step) for sign in (1, -1)]
    np.testing.assert_allclose(slope[3:], (moved[0] - moved[1])[3:] / (2 * step), atol=2e-4)


def _readings_at(result: mbd.Fit, lag: Array) -> Array:
    theta = Unknowns(result.theta.parameters | {"lag": lag}, result.theta.experiments)
    return result.problem.readings(theta)[0]["encoder"][0]


def test_instruments_that_cannot_be_are_named() -> None:
    experiment = mbd.Experiment(np.linspace(0, 1, 5), {"encoder": np.zeros(5)}, start={"O.angle": 1.0})
    for instrument, words in (
        (Instrument("O.angel"), "'O.angel'.*Did you mean 'O.angle'"),
        (Instrument("O.angle", delay="lag"), "refers to the parameter 'lag', which is not in free"),
    ):
        with pytest.raises(mbd.MechanismError, match=words):
            Problem(pendulum(), experiment, FREE, instruments={"encoder": instrument})
    with pytest.raises(mbd.MechanismError, match="delay must be zero or positive"):
        Instrument("O.angle", delay=-0.1)
    with pytest.raises(mbd.MechanismError, match=r"'lag' has no effect.*an instrument that refers to it"):
        Problem(pendulum(), swings(), FREE | {"lag": Parameter(start=0.1)})
    with pytest.raises(mbd.MechanismError, match="has the name of a channel of the mechanism"):
        Problem(pendulum(), swings(), FREE, instruments={"tip": Instrument("O.angle")})


# --- noise ----------------------------------------------------------------------------------------------


def coloured(size: int, interval: float, time: float, draws: np.random.Generator) -> np.ndarray:
    rho, noise = np.exp(-interval / time), np.zeros(size)
    noise[0] = draws.normal()
    for k in range(1, size):
        noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * draws.normal()
    return noise


def test_whitened_residuals_of_coloured_noise_have_its_density() -> None:
    """Against the density of a normal distribution with the full covariance matrix, samples missing among them."""
    ts = np.array([0.0, 0.1, 0.15, 0.4, 0.45, 0.7])
    values = np.array([0.3, -0.1, np.nan, 0.2, 0.4, -0.3])
    data = {"O.angle": values}
    levels: dict[str, Any] = {"sigma": 0.3, "correlation_time": 0.2}
    experiment = mbd.Experiment(ts, data, start={"O.angle": 1.0}, missing=True, **levels)
    problem = Problem(pendulum(), experiment, FREE)
    present = np.isfinite(values)
    error = np.asarray(problem.readings(problem.start())[0]["O.angle"][0] - values)[present]
    t = ts[present]
    covariance = 0.3**2 * np.exp(-np.abs(t[:, None] - t) / 0.2)
    expected = -0.5 * error @ np.linalg.solve(covariance, error) - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    assert float(problem.log_likelihood(problem.start())) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("noise", ["white", "coloured"])
def test_noise_is_estimated(noise: Any) -> None:
    draws = np.random.default_rng(7)
    ts = np.linspace(0.0, 3.0, 601)
    angles = np.asarray(motion(ts, 1.0, mass=1.3, viscous=0.2)["O.angle"])
    error = draws.normal(size=601) if noise == "white" else coloured(601, ts[1], 0.05, draws)
    experiment = mbd.Experiment(ts, {"O.angle": angles + 2e-3 * error}, start={"O.angle": 1.0}, sigma=1.0)
    problem = Problem(pendulum(1.3), experiment, {"friction": FRICTION}, noise=noise)
    result = mbd.fit(problem, progress=False)
    found = result.problem.stacks[0].experiment
    assert float(found.sigma["O.angle"][0]) == pytest.approx(2e-3, rel=0.1 if noise == "white" else 0.3)
    time = float(found.correlation_time["O.angle"][0])
    assert time == pytest.approx(0.05, rel=0.4) if noise == "coloured" else time == 0.0
    lower, upper = result.interval(0.999)["friction"]
    assert lower < 0.2 < upper
