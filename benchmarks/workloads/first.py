"""What a user waits for before the first result, in fresh processes: on a computer that has never run jaxmbd ("new"),
on one that knows the mechanism without one of its springs ("similar"), and on one that knows it ("known"). With a git
revision to compare with, the two versions take turns.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks.fresh import REPOSITORY, fresh_process
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures

MECHANISMS = ("pendulum", "slider-crank", "four-bar-with-springs", "bricard")
SCRIPT = "benchmarks/first_call.py"  # of each version its own: it names modules of the package
NEW, SIMILAR, KNOWN = "new", "similar", "known"
SPRING = "+spring"  # added to the mechanism where the computer knows a similar one
LIMIT = 900.0  # [s] for one process
# Activities, with the states of the computer in which they are measured.
ONCE = (("libraries", (KNOWN,)), ("usage", (KNOWN,)))
EACH = (("motion", (NEW, SIMILAR, KNOWN)), ("sensitivities", (KNOWN,)))
ALL = (
    ("examples", (NEW, KNOWN)), ("kinematics", (NEW, KNOWN)), ("fit", (NEW,)), ("inference", (NEW, KNOWN)),
    ("design", (NEW, KNOWN)),
)  # fmt: skip
COMMON = (
    "import",
    "import names",
    "virtual machine",
)  # stages of every activity, whose medians are taken over all of them
Step = tuple[str, str, tuple[str, ...]]  # activity, mechanism, states


def measure(options: Options, say: Say) -> list[Record]:
    """Medians of CPU and wall seconds of each stage, by version, mechanism and state of the computer."""
    found: dict[tuple[str, ...], list[list[float]]] = {}
    failures: dict[tuple[str, ...], str] = {}
    with versions(options.before) as trees:
        for turn in range(1 if options.quick else options.repeats):
            for step in steps(options.quick):
                if step[0] == "fit" and turn:
                    continue
                for version in list(trees)[:: 1 if turn % 2 else -1]:
                    say(f"{', '.join(filter(None, (*step[:2], version)))}, turn {turn + 1}")
                    for state, result in run(step, trees[version], options.device):
                        failure = result.pop("failure")
                        if failure:
                            failures[version, step[0], step[1], state] = failure
                        for stage, seconds in result.items():
                            mechanism = "" if stage in COMMON else step[1]
                            found.setdefault((version, stage, mechanism, state), []).append(seconds)
    heads = "version", "stage", "mechanism", "state"
    records = [
        dict(zip(heads, key, strict=True)) | {"cpu": median(c), "wall": median(w), "runs": len(c), "failure": ""}
        for key, (c, w) in ((key, zip(*pairs, strict=True)) for key, pairs in found.items())
    ]
    return records + [dict(zip(heads, key, strict=True)) | {"failure": text} for key, text in failures.items()]


def steps(quick: bool) -> list[Step]:
    """What is measured in one turn."""
    once, late = ([(activity, "", states) for activity, states in each] for each in (ONCE, () if quick else ALL))
    each = [(activity, name, states) for name in MECHANISMS[: 1 if quick else None] for activity, states in EACH]
    return [*once, *each, *late]


@contextmanager
def versions(before: str) -> Iterator[dict[str, Path]]:
    """The folders of the versions: the earlier one, if asked for, is checked out for the time of the measurement."""
    if not before:
        yield {"after": REPOSITORY}
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(REPOSITORY), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), before], check=True, capture_output=True)
        try:
            yield {"before": tree, "after": REPOSITORY}
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)


def run(step: Step, tree: Path, device: str) -> Iterator[tuple[str, Record]]:
    """The results of an activity in each of its states, in processes one after the other with the same folders."""
    activity, mechanism, states = step
    with tempfile.TemporaryDirectory() as folder:
        caches = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/jax", "XDG_CACHE_HOME": f"{folder}/user"}
        variables = caches | {"PYTHONPATH": str(tree), "JAXMBD_PROGRESS": "0"}
        for state in dict.fromkeys((NEW, *states)):
            name = mechanism + SPRING if state == SIMILAR else mechanism
            result = fresh_process(str(tree / SCRIPT), activity, name, device, limit=LIMIT, variables=variables)
            if state in states:
                yield state, result


def tables(records: Sequence[Record]) -> list[Table]:
    """CPU and wall seconds of each stage; of two versions side by side, with the ratios."""
    compared = any(record["version"] == "before" for record in records)
    found = {(r["version"], r["stage"], r["mechanism"], r["state"]): r for r in records if not r["failure"]}
    rows, ratios = [], []
    for version, *key in found:
        if version != "after":
            continue
        after, cells = found[(version, *key)], []
        before = found.get(("before", *key))
        for of in ("cpu", "wall"):
            ratio = after[of] / before[of] if before else None
            pair = [before[of] if before else None, after[of], ratio] if compared else [after[of]]
            cells += [figures(x, 2) for x in pair]
        rows.append([*key, *cells])
        if before:
            ratios.append(after["cpu"] / before["cpu"])
    kinds = [f"{kind} [s]" for kind in ("CPU", "wall")]
    heads = [f"{kind}, {v}" if v != "ratio" else v for kind in kinds for v in ("before", "after", "ratio")]
    notes = [
        f"{r['version']}, {r['stage']} {r['mechanism']}, {r['state']}: {r['failure']}." for r in records if r["failure"]
    ]
    if ratios:
        notes.append(f"Geometric mean of the ratios of CPU time: {figures(geometric_mean(ratios), 2)}.")
    columns = ("stage", "mechanism", "computer", *(heads if compared else kinds))
    return [Table("First calls in fresh processes", columns, rows, notes)]
