"""Calls of users' functions, with error messages that name the part of the function; and what these close over.

A part is checked once, on shapes only, when its mechanism is built (`model/mechanism/validation.py`): parts of one type
are stacked without their names afterwards, so that later errors could not name the part.
"""

import inspect
import traceback
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import content_of, is_concrete
from jaxmbd.engine.calls.user_calls import StaticFunction, plain
from jaxmbd.errors import MechanismError
from jaxmbd.upstream.jax_internals import partial_eval

_CONCRETIZATION_ERRORS = (jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError)
_LONGEST = 300  # characters of an error's text; of a longer one only the first line is said
# Raised by a running program rather than by the function's own code: re-raised unchanged.
RUN_TIME_ERRORS = (eqx.EquinoxRuntimeError, jax.errors.JaxRuntimeError)


Tree = TypeVar("Tree")


class LiftedFunction(eqx.Module):
    """A function that closes over traced values, with these as leaves, so that derivatives pass through what holds it.

    `of`: the function with nothing in place of what is traced; `cells`: that by the number of the cell; `defaults`: of
    its arguments. Functions in these are lifted themselves.
    """

    of: Any = eqx.field(static=True)  # a `FunctionType`, which type checkers would take for a method
    cells: dict[int, Any]
    defaults: tuple[Any, ...] | None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _with_contents(self.of, self.cells, self.defaults)(*arguments, **named)

    @property
    def __wrapped__(self) -> FunctionType:  # whose signature and name are said in errors
        return self.of


def lifted(tree: Tree) -> Tree:
    """A tree in which functions are no leaves: they are nodes, whose leaves are the traced values that they close over,
    if there are any."""
    return jax.tree.map(_lifted, tree) if any(map(callable, jax.tree.leaves(tree))) else tree


def _lifted(leaf: Any) -> Any:
    if not callable(leaf) or isinstance(leaf, type):  # a class in place of what it makes is found by checks
        return leaf
    if not isinstance(leaf, FunctionType) or is_concrete(leaf):
        return StaticFunction(leaf)
    # The cell of the function's own name stays as it is.
    found = {k: content_of(cell) for k, cell in enumerate(leaf.__closure__ or ())}
    cells = {k: lifted(x) for k, x in found.items() if x is not leaf and not is_concrete(x)}
    defaults = None if leaf.__defaults__ is None else lifted(leaf.__defaults__)
    empty = None if defaults is None else (None,) * len(defaults)
    return LiftedFunction(_with_contents(leaf, dict.fromkeys(cells), empty), cells, defaults)


def _with_contents(function: FunctionType, contents: dict[int, Any], defaults: tuple[Any, ...] | None) -> FunctionType:
    """The function with other contents of some of the cells that it closes over, and other defaults."""
    cells = [CellType(contents[k]) if k in contents else cell for k, cell in enumerate(function.__closure__ or ())]
    made = FunctionType(function.__code__, function.__globals__, function.__name__, defaults, tuple(cells))
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def call_user(part: str, field: str, function: Callable[..., Any], *arguments: Any, takes: str) -> Any:
    """`function(*arguments)`; errors raised in it become a `MechanismError` that names the part.

    **Arguments:** `part`, such as "Force 'push'"; `field`, the argument of the part that holds the function; `takes`,
    the names of the function's arguments as documented, "t, frame, rate".
    """
    try:
        return function(*arguments)
    except RUN_TIME_ERRORS:
        raise
    except Exception as error:
        raise MechanismError(f"{part}: {_reason(field, function, arguments, takes, error)}") from error


def user_array(
    part: str, field: str, value_or_function: Any, *arguments: Any, takes: str, shape: tuple[int, ...] | None = None
) -> Array:
    """The value of a user's function, or a constant in its place, as a real array of `shape` (None for any shape)."""
    value = (
        call_user(part, field, value_or_function, *arguments, takes=takes)
        if callable(value_or_function)
        else value_or_function
    )
    needed = "an array of numbers" if shape is None else "a number" if shape == () else f"numbers of shape {shape}"
    if value is None:
        raise MechanismError(f"{part}: {_function_name(field)} returns None, not {needed}. Is its return missing?")
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise MechanismError(f"{part}: {_function_name(field)} must return {needed}, got {_shown(value)}.") from error
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise MechanismError(f"{part}: {_function_name(field)} must return real numbers, got {array.dtype}.")
    if shape is not None and array.shape != shape:
        need = "be a number" if shape == () else f"have shape {shape}"
        raise MechanismError(f"{part}: what {_function_name(field)} returns must {need}, got shape {array.shape}.")
    return array


def check_affine(part: str, function: Callable[..., Array], given: Any, x: Any, names: tuple[str, str]) -> None:
    """Raise unless `function(*given, x)` is affine in `x`; traced on shapes only.

    It is affine if its traced derivative with respect to `x` does not use `x`. (A second derivative that is zero at a
    point would not suffice: that of `abs(x)` is.) `names`: those of the arguments `given` and of `x`, for the message.
    """

    def slope(given: Any, x: Any, change: Any) -> Array:
        return jax.jvp(lambda x: function(*given, x), (x,), (change,))[1]

    jaxpr = jax.make_jaxpr(slope)(given, x, x).jaxpr
    _, is_used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    count = len(jax.tree.leaves(x))
    others, its = names
    if not any(is_used[-count:]):
        raise MechanismError(f"{part}: what the function returns does not depend on {its}.")
    if any(is_used[-2 * count : -count]):
        raise MechanismError(
            f"{part}: the function must be affine in {its}, a({others}) · {its} + b({others}), and its derivative by "
            f"{its} depends on {its}. It must hold no products, squares, norms or other functions of {its}, and no "
            "conditions on them."
        )


def _reason(field: str, function: Any, arguments: tuple[Any, ...], takes: str, error: Exception) -> str:
    """The cause of an error in a call, and the remedy."""
    the, function = _function_name(field), plain(function)
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return (
            f"{the} decides by a traced value (if, while, and, or, not, min, max){_line(function, error)}. Write "
            "jnp.where(condition, a, b), jnp.minimum or jnp.maximum; JAX traces it with values that are not known yet."
        )
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            f"{the} passes a traced value to NumPy{_line(function, error)}. Take the functions of jax.numpy instead: "
            "jnp.sin for np.sin."
        )
    if isinstance(error, _CONCRETIZATION_ERRORS) or (isinstance(error, TypeError) and "Python scalars" in str(error)):
        return (
            f"{the} converts a traced value to a Python number (math.sin, float, int, range){_line(function, error)}. "
            "Take the functions of jax.numpy instead: jnp.sin for math.sin."
        )
    mismatch = _mismatch(function, arguments) if isinstance(error, TypeError) else ""
    if mismatch:
        return f"{field} is called as {field}({takes}), and {_signature(function)} cannot be: {mismatch}."
    if isinstance(error, MechanismError):
        return f"{the} fails: {error}"
    said = str(error) if len(str(error)) <= _LONGEST else str(error).partition("\n")[0]  # JAX goes on for pages
    text = f"{the} raises {type(error).__name__}{_line(function, error)}: {said}"
    if isinstance(error, TypeError | AttributeError | IndexError):  # perhaps another order of arguments
        return f"{text.removesuffix('.')}. It is called as {field}({takes})."
    return text


def _function_name(field: str) -> str:
    return "the function" if field == "function" else f"the function {field}"


def _mismatch(function: Any, arguments: tuple[Any, ...]) -> str:
    """Why a function cannot be called with these arguments; empty if it can, or if its signature is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return ""


def _signature(function: Any) -> str:
    """The signature of a function, `push(t, x)`."""
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"


def _line(function: Any, error: Exception) -> str:
    """The line in the function's own file at which the error was raised."""
    body = function if inspect.isroutine(function) else type(function).__call__
    code = getattr(inspect.unwrap(body), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code is not None and frame.filename == code.co_filename]
    return f" in line {lines[-1]}" if lines else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
