"""The backward loop over recorded steps: the transposed derivative of one step, and of its dense output."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxmbd._method._record import Record


class _Carry(eqx.Module):
    """What the backward loop takes from step to step.

    `i`, the step; `left`, for each set of times the last one not yet met; `between`, states made again; cotangents:
    `value` of the state `(y, s)` at the end of step `i`, `known` of `(args, terms)`, `times` of `(t0, t1, (ts, …))`.
    """

    i: Int[Array, ""]
    left: list[Int[Array, ""]]
    between: Any
    value: Any
    known: Any
    times: Any


class _Saved(eqx.Module):
    """The last time not yet met, and cotangents: of what the dense output takes, of the step's ends, of the times."""

    left: Int[Array, ""]
    dense: Any
    ends: Any
    ts: Any


class Sweep(eqx.Module):
    """The derivatives of a recorded run of `inputs = (y, state, args, terms, times)`, as far as they are `perturbed`.

    `times = (t0, t1, (ts, …))`, with `None` in the place of a set that is the end alone.
    """

    solver: dfx.AbstractSolver[Any]
    record: Record
    steps: Int[Array, ""]
    inputs: Any
    perturbed: Any

    def run(self, cotangents: list[Any], counts: list[Any]) -> Any:
        """The cotangents of the inputs from those of what each set of times has saved, `counts` of its times."""
        inputs, sets = self.inputs, self.inputs.times[2]
        saved = [_filled(x, inputs.y, ts) for x, ts in zip(cotangents, sets, strict=True)]
        y, state = _zeros(eqx.filter((inputs.y, inputs.state), eqx.is_inexact_array))
        for cotangent, ts in zip(saved, sets, strict=True):
            y = _plus(y, jax.tree.map(lambda x: x[0], cotangent)) if ts is None else y
        known = _zeros(eqx.filter((inputs.args, inputs.terms), (self.perturbed.args, self.perturbed.terms)))
        lengths = [0 if ts is None else len(ts) for ts in sets]
        left = [jnp.where(self.steps == 0, k, n) - 1 for k, n in zip(lengths, counts, strict=True)]
        times = _zeros(inputs.times) if self.timed else None
        carry = _Carry(self.steps - 1, left, self.record.space(), (y, state), known, times)
        carry = eqxi.while_loop(
            lambda c: c.i >= 0, lambda c: self._back(c, saved), carry, buffers=lambda c: c.between, kind="lax"
        )
        y, state = carry.value
        for cotangent, last, ts in zip(saved, carry.left, sets, strict=True):  # a run of no steps has saved its start
            y = y if ts is None else _plus(y, _sum_to(last, cotangent))
        times = carry.times if self.timed else jax.tree.map(lambda _: None, inputs.times)
        return type(inputs)(y, state, *carry.known, times)

    @property
    def timed(self) -> bool:
        """Whether times are differentiated."""
        return any(jax.tree.leaves(self.perturbed.times))

    def _advance(self, j: Int[Array, ""], value: Any) -> Any:
        """The state after step `j`."""
        (y, state), start, end = value, self.record.starts[j], self.record.ends[j]
        y, _, _, state, _ = self.solver.step(self.inputs.terms, start, end, y, self.inputs.args, state, False)
        return jax.tree.map(jnp.asarray, (y, state))

    def _back(self, carry: _Carry, saved: list[Any]) -> _Carry:
        """One step backward: `(ȳᵢ, s̄ᵢ, θ̄) = (∂step)ᵀ (ȳᵢ₊₁, s̄ᵢ₊₁)`, with what is saved within the step."""
        i = carry.i
        value, between = self.record.state(i, self.steps - 1, carry.between, self._advance)
        known, ends = (self.inputs.args, self.inputs.terms), (self.record.starts[i], self.record.ends[i])
        wanted = eqx.is_inexact_array, (self.perturbed.args, self.perturbed.terms), self.timed
        moving = tuple(eqx.filter(x, which) for x, which in zip((value, known, ends), wanted, strict=True))
        (_, dense), transposed = jax.vjp(lambda moving: self._step(eqx.combine(moving, (value, known, ends))), moving)
        left, dense_bar, ends_bar, ts_bar = self._saved(carry, dense, ends, saved)
        ((value, known, moved),) = transposed((carry.value, dense_bar))
        known = _plus(carry.known, known)
        if not self.timed:
            return _Carry(i - 1, left, between, value, known, None)
        first, last = _plus(moved, ends_bar)
        last = carry.times[1] + jnp.where(i == self.steps - 1, last, 0.0)
        return _Carry(i - 1, left, between, value, known, (first, last, ts_bar))

    def _step(self, given: Any) -> Any:
        """`(yᵢ₊₁, sᵢ₊₁)`, and what the dense output takes."""
        (y, state), (args, terms), (start, end) = given
        y, _, dense, state, _ = self.solver.step(terms, start, end, y, args, state, False)
        return eqx.filter(((y, state), dense), eqx.is_inexact_array)

    def _saved(self, carry: _Carry, dense: Any, ends: Any, saved: list[Any]) -> tuple[Any, Any, Any, Any]:
        """Times still left, and the cotangents of the dense output, the step's ends and the times, for all sets."""
        left, sets = list(carry.left), self.inputs.times[2]
        ts_bar = list(carry.times[2]) if self.timed else [None] * len(sets)
        dense_bar, ends_bar = _zeros(dense), _zeros(ends) if self.timed else None
        for k, ts in enumerate(sets):
            if ts is not None:
                met = _Saved(left[k], dense_bar, ends_bar, ts_bar[k])
                met = self._within(carry.i, met, ts, saved[k], dense, ends)
                left[k], dense_bar, ends_bar, ts_bar[k] = met.left, met.dense, met.ends, met.ts
        return left, dense_bar, ends_bar, tuple(ts_bar)

    def _within(self, i: Array, met: _Saved, ts: Array, saved: Any, dense: Any, ends: Any) -> _Saved:
        """From the last time not yet met back to the start of step `i`."""

        def further(met: _Saved) -> Array:
            return (met.left >= 0) & ((ts[met.left] > ends[0]) | (i == 0))

        def meet(met: _Saved) -> _Saved:
            given = dense, ends, ts[met.left]
            moving = eqx.filter(given, (True, self.timed, self.timed))
            _, transposed = jax.vjp(lambda moving: self._dense(*eqx.combine(moving, given)), moving)
            ((slopes, moved, t),) = transposed(jax.tree.map(lambda x: x[met.left], saved))
            ts_bar = met.ts.at[met.left].set(t) if self.timed else None
            return _Saved(
                met.left - 1, _plus(met.dense, slopes), _plus(met.ends, moved) if self.timed else None, ts_bar
            )

        return eqxi.while_loop(further, meet, met, kind="lax")

    def _dense(self, dense: Any, ends: Any, t: Any) -> Any:
        return self.solver.interpolation_cls(t0=ends[0], t1=ends[1], **dense).evaluate(t)


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def _plus(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _sum_to(last: Any, rows: Any) -> Any:
    """The sum of the rows up to the last one."""
    return jax.tree.map(lambda x: jnp.tensordot((jnp.arange(len(x)) <= last).astype(x.dtype), x, 1), rows)


def _filled(cotangent: Any, y: Any, ts: Any) -> Any:
    """The cotangents of saved states, zeros where nothing depends on them."""
    rows = 1 if ts is None else len(ts)
    return jax.tree.map(
        lambda x, c: jnp.zeros((rows, *x.shape), x.dtype) if c is None else c, y, cotangent, is_leaf=lambda x: x is None
    )
