"""How a right-hand side grows with the number of four-bars: time per instance, compile time, memory.

Each size is measured in a process of its own: nothing is compiled already, and the memory is that of this size.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.budget import Budget, Growth
from benchmarks.fresh import fresh_process
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures

SIZES = (10, 30, 100, 300, 1000)
QUICK = SIZES[:2]
BATCHES = (1, 64)
LIMIT, WORKLOAD_LIMIT = 60.0, 600.0  # seconds for building, compiling and timing one size, and in all
EVALUATIONS = 160  # of a right-hand side, that timing one size takes at least


def measure(options: Options, say: Say) -> list[Record]:
    """Microseconds of a right-hand side per instance, in both coordinates, alone and in a batch."""
    records, budget, cases = [], Budget(WORKLOAD_LIMIT), [(c, b) for b in BATCHES for c in ("absolute", "joint")]
    growths, ended = {case: Growth() for case in cases}, dict.fromkeys(cases, False)
    for n in QUICK if options.quick else SIZES:
        for case, growth in growths.items():
            coordinates, batch = case
            entry: Record = {"n": n, "coordinates": coordinates, "batch": batch}
            refusal = "left out" if ended[case] else budget.refusal(growth.predicted(n), LIMIT)
            if refusal:
                records.append(entry | {"failure": refusal})
                continue
            say(f"N = {n}, {coordinates} coordinates, batch of {batch}")
            found = fresh_process(
                "benchmarks.one_size", str(n), coordinates, str(batch), options.device, limit=2 * LIMIT
            )
            records.append(entry | found)
            ended[case] = bool(found["failure"])
            if not ended[case]:
                stages = ("build_seconds", "trace_seconds", "compile_seconds")
                growth.add(n, sum(found[stage] for stage in stages), 1e-6 * EVALUATIONS * batch * found["microseconds"])
    return sorted(records, key=lambda r: (r["coordinates"], r["batch"], r["n"]))


def exponents(records: Sequence[Record]) -> dict[tuple[str, int], float]:
    """For coordinates and batch: the power of N that the times grow with, fitted by least squares."""
    found = {}
    for key in dict.fromkeys((r["coordinates"], r["batch"]) for r in records):
        mine = [r for r in records if (r["coordinates"], r["batch"]) == key and not r["failure"]]
        if len(mine) > 1:
            logs = np.log([[r["n"], r["microseconds"]] for r in mine])
            found[key] = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return found


COLUMNS = {
    "microseconds": "right-hand side [µs]",
    "build_seconds": "build [s]",
    "trace_seconds": "trace [s]",
    "compile_seconds": "compile [s]",
    "megabytes": "program's memory [MB]",
    "peak_megabytes": "process's peak [MB]",
}


def tables(records: Sequence[Record]) -> list[Table]:
    """One row per coordinates, batch and size; the exponents below."""
    rows = [
        [f"{r['coordinates']}, batch of {r['batch']}", str(r["n"]), *(figures(r.get(key)) for key in COLUMNS)]
        for r in records
    ]
    notes = [f"{c}, batch of {b}: time grows as N^{power:.2f}." for (c, b), power in exponents(records).items()]
    failed = [r for r in records if r["failure"]]
    notes += [f"{r['coordinates']}, batch of {r['batch']}, N = {r['n']}: {r['failure']}." for r in failed]
    return [Table("One right-hand side, per instance", ("coordinates", "N", *COLUMNS.values()), rows, notes)]
