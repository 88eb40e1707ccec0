"""Linear systems in discrete time: against SciPy, motions, and loops of digital controllers written by hand."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.signal
from jax import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.linearization.hold import held
from jaxmbd.analyses.linearization.sampled_system import balanced_sizes
from tests.marks import in_both_coordinates

G, DAMPING, PERIOD = 9.81, 0.1, 0.02
EXACT = 1e-12
TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-14}
BOTH = in_both_coordinates("joint")


def pendulum(*controllers: Any, coordinates: str = "joint") -> pl.Mechanism:
    """Of inertia 1 kg m² about its hinge, and 9.81 N m of gravity."""
    rod = pl.Body("rod", mass=1.25, inertia=0.2, pose=(0.0, -0.8, 0.0))
    hinge = pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.8))
    damper = pl.JointSpringDamper("damper", "O.angle", 0.0, damping=DAMPING)
    forces = [pl.Gravity(G), damper]
    return pl.Mechanism([rod], [hinge], forces, coordinates=coordinates, controllers=controllers)


def linearized(mechanism: pl.Mechanism, angle: float = 1.0, **names: Any) -> mbd.LinearSystem:
    name = "O.angle" if mechanism.coordinates == "joint" else "rod.theta"
    return mbd.linearize(mechanism, mbd.assemble(mechanism, {"O.angle": angle}), independent=[name], **names)


@pytest.fixture(scope="module")
def plant() -> mbd.LinearSystem:
    """Two inputs, of which the second one shows at once in the second output."""
    return linearized(pendulum(), inputs=["O.angle", "rod.fx"], outputs=["O.angle", "rod.ax"])


def matrices(system: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(x) for x in (system.A, system.B, system.C, system.D))


def held_by_scipy(system: mbd.LinearSystem, period: float) -> tuple[np.ndarray, ...]:
    found: Any = scipy.signal.cont2discrete(matrices(system), period)
    return found[:4]


# --- a mechanism without controllers --------------------------------------------------------------------------


def test_a_zero_order_hold_is_that_of_scipy(plant: mbd.LinearSystem) -> None:
    found = plant.sampled(PERIOD)
    for ours, theirs in zip(matrices(found), held_by_scipy(plant, PERIOD), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=EXACT)
    assert (found.states, found.inputs, found.outputs) == (plant.states, plant.inputs, plant.outputs)
    assert (found.input_units, found.output_units) == (plant.input_units, plant.output_units)
    z, poles = np.asarray(found.eigenvalues), np.linalg.eigvals(matrices(plant)[0])
    np.testing.assert_allclose(np.sort_complex(z), np.sort_complex(np.exp(poles * PERIOD)), atol=EXACT)
    assert found.is_stable
    np.testing.assert_allclose(found.spectral_radius, np.exp(-DAMPING / 2 * PERIOD), rtol=EXACT)
    assert not linearized(pendulum(), np.pi).sampled(PERIOD).is_stable
    text = str(found)
    assert "Sampled every 0.02 s, stable: the largest |z| is 0.999" in text
    assert f"{abs(poles[0]) / (2 * np.pi):.5g}" in text
    assert "takes part" in text
    assert float(found.to_xarray()["A"].sel(state="O.angle", state_="O.angle_rate")) == float(found.A[0, 1])


def test_steps_and_impulses_are_those_in_continuous_time(plant: mbd.LinearSystem) -> None:
    found, ts = plant.sampled(PERIOD), PERIOD * np.arange(50)
    steps = np.asarray(plant.step(ts))
    np.testing.assert_allclose(found.step(50), steps, atol=1e-11)
    late = np.concatenate([np.zeros_like(steps[:1]), steps[:-1]])
    np.testing.assert_allclose(found.impulse(50), steps - late, atol=1e-11)


@pytest.mark.parametrize("delay", [0.4, 1.0, 2.3])
def test_a_delay_is_a_hold_of_shorter_periods(plant: mbd.LinearSystem, delay: float) -> None:
    """Ten times as fast, where each of these delays is a whole number of samples."""
    found, (A, B, C, D) = plant.sampled(PERIOD, delay), held_by_scipy(plant, PERIOD / 10)
    waiting, late = int(np.ceil(delay)), round(10 * delay)
    ages = [f"{name}[k-{age}]" for age in range(waiting, 0, -1) for name in plant.inputs]
    assert found.states == (*plant.states, *ages)
    u = np.random.default_rng(0).normal(size=(20, 2))
    fast = np.concatenate([np.zeros((late, 2)), np.repeat(u, 10, axis=0)])
    x, y, expected = np.zeros(len(found.A)), [], []
    for k in range(20):
        y.append(found.C @ x + found.D @ u[k])
        x = found.A @ x + found.B @ u[k]
    z = np.zeros(2)
    for k in range(200):
        expected.append(C @ z + D @ fast[k])
        z = A @ z + B @ fast[k]
    np.testing.assert_allclose(y, expected[::10], atol=1e-11)
    np.testing.assert_allclose(x[:2], z, atol=1e-11)
    assert not np.any(found.D)


def test_a_delay_turns_the_phase(plant: mbd.LinearSystem) -> None:
    omega = np.array([0.5, 3.0, 40.0])
    prompt, late = (plant.sampled(PERIOD, delay).response(omega) for delay in (0, 2))
    np.testing.assert_allclose(late, prompt * np.exp(-2j * omega * PERIOD)[:, None, None], rtol=1e-9)
    slow = plant.sampled(PERIOD).response(np.array([1e-3]))
    np.testing.assert_allclose(slow, plant.response(np.array([1e-3])), rtol=1e-4)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_by_the_period_and_the_delay(plant: mbd.LinearSystem, mode: Any) -> None:
    """`dΦ/dT = A Φ`, `dΓ/dT = Φ B`; of the input that waits by the delay `−T e^{A (1 − f) T} B`."""
    A, B, *_ = matrices(plant)

    def made(period: Array, delay: Array) -> tuple[Array, Array]:
        found = plant.sampled(period, delay)
        return found.A, found.B

    by_period, by_delay = zip(*mode(made, (0, 1))(jnp.asarray(PERIOD), jnp.asarray(0.3)), strict=True)
    whole, rest = (scipy.linalg.expm(A * x * PERIOD) for x in (1.0, 0.7))
    np.testing.assert_allclose(by_period[0][:2, :2], A @ whole, atol=EXACT)
    np.testing.assert_allclose(by_period[0][:2, 2:] + by_period[1][:2], whole @ B, atol=EXACT)
    np.testing.assert_allclose(by_period[1][:2], 0.7 * rest @ B, atol=EXACT)
    np.testing.assert_allclose(by_delay[1][:2], -PERIOD * rest @ B, atol=EXACT)
    np.testing.assert_allclose(by_delay[0][:2, 2:], PERIOD * rest @ B, atol=EXACT)


def test_many_periods_at_once(plant: mbd.LinearSystem) -> None:
    periods = jnp.array([0.01, PERIOD, 0.5])
    A, radius = jax.jit(jax.vmap(lambda T: (plant.sampled(T).A, plant.sampled(T).spectral_radius)))(periods)
    for k, period in enumerate(periods):
        np.testing.assert_allclose(A[k], scipy.linalg.expm(plant.A * float(period)), atol=EXACT)
        np.testing.assert_allclose(radius[k], np.exp(-DAMPING / 2 * period), rtol=EXACT)


def test_states_of_very_different_units() -> None:
    """A rate of 1e7 periods beside a slow one, whose input has another size; balanced entries are near one another."""
    A, B = jnp.array([[-1e7, 1e7], [0.0, -1.0]]), jnp.array([[0.0], [1e-7]])
    kept, gained = held(A, B, jnp.ones(2), jnp.asarray(1.0))
    slow, rounding = np.exp(-1.0), 1e7 * 2.0**-52  # which squaring multiplies
    np.testing.assert_allclose(kept, [[0.0, slow * (1 + 1e-7)], [0.0, slow]], atol=rounding)
    np.testing.assert_allclose(gained[:, 0], [1e-7 * (1 - slow * (1 + 1e-7)), 1e-7 * (1 - slow)], rtol=rounding)
    large = jnp.array([[0.5, 1e-9, 1e7], [1e6, 0.5, 0.0], [0.0, 0.0, 0.0]])
    sizes = balanced_sizes(large, jnp.ones(3))
    entries = np.asarray(large * sizes[None] / sizes[:, None])
    np.testing.assert_allclose([entries[0, 1] / entries[1, 0], entries[0, 2]], 1.0, rtol=1e-6)


# --- a digital controller -------------------------------------------------------------------------------------

KP, KI, KD = 60.0, 40.0, 12.0


def servo(kp: Any = KP, ki: Any = KI, kd: Any = KD, period: Any = PERIOD, **more: Any) -> pl.SampledPID:
    more = {"rate": "O.angle_rate", "limits": (-30.0, 30.0)} | more
    return pl.SampledPID("servo", "O.angle", 1.0, period, kp, ki, kd, "O.angle", **more)


def by_hand(kp: float = KP, delay: int = 0, differs: bool = False, period: float = PERIOD) -> np.ndarray:
    """The loop in angle, rate, integral, what is held, and with `differs` the angle of the sample before."""
    A, B = np.array([[0.0, 1.0], [-G * np.cos(1.0), -DAMPING]]), np.array([[0.0], [1.0]])
    whole = scipy.linalg.expm(np.block([[A, B], [np.zeros((1, 3))]]) * period)
    n = 4 + delay
    before = n - 1
    integral = np.eye(1, n, 2) - KI * period * np.eye(1, n)
    rate = (np.eye(1, n) - np.eye(1, n, before)) / period if differs else np.eye(1, n, 1)
    output = integral - kp * np.eye(1, n) - KD * rate
    outputs = [*(np.eye(1, n, 3 + k) for k in range(delay)), output]
    rows = [whole[:2, :2] @ np.eye(2, n) + whole[:2, 2:] @ outputs[0], integral, *outputs[1:], np.eye(1, n)]
    return np.concatenate(rows)


@pytest.mark.parametrize("delay", [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)])
@BOTH
def test_the_loop_of_a_digital_controller(coordinates: str, delay: int) -> None:
    """Eigenvalues against a loop written by hand, and one of another gain at the edge of stability."""

    def loop(kp: float) -> mbd.SampledSystem:
        return linearized(pendulum(servo(kp, delay=delay), coordinates=coordinates)).sampled()

    found = loop(KP)
    expected = np.sort(np.abs(np.linalg.eigvals(by_hand(delay=delay))))
    z = np.sort(np.abs(np.asarray(found.eigenvalues)))
    np.testing.assert_allclose(z[-3:], expected[-3:], rtol=1e-9)
    assert found.is_stable
    assert "servo.samples" not in found.states
    radius = lambda kp: np.abs(np.linalg.eigvals(by_hand(kp, delay))).max()  # noqa: E731
    edge: Any = scipy.optimize.brentq(lambda kp: radius(kp) - 1, 100.0, 20000.0, xtol=1e-9)
    np.testing.assert_allclose(loop(edge).spectral_radius, 1.0, atol=1e-9)
    assert loop(0.999 * edge).is_stable
    assert not loop(1.001 * edge).is_stable


def test_a_difference_of_samples_and_its_memory() -> None:
    """The sample before counts as that of the equilibrium; the difference from a start at 0 would be limited."""
    found = linearized(pendulum(servo(rate=None))).sampled()
    expected = np.linalg.eigvals(by_hand(differs=True))
    np.testing.assert_allclose(
        np.sort(np.abs(np.asarray(found.eigenvalues)))[-4:], np.sort(np.abs(expected)), atol=1e-10
    )


def test_limits_that_hold_open_the_loop() -> None:
    """Far from the reference the output is at its limit: there the motion is that of the pendulum alone."""
    found, alone = linearized(pendulum(servo()), -0.5).sampled(), linearized(pendulum(), -0.5).sampled(PERIOD)
    np.testing.assert_allclose(found.A[:2, :2], alone.A, atol=EXACT)


def test_an_integral_without_gain_says_nothing_of_stability() -> None:
    found = linearized(pendulum(servo(ki=0.0))).sampled()
    np.testing.assert_array_equal(found.is_constant, [name == "servo.integral" for name in found.states])
    np.testing.assert_allclose(np.abs(found.eigenvalues).max(), 1.0, rtol=EXACT)
    A = by_hand()[:2, :2] + KI * PERIOD * _hold() @ np.eye(1, 2)
    np.testing.assert_allclose(found.spectral_radius, np.abs(np.linalg.eigvals(A)).max(), rtol=1e-10)
    assert found.is_stable


def _hold() -> np.ndarray:
    """What a unit torque makes of angle and rate in a period."""
    whole = scipy.linalg.expm(np.array([[0, 1, 0], [-G * np.cos(1.0), -DAMPING, 1], [0, 0, 0]]) * PERIOD)
    return whole[:2, 2:]


def test_inputs_and_outputs_of_the_loop() -> None:
    """The step of the reference: the output of the controller at once, the angle as a motion of small size."""
    names: dict[str, Any] = {"inputs": ["servo.reference", "O.angle"], "outputs": ["servo.output", "O.angle"]}
    found = linearized(pendulum(servo()), **names).sampled()
    np.testing.assert_allclose(found.D, [[KP + KI * PERIOD, 0.0], [0.0, 0.0]], atol=EXACT)
    np.testing.assert_allclose(found.C[1], np.eye(1, 5)[0], atol=EXACT)
    A, B = by_hand(), np.concatenate([np.zeros((2, 2)), [[KI * PERIOD, 0.0]], np.zeros((1, 2))])
    angle = np.array([x[0] for x in np.asarray(found.step(400))[:, 1]])
    assert abs(angle[-1] - 1.0) < 2e-2  # the integral makes it exact
    x, expected = np.zeros(4), []
    B[:2] = _hold() @ [[KP + KI * PERIOD, 0.0]]
    for _ in range(400):
        expected.append(x[0])
        x = A @ x + B[:, 0]
    np.testing.assert_allclose(angle, expected, atol=1e-10)


def differences(mechanism: pl.Mechanism, state: mbd.State, end: float, last: float) -> np.ndarray:
    """The state at `end` [s] before controllers compute, by central differences of motions; they compute last before
    `last`."""
    step, n = 1e-5, len(state.q)

    def moved(x: np.ndarray) -> np.ndarray:
        q, v, z = np.split(x, [n, 2 * n])
        at = eqx.tree_at(lambda s: (s.q, s.v, s.z), state, tuple(map(jnp.asarray, (q, v, z))))
        motion = mbd.simulate(mechanism, at, np.array([float(state.t), last, end]), **TIGHT)
        return np.concatenate([motion.q[2], motion.v[2], motion.z[1]])

    x = np.concatenate([state.q, state.v, state.z])
    return np.stack([(moved(x + step * e) - moved(x - step * e)) / (2 * step) for e in np.eye(len(x))], axis=1)


@pytest.mark.slow
def test_controllers_of_two_rates_are_those_of_a_motion() -> None:
    """A cascade, the outer loop three times slower and with a delay, its instants between those of the inner one; and
    a filter, over the time after which all repeats."""
    outer = pl.SampledPID(
        "outer", "O.angle", 0.0, 0.03, 6.0, ki=5.0, rate="O.angle_rate", kd=1.0, delay=1, offset=0.005
    )
    inner = pl.SampledPID("inner", "smooth.output", 0.0, 0.01, 8.0, kd=0.01, drives="O.angle", follows="outer.output")
    mechanism = pendulum(outer, inner, pl.LowPass("smooth", "O.angle_rate", 60.0))
    start = mbd.assemble(mechanism, {"O.angle": 0.0})
    found = mbd.linearize(mechanism, start, independent=["O.angle"]).sampled()
    np.testing.assert_allclose(found.period, 0.03, rtol=EXACT)
    names = mechanism.layout.z.names
    z = np.asarray(start.z).copy()
    z[names.index("outer.samples")], z[names.index("inner.samples")] = 1.0, 4.0
    state = eqx.tree_at(lambda s: (s.t, s.z), start, (jnp.asarray(0.035), jnp.asarray(z)))
    expected = differences(mechanism, state, 0.065, 0.0625)
    kept = [k for k, name in enumerate(mechanism.layout.names) if not name.endswith(".samples")]
    smooth = found.states.index("smooth.value")
    compared = [k for k in range(len(kept)) if k != smooth]  # which goes on until the end
    np.testing.assert_allclose(np.asarray(found.A)[compared], expected[kept][:, kept][compared], atol=2e-8)
    assert found.is_stable


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_the_stability_by_gain_and_period(mode: Any) -> None:
    def radius(kp: Array, period: Array) -> Array:
        return linearized(pendulum(servo(kp, period=period, delay=1))).sampled().spectral_radius

    by_kp, by_period = mode(radius, (0, 1))(jnp.asarray(900.0), jnp.asarray(PERIOD))
    expected = lambda kp, T: np.abs(np.linalg.eigvals(by_hand(kp, 1, period=T))).max()  # noqa: E731
    h = 1e-3
    np.testing.assert_allclose(by_kp, (expected(900 + h, PERIOD) - expected(900 - h, PERIOD)) / (2 * h), rtol=1e-6)
    h = 1e-7
    np.testing.assert_allclose(by_period, (expected(900, PERIOD + h) - expected(900, PERIOD - h)) / (2 * h), rtol=1e-6)


@pytest.mark.slow
def test_many_gains_at_once() -> None:
    gains = jnp.array([KP, 900.0])
    radius = jax.vmap(lambda kp: linearized(pendulum(servo(kp))).sampled().spectral_radius)(gains)
    expected = [np.abs(np.linalg.eigvals(by_hand(float(kp)))).max() for kp in gains]
    np.testing.assert_allclose(radius, expected, rtol=1e-9)


@pytest.mark.slow
def test_an_equilibrium_remembers_what_is_read() -> None:
    """The first difference of a motion from there is zero, and so is what follows."""
    mechanism = pendulum(servo(ki=0.0, rate=None))
    state = mbd.equilibrium(mechanism, {"O.angle": 0.8}).state
    np.testing.assert_allclose(mbd.read(mechanism, state, "servo.before"), mbd.read(mechanism, state, "O.angle"))
    motion = mbd.simulate(mechanism, state, np.array([0.0, 0.5]), **TIGHT)
    np.testing.assert_allclose(motion["O.angle"][-1], motion["O.angle"][0], atol=1e-10)


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give the period [s]"),
        ({"period": 0.0}, "period must be positive [s] and finite, got 0."),
        ({"period": [0.1, 0.2]}, "period must be a number, got shape (2,)"),
        ({"period": 0.1, "delay": -1.0}, "delay must be zero or positive [samples]"),
        ({"period": 0.1, "delay": 1e6}, "delay must be 1000 samples at most, got 1e+06"),
        ({"period": 0.1, "delay": "late"}, "delay must be a number"),
    ],
)
@pytest.mark.usefixtures("as_a_user_runs_it")
def test_wrong_periods_and_delays(plant: mbd.LinearSystem, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(mbd.MechanismError) as error:
        plant.sampled(**arguments)
    assert text in str(error.value)


def test_delays_that_are_not_known(plant: mbd.LinearSystem) -> None:
    with pytest.raises(mbd.MechanismError, match="depends on the delay, which is not known inside jit"):
        jax.jit(lambda delay: plant.sampled(0.1, delay).A)(0.5)
    with pytest.raises(mbd.MechanismError, match="derivative by the delay needs one that is not zero"):
        jax.jacfwd(lambda delay: plant.sampled(0.1, delay).A)(0.0)
    with pytest.raises(mbd.MechanismError, match="step: count must be"):
        plant.sampled(0.1).step(0)


def test_periods_of_controllers_that_do_not_fit() -> None:
    loop = linearized(pendulum(servo()))
    with pytest.raises(mbd.MechanismError, match="such as 'servo': leave it out"):
        loop.sampled(0.01)
    with pytest.raises(mbd.MechanismError, match="delays of their own, in samples: give the delay there"):
        loop.sampled(delay=1)
    other = pl.SampledPID("other", "O.angle", 0.0, 0.02 * np.sqrt(2), 1.0)
    both = eqx.tree_at(lambda s: s.mechanism, loop, pendulum(servo(), other))
    with pytest.raises(mbd.MechanismError, match=r"do not repeat.*'servo' 0.02 s, 'other' 0.0282843 s"):
        both.sampled()
