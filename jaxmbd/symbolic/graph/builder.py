"""The builder of expression graphs: operations on arrays of nodes."""

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from jaxmbd.engine.program.equation import AbstractBuilder, array
from jaxmbd.symbolic.graph import algebra
from jaxmbd.symbolic.graph.node import Graph, Node
from jaxmbd.symbolic.graph.number import FUNCTIONS


class GraphBuilder(AbstractBuilder):
    """Adds nodes to a graph. The graph knows real numbers only: `is_finite` is true."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def constant(self, value: object) -> Node:
        return self.graph.constant(value)

    def constants(self, array: object) -> np.ndarray:
        numbers = np.asarray(array)
        # Each distinct number is looked up once: large arrays are mostly zeros.
        distinct, inverse = np.unique(numbers, return_inverse=True)
        nodes = np.empty(distinct.shape, dtype=object)
        nodes[:] = [self.graph.constant(value) for value in distinct]
        return nodes[inverse.reshape(numbers.shape)] if numbers.ndim else nodes.reshape(())

    def values(self, array: Any, dtype: Any) -> np.ndarray | None:
        if not all(node.is_constant for node in array.flat):
            return None
        numbers = np.empty(array.size, dtype=object)
        numbers[:] = [node.value for node in array.flat]
        return numbers.astype(dtype).reshape(array.shape)

    def apply(self, name: str, *operands: object) -> np.ndarray:
        return array(_elementwise(_OPERATIONS[name], len(operands))(*operands))

    def power(self, x: np.ndarray, exponent: int) -> np.ndarray:
        return array(_elementwise(lambda node: algebra.power(node, exponent), 1)(x))

    def reduce(self, name: str, x: np.ndarray, start: object) -> np.ndarray:
        return array(_elementwise(_OPERATIONS[name], 2).reduce(x, axis=-1, initial=self.constant(start)))

    def contract(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self.reduce("add", self.apply("mul", left[:, :, None], right[:, None]), 0)


def _elementwise(function: Callable[..., Node], operands: int) -> np.ufunc:
    """A function of nodes as a ufunc, memoised, since operands such as zeros repeat."""
    return np.frompyfunc(functools.cache(function), operands, 1)


def _named(function: Callable[..., Node], *names: str) -> dict[str, Callable[..., Node]]:
    return {name: functools.partial(function, name) for name in names}


def _remainder(x: Node, y: Node) -> Node:
    """`x − y trunc(x / y)`, which has the sign of `x`."""
    ratio = algebra.div(x, y)
    negative = algebra.compare("lt", ratio, x.graph.constant(0))
    whole = algebra.select(negative, algebra.function("ceil", ratio), algebra.function("floor", ratio))
    return algebra.sub(x, algebra.mul(y, whole))


def _away_from_zero(x: Node) -> Node:
    """`x` rounded, halves away from zero."""
    half = algebra.add(algebra.function("abs", x), x.graph.constant(Fraction(1, 2)))
    return algebra.mul(algebra.function("sign", x), algebra.function("floor", half))


_OPERATIONS: dict[str, Callable[..., Node]] = {
    **_named(algebra.function, *FUNCTIONS),
    **_named(algebra.compare, "eq", "ne", "lt", "le", "gt", "ge"),
    **_named(algebra.extreme, "max", "min"),
    **_named(algebra.logical, "and", "or"),
    "add": algebra.add,
    "sub": algebra.sub,
    "mul": algebra.mul,
    "div": algebra.div,
    "neg": algebra.neg,
    "pow": algebra.general_power,
    "atan2": algebra.atan2,
    "not": algebra.logical_not,
    "select": algebra.select,
    "exp2": lambda x: algebra.general_power(x.graph.constant(2), x),
    "erfc": lambda x: algebra.sub(x.graph.constant(1), algebra.function("erf", x)),
    "rem": _remainder,
    "round_away": _away_from_zero,
    "is_finite": lambda x: x.graph.constant(True),
}
