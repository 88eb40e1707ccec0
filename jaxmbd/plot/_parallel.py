"""`parallel`: the numbers and outputs of many variants as lines across parallel axes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from jaxmbd.checks import check_count
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.plot._style import SMALL, TEXT, new_figure, plain
from jaxmbd.plot._variants import (
    MANY,
    ROUNDING,
    colour_limits,
    colour_map,
    failed_text,
    is_geometric,
    labelled,
    legend_below,
    some_of,
    units_of,
)
from jaxmbd.printing import format_number
from jaxmbd.scene.pieces import GREY, INK
from jaxmbd.sweeps.table import Table, scalar_outputs, table_of

if TYPE_CHECKING:
    import xarray as xr

_PER_AXIS, _HEIGHT = 1.15, 3.9  # [in]
_BELOW = -0.09  # where lines of variants without a value end, in heights of the axes
_FAILED = "#D55E00"
_DIGITS = 7  # of values that differ little from one another
_NARROW = 0.8  # [in] between axes, below which names are turned and only the ends have numbers


def parallel(
    found: "xr.Dataset",
    outputs: str | Sequence[str] | None = None,
    *,
    colour: str | None = None,
    most: int = MANY,
    units: Mapping[str, str] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw the numbers and outputs of all variants of a sweep as lines across parallel axes.

    Each axis has its own scale, from its least to its largest value. A variant that failed ends below the axes of the
    outputs, in another colour. Of more than `most` variants as many are drawn, evenly over all of them and in the same
    shares of good and failed ones, and the legend says so.

    **Arguments:**

    - `found`: what `sweep` or `read_store` returned; `outputs`: by name; default: all with one number for each variant;
    - `colour`: the number or output that gives lines their colours; default: the last output;
    - `most`: the largest number of lines;
    - `units`: by the names of numbers and outputs, `{"length": "m"}`; default: the attributes `units` of the dataset;
    - `axes`: the axes to draw in; default: a new figure.

    **Returns:** the axes; parallel axis `k` is at `x = k`, with heights from 0 to 1.

    **Raises:** `MechanismError` for unknown names, outputs that are arrays, and a sweep in which no number varies.

        >>> from jaxmbd import plot
        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / x["g"])}
        >>> draws = mbd.sweeps.sobol({"length": (0.1, 1.0), "g": (9.7, 9.9)}, 64, seed=0)
        >>> found = mbd.sweep(period, draws, progress=False)
        >>> axes = plot.parallel(found, units={"period": "s", "length": "m", "g": "m/s²"})
    """
    table = table_of(found, "parallel")
    shown = scalar_outputs("parallel", table, outputs)
    known = units_of("parallel", found, table, units)
    check_count("parallel: most", most, 2)
    if not table.varied:
        raise MechanismError("parallel: no number of the sweep has more than one value.")
    columns = {name: table.numbers[name] for name in table.varied} | shown
    tint = next(reversed(shown)) if colour is None else colour
    check_known("number or output that is drawn", [tint], columns)
    verdicts = table.verdicts(shown)
    lost = np.asarray(~np.isfinite(np.stack(list(shown.values()))).all(axis=0))
    picked = np.concatenate(
        [np.flatnonzero(part)[some_of(int(part.sum()), _share(part, most))] for part in (~lost, lost)]
    )
    if axes is None:
        axes = new_figure(max(4.2, _PER_AXIS * len(columns) + 1.0), _HEIGHT).subplots()
    figure = axes.get_figure(root=True)
    assert figure is not None
    is_narrow = figure.get_figwidth() * axes.get_position().width / len(columns) < _NARROW
    scales = {name: _Scale(column) for name, column in columns.items()}
    heights = np.stack([scales[name].heights(column)[picked] for name, column in columns.items()], axis=1)
    _draw_lines(axes, table, heights, lost[picked], columns[tint][picked], columns[tint], labelled(tint, known))
    _draw_axes(axes, scales, known, len(table.varied), is_narrow)
    notes = []
    if len(picked) < table.count:
        notes.append(Line2D([], [], color="none", label=f"{len(picked):,} of {table.count:,} variants are drawn"))
    if verdicts:
        text = plain(failed_text(verdicts, table.count))
        notes.append(Line2D([], [], color=_FAILED, linewidth=1.2, linestyle="--", label=text))
    legend_below(axes, notes)
    return axes


def _share(part: np.ndarray, most: int) -> int:
    """How many variants of a part are drawn: at least one."""
    return max(1, int(most * part.sum() / len(part))) if len(part) > most else len(part)


class _Scale:
    """The axis of one number or output: linear, or logarithmic for values in equal ratios."""

    def __init__(self, values: np.ndarray) -> None:
        self.is_log = is_geometric(values[np.isfinite(values)])
        x = self._on_axis(values[np.isfinite(values)])
        self.low, self.high = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
        if self.high - self.low <= ROUNDING * max(abs(self.low), abs(self.high)):
            self.low = self.high

    def _on_axis(self, values: np.ndarray) -> np.ndarray:
        return np.log10(values) if self.is_log else values

    def heights(self, values: np.ndarray) -> np.ndarray:
        """Where values are, from 0 to 1; one value only is in the middle."""
        if self.high == self.low:
            return np.where(np.isfinite(values), 0.5, np.nan)
        return (self._on_axis(values) - self.low) / (self.high - self.low)

    def ticks(self) -> tuple[list[float], list[str]]:
        """The ends and what lies evenly between them."""
        if self.high == self.low:
            return [0.5], [format_number(self._value(self.low))]
        at = np.linspace(0.0, 1.0, 5)
        values = self._value(self.low + at * (self.high - self.low))
        if self.is_log:
            return at.tolist(), [f"{value:.3g}" for value in values]
        decimals = 2 - int(np.floor(np.log10(self.high - self.low)))
        return at.tolist(), [f"{np.round(value, decimals) + 0.0:.{_DIGITS}g}" for value in values]

    def _value(self, x: Any) -> Any:
        return 10.0**x if self.is_log else x


def _draw_lines(
    axes: Axes,
    table: Table,
    heights: np.ndarray,
    lost: np.ndarray,
    tints: np.ndarray,
    all_tints: np.ndarray,
    label: str,
) -> None:
    """The variants as lines, good ones coloured, failed ones dashed and ending below."""
    places = np.arange(heights.shape[1], dtype=float)
    lines = np.stack([np.broadcast_to(places, heights.shape), np.where(np.isnan(heights), _BELOW, heights)], axis=2)
    low, high, extend = colour_limits(all_tints)
    name, low, high = colour_map(low, high)
    name = name if name == "viridis" else "coolwarm"  # lines in white would not be seen
    colours = ScalarMappable(Normalize(low, high), colormaps[name])
    count = max(1, len(heights))
    alpha, is_many = float(np.clip(40 / count, 0.15, 0.8)), count > 200
    style: dict[str, Any] = {"linewidths": 0.8 if is_many else 1.1, "alpha": alpha, "rasterized": is_many}
    axes.add_collection(LineCollection(list(lines[~lost]), colors=colours.to_rgba(tints[~lost]), **style))
    if lost.any():
        dashed = LineCollection(list(lines[lost]), colors=_FAILED, linestyles="--", **style)
        dashed.set_gid("failed")
        axes.add_collection(dashed)
    if (~lost).any():
        figure = axes.get_figure(root=True)
        assert figure is not None
        bar = figure.colorbar(colours, ax=axes, extend=extend, pad=0.02)
        bar.ax.tick_params(labelsize=SMALL)
        bar.set_label(plain(label), fontsize=TEXT)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _draw_axes(
    axes: Axes, scales: Mapping[str, _Scale], units: Mapping[str, str], numbers: int, is_narrow: bool
) -> None:
    """The parallel axes with their ticks and names, those of the outputs with a heavier line."""
    turned: Any = {"rotation": 35, "ha": "left"} if is_narrow else {"ha": "center"}
    box: Any = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
    for k, (name, scale) in enumerate(scales.items()):
        heavy = k >= numbers
        axes.plot([k, k], [0, 1], color=INK if heavy else GREY, linewidth=1.4 if heavy else 0.8, zorder=3)
        for at, text in list(zip(*scale.ticks(), strict=True))[:: 4 if is_narrow else 1]:
            axes.plot([k - 0.03, k], [at, at], color=GREY, linewidth=0.8, zorder=3)
            axes.text(k - 0.05, at, text, ha="right", va="center", fontsize=SMALL - 1, color=INK, bbox=box, zorder=4)
        shown = labelled(name, units) if is_narrow else labelled(name, units).replace(" [", "\n[")
        axes.annotate(plain(shown), (k, 1.0), (0, 7), textcoords="offset points", va="bottom", fontsize=SMALL, **turned)
    axes.set_xlim(-0.45, len(scales) - 0.85)
    axes.set_ylim(_BELOW - 0.02, 1.02)
    axes.set_axis_off()
