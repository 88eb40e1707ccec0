"""Identifiability: the rank of the residuals' Jacobian, and the combinations of parameters that the data determine.

With the Jacobian in scaled unknowns, `J̄ = J D` with columns of length one, and `J̄ = U Σ Vᵀ`, the covariance is
`V₁ Σ₁⁻² V₁ᵀ` in the row space `V₁`. In the null space `V₂` the unknowns can change without a change of the data. An
unknown with a component in the null space has no finite standard error; the others have those of the row space.

Source: Belsley, Kuh, Welsch, *Regression Diagnostics* (1980), §3.2; Ljung, *System Identification* (1999), §4.5.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float

from jaxmbd.analyses.redundancy import reduced_echelon
from jaxmbd.identification._labels import owner, summed_up

RANK = 1e-6  # share of the largest singular value of the scaled Jacobian below which a singular value counts as zero
_SILENT = 1e-9  # share of the channels: a parameter that changes them by less, if changed by its size, has no effect
_NO_PRIOR = 1e-12  # share of all priors below which a direction counts as one without
_TAKES_PART = 1e-4  # component of a unit null vector from which an unknown belongs to it
_PIVOT = 0.1  # share of the largest component: the last unknown above it is the reference of a combination
_SIMPLE = 1e-3  # largest difference from a simple fraction for which exponents and factors are replaced by it
_LISTED = 6  # number of unknowns that are listed by name


class FitWarning(UserWarning):
    """A warning about a fit that its numbers alone do not show."""


@dataclass(frozen=True)
class Estimates:
    """The unknowns, in the order of the Jacobian's columns.

    `names`, `values`; `sizes`: the physical changes that serve as units; `positive`: True for parameters greater than
    zero.
    """

    names: tuple[str, ...]
    values: Float[np.ndarray, " n"]
    sizes: Float[np.ndarray, " n"]
    positive: Bool[np.ndarray, " n"]

    def of(self, members: np.ndarray) -> "Estimates":
        """Return the unknowns with the given indices."""
        names = tuple(self.names[k] for k in members)
        return Estimates(names, self.values[members], self.sizes[members], self.positive[members])


@dataclass(frozen=True)
class Undetermined:
    """A group of unknowns that the data do not determine one by one.

    `names`: the unknowns; `combinations`: those that the data determine, to first order at the estimates, `"I/mass"` or
    `"a + b"`; empty if the unknowns have no effect. The text names a parameter of many numbers, such as a network, as a
    whole, without combinations of its numbers, which mean nothing.
    """

    names: tuple[str, ...]
    combinations: tuple[str, ...]

    def __str__(self) -> str:
        listed = list(summed_up(self.names))
        more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
        names = ", ".join(listed[:_LISTED]) + more
        if not self.combinations:
            return f"the data do not determine {names}"
        if len(listed) < len(self.names):
            return f"the data determine {names} through {len(self.combinations)} combinations only; a prior would do so"
        shown = ", ".join(self.combinations[:_LISTED]) + (", …" if len(self.combinations) > _LISTED else "")
        return f"the data determine {names} through {shown} only"


@dataclass(frozen=True)
class Identifiability:
    """The result of the rank analysis.

    - `rank`: the rank of the scaled Jacobian;
    - `open (n,)`: True for unknowns that are not determined;
    - `inverse (n, n)`: the pseudo-inverse of `JᵀJ` in the unknowns divided by their sizes;
    - `groups`: the groups of undetermined unknowns.
    """

    rank: int
    open: Bool[np.ndarray, " n"]
    inverse: Float[np.ndarray, "n n"]
    groups: tuple[Undetermined, ...]


def identifiability(
    J: Float[np.ndarray, "rows n"],
    unknowns: Estimates,
    channels: float,
    tolerance: float,
    priors: Float[np.ndarray, "_ n"] | None = None,
) -> Identifiability:
    """Return the rank analysis of a Jacobian `J` in the unknowns divided by their sizes.

    `channels`: the norm of the model's channels in the units of the residuals; columns that are small relative to it
    count as rounding errors. `priors`: rows of `J` that have no such errors, and which alone determine directions
    that the others do not.
    """
    norms = np.linalg.norm(J, axis=0)
    has_effect = norms > _SILENT * channels
    if priors is not None:
        has_effect |= priors.any(axis=0)
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=has_effect)
    R = np.linalg.qr(J[:, has_effect] * scale[has_effect], mode="r") if has_effect.any() else np.zeros((0, 0))
    _, values, basis = np.linalg.svd(R)
    rank = int(np.sum(values > tolerance * values.max(initial=0.0)))
    rows, null = np.zeros((rank, len(norms))), np.zeros((len(basis) - rank, len(norms)))
    rows[:, has_effect], null[:, has_effect] = basis[:rank], basis[rank:]
    half_inverse = (rows * scale).T / values[:rank]
    if priors is not None and len(null):
        known, null = _determined_by(priors * scale, null)
        half_inverse = np.concatenate([half_inverse, scale[:, None] * known], axis=1)
        rank += known.shape[1]
    is_open = ~has_effect | (np.linalg.norm(null, axis=0) > _TAKES_PART)
    groups = _without_effect(unknowns.names[k] for k in np.flatnonzero(~has_effect))
    for members in _connected(null):
        groups.append(_undetermined(unknowns.of(members), _basis(null[:, members]) * scale[members]))
    return Identifiability(rank, is_open, half_inverse @ half_inverse.T, tuple(groups))


def _determined_by(
    priors: Float[np.ndarray, "_ n"], null: Float[np.ndarray, "k n"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "r n"]]:
    """Return the root of the inverse of `PᵀP` in the part of a null space that priors `P` determine, and a basis of the
    rest."""
    _, values, basis = np.linalg.svd(priors @ null.T)
    count = int(np.sum(values > _NO_PRIOR * np.linalg.norm(priors)))
    turned = basis @ null
    return turned[:count].T / values[:count], turned[count:]


def _without_effect(names: Iterable[str]) -> list[Undetermined]:
    """One group for each parameter that has no effect, or for its numbers that have none."""
    owned: dict[str, list[str]] = {}
    for name in names:
        owned.setdefault(owner(name), []).append(name)
    return [Undetermined(tuple(found), ()) for found in owned.values()]


def _connected(null: Float[np.ndarray, "k n"]) -> list[np.ndarray]:
    """Return the indices of the unknowns that the null space couples, as one array for each group."""
    # The diagonal of the projection contains squares of components; its other entries are linear in a small component.
    projection = null.T @ null
    is_coupled, takes_part = np.abs(projection) > 0.1 * _TAKES_PART, np.diag(projection) > _TAKES_PART**2
    groups, remaining = [], set(np.flatnonzero(takes_part).tolist())
    while remaining:
        group, new = set(), {min(remaining)}
        while new:
            group |= new
            new = {j for i in new for j in np.flatnonzero(is_coupled[i]).tolist() if j in remaining} - group
        remaining -= group
        groups.append(np.array(sorted(group)))
    return groups


def _basis(vectors: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "r n"]:
    """Return an orthonormal basis of the span of the vectors."""
    _, values, basis = np.linalg.svd(vectors)
    # Singular values are 1 or 0, since the vectors are columns of an orthonormal basis that couple with no others.
    return basis[: int(np.sum(values > 0.5))]


# --- texts ------------------------------------------------------------------------------------------------------------


def _undetermined(unknowns: Estimates, moves: Float[np.ndarray, "r n"]) -> Undetermined:
    """Return the combinations that are constant along `moves`, changes of the unknowns divided by their sizes.

    They are products of powers if these have the simpler exponents, else sums.
    """
    reduced, pivots = reduced_echelon(moves, _PIVOT)
    units = [unknowns.values] if unknowns.positive.all() else []
    choices = [_combinations(unknowns, reduced, pivots, unit) for unit in (*units, None)]
    return Undetermined(unknowns.names, min(choices, key=lambda choice: choice[0])[1])


def _combinations(
    unknowns: Estimates, reduced: Float[np.ndarray, "r n"], pivots: list[int], logarithmic: np.ndarray | None
) -> tuple[float, tuple[str, ...]]:
    """Return the complexity and the texts of the products of powers, or sums, that are constant along `reduced` moves.

    If unknown `i` moves by `r` times the pivot `j` in units of the sizes, `δᵢ / sᵢ = r δⱼ / sⱼ`, the coefficient is
    `r (sᵢ / xᵢ) / (sⱼ / xⱼ)` for logarithms and `r sᵢ / sⱼ` for the numbers themselves.
    """
    steps = unknowns.sizes if logarithmic is None else unknowns.sizes / logarithmic
    complexity, texts = 0.0, []
    for i in (i for i in range(len(steps)) if i not in pivots):
        coefficients: dict[int, Fraction | float] = {i: Fraction(1)}
        coefficients |= {
            j: _simple(-reduced[row, i] * steps[i] / steps[j])
            for row, j in enumerate(pivots)
            if abs(reduced[row, i]) > _SIMPLE
        }
        complexity += sum(_complexity(x, logarithmic is not None) for x in coefficients.values())
        texts.append((_sum if logarithmic is None else _product)(unknowns.names, coefficients))
    return complexity, tuple(texts)


def _complexity(x: Fraction | float, is_exponent: bool) -> float:
    if isinstance(x, Fraction):
        return abs(x.numerator) + x.denominator
    return 1e3 if is_exponent else 1e2  # if neither is simple, a sum is preferred: it is valid near the estimates


def _simple(x: float) -> Fraction | float:
    """Return a fraction with a small denominator if one is close, else the number."""
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
