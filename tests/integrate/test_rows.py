"""The rows that a motion is solved in where constraints repeat: chosen at the start, exchanged on the way."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import spatial as sp
from jaxmbd.analyses.simulation import integration, simulate
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.integrate.formulations.independent_constraints import (
    RowSelection,
    initial_row_selection,
    update_row_selection,
)

END = [0.0, 1.5]
BAD = 1  # the ring's row without which the others become dependent at 1.25 s


@pytest.fixture(scope="module")
def ring() -> sp.Mechanism:
    return examples.bricard().mechanism


def without(row: int) -> RowSelection:
    return RowSelection(jnp.asarray(True), jnp.ones(30, bool).at[row].set(False))


def equations_without(ring: sp.Mechanism, row: int) -> mbd.Equations:
    rows = without(row)
    return mbd.Equations(ring).solved_in(rows.redundant, rows.rows)


def test_rows_are_chosen_anew_where_others_are_better(ring: sp.Mechanism) -> None:
    """As many, and good ones; a good choice stays."""
    state = mbd.assemble(ring)
    there = mbd.simulate(ring, state, [0.0, 1.25])
    anew = jax.jit(update_row_selection)
    t, q = there.ts[-1], there.q[-1]
    assert not anew(equations_without(ring, BAD), state.t, state.q)[BAD]
    chosen = np.asarray(anew(equations_without(ring, BAD), t, q))
    assert chosen.sum() == 29
    values = np.linalg.svd(np.asarray(mbd.Equations(ring).jacobian(t, q)), compute_uv=False)
    kept = np.linalg.svd(np.asarray(mbd.Equations(ring).jacobian(t, q))[chosen], compute_uv=False)
    assert kept[-1] > 0.1 * values[28]
    found = initial_row_selection(ring, [t], q)
    assert found is not None
    assert found.rows is not None
    again = anew(mbd.Equations(ring).solved_in(found.redundant, found.rows), t, q)
    np.testing.assert_array_equal(again, found.rows)


def test_nothing_is_chosen_where_no_rows_repeat() -> None:
    mechanism = examples.get("planar-four-bar").mechanism
    state = mbd.assemble(mechanism)
    assert initial_row_selection(mechanism, [state.t], state.q) == RowSelection(False, None)
    assert update_row_selection(mbd.Equations(mechanism), state.t, state.q) is None


def test_a_second_call_derives_nothing_of_the_structure_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting rows traces laws: five times what a short motion takes."""
    example = examples.get("planar-four-bar")
    state = example.state()
    first = mbd.simulate(example.mechanism, state, END)
    monkeypatch.delattr(type(example.mechanism), "constraint_sizes")
    np.testing.assert_array_equal(mbd.simulate(example.mechanism, state, END).q, first.q)


def test_lanes_choose_on_their_own(ring: sp.Mechanism) -> None:
    """One keeps its rows, one changes them."""
    state = mbd.assemble(ring)
    there = mbd.simulate(ring, state, [0.0, 1.25])
    equations = equations_without(ring, BAD)
    chosen = jax.jit(jax.vmap(lambda q: update_row_selection(equations, state.t, q)))(jnp.stack([state.q, there.q[-1]]))
    assert list(chosen[:, BAD]) == [False, True]
    assert list(jnp.sum(chosen, axis=1)) == [29, 29]


def test_a_bad_start_does_not_spoil_the_motion(ring: sp.Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor its derivative, with respect to the mass of a bar."""
    state, name = mbd.assemble(ring), ring.bodies[0].name

    def end(mass: Array | float) -> Array:
        mechanism = eqx.tree_at(lambda m: m[name].mass, ring, jnp.asarray(mass))
        return mbd.simulate(mechanism, state, END, accuracy="high").q[-1]

    good, h = mbd.simulate(ring, state, END), 1e-4
    difference = (end(1 + h) - end(1 - h)) / (2 * h)
    monkeypatch.setattr(simulate, "initial_row_selection", lambda *_: without(BAD))
    monkeypatch.setattr(integration, "row_selection_for_motion", lambda *_: without(BAD))
    bad = mbd.simulate(ring, state, END)
    np.testing.assert_allclose(bad.q, good.q, atol=1e-8)
    assert int(bad.stats["num_steps"]) < 1.5 * int(good.stats["num_steps"])
    weights = jnp.cos(jnp.arange(len(difference)))
    slope = jax.grad(lambda mass: jnp.dot(weights, end(mass)))(jnp.asarray(1.0))
    assert abs(slope) > 1e-3
    np.testing.assert_allclose(slope, jnp.dot(weights, difference), rtol=1e-6)


@pytest.mark.parametrize(
    ("coordinates", "formulation"),
    [
        ("joint", mbd.Stabilized()),
        pytest.param("absolute", mbd.Stabilized(), marks=pytest.mark.slow),
        pytest.param("joint", mbd.Augmented(), marks=pytest.mark.slow),
    ],
)
def test_what_is_read_between_steps_is_as_accurate_as_at_steps(
    coordinates: str, formulation: AbstractFormulation
) -> None:
    """Between steps the solver interpolates, off the constraints, where rows that repeat contradict one another."""
    example = examples.bricard().with_coordinates(coordinates)
    state, ts = example.state(), jnp.linspace(0.0, 1.0, 101)
    solution = mbd.simulate(example.mechanism, state, ts, formulation=formulation)
    reference = mbd.simulate(example.mechanism, state, [0.0, 0.7], formulation=mbd.Projection(), accuracy="high")
    assert solution.stats["num_accepted_steps"] < 30  # of 100 intervals
    stabilized = isinstance(formulation, mbd.Stabilized)
    np.testing.assert_allclose(solution.v[70], reference.v[-1], atol=2e-8 if stabilized else 2e-6)
    np.testing.assert_allclose(solution.vdot[70], reference.vdot[-1], atol=5e-8 if stabilized else 5e-5)
    if stabilized:
        np.testing.assert_allclose(solution.q[70], reference.q[-1], atol=5e-9)
        np.testing.assert_allclose(solution["energy"], solution["energy"][0], atol=5e-7)
        assert np.abs(solution.violation().position).max() < 1e-12


@pytest.mark.slow
def test_speeds_between_steps_have_right_derivatives_inside_jit() -> None:
    """Where it is not known in advance whether rows repeat; by the size of gravity, reverse and forward."""
    example = examples.bricard().with_coordinates("joint")
    state, ts = example.state(), jnp.linspace(0.0, 0.5, 51)

    def speeds(gravity: Array, derivative: str = "reverse") -> Array:
        (force,) = example.mechanism.forces
        forces = [eqx.tree_at(lambda f: f.acceleration, force, jnp.array([0.0, -1.0, 0.0]) * gravity)]
        mechanism = example.mechanism.replacing(forces=forces)
        return jnp.sum(mbd.simulate(mechanism, state, ts, adjoint=derivative).v[35])  # pyright: ignore

    at, h = jnp.asarray(9.81), 1e-3
    run = jax.jit(speeds)
    difference = (run(at + h) - run(at - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(speeds))(at), difference, rtol=2e-6)
    _, forward = jax.jit(lambda g: jax.jvp(lambda g: speeds(g, "forward"), (g,), (jnp.ones_like(g),)))(at)
    np.testing.assert_allclose(forward, difference, rtol=2e-6)
