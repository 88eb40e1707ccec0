"""Gathers and scatters of XLA on NumPy arrays: windows of an array at computed positions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def _windows(
    shape: Sequence[int], indices: np.ndarray, sizes: Sequence[int], index_map: Sequence[int],
    batching: Sequence[int], indices_batching: Sequence[int], removed: Sequence[int],
) -> tuple[list[np.ndarray], np.ndarray, int]:  # fmt: skip
    """For each axis of an array the indices of all windows, `(*batch, *window)`, and which windows are inside.

    `sizes`: the window's length along each axis; `removed`: axes that the window does not have. Also return the number
    of batch axes. Positions outside are moved inside.
    """
    batch = indices.shape[:-1]
    inside, places = np.ones(batch, bool), []
    kept = [d for d in range(len(shape)) if d not in removed and d not in batching]
    for d, length in enumerate(shape):
        if d in index_map:
            start = indices[..., list(index_map).index(d)].astype(np.int64)
            last = length - sizes[d]
            inside &= (start >= 0) & (start <= last)
            start = np.clip(start, 0, max(last, 0))
        elif d in batching:
            axis = indices_batching[list(batching).index(d)]
            start = np.arange(length).reshape([length if a == axis else 1 for a in range(len(batch))])
        else:
            start = np.zeros((1,) * len(batch), np.int64)
        start = start.reshape((*start.shape, *[1] * len(kept)))
        if d in kept:
            start = start + np.arange(sizes[d]).reshape([sizes[d] if k == d else 1 for k in kept])
        places.append(start)
    whole = (*batch, *(sizes[d] for d in kept))
    return [np.broadcast_to(x, whole) for x in places], inside, len(batch)


def _order(offsets: Sequence[int], rank: int, batch: int) -> list[int]:
    """The axes `(*batch, *window)` in the order in which the window's are at `offsets`."""
    windows, others = iter(range(batch, rank)), iter(range(batch))
    return [next(windows) if axis in offsets else next(others) for axis in range(rank)]


def _nothing(dtype: np.dtype) -> Any:
    """What a gather returns for windows outside."""
    if dtype.kind in "fc":
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def gather(
    x: np.ndarray, indices: np.ndarray, *, offset_dims: Sequence[int], collapsed: Sequence[int],
    index_map: Sequence[int], batching: Sequence[int], indices_batching: Sequence[int], sizes: Sequence[int], mode: str,
    fill_value: Any,
) -> np.ndarray:  # fmt: skip
    """XLA's gather."""
    places, inside, batch = _windows(x.shape, indices, sizes, index_map, batching, indices_batching, collapsed)
    result = x[tuple(places)] if places else np.broadcast_to(x, indices.shape[:-1])
    if mode == "FILL_OR_DROP" and not inside.all():
        keep = inside.reshape((*inside.shape, *[1] * (result.ndim - batch)))
        fill = _nothing(x.dtype) if fill_value is None else fill_value
        result = np.where(keep, result, np.asarray(fill, x.dtype))
    return result.transpose(_order(offset_dims, result.ndim, batch))


def _assign(x: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    x[places] = values


SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": _assign,
    "scatter-add": np.add.at, "scatter-sub": np.subtract.at, "scatter-mul": np.multiply.at,
    "scatter-min": np.minimum.at, "scatter-max": np.maximum.at,
}  # fmt: skip


def scatter(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, kind: str, window_dims: Sequence[int],
    inserted: Sequence[int], index_map: Sequence[int], batching: Sequence[int], indices_batching: Sequence[int],
    mode: str,
) -> np.ndarray:  # fmt: skip
    """XLA's scatters."""
    kept = iter(np.asarray(updates.shape, int)[list(window_dims)].tolist())
    sizes = [1 if d in inserted or d in batching else next(kept) for d in range(x.ndim)]
    places, inside, batch = _windows(x.shape, indices, sizes, index_map, batching, indices_batching, inserted)
    values = updates.transpose(np.argsort(_order(window_dims, updates.ndim, batch), kind="stable"))
    flat = sum(
        (p * int(np.prod(x.shape[d + 1 :], dtype=np.int64)) for d, p in enumerate(places)),
        start=np.zeros(values.shape, np.int64),
    )
    keep = ... if mode == "CLIP" or inside.all() else inside
    result = x.copy().reshape(-1)
    SCATTERS[kind](result, np.asarray(flat)[keep].reshape(-1), values[keep].reshape(-1))
    return result.reshape(x.shape)
