"""Joints of ASMT files whose axes point against each other, as those of faces that are mated do."""

from pathlib import Path

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.io import ImportedModel, read
from tests.io.asmt_text import HERE, assembly, joint, motion, part

HALF_TURNS = {"x": (np.pi, 0, 0), "y": (0, np.pi, 0), "z": (0, 0, np.pi)}


def model(tmp_path: Path, text: str) -> ImportedModel:
    path = tmp_path / "a.asmt"
    path.write_text(text)
    return read(path, length_unit=1.0)


def mated(tmp_path: Path, kind: str, axis: str, **numbers: float) -> ImportedModel:
    """A part where it was drawn, on a joint whose second marker is turned by half a turn about an axis."""
    drawn = ((0.3, 0.2, 0.0), (0.0, 0.0, 0.4))
    body = part("P", drawn, {"M": ((0, 0, 0), HALF_TURNS[axis])})
    ground = {"G": ((0.3, 0.2, 0.0), (0.0, 0.0, 0.4))}
    return model(tmp_path, assembly(ground, [body], [joint(kind, "J", "G", "P/M", **numbers)]))


@pytest.mark.parametrize(
    ("kind", "axis"),
    [
        ("RevoluteJoint", "x"), ("RevoluteJoint", "y"), ("CylindricalJoint", "y"), ("PlanarJoint", "x"),
        ("FixedJoint", "x"), ("FixedJoint", "y"), ("FixedJoint", "z"), ("TranslationalJoint", "z"),
    ],
)  # fmt: skip
def test_a_marker_that_points_against_the_other_is_turned(kind: str, axis: str, tmp_path: Path) -> None:
    """The part stays where it was drawn, and a remark tells of the turn."""
    found = mated(tmp_path, kind, axis, **({"offset": 0.0} if kind == "PlanarJoint" else {}))
    (remark,) = found.remarks
    assert "'J'" in str(remark)
    assert "turned by half a turn" in str(remark)
    state = mbd.assemble(found.mechanism)
    np.testing.assert_allclose(state.q[:7], [0.3, 0.2, 0.0, np.cos(0.2), 0.0, 0.0, np.sin(0.2)], atol=1e-9)


def test_the_angle_of_a_turned_marker_is_that_of_the_file(tmp_path: Path) -> None:
    """A motion prescribes the angle of x_J about z_I, in the joint that the file has."""
    body = part("P", HERE, {"M": ((0, 0, 0), HALF_TURNS["x"])})
    turn = motion("RotationalMotion", "turn", "J", "0.3 + time")
    found = model(tmp_path, assembly({"G": HERE}, [body], [joint("RevoluteJoint", "J", "G", "P/M")], [turn]))
    state = mbd.assemble(found.mechanism, t=0.5)
    np.testing.assert_allclose(state.q[3:7], [np.cos(0.4), 0.0, 0.0, np.sin(0.4)], atol=1e-9)


def test_aligned_markers_are_left_alone(tmp_path: Path) -> None:
    body = part("P", ((0.3, 0.2, 0.0), (0.1, 0.2, 0.4)), {"M": HERE})
    found = model(tmp_path, assembly({"G": HERE}, [body], [joint("RevoluteJoint", "J", "G", "P/M")]))
    assert found.remarks == ()
