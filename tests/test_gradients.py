"""Gradients through assembly and simulation, with respect to every number in an example, against differences.

The function under test takes all numbers of an example (masses, markers, force laws, gravity, the start) to readings
at the end of the motion: `parameters → assemble → simulate → readings`. It runs with step control, as users run it.
The differences (central, Richardson-extrapolated) run at a fixed step instead: the choice of steps is not a smooth
function of the parameters, and its noise of 1e-9 would limit them to 1e-5.
"""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from tests import examples
from tests.examples import Example

TIGHT = 1e-12  # rtol and atol of the derivatives under test
FIXED_STEPS = 400  # of the differences: six times as many as the step control takes at TIGHT
STEP = 2e-3  # of the size of a parameter; the extrapolated differences err by its fourth power
AGREEMENT = 1e-6  # of the largest derivative of the same reading, derivatives scaled by their parameter's size

# What is read at the end of each motion (a coordinate or a speed, a reaction, an energy), and when [s].
CASES: dict[str, tuple[Callable[[], Example], float, tuple[str, ...]]] = {
    "pendulum": (examples.pendulum, 1.0, ("rod.theta", "O.fx", "kinetic_energy")),
    "slider-crank": (lambda: examples.slider_crank(0.4, 5.0), 0.3, ("slider.x", "O.fy", "kinetic_energy")),
    "four-bar": (examples.four_bar_with_springs, 0.4, ("rocker.omega", "C.fx", "potential_energy")),
    "A02": (lambda: examples.four_bars(2), 0.4, ("upright2.theta", "A1.fy", "kinetic_energy")),
    "double pendulum": (examples.double_pendulum_with_friction, 0.5, ("lower.omega", "A.fy", "energy")),
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
    return readings(case, rtol=TIGHT, atol=TIGHT, derivative=derivative)


def fixed_step(case: str) -> Readings:
    return readings(case, controller=dfx.ConstantStepSize(), dt0=CASES[case][1] / FIXED_STEPS)


def differences(read: Readings, at: Float[Array, " p"], step: Float[Array, " p"]) -> Float[np.ndarray, "k p"]:
    """Central differences at two steps, extrapolated to an error of fourth order."""
    compiled = eqx.filter_jit(read)

    def central(i: int, h: float) -> np.ndarray:
        return np.asarray(compiled(at.at[i].add(h)) - compiled(at.at[i].add(-h))) / (2 * h)

    steps = [float(h) for h in step]
    columns = [(4 * central(i, h / 2) - central(i, h)) / 3 for i, h in enumerate(steps)]
    return np.stack(columns, axis=-1)


def sizes(vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """The size of each parameter: its magnitude, or 0.1 for a zero (an offset of a marker, an angle, a speed)."""
    return jnp.where(vector == 0, 0.1, jnp.abs(vector))


def disagreement(found: Array, expected: np.ndarray, size: Array) -> float:
    """The largest difference of scaled derivatives, relative to the largest one of the same reading."""
    found, expected = np.asarray(found * size[None]), expected * np.asarray(size)[None]
    return float(np.max(np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)))
