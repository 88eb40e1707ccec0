"""Measured tables: CSV files with a column of time, and columns named like the quantities of a mechanism."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units

_TIMES = ("time", "t")
_AXES = ("x", "y", "z")
_EXAMPLE = "'time [s],rod.theta [rad]'"


def read_table(path: Path, mechanism: Mechanism) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read a table.

    The first line names the columns, each with its unit in brackets if there is one: that of the quantity, or `deg` for
    an angle. The columns `tip.x`, `tip.y` are the components of `tip`. An empty cell is a missing sample.

    **Returns:** the times `(times,)` [s], and the values `(times,)` or `(times, k)` by channel, in SI units.

    **Raises:** `MechanismError`, with file and line, for what is no table of numbers, and for names and units that the
    mechanism does not have.
    """
    first, headings, rows = _cells(path)
    where = f"{str(path)!r}, line {first}"
    units, axes = channel_units(mechanism), _AXES[: mechanism.space.dim]
    columns: dict[str, np.ndarray] = {}
    for place, heading in enumerate(headings):
        name, unit = _name_and_unit(heading)
        if name in columns:
            raise MechanismError(f"{where}: two columns are named {name!r}.")
        channel = None if name in _TIMES else _channel(name, units, axes)
        if channel is None and name not in _TIMES:
            raise MechanismError(f"{where}: {unknown('quantity', name, units)}")
        known = "s" if channel is None else units[channel]
        columns[name] = rows[:, place] * _factor(where, name, unit, known)
    times = next((columns.pop(name) for name in _TIMES if name in columns), None)
    if times is None:
        raise MechanismError(f"{where}: no column is named 'time'. It should be such as {_EXAMPLE}.")
    return times, _channels(columns, units, axes)


def read_signal(path: Path, name: str, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the times [s] and the values of the column `name` of a table, without rows in which it is empty."""
    first, headings, rows = _cells(path)
    where, found = f"{str(path)!r}, line {first}", {}
    for place, (column, given) in enumerate(map(_name_and_unit, headings)):
        if column == name or column in _TIMES:
            kind, known = (name, unit) if column == name else (_TIMES[0], "s")
            if kind in found:
                raise MechanismError(f"{where}: two columns are named {column!r}.")
            found[kind] = rows[:, place] * _factor(where, column, given, known)
    for kind in (_TIMES[0], name):
        if kind not in found:
            raise MechanismError(f"{where}: no column is named {kind!r}; there are {', '.join(headings)}.")
    times, values = found[_TIMES[0]], found[name]
    is_known = np.isfinite(values) & np.isfinite(times)
    if not is_known.any():
        raise MechanismError(f"{where}: the column {name!r} has no number.")
    return times[is_known], values[is_known]


def _cells(path: Path) -> tuple[int, list[str], np.ndarray]:
    """The line of the headings, the headings, and the numbers below them."""
    lines = [(number, line) for number, line in enumerate(_text(path).splitlines(), 1) if line.strip()]
    headings = [cell.strip().strip('"') for cell in lines[0][1].split(",")] if lines else []
    if len(lines) < 3 or len(headings) < 2:
        raise MechanismError(f"{str(path)!r} is no table of at least two columns and two rows, below {_EXAMPLE}.")
    rows = []
    for number, line in lines[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        try:
            rows.append([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            raise MechanismError(f"{str(path)!r}, line {number}: not all cells are numbers: {line!r}.") from None
        if len(cells) != len(headings):
            raise MechanismError(f"{str(path)!r}, line {number}: {len(cells)} cells below {len(headings)} headings.")
    return lines[0][0], headings, np.asarray(rows)


def _text(path: Path) -> str:
    if not path.is_file():
        raise MechanismError(f"There is no file {str(path)!r}.")
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise MechanismError(
            f"{str(path)!r}, line {line}: this is no UTF-8 text. Save the table as CSV in UTF-8."
        ) from None


def _name_and_unit(heading: str) -> tuple[str, str]:
    """`"rod.theta [rad]"` is `"rod.theta"` in `"rad"`."""
    found = re.fullmatch(r"(.*?)\s*\[([^\[\]]*)\]", heading)
    is_index = found is not None and found[2].isdecimal()  # of a component: O.lambda[0]
    return (heading, "") if found is None or is_index else (found[1], found[2])


def _channel(name: str, units: Mapping[str, str], axes: tuple[str, ...]) -> str | None:
    """The quantity of a column, which may be one of its components; None if there is none."""
    owner, _, axis = name.rpartition(".")
    return name if name in units else owner if owner in units and axis in axes else None


def _factor(where: str, name: str, unit: str, known: str) -> float:
    """The factor to SI units."""
    if unit in ("", known):
        return 1.0
    if unit.replace("deg", "rad") == known:
        return np.pi / 180
    raise MechanismError(f"{where}: the unit of {name!r} is {known!r}, got {unit!r}.")


def _channels(columns: dict[str, np.ndarray], units: Mapping[str, str], axes: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The values by channel, with components put together; those without a column are missing."""
    found: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        owner = name.rpartition(".")[0]
        if name in units:
            found[name] = values
        else:
            missing = np.full(len(values), np.nan)
            found[owner] = np.stack([columns.get(f"{owner}.{x}", missing) for x in axes], axis=1)
    return found
