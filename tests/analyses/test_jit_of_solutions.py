"""Mechanisms, states and motions as arguments and results of functions transformed by JAX, with functions of users in
them: plain `jax.jit`, `jax.vmap` and derivatives take them, and trace once for each kind of mechanism."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl

TS = np.linspace(0.0, 1.0, 11)
START = {"O.angle": 1.0}


def spring(t: Any, angle: Any, rate: Any, stiffness: Any) -> Any:
    """A law of a user."""
    return -stiffness * jnp.sin(angle) * jnp.cos(t)


class Gain:
    """A law of a user that has no hash."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, t: Any, angle: Any, rate: Any, gain: Any) -> Any:
        return -gain * rate


def pendulum(stiffness: Any = 2.0, law: Callable[..., Any] = spring) -> pl.Mechanism:
    bar = pl.Body("bar", 1.0, 0.1, pose=(0.0, -0.5, 0.0))
    return pl.Mechanism(
        [bar],
        [pl.Revolute("O", pl.ground.at(), bar.at(0.0, 0.5))],
        [pl.Gravity(9.81), pl.JointForce("motor", "O.angle", law, jnp.asarray(stiffness))],
        sensors=[pl.Measure("square", lambda t, q, *others: q[0] ** 2)],
    )


def motion(mechanism: pl.Mechanism, scale: float = 1.0, **options: Any) -> mbd.Solution:
    return mbd.simulate(mechanism, mbd.assemble(mechanism, START), scale * TS, **options)


def counted(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """A function that is compiled, and a list that grows with each trace of it."""
    traces: list[int] = []

    def noticed(*arguments: Any) -> Any:
        traces.append(len(traces))
        return function(*arguments)

    return jax.jit(noticed), traces


def read(solution: mbd.Solution) -> tuple[Any, ...]:
    return solution["O.angle"][-1], solution["energy"], solution["square"][-1], solution.reaction("O").force[-1]


def test_jit_takes_a_motion_and_traces_once_for_all_of_a_mechanism() -> None:
    compiled, traces = counted(read)
    for mechanism, scale in ((pendulum(), 1.0), (pendulum(), 0.7), (pendulum(3.0), 1.0)):
        solution = motion(mechanism, scale)
        # The sensor's lambda is another one of each mechanism; with that of the first they are of one kind.
        solution = eqx.tree_at(lambda s: s.mechanism.sensors, solution, FIRST.mechanism.sensors)
        for found, expected in zip(compiled(solution), read(solution), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert len(traces) == 1
    compiled(motion(pendulum(law=Gain())))
    assert len(traces) == 2


FIRST = motion(pendulum())


def test_jit_returns_a_motion_with_all_that_can_be_read_from_it() -> None:
    returned = jax.jit(lambda solution: solution)(FIRST)
    assert returned.mechanism.forces[1].force(0.0, 0.5, 0.0, 1.0) == pytest.approx(-np.sin(0.5))
    for found, expected in zip(read(returned), read(FIRST), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert str(returned) == str(FIRST)
    made = jax.jit(lambda k: motion(pendulum(k)))(2.0)
    np.testing.assert_allclose(made["square"], FIRST["square"], rtol=1e-6)


def test_a_motion_with_events_of_users() -> None:
    """Quantities and changes of events are functions of users, too."""
    event = mbd.Event("low", lambda snapshot: snapshot.q[2], below=0.5, then=mbd.Change("motor.parameters", 5.0))
    solution = motion(pendulum(), events=[event])
    assert solution.events is not None
    assert int(solution.events.count) == 1
    compiled, traces = counted(lambda s: (s, s.events.times, s["O.angle"]))
    compiled(solution)
    returned, times, angle = compiled(solution)
    assert len(traces) == 1
    np.testing.assert_allclose(times, solution.events.times)
    np.testing.assert_allclose(angle, solution["O.angle"], rtol=1e-12, atol=1e-12)
    assert str(returned) == str(solution)


@pytest.mark.slow
def test_a_batch_of_motions() -> None:
    gains, law = jnp.array([0.5, 2.0]), Gain()
    batch = jax.vmap(lambda k: motion(pendulum(k, law)))(gains)
    found = jax.jit(jax.vmap(lambda solution: solution["O.angle"][-1]))(batch)
    np.testing.assert_allclose(found, [motion(pendulum(k, law))["O.angle"][-1] for k in gains], rtol=1e-5)


def test_mechanisms_and_states_pass_through_jit() -> None:
    mechanism = pendulum()
    state = mbd.assemble(mechanism, START)
    assert all(map(eqx.is_array, jax.tree.leaves((mechanism, state))))
    same, start = jax.jit(lambda mechanism, state: (mechanism, state))(mechanism, state)
    np.testing.assert_allclose(mbd.simulate(same, start, TS)["O.angle"], FIRST["O.angle"], rtol=1e-9)
    end = jax.jit(lambda mechanism, state: mbd.simulate(mechanism, state, TS)["O.angle"][-1])(mechanism, state)
    np.testing.assert_allclose(end, FIRST["O.angle"][-1], rtol=1e-6)


@pytest.mark.slow
def test_derivatives_through_a_function_of_a_motion_that_is_compiled() -> None:
    def total(k: Any, function: Callable[..., Any]) -> Any:
        return function(motion(pendulum(k), rtol=1e-10, atol=1e-10))

    of = lambda s: jnp.sum(s["O.angle"] ** 2) + s["square"][-1] + s.reaction("O").force[-1, 0]  # noqa: E731
    compiled = jax.jit(of)
    step = 1e-4
    expected = (total(2.0 + step, of) - total(2.0 - step, of)) / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(2.0, compiled), expected, rtol=2e-4)
    np.testing.assert_allclose(jax.grad(total)(2.0, compiled), jax.grad(total)(2.0, of), rtol=1e-9)
    np.testing.assert_allclose(jax.jvp(lambda k: total(k, compiled), (2.0,), (1.0,))[1], expected, rtol=2e-4)


def test_numbers_and_functions_of_a_motion_s_mechanism_can_be_replaced() -> None:
    heavier = eqx.tree_at(lambda s: s.mechanism.bodies[0].mass, FIRST, jnp.asarray(2.0))
    np.testing.assert_allclose(heavier["kinetic_energy"][0], FIRST["kinetic_energy"][0], atol=1e-12)
    assert float(heavier.mechanism["bar"].mass) == 2.0
    free = eqx.tree_at(lambda s: s.mechanism.forces[1].force, FIRST, lambda *x: jnp.zeros(()))
    assert float(free.vdot[0, 2]) == pytest.approx(float(FIRST.vdot[0, 2] + 2.0 * np.sin(1.0) / 0.35), rel=1e-9)
    assert "force=<function spring>" in repr(FIRST.mechanism.forces[1])
