"""Eigenvalues and eigenvectors, with derivatives in both modes that stay finite where eigenvalues repeat.

A simple eigenvalue changes by `λ' = wᴴ A' x / wᴴ x` with its left and right eigenvectors `w`, `x`; `x` changes by the
other eigenvectors, `Σ x_j (w_jᴴ A' x / w_jᴴ x_j) / (λ − λ_j)`. JAX's own rules divide by zero where eigenvalues repeat.
Here that part is left out: among repeated eigenvalues a change that splits them has its mean right, not each, and their
eigenvectors only span the right space. Eigenvalues without eigenvectors of their own (the double zero of a free body)
have no derivative at all; it is taken as zero. The left eigenvectors change so that `wᴴ x` stays, which second
derivatives of eigenvalues need.

Source: Magnus, *On differentiating eigenvalues and eigenvectors*, Econometric Theory 1 (1985).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

_SAME = 16.0  # square roots of rounding, of the largest eigenvalue: nearer ones count as repeated


@jax.custom_jvp
def general(
    A: Float[Array, "n n"],
) -> tuple[Complex[Array, " n"], Complex[Array, "n n"], Complex[Array, "n n"]]:
    """The eigenvalues of a matrix, smallest first, and its right and left eigenvectors as columns.

    Pairs stay together, positive imaginary part first.
    """
    values, left, right = jax.lax.linalg.eig(A, compute_left_eigenvectors=True)
    order = jnp.argsort(jnp.abs(values), stable=True)
    return values[order], right[:, order], left[:, order]


@general.defjvp
def _general_jvp(primals: Any, tangents: Any) -> Any:
    values, right, left = general(*primals)
    rows = left.conj().T
    same, tolerance = _same(values)
    # Among repeated eigenvalues LAPACK's left and right eigenvectors are not each other's: they are paired here.
    paired = jnp.where(same, rows @ right, 0.0)
    lost = jnp.max(jnp.abs(paired), axis=1) < tolerance
    paired = paired + jnp.diag(lost.astype(paired.dtype))
    change = jnp.linalg.solve(paired, rows @ tangents[0] @ right)
    change = jnp.where(lost[:, None], 0.0, change)
    mixed = _mixed(values, same, change)
    moved, opposite = right @ mixed, -(paired @ mixed @ jnp.linalg.solve(paired, rows)).conj().T
    return (values, right, left), (jnp.diag(change), moved, opposite)


@jax.custom_jvp
def symmetric(S: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """The eigenvalues of a symmetric matrix, smallest first, and its orthonormal eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(S)
    return values, vectors


@symmetric.defjvp
def _symmetric_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = symmetric(*primals)
    change = vectors.T @ tangents[0] @ vectors
    moved = vectors @ _mixed(values, _same(values)[0], change)
    return (values, vectors), (jnp.diag(change), moved)


def _same(values: Array) -> tuple[Array, float]:
    """Which eigenvalues count as one and the same, and by which share of the largest they may differ."""
    tolerance = _SAME * float(jnp.finfo(values.dtype).eps) ** 0.5
    gap = jnp.abs(jax.lax.stop_gradient(values[None, :] - values[:, None]))
    return gap <= tolerance * jnp.max(jnp.abs(jax.lax.stop_gradient(values))), tolerance


def _mixed(values: Array, same: Array, change: Array) -> Array:
    """By how much of each other eigenvector each eigenvector changes: `change_ij / (λ_j − λ_i)`."""
    gap = values[None, :] - values[:, None]
    return jnp.where(same, 0.0, change / jnp.where(same, 1.0, gap))
