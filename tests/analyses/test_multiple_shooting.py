"""States as numbers, and jumps between segments: in the plane and in space, in both kinds of coordinates."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.multiple_shooting import StateChart


def slider_crank(size: float = 1.0, coordinates: Literal["absolute", "joint"] = "absolute") -> pl.Mechanism:
    """A crank of half a size, a rod of one size and a half, and a slider on the x axis, under gravity."""
    crank = pl.Body("crank", 1.0, 0.1 * size**2, pose=(0.25 * size, 0.0, 0.0))
    rod = pl.Body("rod", 1.0, 0.1 * size**2, pose=(1.25 * size, 0.0, 0.0))
    slider = pl.Body("slider", 1.0, 0.1 * size**2, pose=(2.0 * size, 0.0, 0.0))
    joints = [
        pl.Revolute("A", pl.ground.at(), crank.at(-0.25 * size)),
        pl.Revolute("B", crank.at(0.25 * size), rod.at(-0.75 * size)),
        pl.Revolute("C", rod.at(0.75 * size), slider.at()),
        pl.Prismatic("D", pl.ground.at(), slider.at()),
    ]
    return pl.Mechanism([crank, rod, slider], joints, [pl.Gravity(9.81)], coordinates=coordinates)


def test_rates_of_coordinates_in_space() -> None:
    """`x` names a coordinate of a joint as well as of a body, and a body in space has `z`."""
    body = sp.Body("body", mass=1.0, inertia=np.eye(3))
    mechanism = sp.Mechanism([body], [sp.Planar("J", sp.ground.at(), body.at())])
    names, speeds = ("J.x", "J.angle", "body.y", "body.z"), {"J.x": 1.0, "J.angle": 2.0, "body.y": 3.0}
    state = mbd.assemble(mechanism, speeds=speeds)
    found = StateChart(names, names).numbers(mechanism, state)
    np.testing.assert_allclose(found, [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("coordinates", [pytest.param("absolute", marks=pytest.mark.slow), "joint"])
def test_a_state_has_the_numbers_that_it_is_made_from(coordinates: Any) -> None:
    """Of a closed loop, compiled, with the derivative one; also those of a motion's states."""
    mechanism, chart, x = slider_crank(1.0, coordinates), StateChart(("A.angle",), ("A.angle",)), jnp.array([2.0, 0.7])
    back = eqx.filter_jit(lambda x: chart.numbers(mechanism, chart.state(mechanism, x, 0.0)))
    np.testing.assert_allclose(back(x), x, atol=1e-9)
    np.testing.assert_allclose(jax.jacfwd(back)(x), np.eye(2), atol=1e-7)
    motion = mbd.simulate(mechanism, chart.state(mechanism, x, 0.0), np.linspace(0.0, 0.4, 5))
    np.testing.assert_allclose(chart.series(motion)[-1], chart.numbers(mechanism, motion.state(-1)), atol=1e-9)


@pytest.mark.parametrize("size", [1.0, 0.01, 100.0])
def test_a_unit_of_a_number_follows_the_size_of_the_mechanism(size: float) -> None:
    """Lengths with it, times of motions under gravity with its root; angles not at all."""
    chart = StateChart(("crank.omega", "D.displacement"), ("crank.theta", "D.displacement"))
    scales = chart.scales(slider_crank(size))
    np.testing.assert_allclose(scales, [1 / np.sqrt(size), np.sqrt(size), 1.0, size], rtol=1e-12)


def test_angles_that_do_not_count_turns_differ_by_half_a_turn_at_most() -> None:
    """A body's yaw; the angle of a joint counts its turns, and so does an angle in the plane."""
    body = sp.Body("body", mass=1.0, inertia=np.eye(3))
    mechanism = sp.Mechanism([body], [sp.Revolute("J", sp.ground.at(), body.at())])
    ends, starts = jnp.array([[-3.1, -3.1], [0.1, 6.4]]), jnp.array([[3.1, 3.1], [-0.1, -0.1]])
    found = StateChart((), ("body.yaw", "J.angle")).jumps(mechanism, ends, starts)
    np.testing.assert_allclose(found, [[2 * np.pi - 6.2, -6.2], [0.2, 6.5]], atol=1e-12)
    flat = StateChart((), ("crank.theta", "A.angle")).jumps(slider_crank(), ends, starts)
    np.testing.assert_allclose(flat, ends - starts)
