"""Inverse dynamics: the efforts that are found make the motion; redundant actuators share it as they should; measured
motions."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import planar as pl
from tests.marks import in_both_coordinates

TIMES = np.linspace(0.0, 0.5, 801)


@cache
def five_bar(coordinates: str) -> mbd.Solution:
    example = examples.get("five_bar").with_coordinates(coordinates)
    return mbd.inverse_dynamics(example.mechanism, TIMES)


@in_both_coordinates("joint")
def test_driven_by_the_efforts_found_a_five_bar_moves_as_it_was_told(coordinates: str) -> None:
    """Kinematics, inverse dynamics, and forward again with the efforts as functions of time: positions to 1e-8."""
    motion = five_bar(coordinates)
    told = motion.mechanism
    efforts = {driver: mbd.SmoothingSpline(TIMES, motion.effort(driver.name), 0) for driver in told.drivers}
    motors = [
        pl.JointForce(driver.name, driver.coordinate, lambda t, c, rate, effort: effort(t), effort)
        for driver, effort in efforts.items()
    ]
    free = pl.Mechanism(told.bodies, told.joints, [*told.forces, *motors], coordinates=told.coordinates)
    driven = [driver.coordinate for driver in told.drivers]
    start = mbd.assemble(
        free,
        {name: motion[name][0] for name in driven},
        guess={f"{body.name}.{c}": motion[f"{body.name}.{c}"][0] for body in free.bodies for c in ("x", "y", "theta")},
        speeds={name: motion[f"{name}_rate"][0] for name in driven},
    )
    forward = mbd.simulate(free, start, TIMES, rtol=1e-11, atol=1e-12)
    for body in free.bodies:
        for component in ("x", "y", "theta"):
            name = f"{body.name}.{component}"
            np.testing.assert_allclose(forward[name], motion[name], atol=1e-8, err_msg=name)


@pytest.mark.slow
def test_the_loads_are_those_of_the_simulation() -> None:
    """Efforts, reactions of cut joints and of joints that carry coordinates, in both coordinates."""
    motion = five_bar("joint")
    example = examples.get("five_bar")
    ts = TIMES[::200]
    simulated = mbd.simulate(example.mechanism, example.state(), ts, rtol=1e-11, atol=1e-12)
    for driver in example.mechanism.drivers:
        np.testing.assert_allclose(motion.effort(driver.name)[::200], simulated.effort(driver.name), atol=1e-7)
    for joint in example.mechanism.joints:
        mine, other = motion.reaction(joint.name), simulated.reaction(joint.name)
        np.testing.assert_allclose(mine.force[::200], other.force, atol=1e-6)


def test_redundant_actuators_share_the_work() -> None:
    """A five-bar driven at three joints: no other efforts that move it so have a smaller weighted sum of squares."""
    motion = five_bar("joint")
    mechanism = motion.mechanism
    actuators = {"shoulder": "O.angle", "elbow": "A.angle", "far": "C.angle"}
    weights = {"shoulder": 1.0, "elbow": 5.0, "far": 2.0}
    shared = mbd.inverse_dynamics(mechanism, motion, actuators, weights=weights)
    efforts = np.stack([np.asarray(shared.effort(name)) for name in actuators], axis=1)
    rates = np.stack([np.asarray(shared[f"{c}_rate"]) for c in actuators.values()], axis=1)
    alone = np.stack([np.asarray(motion.effort(driver.name)) for driver in mechanism.drivers], axis=1)
    own = np.stack([np.asarray(motion[f"{driver.coordinate}_rate"]) for driver in mechanism.drivers], axis=1)
    np.testing.assert_allclose(np.sum(efforts * rates, 1), np.sum(alone * own, 1), atol=1e-9)  # the same power
    # The elbow's rate by those of the motors, from the constraints: τ = (Bᵀ)⁺ of the two efforts, weighted.
    at = mbd.Equations(mechanism).at(shared.ts[100], shared.q[100])
    basis = np.linalg.inv(np.vstack([np.asarray(at.jacobian)]))[:, -2:]
    columns = [
        mechanism.speed_names.index(f"{c}_rate") for c in actuators.values() if f"{c}_rate" in mechanism.speed_names
    ]
    assert len(columns) == 3
    B, W = basis[columns], np.diag(list(weights.values()))
    expected = np.linalg.solve(W, B) @ np.linalg.solve(B.T @ np.linalg.solve(W, B), alone[100])
    np.testing.assert_allclose(efforts[100], expected, atol=1e-9)


def test_a_subset_of_driven_joints() -> None:
    """One crank driven, the rest left to gravity: the effort is that of the simulation; another exerts none."""
    parts = examples.get("five_bar").mechanism
    half = pl.Mechanism(parts.bodies, parts.joints, parts.forces, parts.drivers[:1])
    state = mbd.assemble(half, guess={"rocker.theta": 1.9})
    motion = mbd.simulate(half, state, np.linspace(0.0, 0.2, 5))
    found = mbd.inverse_dynamics(half, motion)
    np.testing.assert_allclose(found.effort("left motor"), motion.effort("left motor"), atol=1e-8)
    both = mbd.inverse_dynamics(half, motion, {"near": "O.angle", "far": "C.angle"})
    np.testing.assert_allclose(both.effort("far"), 0.0, atol=1e-8)
    with pytest.raises(mbd.SolveError, match=r"'far' along 'C.angle'.*left unbalanced"):
        mbd.inverse_dynamics(half, motion, {"far": "C.angle"})


# --- measured motions -----------------------------------------------------------------------------------------------


def pendulum(motion: Any, mass: Array | float = 2.0) -> pl.Mechanism:
    rod = pl.Body("rod", mass=mass, inertia=0.06, pose=(0.3, 0.0, 0.0))
    joints = [pl.Revolute("O", pl.ground.at(), rod.at(-0.3, 0.0))]
    return pl.Mechanism([rod], joints, [pl.Gravity(9.81)], [pl.Driver("motor", "O.angle", motion)])


def torque(ts: np.ndarray, mass: float = 2.0) -> np.ndarray:
    angle, acceleration = 0.5 * np.sin(4 * ts), -8 * np.sin(4 * ts)
    return (0.06 + mass * 0.09) * acceleration + mass * 9.81 * 0.3 * np.cos(angle)


def test_a_measured_motion(rng: np.random.Generator) -> None:
    """Angles with noise of 1 mrad at 200 Hz: the torque to 2 %, where plain differences would miss by 40 N m."""
    ts = np.linspace(0.0, 2.0, 401)
    measured = 0.5 * np.sin(4 * ts) + 1e-3 * rng.standard_normal(401)
    motion = mbd.inverse_dynamics(pendulum(mbd.SmoothingSpline(ts, measured)), ts)
    error = np.asarray(motion.effort("motor")) - torque(ts)
    assert np.sqrt(np.mean(error[20:-20] ** 2)) < 0.02 * np.abs(torque(ts)).max()
    assert np.abs(np.diff(measured, 2)).max() / 0.005**2 * 0.24 > 20


def test_gradients_by_value() -> None:
    """Of the torque at a time with respect to the mass: `ℓ² θ̈ + g ℓ cos θ`; forward, reverse, and over masses."""
    ts = np.linspace(0.0, 0.5, 4)
    exact = torque(ts, 3.0)[-1] - torque(ts, 2.0)[-1]

    def swinging(t: Array) -> Array:
        return 0.5 * jnp.sin(4 * t)

    made = pendulum(swinging)

    def effort(mass: Array) -> Array:
        mechanism = eqx.tree_at(lambda m: m["rod"].mass, made, mass)
        return mbd.inverse_dynamics(mechanism, jnp.asarray(ts)).effort("motor")[-1]

    mass = jnp.asarray(2.0)
    np.testing.assert_allclose(jax.grad(effort)(mass), exact, rtol=1e-9)
    np.testing.assert_allclose(jax.jvp(effort, (mass,), (jnp.ones(()),))[1], exact, rtol=1e-9)
    found = jax.vmap(effort)(jnp.asarray([2.0, 3.0]))
    np.testing.assert_allclose(found, [torque(ts, m)[-1] for m in (2.0, 3.0)], rtol=1e-9)


def test_wrong_input_is_named() -> None:
    mechanism = pendulum(0.3)
    ts = [0.0, 1.0]
    with pytest.raises(mbd.MechanismError, match="no joint or body named 'P'"):
        mbd.inverse_dynamics(mechanism, ts, {"motor": "P.angle"})
    with pytest.raises(mbd.MechanismError, match=r"'motr'.*Did you mean 'motor'"):
        mbd.inverse_dynamics(mechanism, ts, weights={"motr": 2.0})
    with pytest.raises(mbd.MechanismError, match="greater than zero"):
        mbd.inverse_dynamics(mechanism, ts, weights={"motor": 0.0})
    with pytest.raises(mbd.MechanismError, match="name of another part"):
        mbd.inverse_dynamics(mechanism, ts, {"rod": "O.angle"})
    with pytest.raises(mbd.MechanismError, match="same length, at least 6"):
        mbd.SmoothingSpline([0.0, 1.0], [0.0, 1.0])
    with pytest.raises(mbd.MechanismError, match=r"ts must increase: ts\[3\]"):
        mbd.SmoothingSpline([0.0, 1.0, 2.0, 1.5, 3.0, 4.0], np.zeros(6))
    with pytest.raises(mbd.MechanismError, match="'auto' or a finite number"):
        mbd.SmoothingSpline(np.arange(6.0), np.zeros(6), "soft")


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_what_the_actuators_cannot_do_has_a_verdict() -> None:
    """A pendulum that is moved by a torque, or by a force along x: NaN where it fails, each instance for itself."""
    made = pendulum(lambda t: 0.5 * t**2)
    ts = jnp.linspace(0.0, 0.4, 3)

    def efforts(mass: Array, name: str) -> mbd.Solution:
        mechanism = eqx.tree_at(lambda m: m["rod"].mass, made, mass)
        return mbd.inverse_dynamics(mechanism, ts, {"push": name}, throw=False)

    def results(mass: Array) -> tuple[Any, ...]:
        good, bad = efforts(mass, "O.angle"), efforts(mass, "rod.x")
        return good.result, good.effort("push"), bad.result, bad.effort("push"), bad["rod.theta"]

    good, effort, bad, none, angle = jax.jit(jax.vmap(results))(jnp.asarray([2.0, 3.0]))
    assert (good == mbd.RESULTS.successful).all()
    np.testing.assert_allclose(effort[:, 0], [0.06 + m * 0.09 + m * 9.81 * 0.3 for m in (2.0, 3.0)], rtol=1e-9)
    # Along x, a force has no moment about O while the rod is level: the first time alone is left unbalanced.
    assert (bad == mbd.RESULTS.motion_unbalanced).all()
    np.testing.assert_array_equal(np.isnan(none), [[True, False, False]] * 2)
    np.testing.assert_allclose(angle, np.broadcast_to(0.5 * ts**2, (2, 3)), atol=1e-12)
    with pytest.raises(eqx.EquinoxRuntimeError, match="left unbalanced"):
        eqx.filter_jit(lambda ts: mbd.inverse_dynamics(made, ts, {"push": "rod.x"}).effort("push"))(ts)


def test_forces_that_an_event_has_switched_off_are_not_counted() -> None:
    """What gravity and a motor move, until the motor is switched off, needs no further effort before or after it."""
    rod = pl.Body("rod", 2.0, 0.06, (0.3, 0.0, 0.0))
    joints = [pl.Revolute("O", pl.ground.at(), rod.at(-0.3, 0.0))]
    mechanism = pl.Mechanism([rod], joints, [pl.Gravity(9.81), pl.JointForce("motor", "O.angle", 9.0)])
    off = mbd.Event("off", "O.angle", above=0.2, then=mbd.Switch("motor", on=False))
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.0}), np.linspace(0.0, 1.0, 6), events=[off])
    assert motion.events is not None
    assert int(motion.events.count) == 1
    found = mbd.inverse_dynamics(mechanism, motion, {"needed": "O.angle"})
    np.testing.assert_allclose(found.effort("needed"), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.reaction("O").force, motion.reaction("O").force, atol=1e-6)
