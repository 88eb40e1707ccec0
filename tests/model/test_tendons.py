"""Tendons: a coordinate that is a sum of others, in the plane and in space, in both kinds of coordinates."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.errors import MechanismError

RATIOS = np.array([0.3, -0.2])  # [m]
CASES = pytest.mark.parametrize(
    ("space", "coordinates"),
    [
        pytest.param(pl, "absolute", id="plane-absolute"),
        pytest.param(sp, "joint", id="space-joint"),
        pytest.param(pl, "joint", id="plane-joint", marks=pytest.mark.slow),
        pytest.param(sp, "absolute", id="space-absolute", marks=pytest.mark.slow),
    ],
)


def two_bars(space: ModuleType, coordinates: str, forces: Any = (), drivers: Any = (), joints: Any = ()) -> Any:
    """Two bars of 1 m, with a tendon over both hinges."""
    z = () if space is pl else (0.0,)
    first, second = (
        space.Body(name, m, 0.1 if space is pl else (0.1,) * 3) for name, m in (("first", 2.0), ("second", 1.0))
    )
    parts = [
        space.Revolute("J", space.ground.at(0.0, 0.0, *z), first.at(-0.5, 0.0, *z)),
        space.Revolute("K", first.at(0.5, 0.0, *z), second.at(-0.5, 0.0, *z)),
        space.Tendon("T", ("J.angle", "K.angle"), RATIOS),
        *joints,
    ]
    return space.Mechanism([first, second], parts, forces, drivers, coordinates=coordinates)


@CASES
def test_a_spring_on_a_tendon_loads_each_joint_by_its_ratio(space: ModuleType, coordinates: str) -> None:
    """Like motors with `r_k f`, after more than one whole turn; its length, rate, force and energy are read by name."""
    spring = space.JointSpringDamper("S", "T.length", 50.0, 0.1, 2.0, 3.0)
    q, v = np.array([7.3, -0.7]), np.array([1.0, 0.5])
    length, rate = RATIOS @ q, RATIOS @ v
    effort = -50.0 * (length - 0.1) - 2.0 * rate + 3.0
    motors = [
        space.JointForce(f"M{k}", f"{joint}.angle", float(r * effort))
        for k, (joint, r) in enumerate(zip("JK", RATIOS, strict=True))
    ]
    found = []
    for forces in ([spring], motors):
        mechanism = two_bars(space, coordinates, forces)
        state = mbd.assemble(mechanism, {"J.angle": q[0], "K.angle": q[1]}, speeds={"J.angle": v[0], "K.angle": v[1]})
        names = ["first.ax", "first.ay", "second.ax", "second.ay", "T.length", "T.length_rate"]
        found.append(
            mbd.read(mechanism, state, [*names, *(["S.effort", "potential_energy"] if forces == [spring] else [])])
        )
    for name, value in found[1].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-9, atol=1e-9, err_msg=name)
    expected = [length, rate, effort, 25.0 * (length - 0.1) ** 2]
    names = ["T.length", "T.length_rate", "S.effort", "potential_energy"]
    np.testing.assert_allclose([found[0][name] for name in names], expected, rtol=1e-9)


@CASES
def test_drivers_and_gears_take_a_tendon(space: ModuleType, coordinates: str) -> None:
    """A driver holds the length while the first joint turns: the second follows; a gear ties it to a third joint."""
    z = () if space is pl else (0.0,)
    wheel = space.Body("wheel", 1.0, 0.1 if space is pl else (0.1,) * 3)
    pin = space.Revolute("W", space.ground.at(2.0, 0.0, *z), wheel.at(0.0, 0.0, *z))
    bars = two_bars(space, coordinates)
    joints = [*bars.joints, pin, space.Gear("G", "T.length", "W.angle", 4.0, 0.2)]
    drivers = [space.Driver("D", "T.length", lambda t: 0.05 + 0.1 * t)]
    mechanism = space.Mechanism([*bars.bodies, wheel], joints, drivers=drivers, coordinates=coordinates)
    state = mbd.assemble(mechanism, {"J.angle": 0.4}, speeds={"J.angle": 2.0})
    names = ["K.angle", "K.angle_rate", "W.angle", "W.angle_rate"]
    values = mbd.read(mechanism, state, names)
    expected = [(0.05 - 0.3 * 0.4) / -0.2, (0.1 - 0.3 * 2.0) / -0.2, 4.0 * 0.05 + 0.2, 4.0 * 0.1]
    np.testing.assert_allclose([values[name] for name in names], expected, atol=1e-9)


def test_a_tendon_and_an_armature_are_kept_in_a_file(tmp_path: Path) -> None:
    bars = two_bars(sp, "joint")
    geared = sp.Revolute("J", sp.ground.at(), bars.bodies[0].at(-0.5, 0.0, 0.0), armature=0.25)
    mechanism = sp.Mechanism(bars.bodies, [geared, *bars.joints[1:]], coordinates="joint")
    mbd.save(mechanism, tmp_path / "model.toml")
    again = mbd.load(tmp_path / "model.toml")
    assert again["T"].coordinates == ("J.angle", "K.angle")
    np.testing.assert_array_equal(again["T"].ratios, RATIOS)
    assert float(again["J"].armature) == 0.25
    assert again["K"].armature is None


def test_mistakes_are_named() -> None:
    with pytest.raises(MechanismError, match=r"Tendon 'T': ratios must .*\(2,\)"):
        sp.Tendon("T", ("J.angle", "K.angle"), (1.0, 2.0, 3.0))
    with pytest.raises(MechanismError, match=r"Tendon: coordinates must be a sequence of names, such as \['J.angle'\]"):
        sp.Tendon("T", "J.angle", 1.0)  # pyright: ignore
    with pytest.raises(MechanismError, match=r"Tendon 'U': 'T\.length' is a tendon's length"):
        two_bars(pl, "joint", joints=[pl.Tendon("U", ["T.length"], [1.0])])
    with pytest.raises(MechanismError, match="'S': There is no coordinate of tendon 'T' named 'angle'"):
        two_bars(pl, "joint", [pl.JointForce("S", "T.angle", 1.0)])
    with pytest.raises(MechanismError, match=r"Gear 'G' couples 'J\.angle' with itself"):
        pl.Gear("G", "J.angle", "J.angle", 2.0)
