"""Arrows for forces, all to one scale in a picture: the largest has a fixed share of it."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.quiver import Quiver, QuiverKey

from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.plot._forces import Forces, arrow_scale, round_below
from jaxmbd.plot._parts import acting_marker
from jaxmbd.plot._picture import Limits, longest_side
from jaxmbd.plot._scene import Place, Poses, Scene
from jaxmbd.plot._style import APPLIED, SMALL

ARROW_LAYER = 8


class Arrows:
    """Forces `(times, 2)` [N] at places of bodies, as one quiver to one scale [N/m]."""

    def __init__(
        self,
        axes: Axes,
        places: Sequence[Place],
        forces: Sequence[Forces],
        poses: Poses,
        scale: float,
        colour: str,
    ) -> None:
        self.places = tuple(places)
        self.forces = np.stack(forces)
        self.scale = scale
        self.quiver: Quiver = axes.quiver(
            *self._points(poses).T,
            *self.forces[:, 0].T,
            angles="xy",
            scale_units="xy",
            scale=scale,
            color=colour,
            width=0.0065,
            headwidth=3.6,
            headlength=4.5,
            headaxislength=4.0,
            minlength=0.0,
            zorder=ARROW_LAYER,
        )

    def move(self, poses: Poses, k: int) -> Quiver:
        """Put the arrows at the poses of frame `k`."""
        self.quiver.set_offsets(self._points(poses))
        self.quiver.set_UVC(*self.forces[:, k].T)
        return self.quiver

    def _points(self, poses: Poses) -> np.ndarray:
        return np.stack([place.point(poses) for place in self.places])


def add_key(axes: Axes, arrows: Arrows, at: tuple[float, float], label: str) -> QuiverKey:
    """The legend of the scale: an arrow of a round number of newtons, to the right from a point [m]."""
    value = round_below(float(np.linalg.norm(arrows.forces, axis=-1).max()))
    text = f"{value:g} N   {label}"
    quiver, size = arrows.quiver, {"size": SMALL}
    tip = at[0] + value / arrows.scale  # a key with its label on the right is placed by its tip
    return axes.quiverkey(
        quiver, tip, at[1], value, text, labelpos="E", labelsep=0.08, coordinates="data", fontproperties=size
    )


def acting(mechanism: Mechanism, name: str) -> Place:
    """The place where a joint or driver acts on its second body, on which reactions are counted."""
    return Place(mechanism, acting_marker(mechanism, name))


def applied_arrows(scene: Scene, axes: Axes, limits: Limits, forces: Mapping[str, Forces]) -> list[Arrows]:
    """Black arrows for applied forces, each to the scale of its own largest value."""
    found = []
    for name, values in forces.items():
        place = scene.place(scene.mechanism[name].at)
        scale = arrow_scale([values], longest_side(limits))
        found.append(Arrows(axes, [place], [values], scene.motion[0], scale, APPLIED))
    return found


def applied_tips(scene: Scene, limits: Limits, forces: Mapping[str, Forces]) -> list[np.ndarray]:
    """The points that the arrow heads of applied forces reach over the motion."""
    found = []
    for name, values in forces.items():
        scale = arrow_scale([values], longest_side(limits))
        found += tips([scene.place(scene.mechanism[name].at)], [values], scene, scale)
    return found


def tips(places: Sequence[Place], forces: Sequence[Forces], scene: Scene, scale: float) -> list[np.ndarray]:
    """The points that the arrow heads reach over the motion."""
    return [place.point(scene.motion) + values / scale for place, values in zip(places, forces, strict=True)]
