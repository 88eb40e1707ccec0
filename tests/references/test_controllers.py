"""Controllers against published and independent numbers: a drive with limits and anti-windup, and a sampled one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

# A drive under a PI controller with limits and anti-windup (Modelica Standard Library, PID_Controller): angle, speed
# and integral after 4 s, and their derivatives by the gain; a method of order 8 and Radau IIA agree to 1e-11.
AT_FOUR = (1.83633877144, -8.8710932673e-06, -0.10000424862)
BY_GAIN = (-8.18149198262e-05, 9.74849145036e-07, 0.00100022824253)
LIMITED = (2.10186605188, 3.49515480856)
GAIN, RESET, LEAK = 100.0, 0.1, 0.1
PLATEAU = np.pi / 2 - 1
RAMP = np.array([0.5, 1.5, 1.5 + PLATEAU, 2.5 + PLATEAU])
TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-13}


def drive(coordinates: str, gain: Any = GAIN) -> pl.Mechanism:
    one, two = pl.Body("one", 1.0, 1.0), pl.Body("two", 1.0, 2.0)
    reference = mbd.Table(np.array([0.0, *RAMP, 9.0]), np.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0]), order=1)
    controller = pl.PID(
        "pi", "A.angle_rate", reference, kp=gain, ki=gain / RESET, drives="A.angle", limits=(-12.0, 12.0),
        tracking_time=RESET * LEAK, integral=-10.0,
    )  # fmt: skip
    joints = [pl.Revolute("A", pl.ground.at(), one.at()), pl.Revolute("B", one.at(), two.at())]
    forces = [pl.JointSpringDamper("shaft", "B.angle", 1e4, damping=100.0), pl.Torque("load", two.at(), 10.0)]
    return pl.Mechanism([one, two], joints, forces, controllers=[controller], coordinates=coordinates)


def driven(coordinates: str, gain: Any = GAIN, **settings: Any) -> mbd.Solution:
    mechanism = drive(coordinates, gain)
    start = mbd.assemble(mechanism, {"A.angle": 0.0, "B.angle": 1e-3})
    return mbd.simulate(mechanism, start, np.array([0.0, 4.0]), **(TIGHT | settings))


def demand(at: mbd.Snapshot) -> Array:
    """What the controller would give without limits."""
    return GAIN * (jnp.interp(at.t, RAMP, np.array([0.0, 1.0, 1.0, 0.0])) - at.v[0]) + at.z[0]


@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_a_drive_with_limits(coordinates: str) -> None:
    limit = mbd.Event("limit", demand, at=-12.0, then=mbd.LogOnly())
    solution = driven(coordinates, events=[limit] if coordinates == "joint" else [])
    found = [float(solution[name][-1]) for name in ("A.angle", "A.angle_rate", "pi.integral")]
    np.testing.assert_allclose([*found[:2], found[2] / GAIN], AT_FOUR, rtol=0, atol=1e-10)
    assert solution.engine != "diffrax"
    if coordinates == "joint":
        assert solution.events is not None
        np.testing.assert_allclose(solution.events.times_of("limit"), LIMITED, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"solver": mbd.Radau()}], ids=["explicit", "radau"])
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_by_the_gain(mode: Any, settings: dict[str, Any]) -> None:
    def end(gain: Array) -> Array:
        solution = driven("joint", gain, **settings)
        return jnp.stack([solution["A.angle"][-1], solution["A.angle_rate"][-1], solution["pi.integral"][-1] / gain])

    np.testing.assert_allclose(mode(end)(jnp.asarray(GAIN)), BY_GAIN, rtol=1e-7)


# A pendulum under a digital PID controller, 0.02 s, its torque limited for the first four samples: angle and speed
# after 1 and 3 s, without and with a delay of one sample; then derivatives (order 8 against Radau IIA: 1e-12).
SAMPLED = {
    0: (1.00589887317, -0.0303500880969, 1.00110548139, -0.000765543865754),
    1: (1.0105391072, -0.0135879382904, 1.00260880651, -0.0018099250792),
}
BY_KP, BY_KI = (-0.00153368376105, 0.00232955088305), (0.00235951010332, -0.00219238615284)
BY_PERIOD = (-1.3407872, 12.5573464)  # of 50 samples, at their end
PERIOD = 0.02


def pendulum(
    coordinates: str = "joint", kp: Any = 60.0, ki: Any = 40.0, period: Any = PERIOD, **more: Any
) -> pl.Mechanism:
    """Of inertia 1 kg m² about its hinge, and 9.81 N m of gravity."""
    rod = pl.Body("rod", 1.25, 0.2, pose=(0.0, -0.8, 0.0))
    hinge = pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.8))
    damper = pl.JointSpringDamper("damper", "O.angle", 0.0, damping=0.1)
    servo = pl.SampledPID(
        "servo", "O.angle", 1.0, period, kp, ki, 12.0, "O.angle", rate="O.angle_rate", limits=(-30.0, 30.0), **more
    )
    forces = [pl.Gravity(), damper]
    return pl.Mechanism([rod], [hinge], forces, controllers=[servo], coordinates=coordinates)


def swung(mechanism: pl.Mechanism, ts: Any, **settings: Any) -> Array:
    solution = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.0}), ts, **(TIGHT | settings))
    return jnp.stack([solution["O.angle"][1:], solution["O.angle_rate"][1:]], axis=1).ravel()


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("coordinates", ["joint", pytest.param("absolute", marks=pytest.mark.slow)])
def test_a_sampled_controller(coordinates: str, delay: int) -> None:
    found = swung(pendulum(coordinates, delay=delay), np.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(found, SAMPLED[delay], rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["stiff", "constant steps"])
def test_a_sampled_controller_by_other_methods(method: str) -> None:
    import diffrax as dfx

    steps: dict[str, Any] = {"solver": mbd.RungeKutta4(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 1e-3}
    mechanism = pendulum()
    start = mbd.assemble(mechanism, {"O.angle": 0.0})
    settings = {"solver": "stiff", **TIGHT} if method == "stiff" else steps
    solution = mbd.simulate(mechanism, start, np.array([0.0, 1.0, 3.0]), **settings)
    np.testing.assert_allclose(solution["O.angle"][1:], SAMPLED[0][::2], rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_sampled_motion(mode: Any) -> None:
    def end(kp: Array, ki: Array) -> Array:
        return swung(pendulum(kp=kp, ki=ki), np.array([0.0, 1.0]))

    by_kp, by_ki = mode(end, (0, 1))(jnp.asarray(60.0), jnp.asarray(40.0))
    np.testing.assert_allclose(by_kp, BY_KP, rtol=1e-8)
    np.testing.assert_allclose(by_ki, BY_KI, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_by_the_period(mode: Any) -> None:
    end = lambda period: swung(pendulum(period=period), jnp.stack([0.0 * period, 50 * period]))  # noqa: E731
    np.testing.assert_allclose(mode(end)(jnp.asarray(PERIOD)), BY_PERIOD, rtol=1e-7)


@pytest.mark.slow
def test_a_thousand_sampled_controllers_side_by_side() -> None:
    """Of other gains, and a few of other periods, each as alone."""
    gains, ts = jnp.linspace(50.0, 70.0, 1001), np.array([0.0, 1.0, 3.0])
    batch = jax.vmap(lambda kp: swung(pendulum(kp=kp), ts, throw=False))(gains)
    np.testing.assert_allclose(batch[500], SAMPLED[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(batch[70], swung(pendulum(kp=gains[70]), ts), rtol=0, atol=1e-11)
    periods = jnp.asarray([0.01, PERIOD, 0.03])
    batch = jax.jit(jax.vmap(lambda period: swung(pendulum(period=period, most=301), ts, throw=False)))(periods)
    np.testing.assert_allclose(batch[1], SAMPLED[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(batch[2], swung(pendulum(period=0.03), ts), rtol=0, atol=1e-11)
