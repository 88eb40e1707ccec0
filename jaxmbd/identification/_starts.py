"""Starts of a search: that of the problem, and others drawn from priors and ranges."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.identification._problem import Problem, Unknowns
from jaxmbd.parameters.parameters import Parameter


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
    value = (free.within if free.prior is None else free.prior).drawn(start, draws)
    return value if free.within.contains(value) else start
