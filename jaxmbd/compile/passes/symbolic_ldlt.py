"""The plan of an elimination `S = L D Lᵀ` of a sparse symmetric matrix: which entries meet, found from its pattern.

Pivots that do not touch one another are one level, and done in one go.

Source: minimum degree, Tinney, Walker, Proc. IEEE 55 (1967); George, Liu, SIAM Review 31 (1989).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np


class Pattern:
    """Where a symmetric matrix `(n, n)` has entries: `rows`, `columns`, none of them above the diagonal."""

    def __init__(self, n: int, rows: np.ndarray, columns: np.ndarray) -> None:
        self.n, self.rows, self.columns = n, rows, columns
        self._key = (n, rows.tobytes(), columns.tobytes())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._key == other._key


class Level(NamedTuple):
    """Pivots `p`, the entries below them, and what these take from other entries.

    `pivots`: their rows. For each entry `(i, p)` below one: `below`, its place; `rows`, `columns`, that is `i` and `p`;
    `at`, the number of `p` among the pivots. For each pair of them of one pivot, `(i, p)` and `(j, p)`: `first`,
    `second`, their numbers, and `target`, the place of `(i, j)`.
    """

    pivots: np.ndarray
    below: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    at: np.ndarray
    first: np.ndarray
    second: np.ndarray
    target: np.ndarray


class Plan(NamedTuple):
    """The levels, how many `places` the entries of `L` and `D` take (the diagonal the first `n`), and the place of each
    entry of the pattern in its order."""

    levels: tuple[Level, ...]
    places: int
    given: np.ndarray


@lru_cache(maxsize=256)
def plan_of(pattern: Pattern) -> Plan:
    """The plan for a pattern."""
    entries = {(i, i): i for i in range(pattern.n)}
    near: list[set[int]] = [set() for _ in range(pattern.n)]
    pairs = list(zip(pattern.rows.tolist(), pattern.columns.tolist(), strict=True))
    for i, j in pairs:
        entries.setdefault((i, j), len(entries))
        if i != j:
            near[i].add(j)
            near[j].add(i)
    given = np.array([entries[pair] for pair in pairs], int)
    levels = tuple(_level(pivots, entries) for pivots in _pivots(near))
    return Plan(levels, len(entries), given)


def _level(pivots: Sequence[tuple[int, list[int]]], entries: dict[tuple[int, int], int]) -> Level:
    """One level; entries that it fills are given places."""
    below = [(i, p) for p, neighbours in pivots for i in neighbours]
    number = {pair: k for k, pair in enumerate(below)}
    order = {p: k for k, (p, _) in enumerate(pivots)}
    meeting = [(i, j, p) for p, neighbours in pivots for a, i in enumerate(neighbours) for j in neighbours[: a + 1]]
    rows, columns = np.array(below, int).reshape(-1, 2).T
    return Level(
        np.array([p for p, _ in pivots], int),
        np.array([entries[max(pair), min(pair)] for pair in below], int),
        rows, columns,
        np.array([order[p] for _, p in below], int),
        np.array([number[i, p] for i, _, p in meeting], int),
        np.array([number[j, p] for _, j, p in meeting], int),
        np.array([entries.setdefault((max(i, j), min(i, j)), len(entries)) for i, j, _ in meeting], int),
    )  # fmt: skip


def _pivots(near: list[set[int]]) -> list[list[tuple[int, list[int]]]]:
    """Pivots level by level, each with its neighbours at that time, and none beside another.

    Of a level are those with up to twice the fewest neighbours. With the fewest alone a chain would be eliminated from
    its ends, two at a time; like this it takes as many levels as the logarithm of its length, for half again the work.
    """
    near = [set(neighbours) for neighbours in near]
    left = set(range(len(near)))
    levels = []
    while left:
        order = sorted(left, key=lambda i: (len(near[i]), i))
        least, blocked, level = len(near[order[0]]), set(), []
        for i in order:
            if len(near[i]) > max(2 * least, 1):
                break
            if i not in blocked:
                level.append((i, sorted(near[i])))
                blocked |= near[i]
        for i, neighbours in level:
            left.discard(i)
            for j in neighbours:
                near[j].discard(i)
                near[j].update(k for k in neighbours if k != j)
        levels.append(level)
    return levels
