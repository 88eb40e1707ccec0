"""`modes`, `animate_mode`: mode shapes of a linearised mechanism, undeflected in grey and deflected in colour."""

import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from jaxmbd.analyses.linearization.linear_system import LinearSystem
from jaxmbd.analyses.linearization.modes import Modes
from jaxmbd.arrays import Number
from jaxmbd.checks import check_count, check_instance
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.plot._draw import picture_of
from jaxmbd.plot._plane import PlanePicture
from jaxmbd.plot._space import SpacePicture
from jaxmbd.scene.geometry import Geometry, drawn_parts, markers_of
from jaxmbd.scene.motion import check_rate, place_of, poses_of
from jaxmbd.scene.scene import Scene, View, check_view

_DEFLECTION = 0.15  # the largest displacement of a point, as a share of the mechanism's extent
_LEVER = 0.35  # the lever arm by which rotations count as displacements, as a share of the extent
_TINY = 1e-4  # [rad, units of length] the largest step by which displacements of a shape are measured
_FRAMES = 48  # the number of frames of one oscillation


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

        >>> from jaxmbd import plot
        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> hanging = mbd.equilibrium(pendulum, {"O.angle": -1.0}, stable=True)
        >>> system = mbd.linearize(pendulum, hanging, inputs=["O.angle"], outputs=["rod.x"])
        >>> axes = plot.modes(system, 0)
    """
    return _picture(system, k, scale, axes, (elev, azim), np.zeros(1)).axes


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

    **Raises:** `MechanismError` as `modes`, and for a rate `fps` of frames per second that is not positive.

        >>> from jaxmbd import plot
        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> hanging = mbd.equilibrium(pendulum, {"O.angle": -1.0}, stable=True)
        >>> system = mbd.linearize(pendulum, hanging, inputs=["O.angle"], outputs=["rod.x"])
        >>> film = plot.animate_mode(system, 0, fps=6)
        >>> plot.save_animation(film, "mode.gif", dpi=40).name
        'mode.gif'
    """
    check_rate("fps", fps)
    picture = _picture(system, k, scale, None, (elev, azim), 2 * np.pi * np.arange(_FRAMES) / _FRAMES)
    figure = picture.axes.get_figure(root=True)
    assert figure is not None

    def show(k: int) -> list[Artist]:
        return picture.move(k + 1)

    return FuncAnimation(figure, show, frames=_FRAMES, interval=1000 / fps, blit=False)


def _picture(
    system: LinearSystem, k: int, scale: Number | None, axes: Axes | None, view: View, phases: np.ndarray
) -> PlanePicture | SpacePicture:
    """The picture of a mode, which is at rest at its first time and then at phases `(frames,)` [rad]."""
    check_instance("system", system, LinearSystem, "a LinearSystem, linearize(mechanism, state)")
    normal_modes, mechanism = system.modes(), system.mechanism
    check_count("k", k, 0)
    if not 0 <= k < len(normal_modes.omega):
        raise MechanismError(f"There is no mode {k}: this system has {len(normal_modes.omega)}, from 0 on.")
    steps = _steps(np.asarray(normal_modes.shapes)[:, k], phases)
    whole = _steps(np.asarray(normal_modes.shapes)[:, k], np.arange(8) * np.pi / 4)
    size = _scale(system, whole) if scale is None else float(scale)
    qs = np.concatenate([np.asarray(system.q)[None], np.asarray(system.configurations_along(size * steps))])
    check_view(mechanism, view)
    geometry = Geometry(mechanism, np.full(len(qs), float(system.t)), qs)
    picture = picture_of(Scene(geometry), axes, view, has_ghost=True, has_title=True)
    picture.title(_title(normal_modes, k))
    picture.move(1)
    return picture


def _steps(shape: np.ndarray, phases: np.ndarray) -> np.ndarray:
    return np.real(np.exp(1j * phases)[:, None] * shape)


def _scale(system: LinearSystem, steps: np.ndarray) -> float:
    """The factor of a shape at which the largest displacement is `_DEFLECTION` of the mechanism's extent."""
    tiny = _TINY / np.abs(steps / np.asarray(Scales(system.mechanism).speeds)).max()
    qs = np.concatenate([np.asarray(system.q)[None], np.asarray(system.configurations_along(tiny * steps))])
    mechanism, dim = system.mechanism, system.mechanism.space.dim
    poses = poses_of(mechanism, np.full(len(qs), float(system.t)), qs)
    markers = [body.at() for body in mechanism.bodies]
    markers += [marker for part in drawn_parts(mechanism) for marker in markers_of(part)]
    extent = float(np.ptp([place_of(mechanism, marker).point(poses)[0] for marker in markers], axis=0).max()) or 1.0
    levers = _LEVER * extent * np.eye(dim)
    points = [place_of(mechanism, body.at(*lever)).point(poses) for body in mechanism.bodies for lever in levers]
    points += [place_of(mechanism, body.at()).point(poses) for body in mechanism.bodies]
    far = max(float(np.linalg.norm(point - point[0], axis=-1).max()) for point in points)
    return tiny * _DEFLECTION * extent / far


def _title(normal_modes: Modes, k: int) -> str:
    if np.asarray(normal_modes.rigid)[k]:
        return f"Mode {k}: rigid body"
    damping = float(np.asarray(normal_modes.damping)[k])
    return f"Mode {k}: {float(np.asarray(normal_modes.frequencies)[k]):.4g} Hz" + (
        f", damping ratio {damping:.3g}" if damping else ""
    )
