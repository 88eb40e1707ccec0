"""The opcodes of programs, numbered as in `vm.c`, and NumPy functions that evaluate them at constants."""

from collections.abc import Callable

import numpy as np
import scipy


def _away_from_zero(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _as_float(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A comparison or logical function with the results 0.0 and 1.0."""
    return lambda *x: function(*x).astype(float)


# In the order of `vm.c`. Booleans are the numbers 0 and 1.
EVALUATE: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fma": lambda a, b, c: a * b + c,
    "fms": lambda a, b, c: a * b - c,
    "fnma": lambda a, b, c: c - a * b,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "select": lambda c, a, b: np.where(c != 0, a, b),
    "eq": _as_float(np.equal),
    "ne": _as_float(np.not_equal),
    "lt": _as_float(np.less),
    "le": _as_float(np.less_equal),
    "and": _as_float(np.logical_and),
    "or": _as_float(np.logical_or),
    "not": _as_float(np.logical_not),
    "is_finite": _as_float(np.isfinite),
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "round_away": _away_from_zero,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "cbrt": np.cbrt,
    "erf": lambda x: scipy.special.erf(x),
    "erfc": lambda x: scipy.special.erfc(x),
    "pow": np.power,
    "rem": np.fmod,
}
GATHER = "gather"  # the element of a table at an index
UNIFORM = {"mul": "umul", "fma": "ufma", "fms": "ufms", "fnma": "ufnma"}  # the first factor is uniform over lanes
NUMBER = {name: number for number, name in enumerate((*EVALUATE, GATHER, *UNIFORM.values()))}
NAMES = tuple(NUMBER)
INPUT = -1  # the opcode of leaves: inputs, constants and tables
COPY = -2  # that of a value that is another one, until programs are scheduled
ARITY = dict.fromkeys(NAMES, 1)  # the number of operands
ARITY |= dict.fromkeys(("add", "sub", "mul", "umul", "div", "max", "min", "atan2", "pow", "rem"), 2)
ARITY |= dict.fromkeys(("eq", "ne", "lt", "le", "and", "or"), 2)
ARITY |= dict.fromkeys(("fma", "fms", "fnma", "ufma", "ufms", "ufnma", "select"), 3)
ARITY[GATHER] = 2  # the index, and the number of the table
