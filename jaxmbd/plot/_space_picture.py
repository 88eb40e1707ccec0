"""The picture of a mechanism in space on 3-D axes, with all surfaces in two collections, moved from frame to frame."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d import Axes3D, proj3d
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from jaxmbd.arrays import Number
from jaxmbd.errors import MechanismError
from jaxmbd.model.sensor import Point
from jaxmbd.plot._space_bodies import body_pieces, ground_pieces, point_pieces
from jaxmbd.plot._space_pieces import Piece
from jaxmbd.plot._space_scene import Poses, SpaceScene
from jaxmbd.plot._space_solids import joined
from jaxmbd.plot._space_symbols import symbol
from jaxmbd.plot._style import GREY, PALE, SMALL, TEXT, new_figure

Limits = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
View = tuple[Number | None, Number | None]

FLOOR_LAYER, TRACE_LAYER, SOLID_LAYER, TEXT_LAYER = 1, 2, 3, 5
_ELEV, _AZIM = 20.0, -58.0  # the default direction of view [degrees]
_LIGHT = (25.0, 55.0)  # direction of the light: azimuth to the left of the view, and elevation [degrees]
_MARGIN = 0.8  # the margin of a picture, in symbol sizes
_THIN = 0.3  # the least side of the axes, as a share of the longest
_FRAMES = 60  # the number of positions of a motion from which limits are computed
_TICKS = 5  # the number of ticks along the longest side
_NUMBERS, _NAMES = (11.0, 11.0, 13.0), (26.0, 26.0, 34.0)  # distances of numbers and names from the x, y, z axes [pt]
_MPL_SHIFT, _MPL_NUMBERS, _MPL_NAMES = 1.92, 8.0, 21.0  # the unit and the offsets of matplotlib's paddings
_WIDTH, _LOW, _HIGH = 6.0, 2.0, 5.6  # the greatest width of a figure, its least size, its greatest height [in]
HEADROOM = 0.3  # room at the top of a figure for the legend of arrows and the clock [in]
_EDGE = 0.08  # the free margin of a figure [in]
_FLOOR = "#f6f6f6"


class FittedAxes(Axes3D):
    """3-D axes whose square extends beyond the figure, with all of the content inside the figure.

    Their bounding box is that of the figure; otherwise notebooks, which crop figures to it, would show the empty rest.
    """

    def get_tightbbox(self, renderer: Any = None, **_: Any) -> Bbox:
        """The figure's box [pixels]."""
        figure = self.get_figure(root=True)
        assert figure is not None
        return Bbox(figure.bbox.get_points())


class SpacePicture:
    """All pieces of a scene as two matplotlib collections; `move` updates them to other poses.

    All solids are in one collection, since matplotlib sorts faces by depth only within a collection; floors are below.
    """

    def __init__(self, scene: SpaceScene, axes: Axes3D, pieces: Sequence[Piece]) -> None:
        self.light = _light(axes)
        self.floors = [piece for piece in pieces if piece.floor]
        self.solids = [piece for piece in pieces if not piece.floor]
        poses = scene.motion.at(0)
        self.artists = []
        for layer, chosen in ((FLOOR_LAYER, self.floors), (SOLID_LAYER, self.solids)):
            if chosen:
                artist = Poly3DCollection(joined(*(p.shape(poses) for p in chosen)), linewidths=0.35, zorder=layer)
                axes.add_collection3d(artist)
                self.artists.append((artist, chosen))
        self.move(poses)

    def move(self, poses: Poses) -> list[Poly3DCollection]:
        """Move all pieces to the poses and return their artists."""
        for artist, pieces in self.artists:
            faces = [piece.shape(poses) for piece in pieces]
            colours = [piece.colours(f, self.light) for piece, f in zip(pieces, faces, strict=True)]
            rgba = np.concatenate(colours)
            artist.set_verts(joined(*faces))
            artist.set_facecolor(rgba)
            # Edges in the colour of their faces close the seams between opaque faces.
            artist.set_edgecolor(np.where(rgba[:, 3:] < 1, 0.0, rgba))
        return [artist for artist, _ in self.artists]


def scene_pieces(scene: SpaceScene) -> list[Piece]:
    """The pieces of all parts of a mechanism."""
    mechanism = scene.mechanism
    pieces = [*ground_pieces(scene)]
    for i in range(len(mechanism.bodies)):
        pieces += body_pieces(scene, i)
    for part in (*mechanism.constraints(), *mechanism.forces):
        pieces += symbol(scene, part)
    for sensor in mechanism.sensors:
        if isinstance(sensor, Point):
            pieces += point_pieces(scene, sensor)
    return pieces


def limits_of(scene: SpaceScene, pieces: Sequence[Piece], extra: Sequence[np.ndarray] = ()) -> Limits:
    """Limits `(x, y, z)` [m] that contain all pieces over the whole motion, and further points `(k, 3)`.

    Every side has a least share of the longest, so that its numbers are legible.
    """
    count = len(scene.motion.position)
    moments = [*range(0, count, max(count // _FRAMES, 1)), count - 1]
    points = [piece.shape(scene.motion.at(k)).reshape(-1, 3) for k in moments for piece in pieces]
    everything = np.concatenate([*points, *extra])
    low, high = everything.min(axis=0) - _MARGIN * scene.size, everything.max(axis=0) + _MARGIN * scene.size
    widen = np.maximum(_THIN * np.max(high - low) - (high - low), 0.0) / 2
    low, high = low - widen, high + widen
    return (float(low[0]), float(high[0])), (float(low[1]), float(high[1])), (float(low[2]), float(high[2]))


def longest_side(limits: Limits) -> float:
    """The longest side of a picture [m]."""
    return max(high - low for low, high in limits)


def axes_for(limits: Limits, axes: Axes | None, view: View, headroom: float = 0.0) -> Axes3D:
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
    elev, azim = (
        default if angle is None else float(angle) for angle, default in zip(view, (_ELEV, _AZIM), strict=True)
    )
    axes.view_init(elev=elev, azim=azim)
    axes.computed_zorder = False
    axes.set_xlim(*limits[0])
    axes.set_ylim(*limits[1])
    axes.set_zlim(*limits[2])
    sides = np.array([high - low for low, high in limits])
    axes.set_box_aspect(sides)
    for axis, name, side in zip(_three(axes), "xyz", sides, strict=True):
        share = float(side / sides.max())
        least = 1 if share < 1.2 * _THIN else 2
        axis.set_major_locator(MaxNLocator(max(round(_TICKS * share), 1), steps=[1, 2, 5, 10], min_n_ticks=least))
        axis.set_tick_params(labelsize=SMALL, color=GREY)
        axis.line.set_color(GREY)
        axis.line.set_linewidth(0.8)
        getattr(axes, f"set_{name}label")(f"{name} [m]", fontsize=TEXT)


def _fit(axes: Axes3D, figure: Figure, limits: Limits, headroom: float) -> None:
    """Fit the figure and the axes to each other, with room for the numbers and names of the axes."""
    corners = np.array([[x, y, z] for x in limits[0] for y in limits[1] for z in limits[2]])
    flat = project(axes, corners)
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
    ends = project(axes, np.array([low, *(low + np.diag(high - low))]))
    sides = np.linalg.norm(ends[1:] - ends[0], axis=1) / axes.viewLim.width  # as shares of the square axes
    for k, axis in enumerate(_three(axes)):
        per_point = _MPL_SHIFT * float(np.hypot(*np.delete(sides, k)))  # the distance [pt] for one unit of padding
        axis.set_tick_params(pad=_NUMBERS[k] / per_point - _MPL_NUMBERS)
        axis.labelpad = _NAMES[k] / per_point - _MPL_NAMES


def project(axes: Axes3D, points: np.ndarray) -> np.ndarray:
    """The projection of points `(k, 3)` [m] to the plane of the picture, in its data coordinates `(k, 2)`."""
    xs, ys, zs = points.T
    x, y, _ = proj3d.proj_transform(xs, ys, zs, axes.get_proj())
    return np.stack([x, y], axis=1)


def screen(axes: Axes3D) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors in the world that point to the right and upwards in the picture."""
    elev, azim = np.deg2rad(axes.elev), np.deg2rad(axes.azim)
    right = np.array([-np.sin(azim), np.cos(azim), 0.0])
    up = np.array([-np.sin(elev) * np.cos(azim), -np.sin(elev) * np.sin(azim), np.cos(elev)])
    return right, up


def _light(axes: Axes3D) -> np.ndarray:
    """The unit vector towards the light, which is above and to the left of the viewer."""
    azim, elev = np.deg2rad(axes.azim - _LIGHT[0]), np.deg2rad(_LIGHT[1])
    return np.array([np.cos(elev) * np.cos(azim), np.cos(elev) * np.sin(azim), np.sin(elev)])
