"""Whole turns across gears, racks and screws: the start of a search that several turns separate from its end.

In absolute coordinates in space an angle follows from the frames, with the whole turns nearest to those that are known.
A search can then change it by half a turn only, while a gear asks for many. In joint coordinates the angles are the
unknowns themselves, and these constraints are linear in them. So where a search did not close such a mechanism, it is
closed in joint coordinates, and the search begins again from there.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assembly_errors import closed_limits
from jaxmbd.analyses.assembly.multistart import convert_coordinates, in_joint_coordinates, with_turn_counts
from jaxmbd.analyses.assembly.position_solve import ClosureProblem, closed, closure
from jaxmbd.arrays import frozen
from jaxmbd.equations.equations import Equations
from jaxmbd.model.joint.shared import AbstractCoupling
from jaxmbd.model.joint.spatial import Screw
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.upstream.equinox_internals import any_instance


def within_a_turn(closing: ClosureProblem, start: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return a start from which a search closes a mechanism, also where whole turns separate it from that position.

    It has no derivative, and neither has a closed position with respect to its start.
    """
    if not _counts_turns(closing[0].mechanism):
        return start
    closing, start = frozen((closing, start))
    q = closed(closing, start)
    is_open = ~jnp.all(jnp.abs(closure(q, closing)) <= closed_limits(closing[0], closing[1]))
    by_joints = lambda: jnp.where(is_open, _start_by_joints(closing, start), q)  # noqa: E731
    return frozen(jax.lax.cond(any_instance(is_open), by_joints, lambda: q))


def _counts_turns(mechanism: Mechanism) -> bool:
    """Return whether turns have to be found: in joint coordinates and in the plane angles are coordinates."""
    coupled = any(isinstance(joint, AbstractCoupling | Screw) for joint in mechanism.joints)
    return coupled and mechanism.space.dim == 3 and in_joint_coordinates(mechanism) is not mechanism


def _start_by_joints(closing: ClosureProblem, start: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return a position that was closed in joint coordinates, with the whole turns that they count."""
    equations, prescribed, t = closing
    tree = Equations(in_joint_coordinates(equations.mechanism))
    begin = with_turn_counts(tree.mechanism, convert_coordinates(equations, tree, t, start), prescribed)
    q = tree.normalize(closed((tree, prescribed, t), begin))
    return equations.normalize(convert_coordinates(tree, equations, t, q))
