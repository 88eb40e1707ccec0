"""A graph of scalar expressions in which equal expressions are one node.

Nodes are made by the functions of `_algebra`, which simplify; `Graph.make` only looks up whether a node exists.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from jaxmbd.compile.graph.number import Number, number

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
BOOLEAN = COMPARISONS | {"and", "or", "not"}


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Node:
    """One scalar: an operation on other nodes, a constant or a symbol. Within one graph, equal nodes are identical.

    Constants have the op `"const"` and a `value`, a fraction or, where there is none, a float, or a boolean; symbols
    have the op `"symbol"` and a `name`. The rest have `args`; every node's `index` is above those of its arguments.
    """

    graph: "Graph"
    index: int
    op: str
    args: tuple["Node", ...] = ()
    value: Any = None
    name: str | None = None

    def __repr__(self) -> str:
        # The arguments by number only: a graph is deep.
        inside = ", ".join(str(argument) if not argument.args else f"#{argument.index}" for argument in self.args)
        return f"{self.op}({inside})" if self.args else str(self.value if self.name is None else self.name)

    @property
    def is_constant(self) -> bool:
        return self.op == "const"

    @property
    def is_boolean(self) -> bool:
        return self.op in BOOLEAN or isinstance(self.value, bool)


class Graph:
    """The table of the nodes made so far."""

    def __init__(self) -> None:
        self._table: dict[Any, Node] = {}

    def make(self, op: str, *args: Node) -> Node:
        """The node of an operation, as it stands."""
        key = (op, *(node.index for node in args))
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = Node(self, len(self._table), op, args)
        return found

    def constant(self, value: Any) -> Node:
        """The node of a number or a boolean; a float counts as its shortest decimal."""
        return self._leaf("const", number(value))

    def symbol(self, name: str) -> Node:
        """The node of a name."""
        key = ("symbol", name)
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = Node(self, len(self._table), "symbol", name=name)
        return found

    def _leaf(self, op: str, value: Number) -> Node:
        # By the type too, since True == 1 == 1.0; by the text, since NaN differs from itself.
        key = (op, type(value).__name__, value if isinstance(value, Fraction) else repr(value))
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = Node(self, len(self._table), op, value=value)
        return found

    def constants(self, array: Any) -> np.ndarray:
        """The constants for an array of numbers."""
        numbers = np.asarray(array)
        # Each number once: large arrays are mostly zeros, or count.
        distinct, places = np.unique(numbers, return_inverse=True)
        nodes = np.empty(distinct.shape, dtype=object)
        nodes[:] = [self.constant(value) for value in distinct]
        return nodes[places.reshape(numbers.shape)] if numbers.ndim else nodes.reshape(())

    def values(self, array: np.ndarray, dtype: Any) -> np.ndarray | None:
        """Constant nodes as numbers; None where one of the nodes is none."""
        if not all(node.is_constant for node in array.flat):
            return None
        numbers = np.empty(array.size, dtype=object)
        numbers[:] = [node.value for node in array.flat]
        return numbers.astype(dtype).reshape(array.shape)

    def symbols(self, names: np.ndarray) -> np.ndarray:
        """The symbols for an array of names."""
        nodes = np.empty(names.shape, dtype=object)
        for position, name in np.ndenumerate(names):
            nodes[position] = self.symbol(name)
        return nodes

    def __len__(self) -> int:
        return len(self._table)


def in_order(outputs: Iterable[Node]) -> list[Node]:
    """All nodes that the outputs need, arguments first."""
    waiting = list(outputs)
    found: dict[int, Node] = {}
    while waiting:
        node = waiting.pop()
        if node.index not in found:
            found[node.index] = node
            waiting.extend(node.args)
    return [found[index] for index in sorted(found)]
