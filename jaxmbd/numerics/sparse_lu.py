"""Sparse systems `A x = b`, real or complex, solved by `A = L U` in an order that is known from the sparsity alone.

There is no pivoting for size: the order is that of a symmetric elimination of the pattern of `A + Aᵀ`, group after
group of unknowns: one of a group comes after those of the groups before in its own row. For the matrices of implicit
steps the speeds are one group, in which masses dominate as the step tends to zero, and the multipliers the next one,
whose diagonal the elimination of the speeds fills. Everything is arithmetic on arrays of entries, so that in a program
structural zeros cost nothing.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import added_at_rows, at_rows, put_at_rows
from jaxmbd.engine.program.symbolic_ldlt import pivot_levels


class Structure:
    """Which entries of a matrix `(n, n)` may differ from zero, `mask`, and the `sizes` of the groups of unknowns that
    are eliminated after one another."""

    def __init__(self, mask: np.ndarray, sizes: Sequence[int]) -> None:
        self.mask, self.sizes = mask | mask.T | np.eye(len(mask), dtype=bool), tuple(sizes)
        self._key = (len(mask), np.packbits(self.mask).tobytes(), self.sizes)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._key == other._key

    @property
    def entries(self) -> int:
        """How many entries `L` and `U` have together."""
        return symbolic_lu(self).entries


class Level(NamedTuple):
    """Pivots that are eliminated together. For each entry `(i, p)` below a pivot, and `(p, i)` beside it: `below` and
    `beside`, their places among the stored entries; `rows`, `columns`, that is `i` and `p`; `at`, the index of `p`
    among the `pivots`. For each pair of entries `(i, p)`, `(p, j)`: `first`, `second`, their indices in `below`, and
    `target`, the place of the updated entry `(i, j)`."""

    pivots: np.ndarray
    below: np.ndarray
    beside: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    at: np.ndarray
    first: np.ndarray
    second: np.ndarray
    target: np.ndarray


class SymbolicLU(NamedTuple):
    """The levels of an elimination, the number of stored entries with fill-in, and the rows and columns of those that
    the matrix itself has, which are the first ones."""

    levels: tuple[Level, ...]
    entries: int
    rows: np.ndarray
    columns: np.ndarray


@lru_cache(maxsize=256)
def symbolic_lu(structure: Structure) -> SymbolicLU:
    """The symbolic factorisation of a structure."""
    n = len(structure.mask)
    diagonal = np.arange(n)
    i, j = np.nonzero(structure.mask & ~np.eye(n, dtype=bool))
    rows, columns = np.concatenate([diagonal, i]), np.concatenate([diagonal, j])
    place = {pair: k for k, pair in enumerate(zip(rows.tolist(), columns.tolist(), strict=True))}
    adjacent = [set(np.flatnonzero(row).tolist()) - {k} for k, row in enumerate(structure.mask)]
    ends = np.cumsum([0, *structure.sizes]).tolist()
    groups = [range(a, b) for a, b in pairwise(ends)]
    levels = tuple(_level(pivots, place) for pivots in pivot_levels(adjacent, groups))
    return SymbolicLU(levels, len(place), rows.astype(np.int32), columns.astype(np.int32))


def _level(pivots: Sequence[tuple[int, list[int]]], place: dict[tuple[int, int], int]) -> Level:
    """The index arrays of one level; its fill-in is appended to the places."""
    pairs = [(i, p) for p, neighbours in pivots for i in neighbours]
    number = {pair: k for k, pair in enumerate(pairs)}
    order = {p: k for k, (p, _) in enumerate(pivots)}
    updates = [(i, j, p) for p, neighbours in pivots for i in neighbours for j in neighbours]
    indices = (
        [p for p, _ in pivots],
        [place[i, p] for i, p in pairs],
        [place[p, i] for i, p in pairs],
        [i for i, _ in pairs],
        [p for _, p in pairs],
        [order[p] for _, p in pairs],
        [number[i, p] for i, _, p in updates],
        [number[j, p] for _, j, p in updates],
        [place.setdefault((i, j), len(place)) for i, j, _ in updates],
    )
    return Level(*(np.array(x, np.int32) for x in indices))


class Complex(NamedTuple):
    """Complex numbers by their real and imaginary parts, since programs have real numbers alone; None for real ones."""

    re: Array
    im: Array | None = None

    def at(self, places: np.ndarray) -> "Complex":
        """Those at some places."""
        return self._each(self, lambda x, _: at_rows(x, places))

    def split(self, at: int) -> tuple["Complex", "Complex"]:
        """The first so many, and the others."""
        return self._each(self, lambda x, _: x[:at]), self._each(self, lambda x, _: x[at:])

    def times(self, other: "Complex") -> "Complex":
        """The product, elementwise."""
        if self.im is None or other.im is None:
            return Complex(self.re * other.re, None)
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    @classmethod
    def of(cls, numbers: np.ndarray, kind: complex | float, dtype: np.dtype) -> "Complex":
        """Coefficients in some precision, real ones if `kind` is real."""
        parts = [of(numbers) for of in ((np.real,) if isinstance(kind, float) else (np.real, np.imag))]
        return cls(*(jnp.asarray(x, dtype) for x in parts))

    def scaled(self, factor: complex | float, h: Array) -> "Complex":
        """The product with a constant and a real number."""
        if self.im is None:
            return Complex(self.re * (factor * h))
        re, im = factor.real * h, factor.imag * h
        return Complex(self.re * re - self.im * im, self.re * im + self.im * re)

    def joined(self, other: "Complex") -> "Complex":
        """Both, one after the other."""
        return self._each(other, lambda x, y: jnp.concatenate([x, y]))

    def inverse(self) -> "Complex":
        """The reciprocals."""
        if self.im is None:
            return Complex(1 / self.re)
        scale = 1 / (self.re * self.re + self.im * self.im)
        return Complex(self.re * scale, -self.im * scale)

    def put(self, places: np.ndarray, values: "Complex") -> "Complex":
        """The same with other numbers at some places."""
        return self._each(values, lambda x, y: put_at_rows(x, places, y))

    def minus(self, places: np.ndarray, values: "Complex") -> "Complex":
        """The same with numbers subtracted at places, which may repeat."""
        return self._each(values, lambda x, y: added_at_rows(x, places, -y))

    def _each(self, values: "Complex", function: Callable[[Array, Array], Array]) -> "Complex":
        if self.im is None or values.im is None:
            return Complex(function(self.re, values.re))
        return Complex(function(self.re, values.re), function(self.im, values.im))


def factored(matrix: Complex, structure: Structure) -> Complex:
    """The entries of `L` and `U`, with the reciprocals of the pivots, from those of the matrix `(n, n)`."""
    symbolic = symbolic_lu(structure)
    fill = symbolic.entries - len(symbolic.rows)
    places = symbolic.rows * len(structure.mask) + symbolic.columns
    x = matrix._each(matrix, lambda of, _: jnp.pad(at_rows(of.reshape(-1), places), (0, fill)))
    for level in symbolic.levels:
        inverse = x.at(level.pivots).inverse()
        L = x.at(level.below).times(inverse.at(level.at))
        x = x.minus(level.target, L.at(level.first).times(x.at(level.beside).at(level.second)))
        x = x.put(level.pivots, inverse).put(level.below, L)
    return x


def substituted(x: Complex, b: Complex, structure: Structure) -> Complex:
    """`A⁻¹ b` for `b (n,)`, with the result of `factored`."""
    symbolic = symbolic_lu(structure)
    for level in symbolic.levels:
        b = b.minus(level.rows, x.at(level.below).times(b.at(level.columns)))
    for level in reversed(symbolic.levels):
        b = b.minus(level.columns, x.at(level.beside).times(b.at(level.rows)))
        b = b.put(level.pivots, b.at(level.pivots).times(x.at(level.pivots)))
    return b
