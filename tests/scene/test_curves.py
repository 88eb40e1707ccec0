"""Curves in panels: which quantities share one, their names, units and samples."""

import numpy as np
import pytest

from jaxmbd.errors import MechanismError
from jaxmbd.scene.curves import component_label, panels_of
from tests.scene.bench import TS, angle, ground_point, hung, motion_of, rod_point


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_panels_have_one_unit(coordinates: str) -> None:
    solution = motion_of(hung(2, coordinates))
    lengths, angles = panels_of(solution, ["S", "O.angle", "R"], {}, "unit")
    assert (lengths.title, angles.title) == ("[m]", "O.angle [rad]")
    assert [curve.label for curve in lengths.curves] == ["S.x", "S.y", "R.x", "R.y"]
    ground, rod = (np.array([path(2, t) for t in TS]).T for path in (ground_point, rod_point))
    np.testing.assert_allclose([curve.values for curve in lengths.curves], [*ground, *rod], atol=1e-12)
    np.testing.assert_allclose(angles.curves[0].values, [angle(t) for t in TS], atol=1e-12)
    names = [panel.quantity for panel in panels_of(solution, ["S", "O.angle", "R"], {}, "name")]
    assert names == ["S", "O.angle", "R"]


def test_samples_are_beside_their_curves() -> None:
    solution = motion_of(hung(2, "joint"))
    (panel,) = panels_of(solution, "S", {"S": (TS[:2], np.arange(4.0).reshape(2, 2))}, "unit")
    for k, curve in enumerate(panel.curves):
        assert curve.measured is not None
        np.testing.assert_array_equal(curve.measured[0], TS[:2])
        np.testing.assert_array_equal(curve.measured[1], [k, k + 2.0])
    with pytest.raises(MechanismError, match=r"measured\['S'\] has 1 components, the motion 2"):
        panels_of(solution, "S", {"S": np.zeros(5)}, "unit")
    with pytest.raises(MechanismError, match=r"one row for each of its times: got shape \(4,\)"):
        panels_of(solution, "O.angle", {"O.angle": np.zeros(4)}, "unit")


def test_names_of_components() -> None:
    assert [component_label("P", k, 3) for k in range(3)] == ["P.x", "P.y", "P.z"]
    assert (component_label("P", 0, 1), component_label("P", 4, 5)) == ("P", "P[4]")
