"""Command line of the benchmark: measure, print the tables, and write the results and the picture."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import ours, plot
from benchmarks.measure import OURS, Result, Run, environment, time_runs
from benchmarks.peers import PEERS
from benchmarks.problems import Array, Problem, all_problems, reference
from benchmarks.tables import problem_table, summary, summary_table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark as the arguments say."""
    problems = all_problems()
    options = parse(arguments, list(problems))
    console = Console()
    results: list[Result] = []
    peers = usable_peers(options.peers, console)
    for name in options.workloads or problems:
        problem = problems[name]
        with console.status(f"{problem.title}: building models"):
            runs = list(collect(problem, peers))
        with console.status(f"{problem.title}: {len(runs)} runs"):
            measured = time_runs(runs, name, reference(problem))
        console.print(problem_table(problem.title, measured), "")
        results += measured
    console.print(summary_table(results))
    for path in (options.save, options.plot):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
    if options.save:
        save(results, options.save)
        console.print(f"results written to {options.save}")
    if options.plot:
        plot.draw(results, options.plot)
        console.print(f"picture written to {options.plot}")


def parse(arguments: Sequence[str] | None, problems: list[str]) -> argparse.Namespace:
    """Read the command line; `peers` becomes a list of names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    everything = ",".join(PEERS)
    choices = f"any of {', '.join(problems)}; default all"
    parser.add_argument("workloads", nargs="*", metavar="workload", help=choices)
    parser.add_argument("--peers", default=everything, help=f"any of {everything}, or none; default all")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="write environment and results")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw error against wall time")
    options = parser.parse_args(arguments)
    options.peers = [] if options.peers == "none" else options.peers.split(",")
    for given, known in ((options.workloads, problems), (options.peers, PEERS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    return options


def usable_peers(names: Sequence[str], console: Console) -> list[str]:
    """The peers that can be imported; the others are named with the command that installs them."""
    usable = []
    for name in names:
        try:
            PEERS[name].load()
        except ImportError as missing:
            console.print(f"{name} skipped ({missing}); install it with: {PEERS[name].install}")
        else:
            usable.append(name)
    return usable


def collect(problem: Problem, peers: Sequence[str]) -> Iterator[Run]:
    """Our runs, then those of the peers. A program that cannot build its model gives a run that fails."""
    sources = {OURS: ours.runs} | {name: PEERS[name].load() for name in peers}
    for program, runs in sources.items():
        try:
            yield from runs(problem)
        except Exception as error:  # shown in the table like any other failure
            yield failing(program, error)


def failing(program: str, error: Exception) -> Run:
    """A run that does nothing but raise what went wrong before."""

    def solve() -> Array:
        raise error

    return Run(program, "model", "-", solve)


def save(results: Sequence[Result], path: Path) -> None:
    """Write environment, summary and all results as JSON."""
    content = {
        "environment": environment(),
        "summary": summary(results),
        "results": [result.to_dict() for result in results],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
