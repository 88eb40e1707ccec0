"""Primitives that rearrange the elements of an array, as functions of NumPy arrays: of numbers, or of whatever scalars.

They are called with the arrays and, as keywords, with the parameters of the equation (`upstream/primitives.py`).
"""

import itertools
from collections.abc import Sequence

import numpy as np

from jaxmbd.engine.program.equation import Operation, array


def _reshape(x: np.ndarray, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None) -> np.ndarray:
    return (x if dimensions is None else x.transpose(dimensions)).reshape(new_sizes)


def _broadcast(x: np.ndarray, *, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> np.ndarray:
    ones = [1] * len(shape)
    for size, axis in zip(x.shape, broadcast_dimensions, strict=True):
        ones[axis] = size
    return np.broadcast_to(x.reshape(ones), shape)


def _slice(
    x: np.ndarray, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None
) -> np.ndarray:
    steps = strides or (1,) * x.ndim
    return x[tuple(itertools.starmap(slice, zip(start_indices, limit_indices, steps, strict=True)))]


def _pad(x: np.ndarray, value: np.ndarray, *, padding_config: Sequence[tuple[int, int, int]]) -> np.ndarray:
    config = padding_config
    spread = [(size - 1) * (gap + 1) + 1 if size else 0 for size, (_, _, gap) in zip(x.shape, config, strict=True)]
    # Padding may be negative: positive padding is added first, and the result is then cut.
    wide = [max(low, 0) + size + max(high, 0) for size, (low, high, _) in zip(spread, config, strict=True)]
    padded = np.full(wide, value.item(), dtype=x.dtype)
    inner = tuple(slice(max(low, 0), max(low, 0) + n, gap + 1) for n, (low, _, gap) in zip(spread, config, strict=True))
    padded[inner] = x
    keep = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(wide, config, strict=True))
    return padded[keep]


SHAPES: dict[str, Operation] = {
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "pad": _pad,
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "squeeze": lambda x, *, dimensions: np.squeeze(x, axis=tuple(dimensions)),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "tile": lambda x, *, reps: np.tile(x, reps),
    "concatenate": lambda *x, dimension: np.concatenate(x, axis=dimension),
    "stack": lambda *x, axis: np.stack(x, axis=axis),
    "unstack": lambda x, *, axis: [array(part) for part in np.moveaxis(x, axis, 0)],
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(np.asarray(sizes, dtype=int))[:-1], axis=axis),
}
