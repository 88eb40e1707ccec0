"""Sweeps over the recorded steps of a motion: forward, with tangents or to make a record, and backward."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxmbd.integrate.adjoint.checkpoint_store import CheckpointStore
from jaxmbd.integrate.adjoint.steps import KNOWN, TIME, AbstractSteps, Outputs, Split, is_inexact
from jaxmbd.integrate.diffrax_binding import while_loop


class Schedule(NamedTuple):
    """The accepted steps of a run, which derivatives hold fixed.

    `starts`, `ends` `(max_steps,)` [s]; how many are accepted; for each set of times how many of them were saved.
    """

    starts: Array
    ends: Array
    accepted: Int[Array, ""]
    saved: list[Int[Array, ""]]


def ends_of(steps: AbstractSteps, schedule: Schedule, times: list[Any], i: Array) -> list[Any]:
    """The ends of step `i`, and their tangents: only the first start and the last end move, with `t₀` and `t₁`."""
    first, last = _moving_ends(schedule, times, i)
    zero = jnp.zeros_like(schedule.starts[0])
    found = [schedule.starts[i], schedule.ends[i]]
    for t0, t1 in list(zip(steps.time(times, 0), steps.time(times, 1), strict=True))[1:]:
        found += [jnp.where(first, t0, zero), jnp.where(last, t1, zero)]
    return found


def _moving_ends(schedule: Schedule, times: list[Any], i: Array) -> tuple[Array, Array]:
    """Whether step `i` starts at `t₀`, and whether it ends at `t₁`, which an event may prevent."""
    return i == 0, (i == schedule.accepted - 1) & (schedule.ends[i] >= times[1])


# --- forward ------------------------------------------------------------------------------------------------


class _Ahead(eqx.Module):
    """What the forward sweep takes from step to step: the value, and for each set of times the next one."""

    i: Int[Array, ""]
    value: list[Array]
    next: list[Int[Array, ""]]
    rows: list[list[Any]]
    last: Any
    record: CheckpointStore | None


def forward(steps: AbstractSteps, x: Sequence[Any], schedule: Schedule, recorded: bool = False) -> Any:
    """The outputs of the steps, or if `recorded` where each step began."""
    value, known, times = steps.split(x)
    value = [jnp.asarray(a) for a in value]
    start = jnp.zeros((), int)
    record = CheckpointStore.empty(value, schedule.starts[0], steps.rows, len(schedule.starts)) if recorded else None
    outputs, last = steps.unflat([jnp.zeros(like.shape, like.dtype) for like in steps.outputs]), None
    rows = [] if recorded else outputs.rows
    if outputs.last is not None and not recorded:
        ends = ends_of(steps, schedule, times, start)
        _, dense = jax.eval_shape(steps.advance, known, value, ends)
        last = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), (dense, ends))

    def advance(carry: _Ahead) -> _Ahead:
        i, ends = carry.i, ends_of(steps, schedule, times, carry.i)
        record = carry.record
        if record is not None:
            record = record.with_step(i, ends[0], ends[1], carry.value)
        value, dense = steps.advance(known, carry.value, ends)
        met = [_read(steps, schedule, times, k, carry, dense, ends) for k in range(len(carry.rows))]
        last = None if carry.last is None else (dense, ends)
        return _Ahead(i + 1, value, [n for n, _ in met], [r for _, r in met], last, record)

    carry = _Ahead(start, value, [start for _ in rows], rows, last, record)
    carry = while_loop(lambda c: c.i < schedule.accepted, advance, carry, buffers=lambda c: [c.rows, c.record])
    if recorded:
        return carry.record
    return steps.flat(Outputs(carry.rows, [carry.value[i] for i in steps.at_end], carry.last))


def _read(
    steps: AbstractSteps, schedule: Schedule, times: list[Any], k: int, carry: _Ahead, dense: Any, ends: list[Any]
) -> tuple[Array, list[Any]]:
    """The states at those times of set `k` that lie in the step."""
    ts, saved, is_last = steps.time(times, 2 + k), schedule.saved[k], carry.i == schedule.accepted - 1
    if not len(ts[0]):
        return carry.next[k], carry.rows[k]

    def further(met: Any) -> Array:
        return (met[0] < saved) & ((ts[0][met[0]] <= ends[1]) | is_last)

    def save(met: Any) -> Any:
        j, rows = met
        y = steps.read(dense, ends, [t[j] for t in ts])
        return j + 1, [row.at[j].set(a) for row, a in zip(rows, y, strict=True)]

    return while_loop(further, save, (carry.next[k], carry.rows[k]), buffers=lambda met: met[1])


# --- backward -----------------------------------------------------------------------------------------------


class _Back(eqx.Module):
    """What the backward sweep takes from step to step.

    `left`, for each set of times the last one not yet met; `between`, states made again; cotangents of the
    differentiable numbers of the value at the end of step `i`, of the known inputs that are wanted, and of times.
    """

    i: Int[Array, ""]
    left: list[Int[Array, ""]]
    between: Any
    value: list[Array]
    known: list[Array]
    times: list[Array] | None


class _Met(eqx.Module):
    """The last time not yet met, and cotangents: of what the interpolation takes, of the step's ends, of the times."""

    left: Int[Array, ""]
    dense: Any
    ends: Any
    ts: Any


class Backward:
    """The cotangents of inputs of recorded steps from those of their outputs."""

    def __init__(
        self, steps: AbstractSteps, x: Sequence[Any], schedule: Schedule, record: CheckpointStore, wanted: Sequence[int]
    ) -> None:
        self.steps, self.schedule, self.record, self.wanted = steps, schedule, record, wanted
        self.value, self.known, self.times = steps.split(x)
        kinds = [steps.kinds[k] for k in wanted]
        self.values = [i for i, like in enumerate(steps.parts.value) if is_inexact(like)]
        self.knowns = sorted(place for name, place in kinds if name == KNOWN)
        self.timed = any(name == TIME for name, _ in kinds)

    def run(self, cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of the wanted inputs."""
        steps, count, given = self.steps, self.schedule.accepted, self.steps.unflat(cotangents)
        value = [jnp.zeros_like(self.value[i]) for i in self.values]
        for i, cotangent in zip(steps.at_end, given.end, strict=True):
            value[self.values.index(i)] = jnp.asarray(cotangent)
        known = [jnp.zeros_like(self.known[j]) for j in self.knowns]
        times = [jnp.zeros_like(t) for t in self.times] if self.timed else None
        left = [saved - 1 for saved in self.schedule.saved]
        carry = _Back(count - 1, left, self.record.space(), value, known, times)
        carry = while_loop(lambda c: c.i >= 0, lambda c: self._back(c, given), carry, buffers=lambda c: c.between)
        full = Split(
            self._at(self.values, carry.value, len(steps.parts.value)),
            self._at(self.knowns, carry.known, len(steps.parts.known)),
            [None] * len(self.times) if carry.times is None else carry.times,
        )
        return steps.joined(full, self.wanted)

    @staticmethod
    def _at(places: list[int], arrays: list[Any], count: int) -> list[Any]:
        mine = dict(zip(places, arrays, strict=True))
        return [mine.get(i) for i in range(count)]

    def _ends(self, i: Array) -> list[Any]:
        return ends_of(self.steps, self.schedule, self.times, i)

    def _advance(self, j: Array, value: list[Any]) -> list[Any]:
        return self.steps.advance(self.known, value, self._ends(j))[0]

    def _back(self, carry: _Back, given: Outputs) -> _Back:
        """One step backward: `(ȳᵢ, s̄ᵢ, θ̄) = (∂step)ᵀ (ȳᵢ₊₁, s̄ᵢ₊₁)`, with what is saved within the step."""
        i, last = carry.i, carry.i == self.schedule.accepted - 1
        value, between = self.record.state(i, self.schedule.accepted - 1, carry.between, self._advance)
        ends = self._ends(i)
        moving = [value[k] for k in self.values], [self.known[k] for k in self.knowns], ends if self.timed else []

        def step(values: list[Any], knowns: list[Any], moved: list[Any]) -> tuple[list[Any], Any]:
            full = _replaced(self.known, self.knowns, knowns), _replaced(value, self.values, values)
            y, dense = self.steps.advance(*full, moved if self.timed else ends)
            return [y[k] for k in self.values], eqx.filter(dense, eqx.is_inexact_array)

        (_, dense), transposed = jax.vjp(step, *moving)
        dense_bar, ends_bar = _zeros(dense), _zeros(ends) if self.timed else []
        if given.last is not None:
            more = jax.tree.map(lambda a: jnp.where(last, a, jnp.zeros_like(a)), given.last)
            dense_bar = _plus(dense_bar, more[0])
            ends_bar = _plus(ends_bar, more[1]) if self.timed else []
        left, times = list(carry.left), carry.times
        for k in range(self.steps.sets):
            if len(self.steps.time(self.times, 2 + k)[0]):
                ts = None if times is None else self.steps.time(times, 2 + k)
                met = self._within(i, _Met(left[k], dense_bar, ends_bar, ts), k, given.rows[k], dense, ends)
                left[k], dense_bar, ends_bar = met.left, met.dense, met.ends
                times = None if times is None else self._with_times(times, 2 + k, met.ts)
        value_bar, known_bar, moved_bar = transposed((carry.value, dense_bar))
        if times is not None:
            times = self._moved(times, _plus(moved_bar, ends_bar), i)
        return _Back(i - 1, left, between, value_bar, _plus(carry.known, known_bar), times)

    def _with_times(self, times: list[Any], which: int, ts: list[Any]) -> list[Any]:
        times = list(times)
        times[which :: 2 + self.steps.sets] = ts
        return times

    def _moved(self, times: list[Any], ends: list[Any], i: Array) -> list[Any]:
        """The cotangents of times, with those of the ends of step `i` as far as these move with `t₀` and `t₁`."""
        first, last = _moving_ends(self.schedule, self.times, i)
        starts = [t + jnp.where(first, e, 0.0) for t, e in zip(self.steps.time(times, 0), ends[::2], strict=True)]
        finals = [t + jnp.where(last, e, 0.0) for t, e in zip(self.steps.time(times, 1), ends[1::2], strict=True)]
        return self._with_times(self._with_times(times, 0, starts), 1, finals)

    def _within(self, i: Array, met: _Met, k: int, saved: list[Any], dense: Any, ends: list[Any]) -> _Met:
        """From the last time of set `k` not yet met back to the start of step `i`."""
        ts = self.steps.time(self.times, 2 + k)

        def further(met: _Met) -> Array:
            return (met.left >= 0) & ((ts[0][met.left] > ends[0]) | (i == 0))

        def meet(met: _Met) -> _Met:
            t = [x[met.left] for x in ts]
            cotangent = [x[met.left] for x in saved]
            if not self.timed:
                _, transposed = jax.vjp(lambda dense: self.steps.read(dense, ends, t), dense)
                return _Met(met.left - 1, _plus(met.dense, transposed(cotangent)[0]), [], None)
            _, transposed = jax.vjp(self.steps.read, dense, ends, t)
            dense_bar, ends_bar, t_bar = transposed(cotangent)
            moved = [x.at[met.left].add(a) for x, a in zip(met.ts, t_bar, strict=True)]
            return _Met(met.left - 1, _plus(met.dense, dense_bar), _plus(met.ends, ends_bar), moved)

        return while_loop(further, meet, met)


def _replaced(x: list[Any], places: list[int], arrays: list[Any]) -> list[Any]:
    mine = dict(zip(places, arrays, strict=True))
    return [mine.get(i, a) for i, a in enumerate(x)]


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def _plus(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)
