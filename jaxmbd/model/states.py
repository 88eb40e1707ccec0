"""States of parts: what a motor, a valve, a bristle or a filter remembers, beside the coordinates and speeds of bodies.

The state of a mechanism is `(q, v, z)`: coordinates, speeds, and the states of its parts one after another, with

    ż = g(t, q, v, z),   M v̇ + Cᵀ λ = F(t, q, v, z)

A part holds its states in fields, so that its laws read them as they read any other number. The values that it is made
with are those at which a motion starts; the analyses put those of an instant in their place
(`Mechanism.with_own_states`).
"""

import abc
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeGuard, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PyTree

from jaxmbd.arrays import Scalar, combined, constant

T = TypeVar("T")


class OwnState(NamedTuple):
    """A state of a part: the name of the field that holds it, its unit, and its typical size.

    An empty unit is that of the coordinate along which the part acts. The size is a number of that unit, 1e5 for a
    pressure in Pa. In terms of it, the error of a state is controlled together with those of coordinates in metres and
    radians. A state that is `held` changes at instants alone: its rate is zero, and small motions do not change it.
    """

    name: str
    unit: str
    size: float = 1.0
    held: bool = False


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


class AbstractSwitching(AbstractStates):
    """A part that changes states of its own, held ones, at the instants at which one of its *guards* falls below zero.

    Between these its law is smooth, so that steps, which end there, keep their order, and derivatives of a motion are
    those of the law with its changes. `at` is what the law takes, as in `own_rates`: the time, and a coordinate and its
    rate, say, which the methods of a class name (and types that say `**_` let them). `is_logged`: the changes stand in
    the log of events, `"ball.guards[0]"`.
    """

    is_logged: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def guard_units(self) -> tuple[str, ...]:
        """The unit of each of the n guards; an empty one is that of the coordinate along which the part acts."""

    @abc.abstractmethod
    def guards(self, *at: Any, **_: Any) -> Float[Array, " n"]:
        """The guards, which are positive until the state changes."""

    @abc.abstractmethod
    def changed(self, *at: Any, **_: Any) -> Float[Array, "n k"]:
        """The states after the change at each of the guards."""

    @abc.abstractmethod
    def begun(self, *at: Any, **_: Any) -> Float[Array, " k"]:
        """The states at the start of a motion, where they are those of the law, from those that are given."""


class AbstractSided(AbstractSwitching):
    """A part whose law has a kink or a jump at the zeros of some quantities, its *heights*, and is smooth elsewhere.

    The state in the field `sides (n,)`, the last one, is the sign of each height: 1 or -1, held from one crossing to
    the next; 0 where no motion has told it, as in an equilibrium.
    """

    # Declared as `AbstractVar`, it would be the first argument of each class to a type checker.
    def _sides(self, name: str = "sides") -> Float[Array, " n"]:
        return getattr(self, name)

    @abc.abstractmethod
    def heights(self, *at: Any, **_: Any) -> Float[Array, " n"]:
        """The heights."""

    def is_above(self, *at: Any, **_: Any) -> Bool[Array, " n"]:
        """The mask of the heights that count as positive."""
        sides = self._sides()
        return jnp.where(sides == 0, self.heights(*at) >= 0, sides > 0)

    def guards(self, *at: Any, **_: Any) -> Float[Array, " n"]:
        sides = self._sides()
        return jnp.where(sides == 0, 1.0, sides * self.heights(*at))

    def changed(self, *at: Any, **_: Any) -> Float[Array, "n k"]:
        sides, own = self._sides(), jnp.concatenate(values_of(self))
        return own[None] + jnp.pad(jnp.diag(-2 * sides), ((0, 0), (len(own) - len(sides), 0)))

    def begun(self, *at: Any, **_: Any) -> Float[Array, " k"]:
        own = jnp.concatenate(values_of(self))
        return own.at[len(own) - len(self._sides()) :].set(jnp.where(self.is_above(*at), 1.0, -1.0))


def sides_state() -> OwnState:
    """The state of a part with sides."""
    return OwnState("sides", "1", held=True)


def are_sides(part: AbstractStates) -> Bool[np.ndarray, " k"]:
    """The mask of a part's states that are sides."""
    size = sum(value.size for value in values_of(part))
    return np.arange(size) >= size - (
        len(part._sides()) if isinstance(part, AbstractSided) and _has_guards(part) else 0
    )


def untold(count: int) -> Float[np.ndarray, " n"]:
    """The sides before a motion has told them."""
    return np.zeros(count)


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


# What one part says of its states, whatever its law takes besides the time.


def rates_of(part: Any, t: Scalar, *at: Any) -> Float[Array, " k"]:
    """The rates of the states."""
    return part.own_rates(t, *at)


def steady_of(part: Any, t: Scalar, *at: Any) -> Float[Array, " k"]:
    """The states at which their rates are zero."""
    return part.steady(t, *at)


def guards_of(part: Any, t: Scalar, *at: Any) -> Float[Array, " n"]:
    """The guards; none of a part that does not switch."""
    return part.guards(t, *at) if _has_guards(part) else jnp.zeros(0, values_of(part)[0].dtype)


def changed_of(part: Any, t: Scalar, *at: Any) -> Float[Array, " n_k"]:
    """The states after the change at each guard, one after another."""
    return jnp.ravel(part.changed(t, *at)) if _has_guards(part) else jnp.zeros(0, values_of(part)[0].dtype)


def begun_of(part: Any, t: Scalar, *at: Any) -> Float[Array, " k"]:
    """The states at the start of a motion."""
    return part.begun(t, *at) if _has_guards(part) else jnp.concatenate(values_of(part))


def _has_guards(part: AbstractStates) -> bool:
    """True for a part that switches: a controller without limits, for example, has none."""
    return isinstance(part, AbstractSwitching) and len(part.guard_units) > 0


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
