"""What a solution reads off a motion: values by name, reactions, efforts, energies, and a user's own readings."""

import math
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.simulation.readings import _Instant

G = 9.81  # [m/s²]
SOLVED = 1e-7  # of integration at 1e-8
EXACT = 1e-10  # algebra at one instant

LENGTH, MASS, INERTIA = 0.5, 1.5, 0.2  # pivot to centre of mass [m], [kg], [kg m²]
ABOUT_PIVOT = INERTIA + MASS * LENGTH**2  # [kg m²]


def all_readings(t: Array, q: Array, v: Array, vdot: Array, lam: Array, parameters: Any) -> Array:
    """A user's reading: a vector of one of each."""
    return jnp.stack([t, q[2], v[2], vdot[2], lam[0]]) * parameters


@cache
def pendulum() -> mbd.Solution:
    """A physical pendulum, started at 0.4 rad with 1 rad/s."""
    body = pl.Body("rod", MASS, INERTIA, (0.0, -LENGTH, -math.pi / 2))
    tip = body.at(0.3, 0.1)
    mechanism = pl.Mechanism(
        [body],
        [pl.Revolute("O", pl.ground.at(0.2, 0.1), body.at(-LENGTH))],
        [pl.Gravity(G)],
        sensors=[
            pl.Point("tip", tip),
            pl.PointVelocity("tip velocity", tip),
            pl.PointAcceleration("tip acceleration", tip),
            pl.Measure("mine", all_readings, jnp.asarray(2.0), "furlong"),
        ],
    )
    state = mbd.assemble(mechanism, {"O.angle": 0.4 - math.pi / 2}, speeds={"O.angle": 1.0})
    return mbd.simulate(mechanism, state, jnp.linspace(0.0, 1.0, 11), quadratures=["kinetic_energy"])


def test_readings_by_name_are_columns_of_the_motion() -> None:
    """Coordinates, speeds and accelerations of the body; the joint's own; the sensor's point."""
    s = pendulum()
    for k, name in enumerate(("x", "y", "theta")):
        np.testing.assert_array_equal(s[f"rod.{name}"], s.q[:, k])
    for k, name in enumerate(("vx", "vy", "omega")):
        np.testing.assert_allclose(s[f"rod.{name}"], s.v[:, k], atol=EXACT)
    for k, name in enumerate(("ax", "ay", "alpha")):
        np.testing.assert_allclose(s[f"rod.{name}"], s.vdot[:, k], atol=EXACT)
    np.testing.assert_allclose(s["O.angle"], s.q[:, 2], atol=EXACT)
    np.testing.assert_allclose(s["O.angle_rate"], s.v[:, 2], atol=EXACT)
    np.testing.assert_allclose(s["O.lambda"], s.lam, atol=EXACT)
    c, n = np.cos(s.q[:, 2]), np.sin(s.q[:, 2])
    expected = np.stack([s.q[:, 0] + 0.3 * c - 0.1 * n, s.q[:, 1] + 0.3 * n + 0.1 * c], axis=1)
    np.testing.assert_allclose(s["tip"], expected, atol=EXACT)
    both = s.read(["rod.x", "tip"])
    assert list(both) == ["rod.x", "tip"]
    np.testing.assert_array_equal(both["rod.x"], s["rod.x"])


def test_pendulum_obeys_its_equation() -> None:
    """`I_O θ'' = −m g l cos θ`, and the energy it started with."""
    s = pendulum()
    theta, omega = np.asarray(s["rod.theta"]), np.asarray(s["rod.omega"])
    np.testing.assert_allclose(s["rod.alpha"], -MASS * G * LENGTH * np.cos(theta) / ABOUT_PIVOT, atol=SOLVED)
    energies = s.energies()
    np.testing.assert_allclose(energies["kinetic_energy"], 0.5 * ABOUT_PIVOT * omega**2, rtol=1e-6)
    height = 0.1 + LENGTH * np.sin(theta)
    np.testing.assert_allclose(energies["potential_energy"], MASS * G * height, atol=1e-6)
    total = 0.5 * ABOUT_PIVOT + MASS * G * (0.1 + LENGTH * math.sin(0.4 - math.pi / 2))
    np.testing.assert_allclose(energies["energy"], total, atol=1e-6)
    assert np.ptp(energies["kinetic_energy"]) > 0.5


def test_pivot_carries_the_pendulum() -> None:
    """Along the rod `m (l ω² − …)`: tension by hand; the two bodies feel opposite forces and no moment."""
    s = pendulum()
    theta, omega, alpha = (np.asarray(s[f"rod.{name}"]) for name in ("theta", "omega", "alpha"))
    on_rod, on_ground = s.reaction("O"), s.reaction("O", "ground")
    assert (on_rod.body, on_ground.body, on_rod.frame) == ("rod", "ground", "world")
    tension = MASS * (LENGTH * omega**2 - G * np.sin(theta))  # towards the pivot
    across = MASS * (LENGTH * alpha + G * np.cos(theta))
    own_axes = s.reaction("O", frame="body")
    np.testing.assert_allclose(own_axes.force[:, 0], -tension, atol=1e-6)
    np.testing.assert_allclose(own_axes.force[:, 1], across, atol=1e-6)
    c, n = np.cos(theta), np.sin(theta)
    turned = np.stack([-c * tension - n * across, -n * tension + c * across], axis=1)
    np.testing.assert_allclose(on_rod.force, turned, atol=1e-6)
    np.testing.assert_allclose(on_ground.force, -on_rod.force, atol=EXACT)
    np.testing.assert_allclose([on_rod.moment, on_ground.moment], 0.0, atol=EXACT)
    np.testing.assert_allclose(s["O.fx"], on_rod.force[:, 0], atol=EXACT)
    np.testing.assert_allclose(s["O.fy"], on_rod.force[:, 1], atol=EXACT)


def test_point_sensors_are_derivatives_of_the_point() -> None:
    """Along the pendulum's exact Taylor series `q + s v + s² v̇ / 2`, by differences."""
    s, h = pendulum(), 1e-4

    def moved(d: float) -> np.ndarray:
        q = np.asarray(s.q + d * s.v + 0.5 * d * d * s.vdot)
        c, n = np.cos(q[:, 2]), np.sin(q[:, 2])
        return np.stack([q[:, 0] + 0.3 * c - 0.1 * n, q[:, 1] + 0.3 * n + 0.1 * c], axis=1)

    velocity = (moved(h) - moved(-h)) / (2 * h)
    acceleration = (moved(h) - 2 * moved(0.0) + moved(-h)) / h**2
    np.testing.assert_allclose(s["tip velocity"], velocity, atol=1e-6)
    np.testing.assert_allclose(s["tip acceleration"], acceleration, atol=1e-5)


def test_measure_sees_the_whole_motion() -> None:
    s = pendulum()
    expected = 2.0 * np.stack([s.ts, s.q[:, 2], s.v[:, 2], s.vdot[:, 2], s.lam[:, 0]], axis=1)
    np.testing.assert_allclose(s["mine"], expected, atol=EXACT)


def test_integral_is_that_of_the_reading() -> None:
    """`∫ T dt` against the rule of Hermite, with `T` and its rate `I_O θ' θ''` at the ends of each interval."""
    s, h = pendulum(), 0.1
    kinetic, found = np.asarray(s["kinetic_energy"]), np.asarray(s.quadratures["kinetic_energy"])
    rate = ABOUT_PIVOT * np.asarray(s["rod.omega"] * s["rod.alpha"])
    expected = h / 2 * (kinetic[1:] + kinetic[:-1]) + h**2 / 12 * (rate[:-1] - rate[1:])
    np.testing.assert_allclose(np.diff(found), expected, atol=3e-5)
    assert found[0] == 0.0


def test_dataset_has_names_times_and_units() -> None:
    data = pendulum().to_xarray()
    assert set(data.data_vars) == set(pendulum().names)
    units = {name: data[name].attrs["units"] for name in data.data_vars}
    expected = {
        "rod.x": "m", "rod.theta": "rad", "rod.vx": "m/s", "rod.omega": "rad/s", "rod.ay": "m/s²",
        "rod.alpha": "rad/s²",
        "O.angle": "rad", "O.angle_rate": "rad/s", "O.fx": "N", "O.moment": "N m", "energy": "J",
        "tip": "m", "tip velocity": "m/s", "tip acceleration": "m/s²", "mine": "furlong",
    }  # fmt: skip
    assert {name: units[name] for name in expected} == expected
    assert data["time"].attrs["units"] == "s"
    np.testing.assert_array_equal(data["time"], pendulum().ts)
    np.testing.assert_array_equal(data["tip"], pendulum()["tip"])
    assert data["tip"].dims == ("time", "tip_0")
    assert data.attrs["num_steps"] > 5


def test_a_state_goes_on_from_the_last() -> None:
    state = pendulum().state()
    assert float(state.t) == 1.0
    np.testing.assert_array_equal(state.q, pendulum().q[-1])
    np.testing.assert_allclose(pendulum().state(0)["rod.omega"], 1.0, atol=EXACT)


def cranking(t: Array) -> Array:
    """The motion of a driven crank [rad]."""
    return 0.3 + 2.0 * t + 0.5 * jnp.sin(3 * t)


def test_loads_of_a_driven_cantilever() -> None:
    """A driven arm with a welded beam: motor torque and weld loads by hand, about the markers."""
    arm, beam = pl.Body("arm", 1.2, 0.05, (0.4, 0.0, 0.0)), pl.Body("beam", 0.8, 0.03, (1.0, 0.0, 0.0))
    mechanism = pl.Mechanism(
        [arm, beam],
        [pl.Revolute("O", pl.ground.at(), arm.at(-0.4)), pl.Weld("w", arm.at(0.4), beam.at(-0.2))],
        [pl.Gravity(G)],
        [pl.Driver("motor", "O.angle", cranking)],
    )
    s = mbd.simulate(mechanism, mbd.assemble(mechanism, t=0.0), jnp.linspace(0.0, 0.5, 4))
    t = np.asarray(s.ts)
    theta, omega, alpha = 0.3 + 2 * t + 0.5 * np.sin(3 * t), 2 + 1.5 * np.cos(3 * t), -4.5 * np.sin(3 * t)
    np.testing.assert_allclose(s["O.angle"], theta, atol=SOLVED)
    inertia = 0.05 + 1.2 * 0.16 + 0.03 + 0.8 * 1.0
    torque = inertia * alpha + G * np.cos(theta) * (1.2 * 0.4 + 0.8 * 1.0)
    np.testing.assert_allclose(s.effort("motor"), torque, atol=1e-5)
    np.testing.assert_allclose(s["motor.effort"], torque, atol=1e-5)
    np.testing.assert_allclose(s.reaction("motor").moment, torque, atol=1e-5)
    np.testing.assert_allclose(s.reaction("motor", "ground").moment, -torque, atol=1e-5)
    weld, back = s.reaction("w", frame="body"), s.reaction("w", "arm", "body")
    np.testing.assert_allclose(weld.force[:, 0], 0.8 * (-(omega**2) + G * np.sin(theta)), atol=1e-5)
    np.testing.assert_allclose(weld.force[:, 1], 0.8 * (alpha + G * np.cos(theta)), atol=1e-5)
    moment = 0.03 * alpha + 0.2 * 0.8 * (alpha + G * np.cos(theta))  # about the weld, 0.2 m from the beam's centre
    np.testing.assert_allclose(weld.moment, moment, atol=1e-5)
    np.testing.assert_allclose(back.force, -weld.force, atol=1e-9)
    np.testing.assert_allclose(back.moment, -weld.moment, atol=1e-9)


def test_static_loads_of_a_beam_on_two_supports() -> None:
    """3 kg at a third of the span and a 10 N load at its far end: the lever's law."""
    beam = pl.Body("beam", 3.0, 0.4, (1.0, 0.0, 0.0))
    mechanism = pl.Mechanism(
        [beam],
        [pl.Revolute("pin", pl.ground.at(), beam.at(-1.0)), pl.PinInSlot("roller", pl.ground.at(3.0), beam.at(2.0))],
        [pl.Gravity(G), pl.Force("load", beam.at(2.0), (4.0, -10.0))],
    )
    s = mbd.simulate(mechanism, mbd.assemble(mechanism), [0.0, 0.1])
    np.testing.assert_allclose(s.reaction("pin").force[0], [-4.0, 3 * G * 2 / 3], atol=1e-9)
    np.testing.assert_allclose(s.reaction("roller").force[0], [0.0, 3 * G / 3 + 10.0], atol=1e-9)
    np.testing.assert_allclose(s.reaction("roller", "ground").force[0], [0.0, -3 * G / 3 - 10.0], atol=1e-9)
    np.testing.assert_allclose(s.q[-1], s.q[0], atol=1e-12)


# --- a neural network among the forces -------------------------------------------------------------------------------


def network_torque(t: Array, angle: Array, rate: Array, network: Any) -> Array:
    """A torque along the joint from its angle and rate."""
    return network(jnp.stack([angle, rate]))[0]


def network_force(t: Array, frames: Any, rates: Any, network: Any) -> Array:
    """A force at a marker from its velocity."""
    return jnp.append(network(rates[0].position), 0.0)[None]


def with_networks(key: Array) -> pl.Mechanism:
    one, two = jax.random.split(key)
    body = pl.Body("rod", MASS, INERTIA, (0.5, 0.0, 0.0))
    torque = eqx.nn.MLP(2, 1, 4, 1, jax.nn.tanh, key=one)
    drag = eqx.nn.MLP(2, 2, 3, 1, jax.nn.tanh, key=two)
    return pl.Mechanism(
        [body],
        [pl.Revolute("O", pl.ground.at(), body.at(-LENGTH))],
        [
            pl.JointForce("muscle", "O.angle", network_torque, torque),
            pl.UserForce("air", network_force, (body.at(0.4),), drag),
        ],
    )


@pytest.mark.slow
def test_gradient_through_neural_networks(key: Array) -> None:
    """Every weight of both networks has an effect on the angle after 0.5 s; in random directions it is the slope."""
    mechanism = with_networks(key)
    arrays, static = eqx.partition(mechanism, eqx.is_inexact_array)
    state = mbd.assemble(mechanism, {"rod.theta": 0.3}, speeds={"rod.omega": 0.5})

    def angle(parameters: Any) -> Array:
        whole = eqx.combine(parameters, static)
        return mbd.simulate(whole, state, jnp.array([0.0, 0.5]), rtol=1e-10, atol=1e-12).q[-1, 2]

    # One compiled function: the value comes with the slope.
    value_and_slope = jax.jit(jax.value_and_grad(angle))
    slope = value_and_slope(arrays)[1]
    for name in ("muscle", "air"):
        weights = jax.tree.leaves(eqx.filter(slope[name].parameters, eqx.is_inexact_array))
        assert len(weights) == 4
        assert all(np.abs(w).min() > 1e-9 for w in weights)
        chosen = jax.tree.map(jnp.zeros_like, arrays)
        random = jax.tree.map(
            lambda w: jax.random.normal(jax.random.fold_in(key, w.size), w.shape), arrays[name].parameters
        )
        place = [part.name for part in mechanism.forces].index(name)
        chosen = eqx.tree_at(lambda m, k=place: m.forces[k].parameters, chosen, random)
        h = 1e-4
        there = [value_and_slope(jax.tree.map(lambda x, d, s=s: x + s * d, arrays, chosen))[0] for s in (h, -h)]
        expected = float(there[0] - there[1]) / (2 * h)
        found = float(sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(chosen), strict=True)))
        assert abs(expected) > 1e-4
        assert abs(found - expected) < 1e-6 * max(1.0, abs(expected))


def test_the_singularity_margin_leaves_out_what_repeats() -> None:
    """Of the rows that are independent, the smallest singular value as a share of the largest. Two pins at one place
    have four rows of rank two; 0.4 m from the centre of mass they give `√(1 + 0.16)` and 1, each times √2."""
    body = pl.Body("rod", 1.0, 0.1)
    pins = [pl.Revolute(name, pl.ground.at(), body.at(-0.4)) for name in "AB"]
    for kept in (pins[:1], pins):
        mechanism = pl.Mechanism([body], kept, [pl.Gravity()], coordinates="absolute")
        motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"rod.theta": 0.3}), [0.0, 0.4])
        np.testing.assert_allclose(motion.singularity_margin(), 1 / math.sqrt(1.16), rtol=1e-9)


def test_an_attribute_that_a_formulation_lacks_is_named() -> None:
    """An `AttributeError` from computing a motion is raised as it is, without a second attempt for each level."""
    tries = []

    def motion() -> Any:
        tries.append(1)
        raise AttributeError("ground")

    with pytest.raises(AttributeError, match="ground"):
        _Instant(jnp.zeros(()), jnp.zeros(1), jnp.zeros(0), motion).v  # noqa: B018
    assert len(tries) == 1
