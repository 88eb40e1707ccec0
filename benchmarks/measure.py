"""Timing and accuracy: what a run is, how it is measured, and what its result holds."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.problems import Array

OURS = "jaxmbd"  # the program name of this library's own runs
FAILED_ERROR = 1e-2  # an answer further off than this (m or rad) counts as failed
LONG_RUN = 1.0  # seconds; a run that takes longer is timed once, without repeating it
BUDGET = 0.4  # seconds of repeats for one run


@dataclass(frozen=True)
class Run:
    """One program with one setting on one problem.

    `solve` starts from the initial state at every call and returns the final absolute coordinates, shape
    (number of bodies, 3); it can be called any number of times. `build_seconds` is what was spent before
    on modelling, code generation and compilation. `steps` is the number of steps (for an adaptive solver that
    of right-side evaluations), or a function that gives it once `solve` has been called.
    """

    program: str
    label: str
    setting: str
    solve: Callable[[], Array]
    build_seconds: float = 0.0
    steps: int | Callable[[], int] = 0


@dataclass(frozen=True)
class Result:
    """What a run gave. `seconds` is the median wall time of a call of `solve`, after a warm-up call.

    `error` is the largest absolute difference of any x, y or theta (m, rad) from the reference; None
    where there was no answer. `failure` says what went wrong, and is empty where nothing did.
    """

    problem: str
    program: str
    label: str
    setting: str
    build_seconds: float
    seconds: float
    repeats: int
    steps: int
    error: float | None
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values, ready for JSON."""
        return asdict(self)


def time_runs(runs: Iterable[Run], problem: str, reference: Array, repeats: int = 25) -> list[Result]:
    """Measure several runs: a warm-up call of each, then their repeats in turn, one call of each a round.

    Taking turns spreads a disturbance of the machine over all programs instead of letting it hit one.
    """
    warm = [_warm_up(run, reference) for run in runs]
    counts = [_repeats(first, failure, repeats) for _, first, _, failure in warm]
    samples: list[list[float]] = [[] for _ in warm]
    for turn in range(max(counts, default=0)):
        for (run, _, _, _), count, times in zip(warm, counts, samples, strict=True):
            if turn < count:
                start = time.perf_counter()
                run.solve()
                times.append(time.perf_counter() - start)
    results = []
    for (run, first, error, failure), times in zip(warm, samples, strict=True):
        results.append(
            Result(
                problem=problem,
                program=run.program,
                label=run.label,
                setting=run.setting,
                build_seconds=run.build_seconds,
                seconds=median(times or [first]),
                repeats=max(len(times), 1),
                steps=run.steps() if callable(run.steps) else run.steps,
                error=error,
                failure=failure,
            )
        )
    return results


def take_turns(calls: Sequence[Callable[[], object]], budget: float = BUDGET, most: int = 25) -> list[float]:
    """Median seconds of several calls, which are made once before and then in turn, about `budget` seconds of each."""
    firsts = [seconds_of(call) for call in calls]
    counts = [int(np.clip(round(budget / max(first, 1e-6)), 1, most)) for first in firsts]
    samples: list[list[float]] = [[] for _ in calls]
    for turn in range(max(counts, default=0)):
        for call, count, times in zip(calls, counts, samples, strict=True):
            if turn < count:
                times.append(seconds_of(call))
    return [median(times) for times in samples]


def seconds_of(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _warm_up(run: Run, reference: Array) -> tuple[Run, float, float | None, str]:
    """Call the run once: the run, the seconds it took, its error and what went wrong."""
    start = time.perf_counter()
    try:
        answer = np.asarray(run.solve())
    except Exception as problem:  # whatever a program raises is a result to be shown
        return run, time.perf_counter() - start, None, f"{type(problem).__name__}: {problem}".split("\n")[0]
    seconds = time.perf_counter() - start
    error = float(np.max(np.abs(answer - reference)))
    if not np.isfinite(error):
        return run, seconds, None, "not finite"
    return run, seconds, error, "" if error <= FAILED_ERROR else "wrong answer"


def _repeats(first: float, failure: str, most: int) -> int:
    """How many timed repeats a run gets, about BUDGET seconds in all."""
    if failure or first > LONG_RUN:
        return 0
    return int(np.clip(round(BUDGET / max(first, 1e-6)), 1, most))


def fastest_at(results: Iterable[Result], error: float) -> dict[str, Result]:
    """For each program its fastest run with an error of at most `error`; programs with none are left out."""
    best: dict[str, Result] = {}
    for result in results:
        if result.failure or result.error is None or result.error > error:
            continue
        if result.program not in best or result.seconds < best[result.program].seconds:
            best[result.program] = result
    return best


def seconds_at(results: Iterable[Result], error: float) -> dict[str, float]:
    """For each program the least wall time that was seen to reach `error`. Nothing is interpolated."""
    return {program: result.seconds for program, result in fastest_at(results, error).items()}
