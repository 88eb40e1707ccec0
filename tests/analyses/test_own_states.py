"""States of parts through the analyses: motions by every route, events, equilibria, small motions, files."""

from pathlib import Path
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
from jaxmbd.extend import AbstractForce, AbstractMarker, AbstractOwnStates, OwnState
from tests.motors import (
    CONSTANT,
    GEAR,
    INDUCTANCE,
    RESISTANCE,
    VOLTAGE,
    Creep,
    current_at,
    held_arm,
    motor,
    slider_crank,
)

BOTH = pytest.mark.parametrize("coordinates", ["absolute", "joint"])
TIGHT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-11}
SPEED = 3.0  # [rad/s]


def driven(coordinates: str, **changes: Any) -> pl.Mechanism:
    """The arm at constant speed, so that the current has a closed form."""
    return held_arm(coordinates, VOLTAGE, **changes).with_parts([pl.Driver("d", "O.angle", lambda t: SPEED * t)])


@BOTH
def test_current_at_constant_speed(coordinates: str) -> None:
    """Against the closed form, with what the driver has to add, and the quadrature beside the state."""
    mechanism, ts = driven(coordinates), np.linspace(0.0, 0.03, 7)
    solution = mbd.simulate(mechanism, mbd.assemble(mechanism), ts, **TIGHT, quadratures=["motor.current"])
    expected = current_at(ts, SPEED)
    np.testing.assert_allclose(solution["motor.current"], expected, atol=1e-8)
    np.testing.assert_allclose(solution.z[:, 0], expected, atol=1e-8)
    np.testing.assert_allclose(solution["motor.effort"], CONSTANT * GEAR * expected, atol=1e-8)
    weight = 0.5 * 9.81 * np.cos(SPEED * ts)
    np.testing.assert_allclose(solution["d.effort"], weight - CONSTANT * GEAR * expected, atol=1e-6)
    steady, tau = (VOLTAGE - CONSTANT * GEAR * SPEED) / RESISTANCE, INDUCTANCE / RESISTANCE
    integral = steady * (ts - tau * (1 - np.exp(-ts / tau)))
    np.testing.assert_allclose(solution.quadratures["motor.current"], integral, atol=1e-9)
    assert float(solution.state(3)["motor.current"]) == float(solution["motor.current"][3])


@BOTH
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev], ids=["forward", "reverse"])
def test_derivatives_of_a_current(mode: Any, coordinates: str) -> None:
    """By a parameter and by the current at the start; in both modes, in a batch and compiled."""
    ts = np.asarray([0.0, 0.02])

    def current(inductance: Array, first: Array) -> Array:
        mechanism = driven(coordinates, inductance=inductance, current=first)
        return mbd.simulate(mechanism, mbd.assemble(mechanism), ts, **TIGHT)["motor.current"][-1]

    def closed(inductance: Array, first: Array) -> Array:
        return current_at(ts, SPEED, inductance)[-1] + first * jnp.exp(-RESISTANCE * ts[-1] / inductance)

    inductances, firsts = jnp.asarray([0.01, 0.02]), jnp.asarray([0.5, -1.0])
    found = jax.jit(jax.vmap(mode(current, (0, 1))))(inductances, firsts)
    expected = jax.jit(jax.vmap(jax.jacrev(closed, (0, 1))))(inductances, firsts)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)


ROUTES: dict[str, dict[str, Any]] = {
    "diffrax": {"engine": "diffrax"},
    "augmented": {"formulation": mbd.Augmented()},
    "projection": {"formulation": mbd.Projection()},
    "partitioning": {"formulation": mbd.CoordinatePartitioning()},
    "an implicit method": {"solver": dfx.Kvaerno5()},
    "stiff": {"solver": "stiff"},
}


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
@BOTH
def test_one_motion_by_every_route(coordinates: str, route: str) -> None:
    mechanism, ts = slider_crank(coordinates), np.linspace(0.0, 0.1, 5)
    state = mbd.assemble(mechanism, {"O.angle": 0.0})
    reference = mbd.simulate(mechanism, state, ts, **TIGHT)
    found = mbd.simulate(mechanism, state, ts, **TIGHT, **ROUTES[route])
    for name, scale in (("motor.current", 20.0), ("O.angle_rate", 30.0), ("slider.x", 1.0)):
        np.testing.assert_allclose(found[name], reference[name], atol=1e-8 * scale, err_msg=name)


@pytest.mark.slow
@BOTH
def test_stiff_circuits_take_few_steps(coordinates: str) -> None:
    """At an inductance of 10 µH an explicit method is held to steps of microseconds; derivatives in both modes."""
    ts = np.asarray([0.0, 0.1])

    def current(inductance: Array, **how: Any) -> Any:
        mechanism = slider_crank(coordinates, inductance=inductance)
        return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.0}), ts, **TIGHT, **how)

    stiff, explicit = current(jnp.asarray(1e-5), solver="stiff"), current(jnp.asarray(1e-5))
    assert 20 * int(stiff.stats["num_steps"]) < int(explicit.stats["num_steps"])
    np.testing.assert_allclose(stiff["motor.current"], explicit["motor.current"], atol=1e-7)
    end = lambda x, **how: current(x, **how)["motor.current"][-1]  # noqa: E731
    expected = jax.grad(end)(jnp.asarray(1e-3))
    for mode in (jax.jacfwd, jax.grad):
        np.testing.assert_allclose(mode(lambda x: end(x, solver="stiff"))(jnp.asarray(1e-3)), expected, rtol=1e-6)


@BOTH
def test_an_event_of_a_current(coordinates: str) -> None:
    """At the instant of the closed form, with the state of the part in its log."""
    mechanism = driven(coordinates)
    event = mbd.Event("ten", "motor.current", above=10.0)
    state = mbd.assemble(mechanism)
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 0.02, 5), **TIGHT, events=[event], max_events=1)
    steady = (VOLTAGE - CONSTANT * GEAR * SPEED) / RESISTANCE
    expected = -INDUCTANCE / RESISTANCE * np.log(1 - 10.0 / steady)
    assert solution.events is not None
    np.testing.assert_allclose(solution.events.times[0], expected, rtol=1e-8)
    np.testing.assert_allclose(solution.events.state(0)["motor.current"], 10.0, rtol=1e-9)
    np.testing.assert_allclose(solution["motor.current"][-1], 10.0, rtol=1e-9)  # it stops


@BOTH
def test_equilibrium_and_the_small_motions_about_it(coordinates: str) -> None:
    """The arm on its motor: three states, whose matrix is known."""
    mechanism = held_arm(coordinates)
    found = mbd.equilibrium(mechanism, {"O.angle": -1.0}, stable=True)
    np.testing.assert_allclose(found["motor.current"], 4.0, rtol=1e-9)  # the voltage over the resistance
    angle = float(found["O.angle"])
    np.testing.assert_allclose(0.5 * 9.81 * np.cos(angle), CONSTANT * GEAR * 4.0, rtol=1e-9)
    inertia = 1 / 12 + 0.25 + 0.01
    matrix = np.array([
        [0.0, 1.0, 0.0],
        [0.5 * 9.81 * np.sin(angle) / inertia, 0.0, CONSTANT * GEAR / inertia],
        [0.0, -CONSTANT * GEAR / INDUCTANCE, -RESISTANCE / INDUCTANCE],
    ])  # fmt: skip
    values = np.linalg.eigvals(matrix)
    expected = values[np.argsort(-values.real)]
    own = np.asarray(found.eigenvalues)
    np.testing.assert_allclose(sorted(own[np.isfinite(own)], key=_order), sorted(expected, key=_order), rtol=1e-8)
    system = mbd.linearize(mechanism, found, inputs=["motor.effort"], outputs=["motor.current", "O.angle_rate"])
    assert system.states[-1] == "motor.current"
    np.testing.assert_allclose(
        sorted(np.asarray(system.eigenvalues), key=_order), sorted(expected, key=_order), rtol=1e-8
    )
    np.testing.assert_allclose(system.C[0], [0.0, 0.0, 1.0], atol=1e-12)
    if coordinates == "joint":
        np.testing.assert_allclose(system.A, matrix, atol=1e-8)
        np.testing.assert_allclose(system.B[:, 0], [0.0, 1 / inertia, 0.0], atol=1e-10)
    assert mbd.time_scales(mechanism, found.state).cause == "motor"
    np.testing.assert_allclose(mbd.time_scales(mechanism, found.state).fastest, np.abs(expected).max(), rtol=1e-8)


def _order(value: complex) -> tuple[float, float]:
    return round(value.real, 6), round(value.imag, 6)


def test_derivative_of_an_equilibrium_by_a_voltage() -> None:
    angle = lambda u: mbd.equilibrium(held_arm("joint", u), {"O.angle": -1.0}, stable=True)["O.angle"]  # noqa: E731
    expected = CONSTANT * GEAR / RESISTANCE / (-0.5 * 9.81 * np.sin(float(angle(4.0))))
    for mode in (jax.jacfwd, jax.grad):
        np.testing.assert_allclose(mode(angle)(4.0), expected, rtol=1e-8)


@BOTH
def test_kinematics_takes_steady_currents(coordinates: str) -> None:
    motion = mbd.kinematics(driven(coordinates), np.linspace(0.0, 1.0, 3))
    steady = (VOLTAGE - CONSTANT * GEAR * SPEED) / RESISTANCE
    np.testing.assert_allclose(motion["motor.current"], steady, rtol=1e-10)
    efforts = mbd.inverse_dynamics(driven(coordinates), motion)
    weight = 0.5 * 9.81 * np.cos(SPEED * np.linspace(0.0, 1.0, 3))
    np.testing.assert_allclose(efforts.effort("d"), weight - CONSTANT * GEAR * steady, rtol=1e-8)


class InMillimetres(AbstractForce, AbstractOwnStates):
    """An element that creeps, with its state in another unit."""

    name: str = eqx.field(static=True)
    metres: Creep
    x: Array

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.metres.markers

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("x", "mm", 100.0),)

    def _now(self) -> Creep:
        return eqx.tree_at(lambda creep: creep.x, self.metres, self.x / 1000)

    def wrenches(self, t: Array, frames: Any, rates: Any) -> Array:
        return self._now().wrenches(t, frames, rates)

    def potential(self, t: Array, frames: Any) -> Array:
        return self._now().potential(t, frames)

    def own_rates(self, t: Array, frames: Any, rates: Any) -> Array:
        return 1000 * self._now().own_rates(t, frames, rates)

    def steady(self, t: Array, frames: Any, rates: Any) -> Array:
        return 1000 * self._now().steady(t, frames, rates)


def test_a_state_in_another_unit_gives_the_same_motion() -> None:
    """Its error is measured in terms of its size, so that the steps are the same ones."""
    found = []
    for is_other in (False, True):
        body = pl.Body("b", 1.0, 0.1, pose=(1.0, 0.0, 0.0))
        creep = Creep("creep", pl.ground.at(-0.5), body.at(), (50.0,), (2.0,), (1.2,))
        creep = InMillimetres("creep", creep, jnp.asarray([1200.0])) if is_other else creep
        slide = pl.Prismatic("S", pl.ground.at(), body.at())
        mechanism = pl.Mechanism([body], [slide], [creep], coordinates="joint")
        state = mbd.assemble(mechanism, {"S.displacement": 1.0})
        found.append(mbd.simulate(mechanism, state, np.linspace(0.0, 1.0, 3), rtol=1e-12, atol=1e-7))
    metres, millimetres = found
    assert int(metres.stats["num_steps"]) == int(millimetres.stats["num_steps"])
    np.testing.assert_allclose(1000 * metres["creep.x[0]"], millimetres["creep.x[0]"], rtol=1e-12)
    assert float(np.ptp(metres["creep.x[0]"])) > 0.1


def test_states_are_saved_and_loaded(tmp_path: Path) -> None:
    mechanism = slider_crank("joint", current=1.5)
    state = mbd.assemble(mechanism, {"O.angle": 0.3})
    assert "current" in str(state)
    state = mbd.simulate(mechanism, state, np.linspace(0.0, 0.01, 3)).state(-1)
    mbd.save(mechanism, tmp_path / "motor.toml", state=state)
    loaded = mbd.load(tmp_path / "motor.toml")
    again = mbd.load_state(loaded, tmp_path / "motor.toml")
    np.testing.assert_array_equal(again.z, state.z)
    np.testing.assert_array_equal(loaded["motor"].current, 1.5)
    motion = mbd.simulate(mechanism, state, np.asarray(state.t) + np.linspace(0.0, 0.01, 3))
    mbd.save(motion, tmp_path / "motion.nc")
    np.testing.assert_array_equal(mbd.load_state(mechanism, tmp_path / "motion.nc", -1).z, motion.state(-1).z)


def test_a_state_of_another_mechanism_is_refused() -> None:
    mechanism = slider_crank("joint")
    bare = mechanism.replacing(forces=[pl.Gravity()])
    state = mbd.assemble(bare, {"O.angle": 0.0})
    with pytest.raises(mbd.MechanismError, match=r"states of parts none; this mechanism has motor\.current"):
        mbd.simulate(mechanism, state, np.linspace(0.0, 0.1, 3))
    with pytest.raises(mbd.MechanismError, match="resistance must be positive"):
        motor(resistance=0.0)


@pytest.mark.slow
def test_steps_and_carries() -> None:
    """`step` in a loop is the motion in one piece."""
    mechanism = slider_crank("joint")
    state = mbd.assemble(mechanism, {"O.angle": 0.0})

    def advance(state: mbd.State, _: None) -> tuple[mbd.State, Array]:
        state = mbd.step(mechanism, state, 0.01)
        return state, state["motor.current"]

    _, currents = jax.lax.scan(advance, state, None, length=4)
    whole = mbd.simulate(mechanism, state, np.linspace(0.0, 0.04, 5), accuracy="high")
    np.testing.assert_allclose(currents, whole["motor.current"][1:], rtol=1e-6)
