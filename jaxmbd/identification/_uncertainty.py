"""Uncertainty of a fit: standard errors and correlations at the estimates, and undetermined parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxmbd.identification._identifiability import RANK, Identifiability, Undetermined, Unknowns, identifiability
from jaxmbd.identification._minimise import MinimiserResult
from jaxmbd.identification._parameters import Parameters, flat, labels
from jaxmbd.identification._residuals import Problem, experiment_of_rows, residuals, weigh

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
    rtol = problem.settings.rtol
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
