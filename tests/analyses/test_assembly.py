"""Assembly: what is prescribed holds, the rest changes little, speeds are consistent, and all of it has derivatives."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.optimize import brentq, minimize_scalar

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.assembly.assembly_errors import open_text
from jaxmbd.analyses.assembly.multistart import guessed
from jaxmbd.space import rotation as rot
from tests.crank_rocker import LENGTHS, four_bar, rocker_angle
from tests.marks import in_both_coordinates

CLOSED = 1e-10  # [m or rad]
CRANK, COUPLER, ROCKER, BASE = LENGTHS


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


@in_both_coordinates("absolute")
def test_a_joint_coordinate_is_guessed(coordinates: str) -> None:
    """The angle at B chooses the branch; in space, where a joint carries its angle, it places the body too."""
    mechanism = four_bar().with_coordinates(coordinates)
    for branch, angle in ((1, 1.3), (-1, -1.9)):
        place = jax.jit(lambda angle: mbd.assemble(mechanism, {"crank.theta": 1.1}, guess={"B.angle": angle}).q)
        pose = mbd.Equations(mechanism).at(jnp.zeros(()), place(angle)).poses()[2, 2]
        assert abs(math.remainder(float(pose) - rocker_angle(1.1, branch), math.tau)) < 1e-9
    rod = sp.Body("rod", 1.0, (0.1, 0.1, 0.1), sp.pose(0.0, -1.0, 0.0))
    hinge = sp.Mechanism([rod], [sp.Revolute("A", sp.ground.at(), rod.at(0, 1, 0))], coordinates=coordinates)
    state = mbd.assemble(hinge, guess={"A.angle": 1.0 + 2 * math.tau})
    assert abs(float(state["A.angle"]) - 1.0 - 2 * math.tau) < CLOSED
    pose = mbd.Equations(hinge).at(state.t, state.q).poses()[0]
    np.testing.assert_allclose(pose, sp.pose(math.sin(1), -math.cos(1), 0, rot.about("z", 1.0)), atol=CLOSED)


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
        [pl.Prismatic("rail", pl.ground.at(), cart.at()), pl.Revolute("O", cart.at(), rod.at(-0.5))],
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


# --- the nearest position ------------------------------------------------------------------------------------------


def nearest_pendulum(p: Array) -> Array:
    """The pendulum's coordinates nearest to the guess `p[:3]` by the weights `p[3:6]`, its arm `p[6]` long."""
    body = pl.Body("rod", 1.5, 0.2, p[:3])
    mechanism = pl.Mechanism([body], [pl.Revolute("O", pl.ground.at(), body.at(-p[6]))])
    weights = {name: p[3 + i] for i, name in enumerate(("rod.x", "rod.y", "rod.theta"))}
    return mbd.assemble(mechanism, weights=weights, check=False).q


def least_angle(p: Array) -> float:
    """The angle of the least weighted change: where its derivative over the angle vanishes."""
    x, y, angle, *weights, arm = map(float, p)

    def slope(theta: float) -> float:
        c, s = math.cos(theta), math.sin(theta)
        return float(np.dot(weights, [(arm * c - x) * -arm * s, (arm * s - y) * arm * c, theta - angle]))

    found: Any = brentq(slope, angle - 0.5, angle + 0.9, xtol=1e-14)
    return float(found)


WEIGHTED = jnp.asarray([0.45, 0.3, 0.4, 1.0, 4.0, 0.2, 0.5])


def test_weights_give_the_nearest_position_and_its_derivatives() -> None:
    """The stationary point, by the guess, the weights and the length, under vmap, forward and reverse."""
    rows = WEIGHTED[None] + 0.05 * jnp.outer(jnp.arange(3.0), jnp.arange(7.0))
    h = 1e-5
    steps = jnp.concatenate([rows, WEIGHTED[None] + h * jnp.eye(7), WEIGHTED[None] - h * jnp.eye(7)])
    found = jax.jit(jax.vmap(nearest_pendulum))(steps)
    np.testing.assert_allclose(found[:3, 2], [least_angle(p) for p in rows], atol=1e-11)
    assert abs(least_angle(WEIGHTED.at[3:6].set(1.0)) - least_angle(WEIGHTED)) > 0.05  # the weights matter
    expected = ((found[3:10] - found[10:]) / (2 * h)).T
    assert np.abs(expected).max(axis=0).min() > 0.005
    _, along = jax.linearize(jax.jit(nearest_pendulum), WEIGHTED)
    np.testing.assert_allclose(jax.vmap(along)(jnp.eye(7)).T, expected, atol=1e-8)
    (reverse,) = jax.vmap(jax.linear_transpose(along, WEIGHTED))(jnp.eye(3))
    np.testing.assert_allclose(reverse, expected, atol=1e-8)


@in_both_coordinates("absolute")
def test_weights_on_a_loop(coordinates: str) -> None:
    """Of all positions of the four-bar, the one with the least weighted change of its coordinates."""
    mechanism = four_bar().with_coordinates(coordinates)
    start = np.asarray(guessed(mechanism, {}))
    weights = {"rocker": 3.0, "rocker.theta": 50.0} if coordinates == "absolute" else {"B.angle": 50.0, "A": 3.0}
    given = {"rocker.x": 3.0, "rocker.y": 3.0, "rocker.theta": 50.0, "B.angle": 50.0, "A.angle": 3.0}
    W = np.asarray([given.get(name, 1.0) for name in mechanism.coordinate_names])

    def change(crank: float) -> float:
        rocker = rocker_angle(crank)
        pin = CRANK * np.array([math.cos(crank), math.sin(crank)])
        end = np.array([BASE, 0]) + ROCKER * np.array([math.cos(rocker), math.sin(rocker)])
        coupler = math.atan2(*(end - pin)[::-1])
        poses = [*pin / 2, crank, *(pin + end) / 2, coupler, *(end + np.array([BASE, 0])) / 2, rocker]
        q = poses if coordinates == "absolute" else [crank, coupler - crank, rocker - coupler]
        return float(W @ np.square(q - start))

    best: Any = minimize_scalar(change, bracket=(0.8, 1.2), tol=1e-12)
    state = mbd.assemble(mechanism, weights=weights)
    assert abs(float(state["crank.theta" if coordinates == "absolute" else "O.angle"]) - best.x) < 1e-6
    assert abs(float(W @ np.square(state.q - start)) - best.fun) < 1e-10


@pytest.mark.slow
def test_weights_in_space() -> None:
    """A body on a ball: no position turned a little from the found one is nearer to the guess."""
    guess = jnp.asarray([0.2, 1.1, 0.1, 1.0, 0.3, 0.2, -0.4])
    body = sp.Body("top", 15.0, (0.2, 0.4, 0.2), guess)
    mechanism = sp.Mechanism([body], [sp.Spherical("O", sp.ground.at(), body.at(0, -1, 0))])
    found = np.asarray(mbd.assemble(mechanism, weights={"top": 0.5, "top.x": 2.0}).q)
    W, guess = np.asarray([2.0, 0.5, 0.5]), np.asarray(mechanism["top"].pose)

    def change(e: np.ndarray) -> float:
        """Of the position, and of the quaternion up to its length."""
        u, away = e / np.linalg.norm(e), np.asarray(rot.rotate(e, (0.0, 1.0, 0.0))) - guess[:3]
        return float(W @ away**2 + 0.5 * (guess[3:] @ guess[3:] - (u @ guess[3:]) ** 2))

    np.testing.assert_allclose(found[:3], rot.rotate(found[3:], (0.0, 1.0, 0.0)), atol=CLOSED)
    ahead = [change(found[3:] + 1e-5 * d) for d in np.eye(4)]
    behind = [change(found[3:] - 1e-5 * d) for d in np.eye(4)]
    assert min(*ahead, *behind) >= change(found[3:])
    np.testing.assert_allclose(np.subtract(ahead, behind) / 2e-5, 0.0, atol=1e-9)


# --- locked --------------------------------------------------------------------------------------------------------


@in_both_coordinates("absolute")
def test_locked_coordinates_and_bodies_stay(coordinates: str) -> None:
    """The crank keeps its guessed angle; the cart as a whole its guessed pose, which the rails would leave free."""
    guess = {"crank.theta": 1.3}
    state = mbd.assemble(four_bar().with_coordinates(coordinates), guess=guess, locked=("crank.theta",))
    angle = state["crank.theta"] if coordinates == "absolute" else state["O.angle"]
    assert abs(float(angle) - 1.3) < CLOSED
    cart, rod = pl.Body("cart", 1.0, 0.1, (0.7, 0.0, 0.0)), pl.Body("rod", 1.0, 0.1, (0.9, 0.6, 0.2))
    joints = [pl.Prismatic("rail", pl.ground.at(), cart.at()), pl.Revolute("O", cart.at(), rod.at(-0.5))]
    mechanism = pl.Mechanism([cart, rod], joints).with_coordinates(
        coordinates, cuts=["O"] if coordinates == "joint" else ()
    )
    held = mbd.assemble(mechanism, locked=["cart"])
    place = held["cart.x"] if coordinates == "absolute" else held["rail.displacement"]
    assert abs(float(place) - 0.7) < CLOSED
    free = mbd.assemble(mechanism)
    assert abs(float(free["cart.x" if coordinates == "absolute" else "rail.displacement"]) - 0.7) > 0.01


@pytest.mark.slow
def test_a_locked_body_in_space_and_its_derivative() -> None:
    """The rod's end follows the body that is locked at its guess; by that guess, against differences."""

    def place(p: Array) -> Array:
        base = sp.Body("base", 1.0, (1.0, 1.0, 1.0), sp.pose(p[0], 0.1, 0.2, rot.about("z", p[1])))
        arm = sp.Body("arm", 1.0, (1.0, 1.0, 1.0), sp.pose(0.5, 0.5, 0.5, rot.about("x", 0.3)))
        mechanism = sp.Mechanism([base, arm], [sp.Weld("W", base.at(0.5, 0, 0), arm.at(0, -0.5, 0))], floating=True)
        return mbd.assemble(mechanism, locked=["base"], check=False).q

    p, h = jnp.asarray([0.3, 0.4]), 1e-6
    found = jax.jit(jax.vmap(place))(p[None] + h * jnp.asarray([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]))
    np.testing.assert_allclose(found[0, :7], sp.pose(0.3, 0.1, 0.2, rot.about("z", 0.4)), atol=CLOSED)
    end = jnp.asarray([0.3, 0.1, 0.2]) + rot.rotate(rot.about("z", 0.4), (0.5, 0.5, 0.0))
    np.testing.assert_allclose(found[0, 7:10], end, atol=CLOSED)
    expected = np.stack([found[1] - found[2], found[3] - found[4]], axis=1) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.jacrev(place))(p), expected, atol=1e-7)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "weight of nothing": ({"weights": {"rod.thet": 1.0}}, "no coordinate of q.*Did you mean 'rod.theta'"),
    "weight of zero": ({"weights": {"rod": 0.0}}, "weights: 'rod' must be positive"),
    "one name": ({"locked": "rod.theta"}, r"locked must be a sequence of names, such as \['rod.theta'\]"),
    "locked nothing": ({"locked": ["rodd"]}, "no joint or body named 'rodd'"),
    "fixed and locked": ({"fixed": {"rod.theta": 0.1}, "locked": ["rod.theta"]}, "is fixed and locked"),
}


@pytest.mark.parametrize("case", WRONG)
def test_weights_and_locks_that_are_none(case: str) -> None:
    options, text = WRONG[case]
    with pytest.raises(mbd.MechanismError, match=text):
        mbd.assemble(pendulum((0.5, 0.0, 0.0)), **options)


def test_a_state_is_a_guess() -> None:
    """Changed lengths are closed from a state of the other branch; a state of another mechanism is refused."""
    below = {"coupler.y": -0.3, "coupler.theta": -0.8, "rocker.y": -0.3, "rocker.theta": -2.0, "rocker.x": 0.8}
    state = mbd.assemble(four_bar(), {"crank.theta": 1.1}, guess=below)
    longer = mbd.assemble(four_bar(NUMBERS[:4] + 0.01), {"crank.theta": 1.1}, guess=state)
    assert 1e-3 < abs(float(longer["rocker.theta"] - state["rocker.theta"])) < 0.1
    with pytest.raises(mbd.MechanismError, match="guess is a State of another mechanism"):
        mbd.assemble(pendulum((0.5, 0.0, 0.0)), guess=state)


MOTOR = pl.Driver("motor", "O.angle", lambda t: 0.3 + t)
OVER: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a driver and a value": (MOTOR, {"fixed": {"rod.theta": 0.5}}, "1 driver ('motor') and 1 fixed value"),
    "each number of a body": (MOTOR, {"locked": ["rod"]}, "1 driver ('motor') and 3 fixed values"),
    "no driver of a speed": (
        pl.Driver("motor", "O.angle", lambda t: 1.0 + t, prescribes="speed"),
        {"fixed": {"rod.theta": 0.5, "O.angle": 0.2}},
        "2 fixed values",
    ),
}


@pytest.mark.parametrize("case", OVER)
def test_over_constrained(case: str) -> None:
    """Positions that contradict, on one degree of freedom, are counted, and the drivers named."""
    driver, options, what = OVER[case]
    with pytest.raises(mbd.AssemblyError) as error:
        mbd.assemble(pendulum((0.5, 0.0, 0.0), driver), **options)
    assert f"Over-constrained: {what} on a mechanism whose joints leave 1 degree of freedom." in str(error.value)


def test_what_cannot_roll_to_its_place_is_not_over_constrained() -> None:
    """A rolling wheel keeps all positions in its plane free, and a driver of its speed prescribes none of them."""
    wheel, ground = pl.Body("wheel", 1.0, 0.1), pl.ground.at()
    reach = pl.Distance("reach", ground, wheel.at())
    roll = pl.NonholonomicConstraint("roll", lambda t, frames, rates, p: rates[1].position[0], ground, wheel.at())
    spin = pl.Driver("spin", "wheel.theta", 1.0, prescribes="speed")
    mechanism = pl.Mechanism([wheel], [roll], drivers=[spin], sensors=[reach])
    with pytest.raises(mbd.AssemblyError) as error:
        mbd.assemble(mechanism, {"reach": -1.0, "wheel.theta": 0.2})
    assert "cannot be assembled" in str(error.value)
    assert "Over-constrained" not in str(error.value)


def test_at_most_six_open_parts_are_named() -> None:
    """Largest first; of more than six the number of the others."""
    names, miss = [*"abcdefg"], np.array([1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 0.5])
    assert open_text(names[:6], miss[:6], 0.1) == (
        "'f' misses by 6, 'e' misses by 5, 'd' misses by 4, 'c' misses by 3, 'b' misses by 2, 'a' misses by 1"
    )
    assert open_text(names, miss, 0.1).endswith("'a' misses by 1, and 1 more")
    assert open_text(names, miss, 4.5) == "'f' misses by 6, 'e' misses by 5"


def test_a_mass_that_is_not_finite_spoils_the_derivatives_of_its_instance_alone() -> None:
    def speed(mass: Array) -> Array:
        mechanism = eqx.tree_at(lambda m: m["coupler"].mass, four_bar(LENGTHS), mass)
        return mbd.assemble(mechanism, {"crank.theta": 1.1}, speeds={"crank.omega": 3.0}, check=False).v[8]

    masses = jnp.asarray([0.8, jnp.inf, jnp.nan, 0.8])
    for slope in (jax.grad(speed), jax.jacfwd(speed)):
        slopes = jax.jit(jax.vmap(slope))(masses)
        np.testing.assert_allclose(slopes[::3], 0.0, atol=1e-12)  # one degree of freedom: masses have no effect
        assert np.isnan(slopes[1:3]).all()
