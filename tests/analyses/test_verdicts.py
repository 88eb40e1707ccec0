"""Verdicts in batches: which instances fail and why, what their values and derivatives are, and what they cost."""

import math
import re
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.crank_rocker import LENGTHS, four_bar
from tests.marks import in_both_coordinates

R = mbd.RESULTS
ANGLE = 1.1  # of the crank at the start [rad]
TS = np.linspace(0.0, 0.3, 4)
CLOSES, OPEN = np.asarray(LENGTHS), np.asarray([0.3, 0.2, 0.2, 0.9])  # the second one does not reach
WRONG_TIMES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "decreasing": lambda ts: ts[::-1],
    "repeated": lambda ts: ts[[0, 1, 1, 2]],
    "late": lambda ts: ts + 0.1,
    "not finite": lambda ts: np.where(ts == ts[2], np.nan, ts),
}


def state_of(lengths: Array, coordinates: str = "absolute", check: bool = False) -> tuple[pl.Mechanism, mbd.State]:
    """The four-bar with its crank at the angle, turning."""
    mechanism = four_bar(lengths).with_coordinates(coordinates)
    return mechanism, mbd.assemble(mechanism, {"crank.theta": ANGLE}, speeds={"crank.omega": 3.0}, check=check)


def motion_of(lengths: Array, coordinates: str = "absolute", **options: Any) -> mbd.Solution:
    mechanism, state = state_of(lengths, coordinates)
    return mbd.simulate(mechanism, state, TS, throw=False, **options)


def is_closed_by(lengths: np.ndarray) -> np.ndarray:
    """Whether coupler and rocker reach from the crank's end to the pivot: the triangle inequalities."""
    a, b, c, d = lengths.T
    distance = np.hypot(a * math.cos(ANGLE) - d, a * math.sin(ANGLE))
    return (np.abs(b - c) < distance) & (distance < b + c)


def swing(g: float | Array = 9.81, torque: Any = None) -> tuple[pl.Mechanism, mbd.State]:
    """A pendulum at 1 rad; `torque(t, θ, ω)`."""
    rod = pl.Body("rod", 1.0, 1 / 12, (0.5, 0.0, 0.0))
    forces: list[Any] = [pl.Gravity(g)]
    if torque is not None:
        forces.append(pl.TorsionalSpringDamper("motor", pl.ground.at(), rod.at(), actuator=torque))
    mechanism = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5))], forces, coordinates="joint")
    return mechanism, mbd.assemble(mechanism, {"O.angle": 1.0}, check=False)


# --- values and derivatives -------------------------------------------------------------------------------------------


@in_both_coordinates("joint")
def test_every_four_bar_of_a_batch_gets_its_verdict(coordinates: str, rng: np.random.Generator) -> None:
    """Random lengths, judged by the triangle inequalities. Those that fail are NaN and take no steps, and the others
    stay closed."""
    lengths = rng.uniform([0.1, 0.1, 0.1, 0.4], [0.6, 0.8, 0.8, 1.4], (64, 4))
    closes = is_closed_by(lengths)
    assert 16 < closes.sum() < 48

    def both(lengths: Array) -> tuple[Any, ...]:
        mechanism, state = state_of(lengths, coordinates)
        found = mbd.simulate(mechanism, state, TS, throw=False)
        return state, found.result, found.q, found.integrated_speeds, found.violation().position, found.stats

    state, result, q, v, violation, stats = jax.jit(jax.vmap(both))(lengths)
    for verdict in (state.result, result):
        np.testing.assert_array_equal(verdict == R.successful, closes)
        np.testing.assert_array_equal(verdict == R.not_assembled, ~closes)
    for values in (state.q, state.v, q.reshape(64, -1), v.reshape(64, -1)):
        np.testing.assert_array_equal(np.isnan(values), np.broadcast_to(~closes[:, None], values.shape))
    rows = {"absolute": 8, "joint": 2}[coordinates]
    np.testing.assert_array_equal(state.rank, np.where(closes, rows, -1))
    assert np.abs(violation[closes]).max() < 1e-7
    assert (np.asarray(stats["num_steps"])[~closes] == 0).all()
    assert (np.asarray(stats["num_steps"])[closes] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("derivative", ["reverse", "forward"])
def test_derivatives_of_what_failed_are_nan(derivative: Any) -> None:
    """By lengths, and by a mass, which no step has seen; and those of the others are the differences."""

    def end(lengths: Array, mass: Array) -> Array:
        mechanism, state = state_of(lengths)
        mechanism = eqx.tree_at(lambda m: m["coupler"].mass, mechanism, mass)
        return mbd.simulate(mechanism, state, TS, adjoint=derivative, rtol=1e-11, throw=False).q[-1, 8]

    by = jax.grad if derivative == "reverse" else jax.jacfwd
    lengths, mass, h = jnp.asarray([CLOSES, OPEN]), jnp.asarray(0.8), 1e-5
    slopes, of_mass = jax.jit(jax.vmap(by(end, (0, 1)), (0, None)))(lengths, mass)
    assert np.isnan(slopes[1]).all()
    assert np.isnan(of_mass[1])
    values = jax.jit(jax.vmap(end))(CLOSES + h * np.asarray([[0, 1, 0, 0], [0, -1, 0, 0], [0] * 4, [0] * 4]),
                                    mass + h * np.asarray([0, 0, 1, -1]))  # fmt: skip
    np.testing.assert_allclose(slopes[0, 1], (values[0] - values[1]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(of_mass[0], (values[2] - values[3]) / (2 * h), rtol=1e-4)


@pytest.mark.slow
def test_a_loss_may_leave_out_what_failed() -> None:
    """`where` alone would make NaN of the derivative by a number that all instances share."""

    def loss(scale: Array, all_lengths: np.ndarray) -> Array:
        found = jax.vmap(lambda lengths: motion_of(scale * lengths))(jnp.asarray(all_lengths))
        return jnp.sum(jnp.where(found.result == R.successful, found.q[:, -1, 8], 0.0))

    slope = jax.jit(jax.grad(loss))
    some, twice = (slope(jnp.asarray(1.0), np.stack([CLOSES, other])) for other in (OPEN, CLOSES))
    alone = twice / 2  # not a batch of one, whose sines differ from those of lanes by rounding
    np.testing.assert_allclose(some, alone, rtol=1e-12)
    assert abs(float(alone)) > 1e-3


def test_a_run_out_of_steps_is_nan_from_there_on() -> None:
    """Values before are those of the whole run; the derivative of one after the last step is NaN, not zero."""
    ts = np.linspace(0.0, 4.0, 9)

    def angles(g: Array, most: int) -> mbd.Solution:
        return mbd.simulate(*swing(g), ts, max_steps=most, throw=False)

    full, cut = (angles(jnp.asarray(9.81), most) for most in (4096, 10))
    assert bool(full.result == R.successful)
    assert bool(cut.result == R.max_steps_reached)
    lost = np.isnan(cut.q[:, 0])
    k = int(np.argmax(lost))
    assert 1 < k < len(ts)
    assert lost[k:].all()
    np.testing.assert_allclose(cut.q[:k], full.q[:k], rtol=1e-12)
    slopes = jax.jit(jax.jacrev(lambda g: angles(g, 10).q[:, 0]))(jnp.asarray(9.81))
    whole = jax.jit(jax.jacrev(lambda g: angles(g, 4096).q[:, 0]))(jnp.asarray(9.81))
    np.testing.assert_array_equal(np.isnan(slopes), lost)
    np.testing.assert_allclose(slopes[:k], whole[:k], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_derivatives_by_what_a_failed_motion_was_assembled_with() -> None:
    """They are NaN, and no solve in the derivative of the assembly fails because of that; beside it the differences."""

    def end(angle: Array, g: Array) -> Array:
        mechanism, _ = swing(g)
        state = mbd.assemble(mechanism, {"rod.theta": angle}, speeds={"rod.omega": angle}, check=False)
        return mbd.simulate(mechanism, state, [0.0, 0.5, 1.0], max_steps=100, rtol=1e-11, throw=False).q[-1, 0]

    angles, g, h = jnp.asarray([0.7, 0.7]), jnp.asarray([9.81, 1e6]), 1e-5
    slopes = jax.jit(jax.vmap(jax.grad(end)))(angles, g)
    assert np.isnan(slopes).tolist() == [False, True]
    values = jax.jit(jax.vmap(end))(angles + jnp.asarray([h, -h]), jnp.full(2, 9.81))
    np.testing.assert_allclose(slopes[0], (values[0] - values[1]) / (2 * h), rtol=1e-6)


def test_reasons_side_by_side() -> None:
    """A force that is not finite from 0.2 s on, one that needs more steps, and a good one."""

    def one(wall: Array, stiffness: Array) -> tuple[mbd.RESULTS, Array]:
        torque = lambda t, theta, omega: jnp.where(theta < wall, jnp.nan, -stiffness * theta)  # noqa: E731
        found = mbd.simulate(*swing(torque=torque), [0.0, 0.5, 1.0], max_steps=300, throw=False)
        return found.result, found.q[-1, 0]

    result, end = jax.jit(jax.vmap(one))(jnp.asarray([0.5, -9.0, -9.0]), jnp.asarray([0.0, 1e5, 0.0]))
    for k, item in enumerate((R.step_too_small, R.max_steps_reached, R.successful)):
        assert bool((result == item)[k]), result
    np.testing.assert_array_equal(np.isnan(end), [True, True, False])


def test_steps_of_a_given_size_may_end_where_nothing_is_finite() -> None:
    blowing_up = lambda t, theta, omega: 1e3 * theta**9  # noqa: E731
    options: dict[str, Any] = {"solver": mbd.RungeKutta4(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}
    found = mbd.simulate(*swing(torque=blowing_up), TS, throw=False, **options)
    assert bool(found.result == R.not_finite)
    assert np.isfinite(found.q[0]).all()
    assert np.isnan(found.q[-1]).all()


def test_a_first_step_that_is_too_long_for_its_limit() -> None:
    """The motion stops where it started, before any state is saved."""
    controller = dfx.PIDController(rtol=1e-8, atol=1e-10, dtmin=0.2, force_dtmin=False)
    found = mbd.simulate(*swing(), TS, stepsize_controller=controller, throw=False)
    assert found.result == R.step_too_small
    assert np.isnan(found.q).all()
    with pytest.raises(mbd.SolveError, match=r"stopped at t = 0 s after 1 steps: The step size became too small"):
        mbd.simulate(*swing(), TS, stepsize_controller=controller)


@pytest.mark.slow
def test_a_solver_that_gives_up() -> None:
    """Equal steps of an implicit solver, whose iteration does not converge where a torque changes a thousand times
    within one."""

    def run(scale: Array, throw: bool) -> mbd.Solution:
        motor = pl.JointForce("motor", "O.angle", lambda t, x, w, scale: -scale * jnp.sin(40 * x), scale)
        mechanism, state = swing()
        mechanism = mechanism.with_parts([motor])
        solver = dfx.Kvaerno3(root_finder=dfx.VeryChord(rtol=1e-3, atol=1e-3))
        options: dict[str, Any] = {"solver": solver, "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}
        return mbd.simulate(mechanism, state, [0.0, 0.1, 0.2], throw=throw, **options)

    def both(scale: Array) -> tuple[mbd.RESULTS, Array]:
        found = run(scale, throw=False)
        return found.result, found.q[:, 0]

    scales = jnp.asarray([0.0, 1e6])
    result, angle = jax.jit(jax.vmap(both))(scales)
    np.testing.assert_array_equal(result == R.successful, [True, False])
    np.testing.assert_array_equal(result == R.solver_failed, [False, True])
    np.testing.assert_allclose(angle[0], mbd.simulate(*swing(), [0.0, 0.1, 0.2])["O.angle"], atol=1e-4)
    assert np.isnan(angle[1]).tolist() == [False, True, True]
    text = r"Instance 1: The solver gave up\. The motion stopped at t = 0\.01 s\."
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.block_until_ready(jax.jit(jax.vmap(lambda scale: run(scale, throw=True).q))(scales))


# --- closed at all times ----------------------------------------------------------------------------------------------


def stretched(reach: float | Array) -> tuple[pl.Mechanism, mbd.State]:
    """A slider pushed out to `1.5 + reach` m and back again, by a crank and a rod that reach 2 m, softly held."""
    crank, rod = pl.Body("crank", 1.0, 0.1, (0.375, 0.33, 0.72)), pl.Body("rod", 1.0, 0.1, (1.125, 0.33, -0.72))
    slider = pl.Body("slider", 1.0, 0.1, (1.5, 0.0, 0.0))
    joints = [
        pl.Revolute("O", pl.ground.at(), crank.at(-0.5)),
        pl.Revolute("A", crank.at(0.5), rod.at(-0.5)),
        pl.Revolute("B", rod.at(0.5), slider.at()),
        pl.Prismatic("rail", pl.ground.at(), slider.at()),
    ]
    push = pl.Driver("push", "slider.x", lambda t: 1.5 + reach * jnp.sin(jnp.pi * t) ** 2)
    mechanism = pl.Mechanism([crank, rod, slider], joints, drivers=[push])
    return mechanism, mbd.assemble(mechanism, check=False)


@pytest.mark.slow
def test_joints_are_closed_at_all_saved_times() -> None:
    """Equal steps run over the stretched position and tear the joints between two saved times; until then the motion is
    the prescribed one."""
    ts = np.linspace(0.0, 1.0, 6)
    options: dict[str, Any] = {"solver": mbd.RungeKutta4(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}

    def pushed(reach: Array) -> tuple[mbd.RESULTS, Array]:
        found = mbd.simulate(*stretched(reach), ts, throw=False, **options)
        return found.result, found.q[:, 6]

    reach = np.asarray([0.3, 0.55, 0.6])
    result, x = jax.jit(jax.vmap(pushed))(jnp.asarray(reach))
    np.testing.assert_array_equal(result == R.successful, [True, False, False])
    np.testing.assert_array_equal(result == R.constraints_violated, [False, True, True])
    np.testing.assert_array_equal(np.isnan(x).sum(axis=1), [0, 3, 4])
    prescribed = 1.5 + reach[:, None] * np.sin(np.pi * ts) ** 2
    np.testing.assert_allclose(np.where(np.isnan(x), prescribed, x), prescribed, atol=5e-3)


# --- assembly ---------------------------------------------------------------------------------------------------------


def assembly_fails(call: Callable[..., mbd.State], item: mbd.RESULTS, text: str, *values: Any) -> mbd.State:
    """States of a batch whose last instance fails alone, with such a text; `call(..., check)`."""

    def both(*values: Array) -> tuple[mbd.State, mbd.RESULTS]:
        state = call(*values, False)
        return state, state.result

    state, result = jax.jit(jax.vmap(both))(*values)
    np.testing.assert_array_equal(result == R.successful, [True, False])
    np.testing.assert_array_equal(result == item, [False, True])
    assert np.isnan(state.v).any(axis=1).tolist() == [False, True]
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"Instance 1: Assembly failed: {text}"):
        jax.block_until_ready(jax.jit(jax.vmap(lambda *values: call(*values, True).v))(*values))
    return state


def test_speeds_that_contradict_the_constraints() -> None:
    """The rocker of a four-bar at a speed that goes with the crank's, and at another one; positions stay."""
    mechanism, right = state_of(jnp.asarray(CLOSES), check=True)
    omega = float(right["rocker.omega"])

    def turning(omega: Array, check: bool) -> mbd.State:
        speeds = {"crank.omega": 3.0, "rocker.omega": omega}
        return mbd.assemble(mechanism, {"crank.theta": ANGLE}, speeds=speeds, check=check)

    text = r"the speeds contradict the constraints: .*'rocker\.omega' misses by 0\.\d"
    state = assembly_fails(turning, R.speeds_contradict, text, jnp.asarray([omega, omega + 2.0]))
    np.testing.assert_allclose(state.v[0], right.v, atol=1e-9)
    np.testing.assert_allclose(state.q, [right.q] * 2, atol=1e-12)


def test_a_nearest_position_that_is_not_found() -> None:
    """A ball is in place wherever `x ≤ 1`, and its residual has no slope there. So no closed position satisfies the
    condition of least change for a guess of 3 m: it is missed by `3 − x`, by 2 m or more."""

    def wall(t: Array, frames: Any, parameters: None) -> Array:
        x = frames[1].position[0] - frames[0].position[0]
        return jnp.where(x > 1.0, x + 9.0, 0.0)

    def placed(x: Array, check: bool) -> mbd.State:
        ball = pl.Body("ball", 1.0, 0.1, jnp.stack([x, jnp.asarray(0.3), jnp.asarray(0.4)]))
        mechanism = pl.Mechanism([ball], [pl.Constraint("wall", wall, pl.ground.at(), ball.at())])
        return mbd.assemble(mechanism, weights={"ball.theta": 0.2, "ball.x": 4.0, "ball.y": 1.0}, check=check)

    text = r"the closed position nearest to the guess was not found\. Start from a better guess"
    state = assembly_fails(placed, R.not_nearest, text, jnp.asarray([0.5, 3.0]))
    np.testing.assert_allclose(state.q[0], [0.5, 0.3, 0.4], atol=1e-12)


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_brings_a_motion_with_events_to_a_halt() -> None:
    """A ball on a track that bounces at its end, where its height is zero: in the first instance three times; in the
    others it begins beyond the end, the track forbids the motion along which it should bounce, and it bounces without
    end. From the halt on values are NaN, and so are their derivatives."""
    ts, g = np.linspace(0.0, 1.5, 4), 9.81

    def run(angle: Array, start: Array, speed: Array, restitution: Array, throw: bool) -> mbd.Solution:
        ball, ends = pl.Body("ball", 1.0, 0.1), (pl.Marker(name, (0.0, 0.0), angle) for name in ("ground", "ball"))
        mechanism = pl.Mechanism([ball], [pl.Prismatic("s", *ends)], [pl.Gravity(g)], coordinates="joint")
        state = mbd.assemble(mechanism, {"s.displacement": start}, speeds={"s.displacement": speed}, check=False)
        end = mbd.Event("end", "s.displacement", below=0.0, then=mbd.Bounce(restitution, "ball.y"))
        return mbd.simulate(mechanism, state, ts, events=[end], max_events=4, throw=throw)

    def both(*values: Array) -> tuple[mbd.RESULTS, Array, Array, mbd.Events | None]:
        found = run(*values, throw=False)
        at_end = lambda start: run(values[0], start, *values[2:], throw=False).q[-1, 0]  # noqa: E731
        return found.result, found.q[:, 0], jax.grad(at_end)(values[1]), found.events

    up = math.pi / 2
    values = jnp.asarray([(up, 0.5, 0.0, 0.9), (up, -0.1, 0.0, 0.9), (0.0, 0.5, -0.8, 0.9), (up, 0.5, 0.0, 0.3)]).T
    result, s, slope, events = jax.jit(jax.vmap(both))(*values)
    items = R.successful, R.event_at_start, R.event_blocked, R.max_events_reached
    for k, item in enumerate(items):
        np.testing.assert_array_equal(result == item, np.arange(4) == k)
    np.testing.assert_array_equal(np.isnan(s).sum(axis=1), [0, 3, 2, 2])
    np.testing.assert_array_equal(np.isnan(s[:, -1]), [False, True, True, True])
    np.testing.assert_array_equal(np.isnan(slope), [False, True, True, True])

    def height(start: Array) -> Array:
        first = jnp.sqrt(2 * start / g)
        e, t = 0.9, ts[-1] - first * (1 + 2 * 0.9 + 2 * 0.9**2)
        return e**3 * g * first * t - g * t**2 / 2

    np.testing.assert_allclose(s[0, -1], height(jnp.asarray(0.5)), atol=1e-8)
    np.testing.assert_allclose(slope[0], jax.grad(height)(0.5), rtol=1e-6)
    np.testing.assert_allclose(s[2, :2], [0.5, 0.1], atol=1e-12)
    assert events is not None
    np.testing.assert_array_equal(events.count, [3, 0, 1, 4])
    text = "3 of 4 instances of the batch failed." + "".join(
        f"\nInstance {k}: {R[item]} The motion stopped at t = {t} s."
        for k, (item, t) in enumerate(zip(items, ("", "0", "0.625", "0.590723"), strict=True))
        if k
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match=re.escape(text)):
        jax.block_until_ready(jax.jit(jax.vmap(lambda *values: run(*values, throw=True).q))(*values))


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", WRONG_TIMES)
def test_traced_times_are_checked(case: str) -> None:
    """The verdict, and the error when the program runs; with the times right, the motion of known times."""
    mechanism, state = swing()
    ends = _ends_of_swing()
    right, wrong = TS, WRONG_TIMES[case](TS)
    q, result = ends["verdict"](right)
    np.testing.assert_allclose(q, mbd.simulate(mechanism, state, right).q, rtol=1e-12)
    assert bool(result == R.successful)
    q, result = ends["verdict"](wrong)
    assert bool(result == R.times_invalid)
    assert np.isnan(q).all()
    with pytest.raises(jax.errors.JaxRuntimeError, match="do not increase, or do not start at the time of the state"):
        jax.block_until_ready(ends["error"](wrong))


_compiled: dict[str, Any] = {}


def _ends_of_swing() -> dict[str, Any]:
    if not _compiled:
        mechanism, state = swing()
        run = lambda ts, throw: mbd.simulate(mechanism, state, ts, throw=throw)  # noqa: E731
        _compiled["verdict"] = jax.jit(lambda ts: (run(ts, False).q, run(ts, False).result))
        _compiled["error"] = jax.jit(lambda ts: run(ts, True).q)
    return _compiled


def test_a_state_at_another_time() -> None:
    """The time of the state may be what is traced."""
    mechanism, _ = swing()

    def start(t: Array) -> mbd.RESULTS:
        state = mbd.assemble(mechanism, {"O.angle": 1.0}, t=t, check=False)
        return mbd.simulate(mechanism, state, TS + 2.0, throw=False).result

    found = jax.jit(jax.vmap(start))(jnp.asarray([2.0, 0.0]))
    np.testing.assert_array_equal(found == R.successful, [True, False])
    np.testing.assert_array_equal(found == R.times_invalid, [False, True])


def test_traced_times_of_kinematics() -> None:
    """Positions that drivers prescribe, at right times, at wrong ones."""
    rod = pl.Body("rod", 1.0, 1 / 12, (0.5, 0.0, 0.0))
    motor = pl.Driver("motor", "O.angle", lambda t: 2.0 * t)
    mechanism = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5))], drivers=[motor])
    state = mbd.assemble(mechanism)

    def run(ts: Array) -> tuple[mbd.RESULTS, Array]:
        found = mbd.kinematics(mechanism, ts, state, throw=False)
        return found.result, found.q

    result, q = jax.jit(jax.vmap(run))(jnp.asarray([TS, TS[::-1]]))
    np.testing.assert_array_equal(result == R.successful, [True, False])
    np.testing.assert_array_equal(result == R.times_invalid, [False, True])
    np.testing.assert_allclose(q[0, :, 2], 2 * TS, atol=1e-12)
    assert np.isnan(q[1]).all()
    with pytest.raises(eqx.EquinoxRuntimeError, match="do not increase"):
        eqx.filter_jit(lambda ts: mbd.kinematics(mechanism, ts, state).q)(jnp.asarray(TS[::-1]))


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_names_the_instance_and_the_joint() -> None:
    """Under `jit` and `vmap`; and which of several, where `vmap` is nested."""
    place = lambda lengths: state_of(lengths, check=True)[1].q  # noqa: E731
    lengths = jnp.asarray([CLOSES, CLOSES, OPEN, CLOSES])
    text = r"1 of 4 instances .*\nInstance 2: Assembly failed: the joints cannot be closed.* 'C' misses by 0\.\d"
    with pytest.raises(eqx.EquinoxRuntimeError, match=text):
        eqx.filter_jit(jax.vmap(place))(lengths)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"Instance 1, 0: .*'C' misses"):
        jax.block_until_ready(jax.jit(jax.vmap(jax.vmap(place)))(lengths.reshape(2, 2, 4)))


def test_an_error_of_a_motion_names_the_instance_and_the_joint() -> None:
    """A state that is assembled for another length; at rest it would be closed by the stabilisation."""
    mechanism, state = state_of(jnp.asarray(CLOSES), check=True)
    longer = lambda m, x: eqx.tree_at(lambda m: m["C"].a.position, m, jnp.stack([x, 0.0]))  # noqa: E731
    run = eqx.filter_jit(jax.vmap(lambda x: mbd.simulate(longer(mechanism, x), state, TS).q))
    base = LENGTHS[3]
    assert np.isfinite(run(jnp.asarray([base, base]))).all()
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"Instance 1: The joints are not closed .*'C' misses by 0\.001"):
        run(jnp.asarray([base, base + 1e-3]))
