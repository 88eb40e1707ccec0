"""What models of other programs look like: number, size, pose and colour of their shapes, and what is not shown."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd import spatial as sp
from jaxmbd.space.shape import Shape, matrix
from tests.space.mesh_bench import box_mesh, stl, written

VERTICES, FACES = box_mesh(250.0, 500.0, 1000.0)  # [mm]
ABOUT = '<inertial><origin xyz="0.1 0.2 0.3"/><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
CENTRE = np.array([0.1, 0.2, 0.3])
HINGE = '<joint name="A" type="continuous"><parent link="base"/><child link="arm"/></joint>'


def urdf(path: Path, base: str, arm: str, more: str = "") -> Any:
    text = f'<robot name="r">{more}<link name="base">{base}</link>\n<link name="arm">{ABOUT}{arm}</link>{HINGE}</robot>'
    return written(path, text)


def check_at(shape: Shape, position: Any, turn: Rotation | None = None) -> None:
    """A shape whose frame is somewhere in that of its body."""
    np.testing.assert_allclose(shape.position, position, atol=1e-12)
    expected = np.eye(3) if turn is None else turn.as_matrix()
    np.testing.assert_allclose(matrix(np.array(shape.rotation)), expected, atol=1e-12)


def box(shape: Shape) -> np.ndarray:
    assert shape.triangles is not None
    return np.ptp(shape.triangles.vertices, axis=0)


def test_urdf(tmp_path: Path) -> None:
    base = """<visual><geometry><box size="1 2 3"/></geometry><material name="red"/></visual>
      <visual><origin xyz="0 0 1"/><geometry><sphere radius="0.5"/></geometry></visual>"""
    arm = """<visual><origin xyz="1 2 3" rpy="0.1 0.2 0.3"/><geometry><cylinder radius="0.1" length="0.4"/></geometry>
        <material name="own"><color rgba="0 0.5 1 0.25"/></material></visual>
      <visual><geometry><capsule radius="0.1" length="0.4"/></geometry><material name="own"/></visual>
      <visual><geometry><box size="1 1 1"/></geometry><material name=""><color rgba="1 1 1 0"/></material></visual>"""
    material = '<material name="red"><color rgba="1 0 0 1"/></material>'
    model = mbd.io.read(urdf(tmp_path / "m.urdf", base, arm, material))
    first, second = model.mechanism.scenery
    assert (first.kind, first.size, first.colour) == ("box", (1.0, 2.0, 3.0), "#ff0000")
    assert (second.kind, second.size, second.colour) == ("sphere", (0.5,), None)
    check_at(second, (0, 0, 1))
    cylinder, capsule = model.mechanism["arm"].shape
    assert (cylinder.kind, cylinder.size, cylinder.colour) == ("cylinder", (0.1, 0.4), "#0080ff")
    assert (cylinder.opacity, capsule.kind, capsule.colour) == (0.25, "capsule", "#0080ff")
    check_at(cylinder, (1, 2, 3) - CENTRE, Rotation.from_euler("xyz", (0.1, 0.2, 0.3)))
    check_at(capsule, -CENTRE)
    assert not [remark for remark in model.remarks if "looks" in remark.text]


def test_urdf_finds_meshes_of_packages(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    robot = tmp_path / "robot"
    for folder in ("urdf", "meshes"):
        (robot / folder).mkdir(parents=True)
    written(robot / "meshes" / "part.stl", stl(VERTICES, FACES))
    names = ("package://robot/meshes/part.stl", "package://any/meshes/part.stl", "../meshes/part.stl")
    arm = "".join(
        f'<visual><geometry><mesh filename="{name}" scale="0.001 0.001 -0.002"/></geometry></visual>' for name in names
    )
    path = urdf(robot / "urdf" / "m.urdf", "", arm)
    for within in (robot, tmp_path):
        shapes = mbd.io.read(path, within=within).mechanism["arm"].shape
        assert len(shapes) == 3
        for shape in shapes:
            np.testing.assert_allclose(box(shape), (0.25, 0.5, 2.0), rtol=1e-6)
            check_at(shape, -CENTRE)
    alone = mbd.io.read(path)
    assert alone.mechanism["arm"].shape == ()
    assert len(alone.remarks) == 2 + 3
    said = [str(remark) for remark in alone.remarks if "looks otherwise here" in remark.text]
    assert all(
        "outside of" in text and "pass within=" in text and text.startswith("line 2: link 'arm'") for text in said
    )
    assert not any(remark.lost for remark in alone.remarks)


def test_what_is_not_shown_is_said_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trimesh")
    written(tmp_path / "broken.stl", b"x" * 100)
    written(tmp_path / "part.stl", stl(VERTICES, FACES))
    names = ("none.stl", "broken.stl", "part.dae", "http://x/y.stl", "file:///etc/passwd", "part.stl")
    written(tmp_path / "part.dae", "<COLLADA/>")
    own = "".join(f'<visual><geometry><mesh filename="{name}"/></geometry></visual>' for name in names)
    odd = ('<visual><geometry/></visual><visual/><visual><geometry><cone/></geometry></visual>'
           '<visual><geometry><box size="1 -1 1"/></geometry></visual>')  # fmt: skip
    path = urdf(tmp_path / "m.urdf", "", own + odd)
    model = mbd.io.read(path)
    assert [shape.kind for shape in model.mechanism["arm"].shape] == ["mesh"]
    first, second, third, fourth, rest = (str(x) for x in model.remarks if "shown" in x.text or "otherwise" in x.text)
    assert "mesh 'none.stl': there is no file" in first
    assert "mesh 'broken.stl': its head says" in second
    assert "no mesh that is read here; those end with .stl, .obj" in third
    assert "'http://x/y.stl' is not in a folder that is read here" in fourth
    assert rest.startswith("5 more shapes are not shown")
    monkeypatch.setitem(sys.modules, "trimesh", None)
    model = mbd.io.read(path)
    assert model.mechanism["arm"].shape == ()
    assert any("pip install 'jaxmbd[meshes]'" in str(remark) for remark in model.remarks)


def test_sdf(tmp_path: Path) -> None:
    text = """<sdf version="1.9"><world name="w"><model name="fixed"><static>true</static><pose>0 0 5 0 0 0</pose>
      <link name="wall"><visual name="v"><pose>1 0 0 0 0 0</pose><geometry><box><size>1 2 3</size></box></geometry>
        <material><ambient>0 1 0</ambient></material></visual>
        <visual name="floor"><geometry><plane><size>9 9</size></plane></geometry></visual></link></model>
      <model name="m"><pose>7 7 7 0.3 0 0</pose><frame name="f"><pose relative_to="arm">0 0 2 0 0 0</pose></frame>
      <link name="arm"><pose>3 0 0 0 0 0.4</pose><inertial><pose>0.1 0.2 0.3 0 0 0</pose><mass>1</mass></inertial>
        <visual name="a"><pose>1 2 3 0.1 0.2 0.3</pose><transparency>0.5</transparency><geometry><cylinder>
          <radius>0.1</radius><length>0.4</length></cylinder></geometry>
          <material><diffuse>1 0 0 0.5</diffuse><ambient>0 1 0 1</ambient></material></visual>
        <visual name="b"><pose relative_to="f">1 0 0 0 0 0</pose><geometry><ellipsoid><radii>0.1 0.2 0.3</radii>
          </ellipsoid></geometry></visual>
        <visual name="c"><geometry><cone/></geometry></visual></link></model></world></sdf>"""
    model = mbd.io.read(written(tmp_path / "m.sdf", text))
    (wall,) = model.mechanism.scenery
    assert (wall.kind, wall.size, wall.colour) == ("box", (1.0, 2.0, 3.0), "#00ff00")
    check_at(wall, (1, 0, 5))
    a, b = model.mechanism["m::arm"].shape
    assert (a.kind, a.size, a.colour, a.opacity) == ("cylinder", (0.1, 0.4), "#ff0000", 0.25)
    check_at(a, (1, 2, 3) - CENTRE, Rotation.from_euler("xyz", (0.1, 0.2, 0.3)))
    assert (b.kind, b.size, b.colour) == ("ellipsoid", (0.2, 0.4, 0.6), None)
    check_at(b, (1, 0, 2) - CENTRE)
    (said,) = (str(remark) for remark in model.remarks if "looks otherwise" in remark.text)
    assert "link 'm::arm' looks otherwise here: <cone> is not shown" in said


def test_sdf_with_a_mesh(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    written(tmp_path / "part.stl", stl(VERTICES, FACES))
    own = f"<mesh><uri>model://{tmp_path.name}/part.stl</uri><scale>0.001 0.001 0.001</scale></mesh>"
    text = (
        f'<sdf version="1.9"><model name="m"><link name="a"><visual name="v"><geometry>{own}</geometry></visual></link>'
    )
    model = mbd.io.read(written(tmp_path / "m.sdf", f"{text}</model></sdf>"))
    np.testing.assert_allclose(box(model.mechanism["a"].shape[0]), (0.25, 0.5, 1.0), rtol=1e-6)


def test_mjcf(tmp_path: Path) -> None:
    """Where MuJoCo places each geom, in the bodies' start."""
    mujoco = pytest.importorskip("mujoco")
    written(tmp_path / "part.stl", stl(VERTICES + np.array([100.0, 0.0, 0.0]), FACES))
    text = """<mujoco><asset><mesh name="part" file="part.stl" scale="0.001 0.001 0.001"/>
      <material name="blue" rgba="0 0 1 0.5"/></asset>
      <worldbody><geom type="plane" size="5 5 1"/><geom name="wall" type="box" size="1 2 3" pos="4 0 0" rgba="1 0 0 1"/>
      <body name="arm" pos="1 2 3" euler="10 20 30"><joint axis="0 1 0"/><joint axis="1 0 0"/>
        <geom type="mesh" mesh="part" pos="0.1 0 0" euler="40 0 0" material="blue"/>
        <geom type="capsule" fromto="0 0 0 0.3 0.2 0.1" size="0.05"/>
        <geom type="ellipsoid" size="0.1 0.2 0.3" pos="0 0 1" material="blue" rgba="0 1 0 1"/>
        <geom type="cylinder" size="0.1 0.2" group="1"/><geom type="sphere" size="0.1" group="3"/>
        <geom type="sphere" size="0.1" rgba="1 1 1 0"/></body></worldbody></mujoco>"""
    path = written(tmp_path / "m.xml", text)
    model = mbd.io.read(path)
    (wall,) = model.mechanism.scenery
    assert (wall.kind, wall.size, wall.colour) == ("box", (2.0, 4.0, 6.0), "#ff0000")
    shapes = model.mechanism["arm"].shape
    assert [shape.kind for shape in shapes] == ["mesh", "capsule", "ellipsoid", "cylinder"]
    assert [shape.colour for shape in shapes] == ["#0000ff", None, "#00ff00", None]
    assert [shape.opacity for shape in shapes] == [0.5, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(shapes[2].size, (0.2, 0.4, 0.6))
    np.testing.assert_allclose(shapes[1].size, (0.05, np.sqrt(0.14)))
    m = mujoco.MjModel.from_xml_path(str(path))
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    R, origin = d.xmat[1].reshape(3, 3), d.xipos[1]
    for shape, geom in zip(shapes, (2, 3, 4, 5), strict=True):
        np.testing.assert_allclose(R @ shape.position + origin, d.geom_xpos[geom], atol=1e-12)
        turn = R @ matrix(np.array(shape.rotation))
        np.testing.assert_allclose(turn, d.geom_xmat[geom].reshape(3, 3), atol=1e-12)
    corners = shapes[0].triangles
    assert corners is not None
    placed = corners.vertices @ d.geom_xmat[2].reshape(3, 3).T + d.geom_xpos[2]
    inner = Rotation.from_euler("xyz", (40, 0, 0), degrees=True).as_matrix()
    given = 1e-3 * (VERTICES + np.array([100.0, 0.0, 0.0])) @ (R @ inner).T + R @ (0.1, 0.0, 0.0) + d.xpos[1]
    np.testing.assert_allclose(sorted(placed.tolist()), sorted(given.tolist()), atol=1e-6)


def test_files_that_are_written_lack_shapes_and_say_so(tmp_path: Path) -> None:
    body = sp.Body("arm", 1.0, (1.0, 1.0, 1.0), shape=sp.shapes.sphere(0.1))
    hinge = sp.Revolute("O", sp.ground.at(), body.at())
    mechanism = sp.Mechanism([body], [hinge], scenery=sp.shapes.box(1, 1, 1), coordinates="joint")
    for write, name in ((mbd.io.write_urdf, "m.urdf"), (mbd.io.write_mjcf, "m.xml")):
        remarks = [str(remark) for remark in write(mechanism, tmp_path / name, strict=True)]
        assert "2 shapes of bodies and the ground are left out: the file has no visual geometry" in remarks
