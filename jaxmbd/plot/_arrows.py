"""Arrows for forces, all to one scale in a picture: the largest has a fixed share of it."""

import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.quiver import Quiver, QuiverKey

from jaxmbd._body import GROUND
from jaxmbd._errors import unknown
from jaxmbd._joint import AbstractJoint
from jaxmbd._mechanism import Drive, Mechanism
from jaxmbd.planar import Force
from jaxmbd.plot._picture import Limits
from jaxmbd.plot._scene import Place, Poses, Scene
from jaxmbd.plot._style import APPLIED, SMALL

SHARE = 0.2  # the longest arrow, as a share of the longer side of the mechanism's picture
ARROW_LAYER = 8
_LONG = 60  # characters of a legend on one line

Forces = Float[np.ndarray, "times 2"]


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


def arrow_scale(forces: Sequence[Forces], limits: Limits) -> float:
    """Newtons per metre of the picture, such that the largest force takes `SHARE` of the longer side."""
    largest = max((float(np.linalg.norm(f, axis=-1).max()) for f in forces), default=0.0)
    side = max(high - low for low, high in limits)
    return (largest if largest > 0 else 1.0) / (SHARE * side)


def add_key(axes: Axes, arrows: Arrows, at: tuple[float, float], label: str) -> QuiverKey:
    """The legend of the scale: an arrow of a round number of newtons, to the right from a point [m]."""
    value = round_below(float(np.linalg.norm(arrows.forces, axis=-1).max()))
    text = f"{value:g} N   {label}"
    quiver, size = arrows.quiver, {"size": SMALL}
    tip = at[0] + value / arrows.scale  # a key with its label on the right is placed by its tip
    return axes.quiverkey(
        quiver, tip, at[1], value, text, labelpos="E", labelsep=0.08, coordinates="data", fontproperties=size
    )


def round_below(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above the value; 1 for none."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1.0, 2.0, 5.0) if step * power <= value)


def acting(mechanism: Mechanism, name: str) -> Place:
    """The place where a joint or driver acts on its second body, on which reactions are counted."""
    parts = {part.name: part for part in mechanism.constraints() if isinstance(part, AbstractJoint | Drive)}
    if name not in parts:
        raise unknown("joint or driver", name, parts)
    markers = parts[name].markers
    return Place(mechanism, markers[min(1, len(markers) - 1)])


def describe(mechanism: Mechanism, names: Sequence[str]) -> str:
    """`"reaction of A on rod, of B on slider"`."""
    bodies = (*(body.name for body in mechanism.bodies), GROUND)
    text = "reaction " + ", ".join(f"of {name} on {bodies[acting(mechanism, name).body]}" for name in names)
    return text if len(text) <= _LONG else "reactions of " + ", ".join(names)


def applied_forces(
    mechanism: Mechanism, ts: Float[Array, " times"], q: Float[Array, "times nq"], v: Float[Array, "times nv"]
) -> Mapping[str, Forces]:
    """The forces `(times, 2)` [N], world axes, of the `Force` parts of a mechanism over a motion."""

    def one(force: Force, t: Array, q: Array, v: Array) -> Array:
        frames, rates = jax.jvp(lambda q: mechanism.frames(force.markers, q), (q,), (v,))
        return force.wrenches(t, frames, rates)[0, :2]

    found = {}
    for force in mechanism.forces:
        if isinstance(force, Force):
            values = np.asarray(jax.vmap(lambda *at, force=force: one(force, *at))(ts, q, v))
            if np.any(values):
                found[force.name] = values
    return found


def applied_arrows(scene: Scene, axes: Axes, limits: Limits, forces: Mapping[str, Forces]) -> list[Arrows]:
    """Black arrows for applied forces, each to the scale of its own largest value."""
    found = []
    for name, values in forces.items():
        place = scene.place(scene.mechanism[name].at)
        scale = arrow_scale([values], limits)
        found.append(Arrows(axes, [place], [values], scene.motion[0], scale, APPLIED))
    return found


def tips(places: Sequence[Place], forces: Sequence[Forces], scene: Scene, scale: float) -> list[np.ndarray]:
    """The points that the arrow heads reach over the motion."""
    return [place.point(scene.motion) + values / scale for place, values in zip(places, forces, strict=True)]
