"""A directed acyclic graph of scalar expressions with hash-consing: equal expressions are one node.

Nodes are constructed by the functions of `algebra.py`, which simplify; `Graph.make` only looks up
whether a node exists.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from jaxmbd.symbolic.graph.number import number

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
BOOLEAN = COMPARISONS | {"and", "or", "not"}


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Node:
    """A scalar expression: an operation on nodes, a constant or a symbol. Within one graph, equal nodes are identical.

    Constants have the op `"const"` and a `value`: a fraction, a float if no fraction is exact, or a boolean. Symbols
    have the op `"symbol"` and a `name`. All others have `args`. A node's `index` is greater than those of its
    arguments.
    """

    graph: "Graph"
    index: int
    op: str
    args: tuple["Node", ...] = ()
    value: Any = None
    name: str | None = None

    def __repr__(self) -> str:
        # Arguments are shown by index only, since graphs are deep.
        inside = ", ".join(str(argument) if not argument.args else f"#{argument.index}" for argument in self.args)
        return f"{self.op}({inside})" if self.args else str(self.value if self.name is None else self.name)

    @property
    def is_constant(self) -> bool:
        return self.op == "const"

    @property
    def is_boolean(self) -> bool:
        return self.op in BOOLEAN or isinstance(self.value, bool)


class Graph:
    """The table of the nodes constructed so far."""

    def __init__(self) -> None:
        self._table: dict[Hashable, Node] = {}

    def make(self, op: str, *args: Node) -> Node:
        """The node of an operation, without simplification."""
        return self._find_or_add((op, *(node.index for node in args)), op, args)

    def constant(self, value: object) -> Node:
        """The node of a number or a boolean; a float is converted by its shortest decimal."""
        value = number(value)
        # The key contains the type, since True == 1 == 1.0, and the text, since NaN differs from itself.
        key = ("const", type(value).__name__, value if isinstance(value, Fraction) else repr(value))
        return self._find_or_add(key, "const", value=value)

    def symbol(self, name: str) -> Node:
        """The node of a symbol."""
        return self._find_or_add(("symbol", name), "symbol", name=name)

    def _find_or_add(self, key: Hashable, op: str, args: tuple[Node, ...] = (), **leaf: Any) -> Node:
        node = self._table.get(key)
        if node is None:
            node = self._table[key] = Node(self, len(self._table), op, args, **leaf)
        return node


def in_order(outputs: Iterable[Node]) -> list[Node]:
    """All nodes on which the outputs depend, in topological order: arguments first."""
    stack = list(outputs)
    reached: dict[int, Node] = {}
    while stack:
        node = stack.pop()
        if node.index not in reached:
            reached[node.index] = node
            stack.extend(node.args)
    return [reached[index] for index in sorted(reached)]
