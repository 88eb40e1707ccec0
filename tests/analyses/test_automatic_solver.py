"""`solver="auto"`: the default method, or Radau where stability holds the steps of the default."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.extend import AbstractFormulation
from tests.integrate.test_stiff import stiff_slider_crank

TS = np.linspace(0.0, 1.0, 5)


def test_a_motion_of_few_steps_is_that_of_the_default() -> None:
    made = mbd.examples.get("pendulum")
    chosen, usual = (mbd.simulate(made.mechanism, made.state(), TS, solver=s) for s in ("auto", None))
    np.testing.assert_array_equal(chosen.q, usual.q)
    assert chosen.stats["num_steps"] == usual.stats["num_steps"]
    assert chosen.solver_reason == "solver='auto' chose Dopri8, the default, since it ended within 500 steps"
    assert usual.solver_reason == ""
    assert chosen.to_xarray().attrs["solver_reason"] == chosen.solver_reason


@pytest.mark.slow
def test_a_long_motion_whose_error_limits_the_steps_is_that_of_the_default() -> None:
    made, ts = mbd.examples.get("pendulum"), [0.0, 60.0]
    chosen, usual = (mbd.simulate(made.mechanism, made.state(), ts, solver=s) for s in ("auto", None))
    assert int(usual.stats["num_steps"]) > 500
    np.testing.assert_array_equal(chosen.q, usual.q)
    assert "their error, not its stability" in chosen.solver_reason


@pytest.mark.parametrize("name", ["bushing", pytest.param("governor", marks=pytest.mark.slow)])
def test_where_stability_holds_the_steps_it_is_radau(name: str) -> None:
    """The governor's fastest rate falls to a third in the first 500 steps."""
    if name == "bushing":
        (mechanism, state), end = stiff_slider_crank(), 0.2
    else:
        made, end = mbd.examples.get(name), 1.0
        mechanism, state = made.mechanism, made.state()
    chosen, usual = (mbd.simulate(mechanism, state, [0.0, end], solver=s) for s in ("auto", None))
    assert "chose Radau" in chosen.solver_reason
    assert 2 * int(chosen.stats["num_steps"]) < int(usual.stats["num_steps"])
    np.testing.assert_allclose(chosen.q[-1], usual.q[-1], atol=2e-7)


def angle(inertia: Array, solver: Literal["auto"] | None) -> Array:
    made = mbd.examples.get("pendulum")
    other = mbd.with_numbers(made.mechanism, {"rod.inertia": inertia})
    return mbd.simulate(other, made.state(), TS, solver=solver)["O.angle"][-1]


def test_derivatives_are_those_of_what_was_chosen_and_traced_motions_are_refused() -> None:
    one = jnp.asarray(0.3)
    for derivative in (jax.grad, jax.jacfwd):
        chosen, usual = (derivative(partial(angle, solver=s))(one) for s in ("auto", None))
        assert abs(float(usual)) > 1e-3
        np.testing.assert_array_equal(chosen, usual)
    with pytest.raises(mbd.MechanismError, match="solver='auto' looks at a motion before it chooses"):
        jax.jit(partial(angle, solver="auto"))(one)


class Own(AbstractFormulation):
    """A formulation that no collocation method knows."""

    def motion(self, equations, t, q, v):  # pyright: ignore
        return mbd.Stabilized().motion(equations, t, q, v)


def test_a_formulation_that_radau_does_not_know_is_refused_at_once() -> None:
    made = mbd.examples.get("pendulum")
    with pytest.raises(mbd.MechanismError, match="without the right-hand side of Own"):
        mbd.simulate(made.mechanism, made.state(), TS, solver="auto", formulation=Own())
