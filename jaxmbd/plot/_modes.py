"""`modes`, `animate_mode`: mode shapes of a linearised mechanism, undeflected in grey and deflected in colour."""

from typing import Any

import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmbd.analyses.linearization.linear_system import LinearSystem
from jaxmbd.analyses.linearization.modes import Modes
from jaxmbd.arrays import Number
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_count, check_instance
from jaxmbd.plot import _picture as plane
from jaxmbd.plot import _space_picture as space
from jaxmbd.plot._draw import check_no_view
from jaxmbd.plot._parts import drawn_parts, markers_of
from jaxmbd.plot._scene import Scene
from jaxmbd.plot._space_scene import SpaceScene
from jaxmbd.plot._style import PALE, TEXT

_DEFLECTION = 0.15  # the largest displacement of a point, as a share of the mechanism's extent
_LEVER = 0.35  # the lever arm by which rotations count as displacements, as a share of the extent
_TINY = 1e-4  # [m or rad] the largest step by which displacements of a shape are measured
_FRAMES = 48  # the number of frames of one oscillation
_UNDER = 0.4  # the number of layers by which the grey picture lies lower


def modes(
    system: LinearSystem,
    k: int = 0,
    *,
    scale: Number | None = None,
    axes: Axes | None = None,
    elev: Number | None = None,
    azim: Number | None = None,
) -> Axes:
    """Draw a mode shape: the mechanism at rest in grey, deflected in colour.

    **Arguments:** `k`, the number of the mode as `print(system)` lists it; `scale`, the factor of
    `system.modes().shapes[:, k]`; default: the largest deflection is a seventh of the mechanism; `axes`, `elev`, `azim`
    as in `draw`. A complex shape is drawn at the instant when its largest coordinate has its amplitude.

    **Returns:** the axes, with equal scales along all of them.

    **Raises:** `MechanismError` for a mode that does not exist, and for a direction of view in the plane.

        >>> modes(linearize(mechanism, state), 1)
    """
    return _Shape(system, k, scale, axes, (elev, azim), np.zeros(1)).axes


def animate_mode(
    system: LinearSystem,
    k: int = 0,
    *,
    scale: Number | None = None,
    fps: float | int = 24,
    elev: Number | None = None,
    azim: Number | None = None,
) -> FuncAnimation:
    """Animate one oscillation of a mode, in two seconds and without decay; the arguments are those of `modes`.

    **Returns:** matplotlib's `FuncAnimation`, which repeats without a jump; to a file: `save_animation`.
    """
    shape = _Shape(system, k, scale, None, (elev, azim), 2 * np.pi * np.arange(_FRAMES) / _FRAMES)
    return FuncAnimation(shape.figure, shape.show, frames=_FRAMES, interval=1000 / fps, blit=False)


class _Shape:
    """The picture of a mode at phases `(frames,)` [rad]."""

    def __init__(
        self, system: LinearSystem, k: int, scale: Number | None, axes: Axes | None, view: Any, phases: np.ndarray
    ) -> None:
        check_instance("system", system, LinearSystem, "a LinearSystem, linearize(mechanism, state)")
        normal_modes, mechanism = system.modes(), system.mechanism
        check_count("k", k, 0)
        if not 0 <= k < len(normal_modes.omega):
            raise MechanismError(f"There is no mode {k}: this system has {len(normal_modes.omega)}, from 0 on.")
        steps = _steps(np.asarray(normal_modes.shapes)[:, k], phases)
        whole = _steps(np.asarray(normal_modes.shapes)[:, k], np.arange(8) * np.pi / 4)
        size = _scale(system, whole) if scale is None else float(scale)
        qs = np.concatenate([np.asarray(system.q)[None], np.asarray(system.configurations_along(size * steps))])
        if mechanism.space.dim == 3:
            self._in_space(SpaceScene(mechanism, qs), axes, view)
        else:
            check_no_view(*view)
            self._in_plane(Scene(mechanism, qs), axes)
        figure = self.axes.get_figure(root=True)
        assert figure is not None
        self.figure: Figure = figure
        if axes is None and mechanism.space.dim == 3:  # these axes extend beyond the figure, and so would their title
            figure.text(0.03, 0.98, _title(normal_modes, k), fontsize=TEXT, va="top")
        else:
            self.axes.set_title(_title(normal_modes, k), fontsize=TEXT, loc="left")
        self.show(0)

    def _in_plane(self, scene: Scene, axes: Axes | None) -> None:
        self.axes = plane.axes_for(plane.limits_of(scene), axes)
        for artist in plane.Picture(scene, self.axes).artists:
            artist.set_color(PALE)
            artist.set_zorder(artist.get_zorder() * 0.01 + _UNDER)
        picture = plane.Picture(scene, self.axes)
        self.move = lambda k: list[Artist](picture.move(scene.motion[k]))

    def _in_space(self, scene: SpaceScene, axes: Axes | None, view: Any) -> None:
        pieces = space.scene_pieces(scene)
        axes_3d = space.axes_for(space.limits_of(scene, pieces), axes, view, space.HEADROOM)
        for artist, _ in space.SpacePicture(scene, axes_3d, [p for p in pieces if not p.floor]).artists:
            artist.set_facecolor((*np.full(3, 0.6), 0.25))
            artist.set_edgecolor("none")
            artist.set_zorder(artist.get_zorder() - _UNDER)
        picture = space.SpacePicture(scene, axes_3d, pieces)
        self.axes: Axes = axes_3d
        self.move = lambda k: list[Artist](picture.move(scene.motion.at(k)))

    def show(self, k: int) -> list[Artist]:
        """Draw frame `k`."""
        return self.move(k + 1)


def _steps(shape: np.ndarray, phases: np.ndarray) -> np.ndarray:
    return np.real(np.exp(1j * phases)[:, None] * shape)


def _scale(system: LinearSystem, steps: np.ndarray) -> float:
    """The factor of a shape at which the largest displacement is `_DEFLECTION` of the mechanism's extent."""
    tiny = _TINY / np.abs(steps).max()
    qs = np.concatenate([np.asarray(system.q)[None], np.asarray(system.configurations_along(tiny * steps))])
    mechanism, dim = system.mechanism, system.mechanism.space.dim
    scene: Any = SpaceScene(mechanism, qs) if dim == 3 else Scene(mechanism, qs)
    markers = [body.at() for body in mechanism.bodies]
    markers += [marker for part in drawn_parts(mechanism) for marker in markers_of(part)]
    extent = float(np.ptp([scene.place(marker).point(scene.motion)[0] for marker in markers], axis=0).max()) or 1.0
    levers = _LEVER * extent * np.eye(dim)
    points = [scene.place(body.at(*lever)).point(scene.motion) for body in mechanism.bodies for lever in levers]
    points += [scene.place(body.at()).point(scene.motion) for body in mechanism.bodies]
    far = max(float(np.linalg.norm(point - point[0], axis=-1).max()) for point in points)
    return tiny * _DEFLECTION * extent / far


def _title(normal_modes: Modes, k: int) -> str:
    if normal_modes.rigid[k]:
        return f"Mode {k}: rigid body"
    damping = float(normal_modes.damping[k])
    return f"Mode {k}: {float(normal_modes.frequencies[k]):.4g} Hz" + (
        f", damping ratio {damping:.3g}" if damping else ""
    )
