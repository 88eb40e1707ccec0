"""The course of a fit: searches from several starts, with conditions that tighten, and with noise that is estimated."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.identification._identity import identity_of_fit
from jaxmbd.identification._minimise import (
    INTERRUPTED,
    NO_START,
    Minimum,
    Report,
    levenberg_marquardt,
    without_multipliers,
)
from jaxmbd.identification._noise import estimated_noise
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._segments import followed, jumps, updated, without_segments
from jaxmbd.identification._shooting import NO_JUMP, PROGRESS, TIGHTENING, UPDATES, Joins
from jaxmbd.identification._uncertainty import dense
from jaxmbd.identification._unknowns import Unknowns, drawn_starts

_PASSES = 10  # estimates of the noise, each followed by a search
OPEN = "the segments do not join"
_UNDETERMINED = 1e-10  # share of the largest singular value below which the data determine nothing
_NOISE_SETTLED = 1e-3  # relative change of the noise levels below which no further search follows


def searched(
    problem: Problem, starts: int, seed: int, steps: int, tolerance: float, path: str | os.PathLike[str] | None,
    report: Report,
) -> tuple[Problem, Minimum, tuple[float, ...]]:  # fmt: skip
    """Search for the least loss.

    **Returns:** the problem with the noise that has been estimated, and of whole experiments if segments join without
    jumps; the best minimum; and the losses that the searches from all starts have ended with.
    """
    at = [problem.unconstrained(theta) for theta in drawn_starts(problem.parameters, problem.start(), starts, seed)]
    checkpoint = Checkpoint(path, problem.names(), None if path is None else identity_of_fit(problem, at))
    if problem.is_cut and not checkpoint.exists:
        at = [followed(problem, u, report) for u in at]
    run = partial(_run, steps=steps, tolerance=tolerance, report=report)
    minima = _joined(run, problem, at, checkpoint)
    losses = tuple(one.loss for one in minima)
    minimum = min(minima, key=lambda one: np.nan_to_num(one.loss, nan=np.inf))
    for _ in range(0 if problem.noise == "given" else _PASSES):
        if minimum.outcome == INTERRUPTED:
            break
        problem, change = with_estimated_noise(problem, minimum)
        (again,) = _joined(run, problem, [minimum.u], Checkpoint(None, ()))
        minimum = replace(again, history=minimum.history + again.history)
        if change < _NOISE_SETTLED:
            break
    if problem.is_cut and not problem.continuity:
        problem, minimum = without_segments(problem, minimum)
    return problem, minimum, losses


Run = Callable[[Problem, Sequence[Minimum], Checkpoint, Joins], list[Minimum]]


def _run(
    problem: Problem, before: Sequence[Minimum], checkpoint: Checkpoint, joins: Joins, *, steps: int, tolerance: float,
    report: Report,
) -> list[Minimum]:  # fmt: skip
    """Go on with searches, from the minima before."""
    minima = levenberg_marquardt([problem], [one.u for one in before], steps, tolerance, report, checkpoint, joins)
    if all(one.linearised is None for one in minima):
        raise MechanismError(NO_START)
    return [replace(new, history=old.history + new.history) for old, new in zip(before, minima, strict=True)]


def _joined(run: Run, problem: Problem, at: Sequence[Unknowns], checkpoint: Checkpoint) -> list[Minimum]:
    """Search; where segments must join without jumps, with conditions that tighten from search to search.

    A checkpoint holds the number of the search; multipliers are found again.
    """
    minima = [Minimum(u, (), None, (), "") for u in at]
    exact = problem.is_cut and not problem.continuity
    deviations = TIGHTENING if exact else (problem.continuity,)
    checkpoint.check_stage(len(deviations))
    for stage, deviation in enumerate(deviations):
        if stage < checkpoint.stage:
            continue
        checkpoint.stage = stage
        joins = without_multipliers(problem, deviation)
        minima = run(problem, minima, checkpoint, joins)
        if any(one.outcome == INTERRUPTED for one in minima):
            return minima
    return [_without_jumps(run, problem, one, joins) for one in minima] if exact else minima  # pyright: ignore[reportPossiblyUnboundVariable]


def _without_jumps(run: Run, problem: Problem, minimum: Minimum, joins: Joins) -> Minimum:
    """Adapt multipliers until there are no jumps between segments."""
    before = np.inf
    for _ in range(UPDATES):
        if minimum.linearised is None or minimum.outcome == INTERRUPTED:
            return minimum
        jumped = jumps(minimum, joins)
        largest = max(float(jnp.max(jnp.abs(x), initial=0.0)) for x in jumped)
        if largest <= NO_JUMP:
            return minimum
        joins = updated(joins, jumped)
        if largest > PROGRESS * before:
            joins = joins._replace(deviation=0.1 * joins.deviation)
        before = largest
        (minimum,) = run(problem, [minimum], Checkpoint(None, ()), joins)
    return replace(minimum, outcome=OPEN)


def with_estimated_noise(problem: Problem, minimum: Minimum) -> tuple[Problem, float]:
    """Return the problem with the noise of each channel as the residuals show it, and the largest relative change."""
    count = problem.samples
    freedom = max(1 - _fitted(problem, minimum) / count, 1 / count)  # the share of the residuals that is not fitted
    channels = sorted({name for stack in problem.stacks for name in stack.experiment.data})
    change, stacks = 0.0, list(problem.stacks)
    for name in channels:
        errors, ts = _errors(problem, minimum, name)
        sigma, time = estimated_noise(errors, ts, problem.noise == "coloured", freedom)
        if not sigma > 0:  # a model that fits exactly leaves nothing to estimate from
            continue
        for k, stack in enumerate(stacks):
            if name not in stack.experiment.data:
                continue
            before = float(np.max(np.asarray(stack.experiment.sigma[name])))
            change = max(change, abs(sigma / before - 1))
            levels = lambda s, n=name: (s.experiment.sigma[n], s.experiment.correlation_time[n])  # noqa: E731
            stacks[k] = eqx.tree_at(levels, stack, (
                jnp.full_like(stack.experiment.sigma[name], sigma),
                jnp.full_like(stack.experiment.correlation_time[name], time),
            ))  # fmt: skip
    return eqx.tree_at(lambda p: p.stacks, problem, tuple(stacks)), change


def _fitted(problem: Problem, minimum: Minimum) -> float:
    """How many numbers the measurements determine: the trace of what maps them to the model's readings.

    Priors determine a part of some unknowns, and conditions between segments most of the states of later ones.
    """
    assert minimum.linearised is not None
    exact = problem.is_cut and not problem.continuity
    J, _, _, is_measured = dense(minimum.linearised.condensed() if exact else minimum.linearised)
    lengths = np.linalg.norm(J, axis=0)
    U, values, _ = np.linalg.svd(J / np.where(lengths > 0, lengths, 1.0), full_matrices=False)
    return float(np.sum(U[is_measured][:, values > _UNDETERMINED * values.max(initial=0.0)] ** 2))


def _errors(problem: Problem, minimum: Minimum, name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The errors of a channel in each experiment, NaN for missing samples, `(samples, k)`, and the times."""
    errors, ts = [], []
    for readings, stack in zip(minimum.readings, problem.stacks, strict=True):
        if name not in stack.experiment.data:
            continue
        for k, n in enumerate(np.asarray(stack.lengths)):
            error = np.asarray(readings[name][k, :n]) - np.asarray(stack.experiment.data[name][k, :n])
            if np.isfinite(error).any():
                errors.append(error.reshape(n, -1))
                ts.append(np.asarray(stack.experiment.ts[k, :n]))
    return errors, ts
