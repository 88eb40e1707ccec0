"""Command line of the benchmarks: measure, print tables, write results, a picture and a report.

python -m benchmarks                                     everything on the CPU; results and picture go to out/benchmarks
python -m benchmarks precision --problems four-bar-1     one workload, one problem
python -m benchmarks --device gpu                        batches on a GPU; peers run on the CPU and are left out
python -m benchmarks first --before HEAD~3 --save out/first.json    first calls of two versions, side by side
python -m benchmarks --report docs/performance.md benchmarks/results/*.json
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import plot, report
from benchmarks import results_file as results
from benchmarks.devices import use_device
from benchmarks.environment import environment
from benchmarks.options import Options
from benchmarks.peers import PEERS
from benchmarks.table import for_terminal
from benchmarks.workloads import WORKLOADS, precision

OUT = Path("out/benchmarks")
WIDTH = 160  # of tables that go to a file


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks, or fill a report, as the arguments say."""
    options, console = parse(arguments), Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    if options.report:
        document, *sources = options.report
        report.fill(document, results.together(map(results.load, sources)))
        console.print(f"tables of {', '.join(map(str, sources))} written into {document}")
        return
    use_device(options.device)
    problems = tuple(options.problems.split(",")) if options.problems else ()
    peers = tuple(usable_peers(options.peers, console))
    asked = Options(peers, problems, options.device, options.quick, options.repeats, options.before)
    for path in (options.save, options.plot):
        path.parent.mkdir(parents=True, exist_ok=True)
    for name in options.workloads:
        content = measure(name, asked, console)
        results.save(results.merged(options.save, content), options.save)
    plot.draw(results.load(options.save), options.plot)
    console.print(f"results are in {options.save}, the picture in {options.plot}")


def measure(name: str, options: Options, console: Console) -> results.Content:
    """Measure a workload, and print its tables."""
    workload, start = WORKLOADS[name], time.perf_counter()
    with console.status(name) as status:
        records = workload.measure(options, lambda text: status.update(f"{name}: {text}"))
    seconds = round(time.perf_counter() - start, 1)
    if name == "precision":
        for problem in dict.fromkeys(record["problem"] for record in records):
            console.print(for_terminal(precision.detail(records, problem)), "")
    for table in workload.tables(records):
        console.print(for_terminal(table), f"({name}: {seconds:.0f} s)", "")
    return {"environments": {name: environment()}, "seconds": {name: seconds}, "workloads": {name: records}}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; `peers` becomes a list of names."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=style)
    everything = ",".join(PEERS)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"any of {', '.join(WORKLOADS)}; default all")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where jaxmbd runs; default cpu")
    parser.add_argument("--peers", help=f"any of {everything}, or none; default all, none with --device gpu")
    parser.add_argument("--problems", default="", help="of the workload precision; default all")
    parser.add_argument("--quick", action="store_true", help="few problems and sizes, to see that all of it runs")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes for each first call; default 5")
    parser.add_argument("--before", default="", metavar="REVISION", help="measure first calls of this revision too")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="results; what is there already is kept")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="the picture")
    parser.add_argument("--report", nargs="+", type=Path, metavar=("FILE.md", "FILE.json"), help="fill in its tables")
    options = parser.parse_args(arguments)
    options.save = options.save or OUT / f"{options.device}.json"
    of_the_device = [name for name in WORKLOADS if (name == "gpu") == (options.device == "gpu")]
    options.workloads = options.workloads or of_the_device
    options.plot = options.plot or options.save.with_suffix(".png")
    default = "none" if options.device == "gpu" else everything
    chosen = options.peers or default
    options.peers = [] if chosen == "none" else chosen.split(",")
    problems = options.problems.split(",") if options.problems else []
    known = (options.workloads, WORKLOADS), (options.peers, PEERS), (problems, precision.all_problems())
    for given, names in known:
        unknown = [name for name in given if name not in names]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(names)}")
    if "gpu" in options.workloads and options.device != "gpu":
        parser.error("the workload gpu needs --device gpu")
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


if __name__ == "__main__":
    main()
