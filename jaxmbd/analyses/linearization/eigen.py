"""Eigenvalues and eigenvectors, with derivatives in both modes that stay finite where eigenvalues repeat.

A simple eigenvalue changes by `λ' = wᴴ A' x / wᴴ x` with its left and right eigenvectors `w`, `x`; `x` changes by the
other eigenvectors, `Σ x_j (w_jᴴ A' x / w_jᴴ x_j) / (λ − λ_j)`. JAX's own rules divide by zero where eigenvalues repeat.
Here that part is left out: among repeated eigenvalues a change that splits them has its mean right, not each, and their
eigenvectors only span the right space. Eigenvalues without eigenvectors of their own (the double zero of a free body)
have no derivative at all; it is taken as zero. The left eigenvectors change so that `wᴴ x` stays, which second
derivatives of eigenvalues need.

The matrix of a mechanism has entries that are rounding errors of zeros, 1e-17 and much smaller. LAPACK's balancing
scales rows and columns until such entries are as large as the others, and returns eigenvectors with a residual of the
size of the matrix. So the states are brought to one scale first, what is then below 1e-13 of the largest entry is set
to zero, and the residual of each pair is looked at: the derivative of a pair with a large one is not a number.

Source: Magnus, *On differentiating eigenvalues and eigenvectors*, Econometric Theory 1 (1985).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float

_NEGLIGIBLE = 2.0**9  # units of rounding of the largest entry: smaller entries count as zero (1.1e-13 in double)
_ACCURATE = 1.0  # square roots of rounding of the largest entry: a residual above that is no eigenvector's
_SAME = 16.0  # square roots of rounding, of the largest eigenvalue: nearer ones count as repeated


class Eigen(NamedTuple):
    """The eigenvalues of a matrix, smallest first, and its right and left eigenvectors as columns.

    Pairs stay together, positive imaginary part first. `residual`, the larger one of `|A x − λ x|` and
    `|wᴴ A − λ wᴴ|` of the scaled matrix with vectors of length one, as a share of its largest entry.
    """

    values: Complex[Array, " n"]
    right: Complex[Array, "n n"]
    left: Complex[Array, "n n"]
    residual: Float[Array, " n"]

    @property
    def accurate(self) -> Bool[Array, " n"]:
        """Whether the residuals are those of eigenvectors."""
        return self.residual <= _ACCURATE * float(jnp.finfo(self.residual.dtype).eps) ** 0.5


def general(A: Float[Array, "n n"], scale: Float[Array, " n"] | None = None) -> Eigen:
    """The eigenvalues and eigenvectors of a matrix; `scale`, the sizes of `x` that are comparable, in `ẋ = A x`.

    Pairs stay together, positive imaginary part first. Residuals have no derivative.
    """
    scale = jnp.ones(len(A), A.dtype) if scale is None else scale
    return Eigen(*_general(A, jnp.exp2(jnp.round(jnp.log2(jax.lax.stop_gradient(scale))))))  # exact factors


@jax.custom_jvp
def _general(A: Float[Array, "n n"], scale: Float[Array, " n"]) -> tuple[Array, Array, Array, Array]:
    scaled = A * scale[None, :] / scale[:, None]
    largest = jnp.max(jnp.abs(scaled), initial=0.0)
    negligible = _NEGLIGIBLE * float(jnp.finfo(A.dtype).eps) * largest
    values, left, right = jax.lax.linalg.eig(
        jnp.where(jnp.abs(scaled) > negligible, scaled, 0.0), compute_left_eigenvectors=True
    )
    misses = scaled @ right - right * values[None], scaled.T @ left.conj() - left.conj() * values[None]
    residual = jnp.max(jnp.stack([jnp.linalg.norm(miss, axis=0) for miss in misses]), axis=0)
    residual = residual / jnp.where(largest > 0, largest, 1.0)
    order = jnp.argsort(jnp.abs(values), stable=True)
    right, left = scale[:, None] * right, left / scale[:, None]
    return values[order], right[:, order], left[:, order], residual[order]


@_general.defjvp
def _general_jvp(primals: Any, tangents: Any) -> Any:
    found = Eigen(*_general(*primals))
    values, right, left, residual = found
    rows = left.conj().T
    same, tolerance = _same(values)
    # Among repeated eigenvalues LAPACK's left and right eigenvectors are not each other's: they are paired here.
    paired = jnp.where(same, rows @ right, 0.0)
    lost = jnp.max(jnp.abs(paired), axis=1) < tolerance
    paired = paired + jnp.diag(lost.astype(paired.dtype))
    change = jnp.linalg.solve(paired, rows @ tangents[0] @ right)
    change = jnp.where(lost[:, None], 0.0, change)
    mixed = jnp.where(found.accurate[None], _mixed(values, same, change), jnp.nan)
    moved, opposite = right @ mixed, -(paired @ mixed @ jnp.linalg.solve(paired, rows)).conj().T
    changes = jnp.where(found.accurate, jnp.diag(change), jnp.nan)
    return (values, right, left, residual), (changes, moved, opposite, jnp.zeros_like(residual))


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
