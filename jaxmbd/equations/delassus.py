"""`S = C M⁻¹ Cᵀ` from the entries of `C`: two rows meet only where `M` couples what they touch.

For a long chain of loops almost all products of rows are zero. The pairs that are not are known from the topology,
so `S` costs a multiple of the number of joints instead of the product of three dense dimensions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.compile.passes.symbolic_ldlt import Pattern
from jaxmbd.equations.gather_tables import matches
from jaxmbd.equations.inertia import AbstractInertia
from jaxmbd.equations.sparse_coo import ConstraintBodyTerms, SparseMatrix, summed
from jaxmbd.equations.spd_solve import Symmetric


def schur_of_legs(
    legs: ConstraintBodyTerms, inertia: Any, accelerate: Callable[..., Array], order: np.ndarray
) -> Symmetric:
    """`C M⁻¹ Cᵀ` for bodies that move on their own, with rows in the mechanism's order; `order` is where each of them
    is among the groups' rows.

    `accelerate(inertia, effort)` is `M⁻¹ f` of one body, the leaves of `inertia` have bodies on their first axis.
    """
    bodies = jax.tree.leaves(inertia)[0].shape[0]
    place = np.argsort(order)[legs.row]
    first, second = _meetings(legs.body, bodies)
    lower = place[first] >= place[second]
    first, second = first[lower], second[lower]
    here = np.minimum(legs.body, bodies - 1)
    scaled = jax.vmap(accelerate)(jax.tree.map(lambda x: x[here], inertia), legs.values)
    products = jnp.sum(scaled[first] * legs.values[second], axis=1)
    return _lower(products, place[first], place[second], legs.m)


def schur_of_entries(C: SparseMatrix, inertia: AbstractInertia) -> Symmetric:
    """`C M⁻¹ Cᵀ` for any `M`: rows that touch speeds of different components of `M` share a column of one solve."""
    m, nv = C.shape
    component = inertia.components()[C.columns]
    touched, touching = np.unique(np.stack([component, C.rows]), axis=1)  # each component, with each row that it has
    colour = _colours(m, touched, touching)
    b = SparseMatrix(C.values, C.columns, colour[C.rows], (nv, colour.max(initial=-1) + 1))
    x = inertia.solve_rows(b.dense().T)
    entry, pair = matches(component, touched)
    row = touching[pair]
    lower = C.rows[entry] >= row
    entry, row = entry[lower], row[lower]
    return _lower(C.values[entry] * x[colour[row], C.columns[entry]], C.rows[entry], row, m)


def _lower(products: Array, rows: np.ndarray, columns: np.ndarray, m: int) -> Symmetric:
    """Sums of products on and below the diagonal, all of which has places."""
    every = np.arange(m)
    values, rows = jnp.concatenate([products, jnp.zeros(m, products.dtype)]), np.append(rows, every)
    S = summed(values, rows, np.append(columns, every), (m, m))
    return Symmetric(S.values, Pattern(m, S.rows, S.columns))


def _meetings(body: np.ndarray, bodies: int) -> tuple[np.ndarray, np.ndarray]:
    """All ordered pairs of legs on one body (none on the ground)."""
    legs = np.argsort(body, kind="stable")
    legs = legs[body[legs] < bodies]
    first, second = matches(body[legs], body[legs])
    return legs[first], legs[second]


def _colours(m: int, components: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A number for each of `m` rows, the least that no other row of its components has; given these pair by pair."""
    near: list[list[int]] = [[] for _ in range(m)]
    for component, row in zip(components.tolist(), rows.tolist(), strict=True):
        near[row].append(component)
    taken: dict[int, set[int]] = {component: set() for component in components.tolist()}
    colours = np.zeros(m, int)
    for row, mine in enumerate(near):
        used = set().union(*(taken[k] for k in mine))
        colours[row] = least = next(k for k in range(len(used) + 1) if k not in used)
        for k in mine:
            taken[k].add(least)
    return colours
