"""`posterior`: samples of a posterior distribution beside the Laplace approximation."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import norm

from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification import Posterior
from jaxmbd.model.body.checks import check_instance
from jaxmbd.plot._style import LINES, SMALL, TEXT, new_figure, tidy

_WIDTH, _HEIGHT = 2.2, 1.7  # [in] of one panel
_COLUMNS = 4
_BINS = 40


def posterior(samples: Posterior, names: Sequence[str] | None = None) -> dict[str, Axes]:
    """Plot the distribution of each unknown: samples of all chains, and the normal distribution of the Laplace
    approximation as a line.

    Where the two differ, standard errors and intervals of the fit do not tell all.

    **Arguments:** `samples`, from `identification.sample_posterior`; `names` of unknowns; default: all.

    **Returns:** the axes, by name.

    **Raises:** `MechanismError` for names of unknowns that there are not.

        >>> posterior(sample_posterior(result), ["mass", "stiffness"])
    """
    check_instance("samples", samples, Posterior, "a Posterior, sample_posterior(result)")
    chosen = list(samples.samples if names is None else names)
    check_known("unknown", chosen, samples.samples)
    if not chosen:
        raise MechanismError("posterior: names is empty; leave it out for all unknowns.")
    columns = min(_COLUMNS, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    panels = new_figure(_WIDTH * columns, _HEIGHT * rows).subplots(rows, columns, squeeze=False).ravel()
    for name, ax in zip(chosen, panels, strict=False):
        centre, deviation = samples.estimates[name], samples.laplace[name]
        x = samples.samples[name].ravel()
        ends = min(x.min(), centre - 3 * deviation), max(x.max(), centre + 3 * deviation)
        ax.hist(x, np.linspace(*ends, _BINS + 1), density=True, color=LINES[5], label="samples")
        at = np.linspace(*ends, 200)
        ax.plot(at, norm.pdf(at, centre, deviation), color=LINES[1], linewidth=1.5, label="Laplace approximation")
        ax.set_title(name, fontsize=TEXT, loc="left")
        ax.set_yticks([])
        ax.locator_params(axis="x", nbins=4)
        tidy(ax, xlabel=f"[{samples.units[name]}]" if samples.units[name] else "")
        ax.spines["left"].set_visible(False)
    for ax in panels[len(chosen) :]:
        ax.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(handles, labels, loc="outside upper right", ncols=2, fontsize=SMALL, frameon=False)
    return dict(zip(chosen, panels, strict=False))
