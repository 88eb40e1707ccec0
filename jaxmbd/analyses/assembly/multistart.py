"""Multistart search: closed positions from many starting points at once.

The search uses joint coordinates, whatever the coordinates of the mechanism are. Since only the cut joints have to be
closed then, it succeeds far more often (Bricard's ring: 26 of 64 searches, against 2 in absolute coordinates).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.analyses.assembly.initial_guess import convert_coordinates, extent, random_starts, with_turn_counts
from jaxmbd.analyses.assembly.position_solve import closed, closure, is_reading
from jaxmbd.arrays import Scalar
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.rank import rank_of
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.space.vectors import nearest_turn

_OPPOSED = 0.5  # difference of unit vectors: 2 after half a turn; in a closed joint, its tolerance


class MultistartResults(eqx.Module):
    """The end points of searches.

    - `q`: the coordinates; `miss`: the residual of the closure; `freedom`: the number of degrees of freedom;
    - `wrong`: True if the axes of a joint's two markers are opposed;
    - `placed`: the bodies' placements as numbers: positions as shares of the mechanism's size, and two axes (unit
      vectors) of each body.
    """

    q: Float[Array, "*tries nq"]
    miss: Float[Array, "*tries rows"]
    freedom: Int[Array, "*tries"]
    wrong: Bool[Array, "*tries"]
    placed: Float[Array, "*tries numbers"]

    def closed(self, tolerance: float) -> Bool[np.ndarray, " tries"]:
        """Return True for each search that ended in a closed position, without opposed axes."""
        return (np.abs(np.asarray(self.miss)).max(axis=1, initial=0.0) <= tolerance) & ~np.asarray(self.wrong)


def search(
    mechanism: Mechanism, origin: Array, prescribed: dict[str, Array], t: Scalar, tries: int, seed: int
) -> tuple[MultistartResults, Float[np.ndarray, " numbers"]]:
    """Search from `origin` and from random starts; return the end points, and the placements at `origin`.

    Angles of the end points are reduced to the turn nearest to those of `origin`.
    """
    origin, size = with_turn_counts(mechanism, origin, prescribed), jnp.asarray(extent(mechanism)[1], origin.dtype)
    tree = _in_joint_coordinates(mechanism)
    results, own = _search_all(mechanism, tree, random_starts(tree, tries - 1, seed), origin, prescribed, t, size)
    return results, np.asarray(own)


def _in_joint_coordinates(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism in joint coordinates, without forces and sensors of motion.

    It is returned unchanged if a user's constraint is written for its own coordinates.
    """
    if mechanism.coordinates == "joint" or any(isinstance(joint, GlobalConstraint) for joint in mechanism.joints):
        return mechanism
    sensors = tuple(sensor for sensor in mechanism.sensors if is_reading(mechanism, sensor.name))
    parts = mechanism.bodies, mechanism.joints, (), mechanism.drivers, sensors
    return Mechanism(*parts, floating=mechanism.floating, coordinates="joint")


@cached_on_disk
def _search_all(
    mechanism: Mechanism,
    tree: Mechanism,
    starts: Array,
    origin: Array,
    prescribed: dict[str, Array],
    t: Scalar,
    size: Scalar,
) -> tuple[MultistartResults, Array]:
    equations, tree_equations = Equations(mechanism), Equations(tree)
    closing = (equations, prescribed, t)
    angles = np.asarray([unit == "rad" for unit in mechanism.coordinate_units])

    def one(start: Array) -> MultistartResults:
        tree_q = tree_equations.normalize(
            closed((tree_equations, prescribed, t), with_turn_counts(tree, start, prescribed))
        )
        q = equations.normalize(
            with_turn_counts(mechanism, convert_coordinates(tree, mechanism, t, tree_q), prescribed)
        )
        # The same position with angles reduced to the nearest turn, unless whole turns matter, as in a gear pair.
        reduced = jnp.where(angles, nearest_turn(q, origin), q)
        residual, reduced_residual = closure(q, closing), closure(reduced, closing)
        is_closed = jnp.all(jnp.abs(reduced_residual) <= 2 * jnp.abs(residual) + 1e3 * jnp.finfo(q.dtype).eps)
        q, miss = jnp.where(is_closed, reduced, q), jnp.where(is_closed, reduced_residual, residual)
        at, still = equations.at(t, q), jnp.zeros(mechanism.nv, q.dtype)
        rows = jax.jacfwd(lambda step: closure(at.perturbed(step), closing))(still)
        return MultistartResults(
            q, miss, mechanism.nv - rank_of(rows), _has_opposed_axes(at), _placement_numbers(at, size)
        )

    first = convert_coordinates(mechanism, tree, t, origin)
    return jax.vmap(one)(jnp.concatenate([first[None], starts])), _placement_numbers(equations.at(t, origin), size)


def _has_opposed_axes(at: Configuration) -> Bool[Array, ""]:
    """Return True if the second marker of a joint has another orientation than the joint gives it.

    The rows of a hinge are zero for opposed axes too, since these are also parallel.
    """
    differences = [jnp.zeros((), at.q.dtype)]
    for joint in at.mechanism.joints:
        if isinstance(joint, AbstractTreeJoint):
            first, second = at.near(joint.markers).frames
            expected = first.compose(joint.X_FM(joint.measure((first, second))))
            differences += [
                jnp.max(jnp.abs(x - y)) for x, y in ((expected.axis, second.axis), (expected.normal, second.normal))
            ]
    return jnp.max(jnp.stack(differences)) > _OPPOSED


def _placement_numbers(at: Configuration, size: Scalar) -> Array:
    frames = jax.tree.map(lambda x: x[:-1], at.bodies.frames)  # without the ground
    numbers = jax.vmap(lambda f: jnp.concatenate([f.position / size, f.axis, f.normal]))(frames)
    return numbers.reshape(-1)
