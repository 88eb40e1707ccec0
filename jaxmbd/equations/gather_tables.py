"""Index tables that replace scatter-adds by gathers, which compile to fast code on both CPU and GPU."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# Largest number of layers that is summed term by term: XLA fuses such a sum with the operations after it.
_UNROLLED_LAYERS = 16


def gather_table(targets: np.ndarray, size: int) -> np.ndarray:
    """For each of `size` targets, the sources that are added to it: shape `(largest number of sources, size)`.

    `targets[i]` is the target of source `i`, or −1 for none; columns with fewer sources are padded with the index
    `len(targets)`.
    """
    sources = np.flatnonzero(targets >= 0)
    columns = targets[sources]
    order = np.argsort(columns, kind="stable")
    sources, columns = sources[order], columns[order]
    first = np.searchsorted(columns, columns)
    layer = np.arange(len(columns)) - first
    table = np.full((layer.max(initial=0) + 1, size), len(targets))
    table[layer, columns] = sources
    return table


def gather_sum(values: Array, table: np.ndarray) -> Array:
    """Sum `values` into the targets of a `gather_table`."""
    padded = jnp.concatenate([values, jnp.zeros((1, *values.shape[1:]), values.dtype)])
    if len(table) > _UNROLLED_LAYERS:
        return jnp.sum(padded[table], axis=0)
    total = padded[table[0]]
    for layer in table[1:]:
        total = total + padded[layer]
    return total


def matches(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join: all index pairs `(i, j)` with `left[i] == right[j]`, as two arrays; `right` is sorted."""
    first, last = np.searchsorted(right, left), np.searchsorted(right, left, side="right")
    index = np.repeat(np.arange(len(left)), last - first)
    return index, first[index] + np.arange(len(index)) - np.searchsorted(index, index)
