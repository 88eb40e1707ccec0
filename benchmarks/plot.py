"""The picture of all results: error against wall time for each problem, steps, batches and scaling."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from matplotlib.ticker import NullFormatter

from benchmarks.measure import OURS, Result
from benchmarks.options import Record
from benchmarks.results_file import Content
from benchmarks.workloads.precision import LEVELS, all_problems

# Colours by Okabe and Ito, which colour-blind readers can tell apart; the markers differ as well.
STYLES = {
    OURS: ("#D55E00", "o"),
    "pinocchio": ("#0072B2", "s"),
    "mujoco": ("#009E73", "^"),
    "exudyn": ("#CC79A7", "D"),
    "drake": ("#56B4E9", "P"),
    "pydy": ("#999933", "*"),
    "sympy": ("#E69F00", "v"),
}
OTHER_STYLE = ("#000000", "x")
DASHES = ("-", "--", ":", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (8, 3)))  # for one program's methods
COLUMNS = 3
ERRORS = (1e-11, 1e-2)  # range of the error axis; runs outside it are not shown


def draw(content: Content, path: Path) -> None:
    """Draw all results that there are and write the picture to `path`."""
    matplotlib.use("Agg")
    workloads = content["workloads"]
    results = [Result(**record) for record in workloads.get("precision", ())]
    problems = list(dict.fromkeys(result.problem for result in results))
    others = {name: DRAWN[name] for name in DRAWN if workloads.get(name)}
    count = len(problems) + bool(problems) + len(others)
    if not count:
        return
    columns = min(COLUMNS, count)
    lines = -(-count // columns)
    size = 4.6 * columns, 3.9 * lines
    figure, grid = pyplot.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    panels = iter(grid.flat)
    handles: dict[str, Any] = {}
    dashes = dashes_of(results)
    for problem in problems:
        panel = next(panels)
        handles |= draw_problem(panel, [result for result in results if result.problem == problem], dashes)
        panel.set_title(all_problems()[problem].title, loc="left", fontsize=11)
    if problems:
        draw_legend(next(panels), handles)
    for name, drawn in others.items():
        drawn(next(panels), workloads[name])
    for panel in panels:
        panel.axis("off")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_legend(panel: Any, handles: dict[str, Any]) -> None:
    """Programs and methods, ours first, in a place of their own."""
    ordered = sorted(handles, key=lambda name: (not name.startswith(OURS), name))
    panel.axis("off")
    panel.legend([handles[name] for name in ordered], ordered, loc="center left", frameon=False, fontsize=8)


def dashes_of(results: Sequence[Result]) -> dict[tuple[str, str], Any]:
    """A line style for each program and method, the same in all panels."""
    methods: dict[str, dict[str, None]] = {}
    for result in results:
        methods.setdefault(result.program, {})[result.label] = None
    return {
        (program, label): dash
        for program, labels in methods.items()
        for label, dash in zip(labels, itertools.cycle(DASHES), strict=False)
    }


def draw_problem(panel: Any, results: Sequence[Result], dashes: dict[tuple[str, str], Any]) -> dict[str, Any]:
    """One panel; returns a line for each program and method, for the legend."""
    handles = {}
    for (program, label), dash in dashes.items():
        good = [r for r in results if (r.program, r.label) == (program, label) and not r.failure]
        points = [(r.seconds, r.error) for r in good if r.error is not None]
        if points:
            (handles[f"{program}: {label}"],) = draw_line(panel, points, program, dash)
    for level in LEVELS:
        panel.axhline(level, color="0.35", linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    finish(panel, "wall time of a run [s]", "final error [m, rad]")
    panel.set_ylim(*ERRORS)
    return handles


def draw_line(panel: Any, points: Sequence[tuple[float, float]], program: str, dash: Any = "-", **more: Any) -> Any:
    """A line with markers in the program's style; open markers where it is not solid."""
    colour, marker = STYLES.get(program, OTHER_STYLE)
    face = colour if dash == "-" else "white"
    return panel.plot(
        *zip(*points, strict=True), linestyle=dash, color=colour, marker=marker, markersize=5, linewidth=1.4,
        markerfacecolor=face, **more,
    )  # fmt: skip


def finish(panel: Any, across: str, up: str) -> None:
    """Two logarithmic axes with a grid."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    if panel.get_xlim()[1] / panel.get_xlim()[0] > 10:  # labels between the powers of ten would overlap
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(True, which="major", color="0.92", zorder=0)
    panel.set_axisbelow(True)
    panel.set_xlabel(across)
    panel.set_ylabel(up)


def draw_steps(panel: Any, records: Sequence[Record]) -> None:
    """Microseconds of a step by number of four-bars."""
    for (program, label), dash in zip(keys(records, "program", "label"), DASHES, strict=False):
        points = [(r["n"], r["microseconds"]) for r in records if r["label"] == label and not r["failure"]]
        if points:
            draw_line(panel, points, program, "-" if program != OURS else dash, label=f"{program}: {label}")
    finish(panel, "number of four-bars N", "one step of RK4 [µs]")
    panel.set_title("A step of N four-bars", loc="left", fontsize=11)
    panel.legend(frameon=False, fontsize=8)


def draw_scaling(panel: Any, records: Sequence[Record]) -> None:
    """Microseconds of a right-hand side per instance by number of four-bars."""
    for (coordinates, batch), dash in zip(keys(records, "coordinates", "batch"), DASHES, strict=False):
        mine = [r for r in records if (r["coordinates"], r["batch"]) == (coordinates, batch) and not r["failure"]]
        points = [(r["n"], r["microseconds"]) for r in mine]
        if points:
            draw_line(panel, points, OURS, dash, label=f"{coordinates}, batch of {batch}")
    finish(panel, "number of four-bars N", "one right-hand side, per instance [µs]")
    panel.set_title("Scaling of jaxmbd", loc="left", fontsize=11)
    panel.legend(frameon=False, fontsize=8)


def draw_batch(panel: Any, records: Sequence[Record]) -> None:
    """Bars of the throughput."""
    names = [f"{r['program']}\n{r['label']}" for r in records][::-1]
    colours = [STYLES.get(r["program"], OTHER_STYLE)[0] for r in records][::-1]
    panel.barh(names, [r["rate"] for r in records][::-1], color=colours)
    panel.tick_params(axis="y", labelsize=8)
    panel.set_xlabel("trajectory-steps per second")
    panel.set_title("Batch of four-bars, RK4", loc="left", fontsize=11)


def draw_gpu(panel: Any, records: Sequence[Record]) -> None:
    """Steps per second by number of instances."""
    mine = [r for r in records if r["kind"] == "steps"]
    colours = {"kernel": STYLES[OURS][0], "XLA": "#0072B2", "processor": "#009E73"}
    for (runner, label), marker in zip(keys(mine, "runner", "label"), "os^Pv", strict=False):
        points = [(r["size"], r["steps"] / r["seconds"]) for r in mine if (r["runner"], r["label"]) == (runner, label)]
        name = "vmap + XLA" if runner == "XLA" else runner
        panel.plot(*zip(*points, strict=True), color=colours[runner], marker=marker, label=f"{name}: {label}")
    finish(panel, "instances", "steps per second")
    panel.set_title("Four-bars on a GPU, RK4", loc="left", fontsize=11)
    panel.legend(frameon=False, fontsize=8)


def keys(records: Sequence[Record], *names: str) -> list[tuple[Any, ...]]:
    """The different values of some entries, in the order in which they occur."""
    return list(dict.fromkeys(tuple(record[name] for name in names) for record in records))


DRAWN: dict[str, Callable[[Any, Sequence[Record]], None]] = {
    "steps": draw_steps,
    "batch": draw_batch,
    "scaling": draw_scaling,
    "gpu": draw_gpu,
}
