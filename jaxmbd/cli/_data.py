"""Measured tables: CSV files with a column of time, and columns named like the quantities of a mechanism."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.mechanism.mechanism import Mechanism

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
    headings, rows = _cells(path)
    units, columns = channel_units(mechanism), {}
    for place, heading in enumerate(headings):
        name, unit = _name_and_unit(heading)
        if name in columns:
            raise MechanismError(f"{str(path)!r}, line 1: two columns are named {name!r}.")
        columns[name] = rows[:, place] * _factor(path, name, unit, units)
    times = next((columns.pop(name) for name in _TIMES if name in columns), None)
    if times is None:
        raise MechanismError(f"{str(path)!r}, line 1: no column is named 'time'. It should be such as {_EXAMPLE}.")
    return times, _channels(path, columns, units, _AXES[: mechanism.space.dim])


def _cells(path: Path) -> tuple[list[str], np.ndarray]:
    """The headings, and the numbers below them."""
    if not path.is_file():
        raise MechanismError(f"There is no file {str(path)!r}.")
    lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    headings = [cell.strip().strip('"') for cell in lines[0].split(",")] if lines else []
    if len(lines) < 3 or len(headings) < 2:
        raise MechanismError(f"{str(path)!r} is no table of at least two columns and two rows, below {_EXAMPLE}.")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        cells = [cell.strip() for cell in line.split(",")]
        try:
            rows.append([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            raise MechanismError(f"{str(path)!r}, line {number}: not all cells are numbers: {line!r}.") from None
        if len(cells) != len(headings):
            raise MechanismError(f"{str(path)!r}, line {number}: {len(cells)} cells below {len(headings)} headings.")
    return headings, np.asarray(rows)


def _name_and_unit(heading: str) -> tuple[str, str]:
    """`"rod.theta [rad]"` is `"rod.theta"` in `"rad"`."""
    found = re.fullmatch(r"(.*?)\s*\[([^\[\]]*)\]", heading)
    is_index = found is not None and found[2].isdecimal()  # of a component: O.lambda[0]
    return (heading, "") if found is None or is_index else (found[1], found[2])


def _factor(path: Path, name: str, unit: str, units: Mapping[str, str]) -> float:
    """The factor to SI units."""
    owner = name.rpartition(".")[0]
    known = "s" if name in _TIMES else units.get(name, units.get(owner, ""))
    if unit in ("", known):
        return 1.0
    if unit.replace("deg", "rad") == known:
        return np.pi / 180
    raise MechanismError(f"{str(path)!r}, line 1: the unit of {name!r} is {known!r}, got {unit!r}.")


def _channels(
    path: Path, columns: dict[str, np.ndarray], units: Mapping[str, str], axes: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The values by channel, with components put together; those without a column are missing."""
    found: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        owner, _, axis = name.rpartition(".")
        if name in units:
            found[name] = values
        elif owner in units and axis in axes:
            missing = np.full(len(values), np.nan)
            found[owner] = np.stack([columns.get(f"{owner}.{x}", missing) for x in axes], axis=1)
        else:
            raise MechanismError(f"{str(path)!r}, line 1: {unknown('quantity', name, units)}")
    return found
