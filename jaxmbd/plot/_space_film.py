"""The figure of an animation in space, and the update of its artists from frame to frame."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3D

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.plot._forces import applied_forces
from jaxmbd.plot._frames import PATH_POINTS, digits_of, interpolate, linear, traced_marker
from jaxmbd.plot._parts import acting_marker, describe
from jaxmbd.plot._space_arrows import SpaceArrow, add_key, applied_arrows, reaction_arrows
from jaxmbd.plot._space_picture import (
    HEADROOM,
    TRACE_LAYER,
    Limits,
    SpacePicture,
    View,
    axes_for,
    limits_of,
    scene_pieces,
)
from jaxmbd.plot._space_scene import SpaceScene, poses_of, rates_of
from jaxmbd.plot._style import INK, TEXT


class SpaceFilm:
    """The figure of an animation in space, for frames at `times (frames,)` [s]; `show` draws one frame."""

    def __init__(
        self, solution: Solution, reactions: Sequence[str], trace: Sequence[str], times: np.ndarray, view: View
    ) -> None:
        mechanism = solution.mechanism
        ts, q, v = (np.asarray(x, dtype=float) for x in (solution.ts, solution.q, solution.v))
        motion = ts, q, rates_of(mechanism, q, v)
        self.times = times
        self.scene = scene = SpaceScene(mechanism, interpolate(times, *motion))
        self.finer = math.ceil(PATH_POINTS / len(times))
        fine = np.linspace(times[0], times[-1], (len(times) - 1) * self.finer + 1)
        path = poses_of(mechanism, interpolate(fine, *motion))
        traced = [scene.place(traced_marker(mechanism, name)) for name in trace]
        self.paths = [place.point(path) for place in traced]
        pieces = scene_pieces(scene)
        limits = limits_of(scene, pieces, self.paths)
        joints = self._reactions(solution, reactions, limits)
        self.arrows = [*self._applied(solution, v, limits), *joints]
        whole = limits_of(scene, pieces, [*self.paths, *(arrow.tips(scene) for arrow in self.arrows)])
        self.axes = axes_for(whole, None, view, HEADROOM)
        pairs = zip(self.paths, traced, strict=True)
        self.lines = [_add_path(self.axes, points, scene.colour(place.body)) for points, place in pairs]
        self.picture = SpacePicture(scene, self.axes, [*pieces, *(arrow.piece for arrow in self.arrows)])
        self.figure = _figure(self.axes)
        if joints:
            add_key(self.axes, joints, whole, describe(mechanism, reactions))
        self.clock = self.figure.text(0.97, 0.98, "", fontsize=TEXT, color=INK, ha="right", va="top")
        self.digits = digits_of(times)
        self.show(0)

    def show(self, k: int) -> list[Artist]:
        """Draw frame `k`."""
        for line, path in zip(self.lines, self.paths, strict=True):
            line.set_data_3d(*path[: k * self.finer + 1].T)
        for arrow in self.arrows:
            arrow.now = k
        self.clock.set_text(f"$t$ = {self.times[k]:.{self.digits}f} s")
        return [*self.picture.move(self.scene.motion.at(k)), *self.lines, self.clock]

    def _reactions(self, solution: Solution, names: Sequence[str], limits: Limits) -> list[SpaceArrow]:
        places = {name: self.scene.place(acting_marker(solution.mechanism, name)) for name in names}
        ts = np.asarray(solution.ts)
        forces = [linear(self.times, ts, np.asarray(solution.reaction(name).force)) for name in names]
        return reaction_arrows(self.scene, limits, places, forces)

    def _applied(self, solution: Solution, v: np.ndarray, limits: Limits) -> list[SpaceArrow]:
        forces = applied_forces(solution.mechanism, solution.ts, solution.q, jnp.asarray(v))
        ts = np.asarray(solution.ts)
        return applied_arrows(self.scene, limits, {name: linear(self.times, ts, f) for name, f in forces.items()})


def _add_path(axes: Axes3D, path: np.ndarray, colour: str) -> Line3D:
    """Draw the whole path of a traced point faintly; return the line of the part travelled so far."""
    axes.plot(*path.T, color=colour, linewidth=0.8, alpha=0.35, zorder=TRACE_LAYER)
    (line,) = axes.plot(*path[:1].T, color=colour, linewidth=1.5, zorder=TRACE_LAYER)
    assert isinstance(line, Line3D)
    return line


def _figure(axes: Axes3D) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
