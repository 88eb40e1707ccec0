"""The first `simulate` of a mechanism in a fresh process, without and with JAX's compilation cache on disk."""

import tempfile
from collections.abc import Sequence

from benchmarks.fresh import fresh_process
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures

MECHANISMS = ("pendulum", "four-bars", "bricard")
STAGES = ("import", "assemble", "simulate", "again")
CACHE = "JAX_COMPILATION_CACHE_DIR"
# Without these JAX keeps only what takes a second or more to compile.
KEEP_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def measure(options: Options, say: Say) -> list[Record]:
    """Seconds of the stages: with an empty cache, with what that process left there, and when it kept everything."""
    records = []
    for name in MECHANISMS[:1] if options.quick else MECHANISMS:
        with tempfile.TemporaryDirectory() as folder:
            for case, more in (("empty", {}), ("warm", {}), ("", KEEP_ALL), ("warm, all kept", KEEP_ALL)):
                say(f"{name}, {case or 'filling the'} cache")
                stages = fresh_process("benchmarks.first_call", name, options.device, variables={CACHE: folder, **more})
                if case:
                    records.append({"mechanism": name, "cache": case, **stages})
    return records


def tables(records: Sequence[Record]) -> list[Table]:
    """Seconds by mechanism, cache and stage."""
    rows = [
        [record["mechanism"], record["cache"], *(figures(record.get(stage), 2) for stage in STAGES)]
        for record in records
    ]
    heads = ("mechanism", "cache", "import [s]", "make and assemble [s]", "first `simulate` [s]", "second [s]")
    notes = [f"{r['mechanism']}, {r['cache']}: {r['failure']}." for r in records if r["failure"]]
    return [Table("The first `simulate` in a fresh process", heads, rows, notes)]
