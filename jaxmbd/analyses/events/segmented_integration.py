"""Integration of a motion in segments between events, each integrated as a motion without events.

The event function is the minimum over all events of their heights (`event_rules.py`). diffrax detects the step in which
it becomes negative, and bisection of the interpolation gives the time.

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
from jaxtyping import Array

from jaxmbd.analyses.events.changes import ForceChanges, after_event, changes_of, equations_at
from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.events.event_log import BLOCKED, STARTED, UNKNOWN, USED_UP, Events, Watched, watched_events
from jaxmbd.analyses.events.event_rules import EventRules, Standing
from jaxmbd.analyses.events.impact import Latches, positions
from jaxmbd.analyses.events.parts import with_sides_untold
from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import split_integrated, start_of
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.integrate.formulations.newton_closure import MassWeightedCorrection, consistent_speeds
from jaxmbd.integrate.solvers.switching import smallest_gap

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
    happened: Array  # how many events
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
    """A motion that is integrated in segments between events and samples. `solve` integrates one of them; `ts`, the
    times at which the motion is saved; `room`, for how many events."""

    def __init__(
        self, solve: Solve, equations: Equations, formulation: AbstractFormulation, events: tuple[Event, ...],
        ts: Array, room: int,
    ) -> None:  # fmt: skip
        self.rules = EventRules(equations, formulation, events, jnp.asarray(smallest_gap(ts[0], ts[-1])))
        self.solve, self.ts, self.room = solve, ts, room

    def segment(self, carry: _Carry, k: Array) -> tuple[_Carry, _Segment]:
        """Integrate segment `k`, from one event to the next, and apply the event at its end."""
        rules = self.rules
        equations = equations_at(rules.equations, carry.changes, carry.t)
        formulation, numbers = rules.formulation_with(carry.latches), jnp.arange(len(rules.events))
        start = rules.standing(
            equations, formulation, carry.latches, carry.side, numbers == carry.just, carry.t, carry.y
        )
        crossing = start.crossing & ~carry.done
        early = (k == 0) & rules.is_early(start.side)
        trouble = jnp.where(jnp.any(early), STARTED, carry.trouble)
        done, at_once = carry.done | jnp.any(early), jnp.any(crossing)
        height = self._height(equations, start, carry.t)
        until = jnp.clip(rules.next_sample(carry.t, carry.y[2]), carry.t, self.ts[-1])
        t1 = jnp.where(done | at_once, carry.t, until)
        event = dfx.Event(lambda t, y, args, **_: jnp.min(height(args[1], t, y)), Bisection(), direction=False)
        run = self.solve(equations, formulation, carry.t, t1, carry.y, jnp.clip(self.ts, carry.t, t1), event)
        (_, ys), (t, y) = zip(run.ts, run.ys, strict=True)  # pyright: ignore
        t, y = t[0], jax.tree.map(lambda x: x[0], y)
        crossed = run.result == dfx.RESULTS.event_occurred
        heights = height(formulation, t, y)
        is_finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in y[:2]]))
        unknown = jnp.isnan(heights) & is_finite & ~done
        j = jnp.where(at_once, jnp.argmax(crossing), jnp.argmin(heights))
        happens = ~done & (at_once | crossed)
        fires = happens & rules.may_fire(start.side)[j]
        hit = happens & (numbers == j)
        at = rules.equations.at(t, y[0])
        v = consistent_speeds(at, y[1], MassWeightedCorrection())
        jump, blocked = rules.impact(at, carry.latches, v, hit & fires)
        z = rules.passed(equations, t, y, hit & fires, jnp.zeros_like(hit), start.side)
        is_sample = ~done & ~happens & (t < self.ts[-1]) & (run.result == dfx.RESULTS.successful) & rules.samples
        z = jnp.where(is_sample, rules.sampled(equations, t, (*y[:2], z)), z) if rules.samples else z
        own = split_integrated(at.mechanism, z)[0]
        record = _Segment(
            ys, t, y[0], own, v, jump.v, jnp.where(fires, j, -1), jump.impulses, jump.lam, run.stats
        )  # fmt: skip
        full = carry.happened >= self.room
        trouble = jnp.where(fires & blocked, BLOCKED, jnp.where(happens & full & ~blocked, USED_UP, trouble))
        trouble = jnp.where(jnp.any(unknown), UNKNOWN, trouble)
        first = jnp.where(jnp.any(unknown), jnp.argmax(unknown), j)
        after = _Carry(
            t=t,
            y=(*rules.released(at, carry.latches, jnp.where(fires, record.after, y[1]), hit & fires), z),
            side=rules.next_sides(start.side, hit, fires),
            just=jnp.where(happens, j, carry.just),
            latches=self._next_latches(carry.latches, k, t, y[0], hit & fires, happens | is_sample),
            changes=after_event(
                carry.changes, rules.events, rules.equations.mechanism, k, t - rules.gap, j, happens | is_sample, fires
            ),
            happened=carry.happened + happens,
            done=done | ~(happens | is_sample) | (trouble > 0) | jnp.any(hit & fires & rules.flags("stops")),
            trouble=trouble,
            culprit=jnp.where(carry.trouble > 0, carry.culprit, jnp.where(jnp.any(early), jnp.argmax(early), first)),
            result=dfx.RESULTS.where(carry.done | crossed, carry.result, run.result),
        )
        return after, record

    def _height(self, equations: Equations, start: Standing, t0: Array) -> Callable[..., Array]:
        def height(formulation: AbstractFormulation, t: Array, y: Any) -> Array:
            since = jnp.asarray(t) - t0
            distances = self.rules.distances(equations, formulation, t, *y)
            told = jnp.where(start.touching, self.rules.is_told(distances, jnp.zeros_like(distances), since), since > 0)
            heights = start.side * distances / jnp.where(start.touching & told, since, 1.0)
            # Until their signs are told nothing is crossed. The derivative stays, for a quantity that comes back.
            heights += jax.lax.stop_gradient(jnp.where(told, 0.0, 1.0 - heights))
            return jnp.where(start.enabled, heights, jnp.inf)

        return height

    def _next_latches(self, latches: Latches, k: Array, t: Array, q: Array, hit: Array, happens: Array) -> Latches:
        """The latches with those of the segment after the event that fires, in the mask `hit`."""
        held, values = latches.held[k], latches.values[k]
        if any(self.rules.latching):
            closing = self.rules.closes(hit)
            values = jnp.where(closing, positions(self.rules.equations, self.rules.along, t, q), values)
            held = (held | closing) & ~self.rules.opens(hit)
        start = jnp.where(happens, jax.lax.stop_gradient(t) - self.rules.gap, jnp.inf)
        return Latches(
            latches.along,
            latches.starts.at[k + 1].set(start, mode="drop"),
            latches.held.at[k + 1].set(held, mode="drop"),
            latches.values.at[k + 1].set(values, mode="drop"),
        )


def run_with_events(
    solve: Solve, equations: Equations, formulation: AbstractFormulation, y: Any, ts: Array,
    events: tuple[Event, ...], room: int, samples: int, rank: Array, tolerance: Scalar,
) -> tuple[SegmentedRun, AbstractFormulation, ForceChanges | None, Events]:  # fmt: skip
    """The motion from `y = (q, v, z)` over the times `ts`, in segments between events.

    **Arguments:** `room`, for how many events; `samples`, how many there are at most; `rank`, of the constraint rows at
    assembly, which the log keeps; `tolerance`, of the steps.

    **Returns:** the motion; the formulation with the latches, and the changes of forces, at each time; the event log.
    """
    ts = jnp.asarray(ts)
    line, n = SegmentedIntegration(solve, equations, formulation, events, ts, room), len(events)
    segments = room + samples + 1
    k = len(line.rules.along)
    starts = jnp.full(segments, jnp.inf, ts.dtype).at[0].set(-jnp.inf)
    latches = Latches(line.rules.along, starts, jnp.zeros((segments, k), bool), jnp.zeros((segments, k), y[0].dtype))
    nothing, no = jnp.zeros((), int), jnp.zeros((), bool)
    changes = changes_of(equations.mechanism, events, segments, ts.dtype)
    success = jax.tree.map(jnp.asarray, dfx.RESULTS.successful)
    y = _begun(line.rules, equations, formulation, ts[0], y)
    carry = _Carry(ts[0], y, jnp.zeros(n, int), nothing - 1, latches, changes, no, nothing, nothing, nothing, success)
    arrays, fixed = eqx.partition(carry, eqx.is_array)

    def step(arrays: Any, k: Array) -> tuple[Any, _Segment]:
        after, record = line.segment(eqx.combine(arrays, fixed), k)
        return eqx.filter(after, eqx.is_array), record

    arrays, records = jax.lax.scan(step, arrays, jnp.arange(segments))
    end: _Carry = eqx.combine(arrays, fixed)
    ys = _at_times(ts, records, end)
    stats = {name: jnp.sum(value) for name, value in records.stats.items() if name.startswith("num")}
    stats |= {"hindrance": records.stats["hindrance"][0]}
    formulation = line.rules.formulation_with(end.latches)
    log = _event_log(line.rules, formulation, records, end, room, rank, tolerance)
    last = jax.tree.map(lambda x: x[None], (end.t, end.y))
    run = SegmentedRun((jnp.minimum(ts, end.t), last[0]), (ys, last[1]), stats, end.result)
    return run, formulation, end.changes, log


def _begun(rules: EventRules, equations: Equations, formulation: AbstractFormulation, t: Array, y: Any) -> Any:
    """The state at the start of a motion, after what is due there."""
    z = rules.started(equations, formulation, t, y)
    if z is not y[2]:
        own, quadratures = split_integrated(equations.mechanism, z)
        own = with_sides_untold(equations.mechanism, own)
        z = jnp.concatenate([start_of(equations.mechanism, own, 0), quadratures])
    return *y[:2], rules.sampled(equations, t, (*y[:2], z))


def _at_times(ts: Array, records: _Segment, end: _Carry) -> Any:
    """The saved motion, each time from the segment that contains it; the final state for times from the end on."""
    segment = jnp.sum(records.t[None, :] <= ts[:, None], axis=1)
    segment = jnp.minimum(segment, len(records.t) - 1)

    def pick(saved: Array, last: Array) -> Array:
        chosen = saved[segment, jnp.arange(len(ts))]
        return jnp.where((ts >= end.t)[:, None], last[None], chosen)

    return jax.tree.map(pick, records.ys, end.y)


def _event_log(
    rules: EventRules, formulation: AbstractFormulation, records: _Segment, end: _Carry, room: int, rank: Array,
    tolerance: Scalar,
) -> Events:  # fmt: skip
    """The event log, without the segments that ended without an event."""
    events = rules.events
    happened = records.which >= 0
    names, count = tuple(event.name for event in events), jnp.minimum(jnp.sum(happened), room)
    along = {event.name: event.then.along(event.quantity) for event in events}
    there = jnp.arange(room) < count
    place = jnp.where(there, jnp.argsort(~happened, stable=True)[:room], room)
    t, q, z, before, after = (x[place] for x in (records.t, records.q, records.z, records.before, records.after))
    impulses, lam = (jnp.where(there[:, None], x[place], 0.0) for x in (records.impulses, records.lam))
    watched = Watched(
        watched_events(events), formulation, end.changes, rules.equations.redundant, jnp.minimum(place, room)
    )
    return Events(
        rules.equations.mechanism, rank, names, {name: of for name, of in along.items() if of is not None}, watched,
        count, jnp.where(there, records.which[place], -1), t, q, z, before, after, impulses, lam, end.trouble,
        end.culprit, jnp.full(len(events), jnp.nan, t.dtype), rules.resolution(tolerance),
    )  # fmt: skip
