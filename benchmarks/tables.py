"""Tables in the terminal: all runs of a problem, and the summary at fixed errors."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from benchmarks.measure import OURS, Result, seconds_at

LEVELS = (1e-6, 1e-8)  # the errors the summary is about


def problem_table(title: str, results: Sequence[Result]) -> Table:
    """All runs of one problem, failed ones in red, with what went wrong below the table."""
    failures = [f"{r.program} {r.label}, {r.setting}: {r.failure}" for r in results if r.failure]
    caption = "failed:\n" + escape("\n".join(failures)) if failures else None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("solver", no_wrap=True)
    for name in ("setting", "build/\ncompile s", "run ms", "steps/\ncalls", "error"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for result in results:
        if previous is not None and result.program != previous:
            table.add_section()
        previous = result.program
        error = "-" if result.error is None else f"{result.error:.1e}"
        table.add_row(
            f"{result.program} {result.label}",
            result.setting,
            f"{result.build_seconds:.2g}",
            milliseconds(result.seconds),
            str(result.steps),
            error,
            style="red" if result.failure else None,
        )
    return table


def summary(results: Sequence[Result]) -> list[dict[str, object]]:
    """For each problem and level: the seconds of each program, and those of ours over the best peer's."""
    rows: list[dict[str, object]] = []
    for problem in dict.fromkeys(result.problem for result in results):
        mine = [result for result in results if result.problem == problem]
        for level in LEVELS:
            seconds = seconds_at(mine, level)
            best = min((value for name, value in seconds.items() if name != OURS), default=None)
            ratio = seconds[OURS] / best if best and OURS in seconds else None
            rows.append({"problem": problem, "error": level, "seconds": seconds, "ours_to_best_peer": ratio})
    return rows


def summary_table(results: Sequence[Result]) -> Table:
    """Milliseconds of each program's fastest run with at most the given error; a dash where there is none."""
    programs = list(dict.fromkeys(result.program for result in results))
    table = Table(title="Run time in ms at a given error", title_justify="left")
    table.add_column("problem")
    for name in ("error", *programs, "ours /\nbest peer"):
        table.add_column(name, justify="right")
    for row in summary(results):
        seconds, ratio = row["seconds"], row["ours_to_best_peer"]
        assert isinstance(seconds, dict)
        best = min((value for name, value in seconds.items() if name != OURS), default=None)
        cells = []
        for program in programs:
            value = seconds.get(program)
            text = "-" if value is None else milliseconds(value)
            cells.append(f"[bold]{text}[/bold]" if value is not None and value == best else text)
        table.add_row(
            str(row["problem"]),
            f"{row['error']:.0e}",
            *cells,
            f"{ratio:.2g}" if isinstance(ratio, float) else "-",
            end_section=row["error"] == LEVELS[-1],
        )
    return table


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with three figures."""
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
