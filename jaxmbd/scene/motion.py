"""Poses of bodies and places of markers over a motion, and the times of an animation's frames, in NumPy."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.state import State
from jaxmbd.compile.cache.cached_function import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.checks import check_instance
from jaxmbd.model.mechanism.mechanism import Mechanism


class Poses(NamedTuple):
    """Positions `(..., n, dim)` [m] and rotation matrices `(..., n, dim, dim)` of bodies and, last, of the ground."""

    position: np.ndarray
    rotation: np.ndarray

    def at(self, k: int) -> "Poses":
        """The poses at one time of a motion."""
        return Poses(self.position[k], self.rotation[k])


class Place(NamedTuple):
    """A frame on a body: its origin `(dim,)` [m] and axes in the body's frame; `body` is -1 for the ground."""

    body: int
    offset: np.ndarray
    rotation: np.ndarray

    def point(self, poses: Poses) -> np.ndarray:
        """The origin in the world [m]; poses may have a leading time axis."""
        return poses.position[..., self.body, :] + poses.rotation[..., self.body, :, :] @ self.offset

    def axes(self, poses: Poses) -> np.ndarray:
        """The axes in the world, as columns."""
        return poses.rotation[..., self.body, :, :] @ self.rotation

    def put(self, points: np.ndarray, poses: Poses) -> np.ndarray:
        """Transform points `(..., dim)` from this frame to the world."""
        return points @ self.axes(poses).T + self.point(poses)


def place_of(mechanism: Mechanism, marker: Any) -> Place:
    """The place of a marker."""
    names = [body.name for body in mechanism.bodies]
    body = -1 if marker.body == GROUND else names.index(marker.body)
    turn = np.asarray(marker.angle if mechanism.space.dim == 2 else marker.rotation, dtype=float)
    return Place(body, np.asarray(marker.position, dtype=float), rotations(np.atleast_1d(turn)))


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


def as_coordinates(q: Any) -> np.ndarray:
    """Coordinates, or those of a state, as a NumPy array of floats."""
    try:
        return np.asarray(q.q if isinstance(q, State) else q, dtype=float)
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"q must be a State or coordinates, such as solution.q[-1], got {type(q).__name__}."
        ) from error


def poses_at(mechanism: Mechanism, qs: Any) -> Float[np.ndarray, "times bodies pose"]:
    """The poses of all bodies and, last, of the ground, as numbers, at coordinates `(times, nq)`, which are checked."""
    qs, space = as_coordinates(qs), mechanism.space
    if qs.ndim != 2 or qs.shape[1] != mechanism.nq:
        names = ", ".join(mechanism.coordinate_names)
        raise MechanismError(f"q must have {mechanism.nq} entries ({names}), got shape {qs.shape[1:]}.")
    if not np.isfinite(qs).all():
        raise MechanismError(
            "q holds values that are not finite, as of a state that was not assembled; there is nothing to draw."
        )
    if mechanism.coordinates == "absolute":
        poses = qs[:, : len(mechanism.tree.coordinates)].reshape(len(qs), len(mechanism.bodies), -1)
    else:
        poses = np.asarray(_compiled_poses(mechanism, jnp.asarray(qs)))
    ground = np.broadcast_to(np.array(space.rest), (len(qs), 1, len(space.rest)))
    return np.concatenate([poses, ground], axis=1)


@cached_on_disk
def _compiled_poses(mechanism: Mechanism, qs: Array) -> Array:
    equations = Equations(mechanism)
    return jax.vmap(lambda q: equations.at(jnp.zeros((), q.dtype), q).poses())(qs)


def poses_of(mechanism: Mechanism, qs: Any) -> Poses:
    """The poses of all bodies and, last, of the ground, at coordinates `(times, nq)`."""
    poses, dim = poses_at(mechanism, qs), mechanism.space.dim
    if dim == 3 and not np.any(poses[..., 3:], axis=-1).all():
        raise MechanismError("q holds Euler parameters that are all zero; (1, 0, 0, 0) is no rotation.")
    return Poses(poses[..., :dim], rotations(poses[..., dim:]))


def rates_of(mechanism: Mechanism, ts: np.ndarray, qs: np.ndarray, vs: np.ndarray) -> np.ndarray:
    """The rates `q̇` over a motion `(times, nq)`; zero for turn coordinates, which pictures do not show."""
    in_space = mechanism.space.dim == 3
    if mechanism.speeds is not None or (in_space and mechanism.coordinates == "joint"):
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
