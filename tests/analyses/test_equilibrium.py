"""Equilibria at rest and in steady rotation, against roots of equations written down by hand."""

import math
from collections.abc import Callable
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
from tests import planar_examples as examples
from tests import spatial_examples
from tests.marks import in_both_coordinates
from tests.numeric import root, roots

G = 9.81  # [m/s²]
ROOT = 1e-9  # [m, rad]: agreement of a position with the root found by hand


# --- pendulums ------------------------------------------------------------------------------------


def rod(coordinates: str = "absolute", *forces: Any, drivers: Any = ()) -> pl.Mechanism:
    """A uniform rod of 1 m and 2 kg on a pin, `O.angle` from the x axis."""
    body = pl.Body("rod", 2.0, 2.0 / 12, (0.5, 0.0, 0.0))
    joints = [pl.Revolute("O", pl.ground.at(), body.at(-0.5))]
    return pl.Mechanism([body], joints, [pl.Gravity(G), *forces], drivers, coordinates=coordinates)


def at(angle: float) -> dict[str, float]:
    """A guess of the rod's pose."""
    return {"rod.x": 0.5 * math.cos(angle), "rod.y": 0.5 * math.sin(angle), "rod.theta": angle}


RATE = math.sqrt(1.5 * G)  # [rad/s] of the rod's small motions, (3 g / 2 l)^½


@in_both_coordinates("joint")
def test_a_pendulum_hangs_or_stands(coordinates: str) -> None:
    """Newton's method finds what is next to the guess, with the modes of the textbook and the weight in the pin; from
    the horizontal, where there is no stiffness, it goes down; and down from the top where a stable one is wanted.

    Without the damper in the pin the modes would be symmetric, and a sign turned round would not be seen.
    """
    decay = 0.3
    mechanism = rod(coordinates, pl.JointSpringDamper("damper", "O.angle", 0.0, damping=2 * decay * 2 / 3))
    hanging, standing = mbd.equilibrium(mechanism, at(-1.3)), mbd.equilibrium(mechanism, at(1.8))
    assert abs(float(hanging["rod.theta"]) + math.pi / 2) < ROOT
    assert abs(float(standing["rod.theta"]) - math.pi / 2) < ROOT
    assert bool(hanging.stable)
    assert not bool(standing.stable)
    assert hanging.verdict == "stable"
    assert standing.verdict == "unstable (1 growing mode)"
    np.testing.assert_allclose(
        hanging.eigenvalues[:2], -decay + np.array([1j, -1j]) * math.sqrt(RATE**2 - decay**2), atol=1e-8
    )
    np.testing.assert_allclose(
        standing.eigenvalues[:2], -decay + np.array([1, -1]) * math.hypot(RATE, decay), atol=1e-8
    )
    assert np.isneginf(np.asarray(hanging.eigenvalues.real)[2:]).all()
    np.testing.assert_allclose(hanging.reaction("O").force, [[0.0, 2 * G]], atol=1e-9)
    np.testing.assert_allclose(hanging["O.fy"], 2 * G, atol=1e-9)
    np.testing.assert_array_equal(hanging.state.v, 0.0)
    for start, stable in ((0.0, False), (math.pi / 2, True)):
        found = mbd.equilibrium(mechanism, at(start), stable=stable)
        assert abs(math.remainder(float(found["rod.theta"]) + math.pi / 2, math.tau)) < ROOT


@in_both_coordinates("joint")
def test_a_coordinate_is_held(coordinates: str) -> None:
    """What holds the rod at an angle is the moment of its weight."""
    held = mbd.equilibrium(rod(coordinates), fixed={"O.angle": 0.7})
    assert abs(float(held.effort("O.angle")) - 2 * G * 0.5 * math.cos(0.7)) < 1e-9
    assert abs(float(held["rod.theta"]) - 0.7) < ROOT
    assert held.verdict == "stable"  # nothing is left that could move
    np.testing.assert_allclose(held.reaction("O").force, [[0.0, 2 * G]], atol=1e-9)


def ball_pendulum(coordinates: str, spin_inertia: float = 0.02) -> sp.Mechanism:
    """A symmetric body of 1.5 kg on a ball joint .4 m from its centre, its axis along the body's z."""
    body = sp.Body("top", 1.5, (0.03, 0.03, spin_inertia), (0.0, 0.0, 0.4))
    joints = [sp.Spherical("O", sp.ground.at(), body.at(0, 0, -0.4))]
    return sp.Mechanism([body], joints, [sp.Gravity(G)], coordinates=coordinates)


@pytest.fixture(scope="module")
def hung_aside() -> dict[str, float]:
    """A guess of the body on its ball joint, hanging but for .4 rad."""
    angle = math.pi - 0.4
    return {"top.x": 0.4 * math.sin(angle), "top.z": 0.4 * math.cos(angle),
            "top.e0": math.cos(angle / 2), "top.e2": math.sin(angle / 2)}  # fmt: skip


@pytest.mark.slow
def test_a_pendulum_in_space(hung_aside: dict[str, float]) -> None:
    """On a ball joint it hangs with two slow modes and may be turned about its axis: neutral. Upright two grow."""
    mechanism = ball_pendulum("absolute")
    hanging, standing = mbd.equilibrium(mechanism, hung_aside), mbd.equilibrium(mechanism)
    assert abs(float(hanging["top.z"]) + 0.4) < ROOT
    assert hanging.verdict == "neutral"
    assert standing.verdict == "unstable (2 growing modes)"
    rate = math.sqrt(1.5 * G * 0.4 / (0.03 + 1.5 * 0.16))
    modes = np.sort(np.imag(hanging.eigenvalues[:6]))
    np.testing.assert_allclose(modes, [-rate, -rate, 0, 0, rate, rate], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_sleeping_top(coordinates: str) -> None:
    """A top stands while it spins faster than `2 (m g l I)^½ / I₃` (Goldstein, Poole, Safko, *Classical Mechanics*,
    §5.7): gyroscopic and Coriolis' forces are in the small motions."""
    mechanism = ball_pendulum(coordinates, 0.05)
    across = 0.03 + 1.5 * 0.16
    critical = 2 * math.sqrt(1.5 * G * 0.4 * across) / 0.05
    slow = mbd.equilibrium(mechanism, rotation=mbd.Rotation(0.97 * critical))
    fast = mbd.equilibrium(mechanism, rotation=mbd.Rotation(1.03 * critical))
    assert slow.verdict == "unstable (2 growing modes)"
    assert fast.verdict == "stable"
    # In the turning frame: λ = i (−Ω + (I₃ Ω ± (I₃² Ω² − 4 m g l I)^½) / 2 I), and their conjugates.
    omega = 1.03 * critical
    root = math.sqrt((0.05 * omega) ** 2 - 4 * 1.5 * G * 0.4 * across)
    wanted = np.abs([-omega + (0.05 * omega + sign * root) / (2 * across) for sign in (1, -1)])
    found = np.sort(np.imag(fast.eigenvalues[:6]))[-2:]
    np.testing.assert_allclose(found, np.sort(wanted), rtol=1e-6)


# --- the car axis ---------------------------------------------------------------------------------


def test_the_car_axis() -> None:
    """The car axis of the Test Set for IVP Solvers at rest, its wheel at (L, 0): y of the right particle by hand.

    The left particle is at (0, y), the right one at an angle φ from it. Both springs and the weights balance the rod.
    """
    L, L0, k = 1.0, 0.5, 10 * 0.01**2 / 2
    left, right = (pl.Body(n, k, k, (x, 0.5, 0.0)) for n, x in (("left", 0.0), ("right", 1.0)))
    mechanism = pl.Mechanism(
        [left, right],
        [
            pl.Rod("axle", left.at(), right.at(), L),
            pl.Constraint("upright", lambda t, f, p: f[1].position[0] * L, pl.ground.at(), left.at()),
        ],
        [
            pl.Gravity(1.0),
            pl.SpringDamper("left spring", pl.ground.at(), left.at(), 1.0, L0),
            pl.SpringDamper("right spring", pl.ground.at(L, 0.0), right.at(), 1.0, L0),
        ],
    )
    found = mbd.equilibrium(mechanism, fixed={"left.theta": 0.0, "right.theta": 0.0})

    def unbalance(z: np.ndarray) -> list[float]:
        """The derivatives of the energy by y of the left particle and the rod's angle."""
        y, phi = z
        x2, y2 = L * math.cos(phi), y + L * math.sin(phi)
        l2 = math.hypot(x2 - L, y2)
        pull = 1 - L0 / l2
        dy = (abs(y) - L0) * math.copysign(1, y) + pull * y2 + 2 * k
        return [dy, pull * (-(x2 - L) * L * math.sin(phi) + y2 * L * math.cos(phi)) + k * L * math.cos(phi)]

    y, phi = roots(unbalance, [0.5, 0.0])
    by_hand = [0.0, y, L * math.cos(phi), y + L * math.sin(phi)]
    np.testing.assert_allclose([found[n] for n in ("left.x", "left.y", "right.x", "right.y")], by_hand, atol=ROOT)
    assert found.verdict == "stable"


# --- a four-bar with springs ----------------------------------------------------------------------


def four_bar_energy(theta: Any, stiffness: Any = 60.0) -> Array:
    """What the loads of `four_bar_with_springs` can do as a function of the crank's angle alone: gravity, springs, and
    the constant motor, actuator and load (fixed on the rocker), whose work is the product with their coordinates."""
    crank, coupler, rocker, base = 0.12, 0.35, 0.25, 0.4
    u = lambda a: jnp.stack([jnp.cos(a), jnp.sin(a)])  # noqa: E731
    A, C = crank * u(theta), jnp.array([base, 0.0])
    d = C - A
    f = jnp.sqrt(jnp.sum(d * d))
    tilt = jnp.arctan2(d[1], d[0]) + jnp.arccos((f * f + coupler**2 - rocker**2) / (2 * f * coupler))
    B = A + coupler * u(tilt)
    phi = jnp.arctan2(B[1], (B - C)[0])
    on_coupler = A + 0.195 * u(tilt) + 0.01 * u(tilt + jnp.pi / 2)
    length = lambda a, b: jnp.sqrt(jnp.sum((b - a) ** 2))  # noqa: E731
    weights = 0.3 * A[1] / 2 + 0.5 * (A + B)[1] / 2 + 0.4 * B[1] / 2
    strut = length(0.09 * u(theta), C + 0.175 * u(phi))
    springs = 0.5 * stiffness * (length(jnp.array([0.1, 0.3]), on_coupler) - 0.15) ** 2
    springs = springs + 12.5 * (strut - 0.2) ** 2 + 1.0 * (phi - 1.2) ** 2
    load = 0.225 * (-1.0) - 0.02 * 0.5 + 0.03
    return G * weights + springs + 1.5 * strut - 0.15 * theta - load * phi


def four_bar_root(stiffness: float = 60.0) -> float:
    slope = jax.grad(four_bar_energy)
    return root(lambda x: float(slope(x, stiffness)), -0.3, 0.6)


def with_stiffness(mechanism: pl.Mechanism, stiffness: Array) -> pl.Mechanism:
    return eqx.tree_at(lambda m: m["spring"].stiffness, mechanism, stiffness)


@in_both_coordinates("absolute")
def test_a_four_bar(coordinates: str) -> None:
    """Its crank stands where the energy of one coordinate is stationary; and how that moves with a stiffness, forward
    and reverse, side by side, is how the root moves. All in one program: to compile it is what takes time."""
    mechanism = examples.four_bar_with_springs().mechanism.with_coordinates(coordinates)
    place = mechanism.coordinate_names.index("crank.theta" if coordinates == "absolute" else "O.angle")

    def angle(stiffness: Array) -> tuple[Array, Array]:
        one = mbd.equilibrium(with_stiffness(mechanism, stiffness), {"crank.theta": 0.3}, check=False)
        return one.state.q[place], one.stable & one.converged

    def all_of(stiffness: Array) -> tuple[Array, ...]:
        value, along, stable = jax.linearize(angle, stiffness, has_aux=True)
        (reverse,) = jax.linear_transpose(along, stiffness)(jnp.ones(()))
        return value, stable, along(jnp.ones(())), reverse

    several = jnp.asarray([50.0, 60.0, 75.0])
    values, stable, forward, reverse = jax.jit(jax.vmap(all_of))(several)
    wanted = np.array([four_bar_root(float(k)) for k in several])
    np.testing.assert_allclose(values, wanted, atol=ROOT)
    slope = jax.grad(four_bar_energy)
    curvature, mixed = (jax.vmap(jax.grad(slope, i))(jnp.asarray(wanted), several) for i in (0, 1))
    np.testing.assert_array_equal(stable, np.asarray(curvature) > 0)
    np.testing.assert_allclose(forward, -mixed / curvature, rtol=1e-7)
    np.testing.assert_allclose(reverse, -mixed / curvature, rtol=1e-7)


# --- steady rotation ------------------------------------------------------------------------------


def turntable(drivers: Any = (), gravity: float = 0.0) -> pl.Mechanism:
    """An arm that turns about the origin in the plane, and a slider on a spring along it."""
    arm, slider = pl.Body("arm", 1.0, 0.6), pl.Body("slider", 0.5, 1e-3, (0.3, 0.0, 0.0))
    return pl.Mechanism(
        [arm, slider],
        [pl.Revolute("O", pl.ground.at(), arm.at()), pl.Prismatic("slot", arm.at(), slider.at())],
        [pl.JointSpringDamper("spring", "slot.displacement", 40.0, free_position=0.25), pl.Gravity(gravity)],
        drivers,
    )


@pytest.mark.slow
def test_a_slider_on_a_turntable() -> None:
    """`k (r − r₀) = m Ω² r`; small motions at constant speed, `ω² = k/m − Ω²`, and at constant angular momentum, where
    Coriolis' force adds `4 m r² Ω² / J`."""
    speed, m, k, r0 = 5.0, 0.5, 40.0, 0.25
    r = k * r0 / (k - m * speed**2)
    driven = turntable([pl.Driver("motor", "O.angle", lambda t: speed * t)])
    for mechanism, gain in ((turntable(), 4 * m * r**2 * speed**2 / (0.6 + 1e-3 + m * r**2)), (driven, 0.0)):
        t = 0.3 if mechanism is driven else 0.0
        found = mbd.equilibrium(mechanism, {"arm.theta": speed * t}, rotation={"O.angle": speed}, t=t)
        place = np.hypot(float(found["slider.x"]), float(found["slider.y"]))
        assert abs(place - r) < ROOT
        assert found.verdict == "stable"
        rate = np.max(np.asarray(found.eigenvalues.imag))
        assert abs(rate - math.sqrt(k / m - speed**2 + gain)) < 1e-6
        np.testing.assert_allclose(found["slider.omega"], speed, atol=ROOT)
        np.testing.assert_allclose(found["slot.fx"] ** 2 + found["slot.fy"] ** 2, 0.0, atol=1e-9)


@pytest.mark.slow
def test_what_cannot_turn_steadily() -> None:
    driven = turntable([pl.Driver("motor", "O.angle", lambda t: 5.0 * t)])
    with pytest.raises(mbd.SolveError, match=r"cannot turn steadily .* driver 'motor' contradicts it, by 1 \("):
        mbd.equilibrium(driven, rotation=mbd.Rotation(4.0))
    with pytest.raises(mbd.SolveError, match=r"cannot be at rest: the driver 'motor' contradicts it, by 5 \("):
        mbd.equilibrium(driven)
    with pytest.raises(mbd.SolveError, match=r"joint 'O' contradicts it"):
        mbd.equilibrium(turntable(), rotation=mbd.Rotation(4.0, point=(0.1, 0.0)))
    up = {"arm.theta": math.pi / 2, "slider.x": 0.0, "slider.y": 0.3}
    with pytest.raises(mbd.SolveError, match=r"no longer when everything has turned on .* gravity across the axis"):
        mbd.equilibrium(turntable(gravity=G), up, rotation={"O.angle": 2.0})


def governor_by_hand(speed: float, start: np.ndarray) -> np.ndarray:
    """A rod's angle below the horizontal and the slider's height: where the energy in the turning world is
    stationary."""
    ball, stick, slider, k, l0, e = 5.0, 3000 * 0.01**2, 3000 * 0.1**3, 8e5, 0.5, 0.05
    thick = stick * 0.01**2 / 12

    def unbalance(z: np.ndarray) -> list[float]:
        a, h = z
        c, s = math.cos(a), math.sin(a)
        d = np.array([0.5 * c, 1 - 0.5 * s - h])
        length = float(np.hypot(*d))
        tension = k * (length - l0)
        bend = -2 * ball * (e + c) * s - stick * (e * s + 2 / 3 * c * s) + 2 * thick * s * c  # dI/da
        rise = -(ball + 0.5 * stick) * c * G
        rod = rise + tension * float(d @ np.array([-0.5 * s, -0.5 * c])) / length - 0.5 * speed**2 * bend
        return [rod, slider * G - 2 * tension * d[1] / length]

    return roots(unbalance, start)


GOVERNOR_SPEEDS = np.array([4.5, 5.0, 2 * math.pi, 7.5, 9.0])  # [rad/s]


@in_both_coordinates("joint")
@pytest.mark.slow
def test_the_governor_at_five_speeds(coordinates: str) -> None:
    """Rods and slider stand where the hand-written balance of a rod and of the slider has its root; and they move with
    the speed, forward and reverse, as that root does."""
    mechanism = spatial_examples.governor().mechanism.with_coordinates(coordinates)
    wanted, slopes, near, h = [], [], np.array([0.6, 0.45]), 1e-3
    for speed in GOVERNOR_SPEEDS:
        near = governor_by_hand(speed, near)
        wanted.append(near)
        slopes.append((governor_by_hand(speed + h, near) - governor_by_hand(speed - h, near)) / (2 * h))

    def places(speeds: Array) -> tuple[Array, Array]:
        path = mbd.equilibrium_path(mechanism, "speed", speeds, rotation={"spin.angle": 1.0}, check=False)
        found = jnp.stack([path["hinge right.angle"] + math.pi / 6, path["slide.displacement"] + 0.5], axis=1)
        return found, path.stable & path.found

    def all_of(speeds: Array) -> tuple[Array, ...]:
        value, along, stable = jax.linearize(places, speeds, has_aux=True)
        (reverse,) = jax.linear_transpose(along, speeds)(jnp.ones_like(value))
        return value, stable, along(jnp.ones_like(speeds)), reverse

    value, stable, forward, reverse = jax.jit(all_of)(jnp.asarray(GOVERNOR_SPEEDS))
    np.testing.assert_allclose(value, wanted, atol=ROOT)
    assert stable.all()
    np.testing.assert_allclose(forward, slopes, rtol=1e-5)
    np.testing.assert_allclose(reverse, np.sum(slopes, axis=1), rtol=1e-5)


# --- forces without potential ---------------------------------------------------------------------


@pytest.mark.slow
def test_zieglers_column_flutters() -> None:
    """Two rods with masses 2 m and m at their ends and torsion springs, under a load that follows the second: straight
    for any load, and growing oscillations above `P l / k = 7/2 − 2^½` (Ziegler, 1952): not a loss of stiffness."""
    point = 1e-9  # [kg m²]: the masses are points
    a, b = pl.Body("a", 2.0, point, (0.0, 1.0, 0.0)), pl.Body("b", 1.0, point, (0.0, 2.0, 0.0))

    def column(load: float) -> pl.Mechanism:
        return pl.Mechanism(
            [a, b],
            [pl.Revolute("A", pl.ground.at(), a.at(0, -1)), pl.Revolute("B", a.at(), b.at(0, -1))],
            [
                pl.JointSpringDamper("spring a", "A.angle", 1.0),
                pl.JointSpringDamper("spring b", "B.angle", 1.0),
                pl.Force("load", b.at(), (0.0, -load), frame="body"),
            ],
            coordinates="joint",
        )

    critical = 3.5 - math.sqrt(2)
    below, above = (mbd.equilibrium(column(share * critical), {"A.angle": 0.05}) for share in (0.98, 1.02))
    assert below.verdict == "stable"
    assert above.verdict == "unstable (2 growing modes)"
    assert float(above.eigenvalues.imag[0]) != 0.0
    assert int(above.small_motions.negative) == 0
    np.testing.assert_allclose(below.state.q, 0.0, atol=ROOT)


# --- what cannot be -------------------------------------------------------------------------------


def floating(*forces: Any) -> pl.Mechanism:
    return pl.Mechanism([pl.Body("ball", 2.0, 0.1)], forces=[pl.Gravity(G), *forces], floating=True)


FAULTS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "nothing holds": (
        lambda: mbd.equilibrium(floating()),
        mbd.SolveError,
        r"nothing holds 'ball' against an unbalanced force of 19.6 N along 'ball.vy'",
    ),
    "too strong": (
        lambda: mbd.equilibrium(rod("joint", pl.JointForce("motor", "O.angle", 30.0))),
        mbd.SolveError,
        r"No equilibrium found in 400 of 400 steps: .* N m along 'O.angle_rate' is left over",
    ),
    "unknown": (
        lambda: mbd.equilibrium(rod(), fixed={"O.angel": 0.1}),
        mbd.MechanismError,
        r"Did you mean 'angle'\?",
    ),
    "axis in the plane": (
        lambda: mbd.equilibrium(rod(), rotation=mbd.Rotation(1.0, axis=(0, 0, 1))),
        mbd.MechanismError,
        "in the plane everything turns about z; leave axis out",
    ),
    "no axis": (lambda: mbd.Rotation(1.0, axis=(0, 0, 0)), mbd.MechanismError, "axis must have a direction"),
    "not to the ground": (
        lambda: mbd.equilibrium(turntable(), rotation={"slot.displacement": 3.0}),
        mbd.MechanismError,
        "a joint to the ground only",
    ),
    "another's state": (
        lambda: mbd.equilibrium(rod(), mbd.assemble(turntable())),
        mbd.MechanismError,
        "State of another mechanism",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_is_said(fault: str) -> None:
    run, error, text = FAULTS[fault]
    with pytest.raises(error, match=text):
        run()


@pytest.mark.slow
def test_failure_in_a_compiled_program_raises_or_is_told() -> None:
    """Under `jit` an error when it runs; with `check=False` a verdict, NaN, and no derivative."""
    mechanism = rod("joint", pl.JointForce("motor", "O.angle", 0.0))

    def found(torque: Array, check: bool) -> mbd.Equilibrium:
        loaded = eqx.tree_at(lambda m: m["motor"].force, mechanism, torque)
        return mbd.equilibrium(loaded, check=check)

    def several(torque: Array) -> tuple[mbd.RESULTS, mbd.RESULTS, Array, Array]:
        one = found(torque, False)
        return one.state.result, one.solution.result, one.state.q, one["O.angle"]

    state, solution, q, angle = eqx.filter_jit(jax.vmap(several))(jnp.asarray([5.0, 30.0]))
    for result in (state, solution):
        np.testing.assert_array_equal(result == mbd.RESULTS.successful, [True, False])
        np.testing.assert_array_equal(result == mbd.RESULTS.not_balanced, [False, True])
    np.testing.assert_array_equal(np.isnan(q).all(axis=1), [False, True])
    np.testing.assert_array_equal(np.isnan(angle), [False, True])
    assert "No equilibrium was found" in repr(found(jnp.asarray(30.0), False))
    slopes = jax.vmap(jax.grad(lambda x: found(x, False).state.q[0]))(jnp.asarray([5.0, 30.0]))
    np.testing.assert_array_equal(np.isnan(slopes), [False, True])
    with pytest.raises(eqx.EquinoxRuntimeError, match="No equilibrium"):
        jax.block_until_ready(eqx.filter_jit(lambda x: found(x, True).state.q)(jnp.asarray(30.0)))


@pytest.mark.slow
def test_rows_that_repeat() -> None:
    """Two pins at one place share the weight: the multipliers of least norm; and the position has its derivative."""
    body = pl.Body("rod", 2.0, 2.0 / 12, (0.5, 0.0, 0.0))
    pins = [pl.Revolute(name, pl.ground.at(), body.at(-0.5)) for name in ("O", "P")]
    spring = pl.TorsionalSpringDamper("spring", pl.ground.at(), body.at(), 20.0)
    mechanism = pl.Mechanism([body], pins, [pl.Gravity(G), spring])

    def angle(stiffness: Array) -> tuple[Array, Array]:
        found = mbd.equilibrium(with_stiffness(mechanism, stiffness), check=False)
        return found.state.q[2], jnp.stack([found["O.fy"], found["P.fy"]])

    one = jnp.ones(())
    value, slope, shares = jax.jit(lambda k: jax.jvp(angle, (k,), (one,), has_aux=True))(20.0 * one)
    theta = root(lambda x: 20 * x + 2 * G * 0.5 * math.cos(x), -1.5, 0.0)
    np.testing.assert_allclose(value, theta, atol=ROOT)
    np.testing.assert_allclose(shares, G, atol=1e-8)
    np.testing.assert_allclose(slope, -theta / (20 - G * math.sin(theta)), rtol=1e-9)


# --- balanced mechanisms --------------------------------------------------------------------------


def balanced(coordinates: str, stiffness: Any = 9.81) -> pl.Mechanism:
    """A bar of 1 kg whose weight a spring of no free length carries in every position: `k h = m g`."""
    bar = pl.Body("bar", 1.0, 0.1, (0.5, 0.0, 0.0))
    joints = [pl.Revolute("O", pl.ground.at(), bar.at(-0.5, 0.0))]
    forces = [pl.Gravity(9.81), pl.SpringDamper("spring", pl.ground.at(0.0, 1.0), bar.at(), stiffness, 0.0)]
    return pl.Mechanism([bar], joints, forces, coordinates=coordinates)


@in_both_coordinates("joint")
@pytest.mark.parametrize("angle", [-1.3, 0.4, 2.8])
def test_a_balanced_mechanism_is_neutral(coordinates: str, angle: float) -> None:
    """It rests wherever it is put; its stiffness is a difference of equal ones, and so are its eigenvalues."""
    guess = {"bar.theta": angle, "bar.x": 0.5 * math.cos(angle), "bar.y": 0.5 * math.sin(angle)}
    start = {"O.angle": angle} if coordinates == "joint" else guess
    found = mbd.equilibrium(balanced(coordinates), start)
    np.testing.assert_allclose(found["bar.theta"], angle, atol=1e-9)
    assert found.verdict == "neutral"
    assert int(found.small_motions.neutral) == 2
    assert mbd.equilibrium(balanced(coordinates), start, stable=True).verdict == "neutral"


def test_a_balanced_mechanism_is_neutral_in_single_precision() -> None:
    with jax.enable_x64(False):
        found = mbd.equilibrium(balanced("joint"), {"O.angle": 0.4})
        assert found.state.q.dtype == jnp.float32
        assert found.verdict == "neutral"
        assert int(found.small_motions.negative) == 0


def test_a_mechanism_that_is_nearly_balanced_is_not_neutral() -> None:
    """With `k h ≠ m g` it hangs or stands: `λ² = ± (k h − m g) l / I`, `l` its arm."""
    for excess, angle, verdict in ((-1e-4, -math.pi / 2, "stable"), (1e-4, -math.pi / 2, "unstable (1 growing mode)")):
        found = mbd.equilibrium(balanced("joint", 9.81 + excess), {"O.angle": angle + 0.1})
        np.testing.assert_allclose(found["bar.theta"], angle, atol=1e-6)
        assert found.verdict == verdict
        np.testing.assert_allclose(jnp.max(jnp.abs(found.eigenvalues)), math.sqrt(1e-4 * 0.5 / 0.35), rtol=1e-5)
