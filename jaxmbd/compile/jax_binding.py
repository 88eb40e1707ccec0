"""Functions of arrays that run as programs: one call for XLA, however much is inside.

`compiled` makes one of a function of pytrees. The call is a primitive of JAX, with rules for derivatives, which are
programs too, and for batches, which the machine runs in lanes.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import ManualAxisType, NamedSharding, PartitionSpec

from jaxmbd.compile.jax_internals import Primitive, ad, batching, mlir, partial_eval
from jaxmbd.compile.passes.schedule import Program
from jaxmbd.compile.targets.build_vm import TARGETS, vm
from jaxmbd.compile.traced_function import TracedFunction, pruned, traced
from jaxmbd.compile.tracing import is_array

run_p = Primitive("jaxmbd_program")
run_p.multiple_results = True


def as_program(function: Callable[..., Any], forward: bool = False) -> Callable[..., Any]:
    """The same function, run as a program where that can be: on a CPU, and if all of it is arithmetic.

    Else it is run by XLA, as a function of its own. Arguments and results are pytrees; arrays that the function
    closes over must be arguments. Either way it is traced once for each structure and type of the arguments, however
    often it is called. `forward`: it will be differentiated forward only, which is then faster.
    """

    def call(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        found = _look_up(function, leaves, tree, forward)
        if found is None:
            return eqx.filter_jit(function)(*arguments)
        program, results = found
        arrays = _arrays(leaves)
        number = _number_type(_types_of(arrays))
        given = [_as_number(arrays[k], number) for k in program.used]
        likes, structure = jax.tree.flatten(results)
        values = run_p.bind(*_varying_alike(given), function=program, batch=0)
        values = [x != 0 if like.dtype == np.bool_ else x for x, like in zip(values, likes, strict=True)]
        return jax.tree.unflatten(structure, values)

    return call


def _varying_alike(operands: list[Any]) -> list[Any]:
    """Inside `jax.shard_map`, all operands as varying along the axes of the mesh along which any of them varies.

    JAX transposes this cast to the sum over the mesh that the cotangents of the others need.
    """
    varying = [jax.typeof(x).mat.varying for x in operands]
    axes = frozenset().union(*varying)
    return [
        jax.lax.pcast(x, tuple(sorted(axes - mine)), to="varying") if axes - mine else x
        for x, mine in zip(operands, varying, strict=True)
    ]


def is_program(function: Callable[..., Any], *arguments: Any, forward: bool = False) -> bool:
    """Whether `compiled(function, forward)` runs these arguments as a program."""
    return _look_up(function, *jax.tree.flatten(arguments), forward) is not None


def _look_up(
    function: Callable[..., Any], leaves: list[Any], tree: Any, forward: bool
) -> tuple[TracedFunction, Any] | None:
    if jax.default_backend() != "cpu" or vm() is None:
        return None
    arrays_at = tuple(is_array(leaf) for leaf in leaves)
    others = tuple(None if mine else leaf for leaf, mine in zip(leaves, arrays_at, strict=True))
    return _program_of(function, tree, arrays_at, others, _types_of(_arrays(leaves)), forward)


def _arrays(leaves: list[Any]) -> list[Any]:
    return [leaf for leaf in leaves if is_array(leaf)]


def _types_of(arrays: list[Any]) -> tuple[Any, ...]:
    return tuple((x.shape, x.dtype) for x in arrays)


def _as_number(x: Any, number: Any) -> Any:
    """A boolean as a number of the type of the others."""
    return x.astype(number) if x.dtype == np.bool_ else x


def _number_type(types: Any) -> Any:
    return next((dtype for _, dtype in types if np.issubdtype(dtype, np.floating)), jnp.result_type(float))


@lru_cache(maxsize=256)
def _program_of(
    function: Callable[..., Any],
    tree: Any,
    arrays_at: tuple[bool, ...],
    others: tuple[Any, ...],
    types: Any,
    forward: bool,
) -> tuple[TracedFunction, Any] | None:
    """The function of the arrays among the leaves, and the types of its results; None where it is no program."""
    number, shape = _number_type(types), None

    def flat(*given: Any) -> Any:
        nonlocal shape
        arrays = iter(x != 0 if dtype == np.bool_ else x for x, (_, dtype) in zip(given, types, strict=True))
        leaves = [next(arrays) if mine else other for mine, other in zip(arrays_at, others, strict=True)]
        results = function(*jax.tree.unflatten(tree, leaves))
        shape = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), results)
        return [_as_number(x, number) for x in jax.tree.leaves(results)]

    given = [jax.ShapeDtypeStruct(shape, number if dtype == np.bool_ else dtype) for shape, dtype in types]
    found = pruned(traced(flat, given, returns_primal=forward))
    return None if found.program is None else (found, shape)


def _is_batched(function: TracedFunction, operands: Any) -> list[bool]:
    return [np.ndim(x) > len(like.shape) for x, like in zip(operands, function.types, strict=True)]


def _varying(function: TracedFunction, is_batched: list[bool]) -> list[bool]:
    """Which results differ from instance to instance."""
    return [any(is_batched[k] for k in dependencies) for dependencies in function.dependencies]


@run_p.def_abstract_eval
def _types(*operands: Any, function: TracedFunction, batch: int) -> Any:
    varying = _varying(function, _is_batched(function, operands))
    shapes = [(batch, *x.shape) if varies else x.shape for x, varies in zip(function.results, varying, strict=True)]
    return [_in_mesh_of(operands, x.update(shape=shape)) for x, shape in zip(function.results, shapes, strict=True)]


def _in_mesh_of(operands: Any, result: Any) -> Any:
    """The type of a result in the mesh of the operands, varying along its manual axes as they do."""
    mesh = next((x.sharding.mesh for x in operands if not x.sharding.mesh.empty), None)
    if mesh is None:
        return result
    axes = frozenset().union(*(x.mat.varying for x in operands))
    whole = NamedSharding(mesh, PartitionSpec(*[None] * result.ndim))
    return result.update(sharding=whole, manual_axis_type=ManualAxisType(varying=axes))


@run_p.def_impl
def _evaluated(*operands: Any, function: TracedFunction, batch: int) -> Any:
    with jax.disable_jit(False):  # otherwise `jax.jit` evaluates the primitive, which would come back here
        return _on_its_own(function, batch)(*operands)


@lru_cache(maxsize=256)
def _on_its_own(function: TracedFunction, batch: int) -> Callable[..., Any]:
    return jax.jit(partial(run_p.bind, function=function, batch=batch))


def _by_xla(*operands: Any, function: TracedFunction, batch: int) -> Any:
    if not batch:
        return function(*operands)
    is_batched = _is_batched(function, operands)
    axes = tuple(0 if mine else None for mine in is_batched)
    results = jax.vmap(lambda *x: tuple(function(*x)), axes, axis_size=batch)(*operands)
    return [x if varies else x[0] for x, varies in zip(results, _varying(function, is_batched), strict=True)]


def _by_machine(context: Any, *operands: Any, function: TracedFunction, batch: int) -> Any:
    if vm() is None or function.program is None:
        return mlir.lower_fun(_by_xla, multiple_results=True)(context, *operands, function=function, batch=batch)
    number, program = np.dtype(function.results[0].dtype), function.program
    tables = [table.astype(number) for table in program.constant_tables]
    context = context.replace(avals_in=[*context.avals_in, *map(jax.typeof, tables)])
    given = (*operands, *map(mlir.ir_constant, tables))
    lower = jax.ffi.ffi_lowering(TARGETS[number])
    return lower(context, *given, batch=np.int64(batch), key=np.int64(register(program)))


_programs: dict[int, Program] = {}  # keeps the tables alive, which the machine reads in place
_lock = threading.Lock()  # of `_programs` and of the machine's own table, which must agree on whose tables are read
_asked: ContextVar[dict[int, Program] | None] = ContextVar("asked", default=None)


def register(program: Program) -> int:
    """Make a program known to the machine, and give the key by which it knows it.

    The tables of the program that is registered first under a key are those that the machine reads from then on, so
    it is that program which is kept alive, whichever thread comes first.
    """
    library, asked = vm(), _asked.get()
    if library is not None:
        with _lock:
            if program.key not in _programs:
                tables = (ctypes.c_void_p(x.ctypes.data) for x in program.tables)
                if library.jaxmbd_register(ctypes.c_uint64(program.key), *tables):
                    raise MemoryError("There is no memory left to register a program.")
                _programs[program.key] = program
    if asked is not None:
        asked[program.key] = program
    return program.key


@contextmanager
def registering() -> Iterator[dict[int, Program]]:
    """Collects the programs that what is compiled meanwhile calls, by their keys."""
    found: dict[int, Program] = {}
    token = _asked.set(found)
    try:
        yield found
    finally:
        _asked.reset(token)


mlir.register_lowering(run_p, mlir.lower_fun(_by_xla, multiple_results=True))
mlir.register_lowering(run_p, _by_machine, platform="cpu")


def _batched(operands: Any, axes: Any, *, function: TracedFunction, batch: int) -> Any:
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    if size == 0:
        return _of_no_lanes(operands, axes, function, batch)
    moved = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    is_outer = [axis is not None for axis in axes]
    is_inner = [x.ndim - mine > len(like.shape) for x, mine, like in zip(moved, is_outer, function.types, strict=True)]
    if batch:  # a batch of batches is one batch
        moved = [_joined(*mine, size, batch) for mine in zip(moved, is_outer, is_inner, strict=True)]
    results = list(run_p.bind(*moved, function=function, batch=size * max(batch, 1)))
    outer, inner = _varying(function, is_outer), _varying(function, is_inner)
    for k, x in enumerate(results):
        if batch and (outer[k] or inner[k]):
            x = x.reshape(size, batch, *x.shape[1:])
            results[k] = x[:, 0] if not inner[k] else x if outer[k] else x[0]
    return results, [0 if varies else None for varies in outer]


def _of_no_lanes(operands: Any, axes: Any, function: TracedFunction, batch: int) -> Any:
    """Empty results, but for those that no lane has a part in. So the primitive never sees an empty batch, and its
    `batch = 0` always means that there is none."""
    is_outer = [axis is not None for axis in axes]
    given = [
        x if axis is None else jnp.zeros(np.delete(x.shape, axis), x.dtype)
        for x, axis in zip(operands, axes, strict=True)
    ]
    results = run_p.bind(*given, function=function, batch=batch)
    outer = _varying(function, is_outer)
    empty = [jnp.zeros((0, *x.shape), x.dtype) if varies else x for x, varies in zip(results, outer, strict=True)]
    return empty, [0 if varies else None for varies in outer]


def _joined(x: Any, is_outer: bool, is_inner: bool, size: int, batch: int) -> Any:
    if not is_outer and not is_inner:
        return x
    shape = x.shape[is_outer + is_inner :]
    x = x if is_outer else x[None]
    x = x if is_inner else x[:, None]
    return jnp.broadcast_to(x, (size, batch, *shape)).reshape(size * batch, *shape)


batching.primitive_batchers[run_p] = _batched


def _differentiated(primals: Any, tangents: Any, *, function: TracedFunction, batch: int) -> Any:
    moving = tuple(k for k, x in enumerate(tangents) if not isinstance(x, ad.Zero))
    changes = [tangents[k] for k in moving]
    found = run_p.bind(*primals, *changes, function=function.derivative(moving), batch=batch)
    if function.returns_primal:
        return found[: len(function.results)], found[len(function.results) :]
    return run_p.bind(*primals, function=function, batch=batch), found


def _transposed(cotangents: Any, *operands: Any, function: TracedFunction, batch: int) -> Any:
    wanted = tuple(k for k, x in enumerate(operands) if ad.is_undefined_primal(x))
    known = [x for k, x in enumerate(operands) if k not in wanted]
    given = [ad.instantiate_zeros(x) for x in cotangents]
    found = run_p.bind(*known, *given, function=function.transpose(wanted), batch=batch)
    results: list[Any] = [None] * len(operands)
    for k, x in zip(wanted, found, strict=True):
        is_shared = batch and len(operands[k].aval.shape) == len(function.types[k].shape)
        results[k] = jnp.sum(x, axis=0) if is_shared else x
    return results


def _partially_evaluated(trace: Any, *operands: Any, function: TracedFunction, batch: int) -> Any:
    """`jax.linearize` of a program of values and tangents: values at once, tangents as a linear function."""
    known, halves = [x.pval.get_known() for x in operands], None
    if function.derived is not None and any(x is None for x in known):
        is_known = all(x is not None for x in known[: len(function.derived[0].types)])
        halves = function.halves() if is_known else None
    if halves is None:
        return trace.default_process_primitive(run_p, operands, {"function": function, "batch": batch})
    values, tangents = halves
    found = run_p.bind(*known[: len(values.types)], function=values, batch=batch)
    return *found, *trace.default_process_primitive(run_p, operands, {"function": tangents, "batch": batch})


ad.primitive_jvps[run_p] = _differentiated
ad.primitive_transposes[run_p] = _transposed
partial_eval.custom_partial_eval_rules[run_p] = _partially_evaluated
