"""URDF files: trees against MuJoCo's reader of them, loops in all forms against a planar linkage."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
import jaxmbd.planar as pl
from jaxmbd.errors import MechanismError
from jaxmbd.io import read
from tests.io.mujoco_bench import accelerations_here, accelerations_there, largest_difference, put
from tests.marks import slow_but

EXACT = 1e-9

ARM = """<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial>
    <origin xyz="0.1 0.2 0.3" rpy="0.3 0.2 0.1"/><mass value="1.5"/>
    <inertia ixx="0.1" ixy="0.01" ixz="0.02" iyy="0.12" iyz="-0.01" izz="0.13"/></inertial></link>
  <link name="lower"><inertial>
    <origin xyz="0.1 0 -0.3" rpy="0 0.2 0.1"/><mass value="0.5"/>
    <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.012" iyz="0" izz="0.013"/></inertial></link>
  <link name="tool"><inertial>
    <mass value="0.4"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.012" iyz="0" izz="0.013"/></inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
    <origin xyz="0.1 0.2 0.3" rpy="0.5 0.4 0.3"/><axis xyz="1 2 3"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/><dynamics damping="0.3"/></joint>
  <joint name="slide" type="prismatic"><parent link="upper"/><child link="lower"/>
    <origin xyz="0.1 0.2 -0.3" rpy="-0.5 0.4 0.3"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
  <joint name="flange" type="fixed"><parent link="lower"/><child link="tool"/>
    <origin xyz="0.1 0.2 -0.3" rpy="-0.5 0.4 0.3"/></joint>
</robot>"""

# A four-bar linkage A B C D in the xz plane, closed where all angles are zero; C is open.
LINKAGE = """<robot name="linkage" xmlns:drake="https://drake.mit.edu">
  <link name="base"/>
  <link name="crank"><inertial><origin xyz="0 0.15 0"/><mass value="0.3"/>
    <inertia ixx="0.002" ixy="0" ixz="0" iyy="0.002" iyz="0" izz="0.003"/></inertial></link>
  <link name="coupler"><inertial><origin xyz="0.3 0.1 0"/><mass value="0.6"/>
    <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.02"/></inertial></link>
  <link name="rocker"><inertial><origin xyz="-0.05 0.25 0"/><mass value="0.5"/>
    <inertia ixx="0.007" ixy="0" ixz="0" iyy="0.006" iyz="0" izz="0.01"/></inertial></link>
  <joint name="A" type="continuous"><parent link="base"/><child link="crank"/>
    <origin rpy="1.5707963267948966 0 0"/><axis xyz="0 0 1"/></joint>
  <joint name="B" type="continuous"><parent link="crank"/><child link="coupler"/>
    <origin xyz="0 0.3 0"/><axis xyz="0 0 1"/></joint>
  <joint name="D" type="continuous"><parent link="base"/><child link="rocker"/>
    <origin xyz="0.7 0 0" rpy="1.5707963267948966 0 0"/><axis xyz="0 0 1"/></joint>
  CLOSURE
</robot>"""

CLOSURES = {
    "Isaac Sim": """<loop_joint name="C" type="spherical">
        <link1 link="coupler" rpy="0 0 0" xyz="0.6 0.2 0"/><link1 link="rocker" rpy="0 0 0" xyz="-0.1 0.5 0"/>
        </loop_joint>""",
    "Drake's older parser": """<loop_joint name="C" type="continuous"><axis xyz="0 0 1"/>
        <link1 link="coupler"><origin xyz="0.6 0.2 0"/></link1>
        <link2 link="rocker"><origin xyz="-0.1 0.5 0"/></link2></loop_joint>""",
    "SDF": """<gazebo><joint name="C" type="revolute"><pose>-0.1 0.5 0 0 0 0</pose>
        <parent>coupler</parent><child>rocker</child><axis><xyz>0 0 1</xyz></axis></joint></gazebo>""",
    "Drake": """<drake:ball_constraint>
        <drake:ball_constraint_body_A name="coupler"/><drake:ball_constraint_p_AP value="0.6 0.2 0"/>
        <drake:ball_constraint_body_B name="rocker"/><drake:ball_constraint_p_BQ value="-0.1 0.5 0"/>
        </drake:ball_constraint>""",
    "onshape-to-robot": """<link name="closing_C_1"/><link name="closing_C_2"/>
        <joint name="C1" type="fixed"><parent link="coupler"/><child link="closing_C_1"/>
        <origin xyz="0.6 0.2 0"/></joint>
        <joint name="C2" type="fixed"><parent link="rocker"/><child link="closing_C_2"/>
        <origin xyz="-0.1 0.5 0"/></joint>""",
    "side file": "",
    "YAML": """<link name="end"/><link name="tip"/>
        <joint name="C1" type="fixed"><parent link="coupler"/><child link="end"/><origin xyz="0.6 0.2 0"/></joint>
        <joint name="C2" type="fixed"><parent link="rocker"/><child link="tip"/><origin xyz="-0.1 0.5 0"/></joint>""",
}
YAML = "closed_loop: [['end', 'C2']]  # a link, and a joint, whose frame is that of its child\ntype: '3D'\n"
SIDE_FILE = """[[loop]]
name = "C"
type = "revolute"
axis = [0, 0, 1]
link1 = { link = "coupler", xyz = [0.6, 0.2, 0] }
link2 = { link = "rocker", xyz = [-0.1, 0.5, 0.0], rpy = [0, 0, 0] }
"""


@cache
def planar_acceleration() -> float:
    """The acceleration of the crank's angle from rest, of the same linkage in the plane."""
    crank = pl.Body("crank", 0.3, 0.003, (0, 0.15, 0))
    coupler, rocker = pl.Body("coupler", 0.6, 0.02, (0.3, 0.4, 0)), pl.Body("rocker", 0.5, 0.01, (0.65, 0.25, 0))
    joints = [
        pl.Revolute("A", pl.ground.at(), crank.at(0, -0.15)),
        pl.Revolute("B", crank.at(0, 0.15), coupler.at(-0.3, -0.1)),
        pl.Revolute("C", coupler.at(0.3, 0.1), rocker.at(-0.05, 0.25)),
        pl.Revolute("D", pl.ground.at(0.7, 0), rocker.at(0.05, -0.25)),
    ]
    mechanism = pl.Mechanism([crank, coupler, rocker], joints, [pl.Gravity(9.81)])
    q = np.concatenate([np.asarray(body.pose) for body in mechanism.bodies])
    (found,) = accelerations_here(mechanism, q[None], np.zeros((1, 9)))
    return found["crank.omega"]


QUICK = ("SDF", "side file", "YAML")  # the ones least alike


@pytest.mark.parametrize("form", slow_but(QUICK, CLOSURES))
def test_loops_in_every_form_close_the_same_linkage(form: str, tmp_path: Path) -> None:
    path = tmp_path / "linkage.urdf"
    path.write_text(LINKAGE.replace("CLOSURE", CLOSURES[form]))
    if form == "side file":
        (tmp_path / "linkage.loops.toml").write_text(SIDE_FILE)
    if form == "YAML":
        (tmp_path / "linkage.yaml").write_text(YAML)
    model = read(path, strict=True)
    mechanism, state = model.mechanism, model.state
    assert np.abs(state.q).max() < 1e-9  # closed as it is
    assert mechanism.nv - int(state.rank) == 1
    (found,) = accelerations_here(mechanism, np.zeros((1, mechanism.nq)), np.zeros((1, mechanism.nv)))
    np.testing.assert_allclose(found["A.angle_rate"], planar_acceleration(), rtol=EXACT)


def test_yaml_makes_joints_spherical_and_its_mistakes_are_named(tmp_path: Path) -> None:
    path, side = tmp_path / "linkage.urdf", tmp_path / "linkage.yaml"
    path.write_text(LINKAGE.replace("CLOSURE", CLOSURES["YAML"]))
    side.write_text("closed_loop: [[end, tip]]\ntype: [6d]\njoint_name: [B]\njoint_type: [SPHERICAL]\nname_mot: mot\n")
    model = read(path, strict=True)
    names = [name for name in model.mechanism.coordinate_names if name.startswith("B.")]
    assert names == ["B.e0", "B.e1", "B.e2", "B.e3"]
    assert [type(part).__name__ for part in model.mechanism.joints][-1] == "FixedConstraint"
    wrong = {
        "closed_loop: [[end]]": "closed_loop must be a list of pairs of names",
        "closed_loop: [[end, tipp]]": "closed_loop: There is no link or joint named 'tipp'. Did you mean 'tip'?",
        "closed_loop: [[end, C1]]": "'end' and 'C1' are frames of one body",
        "closed_loop: [[end, tip]]\ntype: [3d, 3d]": "type must have as many entries as there are items, 1; it has 2",
        "closed_loop: [[end, tip]]\ntype: 4d": "type must be one of 3d, 6d, got '4d'",
        "joint_name: [Z]": "joint_name: There is no joint named 'Z'",
        "closed_loop: [[end, tip]": r"line \d+: no well-formed YAML",
        "!!python/object/apply:os.system [ls]": "no well-formed YAML",
        "closed_loop: " + "[" * 5000: "no well-formed YAML",
    }
    for text, message in wrong.items():
        side.write_text(text)
        with pytest.raises(MechanismError, match=message.replace("[", r"\[").replace("?", r"\?")):
            read(path)


def test_tree_accelerates_as_in_mujoco_which_reads_urdf_too(tmp_path: Path) -> None:
    mujoco: Any = pytest.importorskip("mujoco")
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    model, m = read(path), mujoco.MjModel.from_xml_path(str(path))
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_LIMIT)
    assert float(model.mechanism["shoulder_friction"].viscous) == 0.3
    m.dof_frictionloss[:] = 0.0  # some versions read damping as friction
    m.dof_damping[:] = [0.3, 0.0]
    d = mujoco.MjData(m)
    q, v = np.array([[0.4, -0.3]]), np.array([[1.2, 0.7]])
    names = model.mechanism.coordinate_names, model.mechanism.speed_names
    put(mujoco, m, d, *(dict(zip(n, x[0].tolist(), strict=True)) for n, x in zip(names, (q, v), strict=True)))
    (here,) = accelerations_here(model.mechanism, q, v)
    assert largest_difference(accelerations_there(m, d), here) < EXACT


@pytest.mark.parametrize(
    ("mimics", "text"),
    [
        ({"A": "A"}, r"line \d+: <mimic>: joint 'A' mimics itself; one joint"),
        ({"A": "B", "B": "D", "D": "A"}, r"joint 'A' mimics itself, by way of 'B' and 'D'"),
        ({"A": "B", "B": "D", "D": "B"}, r"joint 'B' mimics itself, by way of 'D'"),
    ],
)
def test_mimics_in_a_circle_are_refused(mimics: dict[str, str], text: str, tmp_path: Path) -> None:
    path, robot = tmp_path / "circle.urdf", LINKAGE.replace("CLOSURE", "")
    for follower, leader in mimics.items():
        start = f'<joint name="{follower}" type="continuous">'
        robot = robot.replace(start, f'{start}<mimic joint="{leader}"/>')
    path.write_text(robot)
    with pytest.raises(MechanismError, match=text):
        read(path)


def test_mimic_is_a_gear_and_limits_are_remarked(tmp_path: Path) -> None:
    path = tmp_path / "mimic.urdf"
    follower = (
        '<limit lower="-1" upper="1" effort="1" velocity="1"/><mimic joint="shoulder" multiplier="-2" offset="0.1"/>'
    )
    path.write_text(ARM.replace('<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>', f"{follower}</joint>"))
    model = read(path)
    state = mbd.assemble(model.mechanism, {"shoulder.angle": 0.3})
    np.testing.assert_allclose(state["slide.displacement"], -0.5, atol=1e-9)
    assert [(remark.part, remark.line) for remark in model.lost] == [("joint 'shoulder'", 13), ("joint 'slide'", 16)]
    with pytest.raises(MechanismError, match="line 13: joint 'shoulder' has limits"):
        read(path, strict=True)


def test_bushing_of_drake_is_a_bushing_between_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "bushing.urdf"
    bushing = """<frame name="F" link="base" xyz="1 2 3" rpy="0 0 0.5"/><frame name="T" link="tool" xyz="0 0 1"/>
      <drake:linear_bushing_rpy><drake:bushing_frameA name="F"/><drake:bushing_frameC name="T"/>
        <drake:bushing_torque_stiffness value="4 5 6"/><drake:bushing_torque_damping value="0.4 0.5 0.6"/>
        <drake:bushing_force_stiffness value="1 2 3"/><drake:bushing_force_damping value="0.1 0.2 0.3"/>
      </drake:linear_bushing_rpy></robot>"""
    path.write_text(ARM.replace("</robot>", bushing))
    bushed = read(path).mechanism["bushing"]
    np.testing.assert_allclose(bushed.stiffness, [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(bushed.damping, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert (bushed.a.body, bushed.b.body) == ("ground", "tool")
    np.testing.assert_allclose(bushed.a.position, [1, 2, 3])
    np.testing.assert_allclose(bushed.a.rotation, [np.cos(0.25), 0, 0, np.sin(0.25)], atol=1e-15)
    np.testing.assert_allclose(bushed.b.position, [0, 0, 1])


def test_elements_without_a_counterpart_are_remarked(tmp_path: Path) -> None:
    path = tmp_path / "rest.urdf"
    extra = """<transmission name="t"/>
  <gazebo><plugin name="p"/><material>Red</material></gazebo>
  <loop_joint name="L" type="spherical"><link1 link="tool"/><link2 link="base"/><dynamics damping="1"/></loop_joint>
</robot>"""
    text = ARM.replace("</robot>", extra).replace('<link name="base"/>', '<link name="base"><contact/></link>')
    path.write_text(text.replace('<axis xyz="0 1 0"/>', '<axis xyz="0 1 0"/><hardware/>'))
    lost = [(remark.line, str(remark).partition(": ")[2]) for remark in read(path).lost if "limits" not in remark.text]
    assert lost == [
        (2, "link 'base' has <contact>, which is left out"),
        (15, "joint 'slide' has <hardware>, which is left out"),
        (19, "robot has <transmission>, which is left out"),
        (20, "<gazebo> has plugin: left out"),
        (21, "loop_joint 'L' has <dynamics>, which is left out"),
    ]


def test_base_is_the_ground_or_floats(tmp_path: Path) -> None:
    path = tmp_path / "arm.urdf"
    path.write_text(
        ARM.replace(
            '<link name="base"/>',
            '<link name="base"><inertial><mass value="2"/>'
            '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>',
        )
    )
    assert read(path).mechanism.nv == 2
    floating = read(path, floating=True)
    assert floating.mechanism.nv == 8
    assert "base.x" in floating.mechanism.coordinate_names


def test_options_of_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    with pytest.raises(MechanismError, match="read: keyframe has no meaning for URDF files, got 'home'"):
        read(path, keyframe="home")
