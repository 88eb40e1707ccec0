"""Kinematic analysis: against closed forms, through singular positions, with redundant rows, differentiated; and what
is said where there is no motion."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.kinematics import _near_singular
from tests.marks import in_both_coordinates

CRANK, ROD, SPEED = 0.1, 0.3, 7.0  # [m], [m], [rad/s]


def turning(t: Array) -> Array:
    return 0.4 + SPEED * t


def slider_crank(rod: Array | float = ROD, motion: Callable[[Array], Array] = turning, extra: int = 0) -> pl.Mechanism:
    """A driven crank; `extra` more drivers of the slider, or one fewer."""
    crank = pl.Body("crank", mass=0.5, inertia=1e-3, pose=(0.05, 0.02, 0.4))
    link = pl.Body("rod", mass=1.0, inertia=8e-3, pose=(0.24, 0.02, -0.1))
    slider = pl.Body("slider", mass=2.0, inertia=1e-2, pose=(0.39, 0.0, 0.0))
    half = 0.5 * jnp.asarray(rod, dtype=float)
    drivers = [pl.Driver("motor", "O.angle", motion), pl.Driver("press", "slide.displacement", 0.3)]
    return pl.Mechanism(
        [crank, link, slider],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-CRANK / 2)),
            pl.Revolute("A", crank.at(CRANK / 2), link.at(-half)),
            pl.Revolute("B", link.at(half), slider.at()),
            pl.Prismatic("slide", pl.ground.at(), slider.at()),
        ],
        [pl.Gravity(9.81)],
        drivers[: 1 + extra],
    )


def slider(t: Array, rod: Array | float = ROD) -> Array:
    """The slider's place in closed form."""
    angle = turning(t)
    return CRANK * jnp.cos(angle) + jnp.sqrt(rod**2 - (CRANK * jnp.sin(angle)) ** 2)


@in_both_coordinates("absolute")
def test_slider_crank_at_thousands_of_times(coordinates: str) -> None:
    """Position, speed and acceleration in closed form, at times too far apart for one step each, and very near."""
    ts = np.concatenate([np.linspace(0.0, 1.0, 2001), [1.7, 3.0]])
    motion = mbd.kinematics(slider_crank().with_coordinates(coordinates), ts)
    place, names = slider, ("slider.x", "slider.vx", "slider.ax")
    found = motion.read(names)
    for name in names:
        np.testing.assert_allclose(found[name], jax.vmap(place)(jnp.asarray(ts)), atol=1e-9, err_msg=name)
        place = jax.grad(place)
    missed = motion.violation()
    assert np.abs(missed.position).max() < 1e-14
    assert np.abs(missed.velocity).max() < 1e-13
    assert np.abs(missed.acceleration).max() < 1e-11
    power = np.asarray(motion.effort("motor")) * SPEED
    energy = np.asarray(motion["energy"])[:2001]
    np.testing.assert_allclose(np.cumsum((power[1:2001] + power[:2000]) * 2.5e-4), energy[1:] - energy[0], atol=1e-4)


def test_a_pulse_between_two_steps_is_not_missed() -> None:
    """The crank rests, turns by half a turn and back within a hundredth of a second, and rests: steps that the rest
    allows pass over it. From there Newton's method leads to the slider's place on the other side."""
    turn = lambda t: 0.4 + 3.0 * jnp.exp(-(((t - 0.613) / 0.004) ** 2))  # noqa: E731
    ts, rod = np.linspace(0.0, 1.0, 801), 0.15
    motion = mbd.kinematics(slider_crank(rod, turn), ts)
    angle = np.asarray(jax.vmap(turn)(jnp.asarray(ts)))
    assert np.ptp(angle) > 2.9
    place = CRANK * np.cos(angle) + np.sqrt(rod**2 - (CRANK * np.sin(angle)) ** 2)
    np.testing.assert_allclose(motion["slider.x"], place, atol=1e-12)


@pytest.mark.parametrize("pulse", [0.0, 1.0], ids=["long steps", "a step for each time"])
def test_times_that_differ_by_rounding(pulse: float) -> None:
    """At the start, on the way and at the end, as where two lists of times are joined."""
    ts = np.linspace(0.1, 0.7, 61)
    ts = np.sort([*ts, *np.nextafter(ts[[0, 30, 60]], 1.0)])
    wave = lambda t: turning(t) + pulse * jnp.exp(-(((t - 0.4) / 0.004) ** 2))  # noqa: E731
    motion = mbd.kinematics(slider_crank(motion=wave), ts)
    angle = np.asarray(wave(jnp.asarray(ts)))
    place = CRANK * np.cos(angle) + np.sqrt(ROD**2 - (CRANK * np.sin(angle)) ** 2)
    np.testing.assert_allclose(motion["slider.x"], place, rtol=0, atol=1e-12)


def test_the_estimated_distance_from_a_singular_position() -> None:
    """It is never less than the ratio of singular values, at most some times as much, and follows it to 1e-5."""
    parts = slider_crank()
    pushed = parts.replacing(drivers=[pl.Driver("ram", "slide.displacement", lambda t: t)])
    reach = CRANK + ROD - np.array([0.1, 1e-2, 1e-4, 1e-6, 1e-8, 1e-9])  # [m]; the last ones next to the dead centre
    state = mbd.assemble(pushed, t=reach[0], guess={"crank.theta": 0.8})
    motion = mbd.kinematics(pushed, reach, state, throw=False)
    exact = np.asarray(motion.singularity_margin())
    assert exact[-1] < 1e-4 < 1e-2 < exact[0]
    estimate = np.asarray(_near_singular(pushed, motion.ts, motion.q))
    assert (estimate > 0.99 * exact).all()
    assert (estimate < 5 * exact + 2e-5).all()


SEVEN = "zyxyxyx"  # axes of an arm's joints


def arm(coordinates: str) -> sp.Mechanism:
    """A driven arm of seven axes; a rod leads from its third link to a slider."""
    links = [sp.Body(f"L{k}", 1.0, (0.02, 0.02, 0.01), (0.0, 0.0, 0.3 * k + 0.15)) for k in range(7)]
    before = [sp.ground.at(axis=SEVEN[0]), *(link.at(0, 0, 0.15, axis=a) for link, a in zip(links, SEVEN[1:]))]  # noqa: B905
    slider = sp.Body("slider", 0.5, (0.01, 0.01, 0.01), (0.5, 0.0, 0.1))
    rod = sp.Body("rod", 0.5, (0.01, 0.01, 0.01), (0.25, 0.0, 0.425))
    joints = [
        *(sp.Revolute(f"J{k}", before[k], links[k].at(0, 0, -0.15, axis=SEVEN[k])) for k in range(7)),
        sp.Prismatic("P", sp.ground.at(0.5, 0, 0.1), slider.at()),
        sp.Universal("U", slider.at(), rod.at(0.25, 0, -0.325)),
        sp.Spherical("S", links[2].at(), rod.at(-0.25, 0, 0.325)),
    ]
    drivers = [sp.Driver(f"D{k}", f"J{k}.angle", lambda t, k=k: 0.4 * jnp.sin((1 + 0.1 * k) * t)) for k in range(7)]
    return sp.Mechanism([*links, slider, rod], joints, [sp.Gravity()], drivers, coordinates=coordinates)


@pytest.mark.slow
def test_an_arm_of_seven_axes_with_a_closed_loop_at_thousands_of_times() -> None:
    """Both kinds of coordinates give one motion, whose rates are its derivatives, and whose power is the change of its
    energy."""
    ts = np.linspace(0.0, 10.0, 2001)
    found = {}
    for coordinates in ("absolute", "joint"):
        motion = mbd.kinematics(arm(coordinates), ts)
        missed = motion.violation()
        assert max(np.abs(missed.position).max(), np.abs(missed.acceleration).max()) < 1e-13
        efforts = [motion.effort(f"D{k}") for k in range(7)]
        found[coordinates] = motion.read(("slider.position", "L6.position", "slider.vz", "energy", "L6.omega_x"))
        found[coordinates]["power"] = sum(
            effort * 0.4 * (1 + 0.1 * k) * np.cos((1 + 0.1 * k) * ts) for k, effort in enumerate(efforts)
        )
    for name, values in found["absolute"].items():
        np.testing.assert_allclose(found["joint"][name], values, atol=1e-9, err_msg=name)
    place, rate = found["joint"]["slider.position"][:, 2], found["joint"]["slider.vz"]
    np.testing.assert_allclose((place[2:] - place[:-2]) / 0.01, rate[1:-1], atol=2e-5)
    energy, power = found["joint"]["energy"], found["joint"]["power"]
    work = np.concatenate([[0.0], np.cumsum((power[1:] + power[:-1]) * 2.5e-3)])
    np.testing.assert_allclose(energy - energy[0], work, atol=1e-3 * np.ptp(energy))


def test_gradients_and_sweeps_by_value() -> None:
    """By the rod's length, forward and reverse, and over lengths at once."""
    ts, state = jnp.linspace(0.0, 0.5, 4), mbd.assemble(slider_crank())

    def last(rod: Array) -> Array:
        names = ("slider.x", "slider.vx", "slider.ax")
        motion = mbd.kinematics(slider_crank(rod), ts, state).read(names)
        return jnp.stack([motion[name][-1] for name in names])

    def exact(rod: Array) -> Array:
        place = lambda t: slider(t, rod)  # noqa: E731
        rate = jax.grad(place)
        return jnp.stack([place(ts[-1]), rate(ts[-1]), jax.grad(rate)(ts[-1])])

    rod = jnp.asarray(ROD)
    np.testing.assert_allclose(jax.jacfwd(last)(rod), jax.jacfwd(exact)(rod), rtol=1e-9)
    np.testing.assert_allclose(jax.jacrev(last)(rod), jax.jacfwd(exact)(rod), rtol=1e-9)
    rods = jnp.asarray([0.3, 0.31, 0.35])
    np.testing.assert_allclose(jax.vmap(last)(rods), jax.vmap(exact)(rods), rtol=1e-9)


@pytest.mark.slow
def test_redundant_rows_are_allowed() -> None:
    """Bricard's mechanism, 31 rows of rank 30 with its driver: the motion is that of the loop, half a turn of it."""
    loop = examples.get("bricard")
    joint = loop.mechanism.joints[0].name
    start = float(loop.simulate([0.0, 1e-3])[f"{joint}.angle"][0])
    parts = loop.mechanism
    driven = type(parts)(
        parts.bodies, parts.joints, parts.forces,
        [mbd.spatial.Driver("motor", f"{joint}.angle", lambda t: start + 0.8 * t)],
    )  # fmt: skip
    state = mbd.assemble(driven, loop.fixed, guess=loop.guess)
    motion = mbd.kinematics(driven, np.linspace(0.0, 1.0, 21), state)
    np.testing.assert_allclose(motion[f"{joint}.angle_rate"], 0.8, atol=1e-10)
    assert np.abs(motion.violation().position).max() < 1e-13
    assert np.abs(motion.violation().acceleration).max() < 1e-9


def test_a_motion_passes_the_positions_where_branches_meet() -> None:
    """A parallelogram folds flat twice a turn; the rocker goes on turning as the crank does."""
    bars = examples.get("four_bars", 1).mechanism
    driven = pl.Mechanism(bars.bodies, bars.joints, bars.forces, [pl.Driver("motor", "A0.angle", lambda t: 1.5 + t)])
    ts = np.linspace(0.0, 6.3, 64)
    state = mbd.assemble(driven, guess={name: 1.5 for name in driven.coordinate_names if name.endswith("theta")})
    motion = mbd.kinematics(driven, ts, state)
    first, last = driven.joints[0].name, driven.joints[1].name
    for rate in (f"{first}.angle_rate", f"{last}.angle_rate"):
        np.testing.assert_allclose(np.abs(motion[rate]), 1.0, atol=1e-6)


def test_too_few_and_too_many_drivers() -> None:
    few = r"Too few drivers .* 0 drivers \(none\).* 1 degree of freedom.* such as O\.angle\. Or let forces"
    with pytest.raises(mbd.MechanismError, match=few):
        mbd.kinematics(slider_crank(extra=-1), [0.0, 1.0])
    both = slider_crank(extra=1)
    state = mbd.assemble(slider_crank())
    with pytest.raises(mbd.MechanismError, match=r"Too many drivers .*'press' repeats"):
        mbd.kinematics(both, [0.0, 1.0], state)


def test_positions_that_speeds_alone_determine_are_not_followed() -> None:
    """A motor that prescribes the crank's speed: the position is an integral, which Newton's method does not find."""
    parts = slider_crank()
    turned = pl.Mechanism(parts.bodies, parts.joints, [], [pl.Driver("motor", "O.angle", 2.0, prescribes="speed")])
    for throw in (True, False):
        with pytest.raises(mbd.MechanismError, match="1 degree of freedom, since 'motor' constrains speeds"):
            mbd.kinematics(turned, [0.0, 1.0], throw=throw)


def test_drivers_that_repeat_one_another_leave_the_rest_undetermined() -> None:
    """Two drivers of one angle of a double pendulum: as many as degrees of freedom, and the other angle is free."""
    double = examples.get("double-pendulum").mechanism
    drivers = [pl.Driver(name, "O.angle", lambda t: 0.3 * t) for name in ("one", "two")]
    driven = double.with_parts(drivers)
    state = mbd.assemble(driven)
    with pytest.raises(mbd.MechanismError, match=r"Too few drivers .* 1 degree of freedom"):
        mbd.kinematics(driven, [0.0, 1.0], state)
    found = mbd.kinematics(driven, [0.0, 1.0], state, throw=False)
    assert found.result == mbd.RESULTS.motion_undetermined
    assert np.isnan(found.q).all()
    with pytest.raises(eqx.EquinoxRuntimeError, match="leave degrees of freedom"):
        eqx.filter_jit(lambda s: mbd.kinematics(driven, [0.0, 1.0], s).q)(state)


def test_a_body_between_two_balls_spins_and_no_driver_holds_it() -> None:
    """The coordinates that are proposed can be prescribed: with drivers for them, that spin alone is left."""
    crank = sp.Body("crank", sp.rod(7800, length=0.1, radius=0.01), pose=(0.05, 0.0, 0.0))
    upright = sp.rotation.about("y", -np.pi / 2)
    rocker = sp.Body("rocker", sp.rod(7800, length=0.25, radius=0.01), pose=sp.pose(0.4, 0.3, 0.125, upright))
    coupler = sp.Body("coupler", sp.rod(7800, length=0.5, radius=0.008), pose=(0.25, 0.15, 0.1))
    joints = [
        sp.Revolute("O", sp.ground.at(), crank.at(-0.05)),
        sp.Spherical("A", crank.at(0.05), coupler.at(-0.25)),
        sp.Spherical("B", coupler.at(0.25), rocker.at(0.125)),
        sp.Revolute("C", sp.ground.at(0.4, 0.3, 0.0, axis="y"), rocker.at(-0.125, axis="y")),
    ]
    linkage = sp.Mechanism([crank, coupler, rocker], joints)
    spin = r"No driver can hold coupler.omega_x: .*Universal"
    with pytest.raises(mbd.MechanismError, match=rf"2 degrees of freedom\. .* such as O\.angle\. {spin}"):
        mbd.kinematics(linkage, [0.0, 1.0])
    driven = linkage.with_parts([sp.Driver("motor", "O.angle", 0.0)])
    with pytest.raises(mbd.MechanismError, match=rf"1 degree of freedom\. {spin}"):
        mbd.kinematics(driven, [0.0, 1.0])


def test_one_lane_of_a_batch_that_meets_a_limit_leaves_the_others_as_they_are() -> None:
    """It says so for itself, and is followed up to the limit."""
    ts, state = jnp.linspace(0.0, 0.3, 31), mbd.assemble(slider_crank())
    rods = jnp.asarray([0.3, 0.08, 0.35])

    def run(rod: Array) -> tuple[Array, Array]:
        motion = mbd.kinematics(slider_crank(rod), ts, state, throw=False)
        return motion["slider.x"], motion.result == mbd.RESULTS.position_not_reached

    place, is_beyond = jax.vmap(run)(rods)
    np.testing.assert_array_equal(is_beyond, [False, True, False])
    for lane, rod in enumerate(rods):
        expected = jax.vmap(slider, (0, None))(ts, rod)
        reached = int(jnp.argmin(jnp.isfinite(expected))) if lane == 1 else len(ts)
        np.testing.assert_allclose(place[lane, :reached], expected[:reached], atol=1e-9)
        assert np.isnan(place[lane, reached:]).all()


def test_a_limit_position_is_named() -> None:
    """A rod shorter than the crank: the crank cannot turn beyond arcsin(l / r)."""
    with pytest.raises(mbd.SolveError, match=r"cannot be followed from t = 0\.0\d+ s .*limit position"):
        mbd.kinematics(slider_crank(0.08), np.linspace(0.0, 1.0, 101))


def test_a_singular_position_is_named() -> None:
    """Driven by its slider, the mechanism is singular at its dead centre, and asked for there."""
    parts = slider_crank()
    pushed = pl.Mechanism(
        parts.bodies, parts.joints, parts.forces,
        [pl.Driver("ram", "slide.displacement", lambda t: 0.35 + 0.05 * jnp.sin(jnp.pi * t))],
    )  # fmt: skip
    state = mbd.assemble(pushed, guess={"crank.theta": 0.8})
    with pytest.raises(mbd.SolveError, match="'ram'"):
        mbd.kinematics(pushed, [0.0, 0.5, 1.0], state)
