"""A cache that is bounded by the size of what it keeps.

What is kept of a mechanism, its equations and instructions, grows with the mechanism. A bound on the number of results
is then too small for small mechanisms, or too large for the memory with large ones.
"""

import itertools
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

# What is kept in memory of what was traced: about 100 MB of each, which is what some dozen of structures of small
# mechanisms need. What is dropped is traced anew, or read from disk.
EQUATIONS_KEPT = 130_000  # equations of jaxprs, in each cache of traced functions and their programs
MOTION_EQUATIONS_KEPT = 65_000  # the same of the rates of motions, whose programs and sweeps are kept with them
INSTRUCTIONS_KEPT = 130_000  # instructions of NumPy code, in each cache of such


@dataclass
class _Kept(Generic[Result]):
    result: Result
    size: int
    used: int  # when it was used last, as a number that grows


class SizedCache(Generic[Result]):
    """A function whose results are kept, like those of `functools.lru_cache`: the ones that were used last.

    `limit`: of the sizes of all results together. The result of the last call is kept however large it is.
    """

    def __init__(self, function: Callable[..., Result], limit: int, size: Callable[[Result], int]) -> None:
        self._function, self._limit, self._size = function, limit, size
        self._kept: dict[tuple[Hashable, ...], _Kept[Result]] = {}
        self._clock, self._lock = itertools.count(), threading.RLock()
        update_wrapper(self, function)

    def __call__(self, *arguments: Hashable) -> Result:
        """The result for these arguments, which have a hash."""
        found = self._kept.get(arguments)
        if found is None:
            result = self._function(*arguments)  # without the lock: it may take long, and call itself
            found = _Kept(result, self._size(result), 0)
            with self._lock:
                # Of two threads that computed it both get the first result: what was traced is compared by identity.
                found = self._kept.setdefault(arguments, found)
                dropped = self._over_limit(found)
            del dropped  # without the lock: what they hold may run code when it goes
        found.used = next(self._clock)
        return found.result

    def _over_limit(self, newest: _Kept[Result]) -> list[_Kept[Result]]:
        """Take out what is too much, from the result that was used longest ago on."""
        excess, dropped = self.total - self._limit, []
        if excess > 0:
            for key, kept in sorted(self._kept.items(), key=lambda item: item[1].used):
                if excess > 0 and kept is not newest:
                    excess -= kept.size
                    dropped.append(self._kept.pop(key))
        return dropped

    @property
    def total(self) -> int:
        """The sizes of all results that are kept, together."""
        return sum(kept.size for kept in list(self._kept.values()))

    def cache_clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._kept = {}


def sized_cache(limit: int, size: Callable[[Any], int]) -> Callable[[Callable[..., Result]], SizedCache[Result]]:
    """Keep the results of a function that were used last, as long as their sizes sum up to no more than the limit."""
    return lambda function: SizedCache(function, limit, size)
