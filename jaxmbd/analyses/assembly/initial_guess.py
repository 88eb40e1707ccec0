"""Where a search for closed positions starts: at the bodies' own poses, at a guess, or anywhere."""

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
    """The coordinates that the bodies' own poses give; joint angles that count turns start at zero turns."""
    return _measured(mechanism, jnp.stack([body.pose for body in mechanism.bodies]))


@cached_on_disk
def _measured(mechanism: Mechanism, poses: Float[Array, "bodies pose"]) -> Float[Array, " nq"]:
    own = Equations(mechanism).coordinates.measured(poses)
    return jnp.append(own, jnp.zeros(len(mechanism.turns), poses.dtype))


def guessed(mechanism: Mechanism, guess: dict[str, Array] | State) -> Float[Array, " nq"]:
    """The bodies' poses with guessed coordinates of bodies and joints in them; or the coordinates of a state."""
    if isinstance(guess, State):
        if guess.coordinate_names != mechanism.coordinate_names:
            raise MechanismError(
                f"guess is a State of another mechanism, with the coordinates {', '.join(guess.coordinate_names[:3])}, "
                f"… ({len(guess.coordinate_names)} in all); this one has {', '.join(mechanism.coordinate_names[:3])}, "
                f"… ({mechanism.nq} in all)."
            )
        return guess.q
    poses, names = jnp.stack([body.pose for body in mechanism.bodies]), mechanism.coordinate_names
    known = {f"{body.name}.{component}" for body in mechanism.bodies for component in mechanism.space.coordinates}
    joints = {name: value for name, value in guess.items() if name not in known}
    for name in joints:
        if name not in names:
            mechanism.coordinate(name)  # raises for a name that does not exist
    own = {name: value for name, value in guess.items() if name in known}
    poses = _with_coordinates(mechanism, poses, own)
    if set(joints) - set(mechanism.tree.coordinates):
        poses = _with_coordinates(mechanism, _hung_up(mechanism, poses, joints), own)
    start = _measured(mechanism, poses)
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


def _hung_up(
    mechanism: Mechanism, poses: Float[Array, "bodies pose"], values: dict[str, Array]
) -> Float[Array, "bodies pose"]:
    """The poses of bodies that hang on one another by a tree of joints, which have the given coordinates."""
    hung = _tree_with(mechanism, values)
    q = _measured(hung, poses)
    for name, value in values.items():
        q = q.at[hung.coordinate_names.index(name)].set(value)
    return _poses(hung, q)


def _tree_with(mechanism: Mechanism, names: Iterable[str]) -> Mechanism:
    """The bodies and those joints of a mechanism that can be in a tree, in coordinates of a tree of joints that has the
    named coordinates; raise if there is none."""
    owners = list(dict.fromkeys(name.partition(".")[0] for name in names))
    able = [joint for joint in mechanism.joints if isinstance(joint, AbstractTreeJoint)]
    carried = {f"{joint.name}.{own}" for joint in able for own in joint.tree_coordinate_units}
    for name in names:
        if name not in carried:
            raise MechanismError(
                f"guess takes coordinates of bodies, and of joints that determine how these lie, and {name!r} is none "
                f"of them. Guess the bodies' coordinates, or prescribe it: fixed={{{name!r}: value}}."
            )
    tree = spanning(mechanism.bodies, able, (), (), first=owners)
    left = [name for name in owners if name not in tree.joints]
    if left:
        others = ", ".join(repr(name) for name in owners if name not in left)
        raise MechanismError(
            f"guess: the joints {others} and {left[0]!r} are in one loop, in which the coordinates of {left[0]!r} "
            "follow from the others. Leave one of them out."
        )
    cuts = [joint.name for joint in able if joint.name not in tree.joints]
    return Mechanism(mechanism.bodies, able, floating=True, coordinates="joint", cuts=cuts)


@cached_on_disk
def _poses(mechanism: Mechanism, q: Float[Array, " nq"]) -> Float[Array, "bodies pose"]:
    return Equations(mechanism).at(jnp.zeros((), q.dtype), q).poses()


def with_turn_counts(
    mechanism: Mechanism, start: Float[Array, " nq"], fixed: Mapping[str, Array]
) -> Float[Array, " nq"]:
    """A start whose carried angles count the whole turns of their fixed values."""
    for name in set(fixed) & set(mechanism.turns):
        start = start.at[mechanism.coordinate_names.index(name)].set(fixed[name])
    return start


def convert_coordinates(source: Mechanism, target: Mechanism, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " n"]:
    """The coordinates of one description of a mechanism for those of another: from the bodies' poses, and those of the
    same name as they are, with the whole turns that they count."""
    if source is target:
        return q
    found = _measured(target, Equations(source).at(t, q).poses())
    for name in set(source.coordinate_names) & set(target.coordinate_names):
        found = found.at[target.coordinate_names.index(name)].set(q[source.coordinate_names.index(name)])
    return found


def random_starts(mechanism: Mechanism, tries: int, seed: int) -> Float[Array, "tries nq"]:
    """Coordinates of bodies anywhere within a size of the mechanism from the middle of its ground, turned anyhow."""
    middle, size = extent(mechanism)
    dtype = mechanism.bodies[0].pose.dtype
    return _scattered(mechanism, jax.random.key(seed), jnp.asarray(middle, dtype), jnp.asarray(size, dtype), tries)


@cached_on_disk
def _scattered(mechanism: Mechanism, key: Array, middle: Array, size: Scalar, tries: int) -> Array:
    space, bodies = mechanism.space, len(mechanism.bodies)

    def one(key: Array) -> Array:
        turns, places = jax.random.split(key)
        # Normal numbers of a standard deviation of π: their direction is uniform, and so, nearly, is an angle.
        poses = jnp.pi * jax.random.normal(turns, (bodies, len(space.coordinates)), size.dtype)
        within = size * jax.random.uniform(places, (bodies, space.dim), size.dtype, -1.0, 1.0)
        poses = poses.at[:, : space.dim].set(middle[None] + within)
        return _measured(mechanism, jax.vmap(space.normalize)(poses))

    return jax.vmap(one)(jax.random.split(key, tries))


def extent(mechanism: Mechanism) -> tuple[Float[np.ndarray, " dim"], float]:
    """The middle of the markers on the ground, and the mechanism's size [m]: that of its largest body, of the ground
    between its markers, or of the heap that the bodies' poses make."""
    on: dict[str, list[np.ndarray]] = {body.name: [np.zeros(mechanism.space.dim)] for body in mechanism.bodies}
    for joint in mechanism.with_reactions().values():
        for marker in joint.markers:
            on.setdefault(marker.body, []).append(np.asarray(marker.position))
    heap = np.stack([np.asarray(body.pose)[: mechanism.space.dim] for body in mechanism.bodies])
    sizes = [float(np.linalg.norm(np.ptp(np.stack(points), axis=0))) for points in (*on.values(), list(heap))]
    size = max(sizes)
    return np.stack(on.get(GROUND, list(heap))).mean(axis=0), size if size > 0 else 1.0
