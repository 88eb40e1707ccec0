"""`trace`: a JAX function of small arrays as an expression graph, by interpreting its jaxpr on arrays of nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.compile.graph import calls, elementwise, linear, moves, sums, windows
from jaxmbd.compile.graph.node import Graph
from jaxmbd.compile.graph.step import Arrays, Step
from jaxmbd.compile.jax_internals import Literal
from jaxmbd.errors import MechanismError

Names: TypeAlias = str | Sequence[Any] | np.ndarray

RULES: dict[str, Callable[..., Any]] = {
    **elementwise.RULES,
    **moves.RULES,
    **windows.RULES,
    **sums.RULES,
    **calls.RULES,
    **linear.RULES,
}


@dataclass(frozen=True, eq=False)
class Traced:
    """A traced function: its graph, its inputs as arrays of symbols, and its result, a pytree of arrays of nodes."""

    graph: Graph
    inputs: tuple[np.ndarray, ...]
    result: Any


def trace(
    function: Callable[..., Any],
    *names: Names,
    graph: Graph | None = None,
    title: str = "",
    rules: Mapping[str, Callable[..., Any]] | None = None,
) -> Traced:
    """Trace a JAX function of small arrays to a graph of scalar expressions.

    The graph represents real numbers only: zeros and ones are folded even where an operand could be infinite or NaN
    (`0 x = 0`), zero has no sign, and `is_finite` is true.

    **Arguments:**

    - `function`: takes one array for each of `names` and returns a pytree of arrays.
    - `names`: the names of the symbols of each input, nested as the input's shape; a single string is a scalar input.
    - `graph`: the graph to which nodes are added; functions in one graph share equal nodes. Default: a new one.
    - `title`: the name of the function in messages. Default: its own name.
    - `rules`: rules for additional primitives.

    **Raises:** `MechanismError` if the function uses something that a formula cannot express.

    **Example:**

        pendulum = trace(lambda q, v: v**2 / 2 - jnp.cos(q), "q", "v")
        pendulum.result.item().op  # 'sub'
    """
    graph = Graph() if graph is None else graph
    title = title or f"The function {getattr(function, '__name__', type(function).__name__)!r}"
    inputs = tuple(graph.symbols(_as_names(given)) for given in names)
    specs = [jax.ShapeDtypeStruct(array.shape, jnp.result_type(float)) for array in inputs]
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*specs)
    with jax.ensure_compile_time_eval():
        results = Walk(graph, RULES | dict(rules or {}), title).run(jaxpr, list(inputs))
    return Traced(graph, inputs, jax.tree.unflatten(jax.tree.structure(shapes), results))


def _as_names(given: Names) -> np.ndarray:
    try:
        names = np.array(given, dtype=object)
    except ValueError:
        names = None
    if names is None or not all(isinstance(name, str) for name in names.flat):
        raise MechanismError(
            f"The names of symbols must be strings, nested as the array that they name, not {given!r}."
        )
    return names


class Walk:
    """An interpreter of jaxprs, inner ones included, that applies the rule of each primitive to arrays of scalars."""

    def __init__(self, graph: Any, rules: Mapping[str, Callable[..., Any]], title: str) -> None:
        self.graph, self.rules, self.title = graph, rules, title

    def run(self, jaxpr: Any, inputs: Arrays) -> Arrays:
        # A closed jaxpr holds an open one until jax 0.10, and is the same type from 0.11.
        consts = getattr(jaxpr, "consts", ())
        opened = getattr(jaxpr, "jaxpr", jaxpr)
        values = dict(zip(opened.invars, inputs, strict=True))
        values |= {var: self.graph.constants(const) for var, const in zip(opened.constvars, consts, strict=True)}
        for equation in opened.eqns:
            operands = [self._read(values, var) for var in equation.invars]
            results = self._apply(Step(self.graph, equation, self.run, self.title), operands)
            values |= zip(equation.outvars, results, strict=True)
        return [self._read(values, var) for var in opened.outvars]

    def _read(self, values: dict[Any, np.ndarray], var: Any) -> np.ndarray:
        if isinstance(var, Literal):
            return self.graph.constants(_typed(var))
        return values[var]

    def _apply(self, step: Step, operands: Arrays) -> Arrays:
        rule = self.rules.get(step.name)
        if rule is None:
            # A primitive without a rule can still be evaluated if all of its operands are constants.
            if any(self.graph.values(operand, object) is None for operand in operands):
                raise step.unsupported()
            return step.evaluate(*operands)
        results = rule(step, *operands)
        return results if isinstance(results, list) else [results]


def _typed(literal: Any) -> np.ndarray:
    return np.asarray(literal.val, dtype=literal.aval.dtype)
