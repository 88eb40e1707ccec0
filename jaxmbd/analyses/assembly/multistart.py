"""Closed positions sought from many starts at once.

The search is one of joint coordinates, whatever those of the mechanism: with only the cut joints to close it ends well
far more often (Bricard's ring, 26 of 64 searches against 2 in coordinates of the bodies).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.analyses.assembly.fixed_readings import is_reading
from jaxmbd.analyses.assembly.initial_guess import convert_coordinates, extent, random_starts, with_turn_counts
from jaxmbd.analyses.assembly.position_solve import closed, closure
from jaxmbd.arrays import Scalar
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.rank import rank_of
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.space.vectors import nearest_turn

_OPPOSED = 0.5  # of a unit vector: half a turn off is 2, and a closed joint is off by its tolerance


class MultistartResults(eqx.Module):
    """Where searches end: coordinates `q`, what they miss, the degrees of freedom there, whether a joint is fitted the
    wrong way round, and the bodies' placements as numbers: positions as shares of the mechanism's size, two unit
    vectors of each body's axes."""

    q: Float[Array, "*tries nq"]
    miss: Float[Array, "*tries rows"]
    freedom: Int[Array, "*tries"]
    wrong: Bool[Array, "*tries"]
    placed: Float[Array, "*tries numbers"]

    def closed(self, tolerance: float) -> Bool[np.ndarray, " tries"]:
        """Which of them miss nothing."""
        return (np.abs(np.asarray(self.miss)).max(axis=1, initial=0.0) <= tolerance) & ~np.asarray(self.wrong)


def search(
    mechanism: Mechanism, origin: Array, prescribed: dict[str, Array], t: Scalar, tries: int, seed: int
) -> tuple[MultistartResults, Float[np.ndarray, " numbers"]]:
    """Search from `origin`, to whose turns the angles found are brought, and from random starts; and the placements at
    `origin`."""
    origin, size = with_turn_counts(mechanism, origin, prescribed), jnp.asarray(extent(mechanism)[1], origin.dtype)
    hung = _in_joint_coordinates(mechanism)
    ends, own = _ends(mechanism, hung, random_starts(hung, tries - 1, seed), origin, prescribed, t, size)
    return ends, np.asarray(own)


def _in_joint_coordinates(mechanism: Mechanism) -> Mechanism:
    """The mechanism in joint coordinates, without what has no part in closing it; as it is, where a user's constraint
    is written for its own coordinates."""
    if mechanism.coordinates == "joint" or any(isinstance(joint, GlobalConstraint) for joint in mechanism.joints):
        return mechanism
    sensors = tuple(sensor for sensor in mechanism.sensors if is_reading(mechanism, sensor.name))
    parts = mechanism.bodies, mechanism.joints, (), mechanism.drivers, sensors
    return Mechanism(*parts, floating=mechanism.floating, coordinates="joint")


@cached_on_disk
def _ends(
    mechanism: Mechanism,
    hung: Mechanism,
    starts: Array,
    origin: Array,
    prescribed: dict[str, Array],
    t: Scalar,
    size: Scalar,
) -> tuple[MultistartResults, Array]:
    equations, within = Equations(mechanism), Equations(hung)
    closing = (equations, prescribed, t)
    angles = np.asarray([unit == "rad" for unit in mechanism.coordinate_units])

    def one(start: Array) -> MultistartResults:
        found = within.normalize(closed((within, prescribed, t), with_turn_counts(hung, start, prescribed)))
        q = equations.normalize(with_turn_counts(mechanism, convert_coordinates(hung, mechanism, t, found), prescribed))
        # The same position by less wound-up angles, unless turns count: with a gear between two of them they do.
        near = jnp.where(angles, nearest_turn(q, origin), q)
        here, there = closure(q, closing), closure(near, closing)
        good = jnp.all(jnp.abs(there) <= 2 * jnp.abs(here) + 1e3 * jnp.finfo(q.dtype).eps)
        q, miss = jnp.where(good, near, q), jnp.where(good, there, here)
        at, still = equations.at(t, q), jnp.zeros(mechanism.nv, q.dtype)
        rows = jax.jacfwd(lambda step: closure(at.perturbed(step), closing))(still)
        return MultistartResults(q, miss, mechanism.nv - rank_of(rows), _wrong(at), _placed(at, size))

    first = convert_coordinates(mechanism, hung, t, origin)
    return jax.vmap(one)(jnp.concatenate([first[None], starts])), _placed(equations.at(t, origin), size)


def _wrong(at: Configuration) -> Bool[Array, ""]:
    """Whether a joint has its second marker turned otherwise than it would place it. The rows of a hinge are zero for
    opposed axes, too, since these are as parallel as those that point the same way."""
    apart = [jnp.zeros((), at.q.dtype)]
    for joint in at.mechanism.joints:
        if isinstance(joint, AbstractTreeJoint):
            first, second = at.near(joint.markers).frames
            mated = first.compose(joint.X_FM(joint.measure((first, second))))
            apart += [jnp.max(jnp.abs(x - y)) for x, y in ((mated.axis, second.axis), (mated.normal, second.normal))]
    return jnp.max(jnp.stack(apart)) > _OPPOSED


def _placed(at: Configuration, size: Scalar) -> Array:
    frames = jax.tree.map(lambda x: x[:-1], at.bodies.frames)  # without the ground
    numbers = jax.vmap(lambda f: jnp.concatenate([f.position / size, f.axis, f.normal]))(frames)
    return numbers.reshape(-1)
