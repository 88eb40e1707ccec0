"""URDF files that are written and read again: the same accelerations."""

from pathlib import Path

import numpy as np
import pytest

import jaxmbd.spatial as sp
from jaxmbd.errors import MechanismError
from jaxmbd.io import read, write_urdf
from tests.io.mujoco_bench import accelerations_here

G = 9.81  # [m/s²] what `read` assumes
J = np.array([[0.3, 0.01, 0.02], [0.01, 0.25, 0.0], [0.02, 0.0, 0.2]])


def mechanism() -> sp.Mechanism:
    """A loop with a gear and friction; the joint B is seen from its second body."""
    one, two, three, four = (sp.Body(name, 1.0 + k, J) for k, name in enumerate(("one", "two", "three", "four")))
    joints = [
        sp.Revolute("A", sp.ground.at(0.1, 0, 0, axis=(1, 2, 2)), one.at(-0.2, 0.1, 0, axis=(0, 1, 1))),
        sp.Revolute("B", two.at(0.1, 0, 0, axis="y"), one.at(0.2, 0, 0.1, axis=(1, 0, 1))),
        sp.Prismatic("C", two.at(0, 0, 0.3, axis="x"), three.at(0, 0.2, 0, axis=(0, 1, 1))),
        sp.Weld("W", three.at(0.1, 0, 0), four.at(0, 0.1, 0, axis="x")),
        sp.PointConstraint("P", sp.ground.at(0.4, 0.2, 0.6), three.at(0.1, 0.1, 0.1)),
        sp.Gear("G", "A.angle", "B.angle", -0.5, 0.2),
    ]
    forces = [sp.Gravity(G), sp.JointFriction("f", "B.angle", 0.3), sp.JointFriction("g", "B.angle", 0.1, 0.2)]
    return sp.Mechanism([one, two, three, four], joints, forces, coordinates="joint")


def test_written_robot_is_read_with_the_same_accelerations(tmp_path: Path) -> None:
    original, path = mechanism(), tmp_path / "robot.urdf"
    remarks = write_urdf(original, path, strict=True)
    assert [str(remark) for remark in remarks] == ["Gravity 'gravity' is left to the program that reads the file"]
    again = read(path).mechanism
    assert original.coordinate_names == again.coordinate_names
    rng = np.random.default_rng(2)
    q, v = rng.normal(size=(1, original.nq)), rng.normal(size=(1, original.nv))
    (before,), (after,) = (accelerations_here(m, q, v) for m in (original, again))
    np.testing.assert_allclose([*after.values()], [*before.values()], rtol=1e-8)


def test_what_urdf_cannot_express_raises_or_is_remarked(tmp_path: Path) -> None:
    path, original = tmp_path / "robot.urdf", mechanism()
    a = sp.Body("a", 1.0, J)
    ball = sp.Mechanism([a], [sp.Spherical("S", sp.ground.at(), a.at(0, 0, 1))], coordinates="joint")
    with pytest.raises(MechanismError, match=r"Spherical 'S' carries coordinates.*cuts=\['S'\]"):
        write_urdf(ball, path)
    cut = ball.with_coordinates("joint", cuts=["S"])
    write_urdf(cut, path, strict=True)
    assert read(path).mechanism.coordinate_names == cut.coordinate_names
    spring = sp.JointSpringDamper("spring", "A.angle", 1.0)
    sprung = original.with_parts([spring])
    with pytest.raises(MechanismError, match="JointSpringDamper 'spring' has no counterpart in URDF"):
        write_urdf(sprung, path, strict=True)
    geared = sp.Mechanism([a], [sp.Revolute("R", sp.ground.at(), a.at(0, 0, 1), 0.2)], coordinates="joint")
    with pytest.raises(MechanismError, match="Revolute 'R' has an armature, which URDF cannot express"):
        write_urdf(geared, path, strict=True)
    with pytest.raises(MechanismError, match="this one is in absolute coordinates"):
        write_urdf(original.with_coordinates("absolute"), path)
