"""Stiff mechanisms: the Radau solver, and the report of what makes a mechanism stiff."""

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.special import ellipj, ellipk

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.integrate.formulations.joint_loads import motion_of
from jaxmbd.integrate.solvers.collocation import LastStep
from jaxmbd.integrate.solvers.collocation_stages import (
    CollocationStep,
    Method,
    StageValues,
    factors,
    linearized,
    relative_change,
    solve_stages,
    tableau,
    thresholds,
)
from tests import planar_examples as examples
from tests import spatial_examples
from tests.marks import in_both_coordinates
from tests.numeric import worst
from tests.planar_examples import Example

RADAU5 = Method("Radau", 3)

# --- the method -----------------------------------------------------------------------------------


def test_three_stages_are_those_of_radau5() -> None:
    """Hairer and Wanner, Solving ODEs II, table IV.5.6 and §IV.8."""
    root = math.sqrt(6)
    method = tableau(RADAU5)
    np.testing.assert_allclose(method.nodes, [(4 - root) / 10, (4 + root) / 10, 1], rtol=1e-14)
    np.testing.assert_allclose(method.matrix[2], [(16 - root) / 36, (16 + root) / 36, 1 / 9], rtol=1e-13)
    np.testing.assert_allclose(method.matrix[0, 0], (88 - 7 * root) / 360, rtol=1e-13)
    np.testing.assert_allclose(method.values[0], (6 + 81 ** (1 / 3) - 9 ** (1 / 3)) ** -1 * 30, rtol=1e-13)


@cache
def pendulum_end(stages: int) -> Any:
    """The angle of IFToMM's pendulum at 0.5 s, by fixed steps of a length that is not compiled in."""
    made = examples.pendulum()
    state, formulation = made.state(), mbd.Stabilized()
    equations = mbd.Equations(made.mechanism, redundant=False)

    def field(t: Any, y: Any, args: Any) -> Any:
        motion = motion_of(args[1], args[0], jnp.asarray(t), y[0], y[1])
        return motion.qdot, motion.rate, y[2]

    def run(step: Array) -> tuple[Array, Array, Array]:
        y = state.q, state.v, jnp.zeros(0)
        solution = dfx.diffeqsolve(
            dfx.ODETerm(field), mbd.Radau(stages), 0.0, 0.5, step, y, args=(equations, formulation), max_steps=64
        )
        assert solution.ys is not None
        q, v, _ = (x[0] for x in solution.ys)
        at = equations.at(jnp.asarray(0.5), q)
        return q[2], at.position(), at.velocity(v)

    return eqx.filter_jit(run)


def exact_angle(t: float) -> float:
    """Of a pendulum `θ'' = −9.81 cos θ`, released at rest at θ = π (below is −π/2, reached through 3π/2)."""
    m = math.sin(math.pi / 4) ** 2
    sn, _, _, _ = ellipj(ellipk(m) - math.sqrt(9.81) * t, m)
    return 1.5 * math.pi - 2 * math.asin(math.sqrt(m) * sn)


@pytest.mark.parametrize(("stages", "steps"), [(3, 8), pytest.param(5, 2, marks=pytest.mark.slow)])
def test_fixed_steps_converge_at_the_order(stages: int, steps: int) -> None:
    """Halving the step divides the error by `2 ** (2 stages − 1)`; constraints hold at the end of each step."""
    runs = [pendulum_end(stages)(jnp.asarray(0.5 / n)) for n in (steps, 2 * steps)]
    errors = [abs(float(angle) - exact_angle(0.5)) for angle, _, _ in runs]
    measured = np.log2(errors[0] / errors[1])
    assert 2 * stages - 1.5 < measured < 2 * stages - 0.2
    assert max(worst(position) for _, position, _ in runs) < 1e-13
    assert max(worst(velocity) for _, _, velocity in runs) < 1e-13


def test_stages_must_be_odd_and_few() -> None:
    with pytest.raises(mbd.MechanismError, match=r"stages must be 1, 3, 5 or 7, got 4"):
        mbd.Radau(4)


def test_it_needs_the_equations_of_a_mechanism() -> None:
    term = dfx.ODETerm(lambda t, y, args: tuple(-x for x in y))
    y = (jnp.ones(1), jnp.ones(1), jnp.zeros(0))
    with pytest.raises(mbd.MechanismError, match=r"give it to jaxmbd.simulate"):
        dfx.diffeqsolve(term, mbd.Radau(), 0.0, 1.0, 0.1, y)


# --- a body on a rail, held by a spring and a strong damper ---------------------------------------

MASS, DAMPING, START = 2.0, 1e5, 1.3
TIMES = np.array([0.0, 0.3, 1.0])


def on_rail(stiffness: Any = 1e5, coordinates: str = "absolute") -> Example:
    """`m ẍ + c ẋ + k (x − 1) = 0`: rates `k / c` and `c / m`, 1/s and 50,000/s."""
    body = pl.Body("body", MASS, 0.1, (START, 0.0, 0.0))
    mechanism = pl.Mechanism(
        [body],
        [pl.Prismatic("rail", pl.ground.at(), body.at())],
        [pl.SpringDamper("spring", pl.ground.at(), body.at(), stiffness, 1.0, DAMPING)],
        coordinates=coordinates,
    )
    return Example(mechanism, {"body.x" if coordinates == "absolute" else "rail.displacement": START})


def slid(stiffness: Array, t: Any) -> Array:
    """The exact position."""
    root = jnp.sqrt(DAMPING**2 - 4 * MASS * stiffness)
    fast, slow = -(DAMPING + root) / (2 * MASS), -2 * stiffness / (DAMPING + root)
    gone = (fast * jnp.exp(slow * t) - slow * jnp.exp(fast * t)) / (fast - slow)
    return 1.0 + (START - 1.0) * gone


@cache
def slide(derivative: Any) -> Any:
    def run(stiffness: Array) -> Array:
        made = on_rail(stiffness)
        return mbd.simulate(made.mechanism, on_rail().state(), TIMES, solver=mbd.Radau(3), adjoint=derivative)["body.x"]

    return run


@pytest.mark.slow
def test_the_derivative_by_a_stiffness_is_exact_forward() -> None:
    """At a saved time inside a step and at the end: `simulate` interpolates the former."""
    value, slope = jax.jit(lambda k: jax.jvp(slide("forward"), (k,), (jnp.ones(()),)))(jnp.asarray(1e5))
    exact, by_stiffness = jax.jvp(lambda k: slid(k, TIMES), (jnp.asarray(1e5),), (jnp.ones(()),))
    np.testing.assert_allclose(value, exact, atol=3e-8)
    np.testing.assert_allclose(slope * 1e5, by_stiffness * 1e5, atol=1e-7)


def test_the_derivative_by_a_stiffness_is_exact_in_reverse() -> None:
    slope = jax.jit(jax.grad(lambda k: slide("reverse")(k)[-1]))(jnp.asarray(1e5))
    np.testing.assert_allclose(slope * 1e5, jax.grad(lambda k: slid(k, 1.0))(jnp.asarray(1e5)) * 1e5, atol=1e-7)


@pytest.mark.slow
def test_a_batch_equals_a_loop() -> None:
    stiffnesses = jnp.asarray([1e4, 1e5, 1e6])
    run = lambda k: slide("forward")(k)[-1]  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.vmap(run))(stiffnesses), slid(stiffnesses, 1.0), atol=3e-8)


# --- what makes it stiff --------------------------------------------------------------------------


@in_both_coordinates("absolute")
def test_the_report_names_the_spring(coordinates: str) -> None:
    made = on_rail(coordinates=coordinates)
    found = mbd.time_scales(made.mechanism, made.state())
    exact = np.sort(np.roots([MASS, DAMPING, 1e5]))
    np.testing.assert_allclose(np.sort(np.real(found.eigenvalues)), exact, rtol=1e-8)
    assert found.cause == "spring"
    assert "decays with a time constant of 2e-05 s, by the force 'spring'" in str(found)
    assert "jaxmbd.Radau() is not bound by it, and faster if the motion itself allows steps twenty times" in str(found)


# --- a slider-crank that drags a load through a stiff bushing -------------------------------------


def stiff_slider_crank(stiffness: float = 1e8) -> tuple[pl.Mechanism, mbd.State]:
    """A bushing of 10 % damping between the slider and a load of the same mass, both at the same speed."""
    made = examples.slider_crank(0.4, 5.0)
    state = made.state()
    x = float(state["slider.x"])
    load = pl.Body("load", 0.4, 1e-3, (x, 0.0, 0.0))
    damping = 0.2 * math.sqrt(0.2 * stiffness)
    scale = np.array([1.0, 1.0, 1e-3])
    bushing = pl.Bushing("bushing", made.mechanism["slider"].at(), load.at(), stiffness * scale, damping * scale)
    mechanism = pl.Mechanism((*made.mechanism.bodies, load), made.mechanism.joints, (*made.mechanism.forces, bushing))
    speeds = {"crank.omega": 5.0, "load.vx": float(state["slider.vx"]), "load.vy": 0.0, "load.omega": 0.0}
    return mechanism, mbd.assemble(mechanism, {"crank.theta": 0.4, "load.x": x}, speeds=speeds)


@pytest.fixture(scope="module")
def explicit() -> mbd.Solution:
    mechanism, state = stiff_slider_crank()
    return mbd.simulate(mechanism, state, [0.0, 0.2], max_steps=2000, throw=False)


@pytest.mark.slow
def test_far_fewer_steps_than_an_explicit_solver(explicit: mbd.Solution) -> None:
    mechanism, state = stiff_slider_crank()
    implicit = mbd.simulate(mechanism, state, [0.0, 0.2], solver=mbd.Radau())
    assert 15 * int(implicit.stats["num_steps"]) < int(explicit.stats["num_steps"])
    assert worst(implicit.q[-1] - explicit.q[-1]) < 2e-7


def test_the_message_names_the_bushing() -> None:
    mechanism, state = stiff_slider_crank()
    text = str(mbd.time_scales(mechanism, state))
    assert "vibrates" in text
    assert "by the force 'bushing'" in text


@pytest.mark.slow
def test_joint_coordinates_reach_the_same_end(explicit: mbd.Solution) -> None:
    mechanism, state = stiff_slider_crank()
    tree = mechanism.with_coordinates("joint")
    fixed = {"O.angle": 0.4, **{f"load.{c}": float(state[f"load.{c}"]) for c in ("x", "y", "theta")}}
    speeds = {"O.angle": 5.0, **{f"load.{c}": float(state[f"load.{c}"]) for c in ("vx", "vy", "omega")}}
    solution = mbd.simulate(tree, mbd.assemble(tree, fixed, speeds=speeds), [0.0, 0.2], solver=mbd.Radau())
    assert len(tree.coordinate_names) < 9
    assert worst(solution["load.x"][-1] - explicit["load.x"][-1]) < 2e-7


# --- in space -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_governor_in_far_fewer_steps() -> None:
    """Against the slider's height at 1 s by Dopri8 at 1e-10 (`test_spatial_references`), which takes 1,100 steps."""
    made = spatial_examples.governor()
    solution = made.simulate([0.0, 1.0], solver=mbd.Radau())
    assert int(solution.stats["num_steps"]) < 100
    assert abs(0.5 + float(solution["slide.displacement"][-1]) - 0.50142092) < 1e-8
    assert worst(solution.violation().position[-1]) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_constraints_that_repeat_one_another(coordinates: str) -> None:
    """Bricard's ring: thirty rows of rank 29, six of rank five. Off the constraints, where stages begin, the repeated
    row contradicts the others: with all rows 167 and 1,081 steps, and errors of 1e-5 and 1e-4."""
    made = spatial_examples.bricard().with_coordinates(coordinates)
    expected = made.simulate([0.0, 0.5], accuracy="high")
    for stages, rtol, error, steps in ((3, 1e-8, 1e-8, 60), (5, 1e-10, 1e-9, 40)):
        solution = made.simulate([0.0, 0.5], solver=mbd.Radau(stages), rtol=rtol, atol=rtol)
        assert int(solution.stats["num_steps"]) < steps
        assert worst(solution["corner"] - expected["corner"]) < error
        assert worst(solution.violation().position[-1]) < 1e-12


@pytest.mark.slow
def test_derivatives_where_constraints_repeat_one_another() -> None:
    """Of Bricard's ring by the weight, in both modes, against those of the explicit method."""
    made = spatial_examples.bricard()

    def corner(weight: Array, **settings: Any) -> Array:
        pull = jnp.zeros(3).at[1].set(-weight)
        mechanism = mbd.with_numbers(made.mechanism, {"gravity.acceleration": pull})
        return mbd.simulate(mechanism, made.state(), [0.0, 0.5], **settings)["corner"][-1, 0]

    weight = jnp.asarray(9.0)
    exact = jax.jacfwd(lambda x: corner(x, accuracy="high"))(weight)
    stiff = lambda x: corner(x, solver=mbd.Radau(5), rtol=1e-10, atol=1e-10)  # noqa: E731
    np.testing.assert_allclose(jax.jacfwd(stiff)(weight), exact, rtol=1e-7)
    np.testing.assert_allclose(jax.grad(stiff)(weight), exact, rtol=1e-7)


@pytest.mark.slow
def test_the_iteration_follows_the_tolerance() -> None:
    """The governor in absolute coordinates against the explicit solver; with fixed thresholds the error was 4e-10 m at
    1e-12, and 7e-9 m at 1e-8 as long as changes of speeds counted relative to `q / h`."""
    made, ts = spatial_examples.governor(), jnp.linspace(0.0, 1.0, 11)
    joint, absolute = made.with_coordinates("joint"), made.with_coordinates("absolute")
    exact = mbd.simulate(joint.mechanism, joint.state(), ts, accuracy="high")["slide.displacement"]
    for rtol, error in ((1e-8, 2e-10), (1e-12, 5e-11)):
        solution = mbd.simulate(absolute.mechanism, absolute.state(), ts, solver="stiff", rtol=rtol, atol=rtol)
        np.testing.assert_allclose(solution["slide.displacement"], exact, atol=error)


def test_thresholds_of_the_iteration() -> None:
    for tolerance, close, stalled in ((1e-4, 1e-12, 1e-9), (1e-11, 1e-13, 1e-12), (1e-15, 1e-14, 1e-13)):
        np.testing.assert_allclose(thresholds(jnp.asarray(tolerance), 8), (close, stalled), rtol=1e-12)
    assert mbd.Radau().within(1e-3).tolerance == 1e-3
    assert mbd.Radau(3, 1e-9).within(1e-3).tolerance == 1e-9


def test_an_iteration_that_converges_slowly_ends_within_its_error() -> None:
    """With 5/3 of the mass in its matrices each change leaves 0.4 of the error. The iteration ends as soon as the error
    is below the threshold, no sooner and no later."""
    body = pl.Body("body", 2.0, 0.1)
    equations = mbd.Equations(pl.Mechanism([body], [], [pl.Gravity()], floating=True))
    q, v = jnp.zeros(3).at[0].set(1.0), jnp.array([3.0, 4.0, 0.5])
    step = CollocationStep(equations, jnp.asarray(0.0), jnp.asarray(0.1), q, v, None, RADAU5)
    start = StageValues(jnp.tile(q, (3, 1)), jnp.tile(v, (3, 1)), None, jnp.zeros((3, 0)))
    linear = linearized(step, start)
    exact, _ = solve_stages(step, start, factors(linear, step, None), jnp.asarray(1e-12), structure=None)
    off = eqx.tree_at(lambda s: s.v, exact, exact.v * (1 + 1e-9))
    off = eqx.tree_at(lambda s: s.q, off, step.reached(off))
    slowly = factors(linear._replace(E=5 / 3 * linear.E), step, None)
    found, converged = solve_stages(step, off, slowly, jnp.asarray(1.0), structure=None)
    assert converged
    left, (close, _) = float(relative_change(step, found, exact)), thresholds(jnp.asarray(1.0), 8)
    assert 0.4 * close < left < close


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_what_rests_at_zero_does_not_change(dtype: Any) -> None:
    """Coordinates and speeds that are all zero, which XLA compares as it does denormal numbers."""
    disc = pl.Body("disc", 1.0, 0.1)
    rotor = pl.Mechanism([disc], [pl.Revolute("O", pl.ground.at(), disc.at())], coordinates="joint")
    equations = mbd.Equations(jax.tree.map(lambda x: x.astype(dtype), rotor))
    rest, h = jnp.zeros(1, dtype), jnp.asarray(0.1, dtype)
    step = CollocationStep(equations, jnp.zeros((), dtype), h, rest, rest, None, RADAU5)
    nodes = jnp.zeros((3, 1), dtype)
    still = StageValues(nodes, nodes, None, jnp.zeros((3, 0), dtype))
    assert float(jax.jit(relative_change)(step, still, still)) == 0.0
    turned = eqx.tree_at(lambda s: s.v, still, still.v + 1e-3)
    assert float(jax.jit(relative_change)(step, turned, still)) == pytest.approx(1.0)


@pytest.mark.parametrize("kept", [(True,) * 4, (True, False, False, True)], ids=["all rows", "an independent set"])
def test_derivatives_of_stages_where_rows_repeat_one_another(kept: tuple[bool, ...]) -> None:
    """A pendulum on two equal pins, by the length of a step. The multipliers of rows that are left out are zero."""
    bar = pl.Body("bar", 2.0, 0.3)
    pins = [pl.Revolute(name, pl.ground.at(0.0, 0.0), bar.at(-0.5, 0.0)) for name in "AB"]
    equations = mbd.Equations(pl.Mechanism([bar], pins, [pl.Gravity()]))
    at = np.array([math.cos(0.4), math.sin(0.4)])
    q, v = jnp.array([0.5 * at[0], 0.5 * at[1], 0.4]), 3.0 * jnp.array([-0.5 * at[1], 0.5 * at[0], 1.0])
    assert equations.redundant
    equations = equations if all(kept) else equations.solved_in(jnp.asarray(True), jnp.asarray(kept))

    def stages(h: Any) -> StageValues:
        step = CollocationStep(equations, jnp.asarray(0.0), h, q, v, None, RADAU5)
        start = StageValues(jnp.tile(q, (3, 1)), jnp.tile(v, (3, 1)), None, jnp.ones((3, 4)))
        found = factors(linearized(step, start), step, None)
        return solve_stages(step, start, found, jnp.asarray(1e-12), structure=None)[0]

    h, change = jnp.asarray(0.05), 1e-4

    @jax.jit
    def both() -> tuple[StageValues, StageValues]:
        return jax.jvp(stages, (h,), (jnp.ones(()),))[1], jax.vmap(stages)(h + jnp.array([-change, change]))

    found, beside = both()
    before, after = (jax.tree.map(lambda x, k=k: x[k], beside) for k in (0, 1))
    for name in ("q", "v"):
        expected = (getattr(after, name) - getattr(before, name)) / (2 * change)
        np.testing.assert_allclose(getattr(found, name), expected, atol=1e-6 * float(jnp.max(jnp.abs(expected))))
    total = found.lam[:, :2] + found.lam[:, 2:]  # of both pins; how they share it is not determined
    expected = (after.lam - before.lam).reshape(3, 2, 2).sum(1) / (2 * change)
    np.testing.assert_allclose(total, expected, atol=1e-6 * float(jnp.max(jnp.abs(expected))))
    np.testing.assert_allclose(np.asarray(after.lam)[:, ~np.asarray(kept)], 0.0, atol=1e-9)


def test_the_first_guess_continues_the_accelerations() -> None:
    """Where they are a parabola in time, three nodes give the speeds in the next step exactly; far ahead they stay."""
    method, h, v = tableau(RADAU5), 0.2, jnp.array([0.3, -0.4])
    curves = [np.poly1d([3.0, -1.0, 0.5]), np.poly1d([-2.0, 0.7, 1.0])]
    last = LastStep(
        jnp.asarray(h),
        jnp.stack([jnp.asarray(f(h * method.nodes)) for f in curves], axis=1),
        jnp.zeros((3, 0)),
        jnp.ones(1),
    )
    for ratio in (0.5, 1e3):
        step: Any = SimpleNamespace(
            h=ratio * h,
            count=3,
            tableau=method,
            as_array=jnp.asarray,
            q=jnp.zeros(2),
            v=v,
            z=None,
            reached=lambda x: x.q,
        )
        gain = [np.polyint(f)(h * (1 + ratio * method.nodes)) - np.polyint(f)(h) for f in curves]
        expected = np.asarray(v)[None] + (np.stack(gain, axis=1) if ratio < 1 else np.zeros((3, 2)))
        np.testing.assert_allclose(last.guess(step).v, expected, rtol=1e-13)
