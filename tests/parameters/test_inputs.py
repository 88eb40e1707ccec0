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
        pl.DCMotor("coil", "pin.angle", 6.0, resistance=1.0, inductance=0.02, constant=0.3),
    ]
    return pl.Mechanism([body, rod], joints, [*forces, *more], drivers, coordinates=coordinates)


def moved(mechanism: Any, ts: Any = TS, **options: Any) -> mbd.Solution:
    start = mbd.assemble(mechanism, {"rail.displacement": 0.1, "pin.angle": 0.2})
    return mbd.simulate(mechanism, start, ts, **options)


def pull(function: Any) -> Any:
    """A tension on the spring, as a force of a user's own."""

    def wrenches(t: Any, frames: Any, rates: Any, parameters: Any) -> Array:
        a, b = frames
        d = b.position - a.position
        force = function(t) * d / jnp.sqrt(d @ d)
        return jnp.stack([jnp.append(force, 0.0), jnp.append(-force, 0.0)])

    return pl.UserForce("pull", wrenches, (pl.ground.at(-1.0, 0.0), pl.Body("cart", 2.0, 0.1).at()))


def along(coordinate: str, function: Any) -> pl.JointForce:
    return pl.JointForce("more", coordinate, lambda t, x, v, p: function(t))


# For each kind of input the same as a part. A body's forces act at its centre of mass.
PARTS = {
    "pin.angle": along("pin.angle", wave),
    "rail.displacement": along("rail.displacement", wave),
    "cart.x": along("cart.x", wave),
    "motor.effort": along("pin.angle", wave),
    "friction.effort": along("pin.angle", wave),
    "torsion.effort": along("pin.angle", wave),
    "coil.effort": along("pin.angle", wave),
    "spring.tension": pull(wave),
    "rod.fy": pl.Force("more", pl.Body("rod", 1.0, 0.1).at(), lambda t, frame, rate: jnp.stack([0.0 * t, wave(t)])),
    "rod.moment": pl.Force("more", pl.Body("rod", 1.0, 0.1).at(), torque=lambda t, frame, rate: wave(t)),
}


def at(mechanism: Any) -> mbd.State:
    """A state in motion, at a time when the wave is not zero."""
    speeds = {"rail.displacement_rate": 0.3, "pin.angle_rate": -1.0}
    return mbd.assemble(mechanism, {"rail.displacement": 0.1, "pin.angle": 0.2}, t=0.1, speeds=speeds)


@in_both_coordinates("joint")
def test_an_input_acts_as_a_force_does(coordinates: str) -> None:
    """Each input alone, and all of them; the other names stay what they are."""
    base = cart(coordinates)
    state, channels = at(base), ("cart.ax", "rod.alpha", "pin.fx", "rail.fy", "energy", "potential_energy")
    still = mbd.read(base, state, channels)
    changes = {}
    for name, part in PARTS.items():
        given, other = mbd.with_inputs(base, {name: wave}), base.with_parts([part])
        found, expected = (mbd.read(m, state, channels) for m in (given, other))
        for channel in channels:
            np.testing.assert_allclose(found[channel], expected[channel], atol=EQUAL, err_msg=f"{name}: {channel}")
        changes[name] = found["rod.alpha"] - still["rod.alpha"]
        assert abs(float(changes[name])) > 0.1
        assert mbd.inputs(base).items() <= mbd.inputs(given).items()
        assert set(mbd.numbers(base)) <= set(mbd.numbers(given))
        assert {n: given_unit(given, n) for n in mbd.numbers(base)} == {
            n: given_unit(base, n) for n in mbd.numbers(base)
        }
    together = mbd.read(mbd.with_inputs(base, dict.fromkeys(PARTS, wave)), state, "rod.alpha")
    np.testing.assert_allclose(together - still["rod.alpha"], sum(changes.values()), atol=EQUAL)


def given_unit(mechanism: Any, name: str) -> str:
    return mbd.numbers(mechanism, name).units[name]


def test_channels_of_a_part_have_its_input_and_signals_superpose() -> None:
    base = cart("joint")
    state = at(base)
    u = float(wave(0.1))
    for name in ("motor.effort", "friction.effort", "torsion.effort", "coil.effort", "spring.tension"):
        once = mbd.with_inputs(base, {name: wave})
        twice = mbd.with_inputs(once, {name: 0.5})
        values = [float(mbd.read(m, state, name)) for m in (base, once, twice)]
        np.testing.assert_allclose(np.diff(values), [u, 0.5], atol=EQUAL)
        assert len(twice.forces) == len(base.forces)
    pushed = mbd.with_inputs(
        mbd.with_inputs(base, {"pin.angle": wave, "rod.fy": 1.0}), {"pin.angle": 1.0, "rod.fy": 2.0}
    )
    assert [force.name for force in pushed.forces[len(base.forces) :]] == ["pin angle", "rod fy"]
    np.testing.assert_allclose(mbd.read(pushed, state, "pin angle.effort"), u + 1.0, atol=EQUAL)
    alpha = [
        mbd.read(m, state, "rod.alpha") for m in (pushed, mbd.with_inputs(base, {"pin.angle": wave, "rod.fy": 3.0}))
    ]
    assert abs(float(alpha[0] - alpha[1])) > 0.1  # by the torque of 1 N m


def test_the_voltage_of_a_motor_beside_an_input_of_its_effort() -> None:
    """`L di/dt = u + Δu − R i − k φ̇`; the motor keeps its state when its effort has an input."""
    base = cart("joint")
    given = mbd.with_inputs(mbd.with_inputs(base, {"coil.effort": 0.0}), {"coil.voltage": wave})
    (coil,) = (force for force in base.forces if force.name == "coil")
    voltage = pl.DCMotor("coil", "pin.angle", lambda t: 6.0 + wave(t), coil.resistance, coil.inductance, coil.constant)
    other = base.replacing(forces=[*(force for force in base.forces if force is not coil), voltage])
    assert mbd.inputs(given)["coil.voltage"] == "V"
    motions = [mbd.simulate(m, at(base), TS + 0.1) for m in (given, other)]
    np.testing.assert_allclose(motions[0]["coil.current"], motions[1]["coil.current"], rtol=1e-9)
    assert abs(float(motions[0]["coil.current"][-1])) > 1.0


@in_both_coordinates("joint")
@pytest.mark.parametrize("prescribes", ["position", "speed"])
def test_the_signal_of_a_driver_is_added_with_its_rates(coordinates: str, prescribes: str) -> None:
    """The value, its rate and its second derivative: position, speed and acceleration of the driven coordinate."""
    base = cart(coordinates, drivers=[pl.Driver("drive", "pin.angle", lambda t: 0.2 + 0.3 * t, prescribes)])
    whole = cart(coordinates, drivers=[pl.Driver("drive", "pin.angle", lambda t: 0.2 + 0.3 * t + wave(t), prescribes)])
    given = mbd.with_inputs(base, {"drive.motion": wave})
    assert mbd.inputs(base)["drive.motion"] == ("rad" if prescribes == "position" else "rad/s")
    instants, guess = np.array([0.0, 0.1, 0.3]), {"rail.displacement": 0.1, "pin.angle": 0.2}
    motions = [mbd.simulate(m, mbd.assemble(m, guess, t=0.0), instants) for m in (given, whole)]
    for channel in ("pin.angle", "pin.angle_rate", "rod.alpha", "drive.effort", "cart.x"):
        np.testing.assert_allclose(motions[0][channel], motions[1][channel], atol=1e-9, err_msg=channel)
    order = 2 if prescribes == "position" else 1
    rates = [wave(instants), 14.0 * np.cos(7.0 * instants), -98.0 * np.sin(7.0 * instants)]
    np.testing.assert_allclose(motions[0]["rod.alpha"], rates[order] + 0.0, atol=1e-6)


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
    for name, (force, torque) in SPATIAL_INPUTS.items():
        given = mbd.with_inputs(base, {name: 3.0})
        other = base.with_parts([sp.Force("push", box.at(), 3.0 * np.array(force), 3.0 * np.array(torque))])
        found, expected, still = (mbd.read(m, state, "box.alpha") for m in (given, other, base))
        np.testing.assert_allclose(found, expected, atol=EQUAL)
        assert float(jnp.max(jnp.abs(found - still))) > 0.1


def swing(mechanism: Any, **options: Any) -> Array:
    return moved(mechanism, np.array([0.0, 0.5]), **options)["pin.angle"][-1]


def test_derivatives_by_the_samples_of_a_signal() -> None:
    """Forward, reverse, for a batch of signals, and within `jit`, against the same table in a force as a part; and the
    motion's steps end at its times."""
    base = pl.Mechanism(cart("joint").bodies, cart("joint").joints, [pl.Gravity(G)], coordinates="joint")

    def by_input(values: Array, times: Array = KNOTS) -> Array:
        return swing(mbd.with_inputs(base, {"pin.angle": mbd.Table(times, values)}))

    def by_part(values: Array, times: Array = KNOTS) -> Array:
        return swing(base.with_parts([pl.JointForce("more", "pin.angle", mbd.Table(times, values))]))

    slopes = jax.jit(jax.grad(by_part, argnums=(0, 1)))(VALUES, KNOTS)
    found = jax.jit(jax.grad(by_input, argnums=(0, 1)))(VALUES, KNOTS)
    for part, own in zip(slopes, found, strict=True):
        np.testing.assert_allclose(own, part, rtol=1e-9, atol=1e-12)
    assert float(jnp.min(jnp.abs(slopes[0]))) > 1e-4
    np.testing.assert_allclose(jax.jit(jax.jacfwd(by_input))(VALUES), slopes[0], rtol=1e-9)
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
    base = pl.Mechanism(cart("joint").bodies, cart("joint").joints, [pl.Gravity(G)], coordinates="joint")
    motion = moved(mbd.with_inputs(base, {"pin.angle": wave, "cart.fx": 4.0}), np.linspace(0.0, 0.5, 401))
    power = np.asarray(motion["pin angle.effort"] * motion["pin.angle_rate"] + 4.0 * motion["cart.vx"])
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
    """At a signal of its own, and beside numbers of what it is added to: `B` is that without the signals."""
    base, names = (
        cart("joint"),
        ("pin.angle", "friction.effort", "friction.viscous", "torsion.stiffness", "coil.voltage"),
    )
    given = mbd.with_inputs(
        base, {"pin.angle": wave, "friction.effort": 0.3, "torsion.effort": mbd.Table([0.0, 1.0], [0, 2.0])}
    )
    state = at(base)
    there, here = (mbd.linearize(m, state, names, ["rod.alpha", "friction.effort"]) for m in (given, base))
    for matrix in "BD":
        np.testing.assert_allclose(getattr(there, matrix), getattr(here, matrix), atol=1e-9, err_msg=matrix)
    assert there.input_units == here.input_units == ("N m", "N m", "N m s", "N m/rad", "V")
    assert there.D[1, 1] == 1.0
    by_hand = mbd.read(mbd.with_inputs(given, {"pin.angle": 1.0}), state, "rod.alpha")
    np.testing.assert_allclose(there.D[0, 0], by_hand - mbd.read(given, state, "rod.alpha"), rtol=1e-9)


def test_an_input_holds_a_position() -> None:
    """Half a radian below the horizontal a rod of 1 kg takes `m g l cos φ`; the equilibrium with it is there."""
    pendulum = mbd.examples.get("pendulum").mechanism
    held = mbd.with_inputs(pendulum, {"O.angle": G * 0.5 * np.cos(0.5)})
    np.testing.assert_allclose(mbd.equilibrium(held, {"O.angle": -0.4})["O.angle"], -0.5, atol=1e-9)


def test_own_inputs_of_experiments_by_name() -> None:
    """What each experiment was driven with, where the mechanism has no force for it."""
    rod = pl.Body("rod", 1.0, 0.1)
    base = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5))], coordinates="joint")
    tables = [mbd.Table([0.0, 0.5], [2.0, u]) for u in (1.0, -3.0)]
    ts, experiments = np.linspace(0.0, 0.5, 6), []
    for table in tables:
        truth = mbd.with_numbers(mbd.with_inputs(base, {"O.angle": table}), {"rod.mass": 1.3})
        angles = mbd.simulate(truth, mbd.assemble(truth, {"O.angle": 0.0}), ts)["O.angle"]
        experiments.append(mbd.Experiment(ts, {"O.angle": angles}, {"O.angle": 0.0}, own={"torque": table}, sigma=1e-3))
    found = mbd.fit(base, experiments, ["rod.mass"], inputs={"torque": "O.angle"}, progress=False)
    assert float(found["rod.mass"]) == pytest.approx(1.3, rel=1e-6)


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


def test_a_motion_with_inputs_is_a_program() -> None:
    """It runs in the engine that runs the same motion without them."""
    base = cart("joint")
    constant = {"pin.angle": 1.0, "friction.effort": wave, "rod.fy": wave, "coil.voltage": 1.0}
    assert moved(mbd.with_inputs(base, constant)).engine == moved(base).engine
