"""Rules for Cholesky factorisations and triangular solves of small matrices, unrolled to scalar operations."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmbd.compile.graph import algebra
from jaxmbd.compile.graph.node import Node
from jaxmbd.compile.graph.step import Step


def _cholesky(step: Step, a: np.ndarray) -> np.ndarray:
    """The lower Cholesky factor of each matrix."""
    result = np.full(a.shape, step.constant(0), dtype=object)
    for batch in np.ndindex(a.shape[:-2]):
        _factor(a[batch], result[batch])
    return result


def _factor(a: np.ndarray, L: np.ndarray) -> None:
    """Fill the lower triangle of `L` so that `L Lᵀ = a`; only the lower triangle of `a` is read."""
    for j in range(len(a)):
        L[j, j] = algebra.function("sqrt", _less_products(a[j, j], L[j, :j], L[j, :j]))
        for i in range(j + 1, len(a)):
            L[i, j] = algebra.div(_less_products(a[i, j], L[i, :j], L[j, :j]), L[j, j])


def _less_products(value: Node, left: np.ndarray, right: np.ndarray) -> Node:
    """`value − left · right`."""
    for x, y in zip(left, right, strict=True):
        value = algebra.sub(value, algebra.mul(x, y))
    return value


def _triangular_solve(step: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The solution `x` of `a x = b` or `x a = b` by substitution."""
    params = step.params
    is_lower = params["lower"]
    result = np.empty(b.shape, dtype=object)
    for batch in np.ndindex(a.shape[:-2]):
        # x a = b is aᵀ xᵀ = bᵀ: each side and transposition is the same solve on other views of the arrays.
        is_transposed = bool(params["transpose_a"]) == params["left_side"]
        matrix = a[batch].T if is_transposed else a[batch]
        right, x = (b[batch], result[batch]) if params["left_side"] else (b[batch].T, result[batch].T)
        _substitute(matrix, right, x, is_lower != is_transposed, params["unit_diagonal"])
    return result


def _substitute(a: np.ndarray, b: np.ndarray, x: np.ndarray, is_lower: bool, has_unit_diagonal: bool) -> None:
    """Fill `x` with the solution of `a x = b`, by forward or backward substitution."""
    n = len(a)
    for column in range(b.shape[1]):
        for i in range(n) if is_lower else reversed(range(n)):
            known = slice(0, i) if is_lower else slice(i + 1, n)
            value = _less_products(b[i, column], a[i, known], x[known, column])
            x[i, column] = value if has_unit_diagonal else algebra.div(value, a[i, i])


RULES: dict[str, Callable[..., Any]] = {"cholesky": _cholesky, "triangular_solve": _triangular_solve}
