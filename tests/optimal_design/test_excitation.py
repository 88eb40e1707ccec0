"""Exciting motions: against a regressor written by hand and a global search, limits between samples, and loops."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import fit_efforts, regressor
from jaxmbd.optimal_design import Excitation, excitation
from tests.identification.test_effort_fit import PUSHES, arm
from tests.numeric import worst

LENGTH, GRAVITY = 0.6, 9.81  # [m] of the upper link
ROOM = {"*.angle": 2.0, "*.angle_rate": 4.0, "*_second_rate": 20.0, "shoulder.effort": 25.0, "elbow.effort": 6.0}


@cache
def of_arm(**options: Any) -> Excitation:
    chosen: Any = {"numbers": ["*.damping"], "period": 4.0, "limits": ROOM, "progress": False} | options
    chosen["limits"] = dict(chosen["limits"])
    return excitation(arm(), PUSHES, **chosen)


def by_hand(moved: np.ndarray) -> np.ndarray:
    """The regressor of the two-link arm, `(times, 2, 8)`, from `[c, ċ, c̈] (times, 2, 3)`.

    For both links first moments and inertia about the joint, with absolute angles of the links; then those about the
    modelled centre, `h = h_c + m d`, `J = J_c + 2 d·h_c + m d²`, and two dampings. Source: Lagrange's equations.
    """
    (a, b), (da, db), (dda, ddb) = moved.transpose(2, 1, 0)
    b, db, ddb = a + b, da + db, dda + ddb
    zero, c, s = np.zeros_like(a), LENGTH * np.cos(b - a), LENGTH * np.sin(b - a)
    lower = [c * dda + s * da**2 + GRAVITY * np.cos(b), -s * dda + c * da**2 - GRAVITY * np.sin(b), ddb]
    coupled = [c * ddb - s * db**2, -s * ddb - c * db**2, zero]
    upper = [GRAVITY * np.cos(a), -GRAVITY * np.sin(a), dda]
    shoulder = [*upper, *(x + y for x, y in zip(lower, coupled, strict=True)), da, zero]
    elbow = [zero, zero, zero, *lower, zero, db - da]
    found = np.stack([np.stack(shoulder, axis=1), np.stack(elbow, axis=1)], axis=1)
    for place, d in ((0, 0.3), (3, 0.25)):
        found[:, :, place] += 2 * d * found[:, :, place + 2]
    return found


def condition(matrix: np.ndarray, sizes: np.ndarray) -> float:
    return float(np.linalg.cond(matrix.reshape(-1, matrix.shape[-1]) / sizes))


def moved_by(coefficients: np.ndarray, ts: np.ndarray, period: float) -> np.ndarray:
    """`[c, ċ, c̈]` of series with one harmonic; `coefficients (2, 3)`."""
    w = 2 * np.pi / period
    wave = np.stack([np.ones_like(ts), np.cos(w * ts), np.sin(w * ts)])
    rate = np.stack([np.zeros_like(ts), -w * wave[2], w * wave[1]])
    second = np.stack([np.zeros_like(ts), -(w**2) * wave[1], -(w**2) * wave[2]])
    return np.stack([coefficients @ x for x in (wave, rate, second)], axis=2).transpose(1, 0, 2)


def one_harmonic() -> Excitation:
    return of_arm(harmonics=1, limits=(("*.angle", 2.0),), starts=6, samples=21)


@pytest.mark.slow
def test_condition_of_a_two_link_arm_is_that_of_a_regressor_by_hand() -> None:
    found = one_harmonic()
    moved = np.stack([np.asarray(series.derivatives(found.ts)).T for series in found.series.values()], axis=1)
    matrix, other = by_hand(moved), regressor(found.mechanism, found.ts, numbers=["*.damping"])
    assert worst(np.asarray(other.matrix)[:, :, found.base.independent] - matrix) < 1e-9 * worst(matrix)
    assert found.condition == pytest.approx(condition(matrix, found.sizes), rel=1e-8)
    assert len(found.base.names) == 8
    assert found.condition < 0.7 * found.first_condition


@pytest.mark.slow
def test_the_least_condition_number_is_that_of_a_global_search() -> None:
    """By differential evolution; amplitudes are limited, so that no limit is exceeded between the samples."""
    found = one_harmonic()

    def cost(x: np.ndarray) -> float:
        coefficients = 2.0 * x.reshape(2, 3)
        reach = np.abs(coefficients[:, 0]) + np.hypot(*coefficients[:, 1:].T)
        return condition(by_hand(moved_by(coefficients, found.ts, 4.0)), found.sizes) + 1e3 * max(reach.max() - 2.0, 0)

    best = scipy.optimize.differential_evolution(cost, [(-1, 1)] * 6, seed=0, maxiter=200, popsize=15, tol=1e-8)
    assert found.condition < 1.01 * best.fun


# --- limits --------------------------------------------------------------------------------------------------


def largest(found: Excitation) -> dict[str, float]:
    """The largest sizes of what is limited over a period, at times that the search does not know."""
    columns = found.table(np.linspace(0.0, found.period, 1601))
    return {name: worst(column) for name, column in columns.items()}


@pytest.mark.slow
def test_limits_are_kept_between_the_samples_and_reached() -> None:
    found = of_arm(criterion="determinant", starts=1)
    sizes = largest(found)
    ends = {"angle": 2.0, "angle_rate": 4.0, "angle_second_rate": 20.0}
    allowed = {f"{joint}.{name}": end for joint in "AB" for name, end in ends.items()}
    allowed |= {"shoulder.effort": 25.0, "elbow.effort": 6.0}
    assert found.is_feasible
    assert all(sizes[name] < end * (1 + 1e-5) for name, end in allowed.items())
    assert {"elbow.effort", "B.angle"} < set(found.active)
    assert all(sizes[name] > 0.99 * allowed[name] for name in found.active)
    margins = {margin.name: margin.margin for margin in found.constraints}
    assert all(abs(allowed[name] - sizes[name] - margins[name]) < 1e-3 * allowed[name] for name in allowed)
    assert "not kept" not in found.outcome  # of the limits that the search has tightened
    assert "elbow.effort [N m]" in repr(found)


@pytest.mark.slow
def test_errors_of_estimates_become_smaller_as_the_regressor_says() -> None:
    """Standard errors of fits of simulated efforts, over the motion found and one that looks lively."""
    found = of_arm(criterion="determinant", starts=1)
    swing = {"A.angle": mbd.FourierSeries(4.0, 0.3, [0.1, 0.2], [0.5, -0.1])}
    swing |= {"B.angle": mbd.FourierSeries(4.0, 0.1, [-0.3, 0.2], [0.2, 0.3])}
    other = found.mechanism.replaced(
        drivers=(pl.Driver(d.name, d.coordinate, swing[d.coordinate]) for d in found.mechanism.drivers)
    )
    errors, expected, ts = [], [], np.arange(400) * 0.01
    for mechanism in (found.mechanism, other):
        matrix, draws = regressor(mechanism, ts, numbers=["*.damping"]), np.random.default_rng(0)
        torques = {k: np.asarray(x) + 0.1 * draws.normal(size=400) for k, x in matrix.efforts(matrix.values).items()}
        fit = fit_efforts(matrix, torques, method="ordinary")
        errors.append(np.mean(np.log(fit.standard_errors)))
        rows = np.asarray(matrix.matrix)[:, :, fit.base.independent].reshape(800, -1)
        expected.append(np.mean(np.log(np.diag(np.linalg.inv(rows.T @ rows)))) / 2)
    assert errors[0] - errors[1] < np.log(0.4)
    assert errors[0] - errors[1] == pytest.approx(expected[0] - expected[1], abs=0.15)


@pytest.mark.slow
def test_a_motion_starts_at_rest() -> None:
    found = of_arm(at_rest=True, starts=1)
    columns = found.table(np.array([0.0, 1.0, found.period]))
    for name in PUSHES.values():
        assert worst(columns[f"{name}_rate"][[0, 2]]) < 1e-9
        assert worst(columns[f"{name}_second_rate"][[0, 2]]) < 1e-8
        assert abs(columns[f"{name}_rate"][1]) > 0.01
    moved = mbd.kinematics(arm(), found.motion(np.linspace(0.0, 4.0, 41)))
    driven = mbd.kinematics(found.mechanism, np.linspace(0.0, 4.0, 41))
    assert worst(np.asarray(moved["lower.x"]) - np.asarray(driven["lower.x"])) < 1e-9


# --- loops ---------------------------------------------------------------------------------------------------


def four_bar() -> Any:
    crank, coupler = pl.Body("crank", 1.0, 0.02, (0.1, 0.15, 1.2)), pl.Body("coupler", 1.0, 0.08, (0.75, 0.6, 0.5))
    rocker = pl.Body("rocker", 1.2, 0.07, (1.15, 0.45, 1.3))
    joints = [
        pl.Revolute("A", pl.ground.at(), crank.at(-0.17), armature=0.01),
        pl.Revolute("B", crank.at(0.17), coupler.at(-0.55)),
        pl.Revolute("C", coupler.at(0.55), rocker.at(0.45)),
        pl.Revolute("D", pl.ground.at(1.0, 0.0), rocker.at(-0.45)),
    ]
    return pl.Mechanism([crank, coupler, rocker], joints, [pl.Gravity()], coordinates="joint")


@pytest.mark.slow
def test_a_loop_closes_and_its_passive_joints_keep_their_limits() -> None:
    mechanism, limits = four_bar(), {"A.angle": (0.2, 2.6), "D.angle": (1.25, 1.75), "motor.effort": (-15.0, None)}
    found = excitation(
        mechanism, {"motor": "A.angle"}, period=2.0, limits=limits, harmonics=3, starts=2, progress=False
    )
    motion = mbd.inverse_dynamics(found.mechanism, np.linspace(0.0, 2.0, 801))
    assert np.min(motion["D.angle"]) > 1.25 - 1e-5
    assert np.max(motion["D.angle"]) < 1.75 + 1e-5
    assert np.min(motion.effort("motor")) > -15.0 - 1e-4
    assert "D.angle" in found.active
    assert found.condition < 0.5 * found.first_condition


@pytest.mark.slow
def test_a_five_bar_with_two_motors() -> None:
    mechanism = mbd.examples.get("five_bar").mechanism  # its drivers are the actuators
    start = mbd.assemble(mechanism)
    limits: dict[str, Any] = {"*.effort": 6.0}
    for driver in mechanism.drivers:
        here = float(mbd.read(mechanism, start, driver.coordinate))
        limits |= {driver.coordinate: (here - 0.6, here + 0.6), f"{driver.coordinate}_rate": 6.0}
    found = excitation(mechanism, period=2.0, limits=limits, harmonics=3, starts=1, progress=False)
    columns = found.table(np.linspace(0.0, 2.0, 401))
    assert len(found.series) == 2
    assert all(worst(columns[f"{driver.name}.effort"]) < 6.0 * (1 + 1e-5) for driver in mechanism.drivers)
    assert found.is_feasible
    assert found.condition < 0.8 * found.first_condition


# --- derivatives and mistakes --------------------------------------------------------------------------------


def test_values_and_derivatives_of_a_series() -> None:
    series, ts = mbd.FourierSeries(3.0, 0.2, [0.1, -0.4], [0.5, 0.3]), np.array([0.0, 0.4, 2.9])
    value, rate = series.value, jax.grad(series.value)
    expected = [[f(t) for t in jnp.asarray(ts)] for f in (value, rate, jax.grad(rate))]
    assert worst(np.asarray(series.derivatives(ts)) - np.array(expected)) < 1e-12
    assert float(series(jnp.array(1.0))) == pytest.approx(float(series(jnp.array(4.0))))
    assert float(series(jnp.array(0.0))) == pytest.approx(0.2 + 0.1 - 0.4)
    with pytest.raises(mbd.MechanismError, match=r"FourierSeries: period must be positive"):
        mbd.FourierSeries(0.0, 0.2, [0.1], [0.1])
    with pytest.raises(mbd.MechanismError, match=r"one number for each harmonic, got the shapes .* \(2,\) and \(1,\)"):
        mbd.FourierSeries(1.0, 0.2, [0.1, 0.2], [0.1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"limits": {"*.angle": 2.0, "elbw.effort": 3.0}}, r"no quantity named 'elbw\.effort'.*'elbow\.effort'"),
        ({"limits": {"A.angle": 2.0}}, r"must name a lower and an upper limit of 'B\.angle'"),
        ({"limits": {"*.angle": (2.0, 1.0)}}, r"lower limit of '\*\.angle' must be below the upper one, got 2 and 1"),
        ({"limits": {"*.angle": "wide"}}, r"limit of '\*\.angle' must be a pair"),
        ({"limits": {"*.angle": 2.0, "upper.position": 1.0}}, r"'upper\.position', which is a vector"),
        ({"noise": {"motor": 1.0}}, r"no actuator named 'motor'"),
        ({"period": -1.0}, r"period must be positive"),
        ({"harmonics": 1, "at_rest": True}, r"starts at rest needs at least 2 harmonics"),
        ({"samples": 10}, r"samples must be at least 11"),
        ({"actuators": {"shoulder": "A.angle"}, "limits": {"A.angle": 2.0}}, r"needs 2 drivers|drivers"),
    ],
)
def test_mistakes_are_named(changed: dict[str, Any], message: str) -> None:
    given = {"actuators": PUSHES, "period": 4.0, "limits": ROOM, "progress": False} | changed
    with pytest.raises(mbd.MechanismError, match=message):
        excitation(arm(), **given)
