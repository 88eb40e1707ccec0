"""Starts of a search: that of the problem, and others drawn from priors and ranges."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.identification._parameters import Parameter
from jaxmbd.identification._priors import LogNormal, Normal
from jaxmbd.identification._problem import Problem, Unknowns
from jaxmbd.identification._ranges import AbstractInterval, Positive

_WIDTH = 0.5  # standard deviation of the logarithm of positive parameters, and of others relative to their start


def drawn_starts(problem: Problem, count: int, seed: int) -> list[Unknowns]:
    """Return so many starts, the first one that of the problem; initial values of experiments are the same in all."""
    draws, first = np.random.default_rng(seed), problem.start()
    return [first, *(_drawn(problem, first, draws) for _ in range(count - 1))]


def _drawn(problem: Problem, first: Unknowns, draws: np.random.Generator) -> Unknowns:
    free = problem.parameters.free
    parameters = {
        name: jax.tree.map(lambda x, f=free[name]: jnp.asarray(_inside(f, np.asarray(x), draws), x.dtype), value)
        for name, value in first.parameters.items()
    }
    return Unknowns(parameters, first.experiments)


def _inside(free: Parameter, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """A value drawn from the prior, else from the range; the start itself if that does not lie in the range."""
    value = _value(free, start, draws)
    return value if free.within.contains(value) else start


def _value(free: Parameter, start: np.ndarray, draws: np.random.Generator) -> Any:
    deviates = draws.standard_normal(start.shape)
    if isinstance(free.prior, Normal):
        return np.asarray(free.prior.mean) + np.asarray(free.prior.deviation) * deviates
    if isinstance(free.prior, LogNormal):
        return np.asarray(free.prior.median) * np.exp(np.asarray(free.prior.deviation) * deviates)
    if isinstance(free.within, AbstractInterval):
        lower, upper = np.asarray(free.within.lower), np.asarray(free.within.upper)
        return lower + (upper - lower) * draws.uniform(size=start.shape)
    if isinstance(free.within, Positive):
        return start * np.exp(_WIDTH * deviates)
    return start + _WIDTH * np.where(start == 0, 1.0, np.abs(start)) * deviates
