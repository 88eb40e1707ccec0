"""Derivatives of recorded motions as primitives of JAX, with all rules: any order, in any mode, batched.

A motion is a function `y = f(x)` of its inputs, its steps held fixed (`_steps`). Three primitives are closed under
differentiation and transposition. With `J = ∂f/∂x`:

    tangents       J(x) ẋ                             transposed: cotangents
    cotangents     J(x)ᵀ w                            transposed: tangents
    curvature      J(x)ᵀ δw + ∂(J(x)ᵀ w)/∂x δx        transposed by (δx, δw): curvature, since Hessians are symmetric,
                                                      and tangents

`curvature` is the derivative of `cotangents`. It is also the `x` part of the cotangents of the chain with tangents
`F(x, δx) = (f, J δx)` for `(δw, w)`. The derivatives of `tangents` and `curvature` themselves are those of that chain
again. So all of them are forward and backward sweeps over the recorded steps.

The operands of all are the inputs `x`, the schedule of the steps, and the record of where they began as far as there is
one; these are known from `x`, so that nothing is differentiated by them.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmbd.compile.jax_internals import Primitive, ShapedArray, ad, batching, mlir
from jaxmbd.integrate.adjoint.checkpoint_store import CheckpointStore
from jaxmbd.integrate.adjoint.steps import AbstractSteps
from jaxmbd.integrate.adjoint.sweep import Backward, Schedule, forward


class Batch(NamedTuple):
    """One `vmap`: its size, and which operands have a leading axis for it. All results have one."""

    size: int
    has_axis: tuple[bool, ...]


Batches = tuple[Batch, ...]  # from the innermost


class Operands:
    """The operands of a primitive, taken apart: inputs, what is known of the run, and what the result is linear in."""

    def __init__(self, steps: AbstractSteps, arrays: Sequence[Any], linear: Sequence[int]) -> None:
        n, rest = len(steps.types), len(arrays) - sum(linear)
        self.x, self.run = range(n), range(n, rest)
        self.linear, start = [], rest
        for count in linear:
            self.linear.append(range(start, start + count))
            start += count

    def of(self, arrays: Sequence[Any], places: Sequence[int]) -> list[Any]:
        return [arrays[k] for k in places]


def packed(schedule: Schedule, record: CheckpointStore | None) -> list[Any]:
    """What is known of a run, as a list."""
    return [schedule.starts, schedule.ends, schedule.accepted, *schedule.saved, *_states(record)]


def _states(record: CheckpointStore | None) -> list[Any]:
    return [] if record is None else list(record.states)


def _unpacked(steps: AbstractSteps, run: Sequence[Any]) -> tuple[Schedule, CheckpointStore | None]:
    known = 3 + steps.sets
    schedule, states = Schedule(run[0], run[1], run[2], list(run[3:known])), list(run[known:])
    if not states:
        return schedule, None
    empty = CheckpointStore.empty([], 0.0, steps.rows, len(schedule.starts))
    return schedule, CheckpointStore(states, schedule.starts, schedule.ends, empty.rows, empty.levels)


# --- what the primitives compute ----------------------------------------------------------------------------


def _tangents(*arrays: Any, steps: AbstractSteps, moving: tuple[int, ...]) -> list[Any]:
    at = Operands(steps, arrays, (len(moving),))
    schedule, _ = _unpacked(steps, at.of(arrays, at.run))
    found = forward(steps.tangent(moving), [*at.of(arrays, at.x), *at.of(arrays, at.linear[0])], schedule)
    return found[len(steps.outputs) :]


def _cotangents(*arrays: Any, steps: AbstractSteps, wanted: tuple[int, ...]) -> list[Any]:
    at = Operands(steps, arrays, (len(steps.outputs),))
    x, (schedule, record) = at.of(arrays, at.x), _unpacked(steps, at.of(arrays, at.run))
    record = forward(steps, x, schedule, recorded=True) if record is None else record
    return Backward(steps, x, schedule, record, wanted).run(at.of(arrays, at.linear[0]))


def _curvature(*arrays: Any, steps: AbstractSteps, wanted: tuple[int, ...], moving: tuple[int, ...]) -> list[Any]:
    full, (x, run, w, dx, dw) = steps.tangent(moving), _parts_of_curvature(steps, moving, arrays)
    schedule, _ = _unpacked(steps, run)
    x = [*x, *dx]
    record = forward(full, x, schedule, recorded=True)
    return Backward(full, x, schedule, record, wanted).run([*dw, *w])


def _parts_of_curvature(steps: AbstractSteps, moving: tuple[int, ...], arrays: Sequence[Any]) -> list[list[Any]]:
    at = Operands(steps, arrays, (len(steps.outputs), len(moving), len(steps.outputs)))
    return [at.of(arrays, places) for places in (at.x, at.run, *at.linear)]


def _types_of_inputs(steps: AbstractSteps, wanted: tuple[int, ...], **_: Any) -> list[Any]:
    return [steps.types[k] for k in wanted]


# --- as primitives ------------------------------------------------------------------------------------------


def _primitive(name: str, compute: Callable[..., Any], types: Callable[..., Any]) -> Primitive:
    """A primitive of several results that is evaluated, batched and lowered as `compute` is."""
    primitive = Primitive(name)
    primitive.multiple_results = True

    def evaluate(*arrays: Any, batches: Batches, **settings: Any) -> Any:
        found = partial(compute, **settings)
        for batch in batches:
            found = jax.vmap(found, tuple(0 if mine else None for mine in batch.has_axis), axis_size=batch.size)
        return found(*arrays)

    @lru_cache(maxsize=64)
    def on_its_own(**settings: Any) -> Callable[..., Any]:
        return jax.jit(partial(evaluate, **settings))

    def typed(*arrays: Any, batches: Batches, **settings: Any) -> Any:
        sizes = tuple(batch.size for batch in reversed(batches))
        return [ShapedArray((*sizes, *x.shape), x.dtype) for x in types(**settings)]

    def batched(arrays: Any, axes: Any, *, batches: Batches, **settings: Any) -> Any:
        size = next(x.shape[axis] for x, axis in zip(arrays, axes, strict=True) if axis is not None)
        moved = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes, strict=True)]
        batch = Batch(size, tuple(axis is not None for axis in axes))
        found = primitive.bind(*moved, batches=(*batches, batch), **settings)
        return found, [0] * len(found)

    primitive.def_impl(lambda *arrays, **settings: on_its_own(**settings)(*arrays))
    primitive.def_abstract_eval(typed)
    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, mlir.lower_fun(evaluate, multiple_results=True))
    return primitive


tangents_p = _primitive("jaxmbd_tangents", _tangents, lambda steps, moving: steps.outputs)
cotangents_p = _primitive("jaxmbd_cotangents", _cotangents, _types_of_inputs)
curvature_p = _primitive("jaxmbd_curvature", _curvature, _types_of_inputs)


class _Call:
    """Arrays for a primitive, together with which batches they have an axis of."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.arrays, self.axes = batches, [], [[] for _ in batches]

    def add(self, arrays: Sequence[Any], places: Sequence[int]) -> "_Call":
        """Arrays with the axes of the operands at these places."""
        return self._more(arrays, [[batch.has_axis[k] for k in places] for batch in self.batches])

    def results(self, arrays: Sequence[Any]) -> "_Call":
        """Arrays with the axes of results: all of them."""
        return self._more(arrays, [[True] * len(arrays) for _ in self.batches])

    def zeros(self, types: Sequence[Any]) -> "_Call":
        return self._more([jnp.zeros(x.shape, x.dtype) for x in types], [[False] * len(types) for _ in self.batches])

    def _more(self, arrays: Sequence[Any], axes: list[list[bool]]) -> "_Call":
        self.arrays += arrays
        self.axes = [[*old, *new] for old, new in zip(self.axes, axes, strict=True)]
        return self

    def bind(self, primitive: Primitive, **settings: Any) -> list[Any]:
        batches = tuple(Batch(b.size, tuple(mine)) for b, mine in zip(self.batches, self.axes, strict=True))
        return list(primitive.bind(*self.arrays, batches=batches, **settings))


def tangents(steps: AbstractSteps, x: list[Any], run: list[Any], changes: dict[int, Any]) -> list[Any]:
    """The tangents of the outputs of recorded steps, from those of the inputs that have one."""
    return list(tangents_p.bind(*x, *run, *changes.values(), steps=steps, moving=tuple(changes), batches=()))


def _moving(tangents: Sequence[Any], places: Sequence[int]) -> list[int]:
    return [k for k in places if not isinstance(tangents[k], ad.Zero)]


def _without_record(steps: AbstractSteps, at: Operands) -> list[int]:
    return list(at.run[: 3 + steps.sets])


def _filled(tangents: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [ad.instantiate_zeros(tangents[k]) for k in places]


def _summed(found: Sequence[Any], places: Sequence[int], batches: Batches) -> list[Any]:
    """Cotangents of operands, summed over the batches that they have no axis of."""
    results = []
    for x, place in zip(found, places, strict=True):
        axes = [a for a, batch in enumerate(reversed(batches)) if not batch.has_axis[place]]
        results.append(jnp.sum(x, axis=tuple(axes)) if axes else x)
    return results


def _zeros_like_results(found: Sequence[Any]) -> list[Any]:
    return [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in found]


# --- rules --------------------------------------------------------------------------------------------------


def _tangents_jvp(arrays: Any, changes: Any, *, steps: AbstractSteps, moving: tuple[int, ...], batches: Batches) -> Any:
    at = Operands(steps, arrays, (len(moving),))
    found = tangents_p.bind(*arrays, steps=steps, moving=moving, batches=batches)
    by_x, by_tangent = _moving(changes, at.x), _moving(changes, at.linear[0])
    if not by_x and not by_tangent:
        return found, _zeros_like_results(found)
    call = _Call(batches).add(at.of(arrays, at.x), at.x)
    if not by_x:
        call.add(at.of(arrays, at.run), at.run).add(at.of(changes, by_tangent), by_tangent)
        return found, call.bind(tangents_p, steps=steps, moving=tuple(moving[k - at.linear[0][0]] for k in by_tangent))
    rest, places = _without_record(steps, at), [*by_x, *by_tangent]
    call.add(at.of(arrays, at.linear[0]), at.linear[0]).add(at.of(arrays, rest), rest)
    call.add(at.of(changes, places), places)
    also = tuple(len(at.x) + k - at.linear[0][0] for k in by_tangent)
    both = call.bind(tangents_p, steps=steps.tangent(moving), moving=(*by_x, *also))
    return found, both[len(steps.outputs) :]


def _tangents_transpose(
    cotangents: Any, *arrays: Any, steps: AbstractSteps, moving: tuple[int, ...], batches: Batches
) -> Any:
    at = Operands(steps, arrays, (len(moving),))
    unknown = [k for k in at.linear[0] if ad.is_undefined_primal(arrays[k])]
    call = _Call(batches).add(at.of(arrays, at.x), at.x).add(at.of(arrays, at.run), at.run)
    call.results(_filled(cotangents, range(len(cotangents))))
    wanted = tuple(moving[k - at.linear[0][0]] for k in unknown)
    return _placed(arrays, unknown, call.bind(cotangents_p, steps=steps, wanted=wanted), batches)


def _cotangents_jvp(
    arrays: Any, changes: Any, *, steps: AbstractSteps, wanted: tuple[int, ...], batches: Batches
) -> Any:
    at = Operands(steps, arrays, (len(steps.outputs),))
    found = cotangents_p.bind(*arrays, steps=steps, wanted=wanted, batches=batches)
    by_x, weights = _moving(changes, at.x), at.linear[0]
    if not by_x and not _moving(changes, weights):
        return found, _zeros_like_results(found)
    call = _Call(batches).add(at.of(arrays, at.x), at.x)
    if not by_x:
        call.add(at.of(arrays, at.run), at.run).add(_filled(changes, weights), weights)
        return found, call.bind(cotangents_p, steps=steps, wanted=wanted)
    rest = _without_record(steps, at)
    call.add(at.of(arrays, rest), rest).add(at.of(arrays, weights), weights).add(at.of(changes, by_x), by_x)
    call.add(_filled(changes, weights), weights)
    return found, call.bind(curvature_p, steps=steps, wanted=wanted, moving=tuple(by_x))


def _cotangents_transpose(
    given: Any, *arrays: Any, steps: AbstractSteps, wanted: tuple[int, ...], batches: Batches
) -> Any:
    at = Operands(steps, arrays, (len(steps.outputs),))
    call = _Call(batches).add(at.of(arrays, at.x), at.x).add(at.of(arrays, at.run), at.run)
    call.results(_filled(given, range(len(given))))
    return _placed(arrays, at.linear[0], call.bind(tangents_p, steps=steps, moving=wanted), batches)


def _curvature_jvp(
    arrays: Any, changes: Any, *,
    steps: AbstractSteps, wanted: tuple[int, ...], moving: tuple[int, ...], batches: Batches,
) -> Any:  # fmt: skip
    """The `x` part of the cotangents of the chain with tangents: differentiated as those are."""
    at = Operands(steps, arrays, (len(steps.outputs), len(moving), len(steps.outputs)))
    found = curvature_p.bind(*arrays, steps=steps, wanted=wanted, moving=moving, batches=batches)
    weights, by_dx, more = at.linear
    inputs, full = [*at.x, *by_dx], steps.tangent(moving)
    by_x = _moving(changes, inputs)
    if not by_x and not _moving(changes, [*weights, *more]):
        return found, _zeros_like_results(found)
    call, places = (
        _Call(batches).add(at.of(arrays, inputs), inputs).add(at.of(arrays, at.run), at.run),
        [*more, *weights],
    )
    if not by_x:
        call.add(_filled(changes, places), places)
        return found, call.bind(cotangents_p, steps=full, wanted=wanted)
    call.add(at.of(arrays, places), places).add(at.of(changes, by_x), by_x).add(_filled(changes, places), places)
    return found, call.bind(curvature_p, steps=full, wanted=wanted, moving=tuple(inputs.index(k) for k in by_x))


def _curvature_transpose(
    given: Any, *arrays: Any,
    steps: AbstractSteps, wanted: tuple[int, ...], moving: tuple[int, ...], batches: Batches,
) -> Any:  # fmt: skip
    at = Operands(steps, arrays, (len(steps.outputs), len(moving), len(steps.outputs)))
    weights, by_dx, more = at.linear
    known, cotangents = [*at.x, *at.run], _filled(given, range(len(given)))
    unknown = [k for k in by_dx if ad.is_undefined_primal(arrays[k])]
    results: list[Any] = [None] * len(arrays)
    if unknown:
        call = _Call(batches).add(at.of(arrays, known), known).add(at.of(arrays, weights), weights)
        call.results(cotangents).zeros(steps.outputs)
        mine = tuple(moving[k - by_dx[0]] for k in unknown)
        found = call.bind(curvature_p, steps=steps, wanted=mine, moving=wanted)
        results = _placed(arrays, unknown, found, batches)
    if any(ad.is_undefined_primal(arrays[k]) for k in more):
        call = _Call(batches).add(at.of(arrays, known), known).results(cotangents)
        also = _placed(arrays, more, call.bind(tangents_p, steps=steps, moving=wanted), batches)
        results = [b if a is None else a for a, b in zip(results, also, strict=True)]
    return results


def _placed(arrays: Sequence[Any], places: Sequence[int], found: Sequence[Any], batches: Batches) -> list[Any]:
    """The cotangents of operands that are not known, `None` for the others."""
    mine = dict(zip(places, _summed(found, places, batches), strict=True))
    return [mine.get(k) if ad.is_undefined_primal(x) else None for k, x in enumerate(arrays)]


ad.primitive_jvps.update({tangents_p: _tangents_jvp, cotangents_p: _cotangents_jvp, curvature_p: _curvature_jvp})
ad.primitive_transposes.update(
    {tangents_p: _tangents_transpose, cotangents_p: _cotangents_transpose, curvature_p: _curvature_transpose}
)
