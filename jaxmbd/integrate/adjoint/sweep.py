"""Sweeps over the accepted steps of a motion: forward, for outputs or checkpoints, and backward, for cotangents.

Checkpoints are states at the start of accepted steps, in a store of fixed size. The number of steps is not known before
the run. While there is room, the state at each step is stored; then only every second, fourth, … one, and each new
checkpoint overwrites one that is no longer needed.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from jaxmbd.arrays import Number, replaced
from jaxmbd.integrate.adjoint.steps import (
    KNOWN,
    TIME,
    AbstractSteps,
    Dense,
    InputParts,
    Outputs,
    is_inexact,
)
from jaxmbd.integrate.solvers.switching import nudge_of
from jaxmbd.upstream.equinox_internals import while_loop, write_row


class CheckpointStore(eqx.Module):
    """The times of all accepted steps, and checkpoints of the state at the start of every `2**level`-th one.

    `states`: arrays with `rows` rows for checkpoints and one more for discarded writes; `starts`, `ends`
    `(max_steps,)` `[s]`. In a loop these arrays are its buffers.
    """

    states: Any
    starts: Any
    ends: Any
    rows: int = eqx.field(static=True)
    levels: int = eqx.field(static=True)

    @classmethod
    def empty(cls, state: PyTree[Array], t: Number, rows: int, max_steps: int) -> "CheckpointStore":
        rows = min(rows, max_steps)
        levels = math.ceil(math.log2(max_steps / rows))
        times = jnp.zeros(max_steps, jnp.result_type(t))
        states = jax.tree.map(lambda x: jnp.zeros((rows + 1, *jnp.shape(x)), jnp.result_type(x)), state)
        return cls(states, times, times, rows, levels)

    def with_step(self, i: Int[Array, ""], start: Number, end: Number, state: PyTree[Array]) -> "CheckpointStore":
        """The store with accepted step `i` added, from `start` to `end`, which begins at `state`."""
        is_checkpoint = i % (1 << self.level(i)) == 0
        place = jnp.where(is_checkpoint, self.place(i), self.rows)
        states = jax.tree.map(lambda x, buffer: buffer.at[place].set(x), state, self.states)
        starts, ends = self.starts.at[i].set(start), self.ends.at[i].set(end)
        return CheckpointStore(states, starts, ends, self.rows, self.levels)

    def level(self, i: Int[Array, ""]) -> Int[Array, ""]:
        """The least level at which checkpoints of the steps `0 … i` fit into the store: `i < rows 2**level`."""
        return sum((jnp.asarray(i >= self.rows << k, int) for k in range(self.levels)), jnp.zeros((), int))

    def place(self, i: Int[Array, ""]) -> Int[Array, ""]:
        """The row of checkpoint `i`: the `j`-th new one of a level overwrites the `j`-th one that the level drops."""
        for _ in range(self.levels):
            level = self.level(i)
            half = jnp.maximum(level - 1, 0)
            j = (i - (self.rows << half)) >> level
            i = jnp.where(level > 0, (2 * j + 1) << half, i)
        return i

    def space(self) -> Any:
        """Zeros for the states of all steps from one checkpoint to the next."""
        return jax.tree.map(lambda x: jnp.zeros((1 << self.levels, *x.shape[1:]), x.dtype), self.states)

    def state(
        self, i: Int[Array, ""], last: Int[Array, ""], between: Any, advance: Callable[[Int[Array, ""], Any], Any]
    ) -> tuple[Any, Any]:
        """The state at step `i`, and `between`, the states since the last checkpoint before it.

        To be called for all steps in reverse order, from `last` to the first. At the first call in each interval
        between checkpoints its states are recomputed, where `advance(j, state)` performs step `j`.
        """
        level = self.level(last)
        start = (i >> level) << level
        recompute = (i == last) | ((i + 1) % (1 << level) == 0)
        # Written with `pred`, not chosen afterwards: a choice between two buffers would copy all of them at each step.
        place = self.place(start)
        between = jax.tree.map(
            lambda checkpoints, rows: write_row(rows, 0, checkpoints[place], pred=recompute),  # pyright: ignore
            self.states,
            between,
        )

        def repeat_step(carry: Any) -> Any:
            j, rows = carry
            state = advance(j, self._row(rows, j - start))
            return j + 1, jax.tree.map(lambda x, buffer: buffer.at[j - start + 1].set(x), state, rows)

        begin = jnp.where(recompute, start, i)
        _, between = while_loop(
            lambda carry: carry[0] < i, repeat_step, (begin, between), buffers=lambda carry: carry[1]
        )
        return self._row(between, i - start), between

    def _row(self, rows: Any, j: Int[Array, ""]) -> Any:
        return jax.tree.map(lambda _, x: x[j], self.states, rows)


class StepSchedule(NamedTuple):
    """The accepted steps of a run, which are constants in derivatives.

    `starts`, `ends` `(max_steps,)` [s]; `accepted`, the number of steps; `saved`, for each set of times the number of
    those that were saved; `kinds (max_steps,)`, which of the steps are events, `None` for a motion without events.
    """

    starts: Array
    ends: Array
    accepted: Int[Array, ""]
    saved: list[Int[Array, ""]]
    kinds: Array | None = None

    def kind(self, i: Array) -> Array | None:
        """The number of what step `i` is (`AbstractSteps`)."""
        return None if self.kinds is None else self.kinds[i]

    def is_event(self, i: Array) -> Bool[Array, ""]:
        """True if step `i` is an event."""
        if self.kinds is None:
            return jnp.zeros((), bool)
        return (i >= 0) & (i < self.accepted) & (self.kinds[i] != NO_EVENT)

    def starts_after(self, i: Array, t: Array) -> Bool[Array, ""]:
        """True if a saved time is before step `i`: at the time of an event the state after it is saved, and the first
        step takes all that are left."""
        at_event = self.is_event(i - 1) & (t >= self.starts[i])
        return ~((i == 0) | (t > self.starts[i]) | at_event) | self.is_event(i)

    def ends_before(self, i: Array, t: Array) -> Bool[Array, ""]:
        """True if a saved time is after step `i`; the last step takes all times that are left, whatever rounding says
        of its end."""
        inside = jnp.where(self.is_event(i + 1), t < self.ends[i], (t <= self.ends[i]) | (i == self.accepted - 1))
        return ~inside | self.is_event(i)


NO_EVENT = -1  # the kind of a step that is none, as `NOTHING` in `motion.h`


def ends_of(steps: AbstractSteps, schedule: StepSchedule, times: Sequence[Array], i: Array) -> list[Array]:
    """The ends of step `i`, moved inside it from switching times, and their tangents: only the first start, the last
    end and those at switching times depend on times."""
    moves, zero = _at_ends(schedule, times, i), jnp.zeros_like(schedule.starts[0])
    ends = [schedule.starts[i], schedule.ends[i]]
    switches, at_switch = steps.switches(times), _at_switches(steps, schedule, times, i)
    if at_switch:
        nudge = nudge_of(*ends)
        start = ends[0] + jnp.where(at_switch[0][1], nudge, zero)
        ends = [start, jnp.where(at_switch[1][1], jnp.maximum(ends[1] - nudge, start), ends[1])]
    for component in range(1, steps.components):
        each = [jnp.where(moves[k], steps.time(times, k)[component], zero) for k in (0, 1)]
        for k, (place, is_one) in enumerate(at_switch):
            each[k] = jnp.where(is_one, switches[component][place], each[k])
        ends += each
    return ends


def _at_switches(
    steps: AbstractSteps, schedule: StepSchedule, times: Sequence[Array], i: Array
) -> list[tuple[Array, Array]]:
    """For the start and the end of step `i` the number of the switching time that it may be, and whether it is; empty
    if there are none."""
    if not steps.has_switches:
        return []
    switches = steps.switches(times)[0]
    found = []
    for t in (schedule.starts[i], schedule.ends[i]):
        place = jnp.minimum(jnp.searchsorted(switches, t), len(switches) - 1)
        found.append((place, (switches[place] == t) & ~schedule.is_event(i)))
    return found


def _at_ends(schedule: StepSchedule, times: Sequence[Array], i: Array) -> tuple[Array, Array]:
    """Two flags: step `i` starts at `t₀`; step `i` ends at `t₁` (not if an event ends the motion earlier)."""
    last = (i == schedule.accepted - 1) | (schedule.kinds is not None)  # an event may follow
    return i == 0, last & ~schedule.is_event(i) & (schedule.ends[i] >= times[1])


# --- forward ------------------------------------------------------------------------------------------------


class _ForwardCarry(eqx.Module):
    """The carry of the forward sweep: the value, for each set of times the next one to be saved, and the outputs."""

    i: Int[Array, ""]
    value: list[Array]
    next: list[Int[Array, ""]]
    rows: list[list[Any]]
    log: list[Array]
    last: Any
    record: CheckpointStore | None


def forward(steps: AbstractSteps, x: Sequence[Array], schedule: StepSchedule, recorded: bool = False) -> Any:
    """The outputs of the steps, or, if `recorded`, the checkpoints."""
    value, known, times = steps.split(x)
    value = [jnp.asarray(a) for a in value]
    start = jnp.zeros((), int)
    record = CheckpointStore.empty(value, schedule.starts[0], steps.rows, len(schedule.starts)) if recorded else None
    outputs, last = steps.unflat([jnp.zeros(like.shape, like.dtype) for like in steps.outputs]), None
    rows, log = ([], []) if recorded else (outputs.rows, outputs.log)
    # Only its structure is needed, and only that is computed: the carry of a loop has it before the first step.
    if outputs.last is not None and not recorded:
        ends = ends_of(steps, schedule, times, start)
        _, dense = jax.eval_shape(steps.advance, known, value, ends, schedule.kind(start))
        last = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), (dense, ends))

    def advance(carry: _ForwardCarry) -> _ForwardCarry:
        i, ends = carry.i, ends_of(steps, schedule, times, carry.i)
        record = carry.record
        if record is not None:
            record = record.with_step(i, ends[0], ends[1], carry.value)
        value, dense = steps.advance(known, carry.value, ends, schedule.kind(i))
        log = [
            rows.at[steps.row(dense)].set(entry, mode="drop")
            for rows, entry in zip(carry.log, steps.entry(dense) if carry.log else [], strict=True)
        ]
        read = [_read(steps, schedule, times, k, carry, dense, ends) for k in range(len(carry.rows))]
        last = None if carry.last is None else (dense, ends)
        return _ForwardCarry(i + 1, value, [n for n, _ in read], [r for _, r in read], log, last, record)

    carry = _ForwardCarry(start, value, [start for _ in rows], rows, log, last, record)
    carry = while_loop(lambda c: c.i < schedule.accepted, advance, carry, buffers=lambda c: [c.rows, c.record])
    if recorded:
        return carry.record
    return steps.flat(Outputs(carry.rows, [carry.value[i] for i in steps.at_end], carry.last, carry.log))


def _read(
    steps: AbstractSteps,
    schedule: StepSchedule,
    times: Sequence[Array],
    k: int,
    carry: _ForwardCarry,
    dense: Dense,
    ends: Sequence[Array],
) -> tuple[Array, list[Any]]:
    """Interpolate the states at those times of set `k` that lie in the step; the next time, and the saved states."""
    ts, saved = steps.time(times, 2 + k), schedule.saved[k]
    # Also a loop without laps is traced, in which an array without entries cannot be indexed.
    if not len(ts[0]):
        return carry.next[k], carry.rows[k]

    def unfinished(state: Any) -> Array:
        return (state[0] < saved) & ~schedule.ends_before(carry.i, ts[0][state[0]])

    def save(state: Any) -> Any:
        j, rows = state
        y = steps.read(dense, ends, [t[j] for t in ts])
        return j + 1, [row.at[j].set(a) for row, a in zip(rows, y, strict=True)]

    return while_loop(unfinished, save, (carry.next[k], carry.rows[k]), buffers=lambda state: state[1])


# --- backward -----------------------------------------------------------------------------------------------


class _BackwardCarry(eqx.Module):
    """The carry of the backward sweep.

    `left`, for each set of times the last one that is still to be processed; `between`, recomputed states; the
    cotangents of the differentiable arrays of the value at the end of step `i`, of the `known` inputs whose cotangents
    are wanted, and of the times.
    """

    i: Int[Array, ""]
    left: list[Int[Array, ""]]
    between: Any
    value: list[Array]
    known: list[Array]
    times: list[Array] | None


class _TimesCarry(eqx.Module):
    """The last time still to be processed, and cotangents: of the interpolation's data, the step's ends, the times."""

    left: Int[Array, ""]
    dense: Dense
    ends: list[Array]
    ts: Any


class BackwardSweep:
    """The backward sweep: cotangents of the inputs of recorded steps from those of the outputs."""

    def __init__(
        self,
        steps: AbstractSteps,
        x: Sequence[Array],
        schedule: StepSchedule,
        record: CheckpointStore,
        wanted: Sequence[int],
    ) -> None:
        self.steps, self.schedule, self.record, self.wanted = steps, schedule, record, wanted
        self.value, self.known, self.times = steps.split(x)
        kinds = [steps.kinds[k] for k in wanted]
        self.values = [i for i, like in enumerate(steps.parts.value) if is_inexact(like)]
        self.knowns = sorted(place for name, place in kinds if name == KNOWN)
        self.timed = any(name == TIME for name, _ in kinds)

    def run(self, cotangents: Sequence[Array]) -> list[Array]:
        """The cotangents of the inputs with the indices `wanted`, from those of the outputs."""
        steps, count, outputs_bar = self.steps, self.schedule.accepted, self.steps.unflat(cotangents)
        value = [jnp.zeros_like(self.value[i]) for i in self.values]
        for i, cotangent in zip(steps.at_end, outputs_bar.end, strict=True):
            value[self.values.index(i)] = jnp.asarray(cotangent)
        known = [jnp.zeros_like(self.known[j]) for j in self.knowns]
        times = [jnp.zeros_like(t) for t in self.times] if self.timed else None
        left = [saved - 1 for saved in self.schedule.saved]
        carry = _BackwardCarry(count - 1, left, self.record.space(), value, known, times)
        carry = while_loop(
            lambda c: c.i >= 0,
            lambda c: self._step_back(c, outputs_bar),
            carry,
            buffers=lambda c: c.between,
        )
        full = InputParts(
            self._spread(self.values, carry.value, len(steps.parts.value)),
            self._spread(self.knowns, carry.known, len(steps.parts.known)),
            [None] * len(self.times) if carry.times is None else carry.times,
        )
        return steps.joined(full, self.wanted)

    @staticmethod
    def _spread(places: list[int], arrays: list[Array], count: int) -> list[Any]:
        by_place = dict(zip(places, arrays, strict=True))
        return [by_place.get(i) for i in range(count)]

    def _ends(self, i: Array) -> list[Array]:
        return ends_of(self.steps, self.schedule, self.times, i)

    def _advance(self, j: Array, value: list[Array]) -> list[Array]:
        return self.steps.advance(self.known, value, self._ends(j), self.schedule.kind(j))[0]

    def _step_back(self, carry: _BackwardCarry, outputs_bar: Outputs) -> _BackwardCarry:
        """One step backward: `(ȳᵢ, s̄ᵢ, θ̄) = (∂step)ᵀ (ȳᵢ₊₁, s̄ᵢ₊₁)`, with the states saved within the step."""
        i, last = carry.i, carry.i == self.schedule.accepted - 1
        value, between = self.record.state(i, self.schedule.accepted - 1, carry.between, self._advance)
        ends = self._ends(i)
        moving = [value[k] for k in self.values], [self.known[k] for k in self.knowns], ends if self.timed else []

        def step(values: list[Array], knowns: list[Array], step_ends: list[Array]) -> tuple[list[Array], Dense]:
            full = replaced(self.known, self.knowns, knowns), replaced(value, self.values, values)
            y, dense = self.steps.advance(*full, step_ends if self.timed else ends, self.schedule.kind(i))
            return [y[k] for k in self.values], eqx.filter(dense, eqx.is_inexact_array)

        (_, dense), transposed = jax.vjp(step, *moving)
        dense_bar, ends_bar = jax.tree.map(jnp.zeros_like, (dense, ends if self.timed else []))
        if outputs_bar.last is not None:
            more = jax.tree.map(lambda a: jnp.where(last, a, jnp.zeros_like(a)), outputs_bar.last)
            dense_bar = _add(dense_bar, more[0])
            ends_bar = _add(ends_bar, more[1]) if self.timed else []
        if outputs_bar.log:
            row = self.steps.row(dense)
            entry_bar = [x.at[row].get(mode="fill", fill_value=0.0) for x in outputs_bar.log]
            _, logged = jax.vjp(self.steps.entry, dense)
            dense_bar = _add(dense_bar, logged(entry_bar)[0])
        left, times = list(carry.left), carry.times
        for k in range(self.steps.sets):
            if len(self.steps.time(self.times, 2 + k)[0]):
                ts = None if times is None else self.steps.time(times, 2 + k)
                saved_bar = self._times_back(
                    i, _TimesCarry(left[k], dense_bar, ends_bar, ts), k, outputs_bar.rows[k], dense, ends
                )
                left[k], dense_bar, ends_bar = saved_bar.left, saved_bar.dense, saved_bar.ends
                times = None if times is None else self._with_times(times, 2 + k, saved_bar.ts)
        value_bar, known_bar, step_ends_bar = transposed((carry.value, dense_bar))
        if times is not None:
            times = self._with_step_ends(times, _add(step_ends_bar, ends_bar), i)
        return _BackwardCarry(i - 1, left, between, value_bar, _add(carry.known, known_bar), times)

    def _with_times(self, times: list[Array], which: int, ts: list[Array]) -> list[Array]:
        times = list(times)
        times[which :: 2 + self.steps.sets + self.steps.has_switches] = ts
        return times

    def _with_step_ends(self, times: list[Array], ends: list[Array], i: Array) -> list[Array]:
        """The cotangents of times, with those of the ends of step `i` added if these are `t₀`, `t₁` or switching
        times."""
        steps, moves = self.steps, list(_at_ends(self.schedule, self.times, i))
        for k, (place, is_one) in enumerate(_at_switches(steps, self.schedule, self.times, i)):
            changes = [jnp.where(is_one, end, 0.0) for end in ends[k::2]]
            pairs = zip(steps.switches(times), changes, strict=True)
            times = self._with_times(times, 2 + steps.sets, [t.at[place].add(change) for t, change in pairs])
            moves[k] = moves[k] & ~is_one
        for k, does in enumerate(moves):
            pairs = zip(steps.time(times, k), ends[k::2], strict=True)
            times = self._with_times(times, k, [t + jnp.where(does, end, 0.0) for t, end in pairs])
        return times

    def _times_back(
        self, i: Array, carry: _TimesCarry, k: int, saved: list[Array], dense: Dense, ends: list[Array]
    ) -> _TimesCarry:
        """Process the saved times of set `k` in step `i`, backward: the cotangents of their interpolation."""
        ts = self.steps.time(self.times, 2 + k)

        def unfinished(carry: _TimesCarry) -> Array:
            return (carry.left >= 0) & ~self.schedule.starts_after(i, ts[0][carry.left])

        def step(carry: _TimesCarry) -> _TimesCarry:
            t = [x[carry.left] for x in ts]
            cotangent = [x[carry.left] for x in saved]
            if not self.timed:
                _, transposed = jax.vjp(lambda dense: self.steps.read(dense, ends, t), dense)
                return _TimesCarry(carry.left - 1, _add(carry.dense, transposed(cotangent)[0]), [], None)
            _, transposed = jax.vjp(self.steps.read, dense, ends, t)
            dense_bar, ends_bar, t_bar = transposed(cotangent)
            ts_bar = [x.at[carry.left].add(a) for x, a in zip(carry.ts, t_bar, strict=True)]
            return _TimesCarry(carry.left - 1, _add(carry.dense, dense_bar), _add(carry.ends, ends_bar), ts_bar)

        return while_loop(unfinished, step, carry)


def _add(a: PyTree[Array], b: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(jnp.add, a, b)
