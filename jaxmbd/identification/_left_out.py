"""Cross-validation to first order: how well each experiment is predicted by a fit of all others, without such fits.

With the rows `L` of one experiment for the shared parameters, and its residuals `r`, both without what its own unknowns
can explain, the fit of the others has the residuals

    r + L (A − LᵀL)⁻¹ Lᵀ r

there, if the model is linear; `A` is the sum of `LᵀL` over all experiments, with the rows of priors.

Source: Allen, Technometrics 16 (1974); Cook and Weisberg, *Residuals and Influence in Regression* (1982), §3.6.
"""

import itertools

import numpy as np
from jaxtyping import Float

from jaxmbd.identification._problem import Problem
from jaxmbd.identification._stacks import by_channel
from jaxmbd.numerics.block_least_squares import Block, Linearised

_SINGULAR = 1e-10  # of a matrix with ones on its diagonal: what the others do not determine


def left_out_ratios(problem: Problem, linearised: Linearised) -> tuple[dict[str, float], ...]:
    """Return for each experiment, by channel, how many times larger its errors are if it is left out of the fit;
    infinite where the others do not determine all that it depends on. Empty if there is one experiment, or segments."""
    if problem.is_cut or sum(stack.lanes for stack in problem.stacks) < 2:
        return ()
    rows = [[_without_own(block, k) for k in range(len(block.whole))] for block in linearised.stacks]
    priors = linearised.priors[:, :-1]
    A = priors.T @ priors + sum(one[:, :-1].T @ one[:, :-1] for one in itertools.chain(*rows))
    found: dict[int, dict[str, float]] = {}
    for stack, block, lanes in zip(problem.stacks, linearised.stacks, rows, strict=True):
        samples = block.whole.shape[1]
        errors = np.array([[one[:, -1], _left_out(A, one)] for one in lanes])[..., :samples]
        fitted, alone = (by_channel(stack, errors[:, k]) for k in range(2))
        for k, place in enumerate(stack.places):
            found[place] = {
                name: float(np.linalg.norm(alone[name][k]) / np.linalg.norm(x[k]))
                for name, x in fitted.items()
                if x[k].any()
            }
    return tuple(found[place] for place in sorted(found))


def _without_own(block: Block, k: int) -> Float[np.ndarray, "_ _"]:
    """The rows of one experiment, with its own priors, without what its own unknowns can explain."""
    both = np.concatenate([block.whole[k], block.priors[k]])
    own, rest = both[:, : block.own], both[:, block.width :]
    return rest - own @ np.linalg.lstsq(own, rest, rcond=None)[0]


def _left_out(A: Float[np.ndarray, "p p"], rows: Float[np.ndarray, "rows _"]) -> Float[np.ndarray, " rows"]:
    """The residuals of an experiment, of a fit of the others."""
    L, r = rows[:, :-1], rows[:, -1]
    sizes = np.sqrt(np.maximum(np.diag(A), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh((A - L.T @ L) / np.outer(sizes, sizes))
    known = values > _SINGULAR
    along = L / sizes @ vectors
    if np.linalg.norm(along[:, ~known]) > np.sqrt(_SINGULAR):
        return np.full_like(r, np.inf)
    return r + along[:, known] @ (along[:, known].T @ r / values[known])
