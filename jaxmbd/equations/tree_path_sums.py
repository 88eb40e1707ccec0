"""Sums along the paths of a tree, from each node to its root, by doubling.

After `k` rounds each node has the sum over itself and the `2ᵏ − 1` nodes next on its way: a chain of a thousand takes
ten rounds.
"""

from collections.abc import Iterator
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.equations.gather_tables import gather_sum, gather_table


class Paths:
    """The paths of a tree: `parents[i]` is the node next to `i` on its way to the root, or the number of nodes."""

    def __init__(self, parents: np.ndarray) -> None:
        self.parents = parents

    def rounds(self) -> Iterator[np.ndarray]:
        """For each node the one that is 1, 2, 4, … nodes further, or the number of nodes, until all have ended."""
        count, further = len(self.parents), self.parents
        while (further < count).any():
            yield further
            further = np.append(further, count)[further]

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Each node with each node on its path, itself first."""
        return _pairs(tuple(self.parents.tolist()))

    def to_root(self, values: Array) -> Array:
        """For each node, the sum over its path."""
        for further in self.rounds():
            values = values + jnp.concatenate([values, jnp.zeros_like(values[:1])])[further]
        return values

    def subtree_sum(self, values: Array) -> Array:
        """For each node, the sum over all nodes on whose path it is."""
        count = len(self.parents)
        for further in self.rounds():
            values = values + gather_sum(values, gather_table(np.where(further < count, further, -1), count))
        return values


@lru_cache(maxsize=256)
def _pairs(parents: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    count, further = len(parents), np.append(parents, len(parents)).astype(int)
    node = on_path = np.arange(count)
    found = []
    while len(node):
        found.append((node, on_path))
        on_path = further[on_path]
        node, on_path = node[on_path < count], on_path[on_path < count]
    nodes, others = (np.concatenate(x) for x in zip(*found, strict=True)) if found else (node, node)
    order = np.argsort(nodes, kind="stable")
    return nodes[order], others[order]
