"""The least peak of quantities over a motion, against known answers of minimax problems."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.optimal_design import _epigraph
from tests.optimal_design.linkages import four_bar
from tests.optimal_design.test_design import box, corner

RANGES = {"x": (-3.0, 3.0), "y": (-3.0, 3.0)}


def of(anything: Any) -> Any:
    """What is no function of samples, for tests of messages."""
    return anything


def found(peak: mbd.Peak, limits: Any = None, starts: int = 3, **named: Any) -> mbd.Design:
    return mbd.design(peak, RANGES, limits, mechanism=box, starts=starts, progress=False, **named)


def parabola(times: np.ndarray) -> mbd.Peak:
    """The difference of a parabola from a straight line."""
    return mbd.Peak(lambda m: times**2 - corner(m)[0] - corner(m)[1] * times, times, unit="m")


@pytest.mark.parametrize("method", ["slsqp", "trust-constr"])
def test_the_best_straight_line_for_a_parabola(method: Any) -> None:
    """`t − 1/8` is nearest to `t²` on 0 … 1: the difference is 1/8 at 0 and 1, and −1/8 at 1/2 (Chebyshev)."""
    line = found(parabola(np.linspace(0.0, 1.0, 41)), method=method)
    accuracy = 1e-6 if method == "slsqp" else 1e-4  # an interior method ends beside the corner
    assert line.objective == pytest.approx(0.125, rel=accuracy)
    np.testing.assert_allclose([line.values["x"], line.values["y"]], [-0.125, 1.0], atol=10 * accuracy)
    assert all(start.objective == pytest.approx(0.125, rel=accuracy) for start in line.starts)
    if method == "slsqp":
        assert line.outcome.startswith("converged")
        samples = {sample.time: sample.value for sample in line.active_samples}
        assert samples == {0.0: pytest.approx(0.125), 0.5: pytest.approx(-0.125), 1.0: pytest.approx(0.125)}
        costs = line.multipliers
        assert costs is not None
        weights = dict(zip(samples, costs.samples, strict=True))
        assert weights == {t: pytest.approx(w, abs=1e-6) for t, w in ((0.0, 0.25), (0.5, 0.5), (1.0, 0.25))}
        assert costs.residual < 1e-6
        assert re.search(r"^Design: converged.*; peak 0.125 m\n", repr(line))
        assert re.search(r"peak at +time \[s\] +value +multiplier", repr(line))
        assert re.search(r"0.5 +-0.125 +0.5\n", repr(line))


def test_a_limit_that_costs_something() -> None:
    """With a slope of at most b = 1/2 the difference `t² − b t − x` is between `−b²/4 − x` and `1 − b − x`: the peak is
    `(1 − b + b²/4) / 2`, so its derivative by the limit is −3/8."""
    times = np.linspace(0.0, 1.0, 41)
    peaks = {}
    for slope in (0.5, 0.5 + 1e-4, 0.5 - 1e-4):
        limits = {"slope": mbd.Limit(lambda m: corner(m)[1], upper=slope)}
        line = found(parabola(times), limits, starts=1)
        assert line.is_feasible
        peaks[slope] = line
    line = peaks[0.5]
    assert line.objective == pytest.approx((0.5 + 0.0625) / 2, rel=1e-7)
    assert line.constraints[0].active
    assert line.multipliers is not None
    np.testing.assert_allclose(sorted(line.multipliers.samples), [0.5, 0.5], atol=1e-6)
    rate = (peaks[0.5 + 1e-4].objective - peaks[0.5 - 1e-4].objective) / 2e-4
    assert line.multipliers.constraints["slope"][0] == pytest.approx(rate, rel=1e-4)
    assert rate == pytest.approx(-0.375, rel=1e-3)


def test_the_smallest_circle_about_points() -> None:
    """Of an equilateral triangle it passes the corners, each with a third; further points within do not count."""
    angles = 0.3 + np.arange(3) * 2 * np.pi / 3
    corners = 2.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.concatenate([corners, [[0.0, 0.0], [0.6, 0.7]]]) + np.array([[0.4, -0.7]])
    circle = found(mbd.Peak(lambda m: corner(m)[None] - points))
    assert circle.objective == pytest.approx(2.0, rel=1e-6)
    np.testing.assert_allclose([circle.values["x"], circle.values["y"]], [0.4, -0.7], atol=1e-5)
    assert sorted(sample.index for sample in circle.active_samples) == [0, 1, 2]
    assert circle.active_samples[0].time is None
    assert circle.multipliers is not None
    np.testing.assert_allclose(circle.multipliers.samples, 1 / 3, atol=1e-5)


def test_several_quantities_in_their_scales() -> None:
    """`max(|x − 1|, |x + 1| / 3)` is least at 1/2, where both are 1/2; the second one is −…3/2 in its own unit."""
    peak = mbd.Peak(
        lambda m: {"b": -(corner(m)[:1] + 1.0), "a": jnp.stack([corner(m) - jnp.array([1.0, 0.0])])},
        scale={"a": 1.0, "b": 3.0},
    )
    both = found(peak)
    assert both.objective == pytest.approx(0.5, rel=1e-6)
    assert float(both.values["x"]) == pytest.approx(0.5, abs=1e-6)
    values = {sample.quantity: sample.value for sample in both.active_samples}
    assert values == {"a": pytest.approx(0.5, rel=1e-6), "b": pytest.approx(-1.5, rel=1e-6)}
    assert both.multipliers is not None
    weights = {s.quantity: w for s, w in zip(both.active_samples, both.multipliers.samples, strict=True)}
    assert weights == {"a": pytest.approx(0.25, abs=1e-6), "b": pytest.approx(0.75, abs=1e-6)}


def test_a_peak_that_vanishes() -> None:
    """All samples can become zero together: the peak goes far below that of the start."""
    times = np.linspace(0.0, 3.0, 30)
    zero = found(mbd.Peak(lambda m: jnp.tanh(corner(m)[0] - 0.7) * times + (corner(m)[1] ** 3 - 1.0) * times**2))
    assert zero.objective < 1e-7
    np.testing.assert_allclose([zero.values["x"], zero.values["y"]], [0.7, 1.0], atol=1e-7)


def test_working_sets_have_the_answer_of_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """With five rows at once, samples that exceed the bound enter until none is left."""
    monkeypatch.setattr(_epigraph, "_MOST", 5)
    line = found(parabola(np.linspace(0.0, 1.0, 2001)), starts=1)
    assert line.objective == pytest.approx(0.125, rel=1e-6)
    assert line.outcome.startswith("converged")
    assert {sample.time for sample in line.active_samples} >= {0.0, 0.5, 1.0}


SPEED, ARM, YOKE, CRANK = 10.0, 0.2, 3.0, 2.0  # [rad/s], [m], [kg], [kg]


def scotch_yoke(values: dict[str, Any]) -> pl.Mechanism:
    """A crank whose centre of mass lies behind its bearing, and a yoke that it moves to and fro along x."""
    behind = values["counterweight"]
    crank = pl.Body("crank", CRANK, 0.1, pose=(0.0 - behind, 0.0, 0.0))
    yoke = pl.Body("yoke", YOKE, 0.1, pose=(ARM, 0.0, 0.0))
    joints = [
        pl.Revolute("O", pl.ground.at(), crank.at(behind)),
        pl.Prismatic("guide", pl.ground.at(), yoke.at()),
        pl.PinInSlot("slot", yoke.at(0.0, 0.0, np.pi / 2), crank.at(behind + ARM)),
    ]
    return pl.Mechanism([crank, yoke], joints, drivers=[pl.Driver("motor", "O.angle", lambda t: SPEED * t)])


@pytest.mark.slow
def test_the_best_counterweight_balances_half_of_the_yoke() -> None:
    """The bearing carries `(m r − u) ω² cos θ` along x and `−u ω² sin θ` along y, with `u` of the counterweight. The
    peak is least for `u = m r / 2`, which leaves a force of constant size; the least squares at these angles, most of
    which are near the x axis, are at a larger one and have a higher peak along y."""
    times = np.concatenate([np.linspace(0.0, 0.6, 5), [np.pi / 2]]) / SPEED

    def force(mechanism: pl.Mechanism) -> Array:
        return mbd.kinematics(mechanism, times, throw=False).reaction("O").force

    peak, free = mbd.Peak(force, times, unit="N"), {"counterweight": (0.0, 0.5)}
    best = mbd.design(peak, free, mechanism=scotch_yoke, starts=2, progress=False)
    assert float(best.values["counterweight"]) == pytest.approx(YOKE * ARM / 2 / CRANK, rel=1e-5)
    assert best.objective == pytest.approx(YOKE * ARM / 2 * SPEED**2, rel=1e-6)
    assert best.active_samples[0].value == pytest.approx(best.objective, rel=1e-12)
    squares = np.mean(np.cos(SPEED * times) ** 2) * YOKE * ARM / CRANK
    of_squares = float(jnp.max(jnp.linalg.norm(force(scotch_yoke({"counterweight": squares})), axis=1)))
    assert of_squares == pytest.approx(squares * CRANK * SPEED**2, rel=1e-6)
    assert of_squares > 1.4 * best.objective


def driven_four_bar(values: dict[str, Any]) -> pl.Mechanism:
    """A crank-rocker at constant speed, with a coupler and a rocker whose lengths are given."""
    linkage = four_bar([2.0, 0.5, values["coupler"], values["rocker"]])
    return linkage.with_parts([pl.Driver("motor", "A.angle", lambda t: 2.0 * np.pi * t)])


@pytest.mark.slow
def test_the_least_peak_torque_is_below_that_of_least_squares() -> None:
    times = np.linspace(0.0, 1.0, 24)

    def torque(mechanism: pl.Mechanism) -> Array:
        return mbd.kinematics(mechanism, times, throw=False).effort("motor")

    free = {"coupler": (1.8, 2.6), "rocker": (1.0, 1.8)}
    best, squares = (
        mbd.design(aim, free, mechanism=driven_four_bar, starts=2, progress=False)
        for aim in (mbd.Peak(torque, times, unit="N m"), torque)
    )
    assert best.outcome.startswith("converged")
    assert np.abs(torque(best.mechanism)).max() == pytest.approx(best.objective, rel=1e-9)
    assert best.objective < 0.99 * np.abs(torque(squares.mechanism)).max()
    assert best.multipliers is not None
    assert best.multipliers.residual < 1e-3 * best.objective
    for sample in best.active_samples:
        assert sample.time == times[sample.index]
        assert torque(best.mechanism)[sample.index] == pytest.approx(sample.value, rel=1e-9)


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize(
    ("peak", "text"),
    [
        (lambda: mbd.Peak(of(3.0)), "Peak: function must be a function of the mechanism, got 3.0"),
        (lambda: mbd.Peak(lambda m: corner(m), scale=0.0), "scale must be a number greater than zero"),
        (lambda: mbd.Peak(lambda m: corner(m), scale={"a": -1.0}), "scale must be a number greater than zero"),
        (lambda: mbd.Peak(lambda m: corner(m), times=[0.0]), "returns 2 samples, and times has the shape (1,)"),
        (lambda: mbd.Peak(lambda m: jnp.zeros((2, 2, 2))), "one number or one vector for each time"),
        (lambda: mbd.Peak(lambda m: {"a": corner(m)}, scale={"b": 1.0}), "quantity named 'a'"),
        (lambda: mbd.Peak(lambda m: {}), "returns no quantity"),
        (lambda: mbd.Peak(of(lambda m: None)), "returns None"),
    ],
)
def test_wrong_peaks(peak: Any, text: str) -> None:
    with pytest.raises(mbd.MechanismError, match=re.escape(text)):
        found(peak())
