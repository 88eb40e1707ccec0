"""Implicit steps: `Radau` beside Dopri8 on every example mechanism, at several tolerances; on the stiff ones also in
diffrax's loop. They take turns; the error is the difference from Dopri8 at 1e-12.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.measure import take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures
from benchmarks.workloads.events import ENDS

TOLERANCES = (1e-6, 1e-8, 1e-10, 1e-12)
STIFF = (
    ("sundials-slider-crank", "absolute"),
    ("governor", "absolute"),
    ("governor", "joint"),
    ("car-axis", "absolute"),
)
EXACT = 1e-12

Run = Callable[[], mbd.Solution]


def measure(options: Options, say: Say) -> list[Record]:
    """Steps, seconds and errors of each mechanism, tolerance and engine."""
    records: list[Record] = []
    for name, coordinates in cases(options.quick):
        example = mbd.examples.get(name).with_coordinates(coordinates)
        start = example.state()
        ts = start.t + jnp.asarray([0.0, ENDS.get(name, 1.0)])
        run = partial(moved, example.mechanism, start, ts)
        exact = np.asarray(run(None, EXACT, "auto").q[-1])
        methods: dict[str, tuple[str | None, str]] = {"Dopri8": (None, "auto"), "Radau": ("stiff", "auto")}
        if (name, coordinates) in STIFF and not options.quick:
            methods["Radau, diffrax's loop"] = "stiff", "diffrax"
        for rtol in TOLERANCES[: 1 if options.quick else None]:
            say(f"{name}, {coordinates}, {rtol:g}")
            runs: list[Run] = [partial(run, solver, rtol, engine) for solver, engine in methods.values()]
            found = [each() for each in runs]
            for method, motion, seconds in zip(methods, found, take_turns(runs, 1.0), strict=True):
                what = {"mechanism": name, "coordinates": coordinates, "rtol": rtol, "method": method}
                counts = {key: int(motion.stats[f"num_{key}_steps"]) for key in ("accepted", "rejected")}
                error = float(np.abs(np.asarray(motion.q[-1]) - exact).max())
                records.append({**what, **counts, "engine": motion.engine, "seconds": seconds, "error": error})
    return records


def cases(quick: bool) -> Iterator[tuple[str, str]]:
    """The mechanisms with their coordinates: the stiff ones, then all examples in joint coordinates."""
    yield from STIFF[: 1 if quick else None]
    if not quick:
        yield from ((name, "joint") for name in mbd.examples.names() if (name, "joint") not in STIFF)


def moved(mechanism: Any, start: mbd.State, ts: jax.Array, solver: Any, rtol: float, engine: Any) -> mbd.Solution:
    """The motion to its end."""
    solution = mbd.simulate(
        mechanism, start, ts, solver=solver, rtol=rtol, atol=1e-2 * rtol, engine=engine, max_steps=200_000, throw=False
    )
    return jax.block_until_ready(solution)


def tables(records: Sequence[Record]) -> list[Table]:
    """One row for each run."""
    rows = [
        [f"{r['mechanism']}, {r['coordinates']}", r["method"], f"{r['rtol']:g}", figures(r["error"], 1),
         f"{r['accepted']:,}", f"{r['rejected']:,}", figures(1e3 * r["seconds"])]
        for r in records
    ]  # fmt: skip
    head = ("mechanism, coordinates", "method", "rtol", "error [m, rad]", "steps", "rejected", "run [ms]")
    return [Table("Implicit and explicit steps", head, rows)]
