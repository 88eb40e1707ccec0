"""Fits of efforts: estimates, and whether their standard errors are true, for white and coloured noise."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import EffortFit, Regressor, fit_efforts, regressor
from tests.numeric import worst

TS = np.linspace(0.0, 8.0, 801)
PUSHES = {"shoulder": "A.angle", "elbow": "B.angle"}
HIDDEN = np.array([1.3, 0.05, -0.02, 0.14, 0.9, -0.03, 0.01, 0.07, 0.5, 0.2])


def arm() -> Any:
    upper, lower = pl.Body("upper", 1.0, 0.1), pl.Body("lower", 1.0, 0.1)
    joints = [
        pl.Revolute("A", pl.ground.at(), upper.at(-0.3)),
        pl.Revolute("B", upper.at(0.3), lower.at(-0.25)),
    ]
    dampers = [pl.JointSpringDamper(f"damper {name}", f"{name}.angle", damping=0.4) for name in "AB"]
    return pl.Mechanism([upper, lower], joints, [pl.Gravity(), *dampers], coordinates="joint")


def angles(ts: np.ndarray, shift: float = 0.0) -> dict[str, Any]:
    waves = ((0.6, 1.3, 0.0), (0.4, 2.9, 1.0)), ((0.8, 1.9, 0.5), (0.3, 3.7, 2.0))
    return {
        f"{name}.angle": sum(a * np.sin(w * ts + p + shift) for a, w, p in wave)
        for name, wave in zip("AB", waves, strict=True)
    }


@cache
def exact() -> Regressor:
    motion = mbd.MeasuredMotion(TS, angles(TS), smoothing="spline")
    return regressor(arm(), motion, PUSHES, numbers=["*.damping"])


def torques(of: Regressor, noise: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(values) + noise[name] for name, values in of.efforts(HIDDEN).items()}


def white(seed: int) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    return {"shoulder": 0.5 * draws.standard_normal(len(TS)), "elbow": 0.05 * draws.standard_normal(len(TS))}


def coloured(seed: int) -> dict[str, np.ndarray]:
    """Noise with a correlation time of ten samples."""
    found, share = white(seed), np.exp(-0.1)
    for values in found.values():
        for k in range(1, len(values)):
            values[k] = share * values[k - 1] + np.sqrt(1 - share**2) * values[k]
    return found


def normalised(found: EffortFit) -> np.ndarray:
    return (found.estimates - found.base.combination @ HIDDEN) / found.standard_errors


@pytest.mark.parametrize("method", ["weighted", "ordinary", "robust", "total", "possible"])
def test_without_noise_every_method_finds_the_numbers(method: Any) -> None:
    nothing = {name: np.zeros(len(TS)) for name in PUSHES}
    found = fit_efforts(exact(), torques(exact(), nothing), method=method, prior=1e-9)
    K = found.base.combination
    assert worst(found.estimates - K @ HIDDEN) < 1e-6
    assert worst(K @ found.theta - K @ HIDDEN) < 1e-6
    assert worst(found.efforts(exact())["elbow"] - exact().efforts(HIDDEN)["elbow"]) < 1e-5


def test_what_efforts_do_not_tell_is_nearest_to_the_model_however_small_the_prior() -> None:
    """Without noise the base parameters are exact, and among all possible numbers that have them the nearest are the
    same for any weight of the divergence."""
    nothing = {name: np.zeros(len(TS)) for name in PUSHES}
    small, large = (fit_efforts(exact(), torques(exact(), nothing), method="possible", prior=x) for x in (1e-9, 1.0))
    np.testing.assert_allclose(small.theta, large.theta, atol=5e-3)
    modelled = np.asarray(exact().values)
    assert np.abs(small.theta - modelled)[:8].max() < 0.1  # while masses of 3.7 kg would explain the efforts as well


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "longest"), [(white, 1.15), (coloured, 1.25)])
def test_standard_errors_are_true(noise: Any, longest: float) -> None:
    """Normalised errors of sixty sets: for coloured noise nobody says that it is. Errors by the formula for white
    noise would be a third of the true ones."""
    errors = np.concatenate([normalised(fit_efforts(exact(), torques(exact(), noise(k)))) for k in range(60)])
    assert 0.87 < np.sqrt(np.mean(errors**2)) < longest
    assert np.mean(np.abs(errors) < 1.96) > 0.87


def test_weights_follow_from_the_noise_of_each_actuator() -> None:
    found = fit_efforts(exact(), torques(exact(), white(0)))
    assert found.noise == pytest.approx({"shoulder": 0.5, "elbow": 0.05}, rel=0.1)
    spread = [
        np.std([fit_efforts(exact(), torques(exact(), white(k)), method=m).estimates for k in range(30)], axis=0)
        for m in ("weighted", "ordinary")
    ]
    assert np.all(spread[0] < 1.1 * spread[1])
    assert np.min(spread[0] / spread[1]) < 0.5


def test_outliers_count_less_by_the_robust_method() -> None:
    """They change its estimate by less than the noise does, and that of least squares by more."""
    noise = white(0)
    clean = torques(exact(), noise)
    wrong = clean | {"elbow": clean["elbow"] + np.where(np.arange(len(TS)) % 40 == 0, 5.0, 0.0)}
    moved = {}
    for method in ("robust", "weighted"):
        before, after = (fit_efforts(exact(), measured, method=method) for measured in (clean, wrong))
        moved[method] = worst((after.estimates - before.estimates) / before.standard_errors)
    assert moved["robust"] < 0.5
    assert moved["weighted"] > 2.0


def test_possible_numbers_are_those_of_bodies_even_where_the_motion_tells_nothing() -> None:
    """From few and noisy samples, plain least squares finds numbers that no body has."""
    ts = TS[:60:4]
    motion = mbd.MeasuredMotion(ts, angles(ts), smoothing="spline")
    few = regressor(arm(), motion, PUSHES, numbers=["*.damping"])
    measured = torques(few, {name: 2.0 * np.random.default_rng(3).standard_normal(len(ts)) for name in PUSHES})
    plain, found = fit_efforts(few, measured), fit_efforts(few, measured, method="possible")
    assert plain.theta.min() < -1.0
    m, hx, hy, J = found.theta[:8].reshape(2, 4).T
    assert np.all(m > 0)
    assert np.all(m * J > hx**2 + hy**2)
    assert np.all(found.theta[8:] > 0)
    bodies = found.mechanism.bodies
    assert float(bodies[0].mass) == pytest.approx(m[0])
    assert float(bodies[1].inertia) == pytest.approx(J[1] - (hx[1] ** 2 + hy[1] ** 2) / m[1])


@pytest.mark.slow
def test_noise_of_speeds_biases_least_squares_and_not_instruments() -> None:
    """Two recordings of one motion: the regressor of one is the instrument of the other."""
    sums: dict[str, list[np.ndarray]] = {"weighted": [], "instruments": []}
    for k in range(8):
        draws = np.random.default_rng(k)
        noisy = [
            regressor(
                arm(),
                mbd.MeasuredMotion(
                    TS, angles(TS), *(
                        {n: x + level * draws.standard_normal(len(TS)) for n, x in derived(order).items()}
                        for order, level in ((1, 0.3), (2, 2.0))
                    ), smoothing="none",
                ), PUSHES, numbers=["*.damping"],
            )
            for _ in range(2)
        ]  # fmt: skip
        measured = torques(exact(), white(k))
        base = fit_efforts(noisy[0], measured)
        sums["weighted"].append(base.estimates - base.base.combination @ HIDDEN)
        other = fit_efforts(noisy[0], measured, method="instruments", instruments=noisy[1])
        sums["instruments"].append(other.estimates - other.base.combination @ HIDDEN)
    bias = {name: np.abs(np.mean(errors, axis=0)) for name, errors in sums.items()}
    damping = -1  # the last base parameter is the elbow's damping
    assert bias["weighted"][damping] > 5 * bias["instruments"][damping]


def derived(order: int) -> dict[str, np.ndarray]:
    h = 1e-3
    ahead, here, back = angles(TS + h), angles(TS), angles(TS - h)
    if order == 1:
        return {name: (ahead[name] - back[name]) / (2 * h) for name in here}
    return {name: (ahead[name] - 2 * here[name] + back[name]) / h**2 for name in here}


def test_several_motions_missing_samples_and_left_out_samples() -> None:
    measured = torques(exact(), white(0))
    measured["elbow"][100:200] = np.nan
    one = fit_efforts(exact(), measured)
    assert len(one.residuals[0]["elbow"]) == len(TS) - 100
    both = fit_efforts([exact(), exact()], [measured, torques(exact(), white(1))])
    assert np.all(both.standard_errors < one.standard_errors)
    fewer = fit_efforts(exact(), torques(exact(), white(0)), decimate=8)
    assert worst(normalised(fewer)) < 4.5
    assert len(fewer.residuals[0]["elbow"]) < len(TS) / 7


def test_wrong_arguments_are_named() -> None:
    measured = torques(exact(), white(0))
    with pytest.raises(mbd.MechanismError, match=r"no actuator named 'elbw'.*'elbow'"):
        fit_efforts(exact(), {"elbw": measured["elbow"]})
    with pytest.raises(mbd.MechanismError, match=r"efforts of 'elbow' must have the shape \(801,\)"):
        fit_efforts(exact(), {"elbow": measured["elbow"][:-1]})
    with pytest.raises(mbd.MechanismError, match="instruments and method='instruments' belong together"):
        fit_efforts(exact(), measured, method="instruments")
    measured["elbow"][3] = np.nan
    with pytest.raises(mbd.MechanismError, match="decimate needs efforts without gaps"):
        fit_efforts(exact(), measured, decimate=4)


# --- the same efforts as residuals of a problem --------------------------------------------------------------


@pytest.mark.slow
def test_a_problem_fits_numbers_to_the_efforts_of_a_measured_motion() -> None:
    """Together with a simulated experiment, and by more coordinates than degrees of freedom."""
    mechanism, ts = arm(), TS[:401:10]
    motion = mbd.MeasuredMotion(TS, angles(TS), smoothing="spline")
    true = mbd.with_numbers(mechanism, {"lower.mass": 1.4, "damper A.damping": 0.7})
    efforts = mbd.inverse_dynamics(true, motion, PUSHES)
    noise, draws = 0.02, np.random.default_rng(0)
    data = {
        f"{name}.effort": np.interp(ts, TS, efforts.effort(name)) + noise * draws.standard_normal(len(ts))
        for name in PUSHES
    }
    pushed = mbd.identification.Experiment(ts, data, motion=motion, actuators=PUSHES, sigma=noise)
    start = {"A.angle": 0.3, "B.angle": 0.2}
    swing = mbd.simulate(true, mbd.assemble(true, start), ts)
    falling = {"A.angle": np.asarray(swing["A.angle"]) + 1e-3 * draws.standard_normal(len(ts))}
    free = {name: mbd.identification.Positive() for name in ("lower.mass", "damper A.damping")}
    alone = mbd.identification.fit(mbd.identification.Problem(mechanism, pushed, free), progress=False)
    let_go = mbd.identification.Experiment(ts, falling, start, sigma=1e-3)
    mixed = mbd.identification.fit(mbd.identification.Problem(mechanism, [pushed, let_go], free), progress=False)
    assert str(alone).startswith("converged")
    assert {one.name: one.unit for one in mixed.channel_errors()} == {f"{name}.effort": "N m" for name in PUSHES} | {
        "A.angle": "rad"
    }
    for found in (alone, mixed):
        errors: Any = found.standard_errors
        assert abs(float(found.parameters["lower.mass"]) - 1.4) < 4 * float(errors["lower.mass"])
        assert abs(float(found.parameters["damper A.damping"]) - 0.7) < 4 * float(errors["damper A.damping"])
    first, second = (float(found.standard_errors["lower.mass"]) for found in (alone, mixed))  # pyright: ignore
    assert second < first < 0.01


@pytest.mark.slow
def test_the_motion_of_a_validation_experiment_is_reconciled_with_the_fitted_values() -> None:
    """Two encoders of a four-bar, whose coupler is longer than its model says before the fit."""

    def four_bar(length: float) -> Any:
        crank, coupler = pl.Body("crank", 1.0, 0.02, (0.1, 0.15, 1.2)), pl.Body("coupler", 1.0, 0.08, (0.75, 0.6, 0.5))
        rocker = pl.Body("rocker", 1.2, 0.07, (1.15, 0.45, 1.3))
        joints = [
            pl.Revolute("A", pl.ground.at(), crank.at(-0.17)),
            pl.Revolute("B", crank.at(0.17), coupler.at(-length)),
            pl.Revolute("C", coupler.at(0.55), rocker.at(0.45)),
            pl.Revolute("D", pl.ground.at(1.0, 0.0), rocker.at(-0.45)),
        ]
        return pl.Mechanism([crank, coupler, rocker], joints, [pl.Gravity()], coordinates="joint")

    ts, angle = np.linspace(0.0, 1.0, 41), 1.2 + 0.5 * np.sin(3.0 * np.linspace(0.0, 1.0, 41))
    crank = mbd.MeasuredMotion(ts, {"A.angle": angle}, smoothing="spline")
    true = mbd.inverse_dynamics(four_bar(0.58), crank)
    both = mbd.MeasuredMotion(ts, {n: np.asarray(true[n]) + 1e-4 for n in ("A.angle", "D.angle")}, smoothing="spline")
    pushed = mbd.identification.Experiment(
        ts, {"m.effort": np.zeros(41)}, sigma=1.0, motion=both, actuators={"m": "A.angle"}
    )
    free = {"B.b.position[0]": mbd.identification.Bounded(-0.7, -0.4)}
    problem = mbd.identification.Problem(four_bar(0.55), pushed, free)
    theta = mbd.identification.Unknowns({"B.b.position[0]": np.asarray(-0.58)}, ({},))

    def crank_of(chosen: Any) -> np.ndarray:
        (samples,) = chosen.experiments()[0].motion.samples.values()
        return np.asarray(samples)[:, 0]

    expected = [np.asarray(mbd.kinematics(four_bar(length), both)["A.angle"]) for length in (0.58, 0.55)]
    assert worst(crank_of(problem.validation(theta, pushed)) - expected[0]) < 1e-9
    assert worst(crank_of(problem) - expected[1]) < 1e-9
    assert worst(expected[0] - expected[1]) > 1e-3
