"""One shape has one verdict at all sizes: lengths from a tenth of a millimetre to a hundred kilometres.

With lengths `L`, masses `L³` and the acceleration of gravity unchanged, times are `√L`: all results are those of the
mechanism of one metre, in these units.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.model.mechanism.scales import Scales, unit_of_length

SIZES = (1e-4, 1e-2, 1.0, 1e2, 1e5)
POINTS = np.array([[0.0, 0.0], [0.1, 0.3], [0.6, 0.5], [0.7, 0.0]])


def four_bar(L: float, coordinates: str, apart: Any = 0.7, forces: Any = ()) -> pl.Mechanism:
    """A four-bar linkage whose ground points are `apart`; from 1.3 on it does not reach."""
    bars, reach = [], []
    for name, i in (("a", 0), ("b", 1), ("c", 2)):
        along, middle = L * (POINTS[i + 1] - POINTS[i]), 0.5 * L * (POINTS[i + 1] + POINTS[i])
        length = float(np.linalg.norm(along))
        bars.append(pl.Body(name, L**3, L**3 * length**2 / 12, (*middle, np.arctan2(along[1], along[0]))))
        reach.append(0.5 * length)
    (a, b, c), (ra, rb, rc) = bars, reach
    joints = [
        pl.Revolute("A", pl.ground.at(), a.at(-ra)),
        pl.Revolute("B", a.at(ra), b.at(-rb)),
        pl.Revolute("C", b.at(rb), c.at(-rc)),
        pl.Revolute("D", pl.ground.at(apart * L, 0), c.at(rc)),
    ]
    return pl.Mechanism(bars, joints, [pl.Gravity(9.81), *forces], coordinates=coordinates)


def slider_crank(L: float, coordinates: str) -> pl.Mechanism:
    """The slider's joint is a `PointOnLine`, its distance from the crank's end the length of a `Rod`."""
    crank = pl.Body("crank", L**3, 0.01 * L**5, (0.1 * L, 0.0, 0.0))
    slider = pl.Body("slider", L**3, 0.01 * L**5, (0.5 * L, 0.0, 0.0))
    joints = [
        pl.Revolute("O", pl.ground.at(), crank.at(-0.1 * L)),
        pl.Prismatic("S", pl.ground.at(), slider.at()),
        pl.Rod("rod", crank.at(0.1 * L), slider.at(), 0.4 * L),
    ]
    return pl.Mechanism([crank, slider], joints, coordinates=coordinates)


def spatial_four_bar(L: float, coordinates: str, forces: Any = ()) -> sp.Mechanism:
    """A crank and a rocker whose axes are perpendicular, and a rod between two balls."""
    unit = L**5 * 0.01 * np.eye(3)
    crank = sp.Body("crank", L**3, unit, pose=(0.0, 0.0, 0.05 * L))
    rocker = sp.Body("rocker", L**3, unit, pose=(0.5 * L, 0.2 * L, 0.2 * L))
    joints = [
        sp.Revolute("A", sp.ground.at(axis="x"), crank.at(0, 0, -0.05 * L, axis="x")),
        sp.Rod("rod", crank.at(0, 0, 0.05 * L), rocker.at(0, 0, 0.15 * L), 0.55 * L),
        sp.Revolute("D", sp.ground.at(0.5 * L, 0.2 * L, 0, axis="y"), rocker.at(0, 0, -0.2 * L, axis="y")),
    ]
    return sp.Mechanism([crank, rocker], joints, forces, coordinates=coordinates)


def rack(L: float, coordinates: str) -> pl.Mechanism:
    wheel, bar = pl.Body("wheel", L**3, 0.01 * L**5), pl.Body("bar", L**3, 0.01 * L**5, (0, -0.1 * L, 0))
    joints = [
        pl.Revolute("W", pl.ground.at(), wheel.at()),
        pl.Prismatic("S", pl.ground.at(0, -0.1 * L), bar.at()),
        pl.RackAndPinion("teeth", "W.angle", "S.displacement", 0.1 * L),
    ]
    return pl.Mechanism([wheel, bar], joints, coordinates=coordinates)


def without_units(mechanism: Any, values: Any, L: float, rate: int = 0) -> np.ndarray:
    """Coordinates, speeds (`rate` 1) or accelerations (2) in units of `L` and `√L`."""
    units = mechanism.speed_units if rate else mechanism.coordinate_units
    lengths = np.asarray([unit in ("m", "m/s") for unit in units])
    return np.asarray(values) / np.where(lengths, L, 1.0) * np.sqrt(L) ** rate


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
@pytest.mark.parametrize(
    ("make", "fixed", "rate"),
    [
        (four_bar, {"A.angle": 1.0}, {"A.angle": 2.0}),
        (slider_crank, {"O.angle": 0.6}, {"O.angle": 2.0}),
        (spatial_four_bar, {"A.angle": 0.3}, {"A.angle": 2.0}),
        (rack, {"W.angle": 0.4}, {"W.angle": 2.0}),
    ],
)
def test_assembly_does_not_depend_on_the_size(
    make: Callable[..., Any], fixed: dict[str, float], rate: dict[str, float], coordinates: str
) -> None:
    """Positions, speeds, ranks, freedom and singularity margins are those of one metre; so is what is not fixed."""
    found = []
    for L in SIZES:
        mechanism = make(L, coordinates)
        state = mbd.assemble(mechanism, fixed, speeds=rate)
        speeds = np.asarray(state.v) / np.where(np.asarray(mechanism.speed_units) == "m/s", L, 1.0)
        report = mbd.describe(mechanism, state)
        free = mbd.assemble(mechanism)  # the position near the guess is not unique
        found.append((without_units(mechanism, state.q, L), speeds, without_units(mechanism, free.q, L)))
        redundancy = mbd.redundancy(mechanism, state)
        assert np.isclose(unit_of_length(mechanism), L * unit_of_length(make(1.0, coordinates)), rtol=1e-12)
        assert (report.freedom, redundancy.rank, len(redundancy.repeats)) == (1, mechanism.nv - 1, 0)
        assert state.rank == redundancy.rank
    for position, speeds, free in found:
        np.testing.assert_allclose(position, found[2][0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(speeds, found[2][1], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(free, found[2][2], rtol=1e-7, atol=1e-7)


def two_bars(L: float) -> sp.Mechanism:
    """A fixed bar and one that has to turn by .9 rad, and a rod between them."""
    a = sp.Body("a", 1.0, np.eye(3), pose=(-0.5 * L, -0.07 * L, 0.06 * L))
    b = sp.Body("b", 1.0, np.eye(3), pose=(0.59 * L, 0.26 * L, 0.23 * L))
    joints = [
        sp.FixedConstraint("fix", sp.ground.at(-0.5 * L, -0.07 * L, 0.06 * L), a.at()),
        sp.Rod("rod", a.at(0.25 * L, 0.13 * L, 0.05 * L), b.at(-0.23 * L, -0.17 * L, 0.05 * L), 0.5 * L),
        sp.ParallelAxes("par", a.at(), b.at()),
    ]
    return sp.Mechanism([a, b], joints)


def test_a_search_far_from_its_guess_does_not_depend_on_the_size() -> None:
    """At 100 m the least residuals had counted as open joints, and the error named none."""
    found = [without_units(two_bars(L), mbd.assemble(two_bars(L)).q, L) for L in (*SIZES, 1e4)]
    for q in found:
        np.testing.assert_allclose(q, found[2], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("coordinates", ["absolute", pytest.param("joint", marks=pytest.mark.slow)])
def test_what_does_not_reach_is_infeasible_at_all_sizes(coordinates: str) -> None:
    for L in SIZES:
        with pytest.raises(mbd.AssemblyError, match=r"cannot be assembled: 'D' misses by .* It seems infeasible"):
            mbd.assemble(four_bar(L, coordinates, apart=2.0))


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_motions_do_not_depend_on_the_size(coordinates: str) -> None:
    found = []
    for L in (1e-4, 1.0):
        mechanism, second = four_bar(L, coordinates), np.sqrt(L)
        state = mbd.assemble(mechanism, {"A.angle": 1.0}, speeds={"A.angle": 2.0 / second})
        motion = mbd.simulate(mechanism, state, second * np.linspace(0.0, 1.0, 5))
        found.append((without_units(mechanism, motion.q, L), motion.singularity_margin()))
    for small, of_a_metre in zip(*found, strict=True):
        np.testing.assert_allclose(small, of_a_metre, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_motions_and_equilibria_do_not_depend_on_the_size(coordinates: str) -> None:
    found = []
    for L in SIZES:
        mechanism, second = four_bar(L, coordinates), np.sqrt(L)
        state = mbd.assemble(mechanism, {"A.angle": 1.0}, speeds={"A.angle": 2.0 / second})
        motion = mbd.simulate(mechanism, state, second * np.linspace(0.0, 1.0, 5))
        rest = mbd.equilibrium(mechanism, {"A.angle": 0.5}, stable=True)
        driver = pl.Driver("d", "A.angle", lambda t: 1.0 + t)
        driven = mbd.kinematics(mechanism.replacing(drivers=[driver]), np.linspace(0.0, 1.0, 5))
        found.append([without_units(mechanism, q, L) for q in (motion.q, rest.state.q, driven.q)])
        found[-1] += [motion.singularity_margin(), np.asarray(rest.eigenvalues)[:2] * second]
    for values in found:
        for value, of_a_metre in zip(values, found[2], strict=True):
            np.testing.assert_allclose(value, of_a_metre, rtol=1e-6, atol=1e-6)


def test_an_accuracy_that_suits_small_lengths() -> None:
    """A slider of a tenth of a millimetre on a spring: no angle controls the steps, and an error of 1e-10 m in
    each of them would be large."""
    steps = []
    for L in (1e-4, 1e-2, 1.0):
        slider = pl.Body("slider", 1.0, L**2, (L, 0.0, 0.0))
        joints = [pl.Prismatic("S", pl.ground.at(), slider.at(-L))]
        springs = [pl.JointSpringDamper("k", "S.displacement", 100.0)]
        mechanism = pl.Mechanism([slider], joints, springs, coordinates="joint")
        state = mbd.assemble(mechanism, {"S.displacement": 0.5 * L})
        motion = mbd.simulate(mechanism, state, np.linspace(0.0, 5.0, 21))
        exact = 0.5 * L * np.cos(10.0 * np.asarray(motion.ts))
        np.testing.assert_allclose(motion["S.displacement"], exact, rtol=0, atol=2e-7 * L)
        steps.append(int(motion.stats["num_steps"]))
    assert max(steps) - min(steps) <= 2


def test_the_unit_of_length() -> None:
    """A power of ten; one metre where there is no length at all; traceable, without derivative."""
    point = pl.Body("point", 1.0, 1.0)
    alone = pl.Mechanism([point], [pl.Revolute("O", pl.ground.at(), point.at())])
    assert float(unit_of_length(alone)) == 1.0
    for L, unit in ((0.3, 1.0), (2.4, 1.0), (2.6, 10.0), (0.2, 0.1), (0.03, 0.1)):
        bar = pl.Mechanism([point], [pl.Revolute("O", pl.ground.at(), point.at(L))])
        assert float(unit_of_length(bar)) == unit
    np.testing.assert_allclose(Scales(slider_crank(100.0, "absolute")).rows, [100] * 3 + [1.0] + [1e4])
