"""Events: what happens when a quantity of the motion crosses a value.

An event watches one number, and says with an action what follows: `Stop`, `Bounce`, `Latch`, `Release`, `Record`, or
`Switch` and `Change`, which are in `_changes`. How a motion is cut at its events is in `_segments`, what an impact
does to the speeds in `_impact`, the list of what has happened in `_happened`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax.numpy as jnp

from jaxmbd.analyses.output_channels import TIME, Snapshot, channel_units, read
from jaxmbd.arrays import Function, Number, Scalar, as_float, is_concrete
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.checks import check_count, check_finite, check_instance, check_name
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.sensor.scaled import Scaled
from jaxmbd.model.sensor.sensor import Measure
from jaxmbd.user_functions import user_array


class Named(eqx.Module):
    """A quantity of the motion by its name, which is no leaf: events can be returned from `jax.vmap`."""

    name: str = eqx.field(static=True)


Quantity: TypeAlias = Named | Function


def as_quantity(of: Any) -> Any:
    """A name as a `Named`, anything else as it is."""
    return Named(of) if isinstance(of, str) else of


def _check_kind(what: str, of: Any) -> None:
    if not isinstance(of, Named) and not callable(of):
        raise MechanismError(
            f"{what} must be the name of a quantity, such as 'ball.y', or a function of a Snapshot, got {of!r}."
        )


_POSITIONS = ("m", "rad")


class AbstractAction(eqx.Module):
    """What follows an event.

    `stops`: whether the motion ends. `returns`: whether the quantity turns back instead of passing through. `clear`:
    whether it is a mistake to start beyond the value.
    """

    stops: ClassVar[bool] = False
    returns: ClassVar[bool] = False
    clear: ClassVar[bool] = False

    def along(self, of: Quantity) -> Quantity | None:
        """The quantity of position along which an impulse acts, for an event that watches `of`."""
        return None


class Stop(AbstractAction):
    """The motion ends: later times of the solution are replaced by that of the event."""

    stops: ClassVar[bool] = True
    clear: ClassVar[bool] = True


class LogOnly(AbstractAction):
    """Nothing follows: the event is listed, the motion goes on."""


class AbstractImpact(AbstractAction):
    """An impulse p along a coordinate `s(q)`: `M Δv + Cᵀ Λ = Gᵀ p`, `C Δv = 0`, with `G = ∂ṡ/∂v`."""

    coordinate: eqx.AbstractVar[Quantity | None]
    clear: ClassVar[bool] = True

    def along(self, of: Quantity) -> Quantity | None:
        return of if self.coordinate is None else self.coordinate


class Bounce(AbstractImpact):
    """An impact with Newton's law of restitution, `ṡ⁺ = −e ṡ⁻`.

    **Arguments:** `restitution` e, from 0 (the rate becomes zero) to 1 (no energy is lost); `coordinate`, a name or a
    function of position, along which the impulse acts: what the event watches unless given.

    Source: Brach, *Mechanical Impact Dynamics* (1991), §3; Glocker, *Set-Valued Force Laws* (2001), §9.
    """

    restitution: Scalar = eqx.field(converter=as_float, default=1.0)
    coordinate: Quantity | None = eqx.field(converter=as_quantity, default=None)
    returns: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if self.coordinate is not None:
            _check_kind("Bounce: coordinate", self.coordinate)
        check_finite("Bounce", "restitution", self.restitution)
        if is_concrete(self.restitution) and not 0 <= float(self.restitution) <= 1:
            raise MechanismError(
                f"Bounce: restitution must be from 0 (no rebound) to 1 (no loss), got {float(self.restitution):g}."
            )


class Latch(AbstractImpact):
    """An impact that makes a coordinate's rate zero, `ṡ⁺ = 0`, and a lock that holds it from then on, `s̈ = 0`.

    **Arguments:** `coordinate`, a name or a function of position: what the event watches unless given. A
    `Release` of the event's name opens it.
    """

    coordinate: Quantity | None = eqx.field(converter=as_quantity, default=None)

    def __check_init__(self) -> None:
        if self.coordinate is not None:
            _check_kind("Latch: coordinate", self.coordinate)


class Release(AbstractAction):
    """Latches open: `latches` are the names of the events that closed them."""

    latches: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, *latches: str) -> None:
        for name in latches:
            check_instance("Release: each argument", name, str, "the name of an event that latches, such as 'catch'")
        if not latches:
            raise MechanismError("Release() opens nothing: name the events whose latches it opens, Release('catch').")
        self.latches = latches


class Event(eqx.Module):
    """Something that happens when a number read off the motion crosses a value.

    **Arguments:** `name`; `of`, the name of any scalar quantity (`"ball.y"`, `"O.angle_rate"`, `"spring.length"`, a
    sensor; `"t"`, the time `[s]`; `"catch.effort"` is the force or torque of the latch that the event `"catch"` has
    closed), or a function of a `Snapshot` (an equinox module with numbers of its own is differentiated in them); one of
    `below` (happens when it falls through that value), `above` (when it rises through it) and `at` (either way), in the
    quantity's unit; `then`, what follows: `Stop()`, `Bounce(restitution)`, `Latch()`, `Release("catch")`,
    `Switch("motor", on=False)`, `Change(where, value)` or `LogOnly()`.

        >>> Event("floor", "ball.y", below=0.0, then=Bounce(0.8))
    """

    name: str = eqx.field(static=True)
    quantity: Quantity
    level: Scalar
    side: int = eqx.field(static=True)  # on which the quantity is before the event; 0 for either
    then: AbstractAction

    def __init__(
        self,
        name: str,
        quantity: str | Function,
        *,
        below: Number | None = None,
        above: Number | None = None,
        at: Number | None = None,
        then: AbstractAction = Stop(),  # noqa: B008
    ) -> None:
        check_name("Event", name)
        given = {side: value for side, value in ((1, below), (-1, above), (0, at)) if value is not None}
        if len(given) != 1:
            raise MechanismError(f"Event {name!r}: give one of below, above and at, got {len(given)} of them.")
        if not isinstance(then, AbstractAction):
            raise MechanismError(
                f"Event {name!r}: then must be Stop(), Bounce(restitution), Latch(), Release(name), Switch(force, on), "
                f"Change(where, value) or LogOnly(), got {then!r}."
            )
        ((self.side, level),) = given.items()
        self.name, self.quantity, self.level, self.then = name, as_quantity(quantity), as_float(level), then
        _check_kind(f"Event {name!r}: quantity", self.quantity)
        check_finite(f"Event {name!r}", "the value that is crossed", self.level)


def check_events(mechanism: Mechanism, events: Iterable[Event], room: int) -> tuple[Event, ...]:
    """The events, checked against a mechanism."""
    if isinstance(events, Event | str) or not isinstance(events, Iterable):
        shown = f"[{events.name}]" if isinstance(events, Event) else "[Event(name, quantity, below=0.0)]"
        given = "one Event" if isinstance(events, Event) else repr(events)
        raise MechanismError(f"events must be a sequence of events, such as {shown}, got {given}.")
    found = tuple(events)
    for event in found:
        if not isinstance(event, Event):
            raise MechanismError(f"events must be Event(name, quantity, below=..., then=...), got {event!r}.")
    names = [event.name for event in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise MechanismError(f"Two events are named {sorted(twice)[0]!r}; each needs a name of its own.")
    if found:
        check_count("max_events", room, 1)
    latches = [event.name for event in found if isinstance(event.then, Latch)]
    for event in found:
        _check_quantity(mechanism, event, event.quantity, latches)
        along = event.then.along(event.quantity)
        if along is not None:
            _check_quantity(mechanism, event, along, ())
            _check_position(mechanism, event, along)
        for name in event.then.latches if isinstance(event.then, Release) else ():
            if name not in latches:
                raise unknown(f"latch for the event {event.name!r} to release", name, latches)
    return found


def _check_quantity(mechanism: Mechanism, event: Event, of: Quantity, latches: Sequence[str]) -> None:
    efforts = [f"{name}.effort" for name in latches]
    if isinstance(of, Named) and of.name in (TIME, *efforts):
        return
    known = channel_units(mechanism)
    if isinstance(of, Named) and of.name not in known:
        raise unknown(f"quantity for the event {event.name!r}", of.name, (*known, *efforts))
    if not isinstance(of, Named) and not callable(of):
        raise MechanismError(
            f"Event {event.name!r}: what it watches must be a quantity's name or a function of a Snapshot, got {of!r}."
        )
    equations = Equations(mechanism)
    q, v, lam = jnp.zeros(mechanism.nq), jnp.zeros(mechanism.nv), jnp.zeros(equations.m)
    of = of if isinstance(of, Named) else _Watched(event.name, of)
    shape = eqx.filter_eval_shape(read_one, equations, of, Snapshot(jnp.zeros(()), q, v, v, lam)).shape
    if shape != ():
        raise MechanismError(
            f"Event {event.name!r}: what it watches must be a number; {_called(of)} has shape {shape}. Take one "
            "component, with a function of a Snapshot or a Measure."
        )


class _Watched(eqx.Module):
    """A user's function of a `Snapshot`, with the name of its event for errors."""

    name: str = eqx.field(static=True)
    function: Function

    def __call__(self, at: Snapshot) -> Any:
        return user_array(f"Event {self.name!r}", "function", self.function, at, takes="snapshot")


def _check_position(mechanism: Mechanism, event: Event, along: Quantity) -> None:
    kind, unit = type(event.then).__name__, _unit(mechanism, along)
    if unit not in (*_POSITIONS, ""):
        raise MechanismError(
            f"Event {event.name!r}: {kind} acts along a position [m or rad], and {_called(along)} is in {unit}. Name "
            f"the coordinate that changes: {kind}(coordinate='...')."
        )


def is_position(mechanism: Mechanism, of: Quantity) -> bool:
    """Whether a quantity is known to depend on the position, or the time, alone."""
    own = [sensor.name for sensor in mechanism.sensors if isinstance(sensor, Measure | Scaled)]
    return isinstance(of, Named) and of.name not in own and _unit(mechanism, of) in (*_POSITIONS, "s")


def _unit(mechanism: Mechanism, of: Quantity) -> str:
    if isinstance(of, Named) and of.name == TIME:
        return "s"
    return channel_units(mechanism).get(of.name, "") if isinstance(of, Named) else ""


def _called(of: Quantity) -> str:
    return repr(of.name) if isinstance(of, Named) else "the function's result"


def read_one(equations: Equations, of: Quantity, at: Snapshot) -> Any:
    """The quantity at one instant."""
    return read(equations, (of.name,), at)[of.name] if isinstance(of, Named) else jnp.asarray(of(at))
