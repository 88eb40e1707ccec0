"""One motion by every route: in coordinates of bodies and of joints, by each formulation, against one reference motion.

The reference is the stabilised motion in absolute coordinates. Compared are poses, twists, accelerations, reactions,
the kinetic and the whole energy, each relative to the largest number of its unit.
"""

from functools import cache
from typing import Any

import diffrax as dfx
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd.model.mechanism.quantities import ANGLES, channel_units
from tests.numeric import worst

FORMULATIONS = {
    "stabilized": mbd.Stabilized(),
    "augmented": mbd.Augmented(),
    "projection": mbd.Projection(),
    "partitioning": mbd.CoordinatePartitioning(),
}
REFERENCE = ("absolute", "stabilized")
ROUTES = [(c, f) for c in ("absolute", "joint") for f in FORMULATIONS if (c, f) != REFERENCE]
# How long each is followed [s].
MECHANISMS = {
    "slider_crank": 0.5,
    "pendulum": 1.0,
    "double_pendulum": 0.5,
    "four_bars": 0.5,  # does not meet a singular position until then
    "andrews": 0.01,
    "planar_four_bar": 0.5,
    "four_bar_with_springs": 0.5,
    "sundials_slider_crank": 0.5,
    "pendulum_with_four_bar": 1.0,
    "heavy_top": 0.2,
    "spatial_four_bar": 0.3,
    "bricard": 0.5,
}
STEPS = 500
# Of the largest number with that unit.
TOLERANCES = {"m": 1e-9, "rad": 1e-9, "m/s": 1e-8, "rad/s": 1e-8, "J": 1e-9}
TOLERANCES |= dict.fromkeys(("m/s²", "rad/s²", "N", "N m"), 1e-7)
INDETERMINATE = ("bricard",)  # its joints repeat one constraint: each route chooses its own reactions


def channels(name: str) -> dict[str, str]:
    """What is compared, with its unit. Euler parameters have a sign, so that orientations are compared by angles."""
    mechanism = examples.get(name).mechanism
    space, units = mechanism.space, channel_units(mechanism.with_coordinates("joint"))
    places = [c for c in space.coordinates if not c.startswith("e")] + list(ANGLES if space.dim == 3 else ())
    components = (*places, *space.speeds, *space.accelerations)
    names = [f"{body.name}.{component}" for body in mechanism.bodies for component in components]
    if name not in INDETERMINATE:
        names += [channel for channel, unit in units.items() if unit in ("N", "N m")]
    return {channel: units[channel] for channel in (*names, "kinetic_energy", "energy")}


@cache
def motion(name: str, coordinates: str, formulation: str) -> dict[str, np.ndarray]:
    example = examples.get(name).with_coordinates(coordinates)
    ts = np.linspace(0.0, MECHANISMS[name], 6)
    # Equal steps: by step control some route takes, by chance, a step whose error its estimate misses.
    solution = example.simulate(
        ts, formulation=FORMULATIONS[formulation], stepsize_controller=dfx.ConstantStepSize(),
        dt0=MECHANISMS[name] / STEPS, max_steps=STEPS + 10,
    )  # fmt: skip
    return {key: np.asarray(value) for key, value in solution.read(list(channels(name))).items()}


def cases() -> list[Any]:
    """Those of the slider-crank are quick."""
    marks = {name: () if name == "slider_crank" else pytest.mark.slow for name in MECHANISMS}
    return [pytest.param(name, *route, marks=marks[name]) for name in MECHANISMS for route in ROUTES]


@pytest.mark.parametrize(("name", "coordinates", "formulation"), cases())
def test_one_motion_by_every_route(name: str, coordinates: str, formulation: str) -> None:
    reference, found, units = motion(name, *REFERENCE), motion(name, coordinates, formulation), channels(name)
    for unit, tolerance in TOLERANCES.items():
        keys = [key for key in units if units[key] == unit]
        scale = max([1.0, *(worst(reference[key]) for key in keys)])
        for key in keys:
            assert worst(found[key] - reference[key]) < tolerance * scale, key
