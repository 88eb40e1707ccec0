"""Sums along the paths of a tree, from each node to its root, by pointer doubling.

After `k` rounds each node has the sum over itself and its next `2ᵏ − 1` ancestors, so a chain of a thousand nodes takes
ten rounds.
"""

from collections.abc import Iterator
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.equations.gather_tables import gather_sum, gather_table


class Paths:
    """The paths of a tree: `parents[i]` is the parent of node `i`, or the number of nodes if `i` has none."""

    def __init__(self, parents: np.ndarray) -> None:
        self.parents = parents

    def rounds(self) -> Iterator[np.ndarray]:
        """The ancestors 1, 2, 4, … levels above each node (the number of nodes above a root), while any exist."""
        count, ancestor = len(self.parents), self.parents
        while (ancestor < count).any():
            yield ancestor
            ancestor = np.append(ancestor, count)[ancestor]

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Index pairs of each node with each node on its path to the root, itself first."""
        return _pairs(tuple(self.parents.tolist()))

    def to_root(self, values: Array) -> Array:
        """For each node, the sum over its path to the root."""
        for ancestor in self.rounds():
            values = values + jnp.concatenate([values, jnp.zeros_like(values[:1])])[ancestor]
        return values

    def subtree_sum(self, values: Array) -> Array:
        """For each node, the sum over its subtree."""
        count = len(self.parents)
        for ancestor in self.rounds():
            values = values + gather_sum(values, gather_table(np.where(ancestor < count, ancestor, -1), count))
        return values


@lru_cache(maxsize=256)
def _pairs(parents: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    count, parent = len(parents), np.append(parents, len(parents)).astype(int)
    node = ancestor = np.arange(count)
    levels = []
    while len(node):
        levels.append((node, ancestor))
        ancestor = parent[ancestor]
        node, ancestor = node[ancestor < count], ancestor[ancestor < count]
    nodes, ancestors = (np.concatenate(x) for x in zip(*levels, strict=True)) if levels else (node, node)
    order = np.argsort(nodes, kind="stable")
    return nodes[order], ancestors[order]
