"""Implicit steps: `Radau` beside Dopri8 on every example mechanism, and on two with beams, at several tolerances; on
the stiff ones also in diffrax's loop. They take turns; the error is the difference from Dopri8 at 1e-12.

Then what a step and a gradient cost as a beam gets more nodes: a rubber pendulum, in a process of its own for each
size, so that the first motion is one.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks import beams
from benchmarks.fresh import fresh_process
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

BEAM_ELEMENTS = (2, 4, 8, 16, 32)  # of four more nodes each
BEAM_TIME = 0.05  # s

Run = Callable[[], mbd.Solution]


class Case(NamedTuple):
    """A motion: its name, coordinates, mechanism, start and duration [s]; and whether it is also run in diffrax's
    loop."""

    name: str
    coordinates: str
    mechanism: Any
    start: mbd.State
    duration: float
    everywhere: bool = False


def measure(options: Options, say: Say) -> list[Record]:
    """Steps, seconds and errors of each mechanism, tolerance and engine; then those of beams."""
    records: list[Record] = []
    for case in cases(options.quick):
        run = partial(moved, case.mechanism, case.start, case.start.t + jnp.asarray([0.0, case.duration]))
        exact = np.asarray(run(None, EXACT, "auto").q[-1])
        methods: dict[str, tuple[str | None, str]] = {"Dopri8": (None, "auto"), "Radau": ("stiff", "auto")}
        if case.everywhere and not options.quick:
            methods["Radau, diffrax's loop"] = "stiff", "diffrax"
        for rtol in TOLERANCES[: 1 if options.quick else None]:
            say(f"{case.name}, {case.coordinates}, {rtol:g}")
            runs: list[Run] = [partial(run, solver, rtol, engine) for solver, engine in methods.values()]
            found = [each() for each in runs]
            for method, motion, seconds in zip(methods, found, take_turns(runs, 1.0), strict=True):
                what = {"mechanism": case.name, "coordinates": case.coordinates, "rtol": rtol, "method": method}
                counts = {key: int(motion.stats[f"num_{key}_steps"]) for key in ("accepted", "rejected")}
                error = float(np.abs(np.asarray(motion.q[-1]) - exact).max())
                records.append({**what, **counts, "engine": motion.engine, "seconds": seconds, "error": error})
    for elements in BEAM_ELEMENTS[: 1 if options.quick else None]:
        say(f"a beam of {elements} elements")
        records.append({"elements": elements, **fresh_process("benchmarks.workloads.stiff", "beam", str(elements))})
    return records


def cases(quick: bool) -> Iterator[Case]:
    """The stiff mechanisms, then all examples in joint coordinates."""
    names = [*STIFF, *((name, "joint") for name in mbd.examples.names() if (name, "joint") not in STIFF)]
    for name, coordinates in names[: 1 if quick else None]:
        example = mbd.examples.get(name).with_coordinates(coordinates)
        is_stiff = (name, coordinates) in STIFF
        yield Case(name, coordinates, example.mechanism, example.state(), ENDS.get(name, 1.0), is_stiff)
    if not quick:
        yield Case("rubber pendulum, 17 nodes", "absolute", *beams.pendulum(4), 0.5)
        yield Case("steel slider-crank, 9 nodes", "absolute", *beams.slider_crank(2), 0.02)


def moved(mechanism: Any, start: mbd.State, ts: jax.Array, solver: Any, rtol: float, engine: Any) -> mbd.Solution:
    """The motion to its end."""
    solution = mbd.simulate(
        mechanism, start, ts, solver=solver, rtol=rtol, atol=1e-2 * rtol, engine=engine, max_steps=200_000, throw=False
    )
    return jax.block_until_ready(solution)


def beam(elements: int) -> None:
    """Print what motions of a rubber pendulum cost: seconds of the first one, of a step, and of gradients by the
    stiffness over those of the motion."""
    jax.config.update("jax_enable_x64", True)
    mechanism, start = beams.pendulum(elements)
    ts, whole = jnp.asarray([0.0, BEAM_TIME]), jnp.ones(())

    def motion(share: jax.Array) -> mbd.Solution:
        made = beams.stiffened(mechanism, share)
        return mbd.simulate(made, start, ts, solver="stiff", rtol=1e-6, atol=1e-8, max_steps=4000, throw=False)

    end = lambda share: motion(share).q[-1, -2]  # noqa: E731
    runs = [
        jax.jit(end), jax.jit(jax.value_and_grad(end)), jax.jit(lambda x: jax.jvp(end, (x,), (jnp.ones_like(x),)))
    ]  # fmt: skip
    begin = time.process_time()
    solution = jax.block_until_ready(motion(whole))
    found = {"nodes": len(mechanism.bodies), "first": time.process_time() - begin, "engine": solution.engine}
    calls = [lambda run=run: jax.block_until_ready(run(whole)) for run in runs]
    for call in calls:
        call()
    seconds = take_turns(calls, 2.0)
    steps = int(solution.stats["num_steps"])
    names = ("step", "reverse", "forward")
    print(json.dumps(found | {"steps": steps} | dict(zip(names, seconds, strict=True)) | {"step": seconds[0] / steps}))


def _shown(record: Record) -> str:
    """Error, steps and milliseconds of a run."""
    steps = f"{record['accepted'] + record['rejected']:,}"
    return f"{figures(record['error'], 1)}, {steps}, {figures(1e3 * record['seconds'], 2)}"


def tables(records: Sequence[Record]) -> list[Table]:
    """One row for each mechanism and method, and one for each beam."""
    motions, sizes = ([r for r in records if ("elements" in r) == is_beam] for is_beam in (False, True))
    runs = dict.fromkeys((f"{r['mechanism']}, {r['coordinates']}", r["method"]) for r in motions)
    found = {(f"{r['mechanism']}, {r['coordinates']}", r["method"], r["rtol"]): _shown(r) for r in motions}
    tolerances = sorted({r["rtol"] for r in motions}, reverse=True)
    rows = [[*run, *(found.get((*run, rtol), "") for rtol in tolerances)] for run in runs]
    head = ("mechanism, coordinates", "method", *(f"rtol {rtol:g}" for rtol in tolerances))
    of_beams = [
        [str(r["nodes"]), f"{r['steps']:,}", figures(1e3 * r["step"]),
         *(figures(r[mode] / (r["step"] * r["steps"]), 2) for mode in ("reverse", "forward")), figures(r["first"])]
        for r in sizes if not r["failure"]
    ]  # fmt: skip
    notes = [f"{r['elements']} elements: {r['failure']}." for r in sizes if r["failure"]]
    beam_head = (
        "nodes",
        "steps",
        "a step [ms]",
        "reverse gradient / motion",
        "forward / motion",
        "first motion, CPU [s]",
    )
    title = f"Radau on a beam, 1e-6, {BEAM_TIME:g} s"
    return [
        Table("Implicit and explicit steps: error [m, rad], steps tried, run [ms]", head, rows),
        Table(title, beam_head, of_beams, notes),
    ]


if __name__ == "__main__" and sys.argv[1:2] == ["beam"]:
    beam(int(sys.argv[2]))
