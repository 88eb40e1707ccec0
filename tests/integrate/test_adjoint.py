"""Reverse derivatives from recorded steps: those of diffrax's adjoint, and of the exact motion where times move."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import DiscreteAdjoint
from jaxmbd.engine import choice
from jaxmbd.integrate.adjoint.native_run import run_native
from jaxmbd.integrate.adjoint.native_steps import native_steps
from jaxmbd.integrate.adjoint.steps import MotionSteps, Outputs
from jaxmbd.integrate.adjoint.sweep import CheckpointStore
from jaxmbd.integrate.solvers.unrolled_erk import unrolled
from tests import planar_examples as examples
from tests.numeric import worst

ROUNDING = 1e-12  # of the largest derivative
TIMES = 1e-7  # of derivatives with respect to times, at tolerances of 1e-10
TS = np.linspace(0.0, 2.0, 9)  # [s]
P = jnp.array([9.81, 3.0])  # [1/s²]
CONTROL = dfx.PIDController(rtol=1e-10, atol=1e-10)
DIFFRAX = dfx.RecursiveCheckpointAdjoint()


def rates(t: Any, y: Any, p: Array) -> Any:
    q, v, _ = y
    return v, -p * jnp.sin(q) + jnp.cos(3 * t), jnp.zeros(0)


def readings(
    adjoint: dfx.AbstractAdjoint, solver: Any, controller: Any = CONTROL, max_steps: int = 300, saveat: Any = None
) -> Callable[..., Array]:
    """A number that depends on the start, on parameters and on times, by values at times and at the end."""

    def read(q: Array, p: Array, ts: Any) -> Array:
        both = dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)]) if saveat is None else saveat(ts)
        run = dfx.diffeqsolve(
            dfx.ODETerm(rates), solver, ts[0], ts[-1], 0.01, (q, 0.1 * q, jnp.zeros(0)), p, saveat=both,
            stepsize_controller=controller, adjoint=adjoint, max_steps=max_steps,
        )  # fmt: skip
        (qs, vs, _), (_, v1, _) = run.ys if saveat is None else (run.ys, run.ys)  # pyright: ignore
        return jnp.sum(qs**2 * jnp.arange(len(qs))[:, None]) + jnp.sum(vs[-1]) + v1[-1, 0]

    return read


def derivatives(adjoint: dfx.AbstractAdjoint, solver: Any, of: tuple[int, ...] = (0, 1), **options: Any) -> Any:
    return jax.grad(readings(adjoint, solver, **options), argnums=of)(jnp.array([1.0, -0.5]), P, jnp.asarray(TS))


def apart(a: Any, b: Any) -> float:
    """The largest difference, by the largest derivative."""
    flat = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (a, b)]
    return worst(flat[0] - flat[1]) / worst(flat[1])


@pytest.mark.parametrize(
    "solver",
    [
        unrolled(dfx.Tsit5()),
        dfx.Heun(),
        *(pytest.param(s, marks=pytest.mark.slow) for s in (unrolled(dfx.Dopri8()), dfx.Kvaerno5())),
        pytest.param(dfx.Tsit5(), marks=pytest.mark.slow),
    ],
    ids=["tsit5", "diffrax's heun", "dopri8", "kvaerno5", "diffrax's tsit5"],
)
def test_derivatives_are_those_of_diffrax(solver: Any) -> None:
    loose = {"controller": dfx.PIDController(rtol=1e-5, atol=1e-5)} if isinstance(solver, dfx.Heun) else {}
    options = {"max_steps": 2048, **loose}
    tolerance = 1e-7 if isinstance(solver, dfx.Kvaerno5) else ROUNDING  # its stages are solved for to a tolerance
    expected = derivatives(DIFFRAX, solver, **options)
    assert worst(expected[1]) > 0.1
    assert apart(derivatives(DiscreteAdjoint(), solver, **options), expected) < tolerance


@pytest.mark.parametrize("rows", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 64))])
def test_states_between_kept_ones_are_made_again(rows: int) -> None:
    """Tsit5 takes some 200 steps: with fewer rows only every second, fourth, … state is kept."""
    solver = unrolled(dfx.Tsit5())
    assert apart(derivatives(DiscreteAdjoint(rows), solver), derivatives(DiscreteAdjoint(300), solver)) < ROUNDING


@pytest.mark.parametrize(("rows", "steps"), [(4, 4), (4, 5), (4, 31), (8, 100), (1, 7)])
def test_kept_states_are_found_again(rows: int, steps: int) -> None:
    """Whatever the number of steps, each multiple of the final stride has a row of its own that holds it."""
    record = CheckpointStore.empty(jnp.zeros(()), 0.0, rows, 128)
    for i in range(steps):
        record = record.with_step(jnp.asarray(i), 0.0, 1.0, jnp.asarray(float(i)))
    stride = 2 ** int(record.level(jnp.asarray(steps - 1)))
    kept = {i: int(record.place(jnp.asarray(i))) for i in range(0, steps, stride)}
    assert rows / 2 < len(kept) <= rows or stride == 1
    assert len(set(kept.values())) == len(kept)
    assert all(float(record.states[place]) == i for i, place in kept.items())


@pytest.mark.slow
def test_times_move_as_in_the_exact_motion() -> None:
    """Against diffrax's and against differences of the value itself, at tolerances that leave 1e-9 of error."""
    solver = unrolled(dfx.Dopri8())
    made = derivatives(DiscreteAdjoint(), solver, of=(2,))[0]
    read = jax.jit(readings(DIFFRAX, solver, dfx.PIDController(rtol=1e-13, atol=1e-13), max_steps=2048))
    step, at = 1e-4, (jnp.array([1.0, -0.5]), P)
    for k in (0, 3, len(TS) - 1):
        up, down, up2, down2 = (read(*at, jnp.asarray(TS).at[k].add(s * step)) for s in (1, -1, 2, -2))
        slope = (8 * (up - down) - (up2 - down2)) / (12 * step)
        np.testing.assert_allclose(made[k], slope, rtol=TIMES, atol=TIMES * worst(made))


def test_a_batch_is_its_members() -> None:
    """Each with its own number of steps, more than there are rows."""
    read = readings(DiscreteAdjoint(16), unrolled(dfx.Tsit5()))
    factors = jnp.array([0.1, 1.0, 4.0])
    slope = jax.grad(lambda s: read(jnp.array([1.0, -0.5]), s * P, jnp.asarray(TS)))
    together = jax.vmap(slope)(factors)
    assert apart(together, jnp.stack([slope(s) for s in factors])) < ROUNDING


def test_what_cannot_be_recorded_is_diffraxs() -> None:
    """Jumps that a controller makes, and other things to save."""
    solver, jumps = dfx.Tsit5(), dfx.ClipStepSizeController(CONTROL, jump_ts=jnp.array([0.7]))
    for options in ({"controller": jumps}, {"saveat": lambda ts: dfx.SaveAt(ts=ts, t0=True)}):
        made, expected = (derivatives(a, solver, of=(0, 1, 2), **options) for a in (DiscreteAdjoint(), DIFFRAX))
        assert apart(made, expected) < ROUNDING


def test_a_run_of_no_steps_has_its_start() -> None:
    def read(q: Array) -> Array:
        run = dfx.diffeqsolve(
            dfx.ODETerm(rates), dfx.Tsit5(), 1.0, 1.0, 0.1, (q, q, jnp.zeros(0)), P, adjoint=DiscreteAdjoint(),
            saveat=dfx.SaveAt(subs=[dfx.SubSaveAt(ts=jnp.ones(2)), dfx.SubSaveAt(t1=True)]),
        )  # fmt: skip
        (qs, _, _), (_, v1, _) = run.ys  # pyright: ignore
        return jnp.sum(qs * jnp.array([[1.0], [10.0]])) + 100 * jnp.sum(v1)

    np.testing.assert_array_equal(jax.grad(read)(jnp.array([1.0, -0.5])), [111.0, 111.0])


@pytest.mark.parametrize(
    "formulation",
    [mbd.Stabilized(), pytest.param(mbd.Projection(), marks=pytest.mark.slow)],
    ids=["stabilized", "projection"],
)
def test_mechanisms_have_the_derivatives_of_diffraxs_adjoint(formulation: Any) -> None:
    """With respect to all numbers of a pendulum; a settling formulation carries its choice from step to step."""
    made = examples.pendulum()
    numbers, rest = eqx.partition(made, eqx.is_inexact_array)

    def read(numbers: Any, adjoint: Any) -> Array:
        solution = eqx.combine(numbers, rest).simulate([0.0, 0.3, 0.5], formulation=formulation, adjoint=adjoint)
        return solution.q[1, 2] + jnp.sum(solution.v[2])

    ours, expected = (jax.grad(read)(numbers, adjoint) for adjoint in ("reverse", DIFFRAX))
    assert apart(ours, expected) < 1e3 * ROUNDING


@pytest.mark.parametrize("sets", [0, 2])
def test_outputs_come_back_from_their_list(sets: int) -> None:
    """Saved states, the end, and for an event the last step with its two times."""
    y, times = {"a": jnp.ones(2), "b": jnp.ones(())}, (0.0, 1.0, tuple(jnp.ones(3 + k) for k in range(sets)))
    inputs = y, None, None, dfx.ODETerm(lambda t, y, args: y), jax.tree.map(jnp.asarray, times)
    dense = {"y0": jnp.ones(2), "y1": jnp.ones(2), "k": jnp.ones((3, 2))}
    steps = MotionSteps(inputs, dfx.Heun(), dense, 4)
    numbered = map(jnp.asarray, np.arange(100.0))
    made = Outputs(
        [[next(numbered), next(numbered)] for _ in range(sets)], [next(numbered), next(numbered)],
        (jax.tree.map(lambda _: next(numbered), dense), [next(numbered), next(numbered)]),
    )  # fmt: skip
    flat = steps.flat(made)
    np.testing.assert_array_equal(sorted(map(float, flat)), np.arange(len(steps.outputs)))
    assert eqx.tree_equal(steps.unflat(flat), made)


def test_a_sweep_that_is_no_program_runs_in_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a long table at an index of run time is one operation; its transpose writes there, which is limited."""

    def end(table: Any, x: Any) -> Any:
        def rate(given: Any, static: Any, t: Any, y: Any) -> Any:
            return -jnp.interp(t, jnp.linspace(0.0, 1.0, len(table)), given[0]) * y

        y, ts = jnp.stack([x]), jnp.array([0.0, 1.0])
        found = native_steps(rate, None, (table,), None, y, dfx.Heun(), np.ones(1), 2, 64)
        assert found is not None
        return run_native(*found, (y,), dfx.ConstantStepSize(), 0.1, ts[0], ts[1], ts)[0].ys[1][0][0][0]  # pyright: ignore

    table, factors = jnp.linspace(0.5, 1.0, 9), jnp.array([1.0, 2.0])
    expected = jax.jacfwd(end)(table, 1.0)
    monkeypatch.setattr(choice, "CANDIDATES", 8)
    for found in (jax.grad(end)(table, 1.0), jax.jit(jax.grad(end))(table, 1.0)):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    gradients = jax.vmap(jax.grad(end), (None, 0))(table, factors)
    np.testing.assert_allclose(gradients, jnp.outer(factors, expected), rtol=1e-12)
