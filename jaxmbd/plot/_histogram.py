"""`histogram`: how the outputs of a sweep are distributed, and how many variants failed and why."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from jaxmbd.checks import check_count
from jaxmbd.plot._style import PALE, SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.plot._variants import HATCH, ROUNDING, labelled, units_of
from jaxmbd.printing import format_number
from jaxmbd.scene.curves import CURVES
from jaxmbd.scene.pieces import INK
from jaxmbd.sweeps.table import Table, scalar_outputs, table_of

if TYPE_CHECKING:
    import xarray as xr

VERDICTS = "verdicts"
_WIDTH, _HEIGHT = 3.3, 2.3  # [in] of one panel
_TWO = 4.6  # [in] of width, from which on there are two columns
_MOST_BINS = 60
_LETTERS = 13  # of small text in an inch of the figure's width, without its margins


def histogram(
    found: "xr.Dataset",
    outputs: str | Sequence[str] | None = None,
    *,
    bins: int | None = None,
    units: Mapping[str, str] | None = None,
    width: float | None = None,
) -> dict[str, Axes]:
    """Draw how outputs are distributed over the variants of a sweep, and the verdicts of all variants.

    The line is the median, the pale band has 90 % of the values. Variants that failed have no values; the last panel
    counts them by their reasons.

    **Arguments:**

    - `found`: what `sweep` or `read_store` returned; `outputs`: by name; default: all with one number for each variant;
    - `bins`: the number of bars, chosen by the rule of Freedman and Diaconis unless given;
    - `units`: by the names of outputs, `{"period": "s"}`; default: the attributes `units` of the dataset;
    - `width`: of the figure `[in]`, 6.6 unless given; below 4.6 the panels are one below the other.

    **Returns:** the axes of the outputs by name, and those of the verdicts as `"verdicts"`.

    **Raises:** `MechanismError` for unknown names, and outputs that are arrays.

        >>> from jaxmbd import plot
        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / 9.81)}
        >>> draws = mbd.sweeps.tolerances({"length": mbd.sweeps.Normal(1.0, 1e-3)}, 200, seed=0)
        >>> axes = plot.histogram(mbd.sweep(period, draws, progress=False), units={"period": "s"})
        >>> list(axes)
        ['period', 'verdicts']

    Source: Freedman, Diaconis, *On the histogram as a density estimator*, Z. Wahrscheinlichkeitstheorie 57 (1981).
    """
    table = table_of(found, "histogram")
    shown = scalar_outputs("histogram", table, outputs)
    known = units_of("histogram", found, table, units)
    if bins is not None:
        check_count("histogram: bins", bins, 1, 10_000)
    verdicts = _counts(table, shown)
    wide = 2 * _WIDTH if width is None else width
    columns = 1 if len(shown) == 1 or wide < _TWO else 2
    rows = math.ceil(len(shown) / columns)
    said = _said(verdicts, table.count, wide)
    last = (0.16 + 0.14 * max(1 + text.count("\n") for text in said)) * len(said) + 0.6
    figure = new_figure(wide, _HEIGHT * rows + last)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[_HEIGHT] * rows + [last])
    panels = {}
    for k, (name, values) in enumerate(shown.items()):
        panels[name] = axes = figure.add_subplot(grid[k // columns, k % columns])
        _distribution(axes, values[np.isfinite(values)], bins)
        tidy(axes, xlabel=labelled(name, known), ylabel="variants")
    _verdicts(figure.add_subplot(grid[rows, :]), verdicts, said, table.count)
    return panels | {VERDICTS: figure.axes[-1]}


def _distribution(axes: Axes, values: np.ndarray, bins: int | None) -> None:
    if not len(values):
        axes.text(0.5, 0.5, "no variant has a value", ha="center", va="center", transform=axes.transAxes, fontsize=TEXT)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    edges = _edges(values, bins)
    low, middle, high = np.percentile(values, (5, 50, 95))
    axes.axvspan(low, high, color=PALE, alpha=0.6, linewidth=0.0, zorder=0)
    axes.hist(values, edges.tolist(), color=CURVES[0], edgecolor="white", linewidth=0.4 if len(edges) < 40 else 0.0)
    axes.axvline(middle, color=CURVES[1], linewidth=1.4)
    axes.set_title(f"median {format_number(middle)}", fontsize=SMALL, loc="left", color=INK)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))


def _edges(values: np.ndarray, bins: int | None) -> np.ndarray:
    """The ends of the bars; one bar if all values are equal to rounding."""
    low, high = float(values.min()), float(values.max())
    if high - low <= ROUNDING * max(abs(low), abs(high)):
        wide = 0.5 * max(abs(low), 1.0) * 1e-3
        return np.array([low - wide, high + wide])
    if bins is None:
        quarter = float(np.subtract(*np.percentile(values, (75, 25))))
        width = 2 * quarter / len(values) ** (1 / 3)
        bins = math.ceil((high - low) / width) if width > 0 else _MOST_BINS
        bins = int(np.clip(bins, min(10, len(values)), _MOST_BINS))
    return np.linspace(low, high, bins + 1)


def _counts(table: Table, shown: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The number of variants by their verdict."""
    failures = table.verdicts(shown)
    return {"successful": table.count - sum(failures.values()), **failures}


def _said(counts: Mapping[str, int], total: int, wide: float) -> list[str]:
    """What is written at the bars: numbers, shares and reasons, in lines that have room inside or beside them."""
    found = []
    for text, number in counts.items():
        share = number / total
        room = int(_LETTERS * wide * (share if share > 0.5 else 1 - share))
        said = f"{number:,} ({100 * share:.3g} %) {text.split('. ')[0].rstrip('.')}"
        found.append("\n".join(textwrap.wrap(said, max(12, room))))
    return found


def _verdicts(axes: Axes, counts: Mapping[str, int], said: Sequence[str], total: int) -> None:
    """A bar for each verdict, with the number of variants and the reason."""
    for k, (number, text) in enumerate(zip(counts.values(), said, strict=True)):
        look: dict[str, Any] = {"color": CURVES[2]} if k == 0 else HATCH
        axes.barh(k, number, height=0.62, **look)
        is_long = number > 0.5 * total
        place: Any = {"xytext": (-4, 0), "ha": "right"} if is_long else {"xytext": (4, 0), "ha": "left"}
        frame: Any = None if k == 0 or not is_long else {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        place |= {"color": "white" if k == 0 and is_long else INK, "bbox": frame}
        note = axes.annotate(plain(text), (number, k), textcoords="offset points", va="center", fontsize=SMALL, **place)
        note.set_in_layout(False)
    axes.set_yticks([])
    axes.set_ylim(len(counts) - 0.5, -0.6)
    axes.set_xlim(0, total)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    tidy(axes, xlabel=f"variants, of {total:,}")
