"""JAX's factorisations and solves for NumPy matrices and batches of them; NaN for a matrix that has none."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy

from jaxmbd.engine.program.equation import Operation

Types: TypeAlias = Sequence[tuple[tuple[int, ...], type | np.dtype]]  # of arrays, each by its shape and dtype


def _each(
    function: Callable[..., Sequence[np.ndarray]], types: Callable[..., Types], *arrays: np.ndarray
) -> list[np.ndarray]:
    """Apply a function of matrices to each of a batch; `types(*arrays)`: shapes and types of the results of one."""
    batch = arrays[0].shape[:-2]
    results = [np.empty((*batch, *shape), dtype) for shape, dtype in types(*arrays)]
    for at in np.ndindex(*batch):
        try:
            for result, value in zip(results, function(*(x[at] for x in arrays)), strict=True):
                result[at] = value
        except np.linalg.LinAlgError:
            for result in results:
                result[at] = np.nan
    return results


def _routine(name: str, *arrays: np.ndarray) -> Callable[..., Any]:
    """The routine of LAPACK for the type of some arrays."""
    return scipy.linalg.get_lapack_funcs(name, arrays)


def _check_finite(a: np.ndarray) -> None:
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError


def _cholesky(x: np.ndarray) -> np.ndarray:
    return _each(lambda a: [np.linalg.cholesky(a)], lambda a: [(a.shape[-2:], a.dtype)], x)[0]


def _triangular_solve(
    a: np.ndarray, b: np.ndarray, *,
    left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool,
) -> np.ndarray:  # fmt: skip
    def one(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        a = np.tril(a) if lower else np.triu(a)
        if unit_diagonal:
            np.fill_diagonal(a, 1.0)
        a = (a.conj() if conjugate_a else a).T if transpose_a else a
        if not left_side:
            return [_upper_solve(a.T, b.T, lower != transpose_a).T]
        return [_upper_solve(a, b, lower == transpose_a)]

    return _each(one, lambda a, b: [(b.shape[-2:], b.dtype)], a, b)[0]


def _upper_solve(a: np.ndarray, b: np.ndarray, is_upper: bool) -> np.ndarray:
    """Solve an upper triangular system; a lower one in reverse order. LU finds its factors there: `I` and `a`.

    (SciPy has routines for it, whose import takes as long as all other work of a first assembly.)
    """
    return np.linalg.solve(a, b) if is_upper else np.linalg.solve(a[::-1, ::-1], b[::-1])[::-1]


def _lu(x: np.ndarray) -> list[np.ndarray]:
    getrf = _routine("getrf", x)

    def one(a: np.ndarray) -> list[np.ndarray]:
        if not a.size:
            return [a, np.zeros(0), np.arange(a.shape[0])]
        factor, pivots, _ = getrf(a)
        return [factor, pivots, _permutation(pivots, a.shape[0])]

    least = min(x.shape[-2:])
    return _each(one, lambda a: [(a.shape[-2:], a.dtype), ((least,), np.int32), ((a.shape[-2],), np.int32)], x)


def _permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    order = np.arange(size, dtype=np.int32)
    for i, k in enumerate(pivots):
        order[[i, k]] = order[[k, i]]
    return order


def _pivots_to_permutation(pivots: np.ndarray, *, permutation_size: int) -> np.ndarray:
    result = np.empty((*pivots.shape[:-1], permutation_size), np.int32)
    for at in np.ndindex(*pivots.shape[:-1]):
        result[at] = _permutation(pivots[at], permutation_size)
    return result


def _geqrf(x: np.ndarray) -> list[np.ndarray]:
    geqrf, least = _routine("geqrf", x), min(x.shape[-2:])
    return _each(
        lambda a: geqrf(a)[:2] if a.size else (a, np.zeros(least)),
        lambda a: [(a.shape[-2:], a.dtype), ((least,), a.dtype)],
        x,
    )


def _householder_product(x: np.ndarray, taus: np.ndarray) -> np.ndarray:
    orgqr = _routine("orgqr" if x.dtype.kind == "f" else "ungqr", x)
    result = np.array(x)
    for at in np.ndindex(*x.shape[:-2]):
        if taus[at].size:
            result[at] = orgqr(x[at], taus[at])[0]
    return result


def _qr(x: np.ndarray, *, full_matrices: bool, pivoting: bool) -> list[np.ndarray]:
    if not pivoting:
        return [*np.linalg.qr(x, "complete" if full_matrices else "reduced")]
    m, n = x.shape[-2:]
    k = m if full_matrices else min(m, n)
    mode = "full" if full_matrices else "economic"
    types = lambda a: [((m, k), a.dtype), ((k, n), a.dtype), ((n,), np.int32)]  # noqa: E731
    return _each(lambda a: scipy.linalg.qr(a, mode=mode, pivoting=True, check_finite=False), types, x)


def _svd(x: np.ndarray, *, full_matrices: bool, compute_uv: bool) -> list[np.ndarray]:
    m, n = x.shape[-2:]
    k = min(m, n)

    def one(a: np.ndarray) -> list[np.ndarray]:
        _check_finite(a)
        if not compute_uv:
            return [np.linalg.svd(a, compute_uv=False)]
        u, s, vt = np.linalg.svd(a, full_matrices)
        return [s, u, vt]

    shapes = [(k,), *([(m, m), (n, n)] if full_matrices else [(m, k), (k, n)])] if compute_uv else [(k,)]
    return _each(
        one, lambda a: [(shape, np.finfo(a.dtype).dtype if len(shape) == 1 else a.dtype) for shape in shapes], x
    )


def _eigh(x: np.ndarray, *, lower: bool) -> list[np.ndarray]:
    def one(a: np.ndarray) -> list[np.ndarray]:
        _check_finite(a)
        # The primitive returns the vectors first, `numpy.linalg` the values.
        return [*np.linalg.eigh(a, "L" if lower else "U")][::-1]

    return _each(one, lambda a: [(a.shape[-2:], a.dtype), (a.shape[-1:], np.finfo(a.dtype).dtype)], x)


def _eig(x: np.ndarray, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool) -> list[np.ndarray]:
    n, dtype = x.shape[-1], np.result_type(x.dtype, np.complex64)
    sides = compute_left_eigenvectors, compute_right_eigenvectors

    def one(a: np.ndarray) -> Sequence[np.ndarray]:
        _check_finite(a)
        found = scipy.linalg.eig(a, left=sides[0], right=sides[1])
        return found if any(sides) else [found]

    return _each(one, lambda a: [((n,), dtype), *[((n, n), dtype)] * sum(sides)], x)


MATRIX_FUNCTIONS: dict[str, Operation] = {
    "cholesky": _cholesky, "triangular_solve": _triangular_solve, "lu": _lu,
    "lu_pivots_to_permutation": _pivots_to_permutation, "geqrf": _geqrf, "householder_product": _householder_product,
    "qr": _qr, "svd": _svd, "eigh": _eigh, "eig": _eig,
}  # fmt: skip
