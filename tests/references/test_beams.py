"""Beams of many elements, each a user's force, by implicit steps: a rubber pendulum and a thin steel rod at speed.

The values are of independent programs with spectral elements and explicit steps of order 8; the rod's are known to
1e-9 m, the pendulum's to 1e-5 m, its derivatives to 2e-4 m.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from benchmarks import beams

TIGHT: dict[str, Any] = {"solver": "stiff", "rtol": 1e-7, "atol": 1e-9}
TIMES = np.array([0.0, 0.1, 0.3, 0.5, 0.8, 1.0])
TIP = np.array(
    [
        [1.1953516118, -0.0490510466], [1.0186606647, -0.4396022365], [0.0948262796, -1.210650521],
        [-1.0764868243, -0.5323187164], [-1.1043119224, -0.2097533525],
    ]
)  # fmt: skip
BY_YOUNG = np.array([-0.0458, 0.03049])  # E ∂(x, y)/∂E at .5 s


def tip(motion: mbd.Solution) -> Array:
    last = motion.mechanism.bodies[-1].name
    return jnp.stack([motion[f"{last}.x"], motion[f"{last}.y"]], axis=1)


@pytest.mark.parametrize(
    ("elements", "until", "tolerance"), [(4, 4, 3e-3), pytest.param(15, 6, 1e-5, marks=pytest.mark.slow)]
)
def test_a_rubber_pendulum(elements: int, until: int, tolerance: float) -> None:
    """Four elements follow its waves to 2 mm, whatever the steps; with fifteen nothing changes any more."""
    motion = mbd.simulate(*beams.pendulum(elements), TIMES[:until], **TIGHT, max_steps=20_000)
    np.testing.assert_allclose(tip(motion)[1:], TIP[: until - 1], rtol=0, atol=tolerance)
    np.testing.assert_allclose(motion["energy"], 0.0, atol=1e-6)
    assert motion.engine != "diffrax"


@pytest.mark.slow
def test_its_tip_by_the_stiffness_in_both_modes() -> None:
    """Of the reference to its trust; the two modes agree to rounding, and with differences."""
    mechanism, start = beams.pendulum(12)

    def end(share: Array) -> Array:
        made = beams.stiffened(mechanism, share)
        return tip(mbd.simulate(made, start, np.array([0.0, 0.5]), **TIGHT, max_steps=20_000))[-1]

    one = jnp.ones(())
    forward, reverse = jax.jacfwd(end)(one), jax.jacrev(end)(one)
    np.testing.assert_allclose(forward, BY_YOUNG, rtol=0, atol=1e-4)
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-10)
    h = 1e-4
    np.testing.assert_allclose((end(one + h) - end(one - h)) / (2 * h), forward, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("elements", "tolerance"), [(1, 1e-5), pytest.param(4, 1e-8, marks=pytest.mark.slow)])
def test_a_steel_rod_at_speed(elements: int, tolerance: float) -> None:
    """Explicit steps would be shorter than 1e-6 s: the rod's shear waves have 2e6 rad/s."""
    ts = np.array([0.0, 0.02, 0.04, 0.06, 0.08])
    motion = mbd.simulate(*beams.slider_crank(elements), ts, solver="stiff", rtol=1e-8, atol=1e-10)
    bent = [-0.0001483376, 0.0004044696, -0.0022878214, 0.0004853698]
    slid = [0.4303911862, 0.1530223175, 0.4302019978, 0.1624133824]
    np.testing.assert_allclose(beams.deflection(motion)[1:], bent, rtol=0, atol=tolerance)
    np.testing.assert_allclose(motion["slider.x"][1:], slid, rtol=0, atol=tolerance)
    assert motion.stats["num_steps"] < 1000


@pytest.mark.slow
def test_vibrations_faster_than_a_step_do_not_shorten_it() -> None:
    """A rod of two elements for 5 ms, at 1e-12: its speeds follow the rounding of the coordinates, `ε q / h`. Where
    that counts as a change, the iteration fails in step after step: 637 of them in place of 163."""
    motion = mbd.simulate(*beams.slider_crank(2), [0.0, 0.005], solver="stiff", rtol=1e-12, atol=1e-14)
    assert int(motion.stats["num_steps"]) < 300
