"""The picture of a scene in the plane: lines and polygons on 2-D axes, moved from frame to frame."""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.patheffects import withStroke
from matplotlib.quiver import Quiver
from matplotlib.text import Text

from jaxmbd.plot._style import PALE, SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.scene.motion import Poses
from jaxmbd.scene.pieces import PIN_LAYER, Piece
from jaxmbd.scene.scene import Arrow, Legend, Scene, Trace

_WIDTH = 6.4  # [in]
_LOW, _HIGH = 2.2, 5.4  # the least and greatest height of a figure [in]
_HEADROOM = 3.0  # room for the legend of the arrows, in symbol sizes
_THICK = 2.0  # the width [pt] from which lines have round ends
_TRACE_LAYER, _ARROW_LAYER, _TEXT_LAYER = 2.5, PIN_LAYER + 1, PIN_LAYER + 2
_UNDER = 0.4  # the layer of a ghost, below all pieces


class PlanePicture:
    """A scene on matplotlib axes; `move` shows another of its times. A ghost is the first time in grey, below it."""

    def __init__(self, scene: Scene, axes: Axes | None, has_ghost: bool = False) -> None:
        self.scene = scene
        (left, right), (bottom, top) = scene.limits
        top += _HEADROOM * scene.size if scene.legend else 0.0
        self.axes = _prepared(axes, (left, right), (bottom, top))
        self.traces = [_add_trace(self.axes, trace) for trace in scene.traces]
        for artist in self._add_pieces() if has_ghost else ():
            artist.set_color(PALE)
            artist.set_zorder(artist.get_zorder() * 0.01 + _UNDER)
        self.pieces = self._add_pieces()
        self.arrows = [_add_arrow(self.axes, arrow, scene.motion.at(0)) for arrow in scene.arrows]
        if scene.legend:
            _add_legend(self.axes, self.arrows[-1], scene.legend, left + scene.size, top - 0.5 * _HEADROOM * scene.size)

    def _add_pieces(self) -> list[Line2D | Polygon]:
        artists = [_artist(piece, self.scene.motion.at(0)) for piece in self.scene.pieces]
        for artist in artists:
            self.axes.add_artist(artist)
        return artists

    def move(self, k: int) -> list[Artist]:
        """Show the scene at time `k` and return the artists."""
        poses = self.scene.motion.at(k)
        for line, trace in zip(self.traces, self.scene.traces, strict=True):
            line.set_data(*trace.until(k).T)
        for artist, piece in zip(self.pieces, self.scene.pieces, strict=True):
            if isinstance(artist, Polygon):
                artist.set_xy(piece.shape(poses))
            else:
                artist.set_data(*piece.shape(poses).T)
        for quiver, arrow in zip(self.arrows, self.scene.arrows, strict=True):
            quiver.set_offsets(arrow.place.point(poses)[None])
            quiver.set_UVC(*arrow.forces[k : k + 1].T)
        return [*self.pieces, *self.arrows, *self.traces]

    def write_labels(self) -> None:
        """Write the names of bodies and joints."""
        for label in self.scene.labels():
            x, y = label.place.point(self.scene.motion.at(0)) + self.scene.size * np.array(label.shift)
            write: Any = {"va": "top", "style": "italic"} if label.is_body else {"va": "bottom"}
            self.axes.text(x, y, plain(label.text), color=label.colour, **label_style(_TEXT_LAYER), **write)

    def title(self, text: str, is_clock: bool = False) -> Text:
        """Write a title at the top left."""
        return self.axes.set_title(text, loc="left", fontsize=TEXT)


def label_style(layer: int) -> dict[str, Any]:
    """The style of names, which have a white halo."""
    return {"fontsize": SMALL, "zorder": layer, "path_effects": [withStroke(linewidth=2.0, foreground="white")]}


def _prepared(axes: Axes | None, x: tuple[float, float], y: tuple[float, float]) -> Axes:
    """The given axes, or those of a new figure of suitable shape, with equal scales and the limits set."""
    if axes is None:
        height = (_WIDTH - 0.9) * (y[1] - y[0]) / (x[1] - x[0]) + 1.0
        axes = new_figure(_WIDTH, float(np.clip(height, _LOW, _HIGH))).add_subplot()
    axes.set_aspect("equal")
    # Without data limits, matplotlib scales the arrow of a quiver's key by zero.
    axes.update_datalim([(x[0], y[0]), (x[1], y[1])])
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    tidy(axes, xlabel="x [m]", ylabel="y [m]")
    return axes


def _artist(piece: Piece, poses: Poses) -> Line2D | Polygon:
    points = piece.shape(poses)
    edge: Any = {"linewidth": piece.width} if piece.width else {}
    if piece.fill is not None:
        face: Any = {"facecolor": to_rgba(piece.fill, piece.alpha), "edgecolor": piece.colour if edge else "none"}
        return Polygon(points, closed=True, joinstyle="round", zorder=piece.layer, **face, **edge)
    ends: Any = {"solid_capstyle": "round"} if piece.width > _THICK else {}
    dots: Any = {"linestyle": (0, (1, 2))} if piece.is_dotted else {}
    return Line2D(*points.T, color=piece.colour, zorder=piece.layer, **edge, **ends, **dots)


def _add_trace(axes: Axes, trace: Trace) -> Line2D:
    """Draw a whole path faintly; return the line of the part travelled so far."""
    axes.plot(*trace.points.T, color=trace.colour, linewidth=0.8, alpha=0.35, zorder=_TRACE_LAYER)
    (line,) = axes.plot([], [], color=trace.colour, linewidth=1.5, zorder=_TRACE_LAYER)
    return line


def _add_arrow(axes: Axes, arrow: Arrow, poses: Poses) -> Quiver:
    head: Any = {"headwidth": 3.6, "headlength": 4.5, "headaxislength": 4.0, "minlength": 0.0}
    units: Any = {"angles": "xy", "scale_units": "xy", "scale": arrow.scale, "width": 0.0065, "zorder": _ARROW_LAYER}
    ends = arrow.place.point(poses)[None].T, arrow.forces[:1].T
    return axes.quiver(*ends[0], *ends[1], color=arrow.colour, **units, **head)


def _add_legend(axes: Axes, arrow: Quiver, legend: Legend, x: float, y: float) -> None:
    """Add the arrow of the legend from a point [m] to the right."""
    tip = x + legend.length  # matplotlib positions a key with its label on the right by the tip
    style: Any = {"labelpos": "E", "labelsep": 0.08, "coordinates": "data", "fontproperties": {"size": SMALL}}
    axes.quiverkey(arrow, tip, y, legend.value, plain(legend.text), **style)
