"""Forces and drivers that are not smooth in time, against closed forms.

A rotor of inertia 1 on a torsional spring of stiffness 1 obeys `θ̈ + θ = u(t)`. From rest a jump J of u at `t_k` adds
`J (1 − cos(t − t_k))` to θ(t), a change S of its slope adds `S (t − t_k − sin(t − t_k))`.
"""

import math
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
from jaxmbd.analyses.simulation.native_motion import rates
from jaxmbd.engine import is_program
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.solvers.switching import smallest_gap, switches_of, with_jumps_apart
from tests.marks import in_both_coordinates

HIGH = 1e-10  # of a motion at high accuracy, and of its derivatives
MOTION = 1e-7  # at standard accuracy
SAVED = jnp.array([0.0, 1.0, 2.1, 3.0])  # among them the time of two jumps


def rotor(*forces: Any, coordinates: str = "absolute") -> pl.Mechanism:
    body = pl.Body("r", 1.0, 1.0)
    spring = pl.JointSpringDamper("spring", "O.angle", 1.0)
    pin = pl.Revolute("O", pl.ground.at(0, 0), body.at(0, 0))
    return pl.Mechanism([body], [pin], [spring, *forces], coordinates=coordinates)


def motor(function: Any, name: str = "motor") -> pl.JointForce:
    return pl.JointForce(name, "O.angle", function)


def at_rest(mechanism: pl.Mechanism, t: float = 0.0) -> mbd.State:
    return mbd.assemble(mechanism, {"O.angle": 0.0}, t=t)


def of_jump(since: Any) -> Array:
    """The response to a jump of one, a time ago (none yet where that is negative)."""
    return jnp.where(since > 0, 1 - jnp.cos(jnp.maximum(since, 0.0)), 0.0)


def of_kink(since: Any) -> Array:
    past = jnp.maximum(since, 0.0)
    return jnp.where(since > 0, past - jnp.sin(past), 0.0)


# --- jumps and kinks, all at once --------------------------------------------------------------------------

PARAMETERS = {
    "one": jnp.array([1.0]),
    "two": jnp.array([1.0, 2.0]),  # the first together with the jump of the other force
    "knots": jnp.linspace(0.1, 2.9, 9),
    "values": jnp.array([0.3, -1.0, 2.0, 0.5, -0.7, 1.1, 0.2, -2.0, 0.4]),
    "held": jnp.array([0.5, 1.7]),
}


def many_torques(p: dict[str, Array], coordinates: str) -> pl.Mechanism:
    forces = [
        motor(mbd.Piecewise(p["one"], [0.0, -3.0]), "one"),
        motor(mbd.Piecewise(p["two"], [0.0, lambda t, x, w, _: 2.0 + 0 * x, 1.0]), "two"),
        motor(mbd.Table(p["knots"], p["values"]), "table"),
        motor(mbd.Table(p["held"], jnp.array([0.0, 1.5]), order=0), "held"),
    ]
    return rotor(*forces, coordinates=coordinates)


def exact(p: dict[str, Array], t: Any) -> Array:
    slopes = jnp.diff(p["values"]) / jnp.diff(p["knots"])
    bends = jnp.diff(slopes, prepend=0.0, append=0.0)
    angle = -3.0 * of_jump(t - p["one"][0]) + 2.0 * of_jump(t - p["two"][0]) - of_jump(t - p["two"][1])
    angle += p["values"][0] * of_jump(t) + 1.5 * of_jump(t - p["held"][1])
    return angle + jnp.sum(bends * of_kink(t - p["knots"]))


@in_both_coordinates("absolute")
def test_jumps_and_kinks_cost_no_accuracy_and_all_derivatives_are_exact(coordinates: str) -> None:
    state = at_rest(many_torques(PARAMETERS, coordinates))

    def angles(p: dict[str, Array]) -> tuple[Array, Array]:
        solution = mbd.simulate(many_torques(p, coordinates), state, SAVED, accuracy="high", throw=False)
        return solution["O.angle"], jnp.asarray(solution.stats["num_steps"])

    def both(p: dict[str, Array]) -> Any:
        value, pull, steps = jax.vjp(angles, p, has_aux=True)
        (slopes,) = jax.vmap(pull)(jnp.eye(len(SAVED)))
        return value, steps, slopes

    value, steps, slopes = jax.jit(both)(PARAMETERS)
    truth = lambda p: jax.vmap(lambda t: exact(p, t))(SAVED)  # noqa: E731
    np.testing.assert_allclose(value, truth(PARAMETERS), atol=HIGH)
    assert steps < 80  # 12 times to step onto in three seconds; across them it takes 800
    for name, expected in jax.jacfwd(truth)(PARAMETERS).items():
        np.testing.assert_allclose(slopes[name], expected, atol=HIGH, err_msg=name)


@pytest.mark.slow
def test_forward_derivatives_by_switching_times_are_those_of_reverse_mode() -> None:
    state = at_rest(many_torques(PARAMETERS, "joint"))

    def angles(p: dict[str, Array]) -> Array:
        mechanism = many_torques(p, "joint")
        return mbd.simulate(mechanism, state, SAVED, accuracy="high", adjoint="forward", throw=False)["O.angle"]

    slopes = jax.jit(jax.jacfwd(angles))(PARAMETERS)
    truth = lambda p: jax.vmap(lambda t: exact(p, t))(SAVED)  # noqa: E731
    for name, expected in jax.jacfwd(truth)(PARAMETERS).items():
        np.testing.assert_allclose(slopes[name], expected, atol=HIGH, err_msg=name)


def test_functions_of_time_are_parts_of_the_program() -> None:
    mechanism = many_torques(PARAMETERS, "absolute")
    state = at_rest(mechanism)
    given = Equations(mechanism, False), mbd.Stabilized(), (), state.t, state.q, state.v, state.z
    assert is_program(rates, *given, forward=False)


@pytest.mark.slow
def test_lanes_switch_at_their_own_times_also_outside_of_the_motion() -> None:
    start, end = 0.7, 3.0
    mechanism = rotor(motor(mbd.Piecewise([2.0], [0.0, 2.0])))
    state = at_rest(mechanism, t=start)

    def angle(at: Array) -> Array:
        mine = eqx.tree_at(lambda m: m["motor"].force.times, mechanism, at[None])
        return mbd.simulate(mine, state, jnp.array([start, end]), accuracy="high")["O.angle"][-1]

    inside = jnp.array([0.9, 1.3, 2.99])
    edges = jnp.array([-1.0, start, start + 1e-16, end - 4e-16, end, 5.0])
    value, slope = jax.vmap(jax.value_and_grad(angle))(jnp.concatenate([inside, edges]))
    at = jnp.concatenate([inside, jnp.clip(edges, start, end)])
    np.testing.assert_allclose(value, 2 * of_jump(end - at), atol=HIGH)
    np.testing.assert_allclose(slope, jnp.where(jnp.arange(9) < 3, -2 * jnp.sin(end - at), 0.0), atol=HIGH)


# --- times that a user gives, other solvers and formulations ----------------------------------------------------


@pytest.mark.slow
def test_a_users_own_function_is_as_accurate_once_its_times_are_given() -> None:
    state = at_rest(rotor())

    def angle(at: Array, **options: Any) -> Array:
        mechanism = rotor(pl.JointForce("motor", "O.angle", lambda t, x, w, at: jnp.where(t < at, 0.0, 2.0), at))
        return mbd.simulate(mechanism, state, jnp.array([0.0, 3.0]), accuracy="high", **options)["O.angle"][-1]

    truth = lambda at: 2 * of_jump(3.0 - at)  # noqa: E731
    value, slope = jax.value_and_grad(lambda at: angle(at, switching_times=at[None], throw=False))(jnp.array(1.2))
    np.testing.assert_allclose(value, truth(1.2), atol=HIGH)
    np.testing.assert_allclose(slope, jax.grad(truth)(1.2), atol=HIGH)


def test_jumps_at_one_time_are_parted_in_their_order() -> None:
    """By a gap each; those at the ends of the motion leave it, and those that are apart stay."""
    t0, t1 = jnp.array(-1.0), jnp.array(3.0)
    forces = [motor(mbd.Piecewise([at, 2.0], [0.0, 1.0, 2.0]), f"m{k}") for k, at in enumerate((1.0, -1.0, 1.0))]
    mechanism, more = with_jumps_apart(rotor(*forces), jnp.array([3.0, 1.0, 0.5]), t0, t1)
    gap, times = float(smallest_gap(t0, t1)), [mechanism[f"m{k}"].force.times for k in range(3)]
    found = np.concatenate([np.asarray(more), *map(np.asarray, times)])
    given = np.array([3.0, 1.0, 0.5, 1.0, 2.0, -1.0, 2.0, 1.0, 2.0])
    shifts = np.array([4, 0, 0, 1, 0, -4, 1, 2, 2])  # in gaps
    np.testing.assert_allclose(found - given, gap * shifts, atol=0.3 * gap)


def test_kinks_are_no_jumps() -> None:
    steps = mbd.Piecewise([1.0], [0.0, 2.0])
    bent = mbd.Table([0.5, 2.0], [0.0, 1.0])
    for function, jumps, kinks in ((steps, [1.0], []), (bent, [], [0.5, 2.0])):
        found = switches_of(rotor(motor(function)), None)
        assert found is not None
        np.testing.assert_array_equal(found.jumps, jumps)
        np.testing.assert_array_equal(found.kinks, kinks)
    assert switches_of(rotor(motor(2.0)), None) is None


def test_equal_steps_keep_their_order_across_a_jump() -> None:
    mechanism = rotor(motor(mbd.Piecewise([1.234], [0.0, 2.0])))
    state, errors = at_rest(mechanism), []
    for dt in (0.1, 0.05):
        solution = mbd.simulate(mechanism, state, jnp.array([0.0, 3.0]), solver=mbd.RungeKutta4(), dt0=dt)
        assert int(solution.stats["num_steps"]) == round(3 / dt) + 1
        errors.append(abs(float(solution["O.angle"][-1] - 2 * of_jump(3.0 - 1.234))))
    assert 12 < errors[0] / errors[1] < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"solver": "stiff"}, {"formulation": mbd.Projection()}, {"solver": dfx.Kvaerno3()}],
    ids=["stiff", "projection", "kvaerno3"],
)
def test_other_solvers_and_methods_step_onto_jumps(options: Any) -> None:
    mechanism = rotor(motor(mbd.Piecewise([1.2], [0.0, 2.0])))

    def angle(at: float) -> Array:
        mine = eqx.tree_at(lambda m: m["motor"].force.times, mechanism, jnp.asarray([at]))
        return mbd.simulate(mine, at_rest(mechanism), jnp.array([0.0, 3.0]), **options)["O.angle"][-1]

    value, slope = jax.value_and_grad(angle)(1.2)
    np.testing.assert_allclose(value, 2 * of_jump(1.8), atol=MOTION)
    np.testing.assert_allclose(slope, -2 * np.sin(1.8), atol=3 * MOTION)
    if "solver" in options:
        np.testing.assert_allclose(jax.jit(jax.jacfwd(angle))(1.2), slope, rtol=1e-9)


@pytest.mark.slow
def test_implicit_solvers_inside_two_others_keep_their_tolerances() -> None:
    """Of a formulation that settles, and of steps onto a jump; with either choice of derivatives."""
    mechanism = rotor(motor(mbd.Piecewise([1.2], [0.0, 2.0])))

    def angle(at: Array, derivative: Any) -> Array:
        mine = eqx.tree_at(lambda m: m["motor"].force.times, mechanism, at[None])
        options = {"solver": dfx.Kvaerno3(), "formulation": mbd.Projection(), "adjoint": derivative}
        return mbd.simulate(mine, at_rest(mechanism), jnp.array([0.0, 3.0]), **options)["O.angle"][-1]

    for derivative in ("any", "forward"):
        value, slope = jax.jvp(lambda at: angle(at, derivative), (jnp.array(1.2),), (jnp.array(1.0),))  # noqa: B023
        np.testing.assert_allclose(value, 2 * of_jump(1.8), atol=MOTION)
        np.testing.assert_allclose(slope, -2 * np.sin(1.8), atol=3 * MOTION)


def test_solvers_that_look_beyond_a_step_are_refused_where_something_switches() -> None:
    mechanism = rotor(motor(mbd.Table([0.0, 1.2], [0.0, 2.0])))
    state, ts = at_rest(mechanism), jnp.array([0.0, 3.0])
    for solver, where in ((dfx.Kvaerno4(), "1.15"), (dfx.Kvaerno5(), "1.23")):
        text = f"{type(solver).__name__} evaluates forces beyond the end of a step, at {where} of it.*diffrax.Kvaerno3"
        with pytest.raises(mbd.MechanismError, match=text):
            mbd.simulate(mechanism, state, ts, solver=solver)
    with pytest.raises(
        mbd.MechanismError, match=r"tolerances of the step-size control, and StepTo has none: give them"
    ):
        mbd.simulate(
            mechanism, state, ts, solver=dfx.Kvaerno3(), stepsize_controller=dfx.StepTo(jnp.linspace(0.0, 3.0, 6))
        )


# --- drivers -----------------------------------------------------------------------------------------------


def driven(motion: Any, of: str) -> pl.Mechanism:
    """A rotor on a spring whose foot is driven by φ(t): the spring's angle is that of a rotor with `u = −φ̈`."""
    foot, body = pl.Body("foot", 1.0, 1.0), pl.Body("r", 1.0, 1.0)
    pins = [pl.Revolute("F", pl.ground.at(0, 0), foot.at(0, 0)), pl.Revolute("O", foot.at(0, 0), body.at(0, 0))]
    spring = pl.JointSpringDamper("spring", "O.angle", 1.0)
    return pl.Mechanism([foot, body], pins, [spring], [pl.Driver("motor", "F.angle", motion, prescribes=of)])


@pytest.mark.slow
def test_a_driver_whose_acceleration_jumps() -> None:
    knots, speeds = jnp.array([0.5, 1.1, 2.0]), jnp.array([0.0, 1.5, -0.5])
    state = mbd.assemble(driven(mbd.Table(knots, speeds), "speed"), {"F.angle": 0.0, "O.angle": 0.0})

    def angle(knots: Array, speeds: Array) -> Array:
        mechanism = driven(mbd.Table(knots, speeds), "speed")
        return mbd.simulate(mechanism, state, jnp.array([0.0, 3.0]), accuracy="high", throw=False)["O.angle"][-1]

    def truth(knots: Array, speeds: Array) -> Array:
        jumps = jnp.diff(jnp.diff(speeds) / jnp.diff(knots), prepend=0.0, append=0.0)
        return -jnp.sum(jumps * of_jump(3.0 - knots)) - speeds[0] * jnp.sin(3.0)  # the rotor starts at rest

    value, slopes = jax.jit(jax.value_and_grad(angle, (0, 1)))(knots, speeds)
    np.testing.assert_allclose(value, truth(knots, speeds), atol=HIGH)
    for slope, expected in zip(slopes, jax.grad(truth, (0, 1))(knots, speeds), strict=True):
        np.testing.assert_allclose(slope, expected, atol=HIGH)


def test_a_motion_that_jumps_is_refused() -> None:
    with pytest.raises(
        mbd.MechanismError, match="Driver 'motor': a position and its rate cannot jump, but derivative 1"
    ):
        driven(mbd.Table([0.0, 1.0], [0.0, 1.0]), "position")
    with pytest.raises(mbd.MechanismError, match=r"a speed cannot jump.*Use a Table with order=1"):
        driven(mbd.Table([0.0, 1.0], [0.0, 1.0], order=0), "speed")
    with pytest.raises(mbd.MechanismError, match="at 1 s the rate of the position jumps from 0 to 2"):
        driven(mbd.Piecewise([1.0], [0.0, lambda t: 2 * (t - 1)], order=2), "position")
    driven(mbd.Piecewise([1.0], [0.0, lambda t: 2 * (t - 1) ** 2], order=2), "position")


def test_a_piece_of_a_motion_that_fails_names_its_driver() -> None:
    with pytest.raises(mbd.MechanismError, match=r"Driver 'motor': the function motion converts .* \(math\.sin"):
        driven(mbd.Piecewise([1.0], [0.0, lambda t: math.sin(t)], order=2), "position")
    with pytest.raises(mbd.MechanismError, match=r"Driver 'motor': .* must be a number, got shape \(2,\)"):
        driven(mbd.Piecewise([1.0], [0.0, lambda t: jnp.stack([t, t])], order=2), "position")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mbd.Piecewise([2.0, 1.0], [0.0, 1.0, 2.0]), r"times\[1\] = 1 does not come after times\[0\] = 2"),
        (lambda: mbd.Piecewise([2.0], [0.0]), "1 times have 2 pieces between them, got 1"),
        (lambda: mbd.Piecewise([2.0], [0.0, 1.0], order=-1), "order is the lowest derivative"),
        (lambda: mbd.Piecewise(2.0, [0.0, 1.0]), r"at least one number, got shape \(\)"),
        (lambda: mbd.Table([0.0, jnp.nan], [0.0, 1.0]), r"Table: times\[1\] must be finite, got nan"),
        (
            lambda: mbd.Table([0.0, 1.0], [[0.0, 1.0], [jnp.inf, 1.0]]),
            r"Table: values\[1\]\[0\] must be finite, got inf",
        ),
        (
            lambda: mbd.Piecewise([1.0], [0.0, np.array([1, np.nan])]),
            r"Piecewise: pieces\[1\]\[1\] must be finite, got nan",
        ),
        (lambda: mbd.Table([0.0, 0.0], [0.0, 1.0]), "times must increase"),
        (lambda: mbd.Table([0.0, 1.0], [0.0]), r"a row for each of the 2 times, got shape \(1,\)"),
        (lambda: mbd.Table([0.0, 1.0], [0.0, 1.0], order=3), "order must be 1 .* or 0"),
    ],
)
def test_wrong_functions_of_time_are_refused(make: Any, text: str) -> None:
    with pytest.raises(mbd.MechanismError, match=text):
        make()


def test_wrong_times_are_refused() -> None:
    mechanism = rotor(motor(mbd.Piecewise([2.0], [0.0, 2.0])))
    state, ts = at_rest(mechanism), jnp.array([0.0, 3.0])
    for wrong in ("soon", 1.0, [jnp.inf]):
        with pytest.raises(mbd.MechanismError, match=r"switching_times must be a sequence of finite times \[s\]"):
            mbd.simulate(mechanism, state, ts, switching_times=wrong)
    with pytest.raises(mbd.MechanismError, match="a force or driver switches at 2 s: add this time"):
        mbd.simulate(mechanism, state, ts, stepsize_controller=dfx.StepTo(jnp.linspace(0.0, 3.0, 8)))
    # Where the steps are given, they are taken as they are.
    mbd.simulate(mechanism, state, ts, stepsize_controller=dfx.StepTo(jnp.linspace(0.0, 3.0, 7)))


# --- events that change forces -----------------------------------------------------------------------------


def clock(name: str, at: Any, then: Any) -> mbd.Event:
    return mbd.Event(name, lambda now: now.t, above=at, then=then)


@pytest.mark.slow
@in_both_coordinates("absolute")
def test_events_switch_forces_and_change_their_numbers(coordinates: str) -> None:
    mechanism = rotor(motor(2.0), motor(5.0, "other"), coordinates=coordinates)
    state, ts = at_rest(mechanism), jnp.linspace(0.0, 3.0, 13)

    def run(at: Array, value: Array) -> mbd.Solution:
        events = [
            clock("off", at[0], mbd.Switch("motor", on=False)),
            clock("on", at[1], mbd.Switch("motor", on=True)),
            clock("start", at[2], mbd.Switch("other", on=True, initially=False)),
            clock("less", at[3], mbd.Change(lambda m: m["other"].force, value)),
        ]
        return mbd.simulate(mechanism, state, ts, accuracy="high", events=events, max_events=5, throw=False)

    def truth(at: Array, value: Array, t: Any) -> Array:
        first = 2 * (of_jump(t) - of_jump(t - at[0]) + of_jump(t - at[1]))
        return first + 5 * of_jump(t - at[2]) + (value - 5) * of_jump(t - at[3])

    def last(at: Array, value: Array) -> tuple[Array, mbd.Solution]:
        solution = run(at, value)
        return solution["O.angle"][-1], solution

    at, value = jnp.array([0.8, 1.6, 0.4, 2.2]), jnp.array(-1.0)
    (_, solution), slopes = eqx.filter_jit(jax.value_and_grad(last, (0, 1), has_aux=True))(at, value)
    np.testing.assert_allclose(solution["O.angle"], jax.vmap(lambda t: truth(at, value, t))(ts), atol=HIGH)
    # What is read off the motion is what acted.
    np.testing.assert_array_equal(solution["motor.effort"], np.where((ts > at[0]) & (ts < at[1]), 0.0, 2.0))
    np.testing.assert_array_equal(solution["other.effort"], np.where(ts > at[2], np.where(ts > at[3], -1.0, 5.0), 0.0))
    acceleration = solution["motor.effort"] + solution["other.effort"] - solution["O.angle"]
    np.testing.assert_allclose(solution["r.alpha"], acceleration, atol=1e-12)
    for slope, expected in zip(slopes, jax.grad(truth, (0, 1))(at, value, 3.0), strict=True):
        np.testing.assert_allclose(slope, expected, atol=HIGH)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
@pytest.mark.parametrize("options", [{"solver": "stiff"}, {"formulation": mbd.CoordinatePartitioning()}])
def test_events_change_forces_with_other_solvers_and_formulations(options: Any, coordinates: str) -> None:
    """A force switched off, one switched on and then changed."""
    mechanism = rotor(motor(2.0), motor(5.0, "other"), coordinates=coordinates)
    state, ts = at_rest(mechanism), jnp.linspace(0.0, 3.0, 13)

    def truth(at: Array, value: Array, t: Any) -> Array:
        return 2 * (of_jump(t) - of_jump(t - at[0])) + 5 * of_jump(t - at[1]) + (value - 5) * of_jump(t - at[2])

    def last(at: Array, value: Array) -> tuple[Array, mbd.Solution]:
        events = [
            clock("off", at[0], mbd.Switch("motor", on=False)),
            clock("start", at[1], mbd.Switch("other", on=True, initially=False)),
            clock("less", at[2], mbd.Change(lambda m: m["other"].force, value)),
        ]
        given = {"events": events, "max_events": 4, "throw": False, **options}
        solution = mbd.simulate(mechanism, state, ts, accuracy="high", **given)
        return solution["O.angle"][-1], solution

    at, value = jnp.array([0.8, 0.4, 2.2]), jnp.array(-1.0)
    (_, solution), slopes = eqx.filter_jit(jax.value_and_grad(last, (0, 1), has_aux=True))(at, value)
    np.testing.assert_allclose(solution["O.angle"], jax.vmap(lambda t: truth(at, value, t))(ts), atol=MOTION)
    np.testing.assert_array_equal(solution["other.effort"], np.where(ts > at[1], np.where(ts > at[2], -1.0, 5.0), 0.0))
    assert int(solution.stats["num_steps"]) < 100
    for slope, expected in zip(slopes, jax.grad(truth, (0, 1))(at, value, 3.0), strict=True):
        np.testing.assert_allclose(slope, expected, atol=3 * MOTION)


@pytest.mark.slow
def test_forces_that_switch_together_with_events_have_the_derivatives_of_either_side() -> None:
    """Two torques jump, an event switches off the second of them, another one a third torque, all nearly at once."""
    jumps = [motor(mbd.Piecewise([1.2], [0.5, 2.0]), "one"), motor(mbd.Piecewise([1.2], [1.0, -1.0]), "two")]
    mechanism = rotor(*jumps, motor(3.0, "three"))
    state = at_rest(mechanism)

    def last(of_one: Array, of_two: Array, tau: Array) -> Array:
        where = lambda m: (m["one"].force.times, m["two"].force.times)  # noqa: E731
        mine = eqx.tree_at(where, mechanism, (of_one[None], of_two[None]))
        events = [clock(name, tau, mbd.Switch(name, on=False)) for name in ("three", "two")]
        return mbd.simulate(mine, state, jnp.array([0.0, 3.0]), events=events, max_events=3, throw=False)["O.angle"][-1]

    s, slopes = np.sin(3.0 - 1.2), jax.jit(jax.grad(last, (0, 1, 2)))
    for by in (0.0, 1e-16, 1e-10, -1e-10):  # at one time a switch counts as just after the event
        found = slopes(jnp.array(1.2 + by), jnp.array(1.2 + by), jnp.array(1.2))
        expected = [-1.5 * s, 2 * s, 2 * s] if by < 0 else [-1.5 * s, 0.0, 4 * s]
        np.testing.assert_allclose(found, expected, atol=3 * MOTION, err_msg=str(by))


def test_springs_gravity_and_users_forces_are_switched_too() -> None:
    body = pl.Body("b", 2.0, 1.0)
    push = lambda t, q, v, _: jnp.array([3.0, 0.0, 0.0])  # noqa: E731
    forces = [
        pl.Gravity(9.81),
        pl.GeneralizedForce("push", push),
        pl.SpringDamper("spring", pl.ground.at(0, 1), body.at(0, 0), 7.0, 0.25),
    ]
    mechanism = pl.Mechanism([body], forces=forces, floating=True)
    state = mbd.assemble(mechanism, {"b.x": 0.0, "b.y": 0.0, "b.theta": 0.0})
    off = [clock(name, 0.1, mbd.Switch(name, on=False)) for name in ("gravity", "push", "spring")]
    solution = mbd.simulate(mechanism, state, jnp.array([0.0, 0.05, 0.2, 0.3]), events=off, max_events=4)
    np.testing.assert_allclose(solution["b.ax"][:2], 1.5, atol=1e-2)
    np.testing.assert_allclose(solution["b.ax"][2:], 0.0, atol=1e-12)
    np.testing.assert_allclose(solution["b.ay"][2:], 0.0, atol=1e-12)
    assert solution["spring.tension"][0] == 7.0 * 0.75
    np.testing.assert_array_equal(solution["spring.tension"][2:], 0.0)
    np.testing.assert_array_equal(solution["potential_energy"][2:], 0.0)


def test_changes_of_forces_that_there_are_not_are_refused() -> None:
    mechanism = rotor(motor(2.0))
    state, ts = at_rest(mechanism), jnp.array([0.0, 1.0])
    inertia = mbd.Change(lambda m: m["r"].inertia, 1.0)
    for then, text in (
        (mbd.Switch("moter", on=False), "force for the event 'e' to switch.*Did you mean 'motor'"),
        (inertia, "Change acts on one array of a force"),
        (mbd.Change(lambda m: m["motor"].force, [1.0, 2.0]), r"must have the shape \(\)"),
        (mbd.Change(lambda m: m["nothing"], 1.0), "where must pick one number"),
    ):
        with pytest.raises(mbd.MechanismError, match=text):
            mbd.simulate(mechanism, state, ts, events=[clock("e", 0.5, then)])
    twice = [
        clock("a", 0.2, mbd.Switch("motor", on=False)),
        clock("b", 0.5, mbd.Switch("motor", True, initially=False)),
    ]
    with pytest.raises(mbd.MechanismError, match="another event says that the force is on at the start"):
        mbd.simulate(mechanism, state, ts, events=twice)
