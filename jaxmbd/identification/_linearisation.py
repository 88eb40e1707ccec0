"""Residuals and their Jacobian by blocks, from one compiled program, and the order of the unknowns in it.

The unknowns of a search as one vector: the shared ones, then for each stack those of each experiment. The Jacobian is
computed for each experiment with respect to the shared and its own few unknowns, by forward mode, side by side.
"""

from collections.abc import Collection
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from jaxmbd.engine import cached_on_disk
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._shooting import Joins, jumps_after
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.numerics.block_least_squares import Block, Linearised, Step


class Evaluation(NamedTuple):
    """What one evaluation gives.

    - `readings`: of each stack;
    - `rows`: for each stack `(lanes, rows, s + p + 1)`, the Jacobian with respect to own and shared unknowns, and the
      residuals; `own_priors`: the same of the priors of own parameters; `links`: of the conditions at the ends of
      segments, without the column of the next segment, whose derivative is minus one over the standard deviation of
      each jump, `jumps (s,)` (0: there are none);
    - `priors`: rows of the shared parameters.
    """

    readings: tuple[dict[str, Array], ...]
    rows: tuple[Array, ...]
    own_priors: tuple[Array, ...]
    links: tuple[Array, ...]
    priors: Array
    jumps: tuple[Array, ...]


def linearised(problem: Problem, evaluation: Evaluation) -> Linearised:
    """Return the rows of an evaluation by blocks."""
    blocks = []
    parts = zip(problem.stacks, evaluation.rows, evaluation.own_priors, evaluation.links, evaluation.jumps, strict=True)
    for stack, *arrays in parts:
        rows, priors, conditions, jumps = map(np.asarray, arrays)
        own = rows.shape[2] - evaluation.priors.shape[1]
        if stack.segments == 1:
            blocks.append(Block(rows, priors, None, 1, own))
            continue
        rows, priors = (_with_next(x, np.zeros((*x.shape[:2], own))) for x in (rows, priors))
        conditions = _with_next(conditions, np.broadcast_to(np.diag(-1 / jumps), (len(rows), own, own)))
        conditions[stack.segments - 1 :: stack.segments] = 0.0
        blocks.append(Block(rows, priors, conditions, stack.segments, own))
    return Linearised(tuple(blocks), np.asarray(evaluation.priors))


def _with_next(rows: np.ndarray, next_one: np.ndarray) -> np.ndarray:
    """Rows with columns of the next segment's unknowns after the own ones."""
    own = next_one.shape[2]
    return np.concatenate([rows[..., :own], next_one, rows[..., own:]], axis=2)


def evaluate(problem: Problem, u: Unknowns, joins: Joins) -> Evaluation:
    """Return residuals and Jacobian at the numbers `u` of a search."""
    readings, rows, priors, links = [], [], [], []
    jumps = tuple(joins.deviation * scale for scale in joins.scales)
    for k, (own, stack) in enumerate(zip(u.experiments, problem.stacks, strict=True)):
        block = lambda own, later, experiment, stack=stack: _block(  # noqa: E731
            problem, u.parameters, own, later, experiment, stack.segments > 1
        )
        reading, row, prior, end = jax.vmap(block)(own, jax.tree.map(lambda x: jnp.roll(x, -1), own), stack.experiment)
        if stack.segments > 1:
            end = end / jumps[k][None, :, None]
            end = end.at[..., -1].add(joins.multipliers[k] * joins.deviation)
        readings.append(reading)
        rows.append(row)
        priors.append(prior)
        links.append(end)
    shared = _prior_rows(problem, u.parameters)
    return Evaluation(tuple(readings), tuple(rows), tuple(priors), tuple(links), shared, jumps)


evaluated = cached_on_disk(evaluate)


@cached_on_disk
def evaluated_side_by_side(problem: Problem, u: Unknowns, joins: Joins, is_one: bool) -> Evaluation:
    """Return residuals and Jacobian at several numbers `u`, of one problem or of stacked ones."""
    return eqx.filter_vmap(evaluate, in_axes=(None if is_one else eqx.if_array(0), eqx.if_array(0), None))(
        problem, u, joins
    )


def _block(
    problem: Problem,
    shared: PyTree,
    own: PyTree,
    later: PyTree,
    experiment: Experiment,
    joins: bool,
) -> tuple[dict[str, Array], Array, Array, Array]:
    """The readings of one segment, and the rows of its residuals, of its own priors and of the jumps at its end, to the
    start of the `later` segment."""
    flat, unravel = ravel_pytree((own, shared))

    def values(z: Array) -> tuple[tuple[Array, ...], tuple[dict[str, Array], tuple[Array, ...]]]:
        own, shared = unravel(z)
        theta = problem.physical(Unknowns(shared, (own,)))
        motion = problem.model.motion(theta.parameters, theta.experiments[0], experiment, "forward")
        readings = problem.model.read(*motion, experiment)
        priors = problem.prior_residuals(Unknowns({}, theta.experiments))
        r = problem.likelihood.residual(readings, experiment)
        end = jumps_after(motion[0], later, experiment) if joins else r[:0]
        return (r, priors, end), (readings, (r, priors, end))

    slopes, (readings, found) = jax.jacfwd(values, has_aux=True)(flat)
    rows, priors, ends = (
        jnp.concatenate([slope.reshape(len(x), flat.size), x[:, None]], axis=1)
        for slope, x in zip(slopes, found, strict=True)
    )
    return readings, rows, priors, ends


def _prior_rows(problem: Problem, shared: PyTree) -> Array:
    flat, unravel = ravel_pytree(shared)

    def rows(z: Array) -> tuple[Array, Array]:
        r = problem.prior_residuals(Unknowns(problem.parameters.physical(unravel(z)), ()))
        return r, r

    slope, r = jax.jacfwd(rows, has_aux=True)(flat)
    return jnp.concatenate([slope.reshape(len(r), flat.size), r[:, None]], axis=1)


def shapes_of(problem: Problem, u: Unknowns) -> Step:
    """Return a `Step` with the shapes of the unknowns."""
    own = (np.zeros((stack.lanes, len(values))) for values, stack in zip(u.experiments, problem.stacks, strict=True))
    return Step(np.zeros(ravel_pytree(u.parameters)[0].size), tuple(own))


def _rows(values: dict[str, Array]) -> np.ndarray:
    """The own unknowns `(experiments, s)`, sorted by name."""
    return np.stack([np.asarray(values[name]) for name in sorted(values)], axis=1) if values else np.zeros((0, 0))


def flattened(u: Unknowns) -> np.ndarray:
    """Return the unknowns as one vector."""
    parts = [np.asarray(ravel_pytree(u.parameters)[0], float)]
    parts += [_rows(values).ravel() for values in u.experiments]
    return np.concatenate(parts)


def unflattened(flat: np.ndarray | Array, like: Unknowns) -> Unknowns:
    """Return the unknowns from one vector, with the structure of others."""
    shared, unravel = ravel_pytree(like.parameters)
    at, own = shared.size, []
    for values in like.experiments:
        names = sorted(values)
        lanes = len(values[names[0]]) if names else 0
        mine = flat[at : at + lanes * len(names)].reshape(lanes, len(names))
        at += lanes * len(names)
        own.append({name: jnp.asarray(mine[:, k], values[name].dtype) for k, name in enumerate(names)})
    return Unknowns(unravel(jnp.asarray(flat[: shared.size], shared.dtype)), tuple(own))


def bounds_of(problem: Problem, start: Unknowns, held: Collection[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of all unknowns as vectors; shared parameters that are `held` have no room around those of the
    start."""
    values = {name: start.parameters[name] for name in held}
    lower, upper = (of._replace(parameters=of.parameters | values) for of in problem.bounds())
    return flattened(lower), flattened(upper)
