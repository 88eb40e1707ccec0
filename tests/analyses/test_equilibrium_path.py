"""Paths of equilibria against a parameter: snap-through, a fork, and what ends them."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.equilibrium import equilibrium_path as paths
from jaxmbd.analyses.equilibrium.balance import SmallMotions
from jaxmbd.analyses.equilibrium.continuation import BalanceFamily, PathPoint, corrected, natural_steps
from jaxmbd.parameters.places import Leaves
from tests.numeric import root

ROOT = 1e-9  # [m, rad]: agreement of a position with the root found by hand

HALF, RISE, STIFF = 1.0, 0.4, 100.0  # a shallow truss of two springs [m, m, N/m]


def truss() -> pl.Mechanism:
    """Two springs from the ground to an apex that slides up and down under a load, `slide.displacement` its height."""
    apex = pl.Body("apex", 1.0, 1.0, (0.0, RISE, math.pi / 2))
    length = math.hypot(HALF, RISE)
    return pl.Mechanism(
        [apex],
        [pl.Prismatic("slide", pl.ground.at(0, 0, math.pi / 2), apex.at())],
        [
            pl.SpringDamper("left", pl.ground.at(-HALF, 0), apex.at(), STIFF, length),
            pl.SpringDamper("right", pl.ground.at(HALF, 0), apex.at(), STIFF, length),
            pl.JointForce("load", "slide.displacement", 0.0),
        ],
        coordinates="joint",
    )


def truss_load(y: Any) -> Any:
    """The load that holds the apex at a height."""
    return 2 * STIFF * y * (1 - np.hypot(HALF, RISE) / np.hypot(HALF, y))


def load_of(mechanism: pl.Mechanism) -> Array:
    return mechanism["load"].force


@pytest.fixture(scope="module")
def snap() -> mbd.EquilibriumPath:
    """The truss under a load that grows downwards, followed through."""
    return mbd.equilibrium_path(truss(), load_of, (0.0, -12.0), points=60)


def test_a_truss_snaps_through(snap: mbd.EquilibriumPath) -> None:
    """All points are on the load-deflection curve; the path passes both limit points, between which it is unstable."""
    y = np.asarray(snap["slide.displacement"])
    np.testing.assert_allclose(snap.values, truss_load(y), atol=1e-9)
    assert y[0] == pytest.approx(RISE)
    assert y[-1] < -RISE
    assert -12 <= float(snap.values[-1]) < -11
    # At a limit point the load is stationary: y² = (L0² b⁴)^⅓ − b².
    limit = math.sqrt(((HALF**2 + RISE**2) * HALF**4) ** (1 / 3) - HALF**2)
    marked = np.flatnonzero(np.asarray(snap.limits))
    assert len(marked) == 2
    assert not np.asarray(snap.bifurcations).any()
    for k, place in zip(marked, (limit, -limit), strict=True):
        assert y[k + 1] < place < y[k]
    np.testing.assert_array_equal(snap.stable, np.abs(y) > limit)
    assert snap.verdicts[marked[0] + 1] == "unstable (1 growing mode)"


def test_a_corrector_ends_on_the_curve_and_gives_its_tangent() -> None:
    """At a given load and along the curve; its lengths are shares of the range of loads and of the mechanism's size."""
    mechanism, span, guess, load = truss(), 12.0, 0.28, float(truss_load(0.28)) - 0.1
    family = BalanceFamily(mechanism, jnp.zeros(3), jnp.asarray(0.0), jnp.asarray(span), Leaves(load_of))
    ahead = PathPoint(jnp.asarray([guess]), jnp.asarray(load), jnp.asarray([0.6]), jnp.asarray(-0.8))
    for natural in (True, False):
        point, _, converged = eqx.filter_jit(corrected)(family, ahead, natural)
        y, p, size = float(point.q[0]), float(point.p), float(family.at(point.p)[1].at(point.q).span())
        assert bool(converged)
        np.testing.assert_allclose(p, truss_load(y), atol=1e-9)
        off = p - load if natural else 0.6 * (y - guess) / size**2 - 0.8 * (p - load) / span  # across the tangent
        assert off == pytest.approx(0, abs=1e-9 if natural else 1e-4)
        slope = (truss_load(y + 1e-5) - truss_load(y - 1e-5)) / 2e-5
        along = np.array([span / slope, 1.0])  # of (q, share), by the share; of unit length in (q / size, share)
        along *= (1 if natural else np.sign(along @ [0.6 / size**2, -0.8])) / math.hypot(along[0] / size, 1.0)
        np.testing.assert_allclose([float(point.step[0]), float(point.share)], along, rtol=1e-6)


def test_steps_to_given_loads_correct_each_point() -> None:
    """Also one whose load is that of the point before, and not exact; they end where no point is found."""
    family = BalanceFamily(truss(), jnp.zeros(3), jnp.asarray(0.0), jnp.asarray(12.0), Leaves(load_of))
    near = PathPoint(jnp.asarray([0.29]), jnp.asarray(-0.7), jnp.asarray([0.6]), jnp.asarray(-0.8))
    points, found = eqx.filter_jit(natural_steps)(family, near, jnp.array([-0.7, -1.4, -3.0]))
    np.testing.assert_array_equal(found, [True, True, False])  # beyond the limit point at -2.1 N
    heights = [root(lambda y, p=p: truss_load(y) - p, 0.235, 0.5) for p in (-0.7, -1.4)]
    np.testing.assert_allclose(points.q[:2, 0], heights, atol=ROOT)
    assert -3.0 < float(points.p[2]) < -1.4


@pytest.mark.usefixtures("as_a_user_runs_it")
def test_a_path_turns_back_where_a_stiffness_changes_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only one of the two happens another branch crosses."""
    slope, negative = jnp.array([1.0, 0.5, -0.5, -0.2, 0.3, 0.4]), jnp.array([0, 0, 1, 2, 2, 1])
    motions: Any = SmallMotions(jnp.zeros((6, 4), complex), negative, 0 * negative, negative)
    monkeypatch.setattr(paths, "_motions", lambda equilibria: equilibria)
    path = paths.EquilibriumPath(jnp.arange(6.0), motions, slope, jnp.ones(6, bool))
    np.testing.assert_array_equal(path.limits, [False, True, False, False, False])
    np.testing.assert_array_equal(path.bifurcations, [False, False, True, True, True])


def test_a_path_that_ends_says_so() -> None:
    """At given loads the truss is followed up to its limit point, and not beyond."""
    mechanism, loads = truss(), np.array([0.0, -0.7, -1.4, -2.1])
    path = mbd.equilibrium_path(mechanism, load_of, loads)
    heights = [root(lambda y, p=p: truss_load(y) - p, 0.235, 0.5) for p in loads]
    np.testing.assert_allclose(path["slide.displacement"], heights, atol=ROOT)
    np.testing.assert_allclose(path.at(2)["load.effort"], -1.4)
    with pytest.raises(mbd.SolveError, match=r"path ends between -2.1 and -3: .* limit point"):
        mbd.equilibrium_path(mechanism, load_of, [0.0, -1.5, -2.1, -3.0])
    with pytest.raises(mbd.MechanismError, match=r"named 'spede'\..* It may also be 'speed', with a rotation\."):
        mbd.equilibrium_path(mechanism, "spede", loads)


@pytest.mark.parametrize("loads", [(0.0, -0.7, 0.0), (-0.7, 0.0, -1.4), (-1.4, -1.4, -0.7)])
def test_values_may_return_and_repeat(loads: tuple[float, ...]) -> None:
    path = mbd.equilibrium_path(truss(), load_of, loads)
    heights = [root(lambda y, p=p: truss_load(y) - p, 0.235, 0.5) for p in loads]
    np.testing.assert_allclose(path["slide.displacement"], heights, atol=ROOT)


def test_a_path_over_no_range_is_refused() -> None:
    with pytest.raises(mbd.MechanismError, match="at least two different numbers, got 3 only"):
        mbd.equilibrium_path(truss(), load_of, [3.0, 3.0])
    with pytest.raises(mbd.MechanismError, match="ends must differ: got 1 as the first and as the last"):
        mbd.equilibrium_path(truss(), load_of, [1.0, 2.0, 1.0], points=9)


@pytest.mark.slow
def test_a_pitchfork() -> None:
    """An upright rod on a torsion spring buckles where its weight exceeds the spring: the straight path has the branch
    point, the buckled one is `k φ = m g l sin φ`."""
    body = pl.Body("rod", 2.0, 2.0 / 12, (0.0, 0.5, 0.0))
    mechanism = pl.Mechanism(
        [body],
        [pl.Revolute("O", pl.ground.at(), body.at(0, -0.5))],
        [pl.Gravity(8.0), pl.JointSpringDamper("spring", "O.angle", 10.0)],
        coordinates="joint",
    )
    weight = lambda m: m["gravity"].acceleration  # noqa: E731
    straight = mbd.equilibrium_path(mechanism, weight, np.linspace(8.0, 12.0, 6), {"O.angle": 0.0})
    np.testing.assert_allclose(straight["O.angle"], 0.0, atol=ROOT)
    np.testing.assert_array_equal(straight.stable, [True] * 3 + [False] * 3)
    np.testing.assert_array_equal(straight.bifurcations, [False, False, True, False, False])
    assert not np.asarray(straight.limits).any()
    values = np.linspace(12.0, 10.4, 6)
    buckled = mbd.equilibrium_path(mechanism, weight, values, {"O.angle": 0.9})
    by_hand = [root(lambda x, g=g: 10 * x - 2 * g * 0.5 * math.sin(x), 0.1, 2.0) for g in values]
    np.testing.assert_allclose(buckled["O.angle"], by_hand, atol=ROOT)
    assert buckled.verdicts == ("stable",) * 6


@pytest.mark.slow
def test_the_parameter_is_a_number_by_name() -> None:
    """The height of the apex over a force, as it is known, and over one number of an array, the place of a support."""
    lower = mbd.equilibrium_path(truss(), "load.force", (0.0, -2.0))["slide.displacement"][1]
    assert truss_load(float(lower)) == pytest.approx(-2.0, rel=1e-9)
    moved = mbd.equilibrium_path(truss(), "right.a.position[0]", (HALF, 1.05 * HALF))
    wider = mbd.with_numbers(truss(), {"right.a.position[0]": 1.05 * HALF})
    there = mbd.equilibrium(wider, {"slide.displacement": 0.35})
    assert float(moved["slide.displacement"][1]) == pytest.approx(float(there["slide.displacement"]), abs=ROOT)
    assert abs(float(moved["slide.displacement"][1]) - RISE) > 1e-3


def test_a_parameter_that_is_no_number_is_named() -> None:
    for along, text in (
        ("load.forc", "Did you mean 'load.force'"),
        ("right.a.position", "stands for an array of shape"),
        ("*.stiffness", "'\\*.stiffness' stands for several numbers"),
    ):
        with pytest.raises(mbd.MechanismError, match=text):
            mbd.equilibrium_path(truss(), along, (0.0, 1.0))
