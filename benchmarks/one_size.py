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
from benchmarks.stepping import moved, rates

LENGTH = 0.4  # seconds that a timed call is to take
SEVERAL, MOST = 20, 20_000  # evaluations to estimate it from, and in one call
SPREAD = 1e-3  # rad; how far the instances of a batch are apart


def one_size(n: int, coordinates: str, batch: int) -> Record:
    """One size: microseconds per right-hand side and instance, compile time, memory."""
    build: list[tuple[Any, Any]] = []
    seconds = seconds_of(lambda: build.append(arguments(n, coordinates, batch)))
    equations, (q, v) = build[0]
    program = right_sides(equations, q, v, 1)
    program.call()
    several = right_sides(equations, q, v, SEVERAL)
    estimate = (seconds_of(several.call) - seconds_of(program.call)) / SEVERAL
    count = int(np.clip(LENGTH / max(estimate, 1e-9), SEVERAL, MOST))
    once, repeated = take_turns([program.call, right_sides(equations, q, v, count).call], 5 * LENGTH, 5)
    time = (repeated - once) / (count - 1)  # without what a call costs: it hands over all numbers of the mechanism
    return {
        "microseconds": 1e6 * time / batch, "build_seconds": seconds, "trace_seconds": program.trace_seconds,
        "compile_seconds": program.compile_seconds, "megabytes": program.megabytes, "failure": "",
    }  # fmt: skip


def arguments(n: int, coordinates: str, batch: int) -> tuple[mbd.Equations, tuple[jax.Array, jax.Array]]:
    """The equations, put together before as `simulate` does it for a large mechanism, and a batch of states at slightly
    different crank angles."""
    problem = four_bars(n)
    mechanism = ours.mechanism_of(problem).with_coordinates(coordinates)
    q, v = ours.parallel_start(mechanism, problem)
    shifts = SPREAD * np.arange(batch)[:, None]
    states = jnp.asarray(q + shifts), jnp.asarray(np.tile(v, (batch, 1)))
    return mbd.Equations(mechanism, redundant=False), states


def right_sides(equations: mbd.Equations, q: jax.Array, v: jax.Array, count: int) -> Compiled:
    """So many evaluations, one after the other, each from a state that depends on the one before."""
    numbers, rest = eqx.partition(equations, eqx.is_array)

    def one(numbers: Any, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        equations = eqx.combine(numbers, rest)

        def again(_: Any, y: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return moved(y, rates(mbd.Augmented(), equations, jnp.zeros(()), y), 1e-9)

        return jax.lax.fori_loop(0, count, again, (q, v))

    return compiled(jax.vmap(one, in_axes=(None, 0, 0)), numbers, q, v)


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
