"""The scene of a motion that has been computed, at the times of frames."""

import math
from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.errors import MechanismError
from jaxmbd.planar import Force
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import divided, interpolate, linear, poses_of, rates_of
from jaxmbd.scene.scene import Scene, applied_forces, trace_of
from jaxmbd.state.result_codes import RESULTS

_PATH_POINTS = 400  # the least number of points of a path, so that it is smooth with few frames, too


def scene_of(
    solution: Solution,
    reactions: Sequence[str],
    trace: Sequence[str],
    times: np.ndarray,
    size: float | None = None,
) -> Scene:
    """The scene of a motion at the times of frames; `size` [m] of symbols, the scene's own unless given.

    Positions between the times of the motion are interpolated by cubics from positions and speeds, forces linearly.
    `reactions`: names of joints and drivers; `trace`: names of `Point` sensors, or of bodies.
    """
    mechanism, ts = solution.mechanism, np.asarray(solution.ts, dtype=float)
    geometry = Geometry(mechanism, times, coordinates_at(solution, times), size)
    finer = math.ceil(_PATH_POINTS / len(times))
    path = geometry.motion
    if trace and finer > 1:
        between = divided(times, finer)
        path = poses_of(mechanism, between, coordinates_at(solution, between))
    traces = [trace_of(mechanism, name, path, finer) for name in trace]
    forces = {name: linear(times, ts, np.asarray(solution.reaction(name).force)) for name in reactions}
    acts = any(isinstance(force, Force) for force in mechanism.forces)  # speeds may take long to compute
    applied = {}
    if acts:
        v = jnp.asarray(solution.v, dtype=float)
        applied = applied_forces(mechanism, solution.ts, solution.q, v, solution.force_changes)
    return Scene(geometry, forces, {name: linear(times, ts, values) for name, values in applied.items()}, traces)


def until_failure(solution: Solution) -> tuple[Solution, str]:
    """The times of a motion at which there is something to show, and a remark on where and why it ended early.

    **Raises:** `MechanismError` if it failed at its start.
    """
    ts, why = np.asarray(solution.ts, dtype=float), RESULTS[solution.result]
    finite = np.isfinite(np.concatenate([solution.q, solution.integrated_speeds], axis=1)).all(axis=1)
    count = len(ts) if finite.all() else int(np.argmin(finite))
    if count == 0:
        why = why or "q holds values that are not finite, as of a state that was not assembled."
        raise MechanismError(f"There is nothing to show of a motion that failed at its start: {why}")
    if count == len(ts):
        return solution, f"The motion failed: {why}" if why else ""
    shown = replace(
        solution,
        ts=solution.ts[:count],
        q=solution.q[:count],
        integrated_speeds=solution.integrated_speeds[:count],
        z=solution.z[:count],
        quadratures={name: values[:count] for name, values in solution.quadratures.items()},
        computed=jax.tree.map(lambda x: x[:count], solution.computed),
    )
    ended = f"The motion ended early; {ts[count - 1]:g} s is the last of its times up to {ts[-1]:g} s."
    return shown, f"{ended} {why or 'Then its values are not finite.'}"


def coordinates_at(solution: Solution, times: np.ndarray) -> np.ndarray:
    """The coordinates `(frames, nq)` of a motion at the times of frames."""
    ts, q = np.asarray(solution.ts, dtype=float), np.asarray(solution.q, dtype=float)
    if np.array_equal(times, ts):
        return q
    return interpolate(times, ts, q, rates_of(solution.mechanism, ts, q, np.asarray(solution.v, dtype=float)))
