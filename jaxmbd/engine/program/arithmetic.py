"""Rules for arithmetic: elementwise operations, reductions, cumulative operations, and products of matrices."""

from collections.abc import Sequence

import numpy as np
from jax import lax

from jaxmbd.engine.program.equation import AbstractBuilder, Arrays, Equation, Rule


def _any_type(name: str) -> Rule:
    return lambda equation, *x: equation.builder.apply(name, *x)


def _one_type(name: str, kind: type[np.generic]) -> Rule:
    """The rule of an operation on operands of one kind of type; those of other types must be constants."""

    def rule(equation: Equation, *x: np.ndarray) -> np.ndarray | Arrays:
        is_kind = np.issubdtype(equation.operand_dtype, kind)
        return equation.builder.apply(name, *x) if is_kind else equation.evaluate(*x)

    return rule


def _div(equation: Equation, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A quotient, truncated toward zero for integers."""
    quotient = equation.builder.apply("div", a, b)
    is_real = np.issubdtype(equation.operand_dtype, np.floating)
    return quotient if is_real else truncate(equation.builder, quotient)


def truncate(builder: AbstractBuilder, x: np.ndarray) -> np.ndarray:
    """`x` rounded toward zero."""
    is_negative = builder.apply("lt", x, builder.constant(0))
    return builder.apply("select", is_negative, builder.apply("ceil", x), builder.apply("floor", x))


def _rsqrt(equation: Equation, x: np.ndarray) -> np.ndarray:
    build = equation.builder
    return build.apply("div", build.constant(1), build.apply("sqrt", x))


def _logistic(equation: Equation, x: np.ndarray) -> np.ndarray:
    build = equation.builder
    one = build.constant(1)
    return build.apply("div", one, build.apply("add", one, build.apply("exp", build.apply("neg", x))))


def _log2(equation: Equation, x: np.ndarray) -> np.ndarray:
    build = equation.builder
    return build.apply("div", build.apply("log", x), build.constant(np.log(2)))


def _one_minus_square(equation: Equation, x: np.ndarray) -> np.ndarray:
    build = equation.builder
    return build.apply("sub", build.constant(1), build.apply("mul", x, x))


def _polynomial(equation: Equation, x: np.ndarray, *coefficients: np.ndarray) -> np.ndarray:
    """Horner's rule; the coefficient of the lowest power comes first."""
    *lower, result = coefficients
    for c in reversed(lower):
        result = equation.builder.apply("add", equation.builder.apply("mul", result, x), c)
    return result


def _clamp(equation: Equation, low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return equation.builder.apply("min", equation.builder.apply("max", x, low), high)


def _round(equation: Equation, x: np.ndarray) -> np.ndarray:
    to_even = equation.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
    return equation.builder.apply("round" if to_even else "round_away", x)


def _select_n(equation: Equation, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if equation.operand_dtype == np.bool_:
        return equation.builder.apply("select", which, cases[1], cases[0])
    index, result = equation.indices(which), cases[0]
    for k, case in enumerate(cases[1:], start=1):
        result = np.where(index == k, case, result)
    return result


def _reduction(name: str, start: float) -> Rule:
    def rule(equation: Equation, x: np.ndarray) -> np.ndarray:
        over = tuple(axis % x.ndim for axis in equation.params["axes"])
        free = tuple(axis for axis in range(x.ndim) if axis not in over)
        size = int(np.prod([x.shape[axis] for axis in over], dtype=int))
        rows = x.transpose(*free, *over).reshape(*(x.shape[axis] for axis in free), size)
        return equation.builder.reduce(name, rows, start)

    return rule


def _cumulative(name: str) -> Rule:
    def rule(equation: Equation, x: np.ndarray) -> np.ndarray:
        axis, step = equation.params["axis"], -1 if equation.params["reverse"] else 1
        result = np.moveaxis(x, axis, 0)[::step].copy()
        for k in range(1, len(result)):
            result[k, ...] = equation.builder.apply(name, result[k - 1], result[k])
        return np.moveaxis(result[::step], 0, axis)

    return rule


def _dot_general(equation: Equation, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The contraction of two arrays; its axes are the batch axes, then the free axes of `a`, then those of `b`."""
    (over_a, over_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    left, batch, rows = _as_matrices(a, batch_a, over_a)
    right, _, columns = _as_matrices(b, batch_b, over_b)
    return equation.builder.contract(left, right).reshape(batch + rows + columns)


def _as_matrices(
    x: np.ndarray, batch: Sequence[int], over: Sequence[int]
) -> tuple[np.ndarray, tuple[int, ...], tuple[int, ...]]:
    """Arrange an operand as `(batch, free, over)`; also return the shapes of its batch and free axes."""
    free = [axis for axis in range(x.ndim) if axis not in (*over, *batch)]
    shapes = [tuple(x.shape[axis] for axis in axes) for axes in (batch, free, over)]
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes]
    return x.transpose(*batch, *free, *over).reshape(sizes), shapes[0], shapes[1]


_ANY_TYPE = (
    *("add", "sub", "mul", "neg", "rem", "max", "min", "abs", "sign", "is_finite"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
)
REAL = (
    *("sqrt", "cbrt", "pow", "exp", "exp2", "expm1", "log", "log1p", "erf", "erfc", "floor", "ceil"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)

RULES: dict[str, Rule] = {
    **{name: _any_type(name) for name in _ANY_TYPE},
    **{name: _one_type(name, np.floating) for name in REAL},
    **{name: _one_type(name, np.bool_) for name in ("and", "or", "not")},  # on integers they are bitwise
    # The total orders `eq_to`, `lt_to`, `le_to` differ from the usual ones only for NaN and the sign of zero.
    **{f"{name}_to": _any_type(name) for name in ("eq", "lt", "le")},
    "add_any": _any_type("add"),
    "xor": _one_type("ne", np.bool_),
    "square": lambda equation, x: equation.builder.apply("mul", x, x),
    "integer_pow": lambda equation, x: equation.builder.power(x, equation.params["y"]),
    "div": _div,
    "rsqrt": _rsqrt,
    "log2": _log2,
    "logistic": _logistic,
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "clamp": _clamp,
    "round": _round,
    "select_n": _select_n,
    "reduce_sum": _reduction("add", 0),
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
}
