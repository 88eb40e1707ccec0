"""The loads of joints: of cut joints and drivers from multipliers, of joints of the tree by Newton-Euler recursion."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.equations.constraint_kinematics import ConstraintRows
from jaxmbd.equations.equations import Configuration
from jaxmbd.space.vectors import shift_velocity, shift_wrench


def reactions(at: Configuration, lam: Float[Array, " m"]) -> list[Float[Array, "parts markers twist"]]:
    """For each group, the reaction wrench on the body at each marker, from the multipliers, in world axes."""
    wrenches = at.parts.rows(ConstraintRows.wrenches, at.t, at.bodies)
    multipliers = at.equations.multipliers(lam)[0]
    return [-jnp.einsum("prks,pr->pks", w, x) for w, x in zip(wrenches, multipliers, strict=True)]


def transmitted(at: Configuration, v: Array, vdot: Array, lam: Float[Array, " m"]) -> Float[Array, "bodies twist"]:
    """The wrench that the inboard tree joint of each body transmits to it, about the world's origin.

    A tree joint has no multipliers. By Newton-Euler recursion it transmits the sum of
    `M_b V̇ − W + C_bᵀ λ` over the body's subtree.
    """
    residual = at.momenta(at.accelerations(v, vdot))
    residual = residual - at.driven(v).parts.efforts(at.t, at.bodies, at.twists(v))
    residual = residual + at.parts.constraint_force(at.blocks, at.equations.multipliers(lam)[0])
    bodies = jax.tree.map(lambda x: x[:-1], at.bodies.frames)
    wrenches = jax.vmap(lambda body, f: shift_wrench(at.space.in_world(body, f), -body.position))(bodies, residual)
    return at.placement.subtree_sum(wrenches)


def at_joint(at: Configuration, name: str, transmitted: Float[Array, "bodies twist"]) -> Float[Array, "markers twist"]:
    """The wrench at each marker of a tree joint, from the `transmitted` wrenches, in world axes.

    It does no work along the joint: what users' functions of all coordinates add there is no reaction.
    """
    branch = next(branch for branch in at.mechanism.tree.branches if branch.joint == name)
    points, wrench = at.near(at.mechanism[name].markers).stack.position, transmitted[branch.child]
    if at.equations.acts_on_coordinates and branch.v[0] < branch.v[1]:
        axes = jax.vmap(lambda axis: shift_velocity(axis, points[1]))(at.placement.joint_axes()[slice(*branch.v)])
        wrench = shift_wrench(_without_work(shift_wrench(wrench, points[1]), axes, at.space.dim), -points[1])
    signs = (1.0, -1.0) if branch.backward else (-1.0, 1.0)
    return jnp.stack([s * shift_wrench(wrench, p) for s, p in zip(signs, points, strict=True)])


def _without_work(
    wrench: Float[Array, " twist"], axes: Float[Array, "speeds twist"], dim: int
) -> Float[Array, " twist"]:
    """The wrench without its moment about each axis that turns, and without its force along each other axis.

    The axes are relative velocities at the point that the wrench is about.
    """
    turns = jnp.any(axes[:, dim:] != 0, axis=1)[:, None]
    drives = jnp.concatenate([jnp.where(turns, 0.0, axes[:, :dim]), axes[:, dim:]], axis=1)
    return wrench - jnp.linalg.solve(axes @ drives.T, axes @ wrench) @ drives
