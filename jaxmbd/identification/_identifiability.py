"""What the data determine: the rank of the residuals' Jacobian, and the combinations of parameters that it leaves open.

With the Jacobian in scaled unknowns, `J̄ = J D` with columns of length one, and `J̄ = U Σ Vᵀ`, the covariance is
`V₁ Σ₁⁻² V₁ᵀ` in the row space `V₁`. The others, `V₂`, are directions along which the unknowns may change and the data
do not: an unknown that has a part in one of them has no finite standard error, and the others have those of the row
space.

Source: Belsley, Kuh, Welsch, *Regression Diagnostics* (1980), §3.2; Ljung, *System Identification* (1999), §4.5.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float

RANK = 1e-6  # of the largest singular value of the scaled Jacobian: what is smaller counts as zero
_SILENT = 1e-9  # of the channels: a parameter whose change by its own size changes them by less has no effect
_TAKES_PART = 1e-4  # of a unit vector: unknowns that take part in a direction without effect
_PIVOT = 0.1  # of the largest: a later unknown is the reference of a combination unless its part is smaller
_SIMPLE = 1e-3  # how near exponents and factors are to simple fractions
_LISTED = 6  # unknowns that are listed by name


class FitWarning(UserWarning):
    """A fit ended in a way that its numbers alone do not show."""


@dataclass(frozen=True)
class Unknowns:
    """The columns of the Jacobian: their names, values and sizes, the physical changes that count as one; and which
    are parameters greater than zero."""

    names: tuple[str, ...]
    values: Float[np.ndarray, " n"]
    sizes: Float[np.ndarray, " n"]
    positive: Bool[np.ndarray, " n"]

    def of(self, members: np.ndarray) -> "Unknowns":
        """Some of them."""
        names = tuple(self.names[k] for k in members)
        return Unknowns(names, self.values[members], self.sizes[members], self.positive[members])


@dataclass(frozen=True)
class Undetermined:
    """Unknowns that the data do not determine one by one.

    `names`; `combinations`: what the data determine of them, to first order at the estimates, `"I/mass"` or `"a + b"`,
    nothing where they have no effect.
    """

    names: tuple[str, ...]
    combinations: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.names) - _LISTED} more" if len(self.names) > _LISTED else ""
        names = ", ".join(self.names[:_LISTED]) + more
        if not self.combinations:
            return f"the data do not determine {names}"
        shown = ", ".join(self.combinations[:_LISTED]) + (", …" if len(self.combinations) > _LISTED else "")
        return f"the data determine {names} through {shown} only"


@dataclass(frozen=True)
class Identifiability:
    """`rank`, that of the scaled Jacobian; `open (n,)`, the unknowns that are not determined; `inverse (n, n)`, of
    `JᵀJ` in the unknowns divided by their sizes, in the row space; `groups`, of undetermined unknowns."""

    rank: int
    open: Bool[np.ndarray, " n"]
    inverse: Float[np.ndarray, "n n"]
    groups: tuple[Undetermined, ...]


def identifiability(
    J: Float[np.ndarray, "rows n"], unknowns: Unknowns, channels: float, tolerance: float
) -> Identifiability:
    """What a Jacobian `J`, in the unknowns divided by their sizes, determines.

    `channels`: the norm of the model's channels, in the units of the residuals, beside which a column can be no more
    than rounding.
    """
    norms = np.linalg.norm(J, axis=0)
    seen = norms > _SILENT * channels
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=seen)
    seen_alone = np.linalg.qr(J[:, seen] * scale[seen], mode="r") if seen.any() else np.zeros((0, 0))
    _, values, basis = np.linalg.svd(seen_alone)
    rank = int(np.sum(values > tolerance * values.max(initial=0.0)))
    rows, null = np.zeros((rank, len(norms))), np.zeros((len(basis) - rank, len(norms)))
    rows[:, seen], null[:, seen] = basis[:rank], basis[rank:]
    part = (rows * scale).T / values[:rank]
    is_open = ~seen | (np.linalg.norm(null, axis=0) > _TAKES_PART)
    groups = [Undetermined((unknowns.names[k],), ()) for k in np.flatnonzero(~seen)]
    for members in _connected(null):
        groups.append(_named(unknowns.of(members), _basis(null[:, members]) * scale[members]))
    return Identifiability(rank, is_open, part @ part.T, tuple(groups))


def _connected(null: Float[np.ndarray, "k n"]) -> list[np.ndarray]:
    """The unknowns that directions without effect tie to one another, group by group."""
    projection = null.T @ null  # its diagonal holds squares: a part shows among the other entries as it is
    tied, takes_part = np.abs(projection) > 0.1 * _TAKES_PART, np.diag(projection) > _TAKES_PART**2
    groups, left = [], set(np.flatnonzero(takes_part).tolist())
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            new = {j for i in new for j in np.flatnonzero(tied[i]).tolist() if j in left} - group
        left -= group
        groups.append(np.array(sorted(group)))
    return groups


def _basis(vectors: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "r n"]:
    """A basis of the space that vectors span."""
    _, values, basis = np.linalg.svd(vectors)
    return basis[: int(np.sum(values > 0.5))]  # rows of an orthonormal basis: a group takes part in full, or not at all


# --- in words ---------------------------------------------------------------------------------------------------------


def _named(unknowns: Unknowns, moves: Float[np.ndarray, "r n"]) -> Undetermined:
    """The combinations that do not change along `moves`, changes of the unknowns divided by their sizes: products where
    these have the simpler exponents, else sums."""
    reduced, pivots = _reduced(moves)
    units = [unknowns.values] if unknowns.positive.all() else []
    choices = [_combinations(unknowns, reduced, pivots, unit) for unit in (*units, None)]
    return Undetermined(unknowns.names, min(choices, key=lambda choice: choice[0])[1])


def _combinations(
    unknowns: Unknowns, reduced: Float[np.ndarray, "r n"], pivots: list[int], logarithmic: np.ndarray | None
) -> tuple[float, tuple[str, ...]]:
    """Products of powers, or sums, that do not change along `reduced` moves, and how complicated they are.

    Of moves `r` of unknown `i` with a pivot `j`, in units of the sizes, `δᵢ / sᵢ = r δⱼ / sⱼ`: of logarithms
    `r (sᵢ / xᵢ) / (sⱼ / xⱼ)`, of the numbers themselves `r sᵢ / sⱼ`.
    """
    steps = unknowns.sizes if logarithmic is None else unknowns.sizes / logarithmic
    effort, texts = 0.0, []
    for i in (i for i in range(len(steps)) if i not in pivots):
        found: dict[int, Fraction | float] = {i: Fraction(1)}
        found |= {
            j: _simple(-reduced[row, i] * steps[i] / steps[j])
            for row, j in enumerate(pivots)
            if abs(reduced[row, i]) > _SIMPLE
        }
        effort += sum(_effort(x, logarithmic is not None) for x in found.values())
        texts.append((_sum if logarithmic is None else _product)(unknowns.names, found))
    return effort, tuple(texts)


def _effort(x: Fraction | float, is_exponent: bool) -> float:
    if isinstance(x, Fraction):
        return abs(x.numerator) + x.denominator
    return 1e3 if is_exponent else 1e2  # where neither is simple, a sum says what holds near the estimates


def _reduced(moves: Float[np.ndarray, "r n"]) -> tuple[Float[np.ndarray, "r n"], list[int]]:
    """The same space with a unit matrix in the columns of the pivots, the last that are not small."""
    moves, pivots = np.array(moves), []
    for done in range(len(moves)):
        size = np.abs(moves[done:]).max(axis=0)
        size[pivots] = 0.0
        column = int(np.flatnonzero(size >= _PIVOT * size.max())[-1])
        row = done + int(np.argmax(np.abs(moves[done:, column])))
        moves[[done, row]] = moves[[row, done]]
        moves[done] /= moves[done, column]
        for other in range(len(moves)):
            if other != done:
                moves[other] -= moves[other, column] * moves[done]
        pivots.append(column)
    return moves, pivots


def _simple(x: float) -> Fraction | float:
    """A fraction with a small denominator where one is near, else the number."""
    near = Fraction(x).limit_denominator(3)
    return near if abs(float(near) - x) <= _SIMPLE and abs(near.numerator) <= 4 else x


def _product(names: tuple[str, ...], powers: dict[int, Fraction | float]) -> str:
    above = [_power(names[k], x) for k, x in powers.items() if x > 0]
    below = [_power(names[k], -x) for k, x in powers.items() if x < 0]
    return "·".join(above) + "".join(f"/{text}" for text in below)


def _power(name: str, x: Fraction | float) -> str:
    if x == 1:
        return name
    return f"{name}^{x}" if isinstance(x, Fraction) and x.denominator == 1 else f"{name}^({x})"


def _sum(names: tuple[str, ...], factors: dict[int, Fraction | float]) -> str:
    text = ""
    for k, x in factors.items():
        size = "" if abs(x) == 1 else f"{abs(x)} " if isinstance(x, Fraction) else f"{abs(x):.3g} "
        sign = ("−" if x < 0 else "") if not text else (" − " if x < 0 else " + ")
        text += f"{sign}{size}{names[k]}"
    return text
