"""Segments of multiple shooting: their initial states before the search, and what is left of them after it."""

from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.simulation.settings import Adjoint
from jaxmbd.arrays import constant
from jaxmbd.checks import check_instance
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.identification._error_growth import growth_of_errors
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._minimise import Minimum, Report, levenberg_marquardt, without_multipliers
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._shooting import Joins, chart_of, jump_scales, jumps_after
from jaxmbd.identification._stacks import Stack, by_channel, joined_readings, stacked
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.numerics.block_least_squares import Linearised

_STEPS = 15  # of the search for the initial state of one segment; it need not converge


def error_growth(problem: Problem) -> np.ndarray:
    """Return how many times an error of the initial state grows during each experiment, at the start of the search.

    Errors of the coordinates and speeds with which an experiment starts, each in units of its standard deviation during
    the experiment. Chaotic motions show growth that is exponential in time: above a hundred, cut the experiments into
    segments (`Problem(segments=...)`; `segments="auto"` does it).

    **Returns:** the largest growth from the beginning to any sample of each experiment, `(experiments,)` `[1]`.

    **Raises:** `MechanismError` unless `start` and `speeds` of the experiments, which are estimated, determine their
    states; `SolveError` if an experiment cannot be simulated with the values at which the search starts.

        >>> mbd.identification.error_growth(problem).max()  # doctest: +SKIP
    """
    check_instance("error_growth: problem", problem, Problem, "a Problem")
    return growth_of_errors(problem.model, problem.start().parameters, problem.experiments())


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
            mine = dict(zip(sorted(mine), ends(part, mine, part.stacks[0]).T, strict=True))
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


def _ends(problem: Problem, own: dict[str, Array], stack: Stack) -> Array:
    """The numbers of the state at the end of each segment, `(lanes, s)`."""

    def end(own: dict[str, Array], experiment: Experiment) -> Array:
        return chart_of(experiment).series(problem.model.motion({}, own, experiment, "forward")[0])[-1]

    return jax.vmap(end)(own, stack.experiment)


def jump_residuals(problem: Problem, theta: Unknowns, adjoint: Adjoint | None = None) -> Float[Array, " rows"]:
    """Return the jumps between segments in units of their standard deviation, `problem.continuity`: none of problems
    without segments."""

    def jumps(own: dict[str, Array], later: dict[str, Array], experiment: Experiment) -> Array:
        return jumps_after(problem.model.motion(theta.parameters, own, experiment, adjoint)[0], later, experiment)

    rows = [jnp.zeros(0)]
    for own, stack in zip(theta.experiments, problem.stacks, strict=True):
        if stack.segments > 1:
            later = jax.tree.map(lambda x: jnp.roll(x, -1), own)
            found = jax.vmap(jumps)(own, later, stack.experiment) / jump_scales(problem.parameters, stack)[None]
            found = found.reshape(-1, stack.segments, found.shape[1])
            rows.append(found[:, :-1].ravel() / problem.continuity)
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
    for block, stack in zip(linearised.condensed().stacks, stacks, strict=True):
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


def jumps(minimum: Minimum, joins: Joins) -> tuple[Array, ...]:
    """Return the jumps between segments at the end of a search, without units, for each stack `(lanes, s)`; zero after
    the last."""
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
    return joins._replace(multipliers=tuple(m + x / joins.deviation**2 for m, x in pairs))
