"""Measured motions: without noise, with more coordinates than degrees of freedom, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.numeric import worst

TS = np.linspace(0.0, 2.0, 401)
ALL = ("A.angle", "B.angle", "C.angle", "D.angle")


def four_bar(coordinates: str = "joint", length: Any = 1.1) -> Any:
    crank, coupler = pl.Body("crank", 1.0, 0.02, (0.1, 0.15, 1.2)), pl.Body("coupler", 1.0, 0.08, (0.75, 0.6, 0.5))
    rocker = pl.Body("rocker", 1.2, 0.07, (1.15, 0.45, 1.3))
    joints = [
        pl.Revolute("A", pl.ground.at(), crank.at(-0.17)),
        pl.Revolute("B", crank.at(0.17), coupler.at(-length / 2)),
        pl.Revolute("C", coupler.at(length / 2), rocker.at(0.45)),
        pl.Revolute("D", pl.ground.at(1.0, 0.0), rocker.at(-0.45)),
    ]
    return pl.Mechanism([crank, coupler, rocker], joints, [pl.Gravity()], coordinates=coordinates)


def turned(coordinates: str = "joint", length: Any = 1.1) -> Any:
    motor = pl.Driver("motor", "A.angle", lambda t: 1.2 + 2.0 * t + 0.3 * jnp.sin(3.0 * t))
    return four_bar(coordinates, length).with_parts([motor])


@pytest.fixture(scope="module")
def true() -> mbd.Solution:
    return mbd.inverse_dynamics(turned(), TS)


@pytest.fixture(scope="module")
def exact(true: mbd.Solution) -> list[dict[str, np.ndarray]]:
    """Values, rates and second rates of all joint angles."""
    values = {name: np.asarray(true[name]) for name in ALL}
    rates = {name: np.asarray(true[f"{name}_rate"]) for name in ALL}
    h = 1e-4
    ahead, back = (mbd.kinematics(turned(), np.concatenate([[0.0], TS[1:] + s])) for s in (h, -h))
    second = {n: np.asarray(ahead[f"{n}_rate"] - back[f"{n}_rate"])[1:] / (2 * h) for n in ALL}
    return [{n: x[1:] for n, x in values.items()}, {n: x[1:] for n, x in rates.items()}, second]


@pytest.mark.parametrize("coordinates", ["joint", pytest.param("absolute", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "names", [ALL[2:3], ALL, *(pytest.param(x, marks=pytest.mark.slow) for x in (ALL[:1], ALL[1:]))]
)
def test_any_set_of_coordinates_gives_the_motion_and_its_effort(
    true: mbd.Solution, exact: list[dict[str, np.ndarray]], names: tuple[str, ...], coordinates: str
) -> None:
    ts, given = TS[1::20], [{n: x[n][::20] for n in names} for x in exact]
    motion = mbd.MeasuredMotion(ts, *given, smoothing="none")
    mechanism = four_bar(coordinates)
    found = mbd.inverse_dynamics(mechanism, motion, {"push": "A.angle"})
    for name in ("coupler.theta", "coupler.omega", "rocker.alpha"):
        assert worst(found[name] - true[name][1::20]) < 1e-5 * worst(true[name]), name
    effort = np.asarray(true.effort("motor"))[1::20]
    assert worst(found.effort("push") - effort) < 1e-5 * worst(effort)
    assert worst(mbd.kinematics(mechanism, motion)["D.angle_rate"] - true["D.angle_rate"][1::20]) < 1e-6


@pytest.mark.parametrize(
    "smoothing", ["kalman", *(pytest.param(x, marks=pytest.mark.slow) for x in ("spline", "butterworth"))]
)
def test_noisy_samples(true: mbd.Solution, smoothing: Any) -> None:
    draws = np.random.default_rng(0)
    noisy = {name: np.asarray(true[name]) + 1e-3 * draws.standard_normal(len(TS)) for name in ALL}
    errors = []
    for names in (ALL[:1], ALL):
        motion = mbd.MeasuredMotion(TS, {name: noisy[name] for name in names}, smoothing=smoothing)
        if smoothing != "butterworth":
            assert float(motion.noise["A.angle"]) == pytest.approx(1e-3, rel=0.15)
        found = mbd.kinematics(four_bar(), motion)
        inner = slice(40, -40)
        errors.append([np.std((found[n] - true[n])[inner]) for n in ("A.angle", "A.angle_rate")])
    assert errors[0][0] < 6e-4
    assert errors[0][1] < 0.02
    # The loops use what the other encoders say.
    assert errors[1][0] < errors[0][0]
    assert errors[1][1] < errors[0][1] * (1.0 if smoothing != "butterworth" else 1.2)  # the cutoffs differ by encoder


def test_precise_coordinates_count_more(true: mbd.Solution) -> None:
    """The reconciled motion follows an encoder of 0.01 mrad, and not one of 10 mrad."""
    draws = np.random.default_rng(0)
    levels = {"A.angle": 1e-2, "D.angle": 1e-5}
    noisy = {name: np.asarray(true[name]) + x * draws.standard_normal(len(TS)) for name, x in levels.items()}
    motion = mbd.MeasuredMotion(TS, noisy, smoothing="kalman")
    found = mbd.kinematics(four_bar(), motion)
    assert np.std(found["D.angle"] - true["D.angle"]) < 2e-5


def test_speeds_that_are_measured_make_accelerations_better(true: mbd.Solution) -> None:
    draws = np.random.default_rng(0)
    angle = {"A.angle": np.asarray(true["A.angle"]) + 1e-3 * draws.standard_normal(len(TS))}
    rate = {"A.angle": np.asarray(true["A.angle_rate"]) + 3e-3 * draws.standard_normal(len(TS))}
    motions = mbd.MeasuredMotion(TS, angle), mbd.MeasuredMotion(TS, angle, rate)
    exact = -2.7 * np.sin(3.0 * TS)
    first, second = (np.std(np.asarray(m.samples["A.angle"])[:, 2] - exact) for m in motions)
    assert second < 0.5 * first


@pytest.mark.parametrize("mode", ["forward", pytest.param("reverse", marks=pytest.mark.slow)])
def test_derivatives_of_efforts_along_a_measured_motion(true: mbd.Solution, mode: str) -> None:
    """By a length, with the crank's angle held."""
    motion = mbd.MeasuredMotion(TS[::40], {"A.angle": np.asarray(true["A.angle"])[::40]}, smoothing="spline")

    def effort(length: Any) -> Any:
        return jnp.sum(mbd.inverse_dynamics(four_bar("joint", length), motion, {"push": "A.angle"}).effort("push") ** 2)

    derivative = (jax.jacfwd if mode == "forward" else jax.grad)(effort)(1.1)
    h = 1e-5
    expected = (effort(1.1 + h) - effort(1.1 - h)) / (2 * h)
    assert abs(derivative - expected) < 1e-6 * abs(expected)


def test_wrong_samples_are_named() -> None:
    some = np.sin(TS)
    with pytest.raises(mbd.MechanismError, match=r"no measured position, for speeds named 'B.angle'"):
        mbd.MeasuredMotion(TS, {"A.angle": some}, {"B.angle": some})
    with pytest.raises(mbd.MechanismError, match=r"'A\.angle'.*401.*400"):
        mbd.MeasuredMotion(TS, {"A.angle": some[:-1]})
    with pytest.raises(
        mbd.MechanismError, match=r"'A\.angle': smoothing='spline' takes positions alone, and no speeds"
    ):
        mbd.MeasuredMotion(TS, {"A.angle": some}, {"A.angle": some}, smoothing="spline")
    with pytest.raises(mbd.MechanismError, match="smoothing='none' needs positions, speeds and accelerations"):
        mbd.MeasuredMotion(TS, {"A.angle": some}, smoothing="none")
    with pytest.raises(mbd.MechanismError, match=r"'A\.angle'.*speeds.*\(401,\)"):
        mbd.MeasuredMotion(TS, {"A.angle": some}, {"A.angle": some[:3]}, {"A.angle": some}, smoothing="none")
    with pytest.raises(mbd.MechanismError, match=r"ts must increase"):
        mbd.MeasuredMotion(TS[::-1], {"A.angle": some})
    motion = mbd.MeasuredMotion(TS, {"E.angle": some}, smoothing="spline")
    with pytest.raises(mbd.MechanismError, match="no joint or body named 'E'"):
        mbd.kinematics(four_bar(), motion)
    pendulum = mbd.examples.get("double-pendulum").mechanism
    one = mbd.MeasuredMotion(TS, {f"{pendulum.joints[0].name}.angle": some}, smoothing="spline")
    with pytest.raises(mbd.MechanismError, match="Too few drivers for a kinematic analysis"):
        mbd.kinematics(pendulum, one)
