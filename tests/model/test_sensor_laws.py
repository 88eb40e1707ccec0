"""Sensors against the motion of their markers, by differences."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.model.law_bench import FIRST, OFFSETS, SECOND, SPACES, STEP, T, bench, over
from tests.model.laws import Case, base


def turning(R: np.ndarray, dim: int) -> np.ndarray:
    """The vector (number in the plane) of a skew matrix."""
    return R[1, 0] if dim == 2 else np.asarray([R[2, 1], R[0, 2], R[1, 0]])


def is_of_markers(case: Case) -> bool:
    """Whether a sensor reads markers, and nothing else."""
    return case.part not in (pl.Measure, sp.Measure, pl.Scaled)


@pytest.mark.parametrize(("space", "name"), over("sensors", is_of_markers))
def test_sensor_reads_the_motion_of_its_marker(space: str, name: str) -> None:
    """Against the marker's position and axes and their differences along a motion."""
    b = bench(space, "sensors")
    part, dim = b.mechanism[name], b.mechanism.space.dim
    many = [b.places(part.markers, b.along(k * STEP)[1]) for k in OFFSETS]
    where, axes = b.places(part.markers, b.q)
    last, R = where[-1], axes[-1]
    velocity, rate = (np.tensordot(FIRST, np.stack([x[i][-1] for x in many]), 1) / STEP for i in (0, 1))
    acceleration, change = (
        (np.tensordot(SECOND, np.stack([x[i][-1] for x in many]), 1) - 2.5 * now) / STEP**2
        for i, now in ((0, last), (1, R))
    )
    gravity = np.asarray(SPACES[space].gravity.acceleration)
    normals = axes[:, :, -1]
    expected = {
        "Point": last,
        "PointVelocity": velocity,
        "PointAcceleration": acceleration,
        "AngularVelocity": turning(rate @ R.T, dim),
        "AngularAcceleration": turning(0.5 * (change @ R.T - R @ change.T), dim),
        "Accelerometer": R.T @ (acceleration - gravity),
        "Gyroscope": np.atleast_1d(turning(R.T @ rate, dim)),
        "Distance": np.linalg.norm(last - where[0]),
        "Angle": np.arccos(np.clip(normals[0] @ normals[-1], -1, 1)),
    }
    if base(name).startswith("EulerAngle"):
        turned = Rotation.from_matrix(axes[0].T @ R)
        expected[base(name)] = turned.as_euler(part.sequence.upper())[part.which - 1]
    expected = expected[base(name)]
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(b.at["readings"][name], expected, atol=3e-8)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("name", "scale"), [("Scaled", -1.5), ("Scaled on ground", -1.95)])
def test_scaled_is_what_it_says_of_the_sensor(space: str, name: str, scale: float) -> None:
    readings = bench(space, "sensors").at["readings"]
    np.testing.assert_allclose(readings[name], scale * readings[f"{name} helper"] + 0.2, rtol=1e-13)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("name", "scale"), [("Measure", 1.5), ("Measure on ground", 1.95)])
def test_measure_is_what_its_function_says(space: str, name: str, scale: float) -> None:
    b = bench(space, "sensors")
    expected = scale * b.v.sum() + b.q[: len(b.v)] @ b.a + T
    np.testing.assert_allclose(b.at["readings"][name], expected, rtol=1e-13)
