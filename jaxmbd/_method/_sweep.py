"""The backward loop over recorded steps: the transposed derivative of one step, and of its dense output."""

from collections.abc import Sequence
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

    `i`: the step; `left`: for each set of times, the last one not yet met; `between`: states made again; `value`, `known`:
    cotangents of the state `(y, s)` at the end of step `i` and of parameters `(args, terms)`; `times`: of
    `(t0, t1, (ts, …))`.
    """

    i: Int[Array, ""]
    left: list[Int[Array, ""]]
    between: Any
    value: Any
    known: Any
    times: Any


class Sweep(eqx.Module):
    """The derivatives of a recorded run, `inputs = (y, state, args, terms, times)`, as far as they are `perturbed`."""

    solver: dfx.AbstractSolver[Any]
    record: Record
    steps: Int[Array, ""]
    inputs: Any
    perturbed: Any

    def run(self, cotangents: list[Any], counts: list[Any]) -> Any:
        """The cotangents of the inputs from those of what each set of times has saved, `counts` of its times."""
        inputs, none = self.inputs, self.steps == 0
        value = _zeros(eqx.filter((inputs.y, inputs.state), eqx.is_inexact_array))
        known = _zeros(eqx.filter((inputs.args, inputs.terms), (self.perturbed.args, self.perturbed.terms)))
        times = _zeros(inputs.times) if self.timed else None
        saved = [_filled(cotangent, inputs.y, 1 if ts is None else len(ts)) for cotangent, ts in zip(cotangents, self.ts)]
        at_end = [x for x, ts in zip(saved, self.ts, strict=True) if ts is None]
        for cotangent in at_end:
            value = _plus(value[0], jax.tree.map(lambda x: x[0], cotangent)), value[1]
        left = [jnp.where(none, 0 if ts is None else len(ts), n) - 1 for n, ts in zip(counts, self.ts, strict=True)]
        carry = _Carry(self.steps - 1, left, self.record.space(), value, known, times)
        carry = eqxi.while_loop(
            lambda c: c.i >= 0, lambda c: self._back(c, saved), carry, buffers=lambda c: c.between, kind="lax"
        )
        y = carry.value[0]
        for cotangent, count, ts in zip(saved, carry.left, self.ts, strict=True):
            if ts is not None:  # a run of no steps has saved its start
                early = jnp.arange(len(ts)) <= count
                y = _plus(y, jax.tree.map(lambda x: jnp.tensordot(early.astype(x.dtype), x, 1), cotangent))
        return type(inputs)(y, carry.value[1], *carry.known, self._wanted(carry.times))

    @property
    def ts(self) -> tuple[Any, ...]:
        return self.inputs.times[2]

    @property
    def timed(self) -> bool:
        """Whether times are differentiated."""
        return any(jax.tree.leaves(self.perturbed.times))

    def _wanted(self, times: Any) -> Any:
        return jax.tree.map(lambda _: None, self.inputs.times) if times is None else times

    def _advance(self, j: Int[Array, ""], value: Any) -> Any:
        """The state after step `j`."""
        (y, state), times = value, (self.record.starts[j], self.record.ends[j])
        y, _, _, state, _ = self.solver.step(self.inputs.terms, *times, y, self.inputs.args, state, False)
        return jax.tree.map(jnp.asarray, (y, state))

    def _back(self, carry: _Carry, saved: list[Any]) -> _Carry:
        """One step backward: `(ȳᵢ, s̄ᵢ, θ̄) = (∂step)ᵀ (ȳᵢ₊₁, s̄ᵢ₊₁, what is saved)`."""
        i = carry.i
        value, between = self.record.state(i, self.steps - 1, carry.between, self._advance)
        known, times = (self.inputs.args, self.inputs.terms), (self.record.starts[i], self.record.ends[i])
        wanted = eqx.is_inexact_array, (self.perturbed.args, self.perturbed.terms), self.timed
        moving, fixed = zip(*(eqx.partition(x, f) for x, f in zip((value, known, times), wanted, strict=True)))
        (_, dense), transposed = jax.vjp(lambda moving: self._step(moving, fixed), moving)
        reached = self._reached(carry, dense, times, saved)
        ((value, known, moved),) = transposed((carry.value, reached.dense))
        known = _plus(carry.known, known)
        if not self.timed:
            return _Carry(i - 1, reached.left, between, value, known, None)
        first, last = _plus(moved, reached.ends)
        last = carry.times[1] + jnp.where(i == self.steps - 1, last, 0.0)
        return _Carry(i - 1, reached.left, between, value, known, (first, last, reached.ts))

    def _step(self, moving: Any, fixed: Any) -> Any:
        """`(yᵢ₊₁, sᵢ₊₁)` and what the dense output takes."""
        (y, state), (args, terms), times = eqx.combine(moving, fixed)
        y, _, dense, state, _ = self.solver.step(terms, *times, y, args, state, False)
        return eqx.filter(((y, state), dense), eqx.is_inexact_array)

    def _reached(self, carry: _Carry, dense: Any, ends: Any, saved: list[Any]) -> "_Reached":
        """The cotangents of the dense output that the values saved within this step have."""
        tss = carry.times[2] if self.timed else tuple(None for _ in self.ts)
        reached = _Reached(list(carry.left), _zeros(dense), _zeros(ends) if self.timed else None, tss)
        for k, (ts, cotangent) in enumerate(zip(self.ts, saved, strict=True)):
            if ts is None:
                continue

            def further(r: _Reached, k: int = k, ts: Any = ts) -> Array:
                return (r.left[k] >= 0) & ((ts[r.left[k]] > ends[0]) | (carry.i == 0))

            def meet(r: _Reached, k: int = k, ts: Any = ts, cotangent: Any = cotangent) -> _Reached:
                j = r.left[k]
                at = (dense, ends, ts[j])
                moving, fixed = eqx.partition(at, (True, self.timed, self.timed))
                _, transposed = jax.vjp(lambda moving: self._dense(*eqx.combine(moving, fixed)), moving)
                ((slopes, moved, t),) = transposed(jax.tree.map(lambda x: x[j], cotangent))
                left = [*r.left[:k], j - 1, *r.left[k + 1 :]]
                if not self.timed:
                    return _Reached(left, _plus(r.dense, slopes), None, r.ts)
                tss = (*r.ts[:k], r.ts[k].at[j].set(t), *r.ts[k + 1 :])
                return _Reached(left, _plus(r.dense, slopes), _plus(r.ends, moved), tss)

            reached = eqxi.while_loop(further, meet, reached, kind="lax")
        return reached

    def _dense(self, dense: Any, ends: Any, t: Any) -> Any:
        return self.solver.interpolation_cls(t0=ends[0], t1=ends[1], **dense).evaluate(t)


class _Reached(eqx.Module):
    """For each set of times the last one not yet met, and cotangents: of what the dense output takes, of the ends of the
    step, of the times."""

    left: list[Any]
    dense: Any
    ends: Any
    ts: Any


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def _plus(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _filled(cotangent: Any, y: Any, rows: int) -> Any:
    """The cotangents of saved states, zeros where nothing depends on them."""
    return jax.tree.map(
        lambda x, c: jnp.zeros((rows, *x.shape), x.dtype) if c is None else c, y, cotangent, is_leaf=lambda x: x is None
    )
