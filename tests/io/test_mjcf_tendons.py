"""Fixed tendons of MJCF against MuJoCo: springs, slack ones too, damping, actuators, equalities, limits, sensors."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.io import read
from tests.io.mujoco_bench import accelerations_here, accelerations_there, largest_difference, put
from tests.io.test_mjcf import EXACT, compiled, named, rigid_accelerations

mujoco: Any = pytest.importorskip("mujoco")

MODEL = """<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="one"><joint name="a" axis="0 1 0" ref="0.3" armature="0.05"/><geom size="0.1" pos="0.4 0 0"/>
      <body name="two" pos="0.5 0 0"><joint name="b" axis="0.2 1 0"/><geom size="0.1" pos="0.3 0 0.1"/>
        <body name="three" pos="0.5 0 0"><joint name="c" type="slide" axis="1 0 0.3"/><geom size="0.1"/></body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="spring" stiffness="7" damping="0.4" springlength="0.2">
      <joint joint="a" coef="0.5"/><joint joint="b" coef="-0.8"/><joint joint="c" coef="1.5"/></fixed>
    <fixed name="slack" stiffness="30" springlength="-0.4 0.3">
      <joint joint="b" coef="1"/><joint joint="c" coef="2"/></fixed>
    <fixed name="pulled"><joint joint="a" coef="2"/><joint joint="c" coef="1"/></fixed>
    %s
  </tendon>
  %s
  <actuator>
    <general name="grip" tendon="pulled" gainprm="0.3" biastype="affine" biasprm="0.1 -5 -2" gear="1.7" %s/>
    <general name="filtered" joint="a" gear="3" dyntype="filter" dynprm="0.1" forcerange="-1 1" forcelimited="true"/>
  </actuator>
  <sensor>
    <tendonpos name="length" tendon="spring"/><tendonvel name="rate" tendon="spring"/>
    <actuatorfrc name="f" actuator="grip"/>
  </sensor>
  <keyframe><key name="home" ctrl="2 0"/></keyframe>
</mujoco>"""


def written(folder: Path, tendon: str = "", equality: str = "", limits: str = "") -> Path:
    path = folder / "model.xml"
    path.write_text(MODEL % (tendon, equality, limits))
    return path


def test_forces_along_tendons_accelerate_as_in_mujoco(tmp_path: Path) -> None:
    """At positions on both sides of the slack range and within it; sensors read what MuJoCo's do."""
    path = written(tmp_path)
    model, m = read(path, keyframe="home"), compiled(path)
    mechanism, d = model.mechanism, mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    q = np.array([[0.4, 0.9, 0.5], [-0.7, 0.1, 0.05], [1.3, -0.8, -0.4]])
    v = np.array([[1.0, -2.0, 0.5], [0.3, 0.4, -1.0], [-1.0, 0.2, 0.7]])
    lengths = q @ np.array([0, 1, 2])
    assert lengths[0] > 0.3 > lengths[1] > -0.4 > lengths[2]
    for own_q, own_v, here in zip(q, v, accelerations_here(mechanism, q, v), strict=True):
        put(mujoco, m, d, *named(mechanism, own_q, own_v))
        assert largest_difference(accelerations_there(m, d), here) < EXACT
        rates = dict(zip(mechanism.coordinate_names, own_v.tolist(), strict=True))
        state = mbd.assemble(mechanism, named(mechanism, own_q, own_v)[0], speeds=rates)
        values = mbd.read(mechanism, state, ["length", "rate", "f"])
        np.testing.assert_allclose([values[name] for name in ("length", "rate", "f")], d.sensordata, rtol=1e-9)


def test_equalities_of_tendons_are_constraints(tmp_path: Path) -> None:
    """One couples two tendons, one holds a tendon at a length; accelerations at rest are those of rigid equalities."""
    equality = (
        '<equality><tendon name="couple" tendon1="pulled" tendon2="slack" polycoef="0.05 -0.7 0 0 0"/>'
        '<tendon name="hold" tendon1="spring" polycoef="0.1 0 0 0 0"/></equality>'
    )
    path = written(tmp_path, equality=equality)
    model, m = read(path, keyframe="home"), compiled(path)
    m.opt.jacobian = int(mujoco.mjtJacobian.mjJAC_DENSE)
    mechanism, state, d = model.mechanism, model.state, mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    q, still = np.asarray(state.q), np.zeros(mechanism.nv)
    put(mujoco, m, d, *named(mechanism, q, still))
    assert d.nefc == 2
    assert np.abs(d.efc_pos[:2]).max() < EXACT
    d.qacc[:] = rigid_accelerations(m, d)
    (here,) = accelerations_here(mechanism, q[None], still[None])
    assert largest_difference(accelerations_there(m, d), here) < EXACT


def test_limits_of_tendons_are_stops(tmp_path: Path) -> None:
    """As stiff as MuJoCo's: `1 / (T ζ)²` times the mass that the tendon moves at the reference position."""
    tendon = (
        '<fixed name="held" limited="true" range="-0.2 0.5" solreflimit="0.05 0.8"><joint joint="c" coef="2"/></fixed>'
    )
    model = read(written(tmp_path, tendon))
    stop, mechanism = model.mechanism["held_stop"], model.mechanism
    M = np.asarray(mbd.Equations(mechanism).mass(jnp.asarray([0.3, 0.0, 0.0])))
    moved = 1 / (4 * np.linalg.inv(M)[2, 2])  # of the tendon, twice as fast as the slide
    np.testing.assert_allclose([stop.lower, stop.upper], [-0.2, 0.5])
    np.testing.assert_allclose(stop.stiffness, moved / (0.05 * 0.8) ** 2, rtol=1e-6)
    assert any("without the damping" in remark.text for remark in model.lost)


def test_an_actuator_that_is_left_out_has_one_remark(tmp_path: Path) -> None:
    path = written(tmp_path, limits='forcerange="-5 5" forcelimited="true"')
    lost = [(remark.part, remark.text) for remark in read(path).lost if remark.part.startswith("actuator")]
    assert lost == [
        ("actuator 'grip'", "limits its force to [-5.0, 5.0], which nothing enforces"),
        ("actuator 'filtered'", "has dynamics of its activation; it is left out"),
    ]
