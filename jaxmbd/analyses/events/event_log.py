"""The log of the events in a motion, with the reason if one of them halted it."""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.analyses.events.changes import Change, ForceChanges, equations_at
from jaxmbd.analyses.events.event import ChannelName, Event, LogOnly, Quantity
from jaxmbd.analyses.events.event_rules import EventRules
from jaxmbd.analyses.events.impact import Compliance, Latches, latched, with_latches
from jaxmbd.arrays import frozen
from jaxmbd.checks import check_index
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import start_of
from jaxmbd.errors import MechanismError, NoDerivativeError, SolveError, check_known
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.printing import format_number, readable, table
from jaxmbd.state.output_channels import Reader, Snapshot
from jaxmbd.state.result_codes import RESULTS
from jaxmbd.state.state import State, state_of
from jaxmbd.upstream.equinox_internals import with_fields

# The reasons for which events halt a motion, by their codes.
REASONS = {
    1: RESULTS.event_at_start, 2: RESULTS.event_blocked, 3: RESULTS.max_events_reached, 4: RESULTS.event_unknown,
}  # fmt: skip
STARTED, BLOCKED, USED_UP, UNKNOWN = REASONS
_DOUBT = "Whether it happens is uncertain, and derivatives of what follows are no guide to other values of parameters."


class Watched(NamedTuple):
    """What was watched, and how the mechanism moved: the events, without how they change forces; the formulation with
    its latches and the changes of forces in each segment; `redundant`, as of `Equations`; `segments`, which one each
    entry of the log has ended."""

    events: tuple[Event, ...]
    formulation: AbstractFormulation
    changes: ForceChanges | None
    redundant: bool | Array
    segments: Int[Array, " room"]


def watched_events(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events without the changes of forces, which are in the segments: they hold names, which `jax.jit` refuses."""
    return tuple(with_fields(x, then=LogOnly()) if isinstance(x.then, Change) else x for x in events)


class Events(eqx.Module):
    """The log of events in order of time: `count` entries, with room for `room` of them.

    `which (room,)`: the index of each event in `names`, −1 for unused entries; `times (room,)` [s]; `q`, `z`; `before`,
    `after`, the consistent speeds on both sides, `(room, nv)`; `lam (room, m)`, the impulses Λ of the constraints;
    `impulses (room, k)` [N s or N m s] along the coordinates of `Bounce` and `Latch`, in the order of these events, and
    `impulse`, that of the event itself. Unused entries have the time and the state at the end, and zero impulses. All
    arrays are differentiable. Outside `jit`, iteration yields names and times, and `print` shows a table of them.

    `watched`: what was watched, and how. Where a quantity only touches its value, errors of the motion decide whether
    the event happens, and no derivative of what follows can be trusted. `depths (room,)`: how far the quantity of an
    event would go beyond its value before it turned back, if nothing happened; infinite if it would not. `nearest`,
    for each of `names`: about the least distance from its value at which a quantity turned back, so that nothing
    happened; infinite if it never did, NaN if diffrax integrated the motion. `resolution`, for each of `names`: the
    error to expect of the quantity, ten tolerances of its size. All are in the unit of the quantity, without
    derivatives. `grazing` and `near_misses` say where they are less than that error, and `print` tells.
    """

    mechanism: Mechanism
    start_rank: Int[Array, ""]  # of the constraint rows, at assembly
    names: tuple[str, ...] = eqx.field(static=True)
    along: dict[str, Quantity]
    watched: Watched
    count: Int[Array, ""]
    which: Int[Array, " room"]
    times: Float[Array, " room"]
    q: Float[Array, "room nq"]
    z: Float[Array, "room nz"]
    before: Float[Array, "room nv"]
    after: Float[Array, "room nv"]
    impulses: Float[Array, "room k"]
    lam: Float[Array, "room m"]
    trouble: Int[Array, ""]  # 0, or the reason for which the event `names[culprit]` halted the motion
    culprit: Int[Array, ""]
    nearest: Float[Array, " n"]
    resolution: Float[Array, " n"]

    def __repr__(self) -> str:
        return readable(self, self._text, count=0, which=1, times=1, impulses=2, trouble=0)

    def _text(self) -> str:
        entries = list(self)
        trouble = int(self.trouble)
        halted = [*self.doubts(), *([f"The motion came to a halt: {RESULTS[REASONS[trouble]]}"] if trouble else [])]
        if not entries:
            return "\n".join([f"Events: none happened of {', '.join(map(repr, self.names))}", *halted])
        rows, impulses = [["event", "t [s]", "impulse"]], np.asarray(self.impulse)
        for k, (name, t) in enumerate(entries):
            rows.append([name, format_number(t), self._shown(name, impulses[k]) if name in self.along else ""])
        if not self.along:
            rows = [row[:2] for row in rows]
        return "\n".join([f"Events: {len(entries)}, with room for {len(self.times)}", table(rows), *halted])

    def _shown(self, name: str, impulse: float) -> str:
        """An impulse with its unit, as text."""
        of = self.along[name]
        unit = channel_units(self.mechanism).get(of.name, "") if isinstance(of, ChannelName) else ""
        return f"{format_number(impulse)} {({'m': 'N s', 'rad': 'N m s'}).get(unit, '')}".rstrip()

    @property
    def depths(self) -> Float[Array, " room"]:
        """How far the quantity of each event would go beyond its value before it turned back."""
        return frozen(_depths(frozen(self)))

    @property
    def grazing(self) -> Bool[Array, " room"]:
        """True for events whose quantity would go no further beyond its value than the error of the motion."""
        return (self.which >= 0) & (self.depths <= self.resolution[self.which])

    @property
    def near_misses(self) -> Bool[Array, " n"]:
        """For each of `names`, true if its quantity came as near to its value as the error of the motion, and turned
        back."""
        return self.nearest <= self.resolution

    def doubts(self) -> list[str]:
        """What the errors of the motion have decided, as sentences (outside `jit`)."""
        found = []
        try:
            grazing = np.flatnonzero(np.asarray(self.grazing))
        except NoDerivativeError:  # its depths need second derivatives, which an imported FMU does not have
            grazing = ()
        for k in grazing:
            when, depth = format_number(self.times[k]), f"{self.depths[k]:.2g}"
            grazes = f"grazes its value at t = {when} s: its quantity would go only {depth} beyond that"
            found.append((int(self.which[k]), grazes))
        for j in np.flatnonzero(np.asarray(self.near_misses)):
            from_value = f"{max(float(self.nearest[j]), 0.0):.2g}"
            found.append((int(j), f"nearly happened: its quantity turned back {from_value} from its value"))
        return [f"{self.names[j]!r} {how}, and its error may be {self.resolution[j]:.2g}. {_DOUBT}" for j, how in found]

    @property
    def impulse(self) -> Float[Array, " room"]:
        """The impulse of each event along its own coordinate; zero for an event without one."""
        numbers = jnp.asarray([self.names.index(name) for name in self.along], int)
        return jnp.sum(jnp.where(self.which[:, None] == numbers[None, :], self.impulses, 0.0), axis=1)

    def times_of(self, name: str) -> Array:
        """The times [s] of one event (outside `jit`)."""
        check_known("event", [name], self.names)
        return self.times[np.flatnonzero(np.asarray(self.which) == self.names.index(name))]

    def state(self, index: int, side: str = "after") -> State:
        """The state before or after an event, by its index in the log."""
        check_known("side", [side], ("before", "after"))
        check_index("events.state", index, len(self.times), "places for events")
        v = self.before if side == "before" else self.after
        t, q, z = self.times[index], self.q[index], self.z[index]
        return state_of(self.mechanism, t, q, v[index], self.start_rank, z=z)

    def reaction(self, name: str) -> Float[Array, "room efforts"]:
        """The impulsive reaction of a joint on its second body at each event: force [N s] and moment [N m s], in world
        axes, the moment about the joint's marker."""
        parts = self.mechanism.with_reactions()
        check_known("joint or driver", [name], parts)
        if self.mechanism.coordinates != "absolute" and not all(
            isinstance(of, ChannelName) for of in self.along.values()
        ):
            raise MechanismError(
                "The impulses of joints need the coordinates of impacts by name: a function of a Snapshot in joint "
                "coordinates does not say on which bodies it acts."
            )
        return _joint_impulses(self, name)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        for k in range(int(self.count)):
            yield self.names[int(self.which[k])], float(self.times[k])


@cached_on_disk
def _joint_impulses(log: Events, name: str) -> Array:
    """The impulsive reactions, computed in absolute coordinates, where each joint has multipliers."""
    own, along = Equations(log.mechanism), tuple(log.along.values())
    mechanism = log.mechanism.with_coordinates("absolute")
    equations = Equations(mechanism)

    def one(t: Array, q: Array, p: Array) -> Array:
        poses = own.at(t, q).poses().reshape(-1)
        at = equations.at(t, equations.normalize(jnp.pad(poses, (0, mechanism.nq - len(poses)))))
        rest = jnp.zeros(mechanism.nv, q.dtype)
        lam = p @ Compliance(at, along).multipliers
        return Reader(equations, Snapshot(t, at.q, rest, rest, lam)).reaction(name)[-1]

    return jax.vmap(one)(log.times, log.q, log.impulses)


@cached_on_disk
def _depths(log: Events) -> Array:
    """The depths of all entries, infinite for unused ones."""
    (events, formulation, changes, redundant, segments), t = log.watched, log.times
    equations = Equations(log.mechanism, redundant)
    rules, first = EventRules(equations, formulation, events, jnp.zeros((), t.dtype)), jnp.full(1, -jnp.inf, t.dtype)
    latches = with_latches(formulation)

    def one(k: Array, t: Array, q: Array, v: Array, z: Array) -> Array:
        segment = lambda x: x[k][None]  # noqa: E731
        held, here = formulation, equations
        if latches is not None:  # those before the event
            of = latches.latches
            held = latched(latches.of, Latches(of.along, first, segment(of.held), segment(of.values)), latches.parts)
        if changes is not None:
            values = jax.tree.map(segment, changes.values)
            here = equations_at(equations, ForceChanges(first, values, changes.names, changes.places), t)
        return rules.depths(here, held, t, (q, v, start_of(log.mechanism, z, 0)))

    depths = jax.vmap(one)(segments, t, log.q, log.before, log.z)
    return jnp.where(log.which < 0, jnp.inf, depths[jnp.arange(len(t)), log.which])


def raise_if_halted(log: Events, t: Array) -> None:
    """Raise if an event halted the motion, with its name."""
    trouble = int(log.trouble)
    if trouble == 0:
        return
    name, when = log.names[int(log.culprit)], f"At t = {float(t):.6g} s"
    if trouble == USED_UP and not log.watched.events[int(log.culprit)].then.logged:
        raise SolveError(
            f"{when}, {name.partition('.')[0]!r} changes sides without end: its law jumps there, and drives the motion "
            "back from either side. Let the law change over a short way, or raise max_steps if there are that many."
        )
    text = f"{when}, event {name!r}: {RESULTS[REASONS[trouble]]}"
    if trouble == STARTED:
        raise MechanismError(text)
    last = ", ".join(f"{x:.9g}" for x in np.asarray(log.times)[: int(log.count)][-4:])
    more = f" There was room for {len(log.times)}; the last were at {last} s." if trouble == USED_UP else ""
    raise SolveError(text + more)
