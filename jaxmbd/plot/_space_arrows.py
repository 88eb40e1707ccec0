"""Arrows for forces in space, drawn as surfaces, and the legend of their scale."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d import Axes3D

from jaxmbd.plot._forces import Forces, arrow_scale, round_below
from jaxmbd.plot._space_picture import Limits, longest_side, project, screen
from jaxmbd.plot._space_pieces import Piece
from jaxmbd.plot._space_scene import SpacePlace, SpaceScene
from jaxmbd.plot._space_solids import arrow
from jaxmbd.plot._style import APPLIED, INK, REACTION, SMALL

_THICK = 0.22  # radius of an arrow, in symbol sizes


class SpaceArrow:
    """A force `(times, 3)` [N] at a marker, to a scale [N/m]; `now` is the index of the time that is shown."""

    def __init__(self, part: str, place: SpacePlace, forces: Forces, scale: float, size: float, colour: str) -> None:
        self.place, self.forces, self.scale = place, forces, scale
        self.now = 0
        self.piece = Piece(
            part, lambda poses: arrow(self.forces[self.now] / scale, _THICK * size) + place.point(poses), colour
        )

    def tips(self, scene: SpaceScene) -> np.ndarray:
        """The positions of its tip over the motion."""
        return self.place.point(scene.motion) + self.forces / self.scale


def reaction_arrows(
    scene: SpaceScene, limits: Limits, places: Mapping[str, SpacePlace], forces: Sequence[Forces]
) -> list[SpaceArrow]:
    """Arrows for the reactions of joints, with a common scale."""
    scale = arrow_scale(forces, longest_side(limits))
    pairs = zip(places.items(), forces, strict=True)
    return [SpaceArrow(name, place, values, scale, scene.size, REACTION) for (name, place), values in pairs]


def applied_arrows(scene: SpaceScene, limits: Limits, forces: Mapping[str, Forces]) -> list[SpaceArrow]:
    """Black arrows for applied forces, each scaled by its own largest value."""
    arrows = []
    for name, values in forces.items():
        place, scale = scene.place(scene.mechanism[name].at), arrow_scale([values], longest_side(limits))
        arrows.append(SpaceArrow(name, place, values, scale, scene.size, APPLIED))
    return arrows


def add_key(axes: Axes3D, arrows: Sequence[SpaceArrow], limits: Limits, label: str) -> Line2D:
    """Add the legend of the scale at the top left of the figure: a flat arrow for a round number of newtons.

    The projection is parallel, so its length is valid in the whole picture.
    """
    value = round_below(max(float(np.linalg.norm(a.forces, axis=-1).max()) for a in arrows))
    middle = np.mean(limits, axis=1)
    ends = project(axes, middle + np.outer([0.0, value / arrows[0].scale], screen(axes)[0]))
    length = abs(ends[1, 0] - ends[0, 0])
    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.apply_aspect()
    to_data = axes.transData.inverted()
    box = figure.bbox if figure.axes == [axes] else axes.bbox
    x, y = to_data.transform((box.x0 + 0.03 * box.width, box.y1 - 14 * figure.dpi / 72))
    gap = to_data.transform((8 * figure.dpi / 72, 0))[0] - to_data.transform((0, 0))[0]
    style = {"color": REACTION, "linewidth": 2.2, "clip_on": False, "zorder": 9, "solid_capstyle": "butt"}
    line = Line2D([x, x + length], [y, y], marker=">", markevery=[1], markersize=7, **style)
    axes.add_artist(line)
    text = {"fontsize": SMALL, "color": INK, "va": "center", "transform": axes.transData}
    axes.text2D(x + length + 2 * gap, y, f"{value:g} N   {label}", **text)
    return line
