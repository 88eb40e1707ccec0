"""What a mechanism that is led by hand shall do: goals, each with its residual and the change of that along a step."""

import abc
from dataclasses import dataclass

import numpy as np

from jaxmbd.analyses.dragging.linkage import Linkage, Position


class AbstractGoal(abc.ABC):
    """What is to be made small, without units."""

    @abc.abstractmethod
    def rows(self, linkage: Linkage, at: Position) -> tuple[np.ndarray, np.ndarray]:
        """The residual `(k,)` and its Jacobian `(k, nv)` at a position."""


@dataclass(frozen=True, eq=False)
class PointGoal(AbstractGoal):
    """A point that is fixed in a frame, at `offset (dim,)` [m], is to be at a `target (dim,)` [m] of the world; with
    `along (dim,)`, anywhere on the line through it in this direction, the ray of an eye."""

    frame: int
    offset: np.ndarray
    target: np.ndarray
    along: np.ndarray | None = None

    def point(self, at: Position) -> np.ndarray:
        """Where the point is [m]."""
        pose, dim = at.poses[self.frame], len(self.offset)
        return pose[:dim] + rotation(pose[dim:]) @ self.offset

    def away(self, at: Position) -> np.ndarray:
        """How far it is from the target, or from the line [m]."""
        away = self.point(at) - self.target
        return away if self.along is None else away - self.along * (self.along @ away)

    def rows(self, linkage: Linkage, at: Position) -> tuple[np.ndarray, np.ndarray]:
        twists, dim = at.twists[self.frame], len(self.offset)
        R = rotation(at.poses[self.frame][dim:])
        if dim == 2:
            arms = np.outer([-self.offset[1], self.offset[0]], twists[2])
        else:
            arms = np.cross(twists[3:], self.offset, axisa=0, axisb=0, axisc=0)
        J = twists[:dim] + R @ arms
        if self.along is not None:
            J = J - np.outer(self.along, self.along @ J)
        return self.away(at) / linkage.length, J / linkage.length


@dataclass(frozen=True)
class CoordinateGoal(AbstractGoal):
    """A coordinate of a joint, by its number in `Linkage.names`, is to have a `value` [m, rad]; an angle, up to whole
    turns."""

    number: int
    value: float
    weight: float = 1.0

    def away(self, linkage: Linkage, at: Position) -> float:
        """How far it is from the value [m, rad]."""
        away = float(at.coordinates[self.number]) - self.value
        return float(np.remainder(away + np.pi, 2 * np.pi) - np.pi) if linkage.is_angle[self.number] else away

    def rows(self, linkage: Linkage, at: Position) -> tuple[np.ndarray, np.ndarray]:
        scale = self.weight / linkage.sizes[self.number]
        return np.array([scale * self.away(linkage, at)]), scale * at.rates[self.number][None]


def rotation(turn: np.ndarray) -> np.ndarray:
    """The rotation matrix of an angle `(1,)` [rad], or of a quaternion `(4,)`, scalar first."""
    if len(turn) == 1:
        c, s = np.cos(turn[0]), np.sin(turn[0])
        return np.array([[c, -s], [s, c]])
    e, x, y, z = turn / np.linalg.norm(turn)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - e * z), 2 * (x * z + e * y)],
            [2 * (x * y + e * z), 1 - 2 * (x * x + z * z), 2 * (y * z - e * x)],
            [2 * (x * z - e * y), 2 * (y * z + e * x), 1 - 2 * (x * x + y * y)],
        ]
    )
