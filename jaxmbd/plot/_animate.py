"""A motion as an animation."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxmbd._analysis import Solution
from jaxmbd._errors import MechanismError, unknown
from jaxmbd._mechanism import Mechanism
from jaxmbd._sensor import Point
from jaxmbd.plot._arrows import (
    Arrows,
    acting,
    add_key,
    applied_arrows,
    applied_forces,
    arrow_scale,
    describe,
    tips,
)
from jaxmbd.plot._draw import key_point, with_headroom
from jaxmbd.plot._picture import Picture, axes_for, limits_of
from jaxmbd.plot._scene import Place, Scene, poses_of
from jaxmbd.plot._style import REACTION, TEXT

_TRACE_LAYER = 2.5
_PATH_POINTS = 400  # at least, so that a path looks smooth however few the frames


def animate(
    solution: Solution,
    *,
    reactions: Sequence[str] = (),
    trace: Sequence[str] = (),
    fps: float | int = 30,
    speed: float | int = 1.0,
) -> FuncAnimation:
    """Animate a motion.

    Frames are equally spaced in time from the first to the last of `solution.ts`; positions between those
    times are interpolated by cubics from positions and speeds, forces linearly.

    **Arguments:**

    - `reactions`: names of joints (or drivers) whose force on their second body is drawn, the largest of all
      over a fifth of the picture; a legend gives the scale;
    - `trace`: names of `Point` sensors, or of bodies for their centres of mass, whose paths are drawn;
    - `fps`: frames per second of the film; `speed`: seconds of the motion per second of the film (`0.1` is
      slow motion).

    **Returns:** matplotlib's `FuncAnimation`. In a notebook: `IPython.display.HTML(animation.to_jshtml())`.
    To a file: `save_animation`.

    **Raises:** `MechanismError` for names that do not exist, and for a rate that is not positive.

        >>> film = animate(solution, reactions=["O"], trace=["tip"], speed=0.5)
        >>> save_animation(film, "pendulum.gif")
    """
    film = _Film(solution, _names(reactions), _names(trace), _frame_times(solution, fps, speed))
    return FuncAnimation(film.figure, film.show, frames=len(film.times), interval=1000 / fps, blit=False)


class _Film:
    """The figure of an animation, and what changes in it from frame to frame."""

    def __init__(self, solution: Solution, reactions: Sequence[str], trace: Sequence[str], times: np.ndarray) -> None:
        mechanism = solution.mechanism
        ts, q, v = (np.asarray(x, dtype=float) for x in (solution.ts, solution.q, solution.v))
        scene = Scene(mechanism, interpolate(times, ts, q, v))
        self.finer = math.ceil(_PATH_POINTS / len(times))
        fine = np.linspace(times[0], times[-1], (len(times) - 1) * self.finer + 1)
        path = poses_of(mechanism, interpolate(fine, ts, q, v))
        traced = [_traced(mechanism, name) for name in trace]
        self.paths = [place.point(path) for place in traced]
        places = [acting(mechanism, name) for name in reactions]
        forces = [_linear(times, ts, np.asarray(solution.reaction(name).force)) for name in reactions]
        applied = applied_forces(mechanism, solution.ts, solution.q, jnp.asarray(v))
        applied = {name: _linear(times, ts, values) for name, values in applied.items()}
        limits = limits_of(scene, self.paths)
        scale = arrow_scale(forces, limits)
        extra = [*tips(places, forces, scene, scale), *self.paths]
        for name, values in applied.items():
            extra += tips([scene.place(mechanism[name].at)], [values], scene, arrow_scale([values], limits))
        whole = with_headroom(limits_of(scene, extra), scene.size if reactions else 0.0)
        self.axes = axes_for(whole, None)
        self.figure = _figure(self.axes)
        self.times, self.scene = times, scene
        pairs = zip(self.paths, traced, strict=True)
        self.lines = [_add_path(self.axes, path, scene.colour(place.body)) for path, place in pairs]
        self.picture = Picture(scene, self.axes)
        self.arrows = applied_arrows(scene, self.axes, limits, applied)
        if reactions:
            arrows = Arrows(self.axes, places, forces, scene.motion[0], scale, REACTION)
            add_key(self.axes, arrows, key_point(whole, scene.size), describe(mechanism, reactions))
            self.arrows.append(arrows)
        self.clock = self.axes.set_title("", loc="left", fontsize=TEXT)
        self.digits = max(0, -math.floor(math.log10(float(np.diff(times).min())) + 1e-9))
        self.show(0)

    def show(self, k: int) -> list[Artist]:
        """Draw frame `k`."""
        poses = self.scene.motion[k]
        for line, path in zip(self.lines, self.paths, strict=True):
            line.set_data(*path[: k * self.finer + 1].T)
        self.clock.set_text(f"$t$ = {self.times[k]:.{self.digits}f} s")
        quivers = [arrows.move(poses, k) for arrows in self.arrows]
        return [*self.picture.move(poses), *quivers, *self.lines, self.clock]


def _add_path(axes: Axes, path: np.ndarray, colour: str) -> Line2D:
    """The whole path of a traced point, faint; returns the line for the part that has been travelled."""
    axes.plot(*path.T, color=colour, linewidth=0.8, alpha=0.35, zorder=_TRACE_LAYER)
    (line,) = axes.plot([], [], color=colour, linewidth=1.5, zorder=_TRACE_LAYER)
    return line


def interpolate(times: np.ndarray, ts: np.ndarray, values: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Cubic Hermite interpolation of `values (times, n)` with their `rates` at other times."""
    k = np.clip(np.searchsorted(ts, times, side="right") - 1, 0, len(ts) - 2)
    step = (ts[k + 1] - ts[k])[:, None]
    s = (times - ts[k])[:, None] / step
    start, stop = values[k], values[k + 1]
    out, into = step * rates[k], step * rates[k + 1]
    smooth = s * s * (3 - 2 * s)
    return start + smooth * (stop - start) + s * (1 - s) ** 2 * out - s * s * (1 - s) * into


def _linear(times: np.ndarray, ts: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(times, ts, column) for column in values.T], axis=1)


def _frame_times(solution: Solution, fps: float | int, speed: float | int) -> np.ndarray:
    for name, value in (("fps", fps), ("speed", speed)):
        if not value > 0:
            raise MechanismError(f"{name} must be positive, got {value!r}.")
    start, stop = float(solution.ts[0]), float(solution.ts[-1])
    return np.linspace(start, stop, max(round((stop - start) * fps / speed), 1) + 1)


def _names(names: Sequence[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _traced(mechanism: Mechanism, name: str) -> Place:
    markers = {body.name: body.at() for body in mechanism.bodies}
    markers |= {sensor.name: sensor.at for sensor in mechanism.sensors if isinstance(sensor, Point)}
    if name not in markers:
        raise unknown("point sensor or body", name, markers)
    return Place(mechanism, markers[name])


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
