"""Events that change forces: the parameters of forces in each segment of a motion, and the equations with them.

Between events the parameters of forces are constant, so the segments of a motion have the same equations with different
parameters. These are stored in the formulation, so that the forces, reactions and energies that are computed from a
solution are those that acted.
"""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.analyses.events.event import AbstractAction, Event
from jaxmbd.arrays import Function, Scalar, as_float
from jaxmbd.equations.body_laws import BodyLaws
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.integrate.formulations.formulation import (
    AbstractFormulation,
    AbstractProjectedFormulation,
    Projection,
    StateDerivative,
)
from jaxmbd.model.body.checks import check_flags, check_instance
from jaxmbd.model.force.force import scaled
from jaxmbd.model.mechanism.mechanism import Mechanism

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

    **Arguments:** `where`, a function that selects one array in a force of the mechanism, as for `equinox.tree_at`:
    `lambda m: m["spring"].stiffness`; `value`, the new value, of the same shape. Both the original and the new value
    are differentiable.
    """

    where: Function
    value: Array = eqx.field(converter=as_float)

    def __check_init__(self) -> None:
        if not callable(self.where):
            raise MechanismError(
                "Change: where must be a function that picks a number, such as lambda m: m['spring'].stiffness, got "
                f"{self.where!r}."
            )
        if self.value is None or isinstance(self.value, str):
            raise MechanismError(f"Change: value must be real numbers, got {self.value!r}.")


class Changes(eqx.Module):
    """The changed parameters in each segment of a motion.

    From each of `starts (segments,)` on, the `values` of that segment apply; `names`, those of the switched forces;
    `places`, the indices of the changed parameters among the leaves of all forces.
    """

    starts: Float[Array, " segments"]
    values: Values
    names: tuple[str, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)

    def at(self, t: Scalar) -> Values:
        """The values at a time."""
        k = jnp.maximum(jnp.sum(self.starts <= t) - 1, 0)
        return jax.tree.map(lambda x: x[k], self.values)

    def applied(self, equations: Equations, t: Scalar) -> Equations:
        """The equations with the forces at a time."""
        factors, numbers = self.at(t)
        mechanism = equations.mechanism
        leaves, structure = jax.tree.flatten(mechanism.forces)
        for place, number in zip(self.places, numbers, strict=True):
            leaves[place] = number
        forces = list(jax.tree.unflatten(structure, leaves))
        for k, name in enumerate(self.names):
            i = [force.name for force in forces].index(name)
            forces[i] = scaled(forces[i], factors[k])
        mechanism = mechanism.replaced(forces=forces)
        new = BodyLaws(mechanism)
        names = [name for name in ("gravity", "forces", "coordinate_forces") if len(getattr(new, name))]
        old = [equations.mechanism, *(getattr(equations.parts, name) for name in names)]
        return eqx.tree_at(
            lambda e: [e.mechanism, *(getattr(e.parts, name) for name in names)],
            equations,
            [mechanism, *(getattr(new, name) for name in names)],
            is_leaf=lambda x: any(x is y for y in old),
        )


class Changed(AbstractFormulation):
    """A formulation for a mechanism whose forces change at events."""

    of: AbstractFormulation
    changes: Changes

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        return self.of.motion(self.changes.applied(equations, t), t, q, v)


class ChangedProjectedFormulation(AbstractProjectedFormulation):
    """A projected formulation for a mechanism whose forces change at events; its projection is independent of them."""

    of: AbstractProjectedFormulation
    changes: Changes

    def check(self, mechanism: Mechanism, freedom: int) -> None:
        self.of.check(mechanism, freedom)

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        return self.of.motion(self.changes.applied(equations, t), t, q, v)

    def begin(self, equations: Equations, t: Scalar, q: Array) -> "ChangedProjectedFormulation":
        return ChangedProjectedFormulation(self.of.begin(equations, t, q), self.changes)

    def settle(
        self, equations: Equations, t: Scalar, q: Array, v: Array
    ) -> tuple["ChangedProjectedFormulation", Array, Array]:
        of, q, v = self.of.settle(equations, t, q, v)
        return ChangedProjectedFormulation(of, self.changes), q, v


def changed(formulation: AbstractFormulation, changes: Changes) -> AbstractFormulation:
    """The formulation with forces that change at events."""
    if isinstance(formulation, Projection):
        return Projection(changed(formulation.base, changes))
    if isinstance(formulation, AbstractProjectedFormulation):
        return ChangedProjectedFormulation(formulation, changes)
    return Changed(formulation, changes)


def changes_of(mechanism: Mechanism, events: tuple[Event, ...], segments: int, dtype: Any) -> Changes | None:
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
    return Changes(starts, values, tuple(first), tuple(places))


def after_event(
    changes: Changes, events: tuple[Event, ...], mechanism: Mechanism, k: Array, t: Array, j: Array, happens: Array,
    fires: Array,
) -> Changes:  # fmt: skip
    """The changes with the values of the segment after the `k`-th one, which ended at `t` with event `j`."""
    factors, numbers = jax.tree.map(lambda x: x[k], changes.values)
    numbers = list(numbers)
    for number, event in enumerate(events):
        now = fires & (j == number)
        if isinstance(event.then, Switch):
            i = changes.names.index(event.then.force)
            factors = jnp.where(now, factors.at[i].set(float(event.then.on)), factors)
        if isinstance(event.then, Change):
            i = changes.places.index(place_of(mechanism, event))
            numbers[i] = jnp.where(now, event.then.value, numbers[i])
    start = jnp.where(happens, jax.lax.stop_gradient(t), jnp.inf)
    values = jax.tree.map(lambda x, new: x.at[k + 1].set(new, mode="drop"), changes.values, (factors, numbers))
    return Changes(changes.starts.at[k + 1].set(start, mode="drop"), values, changes.names, changes.places)


class _Placeholder:
    """A placeholder for the parameter that an event changes."""


def place_of(mechanism: Mechanism, event: Event) -> int:
    """The index of the parameter that an event changes among the leaves of all forces."""
    then = event.then
    assert isinstance(then, Change)
    try:
        marked = eqx.tree_at(then.where, mechanism, replace_fn=lambda _: _Placeholder())
    except Exception as error:
        raise MechanismError(
            f"Event {event.name!r}: Change(where, value): where must pick one number out of the mechanism, such as "
            f"lambda m: m['spring'].stiffness; it failed with: {error}"
        ) from None
    places = [i for i, leaf in enumerate(jax.tree.leaves(marked.forces)) if isinstance(leaf, _Placeholder)]
    if len(places) != 1 or len(jax.tree.leaves(marked.forces)) != len(jax.tree.leaves(mechanism.forces)):
        raise MechanismError(
            f"Event {event.name!r}: Change acts on one array of a force, such as lambda m: m['spring'].stiffness; "
            "where picked something else."
        )
    shape = jnp.shape(jax.tree.leaves(mechanism.forces)[places[0]])
    if then.value.shape != shape:
        raise MechanismError(
            f"Event {event.name!r}: Change: the value must have the shape {shape} of what it takes the place of, got "
            f"{then.value.shape}."
        )
    return places[0]


def check_changes(mechanism: Mechanism, events: tuple[Event, ...]) -> None:
    """Raise unless events change existing forces, with values of the right shape."""
    names, starts = [force.name for force in mechanism.forces], {}
    for event in events:
        if isinstance(event.then, Change):
            place_of(mechanism, event)
        if isinstance(event.then, Switch):
            force, initially = event.then.force, event.then.initially
            if force not in names:
                raise unknown(f"force for the event {event.name!r} to switch", force, names)
            if starts.setdefault(force, initially) != initially:
                raise MechanismError(
                    f"Event {event.name!r}: Switch({force!r}): initially={initially}, but another event says that the "
                    f"force is {'on' if starts[force] else 'off'} at the start."
                )


def equations_at(formulation: AbstractFormulation, equations: Equations, t: Scalar) -> Equations:
    """The equations with the forces that act at a time, if events change forces."""
    changes = [x for x in jax.tree.leaves(formulation, is_leaf=_is_changes) if _is_changes(x)]
    return changes[0].applied(equations, t) if changes else equations


def without_changes(formulation: AbstractFormulation) -> AbstractFormulation:
    """The formulation without its changes, for equations to which they have been applied."""
    is_changed = lambda x: isinstance(x, Changed | ChangedProjectedFormulation)  # noqa: E731
    return jax.tree.map(lambda x: x.of if is_changed(x) else x, formulation, is_leaf=is_changed)


def _is_changes(x: Any) -> bool:
    return isinstance(x, Changes)
