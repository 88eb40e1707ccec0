"""The file that holds all results: for each workload the machine, how long it took, and its records."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Content = dict[str, dict[str, Any]]  # by workload: "environments", "seconds", and "workloads", its records


def load(path: Path) -> Content:
    """Read a file of results."""
    return json.loads(path.read_text())


def save(content: Content, path: Path) -> None:
    """Write a file of results, each environment and each record on a line of its own."""
    parts = []
    for key, by_workload in content.items():
        entries = ",\n".join(f"  {json.dumps(name)}: {_lines(entry)}" for name, entry in by_workload.items())
        parts.append(f" {json.dumps(key)}: {{\n{entries}\n }}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _lines(entry: Any) -> str:
    if not isinstance(entry, list):
        return json.dumps(entry)
    return "[\n   " + ",\n   ".join(map(json.dumps, entry)) + "\n  ]"


def merged(path: Path, content: Content) -> Content:
    """New results with those workloads of the file that were not run again; each keeps the environment of its run.

    Ratios are meant within one run: a workload is replaced as a whole.
    """
    return together([load(path), content]) if path.exists() else content


def together(contents: Iterable[Content]) -> Content:
    """The workloads of several files; one that is in several is that of the last."""
    found: Content = {}
    for content in contents:
        found |= {key: found.get(key, {}) | by_workload for key, by_workload in content.items()}
    return found
