"""Where a model is far from linear in a parameter its interval is that of the likelihood; and what the others tell of
an experiment that is left out."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Parameter, Positive, Problem, cross_validate, fit_many, profile_likelihood
from jaxmbd.identification._uncertainty import RootProfile
from tests.identification.swings import plain_pendulum

TS = np.linspace(0.0, 1.0, 41)
SIGMA, MASS = 5e-3, 1.3
FRICTIONS = 1e-5, 3e-3, 2e-2  # without one, one that may be none, a plain one [N m s/rad]
SEEDS = 0, 1, 2


def experiment(friction: float, seed: int, angle: float = 1.0, noise: float = SIGMA) -> mbd.Experiment:
    mechanism = plain_pendulum(MASS, friction)
    clean = np.asarray(mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": angle}), TS)["O.angle"])
    data = clean + noise * np.random.default_rng(seed).normal(size=len(TS))
    return mbd.Experiment(TS, {"O.angle": data}, start={"O.angle": angle}, sigma=SIGMA)


def free(*names: str) -> dict[str, Parameter]:
    places = {"c": (lambda m: m["friction"].viscous, 1e-3), "mass": (lambda m: m["bar"].mass, 1.0)}
    return {name: Parameter(*places[name], Positive()) for name in names}


@cache
def fits() -> dict[tuple[float, int], mbd.Fit]:
    """Of each friction several sets of data."""
    keys = [(friction, seed) for friction in FRICTIONS for seed in SEEDS]
    problems = [Problem(plain_pendulum(MASS, 1e-3), experiment(*key), free("c")) for key in keys]
    return dict(zip(keys, fit_many(problems, progress=False), strict=True))


def ends(result: mbd.Fit, level: float = 0.95) -> tuple[float, float]:
    lower, upper = result.interval(level)["c"]
    return float(lower), float(upper)


def ends_and_profile(result: mbd.Fit, name: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of an interval, and where a profile of the likelihood has them, the other unknowns being fitted."""
    known = result.uncertainty
    assert known is not None
    lower, upper = (float(x) for x in result.interval()[name])
    # A profile uses the normal distribution, an interval that of Student.
    level = float(scipy.stats.chi2.cdf(scipy.stats.t.ppf(0.975, known.freedom) ** 2, 1))
    values = np.linspace(0.97 * lower, 1.03 * upper, 25)
    return (lower, upper), profile_likelihood(result, name, values, level=level, progress=False).interval


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interval_holds_zero_where_data_do_not_exclude_it(seed: int) -> None:
    """An estimate that runs to zero has the standard error of the model, which is linear in the friction; the upper end
    is where the likelihood says."""
    result = fits()[FRICTIONS[0], seed]
    lower, upper = ends(result)
    assert lower == 0.0
    assert FRICTIONS[0] < upper < 4e-3
    assert result.by_likelihood == ("c",)
    assert result.undetermined == ()
    error = float((result.standard_errors or {})["c"])
    assert error == pytest.approx(float((fits()[FRICTIONS[2], seed].standard_errors or {})["c"]), rel=0.05)
    assert f"c 0 to {upper:.5g}" in str(result)
    narrow, wide = ends(result, 0.5), ends(result, 0.999)
    assert narrow[0] == wide[0] == 0.0
    assert narrow[1] < upper < wide[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_friction_of_a_third_of_itself_has_a_symmetric_interval(seed: int) -> None:
    """The model is linear in it, so that one that is symmetric in its logarithm would not be that of the likelihood."""
    result = fits()[FRICTIONS[1], seed]
    estimate, error = (float(x["c"]) for x in (result.parameters, result.standard_errors or {}))
    width = 2.0210753903 * error  # of the t distribution with 40 degrees of freedom, at 97.5 %
    np.testing.assert_allclose(ends(result), (estimate - width, estimate + width), atol=0.03 * width)
    assert result.by_likelihood == ("c",)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_standard_error_is_enough_where_it_is_small(seed: int) -> None:
    result = fits()[FRICTIONS[2], seed]
    estimate, error = (float(x["c"]) for x in (result.parameters, result.standard_errors or {}))
    width = 2.0210753903 * error / estimate
    np.testing.assert_allclose(ends(result), (estimate * np.exp(-width), estimate * np.exp(width)), rtol=1e-8)
    assert result.by_likelihood == ()


@pytest.mark.slow
def test_ends_are_those_of_a_profile_of_the_likelihood() -> None:
    """Two parameters of a large swing in much noise, whose intervals are lopsided, each end within a fiftieth of the
    interval's width."""
    result = mbd.fit(
        Problem(plain_pendulum(1.0, 0.1), experiment(0.2, 0, 2.5, 60 * SIGMA), free("c", "mass")), progress=False
    )
    assert result.outcome == "converged"
    assert set(result.by_likelihood) == {"c", "mass"}
    for name in result.by_likelihood:
        (lower, upper), found = ends_and_profile(result, name)
        assert upper - float(result.parameters[name]) > 1.8 * (float(result.parameters[name]) - lower)
        np.testing.assert_allclose((lower, upper), found, atol=0.02 * (upper - lower))


@pytest.mark.slow
def test_what_data_do_not_determine_is_free_where_an_interval_ends() -> None:
    """Two drags at one pin, of which the data tell the sum, and a mass, at whose values the sum is another: if one of
    them kept its value the interval would be a fifth shorter."""
    plain = plain_pendulum(1.0, 0.1)
    mechanism = plain.with_parts([pl.JointFriction("more", "O.angle", viscous=0.1)])
    parts = {"c": "friction", "more": "more"}
    drags = {name: Parameter(lambda m, at=at: m[at].viscous, 0.1, Positive()) for name, at in parts.items()}
    problem = Problem(mechanism, experiment(0.2, 0, 2.5, 60 * SIGMA), free("mass") | drags)
    result = mbd.fit(problem, progress=False)
    assert [set(group.names) for group in result.undetermined] == [{"c", "more"}]
    assert result.by_likelihood == ("mass",)
    np.testing.assert_allclose(*ends_and_profile(result, "mass"), atol=0.04 * np.ptp(result.interval()["mass"]))


def test_a_profile_goes_on_as_a_line_and_ends_at_the_range() -> None:
    profile = RootProfile(np.array([0.5, 1.0, 3.0]), np.array([-1.0, 0.0, 2.0]), (0.0, 5.0), (True, False))
    assert [profile.crossing(x) for x in (-2.0, -0.5, 1.0, 3.0, 9.0)] == [0.0, 0.75, 2.0, 4.0, 5.0]


def test_correlated_residuals_widen_an_interval_by_the_likelihood() -> None:
    """Of a friction that may be none: the root is divided by the factor by which errors are larger."""
    known, noise = plain_pendulum(MASS, FRICTIONS[1]), np.random.default_rng(4).normal(size=len(TS))
    for k in range(1, len(TS)):
        noise[k] = 0.8 * noise[k - 1] + 0.6 * noise[k]
    data = np.asarray(mbd.simulate(known, mbd.assemble(known, {"O.angle": 1.0}), TS)["O.angle"]) + SIGMA * noise
    measured = mbd.Experiment(TS, {"O.angle": data}, start={"O.angle": 1.0}, sigma=SIGMA)
    result = mbd.fit(Problem(plain_pendulum(MASS, 1e-3), measured, free("c")), progress=False)
    assert result.uncertainty is not None
    factor = float(result.uncertainty.widening[0])
    assert factor > 1.5
    estimate, error = (float(x["c"]) for x in (result.parameters, result.standard_errors or {}))
    upper = ends(result, 0.6826)[1]
    assert upper - estimate == pytest.approx(error, rel=0.1)


@cache
def swings() -> tuple[Problem, mbd.Fit]:
    """Three swings, the last of which lasts a tenth of the time and tells little; the second has another mass."""
    long, short = experiment(0.02, 0), experiment(0.02, 1, 0.3)
    other = plain_pendulum(1.2 * MASS, 0.02)
    data = np.asarray(mbd.simulate(other, mbd.assemble(other, {"O.angle": 1.5}), TS)["O.angle"])
    heavy = mbd.Experiment(TS, {"O.angle": data}, start={"O.angle": 1.5}, sigma=SIGMA)
    problem = Problem(plain_pendulum(1.0, 0.02), [long, heavy, short], free("mass"))
    return problem, mbd.fit(problem, progress=False)


@pytest.mark.slow
def test_errors_of_experiments_that_are_left_out_are_those_of_other_fits() -> None:
    problem, result = swings()
    assert result.uncertainty is not None
    ratios = [one["O.angle"] for one in result.uncertainty.left_out]
    anew = [one.rms()[0]["O.angle"] for one in cross_validate(problem, 3, progress=False)]
    fitted = [one["O.angle"] for one in result.rms()]
    np.testing.assert_allclose(ratios, np.array(anew) / fitted, rtol=0.1)
    assert max(ratios) > 1.5
    (error,) = result.left_out_errors()
    assert error.largest == pytest.approx(max(x * y for x, y in zip(ratios, fitted, strict=True)))
    assert f"predicted from the others: O.angle {error.median:.3g} rad" in str(result)


def test_what_the_others_do_not_determine_is_infinite() -> None:
    """A friction that only one experiment sees, since the other stands still."""
    still = mbd.Experiment(TS, {"O.angle": np.zeros(len(TS))}, start={"O.angle": 0.0}, sigma=SIGMA)
    hanging: Any = plain_pendulum(MASS, 0.02)
    start = mbd.assemble(hanging, {"O.angle": 0.0})
    rest = float(np.asarray(mbd.simulate(hanging, start, TS)["O.angle"])[-1])
    assert abs(rest) < 1e-9
    result = mbd.fit(Problem(hanging, [experiment(0.02, 0), still], free("c")), progress=False)
    assert result.uncertainty is not None
    moving, standing = result.uncertainty.left_out
    assert moving["O.angle"] == np.inf
    assert standing.get("O.angle", 1.0) == pytest.approx(1.0)
