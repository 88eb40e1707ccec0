"""Sizes of text, and the frame of all diagrams."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from jaxmbd.scene.pieces import GREY

PALE = "#d9d9d9"

TEXT = 9  # [pt]
SMALL = 8  # [pt]


def plain(text: str) -> str:
    """Text with names of users, as matplotlib has to be given it to show it as it is.

    A dollar sign would begin a formula, and a label that begins with an underscore would be left out of legends.
    """
    return ("\N{ZERO WIDTH SPACE}" if text.startswith("_") else "") + text.replace("$", r"\$")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure [in] with a layout engine that makes room for labels and legends."""
    return plt.figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))


def tidy(axes: Axes, **labels: str) -> None:
    """Apply the common frame: thin spines on the left and below, small ticks, labels of one size."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
        axes.spines[side].set_linewidth(0.8)
    axes.tick_params(labelsize=SMALL, color=GREY, width=0.8)
    for name, text in labels.items():
        getattr(axes, f"set_{name}")(plain(text), fontsize=TEXT)
