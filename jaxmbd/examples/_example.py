"""An example mechanism and its start, and the list of all examples by name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.analyses.state import State
from jaxmbd.arrays import Number
from jaxmbd.errors import unknown
from jaxmbd.model.mechanism.mechanism import Mechanism

P = ParamSpec("P")


def _numbers(values: Mapping[str, Number] | None) -> dict[str, Array]:
    return {name: jnp.asarray(value, dtype=float) for name, value in (values or {}).items()}


class Example(eqx.Module):
    """A mechanism that is ready to run: a tree of arrays, the start included, so that all of it can be differentiated.

    **Arguments:** `mechanism`; `fixed`, `speeds`, `guess`, what `assemble` takes to put it at its start; `duration`
    `[s]`, how long it is worth watching; `inputs`, where a force may push, as `linearize` names it; `outputs`, names of
    what is worth reading. `listed` adds `name`, `description` and `source`, whose problem it is.
    """

    mechanism: Mechanism
    fixed: dict[str, Array] = eqx.field(converter=_numbers, default=None)
    speeds: dict[str, Array] = eqx.field(converter=_numbers, default=None)
    guess: dict[str, Array] = eqx.field(converter=_numbers, default=None)
    duration: float = eqx.field(static=True, default=1.0)
    inputs: tuple[str, ...] = eqx.field(static=True, default=())
    outputs: tuple[str, ...] = eqx.field(static=True, default=())
    name: str = eqx.field(static=True, default="")
    description: str = eqx.field(static=True, default="")
    source: str = eqx.field(static=True, default="")

    def with_coordinates(self, coordinates: str, cuts: Iterable[str] = ()) -> "Example":
        """The same example in other coordinates: `"absolute"`, or `"joint"` with joints that are to be cut."""
        return replace(self, mechanism=self.mechanism.with_coordinates(coordinates, cuts))

    def state(self, **options: Any) -> State:
        """The assembled start; `options` of `jaxmbd.assemble`."""
        return assemble(self.mechanism, self.fixed, guess=self.guess, speeds=self.speeds, **options)

    def simulate(self, ts: Any = None, **options: Any) -> Solution:
        """The motion from the assembled start, at 201 times over the `duration` unless `ts` [s] are given."""
        times = jnp.linspace(0.0, self.duration, 201) if ts is None else ts
        return simulate(self.mechanism, self.state(), times, **options)


@dataclass(frozen=True)
class Entry:
    """One of the list of examples: the function that makes it, what it is in a sentence, and whose problem it is."""

    make: Callable[..., Example]
    description: str
    source: str


_ENTRIES: dict[str, Entry] = {}


def listed(source: str = "") -> Callable[[Callable[P, Example]], Callable[P, Example]]:
    """Put a function among the examples, `slider_crank` as `"slider-crank"`; its docstring's first line tells of it."""

    def add(make: Callable[P, Example]) -> Callable[P, Example]:
        name, description = _spelled(make.__name__), (make.__doc__ or "").partition("\n")[0]

        @wraps(make)
        def named(*args: P.args, **kwargs: P.kwargs) -> Example:
            return replace(make(*args, **kwargs), name=name, description=description, source=source)

        _ENTRIES[name] = Entry(named, description, source)
        return named

    return add


def _spelled(name: str) -> str:
    return name.replace("_", "-")


def entries() -> dict[str, Entry]:
    """All examples by name, none of them made yet."""
    return dict(sorted(_ENTRIES.items()))


def names() -> tuple[str, ...]:
    """The names of all examples."""
    return tuple(entries())


def get(name: str, *arguments: Any, **options: Any) -> Example:
    """An example by its name, `"slider-crank"` or `"slider_crank"`.

    **Arguments:** what the example's function takes: `get("four-bars", 10)`.

    **Returns:** an `Example`.

    **Raises:** `MechanismError` if there is none of that name.

        >>> solution = get("pendulum").simulate()
    """
    if not isinstance(name, str) or _spelled(name) not in _ENTRIES:
        raise unknown("example", name, names())
    return _ENTRIES[_spelled(name)].make(*arguments, **options)
