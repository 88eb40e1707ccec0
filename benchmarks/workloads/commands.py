"""What a user of the command waits for, in fresh processes on a computer that knows the model, and where the time goes:
imports of JAX, of other libraries, of jaxmbd, and all that comes after them. With a git revision to compare with, the
two versions take turns.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.fresh import fresh_process
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures
from benchmarks.workloads.first import versions

SCRIPT = Path(__file__).parents[1] / "command_call.py"  # of this version: it names no module of the package
LIMIT = 900.0  # [s] for a command, which runs three times
MODEL = "slider-crank"
COMMANDS = (
    "--help", f"check {MODEL}", f"describe {MODEL}", f"draw {MODEL}", f"show {MODEL} --out page.html",
    f"simulate {MODEL} --no-film", f"simulate {MODEL}", "linearize suspension",
)  # fmt: skip
QUICK = ("--help", f"check {MODEL}")


def measure(options: Options, say: Say) -> list[Record]:
    """Medians of the seconds of each command, by version."""
    found: dict[tuple[str, str], list[Record]] = {}
    failures: dict[tuple[str, str], str] = {}
    with versions(options.before) as trees, tempfile.TemporaryDirectory() as folder:
        for turn in range(1 if options.quick else options.repeats):
            for command in QUICK if options.quick else COMMANDS:
                for version in list(trees)[:: 1 if turn % 2 else -1]:
                    say(f"{command}, {version}, turn {turn + 1}")
                    result = run(command, trees[version], Path(folder) / version)
                    failure = result.pop("failure")
                    if failure:
                        failures[version, command] = failure
                    else:
                        found.setdefault((version, command), []).append(result)
    records = [
        {"version": version, "command": command, "runs": len(results), "failure": ""} | medians(results)
        for (version, command), results in found.items()
    ]
    return records + [{"version": v, "command": command, "failure": text} for (v, command), text in failures.items()]


def run(command: str, tree: Path, folder: Path) -> Record:
    """What a command takes of a version, which keeps what it knows in a folder and writes its files there."""
    folder.mkdir(exist_ok=True)
    variables = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/jax", "XDG_CACHE_HOME": f"{folder}/user"}
    variables |= {"PYTHONPATH": str(tree), "JAXMBD_PROGRESS": "0", "JAX_PLATFORMS": "cpu"}
    words = [f"{folder}/{word}" if word.endswith(".html") else word for word in command.split()]
    written = [] if command.startswith(("--", "check", "describe", "show")) else ["--out", str(folder / "files")]
    (folder / "files").mkdir(exist_ok=True)
    return fresh_process(str(SCRIPT), *words, *written, limit=LIMIT, variables=variables)


def medians(results: Sequence[Record]) -> Record:
    """The medians of the CPU and wall seconds, and of the seconds of the imports by package."""
    middle: Record = {
        f"{kind}{suffix}": median(result[key][k] for result in results)
        for key, suffix in (("command", ""), ("import jax", " of import jax"))
        for k, kind in enumerate(("cpu", "wall"))
    }
    groups = results[0]["imports"]
    return middle | {"imports": {group: median(result["imports"][group] for result in results) for group in groups}}


def tables(records: Sequence[Record]) -> list[Table]:
    """CPU seconds of each command, above those of `import jax`, and the seconds of its imports."""
    several = len({record["version"] for record in records}) > 1
    rows = []
    for record in (r for r in records if not r["failure"]):
        imports, jax = record["imports"], record["cpu of import jax"]
        of_jax = imports["jax"] + imports["jaxlib"]
        parts = of_jax, imports["others"], imports["jaxmbd"], max(0.0, record["wall"] - sum(imports.values()))
        numbers = record["cpu"], record["wall"], record["cpu"] - jax, *parts
        version = [record["version"]] if several else []
        rows.append([f"`{record['command']}`", *version, *(figures(max(x, 0.0), 2) for x in numbers)])
    heads = ["CPU [s]", "wall [s]", "CPU above `import jax` [s]"]
    heads += [f"imports: {name} [s]" for name in ("JAX", "others", "jaxmbd")] + ["the rest [s]"]
    failed = [f"{r['version']}, {r['command']}: {r['failure']}." for r in records if r["failure"]]
    whole = [record["cpu of import jax"] for record in records if not record["failure"]]
    notes = [f"`import jax` alone takes {figures(median(whole), 2)} s of CPU."] if whole else []
    columns = ("command", *(["version"] if several else []), *heads)
    return [Table("Commands of a known model in fresh processes", columns, rows, notes + failed)]
