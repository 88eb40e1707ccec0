"""Everything in JAX that this package uses and that JAX does not document: nothing else imports it from JAX.

JAX may change these at any minor version, which is why `pyproject.toml` caps it. `USED` says what each one is used for,
and `tests/upstream/test_upstream.py` fails with that sentence when one of them is gone.
"""

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np
from jax._src import dispatch
from jax._src.interpreters import pxla
from jax._src.util import weakref_cache_key_types
from jax.core import ShapedArray as ShapedArray
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.custom_partitioning import custom_partitioning as custom_partitioning
from jax.extend.core import ClosedJaxpr as ClosedJaxpr
from jax.extend.core import Jaxpr as Jaxpr
from jax.extend.core import JaxprEqn as JaxprEqn
from jax.extend.core import Literal as Literal
from jax.extend.core import Primitive as Primitive
from jax.extend.core import Var as Var
from jax.extend.core import jaxpr_as_fun as jaxpr_as_fun
from jax.interpreters import ad as ad
from jax.interpreters import batching as batching
from jax.interpreters import mlir as mlir
from jax.interpreters import partial_eval as partial_eval

from jaxmbd.upstream.primitives import CALLS

T = TypeVar("T")

# The structure of a pytree, `jax.tree_util.PyTreeDef`, which type checkers take for a variable.
TreeDef: TypeAlias = Hashable
# What rules of primitives are given.
Tangent: TypeAlias = jax.Array | ad.Zero
Operand: TypeAlias = jax.Array | ad.UndefinedPrimal  # undefined where a primitive is transposed
BatchedAxes: TypeAlias = Sequence[int | None]

USED = {
    "jax.extend.core.Primitive": "programs, solves and sweeps over steps are primitives of their own",
    "jax.extend.core.Primitive.get_bind_params": "single equations of a jaxpr are differentiated",
    "jax.extend.core.ClosedJaxpr": "bodies of loops are translated like whole functions",
    "jax.extend.core.Jaxpr": "what a function computes is compared by its jaxpr, and searched for lookups in tables",
    "jax.extend.core.Literal": "constants in a jaxpr are told from its variables",
    "jax.extend.core.Literal.val": "constants in a jaxpr are read",
    "jax.extend.core.Literal.aval": "the types of constants in a jaxpr are read",
    "jax.extend.core.Jaxpr.eqns": "jaxprs are interpreted, translated, compared and searched",
    "jax.extend.core.Jaxpr.constvars": "the constants of a jaxpr are given to its equations",
    "jax.extend.core.Jaxpr.invars": "the arguments of a jaxpr are given to its equations",
    "jax.extend.core.Jaxpr.outvars": "the results of a jaxpr are found",
    "jax.extend.core.ClosedJaxpr.jaxpr": "a jaxpr is taken apart from its constants",
    "jax.extend.core.ClosedJaxpr.consts": "the constants of a jaxpr are read",
    "jax.extend.core.ClosedJaxpr.in_avals": "the types of the arguments of a jaxpr are read",
    "jax.extend.core.ClosedJaxpr.out_avals": "the types of the results of a jaxpr are read",
    "jax.extend.core.JaxprEqn.primitive": "a rule is found for each equation of a jaxpr",
    "jax.extend.core.JaxprEqn.params": "the rules read the parameters of equations (`primitives.py`)",
    "jax.extend.core.JaxprEqn.invars": "the operands of equations are found",
    "jax.extend.core.JaxprEqn.outvars": "the results of equations are kept",
    "jax.extend.core.JaxprEqn.effects": "what does more than compute is neither translated nor stored",
    "jax.extend.core.jaxpr_as_fun": "a traced function is differentiated without running its Python again",
    "jax.interpreters.ad.primitive_jvps": "programs and sweeps have forward derivatives",
    "jax.interpreters.ad.primitive_transposes": "programs and sweeps have reverse derivatives",
    "jax.interpreters.ad.instantiate_zeros": "tangents that are zero become arrays where a program takes them",
    "jax.interpreters.ad.is_undefined_primal": "transposition sees in which operands a program is linear",
    "jax.interpreters.ad.UndefinedPrimal": "operands in which a program is linear are told from arrays",
    "jax.extend.core.Var": "variables of a jaxpr are told from its constants",
    "jax.interpreters.mlir.LoweringRuleContext": "lowering rules are told for what they lower",
    "jax.interpreters.ad.Zero": "cotangents that are zero are recognised",
    "jax.interpreters.batching.primitive_batchers": "jax.vmap of a program is one call",
    "jax.interpreters.mlir.register_lowering": "primitives are compiled",
    "jax.interpreters.mlir.emit_python_callback": "the text of an error is written by Python while a program runs",
    "jax.interpreters.mlir.lower_fun": "a program that cannot run in the virtual machine is compiled by XLA",
    "jax.interpreters.mlir.ir_constant": "the number of a program is written into the compiled call",
    "jax.interpreters.partial_eval.custom_partial_eval_rules": "jax.linearize of a program computes values at once",
    "jax.interpreters.partial_eval.dce_jaxpr": "it is checked of which arguments a user's function makes use",
    "jax._src.util.weakref_cache_key_types": "what was traced is freed although it was a parameter of an equation",
    "jax.stages.Compiled._executable": "compiled functions are written to disk",
    "jax.stages.Compiled._params": "a compiled function that holds arrays of its own is not written to disk",
    "jax._src.interpreters.pxla.MeshExecutable._unloaded_executable": "compiled functions are written to disk as data",
    "jax.core.ShapedArray": "primitives say the types of their results",
    "jax.experimental.compilation_cache.compilation_cache.reset_cache": "compiled functions are written to disk",
    "jax._src.interpreters.pxla.batched_device_put": "the numbers of a mechanism become arrays ten times as fast",
    "jax._src.interpreters.pxla.get_default_device": "they are where arrays are by default",
    "jax._src.dispatch.prim_requires_devices_during_lowering": "programs and sweeps are divided among devices",
    "jax.experimental.custom_partitioning.custom_partitioning": "each device computes its part of a sharded batch",
}


def freed_when_unused(kind: type[T]) -> type[T]:
    """Let JAX refer weakly to objects of a class that are parameters of primitives.

    Its cache of the types of results would else keep the last 2,048 of them, with all that was traced for them.
    """
    weakref_cache_key_types.add(kind)
    return kind


def use_compilation_cache(wanted: bool) -> None:
    """Switch JAX's cache of compiled functions on or off. JAX reads the setting only once, until its cache is reset."""
    jax.config.update("jax_enable_compilation_cache", wanted)
    compilation_cache.reset_cache()


def compilation_cache_folder() -> str | None:
    """The folder of JAX's cache of compiled functions, also while that is switched off; None where there is none."""
    config: Any = jax.config
    return config.jax_compilation_cache_dir


def is_compilation_cache_on() -> bool:
    """True unless JAX's cache is switched off, by the user or by `use_compilation_cache`."""
    config: Any = jax.config
    return config.jax_enable_compilation_cache


def is_x64() -> bool:
    """True if JAX computes in double precision."""
    config: Any = jax.config
    return config.jax_enable_x64


def settings_of_tracing() -> tuple[object, ...]:
    """The settings of JAX that change what a function becomes when it is traced."""
    names = ("enable_x64", "default_matmul_precision", "numpy_rank_promotion", "numpy_dtype_promotion")
    return tuple(getattr(jax.config, f"jax_{name}") for name in names)


def watches_values() -> bool:
    """True if the user has asked JAX to watch what it computes, or to compute it elsewhere than usual."""
    names = ("disable_jit", "debug_nans", "debug_infs", "check_tracer_leaks", "default_device")
    return any(getattr(jax.config, f"jax_{name}") for name in names)


def put_on_device(numbers: np.ndarray) -> jax.Array:
    """An array on the default device, as of `jax.device_put`, which takes .1 ms for a single number, ten times as long.

    It is concrete also while a function is traced.
    """
    dtype = jax.dtypes.canonicalize_dtype(numbers.dtype)
    device = pxla.get_default_device()
    aval = ShapedArray(numbers.shape, dtype)
    return pxla.batched_device_put(aval, _sharding(device), [np.asarray(numbers, dtype)], [device], committed=False)


@cache
def _sharding(device: Any) -> Any:
    return jax.sharding.SingleDeviceSharding(device)


def default_platform() -> str:
    """Where JAX computes unless told otherwise, "cpu" or "gpu": on `jax_default_device`, if the user has set that."""
    config: Any = jax.config
    device = config.jax_default_device
    return jax.default_backend() if device is None else getattr(device, "platform", device)


def divide(primitive: Primitive) -> None:
    """Have JAX tell the lowering rule of a primitive for which mesh it lowers; see `is_partitioned`."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def is_partitioned(context: mlir.LoweringRuleContext) -> bool:
    """True if what is being lowered will be divided by XLA among the devices of a mesh.

    False inside of `jax.shard_map` over the whole mesh, where it has been divided already.
    """
    axes: Any = context.module_context.axis_context
    several, mesh = getattr(axes, "num_devices", 1) > 1, getattr(axes, "abstract_mesh", None)
    return several and mesh is not None and axes.device_assignment is not None


def unloaded_executable(compiled: jax.stages.Compiled) -> Any:
    """What JAX stores around XLA's machine code: names, types and shardings of arguments and results."""
    executable: Any = compiled._executable
    return executable._unloaded_executable


def has_constant_arguments(compiled: jax.stages.Compiled) -> bool:
    """True if a compiled function takes arrays that JAX has lifted out of it."""
    return bool(compiled._params.const_args)


def compiled_from(executable: Any, given: Any, results: Any) -> jax.stages.Compiled:
    """JAX's object for a loaded executable, with the structures of its arguments and results."""
    return jax.stages.Compiled(executable, [], given, results, no_kwargs=True)


def aval_of(variable: Var | Literal | Operand) -> ShapedArray:
    """The type of a variable or operand: JAX declares it as that of any value, and here are arrays alone."""
    aval: Any = variable.aval
    return aval


def types_of_operands(equation: JaxprEqn) -> list[jax.ShapeDtypeStruct]:
    """The types of the operands of an equation, to trace something else for them."""
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in map(aval_of, equation.invars)]


def bound(equation: JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """The results of one equation of a jaxpr for other operands."""
    results = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))
    return [*results] if equation.primitive.multiple_results else [results]


def expansion(params: dict[str, Any], types: Sequence[jax.ShapeDtypeStruct | ShapedArray]) -> ClosedJaxpr:
    """The jaxpr of a primitive that JAX defines in terms of others, such as `searchsorted` since jax 0.12."""
    return jax.make_jaxpr(params["_prim"].expand)(*types)


def called(name: str, params: dict[str, Any]) -> ClosedJaxpr | Jaxpr:
    """The jaxpr of the function that one of the primitives of `CALLS` calls."""
    return next(params[key] for key in CALLS[name] if key in params)


def replaces(params: dict[str, Any]) -> bool:
    """True if a `scatter` writes what it is given, and not a function of what was there (`x.at[…].apply`)."""
    update = params["update_jaxpr"]
    inner = getattr(update, "jaxpr", update)
    return inner is None or (not inner.eqns and inner.outvars[0] is inner.invars[1])


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many operands of a `scan` are constants, and how many are carried from one iteration to the next."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = params["ft_in"].unpack()  # since jax 0.11
    return len(constants), len(carried)


def linear_solve_operands(params: dict[str, Any]) -> tuple[ClosedJaxpr, slice, int]:
    """Of a `custom_linear_solve`: the jaxpr that solves, the operands that are its constants, and where `b` begins."""
    lengths, jaxprs = params["const_lengths"], params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    return jaxprs.solve, slice(first, first + lengths.solve), sum(lengths)
