"""Integration of a motion in segments between events, each integrated as a motion without events.

The event function is the minimum over all events of the height `side · (quantity − value)`, where `side` is the sign of
`quantity − value` before the event: a crossing is a zero of it. diffrax detects the step in which it becomes negative,
and bisection of the interpolation gives the time. If a segment starts with a quantity on its value, the height is
divided by the time since the start: the quotient has no zero there, and next to it the sign of the rate, so that a
rebound shorter than a step is detected.

The number of segments is one more than `max_events`, so that shapes are static; unused segments have zero length and no
steps. Event times are differentiable (by the implicit function theorem, in optimistix).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.events.changes import ForceChanges, after_event, changes_of, equations_at
from jaxmbd.analyses.events.event import (
    Bounce,
    ChannelName,
    Event,
    Latch,
    Release,
    effort_of,
    is_position,
    read_one,
    unit_of,
)
from jaxmbd.analyses.events.event_log import BLOCKED, STARTED, USED_UP, Events
from jaxmbd.analyses.events.impact import LatchedFormulation, Latches, impact, latched, positions
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import at_integrated, integrated_rates, split_integrated
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, Projection, motion_of
from jaxmbd.integrate.formulations.newton_closure import MassWeightedCorrection, consistent_speeds
from jaxmbd.integrate.solvers.switching import smallest_gap
from jaxmbd.state.output_channels import Snapshot

# In units of rounding, of the value and of the mechanism's units: a smaller distance from a value, or a smaller rate,
# counts as zero.
_NEAR = 2.0**10

Solve = Callable[..., dfx.Solution]


class SegmentedRun(NamedTuple):
    """The part of diffrax's solution that a motion needs: times and `(q, v, z)`, each at the requested times and at the
    end."""

    ts: tuple[Array, Array]
    ys: tuple[Any, Any]
    stats: dict[str, Any]
    result: dfx.RESULTS


class _Carry(NamedTuple):
    t: Array
    y: Any
    side: Array  # (n,) the sign of each quantity minus its value
    just: Array  # the index of the last event, −1 at the start
    latches: Latches
    changes: ForceChanges | None
    done: Array
    trouble: Array
    culprit: Array
    result: dfx.RESULTS


class _Segment(NamedTuple):
    """The results of one segment: the saved motion, its end, and the event there."""

    ys: Any
    t: Array
    q: Array
    z: Array
    before: Array
    after: Array
    which: Array
    impulses: Array
    lam: Array
    stats: dict[str, Any]


class _Interval(eqx.Module):
    lower: Array
    upper: Array


class Bisection(optx.AbstractRootFinder):
    """Bisection of an interval at whose lower end the function is positive, until it is as short as rounding allows.

    `optimistix.Bisection` also requires a small function value, in a unit that is not known here.
    """

    rtol: float = 0.0
    atol: float = 0.0
    norm: Any = eqx.field(static=True, default=optx.max_norm)

    def init(self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any) -> Any:
        dtype = jnp.result_type(y)
        return _Interval(jnp.asarray(options["lower"], dtype), jnp.asarray(options["upper"], dtype))

    def step(self, fn: Any, y: Any, args: Any, options: Any, state: Any, tags: Any) -> Any:
        value, aux = fn(y, args)
        state = _Interval(jnp.where(value > 0, y, state.lower), jnp.where(value > 0, state.upper, y))
        return 0.5 * (state.lower + state.upper), state, aux

    def terminate(self, fn: Any, y: Any, args: Any, options: Any, state: Any, tags: Any) -> Any:
        ends = jnp.maximum(jnp.abs(state.lower), jnp.abs(state.upper))
        width = jnp.asarray(options["upper"] - options["lower"])
        limit = jnp.finfo(ends.dtype).eps * (2 * ends + width)
        return state.upper - state.lower <= limit, optx.RESULTS.successful

    def postprocess(
        self, fn: Any, y: Any, aux: Any, args: Any, options: Any, state: Any, tags: Any, result: Any
    ) -> Any:
        return y, aux, {}


class SegmentedIntegration:
    """The segments of one motion. `solve(equations, formulation, t0, t1, y0, ts, event)` integrates one of them."""

    def __init__(
        self, solve: Solve, equations: Equations, formulation: AbstractFormulation, events: tuple[Event, ...], ts: Array
    ) -> None:
        self.solve, self.equations, self.formulation, self.events, self.ts = solve, equations, formulation, events, ts
        rows = [(j, event.then.along(event.quantity)) for j, event in enumerate(events)]
        self.rows = tuple(j for j, along in rows if along is not None)
        self.along = tuple(along for _, along in rows if along is not None)
        self.latching = tuple(isinstance(events[j].then, Latch) for j in self.rows)
        # If all quantities depend on positions only, the event function needs no forces.
        self.positions = all(is_position(equations.mechanism, event.quantity) for event in events)
        self.levels = jnp.stack([event.level for event in events]).astype(ts.dtype)
        self.sides = jnp.asarray([event.side for event in events])
        scales, quantities = equations.scales, [event.quantity for event in events]
        sizes = [scales.quantity(unit_of(equations.mechanism, of)) for of in quantities]
        # The distances, and the rates, up to which quantities count as being on their values and as resting.
        self.near = _NEAR * jnp.finfo(ts.dtype).eps * (jnp.stack([*map(jnp.asarray, sizes)]) + jnp.abs(self.levels))
        self.slow = self.near / scales.time
        # If accelerations jump within `4 gap` after an event, the next segment starts up to `gap / 4` earlier.
        self.gap = jax.lax.stop_gradient(smallest_gap(ts[0], ts[-1]))

    # --- event functions --------------------------------------------------------------------------------

    def formulation_with(self, latches: Latches) -> AbstractFormulation:
        """The formulation with its latches."""
        return latched(self.formulation, latches) if any(self.latching) else self.formulation

    def distances(
        self, equations: Equations, formulation: AbstractFormulation, t: Array, q: Array, v: Array, z: Array
    ) -> Float[Array, " n"]:
        """The event quantities minus their values."""
        equations = at_integrated(equations, z)
        at = Snapshot.at_rest(equations, t, q)
        if not self.positions:
            motion = motion_of(formulation, equations, t, q, v)
            at = Snapshot(t, q, motion.v, motion.vdot, motion.lam, at.z)
        return jnp.stack([self._quantity(equations, formulation, event, at) for event in self.events]) - self.levels

    def _quantity(self, equations: Equations, formulation: AbstractFormulation, event: Event, at: Snapshot) -> Array:
        name = event.quantity.name if isinstance(event.quantity, ChannelName) else ""
        latches = [self.events[j].name if held else "" for j, held in zip(self.rows, self.latching, strict=True)]
        efforts = [effort_of(latch) if latch else None for latch in latches]
        if name not in efforts:
            return read_one(equations, event.quantity, at)
        inner = formulation.base if isinstance(formulation, Projection) else formulation
        assert isinstance(inner, LatchedFormulation)
        return inner.efforts(equations, at.t, at.q, at.v)[efforts.index(name)]

    def distances_and_rates(
        self, equations: Equations, formulation: AbstractFormulation, t: Array, y: Any
    ) -> tuple[Array, Array]:
        """The distances from the values, and their rates."""
        q, v, z = y
        rates = jnp.zeros_like(v), jnp.zeros_like(z)
        if not self.positions:
            there = at_integrated(equations, z)
            motion = motion_of(formulation, there, t, q, v)
            own = integrated_rates(there.at(t, q), motion.v)
            rates = motion.rate, rates[1].at[: len(own)].set(own)
        along = jnp.ones_like(t), equations.rate(t, q, v), *rates
        return jax.jvp(lambda *at: self.distances(equations, formulation, *at), (t, q, v, z), along)

    # --- one segment ------------------------------------------------------------------------------------

    def segment(self, carry: _Carry, k: Array) -> tuple[_Carry, _Segment]:
        """Integrate segment `k`, from one event to the next, and apply the event at its end."""
        equations = equations_at(self.equations, carry.changes, carry.t)
        formulation = self.formulation_with(carry.latches)
        side, enabled, touching, crossing = self._status_at_start(carry, equations, formulation)
        # Events that must not be beyond their value at the start of the motion, but are.
        early = (k == 0) & self._flags("clear") & (self.sides != 0) & (side != self.sides)
        trouble = jnp.where(jnp.any(early), STARTED, carry.trouble)
        done, at_once = carry.done | jnp.any(early), jnp.any(crossing)
        height = self._height(equations, side, enabled, touching, carry.t)
        t1 = jnp.where(done | at_once, carry.t, self.ts[-1])
        event = dfx.Event(lambda t, y, args, **_: jnp.min(height(args[1], t, y)), Bisection(), direction=False)
        run = self.solve(equations, formulation, carry.t, t1, carry.y, jnp.clip(self.ts, carry.t, t1), event)
        (_, ys), (t, y) = zip(run.ts, run.ys, strict=True)  # pyright: ignore
        t, y = t[0], jax.tree.map(lambda x: x[0], y)
        crossed = run.result == dfx.RESULTS.event_occurred
        j = jnp.where(at_once, jnp.argmax(crossing), jnp.argmin(height(formulation, t, y)))
        happens = ~done & (at_once | crossed)
        fires = happens & ((self.sides[j] == 0) | (self.sides[j] == side[j]))
        record, blocked = self._apply_event(carry.latches, t, y, j, fires, ys, run.stats)
        last = k == carry.latches.starts.shape[0] - 1
        trouble = jnp.where(fires & blocked, BLOCKED, jnp.where(happens & last & ~blocked, USED_UP, trouble))
        after = _Carry(
            t=t,
            y=(y[0], jnp.where(fires, record.after, y[1]), y[2]),
            side=self._next_sides(side, j, happens, fires),
            just=jnp.where(happens, j, carry.just),
            latches=self._next_latches(carry.latches, k, t, y[0], j, happens, fires),
            changes=after_event(
                carry.changes, self.events, self.equations.mechanism, k, t - self.gap, j, happens, fires
            ),
            done=done | ~happens | (trouble > 0) | (fires & self._flags("stops")[j]),
            trouble=trouble,
            culprit=jnp.where(carry.trouble > 0, carry.culprit, jnp.where(jnp.any(early), jnp.argmax(early), j)),
            result=dfx.RESULTS.where(carry.done | crossed, carry.result, run.result),
        )
        return after, record

    def _flags(self, name: str) -> Bool[Array, " n"]:
        return jnp.asarray([getattr(event.then, name) for event in self.events])

    def _is_latched(self, latches: Latches, t: Array) -> Bool[Array, " n"]:
        """Mask of the events whose latch is closed."""
        none = jnp.zeros(len(self.events), bool)
        return none.at[jnp.asarray(self.rows, int)].set(latches.at(t)[0]) if self.rows else none

    def _status_at_start(
        self, carry: _Carry, equations: Equations, formulation: AbstractFormulation
    ) -> tuple[Array, Array, Array, Array]:
        """Four arrays at the start of a segment: the side of each quantity; true if its event is enabled; true if it is
        on its value; true if it crosses its value there, with a rate through it or by a jump."""
        distance, rate = self.distances_and_rates(equations, formulation, carry.t, carry.y)
        distance, rate = jax.lax.stop_gradient((distance, rate))
        enabled = ~self._is_latched(carry.latches, carry.t)
        just = jnp.arange(len(self.events)) == carry.just
        touching = jnp.abs(distance) <= self.near * jnp.where(just, _NEAR, 1.0)
        leaving = jnp.where(self.sides == 0, jnp.where(rate < 0, -1, 1), self.sides)
        current = jnp.where(touching, leaving, jnp.where(distance < 0, -1, 1))
        side = jnp.where(carry.side == 0, current, carry.side)
        through = jnp.where(touching, side * rate < -self.slow, side * distance < 0)
        return side, enabled, touching, enabled & through & ~carry.done

    def _height(
        self, equations: Equations, side: Array, enabled: Array, touching: Array, t0: Array
    ) -> Callable[..., Array]:
        def height(formulation: AbstractFormulation, t: Array, y: Any) -> Array:
            t = jnp.asarray(t)
            # Earlier, the sign of a quantity on its value is undetermined.
            after = t > t0 + jnp.where(touching, 5 * self.gap, 0.0)
            since = jnp.where(touching & after, t - t0, 1.0)
            heights = side * self.distances(equations, formulation, t, *y) / since
            return jnp.where(enabled, jnp.where(after, heights, 1.0), jnp.inf)

        return height

    # --- actions ----------------------------------------------------------------------------------------

    def _apply_event(
        self, latches: Latches, t: Array, y: Any, j: Array, fires: Array, ys: Any, stats: Any
    ) -> tuple[_Segment, Array]:
        at, k = self.equations.at(t, y[0]), len(self.rows)
        v = consistent_speeds(at, y[1], MassWeightedCorrection())
        none, no = jnp.zeros(k + self.equations.m, v.dtype), jnp.zeros((), bool)
        z = split_integrated(at.mechanism, y[2])[0]
        record = _Segment(ys, t, y[0], z, v, v, jnp.where(fires, j, -1), none[:k], none[k:], stats)
        if not self.rows:
            return record, no
        hit = fires & (jnp.asarray(self.rows) == j)
        actions = [self.events[i].then for i in self.rows]
        restitution = jnp.stack([a.restitution if isinstance(a, Bounce) else jnp.zeros(()) for a in actions])
        jump = impact(at, self.along, v, hit, latches.at(t)[0], restitution.astype(v.dtype))
        struck = jnp.any(hit) & ~jump.blocked
        after, p, lam = (
            jnp.where(struck, x, old) for x, old in ((jump.v, v), (jump.impulses, none[:k]), (jump.lam, none[k:]))
        )
        return record._replace(after=after, impulses=p, lam=lam), jump.blocked

    def _next_sides(self, side: Array, j: Array, happens: Array, fires: Array) -> Array:
        """The sides after event `j`: its own is reversed unless the quantity rebounds."""
        passes = happens & ~(fires & self._flags("returns")[j])
        return jnp.where(passes & (jnp.arange(len(side)) == j), -side, side)

    def _next_latches(
        self, latches: Latches, k: Array, t: Array, q: Array, j: Array, happens: Array, fires: Array
    ) -> Latches:
        """The latches with those of the next segment."""
        held, values = latches.held[k], latches.values[k]
        if any(self.latching):
            closing = fires & jnp.asarray(self.latching) & (jnp.asarray(self.rows) == j)
            values = jnp.where(closing, positions(self.equations, self.along, t, q), values)
            held = (held | closing) & ~(fires & self._opens()[j])
        start = jnp.where(happens, jax.lax.stop_gradient(t) - self.gap, jnp.inf)
        return Latches(
            latches.along,
            latches.starts.at[k + 1].set(start, mode="drop"),
            latches.held.at[k + 1].set(held, mode="drop"),
            latches.values.at[k + 1].set(values, mode="drop"),
        )

    def _opens(self) -> Bool[Array, "n k"]:
        """For each event, the mask of the latches that it opens."""
        names = [event.then.latches if isinstance(event.then, Release) else () for event in self.events]
        return jnp.asarray([[self.events[j].name in released for j in self.rows] for released in names])


def run_with_events(
    solve: Solve, equations: Equations, formulation: AbstractFormulation, y: Any, ts: Array,
    events: tuple[Event, ...], room: int, rank: Array,
) -> tuple[SegmentedRun, AbstractFormulation, ForceChanges | None, Events]:  # fmt: skip
    """The motion from `y = (q, v, z)` over the times `ts`, in segments between events.

    **Arguments:** `room`, for how many events; `rank`, of the constraint rows at assembly, which the log keeps.

    **Returns:** the motion; the formulation with the latches, and the changes of forces, at each time; the event log.
    """
    ts = jnp.asarray(ts)
    line, n, segments = SegmentedIntegration(solve, equations, formulation, events, ts), len(events), room + 1
    k = len(line.along)
    starts = jnp.full(segments, jnp.inf, ts.dtype).at[0].set(-jnp.inf)
    latches = Latches(line.along, starts, jnp.zeros((segments, k), bool), jnp.zeros((segments, k), y[0].dtype))
    nothing, no = jnp.zeros((), int), jnp.zeros((), bool)
    changes = changes_of(equations.mechanism, events, segments, ts.dtype)
    success = jax.tree.map(jnp.asarray, dfx.RESULTS.successful)
    carry = _Carry(ts[0], y, jnp.zeros(n, int), nothing - 1, latches, changes, no, nothing, nothing, success)
    arrays, fixed = eqx.partition(carry, eqx.is_array)

    def step(arrays: Any, k: Array) -> tuple[Any, _Segment]:
        after, record = line.segment(eqx.combine(arrays, fixed), k)
        return eqx.filter(after, eqx.is_array), record

    arrays, records = jax.lax.scan(step, arrays, jnp.arange(segments))
    end: _Carry = eqx.combine(arrays, fixed)
    ys = _at_times(ts, records, end)
    stats = {name: jnp.sum(value) for name, value in records.stats.items() if name.startswith("num")}
    stats |= {"hindrance": records.stats["hindrance"][0]}
    log = _event_log(equations, events, records, end, room, rank)
    last = jax.tree.map(lambda x: x[None], (end.t, end.y))
    run = SegmentedRun((jnp.minimum(ts, end.t), last[0]), (ys, last[1]), stats, end.result)
    return run, line.formulation_with(end.latches), end.changes, log


def _at_times(ts: Array, records: _Segment, end: _Carry) -> Any:
    """The saved motion, each time from the segment that contains it; the final state for times from the end on."""
    segment = jnp.sum(records.t[None, :] <= ts[:, None], axis=1)
    segment = jnp.minimum(segment, len(records.t) - 1)

    def pick(saved: Array, last: Array) -> Array:
        chosen = saved[segment, jnp.arange(len(ts))]
        return jnp.where((ts >= end.t)[:, None], last[None], chosen)

    return jax.tree.map(pick, records.ys, end.y)


def _event_log(
    equations: Equations, events: tuple[Event, ...], records: _Segment, end: _Carry, room: int, rank: Array
) -> Events:
    """The event log, without the segments that ended without an event."""
    happened = records.which >= 0
    names, count = tuple(event.name for event in events), jnp.minimum(jnp.sum(happened), room)
    along = {event.name: event.then.along(event.quantity) for event in events}
    there = jnp.arange(room) < count
    place = jnp.where(there, jnp.argsort(~happened, stable=True)[:room], room)
    t, q, z, before, after = (x[place] for x in (records.t, records.q, records.z, records.before, records.after))
    impulses, lam = (jnp.where(there[:, None], x[place], 0.0) for x in (records.impulses, records.lam))
    return Events(
        equations.mechanism, rank, names, {name: of for name, of in along.items() if of is not None}, count,
        jnp.where(there, records.which[place], -1), t, q, z, before, after, impulses, lam, end.trouble, end.culprit,
    )  # fmt: skip
