"""Residuals and their Jacobian by blocks, from one compiled program, and the order of the unknowns in it.

The unknowns of a search as one vector: the shared ones, then for each stack those of each experiment. The Jacobian is
computed for each experiment with respect to the shared and its own few unknowns, by forward mode, side by side.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxmbd.identification._experiment import OWN, Experiment
from jaxmbd.identification._normal_equations import Linearised, Step, reduced
from jaxmbd.identification._problem import Problem, Unknowns


class Evaluation(NamedTuple):
    """What one evaluation gives: the readings of each stack, and blocks `[O S r]`, those of the priors last."""

    readings: tuple[dict[str, Array], ...]
    blocks: tuple[Array, ...]
    priors: Array

    def linearised(self) -> Linearised:
        """Return the blocks, reduced to triangles."""
        return Linearised(tuple(reduced(np.asarray(x)) for x in self.blocks), np.asarray(self.priors))


def evaluate(problem: Problem, u: Unknowns) -> Evaluation:
    """Return residuals and Jacobian at the numbers `u` of a search."""
    readings, blocks = [], []
    for own, stack in zip(u.experiments, problem.stacks, strict=True):
        reading, block = jax.vmap(lambda own, experiment: _block(problem, u.parameters, own, experiment))(
            own, stack.experiment
        )
        readings.append(reading)
        blocks.append(block)
    return Evaluation(tuple(readings), tuple(blocks), _prior_rows(problem, u.parameters))


def _block(problem: Problem, shared: Any, own: Any, experiment: Experiment) -> tuple[dict[str, Array], Array]:
    flat, unravel = ravel_pytree((own, shared))

    def rows(z: Array) -> tuple[Array, tuple[dict[str, Array], Array]]:
        own, shared = unravel(z)
        theta = problem.physical(Unknowns(shared, (own,)))
        readings = problem.reading(theta.parameters, theta.experiments[0], experiment, "forward")
        priors = problem.prior_residuals(Unknowns({}, theta.experiments))
        r = jnp.concatenate([problem.residual(readings, experiment), priors])
        return r, (readings, r)

    slope, (readings, r) = jax.jacfwd(rows, has_aux=True)(flat)
    return readings, jnp.concatenate([slope.reshape(len(r), flat.size), r[:, None]], axis=1)


def _prior_rows(problem: Problem, shared: Any) -> Array:
    flat, unravel = ravel_pytree(shared)

    def rows(z: Array) -> tuple[Array, Array]:
        r = problem.prior_residuals(Unknowns(problem.parameters.physical(unravel(z)), ()))
        return r, r

    slope, r = jax.jacfwd(rows, has_aux=True)(flat)
    return jnp.concatenate([slope.reshape(len(r), flat.size), r[:, None]], axis=1)


def shapes_of(problem: Problem, u: Unknowns) -> Step:
    """Return a `Step` with the shapes of the unknowns."""
    own = (
        np.zeros((len(stack.places), len(values))) for values, stack in zip(u.experiments, problem.stacks, strict=True)
    )
    return Step(np.zeros(ravel_pytree(u.parameters)[0].size), tuple(own))


def _rows(values: dict[str, Array]) -> np.ndarray:
    """The own unknowns `(experiments, s)`, sorted by name."""
    return np.stack([np.asarray(values[name]) for name in sorted(values)], axis=1) if values else np.zeros((0, 0))


def flattened(u: Unknowns) -> np.ndarray:
    """Return the unknowns as one vector."""
    parts = [np.asarray(ravel_pytree(u.parameters)[0], float)]
    parts += [_rows(values).ravel() for values in u.experiments]
    return np.concatenate(parts)


def unflattened(flat: np.ndarray, like: Unknowns) -> Unknowns:
    """Return the unknowns from one vector."""
    shared, unravel = ravel_pytree(like.parameters)
    at, own = shared.size, []
    for values in like.experiments:
        rows = _rows(values)
        mine = flat[at : at + rows.size].reshape(rows.shape)
        at += rows.size
        own.append({name: jnp.asarray(mine[:, k], values[name].dtype) for k, name in enumerate(sorted(values))})
    return Unknowns(unravel(jnp.asarray(flat[: shared.size], shared.dtype)), tuple(own))


def bounds_of(problem: Problem, like: Unknowns) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of all unknowns as vectors; initial values have none."""
    sides = []
    for side, limit in zip(problem.parameters.bounds(), (-np.inf, np.inf), strict=True):
        of = lambda name, x, side=side, limit=limit: (  # noqa: E731
            jnp.broadcast_to(side[name.removeprefix(OWN)], x.shape) if name.startswith(OWN) else jnp.full_like(x, limit)
        )
        own = tuple({name: of(name, x) for name, x in values.items()} for values in like.experiments)
        sides.append(flattened(Unknowns({name: side[name] for name in like.parameters}, own)))
    return sides[0], sides[1]
