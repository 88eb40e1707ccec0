"""Small motions that are unstable, gyroscopic or roll, and the axes in which they have constant coefficients."""

import math
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.linearization.independent_coordinates import turning_rates
from jaxmbd.space import rotation as rot
from tests.marks import in_both_coordinates
from tests.planar_examples import at_rest, four_bar_with_springs, pendulum

G = 9.81  # [m/s²]


def test_an_inverted_pendulum_on_a_cart() -> None:
    """`λ² = (M + m) g / (M L)` for a point mass on a rod of length L; the cart itself is free."""
    cart = pl.Body("cart", mass=3.0, inertia=1.0)
    bob = pl.Body("bob", mass=1.0, inertia=1e-12, pose=(0.0, 0.5, 0.0))
    joints = [pl.Prismatic("rail", pl.ground.at(), cart.at()), pl.Revolute("pin", cart.at(), bob.at(0.0, -0.5))]
    mechanism = pl.Mechanism([cart, bob], joints, [pl.Gravity(G)], coordinates="joint")
    system = mbd.linearize(mechanism, at_rest(mechanism, [0.0, 0.0]), ["rail.displacement"], ["pin.angle"])
    modes, fast = system.modes(), math.sqrt(4.0 * G / (3.0 * 0.5))
    np.testing.assert_allclose(modes.eigenvalues, [0.0, fast], atol=1e-7)
    np.testing.assert_allclose(modes.damping, [0.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(system.B[2:, 0], [1 / 3, 1 / (3 * 0.5)], rtol=1e-9)
    assert "grows" in str(system)
    assert "rigid body" in str(system)


@pytest.mark.parametrize(
    ("coordinates", "independent"),
    [
        ("absolute", ("top.x", "top.y", "∫top.omega_z")),
        pytest.param("absolute", ("∫top.omega_x", "∫top.omega_y", "∫top.omega_z"), marks=pytest.mark.slow),
        ("joint", ("∫O.omega_x", "∫O.omega_y", "∫O.omega_z")),
    ],
)
@pytest.mark.filterwarnings("ignore:linearize. Along axes that turn")
def test_a_sleeping_top(coordinates: str, independent: tuple[str, ...]) -> None:
    """About its spin s: `A ν² − C s ν + m g l = 0`, and `λ = ± i ν` where its tilt is counted in space, by the place of
    its centre, but `± i (ν − s)` where it is counted along its own axes, which turn. Twice zero for the spin.
    """
    m, l, across, along, spin = 0.7, 0.12, 2e-3, 9e-4, 400.0
    top = sp.Body("top", m, (across, across, along), (0.0, 0.0, l))
    joint = sp.Spherical("O", sp.ground.at(), top.at(0, 0, -l))
    mechanism = sp.Mechanism([top], [joint], [sp.Gravity(G)], coordinates=coordinates)
    q = jnp.array([0.0, 0.0, l, 1.0, 0.0, 0.0, 0.0]) if coordinates == "absolute" else jnp.array([1.0, 0.0, 0.0, 0.0])
    names = {"top.x": "top.vx", "top.y": "top.vy"}
    speeds = [names.get(name, name.removeprefix("∫")) for name in independent]
    state = at_rest(mechanism, q, top_omega_z=spin, O_omega_z=spin)
    system = mbd.linearize(mechanism, state, independent=speeds)
    assert system.coordinates == independent
    if "top.x" not in independent:
        assert system.remark.startswith("Along axes that turn, which the eigenvalues depend on: ∫")
        with pytest.warns(mbd.LinearizationWarning, match="Along axes that turn"):
            assert system.modes().omega.shape == (4,)
    about = across + m * l**2
    nu = np.roots([about, -along * spin, m * G * l])
    expected = np.sort(np.abs(nu if "top.x" in independent else nu - spin))
    np.testing.assert_allclose(np.sort(np.abs(system.eigenvalues.imag))[2::2], expected, rtol=1e-9)
    np.testing.assert_allclose(system.eigenvalues.real, np.zeros(6), atol=1e-6 * spin)


def test_a_skate() -> None:
    """Three states of position, two of speed. A skate that runs along x at speed s drifts as it turns, ẏ = s θ."""
    blade = pl.Body("skate", mass=2.0, inertia=0.1)

    def across(t: Array, frames: Any, rates: Any, parameters: Any) -> Array:
        (_, frame), (_, rate) = frames, rates
        return -jnp.sin(frame.angle) * rate.position[0] + jnp.cos(frame.angle) * rate.position[1]

    edge = pl.NonholonomicConstraint("edge", across, pl.ground.at(), blade.at())
    mechanism = pl.Mechanism([blade], [edge], floating=True)
    state = at_rest(mechanism, [0.0, 0.0, 0.0], skate_vx=3.0)
    system = mbd.linearize(mechanism, state, ["skate.fx", "skate.moment"])
    assert system.states == ("skate.x", "skate.y", "skate.theta", "skate.vx", "skate.omega")
    expected = np.zeros((5, 5))
    expected[0, 3] = expected[2, 4] = 1.0
    expected[1, 2] = 3.0
    np.testing.assert_allclose(system.A, expected, atol=1e-10)
    np.testing.assert_allclose(system.B[3:], [[0.5, 0], [0, 10]], atol=1e-10)
    np.testing.assert_allclose(system.eigenvalues, np.zeros(5), atol=1e-6)
    with pytest.raises(mbd.MechanismError, match="With rolling"):
        _ = system.stiffness


def test_a_disc_that_rolls_in_a_circle_has_no_axes_that_do_not_turn() -> None:
    """Named coordinates are a deliberate choice. Its contact is a row of positions, unlike its rolling, so that it has
    five places; one row more would let it sink.
    """
    example = examples.get("rolling-disc")
    mechanism, state = example.mechanism, example.state()
    with pytest.raises(mbd.MechanismError) as refused:
        mbd.linearize(mechanism, state)
    assert str(refused.value) == (
        "linearize: no choice of independent coordinates avoids axes that turn with 'disc': 'disc.omega_y' (5.92 "
        "rad/s), 'disc.omega_z' (2.27 rad/s). The matrices change along the motion, and eigenvalues with frozen axes "
        "are not those of the motion. If a joint carries the spin, take joint coordinates (coordinates='joint'), which "
        "have its angle. Or name the coordinates, independent=['disc.vx', 'disc.vy', 'disc.omega_y']: the matrices are "
        "then those of the instant."
    )
    system = mbd.linearize(mechanism, state, independent=["disc.vx", "disc.vy", "disc.omega_y"])
    assert len(system.coordinates) == 5
    assert len(system.speeds) == 3
    assert "Along axes that turn, which the eigenvalues depend on: ∫disc.omega_" in str(system)


def test_a_top_that_precesses_is_refused_in_joint_coordinates() -> None:
    """Its joint has no angle, and its axes turn with the spin; neither these nor the world's have constant matrices."""
    mechanism = examples.get("heavy-top").mechanism.with_coordinates("joint")
    state = at_rest(mechanism, [1.0, 0.0, 0.0, 0.0], O_omega_y=150.0, O_omega_z=-4.61538)
    message = (
        "avoids axes that turn with 'top': 'O.omega_x' (150 rad/s), 'O.omega_y' (4.62 rad/s), 'O.omega_z' (150 rad/s). "
        "The matrices change along the motion, and eigenvalues with frozen axes are not those of the motion. Name the "
        "coordinates, independent=['O.omega_x', 'O.omega_y', 'O.omega_z']: the matrices are then those of the instant."
    )
    with pytest.raises(mbd.MechanismError, match=re.escape(message) + "$"):
        mbd.linearize(mechanism, state)


def test_axes_that_spin_with_a_wheel_are_not_taken() -> None:
    """A frame on a spring, with a wheel that spins across its axis: `ω² = k / (I + A)`, wherever the wheel is."""
    across, along, spin, turned, stiffness = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), 20.0, 0.5, 30.0
    pose = jnp.array([0.0, 0.0, 0.0, math.cos(turned / 2), 0.0, math.sin(turned / 2), 0.0])
    frame, wheel = (
        sp.Body("frame", 1.0, (0.05, 0.05, 0.05), (0.0, 0.0, 0.0)),
        sp.Body("wheel", 2.0, (0.4, 0.7, 0.4), pose),
    )
    joints = [
        sp.Revolute("O", sp.ground.at(axis=across), frame.at(axis=across)),
        sp.Revolute("hub", frame.at(axis=along), wheel.at(axis=along)),
    ]
    spring = sp.JointSpringDamper("spring", "O.angle", stiffness)
    mechanism = sp.Mechanism([frame, wheel], joints, [spring], coordinates="absolute")
    q = jnp.concatenate([frame.pose, pose, jnp.zeros(len(mechanism.turns))])
    system = mbd.linearize(mechanism, at_rest(mechanism, q, wheel_omega_y=spin))
    assert system.coordinates == ("∫frame.omega_x", "∫wheel.omega_y")
    expected = math.sqrt(stiffness / (0.05 + 0.4))
    np.testing.assert_allclose(system.eigenvalues, [0, 0, 1j * expected, -1j * expected], atol=1e-9)
    assert "turn" not in str(system)


# --- axes in which coefficients are constant ------------------------------------------------------


@in_both_coordinates("joint")
def test_a_top_is_seen_from_the_world_in_both_coordinates(coordinates: str) -> None:
    """Upright, `I ν² − C s ν + m g l = 0`: 1.933 and 8.341 rad/s, where its own axes would show 28.07 and 21.66."""
    body, l, spin = sp.Body("b", 1.2, (0.1, 0.1, 0.1), (0, 0, 0.4)), 0.4, 30.0
    joint = sp.Spherical("S", sp.ground.at(), body.at(0, 0, -l))
    mechanism = sp.Mechanism([body], [joint], [sp.Gravity(G)], coordinates=coordinates)
    system = mbd.linearize(mechanism, mbd.assemble(mechanism, speeds={"b.omega_z": spin}))
    expected = np.sort(np.roots([0.1 + 1.2 * l**2, -0.1 * spin, 1.2 * G * l]))
    np.testing.assert_allclose(expected, [1.93345686, 8.34051574], rtol=1e-8)
    np.testing.assert_allclose(system.eigenvalues[2:].imag, expected[[0, 0, 1, 1]] * [1, -1, 1, -1], rtol=1e-8)
    np.testing.assert_allclose(system.eigenvalues.real, 0.0, atol=1e-6)
    assert (system.remark, system.is_steady) == ("", True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:linearize. The matrices change")
@pytest.mark.parametrize("name", ["bicycle", "governor", "spatial-four-bar"])
def test_examples_that_move_have_one_set_of_eigenvalues(name: str) -> None:
    """Those of a governor about its spin are constant in the coordinates of its joints, not in places in the world."""
    found = []
    for coordinates in ("absolute", "joint"):
        example = examples.get(name).with_coordinates(coordinates)
        found.append(mbd.linearize(example.mechanism, example.state()))
    absolute, joint = (np.sort_complex(np.round(np.asarray(system.eigenvalues), 9)) for system in found)
    np.testing.assert_allclose(absolute, joint, rtol=1e-6, atol=2e-5)
    assert found[0].is_steady == found[1].is_steady == (name == "bicycle")


def test_matrices_that_change_along_the_motion_are_remarked() -> None:
    """A pendulum that swings through: the same coordinate in both kinds, and a warning beside its eigenvalues."""
    for coordinates in ("absolute", "joint"):
        mechanism = pendulum().mechanism.with_coordinates(coordinates)
        state = mbd.assemble(mechanism, {"O.angle": -1.0}, speeds={"O.angle": 2.0})
        system = mbd.linearize(mechanism, state)
        assert system.coordinates == ("O.angle",)
        assert "The matrices change along the motion" in str(system)
        with pytest.warns(mbd.LinearizationWarning, match="linearize: The matrices change along the motion"):
            values = system.eigenvalues
        rod = mechanism["rod"]
        square = -float(rod.mass * G * 0.5 * np.sin(1.0) / (rod.inertia + rod.mass * 0.25))
        np.testing.assert_allclose(np.asarray(values) ** 2, [square, square], rtol=1e-8)


@pytest.mark.slow
@in_both_coordinates("absolute")
def test_a_disc_that_rolls_straight_ahead(coordinates: str) -> None:
    """`(A + m r²) λ² = m g r − (C + m r²) C ω² / A` for the lean of an upright disc that spins with ω; it has no axes
    but those that turn with it, so that its angular velocities are counted about the world's.
    """
    r, m, across, along = 0.3, 2.0, 0.05, 0.09
    ahead, spun = rot.about("z", 0.4), rot.multiply(rot.about("x", -math.pi / 2), rot.about("z", 0.3))
    disc = sp.Body("disc", m, (across, across, along), sp.pose(0.1, 0.2, r, rot.multiply(ahead, spun)))
    rolling = sp.RollingDisc("rolling", sp.ground.at(), disc.at(), r)
    mechanism = sp.Mechanism([disc], [rolling], [sp.Gravity(G)], coordinates=coordinates, floating=True)
    for spin in (3.0, 8.0):  # below and above the speed from which it stays upright
        speed = {"disc_vx": spin * r * math.cos(0.4), "disc_vy": spin * r * math.sin(0.4)}
        system = mbd.linearize(mechanism, at_rest(mechanism, disc.pose, disc_omega_z=spin, **speed))
        assert system.coordinates[2:] == tuple(f"∫disc.omega_world.{axis}" for axis in "xyz")
        square = (m * G * r - (along + m * r**2) * along * spin**2 / across) / (across + m * r**2)
        expected = np.sqrt(complex(square)) * np.array([1, -1])
        np.testing.assert_allclose(np.asarray(system.eigenvalues[-2:]) / expected[0], [1, -1], atol=1e-9)
        np.testing.assert_allclose(system.eigenvalues[:-2], np.zeros(6), atol=1e-6)
        assert "turn" not in str(system)


def test_a_body_that_spins_freely_keeps_its_own_axes() -> None:
    """About its middle axis: `λ² = ω² (I₂ − I₁)(I₃ − I₂) / I₁ I₃`; in the world's axes the matrices would turn."""
    first, second, third, spin = 0.1, 0.2, 0.27, 2.0
    mechanism = sp.Mechanism([sp.Body("b", 1.0, (first, second, third))], floating=True, coordinates="absolute")
    system = mbd.linearize(mechanism, at_rest(mechanism, [0, 0, 0, 1.0, 0, 0, 0], b_omega_y=spin))
    assert system.speeds == mechanism.speed_names
    fast = spin * math.sqrt((second - first) * (third - second) / (first * third))
    np.testing.assert_allclose(np.sort(system.eigenvalues.real)[[0, -1]], [-fast, fast], rtol=1e-9)


@pytest.mark.slow
def test_a_top_on_a_ball_counted_about_world_axes() -> None:
    """Held by a spring at its side: in joint coordinates as in absolute ones, where its tilt is a place."""
    l, spin = 0.12, 300.0
    top = sp.Body("top", 0.7, (2e-3, 2e-3, 9e-4), (0.0, 0.0, l))
    spring = sp.SpringDamper("spring", sp.ground.at(0.5, 0, l), top.at(), 40.0, 0.5, 0.3)
    joint = sp.Spherical("O", sp.ground.at(), top.at(0, 0, -l))
    found = []
    for coordinates, q in (("absolute", [0.0, 0.0, l, 1.0, 0.0, 0.0, 0.0]), ("joint", [1.0, 0.0, 0.0, 0.0])):
        mechanism = sp.Mechanism([top], [joint], [sp.Gravity(G), spring], coordinates=coordinates)
        found.append(mbd.linearize(mechanism, at_rest(mechanism, q, top_omega_z=spin, O_omega_z=spin)))
    assert found[0].coordinates == ("top.x", "top.y", "∫top.omega_z")
    assert found[1].coordinates == tuple(f"∫O.omega_world.{axis}" for axis in "xyz")
    np.testing.assert_allclose(found[1].eigenvalues[2:], found[0].eigenvalues[2:], rtol=1e-8)


# --- joint coordinates as independent variables ---------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["O.angle", "A.angle"])
def test_an_angle_of_a_joint_is_independent_in_absolute_coordinates(name: str) -> None:
    """Of a four-bar that moves: all matrices as in joint coordinates, and as functions of its numbers."""
    found = []
    for coordinates in ("absolute", "joint"):
        base = four_bar_with_springs().mechanism.with_coordinates(coordinates)
        state = mbd.assemble(base, {"O.angle": 1.0}, speeds={"O.angle": 3.0})

        def system(mass: Array, base: pl.Mechanism = base, state: mbd.State = state) -> tuple[Array, mbd.LinearSystem]:
            mechanism = eqx.tree_at(lambda m: m["coupler"].mass, base, mass)
            small = mbd.linearize(mechanism, state, ["O.angle"], ["crank.alpha", name], independent=[name])
            return small.A, small

        found.append(jax.jacfwd(system, has_aux=True)(base["coupler"].mass))
    (slopes, absolute), (expected, joint) = found
    assert absolute.states == joint.states == (name, f"{name}_rate")
    for mine, other in ((absolute.A, joint.A), (absolute.B, joint.B), (absolute.C, joint.C), (absolute.D, joint.D)):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(absolute.mass, joint.mass, rtol=1e-9)
    np.testing.assert_allclose(slopes, expected, rtol=1e-7, atol=1e-9)


def test_an_angle_is_independent_inside_jit() -> None:
    """A pendulum hanging in absolute coordinates: `ω² = m g l / I` by its pin's angle, and its derivative."""
    mechanism = pendulum().mechanism
    state = at_rest(mechanism, [0.0, -0.5, -math.pi / 2])

    @jax.jit
    def omega(mass: Array) -> Array:
        changed = eqx.tree_at(lambda m: m["rod"].mass, mechanism, mass)
        return mbd.linearize(changed, state, independent=["O.angle"]).modes(undamped=True).omega[0]

    mass, inertia = (float(x) for x in (mechanism["rod"].mass, mechanism["rod"].inertia))
    about = inertia + mass * 0.25
    expected = math.sqrt(mass * G * 0.5 / about)
    np.testing.assert_allclose(omega(jnp.asarray(mass)), expected, rtol=1e-10)
    slope = 0.5 * expected * (1 / mass - 0.25 / about)
    np.testing.assert_allclose(jax.grad(omega)(jnp.asarray(mass)), slope, rtol=1e-9)
    with pytest.raises(mbd.MechanismError, match=r"here, 1; got 2 \('rod\.theta', 'O\.angle'\)"):
        mbd.linearize(mechanism, state, independent=["O.angle", "rod.theta"])
    with pytest.raises(mbd.MechanismError, match=r"Did you mean 'O\.angle'"):
        mbd.linearize(mechanism, state, independent=["O.angel"])


def test_axes_that_rotate_with_a_body() -> None:
    """An axis of one body turns with the angular velocity about its two other axes, whatever other bodies do."""
    bodies = tuple(sp.Body(name, mass=1.0, inertia=(1.0, 2.0, 3.0)) for name in ("spinning", "resting"))
    mechanism = sp.Mechanism(bodies)
    speeds = {"spinning.omega_x": 3.0, "spinning.omega_y": 4.0}
    v = jnp.array([speeds.get(name, 0.0) for name in mechanism.variables])
    rates = turning_rates(mechanism, v)
    assert rates == {"spinning.omega_x": 4.0, "spinning.omega_y": 3.0, "spinning.omega_z": 5.0}
