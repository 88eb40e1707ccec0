"""`heat_map`: an output of a sweep over two of its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from jaxmbd.arrays import as_float
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.plot._style import SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.plot._variants import (
    CROSS,
    HATCH,
    MANY,
    colour_limits,
    colour_map,
    failed_cross,
    failed_patch,
    is_geometric,
    labelled,
    legend_below,
    units_of,
)
from jaxmbd.printing import format_number
from jaxmbd.scene.pieces import INK
from jaxmbd.sweeps.table import Table, scalar_outputs, table_of

if TYPE_CHECKING:
    import xarray as xr

_SIZE = 5.2, 4.4  # [in]
_BINS, _CROSSES = 60, 14  # cells along each number, of variants that are drawn at random; crosses for those that failed


def heat_map(
    found: "xr.Dataset",
    output: str,
    numbers: Sequence[str] | None = None,
    *,
    at: Mapping[str, float] | None = None,
    units: Mapping[str, str] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw an output of a sweep as colours over two of its numbers.

    A grid has a cell for each variant. Variants that were drawn (`sobol`, `latin_hypercube`) are dots; of more than
    2,000 the means over cells are drawn. What failed is hatched on a grid; elsewhere it is a cross, whose size over
    means is the share that failed. The legend says how many failed and why. If the values lie on both sides of zero,
    zero is white; few that are far away from all others do not take up the colours, which an arrow of the scale shows.

    **Arguments:**

    - `found`: what `sweep` or `read_store` returned; `output`: the name of one number of each variant;
    - `numbers`: those along the axes, `("length", "mass")`; default: the two that vary;
    - `at`: the values of the other dimensions, the nearest of which are drawn, `{"friction": 0.1}`;
    - `units`: by the names of numbers and outputs, `{"length": "m"}`; default: the attributes `units` of the dataset;
    - `axes`: the axes to draw in; default: a new figure.

    **Returns:** the axes.

    **Raises:** `MechanismError` for unknown names, an output that is an array, and a sweep over other than two numbers
    as long as `numbers` and `at` do not say which to draw.

        >>> from jaxmbd import plot
        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / x["g"])}
        >>> space = {"length": np.linspace(0.1, 1.0, 10), "g": np.linspace(1.6, 9.8, 8)}
        >>> found = mbd.sweep(period, space, progress=False)
        >>> axes = plot.heat_map(found, "period", units={"period": "s", "length": "m", "g": "m/s²"})
        >>> axes.get_xlabel(), axes.get_ylabel()
        ('length [m]', 'g [m/s²]')
    """
    whole = table_of(found, "heat_map")
    scalar_outputs("heat_map", whole, output)
    known = units_of("heat_map", found, whole, units)
    found, chosen = _selected(found, whole, at or {})
    table = table_of(found, "heat_map")
    x, y = _numbers(whole, table, numbers)
    values = table.outputs[output]
    verdicts = table.verdicts({output: values})
    if axes is None:
        axes = new_figure(*_SIZE).subplots()
    low, high, extend = colour_limits(values)
    cmap, low, high = colour_map(low, high)
    colours: dict[str, Any] = {"cmap": cmap, "vmin": low, "vmax": high}
    draw = _cells if _is_grid(table, (x, y)) else _dots if table.count <= MANY else _means
    drawn = draw(axes, table, (x, y), values, colours)
    for name, scale in ((x, axes.set_xscale), (y, axes.set_yscale)):
        if is_geometric(table.numbers[name]):
            scale("log")
    figure = axes.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(drawn, ax=axes, extend=extend)
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label(plain(labelled(output, known)), fontsize=TEXT)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    if verdicts:
        legend_below(axes, [(failed_patch if draw is _cells else failed_cross)(verdicts, table.count)])
    if chosen:
        text = ", ".join(f"{labelled_value(name, value, known)}" for name, value in chosen.items())
        axes.set_title(plain(f"at {text}"), fontsize=TEXT, loc="left")
    tidy(axes, xlabel=labelled(x, known), ylabel=labelled(y, known))
    return axes


def labelled_value(name: str, value: float, units: Mapping[str, str]) -> str:
    """A number with its value: `"length = 0.3 m"`."""
    return f"{name} = {format_number(value)} {units.get(name, '')}".rstrip()


def _selected(found: "xr.Dataset", table: Table, at: Mapping[str, float]) -> "tuple[xr.Dataset, dict[str, float]]":
    """The part of a sweep at given values of dimensions, and the values that are nearest to them."""
    check_known("number of the sweep", at, table.numbers)
    chosen = {}
    for name, wanted in at.items():
        dims = table.numbers_dims[name]
        if len(dims) != 1 or sum(set(other) == set(dims) for other in table.numbers_dims.values()) > 1:
            raise MechanismError(
                f"heat_map: at={{{name!r}: …}} needs a number with a dimension of its own, and {name!r} varies over "
                f"{dims} together with others."
            )
        values = np.asarray(found[name].values, float)
        point = as_float(wanted)
        is_inside = np.ndim(point) == 0 and values.min() <= float(point) <= values.max()
        if not is_inside:
            raise MechanismError(
                f"heat_map: {name!r} has values from {values.min():g} to {values.max():g}, got "
                f"at={{{name!r}: {wanted!r}}}."
            )
        place = int(np.argmin(np.abs(values - float(point))))
        chosen[name] = float(values[place])
        found = found.isel({dims[0]: place})
    return found, chosen


def _numbers(whole: Table, table: Table, numbers: Sequence[str] | None) -> tuple[str, str]:
    """The numbers along the two axes; an error says how to choose them."""
    varied = table.varied
    names = varied if numbers is None else tuple(numbers)
    check_known("number of the sweep", names, whole.numbers)
    if len(names) == 2 and names[0] == names[1]:
        raise MechanismError(f"heat_map: two different numbers are needed, got {names[0]!r} twice.")
    if len(names) != 2:
        some = ", ".join(map(repr, varied)) or "none"
        more = (
            f" Choose two, numbers=({varied[0]!r}, {varied[1]!r}), and give values of the others, "
            f"at={{{varied[2]!r}: {table.numbers[varied[2]][0]:g}}}; or draw all of them: plot.parallel(found)."
            if len(varied) > 2
            else " Sweep over two numbers; of one, plot.curves(found) draws a curve."
        )
        raise MechanismError(f"heat_map shows an output over two numbers; what varies is {some}.{more}")
    own = {dim for name in names for dim in table.numbers_dims[name]}
    others = [n for n in varied if n not in names and set(table.numbers_dims[n]) - own]
    if others:
        values = {n: np.unique(table.numbers[n]) for n in others}
        text = ", ".join(f"{n!r}: {v[len(v) // 2]:g}" for n, v in values.items())
        raise MechanismError(
            f"heat_map: {', '.join(map(repr, others))} vary too, over dimensions of their own. Give the values at "
            f"which to cut: at={{{text}}}."
        )
    for name in names:
        if name not in varied:
            raise MechanismError(
                f"heat_map: {name!r} has one value only. What varies is {', '.join(map(repr, varied))}."
            )
    return names[0], names[1]


def _is_grid(table: Table, names: tuple[str, str]) -> bool:
    """True if each number has one dimension of its own, and there are no others."""
    dims = [table.numbers_dims[name] for name in names]
    return len(table.dims) == 2 and all(len(own) == 1 for own in dims) and dims[0] != dims[1]


def _cells(axes: Axes, table: Table, names: tuple[str, str], values: np.ndarray, colours: dict[str, Any]) -> Any:
    """A cell for each variant of a grid, with edges in the middle between neighbours."""
    shape = tuple(table.dims.values())
    order = [list(table.dims).index(table.numbers_dims[name][0]) for name in names]
    grid = np.transpose(values.reshape(shape), order).T
    ticks = []
    for name, k in zip(names, order, strict=True):
        column = np.moveaxis(table.numbers[name].reshape(shape), k, 0).reshape(shape[k], -1)[:, 0]
        ticks.append(column)
    edges = [_edges(column) for column in ticks]
    axes.set_facecolor(HATCH["facecolor"])
    axes.patch.set(hatch=HATCH["hatch"], edgecolor=HATCH["edgecolor"], linewidth=0.0)
    return axes.pcolormesh(*edges, np.ma.masked_invalid(grid), rasterized=grid.size > MANY, **colours)


def _edges(values: np.ndarray) -> np.ndarray:
    """The ends of cells around values, which need not be evenly spaced."""
    if is_geometric(values):
        return np.exp(_edges_of(np.log(values)))
    return _edges_of(values)


def _edges_of(values: np.ndarray) -> np.ndarray:
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])


def _dots(axes: Axes, table: Table, names: tuple[str, str], values: np.ndarray, colours: dict[str, Any]) -> Any:
    """A dot for each variant; crosses for those without a value."""
    x, y = (table.numbers[name] for name in names)
    good = np.isfinite(values)
    axes.plot(x[~good], y[~good], gid="failed", **CROSS)
    size = float(np.clip(9000 / max(1, table.count), 8, 60))
    return axes.scatter(
        x[good], y[good], size, values[good], linewidths=0.0, rasterized=table.count > MANY, **colours
    )  # fmt: skip


@dataclass(frozen=True)
class _Binned:
    """Means over cells; the numbers of variants in them, with a value and without one."""

    edges: tuple[np.ndarray, np.ndarray]
    means: np.ndarray
    good: np.ndarray
    failed: np.ndarray


def _means(axes: Axes, table: Table, names: tuple[str, str], values: np.ndarray, colours: dict[str, Any]) -> Any:
    """Means over cells, and over coarser ones crosses as large as the share that failed."""
    x, y = (table.numbers[name] for name in names)
    found, coarse = _binned(x, y, values, _BINS), _binned(x, y, values, _CROSSES)
    share = coarse.failed / np.maximum(coarse.good + coarse.failed, 1)
    at = np.nonzero(share > 0)
    centres = [(edges[1:] + edges[:-1]) / 2 for edges in coarse.edges]
    places = centres[0][at[0]], centres[1][at[1]]
    axes.scatter(*places, 50 * share[at], color=INK, marker="x", linewidths=0.8, gid="failed", zorder=3)
    return axes.pcolormesh(*found.edges, np.ma.masked_invalid(found.means).T, rasterized=True, **colours)


def _binned(x: np.ndarray, y: np.ndarray, values: np.ndarray, most: int) -> _Binned:
    bins = int(np.clip(np.sqrt(len(values) / 10), 10, most))
    edges = tuple(np.linspace(v.min(), v.max(), bins + 1) for v in (x, y))
    good = np.isfinite(values)
    count = np.histogram2d(x[good], y[good], edges)[0]  # pyright: ignore[reportArgumentType]
    total = np.histogram2d(x[good], y[good], edges, weights=values[good])[0]  # pyright: ignore
    failed = np.histogram2d(x[~good], y[~good], edges)[0]  # pyright: ignore[reportArgumentType]
    means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return _Binned((edges[0], edges[1]), means, count, failed)
