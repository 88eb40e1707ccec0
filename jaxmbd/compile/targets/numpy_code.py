"""NumPy code of traced functions: a jaxpr as a list of instructions on NumPy arrays, which needs no compiler.

It serves for the first calls of an analysis, whose heavy parts are programs and motions of the virtual machine anyway.
An instruction is plain data: the name of a function, its attributes (numbers, texts, lists, other codes), and the
places of its operands and results among the values. What no instruction expresses is left to XLA.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxmbd.compile.jax_internals import Literal, expansion, linear_solve_operands, scan_counts
from jaxmbd.compile.targets.build_vm import call_program, call_vm
from jaxmbd.compile.targets.numpy_rules import FUNCTIONS, PARAMETERS
from jaxmbd.compile.targets.numpy_windows import SCATTERS

Instruction = tuple[str, dict[str, Any], list[int], list[int]]  # name, attributes, operands, results


class UnsupportedError(Exception):
    """The function does something that NumPy code does not express."""


class OutOfTimeError(Exception):
    """NumPy code has used its time budget."""


@dataclass
class NumpyCode:
    """Instructions on `count` values: first the constants, then the arguments; `types`: the dtypes of the results."""

    constants: list[np.ndarray]
    arguments: int
    count: int
    instructions: list[Instruction]
    results: list[int]
    types: list[str]

    def __post_init__(self) -> None:
        self._steps: list[Any] | None = None

    def __call__(self, arguments: Sequence[Any], deadline: float) -> list[Any]:
        """Run the instructions until `deadline`, of `time.perf_counter`.

        Raises:
            OutOfTimeError: If they take longer.
        """
        if self._steps is None:
            self._steps = [(_function(name, attributes), *at) for name, attributes, *at in self.instructions]
        values: list[Any] = [*self.constants, *arguments, *[None] * (self.count - len(self.constants) - self.arguments)]
        clock = time.perf_counter
        for (function, is_timed, is_single), operands, results in self._steps:
            if clock() > deadline:
                raise OutOfTimeError
            given = [values[k] for k in operands]
            found = function(*given, deadline=deadline) if is_timed else function(*given)
            if is_single:
                values[results[0]] = found
            else:
                for k, value in zip(results, found, strict=True):
                    values[k] = value
        return [values[k] for k in self.results]


def run(code: NumpyCode, arrays: Sequence[Any], seconds: float) -> list[jax.Array]:
    """Run a code on arrays of JAX or NumPy, for at most some seconds; the results are arrays of JAX."""
    with np.errstate(all="ignore"):
        results = code([np.asarray(x) for x in arrays], time.perf_counter() + seconds)
    return [jax.device_put(np.array(x, kind)) for x, kind in zip(results, code.types, strict=True)]


# --- control flow and calls -------------------------------------------------------------------------------


def _while(*operands: Any, condition: NumpyCode, body: NumpyCode, counts: list[int], deadline: float) -> list[Any]:
    first, second = counts[0], sum(counts)
    known, constants, state = operands[:first], operands[first:second], list(operands[second:])
    while condition([*known, *state], deadline)[0]:
        state = body([*constants, *state], deadline)
    return state


def _scan(*operands: Any, body: NumpyCode, counts: list[int], length: int, reverse: bool, rows: Any, deadline: float):
    constants, state = operands[: counts[0]], list(operands[counts[0] : sum(counts)])
    arrays = operands[sum(counts) :]
    stacked = [np.empty((length, *shape), kind) for shape, kind in rows]
    for k in reversed(range(length)) if reverse else range(length):
        results = body([*constants, *state, *(x[k] for x in arrays)], deadline)
        state = results[: counts[1]]
        for rows_of, value in zip(stacked, results[counts[1] :], strict=True):
            rows_of[k] = value
    return [*state, *stacked]


def _cond(index: Any, *operands: Any, branches: list[NumpyCode], deadline: float) -> list[Any]:
    return branches[max(0, min(int(index), len(branches) - 1))](operands, deadline)


def _program(*operands: Any, key: int, batch: int, results: Any, dtype: str) -> list[Any]:
    return call_program(key, batch, dtype, operands, [jax.ShapeDtypeStruct(*each) for each in results])


def _motion(*operands: Any, name: str, results: Any, dtype: str, shapes: Any, order: Any) -> list[Any]:
    found = call_vm(name, dtype, operands, [jax.ShapeDtypeStruct(*each) for each in results])
    found = [x.reshape(shape) for x, shape in zip(found, shapes, strict=True)]
    return found if order is None else [found[k] for k in order]


_TIMED: dict[str, Callable[..., Any]] = {"while": _while, "scan": _scan, "cond": _cond}
_SEVERAL = {"unstack", "split", "sort", "top_k", "lu", "geqrf", "qr", "svd", "eigh", "optimization_barrier", *_TIMED}
_CALLS: dict[str, Callable[..., Any]] = {"program": _program, "motion": _motion}


def _function(name: str, attributes: dict[str, Any]) -> tuple[Callable[..., Any], bool, bool]:
    """The function of an instruction; whether it takes a deadline, and whether it has a single result."""
    if name in _TIMED:
        return partial(_TIMED[name], **attributes), True, False
    if name in _CALLS:
        return partial(_CALLS[name], **attributes), False, False
    function = FUNCTIONS[name]
    return partial(function, **attributes) if attributes else function, False, name not in _SEVERAL


# --- translation ------------------------------------------------------------------------------------------


def numpy_code(jaxpr: Any) -> NumpyCode:
    """Translate a closed jaxpr.

    Raises:
        UnsupportedError: If it contains what NumPy code does not express.
    """
    return Translator(()).code(jaxpr)


CALL_RULES: dict[str, Callable[..., Any]] = {}  # rules for primitives of layers above: (translator, equation, operands)


class Translator:
    """The translation of a jaxpr and those inlined in it; `within`: primitives that are being expanded."""

    def __init__(self, within: tuple[str, ...]) -> None:
        self._within, self._constants, self._instructions, self._count = within, [], [], 0

    def code(self, jaxpr: Any) -> NumpyCode:
        """The code of a closed jaxpr."""
        arguments = [self._new() for _ in jaxpr.jaxpr.invars]
        results = self.inline(jaxpr, arguments)
        count = len(self._constants)
        place = lambda k: count + k if k >= 0 else -1 - k  # noqa: E731  # constants have negative numbers until here
        instructions = [(name, a, [*map(place, x)], [*map(place, y)]) for name, a, x, y in self._instructions]
        types = [_dtype(x) for x in jaxpr.out_avals]
        return NumpyCode(
            self._constants, len(arguments), count + self._count, instructions, [*map(place, results)], types
        )

    def constant(self, value: Any) -> int:
        """The number of a constant."""
        self._constants.append(np.asarray(value))
        return -len(self._constants)

    def emit(self, name: str, operands: Sequence[int], results: int = 1, /, **attributes: Any) -> list[int]:
        """Append an instruction; return the numbers of its results."""
        places = [self._new() for _ in range(results)]
        self._instructions.append((name, attributes, list(operands), places))
        return places

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def nested(self, jaxpr: Any) -> NumpyCode:
        """The code of a jaxpr that an instruction runs."""
        return Translator(self._within).code(jaxpr)

    def inline(self, jaxpr: Any, operands: Sequence[int]) -> list[int]:
        """Translate a closed jaxpr in place."""
        inner, constants = jaxpr.jaxpr, jaxpr.consts
        places: dict[Any, int] = dict(zip(inner.invars, operands, strict=True))
        places |= {var: self.constant(x) for var, x in zip(inner.constvars, constants, strict=True)}
        read = lambda x: self.constant(np.asarray(x.val, x.aval.dtype)) if isinstance(x, Literal) else places[x]  # noqa: E731
        for equation in inner.eqns:
            found = self._equation(equation, [read(x) for x in equation.invars])
            places |= dict(zip(equation.outvars, found, strict=True))
        return [read(x) for x in inner.outvars]

    def _equation(self, equation: Any, operands: list[int]) -> list[int]:
        name, params = equation.primitive.name, equation.params
        for var in (*equation.invars, *equation.outvars):
            _dtype(var.aval)
        if equation.effects and name not in ("while", "scan", "cond"):
            raise UnsupportedError(f"{name} has effects.")
        rule = CALL_RULES.get(name) or _RULES.get(name)
        if rule is not None:
            return rule(self, equation, operands)
        if name in PARAMETERS:
            attributes = {key: _plain(params[key]) for key in PARAMETERS[name]}
            return self.emit(name, operands, len(equation.outvars), **attributes)
        if "_prim" in params:
            types = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
            return self.inline(expansion(params, types), operands)
        for key in ("call_jaxpr", "fun_jaxpr", "jaxpr"):
            if key in params:
                return self.inline(_closed(params[key]), operands)
        return self.expand(equation, equation.primitive.impl, operands)

    def expand(self, equation: Any, function: Callable[..., Any], operands: list[int]) -> list[int]:
        """Trace a function that defines a primitive, and translate it in place."""
        name = equation.primitive.name
        if name in self._within or "callback" in name or not _is_ours(equation.primitive):
            raise UnsupportedError(f"There is no rule for {name}.")
        types = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
        jaxpr = jax.make_jaxpr(partial(function, **equation.params))(*types)
        self._within = (*self._within, name)
        try:
            return self.inline(jaxpr, operands)
        finally:
            self._within = self._within[:-1]


def _is_ours(primitive: Any) -> bool:
    """True unless it is a primitive of JAX, whose implementation is to compile it."""
    implementation = primitive.impl
    name = getattr(getattr(implementation, "func", implementation), "__name__", "")
    return name not in ("apply_primitive", "_call_impl")


def _closed(jaxpr: Any) -> Any:
    return jaxpr if isinstance(jaxpr, jax.extend.core.ClosedJaxpr) else jax.extend.core.ClosedJaxpr(jaxpr, ())


def _dtype(aval: Any) -> str:
    dtype = getattr(aval, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biufc":
        raise UnsupportedError(f"{aval} is no array of NumPy.")
    return dtype.name


def _plain(value: Any) -> Any:
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


def _types(variables: Sequence[Any]) -> list[list[Any]]:
    return [[list(x.aval.shape), _dtype(x.aval)] for x in variables]


def _while_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    p = equation.params
    codes = {"condition": at.nested(p["cond_jaxpr"]), "body": at.nested(p["body_jaxpr"])}
    counts = [p["cond_nconsts"], p["body_nconsts"]]
    return at.emit("while", operands, len(equation.outvars), counts=counts, **codes)


def _scan_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    p, counts = equation.params, list(scan_counts(equation.params))
    body, stacked = _closed(p["jaxpr"]), equation.outvars[counts[1] :]
    rows = [[shape[1:], kind] for shape, kind in _types(stacked)]
    flags = {"length": p["length"], "reverse": bool(p["reverse"])}
    return at.emit("scan", operands, len(equation.outvars), body=at.nested(body), counts=counts, rows=rows, **flags)


def _cond_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    branches = [at.nested(_closed(x)) for x in equation.params["branches"]]
    return at.emit("cond", operands, len(equation.outvars), branches=branches)


def _shape_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    if equation.params.get("dimensions") is not None and equation.primitive.name == "reshape":
        raise UnsupportedError("A reshape that transposes.")
    return at.emit("reshape", operands[:1], shape=list(equation.outvars[0].aval.shape))


def _linear_solve_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    solve, constants, start = linear_solve_operands(equation.params)
    return at.inline(_closed(solve), [*operands[constants], *operands[start:]])


def _dot_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    contracted, batched = _plain(equation.params["dimension_numbers"])
    dtype = _dtype(equation.outvars[0].aval)
    if any(x.aval.dtype == np.bool_ or x.aval.dtype != equation.outvars[0].aval.dtype for x in equation.invars):
        raise UnsupportedError("A product of mixed types.")
    return at.emit("dot_general", operands, contracted=contracted, batched=batched, dtype=dtype)


def _gather_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    p = equation.params
    n = p["dimension_numbers"]
    numbers = {
        "offset_dims": n.offset_dims, "collapsed": n.collapsed_slice_dims, "index_map": n.start_index_map,
        "batching": n.operand_batching_dims, "indices_batching": n.start_indices_batching_dims,
        "sizes": p["slice_sizes"], "mode": p["mode"], "fill_value": p["fill_value"],
    }  # fmt: skip
    return at.emit("gather", operands, **{key: _plain(x) for key, x in numbers.items()})


def _scatter_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    p, name = equation.params, equation.primitive.name
    n, update = p["dimension_numbers"], p["update_jaxpr"]
    if name == "scatter" and update is not None:
        inner = getattr(update, "jaxpr", update)
        if inner.eqns or inner.outvars[0] is not inner.invars[1]:
            raise UnsupportedError("A scatter of a function.")
    numbers = {
        "window_dims": n.update_window_dims, "inserted": n.inserted_window_dims,
        "index_map": n.scatter_dims_to_operand_dims, "batching": n.operand_batching_dims,
        "indices_batching": n.scatter_indices_batching_dims, "mode": p["mode"],
    }  # fmt: skip
    return at.emit(name, operands, kind=name, **{key: _plain(x) for key, x in numbers.items()})


def _top_k_rule(at: Translator, equation: Any, operands: list[int]) -> list[int]:
    if equation.params.get("axis", -1) not in (-1, equation.invars[0].aval.ndim - 1):
        raise UnsupportedError("top_k along another axis.")
    kind = _dtype(equation.outvars[1].aval)
    return at.emit("top_k", operands, 2, k=equation.params["k"], index_dtype=kind)


_RULES: dict[str, Callable[..., Any]] = {
    "while": _while_rule, "scan": _scan_rule, "cond": _cond_rule, "custom_linear_solve": _linear_solve_rule,
    "dot_general": _dot_rule, "gather": _gather_rule, "top_k": _top_k_rule,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _shape_rule), **dict.fromkeys(SCATTERS, _scatter_rule),
}  # fmt: skip
