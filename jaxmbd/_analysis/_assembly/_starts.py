"""Where a search for closed positions starts: at the bodies' own poses, at a guess, or anywhere."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd._analysis._state import State
from jaxmbd._body import GROUND
from jaxmbd._equations import Equations
from jaxmbd._errors import MechanismError
from jaxmbd._mechanism import Mechanism
from jaxmbd._program import kept
from jaxmbd._types import Scalar


def start_of(mechanism: Mechanism) -> Float[Array, " nq"]:
    """The coordinates that the bodies' own poses give; joint angles that count turns start at zero turns."""
    return _measured(mechanism, jnp.stack([body.pose for body in mechanism.bodies]))


@kept
def _measured(mechanism: Mechanism, poses: Float[Array, "bodies pose"]) -> Float[Array, " nq"]:
    own = Equations(mechanism).coordinates.measured(poses)
    return jnp.append(own, jnp.zeros(len(mechanism.turns), poses.dtype))


def guessed(mechanism: Mechanism, guess: dict[str, Array] | State) -> Float[Array, " nq"]:
    """The bodies' poses, with guessed values in them, then guessed coordinates; or those of a state."""
    if isinstance(guess, State):
        if guess.coordinate_names != mechanism.coordinate_names:
            raise MechanismError(
                f"guess is a State of another mechanism, with the coordinates {', '.join(guess.coordinate_names[:3])}, "
                f"… ({len(guess.coordinate_names)} in all); this one has {', '.join(mechanism.coordinate_names[:3])}, "
                f"… ({mechanism.nq} in all)."
            )
        return guess.q
    poses, bodies = jnp.stack([body.pose for body in mechanism.bodies]), [body.name for body in mechanism.bodies]
    names, space = mechanism.coordinate_names, mechanism.space
    for name, value in guess.items():
        body, _, component = name.partition(".")
        if body in bodies and component in space.coordinates:
            poses = poses.at[bodies.index(body), space.coordinates.index(component)].set(value)
        elif name not in names:
            mechanism.coordinate(name)
            raise MechanismError(
                f"guess takes coordinates of bodies or of q, such as {names[0]!r}, and {name!r} is one of a cut joint. "
                f"Guess the bodies' coordinates, or prescribe it: fixed={{{name!r}: value}}."
            )
    start = _measured(mechanism, poses)
    for name in set(guess) & set(names):
        start = start.at[names.index(name)].set(guess[name])
    return start


def turned(mechanism: Mechanism, start: Float[Array, " nq"], fixed: Mapping[str, Array]) -> Float[Array, " nq"]:
    """A start whose carried angles count the whole turns of their fixed values."""
    for name in set(fixed) & set(mechanism.turns):
        start = start.at[mechanism.coordinate_names.index(name)].set(fixed[name])
    return start


def recast(source: Mechanism, target: Mechanism, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " n"]:
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


@kept
def _scattered(mechanism: Mechanism, key: Array, middle: Array, size: Scalar, tries: int) -> Array:
    space, bodies = mechanism.space, len(mechanism.bodies)

    def one(key: Array) -> Array:
        turns, places = jax.random.split(key)
        # Normal numbers of a standard deviation of π: their direction is uniform, and so, nearly, is an angle.
        poses = jnp.pi * jax.random.normal(turns, (bodies, len(space.coordinates)), size.dtype)
        within = size * jax.random.uniform(places, (bodies, space.dim), size.dtype, -1.0, 1.0)
        poses = poses.at[:, : space.dim].set(middle[None] + within)
        return _measured(mechanism, jax.vmap(space.tidy)(poses))

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
