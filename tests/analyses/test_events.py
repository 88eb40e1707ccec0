"""Events: impacts, latches and stops against closed forms and balances; derivatives by value; both descriptions.

Mechanisms are small and the programs few: what takes time here is compiling.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.events.event import as_quantity
from jaxmbd.analyses.events.event_log import USED_UP
from jaxmbd.analyses.events.impact import ImpactResult, impact
from jaxmbd.equations.equations import Equations
from tests.marks import in_both_coordinates

ROUNDING = 1e-12
TIME = 1e-9  # [s] of impacts on a parabola, which the integration has exactly
MOTION = 1e-7  # of a motion at standard accuracy


# --- a ball on a floor: everything in closed form -------------------------------------------------


def bounces(e: Any, g: Any, h: Any, count: int) -> Array:
    """The times of the bounces of a ball dropped from `h`: `t₁ (1 + 2 e + 2 e² + …)`, `t₁ = √(2h/g)`."""
    flights = jnp.stack([jnp.ones(()), *(2 * e**k for k in range(1, count))])
    return jnp.sqrt(2 * h / g) * jnp.cumsum(flights)


def dropped_ball(g: Any, h: Any) -> tuple[pl.Mechanism, mbd.State]:
    """A ball at a height `h` that drifts to the right at 0.3 m/s."""
    mechanism = pl.Mechanism([pl.Body("ball", 1.0, 0.1)], forces=[pl.Gravity(g)], floating=True)
    q, v = jnp.stack([jnp.zeros(()), jnp.asarray(h, float), jnp.zeros(())]), jnp.asarray([0.3, 0.0, 0.0])
    return mechanism, mbd.State(jnp.zeros(()), q, v, mechanism.layout)


def dropped(e: Any, g: Any, h: Any, room: int = 8, **options: Any) -> mbd.Solution:
    """The ball bounces for 2 s."""
    mechanism, state = dropped_ball(g, h)
    floor = mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(e))
    return mbd.simulate(mechanism, state, jnp.linspace(0.0, 2.0, 21), events=[floor], max_events=room, **options)


@pytest.fixture(scope="module")
def ball() -> mbd.Solution:
    return dropped(0.8, 9.81, 0.5)


def test_ball_bounces_at_the_times_of_the_closed_form(ball: mbd.Solution) -> None:
    assert ball.events is not None
    count = int(ball.events.count)
    assert count == 5
    np.testing.assert_allclose(ball.events.times_of("floor"), bounces(0.8, 9.81, 0.5, 5), rtol=0, atol=TIME)
    assert [name for name, _ in ball.events] == ["floor"] * 5
    before, after = ball.events.before[:count, 1], ball.events.after[:count, 1]
    np.testing.assert_allclose(after, -0.8 * before, atol=ROUNDING)
    np.testing.assert_allclose(ball.events.impulse[:count], after - before, atol=ROUNDING)
    np.testing.assert_array_equal(ball.events.which[count:], -1)
    np.testing.assert_array_equal(ball.events.times[count:], 2.0)


def test_saved_values_are_those_of_the_right_flight(ball: mbd.Solution) -> None:
    starts = np.concatenate([[-math.sqrt(2 * 0.5 / 9.81)], bounces(0.8, 9.81, 0.5, 6)])
    flight = np.searchsorted(starts, ball.ts, side="right") - 1
    speed = 0.8**flight * math.sqrt(2 * 9.81 * 0.5)
    since = np.asarray(ball.ts) - starts[flight]
    np.testing.assert_allclose(ball["ball.y"], speed * since - 9.81 / 2 * since**2, atol=TIME)
    np.testing.assert_allclose(ball["ball.vy"], speed - 9.81 * since, atol=TIME)
    np.testing.assert_allclose(ball["ball.x"], 0.3 * np.asarray(ball.ts), atol=TIME)


@pytest.mark.parametrize("derivative", ["reverse", pytest.param("forward", marks=pytest.mark.slow)])
def test_derivatives_of_bounces_by_closed_form(derivative: Any) -> None:
    """Of the third bounce's time, and of the height at the end of the run, by saltation through all bounces before."""

    def outcome(p: Array) -> Array:
        e, g, h = p
        run = dropped(e, g, h, adjoint=derivative)
        assert run.events is not None
        return jnp.stack([run.events.times[2], run.q[-1, 1]])

    def closed(p: Array) -> Array:
        e, g, h = p
        times = bounces(e, g, h, 5)
        since = 2.0 - times[4]
        return jnp.stack([times[2], e**5 * jnp.sqrt(2 * g * h) * since - g / 2 * since**2])

    p = jnp.asarray([0.8, 9.81, 0.5])
    jacobian = jax.jacrev if derivative == "reverse" else jax.jacfwd
    np.testing.assert_allclose(jax.jit(jacobian(outcome))(p), jax.jacfwd(closed)(p), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_lanes_of_a_batch_bounce_as_often_as_they_like() -> None:
    es = jnp.asarray([0.5, 0.8, 1.0])
    log = jax.jit(jax.vmap(lambda e: dropped(e, 9.81, 0.5, room=16, throw=False).events))(es)
    np.testing.assert_array_equal(log.trouble, [USED_UP, 0, 0])
    for e, count, mine in zip(es, log.count, log.times, strict=True):
        expected = bounces(e, 9.81, 0.5, 16)
        expected = expected[expected < 2.0][:16]
        np.testing.assert_allclose(mine[: len(expected)], expected, atol=TIME)
        assert count == len(expected)


def test_what_only_passes_is_listed() -> None:
    """Rising through 0.2 m, once in each flight that gets there; the fall through it is no event."""
    mechanism, start = dropped_ball(9.81, 0.5)
    events = [
        mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(0.8)),
        mbd.Event("rise", "ball.y", above=0.2, then=mbd.LogOnly()),
    ]
    log = mbd.simulate(mechanism, start, jnp.linspace(0.0, 1.5, 31), events=events, max_events=12).events
    assert log is not None
    floor = bounces(0.8, 9.81, 0.5, 3)
    speed = 0.8 ** jnp.arange(1, 3) * math.sqrt(2 * 9.81 * 0.5)
    rise = floor[:2] + (speed - jnp.sqrt(speed**2 - 2 * 9.81 * 0.2)) / 9.81
    expected = [("floor", floor[0]), ("rise", rise[0]), ("floor", floor[1]), ("rise", rise[1]), ("floor", floor[2])]
    assert [name for name, _ in log][:5] == [name for name, _ in expected]
    np.testing.assert_allclose(log.times[:5], [t for _, t in expected], atol=TIME)
    np.testing.assert_array_equal(log.before[1], log.after[1])


@pytest.mark.parametrize("e", [0.5, 0.0])
def test_a_ball_that_comes_to_rest_is_reported(e: float) -> None:
    """Endless bounces, within 1.3 s, and a plastic impact, after which the floor would have to carry."""
    with pytest.raises(mbd.SolveError, match=r"event 'floor': More happened than max_events(.|\n)*Latch or Stop"):
        dropped(e, 9.81, 0.5, room=16)


@pytest.mark.slow
def test_trouble_is_raised_by_a_compiled_program() -> None:
    with pytest.raises(Exception, match="More happened than max_events"):
        jax.block_until_ready(eqx.filter_jit(lambda e: dropped(e, 9.81, 0.5, room=2).q)(jnp.asarray(0.8)))


# --- pendulums -----------------------------------------------------------------------------------

M, R, INERTIA = 1.0, 0.5, 0.25  # [kg, m, kg m²] of the pendulum; its inertia about the pivot is 0.5 kg m²
PIVOT = INERTIA + M * R**2


def pendulum(coordinates: str = "absolute") -> pl.Mechanism:
    """A rod on a pin; at angle zero it is horizontal, to the right of the pin."""
    rod = pl.Body("rod", M, INERTIA, pose=(R, 0.0, 0.0))
    pin = pl.Revolute("O", pl.ground.at(), rod.at(-R, 0.0))
    return pl.Mechanism([rod], [pin], [pl.Gravity(9.81)], coordinates=coordinates)


def swung(mechanism: Any, events: list[mbd.Event], end: float = 1.0, **options: Any) -> mbd.Solution:
    state = mbd.assemble(mechanism, {"O.angle": 0.0}, speeds={"O.angle": 0.0})
    return mbd.simulate(mechanism, state, jnp.linspace(0.0, end, 11), events=events, max_events=4, **options)


@in_both_coordinates("joint")
def test_pendulum_hits_a_stop(coordinates: str) -> None:
    """Released from the horizontal it meets a stop at 60° below; energy, and momenta with the pin's impulse."""
    stop = mbd.Event("stop", "O.angle", below=-math.pi / 3, then=mbd.Bounce(0.6))
    log = swung(pendulum(coordinates), [stop], 0.6).events
    assert log is not None
    assert int(log.count) == 1
    omega = math.sqrt(2 * M * 9.81 * R * math.sin(math.pi / 3) / PIVOT)
    before, after = log.before[0, -1], log.after[0, -1]
    np.testing.assert_allclose([before, after], [-omega, 0.6 * omega], atol=MOTION)
    np.testing.assert_allclose(log.impulse[0], PIVOT * 1.6 * omega, atol=MOTION)
    loss = 0.5 * PIVOT * (before**2 - after**2)
    np.testing.assert_allclose(loss, (1 - 0.6**2) / 2 * PIVOT * omega**2, atol=MOTION)
    # The stop is a torque between ground and rod: the pin alone changes the momentum of the centre.
    centre = M * R * 1.6 * omega * np.array([math.sin(math.pi / 3), math.cos(math.pi / 3)])
    np.testing.assert_allclose(log.reaction("O")[0], [*centre, 0.0], atol=MOTION)


def falling(angle: Any, g: Any) -> Array:
    """The time from the horizontal down to an angle, `∫ dθ / ω`, with `θ = u²` against the singular start."""
    x, w = (jnp.asarray(a) for a in np.polynomial.legendre.leggauss(60))
    top = jnp.sqrt(angle)
    u = top * (x + 1) / 2
    return jnp.sum(w * top * u / jnp.sqrt(2 * M * g * R / PIVOT * jnp.sin(u**2)))


@pytest.mark.slow
@pytest.mark.parametrize("derivative", [pytest.param("reverse", marks=pytest.mark.slow), "forward"])
def test_derivatives_of_a_stopped_pendulum(derivative: Any) -> None:
    """The time of the stop and the speed there, in the angle of the stop and in gravity."""
    mechanism = pendulum("joint")

    def outcome(p: Array) -> Array:
        angle, g = p
        m = eqx.tree_at(lambda m: m.forces[0].acceleration, mechanism, g)
        stop = mbd.Event("stop", "O.angle", below=-angle)
        run = swung(m, [stop], adjoint=derivative, accuracy="high")
        return jnp.stack([run.ts[-1], run.v[-1, 0], run.q[-1, 0]])

    def closed(p: Array) -> Array:
        angle, g = p
        return jnp.stack([falling(angle, g), -jnp.sqrt(2 * M * g * R * jnp.sin(angle) / PIVOT), -angle])

    p = jnp.asarray([1.0, 9.81])
    np.testing.assert_allclose(jax.jit(outcome)(p), closed(p), atol=1e-9)
    jacobian = jax.jacrev if derivative == "reverse" else jax.jacfwd
    np.testing.assert_allclose(jax.jit(jacobian(outcome))(p), jax.jacfwd(closed)(p), atol=1e-7)


def motor_driven() -> pl.Mechanism:
    """The pendulum with a torque of 2 t [N m]."""
    return pendulum("joint").replacing(forces=[pl.JointForce("motor", "O.angle", lambda t, *_: 2.0 * t)])


def test_an_impact_may_have_the_name_of_a_part_whose_effort_is_watched() -> None:
    """Neither the impact nor another event's latch hides the part's own effort."""
    events = [
        mbd.Event("catch", "O.angle", above=0.1, then=mbd.Latch()),
        mbd.Event("motor", "O.angle", below=-3.0, then=mbd.Bounce(0.5)),
        mbd.Event("strong", "motor.effort", above=1.0),
    ]
    run = swung(motor_driven(), events)
    assert run.events is not None
    np.testing.assert_allclose(run.events.times_of("strong"), [0.5], atol=TIME)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_pendulum_in_space_hits_a_stop(coordinates: str) -> None:
    rod = sp.Body("rod", M, (INERTIA, INERTIA, INERTIA), pose=(R, 0.0, 0.0))
    pin = sp.Revolute("O", sp.ground.at(), rod.at(-R))
    mechanism = sp.Mechanism([rod], [pin], [sp.Gravity((0.0, -9.81, 0.0))], coordinates=coordinates)
    log = swung(mechanism, [mbd.Event("stop", "O.angle", below=-1.0, then=mbd.Bounce(0.6))], 0.6).events
    assert log is not None
    omega = math.sqrt(2 * M * 9.81 * R * math.sin(1.0) / PIVOT)
    np.testing.assert_allclose(log.times[0], falling(1.0, 9.81), atol=MOTION)
    np.testing.assert_allclose([log.before[0, -1], log.after[0, -1]], [-omega, 0.6 * omega], atol=MOTION)
    np.testing.assert_allclose(log.impulse[0], PIVOT * 1.6 * omega, atol=MOTION)


# --- closed loops --------------------------------------------------------------------------------


def test_slider_crank_stops_at_a_coordinate() -> None:
    """A constant torque turns the crank until the slider is at 0.33 m: its work is the kinetic energy there."""
    crank, rod = pl.Body("crank", 0.2, 2e-4, (0.05, 0, 0)), pl.Body("rod", 0.2, 1.5e-3, (0.25, 0, 0))
    slider = pl.Body("slider", 0.4, 1e-3, (0.4, 0, 0))
    mechanism = pl.Mechanism(
        [crank, rod, slider],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-0.05, 0.0)),
            pl.Revolute("B", crank.at(0.05, 0.0), rod.at(-0.15, 0.0)),
            pl.Revolute("C", rod.at(0.15, 0.0), slider.at()),
            pl.Prismatic("rail", pl.ground.at(), slider.at()),
        ],
        [pl.Torque("motor", crank.at(), 0.1)],
    )
    state = mbd.assemble(mechanism, {"O.angle": 0.3})
    run = mbd.simulate(mechanism, state, jnp.linspace(0.0, 1.0, 21), events=[mbd.Event("end", "slider.x", below=0.33)])
    assert run.events is not None
    t = run.events.times[0]
    np.testing.assert_array_equal(run.ts, np.minimum(np.linspace(0.0, 1.0, 21), t))
    stopped = np.asarray(run.ts) == t
    assert 1 < stopped.sum() < 20
    found = run.read(["slider.x", "crank.theta", "kinetic_energy"])
    np.testing.assert_allclose(found["slider.x"][stopped], 0.33, atol=1e-10)
    angle = math.acos((0.1**2 + 0.33**2 - 0.3**2) / (2 * 0.1 * 0.33))
    np.testing.assert_allclose(found["crank.theta"][-1], angle, atol=MOTION)
    np.testing.assert_allclose(found["kinetic_energy"][-1], 0.1 * (angle - 0.3), atol=MOTION)


def four_bar() -> pl.Mechanism:
    crank, coupler = pl.Body("crank", 0.3, 4e-4, (0.03, 0.05, 1.0)), pl.Body("coupler", 0.5, 5e-3, (0.23, 0.16, 0.35))
    rocker = pl.Body("rocker", 0.4, 2e-3, (0.4, 0.12, 1.6))
    pins = [
        pl.Revolute("O", pl.ground.at(), crank.at(-0.06, 0.0)),
        pl.Revolute("A", crank.at(0.06, 0.0), coupler.at(-0.175, 0.0)),
        pl.Revolute("B", coupler.at(0.175, 0.0), rocker.at(0.125, 0.0)),
        pl.Revolute("C", pl.ground.at(0.4, 0.0), rocker.at(-0.125, 0.0)),
    ]
    return pl.Mechanism([crank, coupler, rocker], pins)


@eqx.filter_jit
def struck(mechanism: Any, along: Any, state: mbd.State, e: float) -> tuple[ImpactResult, dict[str, Array]]:
    """An impact, and what its balances leave: of constraints, energy and momentum."""
    at, yes = Equations(mechanism).at(state.t, state.q), jnp.ones(1, bool)
    jump = impact(at, (as_quantity(along),), state.v, yes, ~yes, jnp.asarray([e]))
    left = at.inertia.times(jump.v - state.v) + at.jacobian.T @ jump.lam
    energies = jnp.stack([at.kinetic_energy(v) for v in (state.v, jump.v)])
    last = jax.value_and_grad(lambda v: at.twists(v)[-1, -1])(state.v)
    return jump, {
        "velocity": at.velocity(jump.v),
        "momentum": left,
        "energies": energies,
        "rate": last[0],
        "G": last[1],
    }


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_impact_on_a_four_bar(coordinates: str) -> None:
    """With one degree of freedom all speeds turn back by e, and all energy is left by e²."""
    mechanism = four_bar().with_coordinates(coordinates)
    state = mbd.assemble(mechanism, {"O.angle": 1.0}, speeds={"O.angle": 3.0})
    jump, found = struck(mechanism, "rocker.theta", state, 0.5)
    np.testing.assert_allclose(found["velocity"], 0.0, atol=ROUNDING)
    np.testing.assert_allclose(jump.v, -0.5 * state.v, atol=1e-10)
    before, after = found["energies"]
    np.testing.assert_allclose(after, 0.25 * before, atol=1e-10)
    np.testing.assert_allclose(-0.5 * jump.impulses[0] * (1 - 0.5) * found["rate"], 0.75 * before, atol=1e-10)
    np.testing.assert_allclose(found["momentum"], found["G"] * jump.impulses[0], atol=ROUNDING)


class End(eqx.Module):
    """The height of a rod's end, as a user's own function of an instant."""

    arm: Array

    def __call__(self, at: mbd.Snapshot) -> Array:
        return at.q[1] + self.arm * jnp.sin(at.q[2])


def test_impact_along_a_function_of_position() -> None:
    """A rod strikes the floor with its end: the impulse is `(1 + e) v_n / (1/m + a² cos²θ / I)`."""
    mechanism = pl.Mechanism([pl.Body("rod", 2.0, 0.3)], floating=True)
    state = mbd.assemble(
        mechanism,
        {"rod.x": 0.0, "rod.y": 0.2, "rod.theta": -0.4},
        speeds={"rod.vx": 0.3, "rod.vy": -1.0, "rod.omega": 0.7},
    )
    jump, _ = struck(mechanism, End(jnp.asarray(0.5)), state, 0.5)
    lever = 0.5 * math.cos(-0.4)
    p = 1.5 * (1.0 - lever * 0.7) / (1 / 2.0 + lever**2 / 0.3)
    np.testing.assert_allclose(jump.impulses, [p], atol=ROUNDING)
    np.testing.assert_allclose(jump.v, [0.3, -1.0 + p / 2.0, 0.7 + lever * p / 0.3], atol=ROUNDING)


@pytest.mark.slow
def test_an_impact_that_constraints_forbid_is_reported() -> None:
    mechanism = eqx.tree_at(lambda m: m.forces, pendulum("joint"), ())
    driven = pl.Mechanism(mechanism.bodies, mechanism.joints, drivers=[pl.Driver("motor", "O.angle", lambda t: -2 * t)])
    stop = mbd.Event("stop", "O.angle", below=-1.0, then=mbd.Bounce(0.5))
    with pytest.raises(mbd.SolveError, match=r"At t = 0.5 s, event 'stop': The coordinate cannot change there"):
        mbd.simulate(driven, mbd.assemble(driven), [0.0, 1.0], events=[stop], max_events=2)


# --- mistakes ------------------------------------------------------------------------------------

MISTAKES = [
    (lambda: mbd.Bounce(1.2), r"restitution must be from 0 .* to 1 .*, got 1.2"),
    (lambda: mbd.Event("a.b", "ball.y", below=0.0), "a non-empty string without a dot"),
    (lambda: mbd.Event("hit", "ball.y"), "give one of below, above and at, got 0"),
    (lambda: mbd.Event("hit", "ball.y", below=0.0, above=1.0), "got 2 of them"),
    (lambda: drop(mbd.Event("hit", "bal.y", below=0.0)), "no quantity for the event 'hit' named 'bal.y'. Did you mean"),
    (lambda: drop(*[mbd.Event("hit", "ball.y", below=0.0)] * 2), "Two events are named 'hit'"),
    (lambda: drop(mbd.Event("hit", lambda at: at.q, below=0.0)), r"the function's result has shape \(3,\)"),
    (
        lambda: drop(mbd.Event("hit", "ball.vy", below=-1.0, then=mbd.Bounce())),
        "'hit': Bounce acts along a position .* 'ball.vy' is in m/s. Name the coordinate",
    ),
    (
        lambda: drop(mbd.Event("open", "ball.y", below=0.0, then=mbd.Release("catsh"))),
        "no latch for the event 'open' to release named 'catsh'",
    ),
    (
        lambda: swung(motor_driven(), [mbd.Event("motor", "O.angle", below=-1.0, then=mbd.Latch())]),
        "'motor': 'motor.effort' would be the effort of its latch and that of the part 'motor'; give the event another",
    ),
    (lambda: drop(mbd.Event("hit", "ball.y", below=0.0), max_events=0), "max_events must be at least 1, got 0"),
]


def drop(*events: Any, **options: Any) -> mbd.Solution:
    mechanism, start = dropped_ball(9.81, 0.5)
    return mbd.simulate(mechanism, start, [0.0, 1.0], events=events, **options)


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_named(mistake: Any, message: str) -> None:
    with pytest.raises(mbd.MechanismError, match=message):
        mistake()


def test_an_event_that_has_happened_at_the_start() -> None:
    with pytest.raises(mbd.MechanismError, match=r"t = 0 s, event 'floor': .* already happened at the start"):
        dropped(0.8, 9.81, -0.1)


def test_other_formulations_and_latches() -> None:
    latch = mbd.Event("catch", "ball.y", below=0.2, then=mbd.Latch())
    with pytest.raises(mbd.MechanismError, match="Latch cannot be used with CoordinatePartitioning"):
        drop(latch, formulation=mbd.CoordinatePartitioning())


def test_an_event_at_a_time() -> None:
    """The time is a quantity: something is listed then, and the motion ends; it is no position to bounce along."""
    turn = mbd.Event("turn", "t", above=0.37, then=mbd.LogOnly())
    found = swung(pendulum("joint"), [turn, mbd.Event("end", "t", at=0.81)])
    assert found.events is not None
    np.testing.assert_allclose(found.events.times[:2], [0.37, 0.81], atol=1e-14)
    free = mbd.simulate(found.mechanism, found.state(0), jnp.array([0.0, 0.37, 0.81]))
    np.testing.assert_allclose(found.events.q[:2], free.q[1:], atol=MOTION)
    np.testing.assert_allclose(found.q[-1], free.q[-1], atol=MOTION)
    with pytest.raises(mbd.MechanismError, match=r"Bounce acts along a position \[m or rad\], and 't' is in s"):
        swung(pendulum("joint"), [mbd.Event("turn", "t", above=0.37, then=mbd.Bounce())])


def test_derivatives_by_the_time_of_an_event() -> None:
    """The angle where the motion ends at `τ` has the derivative of the speed there."""

    def last(end: Array) -> Array:
        return swung(pendulum("joint"), [mbd.Event("end", "t", at=end)]).q[-1, 0]

    run = swung(pendulum("joint"), [mbd.Event("end", "t", at=0.7)])
    np.testing.assert_allclose(jax.grad(last)(jnp.asarray(0.7)), run.v[-1, 0], atol=1e-7)
