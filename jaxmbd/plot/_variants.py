"""What pictures of variants share: units, verdicts of those that failed, axes of numbers, and which are drawn."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jaxmbd.checks import check_mapping
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.plot._style import PALE, SMALL, plain
from jaxmbd.printing import with_unit
from jaxmbd.scene.pieces import GREY, INK
from jaxmbd.sweeps.table import Table

if TYPE_CHECKING:
    import xarray as xr

MANY = 2000  # marks and lines up to which each variant has its own; above, pixels
HATCH: dict[str, Any] = {"facecolor": PALE, "edgecolor": GREY, "hatch": "////", "linewidth": 0.0}
CROSS: dict[str, Any] = {
    "linestyle": "none", "marker": "x", "color": INK, "markersize": 4, "markeredgewidth": 0.8
}  # fmt: skip
ROUNDING = 1e-6  # share of a value, below which differences are those of steps, and no picture
_WRAPPED = 46  # characters in a line of a legend


def units_of(what: str, found: "xr.Dataset", table: Table, units: Mapping[str, str] | None) -> dict[str, str]:
    """The units of numbers and outputs: those given, or else the attribute `units` of the dataset's variables."""
    names = (*table.numbers, *table.outputs)
    given = {} if units is None else units
    check_mapping(f"{what}: units", given, '{"length": "m"}')
    check_known(f"number or output in the units of {what}", given, names)
    for name, unit in given.items():
        if not isinstance(unit, str):
            raise MechanismError(f'{what}: the unit of {name!r} must be a text such as "m", got {unit!r}.')
    return {name: given.get(name, str(found[name].attrs.get("units", ""))) for name in names}


def labelled(name: str, units: Mapping[str, str]) -> str:
    """A name with its unit: `"length [m]"`."""
    return with_unit(name, units.get(name, ""))


def failed_text(verdicts: Mapping[str, int], count: int) -> str:
    """How many variants failed and why, in lines for a legend: `"12 of 180 failed"`, then each reason."""
    lost = sum(verdicts.values())
    lines = [f"{lost:,} of {count:,} failed"]
    for text, number in verdicts.items():
        reason = text.split(". ")[0].split(": ")[0].rstrip(".")
        share = reason if len(verdicts) == 1 else f"{number:,}: {reason}"
        lines += textwrap.wrap(share, _WRAPPED)
    return "\n".join(lines)


def legend_below(axes: Axes, handles: Sequence[Artist], columns: int = 1) -> None:
    """A legend below the picture, where it covers nothing."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    look: dict[str, Any] = {"handles": list(handles), "fontsize": SMALL, "frameon": False, "ncols": columns}
    if handles and isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.legend(loc="outside lower left", **look)
    elif handles:  # a figure of the user's, in which nobody makes room
        figure.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), bbox_transform=axes.transAxes, **look)


def failed_patch(verdicts: Mapping[str, int], count: int) -> Patch:
    """The entry of a legend for places without a value, which are hatched."""
    return Patch(**HATCH, label=plain(failed_text(verdicts, count)))


def failed_cross(verdicts: Mapping[str, int], count: int) -> Line2D:
    """The entry of a legend for variants without a value, which are crosses."""
    return Line2D([], [], **CROSS, label=plain(failed_text(verdicts, count)))


def is_geometric(values: np.ndarray) -> bool:
    """True if values are in equal ratios and not in equal steps, over more than a factor of five."""
    x = np.unique(values)
    if len(x) < 3 or x[0] <= 0 or x[-1] < 5 * x[0]:
        return False
    steps, ratios = np.diff(x), np.diff(np.log(x))
    return bool(np.ptp(ratios) < 0.01 * ratios.max() and np.ptp(steps) > 0.1 * steps.max())


def colour_limits(values: np.ndarray) -> tuple[float, float, str]:
    """The ends of a scale of colours, and at which of them values lie beyond: a few far ones take no colours of all."""
    x = values[np.isfinite(values)]
    if not len(x):
        return 0.0, 1.0, "neither"
    low, high = float(x.min()), float(x.max())
    if high - low <= ROUNDING * max(abs(low), abs(high)):
        wide = 0.05 * max(abs(low), abs(high)) or 1.0
        return low - wide, high + wide, "neither"
    inner_low, inner_high = (float(v) for v in np.percentile(x, (2, 98)))
    spread = inner_high - inner_low
    cut_low, cut_high = low < inner_low - 3 * spread, high > inner_high + 3 * spread
    low, high = inner_low if cut_low and spread > 0 else low, inner_high if cut_high and spread > 0 else high
    extend = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[int(cut_low), int(cut_high)]
    return low, high, extend if spread > 0 else "neither"


def colour_map(low: float, high: float) -> tuple[str, float, float]:
    """The map of colours, readable for colour-blind readers and in grey, and its ends: about zero, which is pale, if
    values lie on both sides of it."""
    if low < 0 < high and min(-low, high) > 0.1 * max(-low, high):
        most = max(-low, high)
        return "RdBu_r", -most, most
    return "viridis", low, high


def some_of(count: int, most: int) -> np.ndarray:
    """So many numbers of variants at most, evenly over all of them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
