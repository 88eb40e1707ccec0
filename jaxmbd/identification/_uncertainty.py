"""How sure a fit is: standard errors and correlations at the estimates, and what the data leave open."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxmbd.identification._identifiability import RANK, Identifiability, Undetermined, Unknowns, identifiability
from jaxmbd.identification._minimise import MinimiserResult
from jaxmbd.identification._parameters import Parameters, flat, labels
from jaxmbd.identification._residuals import Problem, experiment_of_rows, residuals, weigh

_ENOUGH = 5  # experiments from which on their scatter is used for the standard errors


def uncertainty(
    problem: Problem, places: list[list[int]], search: MinimiserResult
) -> tuple[dict[str, Any] | None, np.ndarray | None, tuple[str, ...], tuple[Undetermined, ...]]:
    """Standard errors and correlations of the parameters, the initial states estimated beside them, and what the data
    do not determine."""
    u, _ = search.y
    together, rebuild = ravel_pytree(u)
    n, (unknowns, slopes) = together.size, _unknowns(problem, places, search)
    J = np.asarray(search.jacobian) * np.divide(unknowns.sizes, slopes, out=np.zeros_like(slopes), where=slopes != 0)
    found = identifiability(J, unknowns, _size_of_channels(problem, search), _tolerance(problem, J))
    if not n:
        return None, None, (), found.groups
    covariance, is_open = _covariance(problem, search, J, found)[:n, :n], found.open[:n]
    spread = np.where(is_open, np.inf, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
    outer = np.outer(spread, spread)
    correlation = np.divide(covariance, outer, out=np.zeros_like(covariance), where=(outer != 0) & np.isfinite(outer))
    correlation[is_open[:, None] | is_open[None, :]] = np.nan
    return rebuild(jnp.asarray(spread * unknowns.sizes[:n])), correlation, unknowns.names[:n], found.groups


def _unknowns(problem: Problem, places: list[list[int]], search: MinimiserResult) -> tuple[Unknowns, np.ndarray]:
    """The columns of the Jacobian, in its order, and the slopes of their physical values by the search's own."""
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
    """The name of an initial value that is estimated."""
    kind, _, coordinate = name.partition(":")
    what = f"initial {'speed of ' if kind == 'speed' else ''}{coordinate}"
    return what if count == 1 else f"{what} in experiment {place}"


def _size_of_channels(problem: Problem, search: MinimiserResult) -> float:
    """The norm of the model's channels, each divided by its noise level."""
    parts = [
        weigh(model[name][..., None], stack, name)
        for model, stack in zip(search.values, problem.stacks, strict=True)
        for name in stack.data
    ]
    return float(np.sqrt(sum(float(jnp.sum(part**2)) for part in parts)))


def _tolerance(problem: Problem, J: np.ndarray) -> float:
    """Below which share singular values count as zero: well above the errors of the simulations."""
    rtol = problem.settings.rtol
    return max(RANK, float(jnp.finfo(J.dtype).eps) ** 0.5, 0.0 if rtol is None else 10 * float(rtol))


def _covariance(problem: Problem, search: MinimiserResult, J: np.ndarray, found: Identifiability) -> np.ndarray:
    """The covariance of all unknowns divided by their sizes, as far as these are determined.

    `s² (JᵀJ)⁻¹` takes all samples for independent. What a model leaves over is usually not: it swings with the
    motion, and the formula is then far too sure. With enough experiments their scatter tells the truth, by the
    sandwich `(JᵀJ)⁻¹ (Σ g gᵀ) (JᵀJ)⁻¹` over experiments, `g = Jᵀ r` of each (Liang and Zeger, Biometrika 73, 1986).
    """
    r, inverse = np.asarray(residuals(problem, search.values)), found.inverse
    owner = experiment_of_rows(problem)
    count = owner.max() + 1
    if count >= _ENOUGH:
        scores = np.stack([J[owner == k].T @ r[owner == k] for k in range(count)])
        return inverse @ (scores.T @ scores) @ inverse * count / (count - 1)
    samples = sum(int(np.isfinite(d).sum()) for stack in problem.stacks for d in stack.data.values())
    return inverse * float(np.sum(r**2)) / max(samples - found.rank, 1)


def _slopes(parameters: Parameters, u: dict[str, Any]) -> np.ndarray:
    """`dp/du` of each parameter (the maps act on each number by itself)."""
    _, slope = jax.jvp(parameters.physical, (u,), (jax.tree.map(jnp.ones_like, u),))
    return np.asarray(ravel_pytree(slope)[0])
