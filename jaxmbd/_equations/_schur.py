"""`S = C M⁻¹ Cᵀ` from the blocks of `C`: two rows meet only in the bodies they share.

For a long chain of loops almost all products of rows are zero. The pairs that are not are known from the topology,
so `S` costs a multiple of the number of joints instead of the product of three dense dimensions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd._equations._groups import Group
from jaxmbd._equations._symmetric import Symmetric, symmetric
from jaxmbd._equations._tables import gather_sum, gather_table
from jaxmbd._program import Pattern


def schur_complement(
    groups: Sequence[Group], blocks: Sequence[Array], inertia: Any, accelerate: Callable[..., Array], order: np.ndarray
) -> Symmetric:
    """`C M⁻¹ Cᵀ` with rows in the mechanism's order; `order` is where each of them is among the groups' rows.

    `accelerate(inertia, effort)` is `M⁻¹ f` of one body, the leaves of `inertia` have bodies on their first axis.
    """
    m = len(order)
    if not blocks:
        return symmetric(jnp.zeros((0, 0)))
    width = blocks[0].shape[-1]
    bodies = jax.tree.leaves(inertia)[0].shape[0]
    row, body = _legs(groups, blocks)
    place = np.argsort(order)[row]
    first, second = _meetings(body, bodies)
    lower = place[first] >= place[second]
    first, second = first[lower], second[lower]
    legs = jnp.concatenate([block.reshape(-1, width) for block in blocks])
    here = np.minimum(body, bodies - 1)
    scaled = jax.vmap(accelerate)(jax.tree.map(lambda x: x[here], inertia), legs)
    products = jnp.sum(scaled[first] * legs[second], axis=1)
    entries, target = np.unique(place[first] * m + place[second], return_inverse=True)
    values = gather_sum(products, gather_table(target.reshape(-1), len(entries)))
    return Symmetric(values, Pattern(m, *np.divmod(entries, m)))


def _legs(groups: Sequence[Group], blocks: Sequence[Array]) -> tuple[np.ndarray, np.ndarray]:
    """For each (row, marker) of all groups: the row and the body."""
    rows, bodies, start = [], [], 0
    for group, block in zip(groups, blocks, strict=True):
        parts, count, markers = block.shape[:3]
        row = start + np.arange(parts * count).reshape(parts, count, 1)
        rows.append(np.broadcast_to(row, (parts, count, markers)).reshape(-1))
        bodies.append(np.broadcast_to(group.incidence[:, None, :], (parts, count, markers)).reshape(-1))
        start += parts * count
    return np.concatenate(rows), np.concatenate(bodies)


def _meetings(body: np.ndarray, bodies: int) -> tuple[np.ndarray, np.ndarray]:
    """All ordered pairs of legs on one body (none on the ground)."""
    on = [np.flatnonzero(body == k) for k in range(bodies)]
    first = np.concatenate([np.repeat(legs, len(legs)) for legs in on])
    return first, np.concatenate([np.tile(legs, len(legs)) for legs in on])
