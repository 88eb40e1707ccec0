"""The Delassus matrix `S = C M⁻¹ Cᵀ`, assembled from the nonzero entries of `C`.

`S_ij` is nonzero only if `M` couples a speed of row `i` with a speed of row `j`. In a long chain of loops few pairs of
rows do so, and the topology determines them: the cost of `S` is then linear in the number of joints, instead of the
product of three dense dimensions.
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
    """`C M⁻¹ Cᵀ` for a mass matrix that is block diagonal by bodies.

    The rows of the result are in the order of the mechanism; `order[i]` is the index of row `i` among the groups' rows.
    `accelerate(inertia, effort)` is `M⁻¹ f` of one body; the leaves of `inertia` have the bodies on their first axis.
    """
    bodies = jax.tree.leaves(inertia)[0].shape[0]
    position = np.argsort(order)[legs.row]
    first, second = _pairs_on_one_body(legs.body, bodies)
    lower = position[first] >= position[second]
    first, second = first[lower], second[lower]
    body = np.minimum(legs.body, bodies - 1)
    scaled = jax.vmap(accelerate)(jax.tree.map(lambda x: x[body], inertia), legs.values)
    products = jnp.sum(scaled[first] * legs.values[second], axis=1)
    return _lower_triangle(products, position[first], position[second], legs.m)


def schur_of_entries(C: SparseMatrix, inertia: AbstractInertia) -> Symmetric:
    """`C M⁻¹ Cᵀ` for any `M`: rows that involve different connected components of `M` share one right-hand side."""
    m, nv = C.shape
    component = inertia.components()[C.columns]
    # All pairs of a component and a row with an entry in it.
    touched_component, touching_row = np.unique(np.stack([component, C.rows]), axis=1)
    colour = _greedy_colouring(m, touched_component, touching_row)
    b = SparseMatrix(C.values, C.columns, colour[C.rows], (nv, colour.max(initial=-1) + 1))
    x = inertia.solve_rows(b.dense().T)
    entry, pair = matches(component, touched_component)
    row = touching_row[pair]
    lower = C.rows[entry] >= row
    entry, row = entry[lower], row[lower]
    return _lower_triangle(C.values[entry] * x[colour[row], C.columns[entry]], C.rows[entry], row, m)


def _lower_triangle(products: Array, rows: np.ndarray, columns: np.ndarray, m: int) -> Symmetric:
    """Accumulate products into the lower triangle; every diagonal entry is stored, even if it is zero."""
    diagonal = np.arange(m)
    values, rows = jnp.concatenate([products, jnp.zeros(m, products.dtype)]), np.append(rows, diagonal)
    S = summed(values, rows, np.append(columns, diagonal), (m, m))
    return Symmetric(S.values, Pattern(m, S.rows, S.columns))


def _pairs_on_one_body(body: np.ndarray, bodies: int) -> tuple[np.ndarray, np.ndarray]:
    """All ordered pairs of terms on the same body; terms on the ground are left out."""
    terms = np.argsort(body, kind="stable")
    terms = terms[body[terms] < bodies]
    first, second = matches(body[terms], body[terms])
    return terms[first], terms[second]


def _greedy_colouring(m: int, components: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Greedy colouring of `m` rows: rows that share a component get different colours.

    `components` and `rows` list the pairs of a component and a row with an entry in it.
    """
    components_of_row: list[list[int]] = [[] for _ in range(m)]
    for component, row in zip(components.tolist(), rows.tolist(), strict=True):
        components_of_row[row].append(component)
    taken: dict[int, set[int]] = {component: set() for component in components.tolist()}
    colours = np.zeros(m, int)
    for row, row_components in enumerate(components_of_row):
        used = set().union(*(taken[k] for k in row_components))
        colours[row] = colour = next(k for k in range(len(used) + 1) if k not in used)
        for k in row_components:
            taken[k].add(colour)
    return colours
