"""Rules for primitives that read and write windows of an array: dynamic slices, `gather` and `scatter`."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jax import lax

from jaxmbd.engine.program.equation import AbstractBuilder, Arrays, Equation, Rule
from jaxmbd.upstream.jax_internals import replaces
from jaxmbd.upstream.primitives import SCATTERS


class Windows(NamedTuple):
    """Windows of common `sizes`, one for each index vector in `starts (..., axes)`, in an array of shape `shape`."""

    starts: np.ndarray
    sizes: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def room(self) -> np.ndarray:
        """The largest start index along each axis at which a window lies inside the array."""
        return _layout(self.sizes, self.shape)[0]

    @property
    def strides(self) -> np.ndarray:
        """The strides of the array in elements."""
        return _layout(self.sizes, self.shape)[1]

    def places(self, first: np.ndarray) -> np.ndarray:
        """The flat indices of all elements of the windows, from the flat index `first` of their first elements."""
        return np.reshape(first, np.shape(first) + (1,) * len(self.sizes)) + _layout(self.sizes, self.shape)[2]


@lru_cache(maxsize=1024)  # NumPy code asks again at each run
def _layout(sizes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of windows of these sizes in an array of this shape `room`, `strides`, and the places within a window."""
    room = np.array([length - size for length, size in zip(shape, sizes, strict=True)], int)
    strides = np.array([math.prod(shape[k + 1 :]) for k in range(len(shape))], int)
    within = np.tensordot(strides, np.indices(sizes), 1) if sizes else np.zeros((), int)
    return room, strides, within


def window_rules(read: Callable[..., np.ndarray], write: Callable[..., np.ndarray]) -> dict[str, Rule]:
    """The rules of all window primitives, from a function that reads windows and one that writes them.

    `read(equation, x, windows, fill)` returns their content `(..., *sizes)`; windows that are partly out of bounds are
    clamped into the array or, if `fill` is not None, consist of it. `write(equation, x, windows, new, drops, name)`
    returns `x` updated window after window; windows out of bounds are clamped or, if `drops`, left out. `name`: the
    operation that combines old and new elements; None where the new ones replace the old ones.
    """

    def dynamic_slice(equation: Equation, x: np.ndarray, *indices: np.ndarray) -> np.ndarray:
        return read(
            equation, x, Windows(_stacked(equation, indices), tuple(equation.params["slice_sizes"]), x.shape), None
        )

    def dynamic_update_slice(equation: Equation, x: np.ndarray, new: np.ndarray, *indices: np.ndarray) -> np.ndarray:
        return write(equation, x, Windows(_stacked(equation, indices), new.shape, x.shape), new, False, None)

    def gather(equation: Equation, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        numbers, sizes = equation.params["dimension_numbers"], tuple(equation.params["slice_sizes"])
        batching = numbers.operand_batching_dims, numbers.start_indices_batching_dims
        dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        window = tuple(size for axis, size in enumerate(sizes) if axis not in dropped)
        starts, batch = _starts(equation, indices, numbers.start_index_map, batching, x.ndim), indices.shape[:-1]
        fill = _fill(equation) if _mode(equation) == lax.GatherScatterMode.FILL_OR_DROP else None
        result = read(equation, x, Windows(starts, sizes, x.shape), fill).reshape(batch + window)
        order = tuple(range(len(batch), result.ndim))
        return result if numbers.offset_dims == order else np.moveaxis(result, order, numbers.offset_dims)

    def scatter(name: str | None) -> Rule:
        def rule(equation: Equation, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray | Arrays:
            if name is None and not replaces(equation.params):
                return equation.evaluate(x, indices, updates)
            numbers = equation.params["dimension_numbers"]
            batching = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
            dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
            batch, window = indices.ndim - 1, numbers.update_window_dims
            new = np.moveaxis(updates, window, range(batch, batch + len(window)))
            lengths = iter(new.shape[batch:])
            sizes = tuple(1 if axis in dropped else next(lengths) for axis in range(x.ndim))
            starts = _starts(equation, indices, numbers.scatter_dims_to_operand_dims, batching, x.ndim)
            new = new.reshape(indices.shape[:-1] + sizes)
            drops = _mode(equation) != lax.GatherScatterMode.CLIP
            return write(equation, x, Windows(starts, sizes, x.shape), new, drops, name)

        return rule

    return {
        "dynamic_slice": dynamic_slice,
        "dynamic_update_slice": dynamic_update_slice,
        "gather": gather,
        **{name: scatter(name.partition("-")[2] or None) for name in SCATTERS},  # "scatter-add" adds
    }


def combine(builder: AbstractBuilder, name: str | None, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The elements that a window writes."""
    return new if name is None else builder.apply(name, old, new)


def _stacked(equation: Equation, indices: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack(indices) if indices else equation.builder.constants(np.zeros(0))


def _starts(
    equation: Equation, indices: np.ndarray, axes: Sequence[int], batching: Sequence[Sequence[int]], count: int
) -> np.ndarray:
    """The start indices of windows: along some axes from `indices`, along the batching axes the batch index."""
    starts = np.array(equation.builder.constants(np.zeros((*indices.shape[:-1], count), dtype=int)))
    starts[..., list(axes)] = indices
    for axis, source in zip(*batching, strict=True):
        along = [-1 if k == source else 1 for k in range(indices.ndim - 1)]
        starts[..., axis] = equation.builder.constants(np.arange(indices.shape[source])).reshape(along)
    return starts


def _mode(equation: Equation) -> lax.GatherScatterMode:
    return lax.GatherScatterMode.from_any(equation.params["mode"])


def _fill(equation: Equation) -> object:
    """The element that `gather` returns out of bounds: its `fill_value`, or JAX's default for the type."""
    fill_value = equation.params["fill_value"]
    if fill_value is not None:
        return equation.builder.constant(np.asarray(fill_value, dtype=equation.dtype)[()])
    if equation.dtype == np.bool_:
        return equation.builder.constant(True)
    if np.issubdtype(equation.dtype, np.integer):
        info = np.iinfo(equation.dtype)
        return equation.builder.constant(info.min if info.min else info.max)
    return equation.builder.constant(np.nan)


# --- at constant indices ----------------------------------------------------------------------------------


def read_known(equation: Equation, x: np.ndarray, windows: Windows, fill: object) -> np.ndarray:
    """Read windows at constant indices."""
    places, inside = constant_windows(equation, windows)
    result = x.reshape(-1)[places]
    if fill is not None:
        result[~inside] = fill
    return result


def write_known(
    equation: Equation, x: np.ndarray, windows: Windows, new: np.ndarray, drops: bool, name: str | None
) -> np.ndarray:
    """Write windows at constant indices; repeated targets are combined in order."""
    places, inside = constant_windows(equation, windows)
    inside = inside if drops else np.ones_like(inside)
    result = x.reshape(-1).copy()
    targets, new = places[inside].reshape(-1), new[inside].reshape(-1)
    for occurrence in _occurrences(targets):
        result[targets[occurrence]] = combine(equation.builder, name, result[targets[occurrence]], new[occurrence])
    return result.reshape(x.shape)


def constant_windows(equation: Equation, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """The flat indices of windows at constant starts, clamped into the array, and a mask of those within bounds."""
    starts, room = equation.indices(windows.starts), windows.room
    clipped = np.minimum(np.maximum(starts, 0), room)
    return windows.places(clipped @ windows.strides), np.asarray((clipped == starts).all(axis=-1))


def _occurrences(targets: np.ndarray) -> Iterator[np.ndarray]:
    """The positions of the first occurrence of each target, then those of the second, and so on."""
    order = np.argsort(targets, kind="stable")
    arranged = targets[order]
    rank = np.arange(len(targets)) - np.searchsorted(arranged, arranged)
    for k in range(rank.max(initial=-1) + 1):
        yield order[rank == k]


RULES = window_rules(read_known, write_known)
