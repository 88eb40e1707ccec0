"""Functions of time, length and rate in ASMT files, such as `2.0d*pi*time`: parsed, checked, never executed."""

import ast
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from jaxmbd.arrays import Scalar
from jaxmbd.errors import MechanismError

_COMMENT = re.compile(r'"[^"]*"|<n>')  # and the mark of a new line
_DOUBLE = re.compile(r"(?<=[\d.])d\b")  # 2.0d is a number in double precision
_FUNCTIONS: dict[str, Callable[[Scalar | float], Scalar]] = {
    "abs": jnp.abs,
    "arccos": jnp.arccos,
    "arcsin": jnp.arcsin,
    "arctan": jnp.arctan,
    "cos": jnp.cos,
    "exp": jnp.exp,
    "ln": jnp.log,
    "sin": jnp.sin,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_OF_MARKERS = ("rIJ", "vrIJ")  # distance and its rate, written rIJ(self)
_LONGEST = 10_000  # characters
_DEEPEST = 200  # nodes within one another: fewer than recursion bears
_SHOWN = 200  # characters of a text in a message


class Expression(eqx.Module):
    """A function that a file gives as text: of the time alone, or of time, length [m] and rate [m/s].

    `unit` [m]: the length that 1 means in the text; `scale`: what a value of 1 means in SI units.

    **Raises:** `MechanismError` if the text has anything but numbers, `pi`, `time`, the four operations, powers, and
    the functions of this file.
    """

    text: str = eqx.field(static=True)
    unit: float = eqx.field(static=True, default=1.0)
    scale: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        _check(_tree(self.text), self.text)

    def __call__(self, t: Scalar, length: Scalar | float = 0.0, rate: Scalar | float = 0.0) -> Scalar:
        values = {"time": t, "pi": jnp.pi, "rIJ": length / self.unit, "vrIJ": rate / self.unit}
        return self.scale * jnp.asarray(_value(_tree(self.text), values), t.dtype)


@lru_cache
def _tree(text: str) -> ast.expr:
    """The syntax tree; the language of the files is read as Python's, which has the same operators but for powers."""
    if len(text) > _LONGEST:
        raise MechanismError(f"a function has {len(text)} characters; at most {_LONGEST} are read.")
    try:
        tree = ast.parse(_DOUBLE.sub("", _COMMENT.sub(" ", text)).replace("^", "**").strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise MechanismError(f"{_short(text)} is no function.") from None
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise MechanismError(f"{_short(text)} nests deeper than {_DEEPEST} operations (a sum of n terms nests n deep).")
    return tree


def _short(text: str) -> str:
    """The text, or its beginning."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _check(node: ast.expr, text: str) -> None:
    """Raise unless `_value` knows every node of a tree."""
    match node:
        case ast.Constant(value=int() | float() as value) if abs(value) <= sys.float_info.max:
            return
        case ast.Name(id="time" | "pi"):
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _check(operand, text)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            _check(left, text)
            return _check(right, text)
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id="self")], keywords=[]) if name in _OF_MARKERS:
            return
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _check(argument, text)
    known = ", ".join([*_FUNCTIONS, *(f"{name}(self)" for name in _OF_MARKERS)])
    part = ast.unparse(node)
    raise MechanismError(
        f"{_short(part)} in {_short(text)} is unknown; known are numbers (finite ones), pi, time, + - * / ^ and "
        f"{known}."
    )


def _value(node: ast.expr, values: dict[str, Scalar]) -> Any:
    match node:
        case ast.Constant(value=value):
            return float(value)  # pyright: ignore[reportArgumentType]  # `_check` lets only numbers pass
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, values)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(op=op, left=left, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return values[name] if name in _OF_MARKERS else _FUNCTIONS[name](_value(argument, values))
    raise AssertionError(ast.unparse(node))  # `_check` has found everything else
