"""The searches for the least loss, run step by step: they show progress, and can be interrupted and resumed."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from jaxmbd.errors import MechanismError
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.identification._linearisation import (
    Evaluation,
    bounds_of,
    evaluated,
    evaluated_side_by_side,
    flattened,
    linearised,
    shapes_of,
    unflattened,
)
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._shooting import Joins, jump_scales
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.numerics.block_least_squares import Linearised
from jaxmbd.numerics.stepwise_search import USED_UP, SearchEnd, SearchState, search
from jaxmbd.user_functions import RUN_TIME_ERRORS

INTERRUPTED = "interrupted"
_NEARBY = 8 * float(np.finfo(float).eps)  # relative change of numbers that changes nothing but rounding
NO_START = (
    "fit: the mechanism cannot be assembled or simulated with the starting values of parameters and initial states: "
    "problem.simulate(problem.start()) shows the verdict of each experiment in its result."
)

Report = Callable[[str], None]
Chosen = Sequence[Array | np.ndarray] | None  # the experiments of one step, for each stack; None for all of them
Readings = tuple[dict[str, Array], ...]


@dataclass(frozen=True)
class Minimum:
    """The end of a search.

    `u`: the numbers of the search; `readings`: the model's channels there; `linearised`: residuals and Jacobian (None
    if the optimiser computes none); `nearby`: the same where all that differs is rounding and the tolerances of the
    integration (None if it cannot be computed); `history`: the loss after each step; `outcome`, `reason`: why it
    stopped.
    """

    u: Unknowns
    readings: tuple[dict[str, Array], ...]
    linearised: Linearised | None
    history: tuple[float, ...]
    outcome: str
    reason: str = ""
    nearby: Linearised | None = None

    @property
    def loss(self) -> float:
        """The least loss."""
        return min(self.history, default=np.inf) if self.linearised is None else self.linearised.loss


@dataclass
class _Running:
    """A search that runs: its generator, its state, its bounds, what it asks for, and the best evaluation so far."""

    state: SearchState
    bounds: tuple[np.ndarray, np.ndarray]
    generator: Any
    asked: np.ndarray
    best: tuple[Linearised, Evaluation] | None = None
    end: SearchEnd | None = None


def levenberg_marquardt(
    problems: Sequence[Problem], starts: Sequence[Unknowns], steps: int, tolerance: float, report: Report,
    checkpoint: Checkpoint, joins: Joins, held: Collection[str] = (),
) -> list[Minimum]:  # fmt: skip
    """Minimise by the Levenberg-Marquardt method from several starts, side by side; return one minimum for each.

    Each step evaluates residuals and Jacobian once, in one program for all starts.

    **Arguments:** `problems`: one for all starts, or one for each, which differ in numbers only; `held`: shared
    parameters that keep the numbers of each start. The program is the same whatever is held.
    """
    like = problems[0].unconstrained(problems[0].start())
    states = checkpoint.states([flattened(u) for u in starts])
    each = list(problems) * (len(states) if len(problems) == 1 else 1)
    running = [
        _begun(problem, like, state, bounds_of(problem, start, held), steps, tolerance)
        for problem, state, start in zip(each, states, starts, strict=True)
    ]
    together = evaluator(problems, len(running))
    report("compiling the simulations and their derivatives ...")
    outcome, nearby = "", [None] * len(running)
    try:
        while any(one.end is None for one in running):
            asked = [unflattened(one.asked, like) for one in running]
            for one, problem, evaluation in zip(running, each, together(asked, joins, False), strict=True):
                if one.end is None:
                    _advance(one, problem, evaluation)
            checkpoint.save([one.state for one in running])
            report(_progress(running))
        asked = [unflattened(_beside(one.state.u, *one.bounds), like) for one in running]
        nearby = together(asked, joins, True)
    except KeyboardInterrupt:
        if all(one.best is None for one in running):
            raise
        outcome = INTERRUPTED
    return [_minimum(*x, like, outcome) for x in zip(running, nearby, each, strict=True)]


def _beside(u: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Numbers of a search that differ from others by little more than rounding."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(u))
    return np.clip(u + _NEARBY * signs * np.where(u == 0, 1.0, np.abs(u)), lower, upper)


def _begun(
    problem: Problem, like: Unknowns, state: SearchState, bounds: tuple[np.ndarray, np.ndarray], steps: int,
    tolerance: float,
) -> _Running:  # fmt: skip
    left = max(steps - len(state.history), 1)
    generator = search(state, *bounds, shapes_of(problem, like), problem.samples, left, tolerance)
    return _Running(state, bounds, generator, next(generator))


def evaluator(
    problems: Sequence[Problem], count: int
) -> Callable[[list[Unknowns], Joins, bool], Sequence[Evaluation | None]]:
    """Return the evaluation of all searches in one program, if it is asked to with looser tolerances; it gives None
    where a part does not allow such numbers, if it has allowed others."""
    if count == 1:  # not mapped, so that the program is the same for all fits of this kind
        seen = []

        def evaluated_alone(asked: list[Unknowns], joins: Joins, looser: bool) -> Sequence[Evaluation | None]:
            problem = problems[0].with_looser_steps() if looser else problems[0]
            try:
                seen.append(evaluated(problem, asked[0], joins))
            except RUN_TIME_ERRORS:
                if not seen:
                    raise
                return [None]
            del seen[:-1]
            return seen[-1:]

        return evaluated_alone
    is_one = len(problems) == 1
    problem = problems[0] if is_one else stacked_problems(problems)

    def evaluated_together(asked: list[Unknowns], joins: Joins, looser: bool) -> Sequence[Evaluation | None]:
        u = jax.tree.map(lambda *x: jnp.stack(x), *asked)
        found = evaluated_side_by_side(problem.with_looser_steps() if looser else problem, u, joins, is_one)
        return [jax.tree.map(lambda x, k=k: x[k], found) for k in range(count)]

    return evaluated_together


def stacked_problems(problems: Sequence[Problem]) -> Problem:
    """Return problems that differ in numbers only as one, with a leading axis on all arrays."""
    arrays, rest = zip(*(eqx.partition(problem, eqx.is_array) for problem in problems), strict=True)
    for k, other in enumerate(arrays):
        if _shapes_of(other) != _shapes_of(arrays[0]):
            raise MechanismError(
                f"Problems that are solved side by side must differ in numbers only: the structure of number {k}, or "
                "the shape of one of its arrays, is not that of number 0."
            )
    return eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *arrays), rest[0])


def _shapes_of(tree: PyTree) -> tuple[list[tuple[int, ...]], str]:
    leaves, structure = jax.tree.flatten(tree)
    return [leaf.shape for leaf in leaves], str(structure)


def _advance(one: _Running, problem: Problem, evaluation: Evaluation | None) -> None:
    """Give a search what it has asked for."""
    there = None if evaluation is None else linearised(problem, evaluation)
    if there is not None and there.is_finite and (one.best is None or there.loss <= one.best[0].loss):
        assert evaluation is not None
        one.best = there, evaluation
    try:
        one.asked = one.generator.send(there)
    except StopIteration as stop:
        one.end = stop.value


def _progress(running: Sequence[_Running]) -> str:
    losses = [one.best[0].loss for one in running if one.best is not None]
    steps = max(len(one.state.history) for one in running)
    ended = sum(one.end is not None for one in running)
    of = f", {ended} of {len(running)} starts ended" if len(running) > 1 else ""
    return f"step {steps}: loss {min(losses, default=np.nan):.6g}{of}"


def _minimum(
    one: _Running, nearby: Evaluation | None, problem: Problem, like: Unknowns, outcome: str
) -> Minimum:  # fmt: skip
    """The end of a search; without readings (NaN) if not even its start could be computed."""
    end = one.end
    outcome = outcome or (end.outcome if end else "")
    u = unflattened(one.state.u, like)
    history = tuple(one.state.history)
    if one.best is None:
        data = (stack.experiment.data for stack in problem.stacks)
        nothing = tuple({name: jnp.full_like(x, jnp.nan) for name, x in channels.items()} for channels in data)
        return Minimum(u, nothing, None, history, outcome)
    beside = None if nearby is None else linearised(problem, nearby)
    beside = beside if beside is not None and beside.is_finite else None
    return Minimum(u, one.best[1].readings, one.best[0], history, outcome, end.reason if end else "", beside)


def without_multipliers(problem: Problem, deviation: float = 0.0) -> Joins:
    """Return joins of segments by their standard deviation alone."""
    own = (jnp.zeros((stack.lanes, len(stack.experiment.estimate))) for stack in problem.stacks)
    scales = (jump_scales(problem.parameters, stack) if stack.segments > 1 else jnp.ones(0) for stack in problem.stacks)
    return Joins(jnp.asarray(deviation), tuple(scales), tuple(own))


def gradient_descent(
    problem: Problem, optimiser: optax.GradientTransformation, steps: int, batch: int | None, report: Report
) -> Minimum:
    """Minimise by an optax optimiser, with gradients by reverse mode, projected onto the bounds.

    `batch`: the number of experiments of each step, drawn anew for each step; None for all of them. The search ends
    where the loss or its gradient is not finite, with what it had before.
    """
    u = best = evaluated = problem.unconstrained(problem.start())
    state = optax.with_extra_args_support(optimiser).init(u)  # pyright: ignore[reportArgumentType]
    step = _step_of(optimiser, problem.bounds())
    report("compiling the simulations and their derivatives ...")
    draws = np.random.default_rng(0)
    history, outcome, readings_at_best = [], USED_UP, None
    started = time.monotonic()
    try:
        for k in range(steps):
            chosen = None if batch is None else _drawn(problem, batch, draws)
            after, state, value, readings = step(u, state, problem, chosen)
            if not (np.isfinite(value) and np.isfinite(flattened(after)).all()):
                outcome = f"the loss or its gradient is not finite at step {k + 1}: take smaller steps"
                best = best if batch is None else evaluated
                break
            history.append(float(value))
            if batch is not None:
                best = after
            elif history[-1] <= min(history):
                best, readings_at_best = u, readings
            u, evaluated = after, u
            rate = (time.monotonic() - started) / (k + 1)
            report(f"step {k + 1} of {steps}: loss {min(history):.6g}, {rate:.2g} s a step")
    except KeyboardInterrupt:
        if not history:
            raise
        outcome = INTERRUPTED
    if not history:
        raise MechanismError(NO_START)
    if readings_at_best is None:
        readings_at_best = eqx.filter_jit(lambda p, u: p.readings(p.physical(u)))(problem, best)
    return Minimum(best, readings_at_best, None, tuple(history), outcome)


def _step_of(optimiser: optax.GradientTransformation, bounds: tuple[Unknowns, Unknowns]) -> Callable[..., Any]:
    """One step of an optimiser, compiled: the unknowns and the state after it; the loss and the readings before it."""
    extended = optax.with_extra_args_support(optimiser)

    @eqx.filter_jit
    def step(
        u: Unknowns, state: optax.OptState, problem: Problem, chosen: Chosen
    ) -> tuple[Unknowns, optax.OptState, Array, Readings]:
        loss = lambda u: _loss(problem, u, chosen)  # noqa: E731
        (value, readings), gradient = jax.value_and_grad(loss, has_aux=True)(u)
        updates, state = extended.update(gradient, state, u, value=value, grad=gradient, value_fn=lambda u: loss(u)[0])  # pyright: ignore[reportCallIssue]
        u = jax.tree.map(jnp.clip, optax.apply_updates(u, updates), *bounds)  # pyright: ignore[reportArgumentType]
        return u, state, value, readings

    return step


def _drawn(problem: Problem, batch: int, draws: np.random.Generator) -> tuple[np.ndarray, ...]:
    """The experiments of one step, for each stack at most so many."""
    counts = [stack.lanes for stack in problem.stacks]
    return tuple(draws.choice(n, min(batch, n), replace=False) for n in counts)


def _loss(problem: Problem, u: Unknowns, chosen: Chosen) -> tuple[Array, Readings]:
    """The loss, and the readings; of the chosen experiments, scaled up to all of them."""
    stacks, shares = problem.stacks, (1.0,) * len(problem.stacks)
    if chosen is not None:
        shares = tuple(stack.lanes / len(k) for stack, k in zip(stacks, chosen, strict=True))
        stacks = tuple(jax.tree.map(lambda x, k=k: x[k], stack) for stack, k in zip(stacks, chosen, strict=True))
        own = tuple({n: x[k] for n, x in values.items()} for values, k in zip(u.experiments, chosen, strict=True))
        problem, u = eqx.tree_at(lambda p: p.stacks, problem, stacks), Unknowns(u.parameters, own)
    theta = problem.physical(u)
    readings = problem.readings(theta, "reverse")
    total = 0.5 * jnp.sum(problem.prior_residuals(theta) ** 2)
    for reading, stack, share in zip(readings, stacks, shares, strict=True):
        total += 0.5 * share * jnp.sum(jax.vmap(problem.likelihood.residual)(reading, stack.experiment) ** 2)
    return total, readings
