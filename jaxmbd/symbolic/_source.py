"""Code generation: an expression graph as the source text of a function for NumPy or in C.

An expression that is used more than once is computed once, in a local variable; all others are written where they are
used. Long expressions are split into local variables, too, since compilers limit the nesting of parentheses. A
`Language` holds the syntax of expressions: operators and their precedence, functions, constants.
"""

import itertools
import keyword
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.symbolic.graph.node import BOOLEAN, Node, in_order
from jaxmbd.symbolic.graph.number import to_float

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

Arrays: TypeAlias = Mapping[str, np.ndarray]
_LONGEST = 100  # the largest number of characters of an expression without a local variable


def to_numpy(name: str, arguments: Arrays, outputs: Arrays, doc: str = "") -> str:
    """Python source of a function of numbers and arrays that depends on NumPy only.

    `arguments` are the symbols of each argument, as an array of nodes of the argument's shape; `outputs`, the arrays of
    nodes to compute. The function returns an array, or a dictionary of arrays if there are several outputs.
    """
    body = _Body(PYTHON, name, arguments, outputs)
    quoted = doc.replace("\\", "\\\\").replace('"""', "'''")
    lines = [f"def {name}({', '.join(arguments)}):", *([f'    """{quoted}"""'] if doc else [])]
    # NumPy's numbers do not raise on division by zero, as Python's do.
    converted = {True: "np.asarray({}, dtype=float)", False: "np.float64({})"}
    lines += [f"    {x} = {converted[nodes.ndim > 0].format(x)}" for x, nodes in arguments.items()]
    block = [f"{local} = {text}" for local, text in body.locals]
    block += [f"{output} = {_nested(body, nodes)}" for output, nodes in outputs.items()]
    operations = {node.op for node in body.order}
    if "select" in operations:
        # Shared terms of both branches of a select are computed always: in the one not taken they may divide by zero.
        block = ['with np.errstate(all="ignore"):', *(f"    {line}" for line in block)]
    results = ", ".join(outputs if len(outputs) == 1 else (f'"{output}": {output}' for output in outputs))
    block.append(f"return {results}" if len(outputs) == 1 else f"return {{{results}}}")
    imports = [*(["import math", ""] if "erf" in operations else []), "import numpy as np"]
    return "\n".join([*imports, "", "", *lines, *(f"    {line}" for line in block), ""])


def to_c(name: str, arguments: Arrays, outputs: Arrays, doc: str = "") -> str:
    """C source of a function `void name(double t, const double q[3], …, double M[9])` that includes `<math.h>` only.

    Arrays are stored row by row; an output without axes is an array of one number. Outputs must not overlap with
    arguments. `doc` becomes a comment.
    """
    body = _Body(C, name, arguments, outputs)
    parameters = [_declared(argument, nodes) for argument, nodes in arguments.items()]
    parameters += [f"double {output}[{max(nodes.size, 1)}]" for output, nodes in outputs.items()]
    lines = ["#include <math.h>", "", *([f"/* {doc.replace('*/', '* /')} */"] if doc else [])]
    lines += [f"void {name}({', '.join(parameters) or 'void'})", "{"]
    kinds = {local: "int" if node.op in BOOLEAN else "double" for node, local in body.names.items()}
    lines += [f"    const {kinds[local]} {local} = {text};" for local, text in body.locals]
    for output, nodes in outputs.items():
        lines += [f"    {output}[{i}] = {body.text(node).text};" for i, node in enumerate(nodes.flat)]
    return "\n".join([*lines, "}", ""])


def _declared(name: str, nodes: np.ndarray) -> str:
    return f"const double {name}[{max(nodes.size, 1)}]" if nodes.ndim else f"double {name}"


def _nested(body: "_Body", nodes: np.ndarray) -> str:
    """The Python text of an array."""

    def text(part: np.ndarray) -> str:
        # Slicing and reshaping yields an array even for a single element, which indexing would return bare.
        rows = (text(part[i : i + 1].reshape(part.shape[1:])) for i in range(len(part))) if part.ndim else ()
        return f"[{', '.join(rows)}]" if part.ndim else body.text(part.item()).text

    return f"np.array({text(nodes)}, dtype=float)" if nodes.size else f"np.zeros({nodes.shape})"


def _check_names(language: Language, names: list[str]) -> None:
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in language.reserved or names.count(name) > 1:
            raise MechanismError(
                f"The name {name!r} cannot stand in source text: names are words of letters, digits and underscores, "
                "each used once, and none of the language's own."
            )


class _Body:
    """The expressions of a function: `locals`, its local variables in order with their text; `names`, by node."""

    def __init__(self, language: Language, name: str, arguments: Arrays, outputs: Arrays) -> None:
        _check_names(language, [name, *arguments, *outputs])
        self.language = language
        self.order = in_order(node for nodes in outputs.values() for node in nodes.flat)
        self.names: dict[Node, str] = {}
        self.locals: list[tuple[str, str]] = []
        self._texts = _elements(language, arguments)
        missing = sorted(str(node) for node in self.order if node.op == "symbol" and node not in self._texts)
        if missing:
            raise MechanismError(f"The outputs need symbols that no argument holds: {', '.join(missing)}.")
        self._write_all(self._uses(outputs), _prefix([name, *arguments, *outputs]))

    def _write_all(self, uses: Counter[Node], prefix: str) -> None:
        for node in self.order:
            if node.op == "symbol":
                continue
            text = self._write(node)
            # A constant or a negated symbol is as short as the name of a variable.
            is_short = node.is_constant or (node.op == "neg" and node.args[0].op == "symbol")
            if not is_short and (uses[node] > 1 or len(text.text) > _LONGEST):
                self.names[node] = f"{prefix}{len(self.locals)}"
                self.locals.append((self.names[node], text.text))
                text = Text(self.names[node], ATOM)
            self._texts[node] = text

    def text(self, node: Node) -> Text:
        return self._texts[node]

    def _uses(self, outputs: Arrays) -> Counter[Node]:
        uses: Counter[Node] = Counter(node for nodes in outputs.values() for node in nodes.flat)
        for node in self.order:
            uses.update(node.args)
            if node.args:
                uses[node.args[0]] += self.language.repeats(node) - 1
        return uses

    def _write(self, node: Node) -> Text:
        language, op = self.language, node.op
        if op == "const":
            return constant(node.value, language)
        arguments = [self._texts[argument] for argument in node.args]
        if op in COMPARISONS:
            return operation(COMPARISONS[op], COMPARE, SUM, SUM, *arguments)
        match op:
            case "add" if node.args[1].is_constant and node.args[1].value < 0:
                return operation("-", SUM, SUM, PRODUCT, arguments[0], constant(-node.args[1].value, language))
            case "add":
                return operation("+", SUM, SUM, SUM, *arguments)
            case "sub":
                return operation("-", SUM, SUM, PRODUCT, *arguments)
            case "mul":
                return operation("*", PRODUCT, PRODUCT, SIGN, *arguments)
            case "div":
                return operation("/", PRODUCT, PRODUCT, SIGN, *arguments)
            case "neg":
                return negative(arguments[0])
            case "pow":
                return language.power(arguments[0], arguments[1], node.args[1])
            case "and" | "or":
                # Nested `and` and `or` get parentheses, since C compilers warn without them.
                binding = AND if op == "and" else OR
                return operation(language.words[op], binding, NOT, NOT, *arguments)
            case "not":
                return Text(f"{language.words[op]}{arguments[0].within(ATOM)}", NOT)
            case "select":
                return language.select(*arguments)
            case _:
                return call(language.functions[op], *arguments)


def _elements(language: Language, arguments: Arrays) -> dict[Node, Text]:
    """The text that reads each symbol from its argument."""
    return {
        node: Text(language.element(argument, position, nodes.shape), ATOM)
        for argument, nodes in arguments.items()
        for position, node in np.ndenumerate(nodes)
    }


def _prefix(taken: list[str]) -> str:
    """A prefix of local variables that, followed by a number, equals none of the names in use."""
    candidates = itertools.chain("tswz", (f"t{i}_" for i in itertools.count()))
    return next(c for c in candidates if not any(re.fullmatch(rf"{c}\d+", name) for name in taken))
