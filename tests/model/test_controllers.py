"""Controllers, filters and delays as parts: what they read, compute and drive; closed forms of the linear ones."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.errors import MechanismError
from jaxmbd.io import write_mjcf, write_urdf

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
RATE = 3.0  # of what turns, or swings


def turned(*controllers: Any, motion: Any = lambda t: jnp.sin(RATE * t), sensors: Any = ()) -> pl.Mechanism:
    """A disc whose angle is prescribed, so that what a filter reads is known."""
    disc = pl.Body("disc", 1.0, 0.1)
    joint, drive = pl.Revolute("O", pl.ground.at(), disc.at()), pl.Driver("drive", "O.angle", motion)
    return pl.Mechanism([disc], [joint], (), [drive], sensors, coordinates="joint", controllers=controllers)


def over(mechanism: Any, end: float = 2.0, **settings: Any) -> mbd.Solution:
    start = mbd.assemble(mechanism)
    return mbd.simulate(mechanism, start, np.linspace(0.0, end, 9), **(TIGHT | settings))


def arm(*controllers: Any, forces: Any = (), coordinates: str = "joint") -> pl.Mechanism:
    """A pendulum with a body that hangs on it."""
    upper, lower = pl.Body("upper", 1.0, 0.1), pl.Body("lower", 1.0, 0.1)
    joints = [pl.Revolute("O", pl.ground.at(), upper.at(-0.5)), pl.Revolute("A", upper.at(0.5), lower.at(-0.5))]
    sensors = [pl.Point("tip", lower.at(0.5)), pl.PointVelocity("v", lower.at(0.5)), pl.Scaled("twice", "O.angle", 2.0)]
    return pl.Mechanism(
        [upper, lower],
        joints,
        [pl.Gravity(), *forces],
        sensors=sensors,
        coordinates=coordinates,
        controllers=controllers,
    )


def swung(mechanism: Any, end: float = 0.7, times: int = 5, **settings: Any) -> mbd.Solution:
    start = mbd.assemble(mechanism, {"O.angle": 0.3, "A.angle": -0.5}, speeds={"O.angle": 1.0, "A.angle": -2.0})
    return mbd.simulate(mechanism, start, np.linspace(0.0, end, times), **(TIGHT | settings))


# --- closed forms ---------------------------------------------------------------------------------------------


def test_a_low_pass_filter_of_first_order() -> None:
    """`ẏ = ω (sin at − y)`: the response of a linear system, and its start."""
    w = 5.0
    solution = over(turned(pl.LowPass("smooth", "O.angle", w, value=0.7)))
    t = np.asarray(solution.ts)
    amplitude = w / (w**2 + RATE**2)
    steady = amplitude * (w * np.sin(RATE * t) - RATE * np.cos(RATE * t))
    expected = steady + (0.7 + amplitude * RATE) * np.exp(-w * t)
    np.testing.assert_allclose(solution["smooth.output"], expected, atol=1e-10)
    np.testing.assert_allclose(solution["smooth.value"], expected, atol=1e-10)
    assert solution.engine != "diffrax"


def test_a_low_pass_filter_of_second_order_is_a_state_space() -> None:
    w, zeta = 5.0, 0.3
    A, B, C = np.array([[0.0, 1.0], [-(w**2), -2 * zeta * w]]), np.array([[0.0], [w**2]]), np.array([[1.0, 0.0]])
    filters = [
        pl.LowPass("smooth", "O.angle", w, zeta, value=0.2, slope=-1.0),
        pl.StateSpace("same", "O.angle", A, B, C, state=[0.2, -1.0]),
    ]
    solution = over(turned(*filters))
    np.testing.assert_allclose(solution["same.output"][:, 0], solution["smooth.output"], atol=1e-10)
    np.testing.assert_allclose(solution["same.state[1]"], solution["smooth.slope"], atol=1e-9)
    # Its transfer function: the response to a sine as the imaginary part of that to `exp(i a t)`, and what dies away.
    t, s = np.asarray(solution.ts), 1j * RATE
    response = np.linalg.solve(s * np.eye(2) - A, B[:, 0])
    free = np.array([scipy.linalg.expm(A * x) @ (np.array([0.2, -1.0]) - response.imag) for x in t])
    np.testing.assert_allclose(solution["smooth.output"], np.imag(response[0] * np.exp(s * t)) + free[:, 0], atol=1e-9)


def test_a_state_space_acts_about_its_point() -> None:
    """`y = y₀ + C x + D (u − u₀)` of two quantities with two outputs."""
    part = pl.StateSpace(
        "c", ["O.angle", "O.angle_rate"], [[-2.0]], [[1.0, 0.5]], [[3.0], [1.0]], [[0.0, 2.0], [1.0, 0.0]],
        read_at=[0.1, 0.2], output_at=[5.0, -1.0], state=[0.4],
    )  # fmt: skip
    solution = over(turned(part))
    angle, rate, x = (np.asarray(solution[name]) for name in ("O.angle", "O.angle_rate", "c.state[0]"))
    np.testing.assert_allclose(solution["c.output"][:, 0], 5.0 + 3 * x + 2 * (rate - 0.2), atol=1e-12)
    np.testing.assert_allclose(solution["c.output"][:, 1], -1.0 + x + (angle - 0.1), atol=1e-12)


@pytest.mark.parametrize("order", [1, 6])
def test_a_delay_is_its_pade_approximant(order: int) -> None:
    """Of degree 0 in the numerator and 1 in the denominator a filter; of order 6 a sine that is late."""
    delay = 0.3
    solution = over(turned(pl.PadeDelay("late", "O.angle", delay, order)), 3.0)
    if order == 1:
        filtered = over(turned(pl.LowPass("smooth", "O.angle", 1 / delay)), 3.0)
        np.testing.assert_allclose(solution["late.output"], filtered["smooth.output"], atol=1e-10)
    else:
        np.testing.assert_allclose(solution["late.output"][2:], np.sin(RATE * (solution.ts[2:] - delay)), atol=1e-5)
    constant = turned(pl.PadeDelay("late", "O.angle", delay, order, history=[0.4] + [0.0] * (order - 1)), motion=0.4)
    np.testing.assert_allclose(over(constant)["late.output"], 0.4, rtol=1e-10)


def test_without_limits_there_are_no_sides() -> None:
    """Beside a law that has some, and where a loop holds none: an integral is no side."""
    held = pl.PID("hold", "O.angle", 0.0, kp=10.0, ki=3.0, drives="O.angle", integral=0.7)
    mechanism = arm(held, forces=[pl.Backlash("teeth", "A.angle", 50.0, damping=0.1, play=0.2)])
    native, foreign = (swung(mechanism, engine=engine) for engine in ("auto", "diffrax"))
    assert native.engine != "diffrax"
    assert native["hold.integral"][0] == foreign["hold.integral"][0] == 0.7
    np.testing.assert_allclose(native["hold.integral"], foreign["hold.integral"], atol=1e-7)


@pytest.mark.slow
def test_a_pid_controller_with_a_filtered_derivative() -> None:
    """Of a known quantity: proportional, integral and derivative terms in closed form."""
    part = pl.PID("pid", "O.angle", 2.0, 3.0, 4.0, 5.0, filter_time=0.1, integral=0.5)
    solution = over(turned(part))
    t = np.asarray(solution.ts)
    integral = 0.5 + 4.0 * (2.0 * t - (1 - np.cos(RATE * t)) / RATE)
    smooth = np.asarray(over(turned(pl.LowPass("f", "O.angle", 10.0)))["f.value"])
    expected = 3.0 * (2.0 - np.sin(RATE * t)) + integral - 5.0 * (np.sin(RATE * t) - smooth) / 0.1
    np.testing.assert_allclose(solution["pid.output"], expected, rtol=1e-8)
    exact = turned(pl.PID("pid", "O.angle", 2.0, 3.0, 4.0, 5.0, rate="O.angle_rate", integral=0.5))
    expected = 3.0 * (2.0 - np.sin(RATE * t)) + integral - 5.0 * RATE * np.cos(RATE * t)
    np.testing.assert_allclose(over(exact)["pid.output"], expected, rtol=1e-9)


@pytest.mark.slow
def test_limits_and_the_tracking_of_the_integral() -> None:
    """At a constant error the output is at its limit, and the integral settles where what it gains is taken away."""
    part = pl.PID("pid", "O.angle", 1.0, 2.0, 3.0, limits=(-4.0, 1.5), tracking_time=0.05)
    solution = over(turned(part, motion=0.0), 3.0)
    np.testing.assert_allclose(solution["pid.output"], 1.5, rtol=1e-12)
    np.testing.assert_allclose(solution["pid.integral"][-1], 1.5 - 2.0 + 3.0 * 0.05, rtol=1e-10)
    free = over(turned(pl.PID("pid", "O.angle", 1.0, 2.0, 3.0, limits=(-4.0, 1.5)), motion=0.0), 3.0)
    np.testing.assert_allclose(free["pid.integral"][-1], 9.0, rtol=1e-9)  # it winds up


# --- what they drive --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_a_controller_along_a_coordinate_is_a_force_there(coordinates: str) -> None:
    """One that reads and drives several coordinates, against forces that read their own."""
    law = lambda t, u, k: jnp.stack([k * (0.2 - u[0]) - u[2], jnp.sin(t) - 2.0 * u[1] - 0.5 * u[3]])  # noqa: E731
    names = ["O.angle", "A.angle", "O.angle_rate", "A.angle_rate"]
    controlled = arm(pl.Controller("c", names, law, ["O.angle", "A.angle"], 7.0), coordinates=coordinates)
    forces = [
        pl.JointForce("f", "O.angle", lambda t, x, rate, _: 7.0 * (0.2 - x) - rate),
        pl.JointForce("g", "A.angle", lambda t, x, rate, _: jnp.sin(t) - 2.0 * x - 0.5 * rate),
    ]
    ours, theirs = swung(controlled), swung(arm(forces=forces, coordinates=coordinates))
    np.testing.assert_allclose(ours.q, theirs.q, atol=1e-10)
    np.testing.assert_allclose(ours["c.output"][:, 1], theirs["g.effort"], atol=1e-9)
    for name in ("O.fx", "A.fy", "lower.ax", "energy"):  # what depends on the forces
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-8, atol=1e-9)


def test_a_controller_drives_the_inputs_of_parts() -> None:
    """The voltage of a motor, the effort of friction, the tension of a spring; read back as those of the parts."""
    motor = pl.DCMotor("motor", "O.angle", 3.0, 1.0, 0.05, 0.2, 5.0)
    spring = pl.SpringDamper("spring", pl.ground.at(1.0, 1.0), pl.Body("lower", 1.0, 0.1).at(0.3), 10.0, 0.5)
    friction = pl.JointFriction("friction", "A.angle", 0.3)
    law = lambda t, u, _: jnp.stack([2.0 * u[0], 3.0 * u[1], u[2] - 1.0])  # noqa: E731
    drives = ["motor.voltage", "friction.effort", "spring.tension"]
    controlled = arm(
        pl.Controller("c", ["A.angle", "O.angle_rate", "spring.length"], law, drives), forces=[motor, spring, friction]
    )
    solution = swung(controlled)
    y, bare = np.asarray(solution["c.output"]), swung(arm(forces=[motor, spring, friction]))
    stretch = np.asarray(solution["spring.length"]) - 0.5
    np.testing.assert_allclose(solution["spring.tension"], 10.0 * stretch + y[:, 2], rtol=1e-10)
    assert float(jnp.abs(solution.q - bare.q).max()) > 0.01
    # The current follows the driven voltage.
    state = solution.state(2)
    at = mbd.Equations(controlled).with_own_states(state.z).at(state.t, state.q)
    voltage, speed = 3.0 + 2.0 * solution["A.angle"][2], solution["O.angle_rate"][2]
    np.testing.assert_allclose(at.own_rates(state.v), [(voltage - state.z[0] - speed) / 0.05], rtol=1e-10)
    np.testing.assert_allclose(mbd.read(controlled, state, "c.output"), y[2], rtol=1e-10)
    scaled = controlled.replacing(forces=[pl.Gravity(), motor, spring, friction])
    assert scaled.controllers == controlled.controllers


@pytest.mark.parametrize("name", ["tip[1]", "v[0]", "twice", "lower.vx", "lower.theta", "motor.current", "late.output"])
def test_what_a_controller_reads_is_what_is_read(name: str) -> None:
    motor = pl.DCMotor("motor", "O.angle", 3.0, 1.0, 0.05, 0.2, 5.0)
    seen = pl.Controller("seen", name, lambda t, u, _: u[0])
    solution = swung(arm(seen, pl.LowPass("late", "A.angle", 3.0), forces=[motor]), 0.2)
    base, _, k = name.removesuffix("]").partition("[")
    values = solution[base][:, int(k)] if k else solution[name]
    np.testing.assert_allclose(solution["seen.output"], values, rtol=1e-12, atol=1e-14)


def test_controllers_in_space() -> None:
    """A gyroscope is read, and a moment about a body's axis damps what it reads."""
    body = sp.Body("body", 1.0, np.diag([0.1, 0.2, 0.3]), pose=(0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    gyroscope = sp.Gyroscope("rate", body.at())
    damper = sp.Controller("damper", [f"rate[{k}]" for k in range(3)], lambda t, u, k: -k * u[2], "body.mz", 0.6)
    mechanism = sp.Mechanism([body], [], [], sensors=[gyroscope], floating=True, controllers=[damper])
    start = mbd.assemble(mechanism, speeds={"body.omega_z": 2.0})
    solution = mbd.simulate(mechanism, start, np.linspace(0.0, 1.0, 5), **TIGHT)
    np.testing.assert_allclose(solution["body.omega_z"], 2.0 * np.exp(-0.6 / 0.3 * solution.ts), rtol=1e-9)


def test_a_cascade() -> None:
    """The output of one controller is the reference of the next, whatever their order."""
    outer = pl.PID("outer", "O.angle", 0.5, kp=4.0)
    inner = pl.PID("inner", "O.angle_rate", 0.0, kp=3.0, drives="O.angle", follows="outer.output")
    both = [swung(arm(*parts)) for parts in ((outer, inner), (inner, outer))]
    law = pl.JointForce("f", "O.angle", lambda t, x, rate, _: 3.0 * (4.0 * (0.5 - x) - rate))
    expected = swung(arm(forces=[law]))
    for solution in both:
        np.testing.assert_allclose(solution.q, expected.q, atol=1e-10)


@pytest.mark.slow
def test_a_network_as_a_state() -> None:
    """A neural ODE that drives a joint: its motion by a direct force with states, derivatives by its weights."""
    network = eqx.nn.MLP(3, 2, 4, 1, jax.nn.tanh, key=jax.random.key(1))
    made = lambda scale: pl.DynamicController(  # noqa: E731
        "net", ["O.angle", "A.angle_rate"], lambda t, u, x, f: f[1] * x[0] + u[1],
        lambda t, u, x, f: f[0](jnp.concatenate([x[:1], u])) - x, [0.2, 0.1], "O.angle", (network, scale),
    )  # fmt: skip
    solution = swung(arm(made(jnp.asarray(2.0))))
    assert solution.engine != "diffrax"
    assert solution.mechanism.layout.z.names == ("net.state[0]", "net.state[1]")
    end = lambda scale: swung(arm(made(scale)))["A.angle"][-1]  # noqa: E731
    h, at = 1e-4, jnp.asarray(2.0)
    expected = (end(at + h) - end(at - h)) / (2 * h)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(end)(at), expected, rtol=1e-6)


def test_a_sampled_law_is_what_a_loop_in_python_does() -> None:
    """With a delay and an encoder, against a motion that is begun anew at each instant."""
    period, step = 0.1, 0.01

    def law(t: Any, u: Any, x: Any, gain: Any) -> Any:
        return -gain * (u[0] - 0.2) - 0.5 * (u[0] - x[0]) / period, u

    part = pl.SampledController("c", "O.angle", law, period, "O.angle", [0.3], parameters=8.0, delay=1, resolution=step)
    solution = swung(arm(part), 7 * period, 8)
    start = mbd.assemble(arm(), {"O.angle": 0.3, "A.angle": -0.5}, speeds={"O.angle": 1.0, "A.angle": -2.0})
    state, before, late, efforts = start, 0.3, 0.0, []
    for k in range(7):
        read = step * np.round(float(mbd.read(arm(), state, "O.angle")) / step)
        held, late = late, -8.0 * (read - 0.2) - 0.5 * (read - before) / period
        before, ts = read, np.array([k * period, (k + 1) * period])
        pushed = mbd.with_inputs(arm(), {"O.angle": held})
        state = mbd.simulate(pushed, state, ts, **TIGHT).state()
        efforts.append(held)
    np.testing.assert_allclose(solution.q[-1], state.q, atol=1e-9)
    np.testing.assert_allclose(solution["c.output"][:-1], efforts, atol=1e-8)


@pytest.mark.slow
def test_two_rates_and_a_table_at_the_same_instants() -> None:
    """Controllers of other periods, whose instants coincide at times, beside a table that jumps there."""
    slow = pl.SampledPID("slow", "O.angle", 0.5, 0.2, kp=6.0, rate="O.angle_rate", kd=1.0)
    fast = pl.SampledPID("fast", "O.angle_rate", 0.0, 0.1, kp=2.0, drives="O.angle", follows="slow.output")
    table = pl.JointForce("table", "A.angle", mbd.Piecewise([0.2, 0.5], [0.5, -0.5, 0.0]))
    solution = swung(arm(slow, fast, forces=[table]), 0.8)
    # The slow one, as the fast one reads it at the same instant, is that of the instant before.
    ts = np.array([0.0, 0.2, 0.4, 0.6])
    angle, rate = (np.asarray(solution[name])[:4] for name in ("O.angle", "O.angle_rate"))
    np.testing.assert_allclose(solution["slow.output"][:4], 6.0 * (0.5 - angle) - rate, rtol=1e-9)
    followed = np.array([0.0, *np.asarray(solution["slow.output"])[:3]])
    np.testing.assert_allclose(solution["fast.output"][:4], 2.0 * (followed - rate), rtol=1e-9)
    np.testing.assert_allclose(solution.ts[:4], ts, atol=1e-15)


@pytest.mark.slow
def test_a_sampled_motion_goes_on_from_its_middle() -> None:
    """At an instant, and between two of them; the state remembers what is held and when to compute next."""
    part = pl.SampledPID("c", "O.angle", 0.5, 0.1, kp=20.0, ki=3.0, kd=2.0, drives="O.angle")
    mechanism = arm(part)
    start = mbd.assemble(mechanism, {"O.angle": 0.3, "A.angle": -0.5})
    whole = mbd.simulate(mechanism, start, np.array([0.0, 1.0]), **TIGHT)
    for middle in (0.4, 0.47):
        first = mbd.simulate(mechanism, start, np.array([0.0, middle]), **TIGHT).state()
        second = mbd.simulate(mechanism, first, np.array([middle, 1.0]), **TIGHT)
        np.testing.assert_allclose(second.q[-1], whole.q[-1], atol=1e-10)
        np.testing.assert_allclose(second.z[-1], whole.z[-1], atol=1e-9)


def test_a_sampled_controller_beside_events() -> None:
    """A bounce does not disturb the instants, nor they the bounce."""
    ball = pl.Body("ball", 1.0, 0.1)
    hover = pl.SampledController("hover", ["ball.y"], lambda t, u, x, _: (4.0 * (1.0 - u[0]), x), 0.05, "ball.fy")
    mechanism = pl.Mechanism([ball], [], [pl.Gravity()], floating=True, controllers=[hover])
    start = mbd.assemble(mechanism, {"ball.y": 0.5})
    floor = mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(0.8))
    solution = mbd.simulate(mechanism, start, np.linspace(0.0, 0.9, 10), events=[floor], **TIGHT)
    assert solution.events is not None
    assert int(solution.events.count) == 1
    y, v, t, hit = 0.5, 0.0, 0.0, None
    for k in range(18):  # a constant acceleration from instant to instant
        a, left = 4.0 * (1.0 - y) - 9.81, 0.05
        fall = (-v - np.sqrt(v**2 - 2 * a * y)) / a if v**2 > 2 * a * y else np.inf
        if 0 < fall < left and hit is None:
            hit, v, y, left = t + fall, -0.8 * (v + a * fall), 0.0, left - fall
        y, v, t = y + v * left + 0.5 * a * left**2, v + a * left, 0.05 * (k + 1)
    assert hit is not None
    np.testing.assert_allclose(solution.events.times_of("floor"), [hit], rtol=1e-10)
    np.testing.assert_allclose([solution["ball.y"][-1], solution["ball.vy"][-1]], [y, v], rtol=1e-8)


# --- analyses ---------------------------------------------------------------------------------------------------


def test_poles_of_a_controlled_mechanism() -> None:
    """The linearised closed loop is that of the mechanism's matrices with the controller's, its reference an input."""
    servo = pl.PID("servo", "O.angle", 0.0, kp=60.0, ki=40.0, kd=12.0, rate="O.angle_rate", drives="O.angle")
    rest = {"O.angle": -np.pi / 2, "A.angle": 0.0}
    plant, closed = arm(), arm(servo)
    open_loop = mbd.linearize(plant, mbd.assemble(plant, rest), inputs=["O.angle"], outputs=["O.angle", "O.angle_rate"])
    loop = mbd.linearize(closed, mbd.assemble(closed, rest), inputs=["servo.reference"], outputs=["servo.output"])
    A, B, C = (np.asarray(x) for x in (open_loop.A, open_loop.B, open_loop.C))
    gains = np.array([[-60.0, -12.0]])
    expected = np.block([[A + B @ gains @ C, B], [-40.0 * C[:1], np.zeros((1, 1))]])
    np.testing.assert_allclose(loop.A, expected, atol=1e-9)
    np.testing.assert_allclose(loop.B, np.vstack([60.0 * B, [[40.0]]]), atol=1e-9)
    np.testing.assert_allclose(loop.D, [[60.0]], atol=1e-12)
    assert loop.states[-1] == "servo.integral"


def test_an_equilibrium_holds_what_filters_and_controllers_give() -> None:
    """A proportional controller through a filter: the position where its torque carries the weight."""
    rod = pl.Body("rod", 1.0, 0.1, pose=(0.5, 0.0, 0.0))
    joint = pl.Revolute("O", pl.ground.at(), rod.at(-0.5))
    parts = [pl.LowPass("f", "O.angle", 20.0), pl.PID("p", "f.output", 0.2, kp=30.0, drives="O.angle")]
    mechanism = pl.Mechanism([rod], [joint], [pl.Gravity()], coordinates="joint", controllers=parts)
    state = mbd.equilibrium(mechanism, mbd.assemble(mechanism, {"O.angle": 0.1})).state
    angle = float(mbd.read(mechanism, state, "O.angle"))
    np.testing.assert_allclose(30.0 * (0.2 - angle), 9.81 * 0.5 * np.cos(angle), rtol=1e-8)
    np.testing.assert_allclose(mbd.read(mechanism, state, "f.value"), angle, rtol=1e-10)


def test_a_state_space_at_rest() -> None:
    """A filter settles; an integrator keeps its value, with derivatives that are none."""
    t, u = jnp.zeros(()), jnp.asarray([0.5])
    smooth = pl.StateSpace("s", "O.angle", [[0.0, 1.0], [-4.0, -1.0]], [[0.0], [8.0]], [[1.0, 0.0]])
    np.testing.assert_allclose(smooth.steady(t, u), [1.0, 0.0], atol=1e-14)
    integrator = pl.StateSpace("i", "O.angle", [[0.0]], [[1.0]], [[1.0]], state=[0.3])
    np.testing.assert_array_equal(integrator.steady(t, u), [0.3])
    np.testing.assert_array_equal(jax.jacrev(lambda u: integrator.steady(t, u))(u), [[0.0]])


def test_references_and_gains_have_names() -> None:
    servo = pl.PID("servo", "O.angle", 0.0, kp=60.0, drives="O.angle")
    mechanism = arm(servo)
    assert "servo.kp" in str(mbd.numbers(mechanism, "servo.*"))
    assert "servo.reference" in mbd.inputs(mechanism)
    signal = mbd.with_inputs(mechanism, {"servo.reference": lambda t: 0.1 * t})
    direct = arm(pl.PID("servo", "O.angle", lambda t: 0.1 * t, kp=60.0, drives="O.angle"))
    np.testing.assert_allclose(swung(signal).q, swung(direct).q, atol=1e-12)
    other = mbd.with_numbers(mechanism, {"servo.kp": 30.0})
    assert float(other["servo"].kp) == 30.0
    assert "controllers: servo (PID)" in repr(mechanism)
    described = repr(mbd.describe(mechanism))
    assert "States of parts z (1): servo.integral" in described
    assert "Controller servo: reads O.angle; drives O.angle" in described


def test_a_controller_that_fails_is_named() -> None:
    law = pl.Controller("root", "O.angle", lambda t, u, _: jnp.sqrt(0.2 - t) * u[0], "O.angle")
    with pytest.raises(mbd.SolveError, match="the output of the controller 'root' is not finite from there on"):
        swung(arm(law))


def test_files_of_other_programs_say_that_they_lack_controllers(tmp_path: Path) -> None:
    body = sp.Body("body", 1.0, np.diag([0.1, 0.2, 0.3]))
    hinge = sp.Revolute("O", sp.ground.at(), body.at())
    mechanism = sp.Mechanism([body], [hinge], [], coordinates="joint", controllers=[sp.LowPass("slow", "O.angle", 1.0)])
    for write, name in ((write_mjcf, "a.xml"), (write_urdf, "a.urdf")):
        remarks = write(mechanism, tmp_path / name)
        assert any("LowPass 'slow' has no counterpart" in str(remark) for remark in remarks)


# --- refusals ---------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, str]] = {
    "no such quantity": (lambda: arm(pl.LowPass("f", "O.angel", 1.0)), "LowPass 'f': .*O.angel.*O.angle"),
    "an acceleration": (lambda: arm(pl.LowPass("f", "lower.alpha", 1.0)), "follows from the forces"),
    "a reaction": (lambda: arm(pl.LowPass("f", "O.fx", 1.0)), "follows from the forces"),
    "a vector": (lambda: arm(pl.LowPass("f", "tip", 1.0)), r"2 numbers; name one of them, such as 'tip\[0\]'"),
    "no component": (lambda: arm(pl.LowPass("f", "tip[2]", 1.0)), "no component"),
    "of a number": (lambda: arm(pl.LowPass("f", "O.angle[0]", 1.0)), "no component"),
    "no such input": (lambda: arm(pl.PID("p", "O.angle", 1.0, 1.0, drives="O.angel")), "PID 'p': .*O.angel"),
    "another's reference": (
        lambda: arm(pl.PID("p", "O.angle", 1.0, 1.0), pl.PID("s", "A.angle", 1.0, 1.0, drives="p.reference")),
        "follows='s.output'",
    ),
    "a driver": (
        lambda: turned(pl.PID("p", "O.angle", 1.0, 1.0, drives="drive.motion")),
        "the motion that a Driver prescribes",
    ),
    "two outputs for one input": (
        lambda: arm(pl.Controller("c", "O.angle", lambda t, u, _: jnp.stack([u[0], u[0]]), "O.angle")),
        "has 2 outputs, and drives 1 inputs",
    ),
    "a circle": (
        lambda: arm(
            pl.PID("a", "O.angle", 0.0, 1.0, follows="b.output"), pl.PID("b", "O.angle", 0.0, 1.0, follows="a.output")
        ),
        "in a circle, a.output → b.output → a.output",
    ),
    "a matrix": (
        lambda: arm(pl.Controller("c", "O.angle", lambda t, u, _: jnp.ones((2, 2)))), "must be a number or several"
    ),
    "a function of other arguments": (
        lambda: arm(pl.Controller("c", "O.angle", lambda t, u: u[0])), r"is called as function\(t, u, parameters\)"
    ),
    "rates of another shape": (
        lambda: arm(pl.DynamicController("c", "O.angle", lambda t, u, x, _: x[0], lambda t, u, x, _: u, np.ones(2))),
        "the function rates returns must have shape",
    ),
    "a matrix that does not fit": (
        lambda: pl.StateSpace("s", "O.angle", [[1.0]], [[1.0, 2.0]], [[1.0]]), "B must have shape"
    ),
    "both derivatives": (
        lambda: pl.PID("p", "O.angle", 1.0, 1.0, kd=1.0, rate="O.angle_rate", filter_time=0.1), "not both"
    ),
    "tracking without limits": (lambda: pl.PID("p", "O.angle", 1.0, 1.0, tracking_time=0.1), "give limits too"),
    "no period": (lambda: pl.SampledPID("p", "O.angle", 1.0, 0.0, 1.0), "period must be positive"),
    "one result": (
        lambda: arm(pl.SampledController("c", "O.angle", lambda t, u, x, p: u[0], 0.1)), "must return two things"
    ),
    "a negative delay": (lambda: pl.SampledPID("p", "O.angle", 1.0, 0.1, 1.0, delay=-1), "delay must be at least 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("as_a_user_runs_it")
def test_wrong_controllers(case: str) -> None:
    make, said = WRONG[case]
    with pytest.raises(MechanismError, match=said):
        make()


def test_samples_need_a_known_number_and_the_native_loop() -> None:
    mechanism = arm(pl.SampledPID("c", "O.angle", 0.5, 0.1, kp=20.0, drives="O.angle"))
    start = mbd.assemble(mechanism, {"O.angle": 0.3})
    with pytest.raises(MechanismError, match="most=, the largest number"):
        jax.jit(lambda end: mbd.simulate(mechanism, start, jnp.stack([0.0 * end, end]), throw=False).q)(1.0)
    with pytest.raises(MechanismError, match="must run natively, and this is one for which engine='diffrax'"):
        mbd.simulate(mechanism, start, [0.0, 1.0], engine="diffrax")
