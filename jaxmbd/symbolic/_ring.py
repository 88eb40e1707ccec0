"""Sparse polynomials modulo relations that express the squares of some generators by the others.

A polynomial maps monomials to coefficients: fractions, or floats. A sum of floats that cancels up to rounding is zero.
Products are reduced immediately, so that cancelling terms never accumulate.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeAlias

Monomial: TypeAlias = tuple[int, ...]  # the sorted indices of its generators, repeated for powers
Polynomial: TypeAlias = dict[Monomial, Any]

_TERMS = 1000  # the largest number of terms of a polynomial
_WORK = 1_000_000  # the largest number of products of terms in total, which take some seconds
_NOISE = 2.0**-49  # relative size of a sum of floats below which it counts as rounding error
ONE = Fraction(1)


class TooLong(Exception):  # noqa: N818
    """Raised when a polynomial has too many terms, or all products together too much work."""


class Ring:
    """The generators of polynomials, and the relations between them."""

    def __init__(self) -> None:
        self.expressions: list[Any] = []  # the SymPy expression of each generator
        self.groups: list[Monomial] = []  # groups of generators whose squares add up to one
        self.bounded: set[int] = set()  # sines, cosines and Euler parameters
        self._numbers: dict[Hashable, int] = {}
        self._squares: dict[int, Polynomial] = {}
        self._reciprocals: dict[int, int] = {}
        self._reduced: dict[Monomial, Polynomial] = {}
        self._work = 0

    def generator(self, key: Hashable, write: Callable[[], object]) -> int:
        """The index of the generator with this key; `write()` returns the expression of a new one."""
        if key not in self._numbers:
            self.expressions.append(write())
            self._numbers[key] = len(self.expressions) - 1
        return self._numbers[key]

    def group(self, members: Monomial) -> None:
        """Declare that the squares of the members add up to one; the square of the first is then eliminated."""
        if members not in self.groups:
            self.groups.append(members)
            self.bounded |= set(members)
            self._squares |= replacement(members, members[0])

    def reciprocal(self, generator: int) -> int:
        """The generator that is the reciprocal of another."""
        if generator not in self._reciprocals:
            inverse = self.generator(("over", generator), lambda: 1 / self.expressions[generator])
            self._reciprocals |= {generator: inverse, inverse: generator}
        return self._reciprocals[generator]

    def multiply(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """`a b`."""
        self._work += len(a) * len(b)
        if self._work > _WORK:
            raise TooLong
        return total_of(
            (m, c * d * f) for k, c in a.items() for n, d in b.items() for m, f in self._reduce(k, n).items()
        )

    def _reduce(self, m: Monomial, n: Monomial) -> Polynomial:
        monomial = tuple(sorted(m + n))
        if monomial not in self._reduced:
            pair = next(((g, h) for g in monomial if (h := self._reciprocals.get(g)) in monomial), None)
            short = reduced(monomial, self._squares) if pair is None else self._reduce(without(monomial, *pair), ())
            self._reduced[monomial] = short
        return self._reduced[monomial]


def total_of(terms: Iterable[tuple[Monomial, Fraction | float]]) -> Polynomial:
    """The sum of terms `(monomial, coefficient)`, in which monomials may repeat."""
    total: Polynomial = {}
    for monomial, c in terms:
        before = total.get(monomial, 0)
        after = before + c
        if after == 0 or (isinstance(after, float) and abs(after) <= _NOISE * abs(before)):
            total.pop(monomial, None)
        else:
            total[monomial] = after
    if len(total) > _TERMS:
        raise TooLong
    return total


def without(monomial: Monomial, *factors: int) -> Monomial:
    rest = list(monomial)
    for factor in factors:
        rest.remove(factor)
    return tuple(rest)


def replacement(members: Monomial, member: int) -> dict[int, Polynomial]:
    """The relation that expresses the square of one member of a group by those of the others."""
    return {member: {(): ONE, **{(g, g): -ONE for g in members if g != member}}}


def reduced(monomial: Monomial, squares: Mapping[int, Polynomial]) -> Polynomial:
    """A monomial with the given squares replaced."""
    square = next((g for g, h in pairwise(monomial) if g == h and g in squares), None)
    if square is None:
        return {monomial: ONE}
    rest = without(monomial, square, square)
    return total_of(
        (n, c * d)
        for m, c in squares[square].items()
        for n, d in reduced(tuple(sorted(rest + m)), squares).items()
    )  # fmt: skip
