"""Work and precision: run time at a given error, seven problems, beside the peers."""

from collections.abc import Iterator, Sequence

from benchmarks import bricard, ours, references
from benchmarks.bricard import Ring
from benchmarks.measure import OURS, Result, Run, fastest_at, time_runs
from benchmarks.options import Options, Record, Say
from benchmarks.peers import PEERS
from benchmarks.problems import Array, Problem, four_bars, pendulum, slider_crank
from benchmarks.table import Table, figures

LEVELS = (1e-4, 1e-6, 1e-8)  # the errors that the summary is about
QUICK = ("pendulum", "four-bar-1")


def all_problems() -> dict[str, Problem | Ring]:
    """The problems by name."""
    made = (pendulum(), slider_crank(), Ring(), four_bars(1), four_bars(2), four_bars(10), four_bars(40))
    return {problem.name: problem for problem in made}


def reference(problem: Problem | Ring) -> Array:
    """The answer that errors are measured from."""
    return bricard.reference(problem.duration) if isinstance(problem, Ring) else references.reference(problem)


def measure(options: Options, say: Say) -> list[Record]:
    """Every run of every program on the problems: seconds, error and what else a `Result` holds."""
    problems, records = all_problems(), []
    for name in options.problems or (QUICK if options.quick else problems):
        say(f"{name}: building models")
        problem = problems[name]
        runs = list(collect(problem, options.peers))
        say(f"{name}: {len(runs)} runs")
        results = time_runs(runs[::2] if options.quick else runs, name, reference(problem))
        records += [result.to_dict() for result in results]
    return records


def collect(problem: Problem | Ring, peers: Sequence[str]) -> Iterator[Run]:
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


def tables(records: Sequence[Record]) -> list[Table]:
    """The summary: milliseconds of each program's fastest run that was seen to reach an error."""
    results = [Result(**record) for record in records]
    programs = list(dict.fromkeys(result.program for result in results))
    rows = []
    for problem in dict.fromkeys(result.problem for result in results):
        mine = [result for result in results if result.problem == problem]
        rows += [summary_row(problem, mine, level, programs) for level in LEVELS]
    heads = ("problem", "error", *programs, "ours / best peer", "our setting")
    return [Table("Run time [ms] at a given error", heads, rows)]


def summary_row(problem: str, results: Sequence[Result], level: float, programs: Sequence[str]) -> list[str]:
    """One problem at one error; the fastest program is bold."""
    fastest = fastest_at(results, level)
    least = min((result.seconds for result in fastest.values()), default=None)
    cells = []
    for program in programs:
        found = fastest.get(program)
        text = figures(1e3 * found.seconds if found else None)
        cells.append(f"**{text}**" if found and found.seconds == least else text)
    ratio = ratio_at(fastest)
    setting = f"{fastest[OURS].label}, {fastest[OURS].setting}" if OURS in fastest else "–"
    return [problem, f"{level:.0e}", *cells, figures(ratio, 2), setting]


def ratio_at(fastest: dict[str, Result]) -> float | None:
    """Our time over that of the best peer; None where one of them is missing."""
    peers = [result.seconds for program, result in fastest.items() if program != OURS]
    return fastest[OURS].seconds / min(peers) if peers and OURS in fastest else None


def detail(records: Sequence[Record], problem: str) -> Table:
    """All runs of one problem, with what went wrong in those that failed."""
    results = [Result(**record) for record in records if record["problem"] == problem]
    rows = [
        [
            f"{r.program} {r.label}", r.setting, figures(r.build_seconds, 2), figures(1e3 * r.seconds), str(r.steps),
            "–" if r.error is None else f"{r.error:.1e}", r.failure[:60],
        ]
        for r in results
    ]  # fmt: skip
    heads = ("run", "setting", "build [s]", "run [ms]", "steps or calls", "error", "failure")
    return Table(all_problems()[problem].title, heads, rows)
