"""Confidence intervals hold the truth as often as they say, and what the data do not determine is always named.

A hundred records of each mechanism: an encoder on a joint, an accelerometer on another body, and noise of 1 %.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.identification import Parameter, Positive, Problem, fit_many
from tests.identification.test_diagnostics import TRUE, slider_crank

SIGMA, DRAWS = 0.01, 100
Where = Callable[[Any], Any]


class Case(NamedTuple):
    """A mechanism with a sensor `imu`, its start and motion; parameters that the data determine, and others that have
    the same effect as each other or none."""

    mechanism: Any
    fixed: dict[str, Any]
    speeds: dict[str, Any]
    ts: np.ndarray
    encoder: str
    determined: dict[str, Where]
    undetermined: dict[str, Where]


def example(name: str, forces: list[Any], imu: Any, **options: Any) -> dict[str, Any]:
    """The arguments of a case that come from an example, with more forces and an accelerometer."""
    found = mbd.examples.get(name)
    m, space = found.mechanism, sp if name == "bricard" else pl
    sensors = [space.Accelerometer("imu", imu(m))]
    mechanism = space.Mechanism(
        m.bodies, m.joints, [*m.forces, *forces], sensors=sensors, coordinates="joint", **options
    )
    return {"mechanism": mechanism, "fixed": found.fixed, "speeds": found.speeds}


def slider() -> Case:
    """The slider does not turn, so that its inertia has no effect."""
    return Case(
        slider_crank(TRUE), {"O.angle": 1.0}, {}, np.linspace(0.0, 1.0, 81), "O.angle",
        {"m": lambda m: m["crank"].mass, "c": lambda m: m["friction"].viscous, "k": lambda m: m["spring"].stiffness},
        {"inertia": lambda m: m["slider"].inertia},
    )  # fmt: skip


def four_bar() -> Case:
    """A longer spring is an actuator that pulls less."""
    return Case(
        **example("four-bar-with-springs", [], lambda m: m["coupler"].at(0.05, 0.02)),
        ts=np.linspace(0.0, 1.0, 81), encoder="O.angle",
        determined={"k": lambda m: m["spring"].stiffness, "hinge": lambda m: m["hinge"].stiffness,
                    "drag": lambda m: m["spring"].damping},
        undetermined={"length": lambda m: m["strut"].free_length, "pull": lambda m: m["strut"].actuator},
    )  # fmt: skip


def bricard() -> Case:
    """The first and the third hinge turn at the same rate."""
    forces: list[Any] = [sp.JointFriction(f"friction{k}", f"P{k}.angle", viscous=0.4) for k in (1, 3)]
    forces.append(sp.JointSpringDamper("spring", "P2.angle", stiffness=5.0))
    return Case(
        **example("bricard", forces, lambda m: m["rod3"].at(0.1, 0.05, 0.2)),
        ts=np.linspace(0.0, 1.0, 41), encoder="P1.angle",
        determined={"mass": lambda m: m["rod2"].mass, "k": lambda m: m["spring"].stiffness},
        undetermined={"c1": lambda m: m["friction1"].viscous, "c3": lambda m: m["friction3"].viscous},
    )  # fmt: skip


def wishbone() -> Case:
    """Nothing turns the wheel about its axle."""
    return Case(
        **example("suspension", [], lambda m: m["upright"].at(0.02, 0.1), cuts=["B"]),
        ts=np.linspace(0.0, 1.0, 81), encoder="L.angle",
        determined={"k": lambda m: m["strut"].stiffness, "c": lambda m: m["strut"].damping,
                    "tyre": lambda m: m["tyre"].stiffness},
        undetermined={"wheel": lambda m: m["wheel"].inertia},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", [slider, four_bar, bricard, wishbone])
def test_intervals_hold_the_truth_as_often_as_they_say(case: Callable[[], Case]) -> None:
    given = case()
    state = mbd.assemble(given.mechanism, given.fixed, speeds=given.speeds)
    motion = mbd.simulate(given.mechanism, state, given.ts)
    clean = {name: np.asarray(motion[name]) for name in (given.encoder, "imu")}
    levels = {name: SIGMA * float(np.std(values)) for name, values in clean.items()}
    places = given.determined | given.undetermined
    true = {name: float(where(given.mechanism)) for name, where in places.items()}
    free = {name: Parameter(where, 1.1 * true[name], Positive()) for name, where in places.items()}

    def measured(seed: int) -> mbd.Experiment:
        draws = np.random.default_rng(seed)
        data = {name: x + levels[name] * draws.normal(size=x.shape) for name, x in clean.items()}
        return mbd.Experiment(given.ts, data, start=given.fixed, speeds=given.speeds, sigma=levels)

    fits = fit_many([Problem(given.mechanism, measured(seed), free) for seed in range(DRAWS)], progress=False)
    assert {one.outcome for one in fits} == {"converged"}
    intervals = [one.interval() for one in fits]
    for name in given.determined:
        bounds = [interval[name] for interval in intervals]
        inside = sum(float(lower) < true[name] < float(upper) for lower, upper in bounds)
        assert 90 <= inside <= 99, name
    for one in fits:
        assert {name for group in one.undetermined for name in group.names} == set(given.undetermined)
        errors = one.standard_errors or {}
        assert all(np.isinf(float(errors[name])) for name in given.undetermined)
