"""Motions with events in the native time loop: the rules of events (`event_rules.py`) as functions of one instant, of
which the loop runs programs (`erk_events.h`).

What events remember between steps, the memory, is part of the state: it is constant within a step, and an event changes
it. A force that is switched, or a coordinate that is latched, is the same program with other numbers.
"""

from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.events.changes import ForceChanges, changes_of, equations_at, values_after
from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.events.event_log import BLOCKED, STARTED, UNKNOWN, USED_UP, Events, Watched, watched_events
from jaxmbd.analyses.events.event_rules import EventRules
from jaxmbd.analyses.events.impact import Latches, positions
from jaxmbd.analyses.events.segmented_integration import SegmentedRun
from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import split_integrated
from jaxmbd.integrate.adjoint.event_functions import EventMemory
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.integrate.formulations.newton_closure import MassWeightedCorrection, consistent_speeds

# What is due, as in `motion.h`: nothing, the start of the motion, what happens at a switching time, samples among it,
# event `j` here, or, `n` more, at a root.
_NOTHING, _START, _SAMPLE = -1.0, -2.0, -3.0


class Memory(NamedTuple):
    """What events remember, in numbers: of `n` events, `k` latches, `s` switched forces.

    `time` of the last step's end or event; `due`, what is to happen; `logged`, how many events are in the log, and
    `happened`, how many crossings there were of those that are logged; `sampled`, at how many switching times something
    was due; `passed`, how often parts changed without an entry; `halted`, 1
    if an event has ended the motion; `trouble` and `culprit`, as in the log; `since`, when the segment began; `side`,
    `touching`, `enabled`, `just` `(n,)`; `nearest (n,)`, the least height from which each quantity turned back; `held`
    and `values` `(k,)`, of latches; `factors (s,)` and `numbers`, of changed forces.
    """

    time: Array
    due: Array
    logged: Array
    happened: Array
    sampled: Array
    passed: Array
    halted: Array
    trouble: Array
    culprit: Array
    since: Array
    side: Array
    touching: Array
    enabled: Array
    just: Array
    nearest: Array
    held: Array
    values: Array
    factors: Array
    numbers: Array

    @property
    def of_segment(self) -> tuple[Array, ...]:
        """What the equations of a segment depend on, which the log keeps."""
        return self.held, self.values, self.factors, self.numbers


class Room(NamedTuple):
    """How much may happen in a motion: events that are `logged`, and changes of parts, which are not, `passed`."""

    logged: int
    passed: int


class EventPrograms:
    """The rules of events as functions of the state with its memory, as an array."""

    def __init__(
        self, equations: Equations, formulation: AbstractFormulation, events: tuple[Event, ...], gap: Scalar, room: Room
    ) -> None:
        self.rules = EventRules(equations, formulation, events, gap)
        self.mechanism, self.logged = equations.mechanism, self.rules.flags("logged")
        self.room = room if not self.logged.all() else Room(room.logged, 0)
        self.changes = changes_of(equations.mechanism, events, 1, self.rules.near.dtype)
        self.start = self._start()
        self._ends = np.cumsum([np.size(x) for x in self.start])[:-1].tolist()

    def _start(self) -> Memory:
        n, k, dtype = len(self.rules.events), len(self.rules.along), self.rules.near.dtype
        zero, none = jnp.zeros((), dtype), jnp.zeros(n, dtype)
        factors, numbers = (jnp.zeros(0, dtype), []) if self.changes is None else self.changes.values
        flat = [jnp.zeros(0, dtype), *(jnp.ravel(x).astype(dtype) for x in numbers)]
        return Memory(
            zero, zero + _START, zero, zero, zero, zero, zero, zero, zero, zero, none, none, none, none,
            none + jnp.inf, jnp.zeros(k, dtype), jnp.zeros(k, dtype), jnp.ravel(factors), jnp.concatenate(flat),
        )  # fmt: skip

    def packed(self, memory: Memory) -> Array:
        """A memory as one array."""
        return jnp.concatenate([jnp.ravel(jnp.asarray(x, self.rules.near.dtype)) for x in memory])

    def unpacked(self, memory: Array) -> Memory:
        """The memory from an array, or several of them from a matrix."""
        parts = jnp.split(memory, self._ends, axis=-1)
        return Memory(*(x[..., 0] if np.ndim(y) == 0 else x for x, y in zip(parts, self.start, strict=True)))

    def layout(self, first: int, motion: int, switches: int) -> EventMemory:
        """Where the loop finds the memory, which begins at component `first`; `motion`: the size of `(q, v, v, z)`;
        `switches`, how many switching times there are."""
        place: Any = Memory(*(first + np.asarray([0, *self._ends])))
        impulses = len(self.rules.along) + self.rules.equations.m
        entry = 2 + motion + impulses + sum(int(np.size(x)) for x in self.start.of_segment)
        read = place.time, place.due, place.logged, place.halted, place.since, place.touching, place.nearest
        # A quantity that depends on forces may cross its value by a jump at a switching time.
        samples = 0 if self.rules.positions and not self.rules.samples else switches + self.room.passed
        return EventMemory(len(self.rules.events), self.room.logged, entry, *map(int, read), samples=samples)

    # --- the equations of a segment -----------------------------------------------------------------------

    def latches_of(self, memory: Memory) -> Latches:
        """The latches as they are now."""
        return Latches(self.rules.along, jnp.full(1, -jnp.inf), memory.held[None] != 0, memory.values[None])

    def changes_by(self, starts: Array, factors: Array, numbers: Array) -> ForceChanges | None:
        """The changes of forces in segments that begin at `starts`, from rows of numbers."""
        if self.changes is None:
            return None
        shapes = [np.shape(x)[1:] for x in self.changes.values[1]]
        ends = np.cumsum([int(np.prod(shape, dtype=int)) for shape in shapes])[:-1].tolist()
        parts = jnp.split(numbers, ends, axis=-1) if shapes else []
        values = [x.reshape(len(starts), *shape) for x, shape in zip(parts, shapes, strict=True)]
        return ForceChanges(starts, (factors, values), self.changes.names, self.changes.places)

    def at_memory(self, memory: Memory) -> tuple[Equations, AbstractFormulation]:
        """The equations and the formulation as they are now."""
        formulation = self.rules.formulation_with(self.latches_of(memory))
        return equations_at(self.rules.equations, self.changes_of(memory), memory.time), formulation

    def changes_of(self, memory: Memory) -> ForceChanges | None:
        """The changes of forces as they are now."""
        return self.changes_by(jnp.full(1, -jnp.inf), memory.factors[None], memory.numbers[None])

    # --- programs ---------------------------------------------------------------------------------------------

    def guard(self, t: Array, y: tuple[Array, Array, Array], memory: Memory) -> Array:
        """The heights of the events, and their rates."""
        distance, rate = self.rules.distances_and_rates(*self.at_memory(memory), t, y)
        touching = memory.touching != 0
        # A distance over the time since the start is next to that, where rounding hides it, the rate of the distance.
        divides = touching & self.rules.is_told(distance, memory.side * rate, t - memory.since)
        since = jnp.where(divides, t - memory.since, 1.0)
        heights = memory.side * jnp.where(touching & ~divides, rate, distance) / since
        rates = memory.side * rate / since - jnp.where(divides, heights / since, 0.0)
        enabled = memory.enabled != 0
        return jnp.concatenate([jnp.where(enabled, heights, jnp.inf), jnp.where(enabled, rates, 0.0)])

    def effect(
        self, t: Array, y: tuple[Array, Array, Array], memory: Memory
    ) -> tuple[tuple[Array, ...], Memory, Array]:
        """The state after what is due, its memory, and the entry in the log."""
        n, numbers = len(self.rules.events), np.arange(len(self.rules.events))
        latches = self.latches_of(memory)
        hit = (memory.due == numbers) | (memory.due == numbers + n)
        happens, fires = jnp.any(hit), jnp.any(hit & self.rules.may_fire(memory.side))
        q, v, z = y
        at = self.rules.equations.at(t, q)
        before = consistent_speeds(at, v, MassWeightedCorrection()) if self.logged.any() else v
        jump, blocked = self.rules.impact(at, latches, before, hit & fires)
        reverses = self.rules.reverses(hit & fires & blocked, memory.side)
        blocked = blocked & ~jnp.any(reverses)
        noted = happens & jnp.any(hit & self.logged)
        full = jnp.where(noted, memory.happened >= self.room.logged, memory.passed >= self.room.passed)
        trouble = jnp.where(happens & full & ~blocked, float(USED_UP), memory.trouble)
        trouble = jnp.where(fires & blocked, float(BLOCKED), trouble)
        stops = jnp.any(hit & fires & self.rules.flags("stops"))
        sampled = memory.due == _SAMPLE
        z = jnp.where(memory.due == _START, self.rules.started(*self.at_memory(memory), t, y), z)
        is_due = sampled | (memory.due == _START)
        z = jnp.where(is_due, self.rules.sampled(self.at_memory(memory)[0], t, (q, v, z)), z)
        z = self.rules.passed(self.at_memory(memory)[0], t, (q, v, z), hit & fires, reverses, memory.side)
        after = *self.rules.released(at, latches, jnp.where(fires & noted, jump.v, v), hit & fires), z
        new = memory._replace(
            time=t, logged=memory.logged + (fires & noted), happened=memory.happened + noted,
            sampled=memory.sampled + sampled, passed=memory.passed + (happens & ~noted), trouble=trouble,
            culprit=jnp.where(happens & (memory.trouble == 0), jnp.sum(hit * numbers), memory.culprit),
            since=jax.lax.stop_gradient(t), just=jnp.where(happens | sampled, hit * 1.0, memory.just),
            side=self.rules.next_sides(memory.side, hit, fires),
        )  # fmt: skip
        new = self._with_segment(new, t, q, hit & fires & ~reverses)
        own, _ = split_integrated(self.mechanism, z)
        parts = jnp.sum(hit * numbers), t, q, own, before, jump.v, jump.impulses, jump.lam, *new.of_segment
        entry = jnp.concatenate([jnp.ravel(jnp.asarray(x, t.dtype)) for x in parts])
        return after, self._begin(new, t, after, memory.due == _START, stops), entry

    def _with_segment(self, memory: Memory, t: Array, q: Array, fired: Array) -> Memory:
        """The memory with what the event that has fired, in the mask, changes in the equations."""
        held, values, factors, numbers = memory.of_segment
        if any(self.rules.latching):
            closing = self.rules.closes(fired)
            values = jnp.where(closing, positions(self.rules.equations, self.rules.along, t, q), values)
            held = jnp.where(closing, 1.0, jnp.where(self.rules.opens(fired), 0.0, held))
        changes = self.changes_of(memory)
        if changes is not None:
            factors, arrays = values_after(changes, self.rules.events, self.mechanism, 0, fired)
            numbers = jnp.concatenate([numbers[:0], *(jnp.ravel(x).astype(numbers.dtype) for x in arrays)])
        return memory._replace(held=held, values=values, factors=factors, numbers=numbers)

    def _begin(self, memory: Memory, t: Array, y: tuple[Array, ...], is_start: Array, stops: Array) -> Memory:
        """The memory at the start of a segment: how the quantities stand to their values, and what is due there."""
        equations, formulation = self.at_memory(memory)
        standing = self.rules.standing(
            equations, formulation, self.latches_of(memory), memory.side, memory.just != 0, t, y
        )
        early = is_start & self.rules.is_early(standing.side)
        trouble = jnp.where(jnp.any(early), float(STARTED), memory.trouble)
        halted = stops | (trouble != 0)
        due, culprit = jnp.asarray(_NOTHING, t.dtype), memory.culprit
        for j in reversed(range(len(self.rules.events))):  # the first one in their order
            due = jnp.where(standing.crossing[j], float(j), due)
            culprit = jnp.where(early[j], float(j), culprit)
        return memory._replace(
            due=jnp.where(halted, _NOTHING, due), halted=halted * 1.0, trouble=trouble, culprit=culprit,
            side=standing.side * 1.0, touching=standing.touching * 1.0, enabled=standing.enabled * 1.0,
        )  # fmt: skip


def solution_with_events(
    run: dfx.Solution, log: Array, programs: EventPrograms, ts: Array, rank: Array, tolerance: Scalar
) -> tuple[SegmentedRun, AbstractFormulation, ForceChanges | None, Events]:
    """The results of a run in the native loop, as those of an integration in segments are. `log (room, entry)`: the
    entries of its events; `rank`, of the constraint rows at assembly; `tolerance`, of the steps."""
    (ys, end), mechanism, room = run.ys, programs.mechanism, programs.room.logged  # pyright: ignore
    memory, rules = programs.unpacked(end[3][0]), programs.rules
    t1 = memory.time
    over = (ts >= t1) & ((memory.halted != 0) | (run.result == dfx.RESULTS.successful))
    saved = jax.tree.map(lambda x, last: jnp.where(over[:, None], last, x), tuple(ys[:3]), tuple(end[:3]))
    count = jnp.minimum(memory.logged.astype(int), room)
    there = jnp.arange(room) < count
    own, of_segment = len(mechanism.layout.z.sizes), [int(np.size(x)) for x in programs.start.of_segment]
    widths = [1, 1, mechanism.nq, own, mechanism.nv, mechanism.nv, len(rules.along), rules.equations.m, *of_segment]
    parts = jnp.split(log, np.cumsum(widths)[:-1].tolist(), axis=1)
    which, t, q, z, before, after, impulses, lam, *of_segment = parts
    at_end = end[0], split_integrated(mechanism, end[2])[0], end[1], end[1]
    q, z, before, after = (jnp.where(there[:, None], x, y) for x, y in zip((q, z, before, after), at_end, strict=True))
    times = jnp.where(there, t[:, 0], t1)
    starts = jnp.where(there, jax.lax.stop_gradient(times) - rules.gap, jnp.inf)
    starts = jnp.concatenate([jnp.full(1, -jnp.inf, ts.dtype), starts])
    held, values, factors, numbers = (
        jnp.concatenate([first[None], x]) for first, x in zip(programs.start.of_segment, of_segment, strict=True)
    )
    names = tuple(event.name for event in rules.events)
    along = {event.name: event.then.along(event.quantity) for event in rules.events}
    blind = memory.due >= 2 * len(rules.events)  # as in `motion.h`
    trouble, culprit = (
        jnp.where(blind, x, y).astype(int)
        for x, y in ((UNKNOWN, memory.trouble), (memory.due - 2 * len(rules.events), memory.culprit))
    )
    latches = Latches(rules.along, starts, held != 0, values)
    formulation, changes = rules.formulation_with(latches), programs.changes_by(starts, factors, numbers)
    watched = Watched(watched_events(rules.events), formulation, changes, rules.equations.redundant, jnp.arange(room))
    events = Events(
        mechanism, rank, names, {name: of for name, of in along.items() if of is not None}, watched, count,
        jnp.where(there, which[:, 0].astype(int), -1), times, q, z, before, after, impulses, lam,
        trouble, culprit, jnp.where(programs.logged, memory.nearest, jnp.inf), rules.resolution(tolerance),
    )  # fmt: skip
    stats: dict[str, Any] = dict(run.stats)
    begun = memory.due != _START
    entries = (memory.happened + memory.sampled + memory.passed).astype(int) + begun  # the start, too
    stats["num_accepted_steps"] -= entries
    final = SegmentedRun((jnp.minimum(ts, t1), t1[None]), (saved, tuple(end[:3])), stats, run.result)
    return final, formulation, changes, events
