"""ASMT files: joints by the rows of OndselSolver, motions, couplings and forces by closed forms."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.errors import MechanismError
from jaxmbd.io import ImportedModel, read
from jaxmbd.io.asmt.functions import Expression
from tests.io.asmt_text import HERE, assembly, block, joint, motion, part
from tests.io.mujoco_bench import accelerations_here
from tests.marks import slow_but

QUARTER = np.pi / 2
X_AXIS = (0.0, QUARTER, 0.0)  # the rotation vector of a marker whose z axis is x


def model(tmp_path: Path, text: str, length_unit: float = 1.0) -> ImportedModel:
    path = tmp_path / "a.asmt"
    path.write_text(text)
    return read(path, length_unit=length_unit)


ON_GROUND, ON_PART = ((0.1, 0.1, 0.0), (0.1, 0.2, 0.3)), ((0.1, 0.0, 0.2), (0.2, 0.1, 0.0))  # the markers I and J


def relative(read_model: ImportedModel) -> tuple[np.ndarray, np.ndarray]:
    """Of the markers of the file: the way from I to J in the axes of I, and the rotation from J to I."""
    pose = [float(read_model.state[f"P.{c}"]) for c in ("x", "y", "z", "e0", "e1", "e2", "e3")]
    body = Rotation.from_quat(pose[3:], scalar_first=True)
    R_i, own = Rotation.from_rotvec(ON_GROUND[1]), Rotation.from_rotvec(ON_PART[1])
    d = np.array(pose[:3]) + body.apply(ON_PART[0]) - np.array(ON_GROUND[0])
    return R_i.inv().apply(d), (R_i.inv() * body * own).as_matrix()


# The rows that OndselSolver has for each kind, of `relative`.
ROWS: dict[str, tuple[dict[str, float], Callable[[Any, Any], list[float]]]] = {
    "CylindricalJoint": ({}, lambda d, R: [d[0], d[1], R[0, 2], R[1, 2]]),
    "FixedJoint": ({}, lambda d, R: [*d, R[0, 1], R[0, 2], R[1, 2]]),
    "ParallelAxesJoint": ({}, lambda d, R: [R[0, 2], R[1, 2]]),
    "PerpendicularJoint": ({}, lambda d, R: [R[2, 2]]),
    "PlanarJoint": ({"offset": 0.2}, lambda d, R: [d[2] - 0.2, R[0, 2], R[1, 2]]),
    "PointInLineJoint": ({}, lambda d, R: [d[0], d[1]]),
    "PointInPlaneJoint": ({"offset": -0.1}, lambda d, R: [d[2] + 0.1]),
    "RevoluteJoint": ({}, lambda d, R: [*d, R[0, 2], R[1, 2]]),
    "SphericalJoint": ({}, lambda d, R: [*d]),
    "TranslationalJoint": ({}, lambda d, R: [d[0], d[1], R[0, 1], R[0, 2], R[1, 2]]),
    "AngleJoint": ({"theIzJz": 0.7}, lambda d, R: [R[2, 2] - np.cos(0.7)]),
    "SphSphJoint": ({"distanceIJ": 0.8}, lambda d, R: [d @ d - 0.64]),
    "CylSphJoint": ({"distanceIJ": 0.8}, lambda d, R: [d[0] ** 2 + d[1] ** 2 - 0.64]),
    "RevCylJoint": ({"distanceIJ": 0.8}, lambda d, R: [d[0] ** 2 + d[1] ** 2 - 0.64, R[0, 2], R[1, 2]]),
    "RevRevJoint": ({"distanceIJ": 0.8}, lambda d, R: [d[0] ** 2 + d[1] ** 2 - 0.64, d[2], R[0, 2], R[1, 2]]),
    "UniversalJoint": ({}, lambda d, R: [*d, R[2, 2]]),
    "ConstantVelocityJoint": ({}, lambda d, R: [*d, R[0, 1] + R[1, 0]]),
}


QUICK = ("AngleJoint", "ConstantVelocityJoint", "PlanarJoint", "RevRevJoint", "UniversalJoint")  # not our own rows


@pytest.mark.parametrize("kind", slow_but(QUICK, ROWS))
def test_joint_has_the_rows_of_its_kind(kind: str, tmp_path: Path) -> None:
    values, rows = ROWS[kind]
    body = part("P", ((0.3, 0.2, 0.4), (0.3, -0.4, 0.2)), {"M": ON_PART})
    found = model(tmp_path, assembly({"G": ON_GROUND}, [body], [joint(kind, "J", "G", "P/M", **values)]))
    expected = rows(*relative(found))
    np.testing.assert_allclose(expected, 0.0, atol=1e-8)
    assert found.mechanism.constraint_sizes() == (len(expected),)


def test_slider_crank_follows_its_motion(tmp_path: Path) -> None:
    """x = r cos φ + √(l² − r² sin² φ), with φ = 2πt + π/2."""
    r, length = 0.2, 0.5
    start = ((0.0, 0.0, 0.0), (0.0, 0.0, QUARTER))
    crank = part("crank", start, {"O": HERE, "P": ((r, 0, 0), (0, 0, 0))}, centre=((r / 2, 0, 0), (0, 0, 0)))
    at = np.arctan2(-r, np.sqrt(length**2 - r**2))
    rod = part("rod", ((0.0, r, 0.0), (0.0, 0.0, at)), {"P": HERE, "Q": ((length, 0, 0), (0, 0, 0))})
    slider = part("slider", ((np.sqrt(length**2 - r**2), 0, 0), (0, 0, 0)), {"Q": HERE, "S": ((0, 0, 0), X_AXIS)})
    joints = [
        joint("RevoluteJoint", "O", "G", "crank/O"),
        joint("RevoluteJoint", "P", "crank/P", "rod/P"),
        joint("RevoluteJoint", "Q", "rod/Q", "slider/Q"),
        joint("CylindricalJoint", "S", "H", "slider/S"),
    ]
    turning = motion("RotationalMotion", "turn", "O", "2.0d*pi*time + pi/2")
    text = assembly({"G": HERE, "H": ((0, 0, 0), X_AXIS)}, [crank, rod, slider], joints, [turning])
    found = model(tmp_path, text)
    assert found.remarks == ()
    assert found.duration == 2.0
    np.testing.assert_allclose(found.state["crank.omega_z"], 2 * np.pi, atol=1e-9)  # of the motion; 0 in the file
    for t in (0.0, 0.05):
        state = mbd.assemble(found.mechanism, guess=found.state, t=t)
        phi = 2 * np.pi * t + QUARTER
        expected = r * np.cos(phi) + np.sqrt(length**2 - (r * np.sin(phi)) ** 2)
        np.testing.assert_allclose([state["slider.x"], state["crank.x"]], [expected, r / 2 * np.cos(phi)], atol=1e-8)


def _turning(second: list[str], moving: list[str], coupling: list[str], markers: dict[str, Any]) -> str:
    """A wheel that a motion turns about z, three turns in a second, coupled to another part."""
    wheel = part("wheel", HERE, {"O": HERE, "Z": HERE})
    turn = motion("RotationalMotion", "turn", "O", "6*pi*time")
    joints = [coupling, joint("RevoluteJoint", "O", "G", "wheel/O"), moving]
    return assembly({"G": HERE, **markers}, [wheel, second], joints, [turn])


COUPLED = {
    # φ_J = −(r_I / r_J) φ_I
    "gear": (
        _turning(
            part("other", ((3, 0, 0), (0, 0, 0)), {"O": HERE}),
            joint("RevoluteJoint", "K", "H", "other/O"),
            joint("GearJoint", "C", "wheel/Z", "other/O", radiusI=1.0, radiusJ=2.0),
            {"H": ((3, 0, 0), (0, 0, 0))},
        ),
        "K.angle",
        -0.5,
    ),
    # The bearing's axis points the other way.
    "gear with a turned bearing": (
        _turning(
            part("other", ((3, 0, 0), (0, 0, 0)), {"O": HERE, "B": ((0, 0, 0), (np.pi, 0, 0))}),
            joint("RevoluteJoint", "K", "H", "other/B"),
            joint("GearJoint", "C", "wheel/Z", "other/O", radiusI=1.0, radiusJ=2.0),
            {"H": ((3, 0, 0), (np.pi, 0, 0))},
        ),
        "K.angle",
        0.5,
    ),
    # The wheel is the first part of its bearing: the angle is the one of the ground relative to it.
    "gear in a reversed bearing": (
        _turning(
            part("other", ((3, 0, 0), (0, 0, 0)), {"O": HERE}),
            joint("RevoluteJoint", "K", "other/O", "H"),
            joint("GearJoint", "C", "wheel/Z", "other/O", radiusI=1.0, radiusJ=2.0),
            {"H": ((3, 0, 0), (0, 0, 0))},
        ),
        "K.angle",
        0.5,
    ),
    # x + r θ is constant, of the wheel J relative to the rack I: the rack moves by +r θ along its own x.
    "rack": (
        _turning(
            part("other", ((0, -0.3, 0), (0, 0, 0)), {"R": ((0, 0.3, 0), (0, 0, 0)), "S": ((0, 0, 0), X_AXIS)}),
            joint("TranslationalJoint", "K", "H", "other/S"),
            joint("RackPinionJoint", "C", "other/R", "wheel/Z", pitchRadius=0.3),
            {"H": ((0, -0.3, 0), X_AXIS)},
        ),
        "K.displacement",
        0.3,
    ),
    # 2π z − p θ is constant, of the nut J relative to the screw I; the nut does not turn: θ = −φ.
    "screw": (
        _turning(
            part("other", ((0, 0, 0.5), (0, 0, 0)), {"N": HERE}),
            joint("TranslationalJoint", "K", "G", "other/N"),
            joint("ScrewJoint", "C", "wheel/Z", "other/N", pitch=0.02),
            {},
        ),
        "K.displacement",
        -0.02 / (2 * np.pi),
    ),
}


@pytest.mark.parametrize("kind", ["gear in a reversed bearing", "screw"])
def test_couplings_keep_their_ratio(kind: str, tmp_path: Path) -> None:
    text, coordinate, ratio = COUPLED[kind]
    found = model(tmp_path, text)
    assert found.lost == ()
    states = [mbd.assemble(found.mechanism, guess=found.state, t=t) for t in (0.0, 0.05)]
    before, after = (np.asarray(mbd.read(found.mechanism, state, coordinate)) for state in states)
    np.testing.assert_allclose(after - before, ratio * 6 * np.pi * 0.05, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUPLED)
def test_couplings_keep_their_ratio_over_several_turns(kind: str, tmp_path: Path) -> None:
    text, coordinate, ratio = COUPLED[kind]
    found = model(tmp_path, text)
    t = np.linspace(0.0, 1.0, 5)
    solution = mbd.kinematics(found.mechanism, t, found.state)
    moved = np.asarray(solution[coordinate]) - np.asarray(solution[coordinate])[0]
    np.testing.assert_allclose(moved, ratio * 6 * np.pi * t, atol=1e-7)


def test_forces_gravity_and_speeds(tmp_path: Path) -> None:
    """A part of 2 kg that falls and is pulled by a spring; its speeds are those of its centre of mass."""
    block_force = block(
        "InLineForceTorque", block("Name", "F"), block("MarkerI", "/A/G"), block("MarkerJ", "/A/P/M"),
        block("tension", "(1.0d + 10.0d*(rIJ(self) + (-0.5d)) + 2.0d*vrIJ(self))"), block("twist", "0"),
    )  # fmt: skip
    body = part(
        "P", ((1.0, 0, 0), (0, 0, QUARTER)), {"M": ((0.5, 0, 0), (0, 0, 0))}, centre=((0.5, 0, 0), (0, 0, 0)), mass=2.0,
        velocity=(0.1, 0.3, 0.0), omega=(0.0, 0.0, 2.0),
    )  # fmt: skip
    found = model(tmp_path, assembly({"G": ((1.0, -1.0, 0), (0, 0, 0))}, [body], [], [], [block_force], (0, 0, -9.81)))
    speeds = [float(found.state[f"P.{c}"]) for c in ("vx", "vy", "vz", "omega_z")]
    np.testing.assert_allclose(speeds, [0.1 - 2.0 * 0.5, 0.3, 0.0, 2.0], atol=1e-12)
    (found_v,) = accelerations_here(found.mechanism, np.asarray(found.state.q)[None], np.asarray(found.state.v)[None])
    tension = 1.0 + 10.0 * (1.5 - 0.5) + 2.0 * 0.3
    expected = [0.0, -tension / 2.0, -9.81]
    np.testing.assert_allclose([found_v[f"P.v{axis}"] for axis in "xyz"], expected, atol=1e-9)


def test_speeds_of_parts_without_mass(tmp_path: Path) -> None:
    """Joint coordinates carry such parts; their rates are those of the file's twists: 2 rad/s, and −1 − 2 rad/s."""
    z = (0.0, 0.0, 0.0)
    arm = part(
        "arm", ((0.5, 0, 0), z), {"I": ((-0.5, 0, 0), z), "O": ((0.5, 0, 0), z)}, mass=0.0, moments=z,
        velocity=(0.0, 1.0, 0.0), omega=(0.0, 0.0, 2.0),
    )  # fmt: skip
    bob = part(
        "bob", ((1.5, 0, 0), z), {"I": ((-0.5, 0, 0), z)}, mass=2.0, velocity=(0.0, 1.5, 0.0), omega=(0.0, 0.0, -1.0)
    )
    pins = [joint("RevoluteJoint", "J", "G", "arm/I"), joint("RevoluteJoint", "K", "arm/O", "bob/I")]
    found = model(tmp_path, assembly({"G": (z, z)}, [arm, bob], pins, [], [], (0, 0, 0)))
    assert not found.lost
    rates = [float(found.state[f"{name}.angle_rate"]) for name in "JK"]
    np.testing.assert_allclose(rates, [2.0, -3.0], atol=1e-12)


def test_lengths_in_millimetres_are_scaled_and_remarked(tmp_path: Path) -> None:
    """Places, speeds, inertias, offsets, motions and forces of a file in kg, mm, s."""
    pull = block(
        "InLineForceTorque", block("Name", "F"), block("MarkerI", "/A/G"), block("MarkerJ", "/A/P/M"),
        block("tension", "2000 + 3*(rIJ(self) - 100) + 5*vrIJ(self)"),
    )  # fmt: skip
    body = part(
        "P", ((0, 0, 500), (0, 0, 0)), {"M": HERE}, centre=((0, 200, 0), (0, 0, 0)), moments=(2e4, 2e4, 3e4),
        velocity=(0, 0, 40),
    )  # fmt: skip
    sliding = joint("TranslationalJoint", "J", "G", "P/M")
    moving = motion("TranslationalMotion", "m", "J", "500 + 40*time")
    plane = joint("PointInPlaneJoint", "K", "G", "P/M", offset=500.0)
    text = assembly({"G": HERE}, [body], [sliding, plane], [moving], [pull], (0, 0, -9810))
    mechanism = model(tmp_path, text, 1e-3).mechanism
    np.testing.assert_allclose(mechanism["P"].pose[:3], [0, 0.2, 0.5])
    np.testing.assert_allclose(np.diag(mechanism["P"].inertia), [0.02, 0.02, 0.03])
    np.testing.assert_allclose(mechanism["K"].a.position, [0, 0, 0.5])
    np.testing.assert_allclose(mechanism["gravity"].acceleration, [0, 0, -9.81])
    t = jnp.asarray(2.0)
    np.testing.assert_allclose(mechanism["m"].value(t), 0.58)
    np.testing.assert_allclose(mechanism["F"].tension(t, jnp.asarray(0.5), jnp.asarray(0.04)), 2.0 + 1.2 + 0.2)
    unsaid = read(tmp_path / "a.asmt")
    np.testing.assert_allclose(unsaid.mechanism["P"].pose[:3], [0, 200, 500])
    assert [str(remark) for remark in unsaid.remarks] == [
        "line 1: lengths are read in metres; FreeCAD writes millimetres: read(..., length_unit=0.001), for the command "
        "--length-unit 0.001"
    ]
    with pytest.raises(MechanismError, match=r"read: length_unit must be positive \[m\] and finite, got 0"):
        read(tmp_path / "a.asmt", length_unit=0.0)
    assert model(tmp_path, text, 1e-3).speeds == {"P.vz": 0.04}


def test_limits_and_unknown_parts_are_remarked(tmp_path: Path) -> None:
    parts = [part("P", HERE, {"M": HERE}), part("Q", HERE, {"M": HERE})]
    joints = [
        joint("RevoluteJoint", "J", "G", "P/M"),
        joint("CurveCurveContact", "K", "G", "Q/None"),
        joint("FixedJoint", "L", "P/M", "P/MassMarker"),
        joint("SphericalJoint", "", "G", "Q/M"),
        joint("ParallelAxesJoint", "", "G", "Q/M"),
    ]
    text = assembly({"G": HERE}, parts, joints, [block("AllowRotation", block("Name", "R"))])
    text = text.replace("\t\tGeneralConstraintSets", "\t\tLimits\n\t\t\tRotationLimit\n\t\t\t\tName\n\t\t\t\t\tS")
    found = model(tmp_path, text)
    assert [remark.part for remark in found.lost] == [
        "CurveCurveContact 'K'",
        "FixedJoint 'L'",
        "AllowRotation 'R'",
        "RotationLimit 'S'",
    ]
    assert [part.name for part in found.mechanism.joints] == ["J", "joint", "joint2"]  # two have no name
    lines = text.splitlines()
    assert all(remark.line and remark.part.split()[0] == lines[remark.line - 1].strip() for remark in found.lost)


def test_expressions_are_evaluated_as_written() -> None:
    text = '(0 + 70*sin((360*time - 90.0d)*pi/180.0d))*pi/180.0d"a comment"<n> - 2^-1 + sqrt(4) + abs(-1.5)'
    expected = 70 * np.sin((360 * 0.2 - 90) * np.pi / 180) * np.pi / 180 - 0.5 + 2 + 1.5
    np.testing.assert_allclose(Expression(text)(jnp.asarray(0.2)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "text", ["__import__('os')", "time.real", "x + 1", "sin(time, 2)", "[time]", "1 if time else 2"]
)
def test_expressions_that_are_no_arithmetic_raise(text: str) -> None:
    with pytest.raises(MechanismError, match=r"is unknown; known are numbers"):
        Expression(text)
