"""The path of a linkage: all positions that follow from each other while some coordinates of joints are held.

It is followed by its length, not by a coordinate: so it goes on through dead centres, where a coordinate turns back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxmbd.analyses.dragging.following import closed_near, freedom_of, tangent_of
from jaxmbd.analyses.dragging.goals import CoordinateGoal
from jaxmbd.analyses.dragging.linkage import Linkage, Position

_STEP = 0.06  # the length of a step: the largest change of a speed's coordinate [rad, or shares of the unit of length]
_LEAST = 1e-3  # a step that is shorter than this ends the path: there is no position beyond
_BENT = 0.35  # the largest correction, as a share of a step
_MOST = 400  # positions in each direction
_FAR = 4 * np.pi  # the largest length of a path that does not close, in each direction
_INDEPENDENT = 0.05  # the least share of a coordinate's rate that others must leave free


@dataclass(frozen=True, eq=False)
class Path:
    """Positions along a path; the last is the first one again if it `is_whole`."""

    positions: list[Position]
    is_whole: bool


class Held:
    """A linkage some of whose coordinates are held: further rows of its constraints."""

    def __init__(self, linkage: Linkage, goals: Sequence[CoordinateGoal]) -> None:
        self.linkage, self.goals = linkage, goals

    def at(self, q: np.ndarray, step: np.ndarray | None = None) -> Position:
        """The position after a step, whose constraints are those of the linkage and of the held coordinates."""
        return self.of(self.linkage.at(q, step))

    def of(self, at: Position) -> Position:
        """A position of the linkage with the rows of the held coordinates."""
        rows = [goal.rows(self.linkage, at) for goal in self.goals]
        residuals, jacobians = [at.rows, *(g for g, _ in rows)], [at.C, *(G for _, G in rows)]
        return at._replace(rows=np.concatenate(residuals), C=np.concatenate(jacobians))


def driving_coordinates(linkage: Linkage, at: Position, first: Sequence[str] = ()) -> list[int]:
    """The numbers of coordinates that determine the position, as many as there are degrees of freedom and as joints
    have: of those named `first`, then in the order of the joints."""
    Z = freedom_of(at.C)
    names = list(dict.fromkeys([*(name for name in first if name in linkage.names), *linkage.names]))
    order = [linkage.names.index(name) for name in names]
    chosen, basis = [], np.zeros((0, Z.shape[1]))
    for k in order:
        row = at.rates[k] @ Z / linkage.sizes[k]
        left = row - basis.T @ (basis @ row)
        size = float(np.linalg.norm(left))
        if size > _INDEPENDENT * max(1.0, float(np.linalg.norm(row))) and len(basis) < Z.shape[1]:
            chosen, basis = [*chosen, k], np.vstack([basis, left / size])
    return chosen


def path_along(linkage: Linkage, start: Position, coordinate: int, held: Sequence[int]) -> Path:
    """All positions that a linkage reaches from a closed start while the coordinates `held` keep their values, where it
    is moved by one of the others at first."""
    goals = [CoordinateGoal(k, float(start.coordinates[k])) for k in held]
    whole = Held(linkage, goals)
    first = whole.of(start)
    Z = freedom_of(first.C)
    along = tangent_of(first.C, Z @ (Z.T @ first.rates[coordinate])) if Z.size else np.zeros(first.C.shape[1])
    if not np.any(along):
        return Path([start], False)
    forward, is_whole = _followed(whole, first, along)
    if is_whole:
        return Path([first, *forward, first], True)
    backward, _ = _followed(whole, first, -along)
    return Path([*backward[::-1], first, *forward], False)


def _followed(linkage: Held, start: Position, along: np.ndarray) -> tuple[list[Position], bool]:
    """The positions after a start in one direction, and whether they lead back to it."""
    at, found, length, step = start, list[Position](), 0.0, _STEP
    origin, before, scale = start.poses, np.inf, float(linkage.linkage.length)
    while len(found) < _MOST and length < _FAR:
        heading = tangent_of(at.C, along)
        reached = closed_near(linkage, linkage.at(at.q, step * heading), _BENT * step) if np.any(heading) else None
        if reached is None or not np.any(heading):
            step /= 2
            if step < _LEAST:
                break
            continue
        at, along, length = reached, heading, length + step
        found.append(at)
        distance = pose_distance(at.poses, origin, scale)
        if length > 3 * _STEP and distance <= before and distance < _STEP:
            return found, True
        before, step = (distance if distance < 2 * _STEP else np.inf), min(1.5 * step, _STEP)
    return found, False


def pose_distance(a: np.ndarray, b: np.ndarray, length: float) -> float:
    """The largest difference between poses `(frames, pose)`: of positions as shares of a length, of angles [rad]."""
    dim = 2 if a.shape[1] == 3 else 3
    away = np.abs(a[:, :dim] - b[:, :dim]).max(initial=0.0) / length
    if dim == 2:
        turns = np.abs(np.remainder(a[:, 2] - b[:, 2] + np.pi, 2 * np.pi) - np.pi)
    else:
        turns = 2 * np.arccos(np.clip(np.abs(np.sum(a[:, 3:] * b[:, 3:], axis=1)), 0.0, 1.0))
    return max(float(away), float(turns.max(initial=0.0)))
