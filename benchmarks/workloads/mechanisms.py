"""Every example mechanism in a batch: what a stage of its motion is, and how fast the machine works on it.

Equal steps of the classical method in joint coordinates, of instances with different speeds, as straight-line code, or
interpreted where a program is too large to be compiled. An operation is an instruction of the program that runs at each
stage: an addition, a product, a fused pair of them, a sine. The mechanisms take turns with the four-bar of the other
tables, whose rate of operations is the measure.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.measure import seconds_of, take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures
from benchmarks.workloads.batch import simulated
from jaxmbd.analyses.simulation import native_motion
from jaxmbd.engine import choice
from jaxmbd.engine.machine.straight_line import values_of
from jaxmbd.integrate.adjoint.native_steps import native_steps

INSTANCES, QUICK = 256, 16
STEPS, STEP = 200, 1e-5  # [s], with which the stiffest of them stays on its way
STAGES = 4
MEASURE = "planar-four-bar"


class Stage(NamedTuple):
    """The program of a stage: its operations, and the numbers that it keeps at a time."""

    operations: int
    numbers: int


def measure(options: Options, say: Say) -> list[Record]:
    """Operations, seconds and rates of each example, in turn with the four-bar."""
    size = QUICK if options.quick else INSTANCES
    measured, reference = stage_of(MEASURE), batch(MEASURE, size)
    seconds_of(reference)
    records: list[Record] = []
    for name in mbd.examples.names()[: 2 if options.quick else None]:
        say(name)
        stage, run = stage_of(name), batch(name, size)
        first = seconds_of(run)
        seconds, of_reference = take_turns([run, reference], 1.0)
        rate, reference_rate = (size * STEPS / time for time in (seconds, of_reference))
        records.append(
            {
                "mechanism": name, "engine": engine_of(name), "instances": size, "first": first, "seconds": seconds,
                "rate": rate, "operations": stage.operations, "numbers": stage.numbers,
                "finite": bool(np.isfinite(run()).all()),
                "share": rate * stage.operations / (reference_rate * measured.operations),
            }
        )  # fmt: skip
    return records


def end_of(name: str, engine: str, speeds: jax.Array) -> jax.Array:
    """The final coordinates of an example that starts with these speeds."""
    example, state = at_start(name)
    start = eqx.tree_at(lambda state: state.v, state, speeds)
    return simulated(example.mechanism, start, STEPS, STEP, engine=engine)


def speeds_of(name: str, size: int) -> jax.Array:
    """Speeds at the start, some different ones for each instance."""
    return at_start(name)[1].v * jnp.linspace(1.0, 1.0001, size)[:, None]


def at_start(name: str) -> tuple[mbd.examples.Example, mbd.State]:
    """An example in joint coordinates, and its state at the start: numbers, also while something is traced."""
    with jax.ensure_compile_time_eval():
        example = mbd.examples.get(name).with_coordinates("joint")
        return example, example.state()


def batch(name: str, size: int) -> Callable[[], np.ndarray]:
    """All instances in one compiled call of `vmap`; gives the final coordinates."""
    solve, speeds = jax.jit(jax.vmap(partial(end_of, name, engine_of(name)))), speeds_of(name, size)
    return lambda: np.asarray(solve(speeds))


def engine_of(name: str) -> str:
    """What runs an example."""
    return "native" if choice.is_worth_compiling(stage_of(name).operations) else "interpreter"


@cache
def stage_of(name: str) -> Stage:
    """The program that runs at each stage of an example's motion; asked for before the motion is traced."""
    made: list[Any] = []

    def kept(*arguments: Any, **options: Any) -> Any:
        made.append(native_steps(*arguments, **options))
        return made[-1]

    with patch.object(native_motion, "native_steps", kept):
        jax.eval_shape(partial(end_of, name, "native"), speeds_of(name, 1)[0])
    program = made[-1][0].programs["rate"].program
    values, _ = values_of(program, program.uniform_length)
    return Stage(sum(value.name not in ("slot", "constant") for value in values), program.slots)


def tables(records: Sequence[Record]) -> list[Table]:
    """One row for each mechanism, those with the most operations last."""
    rows = [
        [
            r["mechanism"], r["engine"], f"{r['operations']:,}", f"{r['numbers']:,}", figures(r["first"]),
            figures(1e3 * r["seconds"]), figures(r["rate"]),
            figures(STAGES * r["operations"] * r["rate"] / 1e9), figures(r["share"], 2),
        ]
        for r in sorted(records, key=lambda record: record["operations"])
    ]  # fmt: skip
    heads = (
        "mechanism",
        "engine",
        "operations",
        "numbers",
        "first [s]",
        "run [ms]",
        "steps / s",
        "10⁹ op. / s",
        "share",
    )
    lost = [r["mechanism"] for r in records if not r["finite"]]
    notes = [f"Not at the end, or not a number: {', '.join(lost)}."] if lost else []
    size = max((r["instances"] for r in records), default=INSTANCES)
    return [Table(f"{size} of each example, {STEPS} steps of the classical method", heads, rows, notes)]
