"""Gauss's collocation methods: coefficients, orders, energy, and that all that Radau does they do."""

import math
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.integrate.solvers.collocation_stages import Method, tableau
from tests.integrate.test_stiff import exact_angle


def test_coefficients_are_those_of_two_and_three_stages() -> None:
    """Hairer, Lubich, Wanner, Geometric Numerical Integration, table II.1.1."""
    two, three, root = tableau(Method("Gauss", 2)), tableau(Method("Gauss", 3)), math.sqrt(15)
    np.testing.assert_allclose(two.matrix, [[1 / 4, 1 / 4 - 3**0.5 / 6], [1 / 4 + 3**0.5 / 6, 1 / 4]], rtol=1e-13)
    np.testing.assert_allclose(two.weights, [1 / 2, 1 / 2], rtol=1e-14)
    rows = [
        [5 / 36, 2 / 9 - root / 15, 5 / 36 - root / 30],
        [5 / 36 + root / 24, 2 / 9, 5 / 36 - root / 24],
        [5 / 36 + root / 30, 2 / 9 + root / 15, 5 / 36],
    ]
    np.testing.assert_allclose(three.matrix, rows, rtol=1e-12)
    np.testing.assert_allclose(three.weights, [5 / 18, 4 / 9, 5 / 18], rtol=1e-14)


def swung(coordinates: str, solver: dfx.AbstractSolver, steps: int, ts: Any = (0.0, 0.5), **settings: Any) -> Any:
    """A rod of 1 m that falls from the horizontal, by equal steps."""
    example = mbd.examples.get("pendulum").with_coordinates(coordinates)
    settings = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": (ts[-1] - ts[0]) / steps, **settings}
    return mbd.simulate(example.mechanism, example.state(), ts, solver=solver, max_steps=2 * steps, **settings)


@pytest.mark.parametrize("stages", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4))])
@pytest.mark.parametrize("coordinates", ["absolute", pytest.param("joint", marks=pytest.mark.slow)])
def test_equal_steps_converge_at_the_order(stages: int, coordinates: str) -> None:
    steps = {1: 128, 2: 16, 3: 8, 4: 5}[stages]
    runs = [swung(coordinates, mbd.Gauss(stages), k * steps) for k in (1, 2)]
    exact = swung(coordinates, dfx.Dopri8(), 1000)["rod.theta"][-1]
    errors = [abs(float(run["rod.theta"][-1] - exact)) for run in runs]
    assert 2 * stages - 0.5 < np.log2(errors[0] / errors[1]) < 2 * stages + 0.5
    for run in runs:
        assert run.engine != "diffrax"
        assert float(jnp.max(jnp.abs(run.violation().position), initial=0.0)) < 1e-12
        assert float(jnp.max(jnp.abs(run.violation().velocity), initial=0.0)) < 1e-12


def test_energy_does_not_drift() -> None:
    """Over 2,000 steps of a twentieth of a swing; by Radau's method of the same number of stages it does."""
    ts = np.linspace(0.0, 100.0, 401)
    for solver, drifts in ((mbd.Gauss(2), False), (mbd.Radau(3), True)):
        energy = np.asarray(swung("joint", solver, 2000, ts)["energy"])
        early, late = (np.abs(energy[part] - energy[0]).max() for part in (slice(None, 101), slice(301, None)))
        assert (late > 2 * early) == drifts
        assert late < 2e-4


@pytest.mark.parametrize("stages", [3, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("coordinates", ["joint", pytest.param("absolute", marks=pytest.mark.slow)])
def test_controlled_steps_and_derivatives_of_a_closed_loop(stages: int, coordinates: str) -> None:
    """A four-bar, and where it is at times within steps, as by an explicit method of high order."""
    example = mbd.examples.get("planar-four-bar").with_coordinates(coordinates)
    state, ts = example.state(), np.linspace(0.0, 0.5, 11)
    name = example.mechanism.bodies[1].name

    def angles(mass: Array, **settings: Any) -> Array:
        mechanism = mbd.with_numbers(example.mechanism, {f"{name}.mass": mass})
        return mbd.simulate(mechanism, state, ts, **settings)[f"{name}.theta"]

    mass = jnp.asarray(example.mechanism[name].mass)
    exact = lambda x: angles(x, accuracy="high")  # noqa: E731
    found = lambda x: angles(x, solver=mbd.Gauss(stages), rtol=1e-8, atol=1e-10)  # noqa: E731
    np.testing.assert_allclose(found(mass), exact(mass), rtol=0, atol=1e-7)
    expected = jax.jacfwd(exact)(mass)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(found)(mass), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 3])
def test_steps_are_those_of_diffraxs_loop(stages: int) -> None:
    ts = np.linspace(0.0, 0.5, 6)
    ours, diffraxs = (
        swung("absolute", mbd.Gauss(stages), 8, ts, engine=engine) for engine in ("interpreter", "diffrax")
    )
    assert (ours.engine, diffraxs.engine) == ("interpreter", "diffrax")
    np.testing.assert_allclose(ours.q, diffraxs.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(ours.v, diffraxs.v, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours["rod.theta"][-1] - exact_angle(0.5), 0.0, atol=1e-3)


@pytest.mark.slow
def test_what_is_integrated_beside_the_motion() -> None:
    """Quadratures, the current of a motor, redundant rows and an event, as by the default solver."""
    ring = mbd.examples.get("bricard")
    times = np.linspace(0.0, 0.5, 6)
    by_gauss, by_default = (
        mbd.simulate(ring.mechanism, ring.state(), times, solver=solver) for solver in (mbd.Gauss(), None)
    )
    np.testing.assert_allclose(by_gauss.q, by_default.q, rtol=0, atol=1e-6)
    pendulum = mbd.examples.get("pendulum").with_coordinates("joint")
    motor = pl.DCMotor("motor", "O.angle", voltage=5.0, resistance=1.0, inductance=0.1, constant=0.5)
    driven = pendulum.mechanism.with_parts([motor])
    event = mbd.Event("below", "O.angle", at=1.5 * math.pi, then=mbd.LogOnly())
    settings: dict[str, Any] = {"events": [event], "quadratures": ["energy"], "accuracy": "high"}
    by_gauss, by_default = (
        mbd.simulate(driven, mbd.assemble(driven, pendulum.fixed), times * 2, solver=solver, **settings)
        for solver in (mbd.Gauss(), None)
    )
    np.testing.assert_allclose(by_gauss.z, by_default.z, rtol=1e-8)
    np.testing.assert_allclose(by_gauss.quadratures["energy"], by_default.quadratures["energy"], rtol=1e-8)
    assert by_gauss.events is not None
    assert by_default.events is not None
    np.testing.assert_allclose(by_gauss.events.times, by_default.events.times, rtol=1e-9)


class Own(mbd.AbstractFormulation):
    """A user's: what it adds to the right-hand side, an implicit method would leave out."""

    def motion(self, equations: mbd.Equations, t: Any, q: Array, v: Array) -> mbd.StateDerivative:
        return mbd.Stabilized().motion(equations, t, q, v)


@pytest.mark.parametrize("solver", [mbd.Radau(), mbd.Gauss()])
@pytest.mark.parametrize("formulation", [Own(), mbd.Projection(Own()), mbd.Projection(mbd.Projection(Own()))])
def test_a_formulation_of_a_user_is_refused(solver: Any, formulation: Any) -> None:
    message = rf"{type(solver).__name__} solves the constraints itself, without the right-hand side of Own. Choose an"
    with pytest.raises(mbd.MechanismError, match=message):
        swung("absolute", solver, 8, formulation=formulation)


def test_stages_are_one_to_seven() -> None:
    with pytest.raises(mbd.MechanismError, match=r"Gauss: stages must be 1 to 7, got 8"):
        mbd.Gauss(8)
    y = (jnp.ones(1), jnp.ones(1), jnp.zeros(0))
    with pytest.raises(mbd.MechanismError, match=r"Gauss solves the equations of a mechanism"):
        dfx.diffeqsolve(dfx.ODETerm(lambda t, y, args: y), mbd.Gauss(), 0.0, 1.0, 0.1, y)
