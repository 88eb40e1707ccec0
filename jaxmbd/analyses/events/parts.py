"""The events of parts: friction that sticks and breaks loose, by latches that the part closes and opens itself, and
laws that change at zeros of their guards."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxmbd.analyses.events.event import AbstractAction, ChannelName, Event, Latch, LogOnly, Release
from jaxmbd.arrays import Scalar
from jaxmbd.equations.kinematic_quantities import KinematicReader
from jaxmbd.model.force.dry_friction import DryFriction
from jaxmbd.model.force.force import ScaledJointForce
from jaxmbd.model.force.sticking import AbstractSticking
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import TIME, rate_name
from jaxmbd.model.states import AbstractSwitching, are_sides, stateful
from jaxmbd.state.output_channels import Snapshot
from jaxmbd.upstream.equinox_internals import with_fields


class Stick(Latch):
    """Lock the coordinate of a part that sticks."""

    part: str = eqx.field(static=True, default="")
    direction: ClassVar[float] = 0.0


class Slip(Release):
    """Let the coordinate of a part go, whose effort has become larger than what holds, in a direction, ±1. `latch`: the
    name of the event that locks it."""

    part: str = eqx.field(static=True)
    direction: float = eqx.field(static=True)
    returns: ClassVar[bool] = True  # what is let go needs no effort to be held

    def __init__(self, part: str, latch: str, direction: float) -> None:
        self.latches, self.part, self.direction = (latch,), part, direction


class Pass(AbstractAction):
    """Change the states of a part, one of whose guards has fallen below zero. `guard`: its number, among those of all
    parts."""

    guard: int = eqx.field(static=True)
    logged: ClassVar[bool] = False
    returns: ClassVar[bool] = True  # guards are positive again


class LoggedPass(Pass):
    """The same, for a part whose changes are of interest by themselves."""

    logged: ClassVar[bool] = True


def switching_parts(mechanism: Mechanism) -> list[Any]:
    """The parts that change states at zeros of guards, in the order of their states."""
    found = stateful((mechanism.forces, mechanism.controllers))
    return [part for part in found if isinstance(part, AbstractSwitching)]


def with_sides_untold(mechanism: Mechanism, z: Array) -> Array:
    """The states of parts for a motion that does not hold them: laws with kinks then take the signs themselves."""
    return jnp.where(are_sides_of(mechanism), 0.0, z)


def are_sides_of(mechanism: Mechanism) -> Bool[np.ndarray, " nz"]:
    """The mask of the states of all parts that are sides."""
    parts = stateful((mechanism.forces, mechanism.controllers))
    return np.concatenate([*map(are_sides, parts), np.zeros(0, bool)])


def guard_units(mechanism: Mechanism) -> list[str]:
    """The units of the guards of all parts."""
    return [unit or mechanism.unit_along(part) for part in switching_parts(mechanism) for unit in part.guard_units]


def sticking_parts(mechanism: Mechanism) -> list[AbstractSticking]:
    """The forces that stick, those within others among them, to which inputs are added, say."""
    return [part for part in stateful(mechanism.forces) if isinstance(part, AbstractSticking)]


def sticking_part(mechanism: Mechanism, name: str) -> tuple[AbstractSticking, Scalar]:
    """The part that sticks in the force of a name, and the factor by which that is switched on."""
    force: Any = mechanism[name]
    factor = jnp.ones(())
    while not isinstance(force, AbstractSticking):
        if isinstance(force, ScaledJointForce):
            force, factor = force.force, factor * force.factor
        else:
            force = force.without_inputs
    return force, factor


def held_by(reader: KinematicReader, name: str) -> Array:
    """The largest efforts that the part of a name holds against a motion forward and back."""
    part, factor = sticking_part(reader.mechanism, name)
    holds = part.holds(reader.position.t, *reader.load_on(part))
    is_finite = jnp.isfinite(holds)
    return jnp.where(is_finite | (factor == 0), factor * jnp.where(is_finite, holds, 0.0), jnp.inf)


def events_of_parts(mechanism: Mechanism) -> tuple[Event, ...]:
    """The events of a mechanism's parts. Their names hold a dot, as those of no event of a user."""
    found: list[Event] = []
    for part in sticking_parts(mechanism):
        effort, coordinate = ChannelName(f"{part.name}.effort"), ChannelName(part.coordinate)
        locks, *lets_go = (f"{part.name}.{name}" if name else "" for name in part.happenings)
        # What it watches is said by the part (`EventRules`); its unit is that of the quantity here.
        watched = ChannelName(rate_name(mechanism, part.coordinate)) if part.locks_at_rest else coordinate
        level = {"at" if part.from_either_side else "below": 0.0}
        found.append(_event(locks, watched, Stick(coordinate, part.name), **level))
        for name, direction in zip(lets_go, (1.0, -1.0), strict=True):
            if name:
                found.append(_event(name, effort, Slip(part.name, locks, direction), above=0.0))
        if isinstance(part, DryFriction) and callable(part.normal):  # a kink where nothing presses any more
            found.append(_event(f"{part.name}.opens", Normal(part.normal), LogOnly(), below=0.0))
    guards = [(part, k) for part in switching_parts(mechanism) for k in range(len(part.guard_units))]
    # The quantity of these is the guard itself, which has no name (`EventRules`).
    for place, (part, k) in enumerate(guards):
        then = (LoggedPass if part.is_logged else Pass)(place)
        found.append(_event(f"{part.name}.guards[{k}]", ChannelName(TIME), then, below=0.0))
    return tuple(found)


class Normal(eqx.Module):
    """What presses a friction, as a quantity of an event."""

    function: Any

    def __call__(self, at: Snapshot) -> Array:
        return jnp.asarray(self.function(at.t))


def _event(name: str, quantity: Any, action: AbstractAction, **value: float) -> Event:
    return with_fields(Event("part", "t", then=LogOnly(), **value), name=name, quantity=quantity, then=action)
