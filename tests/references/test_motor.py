"""A slider-crank that a DC motor drives through a gear: its current is a state of the motion.

Values and derivatives of an independent program of order 8, against Radau IIA: 7e-11.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from tests.motors import GEAR, INDUCTANCE, RESISTANCE, VOLTAGE, slider_crank

CHANNELS = ("O.angle", "O.angle_rate", "motor.current", "slider.x")
AT_TWO = (89.8133721403, 44.9770053202, 2.22445009443, 0.256729267658)
BY_CONSTANT = (-1493.70195775, -15627.9373961, 2374.33789426)
BY_INDUCTANCE = (31.0523034999, 299.976869478, -97.5276377389)
TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-13}


def moved(coordinates: str, ts: np.ndarray, **changes: Any) -> mbd.Solution:
    mechanism = slider_crank(coordinates, **changes)
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.0}), ts, **TIGHT)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_motion_and_energy_after_two_seconds(coordinates: str) -> None:
    ts = np.linspace(0.0, 2.0, 20_001)
    solution = moved(coordinates, ts)
    found = solution.read([*CHANNELS, "energy"])
    np.testing.assert_allclose([found[name][-1] for name in CHANNELS], AT_TWO, rtol=1e-10)
    assert solution.engine != "diffrax"
    current, speed = np.asarray(found["motor.current"]), np.asarray(found["O.angle_rate"])
    supplied = VOLTAGE * current - RESISTANCE * current**2 - 1e-5 * GEAR**2 * speed**2
    from scipy.integrate import simpson

    stored = found["energy"][-1] - found["energy"][0] + 0.5 * INDUCTANCE * current[-1] ** 2
    np.testing.assert_allclose(stored, simpson(supplied, x=ts), rtol=1e-9)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_derivatives_after_two_seconds(coordinates: str, mode: Any) -> None:
    def end(constant: Array, inductance: Array) -> Array:
        solution = moved(coordinates, np.asarray([0.0, 2.0]), constant=constant, inductance=inductance)
        return jnp.stack([solution[name][-1] for name in CHANNELS[:3]])

    by_constant, by_inductance = mode(end, (0, 1))(jnp.asarray(0.05), jnp.asarray(INDUCTANCE))
    np.testing.assert_allclose(by_constant, BY_CONSTANT, rtol=1e-8)
    np.testing.assert_allclose(by_inductance, BY_INDUCTANCE, rtol=1e-8)
