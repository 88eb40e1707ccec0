"""`draw`: a picture of a mechanism at one position."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from jaxmbd.arrays import Number
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.planar import Prismatic
from jaxmbd.plot import _arrows as arrows
from jaxmbd.plot._forces import applied_forces, arrow_scale, checked_force
from jaxmbd.plot._parts import as_coordinates, describe
from jaxmbd.plot._picture import Limits, Picture, axes_for, limits_of, longest_side
from jaxmbd.plot._scene import Scene
from jaxmbd.plot._space_draw import draw_space
from jaxmbd.plot._strokes import PIN_LAYER
from jaxmbd.plot._style import REACTION, SMALL

_HEADROOM = 3.0  # room for the legend of the arrows, in symbol sizes


def draw(
    mechanism: Mechanism,
    q: Any,
    *,
    axes: Axes | None = None,
    t: Number = 0.0,
    reactions: Mapping[str, Any] | None = None,
    labels: bool = False,
    elev: Number | None = None,
    azim: Number | None = None,
) -> Axes:
    """Draw a mechanism at a position.

    In the plane, a body is the convex hull of its centre of mass and its markers: a bar if they lie on a line, else a
    polygon. Joints, springs and the ground have the symbols of textbooks. Gravity is not drawn.

    In space, bars are round and hulls translucent. A body with no marker besides its centre of mass, or with one other,
    is drawn as the ball, cylinder or box of its mass and inertia, made smaller if there is no room. Hinges and slides
    are drawn along the markers' z axes. The projection is parallel, with z upwards and equal scales.

    **Arguments:**

    - `q`: the coordinates `(nq,)` of a state or a solution: `state.q`, `solution.q[-1]`;
    - `axes`: the axes to draw in, in space 3-D axes; default: a new figure;
    - `t`: the time `[s]` at which applied forces are evaluated, with bodies at rest;
    - `reactions`: forces `(fx, fy)` or `(fx, fy, fz)` `[N]`, world axes, by the name of the joint: arrows on the
      joint's second body. `{"O": solution.reaction("O").force[-1]}`;
    - `labels`: True to write the names of bodies and joints;
    - `elev`, `azim`: in space, the direction of view [degrees]: elevation above the xy plane, azimuth from the x axis.

    **Returns:** the axes, with equal scales along all of them.

    **Raises:** `MechanismError` if `q` or a force has the wrong shape, or a joint does not exist; for 2-D axes in
    space, or a direction of view in the plane.

        >>> axes = draw(mechanism, state.q, labels=True)
    """
    check_mechanism(mechanism)
    if mechanism.space.dim == 3:
        return draw_space(mechanism, q, axes, t, reactions or {}, labels, (elev, azim))
    check_no_view(elev, azim)
    return _draw_planar(mechanism, q, axes, t, reactions or {}, labels)


def check_no_view(elev: Number | None, azim: Number | None) -> None:
    """Raise if a direction of view is set for a planar mechanism."""
    if elev is not None or azim is not None:
        raise MechanismError("elev and azim turn the view of a mechanism in space; this one lies in the plane.")


def _draw_planar(
    mechanism: Mechanism, q: Any, axes: Axes | None, t: Number, reactions: Mapping[str, Any], labels: bool
) -> Axes:
    qs = as_coordinates(q)[None]
    scene = Scene(mechanism, qs)
    limits = limits_of(scene)
    times = jnp.asarray(t, dtype=float)[None]
    applied = applied_forces(mechanism, times, jnp.asarray(qs), jnp.zeros((1, mechanism.nv)))
    places = [arrows.acting(mechanism, name) for name in reactions]
    forces = [checked_force(mechanism, name, force)[None] for name, force in reactions.items()]
    scale = arrow_scale(forces, longest_side(limits))
    extra = [*arrows.tips(places, forces, scene, scale), *arrows.applied_tips(scene, limits, applied)]
    whole = with_headroom(limits_of(scene, extra), scene.size if reactions else 0.0)
    axes = axes_for(whole, axes)
    Picture(scene, axes)
    arrows.applied_arrows(scene, axes, limits, applied)
    if reactions:
        drawn = arrows.Arrows(axes, places, forces, scene.motion[0], scale, REACTION)
        arrows.add_key(axes, drawn, key_point(whole, scene.size), describe(mechanism, list(reactions)))
    if labels:
        _write_labels(scene, axes)
    return axes


def with_headroom(limits: Limits, size: float) -> Limits:
    """Limits with room at the top for the legend of the arrows."""
    (left, right), (bottom, top) = limits
    return (left, right), (bottom, top + _HEADROOM * size)


def key_point(limits: Limits, size: float) -> tuple[float, float]:
    """The starting point of the legend of the arrows, at the top left."""
    (left, _), (_, top) = limits
    return left + size, top - 0.5 * _HEADROOM * size


def _write_labels(scene: Scene, axes: Axes) -> None:
    """Write the names of bodies beside their centres of mass, in their colours, and of joints beside their markers."""
    poses, mechanism = scene.motion[0], scene.mechanism
    halo = [withStroke(linewidth=2.0, foreground="white")]
    style: dict[str, Any] = {"fontsize": SMALL, "zorder": PIN_LAYER + 2, "path_effects": halo}
    blocks = {joint.b.body for joint in mechanism.joints if isinstance(joint, Prismatic)}
    for i, body in enumerate(mechanism.bodies):
        below = 2.2 if body.name in blocks else 1.0
        x, y = poses[i, :2] + scene.size * np.array([0.9, -below])
        axes.text(x, y, body.name, color=scene.colour(i), va="top", style="italic", **style)
    seen: dict[tuple[float, ...], list[str]] = {}
    for joint in mechanism.joints:
        if getattr(joint, "markers", ()):
            point = arrows.acting(mechanism, joint.name).point(poses)
            seen.setdefault(tuple(np.round(point / scene.size, 3)), []).append(joint.name)
    for key, names in seen.items():
        x, y = np.array(key) * scene.size + 0.7 * scene.size
        axes.text(x, y, ", ".join(names), color="black", va="bottom", **style)
