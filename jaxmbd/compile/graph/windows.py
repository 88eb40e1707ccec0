"""Rules for primitives that read and write windows of an array: dynamic slices, `gather` and `scatter`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxmbd.compile.graph import algebra, choice
from jaxmbd.compile.graph.step import Step, over_arrays

Rule = Callable[..., Any]
Combine = Callable[[Step, np.ndarray, np.ndarray], np.ndarray]


class Windows(NamedTuple):
    """Windows of common `sizes`, one for each index vector in `starts (..., axes)`, in an array of shape `shape`."""

    starts: np.ndarray
    sizes: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def room(self) -> np.ndarray:
        """The largest start index along each axis at which a window lies inside the array."""
        return np.subtract(self.shape, self.sizes).astype(int)

    @property
    def strides(self) -> np.ndarray:
        """The strides of the array in elements."""
        return np.append(np.cumprod(self.shape[:0:-1], dtype=int)[::-1], 1)[: len(self.shape)].astype(int)

    def places(self, first: Any) -> np.ndarray:
        """The flat indices of all elements of the windows, from the flat index `first` of their first elements."""
        axes = len(self.sizes)
        within = np.zeros(self.sizes, dtype=int)
        for axis, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            within = within + stride * np.arange(size).reshape([-1 if k == axis else 1 for k in range(axes)])
        return np.reshape(first, np.shape(first) + (1,) * axes) + within


def window_rules(read: Rule, write: Rule, combine: Mapping[str, Combine]) -> dict[str, Rule]:
    """The rules of all window primitives, from a function that reads windows and one that writes them.

    `read(step, x, windows, fill)` returns their content `(..., *sizes)`; windows that are partly out of bounds are
    clamped into the array or, if `fill` is not None, consist of it. `write(step, x, windows, new, drops, combine)`
    returns `x` updated window after window; windows out of bounds are clamped or, if `drops`, left out. `combine`: the
    function of old and new elements for each scatter, by name.
    """

    def dynamic_slice(step: Step, x: np.ndarray, *indices: np.ndarray) -> np.ndarray:
        return read(step, x, Windows(_stacked(step, indices), tuple(step.params["slice_sizes"]), x.shape), None)

    def dynamic_update_slice(step: Step, x: np.ndarray, new: np.ndarray, *indices: np.ndarray) -> np.ndarray:
        return write(step, x, Windows(_stacked(step, indices), new.shape, x.shape), new, False, _replace)

    def gather(step: Step, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        numbers, sizes = step.params["dimension_numbers"], tuple(step.params["slice_sizes"])
        batching = numbers.operand_batching_dims, numbers.start_indices_batching_dims
        dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        window = tuple(size for axis, size in enumerate(sizes) if axis not in dropped)
        starts, batch = _starts(step, indices, numbers.start_index_map, batching, x.ndim), indices.shape[:-1]
        fill = _fill(step) if _mode(step) == lax.GatherScatterMode.FILL_OR_DROP else None
        result = read(step, x, Windows(starts, sizes, x.shape), fill).reshape(batch + window)
        return np.moveaxis(result, range(len(batch), len(batch + window)), numbers.offset_dims)

    def scatter(combine_elements: Combine) -> Rule:
        def rule(step: Step, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
            numbers = step.params["dimension_numbers"]
            batching = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
            dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
            batch, window = indices.ndim - 1, numbers.update_window_dims
            new = np.moveaxis(updates, window, range(batch, batch + len(window)))
            lengths = iter(new.shape[batch:])
            sizes = tuple(1 if axis in dropped else next(lengths) for axis in range(x.ndim))
            starts = _starts(step, indices, numbers.scatter_dims_to_operand_dims, batching, x.ndim)
            new = new.reshape(indices.shape[:-1] + sizes)
            drops = _mode(step) != lax.GatherScatterMode.CLIP
            return write(step, x, Windows(starts, sizes, x.shape), new, drops, combine_elements)

        return rule

    scatters = {f"scatter{mark}{name}": scatter(function) for name, function in combine.items() for mark in "-_"}
    return {
        "dynamic_slice": dynamic_slice,
        "dynamic_update_slice": dynamic_update_slice,
        "gather": gather,
        "scatter": scatter(_replace),
        **scatters,
    }


def _replace(_: Step, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return new


def _stacked(step: Step, indices: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack(indices) if indices else step.graph.constants(np.zeros(0))


def _starts(step: Step, indices: np.ndarray, axes: Any, batching: Any, count: int) -> np.ndarray:
    """The start indices of windows: along some axes from `indices`, along the batching axes the batch index."""
    starts = np.array(step.graph.constants(np.zeros((*indices.shape[:-1], count), dtype=int)))
    starts[..., list(axes)] = indices
    for axis, source in zip(*batching, strict=True):
        along = [-1 if k == source else 1 for k in range(indices.ndim - 1)]
        starts[..., axis] = step.graph.constants(np.arange(indices.shape[source])).reshape(along)
    return starts


def _mode(step: Step) -> lax.GatherScatterMode:
    return lax.GatherScatterMode.from_any(step.params["mode"])


def _fill(step: Step) -> Any:
    """The element that `gather` returns out of bounds: its `fill_value`, or JAX's default for the type."""
    fill_value = step.params["fill_value"]
    if fill_value is not None:
        return step.constant(np.asarray(fill_value, dtype=step.dtype)[()])
    if step.dtype == np.bool_:
        return step.constant(True)
    if np.issubdtype(step.dtype, np.integer):
        info = np.iinfo(step.dtype)
        return step.constant(info.min if info.min else info.max)
    return step.constant(np.nan)


# --- at constant indices ----------------------------------------------------------------------------------


def read_known(step: Step, x: np.ndarray, windows: Windows, fill: Any) -> np.ndarray:
    """Read windows at constant indices."""
    places, inside = _constant_windows(step, windows)
    result = x.reshape(-1)[places]
    if fill is not None:
        result[~inside] = fill
    return result


def write_known(
    step: Step, x: np.ndarray, windows: Windows, new: np.ndarray, drops: bool, combine: Combine
) -> np.ndarray:
    """Write windows at constant indices; repeated targets are combined in order."""
    places, inside = _constant_windows(step, windows)
    inside = inside if drops else np.ones_like(inside)
    result = x.reshape(-1).copy()
    targets, new = places[inside].reshape(-1), new[inside].reshape(-1)
    for occurrence in _occurrences(targets):
        result[targets[occurrence]] = combine(step, result[targets[occurrence]], new[occurrence])
    return result.reshape(x.shape)


def _constant_windows(step: Step, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """The flat indices of windows at constant starts, clamped into the array, and a mask of those within bounds."""
    starts, room = step.indices(windows.starts), windows.room
    inside = np.asarray(np.all((starts >= 0) & (starts <= room), axis=-1))
    return windows.places(np.clip(starts, 0, room) @ windows.strides), inside


def _occurrences(targets: np.ndarray) -> Iterator[np.ndarray]:
    """The positions of the first occurrence of each target, then those of the second, and so on."""
    order = np.argsort(targets, kind="stable")
    arranged = targets[order]
    rank = np.arange(len(targets)) - np.searchsorted(arranged, arranged)
    for k in range(rank.max(initial=-1) + 1):
        yield order[rank == k]


def _combined(function: Callable[..., Any]) -> Combine:
    over = over_arrays(function, 2)
    return lambda _, old, new: over(old, new)


_COMBINE = {
    "add": _combined(algebra.add),
    "sub": _combined(algebra.sub),
    "mul": _combined(algebra.mul),
    "max": _combined(choice.maximum),
    "min": _combined(choice.minimum),
}

RULES = window_rules(read_known, write_known, _COMBINE)
