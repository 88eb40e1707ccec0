"""`channels`, `fit`: named quantities over time, measured and computed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import lazy_loader
import numpy as np
from matplotlib.axes import Axes

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError
from jaxmbd.plot._many_lines import LINE, draw_small, line_colour, names_at_ends
from jaxmbd.plot._style import PALE, SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.scene.curves import CURVES, Panel, panels_of
from jaxmbd.scene.pieces import INK

if TYPE_CHECKING:
    from jaxmbd import identification
    from jaxmbd.identification import Fit, Prediction
else:  # quantities of a motion need nothing of fits
    identification = lazy_loader.load("jaxmbd.identification", suppress_warning=True)

_WIDTH, _HEIGHT = 6.4, 2.1  # the size of one panel [in]
_COLUMN = (3.2, 4.6)  # the size of one experiment's column [in]
_DOTS = 60  # the number of measured samples drawn for each channel of an experiment: more would hide the line
_DASHES = ("-", "--", "-.", ":")
_MANY = 7  # the number of lines in a panel after which colours repeat with another dash


def channels(
    solution: Solution,
    names: str | Iterable[str],
    *,
    axes: Axes | Sequence[Axes] | None = None,
    measured: Mapping[str, object] | None = None,
    panels: Literal["unit", "name", "part"] = "unit",
) -> tuple[Axes, ...]:
    """Plot named quantities of a motion against time.

    **Arguments:**

    - `names`: any of `solution.names`; a quantity with components, such as a position, gives a line for each;
    - `axes`: one for each panel; default: a new figure;
    - `measured`: samples by name, drawn as dots: values `(times,)` or `(times, k)` at `solution.ts`, or a
      pair `(times, values)`;
    - `panels`: one for each unit (`"unit"`), one for each name (`"name"`), or small ones side by side to one scale, for
      each part and unit (`"part"`): the reactions of many joints.

    More than seven lines in a panel have their names at their ends, in their colours.

    **Returns:** the axes of the panels, from the top, small ones row by row.

    **Raises:** `MechanismError` for unknown names, samples that do not fit, or a wrong number of axes.

        >>> from jaxmbd import plot
        >>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))
        >>> axes = plot.channels(solution, ["O.fx", "O.fy", "O.angle"])
        >>> len(axes)  # forces in one panel, the angle in the other
        2
    """
    check_instance("solution", solution, Solution, "a Solution of simulate or kinematics")
    found = panels_of(solution, names, measured or {}, panels)
    if not found:
        raise MechanismError("channels needs at least one name of solution.names.")
    if panels == "part" and axes is None:
        return draw_small(found, np.asarray(solution.ts))
    panel_axes = _axes(axes, found)
    for ax, panel in zip(panel_axes, found, strict=True):
        _draw(ax, panel, np.asarray(solution.ts))
    panel_axes[-1].set_xlabel("time [s]", fontsize=TEXT)
    return panel_axes


def _axes(axes: Axes | Sequence[Axes] | None, panels: Sequence[Panel]) -> tuple[Axes, ...]:
    count = len(panels)
    if axes is None:
        heights = [max(_HEIGHT, LINE * len(panel.curves)) for panel in panels]  # room for names at the ends of lines
        figure = new_figure(_WIDTH, sum(heights) + 0.5)
        return tuple(figure.subplots(count, 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
    several = (axes,) if isinstance(axes, Axes) else tuple(axes)
    if len(several) != count:
        raise MechanismError(f"These names need {count} axes, one for each panel; got {len(several)}.")
    return several


def _draw(axes: Axes, panel: Panel, ts: np.ndarray) -> None:
    """Draw the lines and samples of one panel, with a legend if there are several."""
    for k, curve in enumerate(panel.curves):
        style: dict[str, Any] = {"color": line_colour(k), "label": plain(curve.label)}
        axes.plot(ts, curve.values, linestyle=_DASHES[k // _MANY % len(_DASHES)], linewidth=1.5, **style)
        if curve.measured is not None:
            _dots(axes, *curve.measured, style)
    axes.margins(x=0.01)
    axes.grid(True, color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    if len(panel.curves) > _MANY:
        names_at_ends(axes, ts, panel.curves)
    elif len(panel.curves) > 1 or any(curve.measured is not None for curve in panel.curves):
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
        axes.legend(fontsize=SMALL, frameon=False, handlelength=1.6, **beside)
    tidy(axes, ylabel=panel.title)


def _dots(axes: Axes, ts: np.ndarray, values: np.ndarray, style: Mapping[str, Any]) -> None:
    look: dict[str, Any] = {
        "marker": "o",
        "linestyle": "none",
        "markersize": 3.5,
        "markeredgewidth": 0.0,
        "alpha": 0.55,
    }
    axes.plot(ts, values, color=style["color"], label=f"{style['label']}, measured", zorder=1.8, **look)


# --- experiments ----------------------------------------------------------------------------------------


def fit(
    results: "Fit | Prediction | Sequence[tuple[Fit | Prediction, int, str]]", *, width: float | None = None
) -> np.ndarray:
    """Draw measured samples, predictions and residuals, a column for each experiment.

    **Arguments:** a `Fit` or a `Prediction`, whose experiments are all drawn, or triples `(fit, experiment's number,
    title)`; `width` of the figure [in]; default: 3.2 for each experiment.

    **Returns:** the axes, shape `(2 units, experiments)`: for each unit the channels that have it and, below them,
    model minus measured.

        >>> from jaxmbd import plot
        >>> axes = plot.fit(result)
    """
    if isinstance(results, identification.Fit | identification.Prediction):
        results = [(results, k, f"experiment {k}") for k in range(len(results.experiments))]
    if not results:
        raise MechanismError("plot.fit needs at least one experiment.")
    units = {name: unit for one, number, _ in results for name, unit in _units(one, number).items()}
    kinds = list(dict.fromkeys(units.values()))
    size = _COLUMN[0] * len(results) + 0.8 if width is None else width, _COLUMN[1] * len(kinds)
    layout: Any = {"sharex": "col", "sharey": "row", "squeeze": False, "height_ratios": (3, 2) * len(kinds)}
    axes = new_figure(*size).subplots(2 * len(kinds), len(results), **layout)
    for column, (result, number, title) in zip(axes.T, results, strict=True):
        for k, unit in enumerate(kinds):
            _experiment(column[2 * k : 2 * k + 2], result, number, [name for name in units if units[name] == unit])
        column[0].set_title(plain(title), fontsize=TEXT)
        column[-1].set_xlabel("time [s]", fontsize=TEXT)
    for k, unit in enumerate(kinds):
        above, below = axes[2 * k : 2 * k + 2]
        tidy(above[0], ylabel=f"[{unit}]" if unit else "")
        tidy(below[0], ylabel=f"model − measured [10⁻³ {unit}]" if unit else "model − measured [10⁻³]")
        beside: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
        drawn = {line.get_label(): line for panel in above for line in panel.get_lines()}
        above[-1].legend(handles=list(drawn.values()), fontsize=SMALL, frameon=False, **beside)
    return axes


def _units(result: "Fit | Prediction", number: int) -> dict[str, str]:
    """The units of the channels of an experiment."""
    units = result.channel_units()
    return {name: units[name] for name in result.experiments[number].data}


def _experiment(axes: np.ndarray, result: "Fit | Prediction", number: int, names: Sequence[str]) -> None:
    """Draw those of some channels that an experiment has: above, and their residuals below."""
    experiment = result.experiments[number]
    ts, some = np.asarray(experiment.ts), slice(None, None, max(1, len(experiment.ts) // _DOTS))
    above, below = axes
    for k, name in enumerate(names):
        if name not in experiment.data:
            continue
        style: Any = {"color": CURVES[k % len(CURVES)]}
        dots: Any = {"marker": "o", "linestyle": "none", "markersize": 3.5, "markerfacecolor": "none"}
        measured = np.asarray(experiment.data[name])
        above.plot(ts[some], measured[some], label=plain(f"{name}, measured"), **style, **dots)
        above.plot(ts, result.predicted[number][name], label=plain(f"{name}, model"), linewidth=1.2, **style)
        below.plot(ts, 1e3 * result.residuals[number][name], linewidth=1.0, **style)
    below.axhline(0.0, color=INK, linewidth=0.6)
    for panel in axes:
        panel.grid(True, color=PALE, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.margins(x=0.01)
        tidy(panel)
