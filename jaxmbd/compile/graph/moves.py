"""Rules for structural primitives, which rearrange elements without changing them."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmbd.compile.graph.step import Arrays, Step, array


def _identity(step: Step, *operands: np.ndarray) -> Arrays:
    return list(operands)


def _iota(step: Step) -> np.ndarray:
    """The index along an axis, as an array."""
    shape, axis = step.params["shape"], step.params["dimension"]
    index = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(step.graph.constants(index), shape)


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
    # Padding may be negative: positive padding is added first, and the result is then cut.
    wide = [max(low, 0) + size + max(high, 0) for size, (low, high, _) in zip(spread, config, strict=True)]
    padded = np.full(wide, value.item(), dtype=x.dtype)
    inner = tuple(slice(max(low, 0), max(low, 0) + n, gap + 1) for n, (low, _, gap) in zip(spread, config, strict=True))
    padded[inner] = x
    keep = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(wide, config, strict=True))
    return padded[keep]


_IDENTITIES = (
    *("copy", "copy_p", "stop_gradient", "optimization_barrier", "name", "reduce_precision"),
    *("pvary", "reshard", "sharding_constraint", "layout_constraint"),
)

RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_IDENTITIES, _identity),
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
}
