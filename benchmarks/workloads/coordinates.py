"""Absolute beside joint coordinates: error and time of all examples, default method and solver, three tolerances."""

from collections.abc import Sequence
from functools import partial
from statistics import geometric_mean
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.measure import seconds_of, take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.problems import Array
from benchmarks.table import Table, figures

KINDS = ("absolute", "joint")
TOLERANCES = (1e-6, 1e-8, 1e-10)  # rtol; atol is a hundredth of it, as by default
DEFAULT = 1  # the index of the library's default tolerance
REFERENCE = 1e-12
MAX_STEPS = 2**14


def measure(options: Options, say: Say) -> list[Record]:
    """One record for each example; an example that one of the two kinds refuses has a record that says so."""
    records = []
    for name in mbd.examples.names()[:2] if options.quick else mbd.examples.names():
        say(name)
        try:
            records.append({"example": name, **compare(mbd.examples.get(name)), "failure": ""})
        except mbd.MechanismError as error:
            records.append({"example": name, "failure": str(error).splitlines()[0]})
    return records


def compare(example: mbd.examples.Example) -> Record:
    """Seconds of the first run and of later ones, steps, and errors from a run of the same kind at 1e-12.

    Where the start is not determined by fixed values, the two kinds are assembled to different nearest positions.
    """
    runs = {kind: prepare(example.with_coordinates(kind)) for kind in KINDS}
    first = [seconds_of(partial(run, TOLERANCES[DEFAULT])) for run in runs.values()]
    exact = [run(REFERENCE)[0] for run in runs.values()]
    found: Record = {"first": first, "error": [], "seconds": [], "steps": []}
    for tolerance in TOLERANCES:
        answers = [run(tolerance) for run in runs.values()]
        pairs = zip(answers, exact, strict=True)
        found["error"].append([float(np.abs(places - right).max()) for (places, _), right in pairs])
        found["steps"].append([steps for _, steps in answers])
        found["seconds"].append(take_turns([partial(run, tolerance) for run in runs.values()]))
    return found


def prepare(example: mbd.examples.Example) -> Any:
    """A function of the tolerance that gives the places of the bodies at the end `[m]`, and the number of steps."""
    mechanism, state = example.mechanism, example.state()
    ts = jnp.array([0.0, example.duration])

    @eqx.filter_jit
    def solve(mechanism: Any, state: mbd.State, tolerance: jax.Array) -> tuple[jax.Array, jax.Array]:
        solution = mbd.simulate(
            mechanism, state, ts, rtol=tolerance, atol=1e-2 * tolerance, max_steps=MAX_STEPS, throw=False
        )  # fmt: skip
        poses = mbd.Equations(mechanism).at(solution.ts[-1], solution.q[-1]).poses()
        return jax.vmap(lambda pose: mechanism.space.place(pose).position)(poses), solution.stats["num_steps"]

    def run(tolerance: float) -> tuple[Array, int]:
        places, steps = jax.block_until_ready(solve(mechanism, state, jnp.asarray(tolerance)))
        return np.asarray(places), int(steps)

    return run


def seconds_at(record: Record, kind: int, level: float) -> float | None:
    """The time at an error, on the line through the points (log error, log time); None outside of what was measured."""
    errors, seconds = (np.log([pair[kind] for pair in record[of]]) for of in ("error", "seconds"))
    order = np.argsort(errors)
    if not errors[order[0]] <= np.log(level) <= errors[order[-1]]:  # false for NaN too
        return None
    return float(np.exp(np.interp(np.log(level), errors[order], seconds[order])))


def tables(records: Sequence[Record]) -> list[Table]:
    """One row for each example: the default tolerance, then the ratio of times at the larger of its two errors."""
    rows, ratios = [], []
    for record in records:
        if record["failure"]:
            continue
        errors, seconds, steps = (record[of][DEFAULT] for of in ("error", "seconds", "steps"))
        at = [seconds_at(record, kind, max(errors)) for kind in range(2)]
        ratios.append((seconds[0] / seconds[1], at[0] / at[1] if at[0] and at[1] else None))
        rows.append([
            record["example"], *(f"{x:.0e}" for x in errors), *(str(n) for n in steps),
            *(figures(1e3 * x) for x in seconds), *(figures(ratio, 2) for ratio in ratios[-1]),
            *(figures(x, 2) for x in record["first"]),
        ])  # fmt: skip
    heads = ("example", "error [m], absolute", "joint", "steps, absolute", "joint", "run [ms], absolute", "joint",
             "time absolute / joint", "at equal error", "first run [s], absolute", "joint")  # fmt: skip
    notes = [f"{r['example']}: {r['failure']}" for r in records if r["failure"]]
    for text, column in (("at the default tolerance", 0), ("at equal error", 1)):
        values = [pair[column] for pair in ratios if pair[column]]
        if values:
            notes.append(f"Geometric mean of time absolute / joint {text}: {figures(geometric_mean(values), 2)}.")
    return [Table("Absolute and joint coordinates at the default settings", heads, rows, notes)]
