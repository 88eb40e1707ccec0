"""Derivatives of Functional Mock-up Units, forward and adjoint, against those of the public functions by JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.c_code import compiler
from tests.io.fmus import Instance, Unit, crank, pendulum, response, top
from tests.marks import slow_but
from tests.numeric import worst

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")
EXACT = 1e-12  # relative to the largest entry


def variables(unit: Unit) -> tuple[list[str], list[str]]:
    """The names of the unknowns, rates and outputs, and of the knowns: the time, states, inputs and parameters."""
    found = unit.description.modelVariables
    outputs = [v.name for v in found if v.causality == "output"]
    inputs = [v.name for v in found if v.causality == "input"]
    return [*unit.rates, *outputs], ["time", *unit.states, *inputs, *unit.parameters]


UNITS = {"closed": pendulum, "joint": lambda: crank("joint"), "absolute": lambda: crank("absolute"), "space": top}


@pytest.mark.parametrize("name", slow_but(["closed"], UNITS))
def test_derivatives_are_those_of_jax(name: str, rng: np.random.Generator) -> None:
    """At a state off the constraints, as integrators of an importer visit them."""
    unit = UNITS[name]()
    unknowns, knowns = variables(unit)
    nx, nu = len(unit.states), len(unit.inputs)
    x = np.concatenate([unit.state.q, unit.state.v, unit.state.z])
    x = x + 1e-3 * rng.normal(size=nx)
    with Instance(unit, "ModelExchange") as one:
        one.started()
        one.fmu.updateDiscreteStates()
        u = rng.normal(size=nu)
        one.fmu.enterContinuousTimeMode()
        one.fmu.setTime(0.02)
        one.fmu.setContinuousStates(np.ctypeslib.as_ctypes(x), nx)
        inputs = [v.name for v in unit.description.modelVariables if v.causality == "input"]
        one.set(dict(zip(inputs, u.tolist(), strict=True)))
        at = jnp.asarray(0.02), jnp.asarray(x), jnp.asarray(u), jnp.asarray(one.get(*unit.parameters))
        seeds = rng.normal(size=len(knowns))
        by, of = unit.references_of(*knowns), unit.references_of(*unknowns)
        values = one.get(*unknowns)
        forward = np.array(one.fmu.getDirectionalDerivative(of, by, seeds.tolist()))
        weights = rng.normal(size=len(unknowns))
        adjoint = np.array(one.fmu.getAdjointDerivative(of, by, weights.tolist(), len(by)))
        alone = [one.fmu.getDirectionalDerivative(of, [k], [1.0]) for k in by]
    function = response(unit)
    split = [jnp.reshape(part, like.shape) for part, like in zip(
        jnp.split(jnp.asarray(seeds), [1, 1 + nx, 1 + nx + nu]), at, strict=True)]  # fmt: skip
    primal, tangent = jax.jvp(function, at, tuple(split))
    expected, moved = (np.concatenate(pair) for pair in (primal, tangent))
    assert worst(values - expected) < EXACT * worst(expected)
    assert worst(forward - moved) < EXACT * worst(moved)
    _, pull = jax.vjp(function, *at)
    cotangents = pull((jnp.asarray(weights[:nx]), jnp.asarray(weights[nx:])))
    pulled = np.concatenate([np.ravel(x) for x in cotangents])
    assert worst(adjoint - pulled) < EXACT * worst(pulled)
    assert worst(np.array(alone).T @ seeds - forward) < EXACT * worst(np.abs(np.array(alone)).T @ np.abs(seeds))


def test_forward_derivatives_of_version_2() -> None:
    unit, newer = pendulum("2.0"), pendulum()
    unknowns, knowns = variables(unit)
    seeds = np.linspace(-1.0, 1.0, len(knowns)).tolist()
    with Instance(unit, "ModelExchange") as one, Instance(newer, "ModelExchange") as two:
        one.started()
        two.started()
        references = unit.references_of(*unknowns), unit.references_of(*knowns)
        found = one.fmu.getDirectionalDerivative(*references, seeds)
        expected = two.fmu.getDirectionalDerivative(*references, seeds)
    assert worst(np.array(found) - np.array(expected)) < EXACT * worst(expected)


def test_an_output_that_is_a_state_has_its_derivative() -> None:
    unit = pendulum()
    with Instance(unit) as one:
        one.started()
        references = unit.references_of("rod.y", "rod.position[1]"), unit.references_of("rod.y")
        assert one.fmu.getDirectionalDerivative(*references, [2.0]) == [2.0, 2.0]
        assert one.fmu.getAdjointDerivative(*references, [3.0, 1.0], 1) == [4.0]
