"""SDF files: frames, joints of every kind, loops against the linkage built by hand, mistakes."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.errors import MechanismError
from jaxmbd.io import ImportedModel, read
from tests.io.mujoco_bench import accelerations_here
from tests.io.test_urdf import planar_acceleration

EXACT = 1e-9


def inertial(mass: float, moment: float, at: str = "0 0 0 0 0 0") -> str:
    moments = "".join(f"<i{k}>{moment}</i{k}>" for k in ("xx", "yy", "zz"))
    return f"<inertial><pose>{at}</pose><mass>{mass}</mass><inertia>{moments}</inertia></inertial>"


def model(folder: Path, content: str, version: str = "1.9") -> ImportedModel:
    path = folder / "model.sdf"
    path.write_text(f'<sdf version="{version}">{content}</sdf>')
    return read(path)


def test_pendulum_swings_with_its_period(tmp_path: Path) -> None:
    """A world with gravity 9.7 m/s²; the joint is in the middle of nowhere, placed relative to another frame."""
    found = model(
        tmp_path,
        f"""<world name="w"><gravity>0 0 -9.7</gravity><model name="m"><pose>1 2 3 0 0 0.7</pose>
        <frame name="hook"><pose>0 0 0.5 0 0 0</pose></frame>
        <link name="bob"><pose relative_to="hook">0 0 -0.8 0 0 0</pose>{inertial(2.0, 0.1)}</link>
        <joint name="pin" type="revolute"><parent>world</parent><child>bob</child><pose relative_to="hook"/>
        <axis><xyz expressed_in="__model__">0 1 0</xyz></axis></joint></model></world>""",
    )
    assert found.remarks == ()
    omega = np.sqrt(2.0 * 9.7 * 0.8 / (0.1 + 2.0 * 0.64))
    mechanism = found.mechanism
    state = mbd.assemble(mechanism, {"pin.angle": 1e-3})
    solution = mbd.simulate(mechanism, state, jnp.linspace(0, 2 * np.pi / omega, 5), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(solution["pin.angle"], 1e-3 * np.cos(np.pi / 2 * np.arange(5)), atol=1e-8)
    start = mbd.read(mechanism, mbd.assemble(mechanism, {"pin.angle": 0.0}), "bob.position")
    np.testing.assert_allclose(start, [1.0, 2.0, 2.7], atol=1e-12)


def test_loop_of_four_bars_is_the_one_built_by_hand(tmp_path: Path) -> None:
    """The linkage of the URDF tests; its fourth joint closes the loop like the others, and poses are in the model."""
    angles = "1.5707963267948966 0 0"
    found = model(
        tmp_path,
        f"""<world name="w"><gravity>0 0 -9.81</gravity><model name="linkage">
        <link name="crank"><pose>0 0 0 {angles}</pose>{inertial(0.3, 0.003, "0 0.15 0 0 0 0")}</link>
        <link name="coupler"><pose relative_to="crank">0 0.3 0 0 0 0</pose>
          {inertial(0.6, 0.02, "0.3 0.1 0 0 0 0")}</link>
        <link name="rocker"><pose>0.7 0 0 {angles}</pose>{inertial(0.5, 0.01, "-0.05 0.25 0 0 0 0")}</link>
        <joint name="A" type="continuous"><parent>world</parent><child>crank</child><axis/></joint>
        <joint name="B" type="revolute"><parent>crank</parent><child>coupler</child>
          <axis><xyz>0 0 1</xyz></axis></joint>
        <joint name="C" type="revolute"><parent>coupler</parent><child>rocker</child>
          <pose>-0.1 0.5 0 0 0 0</pose><axis><xyz>0 0 1</xyz></axis></joint>
        <joint name="D" type="revolute"><parent>world</parent><child>rocker</child><axis/></joint>
        </model></world>""",
    )
    mechanism, state = found.mechanism, found.state
    assert state.rank is not None
    assert mechanism.nv - int(state.rank) == 1
    assert np.abs(state.q).max() < 1e-9
    (rates,) = accelerations_here(mechanism, np.asarray(state.q)[None], np.zeros((1, mechanism.nv)))
    np.testing.assert_allclose(rates["A.angle_rate"], planar_acceleration(), rtol=EXACT)


# Each joint of a body that turns about skew axes, against the same joint made by hand.
TURN = Rotation.from_euler("xyz", [0.3, -0.4, 0.5])
JOINTS = {
    "prismatic": ("<axis><xyz>1 2 3</xyz></axis>", (1, 2, 3), None),
    "revolute": ("<axis><xyz>1 2 3</xyz></axis>", (1, 2, 3), None),
    "screw": ("<axis><xyz>1 2 3</xyz></axis><screw_thread_pitch>0.4</screw_thread_pitch>", (1, 2, 3), None),
    "ball": ("", None, None),
    "universal": ("<axis><xyz>2 0 1</xyz></axis><axis2><xyz>0 1 0</xyz></axis2>", (2, 0, 1), (0, 1, 0)),
    "revolute2": ("<axis><xyz>2 0 1</xyz></axis><axis2><xyz>1 1 0</xyz></axis2>", (2, 0, 1), (1, 1, 0)),
}


def freedoms(kind: str, first: Any, second: Any) -> np.ndarray:
    """Velocities of the body's centre of mass and its angular velocities that the joint allows, in world axes."""
    arm = TURN.apply([0.2, 0.1, -0.3])  # from the joint's origin, on the link's frame, to the centre of mass
    axes = [TURN.apply(np.asarray(axis, float)) / np.linalg.norm(axis) for axis in (first, second) if axis is not None]
    slide = {"prismatic": 1.0, "screw": 0.4 / (2 * np.pi)}.get(kind, 0.0)
    turning = [np.zeros(3)] if kind == "prismatic" else axes if axes else list(np.eye(3))
    return np.array([[*(np.cross(w, arm) + (slide * axes[0] if slide else 0.0)), *w] for w in turning])


@pytest.mark.parametrize("kind", JOINTS)
def test_joints_allow_the_motions_of_their_kind(kind: str, tmp_path: Path) -> None:
    elements, first, second = JOINTS[kind]
    roll = " ".join(map(repr, TURN.as_euler("xyz").tolist()))
    found = model(
        tmp_path,
        f"""<model name="m"><link name="b"><pose>0.5 0 1 {roll}</pose>{inertial(1.0, 0.1, "0.2 0.1 -0.3 0 0 0")}</link>
        <joint name="J" type="{kind}"><parent>world</parent><child>b</child>{elements}</joint></model>""",
    )
    mechanism = found.mechanism
    state = found.state
    at = mbd.Equations(mechanism).at(state.t, state.q)
    J = np.array([np.asarray(at.twists(jnp.eye(mechanism.nv)[k]))[0] for k in range(mechanism.nv)])
    J[:, 3:] = TURN.apply(J[:, 3:])  # angular velocities are in the axes of the body
    expected = freedoms(kind, first, second)
    assert np.linalg.matrix_rank(J, 1e-9) == len(expected)
    assert np.linalg.matrix_rank(np.concatenate([J, expected]), 1e-9) == len(expected)


def test_frames_nest_and_poses_take_degrees_and_quaternions(tmp_path: Path) -> None:
    """An axis is written in the frame of another model; a nested model carries a link to which a joint refers."""
    found = model(
        tmp_path,
        f"""<model name="outer"><pose degrees="true">0 0 1 0 0 90</pose>
        <link name="base">{inertial(1.0, 0.1)}</link>
        <model name="inner"><pose relative_to="base" rotation_format="quat_xyzw">1 0 0 0 0 0.70710678 0.70710678</pose>
          <link name="tip"><pose>0 2 0 0 0 0</pose>{inertial(1.0, 0.1)}</link>
          <frame name="eye" attached_to="tip"><pose>0 0 3 0 0 0</pose></frame></model>
        <joint name="fix" type="fixed"><parent>world</parent><child>base</child></joint>
        <joint name="J" type="prismatic"><parent>base</parent><child>inner::eye</child>
          <axis><xyz expressed_in="inner">1 0 0</xyz></axis></joint></model>""",
    )
    mechanism = found.mechanism
    values = [
        mbd.read(mechanism, mbd.assemble(mechanism, {"J.displacement": d}), "inner::tip.position") for d in (0, 0.5)
    ]
    np.testing.assert_allclose(values[0], [0.0, -1.0, 1.0], atol=1e-7)  # 1 along y, then 2 along −y
    np.testing.assert_allclose(values[1] - values[0], [-0.5, 0.0, 0.0], atol=1e-7)


def test_springs_friction_mimics_and_gearboxes(tmp_path: Path) -> None:
    wheels = "".join(
        f"""<link name="{name}"><pose>{k} 0 0 0 0 0</pose>{inertial(1.0, 0.1)}</link>
        <joint name="{name}_pin" type="revolute"><parent>{parent}</parent><child>{child}</child>
        <pose relative_to="{name}"/><axis><xyz>0 0 {z}</xyz>{more}</axis></joint>"""
        for k, (name, parent, child, z, more) in enumerate(
            [
                ("one", "world", "one", 1, "<dynamics><damping>0.3</damping><spring_stiffness>2</spring_stiffness>"
                 "<spring_reference>0.4</spring_reference></dynamics>"),
                ("two", "world", "two", 1, "<mimic joint='one_pin'><multiplier>-2</multiplier><offset>0.1</offset>"
                 "<reference>0.3</reference></mimic>"),
                ("three", "world", "three", -1, ""),
            ]
        )
    )  # fmt: skip
    box = """<joint name="box" type="gearbox"><parent>one</parent><child>three</child><gearbox_ratio>3</gearbox_ratio>
        <gearbox_reference_body>world</gearbox_reference_body><axis><xyz>0 0 1</xyz></axis>
        <axis2><xyz>0 0 1</xyz></axis2></joint>"""
    found = model(tmp_path, f'<model name="m">{wheels}{box}</model>')
    mechanism = found.mechanism
    state = mbd.assemble(mechanism, {"one_pin.angle": 0.5}, speeds={"one_pin.angle": 1.0})
    np.testing.assert_allclose(state["two_pin.angle"], -2 * (0.5 - 0.3) + 0.1, atol=1e-9)
    np.testing.assert_allclose(state["three_pin.angle"], 3 * 0.5, atol=1e-9)  # −3 about z, and its own axis is −z
    moment = -2.0 * (0.5 - 0.4) - 0.3 * 1.0
    acceleration = mbd.read(mechanism, state, "one.alpha_z")
    np.testing.assert_allclose(acceleration, moment / (0.1 * (1 + 4 + 9)), rtol=1e-9)


def test_what_has_no_counterpart_is_remarked(tmp_path: Path) -> None:
    found = model(
        tmp_path,
        """
<world name="w"><plugin name="p" filename="x"/><include><uri>model://sun</uri></include>
<model name="wall"><static>true</static><link name="stone"/></model>
<model name="m">
<link name="b"><gravity>false</gravity><sensor name="s" type="imu"/><sensor name="t" type="imu"/></link>
<joint name="J" type="revolute"><parent>world</parent><child>b</child>
<axis><limit><lower>-1</lower><upper>1</upper></limit><dynamics><friction>0.2</friction></dynamics></axis></joint>
</model></world>""",
    )
    assert [(remark.line, remark.text) for remark in found.lost] == [
        (2, "has <plugin>, which is left out"),
        (2, "has <include>, which is left out"),
        (5, "has 2 x <sensor>, which is left out"),
        (5, "has <gravity> false, which is left out"),
        (7, "has the range [-1.0, 1.0], which nothing enforces; add a JointStop"),
        (7, "has dry friction, whose sign is smoothed over 0.01 rad/s or m/s"),
    ]
    body = found.mechanism["m::b"]
    np.testing.assert_allclose([float(body.mass), *np.diag(body.inertia)], 1.0)


WRONG = {
    '<model name="m"><link name="a"/><link name="a"/></model>': "there is another element of this name in line 1",
    '<model name="m"><link name="a"><pose relative_to="b"/></link></model>': "There is no frame named 'b'",
    '<model name="m"><frame name="f"><pose relative_to="g"/></frame><frame name="g"><pose relative_to="f"/></frame>'
    '<link name="a"><pose relative_to="f"/></link></model>': "its pose is relative to itself, by way of others",
    '<model name="m"><link name="a"/><frame name="f" attached_to="f"/><joint name="J" type="fixed"><parent>f</parent>'
    "<child>a</child></joint></model>": "is attached to itself, by way of others",
    '<model name="m"><link name="a"/><joint name="J" type="knee"><parent>world</parent>'
    "<child>a</child></joint></model>":
    "type must be one of revolute, continuous",
    '<model name="m"><link name="a"/><joint name="J" type="fixed"><child>a</child>'
    "</joint></model>": "it has no <parent>",
    '<model name="m"><link name="a"><pose>1 2 x</pose></link></model>': "must hold 6 finite numbers, got '1 2 x'",
    '<model name="m"><link name="a"><inertial><mass>-1</mass></inertial></link></model>': "of link 'a': .*mass",
    '<model name="m"><static>perhaps</static><link name="a"/></model>': "must be true or false, got 'perhaps'",
    '<model name="m"><static>1</static><link name="a"/></model>': "it has no link that can move",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_are_named_with_their_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(MechanismError, match=f"line 1: .*{WRONG[text]}"):
        model(tmp_path, text)
