"""Starting points of searches for closed positions, from guesses or at random, and the search from many of them.

The multistart search uses joint coordinates, whatever the coordinates of the mechanism are. Since only the cut joints
have to be closed then, it succeeds far more often (Bricard's ring: 26 of 64 searches, against 2 in absolute
coordinates).
"""

from collections.abc import Iterable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.analyses.assembly.position_solve import closed, closure, is_reading, row_scales
from jaxmbd.analyses.assembly.sides import is_opposed
from jaxmbd.arrays import Scalar, combined
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.flexible import own_coordinates
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import ground_centre, size_of
from jaxmbd.model.mechanism.spanning_tree import is_at_site, spanning
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.space.vectors import nearest_turn
from jaxmbd.state.state import State


@cached_on_disk
def _coordinates_of_poses(mechanism: Mechanism, poses: Float[Array, "bodies pose"]) -> Float[Array, " nq"]:
    """Return the coordinates `q` of poses; joint angles that count turns start without whole turns."""
    return _measured(Equations(mechanism), poses)


def _measured(equations: Equations, poses: Float[Array, "bodies pose"]) -> Float[Array, " nq"]:
    own = equations.coordinates.measured(poses)
    return jnp.append(own, jnp.zeros(len(equations.mechanism.turns), poses.dtype))


def guessed(mechanism: Mechanism, guess: dict[str, Array] | State) -> Float[Array, " nq"]:
    """Return the coordinates of the bodies' poses with guessed values of body and joint coordinates, or of a state."""
    if isinstance(guess, State):
        given = guess.layout.q.names
        if given != mechanism.coordinate_names:
            raise MechanismError(
                f"guess is a State of another mechanism, with the coordinates {', '.join(given[:3])}, "
                f"… ({len(given)} in all); this one has {', '.join(mechanism.coordinate_names[:3])}, "
                f"… ({mechanism.nq} in all)."
            )
        return guess.q
    poses, names = combined("stack", [body.pose for body in mechanism.bodies]), mechanism.coordinate_names
    body_coordinates = {
        f"{body.name}.{component}" for body in mechanism.bodies for component in mechanism.space.coordinates
    }
    body_coordinates |= set(own := own_coordinates(mechanism.bodies))
    joint_values = {name: value for name, value in guess.items() if name not in body_coordinates}
    for name in joint_values:
        if name not in names:
            mechanism.coordinate(name)  # raises for a name that does not exist
    body_values = {name: value for name, value in guess.items() if name in body_coordinates and name not in own}
    poses = _with_coordinates(mechanism, poses, body_values)
    if set(joint_values) - set(mechanism.tree.coordinates):
        poses = _with_coordinates(mechanism, _poses_along_tree(mechanism, poses, joint_values), body_values)
    start = _coordinates_of_poses(mechanism, poses)
    for name in set(guess) & set(names):
        start = start.at[names.index(name)].set(guess[name])
    return start


def _with_coordinates(
    mechanism: Mechanism, poses: Float[Array, "bodies pose"], values: dict[str, Array]
) -> Float[Array, "bodies pose"]:
    bodies = [body.name for body in mechanism.bodies]
    for name, value in values.items():
        body, _, component = name.partition(".")
        poses = poses.at[bodies.index(body), mechanism.space.coordinates.index(component)].set(value)
    return poses


def _poses_along_tree(
    mechanism: Mechanism, poses: Float[Array, "bodies pose"], values: dict[str, Array]
) -> Float[Array, "bodies pose"]:
    """Return the bodies' poses with the given joint coordinates, which place the bodies along a tree of joints."""
    tree = _tree_with(mechanism, values)
    q = _coordinates_of_poses(tree, poses)
    for name, value in values.items():
        q = q.at[tree.coordinate_names.index(name)].set(value)
    return _poses(tree, q)


def _tree_with(mechanism: Mechanism, names: Iterable[str]) -> Mechanism:
    """Return the bodies and tree joints of a mechanism in joint coordinates whose spanning tree has the named ones.

    **Raises:** `MechanismError` if there is no such tree.
    """
    owners = list(dict.fromkeys(name.partition(".")[0] for name in names))
    tree_joints = [joint for joint in mechanism.joints if isinstance(joint, AbstractTreeJoint)]
    places = [joint for joint in tree_joints if not is_at_site(joint)]
    available = {f"{joint.name}.{own}" for joint in places for own in joint.tree_coordinate_units}
    for name in names:
        if name not in available:
            raise MechanismError(
                f"guess takes coordinates of bodies, and of joints that determine how these lie, and {name!r} is none "
                f"of them. Guess the bodies' coordinates, or prescribe it: fixed={{{name!r}: value}}."
            )
    tree = spanning(mechanism.bodies, tree_joints, (), (), first=owners)
    cut = [name for name in owners if name not in tree.joints]
    if cut:
        others = ", ".join(repr(name) for name in owners if name not in cut)
        raise MechanismError(
            f"guess: the joints {others} and {cut[0]!r} are in one loop, in which the coordinates of {cut[0]!r} "
            "follow from the others. Leave one of them out."
        )
    cuts = [joint.name for joint in tree_joints if joint.name not in tree.joints]
    return Mechanism(mechanism.bodies, tree_joints, floating=True, coordinates="joint", cuts=cuts)


@cached_on_disk
def _poses(mechanism: Mechanism, q: Float[Array, " nq"]) -> Float[Array, "bodies pose"]:
    return Equations(mechanism).at(jnp.zeros((), q.dtype), q).poses()


def with_turn_counts(
    mechanism: Mechanism, start: Float[Array, " nq"], fixed: Mapping[str, Array]
) -> Float[Array, " nq"]:
    """Return coordinates in which angles that count turns have their fixed values, whole turns included."""
    for name in set(fixed) & set(mechanism.turns):
        start = start.at[mechanism.coordinate_names.index(name)].set(fixed[name])
    return start


def convert_coordinates(source: Equations, target: Equations, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " n"]:
    """Convert coordinates between two descriptions of the same mechanism.

    They are computed from the bodies' poses; coordinates that both descriptions have are copied, so that angles keep
    their whole turns.
    """
    if source is target:
        return q
    converted = _measured(target, source.at(t, q).poses())
    names, target_names = source.mechanism.coordinate_names, target.mechanism.coordinate_names
    for name in set(names) & set(target_names):
        converted = converted.at[target_names.index(name)].set(q[names.index(name)])
    return converted


def random_starts(mechanism: Mechanism, tries: int, seed: int) -> Float[Array, "tries nq"]:
    """Return coordinates of random body poses, within the size of the mechanism around the centre of its ground."""
    middle, size = extent(mechanism)
    dtype = mechanism.bodies[0].pose.dtype
    return _random_coordinates(
        mechanism, jax.random.key(seed), jnp.asarray(middle, dtype), jnp.asarray(size, dtype), tries
    )


@cached_on_disk
def _random_coordinates(mechanism: Mechanism, key: Array, middle: Array, size: Scalar, tries: int) -> Array:
    space, bodies, equations = mechanism.space, len(mechanism.bodies), Equations(mechanism)

    def one(key: Array) -> Array:
        orientation_key, position_key = jax.random.split(key)
        # Normal deviates with standard deviation π: the directions of quaternions are uniform, and angles nearly so.
        poses = jnp.pi * jax.random.normal(orientation_key, (bodies, len(space.coordinates)), size.dtype)
        offsets = size * jax.random.uniform(position_key, (bodies, space.dim), size.dtype, -1.0, 1.0)
        poses = poses.at[:, : space.dim].set(middle[None] + offsets)
        return _measured(equations, jax.vmap(space.normalize)(poses))

    return jax.vmap(one)(jax.random.split(key, tries))


def extent(mechanism: Mechanism) -> tuple[Float[np.ndarray, " dim"], float]:
    """Return the centre of the ground's markers, and the size of the mechanism [m], one if it has none."""
    size = float(size_of(mechanism))
    return ground_centre(mechanism), size if size > 0 else 1.0


class MultistartResults(eqx.Module):
    """The end points of searches.

    - `q`: the coordinates; `miss`: the residual of the closure; `freedom`: the number of degrees of freedom;
    - `wrong`: True if a joint is on the wrong side: the axes of its markers point against each other;
    - `placed`: the bodies' placements as numbers: positions as shares of the mechanism's size, and two axes (unit
      vectors) of each body.
    """

    q: Float[Array, "*tries nq"]
    miss: Float[Array, "*tries rows"]
    freedom: Int[Array, "*tries"]
    wrong: Bool[Array, "*tries"]
    placed: Float[Array, "*tries numbers"]

    def closed(self, tolerance: Float[np.ndarray, " rows"]) -> Bool[np.ndarray, " tries"]:
        """Return True for each search that ended in a closed position, without opposed axes; `tolerance`: of each
        row."""
        return (np.abs(np.asarray(self.miss)) <= tolerance).all(axis=1) & ~np.asarray(self.wrong)


def search(
    mechanism: Mechanism, origin: Array, prescribed: dict[str, Array], t: Scalar, tries: int, seed: int
) -> tuple[MultistartResults, Float[np.ndarray, " numbers"]]:
    """Search from `origin` and from random starts; return the end points, and the placements at `origin`.

    Angles of the end points are reduced to the turn nearest to those of `origin`.
    """
    origin, size = with_turn_counts(mechanism, origin, prescribed), jnp.asarray(extent(mechanism)[1], origin.dtype)
    tree = in_joint_coordinates(mechanism)
    results, own = _search_all(mechanism, tree, random_starts(tree, tries - 1, seed), origin, prescribed, t, size)
    return results, np.asarray(own)


def in_joint_coordinates(mechanism: Mechanism) -> Mechanism:
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
    mechanism: Mechanism, tree: Mechanism, starts: Array, origin: Array, prescribed: dict[str, Array], t: Scalar,
    size: Scalar,
) -> tuple[MultistartResults, Array]:  # fmt: skip
    equations = Equations(mechanism)
    tree_equations = equations if tree is mechanism else Equations(tree)
    closing = (equations, prescribed, t)
    scales = row_scales(equations, prescribed)
    angles = np.asarray([unit == "rad" for unit in mechanism.coordinate_units])

    def one(start: Array) -> MultistartResults:
        tree_q = tree_equations.normalize(
            closed((tree_equations, prescribed, t), with_turn_counts(tree, start, prescribed))
        )
        q = equations.normalize(
            with_turn_counts(mechanism, convert_coordinates(tree_equations, equations, t, tree_q), prescribed)
        )
        # The same position with angles reduced to the nearest turn, unless whole turns matter, as in a gear pair.
        reduced = jnp.where(angles, nearest_turn(q, origin), q)
        residual, reduced_residual = closure(q, closing), closure(reduced, closing)
        is_closed = jnp.all(jnp.abs(reduced_residual) <= 2 * jnp.abs(residual) + 1e3 * jnp.finfo(q.dtype).eps * scales)
        q, miss = jnp.where(is_closed, reduced, q), jnp.where(is_closed, reduced_residual, residual)
        at, still = equations.at(t, q), jnp.zeros(mechanism.nv, q.dtype)
        speeds = equations.scales.speeds
        rows = jax.jacfwd(lambda step: closure(at.perturbed(speeds * step), closing) / scales)(still)
        return MultistartResults(
            q, miss, mechanism.nv - rank_of(rows), is_opposed(at.sides()), _placement_numbers(at, size)
        )

    first = convert_coordinates(equations, tree_equations, t, origin)
    return jax.vmap(one)(jnp.concatenate([first[None], starts])), _placement_numbers(equations.at(t, origin), size)


def _placement_numbers(at: Configuration, size: Scalar) -> Array:
    frames = jax.tree.map(lambda x: x[:-1], at.bodies.frames)  # without the ground
    numbers = jax.vmap(lambda f: jnp.concatenate([f.position / size, f.axis, f.normal]))(frames)
    return numbers.reshape(-1)
