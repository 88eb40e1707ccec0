"""Standard errors of what experiments have of their own: parameters with priors, initial states, states of segments."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Normal, Parameter, Positive, Problem
from jaxmbd.identification._identifiability import Estimates, identifiability
from jaxmbd.identification._uncertainty import _sandwich
from tests.identification.swings import plain_pendulum

NOISE = 1e-3
FRICTION = Parameter(start=0.15, within=Positive())


def swing(p: dict[str, Any]) -> pl.Mechanism:
    return plain_pendulum(1.0, p["friction"])


def measured(count: int = 41, **options: Any) -> mbd.Experiment:
    """Angles of a swing with noise of 1 mrad."""
    ts, start = np.linspace(0.0, 2.0, count), {"O.angle": 1.0}
    mechanism = swing({"friction": 0.2})
    angles = np.asarray(mbd.simulate(mechanism, mbd.assemble(mechanism, start), ts)["O.angle"])
    noisy = angles + NOISE * np.random.default_rng(0).normal(size=count)
    return mbd.Experiment(ts, {"O.angle": noisy}, start=start, **options)


def test_an_own_parameter_without_information_has_the_error_of_its_prior() -> None:
    """Also where the noise level that was given is not that of the residuals, by which measurements are weighed."""
    free = {"friction": FRICTION, "payload": Parameter(start=0.5, prior=Normal(0.3, 0.1))}
    experiment = measured(sigma=1.0, own={"payload": 0.5}, estimate=("payload",))
    alone = mbd.fit(swing, measured(sigma=1.0), {"friction": FRICTION}, progress=False)
    result = mbd.fit(swing, experiment, free, progress=False)
    found, known = result.uncertainty, alone.uncertainty
    assert found is not None
    assert known is not None
    assert found.names == ("friction", "payload")
    assert found.values[1] == pytest.approx(0.3, rel=1e-6)
    assert found.errors[1] == pytest.approx(0.1, rel=1e-6)
    assert found.errors[0] == pytest.approx(known.errors[0], rel=1e-6)
    np.testing.assert_allclose(found.share, [1.0, 0.0], atol=1e-9)
    assert found.freedom == known.freedom == 40


def test_scatter_between_experiments_and_what_each_has_alone(rng: np.random.Generator) -> None:
    """Straight lines with one slope and many intercepts, and independent noise: all errors are those of its level."""
    count, samples = 400, 6
    J = np.zeros((count * samples, 1 + count))
    experiment = np.repeat(np.arange(count), samples)
    J[:, 0], J[np.arange(len(J)), 1 + experiment] = rng.normal(size=len(J)), 1.0
    noise = rng.normal(size=len(J))
    r = noise - J @ np.linalg.lstsq(J, noise, rcond=None)[0]
    names = tuple(map(str, range(J.shape[1])))
    unknowns = Estimates(names, names, np.ones(len(names)), np.ones(len(names)), np.zeros(len(names), bool))
    determined = identifiability(J, np.zeros((1, len(names))), unknowns, 1.0, 0.05)
    found = _sandwich(J, r, experiment, 1, determined)
    np.testing.assert_allclose(np.diag(found), np.diag(determined.inverse), rtol=0.2)
    # The slope's is the sandwich of all rows.
    scores = np.stack([J[experiment == k].T @ r[experiment == k] for k in range(count)])
    whole = determined.inverse @ scores.T @ scores @ determined.inverse * count / (count - 1)
    assert found[0, 0] == pytest.approx(whole[0, 0], rel=1e-9)


@cache
def from_start(**options: Any) -> mbd.Fit:
    """The fit of a record whose start and noise are not known."""
    experiment = measured(61, speeds={"O.angle": 0.0}, estimate=True, sigma=NOISE)
    return mbd.fit(Problem(swing, experiment, {"friction": FRICTION}, noise="white", **options), progress=False)


@pytest.mark.parametrize("continuity", [0.0, 1e-3])
def test_segments_of_a_record_are_no_measurements(continuity: float) -> None:
    """The states of later segments follow from that of the first, so that the noise is that of one shot; and segments
    are no experiments, whose scatter would be known."""
    result, one = from_start(segments=20, continuity=continuity), from_start()
    levels = [float(x.problem.stacks[0].experiment.sigma["O.angle"][0]) for x in (result, one)]
    assert levels[0] == pytest.approx(levels[1], rel=0.1 if continuity else 1e-3)
    assert result.uncertainty is not None
    assert one.uncertainty is not None
    assert result.uncertainty.freedom == one.uncertainty.freedom == 61 - 3
    if not continuity:
        assert result.uncertainty.errors[0] == pytest.approx(one.uncertainty.errors[0], rel=1e-3)
