"""Identifiability: the combinations of parameters that the data determine, as far as the Jacobian is known.

The Jacobian in scaled unknowns, `J̄ = J D` with columns of length one, has errors `E`, of rounding and of integration. A
change `w` of the unknowns changes the data by `J̄ w`, of which `E w` is not known. The generalized singular values
`ρ = |E w| / |J̄ w|` are the relative errors of the standard deviations along their directions `w`, into which the
covariance falls apart, `(J̄ᵀJ̄)⁻¹ = Σ w wᵀ`. So one measure tells three cases:

- `ρ ≥ 1`: the change cannot be told from none. These directions span the null space; an unknown with a component in it
  has no finite standard error;
- `ρ` too large for an error to be stated: the standard errors that come from this direction are uncertain;
- others: the standard errors are those of the row space.

Source: Belsley, Kuh, Welsch, *Regression Diagnostics* (1980), §3.2; Ljung, *System Identification* (1999), §4.5; Golub,
Van Loan, *Matrix Computations* (2013), §6.1.6 and §8.7.4.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float

from jaxmbd.analyses.redundancy import reduced_echelon
from jaxmbd.parameters.labels import by_owner, summed_up

_COVERAGE = 3.0  # times the errors of the Jacobian that one comparison has shown: three standard deviations
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

    `names`; `owners`: the parameters that they belong to; `values`; `sizes`: the physical changes that serve as units;
    `positive`: True for parameters greater than zero.
    """

    names: tuple[str, ...]
    owners: tuple[str, ...]
    values: Float[np.ndarray, " n"]
    sizes: Float[np.ndarray, " n"]
    positive: Bool[np.ndarray, " n"]

    def of(self, members: np.ndarray) -> "Estimates":
        """Return the unknowns with the given indices."""
        names, owners = (tuple(texts[k] for k in members) for texts in (self.names, self.owners))
        return Estimates(names, owners, self.values[members], self.sizes[members], self.positive[members])


@dataclass(frozen=True)
class Undetermined:
    """A group of unknowns that the data do not determine one by one, or so poorly that their errors are uncertain.

    - `names`: the unknowns; `owners`: the parameters that they belong to;
    - `combinations`: those that the data determine well, to first order at the estimates, `"I/mass"` or `"a + b"`;
      empty if there are none;
    - `condition`: how much less the data tell of the others, the largest singular value of the scaled Jacobian over its
      value along them; infinite if they are not determined;
    - `uncertain`: the relative error of the standard errors; infinite if there are none;
    - `inaccurate`: the relative errors of the sensitivities to the unknowns, where these are too large for the rest.

    The text names a parameter of many numbers, such as a network, as a whole, without combinations of its numbers,
    which mean nothing.
    """

    names: tuple[str, ...]
    owners: tuple[str, ...]
    combinations: tuple[str, ...]
    condition: float = np.inf
    uncertain: float = np.inf
    inaccurate: tuple[float, ...] = ()

    def __str__(self) -> str:
        listed = list(summed_up(by_owner(self.names, self.owners)))
        more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
        names, shown = ", ".join(listed[:_LISTED]) + more, ", ".join(self.combinations[:_LISTED])
        if self.inaccurate:
            return (
                f"the sensitivities to {names} are uncertain by {max(self.inaccurate):.0%}, by rounding or the steps "
                "of the integration, so that no standard errors are given: the model is ill-conditioned there, such as "
                "with a mass or an inertia near zero, or its motion is chaotic"
            )
        is_many = len(listed) < len(self.names)
        shown = f"{len(self.combinations)} combinations" if is_many else shown
        shown += ", …" if len(self.combinations) > _LISTED and not is_many else ""
        prior = "; a prior would do so" * is_many
        if np.isinf(self.condition):
            if not self.combinations:
                return f"the data do not determine {names}"
            return f"the data determine {names} through {shown} only{prior}"
        through = f" but through {shown}" * bool(self.combinations)
        return (
            f"the data hardly determine {names}{through}: condition {self.condition:.0e}, these standard errors are "
            f"uncertain by {self.uncertain:.0%}{prior}"
        )


@dataclass(frozen=True)
class Identifiability:
    """The result of the analysis.

    - `rank`: the number of directions that are determined;
    - `open (n,)`: True for unknowns that are not determined;
    - `inverse (n, n)`: the pseudo-inverse of `JᵀJ` in the unknowns divided by their sizes;
    - `uncertain (n,)`: the relative errors of the standard errors;
    - `groups`: the groups of unknowns that are undetermined, or whose errors are more uncertain than the limit.
    """

    rank: int
    open: Bool[np.ndarray, " n"]
    inverse: Float[np.ndarray, "n n"]
    uncertain: Float[np.ndarray, " n"]
    groups: tuple[Undetermined, ...]


def identifiability(
    J: Float[np.ndarray, "rows n"],
    errors: Float[np.ndarray, "_ n"],
    unknowns: Estimates,
    channels: float,
    limit: float,
    priors: Float[np.ndarray, "_ n"] | None = None,
) -> Identifiability:
    """Return the analysis of a Jacobian `J` in the unknowns divided by their sizes.

    `errors`: rows `E` with `|E w|` the error of `J w`; `channels`: the norm of the model's channels in the units of the
    residuals; columns that are small relative to it count as rounding errors. `limit`: the largest relative error that
    standard errors may have. `priors`: rows of `J` that have no errors, and which alone determine directions that the
    others do not.
    """
    norms = np.linalg.norm(J, axis=0)
    has_effect = norms > _SILENT * channels
    if priors is not None:
        has_effect |= priors.any(axis=0)
    accuracy = _COVERAGE * np.linalg.norm(errors, axis=0) / np.where(has_effect, norms, 1.0)
    is_inaccurate = has_effect & (accuracy > limit)
    if priors is not None:
        is_inaccurate &= ~priors.any(axis=0)
    used = has_effect & ~is_inaccurate
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=used)
    R, E = (np.asarray(np.linalg.qr(x * scale, mode="r")) for x in (J, _COVERAGE * errors))
    null, rows = (_widened(x, used) for x in _null_and_row_space(R[:, used], E[:, used], len(J)))
    _, values, basis = np.linalg.svd(R @ rows.T, full_matrices=False)
    half_inverse = (basis @ rows).T / values
    roots = half_inverse
    if priors is not None and len(null):
        by_priors, null = _determined_by(priors * scale, null)
        roots = np.concatenate([half_inverse, by_priors], axis=1)
    uncertain, doubtful, condition = _uncertain(half_inverse, E, roots, values, limit)
    groups = _without_effect(unknowns.of(np.flatnonzero(~has_effect)))
    if is_inaccurate.any():
        mine = unknowns.of(np.flatnonzero(is_inaccurate))
        groups.append(Undetermined(mine.names, mine.owners, (), inaccurate=tuple(accuracy[is_inaccurate].tolist())))
    for directions, is_known in ((null, False), (doubtful, True)):
        for members in _connected(directions):
            mine, moves = unknowns.of(members), _basis(directions[:, members]) * scale[members]
            known = (condition, float(uncertain[members].max())) if is_known else ()
            combinations = _determined_combinations(mine, moves)
            groups.append(Undetermined(mine.names, mine.owners, combinations, *known))  # pyright: ignore
    is_open = ~used | (np.linalg.norm(null, axis=0) > _TAKES_PART)
    inverse = np.outer(scale, scale) * (roots @ roots.T)
    return Identifiability(roots.shape[1], is_open, inverse, uncertain, tuple(groups))


def _widened(rows: Float[np.ndarray, "k m"], places: Bool[np.ndarray, " n"]) -> Float[np.ndarray, "k n"]:
    """Return rows with zeros in the other places."""
    wide = np.zeros((len(rows), len(places)))
    wide[:, places] = rows
    return wide


def _null_and_row_space(
    R: Float[np.ndarray, "_ n"], E: Float[np.ndarray, "_ n"], count: int
) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, "r n"]]:
    """Return orthonormal bases of the changes `w` with `|R w| ≤ |E w|`, and of what is orthogonal to them.

    The generalized singular values are the tangents of angles, whose sines are the singular values of the lower part
    `Q₂` of an orthonormal basis of the columns of `[R; E]`. `count`: the rows of which `R` is the triangle; the errors
    are at least those of its rounding, by which numerical ranks are decided (Golub, Van Loan, §5.5.8).
    """
    n = R.shape[1]
    rounding = max(count, n) * np.finfo(float).eps * np.eye(n)
    Q, T = np.linalg.qr(np.concatenate([R, E, rounding]))
    _, sines, basis = np.linalg.svd(Q[len(R) :], full_matrices=False)
    w = np.linalg.solve(T, basis[sines >= np.sqrt(0.5)].T)
    _, _, whole = np.linalg.svd((w / np.linalg.norm(w, axis=0)).T, full_matrices=True)
    return whole[: w.shape[1]], whole[w.shape[1] :]


def _uncertain(
    half_inverse: Float[np.ndarray, "n r"], E: Float[np.ndarray, "_ n"], roots: Float[np.ndarray, "n s"],
    values: Float[np.ndarray, " r"], limit: float,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "k n"], float]:  # fmt: skip
    """Return the relative errors of the standard errors; an orthonormal basis of the directions whose own errors are
    above the limit, and their condition.

    With `J̄ H` orthonormal and `E H = U diag(ρ) Vᵀ` the directions are the columns of `H V`.
    """
    _, rho, basis = np.linalg.svd(E @ half_inverse, full_matrices=False)
    w = half_inverse @ basis.T
    variance = np.sum(roots**2, axis=1)
    uncertain = np.divide(w**2 @ rho, variance, out=np.zeros_like(variance), where=variance > 0)
    w = w[:, rho > limit]
    lengths = np.linalg.norm(w, axis=0)
    _, _, directions = np.linalg.svd((w / lengths).T, full_matrices=False)
    return uncertain, directions, float(values.max(initial=0.0) * lengths.max(initial=0.0))


def _determined_by(
    priors: Float[np.ndarray, "_ n"], null: Float[np.ndarray, "k n"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "r n"]]:
    """Return the root of the inverse of `PᵀP` in the part of a null space that priors `P` determine, and a basis of the
    rest."""
    _, values, basis = np.linalg.svd(priors @ null.T)
    count = int(np.sum(values > _NO_PRIOR * np.linalg.norm(priors)))
    turned = basis @ null
    return turned[:count].T / values[:count], turned[count:]


def _without_effect(unknowns: Estimates) -> list[Undetermined]:
    """One group for each parameter that has no effect, or for its numbers that have none."""
    owned = by_owner(unknowns.names, unknowns.owners)
    return [Undetermined(tuple(found), (owner,) * len(found), ()) for owner, found in owned.items()]


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


def _determined_combinations(unknowns: Estimates, moves: Float[np.ndarray, "r n"]) -> tuple[str, ...]:
    """Return the combinations that are constant along `moves`, changes of the unknowns divided by their sizes.

    They are products of powers if these have the simpler exponents, else sums.
    """
    reduced, pivots = reduced_echelon(moves, _PIVOT)
    units = [unknowns.values] if unknowns.positive.all() else []
    choices = [_combinations(unknowns, reduced, pivots, unit) for unit in (*units, None)]
    return min(choices, key=lambda choice: choice[0])[1]


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
