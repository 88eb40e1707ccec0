"""Function expressions of Adams, such as `30D*SIN(2*PI*TIME)` or `-K*(DM(1,2)-L)`: parsed, checked, never executed."""

import ast
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.errors import MechanismError
from jaxmbd.io._expressions import parsed, short, unknown, value_of

_DEGREES = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[dD]\b")
_WHOLE = re.compile(r"(?<![\w.])0+(?=\d)")  # leading zeros of markers' numbers
_NAMES = {"pi": math.pi, "dtor": math.pi / 180, "rtod": 180 / math.pi}


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
    """The syntax tree; the language has Python's operators."""
    return parsed(text, lambda x: _DEGREES.sub(r"(\1*dtor)", _WHOLE.sub("", " ".join(x.split()).lower())))


def _check(own: Expression, tree: ast.expr) -> None:
    """Raise unless `_value` knows every node of a tree."""
    part = unknown(tree, lambda node: _arguments(own, node))
    if part is not None:
        markers = ", ".join(f"{name.upper()}({own.i},{own.j})" for name in own.of)
        raise MechanismError(
            f"{short(ast.unparse(part).upper())} in {short(own.text)} has no counterpart; known are numbers, TIME, PI, "
            f"DTOR, RTOD, + - * / **, {', '.join(map(str.upper, _FUNCTIONS))}"
            + (f" and {markers}." if markers else ".")
        )


def _arguments(own: Expression, node: ast.expr) -> Sequence[ast.expr] | None:
    match node:
        case ast.Name(id=name) if name in ("time", *_NAMES):
            return ()
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in own.of and _sign(own, args):
            return ()
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            _, least, most = _FUNCTIONS[name]
            return args if least <= len(args) <= most else None
    return None


def _sign(own: Expression, args: list[ast.expr]) -> int:
    """1 for the markers I, J, −1 for J, I, and 0 for others; a third marker gives axes, which are parallel."""
    numbers = [node.value for node in args if isinstance(node, ast.Constant) and isinstance(node.value, int)]
    if len(numbers) != len(args) or not 2 <= len(args) <= 4 or not {*numbers[2:]} <= {own.i, own.j}:
        return 0
    return {(own.i, own.j): 1, (own.j, own.i): -1}.get((numbers[0], numbers[1]), 0)


def _value(own: Expression, tree: ast.expr, values: dict[str, Any]) -> Any:
    def other(node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                return values["time"] if name == "time" else _NAMES[name]
            case ast.Call(func=ast.Name(id=name), args=args) if name in own.of:
                variable, when_swapped = _OF_MARKERS[name]
                return values[variable] * (when_swapped if _sign(own, args) < 0 else 1)
            case ast.Call(func=ast.Name(id=name), args=args):
                return _FUNCTIONS[name][0](*(value_of(argument, other) for argument in args))
        raise AssertionError(ast.unparse(node))  # `_check` has found everything else

    return value_of(tree, other)
