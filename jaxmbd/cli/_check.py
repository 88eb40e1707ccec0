"""What `check` says of a mechanism that could be assembled, with the lines of its model file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.describe import Description, describe
from jaxmbd.io.model_file.parts import GROUPS
from jaxmbd.io.model_file.source import Source, read_source, tree_of
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.flexible import owner_of
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.printing import count_of
from jaxmbd.state.output_channels import read
from jaxmbd.state.state import State


def summary(mechanism: Mechanism, state: State, path: Path | None) -> str:
    """Return what is to be said: parts, degrees of freedom, redundant constraints, and what is doubtful.

    `path`: the model file, if the mechanism comes from one.
    """
    source = _source(path)
    groups = {group: len(getattr(mechanism, group)) for group in GROUPS}
    singular = {"bodies": "body"}
    parts = ", ".join(
        f"{count} {group if count != 1 else singular.get(group, group[:-1])}"
        for group, count in groups.items()
        if count
    )
    report = describe(mechanism, state)
    where = "the plane" if mechanism.space.dim == 2 else "space"
    lines = [
        f"A mechanism in {where}, which can be assembled: {parts}.",
        str(report).split("\n")[0],
    ]
    found = [*_doubts(mechanism, state, report), *([] if source is None else _unused_markers(source))]
    lines += [f"{count_of(len(found), 'remark')}:" if found else "Nothing in it is doubtful."]
    for name, text in found:
        line = None if source is None else _line_of(source, name)
        lines.append(f"- {f'line {line}: ' if line else ''}{text}")
    return "\n".join(lines)


def located(message: str, mechanism: Mechanism, path: Path | None) -> str:
    """Return a message with the file and the lines of the parts that it names, if these are from a model file."""
    source = _source(path)
    named = [part.name for part in mechanism.parts() if repr(part.name) in message]
    if source is None or not named:
        return message
    named.sort(key=lambda name: message.index(repr(name)))
    places = [(name, _line_of(source, name)) for name in named]
    more = f" Lines: {', '.join(f'{name!r} {line}' for name, line in places)}." if len(places) > 1 else ""
    return str(source.error(message + more, places[0][1]))


def _source(path: Path | None) -> Source | None:
    return None if path is None or path.suffix != ".toml" else read_source(path)


def _line_of(source: Source, name: str) -> int | None:
    """The line of the table of a part or a marker."""
    tables = tree_of(source)
    group = next((key for key in (*GROUPS, "markers") if name in tables.get(key, {})), None)
    return None if group is None else source.line((group, name))


def _doubts(mechanism: Mechanism, state: State, report: Description) -> Iterator[tuple[str, str]]:
    """The name of a part, and what is doubtful about it."""
    for body in mechanism.bodies:
        if body.lacks_inertia:
            yield body.name, f"{body.name!r} has no mass, or no inertia about an axis; joints have to give it some."
        if not _is_connected(mechanism, body.name):
            yield body.name, f"no joint and no force but gravity refers to {body.name!r}: it moves on its own."
    for repeat in report.redundant:
        yield repeat.joint, f"{repeat}: reactions are not unique."
    if report.remaining_freedom == 0 and not mechanism.drivers:
        yield "", "there is no degree of freedom left and no driver: nothing can move."
    accelerations: dict[str, Array] = read(mechanism, state, [f"{body.name}.acceleration" for body in mechanism.bodies])
    if not all(np.isfinite(np.asarray(value)).all() for value in accelerations.values()):
        yield "", "the accelerations at the start are not finite: it cannot be simulated."


def _is_connected(mechanism: Mechanism, body: str) -> bool:
    """True if a joint, a force or a driver refers to a body."""
    joined = (*mechanism.joints, *mechanism.forces, *mechanism.constraints())
    markers = [x for part in joined for x in (*getattr(part, "markers", ()), *vars(part).values())]
    return any(isinstance(marker, AbstractMarker) and owner_of(marker.body) == body for marker in markers)


def _unused_markers(source: Source) -> Iterator[tuple[str, str]]:
    """The named markers of a model file to which no part refers."""
    tables = tree_of(source)
    texts = set(_texts({group: tables.get(group, {}) for group in GROUPS}))
    for name in tables.get("markers", {}):
        if name not in texts:
            yield name, f"no part refers to the marker {name!r}."


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
