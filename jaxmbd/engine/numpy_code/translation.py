"""The translation of traced functions into NumPy code; what it does not express is left to XLA."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import ArrayLike

from jaxmbd.arrays import is_concrete
from jaxmbd.engine.numpy_code.code import UNLIMITED, Budget, Instruction, NumpyCode
from jaxmbd.engine.numpy_code.functions import FUNCTIONS, OF_MATRICES
from jaxmbd.upstream.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    Var,
    aval_of,
    called,
    expansion,
    linear_solve_operands,
    replaces,
    scan_counts,
    types_of_operands,
)
from jaxmbd.upstream.primitives import CALLS, PRIMITIVES, SCATTERS, is_as_known


class UnsupportedError(Exception):
    """The function does something that NumPy code does not express."""


def numpy_code(jaxpr: ClosedJaxpr) -> NumpyCode:
    """Translate a closed jaxpr.

    Raises:
        UnsupportedError: If it contains what NumPy code does not express.
    """
    return Translator(()).code(jaxpr)


def evaluated(function: Callable[..., ArrayLike], *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of a function for arrays of NumPy, with nothing compiled, also while another function is traced.

    Raises:
        UnsupportedError: If it contains what NumPy code does not express.
    """
    code = numpy_code(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)))
    return code(arrays, Budget(UNLIMITED))


# From an equation and the places of its operands to those of its results.
Rule: TypeAlias = Callable[["Translator", JaxprEqn, list[int]], list[int]]

# Of primitives of the floors above, which put theirs here: NumPy code must not know what a program or a motion is.
CALL_RULES: dict[str, Rule] = {}


class Translator:
    """The translation of a jaxpr and those inlined in it.

    `within`: primitives that are being expanded; `is_branch`: the code runs only if a condition holds.
    """

    def __init__(self, within: tuple[str, ...], is_branch: bool = False) -> None:
        self._within, self._is_branch = within, is_branch
        self._constants, self._instructions, self._count, self._costs = [], [], 0, []

    def code(self, jaxpr: ClosedJaxpr) -> NumpyCode:
        """The code of a closed jaxpr: of what its results depend on."""
        arguments = [self._new() for _ in jaxpr.jaxpr.invars]
        results = self.inline(jaxpr, arguments)
        count, needed = len(self._constants), _needed(self._instructions, results)
        place = lambda k: count + k if k >= 0 else -1 - k  # noqa: E731  # constants have negative numbers until here
        kept = [self._instructions[k] for k in needed]
        instructions = [(name, a, [*map(place, x)], [*map(place, y)]) for name, a, x, y in kept]
        types, results = [_dtype(x) for x in jaxpr.out_avals], [*map(place, results)]
        total, cost = count + self._count, sum(self._costs[k] for k in needed)
        return NumpyCode(self._constants, len(arguments), total, cost, instructions, results, types)

    def constant(self, value: ArrayLike) -> int:
        """The number of a constant."""
        if not is_concrete(value):
            raise UnsupportedError("It closes over a tracer.")
        self._constants.append(np.asarray(value))
        return -len(self._constants)

    def emit(self, name: str, operands: Sequence[int], results: int = 1, /, **attributes: object) -> list[int]:
        """Append an instruction; return the numbers of its results."""
        places = [self._new() for _ in range(results)]
        self._instructions.append((name, attributes, list(operands), places))
        self._costs.append(1)
        return places

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def nested(self, jaxpr: ClosedJaxpr, is_branch: bool = False) -> NumpyCode:
        """The code of a jaxpr that an instruction runs; `is_branch`: only if a condition holds."""
        return Translator(self._within, self._is_branch or is_branch).code(jaxpr)

    def inline(self, jaxpr: ClosedJaxpr, operands: Sequence[int]) -> list[int]:
        """Translate a closed jaxpr in place."""
        inner, constants = jaxpr.jaxpr, jaxpr.consts
        places: dict[Var, int] = dict(zip(inner.invars, operands, strict=True))
        places |= {var: self.constant(x) for var, x in zip(inner.constvars, constants, strict=True)}

        def read(x: Var | Literal) -> int:
            return self.constant(np.asarray(x.val, _dtype(x.aval))) if isinstance(x, Literal) else places[x]

        for equation in inner.eqns:
            found = self._equation(equation, [read(x) for x in equation.invars])
            places |= dict(zip(equation.outvars, found, strict=True))
        return [read(x) for x in inner.outvars]

    def _equation(self, equation: JaxprEqn, operands: list[int]) -> list[int]:
        name, params = equation.primitive.name, equation.params
        # A key of random numbers is no array of NumPy, though it may be an argument that nothing reads (`run`).
        for var in (*equation.invars, *equation.outvars):
            _dtype(var.aval)
        # Loops and branches have the effects of what is in them, which is asked when their bodies are translated.
        if equation.effects and name not in ("while", "scan", "cond"):
            raise UnsupportedError(f"{name} has effects.")
        rule = CALL_RULES.get(name) or _RULES.get(name)
        if rule is not None:
            return rule(self, equation, operands)
        if name in FUNCTIONS and is_as_known(params):
            # Only those that rules read: others may be objects of JAX, which could not be stored.
            attributes = {key: _plain(params[key]) for key in PRIMITIVES[name]}
            found = self.emit(name, operands, len(equation.outvars), **attributes)
            if name in OF_MATRICES:
                self._costs[-1] += math.prod(aval_of(equation.invars[0]).shape[:-2])
            return found
        if "_prim" in params:
            return self.inline(expansion(params, types_of_operands(equation)), operands)
        if name in CALLS:
            return self.inline(_closed(called(name, params)), operands)
        return self.expand(equation, equation.primitive.impl, operands)

    def expand(self, equation: JaxprEqn, function: Callable[..., object], operands: list[int]) -> list[int]:
        """Trace a function that defines a primitive, and translate it in place."""
        name = equation.primitive.name
        if name in ("pure_callback", "ffi_call") and self._is_branch:  # both of an error
            return self.emit("stop", operands, len(equation.outvars))
        if name in self._within or "callback" in name or not _is_ours(equation.primitive):
            raise UnsupportedError(f"There is no rule for {name}.")
        jaxpr = jax.make_jaxpr(partial(function, **equation.params))(*types_of_operands(equation))
        self._within = (*self._within, name)
        try:
            return self.inline(jaxpr, operands)
        finally:
            self._within = self._within[:-1]


def _needed(instructions: Sequence[Instruction], results: Sequence[int]) -> list[int]:
    """The numbers of the instructions on which results depend."""
    places, needed = set(results), []
    for k in reversed(range(len(instructions))):
        _, _, operands, found = instructions[k]
        if places.intersection(found):
            places |= set(operands)
            needed.append(k)
    return needed[::-1]


def _is_ours(primitive: Primitive) -> bool:
    """True unless it is a primitive of JAX, whose implementation is to compile it."""
    implementation = primitive.impl
    name = getattr(getattr(implementation, "func", implementation), "__name__", "")
    return name not in ("apply_primitive", "_call_impl")


def _closed(jaxpr: ClosedJaxpr | Jaxpr) -> ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def _dtype(aval: object) -> str:
    dtype = getattr(aval, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biufc":
        raise UnsupportedError(f"{aval} is no array of NumPy.")
    return dtype.name


def _plain(value: object) -> Any:
    """An attribute as plain data."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, tuple | list):
        return [_plain(x) for x in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    raise UnsupportedError(f"{value!r} is no plain data.")


def _types(variables: Sequence[Var]) -> list[list[Any]]:
    return [[list(aval_of(x).shape), _dtype(x.aval)] for x in variables]


def _while_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    p = equation.params
    codes = {"condition": at.nested(p["cond_jaxpr"]), "body": at.nested(p["body_jaxpr"])}
    counts = [p["cond_nconsts"], p["body_nconsts"]]
    # In a batch, an instance that has ended keeps what another goes on to overwrite.
    is_batch = bool(aval_of(p["cond_jaxpr"].jaxpr.outvars[0]).shape)
    owned = [] if is_batch else _written_in_place(codes["body"], counts[1], len(equation.outvars))
    return at.emit("while", operands, len(equation.outvars), counts=counts, owned=owned, **codes)


def _written_in_place(body: NumpyCode, constants: int, count: int) -> list[int]:
    """Let scatters in the body of a loop write into the own arrays of its state, where nothing else reads these; return
    the numbers of these arrays among the `count` of the state, which follow `constants` arguments."""
    read = Counter(place for _, _, operands, _ in body.instructions for place in operands) + Counter(body.results)
    first, owned = len(body.constants) + constants, []
    for name, attributes, operands, found in body.instructions:
        k = operands[0] - first if operands else -1
        is_state = name in SCATTERS and 0 <= k < count and body.results[k] == found[0]
        if is_state and read[operands[0]] == read[found[0]] == 1:
            attributes["in_place"] = True
            owned.append(k)
    return owned


def _scan_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    p, counts = equation.params, list(scan_counts(equation.params))
    body, stacked = at.nested(_closed(p["jaxpr"])), equation.outvars[counts[1] :]
    rows = [[shape[1:], kind] for shape, kind in _types(stacked)]
    flags = {"length": p["length"], "reverse": bool(p["reverse"]), "owned": _written_in_place(body, *counts)}
    return at.emit("scan", operands, len(equation.outvars), body=body, counts=counts, rows=rows, **flags)


def _cond_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    branches = [at.nested(_closed(x), is_branch=True) for x in equation.params["branches"]]
    return at.emit("cond", operands, len(equation.outvars), branches=branches)


def _linear_solve_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    solve, constants, start = linear_solve_operands(equation.params)
    return at.inline(_closed(solve), [*operands[constants], *operands[start:]])


def _dot_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    contracted, batched = _plain(equation.params["dimension_numbers"])
    dtype = _dtype(equation.outvars[0].aval)
    return at.emit("dot_general", operands, contracted=contracted, batched=batched, dtype=dtype)


def _scatter_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    params, name = equation.params, equation.primitive.name
    if name == "scatter" and not replaces(params):
        raise UnsupportedError("A scatter of a function.")
    attributes = {key: _plain(params[key]) for key in ("dimension_numbers", "mode")}
    return at.emit(name, operands, **attributes, in_place=False)


def _platform_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    """The number of the branch that is for this platform."""
    groups = list(enumerate(equation.params["platforms"]))
    default = [k for k, platforms in groups if platforms is None]
    ours = [k for k, platforms in groups if platforms is not None and "cpu" in platforms]
    return [at.constant(np.int32((ours or default)[0]))]


def _empty_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    """Memory that is written before it is read, such as the rows of a scan."""
    aval = aval_of(equation.outvars[0])
    return [at.constant(np.zeros(aval.shape, _dtype(aval)))]


def _top_k_rule(at: Translator, equation: JaxprEqn, operands: list[int]) -> list[int]:
    if equation.params.get("axis", -1) not in (-1, aval_of(equation.invars[0]).ndim - 1):
        raise UnsupportedError("top_k along another axis.")
    kind = _dtype(equation.outvars[1].aval)
    return at.emit("top_k", operands, 2, k=equation.params["k"], index_dtype=kind)


_RULES: dict[str, Rule] = {
    "while": _while_rule, "scan": _scan_rule, "cond": _cond_rule, "custom_linear_solve": _linear_solve_rule,
    "dot_general": _dot_rule, "top_k": _top_k_rule,
    "platform_index": _platform_rule, "empty": _empty_rule, "empty2": _empty_rule,
    **dict.fromkeys(SCATTERS, _scatter_rule),
}  # fmt: skip
