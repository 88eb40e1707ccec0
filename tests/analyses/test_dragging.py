"""Mechanisms that are led by hand: the nearest position, what cannot be reached, dead centres, and paths."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.dragging.following import CLOSED, Followed, follow
from jaxmbd.analyses.dragging.goals import CoordinateGoal, PointGoal
from jaxmbd.analyses.dragging.linkage import Linkage, Position
from jaxmbd.analyses.dragging.path import driving_coordinates, path_along, pose_distance

CRANK, ROD = 0.1, 0.3  # [m]


@dataclasses.dataclass
class Held:
    """A linkage at a position, and a search from it to goals that goes on until it is done."""

    linkage: Linkage
    position: Position

    def led(self, *goals: object, most: int = 20) -> Followed:
        memory = None
        for _ in range(most):
            found = follow(self.linkage, self.position, goals, memory)  # pyright: ignore
            self.position, memory = found.position, found.memory
            assert found.position.miss <= CLOSED
            assert np.isfinite(found.position.q).all()
            if found.is_done:
                return found
        raise AssertionError("the search does not end")


def slider_crank(angle: float) -> Held:
    crank = pl.Body("crank", 1.0, 0.01, pose=(CRANK / 2, 0.0, 0.0))
    rod = pl.Body("rod", 1.0, 0.01, pose=(CRANK + ROD / 2, 0.0, 0.0))
    slider = pl.Body("slider", 1.0, 0.01, pose=(CRANK + ROD, 0.0, 0.0))
    joints = [
        pl.Revolute("O", pl.ground.at(), crank.at(-CRANK / 2)),
        pl.Revolute("A", crank.at(CRANK / 2), rod.at(-ROD / 2)),
        pl.Revolute("B", rod.at(ROD / 2), slider.at()),
        pl.Prismatic("rail", pl.ground.at(), slider.at()),
    ]
    mechanism = pl.Mechanism([crank, rod, slider], joints)
    return held(mechanism, mbd.assemble(mechanism, {"O.angle": angle}))


def held(mechanism: object, state: mbd.State) -> Held:
    linkage = Linkage(mechanism, 0.0, np.asarray(state.q))  # pyright: ignore
    return Held(linkage, linkage.at(np.asarray(state.q)))


def slider_at(angle: float) -> float:
    return CRANK * np.cos(angle) + np.sqrt(ROD**2 - (CRANK * np.sin(angle)) ** 2)


def tip(x: float, y: float) -> PointGoal:
    """The end of the crank."""
    return PointGoal(0, np.array([CRANK / 2, 0.0]), np.array([x, y]))


def slide_to(x: float) -> PointGoal:
    return PointGoal(2, np.zeros(2), np.array([x, 0.0]))


@pytest.fixture(scope="module")
def crank() -> Held:
    return slider_crank(0.4)


@pytest.fixture
def at(crank: Held) -> Held:
    return dataclasses.replace(crank)


@pytest.mark.parametrize("angle", [0.6, 1.5, -1.2, 3.0])
def test_a_point_follows_to_where_it_can_be(at: Held, angle: float) -> None:
    found = at.led(tip(CRANK * np.cos(angle), CRANK * np.sin(angle)))
    assert found.missed < 1e-6
    assert at.position.poses[2][0] == pytest.approx(slider_at(angle), abs=1e-7)


@pytest.mark.parametrize("angle", [0.9, 2.0, -0.5])
def test_what_cannot_be_reached_is_approached_as_far_as_possible(at: Held, angle: float) -> None:
    """The point of a circle next to a target outside of it lies on the ray to that."""
    at.led(tip(3 * CRANK * np.cos(angle), 3 * CRANK * np.sin(angle)))
    assert at.position.poses[0][2] == pytest.approx(angle, abs=3e-3)


def test_a_dead_centre_is_passed_in_the_direction_of_the_last_step(at: Held) -> None:
    at.led(slide_to(slider_at(0.3)))
    at.led(slide_to(0.5))  # too far: the crank stretches
    assert at.position.poses[2][0] == pytest.approx(CRANK + ROD, abs=2e-4)
    for x in np.linspace(0.3999, 0.25, 60):
        at.led(slide_to(float(x)))
        assert at.position.poses[2][0] == pytest.approx(x, abs=1e-6)


def test_a_crank_at_a_dead_centre_can_be_left() -> None:
    still = slider_crank(0.0)
    still.led(slide_to(0.3))
    assert still.position.poses[2][0] == pytest.approx(0.3, abs=1e-6)


def test_small_moves_lead_to_near_positions_of_the_same_mode(at: Held) -> None:
    """The slider stays on its side of the crank, which the other assembly mode does not."""
    for angle in np.linspace(0.4, 0.4 + 4 * np.pi, 200):
        before = at.position
        at.led(tip(CRANK * np.cos(angle), CRANK * np.sin(angle)))
        assert at.position.poses[2][0] == pytest.approx(slider_at(angle), abs=1e-6)
        assert np.abs(at.position.poses - before.poses).max() < 0.1
    assert at.position.poses[0][2] == pytest.approx(0.4 + 4 * np.pi, abs=1e-6)  # turns are counted


def test_wild_targets_never_open_the_loops(at: Held) -> None:
    random = np.random.default_rng(0)
    for target in random.uniform(-2.0, 2.0, (40, 2)):
        at.led(PointGoal(1, np.array([0.1, 0.05]), target))
    at.led(PointGoal(1, np.zeros(2), np.array([1e12, -1e12])))


def test_a_coordinate_follows_up_to_whole_turns(at: Held) -> None:
    number = at.linkage.names.index("O.angle")
    at.led(CoordinateGoal(number, 1.1 + 6 * np.pi))
    assert float(at.position.coordinates[number]) % (2 * np.pi) == pytest.approx(1.1, abs=1e-6)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_jacobians_of_goals_are_their_derivatives(coordinates: str) -> None:
    example = mbd.examples.get("spatial-four-bar")
    example = example.with_coordinates("joint") if coordinates == "joint" else example
    four_bar = held(example.mechanism, example.state())
    linkage, start, random = four_bar.linkage, four_bar.position, np.random.default_rng(1)
    direction = random.normal(size=len(linkage.speeds))
    along = np.array([0.6, 0.0, 0.8])
    goals = [PointGoal(1, random.normal(size=3), random.normal(size=3), along), CoordinateGoal(0, 0.3)]
    goals.append(PointGoal(0, random.normal(size=3), random.normal(size=3)))
    for goal in goals:
        (ahead, _), (behind, _) = (goal.rows(linkage, linkage.at(start.q, h * direction)) for h in (1e-5, -1e-5))
        np.testing.assert_allclose((ahead - behind) / 2e-5, goal.rows(linkage, start)[1] @ direction, atol=1e-8)
    rows = [linkage.at(start.q, h * direction).rows for h in (1e-5, -1e-5)]
    np.testing.assert_allclose((rows[0] - rows[1]) / 2e-5, start.C @ direction, atol=1e-8)


def test_a_ray_is_met_anywhere_on_it() -> None:
    """In space a pointer says where a point is on the screen, not how far it is."""
    example = mbd.examples.get("spatial-four-bar")
    four_bar = held(example.mechanism, example.state())
    at, crank = four_bar.linkage.at, CoordinateGoal(0, 0.8)
    start = four_bar.position
    four_bar.led(crank)
    wanted = PointGoal(0, np.array([0.0, 0.0, 0.1]), np.zeros(3)).point(four_bar.position)
    four_bar.position = at(start.q)
    along = np.array([0.3, 0.9, np.sqrt(0.1)])
    found = four_bar.led(PointGoal(0, np.array([0.0, 0.0, 0.1]), wanted + 5.0 * along, along))
    assert found.missed < 1e-6


def test_the_path_of_a_linkage_is_whole(crank: Held) -> None:
    linkage, start = crank.linkage, crank.position
    driving = driving_coordinates(linkage, start)
    assert [linkage.names[k] for k in driving] == ["O.angle"]
    path = path_along(linkage, start, driving[0], [])
    assert path.is_whole
    angles = np.unwrap([at.coordinates[driving[0]] for at in path.positions[:-1]])
    assert np.ptp(angles) > 2 * np.pi - 0.1
    for at in path.positions:
        assert at.miss <= CLOSED
        assert at.poses[2][0] == pytest.approx(slider_at(float(at.poses[0][2])), abs=1e-7)


def test_a_path_goes_on_through_dead_centres(crank: Held) -> None:
    """By the slider it is the same path, in which the slider turns back twice."""
    number = crank.linkage.names.index("rail.displacement")
    path = path_along(crank.linkage, crank.position, number, [])
    places = np.array([at.poses[2][0] for at in path.positions])
    assert path.is_whole
    assert places.max() == pytest.approx(CRANK + ROD, abs=1e-4)
    assert places.min() == pytest.approx(ROD - CRANK, abs=1e-4)


def test_held_coordinates_keep_their_values() -> None:
    example = mbd.examples.get("five-bar")
    mechanism = example.mechanism.replaced(drivers=[])
    five_bar = held(mechanism, example.state())
    linkage, start = five_bar.linkage, five_bar.position
    driving = driving_coordinates(linkage, start, ["C.angle"])
    assert [linkage.names[k] for k in driving] == ["C.angle", "O.angle"]
    path = path_along(linkage, start, driving[0], driving[1:])
    values = np.array([at.coordinates for at in path.positions])
    np.testing.assert_allclose(values[:, driving[1]], values[0, driving[1]], atol=1e-8)
    assert np.ptp(values[:, driving[0]]) > 0.5


def test_a_ring_with_redundant_rows_is_led_through_its_whole_motion() -> None:
    example = mbd.examples.get("bricard").with_coordinates("joint")
    ring = held(example.mechanism, example.state())
    path = path_along(ring.linkage, ring.position, 0, [])
    assert path.is_whole
    goal = PointGoal(2, np.zeros(3), path.positions[40].poses[2][:3])
    assert ring.led(goal).missed < 1e-6
    assert pose_distance(ring.position.poses, path.positions[40].poses, 1.0) < 1e-4


def test_other_numbers_need_no_new_program(at: Held) -> None:
    longer = mbd.with_numbers(at.linkage.mechanism, {"A.b.position[0]": jnp.asarray(-0.2)})
    shorter = at.linkage.mechanism
    try:
        at.linkage.set(longer)
        moved = at.linkage.at(at.position.q)
        assert moved.miss == pytest.approx(0.05, rel=0.01)  # of the unit of length, a metre
    finally:
        at.linkage.set(shorter)
