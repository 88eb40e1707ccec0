"""The work-precision picture: error against wall time, one panel a problem."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import OURS, Result
from benchmarks.problems import all_problems
from benchmarks.tables import LEVELS

# Colours by Okabe and Ito, which colour-blind readers can tell apart; the markers differ as well.
STYLES = {
    OURS: ("#D55E00", "o"),
    "pinocchio": ("#0072B2", "s"),
    "mujoco": ("#009E73", "^"),
    "exudyn": ("#CC79A7", "D"),
    "sympy": ("#E69F00", "v"),
}
OTHER_STYLE = ("#000000", "x")
DASHES = ("-", "--", ":", "-.")  # for the methods of one program
COLUMNS = 3
ERRORS = (1e-11, 1e-2)  # range of the error axis; runs outside it are not shown


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw all problems that occur in `results` and write the picture to `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    problems = list(dict.fromkeys(result.problem for result in results))
    lines = -(-(len(problems) + 1) // COLUMNS)  # one more place, for the legend
    figure, grid = pyplot.subplots(
        lines, COLUMNS, figsize=(4.6 * COLUMNS, 3.9 * lines), squeeze=False, sharey=True, layout="constrained"
    )
    panels = list(grid.flat)
    handles: dict[str, Any] = {}
    for panel, problem in zip(panels, problems, strict=False):
        handles |= draw_problem(panel, [result for result in results if result.problem == problem])
        panel.set_title(all_problems()[problem].title, loc="left", fontsize=11)
    for panel in grid[:, 0]:
        panel.set_ylabel("final error (m, rad)")
    for panel in panels[len(problems) :]:
        panel.axis("off")
    ordered = sorted(handles, key=lambda name: (not name.startswith(OURS), name))  # ours first
    panels[0].set_ylim(*ERRORS)
    panels[len(problems)].legend(
        [handles[name] for name in ordered], ordered, loc="center left", frameon=False, fontsize=10
    )
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def draw_problem(panel: Any, results: Sequence[Result]) -> dict[str, Any]:
    """One panel; returns a line for each program and method, for the legend."""
    methods: dict[str, list[str]] = {}
    for result in results:
        labels = methods.setdefault(result.program, [])
        if result.label not in labels:
            labels.append(result.label)
    handles = {}
    for program, labels in methods.items():
        colour, marker = STYLES.get(program, OTHER_STYLE)
        for label, dash in zip(labels, DASHES, strict=False):
            good = [r for r in results if (r.program, r.label) == (program, label) and not r.failure]
            points = [(r.seconds, r.error) for r in good if r.error is not None]
            if not points:
                continue
            (handles[f"{program}, {label}"],) = panel.plot(
                [seconds for seconds, _ in points],
                [error for _, error in points],
                dash,
                color=colour,
                marker=marker,
                markersize=5,
                linewidth=1.4,
                markerfacecolor=colour if dash == "-" else "white",
            )
    finish_panel(panel, results)
    return handles


def finish_panel(panel: Any, results: Sequence[Result]) -> None:
    """Scales, the lines of the summary's errors, and a note on the runs that failed."""
    for level in LEVELS:
        panel.axhline(level, color="0.35", linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.grid(True, which="major", color="0.92", zorder=0)
    panel.set_axisbelow(True)
    panel.set_xlabel("wall time of a run (s)")
    failed: dict[str, int] = {}
    for result in results:
        if result.failure:
            failed[result.program] = failed.get(result.program, 0) + 1
    if failed:
        totals = {name: sum(result.program == name for result in results) for name in failed}
        note = "\n".join(f"{name}: {count} of {totals[name]} failed" for name, count in failed.items())
        panel.text(0.98, 0.97, note, transform=panel.transAxes, ha="right", va="top", fontsize=8, color="0.3")
