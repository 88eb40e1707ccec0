"""The runs of this library: the default method, solver and step control, over a range of tolerances."""

import time
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.measure import OURS, Run
from benchmarks.problems import GRAVITY, GROUND, Array, Problem
from jaxmbd import planar as pl

TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(11, 25))
METHODS: dict[str, dict[str, Any]] = {
    "Dopri8": {"solver": dfx.Dopri8()},
    "Dopri8, speeds controlled": {"solver": dfx.Dopri8(), "control_speeds": True, "max_steps": 4000, "throw": False},
    "Tsit5": {"solver": dfx.Tsit5()},
}


def mechanism_of(problem: Problem) -> pl.Mechanism:
    """The problem as a mechanism."""
    bodies = [
        pl.Body(f"b{k}", body.mass, body.inertia, pose=pose)
        for k, (body, pose) in enumerate(zip(problem.bodies, problem.positions, strict=True))
    ]
    joints: list[Any] = []
    for k, pin in enumerate(problem.pins):
        other = pl.ground if pin.other == GROUND else bodies[pin.other]
        joints.append(pl.Revolute(f"pin{k}", other.at(*pin.other_point), bodies[pin.body].at(*pin.point)))
    joints += [pl.Translational(f"slide{b}", pl.ground.at(), bodies[b].at()) for b in problem.sliders]
    return pl.Mechanism(bodies, joints, [pl.Gravity(GRAVITY)])


def runs(problem: Problem) -> list[Run]:
    """One run per solver and tolerance (`rtol = atol`); a solver is compiled once for all tolerances."""
    jax.config.update("jax_enable_x64", True)
    mechanism = mechanism_of(problem)
    state = mbd.State(
        jnp.zeros(()), jnp.asarray(problem.positions.ravel()), jnp.asarray(problem.velocities.ravel()),
        mechanism.coordinate_names, mechanism.speed_names,
    )  # fmt: skip
    found = []
    for label, settings in METHODS.items():
        started = time.perf_counter()
        _run(mechanism, state, problem.duration, 1e-6, settings)
        build = time.perf_counter() - started
        found += [_one(mechanism, state, problem, label, settings, tol, build) for tol in TOLERANCES]
    return found


def _one(
    mechanism: pl.Mechanism, state: mbd.State, problem: Problem, label: str, settings: dict[str, Any],
    tolerance: float, build: float,
) -> Run:  # fmt: skip
    steps = [0]

    def solve() -> Array:
        solution = _run(mechanism, state, problem.duration, tolerance, settings)
        steps[0] = int(solution.stats["num_steps"])
        return np.asarray(solution.q[-1]).reshape(-1, 3)

    return Run(OURS, label, f"tol {tolerance:.1e}", solve, build, lambda: steps[0])


def _run(
    mechanism: pl.Mechanism, state: mbd.State, end: float, tolerance: float, settings: dict[str, Any]
) -> mbd.Solution:
    return mbd.simulate(mechanism, state, np.array([0.0, end]), rtol=tolerance, atol=tolerance, **settings)
