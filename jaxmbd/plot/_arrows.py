"""Arrows for forces in the plane, with a common scale: the longest takes a fixed share of the picture."""

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
    """Forces `(times, 2)` [N] at markers, as one quiver with a common scale [N/m]."""

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
        """Move the arrows to the poses and forces of frame `k`."""
        self.quiver.set_offsets(self._points(poses))
        self.quiver.set_UVC(*self.forces[:, k].T)
        return self.quiver

    def _points(self, poses: Poses) -> np.ndarray:
        return np.stack([place.point(poses) for place in self.places])


def add_key(axes: Axes, arrows: Arrows, at: tuple[float, float], label: str) -> QuiverKey:
    """Add the legend of the scale: an arrow for a round number of newtons, from a point [m] to the right."""
    value = round_below(float(np.linalg.norm(arrows.forces, axis=-1).max()))
    text = f"{value:g} N   {label}"
    quiver, size = arrows.quiver, {"size": SMALL}
    tip = at[0] + value / arrows.scale  # matplotlib positions a key with its label on the right by the tip
    return axes.quiverkey(
        quiver, tip, at[1], value, text, labelpos="E", labelsep=0.08, coordinates="data", fontproperties=size
    )


def acting(mechanism: Mechanism, name: str) -> Place:
    """The marker at which a joint or driver acts on its second body, the body to which reactions refer."""
    return Place(mechanism, acting_marker(mechanism, name))


def applied_arrows(scene: Scene, axes: Axes, limits: Limits, forces: Mapping[str, Forces]) -> list[Arrows]:
    """Black arrows for applied forces, each scaled by its own largest value."""
    arrows = []
    for name, values in forces.items():
        place = scene.place(scene.mechanism[name].at)
        scale = arrow_scale([values], longest_side(limits))
        arrows.append(Arrows(axes, [place], [values], scene.motion[0], scale, APPLIED))
    return arrows


def applied_tips(scene: Scene, limits: Limits, forces: Mapping[str, Forces]) -> list[np.ndarray]:
    """The positions of the arrow tips of applied forces over the motion."""
    points = []
    for name, values in forces.items():
        scale = arrow_scale([values], longest_side(limits))
        points += tips([scene.place(scene.mechanism[name].at)], [values], scene, scale)
    return points


def tips(places: Sequence[Place], forces: Sequence[Forces], scene: Scene, scale: float) -> list[np.ndarray]:
    """The positions of the arrow tips over the motion."""
    return [place.point(scene.motion) + values / scale for place, values in zip(places, forces, strict=True)]
