"""The geometry of a mechanism in space over a motion, in NumPy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.plot._parts import body_colour, body_index, drawn_parts, look_same, markers_of, poses_at, symbol_size
from jaxmbd.plot._space_solids import EquivalentSolid, Points, equivalent_solid, spread
from jaxmbd.spatial import RollingDisc

_FLAT = 0.3  # the distance from a line or plane, in symbol sizes, up to which markers are drawn on it
_FREE = 0.35  # the largest half-extent of a body's equivalent solid, as a share of the mechanism's extent
_ALONE = 0.45  # the same, as a share of the distance to the farthest marker
_BULKY = 1.0  # the half-extent across a bar, in symbol sizes, from which the equivalent solid is drawn, too
_DISC = 0.5  # a solid is a disc if its half-extent along a bar is below this share of that across


class Poses(NamedTuple):
    """Positions `(..., n, 3)` [m] and rotation matrices `(..., n, 3, 3)` of all bodies and, last, of the ground."""

    position: np.ndarray
    rotation: np.ndarray

    def at(self, k: int) -> "Poses":
        """The poses at one time of a motion."""
        return Poses(self.position[k], self.rotation[k])


class SpacePlace:
    """A marker as NumPy data; `body` is -1 for the ground, the last of the poses."""

    def __init__(self, mechanism: Mechanism, marker: Any) -> None:
        self.body = body_index(mechanism, marker)
        self.offset = np.asarray(marker.position, dtype=float)
        self.rotation = matrices(np.asarray(marker.rotation, dtype=float))

    def point(self, poses: Poses) -> np.ndarray:
        """The marker's position in the world [m]; poses may have a leading time axis."""
        return poses.position[..., self.body, :] + poses.rotation[..., self.body, :, :] @ self.offset

    def axes(self, poses: Poses) -> np.ndarray:
        """The marker's axes in the world, as columns."""
        return poses.rotation[..., self.body, :, :] @ self.rotation

    def put(self, points: np.ndarray, poses: Poses) -> np.ndarray:
        """Transform points `(..., 3)` from the marker's frame to the world."""
        return points @ self.axes(poses).T + self.point(poses)


class SpaceScene:
    """A mechanism over a motion `(times, nq)`: outlines of its bodies and the size of its symbols [m].

    `corners`: the centre of mass and the markers of each body, in its own frame; `flat`: the dimension of their span, a
    point (0), a line (1), a plane (2) or space (3); `solids`: the equivalent solids of bodies that are drawn as such.
    """

    def __init__(self, mechanism: Mechanism, qs: Any) -> None:
        self.mechanism = mechanism
        self.motion = poses_of(mechanism, qs)
        self.corners = [_corners(mechanism, i) for i in range(len(mechanism.bodies))]
        self.ground = self._ground_points()
        rolling = [part for part in mechanism.joints if isinstance(part, RollingDisc)]
        self.discs = {self.place(part.b).body: float(part.radius) for part in rolling}
        bare = self._extent([0.0] * len(mechanism.bodies))
        self.solids = [self._solid(i, bare) for i in range(len(mechanism.bodies))]
        reach = [0.0 if solid is None else float(solid.halves.max()) for solid in self.solids]
        self.extent = self._extent([self.discs.get(i, room) for i, room in enumerate(reach)])
        lengths = [float(np.linalg.norm(np.ptp(c, axis=0))) for c in self.corners if len(c) > 1]
        self.size = symbol_size(self.extent, lengths)
        self.flat = [spread(corners, _FLAT * self.size) for corners in self.corners]

    def place(self, marker: Any) -> SpacePlace:
        """A marker as NumPy data."""
        return SpacePlace(self.mechanism, marker)

    def centre(self, body: int) -> SpacePlace:
        """The frame of a body at its centre of mass."""
        return self.place(self.mechanism.bodies[body].at())

    def colour(self, body: int) -> str:
        """The colour of a body; the ground is drawn in ink."""
        return body_colour(body)

    def same(self, a: np.ndarray, b: np.ndarray) -> bool:
        """True if two points coincide at the size of the symbols."""
        return look_same(a, b, self.size)

    def travel(self, a: SpacePlace, b: SpacePlace) -> tuple[np.ndarray, np.ndarray]:
        """The least and greatest coordinates of `b` along the axes of `a` over the motion [m]."""
        away = b.point(self.motion) - a.point(self.motion)
        along = np.einsum("tij,ti->tj", a.axes(self.motion), away)
        return along.min(axis=0), along.max(axis=0)

    def _extent(self, reach: list[float]) -> float:
        """The longest side of a box about all bodies and markers over the motion [m]."""
        bounds = []
        for i, corners in enumerate(self.corners):
            points = np.einsum("tij,kj->tki", self.motion.rotation[:, i], corners) + self.motion.position[:, None, i]
            bounds += [points.reshape(-1, 3) - reach[i], points.reshape(-1, 3) + reach[i]]
        return float(np.ptp(np.concatenate([*bounds, self.ground]), axis=0).max())

    def _ground_points(self) -> np.ndarray:
        markers = [marker for part in drawn_parts(self.mechanism) for marker in markers_of(part)]
        return np.array([p.offset for p in map(self.place, markers) if p.body < 0]).reshape(-1, 3)

    def _solid(self, body: int, bare: float) -> EquivalentSolid | None:
        """The equivalent solid of a body that is drawn as such, made smaller if it would hide others; else None.

        Such a body has no marker besides its centre of mass, or markers on one side of it only, or is a disc on its
        axle. `bare` [m] is the extent of all markers.
        """
        corners, part = self.corners[body], self.mechanism.bodies[body]
        solid = equivalent_solid(float(part.mass), np.asarray(part.inertia))
        if body in self.discs:
            return None
        if len(corners) == 1:
            alone = bare == 0 or (len(self.corners) == 1 and len(self.ground) == 0)
            return solid if alone else solid.limited(_FREE * bare)
        size = symbol_size(bare, [])
        if spread(corners, _FLAT * size) != 1:
            return None
        arms = corners[np.linalg.norm(corners, axis=1) > _FLAT * size]
        along, least, most = solid.reach(arms[0])
        one_sided = bool(np.all(arms @ arms[0] > 0))
        seen = most > _BULKY * size and (one_sided or along < _DISC * least)
        return solid.limited(_ALONE * float(np.linalg.norm(arms, axis=1).max())) if seen else None

    def encloses(self, body: int) -> bool:
        """True if a body's equivalent solid contains the centre of a smaller one at the first position."""
        solid, centres = self.solids[body], self.motion.position[0]
        others = [
            k for k, other in enumerate(self.solids) if solid and other and other.halves.max() < solid.halves.max()
        ]
        return any(np.linalg.norm(centres[k] - centres[body]) < solid.halves.min() for k in others if solid)


def poses_of(mechanism: Mechanism, qs: Any) -> Poses:
    """The poses of all bodies and, last, of the ground, at coordinates `(times, nq)`."""
    poses = poses_at(mechanism, qs)
    if not np.any(poses[..., 3:], axis=-1).all():
        raise MechanismError("q holds Euler parameters that are all zero; (1, 0, 0, 0) is no rotation.")
    return Poses(poses[..., :3], matrices(poses[..., 3:]))


def rates_of(mechanism: Mechanism, qs: np.ndarray, vs: np.ndarray) -> np.ndarray:
    """`q̇ = N(q) v` over a motion `(times, nq)`; zero for turn coordinates, which pictures do not show."""
    if mechanism.coordinates != "absolute":
        return np.asarray(_compiled_rates(mechanism, jnp.asarray(qs), jnp.asarray(vs)))
    count = len(mechanism.bodies)
    e = qs[:, : 7 * count].reshape(len(qs), count, 7)[..., 3:]
    twists = vs.reshape(len(vs), count, 6)
    omega = twists[..., 3:]
    scalar = -np.sum(e[..., 1:] * omega, axis=-1, keepdims=True)
    vector = e[..., :1] * omega + np.cross(e[..., 1:], omega)
    rates = np.concatenate([twists[..., :3], 0.5 * scalar, 0.5 * vector], axis=-1)
    return np.concatenate([rates.reshape(len(qs), -1), np.zeros((len(qs), len(mechanism.turns)))], axis=1)


@cached_on_disk
def _compiled_rates(mechanism: Mechanism, qs: Array, vs: Array) -> Array:
    return jax.vmap(Equations(mechanism).rate, (None, 0, 0))(jnp.zeros((), qs.dtype), qs, vs)


def matrices(e: np.ndarray) -> Float[np.ndarray, "*batch 3 3"]:
    """Rotation matrices of quaternions `(..., 4)`, scalar first, of any norm."""
    s, x, y, z = np.moveaxis(e / np.linalg.norm(e, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - s * z), 2 * (x * z + s * y)],
        [2 * (x * y + s * z), 1 - 2 * (x * x + z * z), 2 * (y * z - s * x)],
        [2 * (x * z - s * y), 2 * (y * z + s * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _corners(mechanism: Mechanism, body: int) -> Points:
    """A body's centre of mass and its distinct markers, in its own frame."""
    markers = [marker for part in drawn_parts(mechanism) for marker in markers_of(part)]
    places = [SpacePlace(mechanism, marker) for marker in markers]
    offsets = [place.offset for place in places if place.body == body]
    return np.unique(np.round(np.array([(0.0, 0.0, 0.0), *offsets]), 12) + 0.0, axis=0)
