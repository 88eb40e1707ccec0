"""Formatting of results for `print`: numbers, tables and summaries, for concrete values only."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from jaxmbd.arrays import is_concrete

_TINY = 1e-12  # in SI units
_OWNERS = 24  # largest number of bodies and joints in a table of coordinates


def readable(of: Any, text: Callable[[], str], **ranks: int) -> str:
    """`text()`, or field names and shapes if the values are traced (inside `jit`) or a batch made by `vmap`.

    **Arguments:** `ranks`, the fields that the text needs, with their numbers of axes without `vmap`.
    """
    fields = {name: getattr(of, name) for name in ranks}
    known = all(_is_known(value) for value in fields.values())
    extra = {np.ndim(value) - ranks[name] for name, value in fields.items()} if known else set()
    if extra == {0}:
        return text()
    shapes = ", ".join(f"{name} {eqx.tree_pformat(value)}" for name, value in fields.items())
    kind = type(of).__name__
    if len(extra) == 1 and min(extra) > 0:
        first = next(iter(fields.values()))
        sizes = " × ".join(map(str, np.shape(first)[: min(extra)]))
        return f"{kind}, a batch of {sizes}: {shapes}"
    return f"{kind}, not known yet: {shapes}"


def _is_known(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and is_concrete(value)


def format_number(value: Any) -> str:
    """A number with six digits, or two digits if it is likely to be rounding error."""
    value = float(value) + 0.0
    return f"{value:.1e}" if 0 < abs(value) < _TINY else f"{value:.6g}"


def count_of(count: int, thing: str) -> str:
    """`"1 step"`, `"2 steps"`."""
    return f"{count} {thing}{'s' * (count != 1)}"


def table(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Align rows of cells in columns, the first `words` columns to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if k < words else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def with_unit(name: str, unit: str) -> str:
    """`"theta [rad]"`, or the name alone if there is no unit."""
    return f"{name} [{unit}]" if unit not in ("", "1") else name


def by_owner(names: Sequence[str], units: Sequence[str], values: Any) -> str:
    """Values with names such as `"rod.x"` as tables: a row for each body or joint, a column for each component."""
    owners: dict[str, list[tuple[str, str]]] = {}
    for name, unit, value in zip(names, units, np.asarray(values), strict=True):
        owner, _, component = name.partition(".")
        owners.setdefault(owner, []).append((with_unit(component or "value", unit), format_number(value)))
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    for owner, cells in list(owners.items())[:_OWNERS]:
        heading = tuple(title for title, _ in cells)
        tables.setdefault(heading, [["", *heading]]).append([owner, *(value for _, value in cells)])
    more = [f"... and {len(owners) - _OWNERS} more"] * (len(owners) > _OWNERS)
    return "\n".join([*map(table, tables.values()), *more])


def over_time(columns: Sequence[tuple[str, str, Any]], most: int = 12) -> str:
    """Time series `(name, unit, values)` as a table of their first, last, least and largest values."""
    rows = [["", "start", "end", "least", "largest"]]
    for name, unit, values in columns[:most]:
        series = np.asarray(values)
        rows.append([with_unit(name, unit), *map(format_number, (series[0], series[-1], series.min(), series.max()))])
    more = [f"... and {len(columns) - most} more"] * (len(columns) > most)
    return "\n".join([table(rows), *more])
