"""Analyses of mechanisms with beams: by beam theory, in both kinds of coordinates, and derivatives by their numbers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.errors import MechanismError
from tests.flexible_bodies import crank

COORDINATES = ("absolute", "joint")
MASS, LENGTH, STIFFNESS = 0.5, 1.3, 20.0
RATE = np.sqrt(STIFFNESS / (MASS * LENGTH**3))  # √(E I / ρA L⁴)
CLAMPED_FREE = np.array([1.875104068711961, 4.694091132974175, 7.854757438237613]) ** 2
HINGED_FREE = np.array([3.926602312047919, 7.068582745628732]) ** 2


def cantilever(coordinates: str, gravity: float = 0.0, stiffness: Any = STIFFNESS, bending: int = 4) -> pl.Mechanism:
    beam = pl.Beam("beam", MASS, LENGTH, stiffness, bending=bending)
    wall = pl.Weld("wall", pl.ground.at(), beam.at())
    load = pl.Force("load", beam.site("tip").at(), (0.0, 0.0))
    return pl.Mechanism([beam], [wall], [pl.Gravity(gravity), load], coordinates=coordinates)


def frequencies(mechanism: Any, state: Any) -> np.ndarray:
    values = np.imag(mbd.linearize(mechanism, state).eigenvalues)
    return np.sort(values[values > 0])


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_frequencies_are_those_of_beam_theory(coordinates: str) -> None:
    mechanism = cantilever(coordinates)
    found = frequencies(mechanism, mbd.assemble(mechanism)) / RATE
    errors = found[:3] / CLAMPED_FREE - 1  # of Ritz's method: never negative, and smaller the lower the frequency
    assert (errors > -1e-12).all()
    assert (errors < [1e-9, 2e-5, 4e-4]).all()


def test_a_hinged_beam_turns_freely_and_bends() -> None:
    beam = pl.Beam("beam", MASS, LENGTH, STIFFNESS, bending=4)
    hinged = pl.Mechanism([beam], [pl.Revolute("O", pl.ground.at(), beam.at())], coordinates="joint")
    found = frequencies(hinged, mbd.assemble(hinged)) / RATE
    errors = found[:2] / HINGED_FREE - 1
    assert (errors > -1e-12).all()
    assert (errors < [2e-6, 3e-4]).all()


# Lag frequencies of a blade that is clamped to a hub of radius zero, with ω̂ and λ = Ω in units of `RATE`
# (Wright et al., J. Appl. Mech. 49 (1982): ω_lag² = ω_flap² − λ²). Without shortening they would fall to zero.
LAG = {1.0: 3.5432362697, 4.0: 3.8977225238, 12.0: 5.4270492778}


def blade(speed: float) -> pl.Mechanism:
    beam = pl.Beam("beam", MASS, LENGTH, STIFFNESS, bending=3 if speed == 4.0 else 6)
    hub = pl.Body("hub", 1.0, 1.0)
    joints = [pl.Revolute("O", pl.ground.at(), hub.at()), pl.Weld("root", hub.at(), beam.at())]
    motor = pl.Driver("motor", "O.angle", lambda t: speed * RATE * t)
    return pl.Mechanism([hub, beam], joints, drivers=[motor], coordinates="joint")


@pytest.mark.parametrize("speed", LAG)
def test_rotation_stiffens_a_blade(speed: float) -> None:
    turning = blade(speed)
    still = {name: 0.0 for name in turning.speed_names if name.startswith("beam.")}
    found = frequencies(turning, mbd.assemble(turning, speeds=still))
    np.testing.assert_allclose(found[0] / RATE, LAG[speed], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("speed", LAG)
def test_a_blade_at_rest_in_its_rotation_has_these_frequencies(speed: float) -> None:
    rotating = mbd.equilibrium(blade(speed), rotation={"O.angle": speed * RATE})
    assert rotating.verdict == "stable"
    imaginary = np.imag(rotating.eigenvalues)
    np.testing.assert_allclose(imaginary[imaginary > 0].min() / RATE, LAG[speed], rtol=1e-6)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_the_tip_deflects_as_by_beam_theory(coordinates: str) -> None:
    """`F L³ / 3 E I` and `q L⁴ / 8 E I`, to second order in small slopes; the wall carries the load."""
    force = 1e-3
    mechanism = cantilever(coordinates, bending=2)
    mechanism = eqx.tree_at(lambda m: m["load"].force, mechanism, jnp.asarray([0.0, force]))
    found = mbd.equilibrium(mechanism)
    np.testing.assert_allclose(found["beam.deflection"], force * LENGTH**3 / (3 * STIFFNESS), rtol=1e-7)
    np.testing.assert_allclose(found["beam.slope"], force * LENGTH**2 / (2 * STIFFNESS), rtol=1e-7)
    loads = mbd.read(mechanism, found.state, ["wall.fy", "wall.moment"])
    np.testing.assert_allclose([loads["wall.fy"], loads["wall.moment"]], [-force, -force * LENGTH], rtol=1e-7)
    assert found.verdict == "stable"


def test_energy_is_conserved_and_motions_agree_in_both_kinds_of_coordinates() -> None:
    fixed = {"O.angle": 0.6, "rod.deflection": 0.01, "rod.slope": 0.05, "rod.bending1": 0.002}
    speeds = {"O.angle": 20.0, "rod.deflection": 0.1, "rod.slope": 0.3, "rod.bending1": -0.2}
    ends = []
    for coordinates in COORDINATES:
        mechanism = crank(coordinates)
        state = mbd.assemble(mechanism, fixed, speeds=speeds)
        motion = mbd.simulate(mechanism, state, np.linspace(0, 0.1, 5), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(motion["energy"], motion["energy"][0], rtol=1e-7)
        ends.append([motion[name][-1] for name in ("rod.deflection", "rod.slope_rate", "slider.x", "B.fx", "P.fy")])
    np.testing.assert_allclose(*ends, rtol=1e-5)


def test_assembly_bends_a_beam_only_where_nothing_else_closes_the_joints() -> None:
    free = crank("absolute")
    state = mbd.assemble(free, {"O.angle": 0.6}, guess={"A.angle": -0.8, "rod.deflection": 0.001})
    np.testing.assert_allclose(state["rod.deflection"], 0.001, atol=1e-4)
    beam = pl.Beam("beam", MASS, LENGTH, STIFFNESS)
    walls = [pl.Weld("left", pl.ground.at(), beam.at()), pl.Revolute("right", beam.site("tip").at(), pl.ground.at(1.2))]
    shortened = mbd.assemble(pl.Mechanism([beam], walls), guess={"beam.bending1": 0.1})
    np.testing.assert_allclose(shortened["beam.deflection"], 0.0, atol=1e-9)
    assert shortened["beam.slope"] ** 2 + shortened["beam.bending1"] ** 2 > 0.05


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_derivatives_by_the_stiffness_are_exact(coordinates: str) -> None:
    def end(stiffness: Any) -> Any:
        mechanism = cantilever(coordinates, 9.81, stiffness, bending=1)
        state = mbd.assemble(mechanism, {"beam.deflection": 0.0, "beam.slope": 0.0, "beam.bending1": 0.0})
        motion = mbd.simulate(mechanism, state, np.array([0.0, 0.3]), rtol=1e-10, atol=1e-10)
        return motion["beam.deflection"][-1]

    value, reverse = jax.value_and_grad(end)(STIFFNESS)
    forward = jax.jvp(end, (STIFFNESS,), (1.0,))[1]
    step = 1e-3
    slope = (end(STIFFNESS + step) - end(STIFFNESS - step)) / (2 * step)
    np.testing.assert_allclose([reverse, forward], slope, rtol=1e-5)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9)
    assert value < 0


def test_damping_takes_energy_out_at_the_rate_of_its_time() -> None:
    """Of a mode with frequency `ω` and stiffness-proportional damping `β` the decay is `β ω²/2`."""
    beam = pl.Beam("beam", MASS, LENGTH, STIFFNESS, damping=1e-3)
    mechanism = pl.Mechanism([beam], [pl.Weld("wall", pl.ground.at(), beam.at())], coordinates="joint")
    values = np.asarray(mbd.linearize(mechanism, mbd.assemble(mechanism)).eigenvalues)
    first = values[np.argmin(np.abs(values))]
    np.testing.assert_allclose(-first.real, 0.5e-3 * abs(first) ** 2, rtol=1e-9)


def test_what_own_coordinates_cannot_do_says_what_is_possible() -> None:
    mechanism = cantilever("joint")
    with pytest.raises(MechanismError, match=r"Driver 'motor': 'beam.slope' is an own coordinate .* attach a part"):
        mechanism.replacing(drivers=[pl.Driver("motor", "beam.slope", 0.1)])
    with pytest.raises(MechanismError, match=r"no coordinate .*'beam'.*deflection"):
        mbd.assemble(mechanism, {"beam.bend": 0.1})
    with pytest.raises(MechanismError, match=r"'beam\.end'"):
        mechanism.with_parts([pl.Force("more", pl.Marker("beam.end"), (0.0, 1.0))])
    with pytest.raises(MechanismError, match="bending must be at most 8"):
        pl.Beam("beam", 1.0, 1.0, 1.0, bending=9)
    with pytest.raises(MechanismError, match="the site 'tip' exists"):
        pl.Beam("beam", 1.0, 1.0, 1.0, sites={"tip": 0.9})
    with pytest.raises(MechanismError, match="There is no site of beam 'beam' named 'end'"):
        mechanism["beam"].site("end")
