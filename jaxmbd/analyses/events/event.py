"""Events and their actions: an action is triggered when a scalar quantity of the motion crosses a value.

The actions are `Stop`, `Bounce`, `Latch`, `Release`, `LogOnly`, and in `changes.py` `Switch` and `Change`. The
integration of a motion in segments between events is in `segmented_integration.py`, the equations of impact in
`impact.py`, the log of events in `event_log.py`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax.numpy as jnp

from jaxmbd.arrays import Function, Number, Scalar, as_float, is_concrete
from jaxmbd.checks import check_count, check_finite, check_instance, checked_items
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known, shown, unknown
from jaxmbd.model.body.checks import check_name
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import TIME, channel_units
from jaxmbd.model.sensor import Measure, Scaled
from jaxmbd.state.output_channels import Snapshot, channel_values
from jaxmbd.user_functions import lifted, user_array


class ChannelName(eqx.Module):
    """A quantity of the motion by its name, which is static, so that events can be returned from `jax.vmap`."""

    name: str = eqx.field(static=True)


Quantity: TypeAlias = ChannelName | Function


def as_quantity(of: Any) -> Any:
    """`ChannelName(of)` for a string, anything else unchanged."""
    return ChannelName(of) if isinstance(of, str) else of


def _check_kind(what: str, of: Any) -> None:
    if not isinstance(of, ChannelName) and (not callable(of) or isinstance(of, type)):
        raise MechanismError(
            f"{what} must be the name of a quantity, such as 'ball.y', or a function of a Snapshot, got {shown(of)}."
        )


_POSITIONS = ("m", "rad")


class AbstractAction(eqx.Module):
    """The action of an event.

    `stops`: true if the motion ends. `returns`: true if the quantity rebounds from the value instead of passing it.
    `clear`: true if it is an error to start beyond the value. `logged`: true if it stands in the log.
    """

    stops: ClassVar[bool] = False
    returns: ClassVar[bool] = False
    clear: ClassVar[bool] = False
    logged: ClassVar[bool] = True

    def along(self, of: Quantity) -> Quantity | None:
        """The quantity of position along which an impulse acts, for an event that watches `of`."""
        return None


class Stop(AbstractAction):
    """End the motion: later times of the solution are replaced by that of the event."""

    stops: ClassVar[bool] = True
    clear: ClassVar[bool] = True


class LogOnly(AbstractAction):
    """Log the event only; the motion is not changed."""


class AbstractImpact(AbstractAction):
    """An impulse p along a coordinate `s(q)`: `M Δv + Cᵀ Λ = Gᵀ p`, `C Δv = 0`, with `G = ∂ṡ/∂v`."""

    coordinate: eqx.AbstractVar[Quantity | None]
    clear: ClassVar[bool] = True

    def along(self, of: Quantity) -> Quantity | None:
        return of if self.coordinate is None else self.coordinate


class Bounce(AbstractImpact):
    """An impact with Newton's law of restitution, `ṡ⁺ = −e ṡ⁻`.

    **Arguments:** `restitution` e, from 0 (the rate becomes zero) to 1 (no energy is lost); `coordinate`, along which
    the impulse acts, a name or a function of position, by default the quantity of the event.

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
    """An impact after which a coordinate's rate is zero, `ṡ⁺ = 0`, and a lock of the coordinate, `s̈ = 0`.

    **Arguments:** `coordinate`, a name or a function of position, by default the quantity of the event. A `Release`
    with the event's name opens the latch.
    """

    coordinate: Quantity | None = eqx.field(converter=as_quantity, default=None)

    def __check_init__(self) -> None:
        if self.coordinate is not None:
            _check_kind("Latch: coordinate", self.coordinate)


class Release(AbstractAction):
    """Open latches: `latches` are the names of the events that closed them."""

    latches: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, *latches: str) -> None:
        for name in latches:
            check_instance("Release: each argument", name, str, "the name of an event that latches, such as 'catch'")
        if not latches:
            raise MechanismError("Release() opens nothing: name the events whose latches it opens, Release('catch').")
        self.latches = latches


class Event(eqx.Module):
    """An event: an action that is triggered when a scalar quantity of the motion crosses a value.

    **Arguments:** `name`; `quantity`, the name of any scalar quantity (`"ball.y"`, `"O.angle_rate"`, `"spring.length"`,
    a sensor; `"t"`, the time `[s]`; `"catch.effort"`, the force or torque of the latch that the event `"catch"` has
    closed), or a function of a `Snapshot` (an equinox module is differentiated with respect to its arrays); one of
    `below` (the value is crossed downward), `above` (upward) and `at` (either way), in the quantity's unit; `then`, the
    action: `Stop()`, `Bounce(restitution)`, `Latch()`, `Release("catch")`, `Switch("motor", on=False)`,
    `Change(where, value)` or `LogOnly()`.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> wall = mbd.Event("wall", "O.angle", below=-2.0, then=mbd.Stop())
        >>> start = mbd.assemble(pendulum, {"O.angle": 0.0})
        >>> motion = mbd.simulate(pendulum, start, np.linspace(0.0, 2.0, 41), events=[wall])
        >>> print(motion.events.times_of("wall").round(3))
        [0.69]
    """

    name: str = eqx.field(static=True)
    quantity: Quantity
    level: Scalar
    side: int = eqx.field(static=True)  # sign of quantity − level before the event; 0 for either
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
        levels = {side: value for side, value in ((1, below), (-1, above), (0, at)) if value is not None}
        if len(levels) != 1:
            raise MechanismError(f"Event {name!r}: give one of below, above and at, got {len(levels)} of them.")
        if not isinstance(then, AbstractAction):
            raise MechanismError(
                f"Event {name!r}: then must be Stop(), Bounce(restitution), Latch(), Release(name), Switch(force, on), "
                f"Change(where, value) or LogOnly(), got {then!r}."
            )
        ((self.side, level),) = levels.items()
        self.name, self.level, self.then = name, as_float(level), lifted(then)
        self.quantity = as_quantity(lifted(quantity))
        _check_kind(f"Event {name!r}: quantity", self.quantity)
        check_finite(f"Event {name!r}", "the value that is crossed", self.level)


def checked_events(events: Any, room: Any) -> tuple[Event, ...]:
    """The events as a tuple; raise for what is none, and unless `room` is the number of crossings to keep room for."""
    check_count("max_events", room, 1)
    if isinstance(events, Event):
        raise MechanismError(f"events must be a sequence of events, such as [{events.name}], got one Event.")
    need = "a sequence of events, such as [Event(name, quantity, below=0.0)]"
    checked = checked_items("events", events, need)
    for event in checked:
        if not isinstance(event, Event):
            raise MechanismError(f"events must be Event(name, quantity, below=..., then=...), got {event!r}.")
    names = [event.name for event in checked]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise MechanismError(f"Two events are named {sorted(repeated)[0]!r}; each needs a name of its own.")
    return checked


def check_events(mechanism: Mechanism, events: Sequence[Event]) -> None:
    """Raise for events that do not fit the mechanism."""
    if not events:
        return
    latches = [event.name for event in events if isinstance(event.then, Latch)]
    equations, known = Equations(mechanism), channel_units(mechanism)
    taken = [name for name in latches if effort_of(name) in known]
    if taken:
        raise MechanismError(
            f"Event {taken[0]!r}: {effort_of(taken[0])!r} would be the effort of its latch and that of the part "
            f"{taken[0]!r}; give the event another name."
        )
    for event in events:
        _check_quantity(equations, event, event.quantity, [*map(effort_of, latches)])
        along = event.then.along(event.quantity)
        if along is not None:
            _check_quantity(equations, event, along, ())
            _check_position(mechanism, event, along)
        check_known(
            f"latch for the event {event.name!r} to release",
            event.then.latches if isinstance(event.then, Release) else (),
            latches,
        )


def _check_quantity(equations: Equations, event: Event, of: Quantity, efforts: Sequence[str]) -> None:
    if isinstance(of, ChannelName) and of.name in (TIME, *efforts):
        return
    known = channel_units(equations.mechanism)
    if isinstance(of, ChannelName) and of.name not in known:
        raise unknown(f"quantity for the event {event.name!r}", of.name, (*known, *efforts))
    at = Snapshot.at_rest(equations, jnp.zeros(()), jnp.zeros(equations.mechanism.nq))
    if isinstance(of, ChannelName):
        shape = eqx.filter_eval_shape(read_one, equations, of, at).shape
    else:
        takes = lambda at: user_array(f"Event {event.name!r}", "function", of, at, takes="snapshot")  # noqa: E731
        shape = eqx.filter_eval_shape(takes, at).shape
    if shape != ():
        raise MechanismError(
            f"Event {event.name!r}: what it watches must be a number; {_in_words(of)} has shape {shape}. Take one "
            "component, with a function of a Snapshot or a Measure."
        )


def _check_position(mechanism: Mechanism, event: Event, along: Quantity) -> None:
    kind, unit = type(event.then).__name__, unit_of(mechanism, along)
    if unit not in (*_POSITIONS, ""):
        raise MechanismError(
            f"Event {event.name!r}: {kind} acts along a position [m or rad], and {_in_words(along)} is in {unit}. Name "
            f"the coordinate that changes: {kind}(coordinate='...')."
        )


def effort_of(latch: str) -> str:
    """The name of the force or torque of a latch, as a quantity of events; `latch`: the event that closes it."""
    return f"{latch}.effort"


def is_position(mechanism: Mechanism, of: Quantity) -> bool:
    """True if a quantity is known to depend on the position and the time only."""
    own = [sensor.name for sensor in mechanism.sensors if isinstance(sensor, Measure | Scaled)]
    return isinstance(of, ChannelName) and of.name not in own and unit_of(mechanism, of) in (*_POSITIONS, "s")


def unit_of(mechanism: Mechanism, of: Quantity) -> str:
    """The unit of a quantity, empty where it is not known."""
    if isinstance(of, ChannelName) and of.name == TIME:
        return "s"
    return channel_units(mechanism).get(of.name, "") if isinstance(of, ChannelName) else ""


def _in_words(of: Quantity) -> str:
    return repr(of.name) if isinstance(of, ChannelName) else "the function's result"


def read_one(equations: Equations, of: Quantity, at: Snapshot) -> Any:
    """The value of a quantity in a snapshot."""
    return channel_values(equations, (of.name,), at)[of.name] if isinstance(of, ChannelName) else jnp.asarray(of(at))
