"""A mechanism at one position."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from jaxmbd._errors import MechanismError
from jaxmbd._mechanism import Mechanism
from jaxmbd._types import Number
from jaxmbd.planar import Translational
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
from jaxmbd.plot._picture import Limits, Picture, axes_for, limits_of
from jaxmbd.plot._scene import Scene
from jaxmbd.plot._strokes import PIN_LAYER
from jaxmbd.plot._style import REACTION, SMALL

_HEADROOM = 3.0  # for the legend of the arrows, in sizes of symbols


def draw(
    mechanism: Mechanism,
    q: Any,
    *,
    axes: Axes | None = None,
    t: Number = 0.0,
    reactions: Mapping[str, Any] | None = None,
    labels: bool = False,
) -> Axes:
    """Draw a mechanism at a position.

    A body is the convex hull of its centre of mass and its markers: a bar where they lie on a line, a polygon
    otherwise. Joints, springs and the ground have the symbols of textbooks. Gravity is not drawn.

    **Arguments:**

    - `q`: the coordinates `(nq,)`, of a state or a solution: `state.q`, `solution.q[-1]`;
    - `axes`: where to draw; a new figure unless given;
    - `t`: the time `[s]` at which applied forces that depend on it are evaluated, bodies at rest;
    - `reactions`: forces `(fx, fy)` `[N]`, world axes, by the name of the joint: arrows on the joint's second
      body. `{"O": solution.reaction("O").force[-1]}`;
    - `labels`: write the names of bodies and joints.

    **Returns:** the axes, with equal scales in x and y.

    **Raises:** `MechanismError` if `q` or a force has the wrong shape, or a joint does not exist.

        >>> axes = draw(mechanism, state.q, labels=True)
    """
    qs = np.asarray(q, dtype=float)[None]
    scene = Scene(mechanism, qs)
    limits = limits_of(scene)
    times = jnp.asarray(t, dtype=float)[None]
    applied = applied_forces(mechanism, times, jnp.asarray(qs), jnp.zeros_like(jnp.asarray(qs)))
    places = [acting(mechanism, name) for name in (reactions or {})]
    forces = [_force(name, force)[None] for name, force in (reactions or {}).items()]
    scale = arrow_scale(forces, limits)
    extra = tips(places, forces, scene, scale)
    for name, values in applied.items():
        extra += tips([scene.place(mechanism[name].at)], [values], scene, arrow_scale([values], limits))
    whole = with_headroom(limits_of(scene, extra), scene.size if reactions else 0.0)
    axes = axes_for(whole, axes)
    Picture(scene, axes)
    applied_arrows(scene, axes, limits, applied)
    if reactions:
        arrows = Arrows(axes, places, forces, scene.motion[0], scale, REACTION)
        add_key(axes, arrows, key_point(whole, scene.size), describe(mechanism, list(reactions)))
    if labels:
        _write_labels(scene, axes)
    return axes


def with_headroom(limits: Limits, size: float) -> Limits:
    """Limits with room for a legend of the arrows at the top."""
    (left, right), (bottom, top) = limits
    return (left, right), (bottom, top + _HEADROOM * size)


def key_point(limits: Limits, size: float) -> tuple[float, float]:
    """Where the legend of the arrows starts: left at the top."""
    (left, _), (_, top) = limits
    return left + size, top - 0.5 * _HEADROOM * size


def _force(name: str, value: Any) -> np.ndarray:
    found = np.asarray(value, dtype=float)
    if found.shape != (2,):
        raise MechanismError(f"Reaction of {name!r}: expected a force (fx, fy) [N], got shape {found.shape}.")
    return found


def _write_labels(scene: Scene, axes: Axes) -> None:
    """Names of bodies beside their middles, in their colours; names of joints beside their markers."""
    poses, mechanism = scene.motion[0], scene.mechanism
    halo = [withStroke(linewidth=2.0, foreground="white")]
    style: dict[str, Any] = {"fontsize": SMALL, "zorder": PIN_LAYER + 2, "path_effects": halo}
    blocks = {joint.b.body for joint in mechanism.joints if isinstance(joint, Translational)}
    for i, body in enumerate(mechanism.bodies):
        below = 2.2 if body.name in blocks else 1.0
        x, y = poses[i, :2] + scene.size * np.array([0.9, -below])
        axes.text(x, y, body.name, color=scene.colour(i), va="top", style="italic", **style)
    seen: dict[tuple[float, ...], list[str]] = {}
    for joint in mechanism.joints:
        if getattr(joint, "markers", ()):
            point = acting(mechanism, joint.name).point(poses)
            seen.setdefault(tuple(np.round(point / scene.size, 3)), []).append(joint.name)
    for key, names in seen.items():
        x, y = np.array(key) * scene.size + 0.7 * scene.size
        axes.text(x, y, ", ".join(names), color="black", va="bottom", **style)
