"""What single precision gives: the error at the default tolerances and at the high ones, beside double precision's."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.bricard import Ring
from benchmarks.measure import take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.problems import Problem, four_bars, pendulum, slider_crank
from benchmarks.table import Table, figures
from benchmarks.workloads.precision import reference

PROBLEMS: tuple[Problem | Ring, ...] = (pendulum(), slider_crank(), four_bars(1), four_bars(10), Ring())
PRECISIONS = {"single": False, "double": True}


def measure(options: Options, say: Say) -> list[Record]:
    """Errors of the final position, and what the constraints are missed by."""
    records = []
    for problem in PROBLEMS[:1] if options.quick else PROBLEMS:
        exact = reference(problem)
        for precision, double in PRECISIONS.items():
            for accuracy in ("standard", "high"):
                say(f"{problem.name}, {precision} precision, {accuracy} accuracy")
                with jax.enable_x64(double):
                    found = one(problem, exact, accuracy)
                records.append({"problem": problem.name, "precision": precision, "accuracy": accuracy, **found})
    return records


def one(problem: Problem | Ring, exact: np.ndarray, accuracy: Any) -> Record:
    """The default method and solver in absolute coordinates."""
    mechanism = ours.mechanism_of(problem)
    state = ours.start_of(mechanism, problem)
    ts = np.array([0.0, problem.duration])

    @eqx.filter_jit
    def solve(mechanism: Any, state: mbd.State) -> tuple[jax.Array, jax.Array, jax.Array]:
        solution = mbd.simulate(mechanism, state, ts, accuracy=accuracy, throw=False)
        at = mbd.Equations(mechanism).at(solution.ts[-1], solution.q[-1])
        return at.poses()[:, :3], at.position(), solution.stats["num_steps"]

    poses, violation, steps = solve(mechanism, state)
    seconds = take_turns([lambda: jax.block_until_ready(solve(mechanism, state))])[0]
    return {
        "error": float(np.abs(np.asarray(poses, float) - exact).max()), "steps": int(steps), "seconds": seconds,
        "violation": float(np.abs(np.asarray(violation, float)).max(initial=0.0)),
    }  # fmt: skip


def tables(records: Sequence[Record]) -> list[Table]:
    """Single beside double precision."""
    rows = [
        [
            r["problem"], r["precision"], r["accuracy"], f"{r['error']:.1e}", f"{r['violation']:.0e}", str(r["steps"]),
            figures(1e3 * r["seconds"]),
        ]
        for r in records
    ]  # fmt: skip
    heads = ("problem", "precision", "accuracy", "error [m, rad]", "constraints missed by", "steps", "run [ms]")
    return [Table("Single precision", heads, rows)]
