"""Symbolic factorisation `S = L D Lᵀ` of a sparse symmetric matrix: pivot order, fill-in, index arrays of the updates.

Pivots that are not adjacent in the elimination graph form one level and are eliminated together.

Source: minimum degree, Tinney, Walker, Proc. IEEE 55 (1967); George, Liu, SIAM Review 31 (1989).
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np


class Pattern:
    """The sparsity pattern of a symmetric matrix `(n, n)`: `rows` and `columns` of its lower triangle."""

    def __init__(self, n: int, rows: np.ndarray, columns: np.ndarray) -> None:
        self.n, self.rows, self.columns = n, rows, columns
        # A parameter of primitives, which JAX hashes and compares: by its content, since each mechanism makes a new
        # one.
        self._key = (n, rows.tobytes(), columns.tobytes())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._key == other._key


class Level(NamedTuple):
    """Pivots `p` that are eliminated together, the entries in their columns, and the updates that these cause.

    `pivots`: their rows. For each entry `(i, p)` below a pivot: `below`, its position in the stored entries; `rows`,
    `columns`, that is `i` and `p`; `at`, the index of `p` among the pivots. For each pair of entries `(i, p)`, `(j, p)`
    of one pivot: `first`, `second`, their indices in `below`, and `target`, the position of the updated entry `(i, j)`.
    """

    pivots: np.ndarray
    below: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    at: np.ndarray
    first: np.ndarray
    second: np.ndarray
    target: np.ndarray


class SymbolicLDLT(NamedTuple):
    """A symbolic factorisation: its levels, the number of stored entries of `L` and `D` including fill-in, and the
    position of each entry of the pattern among them. The first `n` positions are the diagonal."""

    levels: tuple[Level, ...]
    n_entries: int
    positions: np.ndarray


@lru_cache(maxsize=256)
def symbolic_ldlt(pattern: Pattern) -> SymbolicLDLT:
    """The symbolic factorisation of a pattern."""
    entries = {(i, i): i for i in range(pattern.n)}
    adjacent: list[set[int]] = [set() for _ in range(pattern.n)]
    pairs = list(zip(pattern.rows.tolist(), pattern.columns.tolist(), strict=True))
    for i, j in pairs:
        entries.setdefault((i, j), len(entries))
        if i != j:
            adjacent[i].add(j)
            adjacent[j].add(i)
    positions = np.array([entries[pair] for pair in pairs], int)
    levels = tuple(_level(pivots, entries) for pivots in pivot_levels(adjacent, [range(pattern.n)]))
    return SymbolicLDLT(levels, len(entries), positions)


def _level(pivots: Sequence[tuple[int, list[int]]], entries: dict[tuple[int, int], int]) -> Level:
    """The index arrays of one level; its fill-in is appended to the positions in `entries`."""
    below = [(i, p) for p, neighbours in pivots for i in neighbours]
    number = {pair: k for k, pair in enumerate(below)}
    order = {p: k for k, (p, _) in enumerate(pivots)}
    updates = [(i, j, p) for p, neighbours in pivots for a, i in enumerate(neighbours) for j in neighbours[: a + 1]]
    rows, columns = np.array(below, int).reshape(-1, 2).T
    return Level(
        np.array([p for p, _ in pivots], int),
        np.array([entries[max(pair), min(pair)] for pair in below], int),
        rows, columns,
        np.array([order[p] for _, p in below], int),
        np.array([number[i, p] for i, _, p in updates], int),
        np.array([number[j, p] for _, j, p in updates], int),
        np.array([entries.setdefault((max(i, j), min(i, j)), len(entries)) for i, j, _ in updates], int),
    )  # fmt: skip


def pivot_levels(adjacent: list[set[int]], groups: Sequence[Iterable[int]]) -> list[list[tuple[int, list[int]]]]:
    """The pivots of each level, no two of them adjacent, each with its neighbours in the current elimination graph. One
    of a group comes after those that are adjacent to it from the start and belong to a group before.

    A level takes pivots of up to twice the minimum degree. With the minimum degree alone, a chain would be eliminated
    from its two ends; with this rule the number of levels is the logarithm of the chain's length, for half again the
    work.
    """
    adjacent, levels = [set(neighbours) for neighbours in adjacent], []
    group = {i: k for k, members in enumerate(groups) for i in members}
    awaited = {i: {j for j in adjacent[i] if group[j] < group[i]} for i in group}
    remaining = set(group)
    while remaining:
        order = sorted((i for i in remaining if not awaited[i]), key=lambda i: (len(adjacent[i]), i))
        min_degree, blocked, level = len(adjacent[order[0]]), set(), []
        for i in order:
            if len(adjacent[i]) > max(2 * min_degree, 1):
                break
            if i not in blocked:
                level.append((i, sorted(adjacent[i])))
                blocked |= adjacent[i]
        for i, neighbours in level:
            remaining.discard(i)
            for j in neighbours:
                adjacent[j].discard(i)
                awaited[j].discard(i)
                adjacent[j].update(k for k in neighbours if k != j)
        levels.append(level)
    return levels
