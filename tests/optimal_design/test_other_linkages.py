"""Synthesis of linkages with more than four bars: a geared five-bar and a six-bar find known dimensions again."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.optimal_design._defects import trace

TURN = np.linspace(0.0, 2 * np.pi, 9)


def geared_five_bar(values: dict[str, Any]) -> pl.Mechanism:
    """Two cranks, coupled by gears that turn them against each other, and two couplers that meet in the point `P`."""
    names = ("left", "coupler", "link", "right")
    left, coupler, link, right = (pl.Body(name, mass=1.0, inertia=1.0) for name in names)
    pins = [
        pl.Revolute("A", pl.ground.at(0.0, 0.0), left.at()),
        pl.Revolute("B", left.at(values["left"], 0.0), coupler.at()),
        pl.Revolute("P", coupler.at(values["coupler"], 0.0), link.at(values["link"], 0.0)),
        pl.Revolute("C", right.at(values["right"], 0.0), link.at()),
        pl.Revolute("D", pl.ground.at(2.0, 0.0), right.at()),
    ]
    gear = pl.Gear("gear", "A.angle", "D.angle", ratio=-1.0)
    return pl.Mechanism(
        [left, coupler, link, right], [*pins, gear], sensors=[pl.Point("pen", coupler.at(values["coupler"], 0.0))],
        coordinates="joint",
    )  # fmt: skip


FIVE = {"left": 0.5, "coupler": 1.6, "link": 1.5, "right": 0.4}


def motion(mechanism: pl.Mechanism, angles: Any, guess: Any, name: str) -> np.ndarray:
    """A reading at angles of the crank, each position near the one before."""
    state, found = None, []
    for angle in angles:
        state = mbd.assemble(mechanism, {"A.angle": float(angle)}, guess=guess if state is None else state)
        found.append(np.asarray(mbd.read(mechanism, state, name)))
    return np.array(found)


@pytest.mark.slow
def test_path_of_a_geared_five_bar() -> None:
    """Nine points of a closed path with timing: the four lengths of the links are found again."""
    guess = {"coupler.theta": 1.0, "link.theta": 2.0}
    points = motion(geared_five_bar(FIVE), TURN, guess, "pen")
    ranges = {name: (0.5 * value, 1.5 * value) for name, value in FIVE.items()}
    found = mbd.synthesise(
        geared_five_bar, ranges, {"pen": points}, input="A.angle", timing=TURN, full_turn=True, starts=16, seed=1,
        progress=False,
    )  # fmt: skip
    assert found.is_successful, found
    assert found.error < 1e-16
    np.testing.assert_allclose([float(found.values[name]) for name in FIVE], list(FIVE.values()), rtol=1e-6)


def six_bar(values: dict[str, Any]) -> pl.Mechanism:
    """Stephenson's six-bar of the third kind: a four-bar whose coupler point `E` drives a follower by a link."""
    names = ("crank", "coupler", "rocker", "link", "follower")
    crank, coupler, rocker, link, follower = (pl.Body(name, mass=1.0, inertia=1.0) for name in names)
    pins = [
        pl.Revolute("A", pl.ground.at(0.0, 0.0), crank.at()),
        pl.Revolute("B", crank.at(0.5, 0.0), coupler.at()),
        pl.Revolute("C", coupler.at(1.5, 0.0), rocker.at(values["rocker"], 0.0)),
        pl.Revolute("D", pl.ground.at(2.0, 0.0), rocker.at()),
        pl.Revolute("E", coupler.at(0.8, values["height"]), link.at()),
        pl.Revolute("F", link.at(values["link"], 0.0), follower.at(values["follower"], 0.0)),
        pl.Revolute("G", pl.ground.at(2.6, 0.4), follower.at()),
    ]
    return pl.Mechanism([crank, coupler, rocker, link, follower], pins, coordinates="joint")


SIX = {"rocker": 1.2, "height": 0.6, "link": 1.6, "follower": 1.1}
UP = {"coupler.theta": 0.7, "rocker.theta": 1.9, "link.theta": 0.2, "follower.theta": 1.7}


def test_function_of_a_six_bar() -> None:
    """The follower's angle over a turn of the crank: the four dimensions are found again, on one circuit of several."""
    angles = np.linspace(0.0, 2 * np.pi, 10)
    outputs = motion(six_bar(SIX), angles, UP, "follower.theta")
    assert np.ptp(outputs) > 0.3
    ranges = {name: (0.7 * value, 1.4 * value) for name, value in SIX.items()}
    found = mbd.synthesise(
        six_bar, ranges, {"follower.theta": outputs}, input="A.angle", timing=angles, full_turn=True, starts=32,
        progress=False,
    )  # fmt: skip
    assert found.is_successful, found
    assert found.error < 1e-14
    np.testing.assert_allclose([float(found.values[name]) for name in SIX], list(SIX.values()), rtol=1e-5)


def test_circuits_of_a_six_bar() -> None:
    """The crank of this one turns round on a circuit whose follower swings: the curve closes after one turn."""
    mechanism = six_bar(SIX)
    state = mbd.assemble(mechanism, {"A.angle": 0.3}, guess=UP)
    circuit = trace(mechanism, state.q, 2.0, "A.angle")
    assert circuit.is_closed
    steps = np.linalg.norm(np.diff(circuit.placed, axis=0), axis=1)
    assert steps.max() < 0.2  # it never jumps to another circuit
    assert bool(jnp.all(circuit.drive > 0) | jnp.all(circuit.drive < 0))
