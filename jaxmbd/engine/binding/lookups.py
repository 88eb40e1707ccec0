"""Which tables a traced function looks up at its first argument itself, and not at another quantity.

A table says where it is looked up (`looked_up`) by an equation of a jaxpr that computes nothing, and which nothing
uses, so that it costs nothing. It survives `jit`, `vmap`, derivatives and conditions in a user's function.
"""

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmbd.upstream.jax_internals import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, scan_counts

# What returns its first operand, up to its shape. A conversion to whole numbers does not.
_SAME = ("broadcast_in_dim", "copy", "pvary", "reshape", "squeeze", "stop_gradient")
_FIRST = -1  # the label of the first argument; those of the others are numbers from 0 on

Labels = Sequence[int | None]
Shaped = ArrayLike | jax.ShapeDtypeStruct


_NAME = "jaxmbd_lookup"  # of the equation that says that a table is looked up


def _lookup(x: Array, table: Array) -> Array:
    return x


_lookup.__name__ = _NAME
_equation = jax.jit(_lookup)


def looked_up(x: ArrayLike, table: ArrayLike) -> None:
    """Say that a table, known by its array of abscissae, is looked up at `x`."""
    if isinstance(x, jax.core.Tracer):
        _equation(x, table)


def looked_up_at_first(function: Callable[..., object], first: Shaped, *others: Shaped) -> frozenset[int]:
    """The arrays among `others` that a function looks up at `first` itself, by their numbers; traced on shapes only."""
    jaxpr = jax.make_jaxpr(function)(first, *others).jaxpr
    found: set[int] = set()
    _walk(jaxpr, [_FIRST, *range(len(others))], found)
    return frozenset(found)


def _walk(jaxpr: Jaxpr, labels: Labels, found: set[int]) -> Labels:
    """Add the tables that are looked up at the first argument; return the labels of the results."""
    known: dict[Var, int | None] = dict(zip(jaxpr.invars, labels, strict=True))
    label_of = lambda x: None if isinstance(x, Literal) else known.get(x)  # noqa: E731
    for equation in jaxpr.eqns:
        operands = [*map(label_of, equation.invars)]
        if equation.params.get("name") == _NAME:
            x, table = operands[:2]
            if x == _FIRST and table is not None:
                found.add(table)
        results = [_walk(inner, given, found) for inner, given in _inner(equation, operands)]
        if len(results) == 1 and len(results[0]) == len(equation.outvars):
            known |= dict(zip(equation.outvars, results[0], strict=True))
        elif _is_same(equation):
            known[equation.outvars[0]] = operands[0]
    return [*map(label_of, jaxpr.outvars)]


def _is_same(equation: JaxprEqn) -> bool:
    if equation.primitive.name == "convert_element_type":
        return jnp.issubdtype(equation.params["new_dtype"], jnp.inexact)
    return equation.primitive.name in _SAME


def _inner(equation: JaxprEqn, labels: Labels) -> Iterator[tuple[Jaxpr, Labels]]:
    """The functions inside an equation, with the labels of their arguments, as far as these stay the same."""
    kind, of = equation.primitive.name, equation.params
    if kind == "cond":
        for branch in of["branches"]:
            yield branch.jaxpr, labels[1:]
    elif kind == "scan":  # carries change, and of stacked operands one slice is taken
        yield _with_constants(of["jaxpr"].jaxpr, labels[: scan_counts(of)[0]])
    elif kind == "while":
        conditions, bodies = of["cond_nconsts"], of["body_nconsts"]
        yield _with_constants(of["cond_jaxpr"].jaxpr, labels[:conditions])
        yield _with_constants(of["body_jaxpr"].jaxpr, labels[conditions : conditions + bodies])
    else:
        for value in of.values():
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            if isinstance(inner, Jaxpr):
                yield inner, labels if len(inner.invars) == len(labels) else [None] * len(inner.invars)


def _with_constants(jaxpr: Jaxpr, labels: Labels) -> tuple[Jaxpr, Labels]:
    return jaxpr, [*labels, *[None] * (len(jaxpr.invars) - len(labels))]
