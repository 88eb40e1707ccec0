"""The measured double pendulum with two motors: its data, and the model of the notebook against the source's equations.

`notebooks/driven_double_pendulum.ipynb` identifies and predicts, and asserts how much better than published.
"""

from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.data import dfki_double_pendulum

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "driven_double_pendulum.ipynb"
GEAR, L1, G = 6.0, 0.2, 9.81


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    """The names that the notebook's imports and its cell with the mechanism define."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    names: dict[str, Any] = {}
    for source in (cells[0], *(source for source in cells if "def pendulum(" in source)):
        exec(source, names)
    return names


def accelerations(p: dict[str, float], q: np.ndarray, v: np.ndarray, u: np.ndarray) -> np.ndarray:
    """`M q̈ = u + G − C q̇ − F`; Wiebe et al., github double_pendulum @ 1e8544e, model/symbolic_plant.py."""
    c, rotor = p["m2"] * L1 * p["r2"], p["Ir"]
    coupling = p["I2"] + c * np.cos(q[1]) - GEAR * rotor
    first = p["I1"] + p["I2"] + p["m2"] * L1**2 + 2 * c * np.cos(q[1]) + GEAR**2 * rotor + rotor
    M = np.array([[first, coupling], [coupling, p["I2"] + GEAR**2 * rotor]])
    C = c * np.sin(q[1]) * np.array([[-2 * v[1], -v[1]], [v[0], 0.0]])
    lower = p["m2"] * G * p["r2"] * np.sin(q[0] + q[1])
    upper = (p["m1"] * p["r1"] + p["m2"] * L1) * G * np.sin(q[0])
    F = [p[f"b{k}"] * v[k - 1] + p[f"cf{k}"] * np.arctan(100 * v[k - 1]) for k in (1, 2)]
    return np.linalg.solve(M, u - np.array([upper + lower, lower]) - C @ v - F)


@pytest.mark.parametrize("published", ["1.0", "2.0", "3.0"])
def test_accelerations_are_those_of_the_published_equations(model: dict[str, Any], published: str) -> None:
    """At random angles, rates, torques and zeros of the encoders, also for masses that are converted."""
    p, draws = model["PUBLISHED"][published], np.random.default_rng(0)
    for _ in range(5):
        q, v, u, zeros = draws.normal(size=(4, 2)) * np.array([[2.0], [5.0], [2.0], [0.1]])
        mechanism = model["pendulum"](model["converted"](p) | {"zeros": zeros, "u1": u[0], "u2": u[1]})
        start = {"shoulder.angle": q[0], "elbow.angle": q[1]}
        state = mbd.assemble(mechanism, start, speeds=dict(zip(start, v, strict=True)))
        upper, lower = (float(mbd.read(mechanism, state, f"{body}.alpha")) for body in ("upper", "lower"))
        expected = accelerations(p, q + zeros, v, u)
        np.testing.assert_allclose([upper, lower - upper], expected, rtol=1e-9, atol=1e-9)


def test_the_records_are_those_that_were_measured() -> None:
    """Lengths, units and order; the torque drives the joint that it is named for."""
    records = dfki_double_pendulum()
    assert [len(record["t"]) for record in records.values()] == [2000] * 8 + [1200] * 2
    for record in records.values():
        assert list(record) == ["t", "q1", "q2", "u1", "u2"]
        np.testing.assert_allclose(np.diff(record["t"]), 0.005)
        assert max(abs(record["q1"][0]), abs(record["q2"][0])) < 1e-3  # zeros where the pendulum rested
    # The elbow's motor alone has a command in 143704, the shoulder's alone in 143906, where the elbow rests.
    assert np.ptp(records["143704"]["u2"]) > 4 * np.ptp(records["143704"]["u1"]) > 0
    assert np.ptp(records["143906"]["q1"]) > 0.5 > 0.01 > np.ptp(records["143906"]["q2"])
    assert np.allclose(records["154220"]["q1"][-1], np.pi, atol=0.02)  # swung up
