"""Positions at which rows are dependent that are independent beside them: no motion may start there."""

from typing import Any

import jax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.marks import in_both_coordinates

TS = np.linspace(0.0, 0.1, 3)
R = mbd.RESULTS


def parallelogram(cranks: int, coordinates: str, more: Any = ()) -> pl.Mechanism:
    """A beam on equal, parallel cranks; more than two are redundant wherever they are."""
    places = np.linspace(-1.0, 1.0, cranks)
    beam = pl.Body("beam", 3.0, 1.0, pose=(1.0, 0.0, 0.0))
    bars = [pl.Body(f"crank{k}", 1.0, 1 / 12, pose=(x + 0.5, 0.0, 0.0)) for k, x in enumerate(places)]
    pins = []
    for k, x in enumerate(places):
        pins += [pl.Revolute(f"low{k}", pl.ground.at(x), bars[k].at(-0.5))]
        pins += [pl.Revolute(f"high{k}", bars[k].at(0.5), beam.at(x))]
    return pl.Mechanism([beam, *bars], [*pins, *more], [pl.Gravity(9.81)], coordinates=coordinates)


def at_angle(mechanism: pl.Mechanism, angle: Any, cranks: int, **options: Any) -> mbd.State:
    return mbd.assemble(mechanism, {f"low{k}.angle": angle for k in range(cranks)}, **options)


def in_space(angle: float) -> tuple[sp.Mechanism, mbd.State]:
    """A parallelogram in a plane of space, whose hinges are redundant there wherever they are."""
    left, top, right = bars = [sp.Body(name, 1.0, (0.1, 0.1, 0.1)) for name in ("left", "top", "right")]
    pins = [
        sp.Revolute("h0", sp.ground.at(), left.at(-0.5)), sp.Revolute("h1", left.at(0.5), top.at(-0.5)),
        sp.Revolute("h2", top.at(0.5), right.at(0.5)), sp.Revolute("h3", sp.ground.at(1.0), right.at(-0.5)),
    ]  # fmt: skip
    mechanism = sp.Mechanism(bars, pins, coordinates="joint")
    return mechanism, mbd.assemble(mechanism, {"h0.angle": angle, "h1.angle": -angle})


@in_both_coordinates("absolute")
@pytest.mark.parametrize("cranks", [2, 3])
def test_no_motion_starts_at_a_singular_position(cranks: int, coordinates: str) -> None:
    mechanism = parallelogram(cranks, coordinates)
    flat, beside = (at_angle(mechanism, angle, cranks) for angle in (0.0, 0.1))
    found, near = (mbd.redundancy(mechanism, state) for state in (flat, beside))
    assert (found.is_singular, near.is_singular) == (True, False)
    assert (found.degrees_of_freedom, near.degrees_of_freedom) == (2, 1)
    assert "singular" in str(found)
    assert "does not depend" not in str(found)
    assert mbd.describe(mechanism, flat).is_singular
    assert "The position is singular" in str(mbd.describe(mechanism, flat))
    with pytest.raises(mbd.SolveError, match=r"singular: the constraint rows of '.*more than one path.*beside it"):
        mbd.simulate(mechanism, flat, TS)
    assert mbd.simulate(mechanism, beside, TS).result == R.successful


@in_both_coordinates("absolute")
def test_each_instance_says_for_itself_that_it_starts_at_a_singular_position(coordinates: str) -> None:
    mechanism = parallelogram(3, coordinates)

    def run(angle: Any) -> mbd.Solution:
        return mbd.simulate(mechanism, at_angle(mechanism, angle, 3, check=False), TS, throw=False)

    solution = jax.jit(jax.vmap(run))(np.array([0.3, 0.0, -0.2]))
    assert (solution.result == R.singular_at_start).tolist() == [False, True, False]
    assert (solution.result == R.successful).tolist() == [True, False, True]
    assert np.isfinite(solution.q[np.array([0, 2])]).all()
    assert np.isnan(solution.q[1]).all()
    assert int(solution.stats["num_steps"][1]) == 0
    with pytest.raises(Exception, match="The start is a singular position"):
        jax.jit(lambda state: mbd.simulate(mechanism, state, TS).q)(at_angle(mechanism, 0.0, 3)).block_until_ready()


def test_kinematics_does_not_start_at_a_singular_position() -> None:
    driver = pl.Driver("drive", "low0.angle", lambda t: t)
    mechanism = parallelogram(2, "absolute").with_parts([driver])
    with pytest.raises(mbd.SolveError, match="more than one path"):
        mbd.kinematics(mechanism, TS, mbd.assemble(mechanism, {"low1.angle": 0.0}))


def test_hinges_that_are_redundant_everywhere_are_told_from_a_flat_position() -> None:
    for angle, is_singular in ((0.0, True), (0.4, False)):
        mechanism, state = in_space(angle)
        found = mbd.redundancy(mechanism, state)
        assert found.repeats
        assert found.is_singular == is_singular
        assert mbd.simulate(mechanism, state, TS, throw=False).result == (
            R.singular_at_start if is_singular else R.successful
        )


@pytest.mark.parametrize("name", ["bricard", "suspension", "slider-crank", "planar-four-bar"])
def test_examples_do_not_start_at_singular_positions(name: str) -> None:
    example = mbd.examples.get(name)
    assert not mbd.redundancy(example.mechanism, example.state()).is_singular
