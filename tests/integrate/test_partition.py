"""Coordinate partitioning and projection: they keep the constraints to rounding, pass singular positions, and are
differentiated rightly."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import planar as pl
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.formulations.coordinate_partitioning import ReducedEquations, exchanged_speeds
from jaxmbd.integrate.formulations.newton_closure import (
    DependentCoordinateCorrection,
    MassWeightedCorrection,
    close_loops,
    consistent_speeds,
)
from jaxmbd.numerics.linear_solve import LeastSquaresQR, NormalEquations, pivot_columns
from jaxmbd.numerics.sparse_matrices import full
from tests.marks import in_both_coordinates, slow_but
from tests.numeric import worst

FORMULATIONS = {
    "projection": mbd.Projection(),
    "partitioning": mbd.CoordinatePartitioning(),
}
# --- at one instant -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "coordinates"),
    [
        pytest.param("slider_crank", "absolute", marks=pytest.mark.slow),
        pytest.param("slider_crank", "joint", marks=pytest.mark.slow),
        pytest.param("bricard", "absolute", marks=pytest.mark.slow),
        ("bricard", "joint"),
    ],
)
def test_the_reduced_equations_are_those_of_the_whole_system(name: str, coordinates: str) -> None:
    """`C R = 0`, `Rᵀ (M v̇ + Cᵀ λ − F) = 0`, and the accelerations of the augmented system, redundant rows included."""
    example = examples.get(name).with_coordinates(coordinates)
    state, equations = example.state(), Equations(example.mechanism)
    at = equations.at(state.t, state.q)
    chosen = mbd.CoordinatePartitioning().begin(equations, state.t, state.q).chosen
    assert chosen is not None
    assert int(chosen.sum()) == example.mechanism.nv - int(np.linalg.matrix_rank(np.asarray(at.jacobian), tol=1e-8))
    v = consistent_speeds(at, jnp.linspace(1.0, 2.0, len(state.v)), DependentCoordinateCorrection(chosen))
    np.testing.assert_allclose(v[chosen], jnp.linspace(1.0, 2.0, len(state.v))[chosen], rtol=1e-12)
    partition = ReducedEquations(at, DependentCoordinateCorrection(chosen))
    assert worst(at.jacobian @ partition.R) < 1e-12
    assert worst(at.velocity(v)) < 1e-13
    augmented = mbd.Augmented(0.0, 0.0).motion(equations, state.t, state.q, v)
    vdot = partition.accelerations(v)[1]
    np.testing.assert_allclose(vdot, augmented.vdot, atol=1e-9 * (1 + worst(vdot)))
    left = at.inertia.times(vdot) + at.jacobian.T @ augmented.lam - at.force(v)
    assert worst(left) < 1e-9 * (1 + worst(at.force(v)))


def test_elimination_finds_the_rank_and_prefers_what_it_is_told() -> None:
    C = jnp.asarray([[1.0, 2.0, 0.5, 0.0], [2.0, 4.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1e-3]])
    np.testing.assert_array_equal(pivot_columns(C), [False, True, True, False])
    np.testing.assert_array_equal(pivot_columns(C, 0.1), [False, True, True, False])
    np.testing.assert_array_equal(pivot_columns(C, 1e-4), [False, False, True, True])


@pytest.mark.parametrize("of", [LeastSquaresQR, lambda K: NormalEquations(full(K))], ids=["QR", "normal equations"])
def test_tall_systems_by_value(rng: np.random.Generator, of: Any) -> None:
    """Least squares, least norm, and their derivatives, against differences."""
    K, b, f = (jnp.asarray(rng.standard_normal(shape)) for shape in ((6, 4), (6,), (4,)))
    np.testing.assert_allclose(of(K).least_squares(b), np.linalg.lstsq(K, b)[0], rtol=1e-12)
    np.testing.assert_allclose(of(K).least_norm(f), np.linalg.lstsq(K.T, f)[0], rtol=1e-12)

    def value(K: Array) -> Array:
        return jnp.sum(of(K).least_squares(b) ** 2) + jnp.sum(of(K).least_norm(f) ** 3)

    step = jnp.zeros_like(K).at[2, 1].set(1e-5)
    difference = (value(K + step) - value(K - step)) / 2e-5
    np.testing.assert_allclose(jax.grad(value)(K)[2, 1], difference, rtol=1e-7)


@pytest.mark.parametrize("condition", [1e3, 1e6])
def test_refined_normal_equations_are_as_accurate_as_a_factor_of_the_matrix(
    rng: np.random.Generator, condition: float
) -> None:
    """Up to condition numbers whose squares are near the reciprocal of rounding."""
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (9, 6))
    K = left[:, :6] * np.geomspace(1.0, 1 / condition, 6) @ right
    x = rng.standard_normal(6)
    f = K.T @ (y := K @ x)
    normal = NormalEquations(full(jnp.asarray(K)))
    np.testing.assert_allclose(normal.least_squares(jnp.asarray(K @ x)), x, atol=3e-16 * condition)
    np.testing.assert_allclose(normal.least_norm(jnp.asarray(f)), y, atol=3e-16 * condition)


def test_a_choice_that_degenerates_is_exchanged() -> None:
    """Near a dead point of a slider-crank its slider hardly moves, so that the crank takes its place, and stays."""
    example = examples.get("slider_crank")
    names, equations = example.mechanism.speed_names, Equations(example.mechanism)
    slider, crank = (jnp.asarray([name == wanted for name in names]) for wanted in ("slider.vx", "crank.omega"))
    for angle, expected in ((0.02, crank), (1.3, slider)):
        state = mbd.assemble(example.mechanism, {"crank.theta": angle})
        at = equations.at(state.t, state.q)
        scale = np.sqrt(np.diag(at.inertia.matrix()))
        R = ReducedEquations(at, DependentCoordinateCorrection(slider)).R @ slider
        fastest = int(np.argmax(np.abs(scale * R)))
        degenerate = abs(scale * R)[fastest] / (scale @ slider) > 4.0
        assert degenerate == (expected is crank)
        found = exchanged_speeds(equations, state.t, state.q, slider)
        wanted = jnp.arange(len(names)) == fastest if degenerate else slider
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(exchanged_speeds(equations, state.t, state.q, found), found)


def test_projection_is_the_least_change() -> None:
    """Of a displaced position the nearest closed one in the metric of `M`: the change has no part along the motion."""
    example = examples.get("slider_crank")
    state, equations = example.state(), Equations(example.mechanism)
    moved = state.q + 1e-6 * jnp.cos(jnp.arange(len(state.q), dtype=float))
    q = close_loops(equations, state.t, moved, MassWeightedCorrection())
    assert worst(equations.position(state.t, q)) < 1e-15
    at = equations.at(state.t, q)
    free = ReducedEquations(at, DependentCoordinateCorrection(jnp.zeros(len(q), bool).at[2].set(True))).R[:, 2]
    along, across = (float(jnp.sqrt(x @ at.inertia.times(x))) for x in (free, q - moved))
    assert across > 1e-8
    assert abs(float(free @ at.inertia.times(q - moved))) < 1e-5 * along * across


# --- along a motion -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", ["projection", "partitioning"])
@in_both_coordinates("absolute")
def test_a02_goes_round(formulation: str, coordinates: str) -> None:
    """Through its singular positions, where the choice of independent coordinates degenerates and is made anew."""
    example = examples.get("four_bars", 1).with_coordinates(coordinates)
    solution = example.simulate(
        np.linspace(0.0, 10.0, 41), formulation=FORMULATIONS[formulation], rtol=1e-10, atol=1e-12
    )
    energy = np.asarray(solution["energy"])
    assert np.ptp(energy) < 1e-5 * energy[0]
    assert worst(solution.violation().position) < 1e-14
    assert worst(solution.violation().velocity) < 1e-12
    assert np.asarray(solution.singularity_margin()).min() < 0.05


def test_the_remainder_of_the_speeds_stays_apart_in_joint_coordinates() -> None:
    """`Stabilized`, from speeds that violate the constraints: the motion is that of consistent ones."""
    example = examples.get("slider_crank").with_coordinates("joint")
    state, equations = example.state(), Equations(example.mechanism)
    at = equations.at(state.t, state.q)
    apart = at.inertia.solve(at.jacobian.T @ jnp.asarray([0.3, -0.2]))
    spoilt = eqx.tree_at(lambda s: s.v, state, state.v + apart)
    ts = np.linspace(0.0, 0.3, 4)
    options: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
    right = mbd.simulate(example.mechanism, state, ts, **options)
    found = mbd.simulate(example.mechanism, spoilt, ts, throw=False, **options)
    np.testing.assert_allclose(found["rod.theta"], right["rod.theta"], atol=1e-8)


@pytest.mark.slow
def test_projection_keeps_the_constraints_for_a_thousand_seconds() -> None:
    """Violations below 1e-12 to the end, at tolerances at which Baumgarte's leaves ten thousand times more."""
    rod = pl.Body("rod", mass=1.0, inertia=1 / 12, pose=(0.5, 0.0, 0.0))
    pendulum = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))], [pl.Gravity(9.81)])
    state, ts = mbd.assemble(pendulum), np.linspace(0.0, 1000.0, 201)
    projected, baumgarte, bare = (
        mbd.simulate(pendulum, state, ts, formulation=formulation, rtol=1e-7, atol=1e-8).violation()
        for formulation in (mbd.Projection(), mbd.Augmented(), mbd.Augmented(0.0, 0.0))
    )
    assert worst(projected.position) < 1e-12
    assert worst(projected.velocity) < 1e-12
    assert worst(baumgarte.position) > 1e-8
    assert worst(bare.position[-1]) > 1e-4


def test_user_chosen_variables_are_kept() -> None:
    """The crank's angle carries the slider-crank; a choice that degenerates ends in an error that says so."""
    example = examples.get("slider_crank")
    ts = np.linspace(0.0, 0.2, 3)
    reference = example.simulate(ts, rtol=1e-11, atol=1e-12)
    chosen = example.simulate(ts, formulation=mbd.CoordinatePartitioning(["crank.theta"]), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(chosen["slider.x"], reference["slider.x"], atol=1e-9)


def test_wrong_choices_are_named() -> None:
    example = examples.get("slider_crank")
    with pytest.raises(mbd.MechanismError, match=r"Did you mean 'crank\.theta'"):
        example.simulate([0.0, 0.1], formulation=mbd.CoordinatePartitioning(["crank.teta"]))
    with pytest.raises(mbd.MechanismError, match=r"2 independent variables .* 1 degree of freedom"):
        example.simulate([0.0, 0.1], formulation=mbd.CoordinatePartitioning(["crank.theta", "slider.x"]))
    with pytest.raises(mbd.MechanismError, match="sequence of names"):
        mbd.CoordinatePartitioning("crank.theta")


@pytest.mark.parametrize("formulation", slow_but(["projection"], ["projection", "partitioning"]))
def test_gradients_by_value(formulation: str) -> None:
    """Of the end position with respect to a mass and a length, forward and reverse, against differences."""
    example = examples.get("slider_crank")
    ts = jnp.asarray([0.0, 0.1])

    def end(parameters: Array, derivative: Any) -> Array:
        mechanism = eqx.tree_at(
            lambda m: (m["rod"].mass, m["B"].a.position), example.mechanism, (parameters[0], parameters[1:])
        )
        state = mbd.assemble(mechanism, example.fixed, guess=example.guess, speeds=example.speeds)
        options = {"formulation": FORMULATIONS[formulation], "rtol": 1e-10, "atol": 1e-12, "adjoint": derivative}
        return mbd.simulate(mechanism, state, ts, **options)["slider.x"][-1]

    mechanism = example.mechanism
    start = jnp.append(mechanism["rod"].mass, mechanism["B"].a.position)
    both = jax.jit(jax.value_and_grad(lambda p: end(p, "reverse")))
    _, reverse = both(start)
    forward = jax.jacfwd(end)(start, "forward")
    np.testing.assert_allclose(forward, reverse, rtol=1e-6, atol=1e-9)
    for k in range(2):
        step = jnp.zeros(3).at[k].set(1e-5)
        difference = (both(start + step)[0] - both(start - step)[0]) / 2e-5
        np.testing.assert_allclose(reverse[k], difference, rtol=1e-5, atol=1e-8)
