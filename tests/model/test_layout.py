"""The entries of a state: their names, units, owners and sizes, block by block."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.model.mechanism.layout import Block, Layout
from tests.motors import motor


def test_blocks_hold_names_units_owners_and_sizes() -> None:
    layout = mbd.examples.get("pendulum").mechanism.with_parts([motor()]).layout
    assert layout.q == Block(("rod.x", "rod.y", "rod.theta"), ("m", "m", "rad"), (1.0, 1.0, 1.0))
    assert layout.v.names == ("rod.vx", "rod.vy", "rod.omega")
    assert (layout.z.names, layout.z.units, layout.z.owners) == (("motor.current",), ("A",), ("motor",))
    assert layout.names == (*layout.q.names, *layout.v.names, "motor.current")
    assert layout.units == ("m", "m", "rad", "m/s", "m/s", "rad/s", "A")
    assert [layout.places[name] for name in ("rod.theta", "rod.vy", "motor.current")] == [("q", 2), ("v", 1), ("z", 0)]


def test_integrated_angles_are_coordinates_of_their_joint() -> None:
    base, arm = sp.Body("base", 1.0, (1.0, 1.0, 1.0)), sp.Body("arm", 1.0, (1.0, 1.0, 1.0))
    joints = [sp.Revolute("A", sp.ground.at(), base.at()), sp.Revolute("B", base.at(1.0), arm.at())]
    layout = sp.Mechanism([base, arm], joints).layout
    assert (layout.q.names[-1], layout.q.units[-1], layout.q.owners[-1]) == ("B.angle", "rad", "B")
    assert len(layout.q) == 16
    assert len(layout.v) == 12
    assert layout.v.owners[:7] == ("base",) * 6 + ("arm",)


def test_speeds_of_a_user_have_no_owner() -> None:
    example = mbd.examples.get("pendulum").mechanism
    speeds = pl.GeneralizedSpeeds(["u"], lambda t, q, u, _: u)
    layout = example.with_coordinates("joint", speeds=speeds).layout
    assert (layout.v.names, layout.v.units, layout.v.owners) == (("u",), ("",), ("",))


def test_states_made_by_hand_are_those_of_an_assembly() -> None:
    """One structure, so that one can be the carry of a loop that starts with the other."""
    example = mbd.examples.get("slider-crank")
    state = example.state()
    by_hand = mbd.State(state.t, state.q, state.v, example.mechanism.layout)
    assert jax.tree.structure(by_hand) == jax.tree.structure(state)
    later = jax.lax.cond(jnp.asarray(True), lambda s: s, lambda s: state, by_hand)
    np.testing.assert_array_equal(later.q, state.q)
    assert float(by_hand["slider.x"]) == float(state["slider.x"])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"z": np.zeros(0)}, "The state has 0 numbers in z, and its layout 1 states of parts: motor.current"),
        ({"v": np.zeros(2)}, "The state has 2 numbers in v, and its layout 3 speeds: rod.vx, rod.vy, rod.omega"),
    ],
)
def test_states_made_by_hand_with_other_numbers_are_refused(changes: dict[str, Any], text: str) -> None:
    mechanism = mbd.examples.get("pendulum").mechanism.with_parts([motor()])
    state = dataclasses.replace(mbd.assemble(mechanism), **{k: jnp.asarray(x) for k, x in changes.items()})
    for call in (lambda: mbd.simulate(mechanism, state, [0.0, 0.1]), lambda: mbd.read(mechanism, state, "energy")):
        with pytest.raises(mbd.MechanismError, match=text):
            call()


@pytest.mark.parametrize("name", mbd.examples.names())
def test_the_layout_fits_the_arrays(name: str) -> None:
    for coordinates in ("absolute", "joint"):
        mechanism = mbd.examples.get(name).with_coordinates(coordinates).mechanism
        layout = mechanism.layout
        assert isinstance(layout, Layout)
        assert (len(layout.q), len(layout.v), len(layout.z)) == (mechanism.nq, mechanism.nv, len(mechanism.z))
        assert len(set(layout.names)) == len(layout.names)
        for block in (layout.q, layout.v, layout.z):
            assert len(block.names) == len(block.units) == len(block.sizes)
            known = {part.name for part in mechanism.parts()}
            assert set(block.owners) <= known
