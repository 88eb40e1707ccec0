"""The JAX primitive of a call whose arguments are known, except that they may be differentiated.

So the first derivatives of an analysis outside of `jit` are calls too: they run as NumPy code first, and are stored on
disk. Higher ones are JAX's derivatives of these.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
from jax import Array

from jaxmbd.arrays import is_concrete, is_known
from jaxmbd.engine.binding.mesh import in_mesh_of, outside_meshes
from jaxmbd.engine.calls.array_types import Type, has_tangent, types_of
from jaxmbd.engine.calls.calls import (
    Batch,
    Call,
    Linearization,
    LinearMap,
    Pushforward,
    Traced,
    Transpose,
    as_function,
    traced,
)
from jaxmbd.engine.calls.disk_cache import first_calls
from jaxmbd.engine.calls.first_calls import FirstCalls
from jaxmbd.engine.calls.identity import EXPANSIONS
from jaxmbd.engine.numpy_code.translation import CALL_RULES
from jaxmbd.upstream.jax_internals import (
    BatchedAxes,
    Operand,
    Primitive,
    ShapedArray,
    Tangent,
    ad,
    batching,
    mlir,
    partial_eval,
)

call_p = Primitive("jaxmbd_call")
call_p.multiple_results = True


def _types(call: Call) -> FirstCalls | Traced:
    """What has the types of the results of a call, and their structure."""
    return traced(call) if call.in_mesh else first_calls(call)


def _result_types(call: Call) -> tuple[Type, ...]:
    if isinstance(call, LinearMap):  # whose transpose alone is run by `jax.grad`
        linearization = _types(call.base)
        return tuple(x for x in linearization.results[: len(linearization.like[0])] if has_tangent(x))
    return _types(call).results


@call_p.def_impl
def _evaluate(*arrays: Array, call: Call) -> list[Array]:
    return first_calls(call).run([*arrays])


@call_p.def_abstract_eval
def _abstract_eval(*operands: ShapedArray, call: Call) -> list[ShapedArray]:
    return [in_mesh_of(operands, ShapedArray(*each)) for each in _result_types(call)]


def _by_xla(*arrays: Array, call: Call) -> list[Array]:
    return as_function(call)(*arrays)


def _lowered(context: mlir.LoweringRuleContext, *operands: Any, call: Call) -> Any:
    """The lowering rule: the call is compiled for the arrays of one device, as outside of meshes."""
    # Its types say nothing of a mesh, in which JAX rejects loops that begin with numbers that are equal on all devices.
    plain = [ShapedArray(*each) for each in call.types]
    with outside_meshes():
        return mlir.lower_fun(_by_xla, multiple_results=True)(context.replace(avals_in=plain), *operands, call=call)


mlir.register_lowering(call_p, _lowered)
EXPANSIONS["jaxmbd_call"] = _by_xla
CALL_RULES["jaxmbd_call"] = lambda at, equation, operands: at.inline(
    traced(equation.params["call"]).trace.jaxpr, operands
)


def _bind(arrays: Sequence[Array], call: Call) -> list[Array]:
    """The results of a derived call; by XLA if its operands are differentiated in their turn.

    Then JAX sees which of them have no derivative, such as the factors that a linear solver keeps.
    """
    if is_known(*arrays) and not is_concrete(*arrays):
        return _jitted(call)(*arrays)
    return call_p.bind(*arrays, call=call)


@lru_cache(maxsize=64)
def _jitted(call: Call) -> Callable[..., list[Array]]:
    return jax.jit(as_function(call))


def _jvp_rule(
    primals: Sequence[Array], tangents: Sequence[Tangent], *, call: Call
) -> tuple[list[Array], list[Tangent]]:
    changes = {k: x for k, x in enumerate(tangents) if not isinstance(x, ad.Zero)}
    operands, moving = [*primals, *changes.values()], tuple(changes)
    results = _bind(operands, Pushforward(types_of(operands), call, moving))
    kinds = _result_types(call)
    values, remaining = results[: len(kinds)], iter(results[len(kinds) :])
    zeros = (ad.Zero(jax.typeof(x).to_tangent_aval()) for x in values)
    return values, [next(remaining) if has_tangent(kind) else zero for kind, zero in zip(kinds, zeros, strict=True)]


def _partial_eval_rule(trace: Any, *operands: Any, call: Call) -> Any:
    """The rule for `jax.linearize`: the results are evaluated at once, the tangents remain as a linear call."""
    if isinstance(call, Pushforward):
        primals = [x.pval.get_known() for x in operands[: len(call.base.types)]]
        if all(x is not None for x in primals):
            linearization = Linearization(types_of(primals), call.base, call.moving)
            results = _bind(primals, linearization)
            count = len(_types(linearization).like[0])
            inputs = [*map(trace.new_const, results[count:]), *operands[len(primals) :]]
            linear = LinearMap(types_of(results[count:]) + call.types[len(primals) :], linearization)
            return *results[:count], *trace.default_process_primitive(call_p, inputs, {"call": linear})
    return trace.default_process_primitive(call_p, operands, {"call": call})


def _transpose_rule(cotangents: Sequence[Tangent], *operands: Operand, call: Call) -> list[Array | None]:
    linear = tuple(k for k, x in enumerate(operands) if isinstance(x, ad.UndefinedPrimal))
    given = {k: x for k, x in enumerate(cotangents) if not isinstance(x, ad.Zero)}
    arrays = [*(x for x in operands if not isinstance(x, ad.UndefinedPrimal)), *given.values()]
    results: list[Array | None] = [None] * len(operands)
    found = _bind(arrays, Transpose(types_of(arrays), call, linear, tuple(given)))
    for k, x in zip(linear, found, strict=True):
        results[k] = x
    return results


def _batching_rule(operands: Sequence[Array], axes: BatchedAxes, *, call: Call) -> tuple[list[Array], BatchedAxes]:
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    results = [*_bind(operands, Batch(types_of(operands), call, tuple(axes), size))]
    batched: list[int | None] = [0] * len(results)
    if isinstance(call, Pushforward):
        primals = operands[: len(call.base.types)]
        # They share the values: those of a batch would have an axis, and so would all that is computed from them.
        if all(axis is None for axis in axes[: len(primals)]):  # of several tangents, as in `jax.jacfwd`
            values = _bind(primals, call.base)
            results[: len(values)], batched[: len(values)] = values, [None] * len(values)
    return results, batched


ad.primitive_jvps[call_p] = _jvp_rule
ad.primitive_transposes[call_p] = _transpose_rule
partial_eval.custom_partial_eval_rules[call_p] = _partial_eval_rule
batching.primitive_batchers[call_p] = _batching_rule
