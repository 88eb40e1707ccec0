"""Index tables: what meets where; scatter-adds turned into gathers, which compile to fast code on CPU and GPU alike."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

_MANY = 16  # sources of a place, up to which sums are written out: XLA then makes one loop of them and what follows


def gather_table(targets: np.ndarray, size: int) -> np.ndarray:
    """For each of `size` places, the sources that add to it: shape `(most sources of a place, size)`.

    `targets[i]` is the place that source `i` adds to, or −1 for none; a place with fewer sources is padded with
    the index `len(targets)`.
    """
    sources = np.flatnonzero(targets >= 0)
    places = targets[sources]
    arranged = np.argsort(places, kind="stable")
    sources, places = sources[arranged], places[arranged]
    first = np.searchsorted(places, places)
    layer = np.arange(len(places)) - first
    table = np.full((layer.max(initial=0) + 1, size), len(targets))
    table[layer, places] = sources
    return table


def gather_sum(values: Array, table: np.ndarray) -> Array:
    """Sum `values` into the places of a `gather_table`."""
    padded = jnp.concatenate([values, jnp.zeros((1, *values.shape[1:]), values.dtype)])
    if len(table) > _MANY:
        return jnp.sum(padded[table], axis=0)
    total = padded[table[0]]
    for layer in table[1:]:
        total = total + padded[layer]
    return total


def matches(wanted: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each number wanted with each place where it is `among` others, which are sorted: two arrays of indices."""
    first, last = np.searchsorted(among, wanted), np.searchsorted(among, wanted, side="right")
    index = np.repeat(np.arange(len(wanted)), last - first)
    return index, first[index] + np.arange(len(index)) - np.searchsorted(index, index)
