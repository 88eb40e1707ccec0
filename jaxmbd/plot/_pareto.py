"""`pareto`: the front of several aims among the variants of a sweep."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D

from jaxmbd.errors import MechanismError
from jaxmbd.plot._style import PALE, new_figure, plain, tidy
from jaxmbd.plot._variants import MANY, failed_text, labelled, legend_below, units_of
from jaxmbd.scene.curves import CURVES
from jaxmbd.scene.pieces import GREY
from jaxmbd.sweeps import pareto_front
from jaxmbd.sweeps.table import table_of

if TYPE_CHECKING:
    from typing import Literal

    import xarray as xr

_PANEL = 3.4, 2.9  # [in]
_GREYS = LinearSegmentedColormap.from_list("cloud", ["#d0d0d0", "#404040"])


def pareto(
    found: "xr.Dataset",
    aims: "Mapping[str, Literal['min', 'max']]",
    *,
    units: Mapping[str, str] | None = None,
    axes: Axes | None = None,
) -> dict[tuple[str, str], Axes]:
    """Draw the variants of a sweep by two or more aims, and those that no other one dominates.

    There is a panel for each pair of aims. The front of two aims is joined by steps: what lies beyond them is better
    than any variant. Of more aims the front is that of all of them together, so that in a pair some of its members lie
    behind others. The legend says how many variants failed and why.

    **Arguments:**

    - `found`: what `sweep` or `read_store` returned;
    - `aims`: outputs by name with the direction that is better, `{"mass": "min", "range": "max"}`, at least two;
    - `units`: by the names of outputs, `{"mass": "kg"}`; default: the attributes `units` of the dataset;
    - `axes`: the axes of the one panel of two aims; default: a new figure.

    **Returns:** the axes by pairs of aims.

    **Raises:** `MechanismError` as `sweeps.pareto_front`, and for axes where there are several panels.

        >>> from jaxmbd import plot
        >>> def spring(x):  # its stiffness, and the stress under 10 N, by the diameter of its wire
        ...     d = x["wire"]
        ...     return {"stiffness": 8e10 * d**4 / (8 * 0.02**3 * 6), "stress": 8 * 10.0 * 0.02 / (jnp.pi * d**3)}
        >>> found = mbd.sweep(spring, {"wire": np.linspace(1e-3, 3e-3, 20)}, progress=False)
        >>> units = {"stiffness": "N/m", "stress": "Pa"}
        >>> panels = plot.pareto(found, {"stiffness": "min", "stress": "min"}, units=units)
    """
    front = pareto_front(found, aims)
    table = table_of(found, "pareto")
    known = units_of("pareto", found, table, units)
    names = list(aims)
    pairs = list(combinations(names, 2))
    if axes is not None and len(pairs) > 1:
        raise MechanismError(
            f"pareto: axes are for two aims; {len(names)} aims have {len(pairs)} panels. Leave it out."
        )
    panels = {pairs[0]: axes} if axes is not None else _grid(names, pairs)
    chosen = {name: table.outputs[name] for name in names}
    good = np.isfinite(np.stack(list(chosen.values()))).all(axis=0)
    for (x, y), one in panels.items():
        cloud, members = (chosen[x][good], chosen[y][good]), (front[x].values, front[y].values)
        _panel(one, cloud, members, aims[x] if len(names) == 2 else "")
        tidy(one, xlabel=_aim(labelled(x, known), aims[x]), ylabel=_aim(labelled(y, known), aims[y]))
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o"}
    lines = [
        Line2D([], [], color=GREY, markersize=3, label=f"{good.sum():,} variants", **dot),
        Line2D([], [], color=CURVES[1], markersize=5, label=f"{front.sizes['front']:,} on the front", **dot),
    ]
    if verdicts := table.verdicts(chosen):
        lines.append(Line2D([], [], linestyle="none", label=plain(failed_text(verdicts, table.count))))
    legend_below(next(iter(panels.values())), lines)
    return panels


def _grid(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Axes]:
    """A panel for each pair in a new figure: the first aims along the columns, the others along the rows."""
    size = len(names) - 1
    width = _PANEL[0] * size + 0.6 * (size == 1)
    grid = new_figure(width, _PANEL[1] * size + 0.7).subplots(size, size, squeeze=False)
    panels = {(x, y): grid[names.index(y) - 1, names.index(x)] for x, y in pairs}
    for one in grid.ravel():
        if one not in panels.values():
            one.set_axis_off()
    return panels


def _aim(label: str, aim: str) -> str:
    """The label of an axis, with an arrow to where it is better; along the vertical axis it turns with the text."""
    return f"← better    {label}" if aim == "min" else f"{label}    better →"


def _panel(
    axes: Axes, cloud: tuple[np.ndarray, np.ndarray], front: tuple[np.ndarray, np.ndarray], better: str
) -> None:  # fmt: skip
    """The variants, and those of the front above them; `better`: of two aims the direction of the first."""
    if len(cloud[0]) > MANY:  # by how many there are in a cell, since dots would cover one another
        cells: dict[str, Any] = {"gridsize": 70, "bins": "log", "mincnt": 1, "cmap": _GREYS, "linewidths": 0.0}
        axes.hexbin(*cloud, rasterized=True, gid="variants", **cells)
    else:
        axes.plot(*cloud, "o", color=GREY, alpha=0.5, markersize=3.5, markeredgewidth=0.0, gid="variants")
    order = np.argsort(front[0], kind="stable")
    x, y = front[0][order], front[1][order]
    if better:
        # From one member to the next, along the worse sides of both: what the steps enclose no variant reaches.
        axes.step(x, y, where="post" if better == "min" else "pre", color=CURVES[1], linewidth=1.0, zorder=3)
    is_long = len(x) > MANY
    axes.plot(x, y, "o", color=CURVES[1], markersize=2 if is_long else 4.5, zorder=4, gid="front", rasterized=is_long)
    axes.grid(True, color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
