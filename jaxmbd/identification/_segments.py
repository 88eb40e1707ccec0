"""Segments of multiple shooting: their initial states before the search, and what is left of them after it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.simulation.step_control import Adjoint
from jaxmbd.arrays import constant
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.identification._minimise import Minimum, Report, levenberg_marquardt, without_multipliers
from jaxmbd.identification._problem import Problem, Unknowns
from jaxmbd.identification._shooting import Joins, state_series
from jaxmbd.identification._stacks import Stack, by_channel, joined_readings, stacked
from jaxmbd.numerics.block_least_squares import Block, Linearised

_STEPS = 15  # of the search for the initial state of one segment; it need not converge


def followed(problem: Problem, start: Unknowns, report: Report) -> Unknowns:
    """Return unknowns with initial states of all segments, for the parameters of `start`.

    The state of a segment is fitted to its own measurements, from where the one before has ended.
    """
    ends = eqx.filter_jit(_ends)
    own: list[dict[str, Array]] = []
    for k, stack in enumerate(problem.stacks):
        mine = jax.tree.map(lambda x, n=stack.segments: x[::n], start.experiments[k])
        states = []
        for j in range(stack.segments):
            report(f"initial state of segment {j + 1} of {stack.segments}")
            part = _of_segment(problem, start, stack, j)
            nothing = Checkpoint(None, ())
            (found,) = levenberg_marquardt(
                [part], [Unknowns({}, (mine,))], _STEPS, 1e-3, lambda text: None, nothing, without_multipliers(part)
            )
            mine = found.u.experiments[0]
            states.append(mine)
            mine = dict(zip(sorted(mine), ends(part, {}, mine, part.stacks[0], "forward").T, strict=True))
        own.append({name: jnp.stack([s[name] for s in states], axis=1).reshape(-1) for name in start.experiments[k]})
    return Unknowns(start.parameters, tuple(own))


def _of_segment(problem: Problem, start: Unknowns, stack: Stack, j: int) -> Problem:
    """The problem of one segment of each experiment, with the parameters fixed."""
    lanes = slice(j, None, stack.segments)
    part = Stack(jax.tree.map(lambda x: x[lanes], stack.experiment), stack.lengths[lanes], stack.places[lanes])
    fixed = problem.parameters.fixed | problem.physical(start).parameters
    where = lambda p: (p.parameters.fixed, p.stacks)  # noqa: E731
    is_leaf = lambda x: x is problem.parameters.fixed  # noqa: E731
    return eqx.tree_at(where, problem, (fixed, (part,)), is_leaf=is_leaf)


def _ends(
    problem: Problem, parameters: Mapping[str, Any], own: dict[str, Array], stack: Stack, adjoint: Adjoint
) -> Array:
    """The values at the end of each segment, as the start of the next one, `(lanes, s)`."""
    names = sorted(own)
    end = lambda own, experiment: state_series(problem.motion(parameters, own, experiment, adjoint)[0], names)[-1]  # noqa: E731
    return jax.vmap(end)(own, stack.experiment)


def jump_residuals(problem: Problem, theta: Unknowns, adjoint: Adjoint = "any") -> Float[Array, " rows"]:
    """Return the jumps between segments in units of their standard deviation, `problem.continuity`: none of problems
    without segments."""
    rows = [jnp.zeros(0)]
    for own, stack in zip(theta.experiments, problem.stacks, strict=True):
        if stack.segments > 1:
            ends = _ends(problem, theta.parameters, own, stack, adjoint)
            starts = jnp.stack([own[name] for name in sorted(own)], axis=1)
            ends, starts = (x.reshape(-1, stack.segments, x.shape[1]) for x in (ends, starts))
            rows.append((ends[:, :-1] - starts[:, 1:]).ravel() / problem.continuity)
    return jnp.concatenate(rows)


def without_segments(problem: Problem, minimum: Minimum) -> tuple[Problem, Minimum]:
    """Return the same problem and minimum in the unknowns of whole experiments, where segments join without jumps."""
    assert minimum.linearised is not None
    whole = eqx.tree_at(lambda p: p.stacks, problem, stacked(list(problem.experiments())))
    own = tuple(
        jax.tree.map(lambda x, n=stack.segments: x[::n], values)
        for values, stack in zip(minimum.u.experiments, problem.stacks, strict=True)
    )
    readings = tuple(
        {name: _stacked(joined_readings(np.asarray(x), stack)) for name, x in values.items()}
        for values, stack in zip(minimum.readings, problem.stacks, strict=True)
    )
    return whole, replace(
        minimum, u=Unknowns(minimum.u.parameters, own), readings=readings,
        linearised=_whole(minimum.linearised, problem.stacks),
        nearby=minimum.nearby and _whole(minimum.nearby, problem.stacks),
    )  # fmt: skip


def _whole(linearised: Linearised, stacks: Sequence[Stack]) -> Linearised:
    """The condensed rows in the order of those of whole experiments: channel by channel, without what fills up."""
    blocks = []
    for block, stack in zip(condensed(linearised).stacks, stacks, strict=True):
        rows = block.whole.reshape(stack.lanes, -1, block.whole.shape[2])
        channels = []
        for part in by_channel(stack, rows).values():
            wholes = joined_readings(part, stack)
            longest = max(map(len, wholes))
            filled = [np.concatenate([x, np.zeros((longest - len(x), *x.shape[1:]))]) for x in wholes]
            channels.append(np.stack(filled).reshape(len(wholes), -1, rows.shape[2]))
        blocks.append(replace(block, whole=np.concatenate(channels, axis=1)))
    return Linearised(tuple(blocks), linearised.priors)


def _stacked(wholes: list[np.ndarray]) -> Array:
    """Readings of several lengths as one array; the last sample is repeated."""
    longest = max(map(len, wholes))
    alike = [np.concatenate([x, np.repeat(x[-1:], longest - len(x), axis=0)]) for x in wholes]
    return constant(np.stack(alike))


def condensed(linearised: Linearised) -> Linearised:
    """Return the rows in the own unknowns of the first segments alone, where segments join without jumps."""
    return Linearised(tuple(map(_condensed_block, linearised.stacks)), linearised.priors)


def _condensed_block(block: Block) -> Block:
    """The rows of a stack in the own unknowns of the first segments alone.

    Where a segment ends at the start of the next one, `x_{k+1} = N_k x_k + L_k p`, so that the unknowns of each segment
    are linear functions `x_k = A_k x_0 + B_k p`.
    """
    if block.links is None:
        return block
    s, width = block.own, block.width
    rows, links = (x.reshape(-1, block.segments, *x.shape[1:]) for x in (block.whole, block.links))
    count, shared = len(rows), rows.shape[3] - 1 - width
    deviation = -1 / links[0, 0, 0, s]  # of the jumps: the derivative of a condition by the next segment's unknown
    a, b = np.broadcast_to(np.eye(s), (count, s, s)), np.zeros((count, s, shared))
    parts = []
    for k in range(block.segments):
        mine, ours = rows[:, k, :, :s], rows[:, k, :, width:-1]
        parts.append(np.concatenate([mine @ a, mine @ b + ours, rows[:, k, :, -1:]], axis=2))
        own, common = deviation * links[:, k, :, :s], deviation * links[:, k, :, width:-1]
        a, b = own @ a, own @ b + common
    nothing = np.zeros((count, 0, s + shared + 1))  # an experiment that is cut has no own parameters
    return Block(np.concatenate(parts, axis=1), nothing, None, 1, s)


def jumps(minimum: Minimum, joins: Joins) -> tuple[Array, ...]:
    """Return the jumps between segments at the end of a search, for each stack `(lanes, s)`, zero after the last."""
    assert minimum.linearised is not None
    found = []
    for block, multipliers in zip(minimum.linearised.stacks, joins.multipliers, strict=True):
        if block.links is None:
            found.append(jnp.zeros_like(multipliers))
            continue
        is_last = (np.arange(len(block.links)) + 1) % block.segments == 0
        residual = jnp.asarray(block.links[..., -1]) - multipliers * joins.deviation
        found.append(jnp.where(is_last[:, None], 0.0, residual * joins.deviation))
    return tuple(found)


def updated(joins: Joins, jumped: tuple[Array, ...]) -> Joins:
    """Return joins with multipliers that make the jumps smaller in the next search."""
    pairs = zip(joins.multipliers, jumped, strict=True)
    return Joins(joins.deviation, tuple(m + x / joins.deviation**2 for m, x in pairs))
