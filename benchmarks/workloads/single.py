"""What single precision gives at its default tolerances, beside double precision at its own, in both coordinates."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.bricard import Ring
from benchmarks.measure import FAILED_ERROR, take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.problems import Problem, four_bars, pendulum, slider_crank
from benchmarks.table import Table, figures
from benchmarks.workloads.precision import reference

PROBLEMS: tuple[Problem | Ring, ...] = (pendulum(), slider_crank(), four_bars(1), four_bars(10), Ring())
PRECISIONS = {"single": False, "double": True}
MOST = 2**13  # steps


def measure(options: Options, say: Say) -> list[Record]:
    """Errors of the final position, and what the constraints are missed by."""
    records = []
    for problem in PROBLEMS[:1] if options.quick else PROBLEMS:
        exact = reference(problem)
        for coordinates in ("absolute", "joint"):
            for precision, double in PRECISIONS.items():
                say(f"{problem.name}, {coordinates} coordinates, {precision} precision")
                with jax.enable_x64(double):
                    found = one(problem, exact, coordinates)
                records.append({"problem": problem.name, "coordinates": coordinates, "precision": precision, **found})
    return records


def one(problem: Problem | Ring, exact: np.ndarray, coordinates: str) -> Record:
    """The default formulation, solver and tolerances."""
    mechanism = ours.mechanism_of(problem).with_coordinates(coordinates)
    state = ours.start_of(mechanism, problem)
    ts = np.array([0.0, problem.duration])

    @eqx.filter_jit
    def solve(mechanism: Any, state: mbd.State) -> tuple[jax.Array, jax.Array, jax.Array]:
        solution = mbd.simulate(mechanism, state, ts, max_steps=MOST, throw=False)
        at = mbd.Equations(mechanism).at(solution.ts[-1], solution.q[-1])
        return at.poses()[:, :3], at.position(), solution.stats["num_steps"]

    poses, violation, steps = solve(mechanism, state)
    seconds = take_turns([lambda: jax.block_until_ready(solve(mechanism, state))])[0]
    error = float(np.abs(np.asarray(poses, float) - exact).max())
    return {
        "error": error if error <= FAILED_ERROR else None, "steps": int(steps), "seconds": seconds,
        "violation": float(np.abs(np.asarray(violation, float)).max(initial=0.0)),
    }  # fmt: skip


def tables(records: Sequence[Record]) -> list[Table]:
    """Single beside double precision."""
    rows = []
    for r in records:
        failed = r["error"] is None
        found = ("failed", "–") if failed else (f"{r['error']:.1e}", f"{r['violation']:.0e}")
        name = f"{r['problem']}, {r['coordinates']}"
        rows.append([name, r["precision"], *found, str(r["steps"]), figures(1e3 * r["seconds"])])
    heads = ("problem", "precision", "error [m, rad]", "constraints missed by", "steps", "run [ms]")
    return [Table("Single precision", heads, rows)]
