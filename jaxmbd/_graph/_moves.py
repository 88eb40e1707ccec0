"""Rules for the primitives that move numbers without changing them."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax import lax

from jaxmbd._graph import _algebra, _choice
from jaxmbd._graph._node import Node
from jaxmbd._graph._step import Arrays, Step, array, over_arrays


def _same(step: Step, *operands: np.ndarray) -> Arrays:
    return list(operands)


def _iota(step: Step) -> np.ndarray:
    """Numbers that count along an axis."""
    shape, axis = step.params["shape"], step.params["dimension"]
    counted = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(step.graph.constants(counted), shape)


def _reshape(step: Step, x: np.ndarray) -> np.ndarray:
    return x.reshape(step.params["new_sizes"])


def _transpose(step: Step, x: np.ndarray) -> np.ndarray:
    return x.transpose(step.params["permutation"])


def _squeeze(step: Step, x: np.ndarray) -> np.ndarray:
    return array(np.squeeze(x, axis=tuple(step.params["dimensions"])))


def _expand_dims(step: Step, x: np.ndarray) -> np.ndarray:
    return np.expand_dims(x, tuple(step.params["dimensions"]))


def _broadcast(step: Step, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(step.params["shape"])
    for size, axis in zip(x.shape, step.params["broadcast_dimensions"], strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), step.params["shape"])


def _slice(step: Step, x: np.ndarray) -> np.ndarray:
    starts, limits = step.params["start_indices"], step.params["limit_indices"]
    strides = step.params["strides"] or (1,) * x.ndim
    return x[tuple(itertools.starmap(slice, zip(starts, limits, strides, strict=True)))]


def _reverse(step: Step, x: np.ndarray) -> np.ndarray:
    return np.flip(x, step.params["dimensions"])


def _concatenate(step: Step, *operands: np.ndarray) -> np.ndarray:
    return np.concatenate(operands, axis=step.params["dimension"])


def _stack(step: Step, *operands: np.ndarray) -> np.ndarray:
    return np.stack(operands, axis=step.params["axis"])


def _unstack(step: Step, x: np.ndarray) -> Arrays:
    return [array(part) for part in np.moveaxis(x, step.params["axis"], 0)]


def _split(step: Step, x: np.ndarray) -> Arrays:
    ends = np.cumsum(np.asarray(step.params["sizes"], dtype=int))
    return np.split(x, ends[:-1], axis=step.params["axis"])


def _tile(step: Step, x: np.ndarray) -> np.ndarray:
    return np.tile(x, step.params["reps"])


def _pad(step: Step, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    config = step.params["padding_config"]
    spread = [(size - 1) * (gap + 1) + 1 if size else 0 for size, (_, _, gap) in zip(x.shape, config, strict=True)]
    # Built on the range that the numbers span, then cut or widened: padding may be negative.
    wide = [max(low, 0) + size + max(high, 0) for size, (low, high, _) in zip(spread, config, strict=True)]
    padded = np.full(wide, value.item(), dtype=x.dtype)
    inner = tuple(slice(max(low, 0), max(low, 0) + n, gap + 1) for n, (low, _, gap) in zip(spread, config, strict=True))
    padded[inner] = x
    keep = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(wide, config, strict=True))
    return padded[keep]


def _window(starts: np.ndarray, sizes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The part of an array of the given shape that starts at `starts`, moved to lie inside."""
    first = np.clip(starts, 0, np.subtract(shape, sizes))
    return tuple(slice(start, start + size) for start, size in zip(first.tolist(), sizes, strict=True))


def _starts(step: Step, indices: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.array([step.indices(index).item() for index in indices], dtype=int)


def _dynamic_slice(step: Step, x: np.ndarray, *indices: np.ndarray) -> np.ndarray:
    return x[_window(_starts(step, indices), tuple(step.params["slice_sizes"]), x.shape)]


def _dynamic_update_slice(step: Step, x: np.ndarray, update: np.ndarray, *indices: np.ndarray) -> np.ndarray:
    result = x.copy()
    result[_window(_starts(step, indices), update.shape, x.shape)] = update
    return result


def _places(
    step: Step, indices: np.ndarray, axes: Any, batching: Any, sizes: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Where the numbers of the windows named by constant indices lie in a flat array, and which windows lie inside.

    Shapes: that of the indices without their last axis, followed by `sizes`; and without these. Windows that reach
    out are moved inside.
    """
    values = step.indices(indices)
    starts = np.zeros((*values.shape[:-1], len(shape)), dtype=int)
    starts[..., list(axes)] = values
    for axis, source in zip(*batching, strict=True):
        along = [-1 if k == source else 1 for k in range(values.ndim - 1)]
        starts[..., axis] = np.arange(values.shape[source]).reshape(along)
    inside = np.asarray(np.all((starts >= 0) & (starts + sizes <= shape), axis=-1))
    starts = np.clip(starts, 0, np.subtract(shape, sizes))
    strides = np.append(np.cumprod(shape[:0:-1], dtype=int)[::-1], 1)[: len(shape)].astype(int)
    window = np.zeros(sizes, dtype=int)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        window = window + stride * np.arange(size).reshape([-1 if k == axis else 1 for k in range(len(sizes))])
    first = starts @ strides if len(shape) else np.zeros(starts.shape[:-1], dtype=int)
    return first.reshape(first.shape + (1,) * len(sizes)) + window, inside


def _gather(step: Step, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Windows of `x` at constant indices, out-of-bounds ones moved inside or filled as the mode says."""
    numbers, sizes = step.params["dimension_numbers"], tuple(step.params["slice_sizes"])
    batching = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = tuple(size for axis, size in enumerate(sizes) if axis not in dropped)
    batch = indices.shape[:-1]
    places, inside = _places(step, indices, numbers.start_index_map, batching, sizes, x.shape)
    result = x.reshape(-1)[places]
    if lax.GatherScatterMode.from_any(step.params["mode"]) == lax.GatherScatterMode.FILL_OR_DROP:
        result[~inside] = _fill(step)
    return np.moveaxis(result.reshape(batch + window), range(len(batch), len(batch + window)), numbers.offset_dims)


def _fill(step: Step) -> Node:
    """What `gather` gives outside of the bounds: NaN unless told otherwise."""
    given = step.params["fill_value"]
    if given is not None:
        return step.constant(np.asarray(given, dtype=step.dtype)[()])
    if step.dtype == np.bool_:
        return step.constant(True)
    if np.issubdtype(step.dtype, np.integer):
        info = np.iinfo(step.dtype)
        return step.constant(info.min if info.min else info.max)
    return step.constant(np.nan)


def scatter(combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """Updates put into `x` at constant indices one after the other, so that repeated targets combine."""

    def rule(step: Step, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        numbers = step.params["dimension_numbers"]
        batching = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
        dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        count = indices.ndim - 1
        windows = np.moveaxis(
            updates, numbers.update_window_dims, range(count, count + len(numbers.update_window_dims))
        )
        lengths = iter(windows.shape[count:])
        sizes = tuple(1 if axis in dropped else next(lengths) for axis in range(x.ndim))
        axes = numbers.scatter_dims_to_operand_dims
        places, inside = _places(step, indices, axes, batching, sizes, x.shape)
        if lax.GatherScatterMode.from_any(step.params["mode"]) == lax.GatherScatterMode.CLIP:
            inside = np.ones_like(inside)
        result = x.reshape(-1).copy()
        targets, new = places[inside].reshape(-1), windows.reshape(places.shape)[inside].reshape(-1)
        for turn in _turns(targets):
            result[targets[turn]] = combine(result[targets[turn]], new[turn])
        return result.reshape(x.shape)

    return rule


def _turns(targets: np.ndarray) -> Iterator[np.ndarray]:
    """Which of the targets come first, those that come for the second time, and so on."""
    order = np.argsort(targets, kind="stable")
    arranged = targets[order]
    rank = np.arange(len(targets)) - np.searchsorted(arranged, arranged)
    for turn in range(rank.max(initial=-1) + 1):
        yield order[rank == turn]


def _combined(combine: Callable[[Node, Node], Node]) -> Callable[..., Any]:
    return scatter(over_arrays(combine, 2))


_ADD, _SUB, _MUL = _combined(_algebra.add), _combined(_algebra.sub), _combined(_algebra.mul)
_MAX, _MIN = _combined(_choice.maximum), _combined(_choice.minimum)

_IDENTITIES = (
    *("copy", "copy_p", "stop_gradient", "optimization_barrier", "name", "reduce_precision"),
    *("pvary", "reshard", "sharding_constraint", "layout_constraint"),
)

RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_IDENTITIES, _same),
    **dict.fromkeys(("scatter-add", "scatter_add"), _ADD),
    **dict.fromkeys(("scatter-sub", "scatter_sub"), _SUB),
    **dict.fromkeys(("scatter-mul", "scatter_mul"), _MUL),
    **dict.fromkeys(("scatter-max", "scatter_max"), _MAX),
    **dict.fromkeys(("scatter-min", "scatter_min"), _MIN),
    "scatter": scatter(lambda _, new: new),
    "iota": _iota,
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "rev": _reverse,
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
    "tile": _tile,
    "pad": _pad,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
}
