"""The JAX primitive that runs a program: one custom call for XLA, with rules for derivatives and batches.

`as_program` wraps a function of pytrees. Its derivatives and transposes are programs too; batches are run in lanes of
the virtual machine.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmbd.arrays import is_concrete
from jaxmbd.engine.binding.mesh import BatchAxes, divided, in_mesh_of, placed_by_xla, varying_alike
from jaxmbd.engine.binding.trace_once import is_array, is_for_known_values
from jaxmbd.engine.binding.tracing import TracedFunction, equations_in, pruned, traced
from jaxmbd.engine.machine.build_vm import TARGETS, call_program, vm
from jaxmbd.engine.machine.straight_line_compiler import request_if_stored, watch
from jaxmbd.engine.numpy_code.translation import CALL_RULES, Translator
from jaxmbd.engine.program.schedule import Program
from jaxmbd.engine.store.sized_cache import EQUATIONS_KEPT, sized_cache
from jaxmbd.upstream.jax_internals import (
    BatchedAxes,
    JaxprEqn,
    Operand,
    Primitive,
    ShapedArray,
    Tangent,
    TreeDef,
    ad,
    aval_of,
    batching,
    default_platform,
    divide,
    is_partitioned,
    mlir,
    partial_eval,
)

Result = TypeVar("Result")
Types: TypeAlias = tuple[tuple[tuple[int, ...], np.dtype], ...]  # shape and dtype of arrays

run_p = Primitive("jaxmbd_program")
run_p.multiple_results = True


def as_program(function: Callable[..., Result], forward: bool = False) -> Callable[..., Result]:
    """Wrap a function so that it runs as a program, on a CPU and if all of it is arithmetic; else XLA runs it, jitted.

    Arguments and results are pytrees; arrays that the function closes over must be arguments. In both cases it is
    traced once for each structure and type of the arguments, however often it is called. `forward`: True if it will be
    differentiated in forward mode only, which is then faster.

        >>> print(mbd.extend.as_program(lambda x: x * x + 1)(jnp.asarray(2.0)))
        5.0
    """

    @placed_by_xla
    def call(*arguments: object) -> Result:
        leaves, tree = jax.tree.flatten(arguments)
        entry = _look_up(function, leaves, tree, forward)
        if entry is None:
            return eqx.filter_jit(function)(*arguments)
        program, results = entry
        arrays = _arrays(leaves)
        dtype = _float_dtype(_types_of(arrays))
        operands = [_as_number(arrays[k], dtype) for k in program.used]
        likes, structure = jax.tree.flatten(results)
        values = operands
        # Coordinates without quaternions are normalised by a copy: a call that only copies is spared for each saved
        # time.
        if not program.is_identity:
            values = run_p.bind(*varying_alike(operands), function=program, batch=0)
        values = [x != 0 if like.dtype == np.bool_ else x for x, like in zip(values, likes, strict=True)]
        return jax.tree.unflatten(structure, values)

    return call


def is_program(function: Callable[..., object], *arguments: object, forward: bool = False) -> bool:
    """Return True if `as_program(function, forward)` runs a program for these arguments.

    >>> mbd.extend.is_program(jnp.linalg.svd, jnp.eye(2))  # no arithmetic of known size
    False
    """
    return _look_up(function, *jax.tree.flatten(arguments), forward) is not None


def prefers_programs() -> bool:
    """Return True if programs run here, and a function that is being traced may run for a batch.

    For one instance with known values, which runs as NumPy code, it takes longer to express small matrices as programs
    than NumPy takes with them.
    """
    return default_platform() == "cpu" and vm() is not None and not is_for_known_values()


def _look_up(
    function: Callable[..., object], leaves: list[object], tree: TreeDef, forward: bool
) -> tuple[TracedFunction, Any] | None:
    if default_platform() != "cpu" or vm() is None:
        return None
    is_dynamic = tuple(is_array(leaf) for leaf in leaves)
    static = tuple(None if dynamic else leaf for leaf, dynamic in zip(leaves, is_dynamic, strict=True))
    return _program_of(function, tree, is_dynamic, static, _types_of(_arrays(leaves)), forward)


def _arrays(leaves: list[object]) -> list[Array]:
    return [leaf for leaf in leaves if is_array(leaf)]


def _types_of(arrays: list[Array]) -> Types:
    return tuple((x.shape, x.dtype) for x in arrays)


def _as_number(x: Array, dtype: np.dtype) -> Array:
    """Convert booleans to numbers: a program has one type of value."""
    return x.astype(dtype) if x.dtype == np.bool_ else x


def _float_dtype(types: Types) -> np.dtype:
    """The dtype of the first floating-point array; JAX's default if there is none."""
    return next((dtype for _, dtype in types if jnp.issubdtype(dtype, np.floating)), jnp.result_type(float))


@sized_cache(EQUATIONS_KEPT, lambda found: 1 if found is None else 1 + equations_in(found[0].jaxpr))
def _program_of(
    function: Callable[..., object],
    tree: TreeDef,
    is_dynamic: tuple[bool, ...],
    static: tuple[object, ...],
    types: Types,
    forward: bool,
) -> tuple[TracedFunction, Any] | None:
    """Trace the function of the arrays among the leaves; also return the types of its results.

    None if it cannot be expressed as a program.
    """
    dtype, result_types = _float_dtype(types), None

    def flat(*operands: Array) -> list[Array]:
        nonlocal result_types
        arrays = iter(x != 0 if kind == np.bool_ else x for x, (_, kind) in zip(operands, types, strict=True))
        leaves = [next(arrays) if dynamic else leaf for dynamic, leaf in zip(is_dynamic, static, strict=True)]
        results = function(*jax.tree.unflatten(tree, leaves))
        result_types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), results)
        return [_as_number(x, dtype) for x in jax.tree.leaves(results)]

    operand_types = [jax.ShapeDtypeStruct(shape, dtype if kind == np.bool_ else kind) for shape, kind in types]
    traced_function = pruned(traced(flat, operand_types, returns_primal=forward))
    return None if traced_function.program is None else (traced_function, result_types)


def _is_batched(function: TracedFunction, operands: Sequence[Any]) -> list[bool]:
    """For each operand, True if it has a batch axis."""
    return [np.ndim(x) > len(like.shape) for x, like in zip(operands, function.types, strict=True)]


def _varying(function: TracedFunction, is_batched: list[bool]) -> list[bool]:
    """For each result, True if it differs between the instances of a batch."""
    return [any(is_batched[k] for k in dependencies) for dependencies in function.dependencies]


@run_p.def_abstract_eval
def _abstract_eval(*operands: ShapedArray, function: TracedFunction, batch: int) -> list[ShapedArray]:
    varying = _varying(function, _is_batched(function, operands))
    shapes = [(batch, *x.shape) if varies else x.shape for x, varies in zip(function.results, varying, strict=True)]
    return [in_mesh_of(operands, x.update(shape=shape)) for x, shape in zip(function.results, shapes, strict=True)]


@run_p.def_impl
def _evaluate(*operands: Array, function: TracedFunction, batch: int) -> Sequence[Array]:
    if _is_direct(function, operands):
        program, dtype = function.program, np.dtype(function.results[0].dtype)
        assert program is not None
        # Tables of constants are operands: a program is one for both precisions, and its key does not know their
        # numbers.
        tables = [table.astype(dtype) for table in program.constant_tables]
        types = _abstract_eval(*map(jax.typeof, operands), function=function, batch=batch)
        results = call_program(register(program), batch, dtype, [*map(np.asarray, operands), *tables], types)
        return [jax.device_put(x) for x in results]
    with jax.disable_jit(False):  # otherwise `jax.jit` evaluates the primitive eagerly, an infinite recursion
        return _jitted_call(function, batch)(*operands)


def _is_direct(function: TracedFunction, operands: Sequence[Array | np.ndarray]) -> bool:
    """True if the virtual machine can run a program at once: on a CPU, with whole arrays of one device."""
    if default_platform() != "cpu" or vm() is None or function.program is None or not function.results:
        return False
    device = jax.devices()[0]
    return all(not isinstance(x, jax.Array) or (is_concrete(x) and x.devices() == {device}) for x in operands)


def _numpy_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    """The NumPy code of a program: a call of the virtual machine."""
    function, batch = equation.params["function"], equation.params["batch"]
    # Without the machine the call is taken apart: its operations are NumPy code themselves.
    if vm() is None or function.program is None or not function.results:
        return at.expand(equation, _run_by_xla, operands)
    program, dtype = function.program, np.dtype(function.results[0].dtype)
    tables = [at.constant(table.astype(dtype)) for table in program.constant_tables]
    results = [[list(x.shape), x.dtype.name] for x in map(aval_of, equation.outvars)]
    settings = {"key": register(program), "batch": batch, "dtype": dtype.name, "results": results}
    return at.emit("program", [*operands, *tables], len(results), **settings)


CALL_RULES["jaxmbd_program"] = _numpy_rule


@lru_cache(maxsize=256)
def _jitted_call(function: TracedFunction, batch: int) -> Callable[..., list[Array]]:
    return jax.jit(partial(run_p.bind, function=function, batch=batch))


def _run_by_xla(*operands: Array | np.ndarray, function: TracedFunction, batch: int) -> Sequence[Array]:
    if not batch:
        return function(*operands)
    is_batched = _is_batched(function, operands)
    pairs = zip(operands, is_batched, strict=True)
    # An operand may have one entry for a block of instances (`_batching_rule`), which `jax.vmap` knows nothing of.
    operands = tuple(jnp.repeat(x, batch // len(x), axis=0) if batched else x for x, batched in pairs)
    axes = tuple(0 if batched else None for batched in is_batched)
    results = jax.vmap(lambda *x: tuple(function(*x)), axes, axis_size=batch)(*operands)
    return [x if varies else x[0] for x, varies in zip(results, _varying(function, is_batched), strict=True)]


def _divided(*operands: Array, function: TracedFunction, batch: int) -> list[Array]:
    """The same call, divided among devices: blocks of instances are written out, since they may be on several."""
    is_batched = _is_batched(function, operands)
    pairs = zip(operands, is_batched, strict=True)
    operands = tuple(jnp.repeat(x, batch // len(x), axis=0) if batched else x for x, batched in pairs)
    of_operands, of_results = (
        tuple((0,) if batched else () for batched in each) for each in (is_batched, _varying(function, is_batched))
    )

    def part(sizes: tuple[int], *arrays: Array) -> list[Array]:
        return run_p.bind(*arrays, function=function, batch=sizes[0])

    assert function.program is not None
    axes, key = BatchAxes((batch,), of_operands, of_results), register(function.program)
    return divided(part, axes, [np.array([key], np.uint64).view(np.int32)])(*operands)


def _lower_for_vm(context: mlir.LoweringRuleContext, *operands: Any, function: TracedFunction, batch: int) -> Any:
    in_jax = _run_by_xla if vm() is None or function.program is None else None
    in_jax = _divided if in_jax is None and batch and is_partitioned(context) else in_jax
    if in_jax is not None:
        return mlir.lower_fun(in_jax, multiple_results=True)(context, *operands, function=function, batch=batch)
    dtype, program = np.dtype(function.results[0].dtype), function.program
    assert program is not None
    tables = [table.astype(dtype) for table in program.constant_tables]
    context = context.replace(avals_in=[*context.avals_in, *map(jax.typeof, tables)])
    arguments = (*operands, *map(mlir.ir_constant, tables))
    # A key and no address is compiled in: what is stored on disk finds the program again in another process.
    lower = jax.ffi.ffi_lowering(TARGETS[dtype])
    return lower(context, *arguments, batch=np.int64(batch), key=np.int64(register(program)))


_programs: dict[int, Program] = {}  # keeps the tables alive, which the virtual machine reads in place
_lock = threading.Lock()  # of `_programs` and of the virtual machine's table, which must refer to the same arrays
_collected: ContextVar[dict[int, Program] | None] = ContextVar("collected", default=None)


def register(program: Program) -> int:
    """Register a program with the virtual machine, and return its key.

    The virtual machine reads the tables of the program that was registered first under a key, so that program object
    is the one to keep alive, whichever thread comes first.
    """
    library, collected = vm(), _collected.get()
    if library is not None:
        with _lock:
            if program.key not in _programs:
                tables = (ctypes.c_void_p(x.ctypes.data) for x in program.tables)
                if library.jaxmbd_register(ctypes.c_uint64(program.key), *tables):
                    raise MemoryError("There is no memory left to register a program.")
                _programs[program.key] = program
                watch(_programs)
                request_if_stored(program)
    if collected is not None:
        collected[program.key] = program
    return program.key


@contextmanager
def registering() -> Iterator[dict[int, Program]]:
    """Collect by key the programs that are registered inside this context."""
    programs: dict[int, Program] = {}
    token = _collected.set(programs)
    try:
        yield programs
    finally:
        _collected.reset(token)


divide(run_p)
mlir.register_lowering(run_p, mlir.lower_fun(_run_by_xla, multiple_results=True))
mlir.register_lowering(run_p, _lower_for_vm, platform="cpu")


def _batching_rule(
    operands: Sequence[Array], axes: BatchedAxes, *, function: TracedFunction, batch: int
) -> tuple[list[Array], BatchedAxes]:
    """The batching rule: the new, outer batch axis is merged with the inner one that the primitive already has.

    An operand of the primitive has no batch axis, or one of the size of the batch, or one of a divisor of it: then each
    of its entries is for a block of instances that follow one another.
    """
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    if size == 0:
        return _of_empty_batch(operands, axes, function, batch)
    moved = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    is_outer = [axis is not None for axis in axes]
    is_inner = [
        x.ndim - outer > len(like.shape) for x, outer, like in zip(moved, is_outer, function.types, strict=True)
    ]
    # Operands without an inner axis stay as they are: broadcast, all parameters of a mechanism were copied for each of
    # its saved times.
    moved = [_merged_axes(*each, size) for each in zip(moved, is_outer, is_inner, strict=True)]
    results = list(run_p.bind(*moved, function=function, batch=size * max(batch, 1)))
    outer, inner = _varying(function, is_outer), _varying(function, is_inner)
    for k, x in enumerate(results):
        if batch and (outer[k] or inner[k]):
            x = x.reshape(size, batch, *x.shape[1:])
            results[k] = x[:, 0] if not inner[k] else x if outer[k] else x[0]
    return results, [0 if varies else None for varies in outer]


def _of_empty_batch(
    operands: Sequence[Array], axes: BatchedAxes, function: TracedFunction, batch: int
) -> tuple[list[Array], BatchedAxes]:
    """The results for a batch of size zero: empty, except for those that do not vary.

    So the primitive never sees an empty batch, and its parameter `batch = 0` always means that there is no batch axis.
    """
    is_outer = [axis is not None for axis in axes]
    single = [
        x if axis is None else jnp.zeros(np.delete(x.shape, axis), x.dtype)
        for x, axis in zip(operands, axes, strict=True)
    ]
    results = run_p.bind(*single, function=function, batch=batch)
    outer = _varying(function, is_outer)
    empty = [jnp.zeros((0, *x.shape), x.dtype) if varies else x for x, varies in zip(results, outer, strict=True)]
    return empty, [0 if varies else None for varies in outer]


def _merged_axes(x: Array, is_outer: bool, is_inner: bool, size: int) -> Array:
    """An operand with its outer and inner batch axes merged to one; one that has no inner axis varies over blocks."""
    if not is_inner:
        return x
    x = x if is_outer else jnp.broadcast_to(x, (size, *x.shape))
    return x.reshape(size * x.shape[1], *x.shape[2:])


batching.primitive_batchers[run_p] = _batching_rule


def _jvp_rule(
    primals: Sequence[Array], tangents: Sequence[Tangent], *, function: TracedFunction, batch: int
) -> tuple[Sequence[Array], Sequence[Array]]:
    moving = tuple(k for k, x in enumerate(tangents) if not isinstance(x, ad.Zero))
    nonzero = [tangents[k] for k in moving]
    results = run_p.bind(*primals, *nonzero, function=function.derivative(moving), batch=batch)
    if function.returns_primal:
        return results[: len(function.results)], results[len(function.results) :]
    # Two programs, although they compute much in common: reverse mode transposes that of the tangents alone.
    return run_p.bind(*primals, function=function, batch=batch), results


def _transpose_rule(
    cotangents: Sequence[Tangent], *operands: Operand, function: TracedFunction, batch: int
) -> list[Array | None]:
    wanted = tuple(k for k, x in enumerate(operands) if ad.is_undefined_primal(x))
    residuals = [x for k, x in enumerate(operands) if k not in wanted]
    instantiated = [ad.instantiate_zeros(x) for x in cotangents]
    pulled_back = run_p.bind(*residuals, *instantiated, function=function.transpose(wanted), batch=batch)
    results: list[Array | None] = [None] * len(operands)
    for k, x in zip(wanted, pulled_back, strict=True):
        shape, own = aval_of(operands[k]).shape, function.types[k].shape
        blocks = shape[0] if len(shape) > len(own) else 1
        # An entry that serves a block of instances gets the sum of their cotangents.
        blockwise = (blocks, max(batch, 1) // blocks, *own)
        results[k] = x if x.shape == shape else jnp.sum(x.reshape(blockwise), axis=1).reshape(shape)
    return results


def _partial_eval_rule(trace: Any, *operands: Any, function: TracedFunction, batch: int) -> Any:
    """The rule for `jax.linearize` of a program that returns primals and tangents.

    The primals are evaluated at once, and the tangents remain as a linear function.
    """
    known, halves = [x.pval.get_known() for x in operands], None
    if function.derived is not None and any(x is None for x in known):
        is_known = all(x is not None for x in known[: len(function.derived[0].types)])
        halves = function.halves() if is_known else None
    if halves is None:
        return trace.default_process_primitive(run_p, operands, {"function": function, "batch": batch})
    primal, tangent = halves
    results = run_p.bind(*known[: len(primal.types)], function=primal, batch=batch)
    return *results, *trace.default_process_primitive(run_p, operands, {"function": tangent, "batch": batch})


ad.primitive_jvps[run_p] = _jvp_rule
ad.primitive_transposes[run_p] = _transpose_rule
partial_eval.custom_partial_eval_rules[run_p] = _partial_eval_rule
