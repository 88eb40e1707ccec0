"""Examples: a mechanism with its initial state, the registry of all examples by name, and parts that several share."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import equinox as eqx
import jax.numpy as jnp
import lazy_loader
from jaxtyping import Array

from jaxmbd import planar as pl
from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.arrays import Number, as_float
from jaxmbd.errors import unknown
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.state import State

if TYPE_CHECKING:
    from jaxmbd.analyses.simulation import simulate as simulation
    from jaxmbd.analyses.simulation.solution import Solution
else:  # many who take an example want no motion
    simulation = lazy_loader.load("jaxmbd.analyses.simulation.simulate", suppress_warning=True)

P = ParamSpec("P")


def _numbers(values: Mapping[str, Number] | None) -> dict[str, Array]:
    return {name: as_float(value) for name, value in (values or {}).items()}


class Example(eqx.Module):
    """A mechanism with its initial state, as a tree of arrays, so that everything in it can be differentiated.

    **Arguments:** `mechanism`; `fixed`, `speeds`, `guess`: the arguments of `assemble` for the initial state;
    `duration` `[s]`: the length of a typical simulation; `inputs`: names of suitable inputs of `linearize`; `outputs`:
    names of channels of interest. `listed` adds `name`, `description` and `source`, the origin of the problem.
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
        """Return the example in other coordinates: `"absolute"`, or `"joint"` with the joints to be cut."""
        return replace(self, mechanism=self.mechanism.with_coordinates(coordinates, cuts))

    def state(self, **options: Any) -> State:
        """Return the assembled initial state; `options` are those of `jaxmbd.assemble`."""
        return assemble(self.mechanism, self.fixed, guess=self.guess, speeds=self.speeds, **options)

    def simulate(self, ts: Any = None, **options: Any) -> "Solution":
        """Simulate from the assembled initial state; `ts` `[s]` are by default 201 times over the `duration`."""
        times = jnp.linspace(0.0, self.duration, 201) if ts is None else ts
        return simulation.simulate(self.mechanism, self.state(), times, **options)


@dataclass(frozen=True)
class Entry:
    """An entry of the registry: the function that makes the example, its description, and the source of the problem."""

    make: Callable[..., Example]
    description: str
    source: str


_ENTRIES: dict[str, Entry] = {}


def listed(source: str = "") -> Callable[[Callable[P, Example]], Callable[P, Example]]:
    """Register a function as an example, `slider_crank` as `"slider-crank"`.

    The first line of its docstring becomes the description that users see.
    """

    def add(make: Callable[P, Example]) -> Callable[P, Example]:
        name, description = _with_hyphens(make.__name__), (make.__doc__ or "").partition("\n")[0]

        @wraps(make)
        def named(*args: P.args, **kwargs: P.kwargs) -> Example:
            return replace(make(*args, **kwargs), name=name, description=description, source=source)

        _ENTRIES[name] = Entry(named, description, source)
        return named

    return add


def _with_hyphens(name: str) -> str:
    return name.replace("_", "-")


def entries() -> dict[str, Entry]:
    """Return the entries of all examples by name."""
    return dict(sorted(_ENTRIES.items()))


def names() -> tuple[str, ...]:
    """Return the names of all examples.

    >>> mbd.examples.names()[:3]
    ('andrews', 'bicycle', 'bricard')
    """
    return tuple(entries())


def get(name: str, *arguments: Any, **options: Any) -> Example:
    """Return an example by its name, `"slider-crank"` or `"slider_crank"`.

    **Arguments:** the name, then the arguments of the example's function: `get("four-bars", 10)`.

    **Returns:** an `Example`.

    **Raises:** `MechanismError` if there is no example of this name.

        >>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))
    """
    if not isinstance(name, str) or _with_hyphens(name) not in _ENTRIES:
        raise unknown("example", name, names())
    return _ENTRIES[_with_hyphens(name)].make(*arguments, **options)


MODELICA_GRAVITY = 9.80665  # [m/s²]


def rod(name: str, mass: Number, length: Number, start: Sequence[Number], angle: float) -> pl.Body:
    """Return a uniform slender rod whose x axis points along it, with one end at `start` [m], at `angle` [rad]."""
    x, y = start
    centre = (x + length / 2 * math.cos(angle), y + length / 2 * math.sin(angle), angle)
    return pl.Body(name, mass=mass, inertia=mass * length**2 / 12, pose=centre)
