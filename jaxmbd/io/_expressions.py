"""Functions that files give as text: their arithmetic is parsed, checked and evaluated here, and never executed."""

import ast
import sys
from collections.abc import Callable, Sequence
from typing import Any

from jaxmbd.errors import MechanismError

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_LONGEST = 10_000  # characters
_DEEPEST = 200  # nodes within one another: fewer than recursion bears
_SHOWN = 200  # characters of a text in a message


def parsed(text: str, as_python: Callable[[str], str]) -> ast.expr:
    """The syntax tree of a text; languages of files have Python's operators, once `as_python` has written it so."""
    if len(text) > _LONGEST:
        raise MechanismError(f"a function has {len(text)} characters; at most {_LONGEST} are read.")
    try:
        tree = ast.parse(as_python(text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise MechanismError(f"{short(text)} is no function that is understood.") from None
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise MechanismError(f"{short(text)} nests deeper than {_DEEPEST} operations (a sum of n terms nests n deep).")
    return tree


def short(text: str) -> str:
    """The text, or its beginning."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def unknown(node: ast.expr, known: Callable[[ast.expr], Sequence[ast.expr] | None]) -> ast.expr | None:
    """The first node that is neither arithmetic nor known, None if there is none. `known`: the arguments of a name or a
    call, None if it is unknown."""
    match node:
        case ast.Constant(value=int() | float() as value) if abs(value) <= sys.float_info.max:
            parts: Sequence[ast.expr] | None = ()
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            parts = (operand,)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            parts = (left, right)
        case _:
            parts = known(node)
    if parts is None:
        return node
    return next((found for part in parts if (found := unknown(part, known)) is not None), None)


def value_of(node: ast.expr, other: Callable[[ast.expr], Any]) -> Any:
    """The value of a node of which nothing is `unknown`; `other`: that of a name or a call."""
    match node:
        case ast.Constant(value=value):
            return float(value)  # pyright: ignore[reportArgumentType]  # `unknown` lets only numbers pass
        case ast.UnaryOp(op=op, operand=operand):
            value = value_of(operand, other)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(op=op, left=left, right=right):
            return _OPERATORS[type(op)](value_of(left, other), value_of(right, other))
    return other(node)
