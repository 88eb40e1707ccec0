"""The events of parts: friction that sticks and breaks loose, by latches that the part closes and opens itself."""

from typing import Any, ClassVar

import equinox as eqx

from jaxmbd.analyses.events.event import ChannelName, Event, Latch, LogOnly, Release
from jaxmbd.model.force.dry_friction import DryFriction
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import rate_name
from jaxmbd.upstream.equinox_internals import with_fields


class Stick(Latch):
    """Lock the coordinate of a friction whose rate has become zero."""

    part: str = eqx.field(static=True, default="")
    direction: ClassVar[float] = 0.0


class Slip(Release):
    """Let the coordinate of a friction go, whose effort has become larger than what holds, in a direction, ±1."""

    part: str = eqx.field(static=True)
    direction: float = eqx.field(static=True)

    def __init__(self, part: str, direction: float) -> None:
        self.latches, self.part, self.direction = (f"{part}.sticks",), part, direction


def dry_frictions(mechanism: Mechanism) -> list[DryFriction]:
    """The forces that stick."""
    return [force for force in mechanism.forces if isinstance(force, DryFriction)]


def events_of_parts(mechanism: Mechanism) -> tuple[Event, ...]:
    """The events of a mechanism's parts. Their names hold a dot, as those of no event of a user."""
    found: list[Event] = []
    for part in dry_frictions(mechanism):
        rate, effort = (ChannelName(name) for name in (rate_name(mechanism, part.coordinate), f"{part.name}.effort"))
        actions: dict[str, tuple[Any, Any]] = {
            "sticks": (rate, Stick(ChannelName(part.coordinate), part.name)),
            "slips forward": (effort, Slip(part.name, 1.0)),
            "slips back": (effort, Slip(part.name, -1.0)),
        }
        for what, (quantity, action) in actions.items():
            side = {"at": 0.0} if what == "sticks" else {"above": 0.0}
            event = Event("part", "t", then=LogOnly(), **side)
            found.append(with_fields(event, name=f"{part.name}.{what}", quantity=quantity, then=action))
    return tuple(found)
