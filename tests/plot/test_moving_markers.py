"""Pictures, mode shapes and pages show markers that move where they are at the time that is shown."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import plot, view
from jaxmbd.state.state import rank_number, state_of
from tests.scene.bench import KINDS, TS, coordinates_of, ground_point, hung, motion_of, rod_point, speeds_of
from tests.view.pages import Content

ROUNDED = 1e-4  # [m] positions on a page, and the poses between saved times


def state_at(mechanism: Any, t: float) -> mbd.State:
    q, v = (jnp.asarray(values(mechanism, [t])[0]) for values in (coordinates_of, speeds_of))
    return state_of(mechanism, jnp.asarray(t), q, v, rank_number(-1))


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_state_is_drawn_at_its_time(coordinates: str) -> None:
    """The spring is the one line from the ground's marker to the rod's; coordinates alone are drawn at `t`."""
    mechanism = hung(2, coordinates)
    for t, shown in ((0.75, state_at(mechanism, 0.75)), (0.5, coordinates_of(mechanism, [0.5])[0])):
        axes = plot.draw(mechanism, shown, t=None if t == 0.75 else t)
        ends = [ground_point(2, t), rod_point(2, t)]
        lines = [np.asarray(line.get_xydata()) for line in axes.lines]
        assert sum(np.allclose(line[[0, -1]], ends, atol=1e-9) for line in lines) == 1


def test_forces_on_a_state_are_those_at_its_speeds() -> None:
    """A drag of 2 N s/m on a point that moves with 3 m/s; coordinates are those of bodies at rest."""
    body = pl.Body("b", 1.0, 1.0)
    drag = pl.Force("drag", body.at(), lambda t, at, rate: -2.0 * rate.position + jnp.array([0.0, t]))
    mechanism = pl.Mechanism([body], forces=[drag], floating=True)
    state = state_of(mechanism, jnp.asarray(0.5), jnp.zeros(3), jnp.array([3.0, 0.0, 0.0]), rank_number(-1))
    (arrow,) = plot.draw(mechanism, state).collections
    np.testing.assert_allclose((arrow.U[0], arrow.V[0]), (-6.0, 0.5))  # pyright: ignore[reportAttributeAccessIssue]
    (arrow,) = plot.draw(mechanism, state.q, t=0.25).collections
    np.testing.assert_allclose((arrow.U[0], arrow.V[0]), (0.0, 0.25))  # pyright: ignore[reportAttributeAccessIssue]


def test_a_mode_is_drawn_at_the_time_of_its_state() -> None:
    """A rod hangs under a support that moves steadily: the bearing is where the support is at that time."""
    rod = pl.Body("rod", 1.0, 0.1)
    support = pl.ground.moving(lambda t: (2.0 * t, 0.0 * t))
    mechanism = pl.Mechanism([rod], [pl.Revolute("O", support, rod.at(-0.5))], [pl.Gravity()])
    state = mbd.assemble(mechanism, {"rod.theta": -np.pi / 2}, speeds={"rod.omega": 0.0}, t=1.5)
    axes = plot.modes(mbd.linearize(mechanism, state), 0)
    stands = [np.asarray(line.get_xydata()) for line in axes.lines if np.isnan(np.asarray(line.get_xydata())).any()]
    assert [tuple(stand[0]) for stand in stands] == [pytest.approx((3.0, 0.0))] * len(stands)
    assert stands


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_a_page_has_a_track_for_each_marker_that_moves(dim: int, coordinates: str) -> None:
    solution = motion_of(hung(dim, coordinates))
    content = Content(view.page(solution))
    (motion,) = content.data["motions"]
    times, positions = content.array(motion["times"]), content.array(motion["positions"])
    assert (motion["frames"], motion["bodies"]) == (3, ["rod"])
    spring = next(piece for piece in motion["pieces"] if piece["part"] == "spring")
    assert (spring["start"]["frame"], spring["end"]["frame"]) == (1, 2)
    for k in (0, 150, 400):
        t = times[k]
        np.testing.assert_allclose(positions[k, 1:], [ground_point(dim, t), rod_point(dim, t)], atol=2e-3)
    saved = np.searchsorted(times, TS - 1e-6)
    wanted = [[ground_point(dim, t), rod_point(dim, t)] for t in TS]
    np.testing.assert_allclose(positions[saved, 1:], wanted, atol=ROUNDED)
    instant = Content(view.page(solution.mechanism, state_at(solution.mechanism, 0.75)))
    positions = instant.array(instant.data["motions"][0]["positions"])
    np.testing.assert_allclose(positions[0, 1:], [ground_point(dim, 0.75), rod_point(dim, 0.75)], atol=ROUNDED)
