"""Constants of expression graphs: exact rational numbers where possible, otherwise floats.

A float is read as the decimal that a person would write for it: 0.0665 is 133/2000, and 0.0665 + 0.0625 is 129/1000. A
float with more digits than survive the conversion from a decimal (the result of a sine, π) stays a float, unless it
agrees, up to rounding, with a fraction of small integers, such as 1/3, or a decimal of few digits, as 0.1 + 0.2 does.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

Number: TypeAlias = Fraction | float | bool

_DIGITS = {8: 15, 4: 6, 2: 3}  # by item size [bytes]: decimals of so many digits survive conversion to a float and back
_FEW = 12  # significant digits up to which a decimal is not close to a multiple of π by coincidence
_DENOMINATOR = {8: 1000, 4: 32, 2: 1}  # by item size: denominators so small that no float is close by coincidence
_BITS = 512  # limit of numerators and denominators: those of repeated exact products would grow without bound
_ULPS = 4  # units in the last place within which a float is identified with an exact value or a multiple of π
_TURNS = 2**20  # multiples of π/12 beyond which floats are close to one by coincidence

_SINES = {0: Fraction(0), 2: Fraction(1, 2), 6: Fraction(1), 10: Fraction(1, 2), 12: Fraction(0)}
_SINES |= {k + 12: -value for k, value in _SINES.items() if k < 12}
_COSINES = {(k - 6) % 24: value for k, value in _SINES.items()}
_TANGENTS = {12 * n + k: value for n in (0, 1) for k, value in ((0, Fraction(0)), (3, Fraction(1)), (9, Fraction(-1)))}


def number(value: object) -> Number:
    """The exact constant for a Python or NumPy number, by its shortest decimal."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Fraction):
        return _bounded(value)
    if isinstance(value, int | np.integer):
        return _bounded(Fraction(int(value)))
    return _bounded(_from_float(value))


def _bounded(value: Fraction | float) -> Fraction | float:
    if isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS:
        return to_float(value)
    return value


def _from_float(value: Any) -> Fraction | float:
    if not np.isfinite(value):
        return float(value)
    size = value.dtype.itemsize if isinstance(value, np.floating) else 8
    decimal = Decimal(str(value))  # the shortest that gives the same float in its own precision
    digits = len(decimal.normalize().as_tuple().digits)
    # By coincidence 3π/2 has few enough digits to be a decimal that a person wrote; so many digits mean the multiple.
    is_pi = size == 8 and digits > _FEW and twelfths_of_pi(float(value)) is not None
    if digits <= _DIGITS[size] and not is_pi:
        return Fraction(decimal)
    near = Fraction(float(value)).limit_denominator(_DENOMINATOR[size])
    if size == 8:
        short = Fraction(Decimal(f"{float(value):.{_FEW}g}"))
        return next((x for x in (near, short) if _stands_for(float(value), x) and not is_pi), float(value))
    if near and type(value)(float(near)) == value:
        return near
    multiple = round(float(value) / (math.pi / 12))
    if 0 < abs(multiple) <= 48 and type(value)(multiple * math.pi / 12) == value:
        return multiple * math.pi / 12
    return Fraction(decimal)


def _stands_for(value: float, exact: Fraction) -> bool:
    return exact != 0 and abs(value - float(exact)) <= _ULPS * math.ulp(value)


def to_float(value: Number) -> float:
    """The nearest float; infinite beyond the largest."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def twelfths_of_pi(value: Number) -> int | None:
    """`k` if the value is `k π/12` up to a few units in the last place, else None."""
    x = to_float(value)
    if not abs(x) < _TURNS * math.pi / 12:
        return None
    k = round(x / (math.pi / 12))
    return k if abs(x - k * math.pi / 12) <= _ULPS * math.ulp(x) and (k or not x) else None


def fold(function: Callable[..., Number], *values: Number) -> Number:
    """`function` of constants: exact if all of them are, else in floats, with NaN and infinity as in NumPy."""
    try:
        return number(function(*values))
    except (ArithmeticError, ValueError):
        with np.errstate(all="ignore"):
            return number(float(function(*(np.float64(to_float(value)) for value in values))))


def _exact_at(values: dict[int, Fraction], function: Callable[[Any], float]) -> Callable[[Number], Number]:
    """A function of period 2π with exact values at some multiples of π/12."""

    def evaluate(x: Number) -> Number:
        k = twelfths_of_pi(x)
        exact = values.get(k % 24) if k is not None else None
        return function(x) if exact is None else exact

    return evaluate


def _root(value: int, degree: int) -> int | None:
    """The integer root of an integer, or None."""
    if value.bit_length() > 2 * _BITS:
        return None
    near = math.isqrt(value) if degree == 2 else round(math.cbrt(value))
    return near if near**degree == value else None


def _exact_root(degree: int, function: Callable[[Any], float]) -> Callable[[Number], Number]:
    """A root that is exact for fractions of powers."""

    def evaluate(x: Number) -> Number:
        if not isinstance(x, Fraction):
            return function(x)
        above, below = _root(x.numerator, degree), _root(x.denominator, degree)
        return function(x) if above is None or below is None else Fraction(above, below)

    return evaluate


def _sign(x: Number) -> Number:
    return x if math.isnan(x) else Fraction((x > 0) - (x < 0))


# The functions of one argument at constants; the algebraic ones keep fractions exact.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sin": _exact_at(_SINES, math.sin),
    "cos": _exact_at(_COSINES, math.cos),
    "tan": _exact_at(_TANGENTS, math.tan),
    "sqrt": _exact_root(2, math.sqrt),
    "cbrt": _exact_root(3, math.cbrt),
    "sign": _sign,
    "abs": abs,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "erf": math.erf,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": math.atanh,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
}


def apply(name: str, value: Number) -> Number:
    """A function of one argument at a constant; NaN outside its domain, infinite where it overflows."""
    try:
        return number(FUNCTIONS[name](value))
    except OverflowError:
        # exp, expm1, cosh and sinh overflow; floor, ceil and round refuse infinity, which keeps its sign.
        return math.inf if name == "cosh" else math.copysign(math.inf, value)
    except (ValueError, ZeroDivisionError):
        return -math.inf if _is_pole(name, value) else math.nan


def _is_pole(name: str, value: Number) -> bool:
    return (name == "log" and value == 0) or (name == "log1p" and value == -1)


def raised(base: Number, exponent: Number) -> Number:
    """`base ** exponent`, exact for an integer exponent; NaN if there is no real power."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if size * abs(exponent.numerator) <= _BITS and (base or exponent > 0):
            return number(base**exponent.numerator)
    with np.errstate(all="ignore"):
        return number(float(np.power(to_float(base), to_float(exponent))))
