"""What counts in the error that steps are controlled by: single entries of the state, by name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

TS = np.linspace(0.0, 1.0, 3)


def turned(**settings: Any) -> mbd.Solution:
    example = mbd.examples.get("slider-crank").with_coordinates("absolute")
    return mbd.simulate(example.mechanism, example.state(), TS, **settings)


def steps_of(run: mbd.Solution) -> int:
    return int(run.stats["num_steps"])


@pytest.mark.parametrize("engine", ["auto", pytest.param("diffrax", marks=pytest.mark.slow)])
def test_a_weight_is_a_tolerance(engine: Any) -> None:
    """All errors a hundredfold are a hundredth of the tolerances; speeds with weight one are `control_speeds`."""
    finer = turned(error_weights={"*": 100.0, "*.v?": 0.0, "*.omega": 0.0}, engine=engine)
    same = turned(rtol=1e-10, atol=1e-12, engine=engine)
    assert steps_of(finer) == steps_of(same)
    np.testing.assert_allclose(finer.q, same.q, rtol=0, atol=1e-12)
    usual = turned(engine=engine)
    assert steps_of(finer) > 1.5 * steps_of(usual)
    speeds = turned(error_weights={"*.v?": 1.0, "*.omega": 1.0}, engine=engine)
    np.testing.assert_array_equal(speeds.q, turned(control_speeds=True, engine=engine).q)
    assert steps_of(speeds) > 1.1 * steps_of(usual)


@pytest.mark.parametrize("solver", [None, pytest.param("stiff", marks=pytest.mark.slow)])
def test_both_loops_weigh_alike(solver: Any) -> None:
    weights = {"*.theta": 0.0, "crank.x": 3.0, "rod.omega": 0.2}  # the last one after a pattern that includes none
    ours, diffraxs = (turned(error_weights=weights, engine=e, solver=solver) for e in ("interpreter", "diffrax"))
    assert steps_of(ours) == steps_of(diffraxs) != steps_of(turned(solver=solver))
    np.testing.assert_allclose(ours.q, diffraxs.q, rtol=0, atol=1e-11)


def test_a_state_of_a_part_that_does_not_count() -> None:
    """The current settles in 1 ms; left out of the control, it does not hold up the pendulum, and its error grows."""
    pendulum = mbd.examples.get("pendulum").with_coordinates("joint")
    motor = pl.DCMotor("motor", "O.angle", voltage=5.0, resistance=10.0, inductance=0.01, constant=0.5)
    mechanism = pendulum.mechanism.with_parts([motor])
    start = mbd.assemble(mechanism, pendulum.fixed)
    run = lambda w, **s: mbd.simulate(mechanism, start, [0.0, 0.01], error_weights=w, quadratures=["energy"], **s)  # noqa: E731
    exact, usual, free = run({}, accuracy="high"), run({}, rtol=1e-6), run({"motor.current": 0.0}, rtol=1e-6)
    assert steps_of(free) < steps_of(usual)
    np.testing.assert_allclose(usual.z[-1], exact.z[-1], rtol=1e-5)
    np.testing.assert_allclose(free.q[-1], exact.q[-1], atol=1e-5)


@pytest.mark.slow
def test_derivatives() -> None:
    example = mbd.examples.get("slider-crank")
    state = example.state()

    def angle(mass: Array, **settings: Any) -> Array:
        mechanism = mbd.with_numbers(example.mechanism, {"rod.mass": mass})
        return mbd.simulate(mechanism, state, TS, **settings).q[-1]

    mass, weights = jnp.asarray(example.mechanism["rod"].mass), {"*": 10.0}
    expected = jax.jacfwd(lambda x: angle(x, accuracy="high"))(mass)
    for derivative in (jax.jacfwd, jax.jacrev):
        found = derivative(lambda x: angle(x, error_weights=weights))(mass)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_names_that_no_entry_has() -> None:
    with pytest.raises(
        mbd.MechanismError, match=r"entry of the state for error_weights named 'crnk.theta'. Did you mean"
    ):
        turned(error_weights={"crnk.theta": 1.0})
    with pytest.raises(mbd.MechanismError, match=r"entry of the state for error_weights named 'motor\.\*'"):
        turned(error_weights={"motor.*": 1.0})
