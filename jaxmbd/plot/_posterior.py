"""`posterior`: samples of a posterior distribution beside the Laplace approximation."""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from matplotlib.axes import Axes

from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification import Posterior
from jaxmbd.plot._style import SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.scene.curves import CURVES

_WIDTH, _HEIGHT = 2.4, 1.5  # [in] of one panel
_COLUMNS = 4
_BINS = 40


def posterior(samples: Posterior, names: Sequence[str] | None = None) -> dict[str, Axes]:
    """Plot the distribution of each unknown: samples of all chains, and the normal distribution of the Laplace
    approximation as a line, both in its standard deviations from the estimate.

    Where the two differ, standard errors and intervals of the fit do not tell all.

    **Arguments:** `samples`, from `identification.sample_posterior`; `names` of unknowns; default: all.

    **Returns:** the axes, by name.

    **Raises:** `MechanismError` for names of unknowns that there are not.

        >>> from jaxmbd import plot
        >>> samples = mbd.identification.sample_posterior(result, draws=500)  # doctest: +SKIP
        >>> axes = plot.posterior(samples, ["mass", "stiffness"])  # doctest: +SKIP
    """
    check_instance("samples", samples, Posterior, "a Posterior, sample_posterior(result)")
    chosen = list(samples.samples if names is None else names)
    check_known("unknown", chosen, samples.samples)
    if not chosen:
        raise MechanismError("posterior: names is empty; leave it out for all unknowns.")
    columns = min(_COLUMNS, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure = new_figure(_WIDTH * columns, _HEIGHT * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for name, ax in zip(chosen, panels, strict=False):
        centre, deviation = samples.estimates[name], samples.laplace[name]
        x = (samples.samples[name].ravel() - centre) / deviation
        ends = min(x.min(), -3.0), max(x.max(), 3.0)
        ax.hist(x, np.linspace(*ends, _BINS + 1), density=True, color=CURVES[5], label="samples")
        at = np.linspace(*ends, 201)
        ax.plot(at, scipy.stats.norm.pdf(at), color=CURVES[1], linewidth=1.5, label="Laplace approximation")
        ax.set_title(
            plain(f"{name} = {centre:.5g} ± {deviation:.2g} {samples.units[name]}"), fontsize=SMALL, loc="left"
        )
        ax.set_yticks([])
        tidy(ax)
        ax.spines["left"].set_visible(False)
    for ax in panels[len(chosen) :]:
        ax.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.supxlabel("standard deviations from the estimate", fontsize=TEXT)
    figure.legend(handles, labels, loc="outside upper right", ncols=2, fontsize=SMALL, frameon=False)
    return dict(zip(chosen, panels, strict=False))
