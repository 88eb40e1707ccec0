"""States of parts: what a motor, a valve, a bristle or a filter remembers, beside the coordinates and speeds of bodies.

The state of a mechanism is `(q, v, z)`: coordinates, speeds, and the states of its parts one after another, with

    ż = g(t, q, v, z),   M v̇ + Cᵀ λ = F(t, q, v, z)

A part holds its states in fields, so that its laws read them as they read any other number. The values that it is made
with are those at which a motion starts; the analyses put those of an instant in their place
(`Mechanism.with_own_states`).
"""

import abc
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Scalar, combined, constant

T = TypeVar("T")


class OwnState(NamedTuple):
    """A state of a part: the name of the field that holds it, its unit, and its typical size.

    An empty unit is that of the coordinate along which the part acts. The size is a number of that unit, 1e5 for a
    pressure in Pa. In terms of it, the error of a state is controlled together with those of coordinates in metres and
    radians.
    """

    name: str
    unit: str
    size: float = 1.0


class AbstractStates(eqx.Module):
    """A part with states `z (k,)` of its own: the numbers in the fields that `own_states` names, one after another."""

    @property
    @abc.abstractmethod
    def own_states(self) -> tuple[OwnState, ...]:
        """The states, each in the field of its name, a number or an array."""


class AbstractOwnStates(AbstractStates):
    """A force with states of its own.

    It derives from this class beside `AbstractForce` or `AbstractJointForce`. `at` and `rates` are what the law of the
    force takes besides the time: the coordinate and its rate, or the frames of the markers and their rates.
    """

    @abc.abstractmethod
    def own_rates(self, t: Scalar, at: Any, rates: Any, /) -> Float[Array, " k"]:
        """The rates `ż`."""

    @abc.abstractmethod
    def steady(self, t: Scalar, at: Any, rates: Any, /) -> Float[Array, " k"]:
        """The states at which the rates are zero, for an equilibrium. A state that has none there, such as an integral,
        keeps its value."""


def _is_stateful(part: object) -> TypeGuard[AbstractStates]:
    return isinstance(part, AbstractStates)


def stateful(part: object) -> list[AbstractStates]:
    """The parts with states in a part: itself, or one that it holds, such as a force that it scales."""
    return [x for x in jax.tree.leaves(part, is_leaf=_is_stateful) if _is_stateful(x)]


def no_states(dtype: DTypeLike | None = None) -> Float[Array, "0"]:
    """The states of a mechanism whose parts have none."""
    kind = np.dtype(jnp.result_type(float) if dtype is None else dtype)
    return _empty(kind, jax.config.jax_default_device)  # pyright: ignore[reportAttributeAccessIssue]


@lru_cache(maxsize=8)
def _empty(dtype: np.dtype, device: object) -> Float[Array, "0"]:
    """Made once: most mechanisms have no such states, and a new array takes as long as a tenth of an assembly."""
    # `device` is but a part of the key: what was made on one device must not be returned where another is the default.
    return constant(np.zeros(0, dtype))


def entries_of(part: AbstractStates) -> list[OwnState]:
    """One state for each number, `"z[1]"` in an array."""
    found = []
    for state in part.own_states:
        shape = jnp.shape(getattr(part, state.name))
        places = ("[" + ",".join(map(str, index)) + "]" if shape else "" for index in np.ndindex(shape))
        found += [state._replace(name=state.name + place) for place in places]
    return found


def values_of(part: AbstractStates) -> list[Array]:
    """The numbers of the states, each as an array of one axis."""
    return [combined("ravel", getattr(part, state.name)) for state in part.own_states]


def with_values(part: T, values: Array) -> T:
    """A part with other numbers of the states of all that it holds, in the order of `stateful`."""
    rest = values

    def changed(x: PyTree) -> PyTree:
        nonlocal rest
        if not _is_stateful(x):
            return x
        names, new = [state.name for state in x.own_states], []
        for old in (getattr(x, name) for name in names):
            new.append(jnp.reshape(rest[: jnp.size(old)], jnp.shape(old)))
            rest = rest[jnp.size(old) :]
        return eqx.tree_at(lambda p: [getattr(p, name) for name in names], x, new)

    return jax.tree.map(changed, part, is_leaf=_is_stateful)
