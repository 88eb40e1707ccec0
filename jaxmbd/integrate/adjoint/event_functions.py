"""Events of a motion that runs natively, as functions of the end of a step: heights, and what an event does.

The time loop (`erk_events.h`) finds the root of a height; here is how the motion depends on it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import frozen
from jaxmbd.engine.binding.tracing import TracedFunction, traced


class EventMemory(NamedTuple):
    """Where events keep what they know in the state, in the order of `Memory` in `motion.h`: the number of `events`,
    the `room` of their log, for entries of so many numbers, `entry`; and the indices of the components that hold the
    `time`, the event that is `due`, the number of those `logged`, 1 when an event has `halted` the motion, and the time
    `since` the last one; and of the first components of those that say of each event whether its quantity was on its
    value then, `touching`, and the least height from which it turned back, `nearest`; `samples`, how often something is
    due at a switching time."""

    events: int = 0
    room: int = 0
    entry: int = 0
    time: int = 0
    due: int = 0
    logged: int = 0
    halted: int = 0
    since: int = 0
    touching: int = 0
    nearest: int = 0
    samples: int = 0


class EventFunctions(NamedTuple):
    """The functions of events, of `(given, static, t, y)`.

    `guard`: for each event its height, which is positive until it happens, and then the rates of the heights; `effect`:
    the state after the event that is due, and its entry in the log.
    """

    guard: Callable[..., Array]
    effect: Callable[..., Array]
    memory: EventMemory


def root_of(heights: Array, y: Array, memory: EventMemory) -> Array:
    """How far the root of the height of the event that is due moves, by one step of Newton's method: zero in value,
    since the loop has found the root as near as rounding lets it. It does not move for an event that was found where it
    is."""
    n, due = memory.events, y[memory.due]
    sought = [due == n + j for j in range(n)]
    height, rate = (sum(jnp.where(is_it, heights[j + k], 0.0) for j, is_it in enumerate(sought)) for k in (0, n))
    change = jnp.where(rate == 0, 0.0, -height / jnp.where(rate == 0, 1.0, rate)).astype(y.dtype)
    return change - frozen(change)


def event_of(functions: dict[str, TracedFunction], memory: EventMemory) -> TracedFunction:
    """The state after the event that is due, and its entry in the log, as a function of the end of the step before.

    Where that end is a root of the event's height, the function follows the root: its value is that at the end of the
    step, and its first derivative that of the motion to the root (the saltation term).
    """
    rate, guard, effect = (functions[name] for name in ("rate", "guard", "effect"))

    def call(*operands: Array) -> list[Array]:
        *known, t, y = operands
        (heights,), (slope,) = guard(*known, t, y), rate(*known, t, y)
        slope = jnp.pad(slope, (0, len(y) - len(slope)))
        # The rate is a constant: with a height of zero its derivative has no share.
        frozen_rates = jnp.concatenate([heights[: memory.events], frozen(heights[memory.events :])])
        change = root_of(frozen_rates, y, memory)
        return [effect(*known, t + change, moved(y, change * slope, t + change, memory))[0]]

    return traced(call, rate.types)


def moved(y: Array, change: Array, t: Array, memory: EventMemory) -> Array:
    """The state after a change, at a time."""
    return (y + change).at[memory.time].set(t)
