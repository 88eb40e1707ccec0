"""Rules for elementwise primitives."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from jax import lax

from jaxmbd.compile.graph import algebra, choice
from jaxmbd.compile.graph.node import Node
from jaxmbd.compile.graph.number import FUNCTIONS
from jaxmbd.compile.graph.step import Arrays, Step, array, over_arrays


def _rsqrt(x: Node) -> Node:
    return algebra.div(x.graph.constant(1), algebra.function("sqrt", x))


def _logistic(x: Node) -> Node:
    one = x.graph.constant(1)
    return algebra.div(one, algebra.add(one, algebra.function("exp", algebra.neg(x))))


def _exp2(x: Node) -> Node:
    return algebra.general_power(x.graph.constant(2), x)


def _log2(x: Node) -> Node:
    return algebra.div(algebra.function("log", x), x.graph.constant(math.log(2)))


def _erfc(x: Node) -> Node:
    return algebra.sub(x.graph.constant(1), algebra.function("erf", x))


def _one_minus_square(x: Node) -> Node:
    return algebra.sub(x.graph.constant(1), algebra.power(x, 2))


def _remainder(x: Node, y: Node) -> Node:
    """`x − y trunc(x / y)`, which has the sign of `x`."""
    ratio = algebra.div(x, y)
    negative = choice.compare("lt", ratio, x.graph.constant(0))
    whole = choice.select(negative, algebra.function("ceil", ratio), algebra.function("floor", ratio))
    return algebra.sub(x, algebra.mul(y, whole))


def _away_from_zero(x: Node) -> Node:
    """`x` rounded, halves away from zero."""
    half = algebra.add(algebra.function("abs", x), x.graph.constant(Fraction(1, 2)))
    return algebra.mul(algebra.function("sign", x), algebra.function("floor", half))


def _round(step: Step, x: np.ndarray) -> np.ndarray:
    if step.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return elementwise(lambda node: algebra.function("round", node), x)
    return elementwise(_away_from_zero, x)


def _integer_pow(step: Step, x: np.ndarray) -> np.ndarray:
    return elementwise(lambda node: algebra.power(node, step.params["y"]), x)


def _clamp(step: Step, low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return elementwise(choice.minimum, elementwise(choice.maximum, x, low), high)


def _is_finite(step: Step, x: np.ndarray) -> np.ndarray:
    """True: the graph knows real numbers only."""
    return np.full(x.shape, step.constant(True), dtype=object)


def _select_n(step: Step, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if step.operand_dtype == np.bool_:
        return elementwise(choice.select, which, cases[1], cases[0])
    chosen = np.broadcast_to(step.indices(which), cases[0].shape)
    result = np.empty(cases[0].shape, dtype=object)
    for position, case in np.ndenumerate(chosen):
        result[position] = cases[case][position]
    return result


def _convert(step: Step, x: np.ndarray) -> np.ndarray | Arrays:
    """Type conversion. Between floating-point types it is the identity: the graph has one kind of real number."""
    before, after = step.operand_dtype, step.dtype
    if before == after:
        return x
    if before == np.bool_:
        return elementwise(lambda node: choice.select(node, step.constant(1), step.constant(0)), x)
    if after == np.bool_:
        return elementwise(lambda node: choice.compare("ne", node, step.constant(0)), x)
    if np.issubdtype(after, np.floating):
        return x
    return x if np.issubdtype(before, np.integer) else step.evaluate(x)


def elementwise(function: Callable[..., Node], *operands: np.ndarray) -> np.ndarray:
    """Apply a function of nodes elementwise."""
    return array(over_arrays(function, len(operands))(*operands))


def _real(function: Callable[..., Node]) -> Callable[..., Any]:
    """The rule of a function of real numbers; integers, whose quotients are truncated, must be constants."""

    def rule(step: Step, *operands: np.ndarray) -> np.ndarray | Arrays:
        is_real = np.issubdtype(step.operand_dtype, np.floating)
        return elementwise(function, *operands) if is_real else step.evaluate(*operands)

    return rule


def _any_type(function: Callable[..., Node]) -> Callable[..., Any]:
    return lambda step, *operands: elementwise(function, *operands)


def _logical(function: Callable[..., Node]) -> Callable[..., Any]:
    """The rule of a logical operation on booleans; bitwise operations on integers must be on constants."""

    def rule(step: Step, *operands: np.ndarray) -> np.ndarray | Arrays:
        return elementwise(function, *operands) if step.operand_dtype == np.bool_ else step.evaluate(*operands)

    return rule


def _named(name: str) -> Callable[[Node], Node]:
    return lambda node: algebra.function(name, node)


def _compared(name: str) -> Callable[[Node, Node], Node]:
    return lambda a, b: choice.compare(name, a, b)


RULES: dict[str, Callable[..., Any]] = {
    **{name: _real(_named(name)) for name in FUNCTIONS if name not in ("abs", "sign", "round")},
    **{name: _any_type(_named(name)) for name in ("abs", "sign")},
    **{name: _any_type(_compared(name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "add": _any_type(algebra.add),
    "add_any": _any_type(algebra.add),
    "sub": _any_type(algebra.sub),
    "mul": _any_type(algebra.mul),
    "neg": _any_type(algebra.neg),
    "max": _any_type(choice.maximum),
    "min": _any_type(choice.minimum),
    "square": _any_type(lambda x: algebra.power(x, 2)),
    "integer_pow": _integer_pow,
    "div": _real(algebra.div),
    "rem": _real(_remainder),
    "pow": _real(algebra.general_power),
    "exp2": _real(_exp2),
    "log2": _real(_log2),
    "erfc": _real(_erfc),
    "one_minus_square": _real(_one_minus_square),
    "rsqrt": _real(_rsqrt),
    "logistic": _real(_logistic),
    "atan2": _real(algebra.atan2),
    "round": _round,
    "clamp": _clamp,
    "is_finite": _is_finite,
    "and": _logical(choice.logical_and),
    "or": _logical(choice.logical_or),
    "xor": _logical(lambda a, b: choice.compare("ne", a, b)),
    "not": _logical(choice.logical_not),
    "select_n": _select_n,
    "convert_element_type": _convert,
}
