"""Assembly: what is prescribed holds, the rest changes little, speeds are consistent, and all of it has derivatives."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

CLOSED = 1e-10  # [m or rad]
CRANK, COUPLER, ROCKER, BASE = 0.3, 0.8, 0.6, 0.9  # lengths [m] of a crank-rocker


def four_bar(lengths: Array | None = None) -> pl.Mechanism:
    """A crank-rocker of slender rods, with rough poses for the open branch."""
    a, b, c, d = jnp.asarray((CRANK, COUPLER, ROCKER, BASE)) if lengths is None else lengths
    crank = pl.Body("crank", 0.3, 0.002, (0.1, 0.1, 0.9))
    coupler = pl.Body("coupler", 0.8, 0.04, (0.5, 0.4, 0.4))
    rocker = pl.Body("rocker", 0.6, 0.02, (0.9, 0.3, 1.5))
    return pl.Mechanism(
        [crank, coupler, rocker],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-a / 2)),
            pl.Revolute("A", crank.at(a / 2), coupler.at(-b / 2)),
            pl.Revolute("B", coupler.at(b / 2), rocker.at(c / 2)),
            pl.Revolute("C", pl.ground.at(d), rocker.at(-c / 2)),
        ],
    )


def rocker_angle(angle: float, branch: int = 1) -> float:
    """The rocker's angle [rad] over the crank's, by the law of cosines: the two circles' meeting points."""
    x, y = CRANK * math.cos(angle) - BASE, CRANK * math.sin(angle)
    f = math.hypot(x, y)
    inner = math.acos((f * f + ROCKER**2 - COUPLER**2) / (2 * f * ROCKER))
    return math.atan2(y, x) - branch * inner


def test_a_body_coordinate_is_fixed() -> None:
    """The four-bar closes at the crank's angle, where the circles of coupler and rocker meet."""
    state = mbd.assemble(four_bar(), {"crank.theta": 1.1})
    assert abs(float(state["crank.theta"]) - 1.1) < CLOSED
    assert abs(float(state["rocker.theta"]) - rocker_angle(1.1)) < 1e-9
    np.testing.assert_allclose([state["crank.x"], state["crank.y"]], 0.15 * np.array([math.cos(1.1), math.sin(1.1)]))
    np.testing.assert_array_equal(state.v, 0.0)
    assert float(state.t) == 0.0


def test_a_joint_coordinate_is_fixed() -> None:
    """The angle between coupler and rocker at B, and the same from the crank's side."""
    state = mbd.assemble(four_bar(), {"B.angle": 1.0})
    assert abs(float(state["rocker.theta"] - state["coupler.theta"]) - 1.0) < CLOSED
    assert abs(float(state["rocker.theta"]) - rocker_angle(float(state["crank.theta"]))) < 1e-9


def test_the_guess_chooses_the_branch() -> None:
    """With the rocker guessed below, the other meeting point of the circles is found."""
    below = {"coupler.y": -0.3, "coupler.theta": -0.8, "rocker.y": -0.3, "rocker.theta": -2.0, "rocker.x": 0.8}
    state = mbd.assemble(four_bar(), {"crank.theta": 1.1}, guess=below)
    wanted = rocker_angle(1.1, branch=-1)
    assert abs(wanted - rocker_angle(1.1)) > 1.0
    assert abs(math.remainder(float(state["rocker.theta"]) - wanted, math.tau)) < 1e-9
    high = mbd.assemble(four_bar(), {"crank.theta": 1.1}, guess={"rocker.theta": rocker_angle(1.1) + math.tau})
    assert abs(float(high["rocker.theta"]) - rocker_angle(1.1)) < 7.0  # some turn of the same angle
    assert abs(math.remainder(float(high["rocker.theta"]) - rocker_angle(1.1), math.tau)) < 1e-9


def pendulum(pose: tuple[float, float, float], driver: pl.Driver | None = None) -> pl.Mechanism:
    body = pl.Body("rod", 1.5, 0.2, pose)
    return pl.Mechanism(
        [body],
        [pl.Revolute("O", pl.ground.at(), body.at(-0.5))],
        [pl.Gravity()],
        [driver] if driver else (),
    )


def test_what_is_not_fixed_changes_as_little_as_possible() -> None:
    """The pendulum's pose is the nearest fitted one, within a thousandth; a fitted guess stays as it is."""
    guess = np.array([0.45, 0.3, 0.4])
    theta = np.linspace(0.2, 0.8, 60001)
    fitted = np.stack([0.5 * np.cos(theta), 0.5 * np.sin(theta), theta], axis=1)
    least = np.linalg.norm(fitted - guess, axis=1).min()
    change = float(np.linalg.norm(mbd.assemble(pendulum(tuple(guess))).q - guess))
    assert least > 0.09
    assert change < 1.001 * least
    closed = np.array([0.5 * math.cos(0.4), 0.5 * math.sin(0.4), 0.4])
    np.testing.assert_allclose(mbd.assemble(pendulum(tuple(closed))).q, closed, atol=1e-14)


def slide(t: Array) -> Array:
    """The motion of a moving pin [m]."""
    return 0.1 + 0.4 * jnp.sin(2 * t)


def test_speeds_follow_a_moving_pin() -> None:
    """Rheonomic: at t the pin is at x(t) and moves at ẋ(t); the rod's own speed is free and as asked."""
    cart, rod = pl.Body("cart", 1.0, 0.1), pl.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0))
    mechanism = pl.Mechanism(
        [cart, rod],
        [pl.Translational("rail", pl.ground.at(), cart.at()), pl.Revolute("O", cart.at(), rod.at(-0.5))],
        drivers=[pl.Driver("pin", "rail.displacement", slide)],
    )
    t, omega, theta = 0.3, 1.7, 0.6
    state = mbd.assemble(mechanism, {"rod.theta": theta}, speeds={"O.angle": omega}, t=t)
    x, xdot = 0.1 + 0.4 * math.sin(0.6), 0.8 * math.cos(0.6)
    s, c = math.sin(theta), math.cos(theta)
    np.testing.assert_allclose(state.q, [x, 0, 0, x + 0.5 * c, 0.5 * s, theta], atol=CLOSED)
    expected = [xdot, 0, 0, xdot - 0.5 * s * omega, 0.5 * c * omega, omega]
    np.testing.assert_allclose(state.v, expected, atol=CLOSED)
    assert float(state.t) == t
    least = mbd.assemble(mechanism, {"rod.theta": theta}, t=t)
    # The free speed is the one of least kinetic energy: m (ẋ − l s ω)(−l s) + m (l c)² ω + I ω = 0.
    assert abs(float(least["rod.omega"]) - 0.5 * s * xdot / (0.25 + 0.1)) < 1e-10


def test_speeds_of_body_and_joint_agree() -> None:
    """The four-bar's speeds from the crank's speed equal those from the joint's rate and from differences."""
    mechanism = four_bar()
    by_body = mbd.assemble(mechanism, {"crank.theta": 1.1}, speeds={"crank.omega": 2.0})
    by_joint = mbd.assemble(mechanism, {"crank.theta": 1.1}, speeds={"O.angle": 2.0})
    np.testing.assert_allclose(by_body.v, by_joint.v, atol=1e-10)
    h = 1e-5
    slope = (rocker_angle(1.1 + h) - rocker_angle(1.1 - h)) / (2 * h)
    assert abs(float(by_body["rocker.omega"]) - 2.0 * slope) < 1e-8


def from_numbers(p: Array) -> Array:
    """Coordinates and speeds from four lengths, a fixed angle and a given speed."""
    state = mbd.assemble(four_bar(p[:4]), {"crank.theta": p[4]}, speeds={"crank.omega": p[5]}, check=False)
    return jnp.concatenate([state.q, state.v])


NUMBERS = jnp.asarray([CRANK, COUPLER, ROCKER, BASE, 1.1, 2.0])


def test_derivatives_by_lengths_and_given_values() -> None:
    """Implicit derivatives of positions and speeds: forward and reverse, against differences."""
    h = 1e-5
    steps = jnp.concatenate([h * jnp.eye(6), -h * jnp.eye(6)])
    ahead, behind = jnp.split(jax.jit(jax.vmap(lambda d: from_numbers(NUMBERS + d)))(steps), 2)
    expected = ((ahead - behind) / (2 * h)).T
    forward = jax.jit(jax.jacfwd(from_numbers))(NUMBERS)
    reverse = jax.jit(jax.jacrev(from_numbers))(NUMBERS)
    assert np.abs(np.asarray(expected)).max(axis=0).min() > 0.1
    np.testing.assert_allclose(forward, expected, atol=3e-8)
    np.testing.assert_allclose(reverse, forward, atol=1e-11)
    assert abs(float(forward[8, 4]) - (rocker_angle(1.1 + h) - rocker_angle(1.1 - h)) / (2 * h)) < 1e-8


def test_vmap_over_fixed_values() -> None:
    """A sweep of the crank's angle in one batch; every rocker angle is the one of the circles."""
    angles = jnp.linspace(0.4, 2.4, 7)
    mechanism = four_bar()
    batch = jax.jit(jax.vmap(lambda x: mbd.assemble(mechanism, {"crank.theta": x}).q))(angles)
    np.testing.assert_allclose(batch[:, 2], angles, atol=CLOSED)
    np.testing.assert_allclose(batch[:, 8], [rocker_angle(float(x)) for x in angles], atol=1e-9)


def test_an_assembly_that_fails_raises_inside_jit() -> None:
    """Values are not known while tracing: the compiled program raises."""
    with pytest.raises(Exception, match="the joints cannot be closed"):
        jax.block_until_ready(
            eqx.filter_jit(lambda p: mbd.assemble(four_bar(p)).q)(NUMBERS[:4] + jnp.array([0, 0, 0, 3.0]))
        )
