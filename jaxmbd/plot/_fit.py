"""`fit`: measured samples and predictions of a fitted model, with residuals."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.errors import MechanismError
from jaxmbd.identification._fit import Fit
from jaxmbd.plot._style import INK, LINES, PALE, SMALL, TEXT, new_figure, tidy

_WIDTH, _HEIGHT = 3.2, 4.6  # the size of one column [in]
_DOTS = 60  # the number of measured samples drawn in each panel: more would hide the line


def fit(results: Fit | Sequence[tuple[Fit, int, str]]) -> np.ndarray:
    """Draw measured samples, predictions and residuals, a column for each experiment.

    **Arguments:** a `Fit`, whose experiments are all drawn, or triples `(fit, experiment's number, title)`.

    **Returns:** the axes, shape `(2, experiments)`: the channels above, model minus measured below.
    """
    if isinstance(results, Fit):
        results = [(results, k, f"experiment {k}") for k in range(len(results.experiments))]
    if not results:
        raise MechanismError("plot.fit needs at least one experiment.")
    figure = new_figure(_WIDTH * len(results) + 0.8, _HEIGHT)
    axes = figure.subplots(2, len(results), sharex="col", sharey="row", squeeze=False, height_ratios=(3, 2))
    for column, (result, number, title) in zip(axes.T, results, strict=True):
        _experiment(column, result, number)
        column[0].set_title(title, fontsize=TEXT)
        column[1].set_xlabel("time [s]", fontsize=TEXT)
    units = channel_units(results[0][0].mechanism)
    unit = ", ".join(dict.fromkeys(units[name] for name in results[0][0].experiments[0].data))
    tidy(axes[0, 0], ylabel=f"[{unit}]")
    tidy(axes[1, 0], ylabel=f"model − measured [10⁻³ {unit}]")
    axes[0, -1].legend(fontsize=SMALL, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    return axes


def _experiment(axes: np.ndarray, result: Fit, number: int) -> None:
    """Draw one experiment: its channels above, their residuals below."""
    experiment = result.experiments[number]
    ts = np.asarray(experiment.ts)
    above, below = axes
    for k, name in enumerate(experiment.data):
        measured = np.asarray(experiment.data[name])
        colour = LINES[k % len(LINES)]
        some = slice(None, None, max(1, len(ts) // _DOTS))
        dots: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 3.5, "markerfacecolor": "none"}
        above.plot(ts[some], measured[some], color=colour, label=f"{name}, measured", **dots)
        above.plot(ts, result.predicted[number][name], color=colour, linewidth=1.2, label=f"{name}, model")
        below.plot(ts, 1e3 * result.residuals[number][name], color=colour, linewidth=1.0)
    below.axhline(0.0, color=INK, linewidth=0.6)
    for panel in axes:
        panel.grid(True, color=PALE, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.margins(x=0.01)
        tidy(panel)
