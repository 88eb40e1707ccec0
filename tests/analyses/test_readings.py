"""What is read by name: vectors of bodies, sensors with a scale, quantities of one state, in the plane and in space."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import MechanismError
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.simulation import solution as solutions
from jaxmbd.space import rotation as rot

EXACT = 1e-13
LENGTH, MASS, INERTIA = 0.4, 1.5, 0.03


def swing(coordinates: str = "absolute", sensors: Any = (), length: Any = LENGTH) -> pl.Mechanism:
    """A pendulum in the plane, hung up by a pin, with a spring to a point beside it."""
    rod = pl.Body("rod", MASS, INERTIA, (0.3, -0.2, 0.0))
    parts = [pl.Gravity(), pl.SpringDamper("spring", pl.ground.at(1.0, 0.0), rod.at(), 20.0, 0.5)]
    pin = pl.Revolute("O", pl.ground.at(), rod.at(-length))
    return pl.Mechanism([rod], [pin], parts, sensors=sensors, coordinates=coordinates)


def gyro(coordinates: str = "absolute", sensors: Any = ()) -> sp.Mechanism:
    """A rod in space that hangs on two hinges, the first one about the vertical: cut or carried, as asked for."""
    arm = sp.Body("arm", MASS, (0.02, 0.03, 0.04), sp.pose(0.2, 0, 0, rot.about("z", 0.1)))
    rod = sp.Body("rod", 0.7, (0.01, 0.02, 0.025), (0.5, 0, 0))
    joints = [
        sp.Revolute("O", sp.ground.at(axis="z"), arm.at(-0.2, axis="z")),
        sp.Revolute("P", arm.at(0.2, axis="y"), rod.at(-0.1, axis="y")),
    ]
    return sp.Mechanism([arm, rod], joints, [sp.Gravity()], sensors=sensors, coordinates=coordinates)


START = {"O.angle": 0.4, "P.angle": 0.7}
SPEEDS = {"O.angle": 1.3, "P.angle": -2.1}


@cache
def moving() -> mbd.Solution:
    mechanism = gyro()
    return mbd.simulate(mechanism, mbd.assemble(mechanism, START, speeds=SPEEDS), jnp.linspace(0.0, 0.4, 5))


def test_vectors_are_the_components_in_the_plane() -> None:
    mechanism = swing()
    state = mbd.assemble(mechanism, {"rod.theta": 0.3}, speeds={"rod.omega": 2.0})
    solution = mbd.simulate(mechanism, state, jnp.linspace(0.0, 0.3, 4))
    for vector, components in {
        "position": ("x", "y"), "velocity": ("vx", "vy"), "acceleration": ("ax", "ay")
    }.items():  # fmt: skip
        expected = np.stack([solution[f"rod.{name}"] for name in components], axis=1)
        np.testing.assert_array_equal(solution[f"rod.{vector}"], expected)
    theta, omega = 0.3, 2.0
    np.testing.assert_allclose(
        solution["rod.velocity"][0], LENGTH * omega * np.array([-np.sin(theta), np.cos(theta)]), atol=EXACT
    )
    data = solution.to_xarray(["rod.position", "rod.velocity", "rod.acceleration"])
    assert [data[f"rod.{name}"].attrs["units"] for name in ("position", "velocity", "acceleration")] == [
        "m", "m/s", "m/s²"
    ]  # fmt: skip
    assert data["rod.position"].dims == ("time", "rod.position_0")


def test_vectors_in_space_in_body_and_world_axes() -> None:
    """Rates by differences of placements computed here: `ω̃ = Ṙ Rᵀ` in world axes."""
    solution, h = moving(), 1e-5
    names = ("rod.position", "rod.velocity", "rod.acceleration", "rod.omega", "rod.omega_world")
    found = solution.read([*names, "rod.alpha", "rod.alpha_world"])
    mechanism = solution.mechanism
    for vector, components in {
        "position": ("x", "y", "z"), "velocity": ("vx", "vy", "vz"), "acceleration": ("ax", "ay", "az"),
        "omega": ("omega_x", "omega_y", "omega_z"), "alpha": ("alpha_x", "alpha_y", "alpha_z"),
    }.items():  # fmt: skip
        expected = np.stack([solution[f"rod.{name}"] for name in components], axis=1)
        np.testing.assert_array_equal(found[f"rod.{vector}"], expected)
    start = mbd.assemble(mechanism, START, speeds=SPEEDS)
    near = mbd.simulate(mechanism, start, jnp.array([0.0, h, 2 * h]), rtol=1e-12, atol=1e-12)
    R = np.stack([rot.matrix(q[10:14]) for q in near.q])
    spin = (-1.5 * R[0] + 2 * R[1] - 0.5 * R[2]) / h @ R[0].T
    omega = np.array([spin[2, 1], spin[0, 2], spin[1, 0]])
    np.testing.assert_allclose(found["rod.omega_world"][0], omega, atol=1e-7)
    np.testing.assert_allclose(found["rod.omega_world"][0], R[0] @ found["rod.omega"][0], atol=EXACT)
    # With a hinge about z and then one about the arm's y axis.
    np.testing.assert_allclose(
        found["rod.omega_world"][0], np.array([0, 0, 1.3]) - 2.1 * np.array([-np.sin(0.4), np.cos(0.4), 0]), atol=1e-10
    )
    world = near["rod.omega_world"]
    np.testing.assert_allclose(
        found["rod.alpha_world"][0], (-1.5 * world[0] + 2 * world[1] - 0.5 * world[2]) / h, atol=1e-6
    )
    units = solution.to_xarray(["rod.omega", "rod.alpha_world"])
    assert units["rod.omega"].attrs["units"] == "rad/s"
    assert units["rod.alpha_world"].attrs["units"] == "rad/s²"


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_yaw_pitch_and_roll(coordinates: str) -> None:
    mechanism = gyro(coordinates)
    state = mbd.assemble(mechanism, START)
    found = mbd.read(mechanism, state, ["rod.yaw", "rod.pitch", "rod.roll"])
    np.testing.assert_allclose([*found.values()], [0.4, 0.7, 0.0], atol=1e-10)


# --- quantities of one state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_joint_rates_of_a_state(coordinates: str) -> None:
    """Whatever the coordinates are, in the plane and in space; and what one state has of forces and accelerations."""
    mechanism = swing(coordinates)
    state = mbd.assemble(mechanism, {"O.angle": 0.3}, speeds={"O.angle": 2.0})
    found = mbd.read(mechanism, state, ["O.angle", "O.angle_rate", "rod.alpha", "spring.length", "O.fx", "t"])
    length = np.hypot(1 - LENGTH * np.cos(0.3), LENGTH * np.sin(0.3))
    tension = 20 * (length - 0.5)
    pull = tension / length * np.array([1 - LENGTH * np.cos(0.3), -LENGTH * np.sin(0.3)])
    arm = LENGTH * np.array([np.cos(0.3), np.sin(0.3)])
    moment = arm[0] * (pull[1] - MASS * 9.81) - arm[1] * pull[0]
    alpha = moment / (INERTIA + MASS * LENGTH**2)
    force = MASS * (alpha * -arm[1] - 4.0 * arm[0]) - pull[0]
    np.testing.assert_allclose([*found.values()], [0.3, 2.0, alpha, length, force, 0.0], atol=1e-10)
    space = gyro(coordinates)
    state = mbd.assemble(space, START, speeds=SPEEDS)
    rates = [mbd.read(space, state, f"{name}.angle_rate") for name in "OP"]
    np.testing.assert_allclose(rates, [1.3, -2.1], atol=1e-10)


def test_reading_a_state_under_transformations() -> None:
    """Compiled, over a batch, and its derivatives by the state and by the mechanism."""
    mechanism = swing()

    def height(angle: Any, mechanism: Any) -> jax.Array:
        state = mbd.assemble(mechanism, {"O.angle": angle}, speeds={"O.angle": 2.0})
        return mbd.read(mechanism, state, "rod.velocity")[1]

    angles = jnp.array([0.1, 0.5, 1.0])
    found = jax.jit(jax.vmap(height, (0, None)))(angles, mechanism)
    np.testing.assert_allclose(found, 2 * LENGTH * np.cos(angles), atol=1e-12)
    slope = jax.grad(height)(0.5, mechanism), jax.jacfwd(height)(0.5, mechanism)
    np.testing.assert_allclose(slope, [-2 * LENGTH * np.sin(0.5)] * 2, atol=1e-10)
    by = eqx.filter_grad(lambda m: height(0.5, m))(mechanism)["O"].b.position[0]
    np.testing.assert_allclose(by, -2 * np.cos(0.5), atol=1e-10)
    state = mbd.assemble(mechanism, {"O.angle": 0.5}, speeds={"O.angle": 2.0})
    spinning = eqx.filter_grad(lambda s: mbd.read(mechanism, s, "O.angle_rate"))(state)
    np.testing.assert_allclose([spinning.v[2], spinning.q[0]], [1.0, 0.0], atol=1e-12)


def test_a_state_says_how_to_read_what_it_does_not_hold() -> None:
    mechanism = swing()
    state = mbd.assemble(mechanism, {"O.angle": 0.3})
    with pytest.raises(MechanismError, match=r"jaxmbd\.read\(mechanism, state, 'O\.angle_rate'\)"):
        state["O.angle_rate"]
    with pytest.raises(MechanismError, match=r"no quantity named 'rod.omegas'. Did you mean 'rod.omega'"):
        mbd.read(mechanism, state, "rod.omegas")
    with pytest.raises(MechanismError, match="belongs to another mechanism"):
        mbd.read(swing("joint"), state, "rod.omega")


# --- sensors with sign, zero and scale -----------------------------------------------------------------------------


def test_a_scaled_sensor_in_both_spaces() -> None:
    encoder = pl.Scaled("encoder", "O.angle", scale=-2.0, offset=0.1)
    cell = pl.Scaled("cell", "spring.tension", 1e-2, unit="V")
    again = pl.Scaled("again", "encoder", offset=1.0)
    mechanism = swing(sensors=[encoder, cell, again])
    solution = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), jnp.linspace(0.0, 0.3, 4))
    np.testing.assert_allclose(solution["encoder"], 0.1 - 2 * solution["O.angle"], rtol=EXACT)
    np.testing.assert_allclose(solution["cell"], 1e-2 * solution["spring.tension"], rtol=EXACT)
    np.testing.assert_allclose(solution["again"], solution["encoder"] + 1, rtol=EXACT)
    data = solution.to_xarray(["encoder", "cell", "again"])
    assert [data[name].attrs["units"] for name in ("encoder", "cell", "again")] == ["rad", "V", "rad"]
    gyroscope = sp.Scaled("gyro", "rod.omega", np.array([1.0, -1.0, 2.0]), (0.1, 0.2, 0.3))
    mechanism = gyro(sensors=[gyroscope])
    state = mbd.assemble(mechanism, START, speeds=SPEEDS)
    found = mbd.read(mechanism, state, ["gyro", "rod.omega"])
    expected = np.array([1.0, -1.0, 2.0]) * found["rod.omega"] + np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(found["gyro"], expected, rtol=EXACT)


def test_sign_and_zero_are_identified() -> None:
    """`fit` finds scale and offset of an encoder; the derivative by them is exact, in both modes."""
    mechanism = swing("joint", [pl.Scaled("encoder", "O.angle")])
    ts = jnp.linspace(0.0, 0.5, 11)

    def reading(scale: Any, offset: Any) -> jax.Array:
        m = eqx.tree_at(lambda m: (m["encoder"].scale, m["encoder"].offset), mechanism, (scale, offset))
        return mbd.simulate(m, mbd.assemble(m, {"O.angle": 0.3}), ts)["encoder"]

    data = reading(jnp.asarray(-1.2), jnp.asarray(0.07))
    angle = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), ts)["O.angle"]
    np.testing.assert_allclose(data, 0.07 - 1.2 * angle, atol=1e-12)
    by = jax.jacrev(reading)(jnp.asarray(-1.2), jnp.asarray(0.07))
    np.testing.assert_allclose(by, angle, atol=1e-12)
    found = mbd.fit(
        mechanism,
        [mbd.Experiment(ts, {"encoder": np.asarray(data)}, {"O.angle": 0.3})],
        {
            "scale": mbd.identification.Parameter(lambda m: m["encoder"].scale),
            "offset": mbd.identification.Parameter(lambda m: m["encoder"].offset),
        },
    )
    np.testing.assert_allclose([found.parameters["scale"], found.parameters["offset"]], [-1.2, 0.07], atol=1e-8)


WRONG = {
    "of a part that does not exist": ([pl.Scaled("s", "Q.angle")], "Scaled 's': There is no part named 'Q.angle'"),
    "before its sensor": (
        [pl.Scaled("s", "tip"), pl.Point("tip", pl.ground.at())],
        "Scaled 's': There is no sensor before it named 'tip'",
    ),
    "named as the time": ([pl.Scaled("t", "O.angle")], "The name 't' is taken by the time"),
}


@pytest.mark.parametrize("case", WRONG)
def test_scaled_sensors_that_are_wrong(case: str) -> None:
    sensors, message = WRONG[case]
    with pytest.raises(MechanismError, match=message):
        swing(sensors=sensors)


def test_a_scaled_sensor_of_no_quantity_or_of_another_shape() -> None:
    mechanism = swing(sensors=[pl.Scaled("s", "O.angel")])
    with pytest.raises(MechanismError, match=r"Scaled 's': There is no quantity named 'O.angel'. Did you"):
        mbd.read(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), "s")
    mechanism = swing(sensors=[pl.Scaled("s", "rod.position", (1.0, 2.0, 3.0))])
    with pytest.raises(MechanismError, match=r"scale must be a number, or have the shape \(2,\) of 'rod.position'"):
        mbd.read(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), "s")


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_columns_of_the_saved_motion_are_read_without_a_program(
    coordinates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coordinates are slices, also of a batch; speeds come from the one program that makes them consistent."""
    mechanism = swing(coordinates)
    state = mbd.assemble(mechanism, {"O.angle": 0.3}, speeds={"O.angle": 2.0})
    run = mbd.simulate(mechanism, state, jnp.linspace(0.0, 0.3, 4))
    names = (*mechanism.coordinate_names, *mechanism.speed_names)
    computed = solutions._series(run, names, False)
    for name in names:
        np.testing.assert_allclose(run[name], computed[name], atol=EXACT)

    def unexpected(*_: Any) -> Any:
        raise AssertionError("a program was called")

    monkeypatch.setattr(solutions, "_series", unexpected)
    assert set(run.read(names)) == set(names)
    monkeypatch.setattr(solutions, "_snapshots", unexpected)
    batch = eqx.filter_vmap(lambda q: eqx.tree_at(lambda s: s.q, run, q))(jnp.stack([run.q, 2 * run.q]))
    for k, name in enumerate(mechanism.coordinate_names):
        np.testing.assert_array_equal(run[name], run.q[:, k])
        np.testing.assert_array_equal(batch[name], np.stack([run.q[:, k], 2 * run.q[:, k]]))
