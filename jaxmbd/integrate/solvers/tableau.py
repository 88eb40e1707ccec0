"""Coefficients of the Radau IIA methods: collocation whose last node is the end of the step.

Source: Hairer, Wanner, *Solving ODEs II* (1996), §IV.5 and §IV.8.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

_IS_REAL = 1e-9  # imaginary part below which an eigenvalue is the real one: the others have some of order 1


@dataclass(frozen=True)
class Tableau:
    """The method of `n` stages, of order `2 n − 1`, on the step `0 ≤ θ ≤ 1`.

    `matrix` is `A`, `inverse` is `A⁻¹`. Polynomials are given by their values at the `nodes`: `integrals` has, for each
    node, the coefficients of `θ¹ … θⁿ` in the integral of the polynomial that is 1 there and 0 at the others (in
    columns); `at_start` is the value of that polynomial at `θ = 0`. `bump` is the integral of the polynomial that is
    1 at `θ = 0` and 0 at the nodes, by the coefficients of `θ¹ … θⁿ⁺¹`.

    `A⁻¹` has one real eigenvalue and complex pairs: `values`, the real one first and one of each pair, with their right
    (columns) and left (rows) eigenvectors.
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
    """The method of an odd number `n` of stages; its nodes are the zeros of `P_{n−1} − P_n` (Legendre, on `[0, 1]`)."""
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
    above = np.imag(values)
    kept = [int(np.abs(above).argmin()), *np.flatnonzero(above > _IS_REAL)]
    left = np.linalg.inv(right)[kept]
    return Tableau(nodes, matrix, inverse, integrals, powers[0], bump, values[kept], right[:, kept], left)
