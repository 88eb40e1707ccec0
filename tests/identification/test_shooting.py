"""Multiple shooting: what one shot fits, segments fit too; and what one shot cannot fit."""

import warnings
from functools import cache
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import demo
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.data import double_pendulum
from jaxmbd.identification import Instrument, Parameter, Positive, Problem, error_growth
from jaxmbd.identification._segments import jump_residuals
from tests.identification.swings import plain_pendulum

NOISE = 2e-3
STEPS: dict[str, Any] = {
    "solver": mbd.RungeKutta4(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01, "max_steps": 5000,
}  # fmt: skip


def double(mass: Any = 1.0, friction: Any = 0.02) -> pl.Mechanism:
    """Two bars of 1 m, with friction in the elbow."""
    upper, lower = (pl.Body(name, m, 0.1) for name, m in (("upper", 1.0), ("lower", mass)))
    return pl.Mechanism(
        [upper, lower],
        [
            pl.Revolute("A", pl.ground.at(), upper.at(0.0, 0.5)),
            pl.Revolute("B", upper.at(0.0, -0.5), lower.at(0.0, 0.5)),
        ],
        [pl.Gravity(9.81), pl.JointFriction("friction", "B.angle", viscous=friction)],
        coordinates="joint",
    )


FREE = {
    "mass": Parameter(lambda m: m["lower"].mass, within=Positive(), unit="kg"),
    "friction": Parameter(lambda m: m["friction"].viscous, within=Positive(), unit="N m s"),
}
FRICTION = FREE["friction"]
TRUE = {"mass": 1.2, "friction": 0.03}
NAMES = ("A.angle", "B.angle")


@cache
def record(duration: float, start: float = 2.0) -> mbd.Experiment:
    """A motion that overturns, so that small changes grow."""
    mechanism = double(TRUE["mass"], TRUE["friction"])
    ts = np.arange(0.0, duration, 0.04)
    state = mbd.assemble(mechanism, {"A.angle": start, "B.angle": 0.5})
    motion = mbd.simulate(mechanism, state, ts, **STEPS)
    draws = np.random.default_rng(0)
    data = {name: np.asarray(motion[name]) + NOISE * draws.normal(size=len(ts)) for name in NAMES}
    initial = {"A.angle": start, "B.angle": 0.5}
    return mbd.Experiment(ts, data, start=initial, speeds=dict.fromkeys(NAMES, 0.0), estimate=True, sigma=NOISE)


def test_jumps_are_differences_of_ends_and_starts_in_their_deviations() -> None:
    """Of each joint of each experiment, against motions of the segments one by one."""
    mechanism, ts, continuity = plain_pendulum(), np.linspace(0.0, 1.2, 13), 0.02
    starts = {"start:O.angle": np.array([0.5, 0.3, -0.2, 1.0, 0.7, 0.1]), "speed:O.angle": np.linspace(-1.0, 1.0, 6)}
    experiments = [
        mbd.Experiment(ts, {"O.angle": np.zeros(13)}, {"O.angle": x}, {"O.angle": 0.0}, estimate=True) for x in (0.5, 1)
    ]
    problem = Problem(mechanism, experiments, {}, segments=3, continuity=continuity, **STEPS)
    theta = problem.start()._replace(experiments=({name: jnp.asarray(x) for name, x in starts.items()},))
    expected = []
    for k in (0, 1, 3, 4):
        state = mbd.assemble(
            mechanism, {"O.angle": starts["start:O.angle"][k]}, speeds={"O.angle": starts["speed:O.angle"][k]}
        )
        motion = mbd.simulate(mechanism, state, ts[[0, 4]], **STEPS)
        for channel, name in (("O.angle_rate", "speed:O.angle"), ("O.angle", "start:O.angle")):
            expected.append((float(motion[channel][-1]) - starts[name][k + 1]) / continuity)
    np.testing.assert_allclose(jump_residuals(problem, theta), expected, rtol=1e-9)
    whole = Problem(mechanism, experiments, {}, **STEPS)
    assert jump_residuals(whole, whole.start()).size == 0


def similar(size: float) -> tuple[Problem, Any]:
    """A slider that hangs on a spring, 0.1 to 0.3 of a size long, in segments, and states at their starts that do not
    join: similar at each size, with times in proportion to its root."""
    pace = size**0.5
    slider = pl.Body("slider", 1.0, 0.1 * size**2, pose=(0.0, -0.2 * size, 0.0))
    mechanism = pl.Mechanism(
        [slider],
        [pl.Prismatic("rail", pl.ground.at(size, 0.0, np.pi / 2), slider.at(size, 0.0, np.pi / 2))],
        [
            pl.Gravity(9.81),
            pl.SpringDamper("spring", pl.ground.at(0.0, size), slider.at(), 100.0 / size, free_length=size),
        ],
    )
    ts, data = pace * np.linspace(0.0, 0.3, 7), {"slider.y": np.zeros(7)}
    one = mbd.Experiment(ts, data, {"slider.y": -0.2 * size}, {"slider.vy": 0.0}, estimate=True)
    steps = STEPS | {"dt0": 0.01 * pace}
    problem = Problem(mechanism, one, {}, segments=2, continuity=0.01, **steps)
    own = {"start:slider.y": size * jnp.array([-0.2, -0.1]), "speed:slider.vy": pace * jnp.array([0.1, 0.7])}
    return problem, problem.start()._replace(experiments=(own,))


def test_jumps_of_similar_mechanisms_are_as_large() -> None:
    """A jump of a length, or of a speed, counts as a share of what the mechanism's size and pace are."""
    jumps = [np.asarray(jump_residuals(*similar(size))) for size in (1.0, 0.01)]
    assert (np.abs(jumps[0]) > 0.1).all()
    np.testing.assert_allclose(jumps[1], jumps[0], rtol=1e-6)


def test_segments_of_a_body_that_turns_join_where_its_angle_starts_anew() -> None:
    """A yaw, which is read between minus and plus half a turn, of a body that turns on."""
    body = sp.Body("body", mass=1.0, inertia=np.eye(3))
    mechanism = sp.Mechanism([body], [sp.Revolute("J", sp.ground.at(), body.at())])
    ts = np.linspace(0.0, 1.0, 5)
    one = mbd.Experiment(ts, {"J.angle": np.zeros(5)}, {"body.yaw": 0.3}, {"J.angle": 8.0}, estimate=True)
    problem = Problem(mechanism, one, {}, segments=4, continuity=1e-3, **STEPS)
    own = {"start:body.yaw": jnp.array([0.3, 2.3, 4.3, 6.3]), "speed:J.angle": jnp.full(4, 8.0)}
    residuals = jump_residuals(problem, problem.start()._replace(experiments=(own,)))
    np.testing.assert_allclose(residuals, np.zeros(6), atol=1e-4)  # a turn is 6283


def test_segments_of_a_short_motion_give_the_fit_of_one_shot() -> None:
    """The same estimates, standard errors and predictions, where both ways are possible; the segments join."""
    one = mbd.fit(Problem(double(1.15, 0.025), record(2.0), FREE, **STEPS), progress=False)
    several = mbd.fit(Problem(double(1.15, 0.025), record(2.0), FREE, segments=4, **STEPS), progress=False)
    assert one.outcome == several.outcome == "converged"
    assert one.standard_errors is not None
    assert several.standard_errors is not None
    for name in FREE:
        error = float(one.standard_errors[name])
        assert abs(float(several.parameters[name] - one.parameters[name])) < 0.01 * error
        assert float(several.standard_errors[name]) == pytest.approx(error, rel=1e-3)
    for name in NAMES:
        np.testing.assert_allclose(several.predicted[0][name], one.predicted[0][name], atol=5e-5)
    np.testing.assert_array_equal(several.experiments[0].ts, record(2.0).ts)
    np.testing.assert_array_equal(several.experiments[0].data["A.angle"], record(2.0).data["A.angle"])
    whole = several.problem.readings(several.theta)[0]["B.angle"][0]
    np.testing.assert_allclose(whole, several.predicted[0]["B.angle"], atol=5e-5)


@pytest.mark.slow
def test_segments_fit_a_chaotic_motion_that_one_shot_does_not() -> None:
    experiment = record(10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mbd.FitWarning)
        one = mbd.fit(Problem(double(1.0, 0.02), experiment, FREE, **STEPS), steps=100, progress=False)
    several = mbd.fit(Problem(double(1.0, 0.02), experiment, FREE, segments=20, **STEPS), steps=100, progress=False)
    assert min(one.rms()[0].values()) > 50 * NOISE
    assert several.outcome == "converged"
    assert max(several.rms()[0].values()) < 1.2 * NOISE
    for name, true in TRUE.items():
        lower, upper = several.interval(0.999)[name]
        assert lower < true < upper


def test_growth_of_errors_is_that_of_two_motions() -> None:
    """Of experiments of other lengths, by difference quotients of their motions."""
    experiments = [record(4.0), record(2.0)]
    problem = Problem(double(), experiments, FREE, rtol=1e-10, atol=1e-11)
    growth, step, quantities = error_growth(problem), 1e-6, [*NAMES, *(f"{name}_rate" for name in NAMES)]
    for experiment, found in zip(experiments, growth, strict=True):

        def states(x: np.ndarray, ts: Any = experiment.ts) -> np.ndarray:
            mechanism = double()
            state = mbd.assemble(
                mechanism, dict(zip(NAMES, x[:2], strict=True)), speeds=dict(zip(NAMES, x[2:], strict=True))
            )
            motion = mbd.simulate(mechanism, state, ts, rtol=1e-10, atol=1e-11)
            return np.stack([motion[name] for name in quantities], axis=1)

        start = np.array([2.0, 0.5, 0.0, 0.0])
        scale = states(start).std(axis=0)
        steps = step * np.diag(scale)
        quotients = [(states(start + s) - states(start - s)) / (2 * step * scale) for s in steps]
        largest = np.linalg.norm(np.stack(quotients, axis=2), 2, axis=(1, 2)).max()
        assert found == pytest.approx(largest, rel=1e-4)
    assert growth[0] > 3 * growth[1] > 3


def test_growth_of_errors_with_fixed_parameters() -> None:
    """Those of a fit, in place of the values at which its search started."""
    ts = np.linspace(0.0, 1.0, 11)
    one = mbd.Experiment(ts, {"O.angle": np.zeros(11)}, {"O.angle": 1.0}, {"O.angle": 0.0}, estimate=True)
    weak, strong = (Problem(plain_pendulum(1.0, viscous), one, {"friction": FRICTION}) for viscous in (0.1, 3.0))
    fixed = weak.validation(strong.start(), one)
    assert error_growth(fixed)[0] == pytest.approx(error_growth(strong)[0], rel=1e-9)
    assert error_growth(weak)[0] > 1.1 * error_growth(strong)[0]


@pytest.mark.slow
def test_number_of_segments_by_the_growth_of_errors() -> None:
    experiment = record(10.0)
    chaotic = Problem(double(), experiment, FREE, segments="auto", **STEPS)
    (growth,) = error_growth(chaotic)
    count = chaotic.stacks[0].segments
    assert 10 ** (count - 1) < growth <= 10**count
    assert count > 4
    assert chaotic.shooting.startswith(f"Multiple shooting with {count} segments: errors of the initial states grow ")
    short = Problem(double(1.15, 0.025), record(1.0), FREE, segments="auto", **STEPS)
    assert not short.is_cut
    result = mbd.fit(short, progress=False)
    assert "Single shooting: errors of the initial states grow " in repr(result)
    assert Problem(double(), experiment, FREE, **STEPS).shooting == ""
    few: dict[str, Any] = STEPS | {"max_steps": 5}
    with pytest.raises(mbd.SolveError, match=r"experiment 0 cannot be simulated .* maximum number of steps"):
        Problem(double(), record(1.0), FREE, segments="auto", **few)


def test_what_cannot_be_cut_is_named() -> None:
    experiment = record(2.0)
    encoder = {"encoder": Instrument("A.angle", delay=0.01)}
    data = {"encoder": experiment.data["A.angle"]}
    measured = mbd.Experiment(experiment.ts, data, start=experiment.start, speeds=experiment.speeds, estimate=True)
    with pytest.raises(mbd.MechanismError, match="Instrument 'encoder' has a delay or a filter"):
        Problem(double(), measured, FREE, segments=3, instruments=encoder)
    fixed = mbd.Experiment(experiment.ts, experiment.data, start=experiment.start, speeds=experiment.speeds)
    with pytest.raises(mbd.MechanismError, match=r"all of them estimated.*start:A.angle"):
        Problem(double(), fixed, FREE, segments=3)
    with pytest.raises(mbd.MechanismError, match="50 times cannot be cut into 60 segments"):
        Problem(double(), experiment, FREE, segments=60)


# --- a measured record ----------------------------------------------------------------------------------


def measured(segments: range) -> mbd.Experiment:
    """Segments of the measured double pendulum, which follow one another, as one record; from its first sample."""
    data = double_pendulum()
    angles = [np.unwrap(np.concatenate([data[name][k] for k in segments])) for name in ("theta1", "theta2")]
    rates = [data[name][segments[0], 0] for name in ("omega1", "omega2")]
    ts = data["t"][1] * np.arange(len(angles[0]))
    bodies = ("arm1", "arm2")
    return mbd.Experiment(
        ts[:: demo.EVERY],
        {f"angle{k + 1}": angles[k][:: demo.EVERY] for k in range(2)},
        start={f"{body}.theta": np.pi / 2 - x[0] for body, x in zip(bodies, angles, strict=True)},
        speeds={f"{body}.omega": -x for body, x in zip(bodies, rates, strict=True)},
        estimate=True, sigma=1e-3,
    )  # fmt: skip


@pytest.mark.slow
def test_a_measured_record_of_13_s_in_one_piece() -> None:
    """Without jumps, to 3 and 5 mrad over all of it."""
    problem = Problem(demo.pendulum, measured(range(5)), demo.free_parameters(), segments=20, **demo.SETTINGS)
    result = mbd.fit(problem, progress=False)
    assert result.outcome == "converged"
    readings = result.problem.readings(result.theta)[0]
    for name, most in (("angle1", 3e-3), ("angle2", 5e-3)):
        error = np.asarray(readings[name][0]) - np.asarray(result.experiments[0].data[name])
        assert np.sqrt(np.mean(error**2)) < most
        np.testing.assert_allclose(result.predicted[0][name], readings[name][0], atol=5e-4)


@pytest.mark.slow
def test_a_measured_record_of_69_s_with_weighted_continuity() -> None:
    problem = Problem(
        demo.pendulum, measured(range(26)), demo.free_parameters(), segments=104, continuity=0.01, **demo.SETTINGS
    )
    result = mbd.fit(problem, progress=False)
    assert result.outcome == "converged"
    assert max(result.rms()[0].values()) < 5e-4
    assert result.standard_errors is not None
    for name, published in demo.PUBLISHED.items():
        assert abs(float(result.parameters[name]) - published) < 0.02 * published
    alone = Problem(demo.pendulum, measured(range(26)), demo.free_parameters(), **demo.SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mbd.FitWarning)
        shot = mbd.fit(alone, steps=30, progress=False)
    assert min(shot.rms()[0].values()) > 0.02
