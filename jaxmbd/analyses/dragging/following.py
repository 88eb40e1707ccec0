"""The position nearest to goals among those that a linkage reaches from where it is, and the closing of its loops.

`follow` minimises `½ |g(q)|²`, the residuals of goals, subject to `Φ(q, t) = 0`, by steps along the constraints, after
each of which the loops are closed again. A step solves

    (Gᵀ G + λ 1) x + Cᵀ μ = −Gᵀ g,    C x = 0

(Levenberg-Marquardt in the null space of `C`; the weight λ keeps what the goals leave free). It is no longer than a
sixth of a right angle, or of the unit of length, and is taken back where closing the loops would change it by more than
half of its length, where a joint comes to its wrong side, or where the goals get no nearer. So the linkage moves
continuously: it stays in its assembly mode, and comes as near to what it cannot reach as it gets.

Newton's method for `Φ = 0` is damped by the violation itself. Where rows of `C` become dependent, as in Bricard's ring
at each of its positions, `C` has a singular value as small as the violation: what is divided by it is no correction.

Sources: Nocedal, Wright, Numerical Optimization (2006), §10.3 and §18.1; N. Yamashita, M. Fukushima, On the rate of
convergence of the Levenberg-Marquardt method, Computing Supplement 15 (2001): damping by the squared residual keeps
quadratic convergence where solutions are not isolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jaxmbd.analyses.dragging.goals import AbstractGoal
from jaxmbd.analyses.dragging.linkage import Linkage, Position

CLOSED = 1e-9  # the largest residual, without units, of loops that are closed
_CLOSINGS = 12  # steps of Newton's method: three to five are usual
_BENT = 0.5  # the largest correction after a step, as a share of it
_LONGEST = 0.26  # of a step: 15 degrees
_SHORTEST = 1e-7  # a step that changes nothing
_DAMPING = (1e-6, 1e-9, 1e6)  # λ at first, and its limits; the goals are of order one
_FLOOR = 1e-12  # the damping of Newton's method at closed loops
_STEPS = 12  # of a search: a quarter of a turn and more, in some milliseconds
_MET = 1e-7  # |g| at which goals are met
_LITTLE = (
    2e-3  # the share of the goals' residual below which a step leads nowhere: at a dead centre, or as near as it gets
)
_GAIN = 1e-6  # the least share of the squared residual by which leaving a dead centre gets nearer
_STILL = 0.1  # the change of goals along the constraints, as a share of that without them, at a dead centre
_NUDGE = 0.03  # [rad, or shares of the unit of length] by which a dead centre is left


class Stepped(Protocol):
    """What has positions after steps: a linkage, or one with more rows."""

    def at(self, q: np.ndarray, step: np.ndarray | None = None) -> Position: ...


@dataclass(frozen=True, eq=False)
class Memory:
    """What a search leaves to the next one from where it ended: the last step `(nv,)`, in whose direction a dead centre
    is passed, and the damping λ."""

    heading: np.ndarray
    damping: float = _DAMPING[0]


@dataclass(frozen=True, eq=False)
class Followed:
    """Where a search ended: the norm of the goals' residuals there, and whether it is done; if not, it goes on from
    here when it is called again."""

    position: Position
    missed: float
    is_done: bool
    memory: Memory


def closed_near(linkage: Stepped, at: Position, reach: float = np.inf) -> Position | None:
    """The closed position next to one whose loops are open; None if there is none within a distance `reach`, or if a
    joint is on its wrong side there."""
    moved = 0.0
    for _ in range(_CLOSINGS):
        miss = at.miss
        if not np.isfinite(miss):
            return None
        if miss <= CLOSED:
            return at if at.is_right else None
        step = _least_change(at.C, -at.rows, miss * miss + _FLOOR)
        moved += float(np.abs(step).max(initial=0.0))
        if not moved <= reach:
            return None
        at = linkage.at(at.q, step)
    return None


def follow(
    linkage: Linkage, start: Position, goals: Sequence[AbstractGoal], memory: Memory | None = None, steps: int = _STEPS
) -> Followed:
    """The position next to a closed `start` at which the goals are met, or as nearly as the linkage gets.

    `memory`: that of the search before; `steps`: tried at most, so that an answer comes in time.
    """
    at, memory = start, memory or Memory(np.zeros(start.C.shape[1]))
    heading, damping, is_done, is_nudged = memory.heading, memory.damping, False, False
    g, G = _stacked(linkage, at, goals)
    for _ in range(steps):
        merit = float(g @ g)
        step = _tangent_step(at.C, g, G, damping)
        size = float(np.abs(step).max(initial=0.0))
        if merit <= _MET**2 or not np.isfinite(size):
            is_done = True
            break
        if np.linalg.norm(G @ step) < _LITTLE * np.sqrt(merit) or size < _SHORTEST:
            nudged = None if is_nudged else _nudged(linkage, at, goals, G, heading, merit)
            if nudged is None:
                is_done = True
                break
            at, heading, is_nudged = *nudged, True
            g, G = _stacked(linkage, at, goals)
            continue
        step = step * min(1.0, _LONGEST / size)
        found = closed_near(linkage, linkage.at(at.q, step), _BENT * min(size, _LONGEST))
        better = None if found is None else _stacked(linkage, found, goals)
        if found is not None and better is not None and float(better[0] @ better[0]) < merit:
            at, heading, (g, G), damping = found, step, better, max(damping / 10, _DAMPING[1])
        else:
            damping = max(damping, 1e-3) * 8
            if damping > _DAMPING[2]:
                damping, is_done = _DAMPING[0], True
                break
    return Followed(at, float(np.linalg.norm(g)), is_done, Memory(heading, damping))


def tangent_of(C: np.ndarray, near: np.ndarray) -> np.ndarray:
    """The direction along the constraints nearest to another one, of unit length (the largest entry is 1 or −1)."""
    n = C.shape[1]
    along = _solved(C, np.eye(n), near, np.zeros(len(C)))
    size = float(np.abs(along).max(initial=0.0))
    return along / size if size > 1e-6 else np.zeros(n)


def freedom_of(C: np.ndarray) -> np.ndarray:
    """A basis `(nv, k)` of the steps that keep the loops closed."""
    if not len(C):
        return np.eye(C.shape[1])
    _, sizes, V = np.linalg.svd(C)
    rank = int(np.sum(sizes > 1e-7 * sizes.max(initial=0.0)))
    return V[rank:].T


def _nudged(
    linkage: Linkage, at: Position, goals: Sequence[AbstractGoal], G: np.ndarray, heading: np.ndarray, merit: float
) -> tuple[Position, np.ndarray] | None:
    """A position beside a dead centre that is nearer to the goals, in the direction of the last step if both sides are;
    None where neither is, and where goals do change along the constraints, so that this is no dead centre."""
    near = heading if np.any(heading) else np.cos(1.0 + np.arange(len(heading)))
    along = tangent_of(at.C, near)
    if np.linalg.norm(G @ along) > _STILL * np.abs(G).max(initial=0.0):
        return None
    for step in (_NUDGE * along, -_NUDGE * along):
        found = closed_near(linkage, linkage.at(at.q, step), _BENT * _NUDGE) if np.any(step) else None
        if found is not None:
            g, _ = _stacked(linkage, found, goals)
            if float(g @ g) < (1 - _GAIN) * merit:
                return found, step
    return None


def _stacked(linkage: Linkage, at: Position, goals: Sequence[AbstractGoal]) -> tuple[np.ndarray, np.ndarray]:
    rows = [goal.rows(linkage, at) for goal in goals]
    return np.concatenate([g for g, _ in rows]), np.concatenate([G for _, G in rows])


def _tangent_step(C: np.ndarray, g: np.ndarray, G: np.ndarray, damping: float) -> np.ndarray:
    return _solved(C, G.T @ G + damping * np.eye(C.shape[1]), -G.T @ g, np.zeros(len(C)))


def _solved(C: np.ndarray, H: np.ndarray, f: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`x` with `H x + Cᵀ μ = f` and `C x = b`, of dependent rows as nearly as they allow."""
    n, m = C.shape[1], len(C)
    if not m:
        return np.linalg.solve(H, f)
    K = np.zeros((n + m, n + m))
    K[:n, :n], K[:n, n:], K[n:, :n] = H, C.T, C
    K[n:, n:].flat[:: m + 1] = -_FLOOR
    try:
        return np.linalg.solve(K, np.concatenate([f, b]))[:n]
    except np.linalg.LinAlgError:
        return np.zeros(n)


def _least_change(C: np.ndarray, b: np.ndarray, damping: float) -> np.ndarray:
    """The minimiser of `|C x − b|² + damping |x|²`."""
    S = C @ C.T
    S.flat[:: len(S) + 1] += damping * max(1.0, float(np.abs(S).max(initial=0.0)))
    try:
        return C.T @ np.linalg.solve(S, b)
    except np.linalg.LinAlgError:
        return np.zeros(C.shape[1])
