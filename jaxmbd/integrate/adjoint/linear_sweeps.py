"""JAX primitives for the derivatives of recorded motions, with JVP, transposition and batching rules.

A motion is a function `y = f(x)` of its inputs at fixed steps (`steps.py`). Three primitives are closed under
differentiation and transposition, so that there are derivatives of any order in any mode. With `J = ∂f/∂x`:

    tangents       J(x) ẋ                             transposed: cotangents
    cotangents     J(x)ᵀ w                            transposed: tangents
    curvature      J(x)ᵀ δw + ∂(J(x)ᵀ w)/∂x δx        transposed by (δx, δw): curvature, since Hessians are symmetric,
                                                      and tangents

`curvature` is the JVP of `cotangents`. It is also the `x` part of the cotangents of the tangent chain
`F(x, δx) = (f, J δx)` for `(δw, w)`. The derivatives of `tangents` and `curvature` themselves are those of the tangent
chain. So all of them are forward and backward sweeps over the recorded steps.

The operands of each primitive are the inputs `x`, the schedule of the steps, the checkpoints if there are any, and the
operands that the result is linear in. Schedule and checkpoints follow from `x`, and have no derivatives of their own.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from jaxmbd.engine.binding.mesh import divided
from jaxmbd.engine.calls.identity import EXPANSIONS
from jaxmbd.engine.machine.build_vm import SWEEPS, call_vm
from jaxmbd.engine.machine.gpu.kernel_part import Buffer
from jaxmbd.engine.machine.gpu.launcher import launched
from jaxmbd.engine.numpy_code.translation import CALL_RULES, Translator, UnsupportedError
from jaxmbd.integrate.adjoint.batched_call import Batch, BatchedCall, Batches, batched_call
from jaxmbd.integrate.adjoint.steps import AbstractSteps, ArrayType, Entry
from jaxmbd.integrate.adjoint.sweep import BackwardSweep, CheckpointStore, StepSchedule, forward
from jaxmbd.upstream.jax_internals import (
    BatchedAxes,
    JaxprEqn,
    Primitive,
    ShapedArray,
    Tangent,
    ad,
    batching,
    default_platform,
    divide,
    is_partitioned,
    mlir,
    types_of_operands,
)

# What the rules of derivatives are given: constants of a jaxpr may be arrays of NumPy, or numbers.
Operand: TypeAlias = ArrayLike | ad.UndefinedPrimal  # undefined where a primitive is transposed
Change: TypeAlias = ArrayLike | ad.Zero  # a tangent or cotangent


class Operands:
    """The positions of a primitive's operands: inputs `x`, schedule and checkpoints `run`, and the linear ones."""

    def __init__(self, steps: AbstractSteps, arrays: Sequence[object], linear: Sequence[int]) -> None:
        n, rest = len(steps.types), len(arrays) - sum(linear)
        self.x, self.run = range(n), range(n, rest)
        self.linear, start = [], rest
        for count in linear:
            self.linear.append(range(start, start + count))
            start += count

    def of(self, arrays: Sequence[Entry], places: Sequence[int]) -> list[Entry]:
        return [arrays[k] for k in places]


def packed(schedule: StepSchedule, record: CheckpointStore | None) -> list[Array]:
    """The schedule and the checkpoints of a run, as a list of arrays."""
    states, kinds = [] if record is None else record.states, [] if schedule.kinds is None else [schedule.kinds]
    return [schedule.starts, schedule.ends, *kinds, schedule.accepted, *schedule.saved, *states]


def _unpacked(steps: AbstractSteps, run: Sequence[Array]) -> tuple[StepSchedule, CheckpointStore | None]:
    known, first = _scheduled(steps), 2 + steps.has_events
    kinds = run[2] if steps.has_events else None
    schedule = StepSchedule(run[0], run[1], run[first], list(run[first + 1 : known]), kinds)
    states = list(run[known:])
    if not states:
        return schedule, None
    empty = CheckpointStore.empty([], 0.0, steps.rows, len(schedule.starts))
    return schedule, CheckpointStore(states, schedule.starts, schedule.ends, empty.rows, empty.levels)


def _scheduled(steps: AbstractSteps) -> int:
    """The number of the operands that are the schedule."""
    return 3 + steps.has_events + steps.sets


# --- implementations ----------------------------------------------------------------------------------------


def _tangents(*arrays: Array, steps: AbstractSteps, moving: tuple[int, ...]) -> list[Array]:
    at = Operands(steps, arrays, (len(moving),))
    schedule, _ = _unpacked(steps, at.of(arrays, at.run))
    outputs = forward(steps.tangent(moving), [*at.of(arrays, at.x), *at.of(arrays, at.linear[0])], schedule)
    return outputs[len(steps.outputs) :]


def _cotangents(*arrays: Array, steps: AbstractSteps, wanted: tuple[int, ...]) -> list[Array]:
    at = Operands(steps, arrays, (len(steps.outputs),))
    x, (schedule, record) = at.of(arrays, at.x), _unpacked(steps, at.of(arrays, at.run))
    record = forward(steps, x, schedule, recorded=True) if record is None else record
    return BackwardSweep(steps, x, schedule, record, wanted).run(at.of(arrays, at.linear[0]))


def _curvature(*arrays: Array, steps: AbstractSteps, wanted: tuple[int, ...], moving: tuple[int, ...]) -> list[Array]:
    full, at = steps.tangent(moving), Operands(steps, arrays, (len(steps.outputs), len(moving), len(steps.outputs)))
    x, run, w, dx, dw = (at.of(arrays, places) for places in (at.x, at.run, *at.linear))
    schedule, _ = _unpacked(steps, run)
    x = [*x, *dx]
    record = forward(full, x, schedule, recorded=True)
    return BackwardSweep(full, x, schedule, record, wanted).run([*dw, *w])


def _types_of_inputs(steps: AbstractSteps, wanted: tuple[int, ...], **_: object) -> list[ArrayType]:
    return [steps.types[k] for k in wanted]


# --- primitives ---------------------------------------------------------------------------------------------


def _primitive(name: str, compute: Callable[..., list[Array]], types: Callable[..., Sequence[ArrayType]]) -> Primitive:
    """A primitive with multiple results, evaluated, batched and lowered as the function `compute`."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    short = name.removeprefix("jaxmbd_")

    def lowered(
        platform: str, context: mlir.LoweringRuleContext, *operands: Any, batches: Batches, **settings: Any
    ) -> Any:
        run = _NATIVE[platform]
        call = batched_call(short, len(operands), batches, _MANY if run is _by_vm else None, settings)
        alone = partial(evaluate, batches=batches, **settings)
        function = alone if call is None else _whole_or_divided(run, short, call, context)
        return mlir.lower_fun(function, multiple_results=True)(context, *operands)

    def evaluate(*arrays: Array, batches: Batches, **settings: Any) -> list[Array]:
        function = partial(compute, **settings)
        for batch in batches:
            function = jax.vmap(
                function, tuple(0 if has_axis else None for has_axis in batch.has_axis), axis_size=batch.size
            )
        return function(*arrays)

    @lru_cache(maxsize=64)
    def on_its_own(**settings: Any) -> Callable[..., list[Array]]:
        return jax.jit(partial(primitive.bind, **settings))

    def at_once(*arrays: Array, **settings: Any) -> list[Array]:
        elsewhere = settings["batches"] or default_platform() != "cpu"
        call = None if elsewhere else settings["steps"].native(short, operands=len(arrays), **settings)
        if call is None:
            with jax.disable_jit(False):  # otherwise `jax.jit` evaluates the primitive eagerly, an infinite recursion
                return on_its_own(**settings)(*arrays)
        operands = [arrays[k] if isinstance(k, int) else k for k in call.operands]
        dtype = settings["steps"].types[0].dtype
        results = [jnp.asarray(x) for x in call_vm(short, dtype, [*call.settings(0), *operands], call.results)]
        return results if call.order is None else [results[k] for k in call.order]

    def typed(*_: ShapedArray, batches: Batches, **settings: Any) -> list[ShapedArray]:
        sizes = tuple(batch.size for batch in reversed(batches))
        return [ShapedArray((*sizes, *x.shape), x.dtype) for x in types(**settings)]

    def batched(
        arrays: Sequence[Array], axes: BatchedAxes, *, batches: Batches, **settings: Any
    ) -> tuple[list[Array], list[int]]:
        size = next(x.shape[axis] for x, axis in zip(arrays, axes, strict=True) if axis is not None)
        leading = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes, strict=True)]
        batch = Batch(size, tuple(axis is not None for axis in axes))
        results = primitive.bind(*leading, batches=(*batches, batch), **settings)
        return results, [0] * len(results)

    CALL_RULES[name] = partial(_translated, short)
    EXPANSIONS[name] = evaluate
    primitive.def_impl(at_once)
    primitive.def_abstract_eval(typed)
    batching.primitive_batchers[primitive] = batched
    divide(primitive)
    mlir.register_lowering(primitive, mlir.lower_fun(evaluate, multiple_results=True))
    for platform in _NATIVE:
        mlir.register_lowering(primitive, partial(lowered, platform), platform)
    return primitive


def _translated(name: str, at: Translator, equation: JaxprEqn, places: list[int]) -> list[int]:
    """The NumPy code: a call of the virtual machine."""
    settings = dict(equation.params)
    call = batched_call(name, len(places), settings.pop("batches"), _MANY, settings)
    if call is None:
        raise UnsupportedError("XLA runs these steps.")
    likes = types_of_operands(equation)
    together = at.inline(jax.make_jaxpr(lambda *x: call.together(x))(*likes), places)
    operands = [k if isinstance(k, int) else at.constant(k) for k in call.operands(together)]
    dtype = np.dtype(settings["steps"].types[0].dtype).name
    results = [[list(x.shape), np.dtype(x.dtype).name] for x in call.types]
    found = at.emit("motion", operands, len(results), name=name, dtype=dtype, results=results)
    return at.inline(jax.make_jaxpr(lambda *x: call.apart(x))(*call.types), found)


def _whole_or_divided(
    run: Callable[..., list[Array]], name: str, call: BatchedCall, context: mlir.LoweringRuleContext
) -> Callable[..., list[Array]]:
    """One call for all instances; if these are on several devices, one on each."""
    if not (call.size and is_partitioned(context)):
        return lambda *arrays: run(name, call, arrays)
    parts = lambda sizes, *arrays: run(name, call.part(sizes), arrays)  # noqa: E731
    return divided(parts, call.axes, call.native.settings(call.size))


def _by_vm(name: str, call: BatchedCall, arrays: Sequence[Array]) -> list[Array]:
    """A sweep as one call of the virtual machine, for all instances of the batches together."""
    target = SWEEPS[name][1][np.dtype(call.types[0].dtype)]
    return call.apart(jax.ffi.ffi_call(target, call.types)(*call.operands(call.together(arrays))))


def _by_kernel(name: str, call: BatchedCall, arrays: Sequence[Array]) -> list[Array]:
    """A sweep on a GPU, with a thread for each instance of the batches."""
    native, size, together = call.native, max(call.size, 1), call.together(arrays)
    operands = [together[k] if isinstance(k, int) else k for k in native.operands]
    each = [isinstance(k, int) and call.varies(k) for k in native.operands]
    buffers = [Buffer(math.prod(x.shape) // (size if own else 1), own) for x, own in zip(operands, each, strict=True)]
    buffers += [Buffer(math.prod(x.shape), True) for x in native.results]
    return call.apart(launched(native.kernel(buffers), operands, call.types, size))


_NATIVE = {"cpu": _by_vm, "cuda": _by_kernel}  # by platform
# Directions of tangents share what they have in common if there are so many motions beside them, which fill the lanes
# of two threads. On a GPU a thread for each direction is faster: the values of several do not fit into its registers.
_MANY = 16


tangents_p = _primitive("jaxmbd_tangents", _tangents, lambda steps, moving: steps.outputs)
cotangents_p = _primitive("jaxmbd_cotangents", _cotangents, _types_of_inputs)
curvature_p = _primitive("jaxmbd_curvature", _curvature, _types_of_inputs)


def _solve(*arrays: Array, **settings: object) -> list[Array]:
    raise NotImplementedError("A motion runs as a whole on a CPU or on an NVIDIA GPU.")


solve_p = _primitive("jaxmbd_solve", _solve, lambda steps, recorded, **_: steps.solve_results(recorded))


def solve(
    steps: AbstractSteps, x: Sequence[ArrayLike], step: ArrayLike, control: ArrayLike, adaptive: bool, force_dtmin: bool
) -> list[Array]:
    """Run a motion: saved states, final state, what events have logged if there are any, final time, and the numbers of
    steps: all, accepted, rejected, saved times; how it ended, and the engine that ran it."""
    return list(
        solve_p.bind(
            *x, step, control, steps=steps, adaptive=adaptive, force_dtmin=force_dtmin, recorded=False, batches=()
        )
    )


class _Call:
    """The operands of a new call of a primitive, each with the batches that it has an axis for."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.arrays, self.axes = batches, [], [[] for _ in batches]

    def add(self, arrays: Sequence[Operand | Change], places: Sequence[int]) -> "_Call":
        """Append arrays that have the batch axes of the operands at these positions."""
        return self._append(arrays, [[batch.has_axis[k] for k in places] for batch in self.batches])

    def results(self, arrays: Sequence[ArrayLike]) -> "_Call":
        """Append arrays that have all batch axes, as results do."""
        return self._append(arrays, [[True] * len(arrays) for _ in self.batches])

    def zeros(self, types: Sequence[ArrayType]) -> "_Call":
        return self._append([jnp.zeros(x.shape, x.dtype) for x in types], [[False] * len(types) for _ in self.batches])

    def _append(self, arrays: Sequence[Operand | Change], axes: list[list[bool]]) -> "_Call":
        self.arrays += arrays
        self.axes = [[*old, *new] for old, new in zip(self.axes, axes, strict=True)]
        return self

    def bind(self, primitive: Primitive, **settings: object) -> list[Array]:
        batches = tuple(Batch(b.size, tuple(has_axis)) for b, has_axis in zip(self.batches, self.axes, strict=True))
        return list(primitive.bind(*self.arrays, batches=batches, **settings))


def tangents(steps: AbstractSteps, x: list[Array], run: list[Array], changes: dict[int, Array]) -> list[Array]:
    """The tangents of the outputs of recorded steps, from the tangents `changes` of inputs by their index."""
    return list(tangents_p.bind(*x, *run, *changes.values(), steps=steps, moving=tuple(changes), batches=()))


def _nonzero(tangents: Sequence[object], places: Sequence[int]) -> list[int]:
    """The positions whose tangents are not symbolic zeros."""
    return [k for k in places if not isinstance(tangents[k], ad.Zero)]


def _schedule_only(steps: AbstractSteps, at: Operands) -> list[int]:
    """The positions of the schedule, without those of the checkpoints."""
    return list(at.run[: _scheduled(steps)])


def _instantiated(tangents: Sequence[Change], places: Sequence[int]) -> list[ArrayLike]:
    return [ad.instantiate_zeros(tangents[k]) for k in places]


def _summed(cotangents: Sequence[Array], places: Sequence[int], batches: Batches) -> list[Array]:
    """Cotangents of operands, summed over the batches that these have no axis for."""
    sums = []
    for x, place in zip(cotangents, places, strict=True):
        axes = [a for a, batch in enumerate(reversed(batches)) if not batch.has_axis[place]]
        sums.append(jnp.sum(x, axis=tuple(axes)) if axes else x)
    return sums


def _zeros_like_results(results: Sequence[Array]) -> list[ad.Zero]:
    return [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]


WithTangents: TypeAlias = tuple[Sequence[Array], Sequence[Tangent]]  # the results of a rule for forward derivatives

# --- rules --------------------------------------------------------------------------------------------------


def _tangents_jvp(
    arrays: Sequence[ArrayLike], changes: Sequence[Change], *,
    steps: AbstractSteps, moving: tuple[int, ...], batches: Batches,
) -> WithTangents:  # fmt: skip
    at = Operands(steps, arrays, (len(moving),))
    results = tangents_p.bind(*arrays, steps=steps, moving=moving, batches=batches)
    by_x, by_tangent = _nonzero(changes, at.x), _nonzero(changes, at.linear[0])
    if not by_x and not by_tangent:
        return results, _zeros_like_results(results)
    call = _Call(batches).add(at.of(arrays, at.x), at.x)
    if not by_x:
        call.add(at.of(arrays, at.run), at.run).add(at.of(changes, by_tangent), by_tangent)
        return results, call.bind(
            tangents_p, steps=steps, moving=tuple(moving[k - at.linear[0][0]] for k in by_tangent)
        )
    # Checkpoints hold no tangents: the sweep of the tangent chain goes forward first, and records its own.
    rest, places = _schedule_only(steps, at), [*by_x, *by_tangent]
    call.add(at.of(arrays, at.linear[0]), at.linear[0]).add(at.of(arrays, rest), rest)
    call.add(at.of(changes, places), places)
    # Among the inputs of the tangent chain the tangents follow the inputs of the chain.
    also = tuple(len(at.x) + k - at.linear[0][0] for k in by_tangent)
    both = call.bind(tangents_p, steps=steps.tangent(moving), moving=(*by_x, *also))
    return results, both[len(steps.outputs) :]


def _tangents_transpose(
    cotangents: Sequence[Change], *arrays: Operand, steps: AbstractSteps, moving: tuple[int, ...], batches: Batches
) -> list[Array | None]:
    at = Operands(steps, arrays, (len(moving),))
    unknown = [k for k in at.linear[0] if ad.is_undefined_primal(arrays[k])]
    call = _Call(batches).add(at.of(arrays, at.x), at.x).add(at.of(arrays, at.run), at.run)
    call.results(_instantiated(cotangents, range(len(cotangents))))
    wanted = tuple(moving[k - at.linear[0][0]] for k in unknown)
    return _operand_cotangents(arrays, unknown, call.bind(cotangents_p, steps=steps, wanted=wanted), batches)


def _cotangents_jvp(
    arrays: Sequence[ArrayLike], changes: Sequence[Change], *,
    steps: AbstractSteps, wanted: tuple[int, ...], batches: Batches,
) -> WithTangents:  # fmt: skip
    at = Operands(steps, arrays, (len(steps.outputs),))
    results = cotangents_p.bind(*arrays, steps=steps, wanted=wanted, batches=batches)
    by_x, at_w = _nonzero(changes, at.x), at.linear[0]
    if not by_x and not _nonzero(changes, at_w):
        return results, _zeros_like_results(results)
    call = _Call(batches).add(at.of(arrays, at.x), at.x)
    if not by_x:
        call.add(at.of(arrays, at.run), at.run).add(_instantiated(changes, at_w), at_w)
        return results, call.bind(cotangents_p, steps=steps, wanted=wanted)
    rest = _schedule_only(steps, at)
    call.add(at.of(arrays, rest), rest).add(at.of(arrays, at_w), at_w).add(at.of(changes, by_x), by_x)
    call.add(_instantiated(changes, at_w), at_w)
    return results, call.bind(curvature_p, steps=steps, wanted=wanted, moving=tuple(by_x))


def _cotangents_transpose(
    result_bar: Sequence[Change], *arrays: Operand, steps: AbstractSteps, wanted: tuple[int, ...], batches: Batches
) -> list[Array | None]:
    at = Operands(steps, arrays, (len(steps.outputs),))
    call = _Call(batches).add(at.of(arrays, at.x), at.x).add(at.of(arrays, at.run), at.run)
    call.results(_instantiated(result_bar, range(len(result_bar))))
    return _operand_cotangents(arrays, at.linear[0], call.bind(tangents_p, steps=steps, moving=wanted), batches)


def _curvature_jvp(
    arrays: Sequence[ArrayLike], changes: Sequence[Change], *,
    steps: AbstractSteps, wanted: tuple[int, ...], moving: tuple[int, ...], batches: Batches,
) -> WithTangents:  # fmt: skip
    """The JVP of `curvature`, as the `x` part of the cotangents of the tangent chain."""
    at = Operands(steps, arrays, (len(steps.outputs), len(moving), len(steps.outputs)))
    results = curvature_p.bind(*arrays, steps=steps, wanted=wanted, moving=moving, batches=batches)
    at_w, at_dx, at_dw = at.linear
    inputs, full = [*at.x, *at_dx], steps.tangent(moving)
    by_x = _nonzero(changes, inputs)
    if not by_x and not _nonzero(changes, [*at_w, *at_dw]):
        return results, _zeros_like_results(results)
    call, places = (
        _Call(batches).add(at.of(arrays, inputs), inputs).add(at.of(arrays, at.run), at.run),
        [*at_dw, *at_w],
    )
    if not by_x:
        call.add(_instantiated(changes, places), places)
        return results, call.bind(cotangents_p, steps=full, wanted=wanted)
    call.add(at.of(arrays, places), places).add(at.of(changes, by_x), by_x).add(_instantiated(changes, places), places)
    return results, call.bind(curvature_p, steps=full, wanted=wanted, moving=tuple(inputs.index(k) for k in by_x))


def _curvature_transpose(
    result_bar: Sequence[Change], *arrays: Operand,
    steps: AbstractSteps, wanted: tuple[int, ...], moving: tuple[int, ...], batches: Batches,
) -> list[Array | None]:  # fmt: skip
    at = Operands(steps, arrays, (len(steps.outputs), len(moving), len(steps.outputs)))
    at_w, at_dx, at_dw = at.linear
    known, cotangents = [*at.x, *at.run], _instantiated(result_bar, range(len(result_bar)))
    unknown = [k for k in at_dx if ad.is_undefined_primal(arrays[k])]
    results: list[Array | None] = [None] * len(arrays)
    if unknown:
        call = _Call(batches).add(at.of(arrays, known), known).add(at.of(arrays, at_w), at_w)
        # Hessians are symmetric: transposed by `δx`, curvature is curvature, along the cotangents of its results.
        call.results(cotangents).zeros(steps.outputs)
        wanted_dx = tuple(moving[k - at_dx[0]] for k in unknown)
        cotangents_dx = call.bind(curvature_p, steps=steps, wanted=wanted_dx, moving=wanted)
        results = _operand_cotangents(arrays, unknown, cotangents_dx, batches)
    if any(ad.is_undefined_primal(arrays[k]) for k in at_dw):
        call = _Call(batches).add(at.of(arrays, known), known).results(cotangents)
        cotangents_dw = _operand_cotangents(arrays, at_dw, call.bind(tangents_p, steps=steps, moving=wanted), batches)
        results = [b if a is None else a for a, b in zip(results, cotangents_dw, strict=True)]
    return results


def _operand_cotangents(
    arrays: Sequence[Operand], places: Sequence[int], cotangents: Sequence[Array], batches: Batches
) -> list[Array | None]:
    """The cotangents of the operands with undefined primals, `None` for the others."""
    by_place = dict(zip(places, _summed(cotangents, places, batches), strict=True))
    return [by_place.get(k) if ad.is_undefined_primal(x) else None for k, x in enumerate(arrays)]


def _solve_jvp(
    arrays: Sequence[ArrayLike], changes: Sequence[Change], *,
    steps: AbstractSteps, recorded: bool, batches: Batches, **settings: object,
) -> WithTangents:  # fmt: skip
    """The derivatives at fixed steps: those by the first step and by the tolerances are zero."""
    inputs = range(len(steps.types))
    results = solve_p.bind(*arrays, steps=steps, recorded=True, batches=batches, **settings)
    count = len(steps.outputs)  # then the final time and six numbers
    moving, returned = _nonzero(changes, inputs), results if recorded else results[: count + 7]
    zeros = _zeros_like_results(returned)
    if not moving:
        return returned, zeros
    *schedule, checkpoints = results[count + 7 :]
    call = _Call(batches).add([arrays[k] for k in inputs], inputs)
    # The schedule as `packed` orders it: of the counts those of accepted steps and of saved times.
    call.results([*schedule, results[count + 2], results[count + 4], checkpoints])
    call.add([changes[k] for k in moving], moving)
    return returned, [*call.bind(tangents_p, steps=steps, moving=tuple(moving)), *zeros[count:]]


ad.primitive_jvps.update(
    {solve_p: _solve_jvp, tangents_p: _tangents_jvp, cotangents_p: _cotangents_jvp, curvature_p: _curvature_jvp}
)
ad.primitive_transposes.update(
    {tangents_p: _tangents_transpose, cotangents_p: _cotangents_transpose, curvature_p: _curvature_transpose}
)
