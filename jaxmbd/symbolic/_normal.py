"""Normal forms: expressions of a graph as polynomials, so that equal expressions have equal representations.

Polynomials are computed node by node, so that cancelling terms never accumulate; then each polynomial is written in the
shortest of several ways. The generators are the symbols, a sine and a cosine for each angle, and every other expression
that is not a polynomial, as a whole. Sines of sums are expanded, and one square each is eliminated by
`sin² + cos² = 1` and `e0² + e1² + e2² + e3² = 1`.

Coefficients are fractions, or floats where the graph has floats; a sum of floats that cancels up to rounding is zero.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import gcd, isfinite, lcm
from operator import and_
from typing import Any, TypeAlias

import numpy as np

from jaxmbd.symbolic._ring import ONE, Monomial, Polynomial, Ring, TooLong, reduced, replacement, total_of, without
from jaxmbd.symbolic._sympy import Expression, constant, converted, is_length, rules
from jaxmbd.symbolic.graph.node import COMPARISONS, Node, in_order
from jaxmbd.symbolic.graph.number import FUNCTIONS, apply, number, twelfths_of_pi

Turns: TypeAlias = tuple[tuple[int, int], ...]  # a sum of angles: pairs (index of the angle, integer multiple)

_READABLE = 200  # the largest number of terms of an expression that is simplified; longer ones are unreadable anyway
_ANGLES = 4  # the largest number of terms, and the largest multiple, in an angle sum whose sine is expanded
_POWER = 16  # exponents up to which a power is multiplied out
_DEGREE = 6  # the degree in sines and cosines up to which a product is written as a sum
_SMALL = 10  # the largest integer coefficient that may remain when a common factor is taken out
_SIMPLE = 1000  # the largest denominator of a fraction that replaces a float


def normal_forms(
    nodes: np.ndarray, symbols: Mapping[str, Expression], units: Sequence[Sequence[str]] = ()
) -> list[Expression]:
    """The nodes as SymPy expressions in normal form, in the order of `nodes.flat`; None for those that are too long.

    **Arguments:** `nodes`; `symbols`, SymPy's expression for each symbol of the graph, by name; `units`, groups of
    symbols whose squares add up to one, such as Euler parameters.
    """
    forms = _Forms(in_order(nodes.flat), symbols, units)
    return [forms.written(node) for node in nodes.flat]


class _Forms:
    """The polynomial of each node, or None if it would be too long, and its conversion to a SymPy expression."""

    def __init__(self, order: list[Node], symbols: Mapping[str, Expression], units: Sequence[Sequence[str]]) -> None:
        self._symbols, self._ring = symbols, Ring()
        self._polynomials: dict[Node, Polynomial | None] = {}
        self._sizes: dict[Node, int] = {}
        self._memo: dict[Hashable, Any] = {}
        # Atoms are symbols that stand for expressions that are not polynomials: by their operations and arguments.
        self._atoms: dict[tuple[Hashable, ...], Expression] = {}
        self._inside: dict[Expression, tuple[str, tuple[Expression, ...]]] = {}
        self._angles: list[Expression] = []
        self._waves: dict[int, tuple[str, int]] = {}  # generators that are the sine or cosine of an angle
        self._cluster: dict[int, int] = {}  # angles that occur in sums together have a common label
        for names in units:
            self._ring.group(tuple(self._symbol(name) for name in names))
        for node in order:
            self._sizes[node] = 1 + sum(self._sizes[argument] for argument in node.args)
            try:
                self._polynomials[node] = None if node.is_boolean else self._polynomial(node)
            except TooLong:
                self._polynomials[node] = None

    def written(self, node: Node) -> Expression | None:
        """The shortest known expression for a node; None if it is too long."""
        import sympy

        if not self._is_readable(node):
            return None
        if self._sizes[node] < _length(self._polynomials[node] or {}):
            return self._unsimplified(node)  # such as a product of sums, which is longer when multiplied out
        form = self._without_atoms(self._shortest_expression(node))
        if self._sizes[node] > 2 * sympy.count_ops(form) + 20:
            return form
        return min((form, self._unsimplified(node)), key=sympy.count_ops)

    def _is_readable(self, node: Node) -> bool:
        polynomial = self._polynomials[node]
        return polynomial is not None and len(polynomial) <= _READABLE

    def _unsimplified(self, node: Node) -> Expression:
        return converted(in_order([node]), self._symbols, {})[node]

    # --- from nodes to polynomials ----------------------------------------------------------------------

    def _symbol(self, name: str) -> int:
        import sympy

        return self._ring.generator(("symbol", name), lambda: self._symbols.get(name) or sympy.Symbol(name, real=True))

    def _polynomial(self, node: Node) -> Polynomial | None:
        ring, args = self._ring, [self._polynomials[argument] for argument in node.args]
        if node.op == "symbol":
            assert node.name is not None
            return {(self._symbol(node.name),): ONE}
        if node.op == "const" and isfinite(node.value):
            return {(): node.value} if node.value else {}
        if node.op == "select" and is_length(node.args[0]):
            return args[1]
        known = [a for a in args if a is not None]
        if len(known) < len(args):
            return None if node.op in ("add", "sub", "mul", "neg") else self._opaque(node, args)
        match node.op:
            case "add":
                return total_of(term for a in known for term in a.items())
            case "sub" | "neg":
                return total_of([*(known[0].items() if known[1:] else ()), *((m, -c) for m, c in known[-1].items())])
            case "mul":
                return ring.multiply(*known)
            case "div" if known[1]:
                return self._quotient(known[0], known[1], node.args[1])
            case "pow" if node.args[1].value in range(1, _POWER + 1):
                return self._power(known[0], int(node.args[1].value))
            case "sin" | "cos" if len(known[0]) <= _ANGLES:
                return self._sine_and_cosine(known[0])[node.op == "cos"]
        return self._opaque(node, args)

    def _opaque(self, node: Node, args: list[Polynomial | None]) -> Polynomial | None:
        """An expression that is not a polynomial, as a generator; as a constant, if its value is a fraction."""
        import sympy

        if node.op in FUNCTIONS and args[0] is not None and not any(args[0]):
            value = apply(node.op, args[0].get((), Fraction(0)))
            if isinstance(value, Fraction):
                return {(): value} if value else {}
        inside = [self._argument(argument) for argument in node.args]
        if node.op == "select" and inside[0] in (sympy.true, sympy.false):
            return args[1 if inside[0] == sympy.true else 2]
        atom = constant(node.value) if node.is_constant else self._atom(node.op, *inside)
        return {(self._ring.generator(atom, lambda: atom),): ONE}

    def _argument(self, node: Node) -> Expression:
        import sympy

        if isinstance(node.value, bool):
            return sympy.true if node.value else sympy.false
        if self._is_readable(node):
            return self._shortest_expression(node)
        if not node.is_boolean:
            return self._unsimplified(node)
        inside = [self._argument(argument) for argument in node.args]
        known = all(e.is_number or e in (sympy.true, sympy.false) for e in inside)
        return rules()[node.op](*inside) if known else self._atom(node.op, *inside)

    def _quotient(self, a: Polynomial, b: Polynomial, below: Node) -> Polynomial:
        import sympy

        ratio = next(a.get(monomial, 0) / c for monomial, c in b.items())
        if a.keys() == b.keys() and all(a[monomial] == ratio * c for monomial, c in b.items()):
            return {(): ratio}
        if len(b) == 1:
            ((monomial, c),) = b.items()
            return self._ring.multiply(a, {tuple(sorted(map(self._ring.reciprocal, monomial))): 1 / c})
        over = self._ring.generator(
            ("over", frozenset(b.items())), lambda: self._atom("div", sympy.Integer(1), self._argument(below))
        )
        return self._ring.multiply(a, {(over,): ONE})

    def _power(self, a: Polynomial, n: int) -> Polynomial:
        return a if n == 1 else self._ring.multiply(self._power(a, n - 1), a)

    # --- atoms: symbols for expressions that are not polynomials, whose conditions SymPy would keep rewriting ---

    def _atom(self, op: str, *inside: Expression) -> Expression:
        """The symbol for an operation on expressions."""
        import sympy

        if op == "select":
            condition, yes, no = inside
            inside = (condition, self._on_branch(yes, condition, 1), self._on_branch(no, condition, 2))
        if (op, *inside) not in self._atoms:
            self._atoms[op, *inside] = atom = sympy.Dummy(real=True)
            self._inside[atom] = (op, inside)
            root, below = self._inside.get(inside[1], ("", ())) if op == "select" and inside[2] == 0 else ("", ())
            if root == "sqrt" and inside[0] == self._atoms.get(("gt", *below, 0)):
                self._atoms["gt", atom, sympy.Integer(0)] = inside[0]  # a length is positive if its square is
        return self._atoms[op, *inside]

    def _on_branch(self, expression: Expression, condition: Expression, branch: int) -> Expression:
        """An expression in which all selects on a condition are replaced by one branch: 1 if it is true, 2 if false."""
        key = ("given", expression, condition, branch)
        if key not in self._memo:
            changes = {}
            for atom in expression.free_symbols & self._inside.keys():
                op, inside = self._inside[atom]
                known = tuple(self._on_branch(e, condition, branch) for e in inside)
                taken = op == "select" and inside[0] == condition
                changes[atom] = known[branch] if taken else atom if known == inside else self._atom(op, *known)
            self._memo[key] = expression.xreplace(changes)
        return self._memo[key]

    def _without_atoms(self, expression: Expression) -> Expression:
        """An expression with its atoms replaced by the expressions that they stand for."""
        changes = {}
        for atom in expression.free_symbols & self._inside.keys():
            if ("full", atom) not in self._memo:
                op, inside = self._inside[atom]
                self._memo["full", atom] = _apply_operation(op, [self._without_atoms(e) for e in inside])
            changes[atom] = self._memo["full", atom]
        return expression.xreplace(changes)

    # --- sines and cosines ------------------------------------------------------------------------------

    def _sine_and_cosine(self, argument: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Sine and cosine of a sum by the addition theorems."""
        multiply = self._ring.multiply
        sine, cosine, met = {}, {(): ONE}, []
        for monomial, c in argument.items():
            times = int(abs(c)) if monomial and abs(c) in range(1, _ANGLES + 1) else 1
            twelfths = None if monomial else twelfths_of_pi(c)
            if twelfths is not None and twelfths % 6 == 0:
                quarter = twelfths // 6 % 4
                s, d = ({(): Fraction(2 - quarter)}, {}) if quarter % 2 else ({}, {(): Fraction(1 - quarter)})
            else:
                angle = self._angle({monomial: abs(c) / times})
                met.append(angle)
                s = {(self._wave("sin", ((angle, 1),)),): ONE if c > 0 else -ONE}
                d = {(self._wave("cos", ((angle, 1),)),): ONE}
            for _ in range(times):
                sine, cosine = (
                    total_of([*multiply(sine, d).items(), *multiply(cosine, s).items()]),
                    total_of([*multiply(cosine, d).items(), *((m, -f) for m, f in multiply(sine, s).items())]),
                )
        labels = {self._cluster[angle] for angle in met}
        self._cluster |= {angle: min(labels) for angle, label in self._cluster.items() if label in labels}
        return sine, cosine

    def _angle(self, angle: Polynomial) -> int:
        """The index of an angle, whose sine and cosine become generators."""
        written = self._terms(angle)
        if written not in self._angles:
            self._angles.append(written)
            new = len(self._cluster)
            self._cluster[new] = new
            cosine, sine = (self._wave(name, ((new, 1),)) for name in ("cos", "sin"))
            self._waves |= {cosine: ("cos", new), sine: ("sin", new)}
            self._ring.group((cosine, sine))
        return self._angles.index(written)

    def _wave(self, name: str, turns: Turns) -> int:
        """The generator that is the sine or cosine of a sum of angles."""
        import sympy

        argument = lambda: sum(times * self._angles[angle] for angle, times in turns)  # noqa: E731
        generator = self._ring.generator((name, turns), lambda: getattr(sympy, name)(argument()))
        self._ring.bounded.add(generator)
        return generator

    def _product_to_sum(self, factors: Sequence[tuple[str, int]]) -> Polynomial:
        """A product of sines and cosines as a sum of sines and cosines of angle sums (product-to-sum formulas)."""
        waves: dict[tuple[str, Turns], Fraction] = {("cos", ()): ONE}
        for name, angle in factors:
            halves: dict[tuple[str, Turns], Fraction] = defaultdict(Fraction)
            for (kind, turns), f in waves.items():
                for sign in (1, -1):
                    times = dict(turns) | {angle: dict(turns).get(angle, 0) + sign}
                    total = tuple(sorted((a, k) for a, k in times.items() if k))
                    flipped = bool(total) and total[0][1] < 0
                    other = kind if name == "cos" else {"sin": "cos", "cos": "sin"}[kind]
                    half = f / 2 if name == "cos" else f / 2 * sign * (1 if kind == "cos" else -1)
                    key = (other, tuple((a, -k) for a, k in total) if flipped else total)
                    halves[key] += -half if flipped and other == "sin" else half
            waves = halves
        nonzero = {key: f for key, f in waves.items() if key != ("sin", ())}
        return total_of(((self._wave(name, turns),) if turns else (), f) for (name, turns), f in nonzero.items())

    # --- from polynomials to expressions ----------------------------------------------------------------

    def _shortest_expression(self, node: Node) -> Expression:
        """The shortest of several ways to write a polynomial."""
        import sympy

        a, bounded = self._polynomials[node] or {}, self._ring.bounded
        key = frozenset(a.items())
        if key not in self._memo:
            best = self._shorten_coefficients(a)
            # Terms are grouped by atoms first, since these may be long.
            free = {g for g, e in enumerate(self._ring.expressions) if not e.free_symbols & self._inside.keys()}
            groups = _grouped(best, free | bounded).items()
            ways = [sympy.Add(*(self._terms({m: ONE}) * self._sum(b) for m, b in groups))]
            if self._sizes[node] <= _length(best) and not (raw := self._unsimplified(node)).has(sympy.Piecewise):
                ways.append(raw)
            self._memo[key] = min(ways, key=sympy.count_ops)
        return self._memo[key]

    def _sum(self, a: Polynomial) -> Expression:
        """A sum with common factors taken out, and the rest multiplied out or grouped, whichever is shorter."""
        import sympy

        factor, rest = _factored(a)
        outer = set(range(len(self._ring.expressions))) - self._ring.bounded
        ways = [self._terms(rest), self._collected(rest, self._ring.bounded), self._collected(rest, outer)]
        return min((self._terms(factor) * way for way in ways), key=sympy.count_ops)

    def _shorten_coefficients(self, a: Polynomial) -> Polynomial:
        """A polynomial with the coefficient of each monomial in unbounded generators in its shortest form."""
        parts = _grouped(a, self._ring.bounded)
        try:
            return total_of((tuple(sorted(m + n)), c) for m, b in parts.items() for n, c in self._shortest(b).items())
        except TooLong:
            return a

    def _shortest(self, a: Polynomial) -> Polynomial:
        """The shortest form after eliminating other squares, or with products of sines and cosines as sums."""
        best = a
        for members in self._ring.groups:
            for member in members if any(g in members for m in a for g in m) else ():
                squares = replacement(members, member)
                other = total_of((n, c * f) for m, c in best.items() for n, f in reduced(m, squares).items())
                best = min(best, other, key=_length)
        return min(best, self._with_products_as_sums(a, self._cluster), self._with_products_as_sums(a, {}), key=_length)

    def _with_products_as_sums(self, a: Polynomial, cluster: Mapping[int, int]) -> Polynomial:
        """A polynomial with the products of sines and cosines of one cluster written as sums."""
        terms = []
        for monomial, c in a.items():
            parts: dict[int | None, list[tuple[str, int]]] = defaultdict(list)
            for name, angle in (self._waves[g] for g in monomial if g in self._waves):
                parts[cluster.get(angle)].append((name, angle))
            product = {tuple(g for g in monomial if g not in self._waves): c}
            if sum(map(len, parts.values())) > _DEGREE:
                return a
            for part in parts.values():
                merged = self._product_to_sum(part).items()
                product = {tuple(sorted(m + n)): c * d for m, c in product.items() for n, d in merged}
            terms += product.items()
        return total_of(terms)

    def _collected(self, a: Polynomial, inside: set[int]) -> Expression:
        """A polynomial grouped by the generators that are not `inside`."""
        import sympy

        terms = []
        for monomial, group in _grouped(a, inside).items():
            factor, rest = _factored(group)
            terms.append(self._terms({monomial: ONE}) * self._terms(factor) * self._terms(rest))
        return sympy.Add(*terms)

    def _terms(self, a: Polynomial) -> Expression:
        """A polynomial as a sum of its terms."""
        import sympy

        write = self._ring.expressions
        return sympy.Add(*(sympy.Mul(_coefficient(c), *(write[g] for g in monomial)) for monomial, c in a.items()))


def _coefficient(c: Fraction | float) -> Expression:
    """A coefficient as a SymPy number; a computed float becomes a fraction only if its denominator is small."""
    exact = number(c)
    is_simple = isinstance(c, Fraction) or (isinstance(exact, Fraction) and exact.denominator <= _SIMPLE)
    return constant(exact if is_simple else float(c))


def _grouped(a: Polynomial, inside: set[int]) -> dict[Monomial, Polynomial]:
    groups: dict[Monomial, Polynomial] = defaultdict(dict)
    for monomial, c in a.items():
        groups[tuple(g for g in monomial if g not in inside)][tuple(g for g in monomial if g in inside)] = c
    return groups


def _factored(a: Polynomial) -> tuple[Polynomial, Polynomial]:
    """The common factor of all terms, and the rest.

    A common factor of the coefficients is taken out only if small integers remain.
    """
    shared = tuple((reduce(and_, map(Counter, a)) if a else Counter()).elements())
    c, exact = ONE, [c for c in a.values() if isinstance(c, Fraction)]
    if exact and len(exact) == len(a):
        common = Fraction(gcd(*(c.numerator for c in exact)), lcm(*(c.denominator for c in exact)))
        c = common if max(map(abs, exact)) <= _SMALL * common else ONE
    if all(d < 0 for d in a.values()):
        c = -c
    return {shared: c}, {without(monomial, *shared): d / c for monomial, d in a.items()}


def _length(a: Polynomial) -> int:
    return sum(1 + len(monomial) for monomial in a)


def _apply_operation(op: str, inside: list[Expression]) -> Expression:
    import sympy

    if op == "select":
        return sympy.Piecewise((inside[1], inside[0]), (inside[2], True), evaluate=False)
    return rules()[op](*inside, **({"evaluate": False} if op in COMPARISONS else {}))
