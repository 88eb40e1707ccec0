"""Mechanics in space: a free body, whole turns, velocity-level constraints, redundant constraints."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.special import ellipj

import jaxmbd as mbd
from jaxmbd import spatial as sp
from jaxmbd.numerics.linear_solve import pivot_columns

ENERGY, MOMENTUM = 1e-9, 1e-9  # relative, over 100 s
NORM = 1e-12  # of a quaternion


# --- a free body -------------------------------------------------------------------------------------------------

MOMENTS = np.asarray([1.0, 2.0, 3.0])


@cache
def tumbling(rates: tuple[float, float, float], end: float) -> mbd.Solution:
    """A body without forces that turns about its middle axis, nearly."""
    body = sp.Body("body", 1.5, MOMENTS)
    mechanism = sp.Mechanism([body], floating=True)
    names = ("body.omega_x", "body.omega_y", "body.omega_z")
    state = mbd.assemble(mechanism, speeds=dict(zip(names, rates, strict=True)) | {"body.vx": 0.3})
    return mbd.simulate(mechanism, state, np.linspace(0.0, end, 501), accuracy="high")


def test_free_body_keeps_energy_and_angular_momentum() -> None:
    solution = tumbling((0.01, 2.0, 0.01), 100.0)
    omega, e = np.asarray(solution.v[:, 3:]), solution.q[:, 3:7]
    energy = 0.5 * (omega**2 @ MOMENTS)
    momentum = np.asarray(jax.vmap(sp.rotation.rotate)(e, omega * MOMENTS))
    assert np.abs(omega[:, 1]).min() < 0.1, "it does not tumble"
    np.testing.assert_allclose(energy, energy[0], rtol=ENERGY)
    np.testing.assert_allclose(momentum - momentum[0], 0.0, atol=MOMENTUM * float(np.linalg.norm(momentum[0])))
    np.testing.assert_allclose(np.linalg.norm(e, axis=1), 1.0, atol=NORM)
    np.testing.assert_allclose(solution["body.x"], 0.3 * solution.ts, atol=1e-10)


def test_tumbling_follows_the_elliptic_functions() -> None:
    """Torque-free motion with `ω1(0) = ω1max`, `ω2(0) = 0` (Landau, Lifshitz, *Mechanics*, §37)."""
    I1, I2, I3 = MOMENTS
    w1, w3 = 0.5, 1.5
    solution = tumbling((w1, 0.0, w3), 20.0)
    twice, square = I1 * w1**2 + I3 * w3**2, (I1 * w1) ** 2 + (I3 * w3) ** 2
    assert square > twice * I2
    tau = np.asarray(solution.ts) * np.sqrt((I3 - I2) * (square - twice * I1) / (I1 * I2 * I3))
    k2 = (I2 - I1) * (twice * I3 - square) / ((I3 - I2) * (square - twice * I1))
    sn, cn, dn, _ = ellipj(tau, k2)
    expected = np.stack(
        [
            np.sqrt((twice * I3 - square) / (I1 * (I3 - I1))) * cn,
            np.sqrt((twice * I3 - square) / (I2 * (I3 - I2))) * sn,
            np.sqrt((square - twice * I1) / (I3 * (I3 - I1))) * dn,
        ],
        axis=1,
    )
    np.testing.assert_allclose(solution.v[:, 3:], expected, atol=1e-9)


# --- whole turns -------------------------------------------------------------------------------------------------


@cache
def geared() -> mbd.Solution:
    """A wheel driven at 5 rad/s, a second one geared to it, a rack on that, and a screw, from a start at 7 rad."""
    wheels = [sp.Body(name, 1.0, (0.1, 0.1, 0.2), (x, 0, 0)) for x, name in enumerate(("a", "b", "nut"))]
    rack = sp.Body("rack", 1.0, (0.1, 0.1, 0.1), (1, 1, 0))
    ground = sp.ground
    joints = [
        sp.Revolute("A", ground.at(0), wheels[0].at()),
        sp.Revolute("B", ground.at(1), wheels[1].at()),
        sp.Screw("S", ground.at(2), wheels[2].at(), 0.02),
        sp.Prismatic("R", ground.at(1, 1, 0, axis=(1, 0, 0)), rack.at(axis=(1, 0, 0))),
        sp.Gear("gear", "A.angle", "B.angle", -0.3, 0.1),
        sp.RackAndPinion("teeth", "B.angle", "R.displacement", 0.5),
        sp.Gear("thread", "A.angle", "S.angle", 2.0),
    ]
    forces = [sp.JointSpringDamper("clock", "A.angle", 0.4, 0.5)]
    drivers = [sp.Driver("motor", "A.angle", lambda t: 7.0 + 5.0 * t)]
    mechanism = sp.Mechanism([*wheels, rack], joints, forces, drivers)
    travel = 0.02 * 14.0 / (2 * np.pi)
    fixed = {"A.angle": 7.0, "B.angle": -2.0, "S.displacement": travel}
    state = mbd.assemble(mechanism, fixed, guess={"nut.z": travel})
    return mbd.simulate(mechanism, state, np.linspace(0.0, 4.0, 9))


def test_angles_count_whole_turns() -> None:
    """Through joints, gears, racks, screws and springs, far beyond one turn."""
    solution = geared()
    a = 7.0 + 5.0 * np.asarray(solution.ts)
    found = solution.read(
        ["A.angle", "B.angle", "S.angle", "S.displacement", "R.displacement", "A.angle_rate", "motor.effort"]
    )
    np.testing.assert_allclose(found["A.angle"], a, atol=1e-8)
    np.testing.assert_allclose(found["B.angle"], 0.1 - 0.3 * a, atol=1e-8)
    np.testing.assert_allclose(found["S.angle"], 2 * a, atol=1e-8)
    np.testing.assert_allclose(found["S.displacement"], 0.02 * 2 * a / (2 * np.pi), atol=1e-8)
    np.testing.assert_allclose(found["R.displacement"], 0.5 * (0.1 - 0.3 * a), atol=1e-8)
    np.testing.assert_allclose(found["A.angle_rate"], 5.0, atol=1e-8)
    np.testing.assert_allclose(found["motor.effort"], 0.4 * (a - 0.5), atol=1e-7)
    np.testing.assert_allclose(solution.q[:, -2:], np.stack([a, 0.1 - 0.3 * a], axis=1), atol=1e-8)


# --- velocities --------------------------------------------------------------------------------------------------


@cache
def rolling() -> tuple[sp.Mechanism, mbd.State]:
    """A disc of .3 m that rolls upright on a slope-free plane with a spin of its own, tilted by .2 rad at the start."""
    radius, mass, tilt = 0.3, 2.0, 0.2
    disc = sp.disc(mass / (np.pi * radius**2 * 0.01), radius, 0.01)
    pose = sp.pose(0, 0, radius * np.cos(tilt), sp.rotation.about("x", np.pi / 2 - tilt))
    body = sp.Body("disc", disc.mass, disc.inertia, pose)
    joints = [sp.RollingDisc("roll", sp.ground.at(), body.at(), radius)]
    mechanism = sp.Mechanism([body], joints, [sp.Gravity()])
    return mechanism, mbd.assemble(mechanism, speeds={"disc.omega_z": 6.0, "disc.omega_x": 0.1, "disc.omega_y": 0.5})


def test_rolling_disc_does_not_slip_and_keeps_its_energy() -> None:
    mechanism, state = rolling()
    assert mechanism.constraint_sizes() == (3,)
    assert np.asarray(state.rank) == 3
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 3.0, 61), accuracy="high")
    energy = np.asarray(solution["energy"])
    np.testing.assert_allclose(energy, energy[0], rtol=1e-10)
    e, omega = solution.q[:, 3:7], solution.v[:, 3:]
    axis = np.asarray(jax.vmap(sp.rotation.rotate, (0, None))(e, jnp.asarray([0.0, 0.0, 1.0])))
    down = -(np.asarray([0.0, 0.0, 1.0]) - axis[:, 2:] * axis)
    arm = 0.3 * down / np.linalg.norm(down, axis=1, keepdims=True)
    world = np.asarray(jax.vmap(sp.rotation.rotate)(e, omega))
    contact = np.asarray(solution.v[:, :3]) + np.cross(world, arm)
    np.testing.assert_allclose(contact, 0.0, atol=1e-9)
    np.testing.assert_allclose(np.asarray(solution.q[:, 2]) + arm[:, 2], 0.0, atol=1e-9)
    assert np.ptp(np.asarray(solution.q[:, :2])) > 1.0, "it does not roll anywhere"
    # A rolling constraint is not integrable: its load on the disc is the one that Newton's law asks for.
    force = solution.reaction("roll", "disc").force
    expected = 2.0 * (np.asarray(solution.vdot[:, :3]) + np.asarray([0.0, 0.0, 9.81]))
    np.testing.assert_allclose(force, expected, atol=1e-8)


def knife(t: Array, frames: tuple[sp.Frame, sp.Frame], rates: tuple[sp.Rate, sp.Rate], angle: Array) -> Array:
    """An edge at an angle to the body's x axis that does not slip sideways."""
    _, body = frames
    sideways = body.to_world(jnp.stack([-jnp.sin(angle), jnp.cos(angle), jnp.zeros_like(angle)]))
    return jnp.dot(sideways, rates[1].position)


def test_a_users_own_velocity_constraint() -> None:
    """A sleigh on a slope (Chaplygin, with the edge under its centre): `x = g sinα/(2 ω²) sin² ωt`, a cycloid."""
    g, omega = 2.0, 1.5
    body = sp.Body("sleigh", 1.0, (0.1, 0.1, 0.2))
    glide = sp.Planar("plane", sp.ground.at(), body.at())
    edge = sp.NonholonomicConstraint("edge", knife, sp.ground.at(), body.at(), jnp.asarray(0.0))
    mechanism = sp.Mechanism([body], [glide, edge], [sp.Gravity((g, 0.0, 0.0))])
    state = mbd.assemble(mechanism, speeds={"plane.angle": omega, "sleigh.vx": 0.0})
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 5.0, 11), accuracy="high")
    phase = omega * np.asarray(solution.ts)
    np.testing.assert_allclose(solution["plane.x"], g / (2 * omega**2) * np.sin(phase) ** 2, atol=1e-9)
    expected = g / (2 * omega**2) * (phase - 0.5 * np.sin(2 * phase))
    np.testing.assert_allclose(solution["plane.y"], expected, atol=1e-9)


def test_a_driver_of_speed_alone() -> None:
    """Its rate is the given one from wherever it starts; the start has to have that rate."""
    wheel = sp.Body("wheel", 1.0, (0.1, 0.1, 0.2))
    joint = sp.Revolute("axle", sp.ground.at(), wheel.at())
    motor = sp.Driver("motor", "axle.angle", jnp.cos, prescribes="speed")
    mechanism = sp.Mechanism([wheel], [joint], drivers=[motor])
    state = mbd.assemble(mechanism, {"axle.angle": 1.0})
    np.testing.assert_allclose(state["wheel.omega_z"], 1.0, atol=1e-12)
    solution = mbd.simulate(mechanism, state, np.linspace(0.0, 2.0, 5))
    np.testing.assert_allclose(solution["axle.angle"], 1.0 + np.sin(solution.ts), atol=1e-7)
    np.testing.assert_allclose(solution.effort("motor"), -0.2 * np.sin(solution.ts), atol=1e-7)


# --- redundant constraints ---------------------------------------------------------------------------------------


def door(hinges: int) -> sp.Mechanism:
    """A door on one or more hinges in line: five rows too many with each hinge but the first."""
    body = sp.Body("door", 10.0, (0.8, 0.7, 1.5), (0.4, 0, 1))
    places = np.linspace(0.2, 1.8, hinges) if hinges > 1 else [1.0]
    joints = [sp.Revolute(f"hinge{i}", sp.ground.at(0, 0, z), body.at(-0.4, 0, z - 1)) for i, z in enumerate(places)]
    forces = [sp.Gravity(), sp.Force("push", body.at(0.4), (0.0, 3.0, 0.0), frame="body")]
    return sp.Mechanism([body], joints, forces)


def test_redundant_rows_are_named() -> None:
    mechanism = door(3)
    state = mbd.assemble(mechanism)
    found = mbd.redundancy(mechanism, state)
    assert (found.rows, found.rank, found.degrees_of_freedom) == (15, 5, 1)
    assert np.asarray(state.rank) == 5
    assert {repeat.joint for repeat in found.repeats} == {"hinge1", "hinge2"}
    text = str(found)
    for words in ("15 constraint rows of rank 5, 10 redundant", "tolerance 1e-07", "1 degree of freedom", "'hinge0'"):
        assert words in text
    single = door(1)
    assert "none redundant" in str(mbd.redundancy(single, mbd.assemble(single)))


def test_redundant_constraints_leave_the_motion_alone() -> None:
    """And the multipliers are those of least norm."""
    ts = np.linspace(0.0, 1.0, 5)
    one, three = (mbd.simulate(door(n), mbd.assemble(door(n)), ts, accuracy="high") for n in (1, 3))
    np.testing.assert_allclose(three.q[:, :7], one.q[:, :7], atol=1e-10)
    np.testing.assert_allclose(three.vdot, one.vdot, atol=1e-9)
    for t, q, lam in zip(three.ts, three.q, three.lam, strict=True):
        C = np.asarray(mbd.Equations(three.mechanism).jacobian(t, q))
        load = C.T @ np.asarray(lam)
        least = np.linalg.pinv(C.T, rcond=1e-9) @ load
        np.testing.assert_allclose(lam, least, atol=1e-8 * np.abs(lam).max())
    total = sum(np.asarray(three.reaction(f"hinge{i}").force) for i in range(3))
    np.testing.assert_allclose(total, one.reaction("hinge0").force, atol=1e-7)


def test_redundant_constraints_in_single_precision() -> None:
    """Of the ring's thirty rows one is left out; solved in all of them, or shifted, it opens by millimetres."""
    with jax.enable_x64(False):
        ring = mbd.examples.get("bricard").mechanism
        start, equations = mbd.assemble(ring), mbd.Equations(ring)
        end = mbd.simulate(ring, start, [0.0, 0.5]).q[-1]
        assert int(pivot_columns(equations.jacobian(start.t, end).T).sum()) == 29
        miss = equations.position(jnp.asarray(0.5), end)
    assert miss.dtype == jnp.float32
    assert np.abs(miss).max() < 2e-6


@pytest.mark.parametrize("mode", ["reverse", pytest.param("forward", marks=pytest.mark.slow)])
def test_gradients_with_redundant_constraints(mode: str) -> None:
    """Of the end and of a least-norm multiplier, with respect to mass, inertia and push; against one hinge's
    gradients, and differences."""

    def outputs(p: Array, hinges: int) -> Array:
        mechanism = door(hinges)
        mechanism = eqx.tree_at(
            lambda m: (m["door"].mass, m["door"].inertia, m["push"].force),
            mechanism,
            (10.0 * p[0], mechanism["door"].inertia * p[1], jnp.stack([jnp.zeros(()), 3.0 * p[2], jnp.zeros(())])),
        )
        state = mbd.assemble(mechanism)
        derivative = "forward" if mode == "forward" else "reverse"
        solution = mbd.simulate(mechanism, state, jnp.asarray([0.0, 0.7]), accuracy="high", adjoint=derivative)
        return jnp.stack([solution["hinge0.angle"][-1], solution.v[-1, 5], solution.lam[-1, 2]])

    p = jnp.ones(3)
    slope = (jax.jacrev if mode == "reverse" else jax.jacfwd)(lambda p: outputs(p, 2))(p)
    h = 1e-4
    step = np.eye(3) * h
    difference = np.stack([(outputs(p + e, 2) - outputs(p - e, 2)) / (2 * h) for e in step], axis=1)
    np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-6)
    single = (jax.jacrev if mode == "reverse" else jax.jacfwd)(lambda p: outputs(p, 1)[:2])(p)
    np.testing.assert_allclose(slope[:2], single, rtol=1e-8, atol=1e-9)
