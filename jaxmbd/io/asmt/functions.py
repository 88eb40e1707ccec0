"""Functions of time, length and rate in ASMT files, such as `2.0d*pi*time`: parsed, checked, never executed."""

import ast
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from jaxmbd.arrays import Scalar
from jaxmbd.errors import MechanismError
from jaxmbd.io._expressions import parsed, short, unknown, value_of

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
_OF_MARKERS = ("rIJ", "vrIJ")  # distance and its rate, written rIJ(self)


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
    """The syntax tree; the language has Python's operators but for powers."""
    return parsed(text, lambda x: _DOUBLE.sub("", _COMMENT.sub(" ", x)).replace("^", "**"))


def _check(tree: ast.expr, text: str) -> None:
    """Raise unless `_value` knows every node of a tree."""
    part = unknown(tree, _arguments)
    if part is not None:
        known = ", ".join([*_FUNCTIONS, *(f"{name}(self)" for name in _OF_MARKERS)])
        raise MechanismError(
            f"{short(ast.unparse(part))} in {short(text)} is unknown; known are numbers (finite ones), pi, time, "
            f"+ - * / ^ and {known}."
        )


def _arguments(node: ast.expr) -> Sequence[ast.expr] | None:
    match node:
        case ast.Name(id="time" | "pi"):
            return ()
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id="self")], keywords=[]) if name in _OF_MARKERS:
            return ()
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return (argument,)
    return None


def _value(tree: ast.expr, values: dict[str, Scalar]) -> Any:
    def other(node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                return values[name]
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return values[name] if name in _OF_MARKERS else _FUNCTIONS[name](value_of(argument, other))
        raise AssertionError(ast.unparse(node))  # `_check` has found everything else

    return value_of(tree, other)
