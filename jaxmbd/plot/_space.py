"""The picture of a scene in space: lit faces, sorted by depth, on 3-D axes, moved from frame to frame."""

from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d import Axes3D, proj3d
from mpl_toolkits.mplot3d.art3d import Line3D, Poly3DCollection

from jaxmbd.errors import MechanismError
from jaxmbd.plot._plane import label_style
from jaxmbd.plot._style import PALE, SMALL, TEXT, new_figure, plain
from jaxmbd.scene.looks import for_sorting
from jaxmbd.scene.pieces import GREY, INK, REACTION, Piece
from jaxmbd.scene.scene import AZIM, ELEV, Legend, Limits, Scene, Trace, View
from jaxmbd.scene.surfaces import Faces, arrow, joined, normals

_FLOOR_LAYER, _TRACE_LAYER, _SOLID_LAYER, _TEXT_LAYER = 1, 2, 3, 5
_UNDER = 0.4  # the number of layers by which a ghost lies lower
_LIGHT = (25.0, 55.0)  # direction of the light: azimuth to the left of the view, and elevation [degrees]
_SHADE = 0.45  # brightness of faces that are turned away from the light
_GLOSS = 0.30  # share of white in faces that are turned towards the light
_THICK = 0.22  # radius of an arrow, in symbol sizes
_THIN = 0.36  # the share of the longest side of the axes below which a side may have one tick only
_TICKS = 5  # the number of ticks along the longest side
_NUMBERS, _NAMES = (11.0, 11.0, 13.0), (26.0, 26.0, 34.0)  # distances of numbers and names from the x, y, z axes [pt]
_MPL_SHIFT, _MPL_NUMBERS, _MPL_NAMES = 1.92, 8.0, 21.0  # the unit and the offsets of matplotlib's paddings
_WIDTH, _LOW, _HIGH = 6.0, 2.0, 5.6  # the greatest width of a figure, its least size, its greatest height [in]
_HEADROOM = 0.3  # room at the top of a figure for the legend of arrows and the clock [in]
_EDGE = 0.08  # the free margin of a figure [in]
_FLOOR = "#f6f6f6"
_MOST_FACES = 8_000  # of meshes; matplotlib sorts and draws some 50,000 in a second


class FittedAxes(Axes3D):
    """3-D axes whose square extends beyond the figure, with all of the content inside the figure.

    Their bounding box is that of the figure; otherwise notebooks, which crop figures to it, would show the empty rest.
    """

    def get_tightbbox(self, renderer: object = None, **_: object) -> Bbox:
        """The figure's box [pixels]."""
        figure = self.get_figure(root=True)
        assert figure is not None
        return Bbox(figure.bbox.get_points())


class SpacePicture:
    """A scene on 3-D axes; `move` shows another of its times. A ghost is the first time in grey, below it.

    All solids are in one collection, since matplotlib sorts faces by depth only within a collection; floors are below.
    """

    def __init__(
        self, scene: Scene, axes: Axes | None, view: View, has_ghost: bool = False, has_title: bool = False
    ) -> None:
        self.scene = scene
        self.axes = _prepared(axes, scene.limits, view, _HEADROOM if has_title or scene.legend else 0.0)
        self.light = _light(self.axes)
        self.traces = [_add_trace(self.axes, trace) for trace in scene.traces]
        self.floors = [piece for piece in scene.pieces if piece.is_floor]
        self.solids = for_sorting((piece for piece in scene.pieces if not piece.is_floor), _MOST_FACES)
        if has_ghost:
            ghost = self._add(self.solids, _SOLID_LAYER - _UNDER)
            ghost.set_facecolor((*np.full(3, 0.6), 0.25))
            ghost.set_edgecolor("none")
        self.floor = self._add(self.floors, _FLOOR_LAYER) if self.floors else None
        self.solid = self._add([*self.solids, *self._arrows(0)], _SOLID_LAYER)
        self.move(0)
        if scene.legend:
            _add_legend(self.axes, scene.legend, scene.limits)

    def _add(self, pieces: list[Piece], layer: float) -> Poly3DCollection:
        poses = self.scene.motion.at(0)
        artist = Poly3DCollection(joined(*(p.shape(poses) for p in pieces)), linewidths=0.35, zorder=layer)
        self.axes.add_collection3d(artist)
        return artist

    def _arrows(self, k: int) -> list[Piece]:
        thick, arrows = _THICK * self.scene.size, self.scene.arrows
        return [Piece(a.part, a.place, arrow(a.forces[k] / a.scale, thick), a.colour, is_upright=True) for a in arrows]

    def move(self, k: int) -> list[Artist]:
        """Show the scene at time `k` and return the artists."""
        poses = self.scene.motion.at(k)
        for line, trace in zip(self.traces, self.scene.traces, strict=True):
            line.set_data_3d(*trace.until(k).T)
        shown = [(self.floor, self.floors), (self.solid, [*self.solids, *self._arrows(k)])]
        for artist, pieces in shown:
            if artist is None:
                continue
            faces = [piece.shape(poses) for piece in pieces]
            rgba = np.concatenate([lit(piece, f, self.light) for piece, f in zip(pieces, faces, strict=True)])
            artist.set_verts(joined(*faces))
            artist.set_facecolor(rgba)
            # Edges in the colour of their faces close the seams between opaque faces.
            artist.set_edgecolor(np.where(rgba[:, 3:] < 1, 0.0, rgba))
        return [*(artist for artist, _ in shown if artist is not None), *self.traces]

    def write_labels(self) -> None:
        """Write the names of bodies and joints."""
        right, up = _screen(self.axes)
        for label in self.scene.labels():
            point = label.place.point(self.scene.motion.at(0))
            x, y, z = point + self.scene.size * (label.shift[0] * right + label.shift[1] * up)
            write: Any = {"va": "top", "style": "italic"} if label.is_body else {"va": "bottom"}
            self.axes.text(x, y, z, plain(label.text), color=label.colour, **label_style(_TEXT_LAYER), **write)

    def title(self, text: str, is_clock: bool = False) -> Text:
        """Write a title at the top left, or a clock at the top right of a new figure."""
        figure = self.axes.get_figure(root=True)
        if not isinstance(self.axes, FittedAxes) or figure is None:
            return self.axes.set_title(text, fontsize=TEXT, loc="left")
        # Fitted axes extend beyond the figure, and so would their title.
        if is_clock:
            return figure.text(0.97, 0.98, text, fontsize=TEXT, color=INK, ha="right", va="top")
        return figure.text(0.03, 0.98, text, fontsize=TEXT, va="top")


def lit(piece: Piece, faces: Faces, light: np.ndarray) -> Float[np.ndarray, "_ 4"]:
    """The colours of a piece's faces under light from a direction."""
    dark = np.asarray(piece.dark)
    base = np.broadcast_to(
        np.array(to_rgb(piece.colour)) * (dark if dark.ndim == 2 else dark.reshape(-1, 1)), (len(faces), 3)
    )
    if not piece.is_floor:
        towards = 0.5 + 0.5 * normals(faces) @ light
        if piece.alpha < 1:
            towards = np.abs(2 * towards - 1)
        base = base * (_SHADE + (1 - _SHADE) * towards)[:, None]
        base = base + (1 - base) * (_GLOSS * np.clip(2 * towards - 1, 0, 1) ** 2)[:, None]
    return np.concatenate([np.clip(base, 0, 1), np.full((len(faces), 1), piece.alpha)], axis=1)


def _light(axes: Axes3D) -> np.ndarray:
    """The unit vector towards the light, which is above and to the left of the viewer."""
    azim, elev = np.deg2rad(axes.azim - _LIGHT[0]), np.deg2rad(_LIGHT[1])
    return np.array([np.cos(elev) * np.cos(azim), np.cos(elev) * np.sin(azim), np.sin(elev)])


def _add_trace(axes: Axes3D, trace: Trace) -> Line3D:
    """Draw a whole path faintly; return the line of the part travelled so far."""
    axes.plot(*trace.points.T, color=trace.colour, linewidth=0.8, alpha=0.35, zorder=_TRACE_LAYER)
    (line,) = axes.plot(*trace.until(0).T, color=trace.colour, linewidth=1.5, zorder=_TRACE_LAYER)
    assert isinstance(line, Line3D)
    return line


def _add_legend(axes: Axes3D, legend: Legend, limits: Limits) -> None:
    """Add a flat arrow at the top left of the figure; the projection is parallel, so its length is valid everywhere."""
    ends = _project(axes, np.mean(limits, axis=1) + np.outer([0.0, legend.length], _screen(axes)[0]))
    length = abs(ends[1, 0] - ends[0, 0])
    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.apply_aspect()
    to_data = axes.transData.inverted()
    box = figure.bbox if figure.axes == [axes] else axes.bbox
    x, y = to_data.transform((box.x0 + 0.03 * box.width, box.y1 - 14 * figure.dpi / 72))
    gap = to_data.transform((8 * figure.dpi / 72, 0))[0] - to_data.transform((0, 0))[0]
    style = {"color": REACTION, "linewidth": 2.2, "clip_on": False, "zorder": 9, "solid_capstyle": "butt"}
    axes.add_artist(Line2D([x, x + length], [y, y], marker=">", markevery=[1], markersize=7, **style))
    text = {"fontsize": SMALL, "color": INK, "va": "center", "transform": axes.transData}
    axes.text2D(x + length + 2 * gap, y, plain(legend.text), **text)


# --- axes -----------------------------------------------------------------------------------------------


def _prepared(axes: Axes | None, limits: Limits, view: View, headroom: float) -> Axes3D:
    """The given 3-D axes, or those of a new figure of suitable shape, with equal scales and the limits set.

    `headroom`: the free room at the top of a new figure [in].
    """
    if axes is None:
        # A layout engine would shrink the axes; `_fit` fits their content to the figure instead.
        figure = new_figure(_WIDTH, _HIGH)
        figure.set_layout_engine("none")
        with mpl.rc_context({"grid.color": PALE, "grid.linewidth": 0.6}):
            fitted = FittedAxes(figure, (0, 0, 1, 1), proj_type="ortho")
        figure.add_axes(fitted)
        _look(fitted, limits, view)
        for axis, colour in zip(_three(fitted), ("white", "white", _FLOOR), strict=True):
            axis.set_pane_color(to_rgba(colour))
            axis.pane.set_edgecolor(PALE)
        _fit(fitted, figure, limits, headroom)
        return fitted
    if not isinstance(axes, Axes3D):
        raise MechanismError('This mechanism needs 3-D axes, such as figure.add_subplot(projection="3d").')
    _look(axes, limits, view)
    _pad(axes, limits)
    return axes


def _three(axes: Axes3D) -> tuple[Any, Any, Any]:
    """The x, y and z axis; matplotlib's type annotations declare two of them as 2-D axes."""
    return axes.xaxis, axes.yaxis, axes.zaxis


def _look(axes: Axes3D, limits: Limits, view: View) -> None:
    elev, azim = (default if angle is None else float(angle) for angle, default in zip(view, (ELEV, AZIM), strict=True))
    axes.view_init(elev=elev, azim=azim)
    axes.computed_zorder = False
    axes.set_xlim(*limits[0])
    axes.set_ylim(*limits[1])
    axes.set_zlim(*limits[2])
    sides = np.array([high - low for low, high in limits])
    axes.set_box_aspect(sides)
    for axis, name, side in zip(_three(axes), "xyz", sides, strict=True):
        share = float(side / sides.max())
        least = 1 if share < _THIN else 2
        axis.set_major_locator(MaxNLocator(max(round(_TICKS * share), 1), steps=[1, 2, 5, 10], min_n_ticks=least))
        axis.set_tick_params(labelsize=SMALL, color=GREY)
        axis.line.set_color(GREY)
        axis.line.set_linewidth(0.8)
        getattr(axes, f"set_{name}label")(f"{name} [m]", fontsize=TEXT)


def _fit(axes: Axes3D, figure: Figure, limits: Limits, headroom: float) -> None:
    """Fit the figure and the axes to each other, with room for the numbers and names of the axes."""
    corners = np.array([[x, y, z] for x in limits[0] for y in limits[1] for z in limits[2]])
    flat = _project(axes, corners)
    margins = np.array([[0.6, 0.6], [0.9, 0.1]])  # left, below; right, above [in]
    for _ in range(2):
        _place(axes, figure, flat, margins + np.array([[0.0, 0.0], [0.0, headroom]]))
        _pad(axes, limits)
        # The space that numbers and names need is known only once they are placed.
        axes.apply_aspect()
        axes.M = axes.get_proj()
        texts = Bbox.union([axis.get_tightbbox() for axis in _three(axes)])
        shown = axes.transData.transform(np.array([flat.min(axis=0), flat.max(axis=0)]))
        over = np.array([shown[0] - texts.min, texts.max - shown[1]]) / figure.dpi
        margins = np.maximum(over, 0.0) + _EDGE
    _place(axes, figure, flat, margins + np.array([[0.0, 0.0], [0.0, headroom]]))


def _place(axes: Axes3D, figure: Figure, flat: np.ndarray, margins: np.ndarray) -> None:
    """Set the sizes of the figure and of the square axes for margins `[[left, below], [right, above]]` [in]."""
    low, high = flat.min(axis=0), flat.max(axis=0)
    per_inch = (high - low) / axes.viewLim.size  # of the picture, for each inch of the square
    outside = margins.sum(axis=0)
    square = float(((np.array([_WIDTH, _HIGH]) - outside) / per_inch).min())
    size = np.maximum(square * per_inch + outside, _LOW)
    figure.set_size_inches(*size)
    middle = margins[0] + (size - outside) / 2
    corner = middle - square * ((low + high) / 2 - axes.viewLim.min) / axes.viewLim.size
    axes.set_position((*(corner / size), *(square / size)))


def _pad(axes: Axes3D, limits: Limits) -> None:
    """Set the distances of numbers and names from their axes.

    In matplotlib they are a share of the other two sides of the box and vanish for thin boxes; the paddings that are
    set here compensate for that.
    """
    low, high = np.array(limits).T
    ends = _project(axes, np.array([low, *(low + np.diag(high - low))]))
    sides = np.linalg.norm(ends[1:] - ends[0], axis=1) / axes.viewLim.width  # as shares of the square axes
    for k, axis in enumerate(_three(axes)):
        per_point = _MPL_SHIFT * float(np.hypot(*np.delete(sides, k)))  # the distance [pt] for one unit of padding
        axis.set_tick_params(pad=_NUMBERS[k] / per_point - _MPL_NUMBERS)
        axis.labelpad = _NAMES[k] / per_point - _MPL_NAMES


def _project(axes: Axes3D, points: np.ndarray) -> np.ndarray:
    """The projection of points `(k, 3)` [m] to the plane of the picture, in its data coordinates `(k, 2)`."""
    xs, ys, zs = points.T
    x, y, _ = proj3d.proj_transform(xs, ys, zs, axes.get_proj())
    return np.stack([x, y], axis=1)


def _screen(axes: Axes3D) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors in the world that point to the right and upwards in the picture."""
    elev, azim = np.deg2rad(axes.elev), np.deg2rad(axes.azim)
    right = np.array([-np.sin(azim), np.cos(azim), 0.0])
    up = np.array([-np.sin(elev) * np.cos(azim), -np.sin(elev) * np.sin(azim), np.cos(elev)])
    return right, up
