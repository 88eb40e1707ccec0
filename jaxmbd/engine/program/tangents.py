"""Forward derivatives of programs: while a jaxpr is lowered, the tangents of its values are emitted beside them.

Most primitives are made of operations whose derivatives are known here. Solves of linear systems, functions with
derivatives of their own and the like follow JAX's rules, one equation at a time.

Source: Griewank, Walther, Evaluating Derivatives (2008), chapter 3.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np

from jaxmbd.arrays import replaced
from jaxmbd.engine.program import structure, windows
from jaxmbd.engine.program.equation import Arrays, Equation
from jaxmbd.engine.program.opcodes import COPY, GATHER, INPUT, NAMES
from jaxmbd.engine.program.ssa_builder import ONE, ZERO, SSABuilder, ValueIds
from jaxmbd.upstream.jax_internals import aval_of, bound, linear_solve_operands

Emitted = TypeVar("Emitted")
Apply: TypeAlias = Callable[..., ValueIds]
# From what emits operations, the operands of an operation, the tangents of these, and its result: its tangent.
Tangent: TypeAlias = Callable[[Apply, Sequence[ValueIds], Sequence[ValueIds], ValueIds], ValueIds]
RuleOf: TypeAlias = Callable[[Equation, Arrays], Arrays]
# From the tangents so far, what applies the rule of an equation, that equation and its operands: its results, whose
# tangents are then known.
TangentRule: TypeAlias = Callable[["Tangents", RuleOf, Equation, Arrays], Arrays]


def _chosen(is_first: Callable[[Apply, ValueIds, ValueIds], ValueIds]) -> Tangent:
    """The tangent of one of two values, of the first where that `is_first`; of equal ones half of each, as in JAX."""

    def tangent(f: Apply, x: Sequence[ValueIds], dx: Sequence[ValueIds], _: ValueIds) -> ValueIds:
        half = f("div", f("add", *dx), f("add", ONE, ONE))
        return f("select", is_first(f, *x), dx[0], f("select", f("eq", *x), half, dx[1]))

    return tangent


def _of_one(slope: Callable[[Apply, ValueIds, ValueIds], ValueIds]) -> Tangent:
    """The tangent of a function of one variable from its slope, a function of the variable and the value."""
    return lambda f, x, dx, y: f("mul", dx[0], slope(f, x[0], y))


def _over(divisor: Callable[[Apply, ValueIds, ValueIds], ValueIds]) -> Tangent:
    """The same from the inverse of its slope."""
    return lambda f, x, dx, y: f("div", dx[0], divisor(f, x[0], y))


def _one_minus_square(f: Apply, x: ValueIds) -> ValueIds:
    return f("sub", ONE, f("mul", x, x))


def _one_plus_square(f: Apply, x: ValueIds) -> ValueIds:
    return f("add", ONE, f("mul", x, x))


def _bell(f: Apply, x: ValueIds) -> ValueIds:
    """`2 / √π exp(−x²)`, the slope of the error function; `√π / 2 = √(arctan 1)`."""
    return f("div", f("exp", f("neg", f("mul", x, x))), f("sqrt", f("atan", ONE)))


def _angle(f: Apply, x: Sequence[ValueIds], dx: Sequence[ValueIds], _: ValueIds) -> ValueIds:
    square = f("add", f("mul", x[0], x[0]), f("mul", x[1], x[1]))
    return f("div", f("sub", f("mul", dx[0], x[1]), f("mul", x[0], dx[1])), square)


_TANGENTS: dict[str, Tangent] = {
    "add": lambda f, x, dx, y: f("add", *dx),
    "sub": lambda f, x, dx, y: f("sub", *dx),
    "mul": lambda f, x, dx, y: f("add", f("mul", dx[0], x[1]), f("mul", x[0], dx[1])),
    "div": lambda f, x, dx, y: f("div", f("sub", dx[0], f("mul", y, dx[1])), x[1]),
    "neg": lambda f, x, dx, y: f("neg", dx[0]),
    "max": _chosen(lambda f, a, b: f("lt", b, a)),
    "min": _chosen(lambda f, a, b: f("lt", a, b)),
    "select": lambda f, x, dx, y: f("select", x[0], dx[1], dx[2]),
    "sqrt": _over(lambda f, x, y: f("add", y, y)),
    "abs": _of_one(lambda f, x, y: f("sign", x)),
    "sin": _of_one(lambda f, x, y: f("cos", x)),
    "cos": _of_one(lambda f, x, y: f("neg", f("sin", x))),
    "tan": _of_one(lambda f, x, y: _one_plus_square(f, y)),
    "asin": _over(lambda f, x, y: f("sqrt", _one_minus_square(f, x))),
    "acos": _over(lambda f, x, y: f("neg", f("sqrt", _one_minus_square(f, x)))),
    "atan": _over(lambda f, x, y: _one_plus_square(f, x)),
    "atan2": _angle,
    "sinh": _of_one(lambda f, x, y: f("cosh", x)),
    "cosh": _of_one(lambda f, x, y: f("sinh", x)),
    "tanh": _of_one(lambda f, x, y: _one_minus_square(f, y)),
    "asinh": _over(lambda f, x, y: f("sqrt", _one_plus_square(f, x))),
    "exp": _of_one(lambda f, x, y: y),
    "expm1": _of_one(lambda f, x, y: f("add", y, ONE)),
    "erf": _of_one(lambda f, x, y: _bell(f, x)),
    "erfc": _of_one(lambda f, x, y: f("neg", _bell(f, x))),
    "log": _over(lambda f, x, y: x),
    "log1p": _over(lambda f, x, y: f("add", x, ONE)),
}
# Those that are constant nearly everywhere.
_STEPS = (
    *("eq", "ne", "lt", "le", "and", "or", "not", "is_finite"),
    *("sign", "floor", "ceil", "round", "round_away"),
)

# The primitives that mean what the operations of their rules mean, also for derivatives.
_BY_OPERATIONS = {
    *structure.RULES, *windows.RULES, *_TANGENTS, *_STEPS,
    *("add_any", "square", "integer_pow", "select_n", "reduce_sum", "cumsum", "dot_general", "convert_element_type"),
    *("gt", "ge", "xor", "eq_to", "lt_to", "le_to", "reduce_and", "reduce_or"),
    *("jit", "remat2", "closed_call", "cond", "scan", "while"),
} - {"stop_gradient"}  # fmt: skip


class Tangents:
    """The tangents of the values of a builder, as value ids; `ZERO` where there is none.

    `apply` is what an `Interpreter` runs around the rules of equations; the one of the second `order` is run by that of
    the first, whose tangents have tangents, too. `own_rules`: for primitives that only the caller knows.
    """

    def __init__(self, builder: SSABuilder, own_rules: Mapping[str, TangentRule], order: int = 1) -> None:
        self.builder, self._order = builder, order
        self._rules = {"stop_gradient": _stopped, "custom_linear_solve": _solved, **own_rules}
        self._of = np.full(1024, ZERO, np.int32)
        self._is_wanted = True
        self._seen = 0  # how many of the builder's starts belong to values whose tangents are known

    def of(self, ids: ValueIds) -> ValueIds:
        """The tangents of values."""
        self._follow()
        return self._of[ids]

    def set(self, ids: ValueIds, tangents: ValueIds) -> None:
        """Say what the tangents of inputs, or of fresh copies, are."""
        self._make_room()
        varies = ~self.builder.is_constant[ids]
        self._of[ids[varies]] = tangents[varies]

    def move(self, operands: Sequence[ValueIds]) -> bool:
        """True if a tangent of some values differs from zero."""
        return any((self._of[x] != ZERO).any() for x in operands)

    def fresh(self, values: Sequence[ValueIds], tangents: Sequence[ValueIds]) -> Arrays:
        """Copies of values, with tangents that do not follow from the operations that made these; constants without
        tangents stay what they are."""
        copies: Arrays = []
        for x, given in zip(values, tangents, strict=True):
            ids = np.array(x, np.int32)
            varies = ~self.builder.is_constant[ids] | (given != ZERO)
            ids[varies] = self._emit(self.builder.copies, ids[varies])
            self._make_room()
            self._of[ids[varies]] = given[varies]
            copies.append(ids)
        self._seen = len(self.builder.starts)
        return copies

    def without(self, emit: Callable[..., Arrays], *operands: Any) -> Arrays:
        """What `emit` emits, of which no tangents are wanted."""
        self._follow()
        self._is_wanted = False
        try:
            return emit(*operands)
        finally:
            self._is_wanted = True
            self._make_room()
            self._seen = len(self.builder.starts)

    def difference(self, a: ValueIds, b: ValueIds) -> ValueIds:
        """`a − b` of tangents."""
        return self._emit(self.builder.apply, "sub", a, b)

    def apply(self, rule: RuleOf, equation: Equation, operands: Arrays) -> Arrays:
        """The results of an equation, whose tangents are then known."""
        if not self._is_wanted:
            return rule(equation, operands)
        self._follow()
        if not self.move(operands):
            return self.without(rule, equation, operands)
        own = self._rules.get(equation.name)
        if own is not None:
            return own(self, rule, equation, operands)
        if equation.name in _BY_OPERATIONS:
            results = rule(equation, operands)
            self._follow()
            return results
        return _by_jax(self, rule, equation, operands)

    def _follow(self) -> None:
        """Emit the tangents of the values that were emitted since."""
        self._make_room()
        new, self._seen = self.builder.starts[self._seen :], len(self.builder.starts)
        bounds = [*(first for first, _ in new), self.builder.count]
        for (first, order), last in zip(new, bounds[1:], strict=True):
            number = int(self.builder.op[first])
            ids = np.arange(first, last, dtype=np.int32)
            if number == COPY:
                self._of[ids] = self._of[self.builder.args[ids, 0]]
            elif number != INPUT and order < self._order:
                self._emit(self._follow_one, NAMES[number], ids)
        self._seen = len(self.builder.starts)
        self._make_room()

    def _follow_one(self, name: str, ids: ValueIds) -> None:
        """The same for values of one operation."""
        args = self.builder.args[ids].T
        if name == GATHER:
            emitted = [self._gathered(*self.builder.args[k, :2].tolist()) for k in ids]
            self._make_room()
            self._of[ids] = emitted
            return
        args = args[args[:, 0] >= 0]
        tangents = self._of[args]
        moves = (tangents != ZERO).any(axis=0)
        if not moves.any() or name in _STEPS:
            return
        ids = ids[moves]
        emitted = _TANGENTS[name](self.builder.apply, [*args[:, moves]], [*tangents[:, moves]], ids)
        self._make_room()
        self._of[ids] = emitted

    def _gathered(self, index: int, leaf: int) -> int:
        """The tangent of an element of a table: that element of the table's tangents."""
        table = next(table for table, other in self.builder.tables.items() if other == leaf)
        elements = self.builder.arrays[table.input].reshape(-1)[table.first + table.stride * np.arange(table.length)]
        self._make_room()
        tangents = self._of[elements]
        # Tables lie in inputs, whose tangents are inputs, too, or zero.
        found = self.builder.gather(tangents, np.asarray(index)) if (tangents != ZERO).any() else ZERO
        assert found is not None
        return int(found)

    def _emit(self, emit: Callable[..., Emitted], *operands: Any) -> Emitted:
        before, self.builder.order = self.builder.order, self._order
        try:
            return emit(*operands)
        finally:
            self.builder.order = before

    def _make_room(self) -> None:
        if self.builder.count > len(self._of):
            self._of = np.concatenate([self._of, np.full(2 * self.builder.count - len(self._of), ZERO, np.int32)])


def _stopped(tangents: Tangents, rule: RuleOf, equation: Equation, operands: Arrays) -> Arrays:
    """`stop_gradient`: the values without tangents."""
    return tangents.fresh(tangents.without(rule, equation, operands), [np.full_like(x, ZERO) for x in operands])


def _solved(tangents: Tangents, rule: RuleOf, equation: Equation, operands: Arrays) -> Arrays:
    """`A x = b` by `custom_linear_solve`: `A dx = db − dA x`."""
    _, _, first = linear_solve_operands(equation.params)
    count, given, b = equation.params["const_lengths"].matvec, operands[:first], operands[first:]
    x = tangents.without(rule, equation, operands)
    if len(x) != len(b):  # it returns more than the solution
        return _by_jax(tangents, rule, equation, operands)
    x = tangents.fresh(x, [np.full_like(ids, ZERO) for ids in x])
    product = equation.interpret(equation.params["jaxprs"].matvec, [*given[:count], *x])
    right = [tangents.difference(tangents.of(ids), tangents.of(times)) for ids, times in zip(b, product, strict=True)]
    for ids, found in zip(x, tangents.without(rule, equation, [*given, *right]), strict=True):
        tangents.set(ids, found)
    return x


def _by_jax(tangents: Tangents, rule: RuleOf, equation: Equation, operands: Arrays) -> Arrays:
    """The results of one equation, and their tangents by JAX's rule for its primitive."""
    types = [*map(aval_of, equation.source.invars)]
    moving = [k for k, x in enumerate(operands) if _is_real(types[k]) and tangents.move([x])]
    is_real = [_is_real(aval_of(var)) for var in equation.source.outvars]

    def jvp(*arrays: Any) -> tuple[Any, Any]:
        def function(*some: Any) -> tuple[list[Any], list[Any]]:
            found = bound(equation.source, replaced(arrays[: len(types)], moving, some))
            return [x for x, real in zip(found, is_real, strict=True) if real], found

        some = tuple(arrays[k] for k in moving)
        _, changes, found = jax.jvp(function, some, tuple(arrays[len(types) :]), has_aux=True)
        return found, changes

    jaxpr = jax.make_jaxpr(jvp)(*types, *(types[k] for k in moving))
    found = tangents.without(equation.interpret, jaxpr, [*operands, *(tangents.of(operands[k]) for k in moving)])
    changes = iter(found[len(is_real) :])
    return tangents.fresh(
        found[: len(is_real)],
        [next(changes) if real else np.full_like(x, ZERO) for real, x in zip(is_real, found, strict=False)],
    )


def _is_real(kind: Any) -> bool:
    return np.issubdtype(kind.dtype, np.floating)
