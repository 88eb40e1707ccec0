"""One size of the workload `scaling`: `python -m benchmarks.one_size N COORDINATES BATCH DEVICE`.

Prints one line of JSON: microseconds of a right-hand side per instance, the seconds of making and compiling it, memory.
"""

import json
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.compiled import Compiled, compiled
from benchmarks.devices import use_device
from benchmarks.measure import seconds_of, take_turns
from benchmarks.options import Record
from benchmarks.problems import four_bars
from jaxmbd._method import motion_of

LENGTH = 0.2  # seconds that a timed call is to take
SPREAD = 1e-3  # rad; how far the instances of a batch are apart


def one_size(n: int, coordinates: str, batch: int) -> Record:
    """One size: microseconds per right-hand side and instance, compile time, memory."""
    build: list[tuple[Any, Any]] = []
    seconds = seconds_of(lambda: build.append(arguments(n, coordinates, batch)))
    (parameters, rest), (q, v) = build[0]
    program = right_sides(parameters, rest, q, v, 1)
    once = min(seconds_of(program.call) for _ in range(2))
    count = int(np.clip(LENGTH / once, 1, 2000))
    repeated = right_sides(parameters, rest, q, v, count) if count > 1 else program
    time = take_turns([repeated.call], 1.0, 5)[0] / count if count > 1 else once
    return {
        "microseconds": 1e6 * time / batch, "build_seconds": seconds, "trace_seconds": program.trace_seconds,
        "compile_seconds": program.compile_seconds, "megabytes": program.megabytes, "failure": "",
    }  # fmt: skip


def arguments(n: int, coordinates: str, batch: int) -> tuple[tuple[Any, Any], tuple[jax.Array, jax.Array]]:
    """The mechanism's arrays and the rest of it, and a batch of states at slightly different crank angles."""
    problem = four_bars(n)
    mechanism = ours.mechanism_of(problem).described(coordinates)
    q, v = ours.parallel_start(mechanism, problem)
    shifts = SPREAD * np.arange(batch)[:, None]
    return eqx.partition(mechanism, eqx.is_array), (jnp.asarray(q + shifts), jnp.asarray(np.tile(v, (batch, 1))))


def right_sides(parameters: Any, rest: Any, q: jax.Array, v: jax.Array, count: int) -> Compiled:
    """So many evaluations, one after the other, each from a state that depends on the one before."""

    def one(parameters: Any, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        equations = mbd.Equations(eqx.combine(parameters, rest), redundant=False)

        def again(_: Any, y: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            motion = motion_of(mbd.Augmented(), equations, jnp.zeros(()), *y)
            return y[0] + 1e-9 * motion.qdot, y[1] + 1e-9 * motion.rate

        return jax.lax.fori_loop(0, count, again, (q, v))

    return compiled(jax.vmap(one, in_axes=(None, 0, 0)), parameters, q, v)


def peak_megabytes() -> float | None:
    """The most memory that this process has held; None where the system does not tell.

    Not `resource.getrusage`: on Linux a child's count starts with what its parent held.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return 1.024e-3 * int(lines[0].split()[1])  # the system counts in units of 1,024 bytes


if __name__ == "__main__":
    use_device(sys.argv[4])
    found = one_size(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    print(json.dumps(found | {"peak_megabytes": peak_megabytes()}))
