"""States of parts in the equations: their order, their rates, and what the laws make of them."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.equations.own_states import at_integrated, split_integrated, start_of
from jaxmbd.model.force.force import scaled
from tests.motors import CONSTANT, GEAR, INDUCTANCE, RESISTANCE, VOLTAGE, Creep, motor


def two_arms(coordinates: str) -> pl.Mechanism:
    """States of two kinds, in an order that is not that of the groups of equal parts."""
    upper, lower = pl.Body("upper", 1.0, 0.1), pl.Body("lower", 1.0, 0.1)
    joints = [pl.Revolute("O", pl.ground.at(), upper.at(-0.5)), pl.Revolute("A", upper.at(0.5), lower.at(-0.5))]
    creep = Creep("creep", pl.ground.at(0.3, 0.2), lower.at(0.2), (20.0, 30.0), (4.0, 5.0), (0.1, 0.2))
    forces = [motor("m", "O.angle", current=1.0), pl.Gravity(), creep, motor("n", "A.angle", current=2.0)]
    return pl.Mechanism([upper, lower], joints, forces, coordinates=coordinates)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_states_are_in_the_order_of_the_forces(coordinates: str) -> None:
    mechanism = two_arms(coordinates)
    assert mechanism.layout.z.names == ("m.current", "creep.x[0]", "creep.x[1]", "n.current")
    assert mechanism.layout.z.units == ("A", "m", "m", "A")
    assert mechanism.layout.z.owners == ("m", "creep", "creep", "n")
    np.testing.assert_array_equal(mechanism.z, [1.0, 0.1, 0.2, 2.0])
    other = mechanism.with_own_states(jnp.asarray([5.0, 6.0, 7.0, 8.0]))
    assert (other["m"].current, other["n"].current) == (5.0, 8.0)
    np.testing.assert_array_equal(other["creep"].x, [6.0, 7.0])


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_rates_and_forces_follow_the_states(coordinates: str) -> None:
    """Each motor by its own speed and current, the elements that creep by the distance of their markers."""
    mechanism = two_arms(coordinates)
    state = mbd.assemble(mechanism, {"O.angle": 0.4, "A.angle": -0.7}, speeds={"O.angle": 2.0, "A.angle": -3.0})
    z = jnp.asarray([3.0, 0.15, 0.3, -1.0])
    equations = mbd.Equations(mechanism).with_own_states(z)
    at = equations.at(state.t, state.q)
    read = mbd.read(mechanism, state, ["lower.position", "lower.theta"])
    tip = read["lower.position"] + 0.2 * np.array([np.cos(read["lower.theta"]), np.sin(read["lower.theta"])])
    stretch = np.linalg.norm(tip - np.array([0.3, 0.2])) - np.array([0.15, 0.3])
    rate = lambda current, speed: (VOLTAGE - RESISTANCE * current - CONSTANT * GEAR * speed) / INDUCTANCE  # noqa: E731
    expected = [rate(3.0, 2.0), *(stretch * np.array([20.0, 30.0]) / np.array([4.0, 5.0])), rate(-1.0, -3.0)]
    np.testing.assert_allclose(at.own_rates(state.v), expected, rtol=1e-12)
    steady = equations.with_own_states(at.steady_states(state.v)).at(state.t, state.q)
    np.testing.assert_allclose(steady.own_rates(state.v), 0.0, atol=1e-10)
    # A torque per current, in joint coordinates the entries of F.
    more = equations.with_own_states(z + jnp.asarray([0.1, 0.0, 0.0, 0.0]))
    change = more.force(state.t, state.q, state.v) - equations.force(state.t, state.q, state.v)
    if coordinates == "joint":
        np.testing.assert_allclose(change, [0.1 * CONSTANT * GEAR, 0.0], atol=1e-12)
    assert float(jnp.abs(change).max()) > 0.01


def test_a_scaled_force_keeps_its_states() -> None:
    mechanism = two_arms("joint")
    half = mechanism.replacing(forces=[scaled(force, jnp.asarray(0.5)) for force in mechanism.forces])
    assert half.layout == mechanism.layout
    changed = half.with_own_states(jnp.asarray([5.0, 6.0, 7.0, 8.0]))
    np.testing.assert_array_equal(changed.z, [5.0, 6.0, 7.0, 8.0])


def test_the_same_states_in_space() -> None:
    """The element that creeps between points of space."""
    body = sp.Body("lower", 1.0, 0.1 * np.eye(3), pose=(0.7, 0.1, 0.0, 1.0, 0.0, 0.0, 0.0))
    creep = Creep("creep", sp.ground.at(0.3, 0.2, 0.4), body.at(0.2), (20.0,), (4.0,), (0.1,))
    mechanism = sp.Mechanism([body], [], [creep], floating=True)
    at = mbd.Equations(mechanism).at(jnp.zeros(()), jnp.asarray(body.pose))
    distance = np.linalg.norm(np.array([0.9, 0.1, 0.0]) - np.array([0.3, 0.2, 0.4]))
    np.testing.assert_allclose(at.own_rates(jnp.zeros(6)), [20.0 * (distance - 0.1) / 4.0], rtol=1e-12)


def test_what_is_integrated_is_without_units() -> None:
    mechanism = two_arms("joint")
    z = jnp.asarray([3.0, 0.15, 0.3, -1.0])
    integrated = start_of(mechanism, z, 2)
    np.testing.assert_allclose(integrated, [3.0, 1.5, 3.0, -1.0, 0.0, 0.0], rtol=1e-14)
    back, quadratures = split_integrated(mechanism, jnp.stack([integrated, integrated]))
    np.testing.assert_allclose(back, [z, z], rtol=1e-14)
    assert quadratures.shape == (2, 2)
    np.testing.assert_allclose(at_integrated(mbd.Equations(mechanism), integrated).mechanism.z, z, rtol=1e-14)
