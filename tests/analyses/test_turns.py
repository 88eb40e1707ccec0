"""Prescribed turns travel across gears, racks and screws, whatever the coordinates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.marks import slow_but

CLOSED = 1e-7  # [m, rad]


def wheel(space: Any, name: str, x: float) -> Any:
    return sp.Body(name, 1.0, (0.1, 0.1, 0.2), (x, 0, 0)) if space is sp else pl.Body(name, 1.0, 0.2, (x, 0, 0))


def gears(space: Any, coordinates: str) -> Any:
    """Two gears in a row: B = −2.5 A, B = −0.5 C + 0.3."""
    bodies = [wheel(space, name, x) for name, x in zip("abc", (0.0, 1.0, 2.0), strict=True)]
    grounds = [sp.ground.at(x, 0, 0) if space is sp else pl.ground.at(x, 0) for x in (0.0, 1.0, 2.0)]
    pins = [space.Revolute(n, g, b.at()) for n, g, b in zip("ABC", grounds, bodies, strict=True)]
    pairs = [space.Gear("G", "A.angle", "B.angle", -2.5), space.Gear("H", "C.angle", "B.angle", -0.5, 0.3)]
    return space.Mechanism(bodies, [*pins, *pairs], coordinates=coordinates)


def rack(space: Any, coordinates: str) -> Any:
    """A rack whose pinion is geared down: s = 0.1 A + 0.02, B = −0.5 A."""
    pinion, other, bar = (wheel(space, name, 0.0) for name in ("pinion", "other", "bar"))
    at, along = (space.ground.at(), {"axis": "x"} if space is sp else {})
    joints = [
        space.Revolute("A", at, pinion.at()),
        space.Revolute("B", at, other.at()),
        space.Prismatic("R", space.ground.at(**along), bar.at(**along)),
        space.RackAndPinion("K", "A.angle", "R.displacement", 0.1, 0.02),
        space.Gear("G", "A.angle", "B.angle", -0.5),
    ]
    return space.Mechanism([pinion, other, bar], joints, coordinates=coordinates)


def screw(space: Any, coordinates: str) -> Any:
    """A nut on a geared screw of 10 mm a turn: S = −2.5 A."""
    nut, shaft = wheel(space, "nut", 0.0), wheel(space, "shaft", 1.0)
    joints = [
        sp.Screw("S", sp.ground.at(), nut.at(), 0.01),
        sp.Revolute("A", sp.ground.at(1, 0, 0), shaft.at()),
        sp.Gear("G", "A.angle", "S.angle", -2.5),
    ]
    return sp.Mechanism([nut, shaft], joints, coordinates=coordinates)


# What is prescribed, and all coordinates by hand.
CASES: dict[str, tuple[Any, dict[str, float], dict[str, float]]] = {
    "gears, less than a turn": (gears, {"A.angle": 1.0}, {"A.angle": 1.0, "B.angle": -2.5, "C.angle": 5.6}),
    "gears, a few turns": (gears, {"A.angle": 4.0}, {"A.angle": 4.0, "B.angle": -10.0, "C.angle": 20.6}),
    "gears, many turns": (gears, {"A.angle": 20.0}, {"A.angle": 20.0, "B.angle": -50.0, "C.angle": 100.6}),
    "gears, the last one": (gears, {"C.angle": -20.0}, {"A.angle": -4.12, "B.angle": 10.3, "C.angle": -20.0}),
    "rack, the pinion": (rack, {"A.angle": 20.0}, {"A.angle": 20.0, "B.angle": -10.0, "R.displacement": 2.02}),
    "rack, the gear": (rack, {"B.angle": -10.0}, {"A.angle": 20.0, "R.displacement": 2.02}),
    "rack, the rack": (rack, {"R.displacement": 2.02}, {"A.angle": 20.0, "B.angle": -10.0}),
    "rack, the rack's body": (rack, {"bar.x": 2.02}, {"A.angle": 20.0, "B.angle": -10.0}),
    "screw, the shaft": (screw, {"A.angle": 20.0}, {"S.angle": -50.0, "S.displacement": -0.5 / (2 * np.pi)}),
    "screw, its angle": (screw, {"S.angle": 20.0}, {"A.angle": -8.0, "S.displacement": 0.2 / (2 * np.pi)}),
    "screw, its way": (screw, {"S.displacement": 0.1}, {"A.angle": -8 * np.pi, "S.angle": 20 * np.pi}),
    "screw, the nut": (screw, {"nut.z": 0.1}, {"A.angle": -8 * np.pi, "S.angle": 20 * np.pi}),
}
ALL = [
    f"{case}, {space} {coordinates}"
    for case, (build, *_) in CASES.items()
    for space in (("space",) if build is screw else ("space", "plane"))
    for coordinates in ("absolute", "joint")
]
QUICK = ("rack, the rack, space absolute", "screw, the shaft, space absolute")


@pytest.mark.parametrize("case", slow_but(QUICK, ALL))
def test_turns_travel(case: str) -> None:
    key, _, kind = case.rpartition(", ")
    space, coordinates = kind.split()
    build, fixed, expected = CASES[key]
    mechanism = build(sp if space == "space" else pl, coordinates)
    state = mbd.assemble(mechanism, fixed)
    found = {name: float(mbd.read(mechanism, state, name)) for name in expected}
    np.testing.assert_allclose([*found.values()], [*expected.values()], atol=CLOSED)


@pytest.mark.slow
def test_the_closure_error_is_zero_many_turns_away() -> None:
    np.testing.assert_allclose(mbd.closure_error(gears(sp, "absolute"), {"A.angle": 20.0}), 0.0, atol=1e-15)


def test_speeds_and_a_motion_go_on_from_there() -> None:
    """From 20 rad the gears turn on with their ratios, without a jump in the turns."""
    mechanism = gears(sp, "absolute")
    state = mbd.assemble(mechanism, {"A.angle": 20.0}, speeds={"A.angle": 3.0})
    rates = [float(mbd.read(mechanism, state, f"{name}.angle_rate")) for name in "ABC"]
    np.testing.assert_allclose(rates, [3.0, -7.5, 15.0], atol=1e-9)
    motion = mbd.simulate(mechanism, state, np.linspace(0.0, 1.0, 3))
    np.testing.assert_allclose(motion["C.angle"], 100.6 + 15.0 * motion.ts, atol=1e-5)


@pytest.mark.slow
def test_turns_travel_inside_compiled_batches() -> None:
    """Each instance finds its own turns, with the derivatives of its ratios."""
    mechanism = gears(sp, "absolute")

    def last(angle: Any) -> Any:
        return mbd.read(mechanism, mbd.assemble(mechanism, {"A.angle": angle}), "C.angle")

    angles = jnp.array([0.1, 4.0, -20.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(last))(angles), 5.0 * angles + 0.6, atol=CLOSED)
    np.testing.assert_allclose(jax.grad(last)(20.0), 5.0, rtol=1e-9)
    np.testing.assert_allclose(jax.jvp(last, (20.0,), (1.0,))[1], 5.0, rtol=1e-9)


@pytest.mark.slow
def test_a_driver_far_ahead_is_reached() -> None:
    """The turns that a driver asks for travel as those of fixed values do."""
    mechanism = gears(sp, "absolute").replaced(drivers=[sp.Driver("motor", "A.angle", lambda t: 10.0 * t)])
    state = mbd.assemble(mechanism, t=2.0)
    np.testing.assert_allclose(float(mbd.read(mechanism, state, "C.angle")), 100.6, atol=CLOSED)
