"""Do the methods of a tree joint say the same of one joint? The equations trust each of them by itself."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError, shown
from jaxmbd.model.joint.joint import AbstractTreeJoint

_SPEEDS = 0.7, -0.4, 0.9, 0.3, -0.8, 0.5  # [m/s, rad/s], any
_ROUNDING = 1e4  # units of rounding: what counts as different


def check_tree_joint(joint: AbstractTreeJoint, c: object) -> None:
    """Raise unless the methods of a tree joint agree at the joint coordinates `c`: for tests of one's own.

    With the frame of the second marker placed by `X_FM(c)`, the residual is zero, `measure` gives `c` again, and
    `across_joint_velocity(c, w)` is the rate of that placement for the joint speeds `w`.

    **Raises:** `MechanismError` that says what differs, and by how much.

        >>> hinge = pl.Revolute("O", pl.ground.at(), pl.Body("rod", 1.0, 0.1).at(-0.5))
        >>> mbd.extend.check_tree_joint(hinge, [0.3])
    """
    check_instance("check_tree_joint: joint", joint, AbstractTreeJoint, "a joint that can be part of a spanning tree")
    space, label = joint.a.space, f"{type(joint).__name__} {joint.name!r}"
    c = joint.chart.normalize(jnp.asarray(c, float))
    if c.shape != (len(joint.tree_coordinate_units),):
        raise MechanismError(f"{label} has the coordinates {', '.join(joint.tree_coordinate_units)}; c is {shown(c)}.")
    w = jnp.resize(jnp.asarray(_SPEEDS, c.dtype), (len(joint.speeds),))
    first = joint.a.frame(space.place(jnp.asarray(space.rest, c.dtype)))
    frames = first, first.compose(joint.X_FM(c))
    here, change = jax.jvp(joint.X_FM, (c,), (joint.chart.rate(c, w),))
    rate = joint.across_joint_velocity(c, w)
    linear, angular = rate[: space.dim], rate[space.dim :]
    turning: list[tuple[Array, Array]] = (
        [(angular[0], change.angle)] if space.dim == 2 else [(jnp.cross(angular, here.rotation.T).T, change.rotation)]
    )
    compared = {
        "residual(t, frames) where X_FM(c) puts the second marker, and zero": [
            (joint.residual(jnp.zeros((), c.dtype), frames), jnp.zeros(()))
        ],
        "the coordinates that motion, or measure, reads there, and c": [(joint.measure(frames), c)],
        "the velocity in across_joint_velocity(c, w), and the rate of X_FM(c)": [(linear, change.position)],
        "the angular velocity in across_joint_velocity(c, w), and the rate of X_FM(c)": turning,
    }
    for what, pairs in compared.items():
        for found, expected in pairs:
            difference = float(np.max(np.abs(np.asarray(found - expected)), initial=0.0))
            size = 1.0 + float(np.max(np.abs(np.asarray(expected)), initial=0.0))
            if not difference <= _ROUNDING * float(jnp.finfo(c.dtype).eps) * size:
                raise MechanismError(f"{label}: {what} differ by {difference:.3g} at c = {np.asarray(c).tolist()}.")
