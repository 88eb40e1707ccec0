"""`draw`: a picture of a mechanism at one position."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from jaxmbd.analyses.assembly.multistart import guessed
from jaxmbd.arrays import Number, Numbers, as_float, constant
from jaxmbd.checks import check_finite
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.plot._plane import PlanePicture
from jaxmbd.plot._space import SpacePicture
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import as_coordinates
from jaxmbd.scene.scene import Scene, View, applied_forces, check_view, checked_reactions
from jaxmbd.state.state import State


def draw(
    mechanism: Mechanism,
    q: State | Numbers | None = None,
    *,
    axes: Axes | None = None,
    t: Number | None = None,
    reactions: Mapping[str, Numbers] | None = None,
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

    - `q`: a `State`, or coordinates `(nq,)`: `solution.q[-1]`; by default the poses that the bodies were given, at
      which joints may be open;
    - `axes`: the axes to draw in, in space 3-D axes; default: a new figure;
    - `t`: the time `[s]` at which moving markers are drawn and applied forces are evaluated; default: that of the
      state, 0 for coordinates. Forces are those at the speeds of the state, of bodies at rest for coordinates;
    - `reactions`: forces `(fx, fy)` or `(fx, fy, fz)` `[N]`, world axes, by the name of the joint: arrows on the
      joint's second body. `{"O": solution.reaction("O").force[-1]}`;
    - `labels`: True to write the names of bodies and joints;
    - `elev`, `azim`: in space, the direction of view [degrees]: elevation above the xy plane, azimuth from the x axis.

    **Returns:** the axes, with equal scales along all of them.

    **Raises:** `MechanismError` if `q` or a force has the wrong shape, or a joint does not exist; for 2-D axes in
    space, or a direction of view in the plane.

        >>> from jaxmbd import plot
        >>> pendulum = mbd.examples.get("pendulum")
        >>> axes = plot.draw(pendulum.mechanism, pendulum.state(), labels=True)
        >>> axes.figure.savefig("pendulum.png")
    """
    check_mechanism(mechanism)
    check_view(mechanism, (elev, azim))
    qs = as_coordinates(guessed(mechanism, {}) if q is None else q)[None]
    given, v = (q.t, q.v) if isinstance(q, State) else (0.0, np.zeros(mechanism.nv))
    if t is not None:
        check_finite("draw", "t", as_float(t), ())
    ts, vs = (constant(np.asarray(as_float(x))[None]) for x in (given if t is None else t, v))
    geometry = Geometry(mechanism, ts, qs)
    forces = checked_reactions(mechanism, reactions or {})
    scene = Scene(geometry, forces, applied_forces(mechanism, ts, constant(qs), vs))
    picture = picture_of(scene, axes, (elev, azim))
    if labels:
        picture.write_labels()
    return picture.axes


def picture_of(
    scene: Scene, axes: Axes | None, view: View, *, has_ghost: bool = False, has_title: bool = False
) -> PlanePicture | SpacePicture:
    """The picture of a scene on given axes, or on those of a new figure, in space with room for a title."""
    if scene.geometry.dim == 2:
        return PlanePicture(scene, axes, has_ghost)
    return SpacePicture(scene, axes, view, has_ghost, has_title)
