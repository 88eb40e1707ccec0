"""Colours and sizes of all pictures, in the palette of Okabe and Ito, which colour-blind readers can distinguish.

M. Okabe, K. Ito, Color Universal Design (2008), https://jfly.uni-koeln.de/color/. Its yellow is too pale for lines
on white.
"""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK = "#222222"
GREY = "#808080"
PALE = "#d9d9d9"
REACTION = "#D55E00"  # vermillion, reserved for the forces of joints
APPLIED = "#000000"
DRIVEN = "#F0E442"  # the yellow of the palette: too pale for lines, good for surfaces
BODIES = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C6D46")
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

TEXT = 9  # [pt]
SMALL = 8  # [pt]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure [in] with a layout engine that makes room for labels and legends."""
    return plt.figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))


def tidy(axes: Axes, **labels: Any) -> None:
    """Apply the common frame: thin spines on the left and below, small ticks, labels of one size."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
        axes.spines[side].set_linewidth(0.8)
    axes.tick_params(labelsize=SMALL, color=GREY, width=0.8)
    for name, text in labels.items():
        getattr(axes, f"set_{name}")(text, fontsize=TEXT)
