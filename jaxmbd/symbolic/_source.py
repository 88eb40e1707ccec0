"""Code generation: an expression graph as the source text of a function for NumPy or in C.

An expression that is used more than once is computed once, in a local variable; all others are written where they are
used. Long expressions are split into local variables, too, since compilers limit the nesting of parentheses.
"""

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from jaxmbd.compile.graph.node import BOOLEAN, Node, in_order
from jaxmbd.errors import MechanismError
from jaxmbd.symbolic._languages import (
    AND,
    ATOM,
    COMPARE,
    COMPARISONS,
    NOT,
    OR,
    PRODUCT,
    PYTHON,
    SIGN,
    SUM,
    C,
    Language,
    Text,
    call,
    constant,
    negative,
    operation,
)

Arrays: TypeAlias = Mapping[str, np.ndarray]

_LONGEST = 100  # the largest number of characters of an expression without a local variable


def to_numpy(name: str, arguments: Arrays, outputs: Arrays, doc: str = "") -> str:
    """Python source of a function of numbers and arrays that depends on NumPy only.

    **Arguments:**

    - `name`: the name of the function.
    - `arguments`: the symbols of each argument, as an array of nodes of the argument's shape.
    - `outputs`: the arrays of nodes to compute, by name.
    - `doc`: the docstring.

    **Returns:** the text; the function returns an array, or a dictionary of arrays if there are several outputs.
    """
    body = _Body(PYTHON, name, arguments, outputs)
    quoted = doc.replace("\\", "\\\\").replace('"""', "'''")
    lines = [f"def {name}({', '.join(arguments)}):", *([f'    """{quoted}"""'] if doc else [])]
    lines += [f"    {argument} = {_converted(argument, nodes)}" for argument, nodes in arguments.items()]
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
    arguments.

    **Arguments:** as for `to_numpy`; `doc` becomes a comment.
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


def _converted(name: str, nodes: np.ndarray) -> str:
    # NumPy's numbers do not raise on division by zero, as Python's do.
    return f"np.asarray({name}, dtype=float)" if nodes.ndim else f"np.float64({name})"


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
