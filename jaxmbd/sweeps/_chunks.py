"""Who computes the chunks: this process, or the workers of an executor, which write nothing.

Few chunks are in flight at a time. A chunk whose worker breaks is submitted again; one whose computation raises is not,
since it would raise again.
"""

import math
import pickle
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import jax
import numpy as np
from jax.stages import Wrapped

from jaxmbd.errors import MechanismError, SolveError
from jaxmbd.sweeps._outputs import Function, Run, begun, compiled, name_of, values_of
from jaxmbd.sweeps._space import Space

_RETRIES = 3
_PER_WORKER = 2  # chunks in flight: one in work and one that waits
_IN_FLIGHT = 32  # where the number of workers is not known
_BROKEN = {"KilledWorker", "FutureCancelledError"}  # what Dask raises when workers have died

Values: TypeAlias = dict[str, np.ndarray]
Executors: TypeAlias = Executor | Callable[[], Executor]


@dataclass(frozen=True)
class Chunks:
    """The chunks of a space: number `k` has the variants from `k size`."""

    space: Space
    size: int

    @property
    def count(self) -> int:
        return math.ceil(self.space.count / self.size)

    def rows(self, number: int) -> dict[str, np.ndarray]:
        start = number * self.size
        return self.space.rows(start, min(start + self.size, self.space.count))

    def named(self, number: int) -> str:
        start = number * self.size
        return f"chunk {number} (variants {start} to {min(start + self.size, self.space.count) - 1})"


def here(function: Function, run: Run, chunks: Chunks, numbers: Iterable[int]) -> Iterator[tuple[int, Values]]:
    """Compute chunks in this process, side by side on all its devices, by `run`, the compiled function.

    A device begins the next chunk before the one that it has computed is given away, which may be written meanwhile.

    **Raises:** `SolveError` with the number of a chunk that raises.
    """
    devices = jax.local_devices()
    in_work: deque[tuple[int, Callable[[], Values]]] = deque()

    def next_done() -> tuple[int, Values]:
        number, finish = in_work.popleft()
        with _named(function, chunks, number):
            return number, finish()

    for k, number in enumerate(numbers):
        done = [next_done()] if len(in_work) == len(devices) else []
        device = devices[k % len(devices)] if len(devices) > 1 else None
        try:
            with _named(function, chunks, number):
                in_work.append((number, begun(run, chunks.rows(number), chunks.size, device)))
        finally:  # an error, or an interrupt, in the next chunk comes after what is done
            yield from done
    while in_work:
        yield next_done()


@contextmanager
def _named(function: Function, chunks: Chunks, number: int) -> Iterator[None]:
    """Errors are raised with the number of the chunk."""
    try:
        yield
    except Exception as error:
        raise _failed(function, chunks, number, error) from error


def _failed(function: Function, chunks: Chunks, number: int, error: BaseException) -> SolveError:
    return SolveError(
        f"sweep: {chunks.named(number)} of {name_of(function)} raised {type(error).__name__}: "
        f"{_with_variants(_short(error), chunks, number)}"
    )


def _short(error: BaseException) -> str:
    """The text of an error without the calls that led to it, which callbacks from compiled programs put in front."""
    lines = str(error).splitlines()
    calls = [k for k, line in enumerate(lines) if line.startswith('  File "')]
    return "\n".join(lines[calls[-1] + 1 :] if calls else lines)


def _with_variants(text: str, chunks: Chunks, number: int) -> str:
    """A text of `raise_where` with the variants of a chunk in place of the instances of a batch."""

    def named(instance: re.Match[str]) -> str:
        # A chunk that is not full repeats its last variant.
        k = min(number * chunks.size + int(instance[1]), chunks.space.count - 1)
        return f"Variant {chunks.space.named(k)}{instance[2]}:"

    return re.sub(r"^Instance (\d+)((?:, \d+)*):", named, text, flags=re.MULTILINE)


def pickled(function: Function) -> bytes:
    """The function for workers.

    **Raises:** `MechanismError` if it cannot be sent to another process.
    """
    try:
        return pickle.dumps(function)
    except Exception as error:  # whatever the user's objects raise when they are pickled
        raise MechanismError(
            f"sweep: {name_of(function)} cannot be sent to the workers of an executor ({error}). Define it at the top "
            "level of a module, not as a lambda or inside a function; functools.partial passes constants to it."
        ) from error


@lru_cache(maxsize=4)
def _unpickled(content: bytes) -> Wrapped:
    return compiled(pickle.loads(content))


def compute(content: bytes, rows: dict[str, np.ndarray], size: int, is_wide: bool) -> Values:
    """Compute a chunk in a worker, which compiles a function when it gets it first."""
    with jax.enable_x64(is_wide):  # the setting of the process that asks
        return values_of(_unpickled(content), rows, size)


@dataclass
class _Crew:
    """The executor in use. A function that makes one replaces it when it has broken."""

    given: Executors
    current: Executor | None = None
    own: list[Executor] = field(default_factory=list)

    def executor(self) -> Executor:
        if self.current is None:
            made = self.given if isinstance(self.given, Executor) else self.given()
            if not isinstance(made, Executor):
                raise MechanismError(
                    "sweep: executor must be a concurrent.futures.Executor, or a function without arguments that "
                    f"returns one; got {made!r}."
                )
            if made is not self.given:
                self.own.append(made)
            self.current = made
        return self.current

    def in_flight(self) -> int:
        workers = getattr(self.executor(), "_max_workers", None)
        return _PER_WORKER * workers if isinstance(workers, int) else _IN_FLIGHT

    def replace(self) -> bool:
        """Give up an executor that has broken for good; return False if no other can be made."""
        if isinstance(self.given, Executor):
            return False
        self.current = None
        return True

    def end(self) -> None:
        for executor in self.own:
            executor.shutdown(wait=True, cancel_futures=True)


def by_workers(
    function: Function, chunks: Chunks, numbers: Iterable[int], executor: Executors
) -> Iterator[tuple[int, Values]]:
    """Compute chunks by the workers of an executor, in the order in which they are ready.

    **Raises:** `MechanismError` if the function cannot be sent; `SolveError` with the number of a chunk that raises, or
    whose workers broke again and again.
    """
    content, is_wide = pickled(function), bool(jax.config.read("jax_enable_x64"))
    crew, waiting, failures = _Crew(executor), list(reversed(list(numbers))), {}
    flying: dict[Future[Values], int] = {}
    try:
        while waiting or flying:
            while waiting and len(flying) < crew.in_flight():
                number = waiting.pop()
                try:
                    future = crew.executor().submit(compute, content, chunks.rows(number), chunks.size, is_wide)
                except BrokenExecutor as error:
                    waiting.append(number)
                    if flying:  # they have broken with it, and are counted together below
                        break
                    _again(function, chunks, crew, [number], failures, error, ended=True)
                    continue
                flying[future] = number
            ready, _ = wait(flying, return_when=FIRST_COMPLETED)
            if any(isinstance(_error_of(future), BrokenExecutor) for future in ready):
                ready, _ = wait(flying)  # an executor that has broken ends all that it has
            broken: list[int] = []
            cause: BaseException | None = None
            for future in ready:
                number = flying.pop(future)
                error = _error_of(future)
                if error is None:
                    yield number, future.result()
                elif _is_broken(error):
                    broken.append(number)
                    cause = error
                else:
                    raise _failed(function, chunks, number, error) from error
            if cause is not None:
                _again(function, chunks, crew, broken, failures, cause, ended=isinstance(cause, BrokenExecutor))
                waiting.extend(reversed(broken))
    finally:
        for future in flying:
            future.cancel()
        crew.end()


def _error_of(future: Future[Values]) -> BaseException | None:
    try:
        return future.exception()
    except CancelledError as error:
        return error


def _is_broken(error: BaseException) -> bool:
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ in _BROKEN


def _again(
    function: Function,
    chunks: Chunks,
    crew: _Crew,
    numbers: list[int],
    failures: dict[int, int],
    error: BaseException,
    ended: bool,
) -> None:
    """Count the failures of chunks whose workers broke; raise if one has failed too often, or nobody can take it."""
    listed = ", ".join(chunks.named(number) for number in sorted(numbers))
    for number in numbers:
        failures[number] = failures.get(number, 0) + 1
        if failures[number] > _RETRIES:
            raise SolveError(
                f"sweep: workers broke {failures[number]} times while they computed {name_of(function)} for {listed} "
                f"({type(error).__name__}: {error}). Each may have run out of memory: try a smaller chunk."
            ) from error
    if ended and not crew.replace():
        raise SolveError(
            f"sweep: the executor broke while it computed {listed} of {name_of(function)} ({error}), and takes no more "
            "work. To have the chunks computed again, pass a function that makes the executor: executor=lambda: "
            "ProcessPoolExecutor(4)."
        ) from error
