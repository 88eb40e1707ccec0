"""MJCF files against MuJoCo itself: accelerations at random states, loops, starts, remarks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.errors import MechanismError
from jaxmbd.io import read
from tests.io.mujoco_bench import accelerations_here, accelerations_there, largest_difference, put

mujoco: Any = pytest.importorskip("mujoco")

MODELS = Path(__file__).parent / "models"
EXACT = 1e-9  # relative: both programs solve the same equations


def compiled(path: Path) -> Any:
    """MuJoCo's model without contacts and limits, which have no counterpart here."""
    m = mujoco.MjModel.from_xml_path(str(path))
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT) | int(mujoco.mjtDisableBit.mjDSBL_LIMIT)
    return m


def random_state(mechanism: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates with unit quaternions, and speeds."""
    q = dict(zip(mechanism.coordinate_names, rng.normal(size=mechanism.nq), strict=True))
    v = dict(zip(mechanism.speed_names, rng.normal(size=mechanism.nv), strict=True))
    for name in q:
        if name.endswith(".e0"):
            own = [f"{name[:-1]}{k}" for k in range(4)]
            norm = np.sqrt(sum(q[part] ** 2 for part in own))
            q |= {part: q[part] / norm for part in own}
    return np.array([*q.values()]), np.array([*v.values()])


def named(mechanism: Any, q: np.ndarray, v: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    """Coordinates and speeds by name."""
    pairs = (mechanism.coordinate_names, q), (mechanism.speed_names, v)
    first, second = (dict(zip(names, x.tolist(), strict=True)) for names, x in pairs)
    return first, second


def test_tree_accelerates_as_in_mujoco_at_random_states() -> None:
    """Joints of every kind, several on one body, with springs, damping, armature, tendons and actuators."""
    model, m = read(MODELS / "tree.xml", keyframe="home"), compiled(MODELS / "tree.xml")
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    rng, mechanism = np.random.default_rng(3), model.mechanism
    states = [random_state(mechanism, rng) for _ in range(3)]
    here = accelerations_here(mechanism, *map(np.stack, zip(*states, strict=True)))
    for (q, v), own in zip(states, here, strict=True):
        put(mujoco, m, d, *named(mechanism, q, v))
        assert largest_difference(accelerations_there(m, d), own) < EXACT


def rigid_accelerations(m: Any, d: Any) -> np.ndarray:
    """MuJoCo's accelerations at rest if its equalities were rigid: `M v̇ + Jᵀ λ = F`, `J v̇ = 0`, with its own terms."""
    J = d.efc_J.reshape(d.nefc, m.nv)
    inverse = np.zeros((m.nv, m.nv))
    mujoco.mj_solveM(m, d, inverse, np.eye(m.nv))
    free = inverse @ d.qfrc_smooth
    return free - inverse @ J.T @ np.linalg.lstsq(J @ inverse @ J.T, J @ free, rcond=1e-10)[0]


def test_loops_close_and_accelerate_as_in_mujoco() -> None:
    """At rest exactly as with MuJoCo's terms and rigid loops; in motion as its soft ones, whose error is proportional
    to their softness `1 − d` (MuJoCo allows no less than 1e-4)."""
    path = MODELS / "loops.xml"
    model, m = read(path), compiled(path)
    m.opt.jacobian = int(mujoco.mjtJacobian.mjJAC_DENSE)
    mechanism, state, d = model.mechanism, model.state, mujoco.MjData(m)
    C, q = np.asarray(mbd.Equations(mechanism).jacobian(state.t, state.q)), np.asarray(state.q)
    assert mechanism.nv - np.linalg.matrix_rank(C, 1e-8) == 2  # the linkage with its wheel; the cart on its rail
    v = np.random.default_rng(0).normal(size=mechanism.nv)
    v -= np.linalg.pinv(C, 1e-8) @ (C @ v)
    at_rest, moving = accelerations_here(mechanism, np.stack([q, q]), np.stack([0 * v, v]))

    put(mujoco, m, d, *named(mechanism, q, 0 * v))
    assert np.abs(d.efc_pos[: d.nefc]).max() < EXACT  # MuJoCo finds the same joints closed
    d.qacc[:] = rigid_accelerations(m, d)
    assert largest_difference(accelerations_there(m, d), at_rest) < EXACT

    errors = []
    for softness in (1e-3, 1e-4):
        m.eq_solimp[:, :2] = 1 - softness
        put(mujoco, m, d, *named(mechanism, q, v))
        errors.append(largest_difference(accelerations_there(m, d), moving))
    assert errors[1] < 0.05
    assert errors[1] < 0.2 * errors[0]


def test_start_is_the_reference_position_or_a_keyframe(tmp_path: Path) -> None:
    path = tmp_path / "start.xml"
    path.write_text(
        '<mujoco><worldbody><body name="b" pos="1 0 0"><joint name="h" ref="30" damping="1"/>'
        '<geom size="0.1" pos="0.5 0 0"/></body></worldbody>'
        '<keyframe><key name="up" qpos="1.5" qvel="2"/></keyframe></mujoco>'
    )
    reference = read(path).state
    np.testing.assert_allclose([reference["h.angle"], reference["h.angle_rate"]], [np.pi / 6, 0.0], atol=1e-12)
    up = read(path, keyframe="up")
    np.testing.assert_allclose([up.state["h.angle"], up.state["h.angle_rate"]], [1.5, 2.0], atol=1e-12)
    with pytest.raises(MechanismError, match="no keyframe 'down'; there are: up"):
        read(path, keyframe="down")


def test_what_has_no_counterpart_is_remarked_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "lost.xml"
    path.write_text(
        """<mujoco>
  <option density="1.2"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="b" gravcomp="1">
      <joint name="b" range="-90 90" frictionloss="0.5"/>
      <geom size="0.1" pos="0.5 0 0"/>
      <site name="s"/>
      <body name="c"><joint name="c"/><geom size="0.1" pos="0 0.5 0"/></body>
    </body>
  </worldbody>
  <equality>
    <joint joint1="b" joint2="c" polycoef="0 1 2 0 0"/>
    <connect body1="b" body2="c" anchor="0 0 0" active="false"/>
  </equality>
  <actuator>
    <muscle name="flexor" joint="b" lengthrange="0 1"/>
    <cylinder name="ram" joint="c"/>
  </actuator>
  <sensor><touch name="skin" site="s"/></sensor>
</mujoco>"""
    )
    model = read(path)
    lost = {(remark.part, remark.line): remark.text for remark in model.lost}
    assert set(lost) == {
        ("joint 'b'", 6),
        ("equality 0", 13),
        ("equality 1", 14),
        ("actuator 'flexor'", 17),
        ("actuator 'ram'", 18),
        ("sensor 'skin'", 20),
        ("contacts", None),
        ("body 'b'", 5),
        ("option", None),
    }
    text = str(model)
    assert text.index("line 20: sensor 'skin'") < text.index("option has a fluid") < text.index("equalities are rigid")
    assert text.endswith("  2 other names: joint 'b' is 'b_joint', joint 'c' is 'c_joint'")
    friction = model.mechanism["b_joint_friction"]
    assert float(friction.coulomb) == 0.5
    with pytest.raises(MechanismError, match=r"with strict=True .* would be:\n  line 5: body 'b' has gravcomp"):
        read(path, strict=True)


def test_a_file_without_losses_passes_strict(tmp_path: Path) -> None:
    path = tmp_path / "plain.xml"
    path.write_text(
        '<mujoco><worldbody><body name="b"><joint name="h"/><geom size="0.1" pos="1 0 0"/></body></worldbody></mujoco>'
    )
    model = read(path, strict=True)
    assert model.remarks == ()
    assert model.mechanism.coordinate_names == ("h.angle",)
