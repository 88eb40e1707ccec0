"""Motions that are put back onto the constraints after each step, in the native time loop.

Such a motion is the exact one within its tolerance, as is that of the default formulation: so are their derivatives.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests import planar_examples as examples

TS = jnp.linspace(0.0, 1.0, 5)
PROJECTION = mbd.Projection()
# The independent coordinates are chosen, named by a speed, and named by a coordinate that is no variable of the system.
CLOSING = {
    "projection": PROJECTION,
    "partitioning": mbd.CoordinatePartitioning(),
    "of a speed": mbd.CoordinatePartitioning(["b1.theta"]),
    "of an angle": mbd.CoordinatePartitioning(["revolute1.angle"]),
}
FEW = ["projection", "partitioning"]
SLOW = [FEW[0], *(pytest.param(name, marks=pytest.mark.slow) for name in [*CLOSING][1:])]
ENGINES: tuple[Any, ...] = ("auto", "diffrax")


@cache
def four_bar() -> Any:
    return mbd.examples.get("planar-four-bar")


def angles(scale: Array, times: Array = TS, **settings: Any) -> Array:
    """The crank's angle where all masses are scaled but one, so that the motion depends on the scale."""
    made = four_bar()
    name = made.mechanism.bodies[1].name
    mechanism = mbd.with_numbers(made.mechanism, {f"{name}.mass": made.mechanism[name].mass * scale})
    run = mbd.simulate(mechanism, made.state(), times, **({"accuracy": "high", "formulation": PROJECTION} | settings))
    return run.q[:, 0]


def test_a_step_that_cannot_be_closed_is_tried_again_shorter() -> None:
    """The first steps are too long for Newton's method; the motion goes on with shorter ones."""
    made = four_bar()
    loose: Any = {"formulation": CLOSING["partitioning"], "rtol": 1e-4}
    run = mbd.simulate(made.mechanism, made.state(), TS, **loose)
    exact = mbd.simulate(made.mechanism, made.state(), TS, accuracy="high")
    assert run.engine != "diffrax"
    assert int(run.stats["num_rejected_steps"]) > 5
    np.testing.assert_allclose(run["b1.theta"], exact["b1.theta"], rtol=0, atol=5e-4)
    scales = jnp.asarray([0.3, 1.0, 5.0])  # whose steps fail at other times
    for scale, lane in zip(scales, jax.vmap(lambda s: angles(s, atol=1e-8, **loose))(scales), strict=True):
        np.testing.assert_array_equal(angles(scale, atol=1e-8, **loose), lane)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOSING)
def test_it_takes_the_steps_of_diffraxs_loop_and_closes_the_joints(name: str) -> None:
    made, high = four_bar(), {"formulation": CLOSING[name], "accuracy": "high"}
    runs = [mbd.simulate(made.mechanism, made.state(), TS, engine=e, **high) for e in ENGINES]
    assert runs[0].engine != "diffrax"
    steps = [int(run.stats["num_steps"]) for run in runs]
    assert abs(steps[0] - steps[1]) <= 2, steps  # rounding, which differs from processor to processor, keeps one or not
    np.testing.assert_allclose(runs[0].q, runs[1].q, rtol=0, atol=1e-10)
    open_by = runs[0].violation()
    assert np.max(open_by.position) < 1e-14
    assert np.max(open_by.velocity) < 1e-13
    fixed: Any = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01, "formulation": CLOSING[name]}
    runs = [mbd.simulate(made.mechanism, made.state(), TS, engine=e, **fixed) for e in ENGINES]
    assert int(runs[0].stats["num_steps"]) == int(runs[1].stats["num_steps"]) == 100
    np.testing.assert_allclose(runs[0].q, runs[1].q, rtol=0, atol=1e-11)


@pytest.mark.parametrize("solver", [None, pytest.param("stiff", marks=pytest.mark.slow)], ids=["explicit", "stiff"])
@pytest.mark.parametrize("name", [*FEW, *SLOW[2:]])
def test_derivatives_are_those_of_the_motion(name: str, solver: Any) -> None:
    settings: Any = {"formulation": CLOSING[name]} | ({} if solver is None else {"solver": solver})
    one, made = jnp.asarray(1.0), four_bar()
    run = mbd.simulate(made.mechanism, made.state(), TS, **settings)
    assert run.engine != "diffrax"
    expected = jax.jacfwd(lambda s: angles(s, formulation=None))(one)
    assert np.abs(expected[-1]) > 1e-3
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(lambda s: angles(s, **settings))(one), expected, rtol=0, atol=1e-8)
    # Of time: the last step ends where that says, and the joints are closed there.
    slope = jax.grad(lambda t: angles(one, TS.at[-1].set(t), **settings)[-1])(TS[-1])
    other = jax.grad(lambda t: angles(one, TS.at[-1].set(t), formulation=None)[-1])(TS[-1])
    np.testing.assert_allclose(slope, other, rtol=0, atol=1e-8)


# Steps so long that each projection moves the motion by much.
COARSE: Any = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.025, "solver": dfx.Heun()}


def test_derivatives_of_coarse_steps_pass_through_each_projection() -> None:
    """That of a projection is taken at its end, so the derivative is off by a share of what projections move; without
    them it is off by ten times as much."""
    at, h = jnp.asarray(1.0), 1e-4
    moved = angles(at, **COARSE) - angles(at, formulation=None, **COARSE)
    assert np.abs(moved[-1]) > 1e-4
    differences = (angles(at + h, **COARSE) - angles(at - h, **COARSE)) / (2 * h)
    forward, reverse = (mode(lambda s: angles(s, **COARSE))(at) for mode in (jax.jacfwd, jax.jacrev))
    np.testing.assert_allclose(forward, differences, rtol=0, atol=5e-3)
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "step"), [("projection", 0.025), ("partitioning", 0.005)])
def test_derivatives_of_coarse_steps_are_those_of_diffraxs_loop(name: str, step: float) -> None:
    at, coarse = jnp.asarray(1.0), COARSE | {"formulation": CLOSING[name], "dt0": step}
    native, other = (jax.jacfwd(lambda s: angles(s, engine=e, **coarse))(at) for e in ENGINES)  # noqa: B023
    np.testing.assert_allclose(native, other, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "modes",
    [(jax.jacfwd, jax.jacrev), (jax.jacrev, jax.jacfwd), (jax.jacfwd, jax.jacfwd), (jax.jacrev, jax.jacrev)],
    ids=["forward over reverse", "reverse over forward", "forward twice", "reverse twice"],
)
@pytest.mark.parametrize("name", FEW)
def test_second_derivatives(name: str, modes: tuple[Callable[..., Any], ...]) -> None:
    outer, inner = modes
    one = jnp.asarray(1.0)
    found = jax.jit(outer(inner(lambda s: angles(s, formulation=CLOSING[name])[-1])))(one)
    np.testing.assert_allclose(found, exact_second_derivative(), rtol=1e-7)


@cache
def exact_second_derivative() -> Array:
    return jax.jit(jax.jacfwd(jax.jacfwd(lambda s: angles(s, formulation=None)[-1])))(jnp.asarray(1.0))


def driven(rate: Any) -> pl.Mechanism:
    """A slider-crank whose crank is driven: its constraints depend on the time."""
    crank, rod = pl.Body("crank", 1.0, 0.1), pl.Body("rod", 2.0, 0.2)
    slider = pl.Body("slider", 1.0, 0.1)
    joints = [
        pl.Revolute("O", pl.ground.at(0, 0), crank.at(0, 0)),
        pl.Revolute("A", crank.at(0.5, 0), rod.at(-0.6, 0)),
        pl.Revolute("B", rod.at(0.6, 0), slider.at(0, 0)),
        pl.Prismatic("P", pl.ground.at(0, 0), slider.at(0, 0)),
    ]
    return pl.Mechanism([crank, rod, slider], joints, [], [pl.Driver("motor", "O.angle", lambda t: rate * t)])


@pytest.mark.parametrize("name", SLOW[:2])
def test_a_driven_mechanism_is_where_its_driver_says(name: str) -> None:
    start = mbd.assemble(driven(3.0), {"O.angle": 0.0})

    def place(rate: Array, times: Array = TS) -> Array:
        run = mbd.simulate(driven(rate), start, times, formulation=CLOSING[name], throw=False)
        return run["P.displacement"]

    def exact(rate: Array, times: Array = TS) -> Array:
        angle = rate * times
        return 0.5 * jnp.cos(angle) + jnp.sqrt(1.2**2 - (0.5 * jnp.sin(angle)) ** 2)

    rate = jnp.asarray(3.0)
    np.testing.assert_allclose(place(rate), exact(rate), rtol=0, atol=1e-13)
    # Of the end of the motion alone: the start is that of another rate.
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(place)(rate)[1:], jax.jacfwd(exact)(rate)[1:], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", SLOW[:2])
def test_a_batch_is_its_members_and_single_precision_stays_single(name: str) -> None:
    scales, formulation = jnp.asarray([0.5, 1.0, 3.0, 1.7, 0.9]), CLOSING[name]
    found = jax.vmap(lambda s: angles(s, formulation=formulation))(scales)
    for scale, lane in zip(scales, found, strict=True):
        np.testing.assert_array_equal(angles(scale, formulation=formulation), lane)
    with jax.enable_x64(False):
        made = four_bar()
        example = mbd.examples.get("planar-four-bar")
        run = mbd.simulate(
            example.mechanism, example.state(), TS.astype(np.float32), formulation=formulation, rtol=1e-5
        )
        assert run.engine != "diffrax"
        assert run.q.dtype == np.float32
    expected = mbd.simulate(made.mechanism, made.state(), TS)
    np.testing.assert_allclose(run.q, expected.q, rtol=0, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_events_and_redundant_rows_beside_it(name: str) -> None:
    """A parallelogram with three cranks that is struck: closed, its rows selected anew, and the derivative right."""

    def turned(e: Array, formulation: Any) -> Array:
        run = examples.struck_parallelogram(e, TS * 0.6, formulation=formulation, accuracy="high")
        return run["g1.angle"]

    e = jnp.asarray(0.7)
    np.testing.assert_allclose(turned(e, CLOSING[name]), turned(e, None), rtol=0, atol=1e-9)
    slopes = [jax.jacrev(turned)(e, f) for f in (CLOSING[name], None)]
    np.testing.assert_allclose(*slopes, rtol=0, atol=1e-7)
    assert np.abs(slopes[0][-1]) > 0.1


class LeastChange(mbd.AbstractClosingFormulation):
    """A user's formulation that closes the loops after each step, with the default in between."""

    def check(self, mechanism: Any, freedom: int) -> None:
        pass

    def begin(self, equations: Any, t: Any, q: Any) -> "LeastChange":
        return self

    def motion(self, equations: Any, t: Any, q: Any, v: Any) -> Any:
        return mbd.Stabilized().motion(equations, t, q, v)

    def correction(self, equations: Any) -> Any:
        return mbd.extend.MassWeightedCorrection()

    def choice(self) -> None:
        return None

    def next_choice(self, equations: Any, t: Any, q: Any) -> None:
        return None

    def with_choice(self, choice: Any) -> "LeastChange":
        return self


@pytest.mark.slow
def test_a_users_formulation_runs_in_the_loop() -> None:
    made = four_bar()
    runs = [mbd.simulate(made.mechanism, made.state(), TS, formulation=f) for f in (LeastChange(), PROJECTION)]
    assert runs[0].engine != "diffrax"
    np.testing.assert_array_equal(runs[0].q, runs[1].q)
