"""Friction by the load of a joint: a pendulum on a dry pin, against published numbers, and mechanisms in which several
joints rub, against the balance of forces written out with NumPy.

The pendulum's numbers are those of an integration with the load solved at each instant, to relative tolerances of 1e-11
and 1e-13, which differ by 2e-9 at most; it is the case that MuJoCo's issue 621 and Drake's issue 18932 ask for.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.integrate.formulations.formulation import Augmented, Kinematic, Stabilized
from jaxmbd.integrate.formulations.joint_loads import motion_of
from jaxmbd.state.output_channels import Reader

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12, "max_events": 64}
MU, PIN = 0.3, 0.05

TURNS = (1.0552881192, 2.0539907347, 3.0145019724, 3.9471890348, 4.8586122206, 5.7532433456)
AT_TURNS = (-1.7865868046, 1.6132052853, -1.4653618919, 1.3354806053, -1.2190352648, 1.1130505514)
AT_TEN = (-0.662820045694, -0.6128821142)
BY_MU = (1.26242018, 8.21857901)  # at 3 s
FIRST_TURN_BY_MU = -0.0842004632
FIRST_LOAD = 4.7034376374


def hung(mu: Any = MU, coordinates: str = "absolute", *more: Any) -> pl.Mechanism:
    rod = pl.Body("rod", 1.0, 1 / 12)
    pin = pl.LoadFriction("pin", "O.angle", mu, radius=PIN)
    joint = pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.5))
    return pl.Mechanism([rod], [joint], [pl.Gravity(9.81), pin, *more], coordinates=coordinates)


def swing(mechanism: pl.Mechanism, ts: Any, **settings: Any) -> mbd.Solution:
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 2.0}), ts, **(TIGHT | settings))


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_pendulum_on_a_dry_pin(coordinates: str) -> None:
    solution = swing(hung(MU, coordinates), np.linspace(0.0, 10.0, 101))
    np.testing.assert_allclose([solution["O.angle"][-1], solution["O.angle_rate"][-1]], AT_TEN, atol=1e-8)
    assert solution.events is not None
    sticks = np.sort(np.asarray(solution.events.times_of("pin.sticks")))
    turns = sticks[sticks > 0][:6]
    np.testing.assert_allclose(turns, TURNS, atol=1e-9)
    load = np.hypot(solution["O.fx"], solution["O.fy"])
    np.testing.assert_allclose(load[0], FIRST_LOAD, atol=1e-9)
    np.testing.assert_allclose(solution["pin.effort"], -MU * PIN * load * solution["pin.direction"], atol=1e-12)
    assert solution.engine != "diffrax"


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_by_the_coefficient(mode: Any) -> None:
    def end(mu: Any) -> Any:
        solution = swing(hung(mu), np.array([0.0, 3.0]))
        assert solution.events is not None
        own = [event for event in solution.events.names if event == "pin.sticks"]
        assert own
        times = jnp.where(solution.events.times > 0.1, solution.events.times, jnp.inf)
        return jnp.stack([solution["O.angle"][-1], solution["O.angle_rate"][-1], jnp.min(times)])

    np.testing.assert_allclose(mode(end)(jnp.asarray(MU)), (*BY_MU, FIRST_TURN_BY_MU), rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_pins_side_by_side() -> None:
    ends = jax.jit(jax.vmap(lambda mu: swing(hung(mu), np.array([0.0, 2.0]), throw=False)["O.angle"][-1]))
    coefficients = jnp.array([0.0, 0.2, 0.4])
    alone = [swing(hung(float(mu)), np.array([0.0, 2.0]))["O.angle"][-1] for mu in coefficients]
    np.testing.assert_allclose(ends(coefficients), alone, atol=1e-10)


@pytest.mark.slow
def test_what_a_motor_needs_on_a_dry_pin() -> None:
    """Inverse dynamics, whose multipliers include the load: the pendulum's equation with its friction."""
    motor = pl.Driver("motor", "O.angle", lambda t: 0.4 + 1.5 * t + jnp.sin(t))
    mechanism = hung().with_parts([motor])
    ts = np.linspace(0.0, 1.0, 5)
    efforts = mbd.inverse_dynamics(mechanism, ts)
    angle, rate, bend = 0.4 + 1.5 * ts + np.sin(ts), 1.5 + np.cos(ts), -np.sin(ts)
    radial, across = 0.5 * rate**2 + 9.81 * np.cos(angle), 0.5 * bend + 9.81 * np.sin(angle)
    wanted = bend / 3 + 9.81 * 0.5 * np.sin(angle) + MU * PIN * np.sign(rate) * np.hypot(radial, across)
    np.testing.assert_allclose(efforts.effort("motor"), wanted, rtol=1e-12)


# --- several joints ----------------------------------------------------------------------------------------------

RADIUS, THRUST, SPAN, SLOPE = 0.03, 0.02, 0.12, 0.2


def crank(coordinates: str = "absolute") -> tuple[pl.Mechanism, mbd.State]:
    a, b, c = pl.Body("crank", 1.2, 0.02), pl.Body("rod", 0.8, 0.03), pl.Body("slider", 1.5, 0.01)
    joints = [
        pl.Revolute("O", pl.ground.at(), a.at(-0.1, 0)),
        pl.Revolute("A", a.at(0.1, 0), b.at(-0.25, 0)),
        pl.Revolute("B", b.at(0.25, 0), c.at()),
        pl.Prismatic("P", pl.ground.at(), c.at(0.0, -0.02)),
    ]
    rubs = [
        pl.LoadFriction("fO", "O.angle", SLOPE, radius=RADIUS),
        pl.LoadFriction("fA", "A.angle", SLOPE, radius=RADIUS),
        pl.LoadFriction("fP", "P.displacement", SLOPE, span=SPAN),
    ]
    mechanism = pl.Mechanism([a, b, c], joints, [pl.Gravity(9.81), *rubs], coordinates=coordinates)
    guess = {"rod.theta": -0.3, "P.displacement": 0.6}
    return mechanism, mbd.assemble(mechanism, {"O.angle": 0.6}, speeds={"O.angle": 8.0}, guess=guess)


def shaft(coordinates: str = "absolute") -> tuple[sp.Mechanism, mbd.State]:
    """A heavy wheel on a shaft with two bearings and a shoulder, from which a nut with an eccentric weight hangs."""
    wheel, nut = sp.Body("wheel", 2.0, (0.03, 0.02, 0.05)), sp.Body("nut", 1.0, (0.02, 0.03, 0.01))
    joints = [
        sp.Revolute("R", sp.ground.at(axis=(0.3, 0.5, 0.8)), wheel.at(0.1, 0.05, -0.04)),
        sp.Screw("S", wheel.at(0.2, 0.0, 0.1), nut.at(0.05, 0.1, 0.0), 0.04),
    ]
    rubs = [
        sp.LoadFriction("fR", "R.angle", SLOPE, radius=RADIUS, span=SPAN, thrust_radius=THRUST),
        sp.LoadFriction("fS", "S.angle", SLOPE, radius=RADIUS, thrust_radius=THRUST, breakaway=0.1, stribeck=2.0),
    ]
    gravity = sp.Gravity((1.0, 3.0, -9.0))
    mechanism = sp.Mechanism([wheel, nut], joints, [gravity, *rubs], coordinates=coordinates)
    return mechanism, mbd.assemble(
        mechanism, {"R.angle": 0.3, "S.angle": 0.4}, speeds={"R.angle": 3.0, "S.angle": -2.0}
    )


def load_of(part: Any, wrench: np.ndarray, axis: np.ndarray) -> Any:
    """The load by its definition, with the two bearing forces by the lever rule."""
    if len(wrench) == 3:
        force, moment = np.append(wrench[:2], 0.0), np.array([0.0, 0.0, wrench[2]])
        axis = np.append(axis, 0.0)
        if part.turns:
            return float(part.radius) * np.linalg.norm(force)
    else:
        force, moment = wrench[:3], wrench[3:]
    along = force @ axis
    across = force - along * axis
    radius = 1.0 if part.radius is None else float(part.radius)
    if part.span is None:
        return radius * np.linalg.norm(across) + float(part.thrust_radius) * abs(along)
    s = float(part.span)
    # F₁ + F₂ = f across the axis and (s/2) e × (F₁ − F₂) = m across it.
    difference = np.cross(moment, axis) * 2 / s
    first, second = (across + difference) / 2, (across - difference) / 2
    np.testing.assert_allclose(np.cross(s / 2 * axis, first - second), moment - (moment @ axis) * axis, atol=1e-9)
    return radius * (np.linalg.norm(first) + np.linalg.norm(second)) + float(part.thrust_radius) * abs(along)


@pytest.mark.parametrize("formulation", [Stabilized(), Augmented()], ids=["stabilized", "augmented"])
@pytest.mark.parametrize("made", [crank, shaft])
def test_forces_balance_with_the_loads_that_they_make(made: Any, formulation: Any) -> None:
    mechanism, state = made()
    equations = mbd.Equations(mechanism)
    at = equations.at(state.t, state.q)
    equations = equations.with_own_states(at.steady_states(state.v))  # the directions
    motion = motion_of(formulation, equations, state.t, state.q, state.v)
    # The loads by the reactions, as a user reads them.
    reader = Reader(equations, mbd.Snapshot(state.t, state.q, state.v, motion.vdot, motion.lam))
    rubs = [part for part in mechanism.forces if part.name.startswith("f")]
    loads = []
    for part in rubs:
        frame = at.near(mechanism[part.joint].markers).frames[0]
        axis = np.asarray(frame.axis if mechanism.space.dim == 2 else frame.z)
        loads.append(load_of(part, np.asarray(reader.reaction(part.joint)[-1]), axis))
    loaded = equations.with_loads(jnp.asarray(loads))
    left = at.inertia.times(motion.vdot) + at.jacobian.T @ motion.lam - loaded.at(state.t, state.q).force(state.v)
    np.testing.assert_allclose(left, 0.0, atol=1e-10)
    assert min(loads) > 0.05
    # Each of them slows its joint down.
    for part in rubs:
        rate = float(reader.kinematic.coordinate(part.coordinate)[1])
        assert float(reader.read(f"{part.name}.effort")) * rate < 0


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_slider_crank_that_rubs_passes_its_dead_centre(coordinates: str) -> None:
    """The slider's friction changes its direction where the crank does not let it rest. Numbers of an integration by
    SciPy's DOP853, rtol 1e-12, of the frictionless equations with loads found by 200 fixed-point laps."""
    mechanism, state = crank(coordinates)
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 0.6, 7), **TIGHT)
    assert solution.events is not None
    np.testing.assert_allclose(solution.events.times_of("fP.sticks"), [0.45669523], atol=1e-8)
    np.testing.assert_array_equal(np.sign(solution["P.displacement_rate"])[:-2], solution["fP.direction"][:-2])
    found = [solution["crank.theta"][-1], solution["crank.omega"][-1]]
    np.testing.assert_allclose(found, [4.594104154602717, 7.573803951049727], atol=1e-9)


@pytest.mark.slow
def test_dry_friction_of_a_slider_passes_its_dead_centre() -> None:
    """The same of a friction with a load of its own, which a slider's dead centre ended with an error before."""
    mechanism, state = crank()
    forces = [pl.Gravity(0.0), pl.DryFriction("guide", "P.displacement", 2.0)]
    mechanism = mechanism.replacing(forces=forces)
    state = mbd.assemble(mechanism, {"O.angle": 3.0}, speeds={"O.angle": 8.0}, guess={"P.displacement": 0.3})
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 0.1, 5), rtol=1e-9, atol=1e-10)
    rate, direction = np.asarray(solution["P.displacement_rate"]), np.asarray(solution["guide.direction"])
    assert rate[0] < 0 < rate[-1]
    np.testing.assert_array_equal(direction, np.sign(rate))
    energy = np.asarray(solution["energy"])
    path = np.abs(np.diff(np.asarray(solution["P.displacement"])))
    lost = energy[0] - energy[-1]
    # By the friction along the path, forward and back: at least that between the saved places.
    turned = float(np.asarray(solution["P.displacement"]).min())
    assert 2.0 * path.sum() - 1e-3 < lost < 2.0 * (path.sum() + 1e-2)
    assert turned > 0


@pytest.mark.slow
@pytest.mark.parametrize(("coordinates", "angle"), [("absolute", 0.0), ("joint", np.pi)])
def test_dry_friction_starts_at_a_dead_centre(coordinates: str, angle: float) -> None:
    """The slider is at rest there, and nothing can hold it: it slips to where it is accelerated."""
    mechanism, _ = crank(coordinates)
    mechanism = mechanism.replacing(forces=[pl.Gravity(0.0), pl.DryFriction("guide", "P.displacement", 2.0)])
    guess = {"P.displacement": 0.3 if angle else 0.7}
    angle += np.arcsin(0.02 / guess["P.displacement"])  # the slider's pin is that much above the crank's
    state = mbd.assemble(mechanism, {"O.angle": angle}, speeds={"O.angle": 8.0}, guess=guess)
    assert abs(float(mbd.read(mechanism, state, "P.displacement_rate"))) < 1e-12
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 0.2, 6), rtol=1e-10, atol=1e-11)
    energy, place = np.asarray(solution["energy"]), np.asarray(solution["P.displacement"])
    way = 1.0 if angle > 1.0 else -1.0
    np.testing.assert_array_equal(np.asarray(solution["guide.direction"]), way)
    assert way * (place[-1] - place[0]) > 0.1
    np.testing.assert_allclose(energy, energy[0] - 2.0 * np.abs(place - place[0]), rtol=0, atol=1e-8)


@pytest.mark.slow
def test_friction_where_nothing_ever_moves_is_an_error() -> None:
    disc = pl.Body("disc", 1.0, 0.1)
    joints = [pl.Revolute("O", pl.ground.at(), disc.at()), pl.Weld("held", pl.ground.at(), disc.at())]
    mechanism = pl.Mechanism([disc], joints, [pl.DryFriction("brake", "O.angle", 2.0)])
    with pytest.raises(mbd.SolveError, match=r"event 'brake\.sticks': .* cannot change there"):
        mbd.simulate(mechanism, mbd.assemble(mechanism), [0.0, 0.1])


@pytest.mark.slow
def test_a_freewheel_does_not_turn_back_at_a_dead_centre() -> None:
    mechanism, _ = crank()
    mechanism = mechanism.replacing(forces=[pl.OneWayClutch("free", "P.displacement")])
    start = {"O.angle": 6.0}  # outwards, until the outer dead centre
    state = mbd.assemble(mechanism, start, speeds={"O.angle": 8.0}, guess={"P.displacement": 0.6})
    assert float(mbd.read(mechanism, state, "P.displacement_rate")) > 0
    with pytest.raises(mbd.SolveError, match=r"event 'free\.locks': .* cannot change there"):
        mbd.simulate(mechanism, state, np.linspace(0.0, 0.1, 5), rtol=1e-9, atol=1e-10)


# --- what it locks, and what it cannot -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.02, 0.08])
def test_a_screw_locks_itself(radius: float) -> None:
    """Under its weight it turns back by itself unless `μ ρ_a > p / 2π`."""
    lead = 0.05
    nut = sp.Body("nut", 1.0, (0.01, 0.01, 0.01))
    screw = sp.Screw("S", sp.ground.at(), nut.at(), lead)
    rubs = sp.LoadFriction("thread", "S.angle", 0.2, radius=0.01, thrust_radius=radius)
    mechanism = sp.Mechanism([nut], [screw], [sp.Gravity(9.81), rubs])
    state = mbd.assemble(mechanism, {"S.angle": 0.0}, speeds={"S.angle": 5.0})  # upwards, until it stops
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 2.0, 5), **TIGHT)
    locks = 0.2 * radius > lead / (2 * np.pi)
    rate = float(solution["S.angle_rate"][-1])
    assert (abs(rate) < 1e-10 and solution["S.angle"][-1] > 0) if locks else rate < -1.0


def drawer(coefficient: float, span: float) -> tuple[pl.Mechanism, mbd.State]:
    """A drawer that is pulled beside its centre of mass: it jams if its guide is short."""
    body = pl.Body("drawer", 1.0, 0.1)
    rail = pl.Prismatic("rail", pl.ground.at(), body.at(0.0, -1.0))
    guide = pl.LoadFriction("guide", "rail.displacement", coefficient, span=span)
    pull = pl.JointForce("pull", "rail.displacement", 2.0)
    mechanism = pl.Mechanism([body], [rail], [pl.Gravity(1.0), guide, pull])
    return mechanism, mbd.assemble(mechanism, {"rail.displacement": 0.0}, speeds={"rail.displacement": 1.0})


@pytest.mark.slow
def test_a_drawer_jams_where_its_guide_is_short() -> None:
    mechanism, state = drawer(0.1, 2.0)
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 0.5, 3))
    # Its inertia, at a lever of 1 m, presses by m a / (s / 2), more than its weight: a = 2 − 0.1 a.
    np.testing.assert_allclose(solution["guide.effort"], -0.2 / 1.1, rtol=1e-9)
    np.testing.assert_allclose(solution["rail.displacement_rate"][-1], 1 + 0.5 * 2 / 1.1, rtol=1e-9)
    with pytest.raises(mbd.SolveError, match=r"not unique there .Painlevé.. The loads of 'guide' grow by friction"):
        mbd.simulate(*drawer(0.3, 0.1), np.linspace(0.0, 0.5, 3))


def test_what_friction_by_load_cannot_is_said() -> None:
    mechanism, state = drawer(0.1, 2.0)
    ts = np.array([0.0, 0.1])
    for does, what in (
        (lambda: mbd.simulate(mechanism, state, ts, solver="stiff"), "A motion by Radau"),
        (lambda: mbd.simulate(mechanism, state, ts, solver="auto"), "A motion by Radau"),
        (lambda: mbd.linearize(mechanism, state), "linearize"),
        (lambda: mbd.time_scales(mechanism, state), "time_scales"),
        (lambda: mbd.export(mechanism), "An exported system"),
    ):
        with pytest.raises(
            mbd.MechanismError, match=f"{what}.* cannot take friction by load, that of LoadFriction 'gui"
        ):
            does()


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (lambda: pl.LoadFriction("f", "O.angle", 0.1), "needs the radius .m. at which 'O' rubs"),
        (lambda: pl.LoadFriction("f", "rod.x", 0.1, radius=0.1), "acts along a coordinate of a Revolute, Prismatic"),
        (lambda: pl.LoadFriction("f", "P.angle", 0.1, radius=0.1), "unknown|no joint|P"),
    ],
)
def test_wrong_arguments_of_friction_by_load(part: Any, text: str) -> None:
    with pytest.raises(mbd.MechanismError, match=text):
        hung(MU, "absolute", part())
    drawn, _ = drawer(0.1, 1.0)
    with pytest.raises(mbd.MechanismError, match="a slider rubs along its coordinate, without a radius"):
        drawn.replacing(forces=[pl.LoadFriction("f", "rail.displacement", 0.1, radius=0.1)])


def test_what_is_added_later_cuts_its_joint() -> None:
    rod = pl.Body("rod", 1.0, 1 / 12)
    bare = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.5))], coordinates="joint")
    assert bare.nv == 1
    rubs = bare.with_parts([pl.LoadFriction("pin", "O.angle", 0.1, radius=0.1)])
    assert (rubs.nv, rubs.tree.joints) == (3, ())


def test_multipliers_of_kinematics_hold_the_load() -> None:
    motor = pl.Driver("motor", "O.angle", lambda t: 0.4 + 1.5 * t)
    solution = mbd.kinematics(hung().with_parts([motor]), np.linspace(0.0, 1.0, 3))
    assert isinstance(solution.formulation, Kinematic)
    load = np.hypot(solution["O.fx"], solution["O.fy"])
    np.testing.assert_allclose(solution["pin.effort"], -MU * PIN * load, rtol=1e-12)
