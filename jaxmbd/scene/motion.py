"""Poses of bodies and places of markers over a motion, and the times of an animation's frames, in NumPy."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Numbers
from jaxmbd.checks import check_instance
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND, AbstractMovingMarker
from jaxmbd.model.body.flexible import flexible, frame_index, owner_of
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.state import State
from jaxmbd.user_functions import lifted


class Poses(NamedTuple):
    """Positions `(..., n, dim)` [m] and rotation matrices `(..., n, dim, dim)` of frames: those of the bodies, of the
    sites and pieces of flexible ones, then one at each marker that moves on its body, with the axes of the body, and
    last that of the ground."""

    position: np.ndarray
    rotation: np.ndarray

    def at(self, k: int) -> "Poses":
        """The poses at one time of a motion."""
        return Poses(self.position[k], self.rotation[k])


class Place(NamedTuple):
    """A frame on a body: its origin `(dim,)` [m] and its axes in one of the frames of `Poses`.

    `body` is -1 for the ground; `frame` is that of the body, of its site, or of a marker that moves on it.
    """

    body: int
    frame: int
    offset: np.ndarray
    rotation: np.ndarray

    def point(self, poses: Poses) -> np.ndarray:
        """The origin in the world [m]; poses may have a leading time axis."""
        return poses.position[..., self.frame, :] + poses.rotation[..., self.frame, :, :] @ self.offset

    def axes(self, poses: Poses) -> np.ndarray:
        """The axes in the world, as columns."""
        return poses.rotation[..., self.frame, :, :] @ self.rotation

    def put(self, points: np.ndarray, poses: Poses) -> np.ndarray:
        """Transform points `(..., dim)` from this frame to the world."""
        return points @ self.axes(poses).T + self.point(poses)


def place_of(mechanism: Mechanism, marker: Any) -> Place:
    """The place of a marker."""
    index = frame_index(mechanism.bodies)
    body, frame = (-1 if name == GROUND else index[name] for name in (owner_of(marker.body), marker.body))
    turn = np.asarray(marker.angle if mechanism.space.dim == 2 else marker.rotation, dtype=float)
    axes = rotations(np.atleast_1d(turn))
    if not isinstance(marker, AbstractMovingMarker):
        return Place(body, frame, np.asarray(marker.position, dtype=float), axes)
    marker = lifted(marker)  # as those of the mechanism are
    number = next(k for k, other in enumerate(moving_markers(mechanism)) if eqx.tree_equal(marker, other))
    return Place(body, index[GROUND] + number, np.zeros(mechanism.space.dim), axes)


def moving_markers(mechanism: Mechanism) -> tuple[AbstractMovingMarker, ...]:
    """The markers of a mechanism that move on their bodies, each once."""
    found = list[AbstractMovingMarker]()
    for leaf in jax.tree.leaves(mechanism, is_leaf=lambda node: isinstance(node, AbstractMovingMarker)):
        if isinstance(leaf, AbstractMovingMarker) and not any(eqx.tree_equal(leaf, other) for other in found):
            found.append(leaf)
    return tuple(found)


def rotations(turns: np.ndarray) -> Float[np.ndarray, "*batch dim dim"]:
    """Rotation matrices of angles `(..., 1)` in the plane, or of quaternions `(..., 4)`, scalar first, of any norm."""
    if turns.shape[-1] == 1:
        c, s = np.cos(turns[..., 0]), np.sin(turns[..., 0])
        rows = [[c, -s], [s, c]]
    else:
        s, x, y, z = np.moveaxis(turns / np.linalg.norm(turns, axis=-1, keepdims=True), -1, 0)
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - s * z), 2 * (x * z + s * y)],
            [2 * (x * y + s * z), 1 - 2 * (x * x + z * z), 2 * (y * z - s * x)],
            [2 * (x * z - s * y), 2 * (y * z + s * x), 1 - 2 * (x * x + y * y)],
        ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def facing(direction: np.ndarray) -> Float[np.ndarray, "dim dim"]:
    """A rotation matrix that turns the x axis of the plane, or the z axis of space, to a direction; `I` for zero."""
    length = float(np.linalg.norm(direction))
    if not length > 0:
        return np.eye(len(direction))
    along = direction / length
    if len(direction) == 2:
        return np.array([[along[0], -along[1]], [along[1], along[0]]])
    x = np.cross(np.eye(3)[int(np.argmin(np.abs(along)))], along)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(along, x), along], axis=1)


# --- from coordinates -----------------------------------------------------------------------------------


def as_coordinates(q: object) -> np.ndarray:
    """Coordinates, or those of a state, as a NumPy array of floats."""
    try:
        return np.asarray(q.q if isinstance(q, State) else q, dtype=float)
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"q must be a State or coordinates, such as solution.q[-1], got {type(q).__name__}."
        ) from error


def poses_at(mechanism: Mechanism, ts: Numbers, qs: Numbers) -> Float[np.ndarray, "times frames pose"]:
    """The frames of `Poses` as numbers, at times `(times,)` [s] and coordinates `(times, nq)`, which are checked."""
    qs, _space = as_coordinates(qs), mechanism.space
    if qs.ndim != 2 or qs.shape[1] != mechanism.nq:
        names = ", ".join(mechanism.coordinate_names)
        raise MechanismError(f"q must have {mechanism.nq} entries ({names}), got shape {qs.shape[1:]}.")
    if not np.isfinite(qs).all():
        raise MechanismError(
            "q holds values that are not finite, as of a state that was not assembled; there is nothing to draw."
        )
    is_flexible = bool(flexible(mechanism.bodies))
    if mechanism.coordinates == "absolute" and not is_flexible:
        poses = qs[:, : len(mechanism.tree.coordinates)].reshape(len(qs), len(mechanism.bodies), -1)
    else:
        poses = np.asarray(_compiled_poses(mechanism, jnp.asarray(ts, dtype=float), jnp.asarray(qs)))
    return all_frames(mechanism, ts, poses)


def all_frames(
    mechanism: Mechanism, ts: Numbers, poses: Float[np.ndarray, "times bodies pose"]
) -> Float[np.ndarray, "times frames pose"]:
    """The frames of `Poses` as numbers, from those of bodies, and of the sites and pieces of flexible ones."""
    space = mechanism.space
    ground = np.broadcast_to(np.array(space.rest), (len(poses), 1, len(space.rest)))
    fixed = np.concatenate([poses, ground], axis=1)
    markers = moving_markers(mechanism)
    if not markers:
        return fixed
    index = frame_index(mechanism.bodies)
    owners = fixed[:, [index[marker.body] for marker in markers]]
    offsets = np.asarray(_compiled_offsets(markers, jnp.asarray(ts, dtype=float)))
    R, dim = rotations(owners[..., space.dim :]), space.dim
    position = owners[..., :dim] + np.einsum("tmij,tmj->tmi", R, offsets)
    return np.concatenate([poses, np.concatenate([position, owners[..., dim:]], axis=-1), ground], axis=1)


@cached_on_disk
def _compiled_poses(mechanism: Mechanism, ts: Array, qs: Array) -> Array:
    equations = Equations(mechanism)
    if not flexible(mechanism.bodies):
        return jax.vmap(lambda t, q: equations.at(t, q).poses())(ts, qs)
    frames = jax.vmap(lambda t, q: equations.at(t, q).placement.frames)(ts, qs)
    return jax.vmap(jax.vmap(mechanism.space.pose))(jax.tree.map(lambda x: x[:, :-1], frames))  # without the ground


@cached_on_disk
def _compiled_offsets(markers: tuple[AbstractMovingMarker, ...], ts: Array) -> Array:
    """The positions `(times, markers, dim)` [m] of moving markers in the frames of their bodies."""
    return jax.vmap(lambda t: jnp.stack([marker.at_time(t).position for marker in markers]))(ts)


def poses_of(mechanism: Mechanism, ts: Numbers, qs: Numbers) -> Poses:
    """The frames at times `(times,)` [s] and coordinates `(times, nq)`."""
    poses = poses_at(mechanism, ts, qs)
    if mechanism.space.dim == 3 and not np.any(poses[..., 3:], axis=-1).all():
        raise MechanismError("q holds Euler parameters that are all zero; (1, 0, 0, 0) is no rotation.")
    return as_poses(poses)


def as_poses(poses: Float[np.ndarray, "*batch frames pose"]) -> Poses:
    """Frames as positions and rotation matrices, from their numbers."""
    dim = 2 if poses.shape[-1] == 3 else 3
    return Poses(poses[..., :dim], rotations(poses[..., dim:]))


def rates_of(mechanism: Mechanism, ts: np.ndarray, qs: np.ndarray, vs: np.ndarray) -> np.ndarray:
    """The rates `q̇` over a motion `(times, nq)`; zero for turn coordinates, which pictures do not show."""
    in_space = mechanism.space.dim == 3
    has_twists = mechanism.coordinates == "absolute" and not flexible(mechanism.bodies)
    if mechanism.speeds is not None or (in_space and not has_twists):
        return np.asarray(_compiled_rates(mechanism, *map(jnp.asarray, (ts, qs, vs))))
    if not in_space:
        return vs
    count = len(mechanism.bodies)
    e = qs[:, : 7 * count].reshape(len(qs), count, 7)[..., 3:]
    twists = vs.reshape(len(vs), count, 6)
    omega = twists[..., 3:]
    scalar = -np.sum(e[..., 1:] * omega, axis=-1, keepdims=True)
    vector = e[..., :1] * omega + np.cross(e[..., 1:], omega)
    rates = np.concatenate([twists[..., :3], 0.5 * scalar, 0.5 * vector], axis=-1)
    return np.concatenate([rates.reshape(len(qs), -1), np.zeros((len(qs), len(mechanism.turns)))], axis=1)


@cached_on_disk
def _compiled_rates(mechanism: Mechanism, ts: Array, qs: Array, vs: Array) -> Array:
    return jax.vmap(Equations(mechanism).rate)(ts, qs, vs)


# --- frames of an animation -----------------------------------------------------------------------------


def check_rate(what: str, rate: Any) -> None:
    """Raise unless a rate of a film is a positive, finite number."""
    check_instance(what, rate, (int, float, np.number, np.ndarray, Array), "a number")
    if np.ndim(rate) or not 0 < rate < math.inf:
        raise MechanismError(f"{what} must be positive and finite, got {rate!r}.")


def frame_times(ts: np.ndarray, fps: float | int, speed: float | int) -> np.ndarray:
    """Times `(frames,)` [s], equally spaced from the first to the last of `ts`."""
    check_rate("fps", fps)
    check_rate("speed", speed)
    start, stop = float(ts[0]), float(ts[-1])
    return np.linspace(start, stop, max(round((stop - start) * fps / speed), 1) + 1)


def divided(times: np.ndarray, parts: int) -> np.ndarray:
    """Times with each interval between them divided into equal parts."""
    whole = np.arange((len(times) - 1) * parts + 1) / parts
    return np.interp(whole, np.arange(len(times)), times)


def interpolate(times: np.ndarray, ts: np.ndarray, values: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Cubic Hermite interpolation of `values (times, n)` with their `rates` at other times."""
    if len(ts) == 1:
        return np.repeat(values, len(times), axis=0)
    k = np.clip(np.searchsorted(ts, times, side="right") - 1, 0, len(ts) - 2)
    step = (ts[k + 1] - ts[k])[:, None]
    s = (times - ts[k])[:, None] / step
    start, stop = values[k], values[k + 1]
    out, into = step * rates[k], step * rates[k + 1]
    smooth = s * s * (3 - 2 * s)
    return start + smooth * (stop - start) + s * (1 - s) ** 2 * out - s * s * (1 - s) * into


def linear(times: np.ndarray, ts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Linear interpolation of `values (times, n)` at other times."""
    return np.stack([np.interp(times, ts, column) for column in values.T], axis=1)
