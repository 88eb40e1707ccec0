"""Coefficients of the Radau IIA methods: collocation methods whose last node is the end of the step.

Source: Hairer, Wanner, *Solving ODEs II* (1996), §IV.5 and §IV.8.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

_IS_REAL = 1e-9  # imaginary part below which an eigenvalue counts as real: those of the others are of order 1


@dataclass(frozen=True)
class Tableau:
    """The Radau IIA method of `n` stages, of order `2 n − 1`, on the step `0 ≤ θ ≤ 1`.

    `matrix` is `A`, `inverse` is `A⁻¹`. The columns of `integrals` belong to the `nodes`: the coefficients of
    `θ¹ … θⁿ` in the integral of the Lagrange polynomial, which is 1 at that node and 0 at the others; `at_start` is the
    value of that polynomial at `θ = 0`. `bump` is the integral of the polynomial that is 1 at `θ = 0` and 0 at the
    nodes, as coefficients of `θ¹ … θⁿ⁺¹`.

    `values` are eigenvalues of `A⁻¹`, the real one first and then one of each complex pair, with their right (columns)
    and left (rows) eigenvectors.
    """

    nodes: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    integrals: np.ndarray
    at_start: np.ndarray
    bump: np.ndarray
    values: np.ndarray
    right: np.ndarray
    left: np.ndarray


@cache
def tableau(n: int) -> Tableau:
    """The tableau of an odd number `n` of stages; nodes are the zeros of `P_{n−1} − P_n` (Legendre, on `[0, 1]`)."""
    legendre = np.polynomial.Legendre([0.0] * (n - 1) + [1.0, -1.0], domain=(0, 1))
    nodes: np.ndarray = np.sort(np.real(legendre.roots())).astype(float)
    nodes[-1] = 1.0
    powers: np.ndarray = np.linalg.inv(np.vander(nodes, n, increasing=True))
    integrals = powers / np.arange(1, n + 1)[:, None]
    matrix: np.ndarray = np.vander(nodes, n + 1, increasing=True)[:, 1:] @ integrals
    inverse = np.linalg.inv(matrix)
    vanishing = np.polynomial.Polynomial.fromroots(nodes)
    bump = (vanishing / vanishing(0.0)).integ().coef[1:]
    values, right = np.linalg.eig(inverse)
    imaginary = np.imag(values)
    selected = [int(np.abs(imaginary).argmin()), *np.flatnonzero(imaginary > _IS_REAL)]
    left = np.linalg.inv(right)[selected]
    return Tableau(nodes, matrix, inverse, integrals, powers[0], bump, values[selected], right[:, selected], left)
