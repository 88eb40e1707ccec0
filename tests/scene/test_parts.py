"""Which parts are drawn, where, and what stands on the ground."""

import numpy as np
import pytest

from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.arrays import Function
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.parts import pieces_of, symbol
from jaxmbd.scene.pieces import GREY
from tests.scene.bench import HINGE, KINDS, TS, coordinates_of, hung, rod_point, world


def hanging(motion: Function, down: float) -> Geometry:
    """A rod below or above a support that moves, at two times."""
    rod = pl.Body("rod", 1.0, 0.1)
    mechanism = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.moving(motion), rod.at(0.0, 0.5))])
    places = [(3.0 * t, 1.0 + down * 0.5, np.pi if down > 0 else 0.0) for t in (0.0, 2.0)]
    return Geometry(mechanism, [0.0, 2.0], places)


@pytest.mark.parametrize("down", [-1.0, 1.0])
def test_a_support_that_moves_stands_or_hangs_where_it_is(down: float) -> None:
    """What hangs is seen from where the support is, not from where it was at the time zero."""
    geometry = hanging(lambda t: (3.0 * t, 1.0 + 0.0 * t), down)
    (stand,) = [piece for piece in pieces_of(geometry) if piece.part == "ground"]
    for k, x in enumerate((0.0, 6.0)):
        points = stand.shape(geometry.motion.at(k))
        np.testing.assert_allclose(points[0], (x, 1.0), atol=1e-12)  # the tip, where the pin is
        below = np.nanmin(points[:, 1]) < 1.0 - geometry.size
        assert below == (down > 0)


def test_parts_that_share_a_marker_share_a_support() -> None:
    """A marker that moves, and fixed ones: one stand each, although all have the offset zero in their frames."""
    rod = pl.Body("rod", 1.0, 0.1)
    one, other = (pl.ground.moving(lambda t, x=x: (x + t, 0.0)) for x in (0.0, 1.0))
    forces = [pl.SpringDamper(f"s{k}", end, rod.at(), 1.0) for k, end in enumerate((one, one, other, pl.ground.at()))]
    geometry = Geometry(pl.Mechanism([rod], forces=forces, floating=True), [1.0], [[0.5, 3.0, 0.0]])
    walls = [piece for piece in pieces_of(geometry) if piece.part == "ground"]
    points = sorted(float(wall.place.point(geometry.motion.at(0))[0]) for wall in walls)
    assert points == pytest.approx([0.0, 1.0, 2.0])


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_sensors_are_dots_unless_something_else_is_there(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    geometry = Geometry(mechanism, TS, coordinates_of(mechanism, TS))
    (dot,) = [piece for piece in pieces_of(geometry) if piece.part == "R"]
    for k, t in enumerate(TS):
        points = np.unique(np.round(dot.shape(geometry.motion.at(k)).reshape(-1, dim), 9), axis=0)
        middle = (points.min(axis=0) + points.max(axis=0)) / 2
        np.testing.assert_allclose(middle, rod_point(dim, t), atol=0.05 * geometry.size)
    # A sensor at the hinge, or at the centre of mass, adds nothing; one at the origin of the world does.
    space = pl if dim == 2 else sp
    body, hinge = mechanism["rod"], mechanism["O"]
    marked = {"at the hinge": hinge.b, "at the centre": body.at(), "at the origin": space.ground.at()}
    points = [space.Point(name, marker) for name, marker in marked.items()]
    more = type(mechanism)([body], [hinge], sensors=points, coordinates=coordinates)
    shown = {piece.part for piece in pieces_of(Geometry(more, TS, coordinates_of(more, TS)))}
    assert shown & set(marked) == {"at the origin"}


@pytest.mark.parametrize(("dim", "coordinates"), KINDS)
def test_a_hinge_stands_at_its_marker(dim: int, coordinates: str) -> None:
    mechanism = hung(dim, coordinates)
    geometry = Geometry(mechanism, TS, coordinates_of(mechanism, TS))
    stands = [p for p in pieces_of(geometry) if p.part == "ground" and p.place.frame == p.place.body]
    assert len(stands) == 1
    np.testing.assert_allclose(stands[0].place.point(geometry.motion.at(2)), world(dim, HINGE), atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_joints_without_a_symbol_are_broken_lines(dim: int) -> None:
    space = pl if dim == 2 else sp
    one, other = (space.Body(name, 1.0, 1.0 if dim == 2 else (1, 1, 1)) for name in "AB")  # pyright: ignore
    joint = (
        pl.RelativeAngle("J", one.at(1.0), other.at(-1.0))
        if dim == 2
        else sp.ParallelAxes("J", one.at(1), other.at(-1))
    )
    mechanism = space.Mechanism([one, other], [joint], floating=True)
    poses = np.array([[0, 0, 0], [4, 1, 0.0]]) if dim == 2 else np.array([[0, 0, 0, 1, 0, 0, 0], [4, 1, 0, 1, 0, 0, 0]])
    geometry = Geometry(mechanism, [0.0], poses.reshape(1, -1))
    (line,) = symbol(geometry, joint)
    assert line.colour == GREY
    assert line.end is not None
    ends = [place.point(geometry.motion.at(0))[:2] for place in (line.place, line.end)]
    np.testing.assert_allclose(ends, [(1, 0), (3, 1)], atol=1e-12)
    assert list(symbol(geometry, space.Gravity())) == []
