"""The report: a Markdown file whose tables stand between markers and are written anew from a file of results.

A table stands between `<!-- table: steps -->` and `<!-- end -->`; `<!-- table: environment -->` is the line that tells
the machine, the versions and the dates.
"""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.results_file import Content
from benchmarks.table import for_markdown
from benchmarks.workloads import WORKLOADS

MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(document: Path, content: Content) -> None:
    """Write the tables of the results into the document, between its markers."""
    document.write_text(filled(document.read_text(), content))


def filled(text: str, content: Content) -> str:
    """The text with its tables written anew; one without results says so."""

    def replaced(found: re.Match[str]) -> str:
        start, name, end = found.groups()
        return f"{start}{made(name, content)}\n{end}"

    return MARKED.sub(replaced, text)


def made(name: str, content: Content) -> str:
    """What belongs between the markers of that name."""
    makers: dict[str, Callable[[], str]] = {"environment": lambda: machines(content)}
    makers |= {workload: lambda w=workload: workload_tables(w, content) for workload in WORKLOADS}
    if name not in makers:
        raise ValueError(f"no table is called {name!r}; there are {', '.join(makers)}")
    return makers[name]()


def workload_tables(name: str, content: Content) -> str:
    """All tables of a workload."""
    records = content["workloads"].get(name)
    if not records:
        return "(not measured yet)"
    return "\n\n".join(for_markdown(table) for table in WORKLOADS[name].tables(records))


def machines(content: Content) -> str:
    """Machine, versions and dates in one paragraph for each machine, with its workloads if there are several."""
    environments, paragraphs = content["environments"], {}
    for workload, about in environments.items():
        packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items() if version)
        device = "" if about["device"] == "cpu" else f", {about['device']}"
        text = f"{about['cpu']}, {about['cores']} cores{device}, float64, Python {about['python']}, {packages}"
        paragraphs.setdefault(text, []).append(workload)
    lines = []
    for text, workloads in paragraphs.items():
        dates = sorted({environments[workload]["date"] for workload in workloads})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        which = f" ({', '.join(workloads)})" if len(paragraphs) > 1 else ""
        lines.append(f"{text}; {when}{which}.")
    return "\n\n".join(lines)
