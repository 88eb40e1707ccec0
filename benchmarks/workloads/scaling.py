"""How a right-hand side grows with the number of four-bars: time per instance, compile time, memory."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.budget import Budget, Growth
from benchmarks.compiled import Compiled, compiled
from benchmarks.measure import seconds_of, take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.problems import four_bars
from benchmarks.table import Table, figures
from jaxmbd._method import motion_of

SIZES = (10, 30, 100, 300, 1000)
QUICK = SIZES[:2]
BATCHES = (1, 64)
LENGTH = 0.2  # seconds that a timed call is to take
LIMIT, WORKLOAD_LIMIT = 30.0, 180.0  # seconds for building, compiling and three calls of one size, and in all
METHOD = mbd.Augmented  # made when it is used, of the precision that is then set
SPREAD = 1e-3  # rad; how far the instances of a batch are apart


def measure(options: Options, say: Say) -> list[Record]:
    """Microseconds of a right-hand side per instance, in both coordinates, alone and in a batch."""
    records, budget, cases = [], Budget(WORKLOAD_LIMIT), [(c, b) for b in BATCHES for c in ("joint", "absolute")]
    growths = {case: Growth() for case in cases}
    for n in QUICK if options.quick else SIZES:
        for (coordinates, batch), growth in growths.items():
            entry: Record = {"n": n, "coordinates": coordinates, "batch": batch}
            refusal = budget.refusal(growth.predicted(n), LIMIT)
            if refusal:
                records.append(entry | {"failure": refusal})
                continue
            say(f"N = {n}, {coordinates} coordinates, batch of {batch}")
            found = one_size(n, coordinates, batch)
            stages = ("build_seconds", "trace_seconds", "compile_seconds")
            growth.add(n, 2 * sum(found[stage] for stage in stages), 3e-6 * batch * found["microseconds"])
            records.append(entry | found)
    return sorted(records, key=lambda r: (r["coordinates"], r["batch"], r["n"]))


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
    problem, mechanism = four_bars(n), described(n, coordinates)
    q, v = ours.parallel_start(mechanism, problem)
    shifts = SPREAD * np.arange(batch)[:, None]
    return eqx.partition(mechanism, eqx.is_array), (jnp.asarray(q + shifts), jnp.asarray(np.tile(v, (batch, 1))))


@lru_cache(maxsize=2)
def described(n: int, coordinates: str) -> Any:
    """The mechanism; the last ones are kept, because making a large one takes long."""
    mechanism = ours.mechanism_of(four_bars(n))
    return mechanism if coordinates == "absolute" else mechanism.described(coordinates)


def right_sides(parameters: Any, rest: Any, q: jax.Array, v: jax.Array, count: int) -> Compiled:
    """So many evaluations, one after the other, each from a state that depends on the one before."""

    def one(parameters: Any, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        equations = mbd.Equations(eqx.combine(parameters, rest), redundant=False)

        def again(_: Any, y: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            motion = motion_of(METHOD(), equations, jnp.zeros(()), *y)
            return y[0] + 1e-9 * motion.qdot, y[1] + 1e-9 * motion.rate

        return jax.lax.fori_loop(0, count, again, (q, v))

    return compiled(jax.vmap(one, in_axes=(None, 0, 0)), parameters, q, v)


def exponents(records: Sequence[Record]) -> dict[tuple[str, int], float]:
    """For coordinates and batch: the power of N that the times grow with, fitted by least squares."""
    found = {}
    for key in dict.fromkeys((r["coordinates"], r["batch"]) for r in records):
        mine = [r for r in records if (r["coordinates"], r["batch"]) == key and not r["failure"]]
        if len(mine) > 1:
            logs = np.log([[r["n"], r["microseconds"]] for r in mine])
            found[key] = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return found


def tables(records: Sequence[Record]) -> list[Table]:
    """One row per coordinates, batch and size; the exponents below."""
    rows = [
        [
            f"{r['coordinates']}, batch of {r['batch']}", str(r["n"]),
            *(
                figures(r.get(key))
                for key in ("microseconds", "build_seconds", "trace_seconds", "compile_seconds", "megabytes")
            ),
        ]
        for r in records
    ]  # fmt: skip
    notes = [f"{c}, batch of {b}: time grows as N^{power:.2f}." for (c, b), power in exponents(records).items()]
    notes += [
        f"{r['coordinates']}, batch of {r['batch']}, N = {r['n']}: {r['failure']}." for r in records if r["failure"]
    ]
    heads = ("coordinates", "N", "right-hand side [µs]", "build [s]", "trace [s]", "compile [s]", "memory [MB]")
    return [Table("One right-hand side, per instance", heads, rows, notes)]
