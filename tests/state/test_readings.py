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
from jaxmbd.analyses.simulation import readings as reading
from jaxmbd.analyses.simulation import solution as solutions
from jaxmbd.analyses.simulation.readings import Asked, readings
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
    computed = readings(run._motion(), None, Asked(names)).channels
    for name in names:
        np.testing.assert_allclose(run[name], computed[name], atol=EXACT)
    monkeypatch.setattr(solutions, "readings", unexpected)
    assert set(run.read(names)) == set(names)
    batch = eqx.filter_vmap(lambda q: eqx.tree_at(lambda s: s.q, run, q))(jnp.stack([run.q, 2 * run.q]))
    for k, name in enumerate(mechanism.coordinate_names):
        np.testing.assert_array_equal(run[name], run.q[:, k])
        np.testing.assert_array_equal(batch[name], np.stack([run.q[:, k], 2 * run.q[:, k]]))


def unexpected(*_: Any) -> Any:
    raise AssertionError("a program was called")


# --- all readings of a solution at once --------------------------------------------------------------------------


def swung(mechanism: pl.Mechanism, angle: Any = 0.3) -> mbd.Solution:
    state = mbd.assemble(mechanism, {"O.angle": angle}, speeds={"O.angle": 2.0})
    return mbd.simulate(mechanism, state, jnp.linspace(0.0, 0.3, 4))


@pytest.mark.parametrize("make", [lambda: swung(swing()), lambda: swung(swing("joint")), moving])
def test_all_readings_are_those_that_are_computed_one_by_one(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one program, kept, and without it by XLA: channels, reactions in both axes, and the violation."""
    run = eqx.tree_at(lambda s: s.q, make(), make().q + 1e-3)  # an object of its own, with a violation
    data = run.to_xarray()
    reactions = {frame: run.reaction("O", "ground", frame) for frame in ("world", "body")}
    monkeypatch.setattr(solutions, "readings", unexpected)
    for name in (*run.names, "energy"):
        np.testing.assert_array_equal(run[name], data[name])
    np.testing.assert_array_equal(run.reaction("O").force[:, 0], data["O.fx"])
    violation = run.violation()
    monkeypatch.undo()
    monkeypatch.setattr(reading, "as_program", lambda function: function)
    plain = eqx.filter_jit(reading.readings.__wrapped__)  # pyright: ignore
    asked = Asked(tuple(run.names), ("O",), violation=True)
    expected = plain(run._motion(), None, asked)
    for name in run.names:
        np.testing.assert_allclose(data[name], expected.channels[name], atol=1e-10, err_msg=name)
    for frame, one in reactions.items():
        for found, right in zip((one.force, one.moment), expected.reactions["O"][frame], strict=True):
            np.testing.assert_allclose(found, right[:, 0], atol=1e-10)
    for found, right in zip(
        (violation.position, violation.velocity, violation.acceleration), expected.violation, strict=True
    ):
        np.testing.assert_allclose(found, right, atol=1e-10)
    if make is moving or run.lam.size:
        assert np.abs(np.asarray(violation.position)).max() > 1e-4


def test_coordinates_are_read_without_compiling() -> None:
    compiled: list[str] = []
    run = swung(swing())
    jax.monitoring.register_event_duration_secs_listener(lambda event, duration_secs, **_: compiled.append(event))
    for name in run.mechanism.coordinate_names:
        run[name].block_until_ready()
    assert not [name for name in compiled if "compile" in name]


def test_what_is_kept_belongs_to_one_object() -> None:
    run = swung(swing())
    energy = np.asarray(run["energy"])
    faster = eqx.tree_at(lambda s: s.integrated_speeds, run, 2 * run.integrated_speeds)
    np.testing.assert_allclose(faster["kinetic_energy"], 4 * run["kinetic_energy"], rtol=1e-9)
    np.testing.assert_array_equal(run["energy"], energy)
    doubled = jax.tree.map(lambda x: x, run)
    np.testing.assert_array_equal(doubled["energy"], energy)


@pytest.mark.parametrize("size", ["0", "1024"])
def test_a_solution_may_be_read_first_while_a_function_is_traced(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the trace remains in the solution, with and without the cache on disk."""
    monkeypatch.setenv("JAXMBD_CACHE_MIB", size)
    run, again = swung(swing()), swung(swing())
    found = jax.jit(lambda x: x * run["energy"] + run["rod.omega"] + run.violation().position[:, 0])(2.0)
    expected = 2 * again["energy"] + again["rod.omega"] + again.violation().position[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(run["energy"], again["energy"], rtol=1e-12)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_readings_have_derivatives_and_batches(coordinates: str) -> None:
    def readings_of(angle: Any) -> Any:
        run = swung(swing(coordinates, [pl.Point("P", pl.ground.at(0.1))]), angle)
        return jnp.stack([run["energy"][-1], run["O.fy"][-1], run["rod.alpha"][-1], run.reaction("O").force[-1, 0]])

    h, angles = 1e-5, jnp.array([0.3, 0.8])
    both = jax.vmap(readings_of)(angles)
    np.testing.assert_allclose(both[1], readings_of(0.8), rtol=1e-7)
    slope = (np.asarray(readings_of(0.8 + h)) - np.asarray(readings_of(0.8 - h))) / (2 * h)
    assert np.abs(slope).min() > 1e-2
    np.testing.assert_allclose(jax.jacrev(readings_of)(0.8), slope, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(jax.jacfwd(readings_of)(0.8), slope, rtol=2e-5, atol=1e-5)


def searched(t: Any, q: Any, v: Any, vdot: Any, lam: Any, parameters: Any) -> Any:
    """A loop whose number of steps depends on the numbers: no program."""
    return jax.lax.while_loop(lambda x: x > 1.0, lambda x: x / 2, 10 + jnp.abs(q[2]))


def test_functions_of_users_do_not_stand_in_the_way_of_other_readings() -> None:
    sensors = [
        pl.Measure("searched", searched),
        pl.Scaled("refused", "rod.position", (1.0, 2.0, 3.0)),
        pl.Scaled("double", "O.fx", 2.0),
    ]
    run, plain = swung(swing(sensors=sensors)), swung(swing())
    np.testing.assert_allclose(run["energy"], plain["energy"], rtol=1e-12)
    assert run._kept["all"].channels.keys() == {*plain.names}
    np.testing.assert_allclose(run["double"], 2 * plain["O.fx"], rtol=1e-10)
    steps = np.ceil(np.log2(10 + np.abs(run["rod.theta"])))
    np.testing.assert_allclose(run["searched"], (10 + np.abs(run["rod.theta"])) / 2**steps, rtol=1e-12)
    with pytest.raises(MechanismError, match="scale must be a number"):
        run["refused"]


def test_of_many_channels_only_those_asked_for_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solutions, "_MANY", 5)
    run, plain = swung(swing()), moving()
    np.testing.assert_allclose(run["energy"], run["kinetic_energy"] + run["potential_energy"], rtol=1e-12)
    assert "all" not in run._kept
    assert run.reaction("O").force.shape == (4, 2)
    assert "all" not in run._kept
    run.to_xarray()
    assert "all" in run._kept
    assert plain.names


def test_readings_of_forces_that_are_no_programs() -> None:
    """A spring whose tension is searched for: XLA computes each reading, and all agree with those of a state."""
    mechanism = swing()
    force = pl.JointForce(
        "search", "O.angle", lambda t, angle, rate, _: searched(t, jnp.stack([t, t, angle]), 0, 0, 0, 0)
    )
    mechanism = mechanism.replaced(forces=(*mechanism.forces, force))
    run = swung(mechanism)
    state = run.state(2)
    for name in ("search.effort", "energy", "O.fx"):
        np.testing.assert_allclose(run[name][2], mbd.read(mechanism, state, name), rtol=1e-9)
    assert "all" not in run._kept


def test_readings_in_single_precision() -> None:
    exact = swung(swing()).to_xarray()
    with jax.enable_x64(False):
        single = swung(swing())
        assert single["O.fx"].dtype == jnp.float32
        data = single.to_xarray()
    for name in exact:
        np.testing.assert_allclose(data[name], exact[name], rtol=2e-3, atol=2e-3, err_msg=str(name))


DRIVES = {"R.angle": 3.0, "S.displacement": -2.0, "C.displacement": 1.5, "C.angle": 0.7, "W.angle": -0.4,
          "U.angle_a": 0.9, "U.angle_b": -1.1}  # fmt: skip


def chain(*forces: Any) -> sp.Mechanism:
    """Five bodies carried by joints of all kinds, one of them with the outer body first."""
    b = [sp.Body(f"b{k}", 1.0 + k, (0.1, 0.2, 0.25), (0.4 * k, 0.1 * k, 0.0)) for k in range(5)]
    joints = [
        sp.Revolute("R", sp.ground.at(axis="y"), b[0].at(-0.2, axis="y")),
        sp.Prismatic("S", b[1].at(-0.1, axis="x"), b[0].at(0.2, 0.1, axis="x")),
        sp.Cylindrical("C", b[1].at(0.2, axis="z"), b[2].at(0.0, -0.1, axis="z")),
        sp.Screw("W", b[2].at(0.1, axis="x"), b[3].at(-0.2, axis="x"), 0.05),
        sp.Universal("U", b[3].at(0.2), b[4].at(0.0, 0.0, -0.3)),
    ]
    return sp.Mechanism(b, joints, [sp.Gravity(), *forces], coordinates="joint")


def test_generalized_forces_are_no_reactions() -> None:
    """They act in the joints as forces along the joints' coordinates, which are moments and forces on bodies."""
    q = [DRIVES[name.removesuffix("_rate")] for name in chain().speed_names]
    together = chain(sp.GeneralizedForce("f", lambda t, q, v, p: jnp.array(p), q))
    apart = chain(*(sp.JointForce(f"f{k}", name, value) for k, (name, value) in enumerate(DRIVES.items())))
    names = [f"{joint}.{load}" for joint in "RSCWU" for load in ("fx", "fy", "fz", "mx", "my", "mz")]
    at = {"R.angle": 0.3, "S.displacement": 0.2, "C.displacement": -0.3, "C.angle": 0.4, "W.angle": 0.5,
          "U.angle_a": 0.2, "U.angle_b": -0.3}  # fmt: skip
    found, expected = (mbd.read(m, mbd.assemble(m, at), names) for m in (together, apart))
    np.testing.assert_allclose([*found.values()], [*expected.values()], atol=1e-11)
    assert abs(float(expected["R.mx"])) > 0.5


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_gear_of_ones_own_has_the_reactions_of_a_gear(coordinates: str) -> None:
    def pair(gear: Any) -> pl.Mechanism:
        bodies = [pl.Body(name, mass, 0.1, (x, 0, 0)) for name, mass, x in (("a", 1.0, 0.5), ("b", 2.0, 2.5))]
        joints = [
            pl.Revolute(name, pl.ground.at(x), body.at(-0.5))
            for name, x, body in zip("OP", (0.0, 2.0), bodies, strict=True)
        ]
        return pl.Mechanism(bodies, [*joints, gear], [pl.Gravity()], coordinates=coordinates)

    a, b = (2, 5) if coordinates == "absolute" else (0, 1)
    own = pl.GlobalConstraint("gear", lambda t, q, p: q[b] - p * q[a], -2.0)
    names = [f"{joint}.{load}" for joint in "OP" for load in ("fx", "fy", "moment")]
    found, expected = (
        mbd.read(m, mbd.assemble(m), names) for m in (pair(own), pair(pl.Gear("gear", "O.angle", "P.angle", -2.0)))
    )
    np.testing.assert_allclose([*found.values()], [*expected.values()], atol=1e-11)
    assert float(expected["O.fy"]) > 5.0
