"""All assembly modes of a mechanism, mechanisms that have none, and constraints that repeat one another."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.redundancy import jacobian, reduced_echelon
from tests.crank_rocker import LENGTHS, four_bar, rocker_angle
from tests.marks import in_both_coordinates
from tests.spatial_examples import bricard

CRANK = 1.1  # the crank's angle [rad]


def rocker_angles(lengths: Sequence[float] = LENGTHS) -> list[float]:
    """The rocker's two angles [rad], open and crossed."""
    return [rocker_angle(CRANK, branch, lengths) for branch in (1, -1)]


@pytest.fixture(scope="module")
def two() -> mbd.AssemblyModes:
    return mbd.assembly_modes(four_bar(), {"crank.theta": CRANK}, tries=32)


def test_the_two_assembly_modes_of_a_four_bar(two: mbd.AssemblyModes) -> None:
    """Both meeting points of the circles, the nearer first, each found often; angles without needless turns."""
    assert len(two) == 2
    assert sum(two.counts) + two.movable == two.tries == 32
    assert min(two.counts) > 4
    assert two.distances[0] < 1 < two.distances[1]
    for state, angle in zip(two, rocker_angles(), strict=True):
        assert abs(math.remainder(float(state["rocker.theta"]) - angle, math.tau)) < 1e-9
        assert abs(float(state["rocker.theta"]) - 1.5) <= math.pi
        assert abs(float(state["crank.theta"]) - CRANK) < 1e-10
        np.testing.assert_array_equal(state.v, 0.0)
    table = str(two).splitlines()
    assert table[0].startswith("2 assembly modes, found by 32 of 32 searches")
    columns = [f"{body}.{name}" for body in ("coupler", "rocker") for name in ("x", "y", "theta")]
    assert table[1].split() == ["found", "distance", *columns]
    assert table[2].split()[-1] == f"{float(two[0]['rocker.theta']):.5g}"


def test_assembly_modes_do_not_depend_on_chance(two: mbd.AssemblyModes) -> None:
    """The same seed gives the same, another one the same modes."""
    again = mbd.assembly_modes(four_bar(), {"crank.theta": CRANK}, tries=32)
    np.testing.assert_array_equal(again[1].q, two[1].q)
    assert again.counts == two.counts
    other = mbd.assembly_modes(four_bar(), {"crank.theta": CRANK}, tries=32, seed=1)
    assert other.counts != two.counts
    np.testing.assert_allclose(other[1].q, two[1].q, atol=1e-9)


@pytest.mark.slow
def test_assembly_modes_in_joint_coordinates(two: mbd.AssemblyModes) -> None:
    """The same positions in the same order."""
    joint = mbd.assembly_modes(four_bar().with_coordinates("joint"), {"crank.theta": CRANK}, tries=32)
    for state, other in zip(joint, two, strict=True):
        relative = float(other["rocker.theta"] - other["coupler.theta"])
        assert abs(math.remainder(float(state["B.angle"]) - relative, math.tau)) < 1e-9


def test_derivatives_of_assembly_modes() -> None:
    """Each mode's rocker angle by the lengths: forward and reverse, against the law of cosines."""

    def angles(lengths: Array) -> Array:
        found = mbd.assembly_modes(four_bar(lengths), {"crank.theta": CRANK}, tries=32)
        return jnp.stack([state["rocker.theta"] for state in found])

    h, base = 1e-6, np.asarray(LENGTHS)
    pairs = [(rocker_angles(tuple(base + h * e)), rocker_angles(tuple(base - h * e))) for e in np.eye(4)]
    expected = np.stack([np.subtract(*pair) / (2 * h) for pair in pairs], axis=1)
    np.testing.assert_allclose(jax.jacfwd(angles)(jnp.asarray(LENGTHS)), expected, atol=1e-8)
    np.testing.assert_allclose(jax.jacrev(angles)(jnp.asarray(LENGTHS)), expected, atol=1e-8)


# --- a platform with six assembly modes ----------------------------------------------------------------------------

BASE = np.array([(0.0, 0.0), (15.91, 0.0), (0.0, 10.0)])
PLATFORM = np.array([(0.0, 0.0), (17.04, 0.0), (20.84 * math.cos(0.8822603), 20.84 * math.sin(0.8822603))])
LEGS = (14.98, 15.38, 12.0)


def platform_angles() -> np.ndarray:
    """The angles at which three legs reach: zeros of a trigonometric polynomial of degree 3, from its samples.

    Differences of the legs' equations give the place of the platform for an angle, linearly; put into the first one,
    cleared of the denominator, they leave the polynomial.
    """

    def left(angle: float) -> float:
        c, s = math.cos(angle), math.sin(angle)
        d = PLATFORM @ np.array([[c, s], [-s, c]]) - BASE
        D, square = 2 * (d[1:] - d[0]), np.sum(d * d, axis=1)
        r = np.square(LEGS[1:]) - LEGS[0] ** 2 - square[1:] + square[0]
        place, det = np.array([[D[1, 1], -D[0, 1]], [-D[1, 0], D[0, 0]]]) @ r, np.linalg.det(D)
        return float(place @ place + 2 * det * place @ d[0] + det**2 * (square[0] - LEGS[0] ** 2))

    c = np.fft.fft([left(angle) for angle in math.tau * np.arange(16) / 16])
    z = np.roots([c[k] for k in range(3, -4, -1)])
    return np.sort(np.angle(z[np.abs(np.abs(z) - 1) < 1e-6]))


def test_six_assembly_modes_of_a_platform() -> None:
    """The 3-RPR platform of Gosselin and Merlet (1994), its legs held: six positions, those of the polynomial."""
    body = pl.Body("platform", 1.0, 1.0, (5.0, 5.0, 0.3))
    legs = [
        pl.Rod(f"leg{i}", pl.ground.at(*BASE[i]), body.at(*PLATFORM[i]), length=LEGS[i])
        for i in range(3)
    ]  # fmt: skip
    found = mbd.assembly_modes(pl.Mechanism([body], legs))
    expected = platform_angles()
    assert len(expected) == len(found) == 6
    angles = np.sort([math.remainder(float(state["platform.theta"]), math.tau) for state in found])
    np.testing.assert_allclose(angles, expected, atol=1e-7)
    assert list(found.distances) == sorted(found.distances)
    assert min(found.counts) >= 2


@pytest.mark.slow
def test_the_two_assembly_modes_of_bricards_ring() -> None:
    """With one hinge held at a: `sin a sin b + sin a + sin b = 0` for its neighbours, a and b alternately (threefold
    symmetric Bricard linkage; Chen, You, Tarnai, Int. J. Solids Struct. 42 (2005)).

    Positions with a hinge fitted the wrong way round, or where the ring moves on, are left out.
    """
    found = mbd.assembly_modes(bricard().mechanism, {"P1.angle": 0.5}, tries=32)
    neighbour = -math.asin(math.sin(0.5) / (1 + math.sin(0.5)))
    assert len(found) == 2
    for state, b in zip(found, (neighbour, math.pi - neighbour), strict=True):
        ring = [float(state[f"P{i}.angle"]) for i in range(1, 7)]
        np.testing.assert_allclose(np.exp(1j * np.asarray(ring)), np.exp(1j * np.asarray([0.5, b] * 3)), atol=1e-8)
        assert int(state.rank) == 29


# --- none ----------------------------------------------------------------------------------------------------------


def test_assembly_modes_that_are_not_isolated() -> None:
    with pytest.raises(mbd.AssemblyError, match=r"can all be moved on, with 1 degree of freedom.*Fix or lock 1 more"):
        mbd.assembly_modes(four_bar(), tries=32)


def test_assembly_modes_are_not_compiled() -> None:
    with pytest.raises(mbd.MechanismError, match=r"assembly_modes cannot be compiled.*guess=found\[1\]"):
        jax.jit(lambda x: mbd.assembly_modes(four_bar(x), {"crank.theta": CRANK})[0].q)(jnp.asarray(LENGTHS))
    with pytest.raises(mbd.MechanismError, match="tries must be at least 1, got 0"):
        mbd.assembly_modes(four_bar(), {"crank.theta": CRANK}, tries=0)


@in_both_coordinates("absolute")
def test_a_coupler_that_is_too_short(coordinates: str) -> None:
    """3 mm short: no start closes it, the least misses are a quarter each, and a single joint's gap is told."""
    short = four_bar((0.3, 0.297, 0.6, 1.2)).with_coordinates(coordinates)
    with pytest.raises(mbd.AssemblyError) as error:
        mbd.assemble(short)
    text = str(error.value)
    assert "none of 32 searches from random starts closed it" in text
    assert "It seems infeasible" in text
    assert "misses by 3 mm. Either the lengths do not reach" in text
    assert "too far off" not in text
    if coordinates == "absolute":
        assert all(f"'{joint}' misses by 0.00075" in text for joint in "OABC")
        with pytest.raises(mbd.AssemblyError, match="misses by 3 mm"):
            mbd.assembly_modes(short, tries=32)


def test_a_guess_that_is_too_far_off() -> None:
    """A rod's row has no slope where its ends coincide: the search stays there. Another start closes it."""
    body = pl.Body("body", 1.0, 1.0, (0.0, 0.0, 0.0))
    mechanism = pl.Mechanism([body], [pl.Rod("rod", pl.ground.at(), body.at(), length=0.5)])
    with pytest.raises(mbd.AssemblyError) as error:
        mbd.assemble(mechanism)
    text = str(error.value)
    assert "cannot be assembled from this guess: 'rod' misses by 0.125 " in text
    assert "the guess is too far off; 31 of 32 searches from there and from random starts did close" in text
    assert "infeasible" not in text


# --- constraints that repeat one another ---------------------------------------------------------------------------


def test_kept_rows_have_the_rank_and_the_motions_of_all() -> None:
    """A third upright in a parallelogram, a slider on two rails: what is left is independent and allows the same."""
    names = ("left", "middle", "right")
    uprights = [pl.Body(name, 1.0, 0.1, (i - 0.3, 0.4, math.atan2(4, -3))) for i, name in enumerate(names)]
    bar, slider = pl.Body("bar", 1.0, 0.1, (0.4, 0.8, 0.0)), pl.Body("slider", 1.0, 0.1, (0.4, 0.8, 0.0))
    pins = [pl.Revolute(f"A{i}", pl.ground.at(i), body.at(-0.5)) for i, body in enumerate(uprights)]
    pins += [pl.Revolute(f"B{i}", body.at(0.5), bar.at(i - 1.0)) for i, body in enumerate(uprights)]
    rails = [pl.Prismatic(name, bar.at(), slider.at()) for name in ("rail", "again")]
    mechanism = pl.Mechanism([*uprights, bar, slider], [*pins, *rails])
    state = mbd.assemble(mechanism)
    found = mbd.redundancy(mechanism, state)
    assert (found.rows, found.rank, len(found.independent_rows)) == (16, 13, 13)
    left_out = [mechanism.row_labels()[k] for k in range(16) if k not in found.independent_rows]
    assert left_out == [(repeat.joint, repeat.row) for repeat in found.repeats]
    assert left_out[1:] == [("again", 0), ("again", 1)]
    C = jacobian(mechanism, state.t, state.q)
    kept = C[list(found.independent_rows)]
    values = np.linalg.svd(kept)[1]
    assert values[-1] > 0.1 * np.linalg.svd(C)[1][12] > 1e-3
    motions = np.linalg.svd(kept)[2][13:]
    np.testing.assert_allclose(C @ motions.T, 0.0, atol=1e-12)


def test_a_row_with_a_small_part_in_a_dependence_is_kept() -> None:
    """Without it the others would be nearly dependent; of those with a large part the last is left out."""
    reduced, columns = reduced_echelon(np.array([[0.7, -0.7, 1e-4], [0.0, 0.0, 0.0]])[:1], 0.1)
    assert columns == [1]
    np.testing.assert_allclose(reduced[0], [-1.0, 1.0, -1e-4 / 0.7])
