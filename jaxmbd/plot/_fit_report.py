"""`fit_report`: a fit as one self-contained HTML page, with its tables, pictures and what is to be said about it."""

import base64
import html
import io
import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from jaxmbd.identification._diagnostics import summary
from jaxmbd.identification._result import Fit, Prediction
from jaxmbd.model.body.checks import as_path, check_instance
from jaxmbd.plot._channels import fit
from jaxmbd.plot._style import SMALL, new_figure

_DRAWN = 6  # experiments whose samples are drawn
_STYLE = """
body { font-family: system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .2rem .8rem; text-align: right; }
th { border-bottom: 1px solid #888; font-weight: 600; } td:first-child, th:first-child { text-align: left; }
img { max-width: 100%; } .warning { color: #a33; }
"""


def fit_report(
    result: Fit, path: str | os.PathLike[str], *, title: str = "Fit", unseen: Prediction | None = None
) -> Path:
    """Write a fit as one HTML file that needs no other file and no network.

    It has the estimates with standard errors and 95 % intervals, warnings, tests of the residuals, RMS errors of each
    channel, correlations, and measured and predicted samples of the first experiments.

    **Arguments:** `path`: of the file; `title`; `unseen`: a prediction of experiments that were not used, drawn too.

    **Returns:** the path.

        >>> from jaxmbd import plot
        >>> plot.fit_report(result, "fit.html").name
        'fit.html'
    """
    check_instance("fit_report: result", result, Fit, "a Fit")
    parts = [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(text)}</p>" for text in summary(result))]
    parts += [f'<p class="warning">{html.escape(text)}.</p>' for text in result.warnings]
    parts += ["<h2>Estimates</h2>", _table(_estimates(result))]
    names, correlation = result.correlation_of_rows()
    if correlation is not None and len(names) > 1:
        parts += ["<h2>Correlations</h2>", _picture(_correlations(names, correlation))]
    compared: list[tuple[str, Fit | Prediction]] = [("Measured and predicted", result)]
    compared += [("Experiments that were not used", unseen)] if unseen is not None else []
    for heading, each in compared:
        drawn = [(each, k, f"experiment {k}") for k in range(min(len(each.experiments), _DRAWN))]
        parts += [f"<h2>{heading}</h2>", _table(_errors(each)), _picture(fit(drawn)[0, 0].get_figure())]
    page = f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
    target = as_path("fit_report", path)
    target.write_text(f"{page}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>", encoding="utf-8")
    return target


def _estimates(result: Fit) -> list[list[str]]:
    rows = [["parameter", "estimate", "standard error", "95 % interval", "unit"]]
    return rows + [[row.label, row.estimate, row.error, row.interval, row.unit] for row in result.rows()]


def _errors(result: Fit | Prediction) -> list[list[str]]:
    """RMS errors of each channel over the experiments."""
    rows = [[name, f"{median:.3g}", f"{largest:.3g}", unit] for name, median, largest, unit in result.channel_errors()]
    return [["channel", "RMS, median", "RMS, largest", "unit"], *rows]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ([html.escape(cell) for cell in row] for row in rows)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>{lines}</table>"


def _correlations(names: Sequence[str], values: np.ndarray) -> Figure:
    """The correlation of each pair of parameters, as a coloured number."""
    size = 0.8 + 0.55 * len(names)
    figure = new_figure(size + 0.8, size)
    axes = figure.subplots()
    axes.imshow(values, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=SMALL)
    axes.set_yticks(range(len(names)), names, fontsize=SMALL)
    for i, j in np.ndindex(values.shape):
        if np.isfinite(values[i, j]):
            colour = "white" if abs(values[i, j]) > 0.6 else "black"
            axes.text(j, i, f"{values[i, j]:+.2f}", ha="center", va="center", fontsize=SMALL - 1, color=colour)
    return figure


def _picture(figure: object) -> str:
    assert isinstance(figure, Figure)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    plt.close(figure)
    return f'<p><img alt="" src="data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"></p>'
