"""The syntax of expressions in Python and in C: operators and their precedence, functions, constants."""

import keyword
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from jaxmbd.compile.graph.node import Node
from jaxmbd.compile.graph.number import to_float

_PRODUCTS = 4  # exponents up to which C code multiplies, which is faster and more accurate than pow

# The precedence of operators, from the lowest.
CHOICE, OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, POWER, ATOM = range(10)

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SAME = ["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "floor", "ceil"]
_NUMPY_FUNCTIONS = {name: f"np.{name}" for name in _SAME} | {
    **{name: f"np.arc{name[1:]}" for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    **{"abs": "abs", "sign": "np.sign", "round": "np.round", "erf": "math.erf"},
    **{"max": "np.maximum", "min": "np.minimum"},
}
_C_FUNCTIONS = {name: name for name in [*_SAME, "asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2", "erf"]} | {
    **{"abs": "fabs", "round": "rint", "max": "fmax", "min": "fmin"},
}


@dataclass(frozen=True)
class Text:
    """The text of an expression, and the precedence of its outermost operator."""

    text: str
    binding: int

    def within(self, binding: int) -> str:
        """The text, in parentheses if its precedence is lower than `binding`."""
        return self.text if self.binding >= binding else f"({self.text})"


@dataclass(frozen=True)
class Language:
    """The syntax of one language, as far as languages differ."""

    functions: Mapping[str, str]  # function names by the graph's operation; in a template, % is the argument
    words: Mapping[str, str]  # boolean operators and constants
    reserved: frozenset[str]  # names that arguments and outputs cannot have
    infinity: str
    nan: str
    element: Callable[[str, tuple[int, ...], tuple[int, ...]], str]  # an array element, by name, index and shape
    select: Callable[[Text, Text, Text], Text]
    power: Callable[[Text, Text, Node], Text]
    repeats: Callable[[Node], int]  # how often the text of a node contains the text of its first argument


def operation(sign: str, binding: int, left: int, right: int, a: Text, b: Text) -> Text:
    """A binary operation; its operands get parentheses below the precedences `left` and `right`."""
    return Text(f"{a.within(left)} {sign} {b.within(right)}", binding)


def negative(a: Text) -> Text:
    """A negation. The sign is written before a product's first factor; two signs in a row would be C's decrement."""
    text = a.within(POWER if a.text.startswith("-") else PRODUCT)
    return Text(f"-{text}", min(SIGN, a.binding) if a.binding >= PRODUCT else SIGN)


def call(function: str, *arguments: Text) -> Text:
    """A function call."""
    if "%" in function:
        return Text(function.replace("%", arguments[0].within(ATOM)), ATOM)
    return Text(f"{function}({', '.join(argument.text for argument in arguments)})", ATOM)


def constant(value: Fraction | float | bool, language: Language) -> Text:
    """A constant, as text that is read back as the nearest float."""
    if isinstance(value, bool):
        return Text(language.words[str(value)], ATOM)
    if isinstance(value, Fraction) and value < 0:
        return negative(constant(-value, language))
    number = to_float(value)
    if not math.isfinite(number):
        text = language.nan if math.isnan(number) else language.infinity
        return Text(f"-{text}" if number < 0 else text, SIGN if number < 0 else ATOM)
    if isinstance(value, Fraction) and Fraction(repr(number)) != value:
        above, below = value.numerator, value.denominator
        if max(above, below) < 2**53:
            return Text(f"{float(above)!r} / {float(below)!r}", PRODUCT)
    return Text(repr(number), SIGN if number < 0 else ATOM)


def _python_element(name: str, position: tuple[int, ...], shape: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, position))}]" if shape else name


def _python_select(condition: Text, yes: Text, no: Text) -> Text:
    return Text(f"{yes.within(OR)} if {condition.within(OR)} else {no.within(OR)}", CHOICE)


def _python_power(base: Text, exponent: Text, node: Node) -> Text:
    if isinstance(node.value, Fraction) and node.value.denominator == 1:
        return Text(f"{base.within(ATOM)}**{node.value.numerator}", POWER)
    return Text(f"{base.within(ATOM)} ** {exponent.within(ATOM)}", POWER)


def _c_element(name: str, position: tuple[int, ...], shape: tuple[int, ...]) -> str:
    return f"{name}[{np.ravel_multi_index(position, shape)}]" if shape else name


def _c_select(condition: Text, yes: Text, no: Text) -> Text:
    return Text(f"{condition.within(OR)} ? {yes.within(OR)} : {no.within(OR)}", CHOICE)


def _c_power(base: Text, exponent: Text, node: Node) -> Text:
    if isinstance(node.value, Fraction) and node.value.denominator == 1 and 1 < node.value <= _PRODUCTS:
        return Text(" * ".join([base.within(ATOM)] * int(node.value)), PRODUCT)
    return call("pow", base, exponent)


def _c_repeats(node: Node) -> int:
    if node.op == "pow" and isinstance(node.args[1].value, Fraction) and node.args[1].value <= _PRODUCTS:
        return 2
    return 2 if node.op == "sign" else 1


_C_RESERVED = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long main "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "pow INFINITY NAN"
)

PYTHON = Language(
    functions=_NUMPY_FUNCTIONS,
    words={"and": "and", "or": "or", "not": "not ", "True": "True", "False": "False"},
    reserved=frozenset([*keyword.kwlist, "np", "math", "abs", "float"]),
    infinity="np.inf",
    nan="np.nan",
    element=_python_element,
    select=_python_select,
    power=_python_power,
    repeats=lambda node: 1,
)
C = Language(
    functions=_C_FUNCTIONS | {"sign": "(double)((% > 0.0) - (% < 0.0))"},
    words={"and": "&&", "or": "||", "not": "!", "True": "1", "False": "0"},
    reserved=frozenset([*_C_RESERVED.split(), *_C_FUNCTIONS.values()]),
    infinity="INFINITY",
    nan="NAN",
    element=_c_element,
    select=_c_select,
    power=_c_power,
    repeats=_c_repeats,
)
