"""Meshes of devices: calls inside `jax.shard_map`, and calls for batches whose instances are on several devices.

XLA knows nothing of what a foreign function computes, so it gathers the whole batch on every device and calls the
function there. `jax.experimental.custom_partitioning` tells it which axes of operands and results count instances:
then each device computes those that it holds.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, ManualAxisType, Mesh, NamedSharding, PartitionSpec

from jaxmbd.engine.numpy_code.translation import CALL_RULES
from jaxmbd.upstream.jax_internals import (
    ClosedJaxpr,
    Primitive,
    ShapedArray,
    batching,
    custom_partitioning,
    divide,
    is_partitioned,
    jaxpr_as_fun,
    mlir,
)

Result = TypeVar("Result")

# --- inside `jax.shard_map` -------------------------------------------------------------------------------


def is_in_shard_map() -> bool:
    """True where each device has arrays of its own."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def outside_meshes() -> AbstractContextManager[object]:
    """While something is traced whose jaxpr is to serve in any mesh, and outside of meshes."""
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))


def varying_alike(operands: Sequence[Array]) -> list[Array]:
    """Inside `jax.shard_map`, cast all operands to vary along every mesh axis along which any of them varies.

    JAX transposes this cast to the sum over the mesh that the cotangents of the replicated operands need.
    """
    varying = [jax.typeof(x).mat.varying for x in operands]
    axes = frozenset().union(*varying)
    return [
        jax.lax.pcast(x, tuple(sorted(axes - present)), to="varying") if axes - present else x
        for x, present in zip(operands, varying, strict=True)
    ]


def in_mesh_of(operands: Sequence[ShapedArray], result: ShapedArray) -> ShapedArray:
    """The type of a result in the mesh of the operands, varying along its manual axes as they do."""
    mesh = next((x.sharding.mesh for x in operands if not x.sharding.mesh.empty), None)
    if mesh is None:
        return result
    axes = frozenset().union(*(x.mat.varying for x in operands))
    whole = NamedSharding(mesh, PartitionSpec(*[None] * result.ndim))
    return result.update(sharding=whole, manual_axis_type=ManualAxisType(varying=axes))


# --- sharding in types ------------------------------------------------------------------------------------


def placed_by_xla(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function of pytrees; what is on which device inside of it is left to XLA.

    In a mesh with explicit axes, as `jax.make_mesh` makes them, JAX writes into the type of each array where it is, and
    rejects a loop in which these types change, for example. Results are whole on each device, but for the axes of
    batches, for which `jax.vmap` provides.
    """

    @wraps(function)
    def call(*arguments: object) -> Result:
        mesh = _explicit_mesh(arguments)
        if mesh is None:
            return function(*arguments)
        arrays, others = eqx.partition(arguments, eqx.is_array)
        static: Any = None

        def of_arrays(arrays: Any) -> Any:
            nonlocal static
            results, static = eqx.partition(function(*eqx.combine(arrays, others)), eqx.is_array)
            return results

        results = jax.sharding.auto_axes(of_arrays, out_sharding=NamedSharding(mesh, PartitionSpec()))(arrays)
        return eqx.combine(results, static)

    return call


def _explicit_mesh(tree: object) -> AbstractMesh | None:
    """The mesh with explicit axes in the type of one of the arrays; None if there is none."""
    types = (jax.typeof(x) for x in jax.tree.leaves(tree) if isinstance(x, jax.Array))
    return next((x.sharding.mesh for x in types if x.sharding.mesh.explicit_axes), None)


# --- batches over several devices -------------------------------------------------------------------------


class BatchAxes(NamedTuple):
    """Which leading axes of the operands and results of a call count instances.

    `sizes`: of the levels of a batch; `operands`, `results`: for each array the levels of its leading axes, `None` for
    an axis that is not to be divided.
    """

    sizes: tuple[int, ...]
    operands: tuple[tuple[int | None, ...], ...]
    results: tuple[tuple[int | None, ...], ...]


def divided(
    compute: Callable[..., Sequence[Array]], axes: BatchAxes, identity: Sequence[np.ndarray]
) -> Callable[..., list[Array]]:
    """The call `compute(sizes, *operands)` as a function of the operands that XLA divides among devices.

    Each device gets the sizes of its own part of the batch. Axes that are not divisible by the number of devices stay
    whole. `identity`: numbers that tell the call from others with the same types, for JAX's cache on disk: XLA's text
    for such a function does not say what it computes.
    """
    count = len(axes.operands)

    def call(*operands: Array) -> list[Array]:
        traced = jax.make_jaxpr(partial(compute, axes.sizes))(*operands)
        constants = [*traced.consts, *map(np.asarray, identity)]  # JAX divides no function that contains some
        # Constants count no instances: each device has all of them.
        full = axes._replace(operands=(*axes.operands, *((),) * len(constants)))

        def whole(*arrays: Array) -> list[Array]:
            own = arrays[count : count + len(traced.consts)]
            return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, own))(*arrays[:count])

        function = custom_partitioning(whole)
        function.def_partition(partial(_part, compute, full, count), sharding_rule=partial(_rule, full))
        return list(function(*operands, *constants))

    return call


def _part(
    compute: Callable[..., Sequence[Array]], axes: BatchAxes, count: int, mesh: Mesh,
    arguments: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct],
) -> tuple[Mesh, Callable[..., list[Array]], list[NamedSharding], tuple[NamedSharding, ...]]:  # fmt: skip
    """What each device computes, and where its operands and results are."""
    placed = _placement(mesh, axes, [*results, *arguments])

    def part(*arrays: Array) -> list[Array]:
        sizes = (size // _devices(mesh, names) for size, names in zip(axes.sizes, placed, strict=True))
        return list(compute((*sizes,), *arrays[:count]))

    at = partial(_sharding, mesh, placed)
    return mesh, part, [*map(at, axes.results)], tuple(map(at, axes.operands))


def _rule(
    axes: BatchAxes, _: Mesh, operands: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct]
) -> str:
    """For XLA: which axes of operands and results are the same."""
    ranks = [len(x.shape) for x in (*operands, *results)]
    texts = [_axis_names(k, *x) for k, x in enumerate(zip((*axes.operands, *axes.results), ranks, strict=True))]
    return f"{', '.join(texts[: len(operands)])} -> {', '.join(texts[len(operands) :])}"


def _axis_names(k: int, levels: Sequence[int | None], rank: int) -> str:
    """The names of the axes of array `k`: one for each level, which arrays share, and names of their own for others."""
    known = [*levels, *[None] * (rank - len(levels))]
    return " ".join(f"own{k}_{axis}" if level is None else f"level{level}" for axis, level in enumerate(known))


def _placement(mesh: Mesh, axes: BatchAxes, arrays: Sequence[jax.ShapeDtypeStruct]) -> list[tuple[str, ...]]:
    """For each level the axes of the mesh over which it is divided: as in the first of the arrays in which it is."""
    placed: list[tuple[str, ...]] = [() for _ in axes.sizes]
    for levels, x in zip((*axes.results, *axes.operands), arrays, strict=True):
        for level, names in zip(levels, x.sharding.spec, strict=False):
            names = names if isinstance(names, tuple) else () if names is None else (names,)
            taken = {name for each in placed for name in each}
            if level is None or placed[level] or taken & {*names} or axes.sizes[level] % _devices(mesh, names):
                continue
            placed[level] = names
    return placed


def _devices(mesh: Mesh, names: Sequence[str]) -> int:
    return int(np.prod([mesh.shape[name] for name in names], dtype=int))


def _sharding(mesh: Mesh, placed: Sequence[tuple[str, ...]], levels: Sequence[int | None]) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*(None if k is None else placed[k] or None for k in levels)))


# --- arrays that Python gets ------------------------------------------------------------------------------

gathered_p = Primitive("jaxmbd_gathered")
gathered_p.multiple_results = True


def gathered(arrays: Sequence[Array]) -> list[Array]:
    """The same arrays, with all instances of a batch on each device: else XLA warns of what a callback costs."""
    return gathered_p.bind(*arrays)


def _gathered(*arrays: Array) -> list[Array]:
    return [*arrays]


def _gather(context: mlir.LoweringRuleContext, *arrays: Any) -> Any:
    whole = BatchAxes((), ((),) * len(arrays), ((),) * len(arrays))
    function = divided(lambda _, *x: [*x], whole, []) if is_partitioned(context) else _gathered
    return mlir.lower_fun(function, multiple_results=True)(context, *arrays)


divide(gathered_p)
gathered_p.def_impl(_gathered)
gathered_p.def_abstract_eval(_gathered)
mlir.register_lowering(gathered_p, _gather)
batching.primitive_batchers[gathered_p] = lambda arrays, axes: (gathered(arrays), axes)
CALL_RULES["jaxmbd_gathered"] = lambda _, __, operands: operands
