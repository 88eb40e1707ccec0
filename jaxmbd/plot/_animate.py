"""`animate`: the animation of a motion."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import Number
from jaxmbd.model.body.checks import check_instance
from jaxmbd.plot import _arrows as arrows
from jaxmbd.plot._draw import check_no_view, key_point, with_headroom
from jaxmbd.plot._forces import applied_forces, arrow_scale
from jaxmbd.plot._frames import PATH_POINTS, as_names, digits_of, frame_times, interpolate, linear, traced_marker
from jaxmbd.plot._parts import describe, poses_at
from jaxmbd.plot._picture import Picture, axes_for, limits_of, longest_side
from jaxmbd.plot._scene import Place, Scene
from jaxmbd.plot._space_film import SpaceFilm
from jaxmbd.plot._style import REACTION, TEXT

_TRACE_LAYER = 2.5


def animate(
    solution: Solution,
    *,
    reactions: Sequence[str] = (),
    trace: Sequence[str] = (),
    fps: float | int = 30,
    speed: float | int = 1.0,
    elev: Number | None = None,
    azim: Number | None = None,
) -> FuncAnimation:
    """Animate a motion.

    Frames are equally spaced in time from the first to the last of `solution.ts`. Positions between these times are
    interpolated by cubics from positions and speeds, forces linearly.

    **Arguments:**

    - `reactions`: names of joints (or drivers) whose force on their second body is drawn; the longest arrow takes a
      fifth of the picture, and a legend gives the scale;
    - `trace`: names of `Point` sensors, or of bodies for their centres of mass, whose paths are drawn;
    - `fps`: frames per second of the film; `speed`: seconds of the motion per second of the film (`0.1` is
      slow motion);
    - `elev`, `azim`: in space, the direction of view [degrees], as in `draw`.

    **Returns:** matplotlib's `FuncAnimation`. In a notebook: `IPython.display.HTML(animation.to_jshtml())`.
    To a file: `save_animation`.

    **Raises:** `MechanismError` for names that do not exist, a rate that is not positive, and a direction of view for
    a planar mechanism.

        >>> film = animate(solution, reactions=["O"], trace=["tip"], speed=0.5)
        >>> save_animation(film, "pendulum.gif")
    """
    check_instance("solution", solution, Solution, "a Solution of simulate or kinematics")
    for what, rate in (("fps", fps), ("speed", speed)):
        check_instance(what, rate, (int, float, np.integer, np.floating), "a number")
    wanted = as_names(reactions), as_names(trace), frame_times(solution, fps, speed)
    if solution.mechanism.space.dim == 3:
        film: SpaceFilm | _Film = SpaceFilm(solution, *wanted, (elev, azim))
    else:
        check_no_view(elev, azim)
        film = _Film(solution, *wanted)
    return FuncAnimation(film.figure, film.show, frames=len(film.times), interval=1000 / fps, blit=False)


class _Film:
    """The figure of an animation in the plane; `show` draws one frame."""

    def __init__(self, solution: Solution, reactions: Sequence[str], trace: Sequence[str], times: np.ndarray) -> None:
        mechanism = solution.mechanism
        ts, q, v = (np.asarray(x, dtype=float) for x in (solution.ts, solution.q, solution.v))
        scene = Scene(mechanism, interpolate(times, ts, q, v))
        self.finer = math.ceil(PATH_POINTS / len(times))
        fine = np.linspace(times[0], times[-1], (len(times) - 1) * self.finer + 1)
        path = poses_at(mechanism, interpolate(fine, ts, q, v))
        traced = [Place(mechanism, traced_marker(mechanism, name)) for name in trace]
        self.paths = [place.point(path) for place in traced]
        places = [arrows.acting(mechanism, name) for name in reactions]
        forces = [linear(times, ts, np.asarray(solution.reaction(name).force)) for name in reactions]
        applied = applied_forces(mechanism, solution.ts, solution.q, jnp.asarray(v))
        applied = {name: linear(times, ts, values) for name, values in applied.items()}
        limits = limits_of(scene, self.paths)
        scale = arrow_scale(forces, longest_side(limits))
        extra = [*arrows.tips(places, forces, scene, scale), *self.paths]
        extra += arrows.applied_tips(scene, limits, applied)
        whole = with_headroom(limits_of(scene, extra), scene.size if reactions else 0.0)
        self.axes = axes_for(whole, None)
        self.figure = _figure(self.axes)
        self.times, self.scene = times, scene
        pairs = zip(self.paths, traced, strict=True)
        self.lines = [_add_path(self.axes, path, scene.colour(place.body)) for path, place in pairs]
        self.picture = Picture(scene, self.axes)
        self.arrows = arrows.applied_arrows(scene, self.axes, limits, applied)
        if reactions:
            drawn = arrows.Arrows(self.axes, places, forces, scene.motion[0], scale, REACTION)
            arrows.add_key(self.axes, drawn, key_point(whole, scene.size), describe(mechanism, reactions))
            self.arrows.append(drawn)
        self.clock = self.axes.set_title("", loc="left", fontsize=TEXT)
        self.digits = digits_of(times)
        self.show(0)

    def show(self, k: int) -> list[Artist]:
        """Draw frame `k`."""
        poses = self.scene.motion[k]
        for line, path in zip(self.lines, self.paths, strict=True):
            line.set_data(*path[: k * self.finer + 1].T)
        self.clock.set_text(f"$t$ = {self.times[k]:.{self.digits}f} s")
        quivers = [moving.move(poses, k) for moving in self.arrows]
        return [*self.picture.move(poses), *quivers, *self.lines, self.clock]


def _add_path(axes: Axes, path: np.ndarray, colour: str) -> Line2D:
    """Draw the whole path of a traced point faintly; return the line of the part travelled so far."""
    axes.plot(*path.T, color=colour, linewidth=0.8, alpha=0.35, zorder=_TRACE_LAYER)
    (line,) = axes.plot([], [], color=colour, linewidth=1.5, zorder=_TRACE_LAYER)
    return line


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
