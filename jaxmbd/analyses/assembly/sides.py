"""The side on which a joint is closed: how assembly comes to the right one, and what it says of the wrong one.

The residual of a hinge is zero as well if the axes of its markers point against each other (`AbstractSidedJoint`). No
smooth function of the frames with as many rows could be zero on one side only, so the search minimises the sum of
squares of the residual and of guards. A guard is zero on the right side, where it changes nothing, and so large on the
wrong side that its gradient leads out of it.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.model.mechanism.mechanism import Mechanism

# A guard is `_WEIGHT (_EDGE − side)` where that is positive. Where axes are opposed its curvature outweighs that of all
# rows. The edge, 45 degrees, is what aligned frames need (a slider, a weld): of searches by their rows alone that
# started 83 degrees away three of four ended at another zero or minimum, with an edge at 60 degrees as many, and with
# this one all of 480 from random rotations found the right zero. It is continuous: a search would stop at a jump.
_WEIGHT, _EDGE = 3.0, 0.7
_NUDGE = (
    0.1  # [rad] turns of the bodies at a start on the wrong side: where axes are just opposed, no gradient leads out
)


def guards(at: Configuration) -> Float[Array, " sides"]:
    """Return the guard of each joint that has a side: zero on the right one."""
    return _WEIGHT * jnp.maximum(_EDGE - at.sides(), 0.0)


def off_the_ridge(equations: Equations, t: Scalar, start: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return a start of a search: the same, but where a joint is on the wrong side with all bodies turned a little."""
    mechanism = equations.mechanism
    if not sided_joints(mechanism):
        return start
    units = mechanism.tree.units
    turning = np.asarray([unit in ("rad", "1") for unit in units] + [False] * len(mechanism.turns))
    nudge = np.where(turning, _NUDGE * np.sin(np.arange(1, len(turning) + 1) ** 2), 0.0)  # different for each body
    return jnp.where(is_opposed(equations.at(t, start).sides()), start + jnp.asarray(nudge, start.dtype), start)


def is_opposed(sides: Float[Array, " sides"]) -> Bool[Array, ""]:
    """Return True if a joint is on the wrong side."""
    return jnp.any(sides < _EDGE)


@cached_on_disk
def sides_at(mechanism: Mechanism, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " sides"]:
    """Return the sides of the joints at a position, for error messages."""
    return Equations(mechanism).at(t, q).sides()


def opposed_text(sided: list[str], sides: Array | np.ndarray) -> str:
    """Return the text on those of `sided_joints` that are on the wrong side; "" if there are none."""
    wrong = np.asarray(sides) < _EDGE
    if not wrong.any():
        return ""
    names = [repr(name) for name, is_wrong in zip(sided, wrong, strict=True) if is_wrong]
    return (
        f"The axes of {', '.join(names)} point against each other: turn one of {'its' if len(names) == 1 else 'their'} "
        'markers, axis="-z" for axis="z".'
    )
