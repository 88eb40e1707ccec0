"""Constructors of comparisons, logical operations and selects, simplified for constant and for repeated operands."""

import math
import operator
from collections.abc import Callable
from typing import Any

from jaxmbd.compile.graph import number
from jaxmbd.compile.graph.algebra import in_turn
from jaxmbd.compile.graph.node import Node

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def maximum(a: Node, b: Node) -> Node:
    """The larger of `a` and `b`."""
    return _extreme("max", max, a, b)


def minimum(a: Node, b: Node) -> Node:
    """The smaller of `a` and `b`."""
    return _extreme("min", min, a, b)


def _extreme(op: str, choose: Callable[..., Any], a: Node, b: Node) -> Node:
    if a.is_constant and b.is_constant:
        return a.graph.constant(number.fold(choose, a.value, b.value))
    for one, other in ((a, b), (b, a)):
        # An infinite bound is the neutral element, with which a reduction starts.
        if isinstance(one.value, float) and math.isinf(one.value):
            return other if (one.value < 0) == (op == "max") else one
    return a if a is b else a.graph.make(op, *in_turn(a, b))


def compare(op: str, a: Node, b: Node) -> Node:
    """The comparison of `a` and `b` by `op`: `"eq"`, `"ne"`, `"lt"`, `"le"`, `"gt"` or `"ge"`."""
    graph = a.graph
    if a.is_constant and b.is_constant:
        return graph.constant(_COMPARE[op](a.value, b.value))
    if a is b:
        return graph.constant(op in ("eq", "le", "ge"))
    if a.is_boolean and b.is_boolean:
        same = select(a, b, logical_not(b))
        return same if op == "eq" else logical_not(same)
    for one, other, order in ((a, b, (0, 1)), (b, a, (1, 0))):
        # A select between constants, such as a boolean converted to a number: the comparison reduces to its condition.
        if one.op == "select" and other.is_constant and one.args[1].is_constant and one.args[2].is_constant:
            pairs = ((one.args[1], other), (one.args[2], other))
            yes, no = (compare(op, pair[order[0]], pair[order[1]]) for pair in pairs)
            return select(one.args[0], yes, no)
    return graph.make(op, *(in_turn(a, b) if op in ("eq", "ne") else (a, b)))


def logical_and(a: Node, b: Node) -> Node:
    """True if both are true."""
    for one, other in ((a, b), (b, a)):
        if one.is_constant:
            return other if one.value else one
    return a if a is b else a.graph.make("and", *in_turn(a, b))


def logical_or(a: Node, b: Node) -> Node:
    """True if at least one is true."""
    for one, other in ((a, b), (b, a)):
        if one.is_constant:
            return one if one.value else other
    return a if a is b else a.graph.make("or", *in_turn(a, b))


def logical_not(a: Node) -> Node:
    """True if `a` is false."""
    if a.is_constant:
        return a.graph.constant(not a.value)
    return a.args[0] if a.op == "not" else a.graph.make("not", a)


def select(condition: Node, yes: Node, no: Node) -> Node:
    """`yes` if the condition is true, else `no`."""
    if condition.is_constant:
        return yes if condition.value else no
    if yes.op == "select" and yes.args[0] is condition:
        yes = yes.args[1]
    if no.op == "select" and no.args[0] is condition:
        no = no.args[2]
    if yes is no:
        return yes
    if condition.op == "not":
        return select(condition.args[0], no, yes)
    if yes.is_boolean and no.is_boolean:
        return logical_or(logical_and(condition, yes), logical_and(logical_not(condition), no))
    return yes.graph.make("select", condition, yes, no)
