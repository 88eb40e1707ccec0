"""Axes of joints that are parallel up to the digits of a file: one rank decision, their names, and exact ones."""

from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import io
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.exact_axes import nearly_parallel

POINTS = np.array([[0.0, 0.0], [0.1, 0.3], [0.6, 0.5], [0.7, 0.0]])


def linkage(error: float, coordinates: str = "absolute") -> sp.Mechanism:
    """A driven four-bar linkage in space whose axes are parallel up to some `error`, as numbers of a file are.

    It has one degree of freedom: `18 − 20` rows and three redundant ones.
    """
    random = np.random.default_rng(0)
    axis = lambda: np.array([0.0, 1.0, 0.0]) + error * random.normal(size=3)  # noqa: E731
    middles = 0.5 * (POINTS[1:] + POINTS[:-1])
    bars = [sp.Body(name, 1.0, np.eye(3) * 0.01, pose=(x, 0, z)) for name, (x, z) in zip("abc", middles, strict=True)]

    def end(bar: int, point: int) -> sp.Marker:
        x, z = POINTS[point] - middles[bar]
        return bars[bar].at(x, 0, z, axis=axis())

    joints = [
        sp.Revolute("A", sp.ground.at(0, 0, 0, axis=axis()), end(0, 0)),
        sp.Revolute("B", end(0, 1), end(1, 1)),
        sp.Revolute("C", end(1, 2), end(2, 2)),
        sp.Revolute("D", sp.ground.at(0.7, 0, 0, axis=axis()), end(2, 3)),
    ]
    drivers = [sp.Driver("d", "A.angle", lambda t: 0.3 * t)]
    return sp.Mechanism(bars, joints, drivers=drivers, coordinates=coordinates)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
@pytest.mark.parametrize("error", [0.0, 1e-10, 1e-9, 3e-9, 1e-8])
def test_one_rank_decision(error: float, coordinates: str) -> None:
    """`freedom = nv − rows + redundant`, all from one rank, and the motion is that of exact axes."""
    mechanism = linkage(error, coordinates)
    state = mbd.assemble(mechanism)
    report, found = mbd.describe(mechanism, state), mbd.redundancy(mechanism, state)
    assert (report.freedom, report.remaining_freedom) == (1, 0)
    assert report.freedom == mechanism.nv - report.rows + 3
    assert f"{report.rows} algebraic constraints, 3 of them redundant" in str(report)
    assert found.rows - found.rank == len(found.repeats) == 3
    assert state.rank == found.rank
    assert bool(report.nearly_parallel) == (error > 0) == ("Nearly parallel: the axes of 'A', 'D' on" in str(report))
    turned = mbd.kinematics(mechanism, np.linspace(0.0, 1.0, 3))
    exact = mbd.kinematics(linkage(0.0, coordinates), np.linspace(0.0, 1.0, 3))
    np.testing.assert_allclose(turned["c.position"], exact["c.position"], atol=1e-7)


@pytest.mark.parametrize("error", [1e-7, 1e-6])
def test_axes_that_jam_are_named_and_made_exact(error: float) -> None:
    mechanism = linkage(error)
    with pytest.raises(
        mbd.AssemblyError, match=r"the axes of 'A', 'D' on 'ground' are parallel to \de-0\d rad"
    ) as text:
        mbd.assemble(mechanism)
    assert "jaxmbd.with_exact_axes(mechanism) makes them exact" in str(text.value)
    exact = mbd.with_exact_axes(mechanism)
    assert nearly_parallel(exact) == ()
    state = mbd.assemble(exact)
    assert mbd.describe(exact, state).freedom == 1
    # Markers are turned by some `error` alone, and stay where they are.
    for before, after in zip(mechanism.joints, exact.joints, strict=True):
        assert isinstance(before, AbstractJoint)
        assert isinstance(after, AbstractJoint)
        for old, new in zip(before.markers, after.markers, strict=True):
            assert 0 < np.abs(old.local.rotation - new.local.rotation).max() < 5 * error
            np.testing.assert_array_equal(old.position, new.position)
            np.testing.assert_allclose(new.local.normal, [0.0, 1.0, 0.0], atol=1e-15)


def test_axes_that_are_meant_are_left() -> None:
    """Exact axes, axes that differ by more than the tolerance, joints without an axis, and the plane."""
    for mechanism in (linkage(0.0), linkage(1e-3)):
        assert mbd.with_exact_axes(mechanism) is mechanism
        assert nearly_parallel(mechanism) == ()
    body = sp.Body("body", 1.0, np.eye(3))
    balls = [sp.Spherical(n, sp.ground.at(x), body.at(x, axis=(1e-7, 0, 1))) for n, x in (("S", 0.0), ("T", 1.0))]
    assert nearly_parallel(sp.Mechanism([body], balls)) == ()
    bar = pl.Body("bar", 1.0, 1.0)
    plane = pl.Mechanism([bar], [pl.Revolute("O", pl.ground.at(), bar.at())])
    assert mbd.with_exact_axes(plane) is plane


def test_opposed_axes_stay_opposed() -> None:
    """And axes in no direction of the body get that of the first one."""
    bar, along = sp.Body("bar", 1.0, np.eye(3)), np.array([0.6, 0.0, 0.8])
    markers = bar.at(axis=along), bar.at(1.0, axis=-along + np.array([0.0, 2e-7, 0.0]))
    joints = [sp.Revolute(n, sp.ground.at(axis=along), marker) for n, marker in zip("AB", markers, strict=True)]
    exact = mbd.with_exact_axes(sp.Mechanism([bar], joints))
    np.testing.assert_allclose(exact["A"].b.local.normal, along, atol=1e-15)
    np.testing.assert_allclose(exact["B"].b.local.normal, -along, atol=1e-15)


def test_not_inside_jit() -> None:
    with pytest.raises(mbd.MechanismError, match="with_exact_axes cannot be compiled"):
        eqx.filter_jit(lambda m: mbd.with_exact_axes(m).nq)(linkage(1e-7))
    with pytest.raises(mbd.MechanismError, match="with_exact_axes: tolerance must be zero or positive"):
        mbd.with_exact_axes(linkage(1e-7), -1.0)


def test_read_makes_axes_exact(tmp_path: Path) -> None:
    """A URDF file whose two joints on a link have axes of eight digits."""
    links = "".join(f'<link name="{name}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" '
                    'ixz="0" iyz="0"/></inertial></link>' for name in "xyz")  # fmt: skip
    joints = "".join(
        f'<joint name="{name}" type="continuous"><parent link="{a}"/><child link="{b}"/><origin xyz="0 0 {z}"/>'
        f'<axis xyz="{axis}"/></joint>'
        for name, a, b, z, axis in (("J", "x", "y", 0, "0 1 0"), ("K", "y", "z", 1, "0.00000003 1 0"))
    )
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="r">{links}{joints}</robot>')
    model = io.read(path)
    (remark,) = [remark for remark in model.remarks if "exactly parallel" in remark.text]
    assert (remark.part, remark.lost) == ("body y", False)
    assert "3e-08 rad, of J, K" in remark.text
    assert nearly_parallel(model.mechanism) == ()
