"""Starting points of searches for closed positions: the bodies' own poses, a guess, or random poses."""

from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.state import State
from jaxmbd.arrays import Scalar
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.spanning_tree import spanning


def start_of(mechanism: Mechanism) -> Float[Array, " nq"]:
    """Return the coordinates `q` of the bodies' own poses; joint angles that count turns start without whole turns."""
    return _coordinates_of_poses(mechanism, jnp.stack([body.pose for body in mechanism.bodies]))


@cached_on_disk
def _coordinates_of_poses(mechanism: Mechanism, poses: Float[Array, "bodies pose"]) -> Float[Array, " nq"]:
    own = Equations(mechanism).coordinates.measured(poses)
    return jnp.append(own, jnp.zeros(len(mechanism.turns), poses.dtype))


def guessed(mechanism: Mechanism, guess: dict[str, Array] | State) -> Float[Array, " nq"]:
    """Return the coordinates of the bodies' poses with guessed values of body and joint coordinates, or of a state."""
    if isinstance(guess, State):
        if guess.coordinate_names != mechanism.coordinate_names:
            raise MechanismError(
                f"guess is a State of another mechanism, with the coordinates {', '.join(guess.coordinate_names[:3])}, "
                f"… ({len(guess.coordinate_names)} in all); this one has {', '.join(mechanism.coordinate_names[:3])}, "
                f"… ({mechanism.nq} in all)."
            )
        return guess.q
    poses, names = jnp.stack([body.pose for body in mechanism.bodies]), mechanism.coordinate_names
    body_coordinates = {
        f"{body.name}.{component}" for body in mechanism.bodies for component in mechanism.space.coordinates
    }
    joint_values = {name: value for name, value in guess.items() if name not in body_coordinates}
    for name in joint_values:
        if name not in names:
            mechanism.coordinate(name)  # raises for a name that does not exist
    body_values = {name: value for name, value in guess.items() if name in body_coordinates}
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
    available = {f"{joint.name}.{own}" for joint in tree_joints for own in joint.tree_coordinate_units}
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


def convert_coordinates(source: Mechanism, target: Mechanism, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " n"]:
    """Convert coordinates between two descriptions of the same mechanism.

    They are computed from the bodies' poses; coordinates that both descriptions have are copied, so that angles keep
    their whole turns.
    """
    if source is target:
        return q
    converted = _coordinates_of_poses(target, Equations(source).at(t, q).poses())
    for name in set(source.coordinate_names) & set(target.coordinate_names):
        converted = converted.at[target.coordinate_names.index(name)].set(q[source.coordinate_names.index(name)])
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
    space, bodies = mechanism.space, len(mechanism.bodies)

    def one(key: Array) -> Array:
        orientation_key, position_key = jax.random.split(key)
        # Normal deviates with standard deviation π: the directions of quaternions are uniform, and angles nearly so.
        poses = jnp.pi * jax.random.normal(orientation_key, (bodies, len(space.coordinates)), size.dtype)
        offsets = size * jax.random.uniform(position_key, (bodies, space.dim), size.dtype, -1.0, 1.0)
        poses = poses.at[:, : space.dim].set(middle[None] + offsets)
        return _coordinates_of_poses(mechanism, jax.vmap(space.normalize)(poses))

    return jax.vmap(one)(jax.random.split(key, tries))


def extent(mechanism: Mechanism) -> tuple[Float[np.ndarray, " dim"], float]:
    """Return the centre of the ground's markers, and the size of the mechanism [m].

    The size is the largest of the extents of the markers on each body and on the ground, and of the bodies' positions.
    """
    points_on: dict[str, list[np.ndarray]] = {body.name: [np.zeros(mechanism.space.dim)] for body in mechanism.bodies}
    for joint in mechanism.with_reactions().values():
        for marker in joint.markers:
            points_on.setdefault(marker.body, []).append(np.asarray(marker.position))
    centres = np.stack([np.asarray(body.pose)[: mechanism.space.dim] for body in mechanism.bodies])
    sizes = [float(np.linalg.norm(np.ptp(np.stack(points), axis=0))) for points in (*points_on.values(), list(centres))]
    size = max(sizes)
    return np.stack(points_on.get(GROUND, list(centres))).mean(axis=0), size if size > 0 else 1.0
