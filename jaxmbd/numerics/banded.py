"""Linear systems with a known banded matrix, in time and memory proportional to their size.

The matrix is known (a spline's, by the places of its samples); right sides may be traced, and the solution is linear in
them. Known ones are solved by LAPACK. Traced ones are solved by two loops over the rows of the same factors, which all
modes of differentiation, `jit` and `vmap` pass through.

Partial pivoting makes indefinite matrices possible: those of least-squares problems as augmented systems
`[[I, A], [Aᵀ, −B]]`, whose errors grow with the condition of `A`, not with that of `Aᵀ A` (Björck, *Numerical Methods
for Least Squares Problems* (1996), §2.5).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array

from jaxmbd.arrays import is_concrete

_STEP = 1e-100  # of complex differentiation: its square vanishes beside every number


@dataclass(frozen=True)
class BandedMatrix:
    """A square matrix of a size by its entries `values` at `rows` and `columns`, no two at one place.

    `rates`: the derivatives of the values by a parameter, for `log_determinant_rate`.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    size: int
    rates: np.ndarray | float = 0.0

    @cached_property
    def width(self) -> int:
        """The largest distance of an entry from the diagonal."""
        return int(np.max(np.abs(self.rows - self.columns), initial=0))

    def solve(self, b: Array | np.ndarray) -> Any:
        """`A⁻¹ b` for `b (n, *k)`: NumPy's numbers for known ones, differentiable for traced ones."""
        if not is_concrete(b):
            return self._solve_traced(jnp.asarray(b))
        lu, pivots = np.asfortranarray(np.real(self._factors[0])), self._factors[1]
        columns = np.asarray(b, float).reshape(len(b), -1)
        solve = scipy.linalg.get_lapack_funcs("gbtrs", (lu,))
        return solve(lu, self.width, self.width, columns, pivots)[0].reshape(b.shape)

    @property
    def log_determinant_rate(self) -> float:
        """`tr(A⁻¹ Ȧ) = d log |det A|/dx`, with the derivatives `rates` by x.

        Of the factors at a complex step, whose imaginary parts are derivatives without a small difference.
        """
        diagonal = self._factors[0][2 * self.width]
        return float(np.sum(diagonal.imag / diagonal.real)) / _STEP

    @cached_property
    def _factors(self) -> tuple[np.ndarray, np.ndarray]:
        """LAPACK's factors `P L U`: the diagonal of U in row `2 width`, L below it; and the rows that are exchanged."""
        values = self.values if np.ndim(self.rates) == 0 else self.values + 1j * _STEP * self.rates
        band = np.zeros((3 * self.width + 1, self.size), values.dtype, order="F")
        band[2 * self.width + self.rows - self.columns, self.columns] = values
        factor = scipy.linalg.get_lapack_funcs("gbtrf", (band,))
        lu, pivots, failed = factor(band, self.width, self.width, overwrite_ab=True)
        if failed:
            raise np.linalg.LinAlgError("The banded matrix is singular.")
        return lu, pivots

    def _solve_traced(self, b: Array) -> Array:
        """Substitution; the carry of each loop is the window of rows that the next one reaches."""
        below, above = self.width, 2 * self.width  # pivoting fills as many diagonals of U again
        lu, pivots = np.real(self._factors[0]), self._factors[1]
        numbers = np.arange(self.size)
        # To exchange rows of the window, and to subtract multiples of the first one from the others, as one matrix.
        steps = np.tile(np.eye(below + 1), (self.size, 1, 1))
        offset = pivots - numbers
        steps[numbers, 0, 0] = steps[numbers, offset, offset] = 0.0
        steps[numbers, 0, offset] = steps[numbers, offset, 0] = 1.0
        steps[:, 1:] -= lu[above + 1 :].T[:, :, None] * steps[:, :1]
        upper = np.zeros((self.size, above + 1))
        for k in range(min(above + 1, self.size)):
            upper[: self.size - k, k] = lu[above - k, k:]
        upper[:, 1:] /= -upper[:, :1]
        upper[:, 0] = 1 / upper[:, 0]

        def times(row: Array, window: Array) -> Array:
            row = row.reshape(row.shape + (1,) * (b.ndim - 1))
            return jnp.sum(row * (window if row.ndim == window.ndim else window[None]), axis=row.ndim - b.ndim)

        def eliminate(window: Array, of: tuple[Array, Array]) -> tuple[Array, Array]:
            step, entering = of
            first, *rows = times(step, window)
            return jnp.stack([*rows, entering]), first

        def substitute(window: Array, of: tuple[Array, Array]) -> tuple[Array, Array]:
            row, entering = of
            x = times(row, jnp.concatenate([entering[None], window]))
            return jnp.concatenate([x[None], window[:-1]]), x

        zeros = jnp.zeros((above, *b.shape[1:]), b.dtype)
        padded = jnp.concatenate([b, zeros])
        entering = padded[below + 1 : below + 1 + self.size]
        _, y = jax.lax.scan(eliminate, padded[: below + 1], (jnp.asarray(steps, b.dtype), entering))
        return jax.lax.scan(substitute, zeros, (jnp.asarray(upper, b.dtype), y), reverse=True)[1]
