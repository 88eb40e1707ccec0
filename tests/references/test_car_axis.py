"""The car axis of the test set for initial value problem solvers, in both coordinates, by every formulation."""

from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import examples
from tests.marks import in_both_coordinates, slow_but

# Mazzia and Magherini, Test Set for Initial Value Problem Solvers (2008), II-8: x and y of the body's left and right
# end at 3 s, and their speeds, computed by PSIDE at 1e-13 or so.
PLACES = [0.4934557842755629e-1, 0.4969894602303324, 0.1041742524885400e1, 0.3739110272652214]  # [m]
SPEEDS = [-0.7705836840321485e-1, 0.7446866596327776e-2, 0.1755681574942899e-1, 0.7703410437794031]  # [m/s]
PLACE = 5e-9  # [m]: any two ways then agree to 1e-8
SPEED = 1e-6  # [m/s]

FORMULATIONS = {
    "stabilized": mbd.Stabilized(),
    "projection": mbd.Projection(),
    "partitioning": mbd.CoordinatePartitioning(),
}
BOTH = in_both_coordinates("absolute")


def driven(coordinates: str, **options: Any) -> mbd.Solution:
    """The motion over 3 s, at the end of which it is where the test set says."""
    example = examples.get("car-axis").with_coordinates(coordinates)
    solution = example.simulate([0.0, 3.0], rtol=1e-10, atol=1e-11, **options)
    places = np.concatenate([solution["left"][-1], solution["right"][-1]])
    np.testing.assert_allclose(places, PLACES, rtol=0, atol=PLACE)
    np.testing.assert_allclose(speeds(solution), SPEEDS, rtol=0, atol=SPEED)
    return solution


def speeds(solution: mbd.Solution) -> np.ndarray:
    """Of both ends, `v ± ½ ω × u` with the body's direction `u`."""
    vx, vy, omega, theta = (float(solution[f"body.{name}"][-1]) for name in ("vx", "vy", "omega", "theta"))
    centre, turning = np.array([vx, vy]), omega / 2 * np.array([-np.sin(theta), np.cos(theta)])
    return np.concatenate([centre - turning, centre + turning])


@BOTH
@pytest.mark.parametrize("formulation", slow_but(["stabilized", "partitioning"], FORMULATIONS))
def test_every_formulation_ends_where_the_test_set_says(coordinates: str, formulation: str) -> None:
    driven(coordinates, formulation=FORMULATIONS[formulation])


@BOTH
def test_radau_does_in_few_steps_and_keeps_the_constraints(coordinates: str) -> None:
    solution = driven(coordinates, solver=mbd.Radau(7))
    missed = solution.violation()
    assert int(solution.stats["num_steps"]) < 300
    np.testing.assert_allclose(missed.position[-1], 0.0, atol=1e-13)
    np.testing.assert_allclose(missed.velocity[-1], 0.0, atol=1e-12)
