"""What a fit tells beyond its estimates, on slider-cranks with known parameters."""

import dataclasses
import itertools
import math
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import (
    Instrument,
    Normal,
    Parameter,
    Positive,
    Problem,
    _linearisation,
    choose_experiments,
    cross_validate,
    fisher_information,
    fit_many,
    information,
    predict,
    prediction_errors,
    profile_likelihood,
    whiteness,
)
from jaxmbd.identification.diagnostics import _values, summary
from tests.identification.swings import plain_pendulum

TRUE = {"m": 0.8, "c": 1.5, "k": 120.0}
TS = np.linspace(0.0, 1.0, 81)
CHANNELS = ("O.angle", "imu")


def slider_crank(p: dict[str, Any]) -> pl.Mechanism:
    crank = pl.Body("crank", p["m"], 1e-3, pose=(0.05, 0.0, 0.0))
    rod = pl.Body("rod", 0.4, 3e-3, pose=(0.25, 0.0, 0.0))
    slider = pl.Body("slider", 0.5, 1e-3, pose=(0.4, 0.0, 0.0))
    return pl.Mechanism(
        [crank, rod, slider],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-0.05)),
            pl.Revolute("A", crank.at(0.05), rod.at(-0.15)),
            pl.Revolute("B", rod.at(0.15), slider.at()),
            pl.Prismatic("rail", pl.ground.at(), slider.at()),
        ],
        [
            pl.Gravity(9.81),
            pl.JointFriction("friction", "rail.displacement", viscous=p["c"]),
            pl.SpringDamper("spring", pl.ground.at(0.7), slider.at(), stiffness=p["k"], free_length=0.3),
        ],
        sensors=[pl.Accelerometer("imu", rod.at(0.05))],
        coordinates="joint",
    )


@cache
def clean(start: float = 1.0) -> dict[str, np.ndarray]:
    mechanism = slider_crank(TRUE)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": start}), TS)
    return {name: np.asarray(motion[name]) for name in CHANNELS}


SIGMA = 0.01


def noise_levels() -> dict[str, float]:
    return {name: SIGMA * float(np.std(values)) for name, values in clean().items()}


def measured(seed: int, start: float = 1.0) -> mbd.Experiment:
    """An encoder on the crank and an accelerometer on the coupler, with noise of 1 %."""
    draws, levels = np.random.default_rng(seed), noise_levels()
    data = {name: x + levels[name] * draws.normal(size=x.shape) for name, x in clean(start).items()}
    return mbd.Experiment(TS, data, start={"O.angle": start}, sigma=levels)


def friction_of(mass: Any) -> Any:
    """A pendulum with friction whose mass is computed from the parameters."""
    return lambda p: plain_pendulum(mass(p), p["friction"])


FREE = {name: Parameter(start=1.1 * value, within=Positive()) for name, value in TRUE.items()}


@cache
def fitted() -> mbd.Fit:
    return mbd.fit(slider_crank, measured(0), FREE, progress=False)


def test_fits_side_by_side_are_those_one_by_one() -> None:
    problems = [Problem(slider_crank, measured(seed), FREE) for seed in range(3)]
    together = fit_many(problems, progress=False)
    for seed, one in enumerate(together):
        alone = mbd.fit(slider_crank, measured(seed), FREE, progress=False)
        assert one.standard_errors is not None
        for name in TRUE:
            error = float(one.standard_errors[name])
            assert abs(float(one.parameters[name] - alone.parameters[name])) < 1e-2 * error
    shorter = mbd.Experiment(TS[:40], {"O.angle": np.zeros(40)}, start={"O.angle": 1.0})
    others = [problems[0], Problem(slider_crank, shorter, FREE)]
    with pytest.raises(mbd.MechanismError, match=r"differ in numbers only.*number 1"):
        fit_many(others, progress=False)
    assert fit_many([]) == ()


@pytest.mark.slow
def test_errors_from_the_scatter_between_experiments() -> None:
    """The sandwich estimator of six experiments and a prior, from residuals and a Jacobian that are computed here."""
    free = FREE | {"k": Parameter(start=125.0, prior=Normal(120.0, 0.2))}
    problem = Problem(slider_crank, [measured(seed) for seed in range(6)], free)
    result = mbd.fit(problem, progress=False)
    names, parameters = sorted(TRUE), result.theta.parameters

    def residuals(x: Any) -> Any:
        theta = result.theta._replace(parameters=dict(zip(names, x, strict=True)))
        return problem.residuals(theta, "forward").reshape(6, -1)

    at = jnp.stack([parameters[name] for name in names])
    r, J = np.asarray(residuals(at)), np.asarray(jax.jacfwd(residuals)(at))
    prior = np.diag([1 / 0.2**2 if name == "k" else 0.0 for name in names])
    variance = np.sum(r**2) / (r.size + 1 - 3)
    bread = np.linalg.inv(np.einsum("kri,krj->ij", J, J) / variance + prior)
    scores = np.einsum("kri,kr->ki", J, r) / variance
    expected = bread @ (6 / 5 * scores.T @ scores + prior) @ bread
    assert result.uncertainty is not None
    assert result.uncertainty.freedom == 5
    np.testing.assert_allclose(result.uncertainty.covariance, expected, rtol=1e-4)
    student = 2.570581836  # of the t distribution with 5 degrees of freedom, at 97.5 %
    lower, upper = result.interval()["m"]
    assert float(upper - lower) == pytest.approx(2 * student * np.sqrt(expected[2, 2]), rel=1e-4)


def test_profile_of_a_nearly_linear_parameter_is_its_interval() -> None:
    result = fitted()
    profile = profile_likelihood(result, "k", progress=False)
    half_widths = np.abs(np.array(profile.interval) - float(result.parameters["k"]))
    lower, upper = map(float, result.interval()["k"])
    np.testing.assert_allclose(half_widths, (upper - lower) / 2, rtol=0.03)
    assert profile.losses.min() >= profile.best - 1e-6
    assert profile.losses[0] > profile.best + 5
    narrow = profile_likelihood(result, "k", float(result.parameters["k"]) + np.array([-1e-3, 1e-3]), progress=False)
    assert narrow.interval == (0.0, np.inf)  # all of its range
    with pytest.raises(mbd.MechanismError, match=r"no parameter named 'K'"):
        profile_likelihood(result, "K")


@pytest.mark.slow
def test_profile_of_the_only_parameter() -> None:
    """Nothing is left to be fitted: the loss is that of the values themselves."""
    example = mbd.examples.get("pendulum").mechanism
    start = {"O.angle": -1.0}
    angle = mbd.simulate(example, mbd.assemble(example, start), TS[:41])["O.angle"] + 1e-3 * np.cos(70 * TS[:41])
    experiment = mbd.Experiment(TS[:41], {"O.angle": angle}, start=start, sigma=1e-3)
    result = mbd.fit(example, experiment, {"J": lambda m: m["rod"].inertia}, progress=False)
    profile = profile_likelihood(result, "J", progress=False)
    assert result.standard_errors is not None
    np.testing.assert_allclose(np.diff(profile.interval) / 2, 1.96 * result.standard_errors["J"], rtol=0.02)


def swing(prior: Normal | None) -> tuple[pl.Mechanism, mbd.Experiment, Parameter]:
    """A pendulum, a noisy swing of it, and its friction."""
    ts, start, noise = TS[:21] * 4, {"O.angle": 1.0}, 0.02
    truth = plain_pendulum(1.0, 0.2)
    angle = np.asarray(mbd.simulate(truth, mbd.assemble(truth, start), ts)["O.angle"])
    angle = angle + noise * np.random.default_rng(0).normal(size=21)
    friction = Parameter(lambda m: m["friction"].viscous, within=Positive(), prior=prior)
    return truth, mbd.Experiment(ts, {"O.angle": angle}, start, sigma=noise), friction


def test_a_profile_has_the_prior_of_the_fit() -> None:
    """The loss of the only parameter is the objective at each of the values, prior included, in its units."""
    truth, experiment, friction = swing(Normal(0.2, 0.005))
    result = mbd.fit(truth, experiment, {"friction": friction}, progress=False)
    values = float(result.parameters["friction"]) + np.array([-0.01, 0.0, 0.005])
    profile = profile_likelihood(result, "friction", values, progress=False)
    of = lambda x: result.problem.objective(result.theta._replace(parameters={"friction": jnp.asarray(x)}))  # noqa: E731
    least = of(result.parameters["friction"])
    np.testing.assert_allclose(profile.best, 20 / 2, rtol=1e-9)  # 21 samples, one parameter
    np.testing.assert_allclose(profile.losses / profile.best, [of(x) / least for x in values], rtol=1e-4)


def test_profiles_of_all_parameters_share_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    traces, whole = [], _linearisation.evaluate
    monkeypatch.setattr(_linearisation, "evaluate", lambda *given: (traces.append(given), whole(*given))[1])
    truth, experiment, friction = swing(None)
    inertia = Parameter(lambda m: m["bar"].inertia, within=Positive())
    result = mbd.fit(truth, experiment, {"friction": friction, "inertia": inertia}, progress=False)
    assert result.standard_errors is not None
    counts, steps = [], np.array([-2.0, 1.0])
    for name in ("friction", "inertia"):
        estimate, error = float(result.parameters[name]), float(result.standard_errors[name])
        profile = profile_likelihood(result, name, estimate + error * steps, progress=False)
        np.testing.assert_allclose(profile.losses - profile.best, steps**2 / 2, rtol=0.15)
        counts.append(len(traces))
    assert counts[0] == counts[1]


@pytest.mark.slow
def test_profile_with_jumps_between_segments() -> None:
    """The loss, with the jumps in it, is nearly a parabola whose width is the standard error."""
    ts, start, noise = TS[:41] * 4, {"O.angle": 1.0}, 0.02
    truth = plain_pendulum(1.0, 0.2)
    angle = np.asarray(mbd.simulate(truth, mbd.assemble(truth, start), ts)["O.angle"])
    angle = angle + noise * np.random.default_rng(0).normal(size=41)
    experiment = mbd.Experiment(ts, {"O.angle": angle}, start, {"O.angle": 0.0}, estimate=True, sigma=noise)
    friction = Parameter(lambda m: m["friction"].viscous, within=Positive())
    result = mbd.fit(truth, experiment, {"friction": friction}, segments=2, continuity=0.01, progress=False)
    assert result.standard_errors is not None
    estimate, error = float(result.parameters["friction"]), float(result.standard_errors["friction"])
    steps = np.array([-3, -1, 1, 3])
    profile = profile_likelihood(result, "friction", estimate + error * steps, progress=False)
    np.testing.assert_allclose(profile.losses - profile.best, steps**2 / 2, rtol=0.15)
    np.testing.assert_allclose(np.diff(profile.interval) / 2, 1.96 * error, rtol=0.08)


def test_residuals_of_a_right_model_are_white_and_others_are_not() -> None:
    assert min(whiteness(fitted()).p_value.values()) > 0.01
    free = {name: FREE[name] for name in ("m", "k")}
    without = mbd.fit(lambda p: slider_crank({"c": 1.0, **p}), measured(0), free, progress=False)
    test = whiteness(without)
    assert max(test.p_value.values()) < 1e-6
    assert test.correlation["O.angle"] > 0.5
    assert "p-value" in str(test)
    right, wrong = information(fitted()), information(without)
    assert right.estimated == 5
    assert right.samples == 3 * 81
    assert right.aic < wrong.aic - 100
    assert right.bic < wrong.bic - 100
    useless = mbd.fit(lambda p: slider_crank(p), measured(0), FREE | {"unused": Parameter(start=1.0)}, progress=False)
    assert information(useless).aic == pytest.approx(right.aic + 2, abs=0.1)


def test_bands_of_predictions_are_the_scatter_of_predictions() -> None:
    """Against the predictions of fits of many measurements."""
    fits = fit_many([Problem(slider_crank, measured(seed), FREE) for seed in range(40)], progress=False)
    scatter = np.std([one.predicted[0]["O.angle"] for one in fits], axis=0)
    band = prediction_errors(fits[0])[0]["O.angle"]
    late = slice(10, None)
    np.testing.assert_allclose(np.median(band[late] / scatter[late]), 1.0, atol=0.25)
    unseen = mbd.Experiment(TS, {"O.angle": np.zeros(81)}, start={"O.angle": 1.2})
    prediction = predict(fits[0], unseen)
    other = prediction_errors(prediction, fits[0])[0]["O.angle"]
    assert other.shape == (81,)
    assert other[0] < 1e-12
    assert 0.2 < np.median(other[late] / band[late]) < 5.0


def test_cross_validation_predicts_what_it_has_not_seen() -> None:
    experiments = [measured(seed, start) for seed, start in enumerate((0.8, 1.0, 1.2, 1.4))]
    predictions = cross_validate(Problem(slider_crank, experiments, FREE), folds=2, progress=False)
    assert [len(one.experiments) for one in predictions] == [2, 2]
    np.testing.assert_array_equal(predictions[1].experiments[0].data["O.angle"], experiments[1].data["O.angle"])
    for one in predictions:
        for rms in one.rms():
            assert rms["O.angle"] == pytest.approx(noise_levels()["O.angle"], rel=0.25)
    with pytest.raises(mbd.MechanismError, match="4 experiments cannot be divided into 5 parts"):
        cross_validate(Problem(slider_crank, experiments, FREE))


# --- coloured noise, and what is known too little ---------------------------------------------------------


@cache
def with_coloured_noise() -> mbd.Fit:
    """A swing with noise of 2 mrad that is correlated over 0.1 s, of which neither is known; and a single height."""
    mechanism, ts, start = plain_pendulum(1.0, 0.2), 0.02 * np.arange(201), {"O.angle": 1.0}
    draws = np.random.default_rng(5)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, start), ts)
    noise, rho = 2e-3 * draws.normal(size=201), np.exp(-0.2)
    for k in range(1, 201):
        noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * noise[k]
    height = np.full(201, np.nan)
    height[100] = motion["bar.y"][100] + 1e-3
    data = {"O.angle": np.asarray(motion["O.angle"]) + noise, "bar.y": height}
    experiment = mbd.Experiment(ts, data, start=start, sigma=1e-3, missing=True)
    friction = Parameter(start=0.15, within=Positive())
    return mbd.fit(friction_of(lambda p: 1.0), experiment, {"friction": friction}, noise="coloured", progress=False)


def test_residuals_of_coloured_noise_are_what_its_correlation_leaves() -> None:
    result = with_coloured_noise()
    test, found = whiteness(result), information(result)
    assert test.p_value["O.angle"] > 0.01
    assert abs(test.correlation["O.angle"]) < 0.15
    assert np.isnan(test.p_value["bar.y"])
    assert np.isnan(test.correlation["bar.y"])
    assert (found.samples, found.estimated) == (202, 5)
    assert found.log_likelihood == pytest.approx(float(result.problem.log_likelihood(result.theta)), abs=0.1)
    search, _, tested, untested = summary(result)
    assert search.startswith("Search: converged (")
    assert tested == "The residuals of O.angle are independent from sample to sample (Ljung-Box, p > 0.01)."
    assert untested == "The residuals of bar.y are not tested for independence: too few samples."


def test_profile_has_the_noise_of_the_fit_and_stays_in_the_range() -> None:
    result = with_coloured_noise()
    lower, upper = map(float, result.interval()["friction"])
    profile = profile_likelihood(result, "friction", progress=False)
    np.testing.assert_allclose(profile.interval, [lower, upper], atol=0.05 * (upper - lower))
    assert result.uncertainty is not None
    unsure = dataclasses.replace(result.uncertainty, covariance=np.array([[1.0]]))
    values = _values(eqx.tree_at(lambda r: r.uncertainty, result, unsure), "friction")
    assert (values > 0).all()
    estimate = float(result.parameters["friction"])
    np.testing.assert_allclose(np.log(values[[0, 6, 12]] / estimate), np.array([-4, 0, 4]) / estimate, atol=1e-9)
    with pytest.raises(mbd.MechanismError, match=r"'friction' has the value -0.1, outside its range Positive\(\)"):
        profile_likelihood(result, "friction", [0.1, -0.1])


def test_cross_validation_estimates_the_noise_and_needs_starts() -> None:
    ts, draws = np.linspace(0.0, 1.0, 21), np.random.default_rng(0)
    experiments = []
    for angle in (0.5, 1.0):
        start, mechanism = {"O.angle": angle}, plain_pendulum(1.0, 0.2)
        angles = mbd.simulate(mechanism, mbd.assemble(mechanism, start), ts)["O.angle"] + 1e-3 * draws.normal(size=21)
        experiments.append(mbd.Experiment(ts, {"O.angle": angles}, start=start))
    build, free = friction_of(lambda p: 1.0), {"friction": Parameter(start=0.15, within=Positive())}
    for one in cross_validate(Problem(build, experiments, free, noise="white"), folds=2, progress=False):
        assert one.rms()[0]["O.angle"] < 2e-3
    bad = [mbd.Experiment(ts, e.data, start=e.start, speeds={"O.angle": 1e300}) for e in experiments]
    with (
        pytest.warns(mbd.FitWarning, match="cross_validate: 2 of 2 searches have not converged"),
        pytest.raises(mbd.SolveError, match="without part 0 of the experiments cannot begin"),
    ):
        cross_validate(Problem(build, bad, free), folds=2, progress=False)


# --- experiment design ----------------------------------------------------------------------------------


def candidates() -> list[mbd.Experiment]:
    """Motions from several starts; at the third one the mechanism hardly moves."""
    return [measured(seed, start) for seed, start in enumerate((0.8, 1.2, 3.1, 1.6, 2.4))]


def test_information_gives_the_errors_that_a_fit_finds() -> None:
    problem = Problem(slider_crank, measured(0), FREE)
    information = np.asarray(fisher_information(problem, fitted().theta))
    assert information.shape == (1, 3, 3)
    expected = np.sqrt(np.diag(np.linalg.inv(information[0])))
    residual = fitted().residuals[0]
    levels = noise_levels()
    count = sum(r.size for r in residual.values())
    scale = np.sqrt(sum(np.sum((r / levels[name]) ** 2) for name, r in residual.items()) / (count - 3))
    assert fitted().standard_errors is not None
    found = [float(fitted().standard_errors[name]) for name in sorted(TRUE)]  # pyright: ignore[reportOptionalSubscript]
    np.testing.assert_allclose(found, scale * expected, rtol=1e-4)


def test_information_without_what_initial_states_imitate() -> None:
    """The errors of a fit that estimates the start, too, are larger, and are those of the information."""
    known = measured(0)
    free_start = mbd.Experiment(TS, known.data, start=known.start, sigma=noise_levels(), estimate=True)
    problem = Problem(slider_crank, free_start, FREE)
    theta = problem.start()
    own = np.asarray(fisher_information(problem, theta))[0]
    fixed = np.asarray(fisher_information(Problem(slider_crank, known, FREE)))[0]
    assert (np.linalg.eigvalsh(fixed - own) > -1e-6 * np.trace(fixed)).all()
    assert np.trace(own) < 0.999 * np.trace(fixed)


@pytest.mark.parametrize("criterion", ["D", "A"])
def test_chosen_experiments_are_the_best_of_all_choices(criterion: Any) -> None:
    problem = Problem(slider_crank, candidates(), FREE)
    choice = choose_experiments(problem, 2, criterion)
    information = np.asarray(fisher_information(problem))
    values = np.array([float(problem.start().parameters[name]) for name in sorted(TRUE)])
    scaled = information * np.outer(values, values)

    def merit(pair: tuple[int, ...]) -> float:
        F = scaled[list(pair)].sum(axis=0)
        return np.linalg.slogdet(F)[1] if criterion == "D" else -np.trace(np.linalg.inv(F))

    best = max(itertools.combinations(range(5), 2), key=merit)
    assert sorted(choice.chosen) == list(best)
    for name, error in choice.standard_errors.items():
        assert error > choice.of_all[name]
    assert f"{criterion}-optimal" in str(choice)
    with pytest.raises(mbd.MechanismError, match="there are 5 candidates, of which 6 are wanted"):
        choose_experiments(problem, 6)


def test_what_chosen_experiments_do_not_determine_has_no_error() -> None:
    """A swing tells of friction, a pendulum at rest of the zero of the encoder alone."""
    ts = np.linspace(0.0, 1.0, 11)
    free = {"friction": Parameter(start=0.2), "zero": Parameter(start=0.1), "unseen": Parameter(start=1.0)}
    encoder = {"encoder": Instrument("O.angle", offset="zero")}
    swing = mbd.Experiment(ts, {"O.angle": np.zeros(11)}, start={"O.angle": 1.0}, sigma=1e-3)
    rest = mbd.Experiment(ts, {"encoder": np.zeros(11)}, start={"O.angle": 0.0}, sigma=1e-3)
    build = friction_of(lambda p: 1.0)
    known = {name: free[name] for name in ("friction", "zero")}
    choice = choose_experiments(Problem(build, [swing, rest], known, instruments=encoder), 1)
    seen, unseen = (("friction", "zero"), ("zero", "friction"))[choice.chosen[0]]
    assert 0 < choice.standard_errors[seen] < 1e-2
    assert choice.standard_errors[unseen] == np.inf
    assert 0 < choice.of_all["friction"] < 1e-2
    assert choice.of_all["zero"] == pytest.approx(1e-3 / np.sqrt(11))
    with pytest.raises(mbd.MechanismError, match="do not determine the parameters unseen"):
        choose_experiments(Problem(build, [swing, rest], free, instruments=encoder), 1)


def test_information_does_not_depend_on_measured_values_and_allows_dependent_unknowns() -> None:
    """Under a robust loss, of which an estimate takes a known share (Huber, Ronchetti, §4.5, k = 1.5), too; and of two
    masses of its own an experiment tells the sum."""
    ts = np.linspace(0.0, 1.0, 11)

    def information_of(names: str, value: float, loss: Any) -> Any:
        own, data = dict.fromkeys(names, 1.0 / len(names)), {"O.angle": np.full(11, value)}
        experiment = mbd.Experiment(ts, data, {"O.angle": 1.0}, sigma=1e-3, own=own, estimate=tuple(names))
        free = {name: Parameter(start=x) for name, x in (own | {"friction": 0.2}).items()}
        build = friction_of(lambda p: sum(p[name] for name in names))
        problem = Problem(build, experiment, free, loss=loss)

        def of_friction(x: Any) -> Any:
            theta = problem.start()
            return fisher_information(problem, theta._replace(parameters={"friction": x}))[0, 0, 0]

        return jax.jit(jax.value_and_grad(of_friction))(jnp.asarray(0.2))

    inside, k = math.erf(1.5 / math.sqrt(2)), 1.5
    share = inside**2 / (inside - k * math.sqrt(2 / math.pi) * math.exp(-(k**2) / 2) + k**2 * (1 - inside))
    expected = share * np.asarray(information_of("a", 0.0, "squares"))
    np.testing.assert_allclose(information_of("ab", 7.0, "huber"), expected, rtol=1e-6)


@pytest.mark.slow
def test_experiments_have_the_numbers_in_which_they_were_given() -> None:
    """One of other structure among them, with a start that is estimated, is simulated apart from the others."""
    listed = candidates()[:3]
    own = mbd.Experiment(TS, listed[1].data, start=listed[1].start, sigma=noise_levels(), estimate=True)
    mixed = Problem(slider_crank, [listed[0], own, listed[2]], FREE)
    assert len(mixed.stacks) == 2
    found = fisher_information(mixed)
    for k, experiment in enumerate((listed[0], own, listed[2])):
        alone = fisher_information(Problem(slider_crank, experiment, FREE))[0]
        np.testing.assert_allclose(found[k], alone, rtol=1e-6)


@pytest.mark.slow
def test_information_has_a_derivative_with_respect_to_the_start() -> None:
    """`log det F` as a function of the initial angle, by which an experiment is improved, in both modes."""
    problem = Problem(slider_crank, measured(0), FREE, rtol=1e-10, atol=1e-11)

    def merit(angle: Any) -> Any:
        where = lambda p: p.stacks[0].experiment.start["O.angle"]  # noqa: E731
        moved = eqx.tree_at(where, problem, jnp.reshape(angle, (1,)))
        return jnp.linalg.slogdet(fisher_information(moved)[0])[1]

    at = jnp.asarray(1.0)
    expected = (merit(at + 1e-4) - merit(at - 1e-4)) / 2e-4
    np.testing.assert_allclose(jax.jit(jax.grad(merit))(at), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(merit))(at), expected, rtol=1e-5)
