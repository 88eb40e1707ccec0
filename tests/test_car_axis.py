"""The car axis of the test set for initial value problem solvers, in both coordinates, by every method."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import examples

# Mazzia and Magherini, Test Set for Initial Value Problem Solvers (2008), II-8: x and y of the body's left and right
# end at 3 s, and their speeds, computed by PSIDE at 1e-13 or so.
PLACES = [0.4934557842755629e-1, 0.4969894602303324, 0.1041742524885400e1, 0.3739110272652214]  # [m]
SPEEDS = [-0.7705836840321485e-1, 0.7446866596327776e-2, 0.1755681574942899e-1, 0.7703410437794031]  # [m/s]
PLACE, SPEED = 1e-8, 1e-6  # [m, m/s]: the springs' fastest motion has 45 rad/s

WAYS: dict[str, tuple[Any, Any]] = {
    "stabilized": (mbd.Stabilized(), None),
    "projection": (mbd.Projection(), None),
    "partitioning": (mbd.CoordinatePartitioning(), None),
    "radau": (mbd.Stabilized(), mbd.Radau(7)),
}
BOTH = pytest.mark.parametrize("coordinates", ["absolute", pytest.param("joint", marks=pytest.mark.slow)])


@cache
def driven(coordinates: str, way: str) -> mbd.Solution:
    """The motion over 3 s."""
    method, solver = WAYS[way]
    example = examples.get("car-axis").described(coordinates)
    return example.simulate([0.0, 3.0], method=method, solver=solver, rtol=1e-10, atol=1e-11)


def places(solution: mbd.Solution) -> np.ndarray:
    """Of both ends, at the end of the motion."""
    return np.concatenate([solution["left"][-1], solution["right"][-1]])


def speeds(solution: mbd.Solution) -> np.ndarray:
    """Of both ends, `v ± ½ ω × u` with the body's direction `u`."""
    vx, vy, omega, theta = (float(solution[f"body.{name}"][-1]) for name in ("vx", "vy", "omega", "theta"))
    centre, turning = np.array([vx, vy]), omega / 2 * np.array([-np.sin(theta), np.cos(theta)])
    return np.concatenate([centre - turning, centre + turning])


@BOTH
@pytest.mark.parametrize("way", WAYS)
def test_it_ends_where_the_test_set_says(coordinates: str, way: str) -> None:
    solution = driven(coordinates, way)
    np.testing.assert_allclose(places(solution), PLACES, rtol=0, atol=PLACE)
    np.testing.assert_allclose(speeds(solution), SPEEDS, rtol=0, atol=SPEED)


@BOTH
def test_all_ways_agree(coordinates: str) -> None:
    """With one another to the same tolerance as with the test set; and joint coordinates with absolute ones."""
    ends = np.stack([places(driven(coordinates, way)) for way in WAYS])
    np.testing.assert_allclose(np.ptp(ends, axis=0), 0.0, atol=PLACE)


def test_radau_takes_few_steps_and_keeps_the_constraints() -> None:
    solution = driven("absolute", "radau")
    missed = solution.violation()
    assert int(solution.stats["num_steps"]) < 300
    np.testing.assert_allclose(missed.position[-1], 0.0, atol=1e-13)
    np.testing.assert_allclose(missed.velocity[-1], 0.0, atol=1e-12)
