"""Conversion of expression graphs to SymPy."""

import functools
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.symbolic.graph.node import Node, in_order
from jaxmbd.symbolic.graph.number import twelfths_of_pi

# SymPy is an extra, imported where it is used: there may be no types of it to name.
Expression: TypeAlias = Any
Matrix: TypeAlias = Any


def to_sympy(
    nodes: np.ndarray, symbols: Mapping[str, Expression] | None = None, known: Mapping[Node, Expression] | None = None
) -> Expression:
    """Convert nodes of a graph to SymPy expressions, with exact numbers where the graph has them.

    Rounding is written `⌊x + 1/2⌋`, which differs from rounding half to even at the halves themselves. A select that
    only guards against a zero length (of a spring, for example) is replaced by its branch for nonzero lengths.

    `symbols` are expressions for the symbols of the graph, by name (default: a real symbol of that name), `known` nodes
    that are replaced by simpler expressions. Returns an expression for an array without axes, a column `Matrix` for one
    axis, a `Matrix` for two.
    """
    if nodes.ndim > 2:
        raise MechanismError(f"A SymPy matrix has two axes at most; given is an array of shape {nodes.shape}.")
    import sympy

    expressions = converted(in_order(nodes.flat), symbols or {}, known or {})
    flat = [expressions[node] for node in nodes.flat]
    if nodes.ndim == 0:
        return flat[0]
    return sympy.Matrix(nodes.shape[0], nodes.shape[1] if nodes.ndim == 2 else 1, flat)


def converted(
    order: list[Node], symbols: Mapping[str, Expression], known: Mapping[Node, Expression]
) -> dict[Node, Expression]:
    """The expression of each node, for nodes in topological order."""
    import sympy

    write = rules()
    expressions: dict[Node, Expression] = {}
    for node in order:
        if node in known:
            expressions[node] = known[node]
        elif node.op == "symbol":
            assert node.name is not None
            symbol = symbols.get(node.name)
            expressions[node] = sympy.Symbol(node.name, real=True) if symbol is None else symbol
        elif node.op == "const":
            expressions[node] = constant(node.value)
        elif node.op == "select" and is_length(node.args[0]):
            expressions[node] = expressions[node.args[1]]
        else:
            expressions[node] = write[node.op](*(expressions[argument] for argument in node.args))
    return expressions


def is_length(condition: Node) -> bool:
    """True if a condition guards against a zero length, as force laws do before they divide by it."""
    positive = {"gt": 0, "lt": 1, "ne": 0}.get(condition.op)
    if positive is None:
        return False
    square, zero = condition.args[positive], condition.args[1 - positive]
    return zero.op == "const" and zero.value == 0 and _is_square(square)


def _is_square(node: Node) -> bool:
    """True if an expression is a sum of squares, or its square root, a length."""
    if node.op in ("add", "sqrt"):
        return node.op == "sqrt" or all(_is_square(argument) for argument in node.args)
    if node.op == "select":
        return is_length(node.args[0]) and _is_square(node.args[1])
    exponent = node.args[1] if node.op == "pow" else None
    return exponent is not None and exponent.value is not None and exponent.value % 2 == 0


def constant(value: Fraction | float | bool) -> Expression:
    """A constant of a graph as a SymPy number: exact if it is a fraction, and multiples of π as such."""
    import sympy

    if isinstance(value, bool):
        return sympy.true if value else sympy.false
    if isinstance(value, Fraction):
        return sympy.Rational(value.numerator, value.denominator)
    twelfths = twelfths_of_pi(value)
    return sympy.Float(value) if twelfths is None else sympy.Rational(twelfths, 12) * sympy.pi


@functools.cache
def rules() -> dict[str, Callable[..., Expression]]:
    """SymPy's function for each operation of the graph."""
    import sympy

    one, half = sympy.Integer(1), sympy.Rational(1, 2)
    same = "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp log sqrt erf atan2 sign floor"
    return {
        **{name: getattr(sympy, name) for name in same.split()},
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "neg": lambda a: -a,
        "pow": lambda a, b: a**b,
        "abs": sympy.Abs,
        "ceil": sympy.ceiling,
        "round": lambda a: sympy.floor(a + half),
        "cbrt": lambda a: sympy.sign(a) * sympy.Abs(a) ** sympy.Rational(1, 3),
        "expm1": lambda a: sympy.exp(a) - one,
        "log1p": lambda a: sympy.log(one + a),
        "max": sympy.Max,
        "min": sympy.Min,
        "eq": sympy.Eq,
        "ne": sympy.Ne,
        "lt": sympy.Lt,
        "le": sympy.Le,
        "gt": sympy.Gt,
        "ge": sympy.Ge,
        "and": sympy.And,
        "or": sympy.Or,
        "not": sympy.Not,
        "select": lambda condition, yes, no: sympy.Piecewise((yes, condition), (no, True)),
    }
