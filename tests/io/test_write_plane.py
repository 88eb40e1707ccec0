"""Mechanisms of the plane in files of MJCF and URDF: read back, and in MuJoCo, they move as in the plane."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import jaxmbd.planar as pl
from jaxmbd.errors import MechanismError
from jaxmbd.io import read, write_mjcf, write_urdf
from tests.io.mujoco_bench import accelerations_here


def slider_crank(with_forces: bool = True) -> pl.Mechanism:
    """A crank with turned markers, a rod, a slider on a slope; the loop is closed at the slider's pin."""
    crank, rod, slider = (pl.Body(name, 1.0 + k, 0.02 + 0.01 * k) for k, name in enumerate(("crank", "rod", "slider")))
    joints = [
        pl.Revolute("A", pl.ground.at(0.0, 0.1, 0.3), crank.at(-0.1, 0.0, 0.2)),
        pl.Revolute("B", rod.at(-0.3, 0.0), crank.at(0.1, 0.0)),  # seen from its second body
        pl.Prismatic("S", pl.ground.at(0.1, 0.0, 0.2), slider.at()),
        pl.Revolute("C", rod.at(0.3, 0.0), slider.at(0.0, 0.02)),
    ]
    springs = [
        pl.JointSpringDamper("coil", "A.angle", 0.8, 0.3, 0.05),
        pl.SpringDamper("spring", pl.ground.at(0.9, 0.2), slider.at(), 20.0, 0.2, 0.5),
    ]
    forces = [pl.Gravity(), *(springs if with_forces else [])]
    return pl.Mechanism([crank, rod, slider], joints, forces, coordinates="joint", cuts=["C"])


def start(mechanism: pl.Mechanism) -> mbd.State:
    state = mbd.assemble(mechanism, guess={"A.angle": 0.6, "B.angle": 0.4, "S.displacement": 0.6})
    at = mbd.Equations(mechanism).at(state.t, state.q)
    C = np.asarray(at.jacobian)
    free = np.linalg.svd(C)[2][-1]
    return mbd.State(state.t, state.q, jnp.asarray(2.0 * free / free[0]), mechanism.layout)


def accelerations(mechanism: Any, values: dict[str, Any]) -> dict[str, float]:
    """By the names of the speeds, in the state with values of coordinates and speeds; further coordinates are read."""
    q = jnp.stack([jnp.asarray(values.get(name, 0.0)) for name in mechanism.coordinate_names])
    v = jnp.stack([jnp.asarray(values[name]) for name in mechanism.speed_names])
    return accelerations_here(mechanism, np.asarray(q)[None], np.asarray(v)[None])[0]


def test_read_back_a_closed_loop_of_the_plane_accelerates_as_there(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    mechanism = slider_crank()
    state = start(mechanism)
    values = {name: state[name] for name in state.names}
    expected = accelerations(mechanism, values)
    remarks = write_mjcf(mechanism, tmp_path / "m.xml", state, strict=True)
    assert "the plane of the mechanism is that of x and y" in map(str, remarks)
    again = read(tmp_path / "m.xml", keyframe="start")
    for name, value in values.items():
        np.testing.assert_allclose(again.state[name], value, atol=1e-9, err_msg=name)
    found = accelerations(again.mechanism, values)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-7, err_msg=name)


def test_read_back_from_urdf_it_does_so_too(tmp_path: Path) -> None:
    """URDF has no forces; `read` adds gravity along −z, which is across the plane, so that of the plane is given."""
    mechanism = slider_crank(with_forces=False)
    values = {name: start(mechanism)[name] for name in start(mechanism).names}
    write_urdf(mechanism, tmp_path / "m.urdf", strict=True)
    again = read(tmp_path / "m.urdf").mechanism
    found = accelerations(again.replacing(forces=[pl.Gravity((0.0, -9.81, 0.0))]), values)
    for name, value in accelerations(mechanism, values).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-7, err_msg=name)


def test_what_has_no_counterpart_is_remarked_or_refused(tmp_path: Path) -> None:
    mechanism = slider_crank()
    body = mechanism["crank"]
    law = pl.Force("law", body.at(), lambda t, frame, rate: -frame.position)
    remarks = write_urdf(mechanism.with_parts([law]), tmp_path / "m.urdf")
    assert "Force 'law' is a law of the plane and has no counterpart in space" in map(str, remarks)
    with pytest.raises(MechanismError, match="Force 'law' is a law of the plane"):
        write_mjcf(mechanism.with_parts([law]), tmp_path / "m.xml", strict=True)
    own = pl.Constraint("own", lambda t, frames, p: frames[1].position[:1], pl.ground.at(), body.at())
    with pytest.raises(MechanismError, match="in_space: Constraint 'own' is defined in the plane"):
        write_mjcf(mechanism.with_parts([own]), tmp_path / "m.xml")
    with pytest.raises(MechanismError, match=r"takes a mechanism in joint coordinates.*nested bodies"):
        write_mjcf(mechanism.with_coordinates("absolute"), tmp_path / "m.xml")


@pytest.mark.slow
def test_trajectories_in_mujoco_and_of_what_is_read_back_are_those_of_the_plane(tmp_path: Path) -> None:
    mujoco: Any = pytest.importorskip("mujoco")
    mechanism = slider_crank()
    state, path = start(mechanism), tmp_path / "m.xml"
    write_mjcf(mechanism, path, state, strict=True)
    times = np.linspace(0.0, 1.0, 51)
    expected = mbd.simulate(mechanism, state, times, rtol=1e-9, atol=1e-9)
    again = read(path, keyframe="start")
    found = mbd.simulate(again.mechanism, again.state, times, rtol=1e-9, atol=1e-9)
    names = ("A.angle", "B.angle", "S.displacement")
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)
    m = mujoco.MjModel.from_xml_path(str(path))
    m.opt.timestep = 1e-5
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    m.eq_solref[:] = (2e-4, 1.0)
    m.eq_solimp[:] = (0.9999, 0.9999, 0.001, 0.5, 2.0)
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    places = [m.jnt_qposadr[m.joint(name.partition(".")[0]).id] for name in names]
    there = []
    for time in times:
        while d.time < time - 1e-9:
            mujoco.mj_step(m, d)
        there.append(d.qpos[places].copy())
    for name, values in zip(names, np.transpose(there), strict=True):
        np.testing.assert_allclose(values, expected[name], atol=2e-3, err_msg=name)
