"""Checkpoints for the reverse sweep: states at the start of accepted steps, in a store of fixed size.

The number of steps is not known before the run. While there is room, the state at each step is stored; then only every
second, fourth, … one, and each new checkpoint overwrites one that is no longer needed.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxmbd.integrate.diffrax_binding import while_loop, write_row


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
    def empty(cls, state: Any, t: Any, rows: int, max_steps: int) -> "CheckpointStore":
        rows = min(rows, max_steps)
        levels = math.ceil(math.log2(max_steps / rows))
        times = jnp.zeros(max_steps, jnp.result_type(t))
        return cls(_rows_like(state, rows + 1), times, times, rows, levels)

    def with_step(self, i: Int[Array, ""], start: Any, end: Any, state: Any) -> "CheckpointStore":
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


def _rows_like(state: Any, rows: int) -> Any:
    return jax.tree.map(lambda x: jnp.zeros((rows, *jnp.shape(x)), jnp.result_type(x)), state)
