"""`curves`: the outputs of a sweep over one of its numbers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D

from jaxmbd.errors import MechanismError, check_known
from jaxmbd.plot._style import PALE, TEXT, new_figure, plain, tidy
from jaxmbd.plot._variants import (
    CROSS,
    MANY,
    failed_cross,
    is_geometric,
    labelled,
    legend_below,
    units_of,
)
from jaxmbd.printing import format_number
from jaxmbd.scene.curves import CURVES
from jaxmbd.scene.pieces import INK
from jaxmbd.sweeps.table import Table, scalar_outputs, table_of

if TYPE_CHECKING:
    import xarray as xr

_WIDTH, _HEIGHT = 5.2, 2.2  # [in] of a panel
_CROSSES = 40  # of many variants: for parts of the axis, as large as the share that failed
_BLUES = LinearSegmentedColormap.from_list("cloud", ["#b9d7ea", "#003f66"])
_FEW = len(CURVES)  # values of a second number that have a line each


def curves(
    found: "xr.Dataset",
    outputs: str | Sequence[str] | None = None,
    number: str | None = None,
    *,
    units: Mapping[str, str] | None = None,
    width: float | None = None,
) -> dict[str, Axes]:
    """Draw outputs of a sweep over one of its numbers, a panel for each output.

    A grid over one number is a line with dots, over a second number of up to seven values a line for each of these; all
    else is dots, of more than 2,000 variants cells by how many there are in them. A variant that failed is a cross at
    the lower edge, of many its size is the share that failed; the legend says how many there are and why.

    **Arguments:**

    - `found`: what `sweep` or `read_store` returned; `outputs`: by name; default: all with one number for each variant;
    - `number`: along the axis; default: the one that varies, or that with most values;
    - `units`: by the names of numbers and outputs, `{"length": "m"}`; default: the attributes `units` of the dataset;
    - `width`: of the figure `[in]`, 5.2 unless given.

    **Returns:** the axes by output.

    **Raises:** `MechanismError` for unknown names, outputs that are arrays, and a sweep in which no number varies.

        >>> from jaxmbd import plot
        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / 9.81)}
        >>> found = mbd.sweep(period, {"length": np.linspace(0.1, 1.0, 10)}, progress=False)
        >>> axes = plot.curves(found, units={"period": "s", "length": "m"})
        >>> axes["period"].get_ylabel()
        'period [s]'
    """
    table = table_of(found, "curves")
    shown = scalar_outputs("curves", table, outputs)
    known = units_of("curves", found, table, units)
    if not table.varied:
        raise MechanismError("curves: no number of the sweep has more than one value.")
    across = number or max(table.varied, key=lambda name: len(np.unique(table.numbers[name])))
    check_known("number of the sweep that varies", [across], table.varied)
    groups = _groups(table, across)
    figure = new_figure(_WIDTH if width is None else width, _HEIGHT * len(shown) + 0.6)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, shown.items(), strict=True):
        _panel(axes, table.numbers[across], values, groups)
        tidy(axes, ylabel=labelled(name, known))
    panels[-1].set_xlabel(plain(labelled(across, known)), fontsize=TEXT)
    if is_geometric(table.numbers[across]):
        panels[-1].set_xscale("log")
    handles = []
    if len(groups) > 1:
        other = _second(table, across)
        for k, rows in enumerate(groups):
            text = f"{other} = {format_number(table.numbers[other][rows[0]])} {known[other]}".rstrip()
            handles.append(Line2D([], [], color=CURVES[k], marker="o", markersize=3, label=plain(text)))
    if verdicts := table.verdicts(shown):
        handles.append(failed_cross(verdicts, table.count))
    legend_below(panels[-1], handles, 1 if len(handles) < 3 else 2)
    return dict(zip(shown, panels, strict=True))


def _second(table: Table, across: str) -> str:
    """The other number that varies, if there is one only."""
    others = [name for name in table.varied if name != across]
    return others[0] if len(others) == 1 else ""


def _groups(table: Table, across: str) -> list[np.ndarray]:
    """The variants of each line in the order of the number; none if they are no lines."""
    order = np.argsort(table.numbers[across], kind="stable")
    if table.varied == (across,):
        return [order]
    other = _second(table, across)
    values = np.unique(table.numbers[other]) if other else np.zeros(0)
    if not other or len(values) > _FEW or table.numbers_dims[other] == table.numbers_dims[across]:
        return []
    return [order[table.numbers[other][order] == value] for value in values]


def _panel(axes: Axes, x: np.ndarray, y: np.ndarray, groups: Sequence[np.ndarray]) -> None:
    is_many = len(x) > MANY
    for k, rows in enumerate(groups):
        marker = "o" if len(rows) <= 60 else ""
        axes.plot(x[rows], y[rows], marker=marker, markersize=3, color=CURVES[k], linewidth=1.4, rasterized=is_many)
    lost = ~np.isfinite(y)
    if not groups and is_many:  # by how many there are in a cell, since dots would cover one another
        cells: dict[str, Any] = {"gridsize": (80, 30), "bins": "log", "mincnt": 1, "cmap": _BLUES, "linewidths": 0.0}
        axes.hexbin(x[~lost], y[~lost], rasterized=True, **cells)
    elif not groups:
        axes.plot(x, y, "o", color=CURVES[0], markersize=3, alpha=0.4)
    if lost.any() and is_many:
        edges = np.linspace(x.min(), x.max(), _CROSSES + 1)
        share = np.histogram(x[lost], edges)[0] / np.maximum(np.histogram(x, edges)[0], 1)
        at, where = (edges[1:] + edges[:-1]) / 2, axes.get_xaxis_transform()
        style: dict[str, Any] = {"color": INK, "marker": "x", "linewidths": 0.8, "gid": "failed", "zorder": 3}
        axes.scatter(at, np.full(_CROSSES, 0.02), 60 * share, transform=where, clip_on=False, **style)
    elif lost.any():
        axes.plot(
            x[lost], np.zeros(lost.sum()), transform=axes.get_xaxis_transform(), clip_on=False, gid="failed", **CROSS,
        )  # fmt: skip
    axes.grid(True, color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
