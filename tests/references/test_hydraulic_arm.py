"""An arm that a hydraulic cylinder lifts through a valve, whose opening follows the difference of a course and the
cylinder's length: oil so stiff that explicit steps would be short.

Values of Radau IIA at 1e-12 of an independent program, parameters of Exudyn's example (`hydraulicActuatorSimpleTest`,
BSD), which prints 6441296.09 Pa at a step of 1e-6 s.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.space.planar import PLANAR

CHANNELS = ("O.angle", "O.angle_rate", "cylinder.cap_pressure", "cylinder.rod_pressure")
ENDS = {  # by the angular velocity at which the arm starts [rad/s]
    0.5: (0.0246082422103, 0.813773007604, 6441295.83623, 3008374.76106),
    0.0: (0.0245835958059, 0.813270455329, 6416127.52925, 2984560.0203),
}
BY_FLOW = (1068.96604448, 31497.1538657, 152698904777.0, 38501332726.8)  # of the first
LENGTH, FLOW = np.sqrt(2) / 4, 2e-5
COURSE_KINKS = (1 / 3,)  # where the course begins to move [s]


def arm(coordinates: str, flow: Any = FLOW) -> pl.Mechanism:
    def opening(t: Any, length: Any, rate: Any) -> Any:
        course = LENGTH + 0.1 * (jnp.clip(1 - jnp.cos(jnp.pi * t), 0.5, 1.5) - 0.5)
        return 2 * (course - length)

    rod = pl.Body("rod", 120.0, 10.0, pose=(0.5, 0.0, 0.0))
    cylinder = pl.HydraulicCylinder(
        "cylinder", pl.ground.at(0.0, -0.25), rod.at(-0.25), opening, cap_area=0.01, rod_area=0.01, cap_volume=1.0,
        rod_volume=1.0, bulk_modulus=1e11, flow=flow, supply_pressure=2e7, damping=2e5, cap_pressure=2e6,
        rod_pressure=2e6,
    )  # fmt: skip
    hinge = pl.Revolute("O", pl.ground.at(), rod.at(-0.5))
    return pl.Mechanism([rod], [hinge], [pl.Gravity(9.81), cylinder], coordinates=coordinates)


def lifted(coordinates: str, speed: Any = 0.5, flow: Any = FLOW, **settings: Any) -> mbd.Solution:
    mechanism = arm(coordinates, flow)
    start = mbd.assemble(mechanism, {"O.angle": 0.0}, speeds={"O.angle": speed})
    given: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12, "switching_times": jnp.asarray(COURSE_KINKS)} | settings
    return mbd.simulate(mechanism, start, np.asarray([0.0, 0.4]), solver="stiff", **given)


def ends(solution: mbd.Solution) -> Array:
    return jnp.stack([solution[name][-1] for name in CHANNELS])


@pytest.mark.parametrize("speed", ENDS)
@pytest.mark.parametrize("coordinates", ["joint", pytest.param("absolute", marks=pytest.mark.slow)])
def test_the_arm_after_lifting(coordinates: str, speed: float) -> None:
    """Within half of the steps that Exudyn takes for 4e-3."""
    solution = lifted(coordinates, speed)
    np.testing.assert_allclose(ends(solution)[:2], ENDS[speed][:2], rtol=1e-10)
    np.testing.assert_allclose(ends(solution)[2:], ENDS[speed][2:], rtol=1e-9)
    assert int(solution.stats["num_steps"]) < 200
    assert solution.engine != "diffrax"
    force = 0.01 * (ends(solution)[3] - ends(solution)[2])
    assert solution["cylinder.length"][-1] > LENGTH
    assert float(solution["cylinder.tension"][-1]) > float(force)  # what the damper adds


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
def test_derivatives_by_the_flow(coordinates: str, mode: Any) -> None:
    found = mode(lambda flow: ends(lifted(coordinates, flow=flow)))(jnp.asarray(FLOW))
    np.testing.assert_allclose(found, BY_FLOW, rtol=1e-6)


@pytest.mark.slow
def test_a_batch_by_the_flow() -> None:
    flows = jnp.asarray([0.9 * FLOW, FLOW])
    found = jax.jit(jax.vmap(lambda flow: ends(lifted("joint", flow=flow, throw=False))))(flows)
    np.testing.assert_allclose(found[1], ENDS[0.5], rtol=1e-9)
    np.testing.assert_allclose(found[0], ends(lifted("joint", flow=0.9 * FLOW)), rtol=1e-9)


def test_pressures_at_rest_and_at_constant_speed() -> None:
    """An open valve ends with the supply at one end and the tank at the other; at a constant speed the piston takes as
    much oil as passes."""
    cylinder = arm("joint")["cylinder"]
    frames = [PLANAR.place(jnp.asarray([0.0, y, 0.0])) for y in (0.0, 1.0)]
    still, moving = (
        cylinder.steady(jnp.zeros(()), frames, [PLANAR.as_rate(jnp.asarray([0.0, y, 0.0])) for y in (0.0, speed)])
        for speed in (0.0, 0.01)
    )
    np.testing.assert_allclose(still, [0.0, 2e7])  # longer than its course: it pulls
    root = 0.01 * 0.01 / (FLOW * abs(2 * (LENGTH - 1.0)))
    np.testing.assert_allclose(moving, [-(root**2), 2e7 + root**2], rtol=1e-12)


def test_volumes_that_follow_the_piston() -> None:
    """With the length of the volumes given, `A dp = −E A² dl / (V + A (l − l₀))` behind a closed valve: the spring of
    trapped oil, against the logarithm of its volume."""
    rod = pl.Body("rod", 1.0, 1.0, pose=(1.0, 0.0, 0.0))
    area, volume, modulus = 1e-3, 1e-4, 1e6
    cylinder = pl.HydraulicCylinder(
        "cylinder", pl.ground.at(), rod.at(), 0.0, area, area, volume, volume, modulus, 1e-9, 1e6, length=1.0
    )
    drive = pl.Driver("drive", "rail.displacement", lambda t: 1.0 + 0.02 * t)
    mechanism = pl.Mechanism(
        [rod], [pl.Prismatic("rail", pl.ground.at(), rod.at())], [cylinder], [drive], coordinates="joint"
    )
    start = mbd.assemble(mechanism)
    solution = mbd.simulate(mechanism, start, [0.0, 1.0], rtol=1e-10, atol=1e-10)
    moved = area * 0.02 / volume
    expected = [-modulus * np.log1p(moved), -modulus * np.log1p(-moved)]
    np.testing.assert_allclose([solution[f"cylinder.{x}_pressure"][-1] for x in ("cap", "rod")], expected, rtol=1e-8)
