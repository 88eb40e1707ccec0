"""Gradients through assembly and simulation, with respect to every number in an example, against differences.

The function under test takes all numbers of an example (masses, markers, force laws, gravity, the start) to
readings at the end of the motion: `parameters → assemble → simulate → readings`. It runs with step control.
The differences (central, Richardson-extrapolated) run at a fixed step instead: the choice of steps is not a
smooth function of the parameters, and its noise of 1e-9 would limit them to 1e-5.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

import jaxmbd as mbd
from tests import planar_examples as examples
from tests.numeric import differences
from tests.planar_examples import Example

TIGHT = 1e-12  # rtol and atol of the derivatives under test
FIXED_STEPS = 200  # of the differences: three times as many as the step control takes at TIGHT
STEP = 1e-3  # of the size of a parameter; the differences err by its fourth power
AGREEMENT = 5e-7  # of the largest derivative of a reading, each scaled by its parameter's size

# What is read at the end of each motion (a coordinate or a speed, a reaction, an energy), and when [s].
CASES: dict[str, tuple[Callable[[], Example], float, tuple[str, ...]]] = {
    "pendulum": (examples.pendulum, 1.0, ("rod.theta", "O.fx", "kinetic_energy")),
    "slider-crank": (lambda: examples.slider_crank(0.4, 5.0), 0.3, ("slider.x", "O.fy", "kinetic_energy")),
    "four-bar": (examples.four_bar_with_springs, 0.4, ("rocker.omega", "C.fx", "potential_energy")),
    "A02": (lambda: examples.four_bars(2), 0.4, ("upright2.theta", "A1.fy", "kinetic_energy")),
    # Short enough that no rate changes its sign: friction `|φ̇| φ̇` has no third derivative there.
    "double pendulum": (examples.double_pendulum_with_friction, 0.25, ("lower.omega", "A.fy", "energy")),
}
Readings = Callable[[Float[Array, " p"]], Float[Array, " k"]]


def parameters_of(case: str) -> Float[Array, " p"]:
    """Every number of a case's example as one vector."""
    return ravel_pytree(eqx.filter(CASES[case][0](), eqx.is_inexact_array))[0]


def readings(case: str, **options: Any) -> Readings:
    """The readings of a case at its end as a function of all parameters."""
    make, end, names = CASES[case]
    numbers, rest = eqx.partition(make(), eqx.is_inexact_array)
    unravel = ravel_pytree(numbers)[1]

    def read(parameters: Float[Array, " p"]) -> Float[Array, " k"]:
        example: Example = eqx.combine(unravel(parameters), rest)
        solution = example.simulate([0.0, end], **options)
        return jnp.stack([value[-1] for value in solution.read(names).values()])

    return read


def adaptive(case: str, derivative: str) -> Readings:
    return readings(case, rtol=TIGHT, atol=TIGHT, adjoint=derivative)


def fixed_step(case: str) -> Readings:
    return readings(case, stepsize_controller=dfx.ConstantStepSize(), dt0=CASES[case][1] / FIXED_STEPS)


def sizes(vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """The size of each parameter: its magnitude, or 0.1 for a zero (an offset, an angle, a speed)."""
    return jnp.where(vector == 0, 0.1, jnp.abs(vector))


def disagreement(found: Array, expected: np.ndarray, size: Array) -> float:
    """The largest difference of scaled derivatives, relative to the largest one of the same reading."""
    ours, theirs = np.asarray(found) * np.asarray(size)[None], expected * np.asarray(size)[None]
    return float(np.max(np.abs(ours - theirs).max(axis=1) / np.abs(theirs).max(axis=1)))


@cache
def expected(case: str) -> Float[np.ndarray, "k p"]:
    """The derivatives of a case by differences."""
    at = parameters_of(case)
    return differences(fixed_step(case), at, STEP * sizes(at))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_forward_mode_agrees_with_differences_in_every_parameter(case: str) -> None:
    at = parameters_of(case)
    found = jax.jacfwd(adaptive(case, "forward"))(at)
    assert disagreement(found, expected(case), sizes(at)) < AGREEMENT


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_reverse_mode_agrees_with_differences_in_every_parameter(case: str) -> None:
    at = parameters_of(case)
    found = jax.jacrev(adaptive(case, "reverse"))(at)
    assert disagreement(found, expected(case), sizes(at)) < AGREEMENT


def test_derivatives_of_a_point_pendulum_are_those_of_its_symmetries() -> None:
    """Mass and inertia scaled alike change nothing; g scaled by s is time scaled by √s."""
    example = examples.pendulum()

    def end(scale: Float[Array, " scale"]) -> Array:
        heavy, pull = scale
        rod, gravity = example.mechanism["rod"], example.mechanism["gravity"]
        mechanism = eqx.tree_at(
            lambda m: (m["rod"].mass, m["rod"].inertia, m["gravity"].acceleration),
            example.mechanism,
            (heavy * rod.mass, heavy * rod.inertia, pull * gravity.acceleration),
        )
        solution = mbd.simulate(mechanism, example.state(), [0.0, 1.0], rtol=TIGHT, atol=TIGHT)
        return solution.q[-1, 2]

    by_mass, by_gravity = jax.grad(end)(jnp.ones(2))
    speed = example.simulate([0.0, 1.0], rtol=TIGHT, atol=TIGHT)["rod.omega"][-1]
    assert abs(float(by_mass)) < 1e-9
    assert abs(float(by_gravity) - 0.5 * float(speed)) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("derivative", ["forward", "reverse"])
def test_gradients_under_vmap_equal_a_loop(derivative: Literal["forward", "reverse"]) -> None:
    """Batched over the torque and the start angle of a slider-crank: four that step differently.

    The first steps' estimates of their error are rounding, which lanes do not share: so do later steps differ, and what
    is compared is as accurate as an integration can be.
    """
    example = examples.slider_crank(0.4, 5.0)
    mode = jax.jacfwd if derivative == "forward" else jax.jacrev

    def end(point: Float[Array, " point"]) -> Array:
        mechanism = eqx.tree_at(lambda m: m["motor"].torque, example.mechanism, point[0])
        state = mbd.assemble(mechanism, {"crank.theta": point[1]}, speeds=example.speeds)
        return mbd.simulate(mechanism, state, [0.0, 0.3], adjoint=derivative, accuracy="high").q[-1, 6]

    points = jnp.array([[0.1, 0.4], [0.3, 0.0], [-0.2, 1.0], [0.0, -0.7]])
    gradient = jax.jit(mode(end))
    looped = jnp.stack([gradient(point) for point in points])
    batched = jax.jit(jax.vmap(mode(end)))(points)
    np.testing.assert_allclose(batched, looped, rtol=1e-10, atol=1e-12)
    assert float(jnp.min(jnp.ptp(looped, axis=0))) > 1e-2  # the four are not alike
