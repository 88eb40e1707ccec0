"""Arrows, legends, labels and limits of a scene."""

import numpy as np
import pytest

from jaxmbd import planar as pl
from jaxmbd.errors import MechanismError
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.scene import Scene, Trace, arrow_scale, check_view, checked_reactions, round_below
from tests.scene.bench import HINGE, KINDS, TS, centre, coordinates_of, ground_point, hung, rod_point, world


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_limits_contain_all_that_moves(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    scene = Scene(Geometry(mechanism, TS, coordinates_of(mechanism, TS)))
    for point in (world(dim, HINGE), *(place(dim, t) for t in TS for place in (ground_point, rod_point))):
        assert all(low < x < high for x, (low, high) in zip(point, scene.limits, strict=True))
    widest = max(high - low for low, high in scene.limits)
    assert widest == pytest.approx(3.0 - world(dim, centre(1.0))[0] + 0.5 * np.cos(0.4 + 0.8), abs=12 * scene.size)


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_reactions_are_arrows_to_one_scale_with_a_round_legend(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    forces = np.array([world(dim, (30.0 * t, -4.0)) for t in TS])
    scene = Scene(Geometry(mechanism, TS, coordinates_of(mechanism, TS)), {"O": forces})
    (arrow,) = scene.arrows
    np.testing.assert_allclose(
        arrow.place.point(scene.motion), np.broadcast_to(world(dim, HINGE), (5, dim)), atol=1e-12
    )
    assert scene.legend is not None
    assert scene.legend.value == 20.0
    assert scene.legend.length == pytest.approx(20.0 / arrow.scale)
    assert scene.legend.text == "20 N   reaction of O on rod"
    longest = np.hypot(30.0, 4.0) / arrow.scale
    sides = [high - low for low, high in Scene(scene.geometry).limits]
    assert longest == pytest.approx(0.2 * max(sides))


def test_labels_are_shared_by_joints_that_stay_together() -> None:
    """Two hinges of one pin share a label; two that meet at the first time only have one each."""
    one, other, third = (pl.Body(name, 1.0, 0.1) for name in ("one", "other", "third"))
    joints = [pl.Revolute(name, pl.ground.at(), body.at(-0.5)) for name, body in (("P", one), ("Q", other))]
    rod = pl.Rod("R", pl.ground.at(3.0), third.at(-0.5), 1.0)
    mechanism = pl.Mechanism([one, other, third], [*joints, rod])
    q = np.array([[0.5, 0, 0, 0, 0.5, np.pi / 2, 0.5, 0, 0], [0.5, 0, 0, 0, 0.5, np.pi / 2, 2.0, 1.0, 0]])
    labels = Scene(Geometry(mechanism, [0.0, 1.0], q)).labels()
    assert [label.text for label in labels] == ["one", "other", "third", "P, Q", "R"]
    assert [label.is_body for label in labels] == [True, True, True, False, False]
    together = Scene(Geometry(mechanism, [0.0], q[:1])).labels()
    assert [label.text for label in together][3:] == ["P, Q, R"]


def test_a_trace_shows_what_has_been_travelled() -> None:
    trace = Trace(np.arange(14.0).reshape(7, 2), 3, "#000000")
    np.testing.assert_array_equal(trace.until(0), [(0, 1)])
    np.testing.assert_array_equal(trace.until(2), trace.points)


def test_scales_and_round_numbers() -> None:
    assert arrow_scale([np.array([[3.0, 4.0]]), np.array([[0.0, -1.0]])], 2.0) == pytest.approx(5.0 / 0.4)
    assert arrow_scale([np.zeros((1, 2))], 2.0) == pytest.approx(1.0 / 0.4)
    assert [round_below(x) for x in (7.0, 4.9, 0.0199, 1.0, 0.0, np.nan)] == [5.0, 2.0, 0.01, 1.0, 1.0, 1.0]


def test_what_is_given_is_checked() -> None:
    mechanism = hung(2, "joint")
    np.testing.assert_array_equal(checked_reactions(mechanism, {"O": (1.0, 2.0)})["O"], [(1.0, 2.0)])
    with pytest.raises(MechanismError, match=r"Reaction of 'O': expected a force \(fx, fy\) \[N\], got shape \(3,\)"):
        checked_reactions(mechanism, {"O": (1.0, 2.0, 3.0)})
    with pytest.raises(MechanismError, match="this one lies in the plane"):
        check_view(mechanism, (None, 30.0))
