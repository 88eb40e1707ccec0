"""Tables of the joints, drivers, forces and sensors, by space, with one line for each."""

from pathlib import Path
from typing import Any

from docs.pages.public_names import Name, modules
from docs.pages.reference import summary

KINDS = {"Joints": "model.joint", "Drivers": "model.driver", "Forces": "model.force", "Sensors": "model.sensor"}
SPACES = {"plane": "jaxmbd.planar", "space": "jaxmbd.spatial"}


def write(folder: Path) -> None:
    """Write the page."""
    lines = [
        "# Joints, drivers, forces and sensors",
        "",
        "What `jaxmbd.planar` and `jaxmbd.spatial` offer. A dash: not in this space. The coordinates of a joint are "
        "those that drivers, forces along joints and `assemble` may name, such as `O.angle` of a joint `O`.",
        "",
    ]
    for heading, home in KINDS.items():
        lines += [f"## {heading}", "", *table(home, with_coordinates=heading == "Joints"), ""]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "parts.md").write_text("\n".join(lines), encoding="utf-8")


def table(home: str, with_coordinates: bool) -> list[str]:
    """The rows of all classes that files below `home` define, one row for what both spaces share."""
    rows: dict[int, dict[str, Name]] = {}
    for space, module in SPACES.items():
        for name in modules()[module]:
            if name.home.startswith(home) and not name.name.startswith("Abstract"):
                rows.setdefault(id(name.value), {})[space] = name
    titles = ["", *SPACES, *(["coordinates"] if with_coordinates else []), ""]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for names in sorted(rows.values(), key=lambda names: next(iter(names.values())).name):
        name = next(iter(names.values()))
        cells = [f"`{name.name}`"]
        cells += [f"[{s}](#{names[s].path})" if s in names else "–" for s in SPACES]
        cells += [", ".join(f"`{c}`" for c in _coordinates(name.value)) or "–"] if with_coordinates else []
        lines.append(f"| {' | '.join([*cells, summary(name.value).replace('|', chr(92) + '|')])} |")
    return lines


def _coordinates(joint: Any) -> tuple[str, ...]:
    names = getattr(joint, "coordinate_names", ())
    return names if isinstance(names, tuple) else ()
