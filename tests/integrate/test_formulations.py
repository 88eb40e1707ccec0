"""Ways to keep the constraints: they keep what they promise, and drift as theory says.

Also the order of convergence, the conservation of energy, and single precision.
"""

from functools import cache

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests import planar_examples as examples
from tests.marks import slow_but
from tests.numeric import worst
from tests.planar_examples import Example

LOOPS = ("slider_crank", "sundials_slider_crank", "four_bar_with_springs", "modelica_four_bar", "andrews")
DURATION = {"andrews": 0.01, "modelica_double_pendulum": 1.0}  # [s]; else 0.5 s


@cache
def example(name: str) -> Example:
    return examples.ALL[name]()


def times(name: str, rows: int = 6) -> np.ndarray:
    return np.linspace(0.0, DURATION.get(name, 0.5), rows)


# --- constraints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_but(["slider_crank"], LOOPS))
@pytest.mark.parametrize("formulation", [mbd.Stabilized(), mbd.Augmented()], ids=["stabilized", "augmented"])
def test_constraints_are_kept(name: str, formulation: mbd.Stabilized | mbd.Augmented) -> None:
    """At the default tolerances (1e-8): each level against its own bound, scaled by the motion's speeds.

    `Stabilized` projects the speeds, so that only rounding is left at the velocity level.
    """
    solution = example(name).simulate(times(name), formulation=formulation)
    missed = solution.violation()
    speed = max(1.0, worst(solution.integrated_speeds))
    exact = isinstance(formulation, mbd.Stabilized)
    assert worst(missed.position) < 1e-7
    assert worst(missed.velocity) < (1e-13 if exact else 1e-6) * speed
    assert worst(missed.acceleration) < (1e-12 if exact else 1e-5) * speed**2


def violation(formulation: mbd.Stabilized | mbd.Augmented, displaced: float, rate: float) -> np.ndarray:
    """`‖Φ‖` over time of a slider-crank that starts `displaced` [m] off its rail and leaves it at `rate`."""
    made = example("slider_crank")
    state = made.state()
    state = eqx.tree_at(lambda s: (s.q, s.v), state, (state.q.at[7].add(displaced), state.v.at[7].add(rate)))
    solution = mbd.simulate(made.mechanism, state, TIMES, formulation=formulation, rtol=1e-12, atol=1e-12, throw=False)
    return np.linalg.norm(np.asarray(solution.violation().position), axis=1)


TIMES = np.linspace(0.0, 0.4, 5)
OFF, AWAY = 1e-3, 1e-2  # [m], [m/s]: two rows of `Φ` see them, so that `‖Φ‖` is larger by √2
UNSTABILISED = mbd.Augmented(alpha=0.0, beta=0.0)


@pytest.mark.parametrize(
    ("formulation", "off", "away"),
    [
        (UNSTABILISED, np.ones(5), TIMES),
        (mbd.Augmented(8.0, 8.0), (1 + 8 * TIMES) * np.exp(-8 * TIMES), TIMES * np.exp(-8 * TIMES)),
        (mbd.Stabilized(6.0), np.exp(-6 * TIMES), np.zeros(5)),
    ],
    ids=["none", "baumgarte", "stabilized"],
)
def test_a_violation_follows_its_own_equation(
    formulation: mbd.Stabilized | mbd.Augmented, off: np.ndarray, away: np.ndarray
) -> None:
    """`Φ̈ + 2α Φ̇ + β² Φ = 0`, or `Φ̇ = −κ Φ`; without stabilisation nothing decays, and `Φ` grows with time."""
    displaced, moving = violation(formulation, OFF, 0.0), violation(formulation, 0.0, AWAY)
    np.testing.assert_allclose(displaced, np.sqrt(2) * OFF * off, rtol=1e-6)
    np.testing.assert_allclose(moving, np.sqrt(2) * AWAY * away, rtol=1e-6, atol=1e-9)


def test_only_stabilisation_keeps_a_long_run_on_the_constraints() -> None:
    """A double pendulum at a fixed step of 2 ms: without stabilisation the errors of all steps add up."""
    worst_of = []
    for formulation in (UNSTABILISED, mbd.Augmented(), mbd.Stabilized()):
        solution = example("modelica_double_pendulum").simulate(
            [0.0, 1.0, 2.0, 4.0],
            formulation=formulation,
            solver=dfx.Tsit5(),
            stepsize_controller=dfx.ConstantStepSize(),
            dt0=2e-3,
        )
        worst_of.append(np.linalg.norm(np.asarray(solution.violation().position), axis=1))
    plain, baumgarte, stabilized = worst_of
    assert plain[3] > 4 * plain[2] > 16 * plain[1] > 0  # at least quadratic
    assert max(baumgarte[3], stabilized[3]) < 1e-2 * plain[3]


# --- energy, order, precision ---------------------------------------------------------------------


def without_losses(name: str) -> Example:
    """An example that keeps its energy: motors, loads, dampers and drag set to zero."""
    made = example(name)
    idle = [force for force in made.mechanism.forces if isinstance(force, pl.Gravity | pl.SpringDamper)]
    idle = [
        eqx.tree_at(lambda f: (f.damping, f.actuator), force, (jnp.zeros(()), jnp.zeros(())))
        if isinstance(force, pl.SpringDamper)
        else force
        for force in idle
    ]
    return eqx.tree_at(lambda e: e.mechanism.forces, made, tuple(idle))


@pytest.mark.parametrize("name", ["double_pendulum_with_friction", "slider_crank", "four_bar_with_springs"])
def test_energy_is_conserved_without_losses(name: str) -> None:
    solution = without_losses(name).simulate(np.linspace(0.0, 2.0, 21), rtol=1e-12, atol=1e-12)
    energies = solution.energies()
    assert worst(np.ptp(np.asarray(solution.v), axis=0)) > 1.0  # it moves, and not steadily
    assert float(np.ptp(energies["energy"])) < 1e-8 * worst(energies["kinetic_energy"])


@cache
def exact_end() -> Array:
    return without_losses("slider_crank").simulate([0.0, 0.5], rtol=1e-13, atol=1e-13).q[-1]


@pytest.mark.parametrize("formulation", [mbd.Stabilized(), mbd.Augmented()], ids=["stabilized", "augmented"])
@pytest.mark.parametrize(
    ("solver", "order", "steps"),
    [(dfx.Heun(), 2, 80), (dfx.Bosh3(), 3, 40), (dfx.Tsit5(), 5, 20)],
    ids=["heun", "bosh3", "tsit5"],
)
def test_fixed_steps_converge_at_the_order_of_the_solver(
    solver: dfx.AbstractSolver, order: int, steps: int, formulation: mbd.Stabilized | mbd.Augmented
) -> None:
    """From `steps` to twice as many the error falls by `2 ** order`, or by more at fifth order."""
    errors = [
        worst(
            without_losses("slider_crank").simulate(
                [0.0, 0.5], formulation=formulation, solver=solver, stepsize_controller=dfx.ConstantStepSize(),
                dt0=0.5 / n,
            ).q[-1]
            - exact_end()
        )
        for n in (steps, 2 * steps)
    ]  # fmt: skip
    measured = np.log2(errors[0] / errors[1])
    assert order - 0.2 < measured < order + (2.0 if order == 5 else 0.2)


@pytest.mark.parametrize(
    "name", slow_but(["four_bar_with_springs"], ["pendulum", "slider_crank", "four_bar_with_springs"])
)
def test_single_precision_runs_end_to_end(name: str) -> None:
    """Assembly, motion, reactions and a derivative in float32, at its own default tolerances."""
    expected = example(name).simulate([0.0, 0.3], rtol=1e-10, atol=1e-10)
    with jax.enable_x64(False):
        made = examples.ALL[name]()
        solution = made.simulate([0.0, 0.3])
        single, loads = solution.q, solution.lam
        slope = jax.jvp(
            lambda s: mbd.simulate(
                made.mechanism, eqx.tree_at(lambda x: x.v, made.state(), s * made.state().v), [0.0, 0.3],
                adjoint="forward",
            ).q[-1],
            (jnp.ones(()),), (jnp.ones(()),),
        )[1]  # fmt: skip
        assert {single.dtype, loads.dtype, slope.dtype} == {jnp.dtype("float32")}
    assert worst(np.asarray(single) - np.asarray(expected.q)) < 2e-4
    assert worst(np.asarray(loads) - np.asarray(expected.lam)) < 1e-2 * max(1.0, worst(expected.lam))
