"""Lowering rules: for each primitive of JAX, the operations that it emits for arrays of value ids."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from jaxmbd.compile.graph.calls import RULES as CALLS
from jaxmbd.compile.graph.calls import branching
from jaxmbd.compile.graph.moves import RULES as MOVES
from jaxmbd.compile.graph.step import Step
from jaxmbd.compile.ldlt_primitive import RULES as ELIMINATION
from jaxmbd.compile.ssa_builder import ONE, ZERO, Rows, SSABuilder, product_pairs
from jaxmbd.compile.table_lookup import RULES as LOOKUP
from jaxmbd.compile.targets.opcodes import EVALUATE

Rule = Callable[..., Any]

_SMALL = 2**16  # bound of a constant integer factor, with which products of indices stay exact


def _plain(name: str) -> Rule:
    return lambda step, *rows: step.graph.apply(name, *rows)


def _real(name: str) -> Rule:
    """The rule of an operation on floating-point numbers; integers must be constants."""

    def rule(step: Step, *rows: Rows) -> Any:
        is_real = np.issubdtype(step.operand_dtype, np.floating)
        return step.graph.apply(name, *rows) if is_real else step.evaluate(*rows)

    return rule


def _mul(step: Step, a: Rows, b: Rows) -> Any:
    """A product. Integers, which overflow in JAX, are multiplied by small constants only, as in index arithmetic."""
    is_whole = np.issubdtype(step.operand_dtype, np.integer)
    if is_whole and not any(_is_small(step.graph, x) for x in (a, b)):
        return step.evaluate(a, b)
    return step.graph.apply("mul", a, b)


def _is_small(graph: SSABuilder, x: Rows) -> bool:
    numbers = graph.values(x, float)
    return numbers is not None and bool(np.all(np.abs(numbers) < _SMALL))


def _div(step: Step, a: Rows, b: Rows) -> Rows:
    """A quotient, truncated toward zero for integers."""
    quotient = step.graph.apply("div", a, b)
    return quotient if np.issubdtype(step.operand_dtype, np.floating) else _truncate(step.graph, quotient)


def _truncate(graph: SSABuilder, x: Rows) -> Rows:
    return graph.apply("select", graph.apply("lt", x, ZERO), graph.apply("ceil", x), graph.apply("floor", x))


def _logical(name: str) -> Rule:
    """The rule of a logical operation on booleans; bitwise operations on integers must be on constants."""

    def rule(step: Step, *rows: Rows) -> Any:
        return step.graph.apply(name, *rows) if step.operand_dtype == np.bool_ else step.evaluate(*rows)

    return rule


def _operands_swapped(name: str) -> Rule:
    return lambda step, a, b: step.graph.apply(name, b, a)


def _composed(function: Callable[..., Rows]) -> Rule:
    """The rule of a primitive that `function(builder, *operands)` composes from several operations."""
    return lambda step, *rows: function(step.graph, *rows)


def _power(step: Step, x: Rows) -> Rows:
    """An integer power, by repeated squaring."""
    graph, exponent = step.graph, abs(step.params["y"])
    result, square = np.full(x.shape, ONE, np.int32), x
    while exponent:
        if exponent % 2:
            result = graph.apply("mul", result, square)
        exponent //= 2
        square = graph.apply("mul", square, square) if exponent else square
    return result if step.params["y"] >= 0 else graph.apply("div", ONE, result)


def _logistic(graph: SSABuilder, x: Rows) -> Rows:
    return graph.apply("div", ONE, graph.apply("add", ONE, graph.apply("exp", graph.apply("neg", x))))


def _log2(graph: SSABuilder, x: Rows) -> Rows:
    return graph.apply("div", graph.apply("log", x), graph.constant(np.log(2)))


def _round(step: Step, x: Rows) -> Rows:
    to_even = step.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
    return step.graph.apply("round" if to_even else "round_away", x)


def _select(step: Step, which: Rows, *cases: Rows) -> Rows:
    if step.operand_dtype == np.bool_:
        return step.graph.apply("select", which, cases[1], cases[0])
    chosen = np.broadcast_to(step.indices(which), cases[0].shape)
    return np.choose(chosen, cases).astype(np.int32)


def _convert(step: Step, x: Rows) -> Any:
    before, after = step.operand_dtype, step.dtype
    if after == np.bool_:
        return step.graph.apply("ne", x, ZERO)
    if not np.issubdtype(before, np.floating) or before == after:
        return x
    return _truncate(step.graph, x) if np.issubdtype(after, np.integer) else step.evaluate(x)


def _reduction(name: str, start: Any) -> Rule:
    def rule(step: Step, x: Rows) -> Rows:
        return step.graph.fold_last(name, _reduced_axes_last(step, x), start)

    return rule


def _reduce_sum(step: Step, x: Rows) -> Rows:
    return step.graph.sum_last(_reduced_axes_last(step, x))


def _reduced_axes_last(step: Step, x: Rows) -> Rows:
    """Move the reduced axes to the end and flatten them to one."""
    axes = tuple(axis % x.ndim for axis in step.params["axes"])
    free_axes = tuple(axis for axis in range(x.ndim) if axis not in axes)
    size = int(np.prod([x.shape[axis] for axis in axes], dtype=int))
    return x.transpose(*free_axes, *axes).reshape(*(x.shape[axis] for axis in free_axes), size)


def _cumulative(name: str) -> Rule:
    def rule(step: Step, x: Rows) -> Rows:
        moved = np.moveaxis(x, step.params["axis"], 0)
        moved = moved[::-1] if step.params["reverse"] else moved
        result = list(moved[:1])
        for row in moved[1:]:
            result.append(step.graph.apply(name, result[-1], row))
        stacked = np.stack(result) if result else moved
        return np.moveaxis(stacked[::-1] if step.params["reverse"] else stacked, 0, step.params["axis"])

    return rule


def _dot_general(step: Step, a: Rows, b: Rows) -> Rows:
    """The contraction of two arrays; structurally zero products are left out."""
    (over_a, over_b), (batch_a, batch_b) = step.params["dimension_numbers"]
    left, batch, rows = _matrices(a, batch_a, over_a)
    right, _, columns = _matrices(b, batch_b, over_b)
    first, second, places = product_pairs(left, right)
    shape = batch + rows + columns
    size = int(np.prod(shape, dtype=int))
    return step.graph.sum_into(step.graph.apply("mul", first, second), places, size).reshape(shape)


def _matrices(x: Rows, batch: Any, over: Any) -> tuple[Rows, tuple[int, ...], tuple[int, ...]]:
    """Arrange an operand as `(batch, free, contracting)`; also return the shapes of its batch and free axes."""
    free = [axis for axis in range(x.ndim) if axis not in (*over, *batch)]
    shapes = [tuple(x.shape[axis] for axis in axes) for axes in (batch, free, over)]
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes]
    return x.transpose(*batch, *free, *over).reshape(sizes), shapes[0], shapes[1]


def _at_least(graph: SSABuilder, index: Rows, k: int) -> Rows:
    return graph.apply("le", graph.constant(k), index)


def _select_branch(graph: SSABuilder, condition: Rows, yes: Rows, no: Rows) -> Rows:
    return graph.apply("select", condition, yes, no)


_ANY_TYPE = ("add", "sub", "neg", "rem", "max", "min", "eq", "ne", "lt", "le", "abs", "sign", "is_finite")
_OTHERS = {"mul", "div", "and", "or", "not", "select", "fma", "fms", "fnma", "round", "round_away", *_ANY_TYPE}

RULES: dict[str, Rule] = {
    **MOVES,
    **CALLS,
    **LOOKUP,
    **ELIMINATION,
    **{name: _real(name) for name in EVALUATE if name not in _OTHERS},
    **{name: _plain(name) for name in _ANY_TYPE},
    **{name: _logical(name) for name in ("and", "or", "not")},
    "mul": _mul,
    "div": _div,
    "add_any": _plain("add"),
    "gt": _operands_swapped("lt"),
    "ge": _operands_swapped("le"),
    # The total orders `eq_to`, `lt_to`, `le_to` differ from the usual ones only for NaN and the sign of zero.
    **{f"{name}_to": _plain(name) for name in ("eq", "lt", "le")},
    "xor": _logical("ne"),
    "square": _composed(lambda graph, x: graph.apply("mul", x, x)),
    "rsqrt": _composed(lambda graph, x: graph.apply("div", ONE, graph.apply("sqrt", x))),
    "one_minus_square": _composed(lambda graph, x: graph.apply("sub", ONE, graph.apply("mul", x, x))),
    "logistic": _composed(_logistic),
    "log2": _composed(_log2),
    "integer_pow": _power,
    "clamp": _composed(lambda graph, low, x, high: graph.apply("min", graph.apply("max", x, low), high)),
    "round": _round,
    "select_n": _select,
    "convert_element_type": _convert,
    "reduce_sum": _reduce_sum,
    "reduce_prod": _reduction("mul", 1),
    "reduce_max": _reduction("max", -np.inf),
    "reduce_min": _reduction("min", np.inf),
    "reduce_and": _reduction("and", True),
    "reduce_or": _reduction("or", False),
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max"),
    "cummin": _cumulative("min"),
    "dot_general": _dot_general,
    "cond": branching(_at_least, _select_branch),
}
