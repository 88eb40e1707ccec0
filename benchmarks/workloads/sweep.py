"""A sweep over driven four-bar linkages of random lengths, a third of which cannot be closed or lock on the way.

Its verdicts are compared with the geometry's, its time with that of the possible linkages alone. It is killed on the
way and continued, and done by a cluster of processes that loses one: the stores must be the same.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import xarray as xr

import jaxmbd as mbd
from benchmarks.fresh import REPOSITORY, fresh_process
from benchmarks.linkages import kill_when, margins, space
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures

COUNT, QUICK = 100_000, 4_000
KILLS = 5
MORE_PAIRS = 5  # times that all and the possible ones are swept once more, in turns
LIMIT = 3_600.0  # seconds for one sweep
NOT_ASSEMBLED = mbd.RESULTS[mbd.RESULTS.not_assembled]  # pyright: ignore[reportInvalidTypeArguments]


def measure(options: Options, say: Say) -> list[Record]:
    """One record: seconds, memory, verdicts, and what interruptions have changed."""
    count = QUICK if options.quick else COUNT
    with tempfile.TemporaryDirectory() as folder:
        stores = {name: Path(folder) / f"{name}.zarr" for name in ("all", "possible", "killed", "dask")}

        def swept(name: str, which: str = "all", where: str = "here", store: Path | None = None) -> Record:
            say(f"{count} linkages: {name}")
            command = ("benchmarks.linkages", str(count), which, str(store or stores[name]), where)
            found = fresh_process(*command, limit=LIMIT)
            if found["failure"]:
                raise RuntimeError(f"the sweep {name} failed: {found['failure']}")
            return found

        record: Record = {"count": count, "all": swept("all"), "possible": swept("possible", "possible")}
        again = [
            [swept(which, which, store=Path(folder) / f"{which}-{k}.zarr")["seconds"] for which in ("all", "possible")]
            for k in range(1 if options.quick else MORE_PAIRS)
        ]
        record["seconds of pairs"] = [[record[which]["seconds"] for which in ("all", "possible")], *again]
        record["verdicts"] = verdicts(count, mbd.sweeps.read_store(stores["all"]))
        for kill in range(KILLS):
            say(f"{count} linkages, killed {kill + 1} times")
            killed(count, stores["killed"], (kill + 0.5) / KILLS)
        record["killed"] = swept("killed") | {"same": content(stores["killed"]) == content(stores["all"])}
        record["dask"] = swept("dask", where="dask") | {"same": content(stores["dask"]) == content(stores["all"])}
    return [record]


def killed(count: int, store: Path, done: float) -> None:
    """Begin the sweep, or go on with it, and kill the process when that part of it is done."""
    command = [sys.executable, "-m", "benchmarks.linkages", str(count), "all", str(store), "here"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL) as process:
        Thread(target=kill_when, args=(store, done, process.pid), daemon=True).start()
        process.wait(LIMIT)
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the sweep ended before it was killed, with {process.returncode}")


def verdicts(count: int, found: xr.Dataset) -> Record:
    """How many linkages have which verdict, and how many of these are wrong."""
    lengths = {name: np.asarray(values) for name, (_, values) in space(count, "all").items()}
    closes, turns = (margin > 0 for margin in margins(lengths))
    texts = found["result_text"].values
    is_open, is_done = texts == NOT_ASSEMBLED, texts == ""
    values, counts = np.unique(texts, return_counts=True)
    return {
        "counts": dict(zip(values.tolist(), counts.tolist(), strict=True)),
        "cannot close": int(np.sum(~closes)), "lock": int(np.sum(closes & ~turns)), "possible": int(np.sum(turns)),
        "wrong": int(np.sum((is_open != ~closes) | (is_done != turns))),
        "not_finite": int(np.sum(is_done & ~np.isfinite(found["rocker_angle"].values))),
    }  # fmt: skip


def content(store: Path) -> dict[str, bytes]:
    """All files of a store by their place in it."""
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def tables(records: Sequence[Record]) -> list[Table]:
    """The times, and the verdicts."""
    heads = ("sweep", "variants", "time [s]", "memory [MB]", "store equals that of the first")
    return [table for record in records for table in (Table("Sweeps", heads, *times(record)), counts(record))]


def times(record: Record) -> tuple[list[list[str]], list[str]]:
    count, possible = record["count"], record["verdicts"]["possible"]
    names = {
        "all": "all", "possible": "the possible ones alone",
        "killed": f"all, after {KILLS} kills: the rest", "dask": "all, on two processes of a Dask cluster, one killed",
    }  # fmt: skip
    pairs = np.asarray(record["seconds of pairs"])
    medians: dict[str, float] = dict(zip(("all", "possible"), np.median(pairs, axis=0).tolist(), strict=True))
    rows = []
    for key, name in names.items():
        found: dict[str, Any] = record[key]
        number = possible if key == "possible" else count
        same = {True: "yes", False: "**no**", None: "–"}[found.get("same")]
        seconds = medians.get(key, found["seconds"])
        rows.append([name, f"{number:,}", figures(seconds), figures(found.get("megabytes")), same])
    ratios = pairs[:, 0] / pairs[:, 1]
    return rows, [
        f"All of them take {np.median(ratios):.2f} times as long as the possible ones alone ({ratios.min():.2f} to "
        f"{ratios.max():.2f} in {len(ratios)} pairs of runs, whose medians the first two rows are)."
    ]


def counts(record: Record) -> Table:
    about = record["verdicts"]
    rows = [[text or "successful", f"{number:,}"] for text, number in about["counts"].items()]
    geometry = ", ".join(f"{about[name]:,} {name}" for name in ("cannot close", "lock"))
    notes = [f"By geometry {geometry}, {about['possible']:,} are possible; {about['wrong']} verdicts are wrong."]
    return Table("Their verdicts", ("verdict", "variants"), rows, notes)
