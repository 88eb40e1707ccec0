"""The inputs of a mechanism by name: signals of time added to efforts, tensions, voltages, motions and numbers, against
the same forces and drivers as parts; their names, derivatives, batches, switching times, files, and wrong ones."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.integrate.solvers.switching import switches_of
from tests.marks import in_both_coordinates

G = 9.81  # [m/s²]
EQUAL = 1e-11  # the same motion, by forces that are added in another order
TS = np.linspace(0.0, 0.5, 6)
KNOTS = jnp.array([0.0, 0.2, 0.35])
VALUES = jnp.array([0.0, 3.0, -2.0])


def wave(t: Any) -> Any:
    return 2.0 * jnp.sin(7.0 * t)


def cart(coordinates: str, *more: Any, drivers: Any = ()) -> pl.Mechanism:
    """A cart on a rail, between springs, with a pendulum that has a motor, friction and a torsional spring."""
    body, rod = pl.Body("cart", 2.0, 0.1), pl.Body("rod", 1.0, 0.1, pose=(0.5, 0.0, 0.0))
    joints = [pl.Prismatic("rail", pl.ground.at(), body.at()), pl.Revolute("pin", body.at(), rod.at(-0.5))]
    forces = [
        pl.Gravity(G),
        pl.SpringDamper("spring", pl.ground.at(-1.0, 0.0), body.at(), 40.0, 0.8, 1.0),
        pl.JointForce("motor", "pin.angle", lambda t, x, v, p: 0.4 - 0.2 * v),
        pl.JointFriction("friction", "pin.angle", 0.1, 0.2, 0.5),
        pl.JointSpringDamper("torsion", "pin.angle", 3.0),
        pl.JointStop("stop", "pin.angle", -1.0, 0.1, 50.0),  # it stores energy at the angle of the tests, 0.2 rad
        pl.DCMotor("coil", "pin.angle", 6.0, resistance=1.0, inductance=0.02, constant=0.3),
    ]
    return pl.Mechanism([body, rod], joints, [*forces, *more], drivers, coordinates=coordinates)


def pull(name: str, u: Any) -> Any:
    """A tension on the spring, as a force of a user's own."""

    def wrenches(t: Any, frames: Any, rates: Any, parameters: Any) -> Array:
        a, b = frames
        d = b.position - a.position
        force = u(t) * d / jnp.sqrt(d @ d)
        return jnp.stack([jnp.append(force, 0.0), jnp.append(-force, 0.0)])

    return pl.UserForce(name, wrenches, (pl.ground.at(-1.0, 0.0), CART))


CART, ROD = pl.Body("cart", 2.0, 0.1).at(), pl.Body("rod", 1.0, 0.1).at()  # their centres of mass


def along(coordinate: str) -> Any:
    return lambda name, u: pl.JointForce(name, coordinate, lambda t, x, v, p: u(t))


# For each kind of input the same as a part, made of the signal.
PARTS: dict[str, Any] = {
    "pin.angle": along("pin.angle"),
    "rail.displacement": along("rail.displacement"),
    "cart.x": along("cart.x"),
    "motor.effort": along("pin.angle"),
    "friction.effort": along("pin.angle"),
    "torsion.effort": along("pin.angle"),
    "stop.effort": along("pin.angle"),
    "coil.effort": along("pin.angle"),
    "spring.tension": pull,
    "rod.fy": lambda name, u: pl.Force(name, ROD, lambda t, frame, rate: jnp.stack([0.0 * t, u(t)])),
    "rod.moment": lambda name, u: pl.Force(name, ROD, torque=lambda t, frame, rate: u(t)),
}


def at(mechanism: Any) -> mbd.State:
    """A state in motion, at a time when the wave is not zero."""
    speeds = {"rail.displacement_rate": 0.3, "pin.angle_rate": -1.0}
    return mbd.assemble(mechanism, {"rail.displacement": 0.1, "pin.angle": 0.2}, t=0.1, speeds=speeds)


def force_on(mechanism: Any, state: mbd.State) -> Array:
    """The generalized forces `F` at a state, as numbers and without a compiled program, and the potential energy."""
    position = mbd.Equations(mechanism).at(state.t, state.q)
    return jnp.append(position.force(state.v), position.potential_energy())


@in_both_coordinates("joint")
def test_inputs_act_as_forces_do(coordinates: str) -> None:
    """Each with a size of its own, so that none stands for another; other names and units stay what they are."""
    base = cart(coordinates)
    signals = {name: (lambda t, k=k: 1.3**k * wave(t)) for k, name in enumerate(PARTS)}
    given, state = mbd.with_inputs(base, signals), at(base)
    more = [PARTS[name](name.replace(".", "-"), u) for name, u in signals.items()]
    found, expected, still = (force_on(m, state) for m in (given, base.with_parts(more), base))
    np.testing.assert_allclose(found, expected, atol=EQUAL)
    assert float(jnp.max(jnp.abs(found - still))) > 1.0
    assert mbd.inputs(base).items() <= mbd.inputs(given).items()
    assert mbd.numbers(base).units.items() <= mbd.numbers(given).units.items()
    np.testing.assert_array_equal(given.coordinate_names, base.coordinate_names)


def test_channels_of_a_part_have_its_input_and_signals_superpose() -> None:
    base, names = cart("joint"), ("motor.effort", "friction.effort", "torsion.effort", "coil.effort", "spring.tension")
    state, u = at(base), float(wave(0.1))
    once = mbd.with_inputs(base, dict.fromkeys(names, wave) | {"pin.angle": wave, "rod.fy": wave})
    twice = mbd.with_inputs(once, dict.fromkeys(names, 0.5) | {"pin.angle": 1.0, "rod.fy": 2.0})
    values = [mbd.read(m, state, names) for m in (base, once, twice)]
    for name in names:
        np.testing.assert_allclose(np.diff([float(x[name]) for x in values]), [u, 0.5], atol=EQUAL, err_msg=name)
    assert [force.name for force in twice.forces[len(base.forces) :]] == ["pin angle", "rod fy"]
    whole = dict.fromkeys(names, lambda t: wave(t) + 0.5)
    whole |= {"pin.angle": lambda t: wave(t) + 1.0, "rod.fy": lambda t: wave(t) + 2.0}
    np.testing.assert_allclose(force_on(twice, state), force_on(mbd.with_inputs(base, whole), state), atol=EQUAL)


def test_the_voltage_of_a_motor_beside_an_input_of_its_effort() -> None:
    """`L di/dt = u + Δu − R i − k φ̇`; the motor keeps its state when its effort has an input."""

    def driven(voltage: Any) -> pl.Mechanism:
        coil = pl.DCMotor("coil", "O.angle", voltage, resistance=1.0, inductance=0.02, constant=0.3)
        return pendulum(coil)

    given = mbd.with_inputs(mbd.with_inputs(driven(6.0), {"coil.effort": 0.0}), {"coil.voltage": wave})
    assert mbd.inputs(given)["coil.voltage"] == "V"
    motions = [mbd.simulate(m, mbd.assemble(m), TS) for m in (given, driven(lambda t: 6.0 + wave(t)))]
    np.testing.assert_allclose(motions[0]["coil.current"], motions[1]["coil.current"], rtol=1e-9)
    assert abs(float(motions[0]["coil.current"][-1])) > 1.0


@in_both_coordinates("joint")
@pytest.mark.parametrize("prescribes", ["position", "speed"])
def test_the_signal_of_a_driver_is_added_with_its_rates(coordinates: str, prescribes: str) -> None:
    """The value, its rate and its second derivative: those of the driven coordinate, by `Φ`, `Φ̇` and `γ`."""
    base, whole = (
        cart(coordinates, drivers=[pl.Driver("drive", "pin.angle", motion, prescribes)])
        for motion in (lambda t: 0.2 + 0.3 * t, lambda t: 0.2 + 0.3 * t + wave(t))
    )
    given = mbd.with_inputs(base, {"drive.motion": wave})
    assert mbd.inputs(base)["drive.motion"] == ("rad" if prescribes == "position" else "rad/s")
    state, rows = at(cart(coordinates)), []
    for mechanism in (given, whole, base):
        position = mbd.Equations(mechanism).at(state.t, state.q)
        rows.append(jnp.stack([position.position()[-1], position.velocity(state.v)[-1], position.gamma(state.v)[-1]]))
    np.testing.assert_allclose(rows[0], rows[1], atol=EQUAL)
    t = 0.1
    signal, rate, second = wave(t), 14.0 * np.cos(7.0 * t), -98.0 * np.sin(7.0 * t)
    expected = [-signal, -rate, second] if prescribes == "position" else [0.0, -signal, rate]
    np.testing.assert_allclose(rows[0] - rows[2], expected, atol=1e-9)


SPATIAL_INPUTS = {
    "box.fx": ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0)), "box.fz": ((0.0, 0.0, 1.0), (0.0, 0.0, 0.0)),
    "box.mx": ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0)), "box.mz": ((0.0, 0.0, 0.0), (0.0, 0.0, 1.0)),
}  # fmt: skip


@in_both_coordinates("joint")
def test_forces_and_moments_on_a_body_in_space(coordinates: str) -> None:
    box = sp.Body("box", 2.0, (0.2, 0.3, 0.25))
    ball = sp.Spherical("O", sp.ground.at(), box.at(-0.5, 0.0, 0.1))
    base = sp.Mechanism([box], [ball], [sp.Gravity(G)], coordinates=coordinates)
    state = mbd.assemble(base)
    pushes = [
        sp.Force(name.replace(".", "-"), box.at(), (k + 3.0) * np.array(force), (k + 3.0) * np.array(torque))
        for k, (name, (force, torque)) in enumerate(SPATIAL_INPUTS.items())
    ]
    given = mbd.with_inputs(base, {name: k + 3.0 for k, name in enumerate(SPATIAL_INPUTS)})
    found, expected, still = (force_on(m, state) for m in (given, base.with_parts(pushes), base))
    np.testing.assert_allclose(found, expected, atol=EQUAL)
    assert float(jnp.max(jnp.abs(found - still))) > 1.0


def pendulum(*more: Any, coordinates: str = "joint") -> pl.Mechanism:
    rod = pl.Body("rod", 1.0, 0.1)
    pin = pl.Revolute("O", pl.ground.at(), rod.at(-0.5))
    return pl.Mechanism([rod], [pin], [pl.Gravity(G), *more], coordinates=coordinates)


def swing(mechanism: Any, **settings: Any) -> Array:
    return mbd.simulate(mechanism, mbd.assemble(mechanism), TS[[0, -1]], **settings)["O.angle"][-1]


def by_input(values: Array, times: Array = KNOTS, **settings: Any) -> Array:
    return swing(mbd.with_inputs(pendulum(), {"O.angle": mbd.Table(times, values)}), **settings)


def by_part(values: Array, times: Array = KNOTS, **settings: Any) -> Array:
    return swing(pendulum(pl.JointForce("more", "O.angle", mbd.Table(times, values))), **settings)


def test_derivatives_by_the_samples_of_a_signal() -> None:
    """By its values, against the same table in a force as a part."""
    coarse = {"solver": mbd.RungeKutta4(), "dt0": 0.1}
    found, slopes = (jax.grad(lambda values, f=f: f(values, **coarse))(VALUES) for f in (by_input, by_part))
    np.testing.assert_allclose(found, slopes, rtol=1e-9)
    assert float(jnp.min(jnp.abs(slopes))) > 1e-4


@pytest.mark.slow
def test_derivatives_in_both_modes_and_of_batches_of_signals() -> None:
    """Within `jit`, by the values and the times of a table, forward and reverse, and side by side."""
    slopes, found = (jax.jit(jax.grad(f, argnums=(0, 1)))(VALUES, KNOTS) for f in (by_part, by_input))
    for part, own in zip(slopes, found, strict=True):
        np.testing.assert_allclose(own, part, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(by_input)(VALUES), slopes[0], rtol=1e-9)
    batch = jnp.stack([VALUES, -VALUES, 2.0 * VALUES])
    np.testing.assert_allclose(jax.vmap(by_input)(batch), [by_part(values) for values in batch], rtol=1e-9)


@pytest.mark.parametrize("name", ["pin.angle", "motor.effort", "friction.effort", "rod.moment", "spring.tension"])
def test_switching_times_of_signals_are_known(name: str) -> None:
    base = cart("joint")
    assert switches_of(base, None) is None
    held = mbd.with_inputs(base, {name: mbd.Table(KNOTS, VALUES, order=0)})
    linear = mbd.with_inputs(base, {name: mbd.Piecewise([0.3], [0.0, wave], order=1)})
    of_held, of_linear = switches_of(held, None), switches_of(linear, None)
    assert of_held is not None
    assert of_linear is not None
    np.testing.assert_array_equal(of_held.jumps, KNOTS)
    np.testing.assert_array_equal(of_linear.kinks, [0.3])
    both = switches_of(mbd.with_inputs(held, {name: mbd.Piecewise([0.4], [0.0, 1.0])}), None)
    assert both is not None
    np.testing.assert_array_equal(np.sort(both.jumps), [*KNOTS, 0.4])


def test_the_work_of_an_input_is_that_of_a_force() -> None:
    """The energy grows by `∫ u φ̇ dt`, along a coordinate and on a body."""
    given = mbd.with_inputs(pendulum(), {"O.angle": wave, "rod.fx": 4.0})
    motion = mbd.simulate(given, mbd.assemble(given), np.linspace(0.0, 0.5, 401))
    power = np.asarray(motion["O angle.effort"] * motion["O.angle_rate"] + 4.0 * motion["rod.vx"])
    energy = np.asarray(motion["energy"])
    np.testing.assert_allclose(energy[-1] - energy[0], np.trapezoid(power, motion.ts), rtol=1e-5)
    assert abs(energy[-1] - energy[0]) > 0.1


def test_numbers_are_inputs_too() -> None:
    base = cart("joint")
    given = mbd.with_inputs(base, {"spring.free_length": 0.1, "*.mass": 0.5, "spring.tension": 1.0})
    assert float(given["spring"].free_length) == pytest.approx(0.9)
    assert [float(body.mass) for body in given.bodies] == [2.5, 1.5]
    assert float(given["spring"].actuator.signals[0]) == 1.0


def test_an_input_stays_an_input_where_the_mechanism_is_linearised() -> None:
    """At signals of its own, beside numbers of what they are added to: `B` is that without the signals."""
    base = pendulum(pl.JointFriction("friction", "O.angle", 0.1), pl.JointSpringDamper("torsion", "O.angle", 3.0))
    names = "O.angle", "friction.effort", "friction.viscous", "torsion.stiffness"
    ramp = mbd.Table([0.0, 1.0], [0.0, 2.0])
    given = mbd.with_inputs(base, {"O.angle": wave, "friction.effort": 0.3, "torsion.effort": ramp})
    state = mbd.assemble(base, {"O.angle": 0.2}, t=0.1, speeds={"O.angle_rate": -1.0})
    there, here = (mbd.linearize(m, state, names, ["rod.alpha", "friction.effort"]) for m in (given, base))
    for matrix in "BD":
        np.testing.assert_allclose(getattr(there, matrix), getattr(here, matrix), atol=1e-9, err_msg=matrix)
    assert there.input_units == here.input_units == ("N m", "N m", "N m s", "N m/rad")
    inertia = 0.1 + 0.25
    np.testing.assert_allclose(
        there.D, [[1 / inertia, 1 / inertia, 1 / inertia, -0.2 / inertia], [0, 1, 1, 0]], atol=1e-9
    )


def test_an_input_holds_a_position() -> None:
    """Half a radian below the horizontal a rod of 1 kg takes `m g l cos φ`; the equilibrium with it is there."""
    held = mbd.with_inputs(pendulum(), {"O.angle": G * 0.5 * np.cos(0.5)})
    np.testing.assert_allclose(mbd.equilibrium(held, {"O.angle": -0.4})["O.angle"], -0.5, atol=1e-9)


@pytest.mark.slow
def test_own_inputs_of_experiments_by_name() -> None:
    """What each experiment was driven with, where the mechanism has no force for it."""
    base = pendulum()
    tables = [mbd.Table([0.0, 0.5], [2.0, u]) for u in (1.0, -3.0)]
    ts, experiments = np.linspace(0.0, 0.5, 6), []
    for table in tables:
        truth = mbd.with_numbers(mbd.with_inputs(base, {"O.angle": table}), {"rod.mass": 1.3})
        angles = mbd.simulate(truth, mbd.assemble(truth, {"O.angle": 0.0}), ts)["O.angle"]
        experiments.append(mbd.Experiment(ts, {"O.angle": angles}, {"O.angle": 0.0}, own={"torque": table}, sigma=1e-3))
    sizes = []
    for mass in (1.3, 1.0):
        near = mbd.with_numbers(base, {"rod.mass": mass})
        problem = mbd.identification.Problem(near, experiments, ["rod.mass"], inputs={"torque": "O.angle"})
        sizes.append(float(jnp.max(jnp.abs(problem.residuals(problem.start())))))
    assert sizes[0] < 1e-4
    assert sizes[1] > 1.0


def test_a_mechanism_with_inputs_is_saved_and_read(tmp_path: Path) -> None:
    signals = {"pin.angle": mbd.Table(KNOTS, VALUES), "friction.effort": 0.5, "spring.tension": 1.0, "rod.fy": 2.0}
    signals |= {"motor.effort": 1.5, "coil.voltage": mbd.Piecewise([0.2], [0.0, 3.0])}
    plain = cart("joint")
    motor = pl.JointForce("motor", "pin.angle", 0.4)
    base = plain.replacing(forces=[motor, *(force for force in plain.forces if force.name != "motor")])
    given = mbd.with_inputs(base, signals)
    mbd.save(given, tmp_path / "cart.toml", at(given))
    again = mbd.load(tmp_path / "cart.toml")
    assert mbd.numbers(again).keys() == mbd.numbers(given).keys()
    for name, value in mbd.numbers(given).items():
        np.testing.assert_array_equal(mbd.numbers(again)[name], value)
    np.testing.assert_allclose(
        mbd.read(again, at(again), "rod.alpha"), mbd.read(given, at(given), "rod.alpha"), rtol=1e-14
    )


def sharp(t: Any) -> Any:
    return jnp.stack([t, t])


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize(
    ("signals", "text"),
    [
        ({"pin.angel": 1.0}, "no input named 'pin.angel'. Did you mean 'pin.angle'"),
        ({"motor.efort": wave}, "Did you mean 'motor.effort'"),
        ({"*.stifness": 1.0}, "no number of a part named"),
        ({"rod.mass": wave}, "'rod.mass': a number of the mechanism is constant over a motion"),
        ({"rod.mass": -3.0}, "mass must be positive"),
        ({"pin.angle": sharp}, "Input 'pin.angle': what the function signal returns must be a number, got shape (2,)"),
        ({"pin.angle": lambda t, x: t}, "signal is called as signal(t)"),
        ({"pin.angle": lambda t: None}, "the function signal returns None"),
        ({"pin.angle": "up"}, "Input 'pin.angle': signal"),
        ({"pin.angle": np.nan}, "Input 'pin.angle': signal must be finite"),
        ({"pin.angle": mbd.Table}, "signal must be a number or a function; got the class Table"),
        ({"rail.displacement": mbd.Table([0.0, 1.0], [[0.0, 1.0], [1.0, 2.0]])}, "must be a number, got shape (2,)"),
        ({"drive.motion": mbd.Table([0.0, 1.0], [0.0, 1.0])}, "Input 'drive.motion': a position and its rate"),
        ({"drive.motion": mbd.Piecewise([0.5], [0.0, 1.0], order=2)}, "at 0.5 s the position jumps from 0 to 1"),
        ({"drive.effort": 1.0}, "no input named 'drive.effort'"),
        ({"cart.fy": 1.0}, "named 'cart fy', which is the name of a Force"),
        ([("pin.angle", 1.0)], "with_inputs: signals must be a dictionary"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_input_is_named(signals: Any, text: str) -> None:
    weight = pl.Force("cart fy", pl.Body("cart", 2.0, 0.1).at(), (0.0, -1.0))
    base = cart("joint", weight, drivers=[pl.Driver("drive", "rail.displacement", wave)])
    with pytest.raises(mbd.MechanismError) as error:
        mbd.with_inputs(base, signals)
    assert text in str(error.value)


def test_a_motion_with_inputs_runs_where_it_ran() -> None:
    given = mbd.with_inputs(pendulum(), {"O.angle": wave, "rod.fx": 1.0})
    motions = [mbd.simulate(m, mbd.assemble(m), TS) for m in (given, pendulum())]
    assert "diffrax" not in [motion.engine for motion in motions]  # interpreted, or compiled where it was before
