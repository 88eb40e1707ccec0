"""The spanning tree: which joints carry the coordinates, which are cut, and what is refused."""

from functools import partial

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.plot._spy import _kinds, _labels, augmented_matrix
from jaxmbd.scene.motion import poses_at
from tests.planar_examples import ALL

# --- the tree -------------------------------------------------------------------------------------


def suspension() -> pl.Mechanism:
    return examples.suspension().mechanism


def test_suspension_with_superimposed_arms() -> None:
    mechanism = suspension()
    report = mbd.describe(mechanism)
    assert report.coordinates == ("heave.displacement", "L.angle", "U.angle", "A.angle", "axle.angle")
    assert report.rows == 2
    assert report.reactions == ("B.Fx", "B.Fy")
    assert len(report.dependent) == 2
    assert len(report.independent) == report.freedom == 3
    assert str(report).startswith(
        "The system has 3 degrees of freedom. It is modelled using 5 generalized coordinates coupled by 2 algebraic "
        "constraints."
    )
    state = mbd.assemble(mechanism)
    points = [mechanism["B"].a, mechanism["B"].b]
    near = mbd.Equations(mechanism).at(state.t, state.q).near(points)
    np.testing.assert_allclose(near.stack.position[0], near.stack.position[1], atol=1e-10)


def test_the_tree_prefers_few_coordinates_and_named_joints() -> None:
    """A weld before a pin before a pin in a slot; a driven pin before one that comes first; the rest is cut."""
    crank, coupler, rocker, cap = (pl.Body(n, 1, 1, (x, 0, 0)) for n, x in zip("abcd", range(4), strict=True))
    joints = [
        pl.PinInSlot("slot", pl.ground.at(), rocker.at(1)),
        pl.Revolute("A", pl.ground.at(), crank.at(-1)),
        pl.Revolute("B", crank.at(1), coupler.at(-1)),
        pl.Revolute("C", coupler.at(1), rocker.at(-1)),
        pl.Revolute("D", rocker.at(0.5), pl.ground.at(4)),
        pl.Revolute("E", coupler.at(), cap.at(1)),
        pl.Weld("W", coupler.at(), cap.at()),
    ]
    build = partial(pl.Mechanism, [crank, coupler, rocker, cap], joints, coordinates="joint")
    assert build().tree.joints == ("A", "B", "C", "W")
    assert build(drivers=[pl.Driver("m", "D.angle", 0.1)]).tree.joints == ("A", "B", "D", "W")
    assert build(cuts=["B"]).tree.joints == ("A", "C", "D", "W")
    assert build(cuts=["A", "D"]).tree.coordinates == (
        "slot.displacement", "slot.angle", "B.angle", "C.angle",
    )  # fmt: skip
    assert [part.name for part in build(cuts=["B"]).constraints()] == ["slot", "B", "E"]


def test_what_no_joint_carries_floats() -> None:
    """A body on a rod alone keeps its own coordinates; so does the first body of a chain that floats."""
    a, b = pl.Body("a", 1, 1), pl.Body("b", 1, 1, (1, 0, 0))
    pin = pl.Revolute("P", a.at(0.5), b.at(-0.5))
    mechanism = pl.Mechanism([a, b], [pl.Rod("rod", pl.ground.at(), b.at(0.5), 2.0), pin], coordinates="joint")
    assert mechanism.tree.coordinates == ("a.x", "a.y", "a.theta", "P.angle")
    assert mbd.describe(mechanism).freedom == 3
    ball = sp.Body("ball", 1, (1, 1, 1))
    free = sp.Mechanism([ball], floating=True, coordinates="joint")
    assert free.nq == 7
    assert free.nv == 6


GUESS_OF_A_LOOP = {"O.angle": 0.1, "B.angle": 0.1, "C.angle": 0.1, "rail.displacement": 0.1}
BAD = {
    "coordinates": (
        lambda: pl.Mechanism([pl.Body("a", 1, 1)], floating=True, coordinates="relative"),
        "coordinates must be 'absolute' or 'joint', got 'relative'",
    ),
    "cut, unknown": (lambda: suspension().with_coordinates("joint", cuts=["b"]), "no joint to cut named 'b'.*'B'"),
    "cut, as a string": (lambda: suspension().with_coordinates("joint", cuts="B"), r"such as \['B'\]"),
    "cut, of a constraint": (
        lambda: pl.Mechanism(
            [b := pl.Body("b", 1, 1)], [pl.Rod("R", pl.ground.at(), b.at(), 1.0)], coordinates="joint", cuts=["R"]
        ),
        "Joint 'R', a Rod, is a constraint in any coordinates",
    ),
    "cut, in absolute coordinates": (
        lambda: suspension().with_coordinates("absolute", cuts=["B"]),
        "only means something with coordinates='joint'",
    ),
    "speeds, too few": (
        lambda: suspension().with_coordinates("joint", ["B"], pl.GeneralizedSpeeds(["u"], lambda t, q, p, _: p)),
        r"5 speeds are needed, got 1 names",
    ),
    "speeds, wrong shape": (
        lambda: suspension().with_coordinates(
            "joint", ["B"], pl.GeneralizedSpeeds(list("uvwxy"), lambda t, q, p, _: p[:2])
        ),
        r"must return shape \(5,\), got \(2,\)",
    ),
    "guess of all joints of a loop": (
        lambda: mbd.assemble(ALL["slider_crank"]().mechanism, guess=GUESS_OF_A_LOOP),
        "are in one loop, in which the coordinates of 'rail' follow from the others",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_descriptions_that_cannot_be_right(case: str) -> None:
    build, message = BAD[case]
    with pytest.raises(mbd.MechanismError, match=message):
        build()


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
@pytest.mark.parametrize(("too_short", "closes"), [(1.7e-8, True), (2.3e-8, False)])
def test_one_verdict_on_a_loop_that_closes_nearly(too_short: float, closes: bool, coordinates: str) -> None:
    """A bar of 1 m between pins that are a little farther apart: two joints miss by half of it each, or one by all."""
    bar = pl.Body("bar", 1.0, 0.1, pose=(0.5, 0.0, 0.0))
    pins = [
        pl.Revolute("A", pl.ground.at(), bar.at(-0.5)),
        pl.Revolute("B", pl.ground.at(1.0 + too_short), bar.at(0.5)),
    ]
    mechanism = pl.Mechanism([bar], pins, coordinates=coordinates)
    state = mbd.assemble(mechanism, check=False)
    assert (state.result == mbd.RESULTS.successful) == closes
    assert np.isfinite(np.asarray(state.q)).all() == closes


def test_joints_of_a_loop() -> None:
    """Those between the bodies that a cut joint connects, to the ground or to each other; free bodies add none."""
    bodies = [pl.Body(name, 1.0, 0.1, pose=(k, 0.0, 0.0)) for k, name in enumerate("abcde")]
    pairs = ((pl.ground, bodies[0]), (bodies[0], bodies[1]), (bodies[1], bodies[2]), (bodies[0], bodies[3]))
    joints = [pl.Revolute(name, a.at(), b.at()) for name, (a, b) in zip("PQRS", pairs, strict=True)]
    tree = pl.Mechanism(bodies, joints, coordinates="joint", floating=True).tree
    a, b, c, d, e, ground = range(6)
    assert tree.loop([c, ground]) == tree.loop([ground, c]) == ["P", "Q", "R"]
    assert tree.loop([c, d]) == ["Q", "R", "S"]
    assert tree.loop([b, c, d]) == ["Q", "R", "S"]
    assert tree.loop([a, a]) == tree.loop([e, ground]) == tree.loop([]) == []
    assert tree.loop([e, b]) == ["P", "Q"]
    assert pl.Mechanism(bodies, joints, floating=True).tree.loop([c, d]) == []


def test_pictures_of_joint_coordinates() -> None:
    """The same poses as in absolute coordinates; and no entry of the augmented matrix where `spy` says none can be."""
    found = ALL["slider_crank"]()
    joint = found.mechanism.with_coordinates("joint")
    state = mbd.assemble(joint, found.fixed, speeds=found.speeds)
    poses = poses_at(joint, np.zeros(1), np.asarray(state.q)[None])
    np.testing.assert_allclose(poses[0, :-1].reshape(-1), found.state().q, atol=1e-9)
    for mechanism, here in ((joint, state), (found.mechanism, found.state())):
        matrix = augmented_matrix(mechanism, here)
        kinds = _kinds(mechanism, matrix)
        assert not np.any((kinds == 0) & (np.abs(matrix) > 1e-12))
        assert np.array_equal(kinds, kinds.T)
        assert np.any(kinds == 0)
        labels, sizes = _labels(mechanism)
        assert sum(sizes) == len(matrix)
        assert len(labels) == len(sizes)
    assert _labels(joint)[0] == ["O", "B", "C", "rail"]
