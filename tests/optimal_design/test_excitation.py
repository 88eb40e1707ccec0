"""Exciting motions: against a regressor written by hand and a global search, limits between samples, and loops."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy

from jaxmbd import planar as pl
from jaxmbd.identification import regressor
from jaxmbd.optimal_design import Excitation, excitation

PUSHES = {"shoulder": "A.angle", "elbow": "B.angle"}
LENGTH, GRAVITY = 0.6, 9.81  # [m] of the upper link
ROOM = {"*.angle": 2.0, "*.angle_rate": 4.0, "*_second_rate": 20.0, "shoulder.effort": 25.0, "elbow.effort": 6.0}
GLOBAL = 1.6213  # the least condition number with one harmonic, by differential evolution in the slow test


def arm() -> Any:
    upper, lower = pl.Body("upper", 1.0, 0.1), pl.Body("lower", 1.0, 0.1)
    joints = [
        pl.Revolute("A", pl.ground.at(), upper.at(-0.3)),
        pl.Revolute("B", upper.at(0.3), lower.at(-0.25)),
    ]
    dampers = [pl.JointSpringDamper(f"damper {name}", f"{name}.angle", damping=0.4) for name in "AB"]
    return pl.Mechanism([upper, lower], joints, [pl.Gravity(), *dampers], coordinates="joint")


@cache
def of_arm(**options: Any) -> Excitation:
    chosen = {"numbers": ["*.damping"], "period": 4.0, "limits": ROOM, "progress": False} | options
    return excitation(arm(), PUSHES, **chosen)


def by_hand(moved: np.ndarray) -> np.ndarray:
    """The regressor of the two-link arm in its eight base parameters, `(times, 2, 8)`, from `[c, ċ, c̈] (times, 2, 3)`:
    inertia and first moments of both links about their joints, the upper one with the lower one's mass at its end;
    and two dampings. Source: Khalil, Dombre (2002), §9.3, with absolute angles of the links."""
    (a, b), (da, db), (dda, ddb) = moved.transpose(2, 1, 0)
    b, db, ddb = a + b, da + db, dda + ddb
    zero, c, s = np.zeros_like(a), LENGTH * np.cos(b - a), LENGTH * np.sin(b - a)
    lower = {
        "J": ddb, "x": c * dda + s * da**2 + GRAVITY * np.cos(b), "y": -s * dda + c * da**2 - GRAVITY * np.sin(b),
    }  # fmt: skip
    upper = {"J": dda, "x": GRAVITY * np.cos(a), "y": -GRAVITY * np.sin(a)}
    on_upper = {"J": zero, "x": c * ddb - s * db**2, "y": -s * ddb - c * db**2}
    shoulder = [upper["J"], upper["x"], upper["y"], *(lower[k] + on_upper[k] for k in "Jxy"), da, zero]
    elbow = [zero, zero, zero, *(lower[k] for k in "Jxy"), zero, db - da]
    return np.stack([np.stack(shoulder, axis=1), np.stack(elbow, axis=1)], axis=1)


def condition(matrix: np.ndarray) -> float:
    rows = matrix.reshape(-1, matrix.shape[-1])
    sizes = np.linalg.norm(rows, axis=0)
    return float(np.linalg.cond(rows / sizes)) if np.all(sizes > 0) else 1e6


def moved_by(coefficients: np.ndarray, ts: np.ndarray, period: float) -> np.ndarray:
    """`[c, ċ, c̈]` of series with one harmonic; `coefficients (2, 3)`."""
    w = 2 * np.pi / period
    wave = np.stack([np.ones_like(ts), np.cos(w * ts), np.sin(w * ts)])
    rate = np.stack([np.zeros_like(ts), -w * wave[2], w * wave[1]])
    second = np.stack([np.zeros_like(ts), -(w**2) * wave[1], -(w**2) * wave[2]])
    return np.stack([coefficients @ x for x in (wave, rate, second)], axis=2).transpose(1, 0, 2)


def test_condition_of_a_two_link_arm_is_that_of_a_regressor_by_hand_and_nearly_the_least() -> None:
    found = of_arm(harmonics=1, limits={"*.angle": 2.0}, starts=6, samples=20)
    ts = np.arange(20) * 0.2
    moved = np.stack([np.asarray(series.derivatives(ts)).T for series in found.series.values()], axis=1)
    assert found.condition == pytest.approx(condition(by_hand(moved)), rel=1e-8)
    assert found.condition == pytest.approx(regressor(found.mechanism, ts, numbers=["*.damping"]).base().condition)
    assert found.condition < 1.03 * GLOBAL
    assert found.first_condition > 1.5 * found.condition
    assert len(found.base.names) == 8


@pytest.mark.slow
def test_the_least_condition_number_by_differential_evolution() -> None:
    ts = np.arange(20) * 0.2

    def cost(x: np.ndarray) -> float:
        moved = moved_by(2.0 * x.reshape(2, 3), ts, 4.0)
        over = np.max(np.abs(moved[:, :, 0])) - 2.0
        return condition(by_hand(moved)) + 1e3 * max(over, 0.0)

    best = scipy.optimize.differential_evolution(cost, [(-1, 1)] * 6, seed=0, maxiter=400, popsize=20, tol=1e-8)
    assert best.fun == pytest.approx(GLOBAL, rel=0.01)
