"""Eigenvalues and eigenvectors, with forward and reverse derivatives that are finite for repeated eigenvalues.

A simple eigenvalue changes by `λ' = wᴴ A' x / wᴴ x` with its left and right eigenvectors `w`, `x`; `x` changes by the
other eigenvectors, `Σ x_j (w_jᴴ A' x / w_jᴴ x_j) / (λ − λ_j)`. JAX's own rules divide by zero for repeated eigenvalues.
Here these terms are left out: the derivative of the mean of repeated eigenvalues is correct, that of each is not if a
change splits them, and their eigenvectors only span the correct space. Defective eigenvalues (the double zero of a free
body) have no derivative; it is set to zero. The left eigenvectors change so that `wᴴ x` is constant, which second
derivatives of eigenvalues need.

The matrix of a mechanism has entries that are rounding errors of zeros, 1e-17 and much smaller. LAPACK's balancing
scales rows and columns until such entries are as large as the others, and returns eigenvectors with a residual of the
size of the matrix. Therefore the states are brought to one scale first, entries that are then below 1e-13 of the
largest one are set to zero, and the residual of each pair is computed: derivatives of pairs with large residuals are
NaN.

Source: Magnus, *On differentiating eigenvalues and eigenvectors*, Econometric Theory 1 (1985).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from jaxmbd.arrays import constant, is_concrete
from jaxmbd.engine import trace_once

_NEGLIGIBLE = 2.0**9  # units of rounding of the largest entry: smaller entries count as zero (1.1e-13 in double)
_ACCURATE = 1.0  # units of the square root of rounding, of the largest entry: the largest residual of an eigenvector
_SAME = 16.0  # units of the square root of rounding, of the largest eigenvalue: closer eigenvalues count as repeated


class Eigenpairs(NamedTuple):
    """The eigenvalues of a matrix, smallest first, and its right and left eigenvectors as columns.

    Of eigenvalues of one size, up to rounding, that with the larger real part comes first. Conjugate pairs are
    adjacent, with the positive imaginary part first. `residual`: the larger of `|A x − λ x|` and `|wᴴ A − λ wᴴ|` for
    the scaled matrix and vectors of length one, as a share of its largest entry.
    """

    values: Complex[Array, " n"]
    right: Complex[Array, "n n"]
    left: Complex[Array, "n n"]
    residual: Float[Array, " n"]

    @property
    def accurate(self) -> Bool[Array, " n"]:
        """True for each pair of eigenvectors with small residuals."""
        limit = _ACCURATE * float(jnp.finfo(self.residual.dtype).eps) ** 0.5
        return constant(np.asarray(self.residual) <= limit) if is_concrete(self.residual) else self.residual <= limit


@trace_once
def general(A: Float[Array, "n n"], scale: Float[Array, " n"] | None = None) -> Eigenpairs:
    """Return the eigenvalues and eigenvectors of a matrix `A`.

    `scale`: comparable sizes of the entries of `x` in `ẋ = A x`. Conjugate pairs are adjacent, with the positive
    imaginary part first. Residuals have no derivative.
    """
    scale = jnp.ones(len(A), A.dtype) if scale is None else scale
    return Eigenpairs(*_general(A, jnp.exp2(jnp.round(jnp.log2(jax.lax.stop_gradient(scale))))))  # exact factors


def _order(values: Complex[Array, " n"]) -> Any:
    """The order of eigenvalues by size and real part. The two of a conjugate pair have both in common."""
    by_real_part = jnp.argsort(-values.real, stable=True)
    digits = float(jnp.finfo(values.real.dtype).eps) ** 0.5
    size = jnp.round(jnp.log2(jnp.abs(values)) / digits)
    return by_real_part[jnp.argsort(size[by_real_part], stable=True)]


@jax.custom_jvp
def _general(A: Float[Array, "n n"], scale: Float[Array, " n"]) -> tuple[Array, Array, Array, Array]:
    scaled = A * scale[None, :] / scale[:, None]
    largest = jnp.max(jnp.abs(scaled), initial=0.0)
    negligible = _NEGLIGIBLE * float(jnp.finfo(A.dtype).eps) * largest
    values, left, right = jax.lax.linalg.eig(
        jnp.where(jnp.abs(scaled) > negligible, scaled, 0.0), compute_left_eigenvectors=True
    )
    residuals = scaled @ right - right * values[None], scaled.T @ left.conj() - left.conj() * values[None]
    residual = jnp.max(jnp.stack([jnp.linalg.norm(r, axis=0) for r in residuals]), axis=0)
    residual = residual / jnp.where(largest > 0, largest, 1.0)
    order = _order(values)
    right, left = scale[:, None] * right, left / scale[:, None]
    return values[order], right[:, order], left[:, order], residual[order]


@_general.defjvp
def _general_jvp(primals: Any, tangents: Any) -> Any:
    eigen = Eigenpairs(*_general(*primals))
    values, right, left, residual = eigen
    rows = left.conj().T
    same, tolerance = _same(values)
    # LAPACK's left and right eigenvectors of repeated eigenvalues are not biorthogonal. They are paired here.
    paired = jnp.where(same, rows @ right, 0.0)
    defective = jnp.max(jnp.abs(paired), axis=1) < tolerance
    paired = paired + jnp.diag(defective.astype(paired.dtype))
    change = jnp.linalg.solve(paired, rows @ tangents[0] @ right)
    change = jnp.where(defective[:, None], 0.0, change)
    mixing = jnp.where(eigen.accurate[None], _mixing(values, same, change), jnp.nan)
    right_change, left_change = right @ mixing, -(paired @ mixing @ jnp.linalg.solve(paired, rows)).conj().T
    changes = jnp.where(eigen.accurate, jnp.diag(change), jnp.nan)
    return (values, right, left, residual), (changes, right_change, left_change, jnp.zeros_like(residual))


@jax.custom_jvp
def symmetric(S: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Return the eigenvalues of a symmetric matrix, smallest first, and its orthonormal eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(S)
    return values, vectors


@symmetric.defjvp
def _symmetric_jvp(primals: Any, tangents: Any) -> Any:
    values, vectors = symmetric(*primals)
    change = vectors.T @ tangents[0] @ vectors
    vector_changes = vectors @ _mixing(values, _same(values)[0], change)
    return (values, vectors), (jnp.diag(change), vector_changes)


def _same(values: Array) -> tuple[Array, float]:
    """Return True for each pair of eigenvalues that count as equal, and the relative tolerance for that."""
    tolerance = _SAME * float(jnp.finfo(values.dtype).eps) ** 0.5
    gap = jnp.abs(jax.lax.stop_gradient(values[None, :] - values[:, None]))
    return gap <= tolerance * jnp.max(jnp.abs(jax.lax.stop_gradient(values))), tolerance


def _mixing(values: Array, same: Array, change: Array) -> Array:
    """Return the components of the changes of eigenvectors along the others: `change_ij / (λ_j − λ_i)`."""
    gap = values[None, :] - values[:, None]
    return jnp.where(same, 0.0, change / jnp.where(same, 1.0, gap))
