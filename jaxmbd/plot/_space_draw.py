"""The picture of a mechanism in space at one position, with arrows and labels."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from mpl_toolkits.mplot3d import Axes3D

from jaxmbd.arrays import Number
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.plot._forces import applied_forces, checked_force
from jaxmbd.plot._parts import acting_marker, as_coordinates, describe
from jaxmbd.plot._space_arrows import add_key, applied_arrows, reaction_arrows
from jaxmbd.plot._space_picture import (
    HEADROOM,
    TEXT_LAYER,
    SpacePicture,
    View,
    axes_for,
    limits_of,
    scene_pieces,
    screen,
)
from jaxmbd.plot._space_scene import SpaceScene
from jaxmbd.plot._style import SMALL


def draw_space(
    mechanism: Mechanism,
    q: Any,
    axes: Axes | None,
    t: Number,
    reactions: Mapping[str, Any],
    labels: bool,
    view: View,
) -> Axes3D:
    """Draw a mechanism in space; `draw` documents the arguments."""
    qs = as_coordinates(q)[None]
    scene = SpaceScene(mechanism, qs)
    pieces = scene_pieces(scene)
    limits = limits_of(scene, pieces)
    places = {name: scene.place(acting_marker(mechanism, name)) for name in reactions}
    forces = [checked_force(mechanism, name, force)[None] for name, force in reactions.items()]
    at_rest = jnp.asarray(t, dtype=float)[None], jnp.asarray(qs), jnp.zeros((1, mechanism.nv))
    joints = reaction_arrows(scene, limits, places, forces)
    arrows = [*applied_arrows(scene, limits, applied_forces(mechanism, *at_rest)), *joints]
    whole = limits_of(scene, pieces, [arrow.tips(scene) for arrow in arrows])
    axes_3d = axes_for(whole, axes, view, HEADROOM if joints else 0.0)
    SpacePicture(scene, axes_3d, [*pieces, *(arrow.piece for arrow in arrows)])
    if joints:
        add_key(axes_3d, joints, whole, describe(mechanism, list(reactions)))
    if labels:
        write_labels(scene, axes_3d)
    return axes_3d


def write_labels(scene: SpaceScene, axes: Axes3D) -> None:
    """Write the names of bodies beside their centres of mass, in their colours, and of joints beside their markers."""
    mechanism, poses, size = scene.mechanism, scene.motion.at(0), scene.size
    right, up = screen(axes)
    halo = [withStroke(linewidth=2.0, foreground="white")]
    style: dict[str, Any] = {"fontsize": SMALL, "zorder": TEXT_LAYER, "path_effects": halo}
    for i, body in enumerate(mechanism.bodies):
        x, y, z = poses.position[i] + size * (1.0 * right - 1.0 * up)
        axes.text(x, y, z, body.name, color=scene.colour(i), va="top", style="italic", **style)
    seen: dict[tuple[float, ...], list[str]] = {}
    for joint in mechanism.joints:
        if getattr(joint, "markers", ()):
            point = scene.place(acting_marker(mechanism, joint.name)).point(poses)
            seen.setdefault(tuple(np.round(point / size, 3)), []).append(joint.name)
    for key, names in seen.items():
        x, y, z = size * (np.array(key) + 1.1 * right + 1.1 * up)
        axes.text(x, y, z, ", ".join(names), color="black", va="bottom", **style)
