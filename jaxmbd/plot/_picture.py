"""The picture of a planar mechanism on matplotlib axes, which can be moved from frame to frame."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon

from jaxmbd.model.sensor import Point
from jaxmbd.plot._scene import Poses, Scene
from jaxmbd.plot._strokes import Stroke, body_strokes, ground_strokes, point_strokes
from jaxmbd.plot._style import new_figure, tidy
from jaxmbd.plot._symbols import symbol

Limits = tuple[tuple[float, float], tuple[float, float]]

_WIDTH = 6.4  # [in]
_LOW, _HIGH = 2.2, 5.4  # the least and greatest height of a figure [in]
_MARGIN = 1.2  # the margin of a picture, in symbol sizes
_FRAMES = 60  # the number of positions of a motion from which limits are computed


class Picture:
    """All strokes of a scene as matplotlib artists; `move` updates them to other poses."""

    def __init__(self, scene: Scene, axes: Axes) -> None:
        self.axes = axes
        self.strokes = scene_strokes(scene)
        self.artists = [_artist(stroke, scene.motion[0]) for stroke in self.strokes]
        for artist in self.artists:
            axes.add_artist(artist)

    def move(self, poses: Poses) -> list[Line2D | Polygon]:
        """Move all strokes to the poses and return their artists."""
        for stroke, artist in zip(self.strokes, self.artists, strict=True):
            points = stroke.shape(poses)
            if isinstance(artist, Polygon):
                artist.set_xy(points)
            else:
                artist.set_data(points[:, 0], points[:, 1])
        return self.artists


def scene_strokes(scene: Scene) -> list[Stroke]:
    """The strokes of all parts of a mechanism."""
    mechanism = scene.mechanism
    strokes = [*ground_strokes(scene)]
    for i in range(len(mechanism.bodies)):
        strokes += body_strokes(scene, i)
    for part in (*mechanism.constraints(), *mechanism.forces):
        strokes += symbol(scene, part)
    for sensor in mechanism.sensors:
        if isinstance(sensor, Point):
            strokes += point_strokes(scene, sensor)
    return strokes


def _artist(stroke: Stroke, poses: Poses) -> Line2D | Polygon:
    points = stroke.shape(poses)
    if stroke.filled:
        return Polygon(points, closed=True, joinstyle="round", **stroke.style)
    return Line2D(points[:, 0], points[:, 1], **stroke.style)


def limits_of(scene: Scene, extra: Sequence[np.ndarray] = ()) -> Limits:
    """Limits `(x, y)` [m] that contain all strokes over the whole motion, and further points `(k, 2)`."""
    strokes = scene_strokes(scene)
    every = max(len(scene.motion) // _FRAMES, 1)
    moments = [*scene.motion[::every], scene.motion[-1]]
    points = [stroke.shape(poses) for poses in moments for stroke in strokes]
    everything = np.concatenate([*points, *extra])
    margin = _MARGIN * scene.size
    low, high = np.nanmin(everything, axis=0) - margin, np.nanmax(everything, axis=0) + margin
    return (float(low[0]), float(high[0])), (float(low[1]), float(high[1]))


def longest_side(limits: Limits) -> float:
    """The longer side of a picture [m]."""
    return max(high - low for low, high in limits)


def axes_for(limits: Limits, axes: Axes | None) -> Axes:
    """The given axes, or those of a new figure of suitable shape, with equal scales and the limits set."""
    (left, right), (bottom, top) = limits
    if axes is None:
        height = (_WIDTH - 0.9) * (top - bottom) / (right - left) + 1.0
        figure: Figure = new_figure(_WIDTH, float(np.clip(height, _LOW, _HIGH)))
        axes = figure.add_subplot()
    axes.set_aspect("equal")
    # Without data limits, matplotlib scales the arrow of a quiver's key by zero.
    axes.update_datalim([(left, bottom), (right, top)])
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    tidy(axes, xlabel="x [m]", ylabel="y [m]")
    return axes
