"""`fit_report`: a fit as one self-contained HTML page, with its tables, pictures and what is to be said about it."""

import html
import io
import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from jaxmbd.checks import as_path, check_instance
from jaxmbd.identification.diagnostics import summary
from jaxmbd.identification.result import Fit, Prediction
from jaxmbd.plot._channels import fit
from jaxmbd.plot._style import PALE, SMALL, new_figure, plain
from jaxmbd.scene.pages import page_theme

_DRAWN, _BESIDE = 6, 3  # experiments whose samples are drawn, and how many of them side by side
_WIDE = 10.5  # [in] the width of pictures that take the whole page
_LEAST = 560  # [px] the least width at which a picture is shown: on a telephone it is moved sideways
# Colours of pictures, and those of the page in their place, which are light or dark.
_COLOURS = {"#222222": "ink", "#000000": "ink", "#808080": "grey", PALE: "pale"}
_DARK_TEXT = "#010101"  # on pale colours, light or dark
_STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.25rem; margin: 0 0 .6rem; } h2 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; max-width: 60rem; } .warning { color: var(--warning); }
.pair { display: flex; flex-wrap: wrap; gap: 0 3rem; } .pair > * { min-width: 0; }
.pair > :first-child { flex: 1 1 30rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; white-space: nowrap; }
th { border-bottom: 1px solid var(--grey); font-weight: 600; } tr + tr td { border-top: 1px solid var(--pale); }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
svg { display: block; height: auto; fill: var(--ink); }
"""
_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style}</style>
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
    said = [f"<p>{html.escape(text)}</p>" for text in summary(result)]
    said += [f'<p class="warning">{html.escape(text)}.</p>' for text in result.warnings]
    parts = [f"<h1>{html.escape(title)}</h1>", *said]
    tables = [f"<div><h2>Estimates</h2>{_table(_estimates(result))}</div>"]
    names, correlation = result.correlation_of_rows()
    if correlation is not None and len(names) > 1:
        tables.append(f"<div><h2>Correlations</h2>{_picture(_correlations(names, correlation), is_wide=False)}</div>")
    parts.append(f'<div class="pair">{"".join(tables)}</div>')
    compared: list[tuple[str, Fit | Prediction]] = [("Measured and predicted", result)]
    compared += [("Experiments that were not used", unseen)] if unseen is not None else []
    for heading, each in compared:
        parts += [f"<h2>{heading}</h2>", _table(_errors(each))]
        drawn = [(each, k, f"experiment {k}") for k in range(min(len(each.experiments), _DRAWN))]
        for start in range(0, len(drawn), _BESIDE):
            parts.append(_picture(fit(drawn[start : start + _BESIDE], width=_WIDE)[0, 0].get_figure()))
    target = as_path("fit_report", path)
    target.write_text(_HEAD.format(title=html.escape(title), style=page_theme() + _STYLE) + "".join(parts), "utf-8")
    return target


def _estimates(result: Fit) -> list[list[str]]:
    rows = [["parameter", "estimate", "standard error", "95 % interval", "unit"]]
    return rows + [[row.label, row.estimate, row.error, row.interval, row.unit] for row in result.rows()]


def _errors(result: Fit | Prediction) -> list[list[str]]:
    """RMS errors of each channel over the experiments; of a fit, those of experiments that are left out, too."""
    rows = [[name, f"{median:.3g}", f"{largest:.3g}", unit] for name, median, largest, unit in result.channel_errors()]
    head = ["channel", "RMS, median", "RMS, largest", "unit"]
    left_out = {one.name: one for one in result.left_out_errors()} if isinstance(result, Fit) else {}
    if left_out:
        head[3:3] = ["left out, median", "left out, largest"]
        for row in rows:
            row[3:3] = [f"{x:.3g}" for x in (left_out[row[0]].median, left_out[row[0]].largest)]
    return [head, *rows]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ([html.escape(cell) for cell in row] for row in rows)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    heading = "".join(f"<th>{cell}</th>" for cell in head)
    return f'<div class="wide"><table><tr>{heading}</tr>{lines}</table></div>'


def _correlations(names: Sequence[str], values: np.ndarray) -> Figure:
    """The correlation of each pair of parameters, as a coloured number."""
    size = 0.8 + 0.55 * len(names)
    figure = new_figure(size + 0.8, size)
    axes = figure.subplots()
    axes.imshow(values, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    names = [plain(name) for name in names]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=SMALL)
    axes.set_yticks(range(len(names)), names, fontsize=SMALL)
    for i, j in np.ndindex(values.shape):
        if np.isfinite(values[i, j]):
            colour = "white" if abs(values[i, j]) > 0.6 else _DARK_TEXT
            axes.text(j, i, f"{values[i, j]:+.2f}", ha="center", va="center", fontsize=SMALL - 1, color=colour)
    return figure


def _picture(figure: object, is_wide: bool = True) -> str:
    """A figure as part of the page, in its colours and, if it is wide, over its whole width."""
    assert isinstance(figure, Figure)
    stream, wide = io.StringIO(), figure.get_size_inches()[0]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "jaxmbd"}):  # a fit has one report
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    for colour, name in _COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    size = f"width: 100%; min-width: {_LEAST}px" if is_wide else f"width: {wide:.2f}in"
    sized = text.replace("<svg", f'<svg style="{size}"', 1)
    return f'<div class="wide">{sized}</div>'
