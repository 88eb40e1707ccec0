"""Identifiability: the rank of the residuals' Jacobian, and the combinations of parameters that the data determine.

With the Jacobian in scaled unknowns, `J̄ = J D` with columns of length one, and `J̄ = U Σ Vᵀ`, the covariance is
`V₁ Σ₁⁻² V₁ᵀ` in the row space `V₁`. In the null space `V₂` the unknowns can change without a change of the data. An
unknown with a component in the null space has no finite standard error; the others have those of the row space.

Source: Belsley, Kuh, Welsch, *Regression Diagnostics* (1980), §3.2; Ljung, *System Identification* (1999), §4.5.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float

from jaxmbd.analyses.redundancy import reduced_echelon
from jaxmbd.identification._experiment import Problem, experiment_of_rows, residuals, weigh
from jaxmbd.identification._minimise import MinimiserResult
from jaxmbd.identification._parameters import Parameters, flat, labels

RANK = 1e-6  # share of the largest singular value of the scaled Jacobian below which a singular value counts as zero
_SILENT = 1e-9  # share of the channels: a parameter that changes them by less, if changed by its size, has no effect
_TAKES_PART = 1e-4  # component of a unit null vector from which an unknown belongs to it
_PIVOT = 0.1  # share of the largest component: the last unknown above it is the reference of a combination
_SIMPLE = 1e-3  # largest difference from a simple fraction for which exponents and factors are replaced by it
_LISTED = 6  # number of unknowns that are listed by name


class FitWarning(UserWarning):
    """A warning about a fit that its numbers alone do not show."""


@dataclass(frozen=True)
class Unknowns:
    """The unknowns, in the order of the Jacobian's columns.

    `names`, `values`; `sizes`: the physical changes that serve as units; `positive`: True for parameters greater than
    zero.
    """

    names: tuple[str, ...]
    values: Float[np.ndarray, " n"]
    sizes: Float[np.ndarray, " n"]
    positive: Bool[np.ndarray, " n"]

    def of(self, members: np.ndarray) -> "Unknowns":
        """Return the unknowns with the given indices."""
        names = tuple(self.names[k] for k in members)
        return Unknowns(names, self.values[members], self.sizes[members], self.positive[members])


@dataclass(frozen=True)
class Undetermined:
    """A group of unknowns that the data do not determine one by one.

    `names`: the unknowns; `combinations`: those that the data determine, to first order at the estimates, `"I/mass"` or
    `"a + b"`; empty if the unknowns have no effect.
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
    J: Float[np.ndarray, "rows n"], unknowns: Unknowns, channels: float, tolerance: float
) -> Identifiability:
    """Return the rank analysis of a Jacobian `J` in the unknowns divided by their sizes.

    `channels`: the norm of the model's channels in the units of the residuals; columns that are small relative to it
    count as rounding errors.
    """
    norms = np.linalg.norm(J, axis=0)
    has_effect = norms > _SILENT * channels
    scale = np.divide(1.0, norms, out=np.zeros_like(norms), where=has_effect)
    R = np.linalg.qr(J[:, has_effect] * scale[has_effect], mode="r") if has_effect.any() else np.zeros((0, 0))
    _, values, basis = np.linalg.svd(R)
    rank = int(np.sum(values > tolerance * values.max(initial=0.0)))
    rows, null = np.zeros((rank, len(norms))), np.zeros((len(basis) - rank, len(norms)))
    rows[:, has_effect], null[:, has_effect] = basis[:rank], basis[rank:]
    half_inverse = (rows * scale).T / values[:rank]
    is_open = ~has_effect | (np.linalg.norm(null, axis=0) > _TAKES_PART)
    groups = [Undetermined((unknowns.names[k],), ()) for k in np.flatnonzero(~has_effect)]
    for members in _connected(null):
        groups.append(_undetermined(unknowns.of(members), _basis(null[:, members]) * scale[members]))
    return Identifiability(rank, is_open, half_inverse @ half_inverse.T, tuple(groups))


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


def _undetermined(unknowns: Unknowns, moves: Float[np.ndarray, "r n"]) -> Undetermined:
    """Return the combinations that are constant along `moves`, changes of the unknowns divided by their sizes.

    They are products of powers if these have the simpler exponents, else sums.
    """
    reduced, pivots = reduced_echelon(moves, _PIVOT)
    units = [unknowns.values] if unknowns.positive.all() else []
    choices = [_combinations(unknowns, reduced, pivots, unit) for unit in (*units, None)]
    return Undetermined(unknowns.names, min(choices, key=lambda choice: choice[0])[1])


def _combinations(
    unknowns: Unknowns, reduced: Float[np.ndarray, "r n"], pivots: list[int], logarithmic: np.ndarray | None
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


_ENOUGH = 5  # the least number of experiments for which standard errors come from the scatter between them


def uncertainty(
    problem: Problem, places: list[list[int]], search: MinimiserResult
) -> tuple[dict[str, Any] | None, np.ndarray | None, tuple[str, ...], tuple[Undetermined, ...]]:
    """Return the standard errors of the parameters, their correlations, the labels of these, and the groups of unknowns
    that the data do not determine.

    The initial values that are estimated with the parameters are taken into account.
    """
    u, _ = search.y
    flat_u, rebuild = ravel_pytree(u)
    n, (unknowns, slopes) = flat_u.size, _unknowns(problem, places, search)
    J = np.asarray(search.jacobian) * np.divide(unknowns.sizes, slopes, out=np.zeros_like(slopes), where=slopes != 0)
    determined = identifiability(J, unknowns, _size_of_channels(problem, search), _tolerance(problem, J))
    if not n:
        return None, None, (), determined.groups
    covariance, is_open = _covariance(problem, search, J, determined)[:n, :n], determined.open[:n]
    spread = np.where(is_open, np.inf, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
    outer = np.outer(spread, spread)
    correlation = np.divide(covariance, outer, out=np.zeros_like(covariance), where=(outer != 0) & np.isfinite(outer))
    correlation[is_open[:, None] | is_open[None, :]] = np.nan
    return rebuild(jnp.asarray(spread * unknowns.sizes[:n])), correlation, unknowns.names[:n], determined.groups


def _unknowns(problem: Problem, places: list[list[int]], search: MinimiserResult) -> tuple[Unknowns, np.ndarray]:
    """Return the unknowns in the order of the Jacobian's columns, and the derivatives of their physical values with
    respect to the unconstrained ones."""
    (u, states), parameters = search.y, problem.parameters
    physical = parameters.physical(u)
    names, values, sizes = [], [], []
    for name in sorted(u):
        free, value = parameters.free[name], flat(physical[name])
        names += labels(name, value.size)
        values.append(value)
        sizes.append(
            flat(jax.tree.map(lambda x, s, f=free: f.within.size(x, s), physical[name], parameters.start[name]))
        )
    for where, state in zip(places, states, strict=True):
        for name in sorted(state):
            names += [_initial(name, place, sum(map(len, places))) for place in where]
            values.append(np.asarray(state[name]).ravel())
            sizes.append(np.maximum(np.abs(values[-1]), 1.0))
    count = ravel_pytree(u)[0].size
    value, size = (np.concatenate([*x, np.zeros(0)]) for x in (values, sizes))
    slopes = np.concatenate([_slopes(parameters, u), np.ones(len(value) - count)])
    positive = (value > 0) & (np.arange(len(value)) < count)
    return Unknowns(tuple(names), value, size, positive), slopes


def _initial(name: str, place: int, count: int) -> str:
    """Return the label of an estimated initial value."""
    kind, _, coordinate = name.partition(":")
    what = f"initial {'speed of ' if kind == 'speed' else ''}{coordinate}"
    return what if count == 1 else f"{what} in experiment {place}"


def _size_of_channels(problem: Problem, search: MinimiserResult) -> float:
    """Return the norm of the model's channels, each divided by its noise level."""
    parts = [
        weigh(model[name][..., None], stack, name)
        for model, stack in zip(search.values, problem.stacks, strict=True)
        for name in stack.data
    ]
    return float(np.sqrt(sum(float(jnp.sum(part**2)) for part in parts)))


def _tolerance(problem: Problem, J: np.ndarray) -> float:
    """Return the share of the largest singular value below which singular values count as zero, well above the errors
    of the simulations."""
    rtol = problem.options["rtol"]
    return max(RANK, float(jnp.finfo(J.dtype).eps) ** 0.5, 0.0 if rtol is None else 10 * float(rtol))


def _covariance(problem: Problem, search: MinimiserResult, J: np.ndarray, determined: Identifiability) -> np.ndarray:
    """Return the covariance of all unknowns divided by their sizes, in the subspace that the data determine.

    `s² (JᵀJ)⁻¹` assumes that all samples are independent. The residuals of a model usually are not, since they follow
    the motion, and the formula then gives far too small errors. With enough experiments the scatter between them is
    used, by the sandwich estimator `(JᵀJ)⁻¹ (Σ g gᵀ) (JᵀJ)⁻¹` with `g = Jᵀ r` of each experiment (Liang and Zeger,
    Biometrika 73, 1986).
    """
    r, inverse = np.asarray(residuals(problem, search.values)), determined.inverse
    experiment = experiment_of_rows(problem)
    count = experiment.max() + 1
    if count >= _ENOUGH:
        scores = np.stack([J[experiment == k].T @ r[experiment == k] for k in range(count)])
        return inverse @ (scores.T @ scores) @ inverse * count / (count - 1)
    samples = sum(int(np.isfinite(d).sum()) for stack in problem.stacks for d in stack.data.values())
    return inverse * float(np.sum(r**2)) / max(samples - determined.rank, 1)


def _slopes(parameters: Parameters, u: dict[str, Any]) -> np.ndarray:
    """Return `dp/du` of each parameter (the maps act elementwise)."""
    _, slope = jax.jvp(parameters.physical, (u,), (jax.tree.map(jnp.ones_like, u),))
    return np.asarray(ravel_pytree(slope)[0])
