"""Many lines in one picture: names at their ends, and small panels side by side."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from jaxmbd.plot._style import PALE, SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.scene.curves import CURVES, Curve, Panel

LINE = 0.145  # [in] that a name at the end of a line takes
_SMALL_WIDTH, _SMALL_HEIGHT = 1.85, 1.45  # [in] of a small panel
_COLUMNS = 4
_LEADER: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 1.0, "shrinkB": 0.0, "relpos": (0, 0.5)}


def line_colour(k: int) -> str:
    """The colour of line `k`; in place of black that of texts, which is seen on a dark ground too."""
    colour = CURVES[k % len(CURVES)]
    return plt.rcParams["text.color"] if colour == "#000000" else colour


def names_at_ends(axes: Axes, ts: np.ndarray, curves: Sequence[Curve]) -> None:
    """Write the name of each line beside its end, in its colour, apart from one another."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    ends = np.asarray([_last(curve.values) for curve in curves])
    wanted = np.clip((ends - low) / (high - low), 0.0, 1.0)
    figure = axes.get_figure(root=True)
    assert figure is not None
    height = figure.get_figheight() * axes.get_position().height
    places = apart(wanted, LINE / max(height, LINE))
    for k, (curve, at) in enumerate(zip(curves, places, strict=True)):
        colour, start = line_colour(k), (float(ts[-1]), float(ends[k]))
        axes.annotate(
            plain(curve.label), start, (1.06, float(at)), "data", "axes fraction", fontsize=SMALL, color=colour,
            va="center", ha="left", annotation_clip=False,
            arrowprops={"color": colour, **_LEADER},
        )  # fmt: skip


def _last(values: np.ndarray) -> float:
    """The last value that is known; 0 if there is none."""
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else 0.0


def apart(wanted: np.ndarray, least: float) -> np.ndarray:
    """Return places in [0, 1] that are as near to those wanted as they can be with a least distance.

    Least squares under an order: places that would come too near form blocks about their mean.
    """
    order = np.argsort(wanted, kind="stable")
    least = min(least, 1.0 / max(1, len(wanted) - 1))
    blocks: list[tuple[float, int]] = []  # mean and size, of what is wanted less the distances below
    for k, value in enumerate(wanted[order]):
        mean, size = float(value) - k * least, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    means = np.concatenate([np.full(size, mean) for mean, size in blocks])
    top = 1.0 - (len(wanted) - 1) * least
    found = np.empty(len(wanted))
    found[order] = np.clip(means, 0.0, max(top, 0.0)) + least * np.arange(len(wanted))
    return found


def draw_small(panels: Sequence[Panel], ts: np.ndarray) -> tuple[Axes, ...]:
    """Small panels side by side, those of one unit to one scale; a colour for each component, named once below."""
    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(max(3.2, _SMALL_WIDTH * columns + 0.4), _SMALL_HEIGHT * rows + 0.7)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    names: list[str] = []
    for axes, panel in zip(grid, panels, strict=False):
        for curve in panel.curves:
            _, component = _split(curve.label)
            if component not in names:
                names.append(component)
            axes.plot(ts, curve.values, color=line_colour(names.index(component)), linewidth=1.2)
        axes.set_title(plain(_split(panel.curves[0].label)[0]), fontsize=SMALL, loc="left", pad=3)
        axes.axhline(0.0, color=PALE, linewidth=0.8, zorder=0)
        axes.margins(x=0.01)
    used = grid[: len(panels)]
    for unit in dict.fromkeys(panel.unit for panel in panels):
        same = [axes for axes, panel in zip(used, panels, strict=True) if panel.unit == unit]
        ends = np.asarray([axes.get_ylim() for axes in same])
        for axes in same:
            axes.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    for k, (axes, panel) in enumerate(zip(used, panels, strict=True)):
        is_first = k % columns == 0 or panels[k - 1].unit != panel.unit
        tidy(axes, ylabel=f"[{panel.unit}]" if panel.unit and is_first else "")
        axes.tick_params(labelbottom=k + columns >= len(panels))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.supxlabel("time [s]", fontsize=TEXT)
    lines = [Line2D([], [], color=line_colour(k), label=plain(name)) for k, name in enumerate(names)]
    figure.legend(handles=lines, loc="outside upper left", ncols=min(6, len(lines)), fontsize=SMALL, frameon=False)
    return tuple(used)


def _split(label: str) -> tuple[str, str]:
    """The part and what it is of the part: `"O"`, `"fx"`."""
    part, _, component = label.partition(".")
    return (part, component) if component else (label, label)
