"""`trace`: a JAX function of small arrays as an expression graph, by interpreting its jaxpr on arrays of nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxmbd.engine.program.equation import Arrays, Equation, Rule, array
from jaxmbd.engine.program.lowering import Interpreter
from jaxmbd.errors import MechanismError
from jaxmbd.symbolic.graph import algebra
from jaxmbd.symbolic.graph.builder import GraphBuilder
from jaxmbd.symbolic.graph.node import Graph, Node

Names: TypeAlias = str | Sequence[object] | np.ndarray


@dataclass(frozen=True, eq=False)
class TracedGraph:
    """A traced function: its graph, its inputs as arrays of symbols, and its result, a pytree of arrays of nodes."""

    graph: Graph
    inputs: tuple[np.ndarray, ...]
    result: PyTree


def trace(
    function: Callable[..., PyTree],
    *names: Names,
    graph: Graph | None = None,
    title: str = "",
    rules: Mapping[str, Rule] | None = None,
) -> TracedGraph:
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
    inputs = tuple(array(np.frompyfunc(graph.symbol, 1, 1)(_as_names(given))) for given in names)
    specs = [jax.ShapeDtypeStruct(nodes.shape, jnp.result_type(float)) for nodes in inputs]
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*specs)
    with jax.ensure_compile_time_eval():
        results = Interpreter(GraphBuilder(graph), title, RULES | dict(rules or {})).run(jaxpr, list(inputs))
    return TracedGraph(graph, inputs, jax.tree.unflatten(jax.tree.structure(shapes), results))


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


# --- rules of expression graphs ---------------------------------------------------------------------------


def _convert(equation: Equation, x: np.ndarray) -> np.ndarray | Arrays:
    """Type conversion. Between floating-point types it is the identity: the graph has one kind of real number."""
    before, after, build = equation.operand_dtype, equation.dtype, equation.builder
    if before == after:
        return x
    if before == np.bool_:
        return build.apply("select", x, build.constant(1), build.constant(0))
    if after == np.bool_:
        return build.apply("ne", x, build.constant(0))
    is_exact = np.issubdtype(after, np.floating) or np.issubdtype(before, np.integer)
    return x if is_exact else equation.evaluate(x)


def _cholesky(equation: Equation, a: np.ndarray) -> np.ndarray:
    """The lower Cholesky factor of each matrix."""
    result = np.full(a.shape, equation.builder.constant(0), dtype=object)
    for batch in np.ndindex(a.shape[:-2]):
        _factor(a[batch], result[batch])
    return result


def _factor(a: np.ndarray, L: np.ndarray) -> None:
    """Fill the lower triangle of `L` so that `L Lᵀ = a`; only the lower triangle of `a` is read."""
    for j in range(len(a)):
        L[j, j] = algebra.function("sqrt", _less_products(a[j, j], L[j, :j], L[j, :j]))
        for i in range(j + 1, len(a)):
            L[i, j] = algebra.div(_less_products(a[i, j], L[i, :j], L[j, :j]), L[j, j])


def _less_products(value: Node, left: np.ndarray, right: np.ndarray) -> Node:
    """`value − left · right`."""
    for x, y in zip(left, right, strict=True):
        value = algebra.sub(value, algebra.mul(x, y))
    return value


def _triangular_solve(equation: Equation, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The solution `x` of `a x = b` or `x a = b` by substitution."""
    params = equation.params
    is_lower = params["lower"]
    result = np.empty(b.shape, dtype=object)
    for batch in np.ndindex(a.shape[:-2]):
        # x a = b is aᵀ xᵀ = bᵀ: each side and transposition is the same solve on other views of the arrays.
        is_transposed = bool(params["transpose_a"]) == params["left_side"]
        matrix = a[batch].T if is_transposed else a[batch]
        right, x = (b[batch], result[batch]) if params["left_side"] else (b[batch].T, result[batch].T)
        _substitute(matrix, right, x, is_lower != is_transposed, params["unit_diagonal"])
    return result


def _substitute(a: np.ndarray, b: np.ndarray, x: np.ndarray, is_lower: bool, has_unit_diagonal: bool) -> None:
    """Fill `x` with the solution of `a x = b`, by forward or backward substitution."""
    n = len(a)
    for column in range(b.shape[1]):
        for i in range(n) if is_lower else reversed(range(n)):
            known = slice(0, i) if is_lower else slice(i + 1, n)
            value = _less_products(b[i, column], a[i, known], x[known, column])
            x[i, column] = value if has_unit_diagonal else algebra.div(value, a[i, i])


RULES: dict[str, Rule] = {
    "convert_element_type": _convert,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
