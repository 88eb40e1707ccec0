"""Events that change forces: the parameters of forces in each segment of a motion, and the equations with them.

Between events the parameters of forces are constant, so the segments of a motion have the same equations with different
parameters. The solution stores them, so that the forces, reactions and energies that are computed from it are those
that acted.
"""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.events.event import AbstractAction, Event
from jaxmbd.arrays import Function, Scalar, as_float
from jaxmbd.checks import check_flags, check_instance, check_some
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known, shown
from jaxmbd.model.force.force import scaled
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.numbers import Path, find

Values: TypeAlias = tuple[Array, list[Array]]  # factors of switched forces, and values of changed parameters


class Switch(AbstractAction):
    """Switch a force on or off, until another event switches it again.

    **Arguments:** `force`, its name; `on`, true if it acts from the event on; `initially`, true if it acts at the
    start.
    """

    force: str = eqx.field(static=True)
    on: bool = eqx.field(static=True)
    initially: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_instance("Switch: force", self.force, str, "the name of a force, such as 'motor'")
        check_flags("Switch", on=self.on, initially=self.initially)


class Change(AbstractAction):
    """Change the value of a force's parameter, until another event changes it again.

    **Arguments:** `where`, the name of a number or an array of a force, `"spring.stiffness"`, or a function that
    selects it in the mechanism, `lambda m: m["spring"].stiffness`; `value`, the new value, of the same shape. Both the
    original and the new value are differentiable.
    """

    where: Function | str
    value: Array = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        if not isinstance(self.where, str) and (not callable(self.where) or isinstance(self.where, type)):
            raise MechanismError(
                "Change: where must be the name of a number, such as 'spring.stiffness', or a function that picks one, "
                f"got {shown(self.where)}."
            )
        check_some("Change", "value", self.value)


class ForceChanges(eqx.Module):
    """The changed parameters of forces in each segment of a motion.

    From each of `starts (segments,)` on, the `values` of that segment apply; `names`, those of the switched forces;
    `places`, the indices of the changed parameters among the leaves of all forces.
    """

    starts: Float[Array, " segments"]
    values: Values
    names: tuple[str, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)


def equations_at(equations: Equations, changes: ForceChanges | None, t: Scalar) -> Equations:
    """The equations with the forces that act at a time."""
    if changes is None:
        return equations
    segment = jnp.maximum(jnp.sum(changes.starts <= t) - 1, 0)
    factors, numbers = jax.tree.map(lambda x: x[segment], changes.values)
    leaves, structure = jax.tree.flatten(equations.mechanism.forces)
    for place, number in zip(changes.places, numbers, strict=True):
        leaves[place] = number
    forces = list(jax.tree.unflatten(structure, leaves))
    for k, name in enumerate(changes.names):
        i = [force.name for force in forces].index(name)
        forces[i] = scaled(forces[i], factors[k])
    return equations.with_forces(equations.mechanism.replaced(forces=forces))


def changes_of(mechanism: Mechanism, events: tuple[Event, ...], segments: int, dtype: Any) -> ForceChanges | None:
    """The changes with the values of the first segment in all of them; `None` if no event changes a force."""
    switch_events = [event for event in events if isinstance(event.then, Switch)]
    parameter_events = [event for event in events if isinstance(event.then, Change)]
    if not switch_events and not parameter_events:
        return None
    first = {event.then.force: event.then.initially for event in switch_events}  # pyright: ignore
    places = sorted({place_of(mechanism, event) for event in parameter_events})
    leaves = jax.tree.leaves(mechanism.forces)
    start = jnp.asarray([float(on) for on in first.values()], dtype), [jnp.asarray(leaves[p]) for p in places]
    values = jax.tree.map(lambda x: jnp.broadcast_to(x, (segments, *x.shape)), start)
    starts = jnp.full(segments, jnp.inf, dtype).at[0].set(-jnp.inf)
    return ForceChanges(starts, values, tuple(first), tuple(places))


def after_event(
    changes: ForceChanges | None, events: tuple[Event, ...], mechanism: Mechanism, k: Array, t: Array, j: Array,
    happens: Array, fires: Array,
) -> ForceChanges | None:  # fmt: skip
    """The changes with the values of the segment after the `k`-th one, which ended at `t` with event `j`."""
    if changes is None:
        return None
    new = values_after(changes, events, mechanism, k, fires & (j == jnp.arange(len(events))))
    start = jnp.where(happens, jax.lax.stop_gradient(t), jnp.inf)
    values = jax.tree.map(lambda x, new: x.at[k + 1].set(new, mode="drop"), changes.values, new)
    return ForceChanges(changes.starts.at[k + 1].set(start, mode="drop"), values, changes.names, changes.places)


def values_after(
    changes: ForceChanges, events: tuple[Event, ...], mechanism: Mechanism, k: Array | int, fired: Bool[Array, " n"]
) -> Values:
    """The values of the `k`-th segment with what the event that has fired, in the mask, sets."""
    factors, numbers = jax.tree.map(lambda x: x[k], changes.values)
    numbers = list(numbers)
    for now, event in zip(fired, events, strict=True):
        if isinstance(event.then, Switch):
            i = changes.names.index(event.then.force)
            factors = jnp.where(now, factors.at[i].set(float(event.then.on)), factors)
        if isinstance(event.then, Change):
            i = changes.places.index(place_of(mechanism, event))
            numbers[i] = jnp.where(now, event.then.value, numbers[i])
    return factors, numbers


class _Placeholder:
    """A placeholder for the parameter that an event changes."""


def place_of(mechanism: Mechanism, event: Event) -> int:
    """The index of the parameter that an event changes among the leaves of all forces."""
    then = event.then
    assert isinstance(then, Change)
    try:
        where = _paths(mechanism, then.where) if isinstance(then.where, str) else then.where
        marked = eqx.tree_at(where, mechanism, replace_fn=lambda _: _Placeholder())
    except Exception as error:
        raise MechanismError(
            f"Event {event.name!r}: Change(where, value): where must pick one number out of the mechanism, such as "
            f"'spring.stiffness'; it failed with: {error}"
        ) from None
    places = [i for i, leaf in enumerate(jax.tree.leaves(marked.forces)) if isinstance(leaf, _Placeholder)]
    if len(places) != 1 or len(jax.tree.leaves(marked.forces)) != len(jax.tree.leaves(mechanism.forces)):
        raise MechanismError(
            f"Event {event.name!r}: Change acts on one array of a force, such as 'spring.stiffness'; "
            "where picked something else."
        )
    shape = jnp.shape(jax.tree.leaves(mechanism.forces)[places[0]])
    if then.value.shape != shape:
        raise MechanismError(
            f"Event {event.name!r}: Change: the value must have the shape {shape} of what it takes the place of, got "
            f"{then.value.shape}."
        )
    return places[0]


def _paths(mechanism: Mechanism, name: str) -> Function:
    """The function that picks the arrays that a name stands for; a single number of one is refused."""
    found = find(mechanism, name)
    if any(one.index is not None for one in found):
        raise MechanismError(f"{name!r} is one number of an array; name the array and give all its numbers.")
    return lambda m: [Path(one.path)(m) for one in found]


def check_changes(mechanism: Mechanism, events: tuple[Event, ...]) -> None:
    """Raise unless events change existing forces, with values of the right shape."""
    names, starts = [force.name for force in mechanism.forces], {}
    for event in events:
        if isinstance(event.then, Change):
            place_of(mechanism, event)
        if isinstance(event.then, Switch):
            force, initially = event.then.force, event.then.initially
            check_known(f"force for the event {event.name!r} to switch", [force], names)
            if starts.setdefault(force, initially) != initially:
                raise MechanismError(
                    f"Event {event.name!r}: Switch({force!r}): initially={initially}, but another event says that the "
                    f"force is {'on' if starts[force] else 'off'} at the start."
                )
