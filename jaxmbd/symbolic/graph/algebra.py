"""Constructors of nodes, with the simplifications that are cheap, local and valid for all real numbers.

Products have a normal form: a positive constant factor comes first, and the sign is a negation around the product:
`neg(mul(2, x))`. So terms that differ by a constant factor are combined, and a sum absorbs the signs of its terms.

Identities of real numbers are also applied where an argument may be infinite or NaN at run time: `0 x = 0`,
`x − x = 0`, `x / x = 1`. The sign of zero is lost.
"""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from jaxmbd.symbolic.graph import number
from jaxmbd.symbolic.graph.node import Node
from jaxmbd.symbolic.graph.number import Number

ODD = frozenset({"sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "sign", "erf", "cbrt", "round"})
EVEN = frozenset({"cos", "cosh", "abs"})
_POWER = 64  # the largest magnitude of integer exponents that are merged with others
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def add(a: Node, b: Node) -> Node:
    """`a + b`."""
    if a.is_constant:
        a, b = b, a
    if b.is_constant:
        return _add_constant(a, b.value)
    (c, x), (d, y) = _split(a), _split(b)
    if x is y and x is not None:
        return _times(number.fold(operator.add, c, d), x)
    if b.op == "neg":
        return sub(a, b.args[0])
    if a.op == "neg":
        return sub(b, a.args[0])
    return a.graph.make("add", *in_turn(a, b))


def _add_constant(a: Node, c: Number) -> Node:
    """`a + c`, with only one constant in the sum."""
    if c == 0:
        return a
    if a.is_constant:
        return a.graph.constant(number.fold(operator.add, a.value, c))
    if a.op == "add" and a.args[1].is_constant:
        return _add_constant(a.args[0], number.fold(operator.add, a.args[1].value, c))
    if a.op == "sub" and a.args[0].is_constant:
        return sub(_add_constant(a.args[0], c), a.args[1])
    if a.op == "neg":
        return sub(a.graph.constant(c), a.args[0])
    return a.graph.make("add", a, a.graph.constant(c))


def sub(a: Node, b: Node) -> Node:
    """`a − b`."""
    if b.is_constant:
        return _add_constant(a, -b.value)
    if a.is_constant:
        if a.value == 0:
            return neg(b)
        if b.op == "add" and b.args[1].is_constant:
            return sub(_add_constant(a, -b.args[1].value), b.args[0])
        if b.op == "sub" and b.args[0].is_constant:
            return _add_constant(b.args[1], number.fold(operator.sub, a.value, b.args[0].value))
    (c, x), (d, y) = _split(a), _split(b)
    if x is y:
        return _times(number.fold(operator.sub, c, d), y)
    if b.op == "neg":
        return add(a, b.args[0])
    if a.op == "neg":
        return neg(add(a.args[0], b))
    return a.graph.make("sub", a, b)


def neg(a: Node) -> Node:
    """`−a`."""
    if a.is_constant:
        return a.graph.constant(-a.value)
    if a.op == "neg":
        return a.args[0]
    if a.op == "sub":
        return sub(a.args[1], a.args[0])
    if a.op == "add" and a.args[1].is_constant:
        return sub(a.graph.constant(-a.args[1].value), a.args[0])
    return a.graph.make("neg", a)


def mul(a: Node, b: Node) -> Node:
    """`a b`."""
    (c, x), (d, y) = _split(a), _split(b)
    factor = Fraction(0) if 0 in (c, d) else number.fold(operator.mul, c, d)
    if x is None or y is None:
        return _times(factor, y if x is None else x, a)
    return _times(factor, _product(x, y))


def div(a: Node, b: Node) -> Node:
    """`a / b`."""
    (c, x), (d, y) = _split(a), _split(b)
    if c == 0 and (y is not None or d != 0):
        return a.graph.constant(0)
    factor = number.fold(operator.truediv, c, d)
    if y is None or x is y:
        return _times(factor, None if y is x else x, a)
    if _is_reciprocal(y):
        return _times(factor, y.args[1] if x is None else _product(x, y.args[1]))
    numerator = a.graph.constant(1) if x is None else x
    return _times(factor, a.graph.make("div", numerator, y))


def _split(a: Node) -> tuple[Number, Node | None]:
    """`a` as a constant factor and the rest, which is None if `a` is a constant."""
    if a.is_constant:
        return a.value, None
    if a.op == "neg":
        factor, base = _split(a.args[0])
        return -factor, base
    if a.op == "mul" and a.args[0].is_constant:
        return a.args[0].value, a.args[1]
    if a.op == "div" and a.args[0].is_constant:
        return a.args[0].value, a.graph.make("div", a.graph.constant(1), a.args[1])
    return Fraction(1), a


def _times(factor: Number, base: Node | None, other: Node | None = None) -> Node:
    """`factor · base`; without a base the constant `factor`, in the graph of `other`."""
    if base is None:
        assert other is not None
        return other.graph.constant(factor)
    graph = base.graph
    if factor == 0:
        return graph.constant(0)
    if factor == 1:
        return base
    if factor < 0:
        return neg(_times(-factor, base))
    inner, rest = _split(base)
    if inner != 1:
        return _times(number.fold(operator.mul, factor, inner), rest, base)
    if _is_reciprocal(base):
        return graph.make("div", graph.constant(factor), base.args[1])
    return graph.make("mul", graph.constant(factor), base)


def _product(x: Node, y: Node) -> Node:
    """`x y` of nodes without constant factors, with equal bases merged."""
    (base, m), (other, n) = _base(x), _base(y)
    if base is other:
        return power(base, m + n)
    return x.graph.make("mul", *in_turn(x, y))


def _base(a: Node) -> tuple[Node, int]:
    """`a` as a base and an integer exponent."""
    if a.op == "pow" and _is_whole(a.args[1]):
        return a.args[0], int(a.args[1].value)
    return a, 1


def _is_reciprocal(a: Node) -> bool:
    return a.op == "div" and a.args[0].is_constant


def _is_whole(a: Node) -> bool:
    return isinstance(a.value, Fraction) and a.value.denominator == 1 and abs(a.value) <= _POWER


def in_turn(a: Node, b: Node) -> tuple[Node, Node]:
    """The operands of a commutative operation in canonical order, by index."""
    return (a, b) if a.index <= b.index else (b, a)


def power(a: Node, n: int) -> Node:
    """`aⁿ` for an integer `n`."""
    graph = a.graph
    if n == 0:
        return graph.constant(1)
    if n < 0:
        return div(graph.constant(1), power(a, -n))
    factor, base = _split(a)
    if base is None:
        return graph.constant(number.raised(factor, Fraction(n)))
    if factor != 1:
        return _times(number.raised(factor, Fraction(n)), power(base, n))
    if n == 1:
        return base
    if _is_reciprocal(base):
        return div(graph.constant(1), power(base.args[1], n))
    if n % 2 == 0:
        base = base.args[0] if base.op == "abs" else _without_sign(base)[0]
    base, m = _base(base)
    return graph.make("pow", base, graph.constant(n * m))


def general_power(a: Node, b: Node) -> Node:
    """`aᵇ`."""
    graph = a.graph
    if b.is_constant:
        if a.is_constant:
            return graph.constant(number.raised(a.value, b.value))
        if _is_whole(b):
            return power(a, int(b.value))
        if abs(b.value) == Fraction(1, 2):
            root = function("sqrt", a)
            return root if b.value > 0 else div(graph.constant(1), root)
    if a.is_constant and a.value == 1:
        return a
    return graph.make("pow", a, b)


def _without_sign(a: Node) -> tuple[Node, bool]:
    """The canonical representative of `a` and `−a`, and True if it is `−a`."""
    if a.op == "neg":
        return a.args[0], True
    if a.op == "sub" and a.args[0].index > a.args[1].index:
        return neg(a), True
    return a, False


def function(name: str, a: Node) -> Node:
    """An elementary function of one argument, by its name in `number.FUNCTIONS`."""
    if a.is_constant:
        return a.graph.constant(number.apply(name, a.value))
    if name in ODD or name in EVEN:
        inner, is_negative = _without_sign(a)
        if is_negative:
            value = function(name, inner)
            return neg(value) if name in ODD else value
    if name == a.op == "abs" or (name == "abs" and a.op in ("sqrt", "exp", "cosh")):
        return a
    return a.graph.make(name, a)


def atan2(y: Node, x: Node) -> Node:
    """The angle of the vector `(x, y)`."""
    if x.is_constant and y.is_constant:
        return x.graph.constant(number.fold(math.atan2, y.value, x.value))
    return x.graph.make("atan2", y, x)


# --- choices ----------------------------------------------------------------------------------------------


def extreme(op: str, a: Node, b: Node) -> Node:
    """The larger (`"max"`) or the smaller (`"min"`) of `a` and `b`."""
    if a.is_constant and b.is_constant:
        return a.graph.constant(number.fold(max if op == "max" else min, a.value, b.value))
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


def logical(op: str, a: Node, b: Node) -> Node:
    """True if both (`"and"`) or at least one (`"or"`) of `a` and `b` are true."""
    for one, other in ((a, b), (b, a)):
        if one.is_constant:
            return other if one.value == (op == "and") else one
    return a if a is b else a.graph.make(op, *in_turn(a, b))


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
        return logical("or", logical("and", condition, yes), logical("and", logical_not(condition), no))
    return yes.graph.make("select", condition, yes, no)
