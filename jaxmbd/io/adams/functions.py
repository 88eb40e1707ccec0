"""Function expressions of Adams, such as `30D*SIN(2*PI*TIME)` or `-K*(DM(1,2)-L)`: parsed, checked, never executed."""

import ast
import math
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.errors import MechanismError

_LONGEST, _DEEPEST, _SHOWN = 10_000, 200, 200  # characters; nodes within one another; characters in a message
_DEGREES = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[dD]\b")
_WHOLE = re.compile(r"(?<![\w.])0+(?=\d)")  # leading zeros of markers' numbers
_NAMES = {"pi": math.pi, "dtor": math.pi / 180, "rtod": 180 / math.pi}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


def _step(x: Any, x0: Any, h0: Any, x1: Any, h1: Any) -> Any:
    """A cubic from h0 at x0 to h1 at x1."""
    s = jnp.clip((x - x0) / (x1 - x0), 0.0, 1.0)
    return h0 + (h1 - h0) * s * s * (3.0 - 2.0 * s)


def _step5(x: Any, x0: Any, h0: Any, x1: Any, h1: Any) -> Any:
    """A polynomial of fifth degree from h0 at x0 to h1 at x1."""
    s = jnp.clip((x - x0) / (x1 - x0), 0.0, 1.0)
    return h0 + (h1 - h0) * s**3 * (10.0 + s * (6.0 * s - 15.0))


def _haversine(x: Any, x0: Any, h0: Any, x1: Any, h1: Any) -> Any:
    s = jnp.clip((x - x0) / (x1 - x0), 0.0, 1.0)
    return 0.5 * (h0 + h1) - 0.5 * (h1 - h0) * jnp.cos(jnp.pi * s)


def _harmonic(x: Any, x0: Any, a: Any, w: Any, phase: Any = 0.0, mean: Any = 0.0) -> Any:
    """`mean + a sin(w (x − x0) − phase)`."""
    return mean + a * jnp.sin(w * (x - x0) - phase)


def _polynomial(x: Any, x0: Any, *coefficients: Any) -> Any:
    value: Any = 0.0
    for a in reversed(coefficients):
        value = value * (x - x0) + a
    return value


# Functions by their names, with the least and the largest number of arguments.
_FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    **{
        name: (function, 1, 1)
        for name, function in {
            "abs": jnp.abs, "acos": jnp.arccos, "asin": jnp.arcsin, "atan": jnp.arctan, "cos": jnp.cos,
            "cosh": jnp.cosh, "exp": jnp.exp, "log": jnp.log, "log10": jnp.log10, "sin": jnp.sin, "sinh": jnp.sinh,
            "sqrt": jnp.sqrt, "tan": jnp.tan, "tanh": jnp.tanh,
        }.items()
    },
    "atan2": (jnp.arctan2, 2, 2),
    "max": (jnp.maximum, 2, 2),
    "min": (jnp.minimum, 2, 2),
    "step": (_step, 5, 5),
    "step5": (_step5, 5, 5),
    "havsin": (_haversine, 5, 5),
    "shf": (_harmonic, 4, 6),
    "poly": (_polynomial, 3, 33),
}  # fmt: skip
# Of two markers: the variable that it is, and its sign if the markers change places.
_OF_MARKERS = {"dm": ("x", 1), "vr": ("rate", 1), "az": ("x", -1), "wz": ("rate", -1)}
LINEAR, ANGULAR = ("dm", "vr"), ("az", "wz")


class Expression(eqx.Module):
    """A function that a file gives as text, of time [s] and of a length [m] or an angle [rad] and its rate.

    `of`: the functions of markers that the text may have, `LINEAR`, `ANGULAR` or none, and `i`, `j` their markers;
    `time` [s] and `unit` [m], or 1, are what 1 means in the text, `scale` what a value of 1 means in SI units. The
    argument is `x = sign c + offset` of a coordinate c.

    **Raises:** `MechanismError` if the text has anything but numbers, constants, the four operations, powers, and the
    functions of this file.
    """

    text: str = eqx.field(static=True)
    of: tuple[str, ...] = eqx.field(static=True, default=())
    i: int = eqx.field(static=True, default=0)
    j: int = eqx.field(static=True, default=0)
    time: float = eqx.field(static=True, default=1.0)
    unit: float = eqx.field(static=True, default=1.0)
    scale: float = eqx.field(static=True, default=1.0)
    sign: int = eqx.field(static=True, default=1)
    offset: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        _check(self, _tree(self.text))

    def __call__(self, t: Scalar, c: Scalar | float = 0.0, rate: Scalar | float = 0.0, _: object = None) -> Scalar:
        x = (self.sign * c + self.offset) / self.unit
        values = {"time": t / self.time, "x": x, "rate": self.sign * rate * self.time / self.unit}
        return self.scale * jnp.asarray(_value(self, _tree(self.text), values), t.dtype)

    @property
    def constant(self) -> float | None:
        """The value in SI units of a text that depends on nothing; None for others."""
        names = {node.id for node in ast.walk(_tree(self.text)) if isinstance(node, ast.Name)}
        if names & {"time", *_OF_MARKERS}:
            return None
        return float(self(jnp.zeros(())))


@lru_cache
def _tree(text: str) -> ast.expr:
    """The syntax tree; the language is read as Python's, which has the same operators."""
    if len(text) > _LONGEST:
        raise MechanismError(f"a function has {len(text)} characters; at most {_LONGEST} are read.")
    own = _DEGREES.sub(r"(\1*dtor)", _WHOLE.sub("", " ".join(text.split()).lower()))
    try:
        tree = ast.parse(own.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise MechanismError(f"{_short(text)} is no function that is understood.") from None
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise MechanismError(f"{_short(text)} nests deeper than {_DEEPEST} operations.")
    return tree


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _check(own: Expression, node: ast.expr) -> None:
    """Raise unless `_value` knows every node of a tree."""
    match node:
        case ast.Constant(value=int() | float() as value) if abs(value) <= sys.float_info.max:
            return
        case ast.Name(id=name) if name in ("time", *_NAMES):
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _check(own, operand)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            _check(own, left)
            return _check(own, right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in own.of and _sign(own, args):
            return
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if _FUNCTIONS[name][1] <= len(args) <= _FUNCTIONS[name][2]:
                for argument in args:
                    _check(own, argument)
                return
    markers = ", ".join(f"{name.upper()}({own.i},{own.j})" for name in own.of)
    raise MechanismError(
        f"{_short(ast.unparse(node).upper())} in {_short(own.text)} has no counterpart; known are numbers, TIME, PI, "
        f"DTOR, RTOD, + - * / **, {', '.join(map(str.upper, _FUNCTIONS))}" + (f" and {markers}." if markers else ".")
    )


def _sign(own: Expression, args: list[ast.expr]) -> int:
    """1 for the markers I, J, −1 for J, I, and 0 for others; a third marker gives axes, which are parallel."""
    numbers = [node.value for node in args if isinstance(node, ast.Constant) and isinstance(node.value, int)]
    if len(numbers) != len(args) or not 2 <= len(args) <= 4 or not {*numbers[2:]} <= {own.i, own.j}:
        return 0
    return {(own.i, own.j): 1, (own.j, own.i): -1}.get((numbers[0], numbers[1]), 0)


def _value(own: Expression, node: ast.expr, values: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return float(value)  # pyright: ignore[reportArgumentType]  # `_check` lets only numbers pass
        case ast.Name(id=name):
            return values["time"] if name == "time" else _NAMES[name]
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(own, operand, values)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(op=op, left=left, right=right):
            return _OPERATORS[type(op)](_value(own, left, values), _value(own, right, values))
        case ast.Call(func=ast.Name(id=name), args=args) if name in own.of:
            variable, when_swapped = _OF_MARKERS[name]
            return values[variable] * (when_swapped if _sign(own, args) < 0 else 1)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name][0](*(_value(own, argument, values) for argument in args))
    raise AssertionError(ast.unparse(node))  # `_check` has found everything else
