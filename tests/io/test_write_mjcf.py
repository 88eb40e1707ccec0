"""MJCF files that are written: MuJoCo accelerates as the mechanism does, and reading them returns it."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import jaxmbd.spatial as sp
from jaxmbd.errors import MechanismError
from jaxmbd.io import read, write_mjcf
from tests.io.mujoco_bench import accelerations_here

mujoco: Any = pytest.importorskip("mujoco")


def arm() -> sp.Mechanism:
    """Every joint that MJCF can express, one of them seen from its second marker, on a floating base."""
    J = np.array([[0.3, 0.01, 0.02], [0.01, 0.25, 0.0], [0.02, 0.0, 0.2]])
    names = "base", "one", "two", "three", "four", "five", "tip"
    bodies = [sp.Body(name, 1.0 + 0.1 * k, J) for k, name in enumerate(names)]
    link = sp.Body("link", 0.0, (0.0, 0.0, 0.0))
    base, one, two, three, four, five, tip = bodies
    joints = [
        sp.Revolute("R", base.at(0.3, 0, 0, axis=(1, 2, 2)), one.at(-0.2, 0.1, 0, axis=(0, 1, 1)), armature=0.3),
        sp.Cylindrical("C", two.at(0.1, 0, 0, axis="y"), one.at(0.2, 0, 0.1, axis=(1, 0, 1))),  # backward
        sp.Universal("U", two.at(0, 0, 0.3), three.at(0, 0.2, 0, axis="x")),
        sp.Spherical("S", base.at(0, 0, -0.3), four.at(0, 0.2, 0, axis=(1, 1, 0))),
        sp.Planar("P", four.at(0, 0, -0.3, axis="x"), five.at(0, 0.1, 0)),
        sp.Prismatic("T", three.at(0, 0.1, 0, axis="z"), link.at(axis="x"), armature=0.5),
        sp.Revolute("Q", link.at(axis="y"), tip.at(0, 0, 0.2, axis=(1, 1, 1))),
    ]
    forces = [
        sp.Gravity((0.3, 0.2, -9.0)),
        sp.JointSpringDamper("spring", "R.angle", 2.0, 0.3, 0.1),
        sp.JointSpringDamper("second", "R.angle", 1.0, -0.3),
        sp.JointFriction("friction", "C.angle", 0.2),
        sp.JointForce("motor", "P.x", 0.7),
        sp.SpringDamper("rope", base.at(0, 1, 0), tip.at(0, 0, 0.1), 3.0, 0.2, 0.4),
    ]
    return sp.Mechanism([*bodies, link], joints, forces, floating=True, coordinates="joint")


def test_written_tree_accelerates_in_mujoco_as_here(tmp_path: Path) -> None:
    mechanism, rng = arm(), np.random.default_rng(5)
    q, v = rng.normal(size=mechanism.nq), rng.normal(size=mechanism.nv)
    unit = mbd.Equations(mechanism).normalize(jnp.asarray(q))
    state = mbd.State(jnp.zeros(()), unit, jnp.asarray(v), mechanism.layout)
    path = tmp_path / "arm.xml"
    remarks = write_mjcf(mechanism, path, state, strict=True)
    assert any("massless: its joints are those of body 'tip'" in str(remark) for remark in remarks)
    m = mujoco.MjModel.from_xml_path(str(path))
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    mujoco.mj_forward(m, d)
    (here,) = accelerations_here(mechanism, np.asarray(unit)[None], v[None])
    composed = {"C": ("angle", "displacement"), "U": ("angle_a", "angle_b"), "P": ("x", "y", "angle")}
    for joint, coordinates in composed.items():
        for own in coordinates:
            there = d.qacc[m.jnt_dofadr[m.joint(f"{joint}_{own}").id]]
            np.testing.assert_allclose(here[f"{joint}.{own}_rate"], there, rtol=1e-8, atol=1e-8)
    for joint, own in (("R", "angle"), ("T", "displacement"), ("Q", "angle")):
        there = d.qacc[m.jnt_dofadr[m.joint(joint).id]]
        np.testing.assert_allclose(here[f"{joint}.{own}_rate"], there, rtol=1e-8, atol=1e-8)
    first = m.jnt_dofadr[m.joint("base_free").id]
    own = [here[f"base.{c}"] for c in ("vx", "vy", "vz", "omega_x", "omega_y", "omega_z")]
    np.testing.assert_allclose(own, d.qacc[first : first + 6], rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_loops_are_read_back(tmp_path: Path) -> None:
    original = read(Path(__file__).parent / "models" / "loops.xml")
    path = tmp_path / "loops.xml"
    write_mjcf(original.mechanism, path, original.state)
    again = read(path, keyframe="start")
    first, second = (m.state for m in (original, again))
    same = [name for name in first.coordinate_names if name in second.coordinate_names]
    assert len(same) == 12
    np.testing.assert_allclose([second[name] for name in same], [first[name] for name in same], atol=1e-9)
    assert int(first.rank) == int(second.rank)
    before, after = (
        accelerations_here(m.mechanism, np.asarray(s.q)[None], np.asarray(s.v)[None])[0]
        for m, s in ((original, first), (again, second))
    )
    np.testing.assert_allclose(after["A.angle_rate"], before["A.angle_rate"], rtol=1e-8)


def test_what_mjcf_cannot_express_raises_or_is_remarked(tmp_path: Path) -> None:
    path = tmp_path / "m.xml"
    a, b = sp.Body("a", 1.0, (0.1, 0.1, 0.1)), sp.Body("b", 1.0, (0.1, 0.1, 0.1))
    screw = sp.Mechanism([a], [sp.Screw("N", sp.ground.at(), a.at(), 0.01)], coordinates="joint")
    with pytest.raises(MechanismError, match=r"Screw 'N' carries coordinates.*cuts=\['N'\]"):
        write_mjcf(screw, path)
    pins = [sp.Revolute("A", sp.ground.at(), a.at(1, 0, 0)), sp.Revolute("B", a.at(), b.at(1, 0, 0))]
    rod = sp.Rod("rod", sp.ground.at(1, 1, 0), b.at(), 1.0)
    driven = sp.Mechanism([a, b], [*pins, rod], drivers=[sp.Driver("D", "A.angle", jnp.sin)], coordinates="joint")
    remarks = write_mjcf(driven, path)
    assert [str(remark) for remark in remarks if remark.lost] == [
        "Rod 'rod' constrains nothing there",
        "Driver 'D' prescribes a motion, which is left out",
    ]
    geared = sp.Revolute("C", sp.ground.at(2, 0, 0), b.at(1, 0, 0), armature=0.2)
    loop = sp.Mechanism([a, b], [*pins, geared], coordinates="joint", cuts=["C"])
    with pytest.raises(MechanismError, match="Revolute 'C' closes a loop: its armature is left out"):
        write_mjcf(loop, tmp_path / "loop.xml", strict=True)
    path.unlink()
    with pytest.raises(MechanismError, match="Rod 'rod' constrains nothing there"):
        write_mjcf(driven, path, strict=True)
    assert not path.exists()
    with pytest.raises(MechanismError, match="this one is in absolute coordinates"):
        write_mjcf(driven.with_coordinates("absolute"), path)
    link = sp.Body("link", 0.0, (0.0, 0.0, 0.0))
    pins = [sp.Revolute("A", sp.ground.at(), link.at()), sp.Revolute("B", link.at(), a.at(1, 0, 0, axis="x"))]
    held = sp.Mechanism(
        [a, link], pins, [sp.SpringDamper("s", sp.ground.at(1, 0, 0), link.at(), 1.0)], coordinates="joint"
    )
    with pytest.raises(MechanismError, match="'link' is a massless link, which MJCF has none of"):
        write_mjcf(held, path)
