"""Rules for reductions, cumulative operations and contractions (`dot_general`)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmbd.compile.graph import algebra, choice
from jaxmbd.compile.graph.node import Node
from jaxmbd.compile.graph.step import Step, array, over_arrays


def _reduction(operation: Callable[[Node, Node], Node], start: Any) -> Callable[..., Any]:
    """The rule that reduces some axes by an operation, element after element."""

    def rule(step: Step, x: np.ndarray) -> np.ndarray:
        axes = tuple(axis % x.ndim for axis in step.params["axes"])
        free = tuple(axis for axis in range(x.ndim) if axis not in axes)
        rows = x.transpose(*free, *axes).reshape(*(x.shape[axis] for axis in free), -1 if x.size else 0)
        return array(over_arrays(operation, 2).reduce(rows, axis=-1, initial=step.constant(start)))

    return rule


def _cumulative(operation: Callable[[Node, Node], Node]) -> Callable[..., Any]:
    """The rule of a cumulative operation along an axis."""

    def rule(step: Step, x: np.ndarray) -> np.ndarray:
        axis, running = step.params["axis"], over_arrays(operation, 2)
        if step.params["reverse"]:
            return np.flip(running.accumulate(np.flip(x, axis), axis=axis), axis)
        return running.accumulate(x, axis=axis)

    return rule


def _dot_general(step: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The contraction of two arrays; its axes are the batch axes, then the free axes of `a`, then those of `b`."""
    (over_a, over_b), (batch_a, batch_b) = step.params["dimension_numbers"]
    free_a = [axis for axis in range(a.ndim) if axis not in (*over_a, *batch_a)]
    free_b = [axis for axis in range(b.ndim) if axis not in (*over_b, *batch_b)]
    batch = tuple(a.shape[axis] for axis in batch_a)
    rows, columns = tuple(a.shape[axis] for axis in free_a), tuple(b.shape[axis] for axis in free_b)
    terms = tuple(a.shape[axis] for axis in over_a)
    left = a.transpose(*batch_a, *free_a, *over_a).reshape(*batch, _size(rows), 1, _size(terms))
    right = b.transpose(*batch_b, *free_b, *over_b).reshape(*batch, 1, _size(columns), _size(terms))
    products = over_arrays(algebra.mul, 2)(left, right)
    return array(over_arrays(algebra.add, 2).reduce(products, axis=-1, initial=step.constant(0))).reshape(
        batch + rows + columns
    )


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


RULES: dict[str, Callable[..., Any]] = {
    "reduce_sum": _reduction(algebra.add, 0),
    "reduce_prod": _reduction(algebra.mul, 1),
    "reduce_max": _reduction(choice.maximum, -np.inf),
    "reduce_min": _reduction(choice.minimum, np.inf),
    "reduce_and": _reduction(choice.logical_and, True),
    "reduce_or": _reduction(choice.logical_or, False),
    "cumsum": _cumulative(algebra.add),
    "cumprod": _cumulative(algebra.mul),
    "cummax": _cumulative(choice.maximum),
    "cummin": _cumulative(choice.minimum),
    "dot_general": _dot_general,
}
