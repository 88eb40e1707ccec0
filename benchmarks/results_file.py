"""The file that holds all results: the machine, how long each workload took, and its records."""

import json
from pathlib import Path
from typing import Any

Content = dict[str, Any]  # environment, seconds by workload, and workloads: records by workload


def load(path: Path) -> Content:
    """Read a file of results."""
    return json.loads(path.read_text())


def save(content: Content, path: Path) -> None:
    """Write a file of results, each record on a line of its own."""
    lines = []
    for name, records in content["workloads"].items():
        rows = ",\n   ".join(json.dumps(record) for record in records)
        lines.append(f"  {json.dumps(name)}: [\n   {rows}\n  ]")
    head = {key: value for key, value in content.items() if key != "workloads"}
    text = json.dumps(head, indent=1).removesuffix("\n}") + ',\n "workloads": {\n' + ",\n".join(lines) + "\n }\n}\n"
    path.write_text(text)


def merged(path: Path, content: Content) -> Content:
    """New results with those workloads of the file that were not run again; each keeps the date of its run.

    Ratios are meant within one run: a workload is replaced as a whole.
    """
    dates = dict.fromkeys(content["workloads"], content["environment"]["date"])
    if not path.exists():
        return content | {"dates": dates}
    old = load(path)
    return {
        "environment": content["environment"],
        "dates": old.get("dates", {}) | dates,
        "seconds": old["seconds"] | content["seconds"],
        "workloads": old["workloads"] | content["workloads"],
    }
